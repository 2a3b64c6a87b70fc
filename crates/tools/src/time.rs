//! Times as operators read and write them: on the clock of this machine's time zone.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};

/// The date, the time and the offset of a time in Unix milliseconds.
pub(crate) fn show(unix_ms: u64) -> String {
    show_in(unix_ms, &TimeZone::system())
}

fn show_in(unix_ms: u64, zone: &TimeZone) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(
        || format!("{unix_ms} ms"),
        |time| {
            time.to_zoned_datetime(zone.clone()).strftime("%Y-%m-%d %H:%M:%S%.3f%:z").to_string()
        },
    )
}

/// Reads a time: Unix seconds, `HH:MM:SS` of today, `YYYY-MM-DD HH:MM:SS`, or the latter with an
/// offset. Returns Unix milliseconds.
///
/// Errors: a sentence.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    parse_at(text, &ZonedDateTime::now())
}

fn parse_at(text: &str, now: &ZonedDateTime) -> Result<u64, String> {
    let wrong = || {
        format!(
            "'{text}' is no time: give 'HH:MM:SS' (today), 'YYYY-MM-DD HH:MM:SS', or Unix seconds"
        )
    };
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        let seconds: f64 = text.parse().map_err(|_| wrong())?;
        return Ok((seconds * 1_000.0).round() as u64);
    }
    let local = |time: DateTime| {
        time.to_zoned_datetime(now.time_zone().clone()).map(|time| time.timestamp())
    };
    let time = if let Ok(time) = text.parse::<Timestamp>() {
        time
    } else if text.contains('-') {
        let time = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from));
        local(time.map_err(|_| wrong())?).map_err(|_| wrong())?
    } else {
        let time: Time = text.parse().map_err(|_| wrong())?;
        local(now.date().to_datetime(time)).map_err(|_| wrong())?
    };
    u64::try_from(time.as_millisecond()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    #[test]
    fn times_are_shown_with_their_offset() {
        assert_eq!(show_in(1_795_905_086_007, &berlin()), "2026-11-28 23:31:26.007+01:00");
        assert_eq!(show_in(1_782_000_000_000, &TimeZone::UTC), "2026-06-21 00:00:00.000+00:00");
        assert_eq!(show_in(u64::MAX, &TimeZone::UTC), "18446744073709551615 ms");
    }

    #[test]
    fn times_are_read_in_every_form() {
        let now = Timestamp::from_second(1_795_905_086).unwrap().to_zoned_datetime(berlin());
        let ms = 1_795_905_086_000;
        for (text, wanted) in [
            ("23:31:26", ms),
            ("23:31:26.5", ms + 500),
            ("23:31", ms - 26_000),
            ("2026-11-28 23:31:26", ms),
            ("2026-11-28T23:31:26", ms),
            ("2026-11-28T22:31:26Z", ms),
            ("2026-11-28 23:31:26.000+01:00", ms),
            ("2026-11-28", 1_795_820_400_000),
            ("1795905086", ms),
            ("1795905086.25", ms + 250),
        ] {
            assert_eq!(parse_at(text, &now), Ok(wanted), "{text}");
        }
        for text in ["", "yesterday", "25:00:00", "2026-13-01", "-5", "1.2.3", "1969-01-01"] {
            let wrong = parse_at(text, &now).unwrap_err();
            assert!(wrong.contains("is no time"), "{text}: {wrong}");
        }
    }

    #[test]
    fn shown_times_are_read_again() {
        let (now, ms) = (ZonedDateTime::now(), 1_795_905_086_007);
        assert_eq!(parse_at(&show_in(ms, &berlin()), &now), Ok(ms));
    }
}
