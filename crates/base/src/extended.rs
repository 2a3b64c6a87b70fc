//! The numbers that INCRBYFLOAT computes with: the `long double` of C, as in redis-server.
//!
//! On x86-64 it has a mantissa of 64 bits, and sums are written with `%.17Lf`. An `f64` differs
//! from that in the last digits (`0.1 + 0.2`), and clients store these texts. Rust has no such
//! type, so `extended.c` reads, adds and writes. Elsewhere a `long double` may have more bits, as
//! it has for redis-server there.
//!
//! A value is never NaN: no text parses to one, and a sum that would be one is `None`.

use std::cmp::Ordering;

/// Size of the text buffer: the longest text that is read or written, plus its NUL.
const TEXT_MAX_BYTES: usize = 5 * 1024;

/// A C `long double`; see the module's documentation.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Extended([u8; 16]);

// SAFETY: the signatures of extended.c. Its functions only read and write what they are given.
unsafe extern "C" {
    fn darter_extended_parse(text: *const u8, bytes: usize, value: *mut Extended) -> i32;
    safe fn darter_extended_add(one: &Extended, other: &Extended, sum: &mut Extended) -> i32;
    safe fn darter_extended_negate(value: &Extended, negated: &mut Extended);
    safe fn darter_extended_compare(one: &Extended, other: &Extended) -> i32;
    safe fn darter_extended_max(value: &mut Extended);
    safe fn darter_extended_format(value: &Extended, text: &mut [u8; TEXT_MAX_BYTES]) -> i32;
}

impl Extended {
    /// Zero.
    pub const ZERO: Self = Self([0; 16]);

    /// The largest finite number.
    #[must_use]
    pub fn max() -> Self {
        let mut value = Self::ZERO;
        darter_extended_max(&mut value);
        value
    }

    /// True for `inf` and `-inf`.
    #[must_use]
    pub fn is_infinite(self) -> bool {
        self > Self::max() || self < Self::max().negated()
    }

    /// True for zero, of either sign.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// True below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self < Self::ZERO
    }

    /// The number with the other sign.
    #[must_use]
    pub fn negated(self) -> Self {
        let mut negated = Self::ZERO;
        darter_extended_negate(&self, &mut negated);
        negated
    }
}

impl PartialEq for Extended {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Extended {}

impl PartialOrd for Extended {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Extended {
    /// The order of the numbers; the two zeros are equal.
    fn cmp(&self, other: &Self) -> Ordering {
        darter_extended_compare(self, other).cmp(&0)
    }
}

/// Reads a number: decimal or hexadecimal, with a decimal point and an exponent, or `inf`.
///
/// - Refused (`None`): anything around the number, blanks included; `nan`; texts of 5 KiB; numbers
///   too large, or so small that they round to zero.
/// - Cost: that of C's `strtold`.
#[must_use]
pub fn parse(text: &[u8]) -> Option<Extended> {
    let mut value = Extended::ZERO;
    // SAFETY: the text has this length.
    let is_read = unsafe { darter_extended_parse(text.as_ptr(), text.len(), &raw mut value) };
    (is_read != 0).then_some(value)
}

/// The sum, rounded once. `None` if it is not finite.
#[must_use]
pub fn add(one: Extended, other: Extended) -> Option<Extended> {
    let mut sum = Extended::ZERO;
    (darter_extended_add(&one, &other, &mut sum) != 0).then_some(sum)
}

/// The difference `one - other`, rounded once. `None` if it is not finite.
#[must_use]
pub fn subtract(one: Extended, other: Extended) -> Option<Extended> {
    add(one, other.negated())
}

/// Writes a number as Redis does: `%.17Lf`, without trailing zeros, without an exponent, `-0` as
/// `0`.
///
/// Cost: O(digits), at most 4 933 of them.
#[must_use]
pub fn format(value: Extended) -> String {
    let mut buffer = [0; TEXT_MAX_BYTES];
    let bytes = usize::try_from(darter_extended_format(&value, &mut buffer));
    let text = bytes.ok().and_then(|bytes| buffer.get(..bytes)).unwrap_or_default();
    let mut text = std::str::from_utf8(text).unwrap_or_default();
    if text.contains('.') {
        text = text.trim_end_matches('0').trim_end_matches('.');
    }
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(one: &str, other: &str) -> Option<String> {
        add(parse(one.as_bytes())?, parse(other.as_bytes())?).map(format)
    }

    #[test] // Vectors from redis-server 7.0.15 on x86-64; thousands more in the families' tests.
    #[cfg(target_arch = "x86_64")]
    fn sums_equal_those_of_redis_on_x86() {
        #[rustfmt::skip] // A table.
        let cases: &[(&str, &str, &str)] = &[
            ("10.50", "0.1", "10.6"),       ("5.0e3", "2.0e2", "5200"),   ("0.1", "0.2", "0.3"),
            ("3", "-1.1", "1.9"),           ("0", "-0", "0"),             ("-0", "-0", "0"),
            ("17179869184", "1.5", "17179869185.5"),                      ("0x10", "0x.8p1", "17"),
            ("1e-17", "0", "0.00000000000000001"),                        ("1e-20", "1e-21", "0"),
            ("0.000000000000000005", "0", "0"), ("5.0000000000001e-18", "0", "0.00000000000000001"),
            ("18446744073709551615", "1", "18446744073709551616"),
            ("18446744073709551616", "1", "18446744073709551616"),
        ];
        for (one, other, expected) in cases {
            assert_eq!(sum(one, other).as_deref(), Some(*expected), "{one} + {other}");
        }
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for text in [
            "",
            " 1",
            "1 ",
            "abc",
            "1e",
            "1e+",
            "0x",
            "0x1p",
            "nan",
            "nan(1)",
            ".",
            "-",
            "+-1",
            "1,5",
            "1\0",
            "1e5000",
            "-1e5000",
            "1e-5000",
            "0x1p20000",
            "1e99999999999999999999",
            "infin",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(&vec![b'0'; TEXT_MAX_BYTES]), None);
        assert!(parse(&vec![b'0'; TEXT_MAX_BYTES - 1]).is_some_and(Extended::is_zero));
        assert!(parse(b"0e99999999999999999999").is_some_and(Extended::is_zero));
        for text in ["inf", "-Infinity", "+INF"] {
            assert!(parse(text.as_bytes()).is_some_and(Extended::is_infinite), "{text}");
        }
        assert_eq!(sum("inf", "1"), None);
        assert_eq!(sum("1e4932", "1e4932"), None.or(sum("2e4932", "0")), "no overflow yet");
        assert_eq!(add(Extended::max(), Extended::max()), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn numbers_at_the_ends_of_the_range_are_rounded_exactly() {
        let least = parse(b"0x1p-16445").unwrap();
        assert_eq!(parse(b"0x1p-16446"), None, "a tie, to even: zero");
        assert_eq!(parse(b"0x1.8p-16446"), Some(least));
        assert_eq!(parse(b"3.6451995318824746025e-4951"), Some(least));
        assert_eq!(subtract(least, least), Some(Extended::ZERO));
        let largest = format(Extended::max());
        assert_eq!(largest.len(), 4_933);
        assert!(largest.starts_with("118973149535723176502"), "{}", &largest[..30]);
        assert_eq!(parse(largest.as_bytes()), Some(Extended::max()));
        assert_eq!(parse(b"0x1p16384"), None);
    }

    #[test] // Where the numbers are small integers, f64 is exact as well.
    fn sums_of_small_numbers_equal_those_of_f64() {
        let mut prng = crate::Prng::from_seed(7);
        for _ in 0..2_000 {
            let draw = |prng: &mut crate::Prng| prng.below(1 << 30) as f64 / 16.0 - 30_000_000.0;
            let (one, other) = (draw(&mut prng), draw(&mut prng));
            let expected = format!("{}", one + other);
            assert_eq!(sum(&one.to_string(), &other.to_string()), Some(expected));
            let read = |number: f64| parse(number.to_string().as_bytes()).unwrap();
            assert_eq!(read(one).partial_cmp(&read(other)), one.partial_cmp(&other));
        }
    }
}
