//! Integers and floating-point numbers as Redis reads and writes them.

/// Longest text of an `i64`: a sign and 19 digits.
pub const I64_TEXT_MAX: usize = 20;
/// Longest text of a `u64`: 20 digits.
pub const U64_TEXT_MAX: usize = 20;

/// Reads a canonical decimal integer: no spaces, no plus, no leading zeros, nothing after it.
///
/// Source: the rule by which Redis decides that a string is an integer (`string2ll`).
#[must_use]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude = 0_u64;
    for &digit in digits {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(value); // 19 digits always stay below 2^64.
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Reads a canonical decimal integer without a sign, up to `u64::MAX`.
#[must_use]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        [b'0'] => return Some(0),
        [b'1'..=b'9', ..] if text.len() <= 20 => {}
        _ => return None,
    }
    text.iter().try_fold(0_u64, |sum, &digit| {
        let value = digit.wrapping_sub(b'0');
        if value > 9 {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(value))
    })
}

/// Reads a number as C's `atoi` does: blanks and a sign may come first, bytes after the digits are
/// ignored, no digits mean 0, and overflow is truncated to 64 bits, then to 32.
#[must_use]
pub fn leading_i32(text: &[u8]) -> i32 {
    leading_i64(text) as i32
}

/// Reads a number as C's `atoll` does: as [`leading_i32`], but truncated to 64 bits only.
#[must_use]
pub fn leading_i64(text: &[u8]) -> i64 {
    let blanks = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let text = &text[text.iter().take_while(|byte| blanks(byte)).count()..];
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0_i64, |value, digit| {
        let digit = i64::from(digit - b'0');
        value.saturating_mul(10).saturating_add(if negative { -digit } else { digit })
    })
}

/// Appends the decimal text of `value`.
pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    let mut text = [0_u8; I64_TEXT_MAX];
    out.extend_from_slice(i64_text(&mut text, value));
}

/// The decimal text of `value`, written into `text` from its end.
#[inline]
pub fn i64_text(text: &mut [u8; I64_TEXT_MAX], value: i64) -> &[u8] {
    let mut at = write_digits(text, value.unsigned_abs());
    if value < 0 {
        at -= 1;
        text[at] = b'-';
    }
    &text[at..]
}

/// [`i64_text`] for an unsigned number.
#[inline]
pub fn u64_text(text: &mut [u8; U64_TEXT_MAX], value: u64) -> &[u8] {
    let at = write_digits(text, value);
    &text[at..]
}

/// Writes the decimal digits of `value` to the end of `text`; returns their start. Eight digits are
/// written at once, also because reading a word (as a hash does) stalls after single-byte writes.
#[inline]
fn write_digits(text: &mut [u8; U64_TEXT_MAX], value: u64) -> usize {
    const EIGHT: u64 = 100_000_000;
    if value < 10 {
        text[U64_TEXT_MAX - 1] = b'0' + value as u8;
        return U64_TEXT_MAX - 1;
    }
    let (mut at, mut rest) = (U64_TEXT_MAX, value);
    while rest >= EIGHT {
        at -= 8;
        text[at..at + 8].copy_from_slice(&eight_digits(rest % EIGHT).to_le_bytes());
        rest /= EIGHT;
    }
    let digits = eight_digits(rest);
    let zeros = leading_zeros(digits);
    if let Some(room) = text[..at].last_chunk_mut::<8>() {
        *room = digits.to_le_bytes();
    } else {
        let len = at;
        text[..len].copy_from_slice(&digits.to_le_bytes()[8 - len..]);
    }
    at - (8 - zeros)
}

/// The decimal digits of `value`, at most eight, the first in the lowest byte; and their number.
#[inline]
#[must_use]
pub fn few_digits(value: u64) -> (u64, usize) {
    let digits = eight_digits(value);
    let zeros = leading_zeros(digits);
    (digits >> (8 * zeros), 8 - zeros)
}

/// The number of leading zeros among eight digits; 0 itself has one digit.
#[inline]
fn leading_zeros(digits: u64) -> usize {
    // Bits 0 to 3 of each byte are the digit; the lowest byte is the first.
    ((digits & 0x0f0f_0f0f_0f0f_0f0f) | 1 << 56).trailing_zeros() as usize / 8
}

/// The eight decimal digits of `value`, the first in the lowest byte. All halves are split at once,
/// then all quarters, then all digits. Divisions by a constant become multiplications.
#[inline]
fn eight_digits(value: u64) -> u64 {
    debug_assert!(value < 100_000_000, "value={value}");
    let fours = (value / 10_000) | (value % 10_000) << 32;
    let tops = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = tops | (fours - tops * 100) << 16;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | (pairs - tens * 10) << 8;
    digits | 0x3030_3030_3030_3030
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_by_atoi() {
        #[rustfmt::skip] // A table.
        let cases: &[(&str, i32)] = &[
            ("", 0), ("x", 0), ("1.5", 1), (" \t\n\x0b\x0c\r+2x", 2), ("-3", -3), ("- 3", 0), ("0x2", 0),
            ("2147483648", i32::MIN), ("4294967297", 1), ("99999999999999999999", -1),
            ("-99999999999999999999", 0), ("--1", 0), ("1\x00", 1),
        ];
        for (text, expected) in cases {
            assert_eq!(leading_i32(text.as_bytes()), *expected, "{text:?}");
        }
    }

    #[test]
    fn canonical_integers_are_read_and_written_unchanged() {
        for value in [0, 1, -1, 9, 10, -10, i64::MAX, i64::MIN, i64::MIN + 1, 1 << 62] {
            let text = value.to_string();
            assert_eq!(parse_i64(text.as_bytes()), Some(value), "{text}");
            let mut out = Vec::new();
            write_i64(&mut out, value);
            assert_eq!(out, text.as_bytes());
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    }

    #[test] // Around every power of ten, and at random lengths.
    fn integers_are_written_as_the_standard_library_does() {
        let mut prng = crate::Prng::from_seed(5);
        let powers = (0..19).map(|power| 10_i64.pow(power));
        let near =
            powers.flat_map(|power| [power - 1, power, power + 1, power / 2, power * 9 / 10]);
        let random = (0..if cfg!(miri) { 50 } else { 50_000 })
            .map(|_| prng.next_u64().cast_signed() >> prng.below(64));
        for value in near.chain(random) {
            for value in [value, value.wrapping_neg()] {
                let mut text = [0xff; I64_TEXT_MAX];
                let written = i64_text(&mut text, value).to_vec();
                assert_eq!(written, value.to_string().into_bytes(), "{value}");
            }
        }
        for value in (0..100_000_000).step_by(if cfg!(miri) { 9_999_999 } else { 997 }) {
            assert_eq!(eight_digits(value).to_le_bytes(), *format!("{value:08}").as_bytes());
        }
    }

    #[test]
    fn non_canonical_integers_are_refused() {
        for text in ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "9223372036854775808", "a"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_i64(b"-9223372036854775809"), None);
        assert_eq!(parse_u64(b"18446744073709551616"), None);
    }
}
