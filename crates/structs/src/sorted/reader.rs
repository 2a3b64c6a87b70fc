//! Reads a cut in slices, in either direction, and releases the entries read.
//!
//! A cut keeps every chunk shared, so a writer copies each chunk that it changes while the cut
//! exists. [`SortedReader`] takes the cut apart instead, and drops each chunk once it has read it.

use super::item::Entries;
use super::pack::Pack;
use super::place::SortedEntry;
use super::run::SortedRun;
use super::{End, Root, Sorted};
use crate::chunk::{Coding, Handle};
use crate::runs::Run as _;
use crate::tree::{TreeRest, Unread};
use std::ops::Range;

/// The source of a reader.
enum Source {
    Pack(Pack),
    Chunks(Unread<Entries>),
}

/// Reads a cut in slices; see the module's documentation.
pub struct SortedReader {
    source: Source,
    /// The current chunk.
    chunk: Option<Handle<Entries>>,
    from: End,
    /// Offsets of the unread entries of the current run; the last one is next.
    offsets: Vec<u16>,
    /// The number of entries left.
    left: usize,
    /// The initial number of entries.
    len: usize,
    bytes: usize,
}

impl SortedReader {
    /// Takes over a cut, to read the entries at these ranks: ascending from the front, descending
    /// from the back. Cost: O(log n).
    #[must_use]
    pub fn new(cut: Sorted, ranks: Range<usize>, from: End) -> Self {
        let all = cut.len();
        let end = ranks.end.min(all);
        let left = end.saturating_sub(ranks.start);
        let bytes = cut.memory_bytes().saturating_mul(left) / all.max(1);
        let before = if from == End::Front { ranks.start } else { all - end };
        let (source, skipped) = match cut.0 {
            Root::Trees(big) if left > 0 => {
                let (entries, owner) = big.into_parts();
                let mut unread = Unread(TreeRest::new(from, owner));
                entries.into_iter().for_each(|tree| unread.0.push(tree));
                let skipped = unread.0.skip(before);
                (Source::Chunks(unread), skipped)
            }
            Root::Trees(_) => (Source::Pack(Pack::new()), 0),
            Root::Pack(pack) => (Source::Pack(pack), before),
        };
        let offsets = Vec::new();
        let mut reader = Self { source, chunk: None, from, offsets, left, len: left, bytes };
        if left > 0 {
            reader.advance();
            assert!(skipped < reader.offsets.len(), "{skipped} of a chunk are skipped");
            reader.offsets.truncate(reader.offsets.len() - skipped);
        }
        reader
    }

    /// The number of entries left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Bytes still to be read that only readers hold, estimated from the number of entries. 0 while
    /// a version of the set exists, and for packs.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        match &self.source {
            Source::Chunks(unread) if unread.0.owner.is_gone() => {
                self.bytes.saturating_mul(self.left) / self.len.max(1)
            }
            _ => 0,
        }
    }

    /// Calls `f` for at most `max_entries` of the next entries. Returns true while some are left.
    ///
    /// Cost: a few nanoseconds an entry, besides `f`.
    pub fn next_slice(&mut self, max_entries: usize, f: &mut dyn FnMut(SortedEntry<'_>)) -> bool {
        let mut budget = max_entries.min(self.left);
        self.left -= budget;
        while budget > 0 {
            let Some(offset) = self.offsets.pop() else {
                self.advance();
                continue;
            };
            let run = self.run();
            f(run.read(run.items(), usize::from(offset)));
            budget -= 1;
        }
        if self.left == 0 {
            self.close();
        }
        self.left > 0
    }

    /// The current run.
    fn run(&self) -> SortedRun<'_> {
        match (&self.source, &self.chunk) {
            (Source::Pack(pack), _) => SortedRun::Pack(pack.view()),
            (_, Some(chunk)) => SortedRun::Chunk(chunk),
            (_, None) => unreachable!("there is a chunk while entries are left"),
        }
    }

    /// Releases everything.
    fn close(&mut self) {
        (self.source, self.chunk) = (Source::Pack(Pack::new()), None);
        self.offsets.clear();
    }

    /// Moves to the next chunk, and releases this one.
    fn advance(&mut self) {
        if let Source::Chunks(unread) = &mut self.source {
            self.chunk = unread.0.next();
            assert!(self.chunk.is_some(), "the chunks hold `len` entries");
        }
        let mut offsets = std::mem::take(&mut self.offsets);
        let (items, mut at) = (self.run().items(), 0);
        while at < items.len() {
            offsets.push(at as u16);
            at += Entries::len(&items[at..]);
        }
        if self.from == End::Front {
            offsets.reverse();
        }
        self.offsets = offsets;
    }
}
