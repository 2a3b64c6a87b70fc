//! The rounds of background work: whose turn it is, and when expired entries are removed.

use std::cell::Cell;

/// How long expired entries may gather before they are removed: long enough that each leaf of a
/// large table has several, short enough that there are few to count, or to keep.
const REAP_EVERY_MS: u64 = 10;

/// Background work, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Coordinated commands, and jobs.
    Tasks,
    /// Long replies.
    Streams,
    /// What is published.
    Messages,
    /// Telling who tracks a key that it was touched.
    Invalidations,
    /// Removing expired entries.
    Dead,
    /// Deferred freeing.
    Frees,
    /// Compacting tables that have shrunk.
    Compaction,
    /// Removing from queues those who wait no more.
    Waits,
    /// Saving.
    Save,
    /// Telling who watches a key that it was touched.
    Watches,
}

/// A round.
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
    /// It used up the last slice.
    used_up: Cell<bool>,
    next_chore: Cell<usize>,
    /// When expired entries are next looked for, in Unix milliseconds.
    reap_at: Cell<u64>,
}

impl Background {
    /// The chore whose turn it is.
    pub(crate) fn next_chore(&self) -> Chore {
        let at = self.next_chore.get();
        self.next_chore.set((at + 1) % CHORES.len());
        CHORES[at]
    }

    /// Whether it used up the last slice.
    pub(crate) fn used_up(&self) -> bool {
        self.used_up.get()
    }

    /// A slice ends: whether background work has used it up.
    pub(crate) fn note_used_up(&self, used_up: bool) {
        self.used_up.set(used_up);
    }

    /// When keys are removed of which the first expires at `first_ms`.
    pub(crate) fn reap_ms(&self, first_ms: u64) -> u64 {
        first_ms.max(self.reap_at.get())
    }

    /// The time is `now_ms`: it may have been set back.
    pub(crate) fn note_time(&self, now_ms: u64) {
        self.reap_at.set(self.reap_at.get().min(now_ms + REAP_EVERY_MS));
    }

    /// Nothing is left to be removed at `now_ms`: keys may gather from then on.
    pub(crate) fn all_reaped(&self, now_ms: u64) {
        if now_ms >= self.reap_at.get() {
            self.reap_at.set(now_ms + REAP_EVERY_MS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Each chore in its turn.
    fn chores_go_round() {
        let background = Background::default();
        for chore in CHORES.iter().chain(&CHORES) {
            assert_eq!(background.next_chore(), *chore);
        }
    }

    #[test] // Keys gather once none was left, never longer than that, though the clock is set back.
    fn keys_gather_for_a_while() {
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
