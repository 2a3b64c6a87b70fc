//! Entries that come in their order, or in the opposite one, as in files that redis-server writes: they
//! are written to the tree as they come, from its beginning on or from its end, and need not be gathered.
//!
//! As long as no entry breaks the order, or has a long member. If one does, those that were written are
//! read from the tree again, chunk by chunk, to be gathered with the others.

use super::End;
use super::item::{self, Entries, INLINE_MAX, New};
use super::place::SortedEntry;
use super::scan::ordered;
use crate::chunk::Coding;
use crate::owner::Owner;
use crate::table::Text;
use crate::tree::{Appender, Subtree, defer};
use std::cmp::Ordering;

/// Entries in order: see the module.
#[derive(Default)]
pub(super) struct Straight {
    /// The last entry received. After the first one the order is not known yet.
    last: Last,
    entries: Option<Appender<Entries>>,
    /// The end from which they are written.
    end: Option<End>,
    len: u64,
    is_broken: bool,
    is_closed: bool,
    /// The finished tree, once no more entries follow.
    tree: Option<Subtree<Entries>>,
    /// Entries that were read again.
    read: usize,
}

/// An entry, kept to be compared with the next one.
#[derive(Default)]
struct Last {
    score: f64,
    hash: u64,
    member: Vec<u8>,
}

impl Last {
    fn set(&mut self, score: f64, hash: u64, member: &[u8]) {
        (self.score, self.hash) = (score, hash);
        self.member.clear();
        self.member.extend_from_slice(member);
    }

    /// How it compares with an entry.
    fn compare(&self, score: f64, member: &[u8]) -> Ordering {
        let scores = ordered(self.score).cmp(&ordered(score));
        scores.then_with(|| self.member[..].cmp(member))
    }

    fn entry(&self) -> New<'_> {
        New::of(self.score, self.hash, &self.member)
    }
}

impl Straight {
    /// Writes an entry, if it comes next. False if it does not, or one before it did not: then
    /// nothing is written any more. Cost: O(1).
    #[inline]
    pub(super) fn push(&mut self, hash: u64, member: &[u8], score: f64) -> bool {
        if self.is_broken || !self.comes_next(member, score) {
            self.is_broken = true;
            return false;
        }
        if self.len > 0 {
            self.written().push(&New::of(score, hash, member));
        }
        self.last.set(score, hash, member);
        self.len += 1;
        true
    }

    /// True when an entry comes behind all others, or before them, as all others did.
    #[inline]
    fn comes_next(&mut self, member: &[u8], score: f64) -> bool {
        if self.len == 0 || member.len() > INLINE_MAX {
            return member.len() <= INLINE_MAX;
        }
        let end = match self.last.compare(score, member) {
            Ordering::Less => End::Back,
            Ordering::Greater => End::Front,
            Ordering::Equal => return false,
        };
        *self.end.get_or_insert(end) == end
    }

    /// The appended entry: at first, the latest one.
    #[inline]
    fn written(&mut self) -> &mut Appender<Entries> {
        let Self { last, entries, end, .. } = self;
        entries.get_or_insert_with(|| {
            let mut entries = Appender::at(end.unwrap_or(End::Back));
            entries.push(&last.entry());
            entries
        })
    }

    /// How many are written.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let tree = self.tree.as_ref().map_or(0, |tree| tree.bytes);
        tree + self.entries.as_ref().map_or(0, Appender::memory_bytes)
    }

    /// No more entries come.
    pub(super) fn close(&mut self) {
        if self.len > 0 && !self.is_closed {
            self.is_closed = true;
            self.written();
            self.tree = self.entries.take().and_then(Appender::finish);
            assert!(self.tree.as_ref().is_some_and(|tree| tree.len as u64 == self.len), "N1");
        }
    }

    /// The rank of the entry that came as this one, from 0 on.
    pub(super) fn rank(&self, number: u64) -> u64 {
        debug_assert!(number < self.len, "number={number} len={}", self.len);
        if self.end == Some(End::Front) { self.len - 1 - number } else { number }
    }

    /// The member of this rank, once no more come.
    pub(super) fn member(&self, rank: u64) -> Text<'_> {
        let tree = self.tree.as_ref().expect("it is closed");
        let (chunk, first) = tree.find(rank as usize);
        let offset = chunk.offset(rank as usize - first);
        item::entry(&chunk.items()[offset..], Some(chunk)).member
    }

    /// True when others did not come in order, and some of these are to be read again.
    pub(super) fn is_to_be_read(&self) -> bool {
        self.is_broken && (self.read as u64) < self.len
    }

    /// True when all were read again.
    pub(super) fn is_read(&self) -> bool {
        self.is_broken && self.read as u64 == self.len
    }

    /// Reads the next chunk again, by rank; frees all once they are read.
    pub(super) fn read(&mut self, mut f: impl FnMut(SortedEntry<'_>)) {
        let tree = self.tree.as_ref().expect("it is closed");
        let (chunk, first) = tree.find(self.read);
        debug_assert_eq!(first, self.read, "chunk by chunk");
        let mut items = chunk.items();
        while !items.is_empty() {
            f(item::entry(items, Some(chunk)));
            items = &items[Entries::len(items)..];
        }
        self.read += chunk.len();
        if !self.is_to_be_read() {
            defer(self.tree.take(), Owner::default());
        }
    }

    /// All entries, if they came in order.
    pub(super) fn take(&mut self) -> Option<Subtree<Entries>> {
        if self.is_broken { None } else { self.tree.take() }
    }
}

impl Drop for Straight {
    fn drop(&mut self) {
        defer(self.entries.take().and_then(Appender::finish), Owner::default());
        defer(self.tree.take(), Owner::default());
    }
}
