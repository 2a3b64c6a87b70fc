//! Reading a list in place: the element at an index, and elements in order, in either direction.

use super::item::{self, Element};
use super::pack::ListPackRef;
use super::{Chunk, List, Root};
use std::ops::Range;

/// Consecutive elements in memory: a chunk, or a whole pack.
#[derive(Clone, Copy)]
pub(super) enum Run<'a> {
    Pack(ListPackRef<'a>),
    Chunk(&'a Chunk),
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

    /// The offset in [`Run::items`] of the element at this index.
    #[inline]
    pub(super) fn offset(&self, index: usize) -> usize {
        match self {
            Self::Pack(pack) => pack.offset(index),
            Self::Chunk(chunk) => chunk.offset(index),
        }
    }

    /// The element at this offset.
    #[inline]
    pub(super) fn element(&self, offset: usize) -> Element<'a> {
        self.element_at(self.items(), offset)
    }

    /// [`Run::element`] for a caller that already has the run's items.
    #[inline]
    pub(super) fn element_at(&self, items: &'a [u8], offset: usize) -> Element<'a> {
        match self {
            Self::Pack(pack) => pack.element(offset),
            Self::Chunk(chunk) => chunk.read(&items[offset..]),
        }
    }
}

impl List {
    /// The element at this index. Cost: O(log n), and a walk over at most fifteen elements; in a
    /// pack, over all before it.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Element<'_>> {
        if index >= self.len() {
            return None;
        }
        let (run, first) = self.run_at(index);
        Some(run.element(run.offset(index - first)))
    }

    /// The run that contains the element at this index, and the index of the run's first element.
    #[inline]
    pub(super) fn run_at(&self, index: usize) -> (Run<'_>, usize) {
        match &self.0 {
            Root::Pack(pack) => (Run::Pack(pack.view()), 0),
            Root::Chunks(big) => {
                let (chunk, first) = big.find(index);
                (Run::Chunk(chunk), first)
            }
        }
    }

    /// The elements at these indexes, as far as they exist, in order.
    ///
    /// Cost: O(log n) for each chunk, and some nanoseconds for each element.
    #[must_use]
    pub fn range(&self, indexes: Range<usize>) -> Forward<'_> {
        let end = indexes.end.min(self.len());
        let next = indexes.start;
        Forward { list: self, run: None, items: &[], offset: 0, next, run_end: 0, end }
    }

    /// The elements at these indexes, as far as they exist, in reverse.
    #[must_use]
    pub fn range_back(&self, indexes: Range<usize>) -> Backward<'_> {
        let end = indexes.end.min(self.len());
        let run = None;
        Backward { list: self, run, offsets: [0; BATCH], ready: 0, next: end, start: indexes.start }
    }
}

/// Elements in order: see [`List::range`].
pub struct Forward<'a> {
    list: &'a List,
    /// The current run, and its bytes.
    run: Option<Run<'a>>,
    items: &'a [u8],
    /// Offset of the next element in its run.
    offset: usize,
    /// The index of the next element; the index after its run; the end of the wanted indexes.
    next: usize,
    run_end: usize,
    end: usize,
}

impl<'a> Iterator for Forward<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.next >= self.end {
            return None;
        }
        if self.next >= self.run_end {
            self.advance();
        }
        let element = self.run?.element(self.offset);
        self.offset += item::len(&self.items[self.offset..]);
        self.next += 1;
        Some(element)
    }

    /// Walks run by run: within a run, only the end of each element is computed.
    #[inline]
    fn fold<B, F: FnMut(B, Element<'a>) -> B>(mut self, init: B, mut f: F) -> B {
        let mut result = init;
        while self.next < self.end {
            if self.next >= self.run_end {
                self.advance();
            }
            let Some(run) = self.run else { break };
            let count = self.end.min(self.run_end) - self.next;
            let (items, mut offset) = (self.items, self.offset);
            for _ in 0..count {
                result = f(result, run.element_at(items, offset));
                offset += item::len(&items[offset..]);
            }
            self.next += count;
        }
        result
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.saturating_sub(self.next);
        (left, Some(left))
    }
}

impl Forward<'_> {
    /// Moves to the run of the next element.
    #[cold]
    fn advance(&mut self) {
        let (run, first) = self.list.run_at(self.next);
        self.offset = run.offset(self.next - first);
        self.run_end = first + run.len();
        self.items = run.items();
        self.run = Some(run);
    }
}

impl ExactSizeIterator for Forward<'_> {}

/// Elements that [`Backward`] finds in one walk.
const BATCH: usize = 16;

/// Elements in reverse: see [`List::range_back`].
pub struct Backward<'a> {
    list: &'a List,
    run: Option<Run<'a>>,
    /// Offsets of elements in the run, in order; the first `ready` of them are unread.
    offsets: [u16; BATCH],
    ready: usize,
    /// The index after the next element, and the lowest wanted index.
    next: usize,
    start: usize,
}

impl Backward<'_> {
    /// Finds the next batch of offsets.
    fn fill(&mut self) {
        let (run, first) = self.list.run_at(self.next - 1);
        let end = self.next - first;
        debug_assert!(0 < end && end <= run.len(), "end={end} len={}", run.len());
        let begin = end.saturating_sub(BATCH);
        let mut offset = run.offset(begin);
        for slot in &mut self.offsets[..end - begin] {
            *slot = offset as u16;
            offset += item::len(&run.items()[offset..]);
        }
        (self.run, self.ready) = (Some(run), end - begin);
    }
}

impl<'a> Iterator for Backward<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.next <= self.start {
            return None;
        }
        if self.ready == 0 {
            self.fill();
        }
        self.ready -= 1;
        self.next -= 1;
        let run = self.run.as_ref()?;
        Some(run.element(usize::from(self.offsets[self.ready])))
    }
}
