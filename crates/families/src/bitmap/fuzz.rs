//! The fuzz target of BITFIELD: any operations read and write the same bits as a naive model.
//!
//! An input is a line with the string's bytes, and then lines of words: `SET i5 #3 -17 SAT`.

use super::field::{Action, Changer, Operation};
use super::integer::{Integer, Kind, Overflow};
use darter_base::number;
use darter_keyspace::TextEdit;
use darter_structs::blob::Blob;

/// Bytes of the string, at most.
const BYTES_MAX: usize = 1 << 12;

/// Bits, the highest of each byte first.
struct Bits(Vec<bool>);

impl Bits {
    fn of(bytes: &[u8]) -> Self {
        let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1 == 1));
        Self(bits.collect())
    }

    /// The integer at this bit with this number of bits, signed or unsigned.
    fn read(&self, (from, bits, is_signed): (usize, usize, bool)) -> i128 {
        let place = self.0[from..from + bits].iter();
        let number = place.fold(0, |sum: i128, bit| sum * 2 + i128::from(*bit));
        if is_signed && self.0[from] { number - (1 << bits) } else { number }
    }

    fn write(&mut self, (from, bits, _): (usize, usize, bool), number: i128) {
        let place = self.0[from..from + bits].iter_mut().rev();
        place.enumerate().for_each(|(at, bit)| *bit = number >> at & 1 == 1);
    }
}

/// The expected result of an operation, or `None` where SET has Redis's own edge case.
fn due(wanted: i128, bits: usize, is_signed: bool, overflow: Overflow) -> Option<i128> {
    let count = 1_i128 << bits;
    let least = if is_signed { -count / 2 } else { 0 };
    let most = least + count - 1;
    match overflow {
        _ if (least..=most).contains(&wanted) => Some(wanted),
        Overflow::Wrap => Some((wanted - least).rem_euclid(count) + least),
        Overflow::Saturate => Some(wanted.clamp(least, most)),
        Overflow::Fail => None,
    }
}

/// Parses the words of a line into an operation and its place.
fn parse(line: &[u8]) -> Option<(Operation, (usize, usize, bool))> {
    let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let [name, kind, offset, rest @ ..] = &words[..] else { return None };
    let integer = Integer::parse(Kind::parse(kind).ok()?, offset).ok()?;
    let value = || number::parse_i64(rest.first()?);
    let action = match *name {
        b"GET" => Action::Get,
        b"SET" => Action::Replace(value()?),
        b"INCRBY" => Action::Add(value()?),
        _ => return None,
    };
    let overflow = match rest.get(1) {
        Some(&b"SAT") => Overflow::Saturate,
        Some(&b"FAIL") => Overflow::Fail,
        _ => Overflow::Wrap,
    };
    let bits = usize::try_from(number::parse_i64(&kind[1..])?).ok()?;
    let (digits, unit) = offset.strip_prefix(b"#").map_or((*offset, 1), |digits| (digits, bits));
    let from = usize::try_from(number::parse_i64(digits)?).ok()?.checked_mul(unit)?;
    let is_small = integer.last_byte() < BYTES_MAX;
    let operation = Operation { integer, action, overflow };
    is_small.then_some((operation, (from, bits, kind[0] == b'i')))
}

/// See the module.
///
/// # Panics
/// When bits are others.
pub fn fuzz_bitfield(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let bytes = lines.next().unwrap_or_default();
    let mut blob = Blob::from(&bytes[..bytes.len().min(BYTES_MAX)]);
    for (operation, place) in lines.filter_map(parse) {
        let is_write = !matches!(operation.action, Action::Get);
        let mut model = Bits::of(&blob.to_vec());
        let needed = (operation.integer.last_byte() + 1) * 8;
        let len = if is_write { model.0.len().max(needed) } else { model.0.len() };
        model.0.resize(len.max(needed), false);
        let old = model.read(place);
        let (_, bits, is_signed) = place;
        let (result, is_due) = match operation.action {
            Action::Get => (Some(old), true),
            Action::Add(by) => {
                (due(old + i128::from(by), bits, is_signed, operation.overflow), true)
            }
            Action::Replace(value) => {
                let wanted = if is_signed { value.into() } else { value.cast_unsigned().into() };
                let is_edge = wanted < -(1_i128 << 62) && bits < 64;
                (due(wanted, bits, is_signed, operation.overflow), !is_edge)
            }
        };
        let mut changer = Changer::new(&blob, operation.integer.last_byte());
        let mut text = TextEdit::aside(&mut blob);
        if is_write {
            changer.grow(&mut text);
        }
        let replied = changer.run(&mut text, operation).map(i128::from);
        if !is_due {
            continue;
        }
        if let (true, Some(new)) = (is_write, result) {
            model.write(place, new);
        }
        let is_old = matches!(operation.action, Action::Replace(_));
        assert_eq!(replied, result.map(|new| if is_old { old } else { new }), "{operation:?}");
        model.0.truncate(len);
        assert!(model.0 == Bits::of(&blob.to_vec()).0, "{operation:?} of {place:?}");
    }
}
