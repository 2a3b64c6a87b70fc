//! The bytes of one value, and of one member of an object.
//!
//! ```text
//! value   0 null, 1 false, 2 true
//!         0x10 + n   an integer of n bytes, 0 to 8, the low one first
//!         0x19       a fraction: the 8 bytes of its double
//!         0x1a       an integer above the largest signed one: 8 bytes
//!         0x20, 0x21 a text: its length in 1 or 2 bytes, its bytes        0x40 + n: of n bytes
//!         0x22, 0x23 a small array, object: bytes: 2, count: 2, its values or members
//!         0x28..     a long text, array, object: kept outside, under this number: 2
//! member  name (a text), value        0x2b: one whose name is long: outside, as a whole
//! ```
//! A small container holds nothing that is kept outside: so it is bytes all through, and is copied,
//! compared and freed as such.

use super::big::{Array, Object};
use crate::blob::Blob;
use crate::chunk::{Coding, Encoded, Held, ROOM_MAX};
use std::sync::Arc;

pub(super) const NULL: u8 = 0;
pub(super) const FALSE: u8 = 1;
pub(super) const TRUE: u8 = 2;
pub(super) const INT: u8 = 0x10;
pub(super) const FLOAT: u8 = 0x19;
pub(super) const UINT: u8 = 0x1a;
pub(super) const TEXT_8: u8 = 0x20;
pub(super) const TEXT_16: u8 = 0x21;
pub(super) const ARRAY: u8 = 0x22;
pub(super) const OBJECT: u8 = 0x23;
pub(super) const TEXT_OUT: u8 = 0x28;
pub(super) const ARRAY_OUT: u8 = 0x29;
pub(super) const OBJECT_OUT: u8 = 0x2a;
pub(super) const MEMBER_OUT: u8 = 0x2b;
pub(super) const TEXT_0: u8 = 0x40;
/// The longest text whose length is in its tag.
const TAGGED_MAX: usize = 63;

/// The longest text among others; longer ones are kept outside.
pub const TEXT_MAX: usize = 480;
/// The longest name among others.
pub(super) const NAME_MAX: usize = 255;
/// The most bytes of the values or members of a small container.
pub(super) const PACK_MAX: usize = 480;
/// Bytes before them.
pub(super) const PACK_HEAD: usize = 5;
/// Bytes of a reference to a value outside.
pub(super) const OUT_BYTES: usize = 3;
/// Bytes of the longest item: a member.
const ITEM_MAX: usize = 2 + NAME_MAX + PACK_HEAD + PACK_MAX;

const _: () = assert!(4 * ITEM_MAX <= ROOM_MAX, "four of the longest to a chunk");
const _: () = assert!(TEXT_MAX <= PACK_MAX);

/// A part that is kept outside.
#[derive(Clone, Debug)]
pub(super) enum Long {
    Text(Blob),
    Array(Arc<Array>),
    Object(Arc<Object>),
    /// A member whose name is long.
    Member(Arc<Member>),
}

/// A member whose name is long.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: Blob,
    pub(super) bytes: Vec<u8>,
    pub(super) long: Option<Long>,
}

/// Two counts precede the shared value.
const COUNTS: usize = 2 * size_of::<usize>();

impl Held for Long {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Text(blob) => blob.memory_bytes(),
            Self::Array(array) => COUNTS + size_of::<Array>() + array.tree_bytes(),
            Self::Object(object) => COUNTS + size_of::<Object>() + object.tree_bytes(),
            Self::Member(member) => {
                let long = member.long.as_ref().map_or(0, Self::memory_bytes);
                let bytes = member.name.memory_bytes() + member.bytes.len() + long;
                COUNTS + size_of::<Member>() + bytes
            }
        }
    }
}

/// An item in its stored form.
#[derive(Clone, Copy)]
pub(super) struct Code<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) long: Option<&'a Long>,
}

impl Encoded<Long> for Code<'_> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn long(&self) -> Option<&Long> {
        self.long
    }

    fn write_to(&self, out: &mut [u8]) {
        debug_assert_eq!(out.len(), self.bytes.len());
        out.copy_from_slice(self.bytes);
    }
}

/// The items of an array's chunks: values.
#[derive(Clone, Copy)]
pub(super) struct Elements;

/// The items of an object's chunks: members.
#[derive(Clone, Copy)]
pub(super) struct Members;

impl Coding for Elements {
    type Long = Long;
    type Code<'a> = Code<'a>;
    type First = ();

    #[inline]
    fn len(bytes: &[u8]) -> usize {
        len(bytes)
    }

    fn first(_: &[u8]) {}

    #[inline]
    fn outside(bytes: &[u8]) -> Option<u16> {
        outside(bytes)
    }

    fn write_outside(bytes: &mut [u8], number: u16) {
        debug_assert!(outside(bytes).is_some(), "tag {} is nothing outside", bytes[0]);
        bytes[1..OUT_BYTES].copy_from_slice(&number.to_le_bytes());
    }
}

impl Coding for Members {
    type Long = Long;
    type Code<'a> = Code<'a>;
    type First = ();

    #[inline]
    fn len(bytes: &[u8]) -> usize {
        member_len(bytes)
    }

    fn first(_: &[u8]) {}

    #[inline]
    fn outside(bytes: &[u8]) -> Option<u16> {
        outside(&bytes[name_len(bytes)..])
    }

    fn write_outside(bytes: &mut [u8], number: u16) {
        let at = name_len(bytes);
        Elements::write_outside(&mut bytes[at..], number);
    }
}

/// Bytes of the value at the front of `bytes`.
#[inline]
pub(super) fn len(bytes: &[u8]) -> usize {
    let tag = bytes[0];
    match tag {
        NULL | FALSE | TRUE => 1,
        INT..FLOAT => 1 + usize::from(tag - INT),
        FLOAT | UINT => 9,
        TEXT_8 => 2 + usize::from(bytes[1]),
        TEXT_16 => 3 + usize::from(u16::from_le_bytes([bytes[1], bytes[2]])),
        ARRAY | OBJECT => PACK_HEAD + usize::from(u16::from_le_bytes([bytes[1], bytes[2]])),
        TEXT_OUT..=MEMBER_OUT => OUT_BYTES,
        _ => 1 + usize::from(tag - TEXT_0),
    }
}

/// Bytes of the name of the member at the front of `bytes`: none if it is outside as a whole.
#[inline]
pub(super) fn name_len(bytes: &[u8]) -> usize {
    if bytes[0] == MEMBER_OUT { 0 } else { len(bytes) }
}

/// Bytes of the member at the front of `bytes`.
#[inline]
pub(super) fn member_len(bytes: &[u8]) -> usize {
    let name = name_len(bytes);
    debug_assert!(name < bytes.len(), "a name of {name} bytes without a value");
    name + len(&bytes[name..])
}

/// The number of the part that the value at the front of `bytes` keeps outside.
#[inline]
pub(super) fn outside(bytes: &[u8]) -> Option<u16> {
    let is_out = (TEXT_OUT..=MEMBER_OUT).contains(&bytes[0]);
    is_out.then(|| u16::from_le_bytes([bytes[1], bytes[2]]))
}

/// The short text at the front of `bytes`.
#[inline]
pub(super) fn text(bytes: &[u8]) -> &[u8] {
    let len = len(bytes);
    debug_assert!(len <= bytes.len(), "{len} of {} bytes", bytes.len());
    debug_assert!(bytes[0] >= TEXT_0 || bytes[0] & !1 == TEXT_8, "tag {} is no text", bytes[0]);
    match bytes[0] {
        TEXT_8 => &bytes[2..len],
        TEXT_16 => &bytes[3..len],
        _ => &bytes[1..len],
    }
}

/// Appends a short text.
pub(super) fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    debug_assert!(text.len() <= TEXT_MAX, "{} bytes", text.len());
    match text.len() {
        len @ ..=TAGGED_MAX => out.push(TEXT_0 + len as u8),
        len @ ..=NAME_MAX => out.extend([TEXT_8, len as u8]),
        len => {
            out.push(TEXT_16);
            out.extend((len as u16).to_le_bytes());
        }
    }
    out.extend_from_slice(text);
}

/// Appends an integer.
pub(super) fn push_int(out: &mut Vec<u8>, value: i64) {
    // The fewest bytes that hold it with its sign; none for zero.
    let bits = 65 - (if value < 0 { !value } else { value }).leading_zeros();
    let bytes = if value == 0 { 0 } else { bits.div_ceil(8) as usize };
    debug_assert!(bytes <= 8, "{value} in {bytes} bytes");
    out.push(INT + bytes as u8);
    out.extend_from_slice(&value.to_le_bytes()[..bytes]);
}

/// The integer at the front of `bytes`.
#[inline]
pub(super) fn int(bytes: &[u8]) -> i64 {
    debug_assert!((INT..FLOAT).contains(&bytes[0]), "tag {} is no integer", bytes[0]);
    let count = usize::from(bytes[0] - INT);
    if count == 0 {
        return 0;
    }
    let mut all = [if bytes[count] >= 0x80 { 0xff } else { 0 }; 8];
    all[..count].copy_from_slice(&bytes[1..=count]);
    i64::from_le_bytes(all)
}

/// The eight bytes after the tag.
#[inline]
pub(super) fn eight(bytes: &[u8]) -> [u8; 8] {
    *bytes[1..].first_chunk().expect("a number is complete")
}

/// Writes the bytes and the count of a small container to its head.
pub(super) fn write_head(bytes: &mut [u8], count: usize) {
    debug_assert!(bytes.len() >= PACK_HEAD, "{} bytes", bytes.len());
    debug_assert!(bytes[0] & !1 == ARRAY, "tag {} is no small container", bytes[0]);
    let len = bytes.len() - PACK_HEAD;
    debug_assert!(len <= PACK_MAX && count <= PACK_MAX, "{len} bytes, {count}");
    bytes[1..3].copy_from_slice(&(len as u16).to_le_bytes());
    bytes[3..5].copy_from_slice(&(count as u16).to_le_bytes());
}

/// The count in the head of a small container.
#[inline]
pub(super) fn count(bytes: &[u8]) -> usize {
    debug_assert!(bytes[0] & !1 == ARRAY, "tag {} is no small container", bytes[0]);
    usize::from(u16::from_le_bytes([bytes[3], bytes[4]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_encoded_in_the_fewest_bytes() {
        let powers = (0..63).flat_map(|bit| [1_i64 << bit, -(1 << bit), (1 << bit) - 1]);
        for value in powers.chain([i64::MIN, i64::MAX, 127, 128, -128, -129]) {
            let mut bytes = Vec::new();
            push_int(&mut bytes, value);
            assert_eq!((len(&bytes), int(&bytes)), (bytes.len(), value));
            let is_short = i8::try_from(value).is_ok();
            assert_eq!(is_short, bytes.len() <= 2, "{value}: {bytes:?}");
        }
    }

    #[test]
    fn texts_are_read_as_written() {
        for len in [0, 1, 63, 64, 255, 256, TEXT_MAX] {
            let (mut bytes, given) = (Vec::new(), vec![b'x'; len]);
            push_text(&mut bytes, &given);
            assert_eq!((super::len(&bytes), text(&bytes)), (bytes.len(), &given[..]));
        }
    }
}
