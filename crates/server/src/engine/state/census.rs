//! The progress of a scan of clients' memory. See `engine::census` for its purpose.

use crate::shared::CoreReport;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;

/// A scan of all connections of a core, in progress.
#[derive(Default)]
pub(crate) struct Census {
    /// The place of the next connection to scan.
    pub(crate) next: usize,
    pub(crate) due_ms: u64,
    /// Bytes of the connections scanned so far.
    pub(crate) bytes: usize,
    /// Candidates for eviction, largest first: bytes and client id.
    pub(crate) evictable: BinaryHeap<(usize, u64)>,
    /// All connections were scanned, and the largest are being closed.
    pub(crate) evicts: bool,
    /// Whether the last scan, and this one, found a client above its soft limit.
    is_soft: [bool; 2],
    /// A line was logged that no client is left to close.
    pub(crate) warned: bool,
}

impl Census {
    /// The next scan, due at `due_ms`.
    pub(crate) fn next(&self, due_ms: u64) -> Self {
        Self { due_ms, warned: self.warned, is_soft: [self.is_soft[1], false], ..Self::default() }
    }

    /// Records that a client is above its soft limit.
    pub(crate) fn note_soft(&mut self) {
        self.is_soft[1] = true;
    }

    /// Whether some client may be above its soft limit.
    pub(crate) fn is_soft(&self) -> bool {
        self.is_soft.contains(&true)
    }

    /// The time at which the scan continues, in Unix milliseconds.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Publishes the largest size before the sum. A core that sees the sum must also see which core
    /// has the largest client, or it would close a smaller one.
    pub(crate) fn report_to(&self, report: &CoreReport) {
        let most = self.evictable.peek().map_or(0, |(bytes, _)| *bytes);
        report.client_max.store(most, Ordering::Relaxed);
        report.clients.store(self.bytes, Ordering::Release);
    }
}
