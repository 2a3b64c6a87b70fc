//! One text inside of a pack: a tag, and what it says that follows.
//!
//! ```text
//! tag  0..=240    as many bytes of text
//!      241..=249  0 to 8 bytes: zigzag of an integer, the lowest first
//!      250        a UUID: 16 bytes
//!      251..=253  a text of 241 bytes or more: another byte of its length follows, then its bytes
//! ```
//! What is an integer or a UUID is never kept as text (`text`), so equal texts are equal bytes.

use super::super::text::{self, Form, Packed, Text, UUID_BYTES};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Longest text whose length the tag says.
pub(super) const SHORT_MAX: usize = 240;
const INT: u8 = 241;
const UUID: u8 = 250;
const LONG: u8 = 251;

const _: () = assert!(SHORT_MAX + 1 == INT as usize && UUID == INT + 9);

/// Bytes of the tagged text at the front, its tag included.
#[inline]
pub(crate) fn len(bytes: &[u8]) -> usize {
    let tag = bytes[0];
    match tag {
        ..INT => 1 + usize::from(tag),
        INT..UUID => 1 + usize::from(tag - INT),
        UUID => 1 + UUID_BYTES,
        _ => 2 + long_len(tag, bytes[1]),
    }
}

fn long_len(tag: u8, low: u8) -> usize {
    SHORT_MAX + 1 + (usize::from(tag - LONG) << 8 | usize::from(low))
}

/// The length that the tag says, if it is that of a text.
pub(super) fn raw_len(tag: u8) -> Option<usize> {
    (tag < INT).then_some(usize::from(tag))
}

/// The tagged text at the front.
#[inline]
pub(crate) fn text(bytes: &[u8]) -> Text<'_> {
    let (tag, rest) = (bytes[0], &bytes[1..]);
    Text(match tag {
        ..INT => Form::Raw(&rest[..usize::from(tag)]),
        INT..UUID => Form::Int(text::unzigzag(word(rest, usize::from(tag - INT)))),
        UUID => Form::Uuid(rest.first_chunk().expect("a UUID follows its tag")),
        _ => Form::Raw(&rest[1..][..long_len(tag, rest[0])]),
    })
}

/// The number that `len` bytes at the front are, the lowest first. Eight are read at once where there
/// are as many, which costs less than a copy of a length that is not known before.
#[inline]
fn word(bytes: &[u8], len: usize) -> u64 {
    match (bytes.first_chunk(), len) {
        (_, 0) => 0,
        (Some(eight), _) => {
            u64::from_le_bytes(*eight) & (u64::MAX >> (u64::BITS as usize - 8 * len))
        }
        (None, _) => bytes[..len].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// A text on its way into a pack.
pub(crate) struct Tagged<'a> {
    head: [u8; 1 + UUID_BYTES],
    head_len: usize,
    /// Follows the head.
    body: &'a [u8],
}

impl<'a> Tagged<'a> {
    #[inline]
    pub(super) fn raw(text: &'a [u8]) -> Self {
        let mut head = [0; 1 + UUID_BYTES];
        if text.len() <= SHORT_MAX {
            head[0] = text.len() as u8;
            return Self { head, head_len: 1, body: text };
        }
        let more = text.len() - SHORT_MAX - 1;
        debug_assert!(more < 3 << 8, "{} bytes inline", text.len());
        (head[0], head[1]) = (LONG + (more >> 8) as u8, more as u8);
        Self { head, head_len: 2, body: text }
    }

    pub(super) fn int(value: i64) -> Self {
        let (mut head, folded) = ([0; 1 + UUID_BYTES], text::zigzag(value));
        let len = (u64::BITS - folded.leading_zeros()).div_ceil(8);
        head[0] = INT + len as u8;
        head[1..9].copy_from_slice(&folded.to_le_bytes());
        Self { head, head_len: 1 + len as usize, body: &[] }
    }

    #[inline]
    pub(crate) fn of(text: Packed<'a>) -> Self {
        match text {
            Packed::Raw(text) => Self::raw(text),
            Packed::Int(value) => Self::int(value),
            Packed::Uuid(uuid) => {
                let mut head = [UUID; 1 + UUID_BYTES];
                head[1..].copy_from_slice(&uuid.to_le_bytes());
                Self { head, head_len: head.len(), body: &[] }
            }
        }
    }

    fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    pub(crate) fn len(&self) -> usize {
        self.head_len + self.body.len()
    }

    /// True when it is what stands at the front of `bytes`.
    #[inline]
    pub(super) fn stands_at(&self, bytes: &[u8]) -> bool {
        if bytes[0] != self.head[0] {
            return false; // Nearly always.
        }
        match bytes[1..].split_at_checked(self.head_len - 1) {
            Some((head, rest)) => {
                head == &self.head[1..self.head_len]
                    && text::same(&rest[..self.body.len()], self.body)
            }
            None => false,
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head());
        out.extend_from_slice(self.body);
    }

    /// Writes it over as many bytes.
    pub(crate) fn write_to(&self, out: &mut [u8]) {
        let (head, body) = out.split_at_mut(self.head_len);
        head.copy_from_slice(self.head());
        body.copy_from_slice(self.body);
    }
}

/// Bytes behind their length, which is one byte: a thin reference.
#[derive(Clone, Copy)]
pub(crate) struct Lead<'a>(NonNull<u8>, PhantomData<&'a [u8]>);

// SAFETY: it is a reference to bytes.
unsafe impl Send for Lead<'_> {}
// SAFETY: as above.
unsafe impl Sync for Lead<'_> {}

impl<'a> Lead<'a> {
    /// The length at the front of `bytes`, and as many behind it.
    #[inline]
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        assert!(bytes.len() > usize::from(bytes[0]), "bytes follow their length");
        Self(NonNull::from(bytes).cast(), PhantomData)
    }

    /// The bytes.
    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        // SAFETY: the length stands at the front of a slice that lives during 'a.
        let len = unsafe { self.0.read() };
        // SAFETY: `of` has seen that the slice is longer than the length says.
        let from = unsafe { self.0.add(1) };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(from.as_ptr(), usize::from(len)) }
    }
}
