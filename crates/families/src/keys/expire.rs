//! EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT: setting a key's deadline.

use crate::expiry::{Conditions, Unit};
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal};

/// `EXPIRE key seconds [NX | XX | GT | LT]`: sets the deadline of `key`, counted from now.
///
/// A deadline in the past removes the key. Reply: 1, or 0 when the key is absent or a condition
/// does not hold. Refusals: an unknown option or two that contradict each other, `NotAnInteger`,
/// `InvalidExpire` when the time is out of range. Cost: O(1).
/// Source: <https://redis.io/commands/expire> (1.0.0, options 7.0.0).
pub(super) fn expire(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    set(cx, args, Unit::Seconds, "expire")
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`: as EXPIRE.
/// Source: <https://redis.io/commands/pexpire> (2.6.0).
pub(super) fn pexpire(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    set(cx, args, Unit::Millis, "pexpire")
}

/// `EXPIREAT key unix-time-seconds [NX | XX | GT | LT]`: as EXPIRE, at an absolute time.
/// Source: <https://redis.io/commands/expireat> (1.2.0).
pub(super) fn expireat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    set(cx, args, Unit::UnixSeconds, "expireat")
}

/// `PEXPIREAT key unix-time-milliseconds [NX | XX | GT | LT]`: as EXPIRE, at an absolute time.
/// Source: <https://redis.io/commands/pexpireat> (2.6.0).
pub(super) fn pexpireat(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    set(cx, args, Unit::UnixMillis, "pexpireat")
}

fn set(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    unit: Unit,
    command: &'static str,
) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let amount = args.bytes()?;
    let conditions = Conditions::parse_all(args)?;
    let amount = number::parse_i64(amount).ok_or(Refusal::NotAnInteger)?;
    let at = unit.absolute(amount, cx.now).ok_or(Refusal::InvalidExpire(command.into()))?;
    let at = u64::try_from(at).unwrap_or(0); // A time before 1970 has passed in any case.

    let old = cx.db.read(&key).map(|found| found.deadline());
    let allowed = old.is_some_and(|old| conditions.allow(old, at));
    if allowed {
        if at > cx.now {
            cx.db.set_deadline(&key, Some(at));
        } else {
            cx.db.remove(&key);
        }
    }
    cx.reply.int(i64::from(allowed));
    Ok(Flow::Done)
}
