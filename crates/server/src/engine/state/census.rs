//! How far a scan of what clients hold has come. See `engine::census` for what it looks for.

use crate::shared::CoreReport;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering;

/// A scan of all connections of a core, in progress.
#[derive(Default)]
pub(crate) struct Census {
    /// The place of the next connection.
    pub(crate) next: usize,
    pub(crate) due_ms: u64,
    /// Bytes of those scanned so far.
    pub(crate) bytes: usize,
    /// Candidates for eviction, largest first: bytes and client id.
    pub(crate) evictable: BinaryHeap<(usize, u64)>,
    /// All were scanned, and the largest are being closed.
    pub(crate) evicts: bool,
    /// Some client is above its soft limit, as the last scan or this one has seen.
    is_soft: [bool; 2],
    /// It was logged that no client is left to close.
    pub(crate) warned: bool,
}

impl Census {
    /// The next one, due then.
    pub(crate) fn next(&self, due_ms: u64) -> Self {
        Self { due_ms, warned: self.warned, is_soft: [self.is_soft[1], false], ..Self::default() }
    }

    /// Some client is above its soft limit.
    pub(crate) fn note_soft(&mut self) {
        self.is_soft[1] = true;
    }

    /// Whether some client may be above its soft limit.
    pub(crate) fn is_soft(&self) -> bool {
        self.is_soft.contains(&true)
    }

    /// When it continues, in Unix milliseconds.
    pub(crate) fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// Publishes the largest first: a core that sees the sum must also see whose client is the
    /// largest, or it would close a smaller one.
    pub(crate) fn tell(&self, told: &CoreReport) {
        let most = self.evictable.peek().map_or(0, |(bytes, _)| *bytes);
        told.client_max.store(most, Ordering::Relaxed);
        told.clients.store(self.bytes, Ordering::Release);
    }
}
