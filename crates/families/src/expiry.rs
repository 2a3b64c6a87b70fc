//! Expire times as arguments, shared by strings, hashes and keys.

use darter_base::{UnixMillis, number};
use darter_command::Refusal;

/// How an expire time is given.
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
    /// The unit that an option of SET and its like names, in any case.
    pub(crate) fn of_option(word: &[u8]) -> Option<Self> {
        [
            ("EX", Self::Seconds),
            ("PX", Self::Millis),
            ("EXAT", Self::UnixSeconds),
            ("PXAT", Self::UnixMillis),
        ]
        .into_iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, unit)| unit)
    }

    /// The absolute time that `amount` of this unit means at `now`; `None` when it overflows. May
    /// lie in the past, even before 1970.
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

/// The deadline that an option of `command` (lower case) gives: `text` must be a positive integer.
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
