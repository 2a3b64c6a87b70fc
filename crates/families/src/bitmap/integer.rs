//! Integers of up to 64 bits anywhere in a string: how they are read, written and incremented.
//!
//! ```text
//! offset 5, 12 bits:   |.....xxx|xxxxxxxx|x.......|   the highest bit first, across bytes
//! ```
//! Any of them fits in nine bytes, at any bit offset.

use super::bit::{checked, out_of_range};
use darter_base::number;
use darter_command::{Refusal, until_nul};

/// The most bytes that an integer may touch.
pub(super) const TOUCHED_MAX: usize = 9;

/// Nine bytes, starting at the first byte of an integer; bytes after the string's end are zeros.
pub(super) type Window = [u8; TOUCHED_MAX];

/// The handling of a result that does not fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Overflow {
    /// Keep the low bits.
    #[default]
    Wrap,
    /// Use the nearest number that fits.
    Saturate,
    /// Write nothing.
    Fail,
}

/// The type of an integer: its width and its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    bits: u32,
    is_signed: bool,
}

impl Kind {
    /// Parses `i1` to `i64` and `u1` to `u63`.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Refusal> {
        let (is_signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(invalid_type()),
        };
        let bits = number::parse_i64(until_nul(digits)).and_then(|bits| u32::try_from(bits).ok());
        let bits_max = if is_signed { 64 } else { 63 };
        let bits = bits.filter(|bits| (1..=bits_max).contains(bits)).ok_or_else(invalid_type)?;
        Ok(Self { bits, is_signed })
    }

    fn mask(self) -> u64 {
        u64::MAX >> (u64::BITS - self.bits)
    }

    /// The lowest and the highest number.
    fn bounds(self) -> (i128, i128) {
        let count = 1_i128 << self.bits;
        if self.is_signed { (-count / 2, count / 2 - 1) } else { (0, count - 1) }
    }

    /// The number with these low bits; the higher bits are ignored.
    fn number(self, bits: u64) -> i64 {
        let spare = u64::BITS - self.bits;
        let high = bits << spare;
        if self.is_signed { high.cast_signed() >> spare } else { (high >> spare).cast_signed() }
    }

    /// Fits `wanted` into the type; `None` if it does not fit and the rule is FAIL.
    fn fit(self, wanted: i128, overflow: Overflow) -> Option<i64> {
        let (least, most) = self.bounds();
        let fitting = match overflow {
            _ if (least..=most).contains(&wanted) => wanted,
            Overflow::Wrap => return Some(self.number(wanted as u64)),
            Overflow::Saturate => wanted.clamp(least, most),
            Overflow::Fail => return None,
        };
        i64::try_from(fitting).ok()
    }

    /// `value` as a number of this type. For an unsigned type, a negative value counts as very
    /// large.
    ///
    /// As in Redis, a signed value also counts as very large if its distance to the maximum exceeds
    /// 63 bits.
    pub(super) fn set_to(self, value: i64, overflow: Overflow) -> Option<i64> {
        let below_most = self.bounds().1 - i128::from(value);
        let is_too_far = self.bits < u64::BITS && below_most > i128::from(i64::MAX);
        let wanted = match self.is_signed && !is_too_far {
            true => i128::from(value),
            false => i128::from(value.cast_unsigned()),
        };
        self.fit(wanted, overflow)
    }

    /// The sum of `old` and `by`, as a number of this type.
    pub(super) fn sum(self, old: i64, by: i64, overflow: Overflow) -> Option<i64> {
        self.fit(i128::from(old) + i128::from(by), overflow)
    }
}

fn invalid_type() -> Refusal {
    Refusal::line(
        "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but \
         i64 is.",
    )
}

/// An integer at its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Integer {
    pub(super) kind: Kind,
    offset: usize,
}

impl Integer {
    /// Parses an offset: in bits, or after `#` in integers of this type.
    pub(super) fn parse(kind: Kind, text: &[u8]) -> Result<Self, Refusal> {
        let (digits, unit) = match text {
            [b'#', digits @ ..] => (digits, i64::from(kind.bits)),
            digits => (digits, 1),
        };
        let offset = number::parse_i64(digits).ok_or_else(out_of_range)?;
        Ok(Self { kind, offset: checked(offset.wrapping_mul(unit))? })
    }

    /// The first byte that the integer touches.
    pub(super) fn first_byte(self) -> usize {
        self.offset / 8
    }

    /// The last byte that the integer touches.
    pub(super) fn last_byte(self) -> usize {
        (self.offset + self.kind.bits as usize - 1) / 8
    }

    /// The number of bits in the window below the integer.
    fn shift(self) -> u32 {
        let before = u32::try_from(self.offset % 8).unwrap_or(0);
        u32::try_from(TOUCHED_MAX * 8).unwrap_or(0) - before - self.kind.bits
    }

    /// The value in the window at its first byte.
    pub(super) fn read(self, window: &Window) -> i64 {
        let bits = joined(window) >> self.shift();
        self.kind.number(bits as u64)
    }

    /// Replaces the integer in the window. Returns the bytes that it touches.
    pub(super) fn write(self, window: &mut Window, value: i64) -> &[u8] {
        let mask = u128::from(self.kind.mask());
        let bits = u128::from(value.cast_unsigned()) & mask;
        let all = joined(window) & !(mask << self.shift()) | bits << self.shift();
        window.copy_from_slice(&all.to_be_bytes()[size_of::<u128>() - TOUCHED_MAX..]);
        &window[..=self.last_byte() - self.first_byte()]
    }
}

/// The window as one number.
fn joined(window: &Window) -> u128 {
    window.iter().fold(0, |all, byte| all << 8 | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    fn kind(text: &str) -> Kind {
        Kind::parse(text.as_bytes()).unwrap()
    }

    #[test] // Checked bit by bit.
    fn integers_of_every_type_and_offset_are_read_as_written() {
        let mut prng = Prng::from_seed(1);
        for bits in 1..=64 {
            for offset in 0..8 {
                let is_signed = bits == 64 || prng.chance(50);
                let place = Integer { kind: Kind { bits, is_signed }, offset };
                let mut window = Window::default();
                window.copy_from_slice(&prng.bytes(TOUCHED_MAX..=TOUCHED_MAX));
                let (old, value) = (window, place.kind.number(prng.next_u64()));
                let touched = place.write(&mut window, value).len();
                assert_eq!(place.read(&window), value, "{place:?}");
                assert_eq!(touched, (offset + bits as usize).div_ceil(8), "{place:?}");
                let bit = |window: &Window, at: usize| window[at / 8] >> (7 - at % 8) & 1;
                for at in (0..72).filter(|at| !(offset..offset + bits as usize).contains(at)) {
                    assert_eq!(bit(&window, at), bit(&old, at), "{place:?}: bit {at}");
                }
            }
        }
    }

    #[test]
    fn overflowing_results_wrap_saturate_or_fail() {
        use Overflow::{Fail, Saturate, Wrap};
        #[rustfmt::skip] // A table.
        let cases = [
            ("i8", 127, 1, Wrap, Some(-128)), ("i8", 127, 1, Saturate, Some(127)), ("i8", 127, 1, Fail, None),
            ("i8", -128, -1, Wrap, Some(127)), ("i8", -128, -1, Saturate, Some(-128)),
            ("u8", 255, 1, Wrap, Some(0)), ("u8", 255, 1, Saturate, Some(255)), ("u8", 0, -1, Saturate, Some(0)),
            ("u8", 0, -1, Wrap, Some(255)), ("u8", 0, -1, Fail, None), ("u8", 3, 4, Fail, Some(7)),
            ("i64", i64::MAX, 1, Wrap, Some(i64::MIN)), ("i64", i64::MAX, i64::MAX, Saturate, Some(i64::MAX)),
            ("u63", i64::MAX, 1, Wrap, Some(0)), ("u63", i64::MAX, 1, Saturate, Some(i64::MAX)),
            ("i1", 0, 1, Wrap, Some(-1)), ("u1", 1, 1, Wrap, Some(0)),
        ];
        for (name, old, by, overflow, expected) in cases {
            let sum = kind(name).sum(old, by, overflow);
            assert_eq!(sum, expected, "{name} {old} {by} {overflow:?}");
        }
        assert_eq!(kind("u8").set_to(-1, Saturate), Some(255));
        assert_eq!(kind("u8").set_to(-1, Wrap), Some(255));
        assert_eq!(kind("i8").set_to(-129, Saturate), Some(-128));
        assert_eq!(kind("i8").set_to(200, Fail), None);
        let farthest = i64::MAX - 127;
        for (value, fitting) in [(-farthest, -128), (-farthest - 1, 127), (i64::MIN, 127)] {
            assert_eq!(kind("i8").set_to(value, Saturate), Some(fitting), "{value}");
            assert_eq!(kind("i8").set_to(value, Fail), None);
        }
        assert_eq!(kind("i8").set_to(i64::MIN + 5, Wrap), Some(5));
        assert_eq!(kind("i64").set_to(i64::MIN, Saturate), Some(i64::MIN));
    }

    #[test]
    fn types_and_offsets_are_refused_as_in_redis() {
        for text in ["", "i", "u", "i0", "u0", "u64", "i65", "8", "I8", "i08", "i-1", "i8x"] {
            assert!(Kind::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Kind::parse(b"i8\0x").is_ok(), "C's text ends at a NUL");
        for text in ["", "#", "-1", "#-1", "x", "1.5", "4294967296", "#536870912"] {
            assert!(Integer::parse(kind("u8"), text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(Integer::parse(kind("u8"), b"#3").unwrap().offset, 24);
    }
}
