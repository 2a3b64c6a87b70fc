//! The 80-bit floating-point numbers of x86, in integers: what INCRBYFLOAT computes with.
//!
//! Redis adds in `long double`, which on x86-64 has a mantissa of 64 bits, and writes the sum with
//! `%.17Lf`. An `f64` differs from that in the last digits (`0.1 + 0.2`), and clients keep such
//! texts. So numbers are read exactly, added with one rounding, and written exactly, on every
//! machine alike.
//!
//! ```text
//! value = (-1)^negative * mantissa * 2^exponent      mantissa: 64 bits, the top one set,
//!                                                    unless the exponent is the least one
//! ```
//! Invariants:
//! - I1: `EXPONENT_MIN <= exponent <= EXPONENT_MAX`, and the mantissa's top bit is set where the
//!   exponent is not the least.
//! - I2: rounding is to nearest, ties to even, and happens once an operation.
//!
//! Not here: NaN (no text parses to one, and a sum that would be one is `None`), other precisions.

mod big;

use big::Big;
use std::cmp::Ordering;

/// Exponent of the smallest step: that of the subnormals.
const EXPONENT_MIN: i32 = -16_445;
/// Exponent of the largest numbers, which end below 2^16384.
const EXPONENT_MAX: i32 = 16_384 - 64;
/// Texts of this length and more are refused, as in Redis.
const TEXT_MAX_BYTES: usize = 5 * 1024;
/// Digits written after the decimal point.
const FRACTION_DIGITS: usize = 17;
/// Digits before the point of a number that has a fraction: it is below 2^64.
const WHOLE_DIGITS: usize = 20;
const FRACTION_SCALE: u128 = 100_000_000_000_000_000;

/// A number with a 64-bit mantissa, or an infinity. See the module.
#[derive(Clone, Copy, Debug)]
pub struct Extended {
    negative: bool,
    infinite: bool,
    mantissa: u64,
    exponent: i32,
}

impl Extended {
    /// Zero.
    pub const ZERO: Self =
        Self { negative: false, infinite: false, mantissa: 0, exponent: EXPONENT_MIN };
    /// The largest finite number.
    pub const MAX: Self =
        Self { negative: false, infinite: false, mantissa: u64::MAX, exponent: EXPONENT_MAX };

    /// True for `inf` and `-inf`.
    #[must_use]
    pub fn is_infinite(self) -> bool {
        self.infinite
    }

    /// True for zero, of either sign.
    #[must_use]
    pub fn is_zero(self) -> bool {
        !self.infinite && self.mantissa == 0
    }

    /// True below zero; for zero, whatever sign it has.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.negative
    }

    /// The number with the other sign.
    #[must_use]
    pub fn negated(self) -> Self {
        Self { negative: !self.negative, ..self }
    }

    fn signed(self, negative: bool) -> Self {
        Self { negative, ..self }
    }

    /// Order of the magnitudes.
    fn compare_magnitude(self, other: Self) -> Ordering {
        let rank = |number: Self| (number.infinite, number.exponent, number.mantissa);
        rank(self).cmp(&rank(other)) // By I1 a larger exponent means a larger number.
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
        if self.is_zero() && other.is_zero() {
            return Ordering::Equal;
        }
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_magnitude(*other),
            (true, true) => other.compare_magnitude(*self),
        }
    }
}

/// Reads a number: decimal or hexadecimal, with a decimal point and an exponent, or `inf`.
///
/// - Refused (`None`): anything around the number, blanks included; `nan`; texts of 5 KiB; numbers
///   too large, or so small that they round to zero.
/// - Cost: short for ordinary texts; the longest ones take big integers.
/// - Source: C99's `strtold`, minus the results that Redis refuses.
#[must_use]
pub fn parse(text: &[u8]) -> Option<Extended> {
    if text.is_empty() || text.len() >= TEXT_MAX_BYTES {
        return None;
    }
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if rest.eq_ignore_ascii_case(b"inf") || rest.eq_ignore_ascii_case(b"infinity") {
        return Some(Extended { negative, infinite: true, ..Extended::MAX });
    }
    let magnitude = match rest {
        [b'0', b'x' | b'X', hex @ ..] => parse_hex(hex)?,
        _ => parse_decimal(rest)?,
    };
    Some(magnitude.signed(negative))
}

/// The sum, rounded once. `None` when it is not finite.
#[must_use]
pub fn add(one: Extended, other: Extended) -> Option<Extended> {
    if one.infinite || other.infinite {
        return None;
    }
    let (large, small) =
        if one.compare_magnitude(other) == Ordering::Less { (other, one) } else { (one, other) };
    // 63 bits of room below the larger mantissa, one above for the carry. Lower bits of the smaller
    // one only decide ties, so one sticky bit stands for them.
    let wide = u128::from(large.mantissa) << 63;
    let distance = large.exponent.abs_diff(small.exponent);
    let aligned = u128::from(small.mantissa) << 63;
    let (moved, sticky) = match distance {
        0..128 => (aligned >> distance, (aligned >> distance) << distance != aligned),
        _ => (0, small.mantissa != 0),
    };
    let sum = if large.negative == small.negative {
        wide + moved
    } else {
        wide - moved - u128::from(sticky) // The part below is then 1 minus the lost part.
    };
    if sum == 0 && !sticky {
        let negative = large.negative && small.negative;
        return Some(Extended::ZERO.signed(negative));
    }
    round(sum, i64::from(large.exponent) - 63, sticky).map(|sum| sum.signed(large.negative))
}

/// The difference `one - other`, rounded once. `None` when it is not finite.
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
    let mut text = if value.infinite {
        "inf".to_owned()
    } else if value.exponent >= 0 {
        Big::shifted(value.mantissa, value.exponent.unsigned_abs() as usize).to_decimal()
    } else {
        format_fraction(value)
    };
    if value.negative && text != "0" {
        text.insert(0, '-');
    }
    text
}

/// The text of a magnitude that may have a fraction.
fn format_fraction(value: Extended) -> String {
    let scaled = u128::from(value.mantissa) * FRACTION_SCALE; // Below 2^121.
    let shift = value.exponent.unsigned_abs();
    let digits = if shift < 128 {
        let kept = scaled >> shift;
        let (rest, half) = (scaled - (kept << shift), 1_u128 << (shift - 1));
        kept + u128::from(rest > half || (rest == half && kept % 2 == 1))
    } else {
        0
    };
    let (whole, mut fraction) = (digits / FRACTION_SCALE, digits % FRACTION_SCALE);
    // Digit by digit from the end: a few times quicker than `format!`.
    let mut buffer = [b'0'; WHOLE_DIGITS + 1 + FRACTION_DIGITS];
    let (head, tail) = buffer.split_at_mut(WHOLE_DIGITS);
    tail[0] = b'.';
    fraction = put_digits(&mut tail[1..], fraction);
    debug_assert_eq!(fraction, 0, "more than {FRACTION_DIGITS} digits");
    put_digits(head, whole);
    let start = head[..WHOLE_DIGITS - 1].iter().take_while(|digit| **digit == b'0').count();
    let text = std::str::from_utf8(&buffer[start..]).unwrap_or_default();
    let text = text.trim_end_matches('0');
    text.strip_suffix('.').unwrap_or(text).to_owned()
}

/// Writes the decimal digits of `value` at the end of `place`, over zeros. Returns the rest of the
/// value when the place is full.
fn put_digits(place: &mut [u8], value: u128) -> u128 {
    let mut rest = value;
    for digit in place.iter_mut().rev() {
        let Ok(narrow) = u64::try_from(rest) else {
            *digit += (rest % 10).to_le_bytes()[0];
            rest /= 10;
            continue;
        };
        if narrow == 0 {
            break;
        }
        *digit += (narrow % 10).to_le_bytes()[0];
        rest = u128::from(narrow / 10);
    }
    rest
}

/// `wide * 2^exponent`, plus a little when `sticky`, rounded to 64 bits. `None` when too large.
/// With `sticky`, `wide` must have 66 bits or more.
fn round(wide: u128, exponent: i64, sticky: bool) -> Option<Extended> {
    let bits = 128 - i64::from(wide.leading_zeros());
    let least = i64::from(EXPONENT_MIN) - exponent;
    let shift = (bits - 64).max(least);
    let mut mantissa = match u32::try_from(shift) {
        Err(_) => wide << shift.unsigned_abs(),
        Ok(0) => wide,
        Ok(shift @ 1..128) => {
            let kept = wide >> shift;
            let (rest, half) = (wide - (kept << shift), 1_u128 << (shift - 1));
            kept + u128::from(rest > half || (rest == half && (sticky || kept % 2 == 1)))
        }
        Ok(_) => 0,
    };
    let mut exponent = exponent + shift;
    if mantissa > u128::from(u64::MAX) {
        (mantissa, exponent) = (mantissa >> 1, exponent + 1); // Was 2^64: rounded up to a bit more.
    }
    if exponent > i64::from(EXPONENT_MAX) {
        return None;
    }
    let (mantissa, exponent) = (u64::try_from(mantissa).ok()?, i32::try_from(exponent).ok()?);
    debug_assert!(exponent == EXPONENT_MIN || mantissa >> 63 == 1, "I1");
    Some(Extended { mantissa, exponent, ..Extended::ZERO })
}

/// The number before an exponent: digits without the point, and how many were fractional.
struct Spelled<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

impl<'a> Spelled<'a> {
    /// Splits `whole[.fraction][e exponent]`; at least one digit must precede the exponent.
    fn split(text: &'a [u8], is_digit: fn(&u8) -> bool, mark: u8) -> Option<Self> {
        let run = |text: &[u8]| text.iter().take_while(|byte| is_digit(byte)).count();
        let (whole, mut rest) = text.split_at(run(text));
        let mut fraction: &[u8] = &[];
        if let [b'.', after @ ..] = rest {
            (fraction, rest) = after.split_at(run(after));
        }
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest {
            [] => 0,
            [letter, rest @ ..] if letter.eq_ignore_ascii_case(&mark) => parse_exponent(rest)?,
            _ => return None,
        };
        Some(Self { whole, fraction, exponent })
    }

    /// All digits in order, without leading zeros.
    fn digits(&self) -> impl Iterator<Item = u8> + Clone + use<'a> {
        self.whole.iter().chain(self.fraction).copied().skip_while(|digit| *digit == b'0')
    }
}

/// A signed decimal exponent; huge ones are capped, far beyond every limit.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    const CAP: i64 = 1 << 40;
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value =
        digits.iter().fold(0, |value, digit| (value * 10 + i64::from(digit - b'0')).min(CAP));
    Some(if negative { -value } else { value })
}

fn parse_decimal(text: &[u8]) -> Option<Extended> {
    /// No number with this many integer digits fits, nor one with this many zeros after the point.
    const DIGITS_MAX: i64 = 4_934;
    const DIGITS_MIN: i64 = -4_952;
    let spelled = Spelled::split(text, u8::is_ascii_digit, b'e')?;
    let count = i64::try_from(spelled.digits().count()).ok()?;
    if count == 0 {
        return Some(Extended::ZERO);
    }
    let exponent = spelled.exponent - i64::try_from(spelled.fraction.len()).ok()?;
    if !(DIGITS_MIN..=DIGITS_MAX).contains(&(count + exponent)) {
        return None;
    }
    if count <= SHORT_DIGITS && exponent.abs() <= SHORT_DIGITS {
        return short_decimal(&spelled, exponent);
    }
    let mut digits = Big::from_digits(spelled.digits());
    let ten = usize::try_from(exponent.unsigned_abs()).ok()?;
    let (wide, exponent, sticky) = if exponent >= 0 {
        digits.mul_ten(ten);
        let (wide, below, sticky) = digits.top();
        (wide, i64::try_from(below).ok()?, sticky)
    } else {
        let mut divisor = Big::shifted(1, 0);
        divisor.mul_ten(ten);
        digits.divide(divisor)
    };
    round(wide, exponent, sticky).filter(|number| !number.is_zero())
}

/// Digits, and powers of ten, that fit 64 bits.
const SHORT_DIGITS: i64 = 19;

/// [`parse_decimal`] for ordinary numbers, whose digits and power of ten fit 64 bits.
fn short_decimal(spelled: &Spelled<'_>, exponent: i64) -> Option<Extended> {
    let digits = spelled.digits().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let ten = u128::from(10_u64.pow(u32::try_from(exponent.unsigned_abs()).ok()?));
    if exponent >= 0 {
        return round(u128::from(digits) * ten, 0, false);
    }
    // Long division in base 2^64: at least 64 bits of quotient, then 64 more.
    let lead = digits.leading_zeros();
    let dividend = u128::from(digits << lead) << 64;
    let (first, rest) = (dividend / ten, dividend % ten);
    let (second, rest) = ((rest << 64) / ten, (rest << 64) % ten);
    let room = first.leading_zeros(); // At most 64.
    let wide = if room == 0 { first } else { (first << room) | (second >> (64 - room)) };
    let below = if room == 64 { 0 } else { second << (64 + room) };
    round(wide, -i64::from(lead + 64 + room), below != 0 || rest != 0)
}

fn parse_hex(text: &[u8]) -> Option<Extended> {
    /// Digits kept exactly; of the rest only whether they are zero matters.
    const KEPT: usize = 30;
    let spelled = Spelled::split(text, u8::is_ascii_hexdigit, b'p')?;
    let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or(0);
    let count = spelled.digits().count();
    let wide =
        spelled.digits().take(KEPT).fold(0, |wide, digit| (wide << 4) | u128::from(value(digit)));
    if wide == 0 {
        return Some(Extended::ZERO);
    }
    let sticky = spelled.digits().skip(KEPT).any(|digit| value(digit) != 0);
    let decimals = i64::try_from(spelled.fraction.len()).ok()?;
    let dropped = i64::try_from(count.saturating_sub(KEPT)).ok()?;
    let exponent = spelled.exponent + 4 * (dropped - decimals);
    round(wide, exponent, sticky).filter(|number| !number.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(one: &str, other: &str) -> Option<String> {
        add(parse(one.as_bytes())?, parse(other.as_bytes())?).map(format)
    }

    #[test] // Vectors from redis-server 7.0.15 on x86-64; thousands more in the families' tests.
    fn sums_are_those_of_x87() {
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
        assert_eq!(add(Extended::MAX, Extended::MAX), None);
    }

    #[test]
    fn the_ends_of_the_range_are_exact() {
        let least = parse(b"0x1p-16445").unwrap();
        assert_eq!((least.mantissa, least.exponent), (1, EXPONENT_MIN));
        assert_eq!(parse(b"0x1p-16446"), None, "a tie, to even: zero");
        assert_eq!(parse(b"0x1.8p-16446"), Some(least));
        assert_eq!(parse(b"3.6451995318824746025e-4951"), Some(least));
        assert_eq!(subtract(least, least), Some(Extended::ZERO));
        let largest = format(Extended::MAX);
        assert_eq!(largest.len(), 4_933);
        assert!(largest.starts_with("118973149535723176502"), "{}", &largest[..30]);
        assert_eq!(parse(largest.as_bytes()), Some(Extended::MAX));
        assert_eq!(parse(b"0x1p16384"), None);
    }

    #[test] // Where the numbers are small integers, f64 is exact as well.
    fn integers_agree_with_f64() {
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
