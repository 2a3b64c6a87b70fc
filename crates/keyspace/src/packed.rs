//! Small collections in their keys' entries.
//!
//! Most collections are small, and a pointer to one, with its count, its type and its own block, is
//! more than some of them hold. So a value that is a pack ([`Table::packed`]) is kept in the entry
//! itself while it fits, as a short string is: a reader gets a copy ([`Lent`]); a writer takes a
//! copy, changes that, and puts it back (`Db::edit`). docs/design/0012-small-collections.md.
//!
//! ```text
//! note | bits 0-2: the type's number | bit 3: the encoding's name is the larger one |
//! ```
//! Such a value is accounted with the table of keys, as short strings are, and has no deadlines: so
//! it needs no clock, and is never hollow.
//!
//! Not here: the bytes. See `pack` in `darter_structs::table`.
//!
//! [`Table::packed`]: darter_structs::table::Table::packed

use crate::object::{Object, Type, Typed, Value};
use crate::{Clock, Usage};
use darter_structs::table::{Entry, EntryMut, New, PACKED_MAX, PackedValue};
use std::ops::Deref;
use std::sync::OnceLock;

/// The bits of a type's number.
const NUMBER: u8 = 7;
/// The flag for the larger of two names of encodings.
const GROWN: u8 = 8;

/// How many types can have packs: those with the lowest numbers.
const TYPES: usize = NUMBER as usize + 1;

/// The rows of the types, by number: an entry has room for the number only. The first pack of a
/// type registers its row, which never changes.
static ROWS: [OnceLock<&'static Type>; TYPES] = [const { OnceLock::new() }; TYPES];

/// An out-of-line value returns to the entry when its pack is at most this long: well below the
/// size at which it would leave again.
const BACK_MAX: usize = PACKED_MAX * 3 / 4;

/// A value to read: in place, or a copy of a pack in the entry.
pub enum Lent<'a, V> {
    /// Out of line.
    There(&'a V),
    /// A copy of a pack in the entry: some hundred bytes.
    Copied(V),
}

impl<V> Deref for Lent<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        match self {
            Self::There(value) => value,
            Self::Copied(value) => value,
        }
    }
}

impl<V: Clone> Lent<'_, V> {
    /// A cut of the value.
    #[must_use]
    pub fn into_cut(self) -> V {
        match self {
            Self::There(value) => value.clone(),
            Self::Copied(value) => value,
        }
    }
}

impl Type {
    /// A pack of a value of this type, whose number is one of the lowest eight; `is_grown` when its
    /// encoding has the larger name.
    #[must_use]
    pub fn pack<'a>(&'static self, is_grown: bool, bytes: &'a [u8]) -> PackedValue<'a> {
        let row = ROWS[self.number].get_or_init(|| self);
        debug_assert!(std::ptr::eq(*row, self), "{self:?} and {row:?} have one number");
        PackedValue { note: self.number as u8 | if is_grown { GROWN } else { 0 }, bytes }
    }

    /// The bytes of a pack, if it is of this type, and whether its encoding has the larger name.
    #[inline]
    #[must_use]
    pub fn unpack<'a>(&self, packed: PackedValue<'a>) -> Option<(&'a [u8], bool)> {
        (number(packed.note) == self.number).then_some((packed.bytes, packed.note & GROWN != 0))
    }
}

/// The type number of a pack.
pub(crate) fn number(note: u8) -> usize {
    usize::from(note & NUMBER)
}

/// The type of a pack.
pub(crate) fn kind(note: u8) -> &'static Type {
    ROWS[number(note)].get().expect("its first pack has entered it")
}

/// The value of a pack, out of line.
pub(crate) fn object(packed: PackedValue<'_>) -> Object {
    let mut object = (kind(packed.note).empty)();
    let taken = object.face_mut().take_packed(packed);
    assert!(taken, "a pack is of its type");
    object
}

/// The value of a pack, if it is of type `V`.
#[inline]
pub(crate) fn value<V: Typed>(packed: PackedValue<'_>) -> Option<V> {
    let mut value = V::default();
    value.take_packed(packed).then_some(value)
}

/// The value as a pack that an entry can hold.
pub(crate) fn fitting<V: Value + ?Sized>(value: &V) -> Option<PackedValue<'_>> {
    value.packed().filter(|packed| packed.bytes.len() <= PACKED_MAX)
}

/// A copy of the pack of an out-of-line value that has become small enough for the entry.
pub(crate) fn shrunk<V: Value>(value: &V) -> Option<(u8, Vec<u8>)> {
    let packed = value.packed().filter(|packed| packed.bytes.len() <= BACK_MAX)?;
    (!value.is_empty()).then(|| (packed.note, packed.bytes.to_vec()))
}

/// The pack in an entry, if there is one.
#[inline]
pub(crate) fn in_entry<'a>(entry: &Entry<'a, Object>) -> Option<PackedValue<'a>> {
    entry.packed_value()
}

/// Panics when a pack breaks an invariant.
pub(crate) fn check(packed: PackedValue<'_>) {
    let object = object(packed);
    object.check_invariants();
    assert!(object.packed().is_some_and(|again| again == packed), "a pack of its type");
}

/// Puts back a value that was in the entry under this note and was changed: into the entry, or out
/// of line. Returns its new clock; `None`, and nothing is done, if the value is empty.
pub(crate) fn put_back<V: Typed>(
    mut entry: EntryMut<'_, Object>,
    note: u8,
    value: V,
    usage: &mut Usage,
) -> Option<Clock> {
    if value.is_empty() {
        return None;
    }
    if let Some(packed) = fitting(&value) {
        entry.set_value(New::Packed(packed));
        return Some(Clock::default());
    }
    let mut object = Object::new(value);
    let clock = Clock::default().settled(object.earliest_deadline());
    if clock != Clock::default() {
        object.set_mark(clock);
    }
    usage.remove(None, Some(note));
    usage.add(Some(&object), None);
    entry.set_value(New::Out(object));
    Some(clock)
}
