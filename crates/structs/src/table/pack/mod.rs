//! A pack: a small collection as one run of bytes.
//!
//! Most collections are small, and most of their memory would be overhead: an allocation with its
//! count, a flag and a length for each text, an index. A pack has none of these. It holds only
//! plain entries (names and inline values; no deadlines, no pointers), so it is copied as bytes,
//! freed without being read, and can be stored anywhere. Other entries, or too many of them, turn
//! it into a table of entries. Numbers, and rejected forms: docs/design/0012-small-collections.md.
//!
//! | kind  | holds                                                | file      |
//! |-------|------------------------------------------------------|-----------|
//! | ints  | a set of integers: a base, and offsets of one width  | `ints`    |
//! | keys  | a set of any texts                                   | `records` |
//! | pairs | a hash                                               | `records` |
//!
//! Nothing in it is aligned, and nothing refers to its address.
//!
//! Not here: the conditions for a table to become a pack, and to stop being one. See
//! `super::packed`.

mod build;
mod ints;
pub(crate) mod item;
mod lanes;
mod records;
#[cfg(test)]
mod tests;

pub(super) use item::Joined;

use super::entry::{KEY_INLINE_MAX, PACKED_MAX};
use super::segment::prefetch;
use super::text::{Form, Packed, Text};
use item::Tagged;
use records::{Records, Spot as RecordSpot};
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::ptr;

/// Bytes of the largest pack. Beyond that, moving the bytes after a change costs more than an index
/// does.
pub(super) const BYTES_MAX: usize = 4096;
/// The most integers in a pack; it becomes a table in one step.
const INTS_MAX: usize = 512;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Cache lines of the index of about a hundred records, and of most packs stored in an entry.
const INDEX_LINES: usize = 6;

/// Spare room in the copy of a pack that is about to change: for an entry, and for an index that it
/// may start.
const GROWTH: usize = 48;

const INTS: u8 = 0;
const KEYS: u8 = 1;
const PAIRS: u8 = 2;

/// One entry of a pack, as two words: entries are passed around often, and bytes stored in smaller
/// pieces are slow to load as words.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    /// The pack; for an integer, the integer itself.
    pack: *const u8,
    /// Four fields of 16 bits, from the lowest: the kind, the pack's length, the offset of the
    /// tags, the offset of the texts.
    word: NonZeroU64,
    lives: PhantomData<&'a [u8]>,
}

// SAFETY: it is a reference to bytes, or none.
unsafe impl Send for Item<'_> {}
// SAFETY: as above.
unsafe impl Sync for Item<'_> {}

const _: () = assert!(BYTES_MAX <= u16::MAX as usize && size_of::<usize>() == size_of::<u64>());

impl<'a> Item<'a> {
    const INT: NonZeroU64 = NonZeroU64::new(3).unwrap();

    #[inline]
    fn int(value: i64) -> Self {
        let pack = ptr::without_provenance(value.cast_unsigned() as usize);
        Self { pack, word: Self::INT, lives: PhantomData }
    }

    /// The record of this pack with its tags and texts at these offsets.
    #[inline]
    fn record(pack: &'a [u8], tags_at: usize, texts_at: usize) -> Self {
        assert!(pack.len() <= BYTES_MAX && tags_at < pack.len() && texts_at <= pack.len());
        let places = (pack.len() << 16 | tags_at << 32 | texts_at << 48) as u64;
        let word = NonZeroU64::new(places | u64::from(pack[0])).expect("a pack has bytes");
        Self { pack: pack.as_ptr(), word, lives: PhantomData }
    }

    /// The parts of a record: the kind, the pack, and the 16-bit offsets of its tags and texts.
    #[inline]
    fn parts(self) -> Option<(u8, &'a [u8], usize)> {
        if self.word == Self::INT {
            return None;
        }
        let word = self.word.get() as usize;
        // SAFETY: `record` was given a slice of this length at this pointer, which lives during 'a.
        let pack = unsafe { std::slice::from_raw_parts(self.pack, word >> 16 & 0xffff) };
        Some((word as u8, pack, word >> 32))
    }

    #[inline]
    pub(super) fn key(self) -> Text<'a> {
        let Some((_, pack, places)) = self.parts() else {
            return Text(Form::Int((self.pack.addr() as u64).cast_signed()));
        };
        let (tags_at, texts_at) = (places & 0xffff, places >> 16);
        let from = records::PREFIX;
        match item::text_of(pack[tags_at], &pack[texts_at..]).0 {
            Form::Raw(rest) if pack[from] == 0 => Text(Form::Raw(rest)),
            Form::Raw(rest) => {
                Text(Form::Joined(Joined::of(&pack[from..], texts_at - from, rest.len())))
            }
            form => Text(form),
        }
    }

    #[inline]
    pub(super) fn value(self) -> Text<'a> {
        let Some((PAIRS, pack, places)) = self.parts() else { return Text(Form::Raw(&[])) };
        let (tags_at, texts_at) = (places & 0xffff, places >> 16);
        let texts = &pack[texts_at..];
        item::text_of(pack[tags_at + 1], &texts[item::body_len(pack[tags_at], texts)..])
    }
}

/// The place of an entry, valid until the pack changes.
#[derive(Clone, Copy)]
pub(super) enum Spot {
    Int(usize),
    Record(RecordSpot),
}

/// A value that a pack can hold.
#[derive(Clone, Copy)]
pub(super) enum Plain<'a> {
    Bytes(&'a [u8]),
    Int(i64),
}

impl<'a> Plain<'a> {
    fn is_empty(self) -> bool {
        matches!(self, Self::Bytes([]))
    }

    fn tagged(self) -> Tagged<'a> {
        match self {
            Self::Bytes(bytes) => Tagged::of(Packed::of(bytes)),
            Self::Int(value) => Tagged::int(value),
        }
    }
}

/// A pack, read in place.
#[derive(Clone, Copy)]
pub(super) struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// `bytes` are those of a [`Pack`].
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn is_ints(self) -> bool {
        self.0[0] == INTS
    }

    pub(super) fn len(self) -> usize {
        if self.is_ints() { ints::Ints::of(self.0).count() } else { Records::of(self.0).count() }
    }

    #[inline]
    pub(super) fn find(self, hash: u64, key: &[u8]) -> Option<Spot> {
        if self.is_ints() {
            let Packed::Int(value) = Packed::of(key) else { return None };
            return ints::Ints::of(self.0).find(value).ok().map(Spot::Int);
        }
        Records::of(self.0).find(hash, key).map(Spot::Record)
    }

    #[inline]
    pub(super) fn item(self, spot: Spot) -> Item<'a> {
        match spot {
            Spot::Int(index) => Item::int(ints::Ints::of(self.0).get(index)),
            Spot::Record(spot) => Records::of(self.0).record(spot),
        }
    }

    /// The next entry; `at` starts at 0.
    pub(super) fn next(self, at: &mut usize) -> Option<Item<'a>> {
        if !self.is_ints() {
            return Records::of(self.0).next(at);
        }
        let ints = ints::Ints::of(self.0);
        (*at < ints.count()).then(|| {
            *at += 1;
            Item::int(ints.get(*at - 1))
        })
    }

    pub(super) fn items(self) -> impl Iterator<Item = Item<'a>> {
        let mut at = 0;
        std::iter::from_fn(move || self.next(&mut at))
    }

    /// The entry with this index, in the order of [`View::next`].
    pub(super) fn nth(self, index: usize) -> Item<'a> {
        if self.is_ints() {
            return self.item(Spot::Int(index));
        }
        self.item(Spot::Record(Records::of(self.0).nth(index)))
    }

    /// Prefetches the first reads of a search: the head and the fingerprints; for integers,
    /// everything that fits an entry.
    #[inline]
    pub(super) fn prefetch(self) {
        self.0.chunks(LINE).take(INDEX_LINES).for_each(|line| prefetch(line.as_ptr()));
    }

    /// Prefetches the entry of a name with this hash, once the fingerprints were prefetched.
    #[inline]
    pub(super) fn prefetch_entry(self, hash: u64) {
        if self.0.len() > INDEX_LINES * LINE
            && !self.is_ints()
            && let Some(at) = Records::of(self.0).likely(hash)
        {
            prefetch(at.as_ptr());
            prefetch(at.as_ptr().wrapping_add(LINE / 2)); // Many short records span two lines.
        }
    }

    /// Panics when an invariant does not hold.
    pub(super) fn check(self) {
        assert!(self.len() > 0, "an empty pack");
        match self.0[0] {
            INTS => ints::Ints::of(self.0).check(),
            kind => {
                assert!(kind == KEYS || kind == PAIRS, "kind={kind}");
                Records::of(self.0).check();
            }
        }
    }
}

/// The outcome of putting an entry into a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Added,
    Replaced,
    /// The entry does not fit; the pack is unchanged.
    Refused,
}

/// A pack in its own memory.
#[derive(Clone)]
pub(super) struct Pack(Vec<u8>);

impl Pack {
    /// A pack with one entry: a pair, or a name alone. `None` if no pack can hold the entry.
    pub(super) fn of(hash: u64, key: &[u8], value: Plain<'_>, are_pairs: bool) -> Option<Self> {
        let mut pack = Self(Vec::new());
        if !are_pairs && !value.is_empty() {
            return None;
        }
        if !are_pairs && let Packed::Int(value) = Packed::of(key) {
            pack.0.reserve_exact(class(ints::HEAD));
            ints::write(&mut pack.0, value, 0, &[value]);
            return Some(pack);
        }
        if !fits(key) {
            return None;
        }
        records::begin(&mut pack.0, if are_pairs { PAIRS } else { KEYS }, key);
        (pack.put(hash, key, value) == Put::Added).then_some(pack)
    }

    /// Moves the bytes out, and leaves an empty pack.
    pub(super) fn take(&mut self) -> Self {
        Self(std::mem::take(&mut self.0))
    }

    /// A copy of a pack's bytes, with room for another entry.
    pub(super) fn copy(bytes: &[u8]) -> Self {
        let mut copy = Vec::with_capacity(class(bytes.len() + GROWTH));
        copy.extend_from_slice(bytes);
        Self(copy)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        View(&self.0)
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.capacity()
    }

    /// Adds an entry, or replaces the value of an existing one.
    pub(super) fn put(&mut self, hash: u64, key: &[u8], value: Plain<'_>) -> Put {
        match self.view().find(hash, key) {
            Some(spot) if self.set_value(spot, value) => Put::Replaced,
            Some(_) => Put::Refused,
            None if self.add(hash, key, value) => Put::Added,
            None => Put::Refused,
        }
    }

    fn add(&mut self, hash: u64, key: &[u8], value: Plain<'_>) -> bool {
        let has_values = self.0[0] == PAIRS;
        if !fits(key) || (!has_values && !value.is_empty()) {
            return false;
        }
        if self.view().is_ints() {
            return match Packed::of(key) {
                Packed::Int(number) => self.add_int(number),
                _ => self.add_text_to_ints(hash, key),
            };
        }
        let value = has_values.then(|| value.tagged());
        records::push(&mut self.0, hash, key, value.as_ref())
    }

    fn add_int(&mut self, value: i64) -> bool {
        let ints = ints::Ints::of(&self.0);
        let Err(index) = ints.find(value) else { unreachable!("it is not there") };
        let bytes = ints::bytes_with(&self.0, value);
        if ints.count() == INTS_MAX || bytes > BYTES_MAX {
            return false;
        }
        let more = bytes.saturating_sub(self.0.len());
        reserve(&mut self.0, more);
        ints::insert(&mut self.0, index, value);
        true
    }

    /// Converts integers to texts, and adds `key`. Returns false, without a change, if that is too
    /// much for a pack.
    fn add_text_to_ints(&mut self, hash: u64, key: &[u8]) -> bool {
        let mut texts = Self(Vec::new());
        records::begin(&mut texts.0, KEYS, key);
        let is_added = ints::Ints::of(&self.0).iter().all(|value| {
            let text = Text(Form::Int(value));
            let (hash, mut scratch) = (text.hash(), super::Scratch::new());
            records::push(&mut texts.0, hash, text.bytes(&mut scratch), None)
        }) && records::push(&mut texts.0, hash, key, None);
        if is_added {
            *self = texts;
        }
        is_added
    }

    /// Replaces the value of the entry at `spot`. Returns false, without a change, if the new value
    /// does not fit.
    pub(super) fn set_value(&mut self, spot: Spot, value: Plain<'_>) -> bool {
        match spot {
            Spot::Record(spot) if self.0[0] == PAIRS => {
                records::set_value(&mut self.0, spot, &value.tagged()) && {
                    self.fit();
                    true
                }
            }
            _ => value.is_empty(),
        }
    }

    /// Removes the entry at `spot`.
    pub(super) fn remove(&mut self, spot: Spot) {
        match spot {
            Spot::Int(index) => ints::remove(&mut self.0, index),
            Spot::Record(spot) => records::remove(&mut self.0, spot),
        }
        self.fit();
    }

    /// Moves to a smaller block if that still has room for another entry, so that an entry which is
    /// added and removed repeatedly does not cause a copy each time. It must be a new block,
    /// because the allocator shrinks a block to half its size in place. Packs small enough for an
    /// entry are left alone: most are copies that will be stored there.
    fn fit(&mut self) {
        let class = class(self.0.len() + GROWTH);
        if class < self.0.capacity() && self.0.len() > PACKED_MAX {
            let mut fitting = Vec::with_capacity(class);
            fitting.extend_from_slice(&self.0);
            self.0 = fitting;
        }
    }
}

/// True if a pack can hold the name.
fn fits(key: &[u8]) -> bool {
    key.len() <= KEY_INLINE_MAX
}

/// Reserves room for `more` bytes.
fn reserve(bytes: &mut Vec<u8>, more: usize) {
    let len = bytes.len() + more;
    if len > bytes.capacity() {
        bytes.reserve_exact(class(len) - bytes.len());
    }
}

/// The block size for this many bytes: the allocator's size classes, four per doubling.
pub(crate) fn class(bytes: usize) -> usize {
    let bytes = bytes.max(16);
    let step = (bytes.next_power_of_two() / 8).max(16);
    bytes.next_multiple_of(step)
}
