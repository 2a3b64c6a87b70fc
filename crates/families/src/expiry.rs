//! Expire times as arguments: their units, limits and conditions.
//!
//! Commands of strings, hashes, sets and keys share these words, but not the limits: SET wants a
//! positive time, HEXPIRE a non-negative one, EXPIRE any, and Dragonfly's dialect 1 to 2^28-1
//! seconds.

use crate::option_names;
use darter_base::{UnixMillis, number};
use darter_command::{Args, Refusal};

/// Longest time to live in Dragonfly's dialect, in seconds.
const SECONDS_MAX: i64 = (1 << 28) - 1;

/// The unit of an expire time, and whether it is relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Seconds from now: EX, EXPIRE.
    Seconds,
    /// Milliseconds from now: PX, PEXPIRE.
    Millis,
    /// A Unix time in seconds: EXAT, EXPIREAT.
    UnixSeconds,
    /// A Unix time in milliseconds: PXAT, PEXPIREAT.
    UnixMillis,
}

impl Unit {
    /// The unit named by an option of SET and the like, in any case.
    pub(crate) fn of_option(word: &[u8]) -> Option<Self> {
        let names = [
            ("EX", Self::Seconds),
            ("PX", Self::Millis),
            ("EXAT", Self::UnixSeconds),
            ("PXAT", Self::UnixMillis),
        ];
        option_names::meaning(word, &names)
    }

    /// The absolute time of `amount` in this unit at `now`; `None` on overflow. The time may be in
    /// the past, even before 1970.
    pub(crate) fn absolute(self, amount: i64, now: UnixMillis) -> Option<i64> {
        let now = i64::try_from(now).ok()?;
        match self {
            Self::Seconds => amount.checked_mul(1_000)?.checked_add(now),
            Self::Millis => amount.checked_add(now),
            Self::UnixSeconds => amount.checked_mul(1_000),
            Self::UnixMillis => Some(amount),
        }
    }
}

/// The deadline given by an option of `command` (lower case): `text` must be a positive integer.
///
/// Errors: `NotAnInteger`, `InvalidExpire` for zero, negatives and overflow.
pub(crate) fn positive_deadline(
    unit: Unit,
    text: &[u8],
    now: UnixMillis,
    command: &'static str,
) -> Result<UnixMillis, Refusal> {
    let amount = number::parse_i64(text).ok_or(Refusal::NotAnInteger)?;
    let invalid = || Refusal::InvalidExpire(command.into());
    if amount <= 0 {
        return Err(invalid());
    }
    let at = unit.absolute(amount, now).ok_or_else(invalid)?;
    UnixMillis::try_from(at).map_err(|_| invalid())
}

/// The deadline given by `text` in seconds in Dragonfly's dialect.
///
/// Errors: `NotAnInteger`, also for a time out of range.
pub(crate) fn seconds(text: &[u8], now: UnixMillis) -> Result<UnixMillis, Refusal> {
    let seconds = number::parse_i64(text).filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    let seconds = seconds.ok_or(Refusal::NotAnInteger)?;
    Ok(now.saturating_add(seconds.unsigned_abs() * 1_000))
}

/// Conditions for setting a deadline: NX, XX, GT, LT. No deadline counts as the latest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// Only if there is no deadline.
    nx: bool,
    /// Only if there is a deadline.
    xx: bool,
    /// Only if the new deadline is later.
    gt: bool,
    /// Only if the new deadline is earlier.
    lt: bool,
}

impl Conditions {
    /// Sets a deadline unconditionally.
    pub(crate) const NONE: Self = Self { nx: false, xx: false, gt: false, lt: false };

    /// Reads one of the words, if it comes next. For commands on fields, which take one condition.
    pub(crate) fn parse_one(args: &mut Args<'_>) -> Self {
        let one = args.peek_word().and_then(Self::of_option);
        if one.is_some() {
            args.next();
        }
        one.unwrap_or(Self::NONE)
    }

    /// Reads all remaining arguments. For commands on keys, which take several conditions.
    ///
    /// Errors: an unknown word, or two that contradict each other.
    pub(crate) fn parse_all(mut args: Args<'_>) -> Result<Self, Refusal> {
        let mut all = Self::NONE;
        while let Ok(word) = args.word() {
            let Some(one) = Self::of_option(word) else {
                return Err(Refusal::quoting("ERR Unsupported option ", word, ""));
            };
            all = all.and(one);
        }
        if all.nx && (all.xx || all.gt || all.lt) {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(Refusal::line(text));
        }
        if all.gt && all.lt {
            let text = "ERR GT and LT options at the same time are not compatible";
            return Err(Refusal::line(text));
        }
        Ok(all)
    }

    fn of_option(word: &[u8]) -> Option<Self> {
        let none = Self::NONE;
        let names = [
            ("NX", Self { nx: true, ..none }),
            ("XX", Self { xx: true, ..none }),
            ("GT", Self { gt: true, ..none }),
            ("LT", Self { lt: true, ..none }),
        ];
        option_names::meaning(word, &names)
    }

    fn and(self, other: Self) -> Self {
        Self {
            nx: self.nx || other.nx,
            xx: self.xx || other.xx,
            gt: self.gt || other.gt,
            lt: self.lt || other.lt,
        }
    }

    /// True if the deadline `old` may become `new`.
    pub(crate) fn allow(self, old: Option<UnixMillis>, new: UnixMillis) -> bool {
        !(self.nx && old.is_some()
            || self.xx && old.is_none()
            || self.gt && old.is_none_or(|old| new <= old)
            || self.lt && old.is_some_and(|old| new >= old))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_resp as resp;
    use std::sync::Arc;

    fn parse(words: &[&str]) -> Result<Conditions, Refusal> {
        let request = Arc::new(resp::Request::from_args(words.iter().map(|word| word.as_bytes())));
        Conditions::parse_all(Args::new(resp::Args::owned(&request), 0))
    }

    #[test]
    fn contradicting_conditions_are_refused() {
        assert_eq!(parse(&[]), Ok(Conditions::NONE));
        let both = Conditions { xx: true, gt: true, ..Conditions::NONE };
        assert_eq!(parse(&["xx", "Gt", "XX"]), Ok(both));
        for words in [&["nx", "xx"][..], &["gt", "lt"], &["lt", "nx"], &["nx", "what"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }

    #[test] // Rows: the conditions, the old deadline, whether 100 may replace it.
    fn a_missing_deadline_counts_as_the_latest() {
        #[rustfmt::skip] // A table.
        let cases: &[(&[&str], Option<u64>, bool)] = &[
            (&[], None, true),       (&[], Some(5), true),
            (&["NX"], None, true),   (&["NX"], Some(5), false),
            (&["XX"], None, false),  (&["XX"], Some(5), true),
            (&["GT"], None, false),  (&["GT"], Some(99), true),   (&["GT"], Some(100), false),
            (&["LT"], None, true),   (&["LT"], Some(100), false), (&["LT"], Some(101), true),
            (&["XX", "LT"], None, false),
        ];
        for (words, old, expected) in cases {
            let conditions = parse(words).expect("they fit each other");
            assert_eq!(conditions.allow(*old, 100), *expected, "{words:?} {old:?}");
        }
    }

    #[test]
    fn seconds_have_the_same_bounds_as_in_dragonfly() {
        let now = 1_000;
        for refused in ["0", "-1", "268435456", "FIELDS"] {
            assert_eq!(seconds(refused.as_bytes(), now), Err(Refusal::NotAnInteger));
        }
        assert_eq!(seconds(b"268435455", now), Ok(268_435_456_000));
    }
}
