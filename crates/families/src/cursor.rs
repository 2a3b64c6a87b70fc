//! Parses the cursors of SCAN, HSCAN and SSCAN.

use darter_command::{Refusal, until_nul};

/// Reads a cursor, or refuses it.
pub(crate) fn parse(text: &[u8]) -> Result<u64, Refusal> {
    number(text).ok_or(Refusal::line("ERR invalid cursor"))
}

/// Parses as C's `strtoul`, which Redis calls: a sign is allowed, an empty text is 0, and a NUL
/// ends the text.
fn number(text: &[u8]) -> Option<u64> {
    let text = until_nul(text);
    if text.is_empty() {
        return Some(0);
    }
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_parsed_as_by_strtoul() {
        #[rustfmt::skip] // A table.
        let cases: &[(&str, Option<u64>)] = &[
            ("", Some(0)), ("0", Some(0)), ("17", Some(17)), ("-1", Some(u64::MAX)), ("+5", Some(5)),
            ("007", Some(7)), ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None), (" 1", None), ("1 ", None), ("x", None), ("-", None),
            ("+", None), ("--1", None), ("1.5", None), ("0x0", None),
            ("0\0", Some(0)), ("\0", Some(0)), ("5\0x", Some(5)), ("x\0", None),
        ];
        for (text, expected) in cases {
            assert_eq!(number(text.as_bytes()), *expected, "{text}");
        }
    }
}
