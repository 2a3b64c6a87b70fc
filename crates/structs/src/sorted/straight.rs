//! Entries that arrive in ascending or descending order, as in files written by redis-server. They
//! are written to the tree on arrival, from its beginning or from its end, and need not be
//! collected.
//!
//! If an entry breaks the order, or has a long member, the entries already written are read from
//! the tree again, chunk by chunk, and collected with the others.

use super::End;
use super::item::{self, Entries, INLINE_MAX, New};
use super::place::SortedEntry;
use super::scan::ordered;
use crate::chunk::Coding;
use crate::owner::Owner;
use crate::table::Text;
use crate::tree::{Appender, Subtree, defer};
use std::cmp::Ordering;

/// Entries in order; see the module's documentation.
#[derive(Default)]
pub(super) struct Straight {
    /// The last entry received. After only one, the order is not known yet.
    last: Last,
    entries: Option<Appender<Entries>>,
    /// The end from which the tree is written.
    end: Option<End>,
    len: u64,
    is_broken: bool,
    is_closed: bool,
    /// The finished tree, once no more entries follow.
    tree: Option<Subtree<Entries>>,
    /// The number of entries that were read again.
    read: usize,
}

/// The last entry, for comparison with the next one.
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

    /// Compares with an entry.
    fn compare(&self, score: f64, member: &[u8]) -> Ordering {
        let scores = ordered(self.score).cmp(&ordered(score));
        scores.then_with(|| self.member[..].cmp(member))
    }

    fn entry(&self) -> New<'_> {
        New::of(self.score, self.hash, &self.member)
    }
}

impl Straight {
    /// Writes an entry, if it is next in order. Returns false if it is not, or if an earlier one
    /// was not; then nothing more is written. Cost: O(1).
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

    /// True if an entry comes after all others, or before them, consistently with the earlier ones.
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

    /// The entry added last to the tree; at first, the latest one.
    #[inline]
    fn written(&mut self) -> &mut Appender<Entries> {
        let Self { last, entries, end, .. } = self;
        entries.get_or_insert_with(|| {
            let mut entries = Appender::at(end.unwrap_or(End::Back));
            entries.push(&last.entry());
            entries
        })
    }

    /// The number of written entries.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let tree = self.tree.as_ref().map_or(0, |tree| tree.bytes);
        tree + self.entries.as_ref().map_or(0, Appender::memory_bytes)
    }

    /// Ends the input.
    pub(super) fn close(&mut self) {
        if self.len > 0 && !self.is_closed {
            self.is_closed = true;
            self.written();
            self.tree = self.entries.take().and_then(Appender::finish);
            assert!(self.tree.as_ref().is_some_and(|tree| tree.len as u64 == self.len), "N1");
        }
    }

    /// The rank of the entry with this number in order of arrival.
    pub(super) fn rank(&self, number: u64) -> u64 {
        debug_assert!(number < self.len, "number={number} len={}", self.len);
        if self.end == Some(End::Front) { self.len - 1 - number } else { number }
    }

    /// The member at this rank, once the input has ended.
    pub(super) fn member(&self, rank: u64) -> Text<'_> {
        let tree = self.tree.as_ref().expect("it is closed");
        let (chunk, first) = tree.find(rank as usize);
        let offset = chunk.offset(rank as usize - first);
        item::entry(&chunk.items()[offset..], Some(chunk)).member
    }

    /// True if later entries were not in order, and some of these must be read again.
    pub(super) fn is_to_be_read(&self) -> bool {
        self.is_broken && (self.read as u64) < self.len
    }

    /// True when all have been read again.
    pub(super) fn is_read(&self) -> bool {
        self.is_broken && self.read as u64 == self.len
    }

    /// Reads the next chunk again, by rank; frees everything after the last one.
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
