//! The bytes of an ID, and of a pending entry.
//!
//! ```text
//! ID       | widths: 1 | ms: 0 to 8 | seq: 0 to 8 |
//! pending  | ID | widths: 1 | delivered after: 0 to 8 | times: 0 to 8 | consumer: 1 to 10 |
//! aged     | ID | widths: 1 | delivered after: 0 to 8 |
//! ```
//! A byte of widths has that of the first number in its low half. The delivery is stored as its
//! distance from the ID's milliseconds, with the sign in the lowest bit: mostly one to three bytes,
//! as entries are delivered soon. A consumer's number has seven bits a byte, all but the last byte
//! with their top bit set.

use crate::chunk::{Coding, Encoded, Held};
use darter_base::StreamId;
use darter_base::bits::short_word;

/// A pending entry: delivered, and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The entry's.
    pub id: StreamId,
    /// When it was delivered the last time, in milliseconds since 1970.
    pub delivered_ms: u64,
    /// How often.
    pub times: u64,
    /// The number of the consumer that it was delivered to: [`super::Consumer::number`]. `None` if it
    /// was handed back.
    pub consumer: Option<u64>,
}

/// Bytes of the longest ID.
const ID_BYTES_MAX: usize = 1 + 8 + 8;
/// Bytes of the longest pending entry.
const PENDING_BYTES_MAX: usize = ID_BYTES_MAX + 1 + 8 + 8 + 10;

/// The items in the chunks of a consumer.
#[derive(Clone, Copy)]
pub(super) struct Owned;

/// The items in the chunks of a group's order of age.
#[derive(Clone, Copy)]
pub(super) struct Aged;

/// When a pending entry was delivered, and its ID: those delivered first come first.
pub(super) type Age = (u64, StreamId);

/// The items in the chunks of a group.
#[derive(Clone, Copy)]
pub(super) struct Pendings;

/// Nothing lies outside.
#[derive(Clone, Debug)]
pub(super) enum Nothing {}

impl Held for Nothing {
    fn memory_bytes(&self) -> usize {
        match *self {}
    }
}

/// An item in its stored form.
#[derive(Clone, Copy)]
pub(super) struct Code {
    bytes: [u8; PENDING_BYTES_MAX],
    len: usize,
}

impl Encoded<Nothing> for Code {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    fn long(&self) -> Option<&Nothing> {
        None
    }

    #[inline]
    fn write_to(&self, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[..self.len]);
    }
}

impl Code {
    /// An ID alone.
    #[inline]
    pub(super) fn of_id(id: StreamId) -> Self {
        let mut code = Self { bytes: [0; PENDING_BYTES_MAX], len: 0 };
        code.put_two(id.ms, id.seq);
        code
    }

    /// When a pending entry was delivered, and its ID.
    #[inline]
    pub(super) fn of_age((delivered_ms, id): Age) -> Self {
        let mut code = Self::of_id(id);
        code.put_two(after(id, delivered_ms), 0);
        code
    }

    /// A pending entry.
    #[inline]
    pub(super) fn of(pending: &Pending) -> Self {
        let mut code = Self::of_id(pending.id);
        code.put_two(after(pending.id, pending.delivered_ms), pending.times);
        let mut number = pending.consumer.unwrap_or(0);
        while number >= 0x80 {
            code.put(number as u8 | 0x80);
            number >>= 7;
        }
        code.put(number as u8);
        code
    }

    #[inline]
    fn put(&mut self, byte: u8) {
        debug_assert!(self.len < PENDING_BYTES_MAX, "len={}", self.len);
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// Their widths, and two numbers.
    #[inline]
    fn put_two(&mut self, first: u64, second: u64) {
        let (one, two) = (width(first), width(second));
        debug_assert!(one <= 8 && two <= 8, "{one} {two}");
        self.put((one | two << 4) as u8);
        for (number, width) in [(first, one), (second, two)] {
            self.bytes[self.len..self.len + 8].copy_from_slice(&number.to_le_bytes());
            self.bytes[self.len + width..self.len + 8].fill(0);
            self.len += width;
        }
    }
}

/// How long after its ID's milliseconds an entry was delivered, as it is stored.
#[inline]
fn after(id: StreamId, delivered_ms: u64) -> u64 {
    let after = delivered_ms.wrapping_sub(id.ms).cast_signed();
    ((after << 1) ^ (after >> 63)).cast_unsigned()
}

/// When an entry was delivered whose ID has these milliseconds.
#[inline]
fn delivered(ms: u64, after: u64) -> u64 {
    ms.wrapping_add_signed((after >> 1).cast_signed() ^ -(after & 1).cast_signed())
}

/// Bytes that a number needs.
#[inline]
fn width(number: u64) -> usize {
    (64 - number.leading_zeros() as usize).div_ceil(8)
}

/// The bytes of two numbers, their widths included.
#[inline]
fn two_len(bytes: &[u8]) -> usize {
    let widths = usize::from(bytes[0]);
    debug_assert!(widths & 15 <= 8 && widths >> 4 <= 8, "{widths:#x}");
    1 + (widths & 15) + (widths >> 4)
}

/// Two numbers, and what follows them.
#[inline]
fn two(bytes: &[u8]) -> (u64, u64, &[u8]) {
    let widths = usize::from(bytes[0]);
    let (one, two) = (widths & 15, widths >> 4);
    let first = &bytes[1..];
    let second = &first[one..];
    (short_word(first, one), short_word(second, two), &second[two..])
}

/// The ID at the front of `bytes`.
#[inline]
pub(super) fn id(bytes: &[u8]) -> StreamId {
    let (ms, seq, _) = two(bytes);
    StreamId { ms, seq }
}

/// When a pending entry was delivered, and its ID, at the front of `bytes`.
#[inline]
pub(super) fn age(bytes: &[u8]) -> Age {
    let (ms, seq, rest) = two(bytes);
    let (after, _, _) = two(rest);
    (delivered(ms, after), StreamId { ms, seq })
}

/// The pending entry at the front of `bytes`.
#[inline]
pub(super) fn pending(bytes: &[u8]) -> Pending {
    let (ms, seq, rest) = two(bytes);
    let (after, times, rest) = two(rest);
    let (mut consumer, mut shift) = (0, 0);
    for byte in rest {
        consumer |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if *byte < 0x80 {
            break;
        }
    }
    Pending {
        id: StreamId { ms, seq },
        delivered_ms: delivered(ms, after),
        times,
        consumer: (consumer > 0).then_some(consumer),
    }
}

impl Coding for Owned {
    type Long = Nothing;
    type Code<'a> = Code;
    type First = StreamId;

    #[inline(always)] // A walk is nothing else.
    fn len(bytes: &[u8]) -> usize {
        two_len(bytes)
    }

    #[inline]
    fn first(bytes: &[u8]) -> StreamId {
        id(bytes)
    }
}

impl Coding for Aged {
    type Long = Nothing;
    type Code<'a> = Code;
    type First = Age;

    #[inline(always)] // A walk is nothing else.
    fn len(bytes: &[u8]) -> usize {
        let id = two_len(bytes);
        id + two_len(&bytes[id..])
    }

    #[inline]
    fn first(bytes: &[u8]) -> Age {
        age(bytes)
    }
}

impl Coding for Pendings {
    type Long = Nothing;
    type Code<'a> = Code;
    type First = StreamId;

    #[inline(always)] // A walk is nothing else.
    fn len(bytes: &[u8]) -> usize {
        let id = two_len(bytes);
        let mut at = id + two_len(&bytes[id..]);
        while bytes[at] >= 0x80 {
            at += 1;
        }
        at + 1
    }

    #[inline]
    fn first(bytes: &[u8]) -> StreamId {
        id(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Usual ones are short.
    fn encoded_pending_entries_are_read_back() {
        let numbers = [0, 1, 127, 128, 255, 256, 1 << 40, 1_763_841_600_123, 1 << 63, u64::MAX];
        for ms in numbers {
            for other in numbers {
                for (times, consumer) in [(1, Some(1)), (other, Some(other.max(1))), (ms, None)] {
                    let id = StreamId::new(ms, other);
                    let pending = Pending { id, delivered_ms: other, times, consumer };
                    let code = Code::of(&pending);
                    let bytes = &code.bytes[..code.len];
                    assert_eq!(Pendings::len(bytes), code.len, "{pending:?}");
                    assert_eq!(super::pending(bytes), pending);
                    assert_eq!((id, Owned::len(bytes)), (super::id(bytes), Code::of_id(id).len));
                    let age = Code::of_age((other, id));
                    assert_eq!(Aged::len(&age.bytes[..age.len]), age.len, "{pending:?}");
                    assert_eq!(super::age(&age.bytes[..age.len]), (other, id));
                    let longer = [bytes, &[0xff; 20]].concat();
                    assert_eq!(super::pending(&longer), pending);
                }
            }
        }
        let id = StreamId::new(1_763_841_600_123, 0);
        let delivered_ms = id.ms + 100;
        let usual = Pending { id, delivered_ms, times: 1, consumer: Some(3) };
        let age = Code::of_age((delivered_ms, id));
        assert_eq!((Code::of(&usual).len, Code::of_id(id).len, age.len), (11, 7, 9));
    }
}
