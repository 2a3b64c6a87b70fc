//! Reading a sorted set in place: the entry at a rank, and ranges in either direction.

use super::item::{self, Entries};
use super::pack::SortedPackRef;
use super::place::{Place, SortedEntry};
use super::{Root, Sorted};
use crate::chunk::{Chunk, Coding};
use std::ops::Range;

/// Consecutive entries in memory: a chunk, or a whole pack.
#[derive(Clone, Copy)]
pub(super) enum Run<'a> {
    Pack(SortedPackRef<'a>),
    Chunk(&'a Chunk<Entries>),
}

impl<'a> Run<'a> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Pack(pack) => pack.len(),
            Self::Chunk(chunk) => chunk.len(),
        }
    }

    #[inline]
    pub(super) fn items(&self) -> &'a [u8] {
        match self {
            Self::Pack(pack) => pack.items(),
            Self::Chunk(chunk) => chunk.items(),
        }
    }

    /// The offset in [`Run::items`] of the entry at this index.
    #[inline]
    pub(super) fn offset(&self, index: usize) -> usize {
        match self {
            Self::Pack(pack) => pack.offset(index),
            Self::Chunk(chunk) => chunk.offset(index),
        }
    }

    #[inline]
    fn chunk(&self) -> Option<&'a Chunk<Entries>> {
        if let Self::Chunk(chunk) = self { Some(chunk) } else { None }
    }

    /// The entry at this offset.
    #[inline]
    pub(super) fn entry(&self, offset: usize) -> SortedEntry<'a> {
        item::entry(&self.items()[offset..], self.chunk())
    }
}

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
        Some(run.entry(run.offset(rank - first)))
    }

    /// The run that contains the entry at this rank, and the rank of its first entry.
    #[inline]
    pub(super) fn run_at(&self, rank: usize) -> (Run<'_>, usize) {
        match &self.0 {
            Root::Pack(pack) => (Run::Pack(pack.view()), 0),
            Root::Trees(big) => {
                let (chunk, first) = big.find(rank);
                (Run::Chunk(chunk), first)
            }
        }
    }

    /// The entries at these ranks, as far as they exist, ascending.
    ///
    /// Cost: O(log n) for each chunk, and some nanoseconds each.
    #[must_use]
    pub fn range(&self, ranks: Range<usize>) -> SortedForward<'_> {
        let end = ranks.end.min(self.len());
        SortedForward { set: self, run: None, offset: 0, next: ranks.start, run_end: 0, end }
    }

    /// The entries after a place, ascending. Cost: O(log n) to find the first, then as
    /// [`Sorted::range`].
    #[must_use]
    pub fn range_from(&self, place: Place<'_>) -> SortedForward<'_> {
        let end = self.len();
        match &self.0 {
            Root::Pack(pack) => self.range(pack.view().rank_of(&place)..end),
            Root::Trees(big) => {
                let (chunk, first, index, offset) = big.find_place(&place);
                let (run, run_end) = (Some(Run::Chunk(chunk)), first + chunk.len());
                SortedForward { set: self, run, offset, next: first + index, run_end, end }
            }
        }
    }

    /// The entries at these ranks, as far as they exist, descending.
    #[must_use]
    pub fn range_back(&self, ranks: Range<usize>) -> SortedBackward<'_> {
        let next = ranks.end.min(self.len());
        SortedBackward {
            set: self,
            run: None,
            offsets: [0; BATCH],
            ready: 0,
            next,
            start: ranks.start,
        }
    }
}

/// Entries, ascending: see [`Sorted::range`].
pub struct SortedForward<'a> {
    set: &'a Sorted,
    /// The current run.
    run: Option<Run<'a>>,
    /// The offset of the next entry in its run.
    offset: usize,
    /// The rank of the next entry; the rank after its run; the end of the wanted ranks.
    next: usize,
    run_end: usize,
    end: usize,
}

impl<'a> Iterator for SortedForward<'a> {
    type Item = SortedEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<SortedEntry<'a>> {
        if self.next >= self.end {
            return None;
        }
        if self.next >= self.run_end {
            self.advance();
        }
        let run = self.run?;
        let entry = run.entry(self.offset);
        self.offset += Entries::len(&run.items()[self.offset..]);
        self.next += 1;
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.saturating_sub(self.next);
        (left, Some(left))
    }
}

impl SortedForward<'_> {
    /// Moves to the run of the next entry.
    #[cold]
    fn advance(&mut self) {
        let (run, first) = self.set.run_at(self.next);
        self.offset = run.offset(self.next - first);
        self.run_end = first + run.len();
        self.run = Some(run);
    }
}

impl ExactSizeIterator for SortedForward<'_> {}

/// Entries that [`SortedBackward`] finds in one walk.
const BATCH: usize = 16;

/// Entries, descending: see [`Sorted::range_back`].
pub struct SortedBackward<'a> {
    set: &'a Sorted,
    run: Option<Run<'a>>,
    /// Offsets of entries in the run, in order; the first `ready` of them are unread.
    offsets: [u16; BATCH],
    ready: usize,
    /// One more than the rank of the next entry.
    next: usize,
    start: usize,
}

impl SortedBackward<'_> {
    /// Finds the next entries.
    fn fill(&mut self) {
        let (run, first) = self.set.run_at(self.next - 1);
        let end = self.next - first;
        debug_assert!(0 < end && end <= run.len(), "end={end} len={}", run.len());
        let begin = end.saturating_sub(BATCH);
        let mut offset = run.offset(begin);
        for slot in &mut self.offsets[..end - begin] {
            *slot = offset as u16;
            offset += Entries::len(&run.items()[offset..]);
        }
        (self.run, self.ready) = (Some(run), end - begin);
    }
}

impl<'a> Iterator for SortedBackward<'a> {
    type Item = SortedEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<SortedEntry<'a>> {
        if self.next <= self.start {
            return None;
        }
        if self.ready == 0 {
            self.fill();
        }
        self.ready -= 1;
        self.next -= 1;
        let run = self.run.as_ref()?;
        Some(run.entry(usize::from(self.offsets[self.ready])))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.next.saturating_sub(self.start);
        (left, Some(left))
    }
}

impl ExactSizeIterator for SortedBackward<'_> {}
