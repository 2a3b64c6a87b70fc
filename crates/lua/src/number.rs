//! Numbers as Lua reads and writes them, which is as the C library does.

use crate::ffi;
use std::ffi::{CStr, c_char};

/// The longest text of a number that is read; longer ones are read up to there.
const TEXT_MAX: usize = 400;

/// A number with `digits` significant ones, as C's `%.*g` writes it: `1e+15`, `-nan`, `inf`.
#[must_use]
pub fn general(value: f64, digits: u8) -> String {
    let mut buffer = [0_u8; 64];
    let start = buffer.as_mut_ptr().cast::<c_char>();
    let digits = i32::from(digits.min(40));
    // SAFETY: at most 64 bytes are written, with a NUL among them; 40 digits, a sign, a point and
    // an exponent are fewer. The two arguments are an int and a double, as the format says.
    unsafe { ffi::snprintf(start, buffer.len(), c"%.*g".as_ptr(), digits, value) };
    let text = CStr::from_bytes_until_nul(&buffer).expect("snprintf ends with a NUL");
    String::from_utf8_lossy(text.to_bytes()).into_owned()
}

/// The number at the start of `text`, and how many bytes it takes, as C's `strtod` finds it: also
/// `0x1p4`, `inf` and `nan`. 0 bytes where there is none.
#[must_use]
pub fn leading(text: &[u8]) -> (f64, usize) {
    let mut buffer = [0_u8; TEXT_MAX + 1];
    let length = text.len().min(TEXT_MAX);
    buffer[..length].copy_from_slice(&text[..length]);
    let start = buffer.as_ptr().cast::<c_char>();
    let mut end = std::ptr::null_mut();
    // SAFETY: the text ends with a NUL; `end` is set to a place within it.
    let value = unsafe { ffi::strtod(start, &raw mut end) };
    (value, end.addr() - start.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // As C writes them, with the precisions that scripts see.
    fn numbers_are_written_as_c_writes_them() {
        assert_eq!(general(1.0 / 3.0, 14), "0.33333333333333");
        assert_eq!(general(2_f64.powi(53), 14), "9.007199254741e+15");
        assert_eq!(general(0.1, 17), "0.10000000000000001");
        assert_eq!(general(-0.0, 14), "-0");
        assert_eq!(general(f64::INFINITY, 17), "inf");
        assert_eq!(general(-f64::NAN, 17), "-nan");
    }

    #[test] // The number at the start of a text, and its length.
    fn leading_numbers_are_found() {
        assert_eq!(leading(b"12.5e1]"), (125.0, 6));
        assert_eq!(leading(b"0x10"), (16.0, 4));
        assert_eq!(leading(b"-inf,"), (f64::NEG_INFINITY, 4));
        assert_eq!(leading(b"x").1, 0);
        assert_eq!(leading(b"").1, 0);
    }
}
