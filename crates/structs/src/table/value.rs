//! The values of entries, as callers pass and receive them.
//!
//! Not here: how it is encoded. See `entry` and `pack`.

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
    /// True when each entry of such a table has a stamp: a number below [`super::STAMP_END`] that
    /// costs three bytes, and that [`super::Table::touch`] changes in place.
    const STAMPED: bool = false;
    /// How a small table of these is packed.
    const PACKING: Packing = Packing::None;
    /// An entry of such a pack; [`Unpacked`] where there are none.
    type Packed<'a>: AnyItem<'a>;
}

/// The packed part of a small table: see `pack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Nothing: it is always made of entries.
    None,
    /// Names alone.
    Keys,
    /// Names and values.
    Pairs,
}

/// An entry of a pack, or nothing at all: so that the entries of tables without packs are thin.
pub trait AnyItem<'a>: Copy {
    /// As one of these, where there are some.
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

/// No entry.
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

/// A value on its way into a table.
#[derive(Clone, Debug)]
pub enum New<'a, X> {
    /// At most [`super::INLINE_MAX`] bytes. An empty value costs nothing, not even a length.
    Bytes(&'a [u8]),
    /// The decimal text of an integer, without writing it first.
    Int(i64),
    /// A small collection, at most [`super::PACKED_MAX`] bytes.
    Packed(PackedValue<'a>),
    /// Out of line.
    Out(X),
}

/// A small collection in an entry: the bytes of a table that is a pack ([`super::Table::packed`]),
/// and the caller's note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedValue<'a> {
    /// The caller's.
    pub note: u8,
    /// The pack's.
    pub bytes: &'a [u8],
}

/// The state of an entry before it was removed or overwritten.
#[derive(Clone, Debug)]
pub struct Old<X> {
    /// The value, if it was out of line.
    pub out: Option<X>,
    /// The note of the value, if it was a pack.
    pub note: Option<u8>,
    /// The deadline, if there was one.
    pub deadline: Option<UnixMillis>,
    /// The caller's two bits.
    pub bits: u8,
}

/// A value inside a table.
#[derive(Debug)]
pub enum ValueRef<'a, X> {
    /// Kept inside.
    Text(Text<'a>),
    /// A small collection, kept inside.
    Packed(PackedValue<'a>),
    /// Kept out of line.
    Out(&'a X),
}
