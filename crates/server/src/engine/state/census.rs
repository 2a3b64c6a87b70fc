//! The state of one scan of the clients' memory. See `engine::census` for its purpose.

use crate::shared::CoreReport;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;

/// A scan of all connections of a core, in progress.
#[derive(Default)]
pub(crate) struct Census {
    /// The index of the next connection to visit.
    pub(crate) next: usize,
    pub(crate) due_ms: u64,
    /// The sum of bytes of the connections visited so far.
    pub(crate) bytes: usize,
    /// Clients that may be closed, largest first: their bytes and ids.
    pub(crate) evictable: BinaryHeap<(usize, u64)>,
    /// True when all connections were visited, and the largest clients are being closed.
    pub(crate) evicts: bool,
    /// Whether a client above its soft limit was found: by the last scan, and by this one.
    is_soft: [bool; 2],
    /// True if the log already has the line that no client is left to close.
    pub(crate) warned: bool,
}

impl Census {
    /// The scan that follows this one, due at `due_ms`.
    pub(crate) fn next(&self, due_ms: u64) -> Self {
        Self { due_ms, warned: self.warned, is_soft: [self.is_soft[1], false], ..Self::default() }
    }

    /// Records that this scan has found a client above its soft limit.
    pub(crate) fn note_soft(&mut self) {
        self.is_soft[1] = true;
    }

    /// True if some client may be above its soft limit.
    pub(crate) fn is_soft(&self) -> bool {
        self.is_soft.contains(&true)
    }

    /// The time at which the scan continues, in Unix milliseconds.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Publishes the largest client before the sum of all. A core that reads the sum must also see
    /// which core has the largest client, or it would close a smaller one.
    pub(crate) fn report_to(&self, report: &CoreReport) {
        let most = self.evictable.peek().map_or(0, |(bytes, _)| *bytes);
        report.client_max.store(most, Ordering::Relaxed);
        report.clients.store(self.bytes, Ordering::Release);
    }
}
