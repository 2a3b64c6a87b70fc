//! Reading a list in place: the element at an index, and elements in order, in either direction.

use super::item::{self, Element};
use super::pack::ListPackRef;
use super::{Chunk, List, Root};
use crate::runs::{self, Run as _, Runs};
use std::ops::Range;

/// Consecutive elements in memory: a chunk, or a whole pack.
#[derive(Clone, Copy)]
#[expect(private_interfaces, reason = "no path outside the crate leads to it")]
pub enum ListRun<'a> {
    Pack(ListPackRef<'a>),
    Chunk(&'a Chunk),
}

impl<'a> runs::Run<'a> for ListRun<'a> {
    type Item = Element<'a>;

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
    fn read(&self, items: &'a [u8], offset: usize) -> Element<'a> {
        match self {
            Self::Pack(pack) => pack.element(offset),
            Self::Chunk(chunk) => chunk.read(&items[offset..]),
        }
    }

    #[inline]
    fn item_len(bytes: &[u8]) -> usize {
        item::len(bytes)
    }
}

impl Runs for List {
    type Run<'a> = ListRun<'a>;

    #[inline]
    fn items_len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn run_at(&self, index: usize) -> (ListRun<'_>, usize) {
        match &self.0 {
            Root::Pack(pack) => (ListRun::Pack(pack.view()), 0),
            Root::Chunks(big) => {
                let (chunk, first) = big.find(index);
                (ListRun::Chunk(chunk), first)
            }
        }
    }
}

/// Elements in order: see [`List::range`].
pub type ListForward<'a> = runs::Forward<'a, List>;

/// Elements in reverse: see [`List::range_back`].
pub type ListBackward<'a> = runs::Backward<'a, List>;

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
        Some(run.read(run.items(), run.offset(index - first)))
    }

    /// The elements at these indexes, as far as they exist, in order.
    ///
    /// Cost: O(log n) for each chunk, and some nanoseconds for each element.
    #[must_use]
    pub fn range(&self, indexes: Range<usize>) -> ListForward<'_> {
        ListForward::new(self, indexes)
    }

    /// The elements at these indexes, as far as they exist, in reverse.
    #[must_use]
    pub fn range_back(&self, indexes: Range<usize>) -> ListBackward<'_> {
        ListBackward::new(self, indexes)
    }
}
