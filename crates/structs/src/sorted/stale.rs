//! Removed entries whose items are still in the index.
//!
//! A range is removed from the tree of entries by two splits and a join; its items are scattered
//! over the index. They are removed in the order of the entries, a dozen at a time: prefetched
//! together, they wait for memory only once.
//!
//! Invariant (with B1 of `big`):
//! - T1: `done` is less than the length of the first chunk, and 0 if there is none.

use super::big::hash_of;
use super::index::{Hash, Index};
use super::item::{self, Entries};
use super::place::SortedEntry;
use crate::chunk::{Chunk, Coding, End};
use crate::tree::{PREFETCHED_MAX, Subtree, join_some, pop};

/// The cost of copying a chunk of the index that a cut shares, and the nodes above it, in removals
/// of items from unshared chunks.
const COPYING: usize = 16;
/// The cost of merging two chunks, in removals.
const MERGING: usize = 8;

/// The stale entries of a set; see the module's documentation.
#[derive(Clone, Default)]
pub(super) struct Stale {
    entries: Option<Subtree<Entries>>,
    /// The number of entries of the first chunk whose items have been removed.
    done: usize,
}

impl Stale {
    /// The number of entries whose items are still in the index.
    pub(super) fn len(&self) -> usize {
        self.entries.as_ref().map_or(0, |entries| entries.len - self.done)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_none()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.as_ref().map_or(0, |entries| entries.bytes)
    }

    /// Adds removed entries.
    pub(super) fn add(&mut self, gone: Option<Subtree<Entries>>) {
        self.entries = join_some(self.entries.take(), gone);
    }

    /// Takes all entries out, for freeing.
    pub(super) fn take(&mut self) -> Option<Subtree<Entries>> {
        self.done = 0;
        self.entries.take()
    }

    /// Removes items of these entries from the index: of at most `most`, or of fewer if chunks must
    /// be copied or merged. Returns true while some are left.
    pub(super) fn settle(&mut self, index: &mut Index, most: usize) -> bool {
        let mut left = most;
        while left > 0
            && let Some(entries) = &self.entries
        {
            let chunk = entries.find(0).0;
            let batch = Batch::read(chunk, self.done, left);
            index.prefetch_all(&batch.hashes[..batch.len]);
            let all = chunk.len();
            for at in 0..batch.len {
                left = left.saturating_sub(forget(index, batch.hashes[at], batch.scores[at]));
                self.done += 1;
                if left == 0 {
                    break;
                }
            }
            if self.done == all {
                self.drop_first();
            }
        }
        !self.is_empty()
    }

    /// Drops the first chunk, whose items have been removed.
    fn drop_first(&mut self) {
        self.done = 0;
        self.entries = self.entries.take().and_then(|entries| pop(entries, End::Front).1);
    }

    /// Calls `f` with the entries whose items are still in the index, and asserts T1. For tests.
    pub(super) fn each(&self, f: &mut impl FnMut(SortedEntry<'_>)) {
        let first = self.entries.as_ref().map_or(1, |entries| entries.find(0).0.len());
        assert!(self.done < first, "T1: {} of {first}", self.done);
        self.entries.iter().for_each(|entries| each(entries, self.done, f));
    }
}

/// Calls `f` with the entries of a tree, from this index on.
pub(super) fn each(tree: &Subtree<Entries>, from: usize, f: &mut impl FnMut(SortedEntry<'_>)) {
    let mut next = from;
    while next < tree.len {
        let (chunk, first) = tree.find(next);
        let mut offset = chunk.offset(next - first);
        while offset < chunk.items().len() {
            let items = &chunk.items()[offset..];
            f(item::entry(items, Some(chunk)));
            offset += Entries::len(items);
        }
        next = first + chunk.len();
    }
}

/// The hashes and scores of some entries' items.
struct Batch {
    hashes: [u64; PREFETCHED_MAX],
    scores: [f64; PREFETCHED_MAX],
    len: usize,
}

impl Batch {
    /// Reads at most `most` entries of a chunk.
    fn read(chunk: &Chunk<Entries>, from: usize, most: usize) -> Self {
        let (hashes, scores) = ([0; PREFETCHED_MAX], [0.0; PREFETCHED_MAX]);
        let len = (chunk.len() - from).min(most).min(PREFETCHED_MAX);
        let (mut batch, mut offset) = (Self { hashes, scores, len }, chunk.offset(from));
        for at in 0..len {
            let items = &chunk.items()[offset..];
            let entry = item::entry(items, Some(chunk));
            (batch.hashes[at], batch.scores[at]) = (hash_of(&entry), entry.score);
            offset += Entries::len(items);
        }
        batch
    }
}

/// Removes the item of a removed entry. Returns the cost, in items.
fn forget(index: &mut Index, hash: u64, score: f64) -> usize {
    let found = index.find(Hash::of(hash), |other| (other == score).then_some(()));
    let (item, ()) = found.expect("B1: an item for each stale entry");
    let copying = if index.is_shared(&item) { COPYING } else { 0 };
    let merging = if index.remove(&item) { MERGING } else { 0 };
    1 + copying + merging
}
