//! The values of entries, as callers pass and receive them.
//!
//! Not here: their encoding. See `entry` and `pack`.

use super::pack::Item;
use super::text::Text;
use darter_base::UnixMillis;
use std::sync::Arc;

/// An out-of-line value: a pointer that owns its target.
///
/// # Safety
/// The type has the size and alignment of a pointer, or no values at all; and it may be moved by
/// copying its bytes (as all Rust values may).
pub unsafe trait OutOfLine: Clone + Send + Sync + 'static {
    /// True if each entry of such a table has a stamp: a number below [`super::STAMP_END`] that
    /// takes three bytes, and that [`super::Table::touch`] changes in place.
    const STAMPED: bool = false;
    /// The packing of a small table with these values.
    const PACKING: Packing = Packing::None;
    /// An entry of such a pack; [`Unpacked`] if there are no packs.
    type Packed<'a>: AnyItem<'a>;
}

/// The packed part of a small table: see `pack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not packed: always stored as entries.
    None,
    /// Names alone.
    Keys,
    /// Names and values.
    Pairs,
}

/// An entry of a pack, or nothing, so that entries of tables without packs stay small.
pub trait AnyItem<'a>: Copy {
    /// Converts a pack's entry, if this type has any.
    fn of(item: Item<'a>) -> Self;

    /// The entry.
    fn item(self) -> Item<'a>;
}

impl<'a> AnyItem<'a> for Item<'a> {
    #[inline]
    fn of(item: Item<'a>) -> Self {
        item
    }

    #[inline]
    fn item(self) -> Item<'a> {
        self
    }
}

/// The type without entries.
#[derive(Clone, Copy, Debug)]
pub enum Unpacked {}

impl<'a> AnyItem<'a> for Unpacked {
    fn of(_: Item<'a>) -> Self {
        unreachable!("such tables are not packed")
    }

    #[inline]
    fn item(self) -> Item<'a> {
        match self {}
    }
}

/// The target of an `Arc` in a table.
pub trait Target: Send + Sync + 'static {
    /// See [`OutOfLine::STAMPED`].
    const STAMPED: bool = false;
}

// SAFETY: an `Arc` of a sized type is one pointer.
unsafe impl<T: Target> OutOfLine for Arc<T> {
    const STAMPED: bool = T::STAMPED;
    const PACKING: Packing = if T::STAMPED { Packing::None } else { Packing::Pairs };
    type Packed<'a> = Item<'a>;
}

/// No value: for sets, whose entries are keys alone.
#[derive(Clone, Debug)]
pub enum Never {}

// SAFETY: there are no values.
unsafe impl OutOfLine for Never {
    const PACKING: Packing = Packing::Keys;
    type Packed<'a> = Item<'a>;
}

/// A value to be stored in a table.
#[derive(Clone, Debug)]
pub enum New<'a, X> {
    /// At most [`super::INLINE_MAX`] bytes. An empty value takes no memory, not even for a length.
    Bytes(&'a [u8]),
    /// The decimal text of an integer, without writing the text first.
    Int(i64),
    /// A small collection, at most [`super::PACKED_MAX`] bytes.
    Packed(PackedValue<'a>),
    /// An out-of-line value.
    Out(X),
}

/// A small collection in an entry: the bytes of a table that is a pack ([`super::Table::packed`]),
/// and a note of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedValue<'a> {
    /// The caller's note.
    pub note: u8,
    /// The bytes of the pack.
    pub bytes: &'a [u8],
}

/// The state of an entry before it was removed or overwritten.
#[derive(Clone, Debug)]
pub struct Old<X> {
    /// The value, if it was out of line.
    pub out: Option<X>,
    /// The note, if the value was a pack.
    pub note: Option<u8>,
    /// The deadline, if there was one.
    pub deadline: Option<UnixMillis>,
    /// Two bits of the caller.
    pub bits: u8,
}

/// A value inside a table.
#[derive(Debug)]
pub enum ValueRef<'a, X> {
    /// Stored in the entry.
    Text(Text<'a>),
    /// A small collection, stored in the entry.
    Packed(PackedValue<'a>),
    /// Stored out of line.
    Out(&'a X),
}
