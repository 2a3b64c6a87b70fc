//! Small collections in their keys' entries.
//!
//! Most collections are small, and a pointer, a count, a type and a block would take more memory
//! than the content of some. So a value that is a pack ([`Table::packed`]) is stored in the entry
//! itself while it fits, like a short string. A reader gets a copy ([`Lent`]). A writer takes a
//! copy, changes it, and stores it back (`Db::edit`). See docs/design/0012-small-collections.md.
//!
//! ```text
//! note | bits 0-2: the type's number | bit 3: the encoding's name is the larger one |
//! ```
//! Such a value is counted in the memory of the table of keys, like short strings. It has no
//! deadlines, so it needs no clock, and never consists of expired entries only.
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

/// The number of types that can have packs: those with the lowest numbers.
const TYPES: usize = NUMBER as usize + 1;

/// The rows of the types by number, because an entry has room for only the number. The first pack
/// of a type registers the row, which never changes.
static ROWS: [OnceLock<&'static Type>; TYPES] = [const { OnceLock::new() }; TYPES];

/// An out-of-line value returns to the entry when its pack has at most this length, well below the
/// size at which it leaves again.
const BACK_MAX: usize = PACKED_MAX * 3 / 4;

/// A value for reading: borrowed, or a copy of a pack in the entry.
pub enum Lent<'a, V> {
    /// A borrowed out-of-line value.
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
    /// A pack of a value of this type, which must have one of the eight lowest numbers. `is_grown`
    /// says whether OBJECT ENCODING names the encoding of large values.
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

/// The value as a pack that fits an entry.
pub(crate) fn fitting<V: Value + ?Sized>(value: &V) -> Option<PackedValue<'_>> {
    value.packed().filter(|packed| packed.bytes.len() <= PACKED_MAX)
}

/// A copy of the pack of an out-of-line value, if that has become small enough for the entry.
pub(crate) fn shrunk<V: Value>(value: &V) -> Option<(u8, Vec<u8>)> {
    let packed = value.packed().filter(|packed| packed.bytes.len() <= BACK_MAX)?;
    (!value.is_empty()).then(|| (packed.note, packed.bytes.to_vec()))
}

/// The pack in an entry, if there is one.
#[inline]
pub(crate) fn in_entry<'a>(entry: &Entry<'a, Object>) -> Option<PackedValue<'a>> {
    entry.packed_value()
}

/// Panics if an invariant of a pack is violated.
pub(crate) fn check(packed: PackedValue<'_>) {
    let object = object(packed);
    object.check_invariants();
    assert!(object.packed().is_some_and(|again| again == packed), "a pack of its type");
}

/// Stores a changed value back that was in the entry under this note: in the entry, or out of line.
/// Returns its new clock; `None`, without storing, if the value is empty.
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
