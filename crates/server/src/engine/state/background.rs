//! Background work: the next chore in the round, and the time to remove expired entries.

use std::cell::Cell;

/// The time for which expired entries gather before they are removed: long enough that each leaf of
/// a large table has several, short enough that few are counted or kept.
const REAP_EVERY_MS: u64 = 10;

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Tasks of commands, and jobs.
    Tasks,
    /// Long replies.
    Streams,
    /// Delivery of published messages.
    Messages,
    /// Invalidations of touched keys, for tracking clients.
    Invalidations,
    /// Removing expired entries.
    Dead,
    /// Deferred freeing.
    Frees,
    /// Compacting tables that have shrunk.
    Compaction,
    /// Removal of clients that no longer wait from queues.
    Waits,
    /// Saving.
    Save,
    /// Notices of touched keys, for watching clients.
    Watches,
}

/// One round, in order.
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

/// See the module.
#[derive(Default)]
pub(crate) struct Background {
    /// Background work used up the last slice.
    used_up: Cell<bool>,
    next_chore: Cell<usize>,
    /// Time of the next removal of expired entries, in Unix milliseconds.
    reap_at: Cell<u64>,
}

impl Background {
    /// The next chore of the round.
    pub(crate) fn next_chore(&self) -> Chore {
        let at = self.next_chore.get();
        self.next_chore.set((at + 1) % CHORES.len());
        CHORES[at]
    }

    /// Whether background work used up the last slice.
    pub(crate) fn used_up(&self) -> bool {
        self.used_up.get()
    }

    /// Records at the end of a slice whether background work has used it up.
    pub(crate) fn note_used_up(&self, used_up: bool) {
        self.used_up.set(used_up);
    }

    /// The time at which to remove keys, if the first expires at `first_ms`.
    pub(crate) fn reap_ms(&self, first_ms: u64) -> u64 {
        first_ms.max(self.reap_at.get())
    }

    /// Adjusts to the time `now_ms`, which may have been set back.
    pub(crate) fn note_time(&self, now_ms: u64) {
        self.reap_at.set(self.reap_at.get().min(now_ms + REAP_EVERY_MS));
    }

    /// Records that nothing is left to remove at `now_ms`: keys may gather from then on.
    pub(crate) fn all_reaped(&self, now_ms: u64) {
        if now_ms >= self.reap_at.get() {
            self.reap_at.set(now_ms + REAP_EVERY_MS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Each chore comes once in a round.
    fn chores_go_round() {
        let background = Background::default();
        for chore in CHORES.iter().chain(&CHORES) {
            assert_eq!(background.next_chore(), *chore);
        }
    }

    #[test] // Even if the clock is set back.
    fn dead_keys_gather_for_a_bounded_time() {
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
