//! Timeouts, as arguments.

use darter_base::{extended, score};
use darter_command::{Args, Patience, Refusal};

const NEGATIVE: &str = "ERR timeout is negative";
const OUT_OF_RANGE: &str = "ERR timeout is out of range";

/// A timeout in seconds, up to a millisecond more: 0 is for ever.
pub(crate) fn seconds(word: &[u8]) -> Result<Patience, Refusal> {
    /// Larger ones do not fit the milliseconds of a clock.
    const SECONDS_MAX: f64 = (i64::MAX / 1_000) as f64;
    let text = "ERR timeout is not a float or out of range";
    let number = extended::parse(word).ok_or(Refusal::line(text))?;
    if number.is_zero() {
        return Ok(Patience::Endless);
    }
    if number.is_negative() {
        return Err(Refusal::line(NEGATIVE));
    }
    // A number that overflows a double is too large, and one that underflows is as good as zero.
    let is_large = number > extended::parse(b"1").unwrap_or(number);
    let seconds = score::parse(word).unwrap_or(if is_large { f64::INFINITY } else { 0.0 });
    if seconds >= SECONDS_MAX {
        return Err(Refusal::line(OUT_OF_RANGE));
    }
    Ok(Patience::Millis(((seconds * 1_000.0).ceil() as u64).max(1)))
}

/// The next argument as a timeout in milliseconds: 0 is for ever.
pub(crate) fn milliseconds(args: &mut Args<'_>) -> Result<Patience, Refusal> {
    let text = "ERR timeout is not an integer or out of range";
    let millis = args.int().map_err(|_| Refusal::line(text))?;
    match u64::try_from(millis) {
        Err(_) => Err(Refusal::line(NEGATIVE)),
        Ok(0) => Ok(Patience::Endless),
        Ok(millis) => Ok(Patience::Millis(millis)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_redis_does() {
        let text = |read: Result<Patience, Refusal>| match read {
            Ok(Patience::None) => "not at all".to_owned(),
            Ok(Patience::Endless) => "for ever".to_owned(),
            Ok(Patience::Millis(millis)) => millis.to_string(),
            Err(refusal) => String::from_utf8_lossy(&refusal.text()).into_owned(),
        };
        let no_float = "ERR timeout is not a float or out of range";
        #[rustfmt::skip] // A table.
        let cases: &[(&str, &str)] = &[
            ("0", "for ever"), ("0.0", "for ever"), ("-0", "for ever"), ("1", "1000"), (".5", "500"),
            ("0x1", "1000"), ("0.0001", "1"), ("1e-400", "1"), ("1.0001", "1001"), ("1e3", "1000000"),
            ("-1", NEGATIVE), ("-0.001", NEGATIVE), ("inf", OUT_OF_RANGE), ("1e20", OUT_OF_RANGE),
            ("1e400", OUT_OF_RANGE), ("9223372036854775807", OUT_OF_RANGE),
            ("nan", no_float), ("", no_float), (" 1", no_float), ("1s", no_float),
        ];
        for (word, expected) in cases {
            assert_eq!(text(seconds(word.as_bytes())), *expected, "{word}");
        }
    }
}
