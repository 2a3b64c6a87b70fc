//! The bytes of one entry.
//!
//! ```text
//! entry  | size | head | ms | seq | fields
//! size   the number of bytes that follow, in one byte, or 255 and two more, little endian
//! head   bits 0..=2  bytes of ms: 0 to 6, or 8 for 7;    bits 3..=4  of seq: 0, 1, 2, or 8 for 3
//!        bits 5..=7  the form of the fields:
//!   0..=4  | value | value | ...                    the names of the shape with this number
//!   5      | shape: 1 | value | value | ...         for a shape with a higher number
//!   6      | name | value | name | value | ...      the entry's own names
//!   7      | number: 2 |                            a list of names and values, out of line
//! ```
//! The milliseconds count from the stream's base (`Entries`). Milliseconds and sequence number are
//! written low byte first, so an ID takes four or five bytes. Names and values are elements of
//! lists (`list::item`).
//!
//! Not here: shapes. See `shapes`.

use crate::chunk::{Coding, Encoded, Held, ROOM_MAX};
use crate::list::List;
use darter_base::StreamId as Id;
use darter_base::bits::short_word;

/// Longest fields stored among the entries; longer ones are stored out of line.
pub(super) const FIELDS_MAX: usize = 1_008;
/// The most bytes before the fields: a long size, the head, an ID, a shape.
const FRONT_MAX: usize = 3 + 1 + 8 + 8 + 1;

const _: () = assert!(3 * (FRONT_MAX + FIELDS_MAX) <= ROOM_MAX, "three of the longest to a chunk");

/// The first byte of a size that takes three bytes.
const WIDE: u8 = 255;
/// Bytes of the number of the outside part.
const NUMBER_BYTES: usize = 2;
/// Bytes of ms and seq by their codes.
const MS_BYTES: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 8];
const SEQ_BYTES: [usize; 4] = [0, 1, 2, 8];

/// Forms of fields.
const HIGH_SHAPE: u8 = 5;
const OWN: u8 = 6;
const OUTSIDE: u8 = 7;

/// The form in which the fields of an entry are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Only values; the names are those of the shape with this number.
    Shape(u8),
    /// Alternating names and values.
    Own,
    /// Stored out of line, under this number.
    Outside(u16),
}

/// The parts of an entry.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    /// The ID, relative to the base.
    pub(super) id: Id,
    pub(super) form: Form,
    /// The names and values, or values.
    pub(super) fields: &'a [u8],
}

/// The length of the size at the front, and the size.
#[inline]
fn size(bytes: &[u8]) -> (usize, usize) {
    match bytes[0] {
        WIDE => (3, usize::from(u16::from_le_bytes([bytes[1], bytes[2]]))),
        size => (1, usize::from(size)),
    }
}

/// Bytes of ms and seq, by the head.
#[inline]
fn id_bytes(head: u8) -> (usize, usize) {
    (MS_BYTES[usize::from(head & 7)], SEQ_BYTES[usize::from(head >> 3 & 3)])
}

/// The ID of the entry at the front, relative to the base.
#[inline]
pub(super) fn id(bytes: &[u8]) -> Id {
    let (at, _) = size(bytes);
    let (ms, seq) = id_bytes(bytes[at]);
    let rest = &bytes[at + 1..];
    Id::new(short_word(rest, ms), short_word(&rest[ms..], seq))
}

/// The entry at the front.
#[inline]
pub(super) fn parts(bytes: &[u8]) -> Parts<'_> {
    let (at, len) = size(bytes);
    let (head, rest) = (bytes[at], &bytes[at + 1..at + len]);
    let (ms, seq) = id_bytes(head);
    let mut fields = &rest[ms + seq..];
    let form = match head >> 5 {
        HIGH_SHAPE => Form::Shape(fields[0]),
        OWN => Form::Own,
        OUTSIDE => Form::Outside(u16::from_le_bytes([fields[0], fields[1]])),
        shape => Form::Shape(shape),
    };
    if head >> 5 == HIGH_SHAPE {
        fields = &fields[1..];
    }
    Parts { id: Id::new(short_word(rest, ms), short_word(&rest[ms..], seq)), form, fields }
}

/// The place of the out-of-line number in the entry at the front, if it has one.
#[inline]
fn number_at(bytes: &[u8]) -> Option<usize> {
    let (at, _) = size(bytes);
    let (ms, seq) = id_bytes(bytes[at]);
    (bytes[at] >> 5 == OUTSIDE).then_some(at + 1 + ms + seq)
}

/// An entry to be added.
pub(super) struct Code<'a> {
    front: [u8; FRONT_MAX],
    front_len: usize,
    fields: &'a [u8],
    long: Option<List>,
}

impl<'a> Code<'a> {
    /// An entry with these fields, stored inline. The ID is relative to the base.
    pub(super) fn of(id: Id, form: Form, fields: &'a [u8]) -> Self {
        debug_assert!(fields.len() <= FIELDS_MAX, "{} bytes of fields", fields.len());
        match form {
            Form::Shape(shape) if shape < HIGH_SHAPE => Self::new(id, shape, &[], fields),
            Form::Shape(shape) => Self::new(id, HIGH_SHAPE, &[shape], fields),
            Form::Own => Self::new(id, OWN, &[], fields),
            Form::Outside(_) => unreachable!("see `outside`"),
        }
    }

    /// An entry whose fields are stored out of line.
    pub(super) fn outside(id: Id, fields: List) -> Self {
        Self { long: Some(fields), ..Self::new(id, OUTSIDE, &[], &[0; NUMBER_BYTES]) }
    }

    fn new(id: Id, form: u8, shape: &[u8], fields: &'a [u8]) -> Self {
        let (ms, seq) = (code(id.ms, &MS_BYTES), code(id.seq, &SEQ_BYTES));
        let (ms_bytes, seq_bytes) = (MS_BYTES[ms], SEQ_BYTES[seq]);
        let len = 1 + ms_bytes + seq_bytes + shape.len() + fields.len();
        let (mut front, mut at) = ([0; FRONT_MAX], 1);
        front[0] = u8::try_from(len).unwrap_or(WIDE);
        if front[0] == WIDE {
            front[1..3].copy_from_slice(&(len as u16).to_le_bytes());
            at = 3;
        }
        front[at] = ms as u8 | (seq as u8) << 3 | form << 5;
        at += 1;
        front[at..at + ms_bytes].copy_from_slice(&id.ms.to_le_bytes()[..ms_bytes]);
        at += ms_bytes;
        front[at..at + seq_bytes].copy_from_slice(&id.seq.to_le_bytes()[..seq_bytes]);
        at += seq_bytes;
        debug_assert!(
            short_word(&id.ms.to_le_bytes(), ms_bytes) == id.ms,
            "{} in {ms_bytes}",
            id.ms
        );
        front[at..at + shape.len()].copy_from_slice(shape);
        Self { front, front_len: at + shape.len(), fields, long: None }
    }
}

/// The index of the first of these lengths that fits a number.
fn code(value: u64, lengths: &[usize]) -> usize {
    let bytes = (u64::BITS - value.leading_zeros()).div_ceil(8) as usize;
    lengths.iter().position(|len| *len >= bytes).expect("the last is 8")
}

impl Encoded<List> for Code<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.front_len + self.fields.len()
    }

    #[inline]
    fn long(&self) -> Option<&List> {
        self.long.as_ref()
    }

    #[inline]
    fn write_to(&self, out: &mut [u8]) {
        let (front, fields) = out.split_at_mut(self.front_len);
        front.copy_from_slice(&self.front[..self.front_len]);
        fields.copy_from_slice(self.fields);
    }
}

impl Held for List {
    fn memory_bytes(&self) -> usize {
        self.memory_bytes()
    }
}

/// The items of a stream's chunks.
#[derive(Clone, Copy)]
pub(super) struct Coded;

impl Coding for Coded {
    type Long = List;
    type Code<'a> = Code<'a>;
    type First = Id;

    #[inline]
    fn len(bytes: &[u8]) -> usize {
        let (at, len) = size(bytes);
        at + len
    }

    #[inline]
    fn first(bytes: &[u8]) -> Id {
        id(bytes)
    }

    #[inline]
    fn outside(bytes: &[u8]) -> Option<u16> {
        number_at(bytes).map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]))
    }

    fn write_outside(bytes: &mut [u8], number: u16) {
        let at = number_at(bytes).expect("written before its number");
        bytes[at..at + NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // At every length of every part.
    fn encoded_entry_parts_are_read_back() {
        let numbers = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit]).chain([u64::MAX]);
        let lens = [0, 1, 230, 240, 253, 254, 255, 256, FIELDS_MAX];
        for ms in numbers.clone() {
            for (seq, len) in numbers.clone().zip(lens.iter().cycle()) {
                let (id, fields) = (Id::new(ms, seq), vec![7; *len]);
                for form in [Form::Shape(4), Form::Shape(5), Form::Shape(63), Form::Own] {
                    let code = Code::of(id, form, &fields);
                    let mut bytes = vec![0; code.len()];
                    code.write_to(&mut bytes);
                    let parts = parts(&bytes);
                    assert_eq!((parts.id, parts.form, parts.fields), (id, form, &*fields));
                    assert_eq!((Coded::len(&bytes), Coded::first(&bytes)), (bytes.len(), id));
                    assert!(Coded::outside(&bytes).is_none());
                }
            }
        }
    }

    #[test]
    fn numbers_of_out_of_line_values_are_read_back() {
        let code = Code::outside(Id::new(1 << 40, 7), List::new());
        let mut bytes = vec![0; code.len()];
        code.write_to(&mut bytes);
        Coded::write_outside(&mut bytes, 0x1234);
        assert_eq!(Coded::outside(&bytes), Some(0x1234));
        assert_eq!(parts(&bytes).form, Form::Outside(0x1234));
        assert_eq!(id(&bytes), Id::new(1 << 40, 7));
    }
}
