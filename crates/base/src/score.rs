//! Scores of sorted sets, 64-bit floating-point numbers, as Redis reads and writes them.
//!
//! Redis reads with C's `strtod` and writes with `%.17g`: 17 significant digits, exact, so that
//! every number is read back as it was. The standard library provides both roundings; this module
//! adds `strtod`'s grammar and `%.17g`'s layout.
//!
//! | score  | text                  |   | score | text    |
//! |--------|-----------------------|---|-------|---------|
//! | 3.0    | `3`                   |   | 1e16  | `10000000000000000` |
//! | 0.1    | `0.10000000000000001` |   | 1e17  | `1e+17` |
//! | 0.0001 | `0.0001`              |   | -0.0  | `-0`    |
//! | 1e-5   | `1.0000000000000001e-05` | | inf  | `inf`   |
//!
//! Not here: the numbers of INCRBYFLOAT, which have a longer mantissa (`extended`).

use crate::number::{I64_TEXT_MAX, i64_text};
use std::fmt::Write as _;

/// Room for the longest text: `-1.7976931348623157e+308`.
pub const TEXT_MAX: usize = 24;
/// Significant digits of a text.
const DIGITS: usize = 17;
/// Integers below this are printed with all their digits: at most 16.
const INTEGER_END: f64 = 1e16;
/// Longer words are refused as numbers, because reading them would take long.
const WORD_MAX: usize = 64 * 1024;

/// Reads a score: a whole word that is a number, decimal or hexadecimal, or an infinity.
///
/// Refused (`None`): blanks around it, an empty word, NaN, and numbers so large or so small that
/// they become infinite or zero. Source: `getDoubleFromObject` of Redis 7.0.15.
#[must_use]
#[inline]
pub fn parse(word: &[u8]) -> Option<f64> {
    short(word).or_else(|| {
        let read = read(word)?;
        (read.len == word.len() && !read.out_of_range).then_some(read.value)
    })
}

/// Fast path for a short decimal number without an exponent, the usual case. If its digits and its
/// power of ten are both exact, their quotient is rounded once, which is correct. `None`: any other
/// word.
#[inline]
fn short(word: &[u8]) -> Option<f64> {
    const DIGITS_MAX: usize = 19;
    const EXACT_MAX: u64 = 1 << 53;
    #[rustfmt::skip] // A table.
    const POWERS: [f64; DIGITS_MAX + 1] = [
        1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9,
        1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
    ];
    let (sign, text) = match word {
        [b'-', text @ ..] => (-1.0, text),
        text => (1.0, text),
    };
    if text.len() > DIGITS_MAX + 1 {
        return None;
    }
    let (mut digits, mut count, mut fraction) = (0_u64, 0, None);
    for byte in text {
        match byte {
            b'0'..=b'9' if count < DIGITS_MAX => {
                digits = digits * 10 + u64::from(byte - b'0');
                count += 1;
            }
            b'.' if fraction.is_none() => fraction = Some(count),
            _ => return None,
        }
    }
    if count == 0 {
        return None;
    }
    if digits > EXACT_MAX {
        return std::str::from_utf8(word).ok()?.parse().ok();
    }
    let fraction = fraction.map_or(0, |whole| count - whole);
    Some(sign * (digits as f64 / POWERS[fraction]))
}

/// Reads an end of a score range. Redis is lenient here: blanks may come first, an empty word is 0,
/// a number that is too large becomes infinite, and a NUL ends the word.
///
/// Source: `zslParseRange` of Redis 7.0.15.
#[must_use]
pub fn parse_bound(word: &[u8]) -> Option<f64> {
    read_leniently(word).map(|read| read.value)
}

/// Reads a number that SORT compares by. As for a range end, but numbers that are too large or too
/// small are refused, and so are decimal numbers near 0 that lose digits.
///
/// Source: `sortCommandGeneric` of Redis 7.0.15.
#[must_use]
pub fn parse_weight(word: &[u8]) -> Option<f64> {
    let read = read_leniently(word)?;
    let is_rounded = read.out_of_range || read.is_decimal && read.value.is_subnormal();
    (!is_rounded).then_some(read.value)
}

/// Reads a number as `strtod` does: blanks may come first, an empty word is 0, a NUL ends the word.
fn read_leniently(word: &[u8]) -> Option<Read> {
    let end = word.iter().position(|byte| *byte == 0).unwrap_or(word.len());
    let word = &word[..end];
    if word.is_empty() {
        return Some(Read { value: 0.0, len: 0, out_of_range: false, is_decimal: true });
    }
    let blanks = word.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let word = &word[blanks..];
    read(word).filter(|read| read.len == word.len())
}

/// The result of `strtod`.
struct Read {
    value: f64,
    /// The number of bytes that belong to the number.
    len: usize,
    /// The number does not fit: it became infinite, or zero.
    out_of_range: bool,
    /// The number was written in decimal digits; close to 0 these are inexact.
    is_decimal: bool,
}

/// Reads the number at the beginning of `word`. `None` if there is none, or if it is NaN.
fn read(word: &[u8]) -> Option<Read> {
    if word.len() > WORD_MAX {
        return None;
    }
    let (negative, sign) = match word {
        [b'-', ..] => (true, 1),
        [b'+', ..] => (false, 1),
        _ => (false, 0),
    };
    let rest = &word[sign..];
    let mut read = infinity(rest).or_else(|| hexadecimal(rest)).or_else(|| decimal(rest))?;
    read.len += sign;
    read.value = if negative { -read.value } else { read.value };
    Some(read)
}

fn infinity(text: &[u8]) -> Option<Read> {
    let starts = |word: &str| {
        text.get(..word.len()).is_some_and(|text| text.eq_ignore_ascii_case(word.as_bytes()))
    };
    let word = ["infinity", "inf"].into_iter().find(|word| starts(word))?;
    Some(Read { value: f64::INFINITY, len: word.len(), out_of_range: false, is_decimal: false })
}

/// Digits with an optional point, at the beginning of `text`.
struct Mantissa {
    /// The bytes of the mantissa, and the number of digits after the point.
    len: usize,
    fraction: usize,
    is_zero: bool,
}

impl Mantissa {
    fn of(text: &[u8], is_digit: fn(&u8) -> bool) -> Option<Self> {
        let digits = |text: &[u8]| text.iter().take_while(|byte| is_digit(byte)).count();
        let whole = digits(text);
        let fraction = match text.get(whole) {
            Some(b'.') => digits(&text[whole + 1..]),
            _ => 0,
        };
        let has_point = text.get(whole) == Some(&b'.') && whole + fraction > 0;
        let len = whole + fraction + usize::from(has_point);
        let is_zero = text[..len].iter().all(|byte| matches!(byte, b'0' | b'.'));
        (len > 0).then_some(Self { len, fraction, is_zero })
    }
}

/// The length of the exponent at the beginning of `text`; 0 without one.
fn exponent_len(text: &[u8], letter: u8) -> usize {
    if !text.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&letter)) {
        return 0;
    }
    let sign = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    let digits = text[1 + sign..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 { 0 } else { 1 + sign + digits }
}

fn decimal(text: &[u8]) -> Option<Read> {
    let mantissa = Mantissa::of(text, u8::is_ascii_digit)?;
    let len = mantissa.len + exponent_len(&text[mantissa.len..], b'e');
    let value: f64 = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
    let out_of_range = value.is_infinite() || value == 0.0 && !mantissa.is_zero;
    Some(Read { value, len, out_of_range, is_decimal: true })
}

fn hexadecimal(text: &[u8]) -> Option<Read> {
    let [b'0', b'x' | b'X', digits @ ..] = text else { return None };
    let mantissa = Mantissa::of(digits, u8::is_ascii_hexdigit)?;
    let exponent = &digits[mantissa.len..];
    let exponent_len = exponent_len(exponent, b'p');
    let power = exponent.get(1..exponent_len).map_or(0, clamped);
    let (mut bits, mut beyond) = (0_u64, 0_i64);
    let hex = digits[..mantissa.len].iter().filter_map(|digit| char::from(*digit).to_digit(16));
    for digit in hex {
        if bits >> 60 == 0 {
            bits = bits << 4 | u64::from(digit);
        } else {
            // Excess digits are dropped: the last bit records whether any of them is not zero.
            bits |= u64::from(digit != 0);
            beyond += 4;
        }
    }
    let fraction = i64::try_from(mantissa.fraction).unwrap_or(i64::MAX / 8);
    let value = scaled(bits, power + beyond - fraction * 4);
    let out_of_range = value.is_infinite() || value == 0.0 && !mantissa.is_zero;
    let len = 2 + mantissa.len + exponent_len;
    Some(Read { value, len, out_of_range, is_decimal: false })
}

/// The value of an exponent, clamped to the range that matters.
fn clamped(text: &[u8]) -> i64 {
    const MOST: i64 = 1 << 24; // Larger than any number of digits could offset.
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = digits.iter().map(|digit| i64::from(digit - b'0'));
    let value = digits.fold(0_i64, |value, digit| (value * 10 + digit).min(MOST));
    if negative { -value } else { value }
}

/// `bits * 2^power`, rounded to nearest, ties to even.
fn scaled(bits: u64, power: i64) -> f64 {
    /// The exponent of the smallest positive number.
    const POWER_MIN: i64 = -1_074;
    let used = i64::from(u64::BITS - bits.leading_zeros());
    let dropped = (used - 53).max(POWER_MIN - power).max(0);
    let Ok(shift @ 0..64) = u32::try_from(dropped) else {
        return if dropped == 64 && bits > 1 << 63 { f64::from_bits(1) } else { 0.0 };
    };
    let (kept, rest) = (bits >> shift, bits & ((1 << shift) - 1));
    let half = 1_u64 << shift >> 1;
    let up = rest > half || rest == half && half > 0 && kept & 1 == 1;
    let mantissa = (kept + u64::from(up)) as f64;
    // Both are exact, and so is their product, unless it is infinite.
    if mantissa == 0.0 { 0.0 } else { mantissa * power_of_two(power + dropped) }
}

/// `2^power`; infinite if it is out of range.
fn power_of_two(power: i64) -> f64 {
    match power {
        1_024.. => f64::INFINITY,
        -1_022..1_024 => f64::from_bits((power + 1_023).cast_unsigned() << 52),
        _ => f64::from_bits(1 << (power + 1_074).clamp(0, 51)),
    }
}

/// The text of a score, stored inline.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    bytes: [u8; TEXT_MAX],
    len: u8,
}

impl Text {
    /// Writes `score` with 17 significant digits and without trailing zeros; with an exponent below
    /// 1e-4 and from 1e17 on.
    ///
    /// Cost: O(digits), with a shortcut for integers. Source: `addReplyDouble` of Redis 7.0.15, in
    /// both versions of the protocol.
    #[must_use]
    pub fn new(score: f64) -> Self {
        let mut text = Self { bytes: [0; TEXT_MAX], len: 0 };
        if score.abs() < INTEGER_END && score.trunc() == score && !is_negative_zero(score) {
            let mut digits = [0; I64_TEXT_MAX];
            text.push(i64_text(&mut digits, score as i64));
        } else if score.is_infinite() {
            text.push(if score > 0.0 { b"inf" } else { b"-inf" });
        } else {
            text.digits(score);
        }
        text
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("digits, signs and letters are ASCII")
    }

    fn digits(&mut self, score: f64) {
        let mut scratch = Self { bytes: [0; TEXT_MAX], len: 0 };
        // Scientific notation: one digit, a point, the other digits, `e` and the exponent.
        let written = write!(scratch, "{:.*e}", DIGITS - 1, score.abs());
        debug_assert!(written.is_ok(), "{score}");
        let (mantissa, exponent) = scratch.as_str().split_once('e').unwrap_or(("0", "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let mut digits = [b'0'; DIGITS];
        let significant = mantissa.bytes().filter(u8::is_ascii_digit);
        digits.iter_mut().zip(significant).for_each(|(digit, byte)| *digit = byte);
        let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
        let digits = &digits[..(DIGITS - zeros).max(1)];

        if score.is_sign_negative() {
            self.push(b"-");
        }
        match usize::try_from(exponent) {
            Ok(whole) if whole < DIGITS => self.plain(digits, whole + 1),
            Err(_) if exponent >= -4 => {
                self.push(b"0.");
                self.zeros(exponent.unsigned_abs() as usize - 1);
                self.push(digits);
            }
            _ => self.scientific(digits, exponent),
        }
    }

    /// Writes `digits` with a point after the first `whole`.
    fn plain(&mut self, digits: &[u8], whole: usize) {
        self.push(&digits[..whole.min(digits.len())]);
        self.zeros(whole.saturating_sub(digits.len()));
        if digits.len() > whole {
            self.push(b".");
            self.push(&digits[whole..]);
        }
    }

    fn scientific(&mut self, digits: &[u8], exponent: i32) {
        self.plain(digits, 1);
        let sign = if exponent < 0 { '-' } else { '+' };
        let written = write!(self, "e{sign}{:02}", exponent.unsigned_abs());
        debug_assert!(written.is_ok(), "{exponent}");
    }

    fn zeros(&mut self, count: usize) {
        self.push(&[b'0'; DIGITS][..count]);
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }
}

impl std::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

fn is_negative_zero(score: f64) -> bool {
    score == 0.0 && score.is_sign_negative()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[rustfmt::skip] // A table: a word, and the number that redis-server 7.0.15 reads and prints.
    const WORDS: &[(&str, Option<&str>)] = &[
        ("0", Some("0")), ("-0.0", Some("-0")), ("3.0", Some("3")), ("+1", Some("1")), (".5", Some("0.5")),
        ("5.", Some("5")), ("1e5", Some("100000")), ("1E+5", Some("100000")), ("0e999", Some("0")),
        ("0.1", Some("0.10000000000000001")), ("3.14", Some("3.1400000000000001")),
        ("1e15", Some("1000000000000000")), ("1e16", Some("10000000000000000")), ("1e17", Some("1e+17")),
        ("-1e17", Some("-1e+17")), ("1e21", Some("1e+21")), ("1e23", Some("9.9999999999999992e+22")),
        ("9007199254740993", Some("9007199254740992")), ("123456789012345678", Some("1.2345678901234568e+17")),
        ("4503599627370497.5", Some("4503599627370498")), ("-99999999999999.25", Some("-99999999999999.25")),
        ("12345678901234567", Some("12345678901234568")), ("9223372036854775807", Some("9.2233720368547758e+18")),
        ("0.0001", Some("0.0001")), ("1e-5", Some("1.0000000000000001e-05")), ("0.00001234", Some("1.234e-05")),
        ("-0.00012345678901234567", Some("-0.00012345678901234567")), ("1e-100", Some("1e-100")),
        ("2.98023223876953125e-08", Some("2.9802322387695312e-08")), ("1e-320", Some("9.9998886718268301e-321")),
        ("4.9e-324", Some("4.9406564584124654e-324")), ("1.7976931348623157e308", Some("1.7976931348623157e+308")),
        ("inf", Some("inf")), ("+inf", Some("inf")), ("-INF", Some("-inf")), ("Infinity", Some("inf")),
        ("0x10", Some("16")), ("0X1P3", Some("8")), ("0x.8", Some("0.5")), ("-0x1.8p-1", Some("-0.75")),
        ("0x1.fffffffffffff8p0", Some("2")), ("0x1.ffffffffffffe8p0", Some("1.9999999999999996")),
        ("0x1.00000000000008p0", Some("1")), ("0x1.000000000000080000000001p0", Some("1.0000000000000002")),
        ("0x1p1023", Some("8.9884656743115795e+307")), ("0x1p-1074", Some("4.9406564584124654e-324")),
        ("0x1.8p-1075", Some("4.9406564584124654e-324")), ("0x0p99999999999", Some("0")),
        ("", None), (" 1", None), ("1 ", None), ("1e400", None), ("-1e400", None), ("1e-400", None),
        ("0x", None), ("0x1p", None), ("0x1p-1075", None), ("0x1p1024", None), ("0x1p99999999999999999999", None),
        ("infinit", None), ("nan", None), ("-nan", None), ("nan(a)", None), ("1e", None), ("1e+", None), (".", None),
        ("-", None), ("+", None), ("--1", None), ("1,5", None), ("1_0", None), ("abc", None), ("1\0", None), (".e1", None),
    ];

    #[test]
    fn words_are_read_and_written_as_by_redis() {
        for (word, expected) in WORDS {
            let text = parse(word.as_bytes()).map(Text::new);
            assert_eq!(text.as_ref().map(Text::as_str), *expected, "{word:?}");
        }
        assert_eq!(parse(&vec![b'0'; WORD_MAX + 1]), None);
        assert_eq!(parse(&vec![b'0'; WORD_MAX]), Some(0.0));
    }

    #[test]
    fn the_fast_path_reads_the_same_numbers() {
        let mut prng = Prng::from_seed(3);
        for _ in 0..if cfg!(miri) { 200 } else { 200_000 } {
            let whole = prng.next_u64() >> prng.below(64);
            let fraction = prng.next_u64() >> prng.below(64);
            let word = match prng.below(4) {
                0 => format!("-{whole}"),
                1 => {
                    format!("{}.{fraction:0width$}", whole % 10_000, width = fraction as usize % 9)
                }
                2 => format!(".{fraction}"),
                _ => format!("{}.", whole % 1_000_000),
            };
            if let Some(value) = short(word.as_bytes()) {
                let read = read(word.as_bytes()).map(|read| read.value.to_bits());
                assert_eq!(Some(value.to_bits()), read, "{word}");
            }
        }
        assert_eq!(short(b"0.8444218515250481"), Some(0.844_421_851_525_048_1));
    }

    #[test] // They are read more leniently than scores.
    fn ends_of_score_ranges_are_read_as_by_redis() {
        #[rustfmt::skip] // A table.
        let cases: &[(&str, Option<f64>)] = &[
            ("1", Some(1.0)), ("", Some(0.0)), (" \t1", Some(1.0)), ("1 ", None), (" ", None), ("1\0x", Some(1.0)),
            ("\0", Some(0.0)), ("1e400", Some(f64::INFINITY)), ("-1e400", Some(f64::NEG_INFINITY)),
            ("1e-400", Some(0.0)), ("nan", None), ("(1", None), ("-inf", Some(f64::NEG_INFINITY)), ("0x10", Some(16.0)),
        ];
        for (word, expected) in cases {
            assert_eq!(parse_bound(word.as_bytes()), *expected, "{word:?}");
        }
    }

    #[test] // They are read more strictly than the ends of ranges.
    fn sort_weights_are_read_as_by_redis() {
        #[rustfmt::skip] // A table.
        let cases: &[(&str, Option<f64>)] = &[
            ("1", Some(1.0)), ("", Some(0.0)), (" \t1", Some(1.0)), ("1 ", None), (" ", None), ("1\0x", Some(1.0)),
            ("1e400", None), ("1e-400", None), ("1e-310", None), ("4.9e-324", None), ("0x1p-1074", Some(f64::from_bits(1))),
            ("0e-400", Some(0.0)), ("nan", None), ("-infinity", Some(f64::NEG_INFINITY)), ("0x10", Some(16.0)),
        ];
        for (word, expected) in cases {
            assert_eq!(parse_weight(word.as_bytes()), *expected, "{word:?}");
        }
    }

    #[test] // Also from hexadecimal.
    fn printed_scores_are_read_back_exactly() {
        let mut prng = Prng::from_seed(9);
        for _ in 0..if cfg!(miri) { 50 } else { 50_000 } {
            let score = match prng.below(3) {
                0 => f64::from_bits(prng.next_u64()),
                1 => (prng.next_u64().cast_signed() >> prng.below(64)) as f64,
                _ => (prng.next_u64() >> prng.below(64)) as f64 / 1024.0,
            };
            if score.is_nan() {
                continue;
            }
            let text = Text::new(score);
            let back = parse(text.as_bytes()).map(f64::to_bits);
            assert_eq!(back, Some(score.to_bits()), "{score:e} {}", text.as_str());
            if score.is_finite() {
                let (bits, power) =
                    (score.to_bits() & ((1 << 52) - 1), score.to_bits() >> 52 & 0x7ff);
                let (whole, power) =
                    if power == 0 { (0, -1_022) } else { (1, power.cast_signed() - 1_023) };
                let sign = if score.is_sign_negative() { "-" } else { "" };
                let hex = format!("{sign}0x{whole}.{bits:013x}p{power}");
                let back = parse(hex.as_bytes()).map(f64::to_bits);
                assert_eq!(back, Some(score.to_bits()), "{score:e} {hex}");
            }
        }
    }
}
