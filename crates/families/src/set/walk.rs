//! Walks one set while probing others: the inner loop of set operations.
//!
//! Looking up a member in a set of ten million is a cache miss, and a naive loop mostly waits for
//! it. So members are processed in batches: the index lines of a whole batch are prefetched, then
//! the batch is looked up. The state between batches, and between probed sets, is kept, so a
//! portion is as short as the caller wants, with two sets or a million.
//!
//! Not here: the use of the kept members.

use super::sets::Sets;
use crate::live_entries::is_alive;
use crate::prefetch::BATCH;
use darter_base::hash;
use darter_base::limits::CHUNK_BYTES;
use darter_structs::table::{Entry, HeldKey, Never, Reader, Scratch, Table};

/// Longer members are referenced, not copied.
const COPIED_MAX: usize = 1024;
/// Bytes of a member whose comparison takes as long as a lookup.
const LOOKUP_BYTES: usize = 1024;

/// The condition on the probed sets for keeping a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The member is in all of them.
    InAll,
    /// The member is in none of them.
    InNone,
}

/// A walk in progress; see the module's documentation.
pub(super) struct Walk {
    reader: Reader<Never>,
    asked: Sets,
    wanted: Wanted,
    now: u64,
    batch: Batch,
    /// The index of the set in which the batch is looked up next.
    next: usize,
    /// Members of the batch already passed to the sink.
    given: usize,
}

/// A batch of members that is looked up in the probed sets.
#[derive(Default)]
struct Batch {
    /// Copies of the short members.
    bytes: Vec<u8>,
    ends: [usize; BATCH],
    /// References to the long members, with their indexes.
    held: Vec<(usize, HeldKey)>,
    hashes: [u64; BATCH],
    len: usize,
    /// One bit a member: it is kept so far.
    kept: u32,
}

const _: () = assert!(BATCH <= u32::BITS as usize);

impl Batch {
    fn push(&mut self, entry: &Entry<'_, Never>) {
        let (key, mut scratch) = (entry.key(), Scratch::new());
        let member = key.bytes(&mut scratch);
        self.hashes[self.len] =
            match (member.len() > COPIED_MAX).then(|| entry.hold_key()).flatten() {
                Some(held) => {
                    let hash = held.hash();
                    self.held.push((self.len, held));
                    hash
                }
                None => {
                    self.bytes.extend_from_slice(member);
                    hash::of(member)
                }
            };
        self.ends[self.len] = self.bytes.len();
        self.kept |= 1 << self.len;
        self.len += 1;
    }

    fn member(&self, index: usize) -> &[u8] {
        if let Some((_, held)) = self.held.iter().find(|(at, _)| *at == index) {
            return held.bytes();
        }
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// The indexes of the members kept so far.
    fn kept(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.kept;
        std::iter::from_fn(move || {
            let index = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(index)
        })
    }

    /// The cost of a lookup of the whole batch, in lookups of short members.
    fn cost(&self) -> usize {
        // Longer members are compared by their hash and length.
        let compared =
            |held: &HeldKey| if held.bytes().len() > CHUNK_BYTES { 0 } else { held.bytes().len() };
        let bytes: usize = self.held.iter().map(|(_, held)| compared(held)).sum();
        self.kept.count_ones() as usize + bytes / LOOKUP_BYTES
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.held.clear();
        (self.len, self.kept) = (0, 0);
    }
}

impl Walk {
    /// Walks `walked` as of `now`, and probes the sets in `asked` in that order; put the most
    /// selective first.
    pub(super) fn new(walked: Table<Never>, asked: Sets, wanted: Wanted, now: u64) -> Self {
        let reader = Reader::new(walked);
        Self { reader, asked, wanted, now, batch: Batch::default(), next: 0, given: 0 }
    }

    /// Does about `budget` lookups. Passes at most `budget` decided live members to `sink`, in the
    /// table's order, each with whether it is kept. Returns true while members are left.
    pub(super) fn step(&mut self, budget: usize, sink: &mut dyn FnMut(&[u8], bool)) -> bool {
        let mut budget = budget;
        while budget > 0 {
            if self.batch.len == 0 {
                if self.reader.left() == 0 {
                    return false;
                }
                self.fill();
                budget = budget.saturating_sub(BATCH / 2);
            }
            while budget > 0 && self.next < self.asked.len() && self.batch.kept != 0 {
                budget = budget.saturating_sub(self.batch.cost());
                self.ask();
            }
            if self.next == self.asked.len() || self.batch.kept == 0 {
                budget -= self.give(budget, sink);
            }
        }
        self.batch.len > 0 || self.reader.left() > 0
    }

    fn fill(&mut self) {
        let (batch, now) = (&mut self.batch, self.now);
        (self.next, self.given) = (0, 0);
        self.reader.next_slice(BATCH, &mut |entry| {
            if is_alive(entry.deadline(), now) {
                batch.push(&entry);
            }
        });
    }

    /// Looks up the kept members of the batch in the next set.
    fn ask(&mut self) {
        let members = self.asked[self.next].members();
        for index in self.batch.kept() {
            members.prefetch(self.batch.hashes[index]);
        }
        for index in self.batch.kept() {
            let found = members
                .get(self.batch.hashes[index], self.batch.member(index))
                .is_some_and(|entry| is_alive(entry.deadline(), self.now));
            if found != (self.wanted == Wanted::InAll) {
                self.batch.kept &= !(1 << index);
            }
        }
        self.next += 1;
    }

    /// Passes at most `most` members of the batch to `sink`. Returns their number.
    fn give(&mut self, most: usize, sink: &mut dyn FnMut(&[u8], bool)) -> usize {
        let end = self.batch.len.min(self.given + most);
        for index in self.given..end {
            sink(self.batch.member(index), self.batch.kept >> index & 1 == 1);
        }
        let given = end - self.given;
        self.given = end;
        if end == self.batch.len {
            self.batch.clear();
        }
        given
    }
}
