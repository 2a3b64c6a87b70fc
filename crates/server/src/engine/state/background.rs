//! The order of background work: the next chore, and the time at which expired entries are removed.

use std::cell::Cell;

/// Expired entries gather for this time before they are removed. It is long enough that each page
/// of a large table has several, and short enough that few are counted or kept.
const REAP_EVERY_MS: u64 = 10;

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Running the tasks of commands, and jobs.
    Tasks,
    /// Encoding long replies.
    Streams,
    /// Delivering published messages.
    Messages,
    /// Sending invalidations of touched keys to tracking clients.
    Invalidations,
    /// Removing expired entries.
    Dead,
    /// Freeing memory whose freeing was deferred.
    Frees,
    /// Compacting tables that have shrunk.
    Compaction,
    /// Removing clients that have stopped waiting from the queues of keys.
    Waits,
    /// Encoding the snapshot.
    Save,
    /// Notifying clients whose watched keys were touched.
    Watches,
}

/// All chores, in the order of a round.
pub(crate) const CHORES: [Chore; 10] = [
    Chore::Tasks,
    Chore::Streams,
    Chore::Messages,
    Chore::Invalidations,
    Chore::Dead,
    Chore::Frees,
    Chore::Compaction,
    Chore::Waits,
    Chore::Save,
    Chore::Watches,
];

/// The state of background work.
#[derive(Default)]
pub(crate) struct Background {
    /// True if background work used up the last slice.
    used_up: Cell<bool>,
    next_chore: Cell<usize>,
    /// The time at which expired entries are removed next, in Unix milliseconds.
    reap_at: Cell<u64>,
}

impl Background {
    /// Returns the next chore of the round, and advances.
    pub(crate) fn next_chore(&self) -> Chore {
        let at = self.next_chore.get();
        self.next_chore.set((at + 1) % CHORES.len());
        CHORES[at]
    }

    /// True if background work used up the last slice.
    pub(crate) fn used_up(&self) -> bool {
        self.used_up.get()
    }

    /// Records, at the end of a slice, whether background work has used it up.
    pub(crate) fn note_used_up(&self, used_up: bool) {
        self.used_up.set(used_up);
    }

    /// The time at which to remove expired entries, if the first of them expires at `first_ms`.
    pub(crate) fn reap_ms(&self, first_ms: u64) -> u64 {
        first_ms.max(self.reap_at.get())
    }

    /// Handles the current time `now_ms`, which is earlier than before if the clock was set back.
    pub(crate) fn note_time(&self, now_ms: u64) {
        self.reap_at.set(self.reap_at.get().min(now_ms + REAP_EVERY_MS));
    }

    /// Records at `now_ms` that all expired entries were removed. From now on they gather again.
    pub(crate) fn all_reaped(&self, now_ms: u64) {
        if now_ms >= self.reap_at.get() {
            self.reap_at.set(now_ms + REAP_EVERY_MS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chore_runs_once_in_a_round() {
        let background = Background::default();
        for chore in CHORES.iter().chain(&CHORES) {
            assert_eq!(background.next_chore(), *chore);
        }
    }

    #[test] // The bound holds even if the clock is set back.
    fn expired_keys_gather_for_a_bounded_time() {
        let background = Background::default();
        background.note_time(1_000);
        assert_eq!(background.reap_ms(1_001), 1_001);
        background.all_reaped(1_000);
        assert_eq!(background.reap_ms(1_001), 1_000 + REAP_EVERY_MS);
        background.all_reaped(1_000 + REAP_EVERY_MS - 1);
        assert_eq!(background.reap_ms(1_001), 1_000 + REAP_EVERY_MS, "they gather already");
        background.note_time(500);
        assert_eq!(background.reap_ms(501), 500 + REAP_EVERY_MS);
    }
}
