//! A small sorted set as one run of bytes, without a pointer, so that it can be stored in its key's
//! entry.
//!
//! ```text
//! | len: 2 | entry | entry | ...        at most 2 KiB; an empty one has no bytes at all
//! ```
//! The entries are in order, byte for byte as in a chunk. There are no marks and no index: all
//! entries are walked. An out-of-line member, or more bytes, turn it into a tree.

use super::item::{self, Entries, INLINE_MAX, New};
use super::place::{Place, SortedEntry, order};
use super::scan::ordered;
use crate::chunk::{Coding, Encoded};
use crate::table::pack::class;
use darter_base::hash;
use std::ops::Range;

/// Bytes of the largest pack. Beyond that, walking costs more than the memory overhead of a tree is
/// worth.
pub(super) const PACK_BYTES_MAX: usize = 2_048;
/// The most entries in a pack.
pub(super) const PACK_LEN_MAX: usize = 256;
/// Bytes of the count.
const HEAD: usize = 2;

/// A packed sorted set, read in place.
#[derive(Clone, Copy)]
pub struct SortedPackRef<'a>(&'a [u8]);

impl<'a> SortedPackRef<'a> {
    /// `bytes` must come from [`super::Sorted::packed`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The number of entries.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.0.first_chunk().map_or(0, |count| usize::from(u16::from_le_bytes(*count)))
    }

    /// True when there are no entries.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The rank of a member, and its score. Cost: O(n), some nanoseconds an entry.
    #[must_use]
    pub fn rank(self, member: &[u8]) -> Option<(usize, f64)> {
        let (rank, at) = self.find(member)?;
        Some((rank, item::score(&self.items()[at..])))
    }

    /// The rank of a member, and the offset of its entry.
    fn find(self, member: &[u8]) -> Option<(usize, usize)> {
        let (items, mut at, mut rank) = (self.items(), 0, 0);
        while at < items.len() {
            if item::is_of(&items[at..], member) {
                return Some((rank, at));
            }
            at += Entries::len(&items[at..]);
            rank += 1;
        }
        None
    }

    /// The number of entries before a place. Cost: O(n).
    #[must_use]
    pub fn rank_of(self, place: &Place<'_>) -> usize {
        let (items, mut at, mut rank) = (self.items(), 0, 0);
        while at < items.len() {
            let entry = item::entry(&items[at..], None);
            if !place.is_behind(entry.score, |name| order(&entry.member, name)) {
                break;
            }
            at += Entries::len(&items[at..]);
            rank += 1;
        }
        rank
    }

    /// All entries, in order.
    pub fn iter(self) -> impl Iterator<Item = SortedEntry<'a>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let items = &self.items()[at..];
            (!items.is_empty()).then(|| {
                at += Entries::len(items);
                item::entry(items, None)
            })
        })
    }

    /// The entries' bytes.
    #[inline]
    pub(super) fn items(self) -> &'a [u8] {
        self.0.get(HEAD..).unwrap_or_default()
    }

    /// The offset in [`SortedPackRef::items`] of the entry at this rank, or of the end if `rank` is
    /// `len`.
    pub(super) fn offset(self, rank: usize) -> usize {
        if rank == self.len() {
            return self.items().len();
        }
        Entries::skip(self.items(), 0, rank)
    }

    /// Panics when the bytes are not those of a pack.
    pub fn check_invariants(self) {
        let (items, mut at, mut len) = (self.items(), 0, 0);
        while at < items.len() {
            assert!(Entries::outside(&items[at..]).is_none(), "P1: a long member in a pack");
            at += Entries::len(&items[at..]);
            len += 1;
        }
        assert_eq!((at, len), (items.len(), self.len()), "P1");
        assert!(len <= PACK_LEN_MAX && self.0.len() <= PACK_BYTES_MAX, "P2: {len} entries");
        assert!(len > 0 || self.0.is_empty(), "P1: an empty pack with bytes");
    }
}

/// A packed sorted set in its own memory.
#[derive(Clone, Default)]
pub(super) struct Pack(Vec<u8>);

impl Pack {
    /// An empty pack; allocates nothing.
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// A copy of a pack's bytes, with some extra room.
    pub(super) fn copy(bytes: &[u8]) -> Self {
        const GROWTH: usize = 16;
        let mut copy = Vec::with_capacity(class(bytes.len() + GROWTH));
        copy.extend_from_slice(bytes);
        Self(copy)
    }

    /// A pack of these entries; none may have a long member.
    pub(super) fn of_items(items: &[u8], len: usize) -> Self {
        let mut bytes = Vec::with_capacity(class(HEAD + items.len()));
        bytes.extend_from_slice(&(len as u16).to_le_bytes());
        bytes.extend_from_slice(items);
        Self(bytes)
    }

    /// A pack of these entries, which are sorted. `None` if no pack can hold them, or if two may
    /// have the same member.
    pub(super) fn of_all(entries: &mut [(f64, &[u8])]) -> Option<Self> {
        let is_held = |entry: &(f64, &[u8])| entry.1.len() <= INLINE_MAX;
        if !(1..=PACK_LEN_MAX).contains(&entries.len()) || !entries.iter().all(is_held) {
            return None;
        }
        let mut hashes: Vec<u64> = entries.iter().map(|(_, member)| hash::of(member)).collect();
        hashes.sort_unstable();
        if hashes.windows(2).any(|pair| pair[0] == pair[1]) {
            return None;
        }
        entries.sort_by(|one, other| {
            ordered(one.0).cmp(&ordered(other.0)).then_with(|| one.1.cmp(other.1))
        });
        let (mut bytes, mut at) = ([0; PACK_BYTES_MAX], HEAD);
        bytes[..HEAD].copy_from_slice(&(entries.len() as u16).to_le_bytes());
        for (score, member) in entries {
            assert!(!score.is_nan(), "a score is a number");
            let new = New::of(*score, 0, member); // The hash of a short member is not stored.
            new.write_to(bytes.get_mut(at..at + new.len())?);
            at += new.len();
        }
        let mut pack = Vec::with_capacity(class(at));
        pack.extend_from_slice(&bytes[..at]);
        Some(Self(pack))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    pub(super) fn view(&self) -> SortedPackRef<'_> {
        SortedPackRef(&self.0)
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.capacity()
    }

    /// Adds an entry whose member is absent. Returns false if the pack cannot hold it.
    pub(super) fn insert(&mut self, place: &Place<'_>, new: &New<'_>) -> bool {
        let view = self.view();
        let (len, rank) = (view.len(), view.rank_of(place));
        debug_assert!(rank <= len, "rank={rank} len={len}");
        let at = view.offset(rank);
        len < PACK_LEN_MAX && self.splice(at..at, Some(new), len + 1)
    }

    /// Removes the entries with these ranks.
    pub(super) fn remove(&mut self, ranks: Range<usize>) {
        let view = self.view();
        assert!(ranks.end <= view.len(), "{ranks:?} len={}", view.len());
        let from = view.offset(ranks.start);
        let to = from + Entries::skip(&view.items()[from..], 0, ranks.len());
        self.splice(from..to, None, view.len() - ranks.len());
    }

    /// Replaces some bytes by an entry or by nothing. `len` is the resulting number of entries.
    fn splice(&mut self, old: Range<usize>, entry: Option<&New<'_>>, len: usize) -> bool {
        if entry.is_some_and(|entry| entry.long().is_some()) {
            return false;
        }
        if self.0.is_empty() {
            self.0.extend_from_slice(&[0; HEAD]);
        }
        let (size, new) = (self.0.len(), entry.map_or(0, Encoded::len));
        debug_assert!(HEAD + old.end <= size, "{old:?} of {size}");
        let after = size - old.len() + new;
        if after > PACK_BYTES_MAX {
            return false;
        }
        let (from, to) = (HEAD + old.start, HEAD + old.end);
        if after > size {
            if after > self.0.capacity() {
                self.0.reserve_exact(class(after) - size);
            }
            self.0.resize(after, 0);
        }
        self.0.copy_within(to..size, from + new);
        self.0.truncate(after);
        if let Some(entry) = entry {
            entry.write_to(&mut self.0[from..from + new]);
        }
        self.finish(len);
        true
    }

    /// Sets the number of entries, and moves to a smaller block if that is worthwhile: the
    /// allocator shrinks a block to half its size in place.
    fn finish(&mut self, len: usize) {
        if len == 0 {
            self.0 = Vec::new();
            return;
        }
        self.0[..HEAD].copy_from_slice(&(len as u16).to_le_bytes());
        let fitting = class(self.0.len());
        if class(fitting + 1) < self.0.capacity() {
            let mut smaller = Vec::with_capacity(fitting);
            smaller.extend_from_slice(&self.0);
            self.0 = smaller;
        }
    }
}
