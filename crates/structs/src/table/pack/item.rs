//! One text inside a pack: a tag, and the bytes that it announces.
//!
//! ```text
//! tag  0..=240    this many bytes of text
//!      241..=249  0 to 8 bytes: zigzag of an integer, the lowest first
//!      250        a UUID: 16 bytes
//!      251..=253  a text of 241 bytes or more: another byte of its length follows, then its bytes
//! ```
//! Integers and UUIDs are never kept as text (`text`), so equal texts are equal bytes.

use super::super::text::{self, Form, Packed, Text, UUID_BYTES};
use darter_base::bits::short_word;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Longest text whose length fits the tag.
pub(crate) const SHORT_MAX: usize = 240;
pub(super) const INT: u8 = 241;
pub(super) const UUID: u8 = 250;
pub(super) const LONG: u8 = 251;

/// Bytes of the longest integer.
pub(crate) const INT_BYTES_MAX: usize = 9;

const _: () = assert!(SHORT_MAX + 1 == INT as usize && UUID == INT + 9);

/// Bytes of the tagged text at the front, its tag included.
#[inline]
pub(crate) fn len(bytes: &[u8]) -> usize {
    1 + body_len(bytes[0], &bytes[1..])
}

/// The length of a text without its tag; its bytes are at the front of `body`.
#[inline]
pub(super) fn body_len(tag: u8, body: &[u8]) -> usize {
    if tag < INT { usize::from(tag) } else { coded_len(tag, body) }
}

/// [`body_len`] except for short plain texts.
fn coded_len(tag: u8, body: &[u8]) -> usize {
    match tag {
        ..UUID => usize::from(tag - INT),
        UUID => UUID_BYTES,
        _ => 1 + long_len(tag, body[0]),
    }
}

fn long_len(tag: u8, low: u8) -> usize {
    SHORT_MAX + 1 + (usize::from(tag - LONG) << 8 | usize::from(low))
}

/// The length of a text, from its tag; `None` for other tags.
#[inline]
pub(crate) fn raw_len(tag: u8) -> Option<usize> {
    (tag < INT).then_some(usize::from(tag))
}

/// The tagged text at the front.
#[inline]
pub(crate) fn text(bytes: &[u8]) -> Text<'_> {
    text_of(bytes[0], &bytes[1..])
}

/// The text made of a prefix and the `len` bytes at `from`; `bytes` begin with the prefix's length
/// and the prefix. It must not be an integer or a UUID, nor longer than [`SHORT_MAX`].
#[inline]
pub(crate) fn joined(bytes: &[u8], from: usize, len: usize) -> Text<'_> {
    Text(Form::Joined(Joined::of(bytes, from, len)))
}

/// The text with this tag; its other bytes are at the front of `body`.
#[inline]
pub(super) fn text_of(tag: u8, body: &[u8]) -> Text<'_> {
    if tag < INT { Text(Form::Raw(&body[..usize::from(tag)])) } else { coded_text(tag, body) }
}

/// [`text_of`] except for short plain texts.
fn coded_text(tag: u8, body: &[u8]) -> Text<'_> {
    Text(match tag {
        ..UUID => Form::Int(text::unzigzag(short_word(body, usize::from(tag - INT)))),
        UUID => Form::Uuid(body.first_chunk().expect("a UUID follows its tag")),
        _ => Form::Raw(&body[1..][..long_len(tag, body[0])]),
    })
}

/// The tagged text of a number: its bytes, and their number.
#[inline]
pub(crate) fn int(value: i64) -> ([u8; INT_BYTES_MAX], usize) {
    let folded = text::zigzag(value);
    let len = (u64::BITS - folded.leading_zeros()).div_ceil(8);
    let mut bytes = [INT + len as u8; INT_BYTES_MAX];
    bytes[1..].copy_from_slice(&folded.to_le_bytes());
    (bytes, 1 + len as usize)
}

/// A text to be stored in a pack.
pub(crate) struct Tagged<'a> {
    head: [u8; 1 + UUID_BYTES],
    head_len: usize,
    /// The bytes after the head.
    body: &'a [u8],
}

impl<'a> Tagged<'a> {
    #[inline]
    pub(crate) fn raw(text: &'a [u8]) -> Self {
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
        let (mut head, (word, head_len)) = ([0; 1 + UUID_BYTES], int(value));
        head[..INT_BYTES_MAX].copy_from_slice(&word);
        Self { head, head_len, body: &[] }
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

    /// The bytes, if the text is unpacked and at most [`SHORT_MAX`] long.
    #[inline]
    pub(crate) fn short(&self) -> Option<&'a [u8]> {
        raw_len(self.head[0]).map(|_| self.body)
    }

    fn head(&self) -> &[u8] {
        &self.head[..self.head_len]
    }

    pub(crate) fn len(&self) -> usize {
        self.head_len + self.body.len()
    }

    pub(super) fn tag(&self) -> u8 {
        self.head[0]
    }

    /// Bytes besides the tag.
    pub(super) fn body_len(&self) -> usize {
        self.len() - 1
    }

    /// True if it equals the text with this tag, whose bytes are at the front.
    #[inline]
    pub(super) fn is(&self, tag: u8, body: &[u8]) -> bool {
        if tag != self.head[0] {
            return false;
        }
        if self.head_len == 1 {
            return text::same(&body[..self.body.len()], self.body);
        }
        let (head, rest) = body.split_at(self.head_len - 1);
        head == &self.head[1..self.head_len] && rest[..self.body.len()] == *self.body
    }

    /// Appends the text without its tag.
    pub(super) fn write_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head()[1..]);
        out.extend_from_slice(self.body);
    }

    /// Overwrites as many bytes by the text without its tag.
    pub(super) fn write_body_to(&self, out: &mut [u8]) {
        let (head, body) = out.split_at_mut(self.head_len - 1);
        head.copy_from_slice(&self.head()[1..]);
        body.copy_from_slice(self.body);
    }

    /// Overwrites as many bytes by the text.
    #[inline]
    pub(crate) fn write_to(&self, out: &mut [u8]) {
        match (self.short(), out) {
            (Some(text), [tag, body @ ..]) => {
                *tag = self.head[0];
                body.copy_from_slice(text);
            }
            (_, out) if self.head_len == self.head.len() => out.copy_from_slice(&self.head),
            (_, out) => {
                let (head, body) = out.split_at_mut(self.head_len);
                head.copy_from_slice(self.head());
                body.copy_from_slice(self.body);
            }
        }
    }

    /// The bytes, in two pieces.
    pub(crate) fn pieces(&self) -> [&[u8]; 2] {
        [self.head(), self.body]
    }
}

/// Two texts of one pack that are read as one: the common prefix, and the rest. Stored as words,
/// because bytes stored in smaller pieces are slow to load as words.
#[derive(Clone, Copy)]
pub(crate) struct Joined<'a> {
    /// The length of the prefix (one byte), followed by the prefix.
    first: NonNull<u8>,
    /// The distance from there to the second text, and its length.
    distance: u32,
    rest_len: u32,
    lives: PhantomData<&'a [u8]>,
}

// SAFETY: it is a reference to bytes.
unsafe impl Send for Joined<'_> {}
// SAFETY: as above.
unsafe impl Sync for Joined<'_> {}

impl<'a> Joined<'a> {
    /// `bytes` begin with a length and that many bytes; the second text is the `len` bytes at
    /// `from`.
    #[inline]
    pub(super) fn of(bytes: &'a [u8], from: usize, len: usize) -> Self {
        assert!(bytes.len() > usize::from(bytes[0]) && bytes.len() >= from + len, "inside");
        let (first, lives) = (NonNull::from(bytes).cast(), PhantomData);
        Self { first, distance: from as u32, rest_len: len as u32, lives }
    }

    /// Both texts.
    #[inline]
    pub(crate) fn texts(self) -> (&'a [u8], &'a [u8]) {
        // SAFETY: the length is at the front of a slice that lives during 'a.
        let len = unsafe { self.first.read() };
        // SAFETY: `of` has seen that the slice is longer than the length says.
        let from = unsafe { self.first.add(1) };
        // SAFETY: as above.
        let first = unsafe { std::slice::from_raw_parts(from.as_ptr(), usize::from(len)) };
        // SAFETY: `of` has seen that the slice goes on beyond the second text.
        let from = unsafe { self.first.add(self.distance as usize) };
        // SAFETY: as above.
        let rest = unsafe { std::slice::from_raw_parts(from.as_ptr(), self.rest_len as usize) };
        (first, rest)
    }
}
