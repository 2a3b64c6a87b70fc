//! The bytes of one element: a tagged text, as in a table's pack, or the number of a blob that is
//! stored out of line.
//!
//! ```text
//! tag  0..=253   a text of at most 1 008 bytes: see `table::pack::item`
//!      254       a longer one: two bytes of its number follow, the low one first
//! ```
//! Equal elements have equal bytes, except for blobs. So a search compares bytes over a whole run
//! of elements at once. A match that does not begin where an element begins is excluded by walking
//! there.
//!
//! Not here: the storage of blobs. See `outside`.

use super::Chunk;
use super::search::Needle;
use crate::blob::Blob;
use crate::chunk::{Coding, Encoded, End, Held, ROOM_MAX};
use crate::table::Text;
use crate::table::pack::item::{self, Tagged};
use crate::table::text::Packed;

/// Longest element stored among the others; longer ones are stored out of line.
pub const INLINE_MAX: usize = 1_008;
/// The tag of an out-of-line element.
pub(super) const OUTSIDE: u8 = 254;
/// Bytes of an out-of-line element within its run.
pub(crate) const OUTSIDE_BYTES: usize = 3;
/// Bytes of the longest element.
pub(crate) const ITEM_BYTES_MAX: usize = INLINE_MAX + 2;

const _: () = assert!(4 * ITEM_BYTES_MAX <= ROOM_MAX, "four of the longest to a chunk");

/// The length of an element by its tag, including the tag; 0 if a further byte must be read.
const BYTES_BY_TAG: &[u8; 256] = &{
    let mut bytes = [0; 256];
    let mut tag = 0;
    while tag <= 250 {
        bytes[tag] = match tag {
            ..=240 => tag as u8 + 1,
            250 => 17,
            _ => tag as u8 - 240,
        };
        tag += 1;
    }
    bytes[OUTSIDE as usize] = OUTSIDE_BYTES as u8;
    bytes
};

/// An element of a list.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// Stored among the others.
    Text(Text<'a>),
    /// Stored out of line: longer than [`INLINE_MAX`], or shared.
    Blob(&'a Blob),
}

impl Element<'_> {
    /// Bytes of the element, unpacked.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Blob(blob) => blob.len(),
        }
    }

    /// True for the empty string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }

    /// The element as a new vector. Cost: O(len).
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.to_vec(),
            Self::Blob(blob) => blob.to_vec(),
        }
    }
}

/// An element to be added to a list.
#[derive(Clone, Debug)]
pub enum NewElement<'a> {
    /// Bytes of any length; copied into a blob if longer than [`INLINE_MAX`].
    Bytes(&'a [u8]),
    /// A blob of any length; its bytes are copied unless longer than [`INLINE_MAX`].
    Blob(Blob),
    /// A blob of any length, stored out of line so that many lists can share it. Not for lists that
    /// are searched, because equal elements would differ in their bytes.
    Shared(Blob),
    /// The decimal text of this number.
    Number(i64),
}

impl<'a> From<&'a [u8]> for NewElement<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl NewElement<'_> {
    /// Calls `f` with the element in its stored form.
    pub(crate) fn coded<R>(self, f: impl FnOnce(&Code<'_>) -> R) -> R {
        match self {
            Self::Bytes(bytes) if bytes.len() <= INLINE_MAX => f(&Code::text(bytes)),
            Self::Bytes(bytes) => f(&Code::Blob(Blob::from(bytes))),
            Self::Blob(blob) if blob.len() <= INLINE_MAX => f(&Code::text(&blob.to_vec())),
            Self::Blob(blob) | Self::Shared(blob) => f(&Code::Blob(blob)),
            Self::Number(number) => f(&Code::Text(Tagged::of(Packed::Int(number)))),
        }
    }
}

/// An element in its stored form.
pub(crate) enum Code<'a> {
    Text(Tagged<'a>),
    Blob(Blob),
}

impl<'a> Code<'a> {
    #[inline]
    pub(super) fn text(bytes: &'a [u8]) -> Self {
        Self::Text(Tagged::of(Packed::of(bytes)))
    }
}

impl Encoded<Blob> for Code<'_> {
    #[inline]
    fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Blob(_) => OUTSIDE_BYTES,
        }
    }

    #[inline]
    fn long(&self) -> Option<&Blob> {
        if let Self::Blob(blob) = self { Some(blob) } else { None }
    }

    #[inline]
    fn write_to(&self, out: &mut [u8]) {
        if let Self::Text(text) = self {
            text.write_to(out);
        }
    }
}

impl Held for Blob {
    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

/// The items of a list's chunks.
#[derive(Clone, Copy)]
pub(crate) struct Elements;

impl Coding for Elements {
    type Long = Blob;
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
        write_outside(bytes, number);
    }
}

impl Chunk {
    /// The element at this offset in [`Chunk::items`].
    #[inline]
    pub(crate) fn element(&self, offset: usize) -> Element<'_> {
        self.read(&self.items()[offset..])
    }

    /// The element at the front of `bytes`, which come from [`Chunk::items`].
    #[inline]
    pub(super) fn read<'a>(&'a self, bytes: &'a [u8]) -> Element<'a> {
        match outside(bytes) {
            Some(number) => Element::Blob(self.long(number)),
            None => Element::Text(text(bytes)),
        }
    }

    /// The element at one end of a chunk, which must not be empty.
    #[inline]
    pub(super) fn peek(&self, end: End) -> Element<'_> {
        match end {
            End::Front => self.element(0),
            End::Back => self.element(self.offset(self.len() - 1)),
        }
    }
}

/// The length of the element at the front of `bytes`.
#[inline]
pub(crate) fn len(bytes: &[u8]) -> usize {
    match BYTES_BY_TAG[usize::from(bytes[0])] {
        0 => item::len(bytes),
        len => usize::from(len),
    }
}

/// The number of the blob at the front of `bytes`, if there is one.
#[inline]
pub(crate) fn outside(bytes: &[u8]) -> Option<u16> {
    (bytes[0] == OUTSIDE).then(|| u16::from_le_bytes([bytes[1], bytes[2]]))
}

/// Writes an out-of-line element to the front of `bytes`.
pub(crate) fn write_outside(bytes: &mut [u8], number: u16) {
    bytes[0] = OUTSIDE;
    bytes[1..OUTSIDE_BYTES].copy_from_slice(&number.to_le_bytes());
}

/// The text at the front of `bytes`, which must not be a blob.
#[inline]
pub(crate) fn text(bytes: &[u8]) -> Text<'_> {
    debug_assert_ne!(bytes[0], OUTSIDE, "a blob is no text");
    item::text(bytes)
}

/// Splits elements into runs of at most `max` bytes, each with the number of its elements.
pub(super) fn runs(mut items: &[u8], max: usize) -> impl Iterator<Item = (&[u8], usize)> {
    std::iter::from_fn(move || {
        let (mut at, mut count) = (0, 0);
        while let Some(next) = items.get(at..).filter(|next| !next.is_empty())
            && (count == 0 || at + len(next) <= max)
        {
            at += len(next);
            count += 1;
        }
        let (run, rest) = items.split_at(at);
        items = rest;
        (count > 0).then_some((run, count))
    })
}

/// Appends the indexes of the elements in `items` that match `needle` to `hits`.
///
/// For any place, `jump` returns the nearest earlier element whose index and start are known
/// without walking. Cost: that of `memmem`, and a short walk for each match.
pub(super) fn find(
    items: &[u8],
    needle: &Needle,
    jump: impl Fn(usize) -> (usize, usize),
    hits: &mut Vec<u16>,
) {
    let (mut index, mut at) = (0, 0);
    while let Some(found) = needle.find_in(&items[at..]) {
        let found = at + found;
        let near = jump(found);
        if near.1 > at {
            (index, at) = near;
        }
        while at < found {
            at += len(&items[at..]);
            index += 1;
        }
        if at == found {
            hits.push(index as u16);
            at += len(&items[at..]);
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_lengths_agree_with_the_table_of_tags() {
        let texts: Vec<Vec<u8>> = (0..=INLINE_MAX).map(|len| vec![b'x'; len]).collect();
        let ints = (0..63).flat_map(|bit| [1_i64 << bit, -(1 << bit)]);
        let ints = ints.map(|value| value.to_string().into_bytes());
        let uuid = b"6ba7b810-9dad-11d1-80b4-00c04fd430c8".to_vec();
        for bytes in texts.into_iter().chain(ints).chain([uuid, b"0".to_vec()]) {
            let Code::Text(tagged) = Code::text(&bytes) else { unreachable!("a text") };
            let mut written = vec![0; tagged.len()];
            tagged.write_to(&mut written);
            assert_eq!(len(&written), written.len(), "{bytes:?}");
            assert_eq!(text(&written), *bytes);
            assert!(written.len() <= ITEM_BYTES_MAX && outside(&written).is_none());
        }
        let mut written = [0; OUTSIDE_BYTES];
        write_outside(&mut written, 0x1234);
        assert_eq!((len(&written), outside(&written)), (OUTSIDE_BYTES, Some(0x1234)));
    }
}
