//! Items in order, or in reverse, of a sequence that is kept in runs: chunks of a tree, or all of a
//! pack. Lists, sorted sets and streams are read by these two iterators.
//!
//! Not here: reading a cut in slices. See the readers of these types.

use std::ops::Range;

/// Consecutive items in memory.
pub trait Run<'a>: Copy {
    /// An item as it is read.
    type Item;

    /// The number of items.
    fn len(&self) -> usize;

    /// Their bytes.
    fn items(&self) -> &'a [u8];

    /// The offset in [`Run::items`] of the item with this index.
    fn offset(&self, index: usize) -> usize;

    /// The item at this offset in `items`, which are [`Run::items`].
    fn read(&self, items: &'a [u8], offset: usize) -> Self::Item;

    /// Bytes of the item at the front of `bytes`.
    fn item_len(bytes: &[u8]) -> usize;
}

/// A sequence that is kept in runs.
pub trait Runs {
    /// A run.
    type Run<'a>: Run<'a>
    where
        Self: 'a;

    /// The number of items.
    fn items_len(&self) -> usize;

    /// The run that holds the item with this index, and the index of the run's first item.
    fn run_at(&self, index: usize) -> (Self::Run<'_>, usize);
}

/// Items in order.
pub struct Forward<'a, S: Runs> {
    sequence: &'a S,
    /// The current run, and its bytes.
    run: Option<S::Run<'a>>,
    items: &'a [u8],
    /// Offset of the next item in its run.
    offset: usize,
    /// Index of the next item; the index after its run; the index after the last item wanted.
    next: usize,
    run_end: usize,
    end: usize,
}

impl<'a, S: Runs> Forward<'a, S> {
    /// The items with these indexes, as far as they exist.
    #[inline]
    pub(crate) fn new(sequence: &'a S, indexes: Range<usize>) -> Self {
        let end = indexes.end.min(sequence.items_len());
        let next = indexes.start;
        Self { sequence, run: None, items: &[], offset: 0, next, run_end: 0, end }
    }

    /// All items from the one at `offset` in `run` on. Its index is `next`; that of the run's first
    /// item is `first`.
    pub(crate) fn from_place(
        sequence: &'a S,
        (run, first): (S::Run<'a>, usize),
        (next, offset): (usize, usize),
    ) -> Self {
        let (run_end, end) = (first + run.len(), sequence.items_len());
        Self { sequence, run: Some(run), items: run.items(), offset, next, run_end, end }
    }

    /// Moves to the run of the next item.
    #[cold]
    fn advance(&mut self) {
        let (run, first) = self.sequence.run_at(self.next);
        self.offset = run.offset(self.next - first);
        self.run_end = first + run.len();
        self.items = run.items();
        self.run = Some(run);
    }
}

impl<'a, S: Runs> Iterator for Forward<'a, S> {
    type Item = <S::Run<'a> as Run<'a>>::Item;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        if self.next >= self.run_end {
            self.advance();
        }
        let item = self.run?.read(self.items, self.offset);
        self.offset += S::Run::item_len(&self.items[self.offset..]);
        self.next += 1;
        Some(item)
    }

    /// Walks run by run: within a run, only the end of each item is computed.
    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(mut self, init: B, mut f: F) -> B {
        let mut result = init;
        while self.next < self.end {
            if self.next >= self.run_end {
                self.advance();
            }
            let Some(run) = self.run else { break };
            let count = self.end.min(self.run_end) - self.next;
            let (items, mut offset) = (self.items, self.offset);
            for _ in 0..count {
                result = f(result, run.read(items, offset));
                offset += S::Run::item_len(&items[offset..]);
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

impl<S: Runs> ExactSizeIterator for Forward<'_, S> {}

/// Items that [`Backward`] finds in one walk.
const BATCH: usize = 16;

/// Items in reverse.
pub struct Backward<'a, S: Runs> {
    sequence: &'a S,
    run: Option<S::Run<'a>>,
    /// Offsets of items of the run, in order; the first `ready` of them are unread.
    offsets: [u16; BATCH],
    ready: usize,
    /// The index after the next item, and the index of the last one wanted.
    next: usize,
    start: usize,
}

impl<'a, S: Runs> Backward<'a, S> {
    /// The items with these indexes, as far as they exist.
    pub(crate) fn new(sequence: &'a S, indexes: Range<usize>) -> Self {
        let next = indexes.end.min(sequence.items_len());
        Self { sequence, run: None, offsets: [0; BATCH], ready: 0, next, start: indexes.start }
    }

    /// Finds the next batch of offsets.
    fn fill(&mut self) {
        let (run, first) = self.sequence.run_at(self.next - 1);
        let end = self.next - first;
        debug_assert!(0 < end && end <= run.len(), "end={end} len={}", run.len());
        let begin = end.saturating_sub(BATCH);
        let (items, mut offset) = (run.items(), run.offset(begin));
        for slot in &mut self.offsets[..end - begin] {
            *slot = offset as u16;
            offset += S::Run::item_len(&items[offset..]);
        }
        (self.run, self.ready) = (Some(run), end - begin);
    }
}

impl<'a, S: Runs> Iterator for Backward<'a, S> {
    type Item = <S::Run<'a> as Run<'a>>::Item;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next <= self.start {
            return None;
        }
        if self.ready == 0 {
            self.fill();
        }
        self.ready -= 1;
        self.next -= 1;
        let run = self.run?;
        Some(run.read(run.items(), usize::from(self.offsets[self.ready])))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.next.saturating_sub(self.start);
        (left, Some(left))
    }
}

impl<S: Runs> ExactSizeIterator for Backward<'_, S> {}
