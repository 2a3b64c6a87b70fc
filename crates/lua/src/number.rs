//! Reads and writes numbers as Lua does, which is as the C library does.

use crate::ffi;
use std::ffi::{CStr, c_char};

/// The longest text of a number that is read. Longer texts are read up to this length.
const TEXT_MAX: usize = 400;

/// A buffer for the text of a number.
pub type Buffer = [u8; 64];

/// The text of a number with `digits` significant digits, as C's `%.*g` writes it: `1e+15`, `-nan`,
/// `inf`.
#[must_use]
pub fn general(buffer: &mut Buffer, value: f64, digits: u8) -> &str {
    let start = buffer.as_mut_ptr().cast::<c_char>();
    let digits = i32::from(digits.min(40));
    // SAFETY: at most 64 bytes are written, with a NUL among them; 40 digits, a sign, a point and
    // an exponent are fewer.
    unsafe { ffi::lua_writenumber(start, buffer.len(), digits, value) };
    let text = CStr::from_bytes_until_nul(buffer).expect("the text ends with a NUL");
    text.to_str().expect("digits and letters")
}

/// The number at the start of `text`, and how many bytes it takes, as C's `strtod` finds it: also
/// `0x1p4`, `inf` and `nan`. 0 bytes where there is none.
#[must_use]
pub fn leading(text: &[u8]) -> (f64, usize) {
    if let Some(whole) = leading_whole(text) {
        return whole;
    }
    let mut buffer = [0_u8; TEXT_MAX + 1];
    let length = text.len().min(TEXT_MAX);
    buffer[..length].copy_from_slice(&text[..length]);
    let start = buffer.as_ptr().cast::<c_char>();
    let mut end = std::ptr::null_mut();
    // SAFETY: the text ends with a NUL; `end` is set to a place within it.
    let value = unsafe { ffi::strtod(start, &raw mut end) };
    (value, end.addr() - start.addr())
}

/// [`leading`] for a whole number of few digits: the common case, in a tenth of the time.
fn leading_whole(text: &[u8]) -> Option<(f64, usize)> {
    /// More digits may need rounding.
    const DIGITS_MAX: usize = 15;
    let start = usize::from(text.first() == Some(&b'-'));
    let digits = text[start..].iter().take(DIGITS_MAX + 1).take_while(|byte| byte.is_ascii_digit());
    let (count, magnitude) = digits
        .fold((0, 0_u64), |(count, sum), digit| (count + 1, sum * 10 + u64::from(digit - b'0')));
    let end = start + count;
    let goes_on = matches!(text.get(end), Some(b'.' | b'e' | b'E' | b'x' | b'X'));
    if goes_on || !(1..=DIGITS_MAX).contains(&count) {
        return None;
    }
    let magnitude = magnitude as f64;
    Some((if start == 1 { -magnitude } else { magnitude }, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: f64, digits: u8) -> String {
        general(&mut [0; 64], value, digits).to_owned()
    }

    #[test] // With the precisions that scripts see.
    fn numbers_are_written_as_by_c() {
        assert_eq!(written(1.0 / 3.0, 14), "0.33333333333333");
        assert_eq!(written(2_f64.powi(53), 14), "9.007199254741e+15");
        assert_eq!(written(0.1, 17), "0.10000000000000001");
        assert_eq!(written(f64::INFINITY, 17), "inf");
        assert_eq!(written(-f64::NAN, 17), "-nan");
    }

    #[test] // Around the bounds of the fast path.
    fn whole_numbers_are_written_as_by_c() {
        assert_eq!(written(0.0, 14), "0");
        assert_eq!(written(-0.0, 14), "-0");
        assert_eq!(written(-70.0, 17), "-70");
        assert_eq!(written(99_999_999_999_999.0, 14), "99999999999999");
        assert_eq!(written(-99_999_999_999_999.0, 14), "-99999999999999");
        assert_eq!(written(1e14, 14), "1e+14");
        assert_eq!(written(1e14 - 0.5, 14), "1e+14");
        assert_eq!(written(2_f64.powi(53) + 2.0, 17), "9007199254740994");
        assert_eq!(written(99_999_999_999_999_984.0, 17), "99999999999999984");
        assert_eq!(written(1e17, 17), "1e+17");
        assert_eq!(written(-1e17, 17), "-1e+17");
        assert_eq!(written(7.0, 1), "7");
        assert_eq!(written(12.0, 1), "1e+01");
    }

    #[test] // With its length.
    fn a_number_at_the_start_of_a_text_is_parsed() {
        assert_eq!(leading(b"12.5e1]"), (125.0, 6));
        assert_eq!(leading(b"0x10"), (16.0, 4));
        assert_eq!(leading(b"-inf,"), (f64::NEG_INFINITY, 4));
        assert_eq!(leading(b"x").1, 0);
        assert_eq!(leading(b"").1, 0);
    }

    #[test] // Around the bounds of the fast path.
    fn a_whole_number_at_the_start_of_a_text_is_parsed() {
        assert_eq!(leading(b"12"), (12.0, 2));
        assert_eq!(leading(b"-012,5"), (-12.0, 4));
        assert_eq!(leading(b"3e2"), (300.0, 3));
        assert_eq!(leading(b"999999999999999"), (999_999_999_999_999.0, 15));
        assert_eq!(leading(b"9223372036854775807"), (9_223_372_036_854_775_808.0, 19));
        assert_eq!(leading(b"-").1, 0);
        assert!(leading(b"-0").0.is_sign_negative());
    }
}
