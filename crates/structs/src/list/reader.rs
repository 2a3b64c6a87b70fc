//! Reading a cut in slices and releasing the elements read; freeing lists in slices.
//!
//! A cut keeps every chunk shared, so a writer copies each chunk that it changes while the cut
//! exists. [`ListReader`] takes the cut apart instead, and drops each chunk once it has read it.

use super::big::Big;
use super::item::{self, Element, Elements};
use super::pack::Pack;
use super::run::ListRun;
use super::{End, Handle, List, Root};
use crate::runs::Run as _;
use crate::tree::{TreeRest, Unread};
use std::ops::Range;

/// The source of a reader.
enum Source {
    Pack(Pack),
    Chunks(Unread<Elements>),
}

/// Reads a cut in slices, and releases the elements it has read.
pub struct ListReader {
    source: Source,
    /// The current chunk.
    chunk: Option<Handle>,
    /// Offset of the next element in its run.
    offset: usize,
    /// The number of elements left.
    left: usize,
    /// The initial number of elements, and the bytes of the cut.
    len: usize,
    bytes: usize,
}

impl ListReader {
    /// Takes over a cut, to read the elements at these indexes, as far as they exist. Cost: O(log
    /// n).
    #[must_use]
    pub fn new(cut: List, indexes: Range<usize>) -> Self {
        let end = indexes.end.min(cut.len());
        let left = end.saturating_sub(indexes.start);
        let (len, bytes) = (cut.len().max(1), cut.memory_bytes());
        let bytes = bytes.saturating_mul(left) / len;
        match cut.0 {
            Root::Pack(pack) => {
                let offset = pack.view().offset(indexes.start.min(end));
                Self { source: Source::Pack(pack), chunk: None, offset, left, len: left, bytes }
            }
            Root::Chunks(big) => Self::of_chunks(*big, indexes.start, left, bytes),
        }
    }

    fn of_chunks(big: Big, start: usize, left: usize, bytes: usize) -> Self {
        let (parts, owner) = big.into_parts();
        let mut unread = Unread(TreeRest::new(End::Front, owner));
        parts.into_iter().rev().flatten().for_each(|part| unread.0.push(part));
        let skipped = unread.0.skip(start);
        let source = Source::Chunks(unread);
        let mut reader = Self { source, chunk: None, offset: 0, left, len: left, bytes };
        if left > 0 {
            reader.advance();
            reader.offset = reader.chunk.as_ref().map_or(0, |chunk| chunk.offset(skipped));
        } else {
            reader.close();
        }
        reader
    }

    /// Elements still to come.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Bytes still to be read that only readers hold, estimated from the number of elements. 0
    /// while a version of the list exists, and for packs.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        match &self.source {
            Source::Chunks(unread) if unread.0.owner.is_gone() => {
                self.bytes.saturating_mul(self.left) / self.len.max(1)
            }
            _ => 0,
        }
    }

    /// Calls `f` for at most `max_elements` of the next elements. Returns true while some are left.
    ///
    /// Cost: a few nanoseconds an element, besides `f`.
    pub fn next_slice(&mut self, max_elements: usize, f: &mut dyn FnMut(Element<'_>)) -> bool {
        let mut budget = max_elements.min(self.left);
        self.left -= budget;
        while budget > 0 {
            let run = match (&self.source, &self.chunk) {
                (Source::Pack(pack), _) => ListRun::Pack(pack.view()),
                (_, Some(chunk)) => ListRun::Chunk(chunk),
                (_, None) => unreachable!("there is a chunk while elements are left"),
            };
            let items = run.items();
            let mut offset = self.offset;
            while budget > 0 && offset < items.len() {
                f(run.read(items, offset));
                offset += item::len(&items[offset..]);
                budget -= 1;
            }
            self.offset = offset;
            if budget > 0 {
                self.advance();
            }
        }
        if self.left == 0 {
            self.close();
        }
        self.left > 0
    }

    /// Releases everything.
    fn close(&mut self) {
        (self.source, self.chunk, self.offset) = (Source::Pack(Pack::new()), None, 0);
    }

    /// Moves to the next chunk, and releases this one.
    fn advance(&mut self) {
        let Source::Chunks(unread) = &mut self.source else {
            unreachable!("a pack holds all its elements")
        };
        self.chunk = unread.0.next();
        self.offset = 0;
        assert!(self.chunk.is_some(), "the chunks hold `len` elements");
    }
}
