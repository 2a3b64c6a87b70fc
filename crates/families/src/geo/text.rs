//! Coordinates and distances as Redis writes them: exact decimals with a fixed number of digits.

use arrayvec::ArrayString;
use darter_base::number::{I64_TEXT_MAX, i64_text};
use std::fmt::Write as _;

/// Room for the longest text: a number of 309 digits, and the digits after the point.
type Text = ArrayString<336>;

/// Digits of a coordinate after the point.
const COORDINATE_DIGITS: u32 = 17;
/// Digits of a distance after the point.
const DISTANCE_DIGITS: u32 = 4;

/// A coordinate as written by `%.17Lf`, without trailing zeros; -0 becomes 0.
pub(super) fn coordinate(degrees: f64) -> Text {
    let mut text = decimal(degrees, COORDINATE_DIGITS);
    let len = text.trim_end_matches('0').trim_end_matches('.').len();
    text.truncate(len);
    if text.as_str() == "-0" { decimal(0.0, 0) } else { text }
}

/// A distance, as `%.4f` writes it.
pub(super) fn distance(distance: f64) -> Text {
    decimal(distance, DISTANCE_DIGITS)
}

/// A number with at most 18 digits after the point, rounded to even as in C.
fn decimal(number: f64, digits: u32) -> Text {
    /// Numbers from here on have no bits after the point.
    const WHOLE: f64 = (1_u64 << 52) as f64;
    let mut text = Text::new();
    if number.is_sign_negative() {
        text.push('-');
    }
    if number.is_nan() {
        text.push_str("nan");
        return text;
    }
    let amount = number.abs();
    if amount >= WHOLE || digits == 0 {
        // Infinity is written as `inf` here, too.
        write!(text, "{amount:.*}", digits as usize).expect("there is room for the longest");
        return text;
    }
    let scale = 10_u64.pow(digits);
    let whole = amount.trunc();
    let (mut whole, mut fraction) = (whole as u64, scaled(amount - whole, scale));
    if fraction == scale {
        (whole, fraction) = (whole + 1, 0);
    }
    push_digits(&mut text, whole);
    let point = text.len();
    // A leading 1 keeps the zeros; the point then replaces it.
    push_digits(&mut text, scale + fraction);
    with_point(&text, point)
}

/// `fraction` times `scale`, rounded to even. `fraction` is below 1, and `scale` at most 10^18.
fn scaled(fraction: f64, scale: u64) -> u64 {
    const MANTISSA_BITS: u32 = 52;
    let bits = fraction.to_bits();
    let (exponent, mantissa) = (bits >> MANTISSA_BITS, bits & ((1 << MANTISSA_BITS) - 1));
    let (mantissa, shift) = if exponent == 0 {
        (mantissa, 1_074)
    } else {
        (mantissa | 1 << MANTISSA_BITS, 1_075 - exponent)
    };
    let product = u128::from(mantissa) * u128::from(scale); // Below 2^113.
    if shift >= 128 {
        return 0;
    }
    let kept = product >> shift;
    let (rest, half) = (product - (kept << shift), 1_u128 << (shift - 1));
    kept as u64 + u64::from(rest > half || rest == half && kept % 2 == 1)
}

fn push_digits(text: &mut Text, number: u64) {
    let mut digits = [0; I64_TEXT_MAX];
    let digits = i64_text(&mut digits, number.cast_signed());
    text.push_str(std::str::from_utf8(digits).unwrap_or_default());
}

/// The text with a point instead of the character at `at`.
fn with_point(text: &Text, at: usize) -> Text {
    let mut pointed = Text::new();
    pointed.push_str(&text[..at]);
    pointed.push('.');
    pointed.push_str(&text[at + 1..]);
    pointed
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;
    use darter_base::extended;

    #[test] // And those of INCRBYFLOAT.
    fn decimals_equal_those_of_the_standard_library() {
        let mut prng = Prng::from_seed(4);
        for _ in 0..100_000 {
            let share = prng.below(1 << 53) as f64 / (1_u64 << 53) as f64;
            let size = 10_f64.powi(prng.below(22) as i32 - 12);
            let number = (share - 0.5) * size;
            assert_eq!(decimal(number, 4).as_str(), format!("{number:.4}"));
            assert_eq!(decimal(number, 17).as_str(), format!("{number:.17}"));
            let read = extended::parse(format!("{number:?}").as_bytes());
            if number == number.trunc() {
                assert_eq!(
                    read.map(extended::format).as_deref(),
                    Some(coordinate(number).as_str())
                );
            }
        }
        let cases: &[(f64, &str, &str)] = &[
            (0.0, "0.0000", "0"),
            (-0.0, "-0.0000", "0"),
            (0.03125, "0.0312", "0.03125"),
            (0.09375, "0.0938", "0.09375"),
            (-1e-30, "-0.0000", "0"),
            (0.99999, "1.0000", "0.99999000000000005"),
            (180.0, "180.0000", "180"),
            (166274.15156960033, "166274.1516", "166274.15156960033345968"),
            (1e300, &format!("{:.4}", 1e300), &format!("{:.0}", 1e300)),
            (f64::INFINITY, "inf", "inf"),
            (f64::NAN, "nan", "nan"),
            (-f64::NAN, "-nan", "-nan"),
            (5e-324, "0.0000", "0"),
        ];
        for (number, short, long) in cases {
            assert_eq!(distance(*number).as_str(), *short);
            assert_eq!(coordinate(*number).as_str(), *long);
        }
    }
}
