//! Reading a cut in slices, either way, and releasing the entries read.
//!
//! A cut keeps every chunk shared, so that a writer copies each that it changes for as long as the cut
//! lives. [`SortedReader`] takes the cut apart instead, and drops each chunk when it has read it.

use super::item::Entries;
use super::pack::Pack;
use super::place::SortedEntry;
use super::run::Run;
use super::{End, Root, Sorted};
use crate::chunk::{Coding, Handle};
use crate::tree::{TreeRest, Unread};
use std::ops::Range;

/// The source.
enum Source {
    Pack(Pack),
    Chunks(Unread<Entries>),
}

/// See the module.
pub struct SortedReader {
    source: Source,
    /// The chunk at hand.
    chunk: Option<Handle<Entries>>,
    from: End,
    /// The entries of the run at hand that are still to come, by the places where they begin: the last
    /// is next.
    offsets: Vec<u16>,
    /// Entries that are still to come.
    left: usize,
    /// The number of entries at first.
    len: usize,
    bytes: usize,
}

impl SortedReader {
    /// Takes over a cut, of which the entries with these ranks are to be read, as far as there are
    /// some: from the front ascending, from the back descending. Cost: O(log n).
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

    /// Entries that are still to come.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Bytes that are still to be read and that only readers hold: about, by the number of entries.
    /// 0 while a version of the set exists, and for packs.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        match &self.source {
            Source::Chunks(unread) if unread.0.owner.is_gone() => {
                self.bytes.saturating_mul(self.left) / self.len.max(1)
            }
            _ => 0,
        }
    }

    /// Calls `f` for the next entries, at most `max_entries`. Returns true while some are left.
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
            f(self.run().entry(usize::from(offset)));
            budget -= 1;
        }
        if self.left == 0 {
            self.close();
        }
        self.left > 0
    }

    /// The run at hand.
    fn run(&self) -> Run<'_> {
        match (&self.source, &self.chunk) {
            (Source::Pack(pack), _) => Run::Pack(pack.view()),
            (_, Some(chunk)) => Run::Chunk(chunk),
            (_, None) => unreachable!("there is a chunk while entries are left"),
        }
    }

    /// Lets go of everything.
    fn close(&mut self) {
        (self.source, self.chunk) = (Source::Pack(Pack::new()), None);
        self.offsets.clear();
    }

    /// Goes on to the next chunk, and lets go of this one.
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
