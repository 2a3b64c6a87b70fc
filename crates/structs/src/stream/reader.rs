//! Reads a cut in slices, in either direction, and releases the entries read.
//!
//! A cut keeps every chunk shared, so a writer copies each chunk that it changes while the cut
//! exists. [`StreamReader`] takes the cut apart instead, and drops each chunk once it has read it.

use super::item::Coded;
use super::run::StreamEntry;
use super::shapes::Shapes;
use super::{End, Entries, Handle};
use crate::chunk::Coding;
use crate::tree::{TreeRest, Unread};
use std::ops::Range;

/// Reads a cut in slices, and releases the entries it has read.
pub struct StreamReader {
    /// `None` once everything has been read.
    unread: Option<Unread<Coded>>,
    shapes: Shapes,
    base: u64,
    /// The current chunk.
    chunk: Option<Handle>,
    from: End,
    /// Offsets of the unread entries of the current chunk; the last one is next.
    offsets: Vec<u16>,
    /// Entries still to come.
    left: usize,
    /// The initial number of entries, and the bytes of the cut.
    len: usize,
    bytes: usize,
}

impl StreamReader {
    /// Takes over a cut, to read the entries at these ranks: ascending from the front, descending
    /// from the back. Cost: O(log n).
    #[must_use]
    pub fn new(mut cut: Entries, ranks: Range<usize>, from: End) -> Self {
        let all = cut.len();
        let end = ranks.end.min(all);
        let left = end.saturating_sub(ranks.start);
        let bytes = cut.memory_bytes().saturating_mul(left) / all.max(1);
        let before = if from == End::Front { ranks.start } else { all - end };
        let (shapes, base) = (cut.shapes.clone(), cut.base);
        let (unread, chunk, offsets) = (None, None, Vec::new());
        let mut reader =
            Self { unread, shapes, base, chunk, from, offsets, left, len: left, bytes };
        if left == 0 {
            return reader;
        }
        let mut unread = Unread(TreeRest::new(from, std::mem::take(&mut cut.owner)));
        cut.tree.take().into_iter().for_each(|tree| unread.0.push(tree));
        let skipped = unread.0.skip(before);
        reader.unread = Some(unread);
        reader.advance();
        assert!(skipped < reader.offsets.len(), "{skipped} of a chunk are skipped");
        reader.offsets.truncate(reader.offsets.len() - skipped);
        reader
    }

    /// Entries still to come.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Bytes still to be read that only readers hold, estimated from the number of entries. 0 while
    /// a version of the stream exists.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        match &self.unread {
            Some(unread) if unread.0.owner.is_gone() => {
                self.bytes.saturating_mul(self.left) / self.len.max(1)
            }
            _ => 0,
        }
    }

    /// Calls `f` for at most `max_entries` of the next entries. Returns true while some are left.
    ///
    /// Cost: a few nanoseconds an entry, besides `f`.
    pub fn next_slice(&mut self, max_entries: usize, f: &mut dyn FnMut(StreamEntry<'_>)) -> bool {
        let mut budget = max_entries.min(self.left);
        self.left -= budget;
        while budget > 0 {
            let Some(offset) = self.offsets.pop() else {
                self.advance();
                continue;
            };
            let chunk = self.chunk.as_ref().expect("there is a chunk while entries are left");
            f(StreamEntry::at(chunk, usize::from(offset), self.base, &self.shapes));
            budget -= 1;
        }
        if self.left == 0 {
            (self.unread, self.chunk) = (None, None);
            self.offsets.clear();
        }
        self.left > 0
    }

    /// Moves to the next chunk, and releases this one.
    fn advance(&mut self) {
        self.chunk = self.unread.as_mut().and_then(|unread| unread.0.next());
        let chunk = self.chunk.as_ref().expect("the chunks hold `len` entries");
        let mut at = 0;
        debug_assert!(self.offsets.is_empty(), "the chunk before is not read");
        while at < chunk.items().len() {
            self.offsets.push(at as u16);
            at += Coded::len(&chunk.items()[at..]);
        }
        debug_assert_eq!((at, self.offsets.len()), (chunk.items().len(), chunk.len()), "C1");
        if self.from == End::Front {
            self.offsets.reverse();
        }
    }
}
