//! Reading a sorted set in place: the entry at a rank, and ranges in either direction.

use super::item::{self, Entries};
use super::pack::SortedPackRef;
use super::place::{Place, SortedEntry};
use super::{Root, Sorted};
use crate::chunk::{Chunk, Coding};
use crate::runs::{self, Run as _, Runs};
use std::ops::Range;

/// Consecutive entries in memory: a chunk, or a whole pack.
#[derive(Clone, Copy)]
#[expect(private_interfaces, reason = "no path outside the crate leads to it")]
pub enum SortedRun<'a> {
    Pack(SortedPackRef<'a>),
    Chunk(&'a Chunk<Entries>),
}

impl<'a> runs::Run<'a> for SortedRun<'a> {
    type Item = SortedEntry<'a>;

    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Pack(pack) => pack.len(),
            Self::Chunk(chunk) => chunk.len(),
        }
    }

    #[inline]
    fn items(&self) -> &'a [u8] {
        match self {
            Self::Pack(pack) => pack.items(),
            Self::Chunk(chunk) => chunk.items(),
        }
    }

    #[inline]
    fn offset(&self, index: usize) -> usize {
        match self {
            Self::Pack(pack) => pack.offset(index),
            Self::Chunk(chunk) => chunk.offset(index),
        }
    }

    #[inline]
    fn read(&self, items: &'a [u8], offset: usize) -> SortedEntry<'a> {
        let chunk = if let Self::Chunk(chunk) = self { Some(*chunk) } else { None };
        item::entry(&items[offset..], chunk)
    }

    #[inline]
    fn item_len(bytes: &[u8]) -> usize {
        Entries::len(bytes)
    }
}

impl Runs for Sorted {
    type Run<'a> = SortedRun<'a>;

    #[inline]
    fn items_len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn run_at(&self, rank: usize) -> (SortedRun<'_>, usize) {
        match &self.0 {
            Root::Pack(pack) => (SortedRun::Pack(pack.view()), 0),
            Root::Trees(big) => {
                let (chunk, first) = big.find(rank);
                (SortedRun::Chunk(chunk), first)
            }
        }
    }
}

/// Entries, ascending: see [`Sorted::range`].
pub type SortedForward<'a> = runs::Forward<'a, Sorted>;

/// Entries, descending: see [`Sorted::range_back`].
pub type SortedBackward<'a> = runs::Backward<'a, Sorted>;

impl Sorted {
    /// The entry at this rank. Cost: O(log n), and a walk over at most fifteen entries; in a pack,
    /// over all before it.
    #[inline]
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<SortedEntry<'_>> {
        if rank >= self.len() {
            return None;
        }
        let (run, first) = self.run_at(rank);
        Some(run.read(run.items(), run.offset(rank - first)))
    }

    /// The entries at these ranks, as far as they exist, ascending.
    ///
    /// Cost: O(log n) for each chunk, and some nanoseconds each.
    #[must_use]
    pub fn range(&self, ranks: Range<usize>) -> SortedForward<'_> {
        SortedForward::new(self, ranks)
    }

    /// The entries after a place, ascending. Cost: O(log n) to find the first, then as
    /// [`Sorted::range`].
    #[must_use]
    pub fn range_from(&self, place: Place<'_>) -> SortedForward<'_> {
        match &self.0 {
            Root::Pack(pack) => self.range(pack.view().rank_of(&place)..self.len()),
            Root::Trees(big) => {
                let (chunk, first, index, offset) = big.find_place(&place);
                let run = (SortedRun::Chunk(chunk), first);
                SortedForward::from_place(self, run, (first + index, offset))
            }
        }
    }

    /// The entries at these ranks, as far as they exist, descending.
    #[must_use]
    pub fn range_back(&self, ranks: Range<usize>) -> SortedBackward<'_> {
        SortedBackward::new(self, ranks)
    }
}
