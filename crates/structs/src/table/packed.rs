//! Tables that are packs.
//!
//! A table of plain names, or of names and values, starts as a pack with its first entry. It
//! becomes a table of entries when an entry arrives that is not plain (it has a deadline, an
//! out-of-line value, or a long name), or when the pack would get too large. It becomes a pack
//! again when removals have left half a pack's worth in its only segment. A scan is safe across
//! both changes, because either form is returned whole by one call.

use super::entry::{self, Buf, Entry, Needle};
use super::pack::{Pack, Plain, Put, Spot, View};
use super::segment::PagePos;
use super::text::{Form, Scratch, Text};
use super::value::{New, Old, OutOfLine, Packing};
use super::{Root, Table};
use darter_base::{UnixMillis, hash};

/// The size at which a table becomes a pack again: half of a pack's capacity, and about half of the
/// names that it can count.
const PACK_AGAIN_LEN: usize = 96;
const PACK_AGAIN_BYTES: usize = 2048;

impl Pack {
    /// The entry of `key`.
    #[inline]
    pub(super) fn find<X: OutOfLine>(&self, hash: u64, key: &[u8]) -> Option<Entry<'_, X>> {
        let view = self.view();
        view.find(hash, key).map(|spot| Entry::packed(view.item(spot)))
    }

    /// Calls `f` for all entries.
    pub(super) fn for_each<X: OutOfLine>(&self, f: &mut dyn FnMut(Entry<'_, X>)) {
        self.view().items().for_each(|item| f(Entry::packed(item)));
    }
}

/// The value, if a pack can hold it.
fn plain<'v, X>(value: &New<'v, X>) -> Option<Plain<'v>> {
    match value {
        New::Bytes(bytes) => {
            assert!(bytes.len() <= entry::INLINE_MAX, "{} bytes inline", bytes.len());
            Some(Plain::Bytes(bytes))
        }
        New::Int(value) => Some(Plain::Int(*value)),
        New::Packed(_) | New::Out(_) => None,
    }
}

/// The old value of an entry in a pack.
fn plain_old<X>() -> Old<X> {
    Old { out: None, note: None, deadline: None, bits: 0 }
}

/// A pack in the entry of another table, read like a table.
#[derive(Clone, Copy)]
pub struct PackRef<'a>(View<'a>);

impl<'a> PackRef<'a> {
    /// `bytes` must come from [`Table::packed`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(View::new(bytes))
    }

    /// The entry of `key`.
    #[inline]
    #[must_use]
    pub fn get<X: OutOfLine>(self, hash: u64, key: &[u8]) -> Option<Entry<'a, X>> {
        self.0.find(hash, key).map(|spot| Entry::packed(self.0.item(spot)))
    }

    /// Prefetches the memory that a search reads first.
    #[inline]
    pub fn prefetch(self) {
        self.0.prefetch();
    }

    /// Panics when an invariant does not hold.
    pub fn check_invariants(self) {
        self.0.check();
    }

    /// True when `key` has an entry.
    #[inline]
    #[must_use]
    pub fn contains(self, hash: u64, key: &[u8]) -> bool {
        self.0.find(hash, key).is_some()
    }
}

impl<X: OutOfLine> Table<X> {
    /// The bytes of a table that is a pack. They are its complete state, and can be stored
    /// anywhere.
    #[inline]
    #[must_use]
    pub fn packed(&self) -> Option<&[u8]> {
        if let Root::Pack(pack) = &self.0 { Some(pack.bytes()) } else { None }
    }

    /// The table with these bytes, which are copied.
    #[must_use]
    pub fn of_packed(bytes: &[u8]) -> Self {
        debug_assert!(X::PACKING != Packing::None, "such tables are not packed");
        Self(Root::Pack(Pack::copy(bytes)))
    }

    /// A table of these names and inline values, if it is a pack. `None` also if two names may be
    /// equal; then add them one by one.
    #[must_use]
    pub fn of_all(entries: &[(&[u8], &[u8])]) -> Option<Self> {
        debug_assert!(X::PACKING != Packing::None, "such tables are not packed");
        Some(Self(Root::Pack(Pack::of_all(entries, X::PACKING == Packing::Pairs)?)))
    }

    /// Adds an entry to a pack, or replaces the one with the same key, which is returned. `None` if
    /// the table is not a pack, or no longer is one.
    #[inline]
    pub(super) fn put_packed(
        &mut self,
        hash: u64,
        key: &[u8],
        value: &New<'_, X>,
        deadline: Option<UnixMillis>,
        bits: u8,
    ) -> Option<Option<Old<X>>> {
        if X::PACKING == Packing::None || matches!(self.0, Root::Small(_) | Root::Big(_)) {
            return None;
        }
        let plain = plain(value).filter(|_| deadline.is_none() && bits == 0);
        let put = match (&mut self.0, plain) {
            (Root::Pack(pack), Some(value)) => pack.put(hash, key, value),
            (Root::Pack(_), None) => Put::Refused,
            (_, None) => return None,
            (_, Some(value)) => {
                self.0 = Root::Pack(Pack::of(hash, key, value, X::PACKING == Packing::Pairs)?);
                Put::Added
            }
        };
        match put {
            Put::Added => Some(None),
            Put::Replaced => Some(Some(plain_old())),
            Put::Refused => {
                self.unpack();
                None
            }
        }
    }

    /// Turns a pack into a table of entries. Cost: a portion.
    #[cold]
    pub(super) fn unpack(&mut self) {
        let Root::Pack(pack) = &mut self.0 else { return };
        let pack = pack.take();
        self.0 = Root::Empty;
        let mut buf = Buf::new();
        for item in pack.view().items() {
            let (mut key, mut value) = (Scratch::new(), Scratch::new());
            let (name, text) = (item.key(), item.value());
            let key = name.bytes(&mut key);
            let hash = hash::of(key);
            let value = new(&text, &mut value);
            entry::encode::<X>(&mut buf, &Needle::of(hash, key), value, None, 0, 0);
            self.add(hash, &buf);
        }
    }

    /// Turns a segment with few entries into a pack. Returns false, without a change, if they do
    /// not fit.
    pub(super) fn become_pack(&mut self) -> bool {
        let Root::Big(big) = &self.0 else { return false };
        let Some(path) = big.only() else { return false };
        let segment = big.directory.segment_at(path);
        if X::PACKING == Packing::None
            || segment.len() > PACK_AGAIN_LEN
            || segment.live_bytes() > PACK_AGAIN_BYTES
        {
            return false;
        }
        let (mut table, mut at) = (Self::new(), PagePos::default());
        while let Some(raw) = segment.next_entry(&mut at) {
            if raw.is_owner() || raw.is_timed() || raw.bits() != 0 {
                return false;
            }
            // SAFETY: an entry of this table, which is borrowed.
            let entry = unsafe { Entry::<X>::new(raw) };
            table.put_again(entry.key(), entry.value());
            if !matches!(table.0, Root::Pack(_)) {
                return false;
            }
        }
        *self = table;
        true
    }

    /// Adds a plain entry of another table.
    fn put_again(&mut self, key: Text<'_>, value: super::ValueRef<'_, X>) {
        let super::ValueRef::Text(value) = value else { unreachable!("it owns nothing") };
        let (mut name, mut text) = (Scratch::new(), Scratch::new());
        let name = key.bytes(&mut name);
        self.insert(hash::of(name), name, new(&value, &mut text), None, 0);
    }

    /// The entry at `spot` of a pack.
    pub(super) fn packed_entry(&self, spot: Spot) -> Entry<'_, X> {
        let Root::Pack(pack) = &self.0 else {
            unreachable!("the table has changed its form since")
        };
        Entry::packed(pack.view().item(spot))
    }

    /// Sets the value of the entry at `spot`. Returns false, without a change, if a pack cannot
    /// hold it.
    pub(super) fn set_packed(&mut self, spot: Spot, value: &New<'_, X>) -> bool {
        let Root::Pack(pack) = &mut self.0 else { return false };
        plain(value).is_some_and(|value| pack.set_value(spot, value))
    }

    /// Removes the entry at `spot`.
    pub(super) fn remove_packed(&mut self, spot: Spot) -> Old<X> {
        if let Root::Pack(pack) = &mut self.0 {
            pack.remove(spot);
            if pack.view().len() == 0 {
                self.0 = Root::Empty;
            }
        }
        plain_old()
    }
}

/// A text as a new value.
fn new<'t, X>(text: &'t Text<'_>, scratch: &'t mut Scratch) -> New<'t, X> {
    match text.0 {
        Form::Int(value) => New::Int(value),
        _ => New::Bytes(text.bytes(scratch)),
    }
}
