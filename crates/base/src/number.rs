//! Integers and floating-point numbers as Redis reads and writes them.

/// Longest text of an `i64`: a sign and 19 digits.
pub const I64_TEXT_MAX: usize = 20;

/// Reads a canonical decimal integer: no spaces, no plus, no leading zeros, nothing behind it.
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
        magnitude = magnitude * 10 + u64::from(value); // 19 digits stay below 2^64.
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

/// Appends the decimal text of `value`.
pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    let mut text = [0_u8; I64_TEXT_MAX];
    out.extend_from_slice(i64_text(&mut text, value));
}

/// The decimal text of `value`, written into `text` from its end.
pub fn i64_text(text: &mut [u8; I64_TEXT_MAX], value: i64) -> &[u8] {
    let mut at = I64_TEXT_MAX;
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        text[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        text[at] = b'-';
    }
    &text[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_integers_round_trip() {
        for value in [0, 1, -1, 9, 10, -10, i64::MAX, i64::MIN, i64::MIN + 1, 1 << 62] {
            let text = value.to_string();
            assert_eq!(parse_i64(text.as_bytes()), Some(value), "{text}");
            let mut out = Vec::new();
            write_i64(&mut out, value);
            assert_eq!(out, text.as_bytes());
        }
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in ["", "-", "-0", "+1", "01", " 1", "1 ", "1.0", "9223372036854775808", "a"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_i64(b"-9223372036854775809"), None);
        assert_eq!(parse_u64(b"18446744073709551616"), None);
    }
}
