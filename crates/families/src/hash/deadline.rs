//! Deadlines of fields: HEXPIRE, HPEXPIRE, HEXPIREAT, HPEXPIREAT, HPERSIST, and the arguments that
//! other commands with deadlines share.

use super::edit::{Answer, Change, Plan};
use super::value::Hash;
use crate::expiry::{Conditions, Unit};
use darter_base::{UnixMillis, number};
use darter_command::{Args, Cx, Flow, Refusal};

/// Latest deadline of a field, as in Redis.
const DEADLINE_MAX: UnixMillis = (1 << 46) - 1;

/// `HEXPIRE key seconds [NX | XX | GT | LT] FIELDS count field [field ...]`: sets fields to expire
/// in this many seconds.
///
/// Reply: array with a code for each field: 1 done, 0 condition not met, 2 removed because the time
/// has passed, -2 no such field. Refusals: `WrongType`, `NotAnInteger`, a negative time,
/// `InvalidExpire`, `FIELDS` missing, a count that differs from the number of fields, in this
/// order. Cost: O(fields named), in slices when they are many. Source:
/// <https://redis.io/commands/hexpire> (7.4.0).
pub(super) fn hexpire(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    expire(cx, args, Unit::Seconds, "hexpire")
}

/// `HPEXPIRE key milliseconds ...`: as HEXPIRE. Source: <https://redis.io/commands/hpexpire>
/// (7.4.0).
pub(super) fn hpexpire(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    expire(cx, args, Unit::Millis, "hpexpire")
}

/// `HEXPIREAT key unix-seconds ...`: as HEXPIRE. Source: <https://redis.io/commands/hexpireat>
/// (7.4.0).
pub(super) fn hexpireat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    expire(cx, args, Unit::UnixSeconds, "hexpireat")
}

/// `HPEXPIREAT key unix-milliseconds ...`: as HEXPIRE.
///
/// Source: <https://redis.io/commands/hpexpireat> (7.4.0).
pub(super) fn hpexpireat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    expire(cx, args, Unit::UnixMillis, "hpexpireat")
}

fn expire(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    unit: Unit,
    name: &'static str,
) -> Result<Flow, Refusal> {
    let key = args.key()?;
    cx.db.read_value::<Hash>(&key)?;
    let at = deadline(unit, args.bytes()?, cx.now, name)?;
    let conditions = Conditions::parse_one(&mut args);
    fields(&mut args, "ERR Parameter `numFields` should be greater than 0")?;
    Plan::new(Change::Expire(at, conditions), Answer::Codes).run(cx, &key, args)
}

/// `HPERSIST key FIELDS count field [field ...]`: removes the deadlines of fields.
///
/// Reply: array with a code for each field: 1 done, -1 the field has no deadline, -2 no such field.
/// Refusals: `WrongType`, `FIELDS` missing, a count that does not fit. Cost: as HEXPIRE.
/// Source: <https://redis.io/commands/hpersist> (7.4.0).
pub(super) fn hpersist(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    cx.db.read_value::<Hash>(&key)?;
    fields(&mut args, COUNT_REFUSED)?;
    Plan::new(Change::Persist, Answer::Codes).run(cx, &key, args)
}

/// The family's usual error for an invalid count.
pub(super) const COUNT_REFUSED: &str = "ERR Number of fields must be a positive integer";

/// Reads `FIELDS count` and checks that `count` fields follow. `refused` is the error for a count
/// that is not a positive integer.
pub(super) fn fields(args: &mut Args<'_>, refused: &'static str) -> Result<(), Refusal> {
    if !args.option("FIELDS") {
        return Err(Refusal::line(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = args.next().and_then(number::parse_i64).filter(|count| *count > 0);
    let count = count.ok_or(Refusal::line(refused))?;
    if usize::try_from(count) == Ok(args.left()) { Ok(()) } else { Err(mismatch()) }
}

/// The error for a count that differs from the number of fields.
pub(super) fn mismatch() -> Refusal {
    Refusal::line("ERR The `numfields` parameter must match the number of arguments")
}

/// The deadline given by `text` in `unit`, for `command`. It may be in the past.
///
/// Errors: `NotAnInteger`, a negative time, `InvalidExpire` for a time beyond Redis's limit.
pub(super) fn deadline(
    unit: Unit,
    text: &[u8],
    now: UnixMillis,
    command: &'static str,
) -> Result<UnixMillis, Refusal> {
    let amount = number::parse_i64(text).ok_or(Refusal::NotAnInteger)?;
    if amount < 0 {
        return Err(Refusal::line("ERR invalid expire time, must be >= 0"));
    }
    let at = unit.absolute(amount, now).and_then(|at| UnixMillis::try_from(at).ok());
    at.filter(|at| *at <= DEADLINE_MAX).ok_or_else(|| Refusal::InvalidExpire(command.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_beyond_redis_limits_are_refused() {
        let now = 1_000;
        let read = |unit, text: &str| deadline(unit, text.as_bytes(), now, "hexpire");
        let invalid = || Err(Refusal::InvalidExpire("hexpire".into()));
        assert_eq!(read(Unit::Seconds, "2"), Ok(3_000));
        assert_eq!(read(Unit::Millis, "0"), Ok(1_000));
        assert_eq!(read(Unit::UnixSeconds, "0"), Ok(0));
        assert_eq!(read(Unit::UnixMillis, "70368744177663"), Ok(DEADLINE_MAX));
        assert_eq!(read(Unit::UnixMillis, "70368744177664"), invalid());
        assert_eq!(read(Unit::Millis, "70368744177663"), invalid());
        assert_eq!(read(Unit::Seconds, "9223372036854775807"), invalid());
        assert_eq!(read(Unit::Seconds, "x"), Err(Refusal::NotAnInteger));
        let negative = read(Unit::Seconds, "-1");
        assert_eq!(negative, Err(Refusal::line("ERR invalid expire time, must be >= 0")));
    }
}
