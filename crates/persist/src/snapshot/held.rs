//! The memory that writers have left to a snapshot: only the snapshot keeps it from being freed.
//!
//! The readers of tables count segments. Parts of values (nodes and chunks of trees, pieces of
//! strings) and replaced values are two sums of the thread (`darter_structs::kept`), which do not
//! name the value. This module estimates how much of each was released since.
//!
//! ```text
//! a sum:     ....|released .......|the round began ....|the value began ..........|now
//!                 given back when  which the round ends  as far as it is written
//! ```
//! It is an estimate, and errs towards more: other cuts may hold this memory, too.

use darter_structs::kept;

/// The value of a sum at several times of a snapshot, in bytes.
pub(super) struct Kept {
    sum: fn() -> u64,
    begun: u64,
    /// The bytes left to the snapshot up to this value of the sum have been freed.
    released: u64,
    /// The sum at the start of the reader's current round. The reader first reads the segments that
    /// writers have copied.
    round: u64,
    rounds: u32,
    /// The sum at the start of the value that is being written, if the sum is that of parts of
    /// values.
    value: Option<u64>,
}

impl Kept {
    /// Starts with the sum of parts of values.
    pub(super) fn of_parts() -> Self {
        Self::of(kept::parts)
    }

    /// Starts with the sum of replaced values.
    pub(super) fn of_wholes() -> Self {
        Self::of(kept::wholes)
    }

    fn of(sum: fn() -> u64) -> Self {
        Self { sum, begun: 0, released: 0, round: 0, rounds: 0, value: None }
    }

    /// Begins a database: nothing of earlier databases is held any more.
    pub(super) fn begin_part(&mut self, is_first: bool) {
        let now = (self.sum)();
        if is_first {
            self.begun = now;
        }
        (self.released, self.round, self.rounds) = (now, now, 0);
    }

    /// Records the round of the reader of the keys.
    pub(super) fn note_rounds(&mut self, rounds: u32) {
        if self.rounds != rounds {
            self.released = self.released.max(self.round);
            (self.round, self.rounds) = ((self.sum)(), rounds);
        }
    }

    pub(super) fn begin_value(&mut self) {
        self.value = Some((self.sum)());
    }

    /// Counts the whole value as released, including the parts that writers have left to the
    /// snapshot since it began.
    pub(super) fn end_value(&mut self) {
        if let Some(value) = self.value.take() {
            let now = (self.sum)();
            self.released = now.min(self.released + (now - value));
        }
    }

    /// The bytes held, if `per_mille` thousandths of the value have been written and freed.
    pub(super) fn bytes(&self, per_mille: u64) -> u64 {
        let now = (self.sum)();
        let of_value = self.value.map_or(0, |value| (now - value) * per_mille / 1_000);
        (now - self.released).saturating_sub(of_value)
    }

    /// The bytes left to the snapshot since it began.
    pub(super) fn all_bytes(&self) -> u64 {
        (self.sum)().saturating_sub(self.begun)
    }
}
