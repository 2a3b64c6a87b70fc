//! Entries that are gone, and whose items are still in the index.
//!
//! A range is removed from the tree of entries by two splits and a join; its items lie all over the
//! index. They are removed from it in the order of the entries, by the dozen: prefetched together,
//! they wait for memory once.
//!
//! Invariant (with B1 of `big`):
//! - T1: `done` is less than the length of the first chunk, and 0 if there is none.

use super::big::hash_of;
use super::index::{Hash, Index};
use super::item::{self, Entries};
use super::place::SortedEntry;
use crate::chunk::{Chunk, Coding, End};
use crate::tree::{PREFETCHED_MAX, Subtree, join_some, pop};

/// The cost of copying a chunk of the index, which a cut holds, and the nodes above it, in removals
/// of items from unshared chunks.
const COPYING: usize = 16;
/// The cost of merging two chunks, in removals.
const MERGING: usize = 8;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Stale {
    entries: Option<Subtree<Entries>>,
    /// Entries of the first chunk whose items are removed.
    done: usize,
}

impl Stale {
    /// Entries whose items are still there.
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

    /// These are gone, too.
    pub(super) fn add(&mut self, gone: Option<Subtree<Entries>>) {
        self.entries = join_some(self.entries.take(), gone);
    }

    /// All of them, to be freed.
    pub(super) fn take(&mut self) -> Option<Subtree<Entries>> {
        self.done = 0;
        self.entries.take()
    }

    /// Removes items of these entries from the index: of at most `most`, and of fewer where chunks
    /// must be copied or merged for it. True while some are left.
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

    /// The items of the first chunk are removed.
    fn drop_first(&mut self) {
        self.done = 0;
        self.entries = self.entries.take().and_then(|entries| pop(entries, End::Front).1);
    }

    /// Calls `f` with those whose items are still there, and asserts T1. For tests.
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

/// Entries, by the hashes and scores of their items.
struct Batch {
    hashes: [u64; PREFETCHED_MAX],
    scores: [f64; PREFETCHED_MAX],
    len: usize,
}

impl Batch {
    /// Reads entries of a chunk, at most `most`.
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

/// Removes the item of an entry that is gone. Returns what that took, in items.
fn forget(index: &mut Index, hash: u64, score: f64) -> usize {
    let found = index.find(Hash::of(hash), |other| (other == score).then_some(()));
    let (item, ()) = found.expect("B1: an item for each stale entry");
    let copying = if index.is_shared(&item) { COPYING } else { 0 };
    let merging = if index.remove(&item) { MERGING } else { 0 };
    1 + copying + merging
}
