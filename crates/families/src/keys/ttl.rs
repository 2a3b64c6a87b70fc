//! TTL, PTTL, EXPIRETIME, PEXPIRETIME, PERSIST: reading and removing deadlines.

use darter_command::{Args, Cx, Flow, Refusal};

/// Replies for a key without a deadline, and for an absent one.
const NO_DEADLINE: i64 = -1;
const ABSENT: i64 = -2;

/// `TTL key`: the remaining seconds of `key`, rounded.
///
/// Reply: integer; -1 without a deadline, -2 when the key is absent. Refusals: none. Cost: O(1).
/// Source: <https://redis.io/commands/ttl> (1.0.0).
pub(super) fn ttl(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    read(cx, args, |deadline, now| seconds(deadline.saturating_sub(now)))
}

/// `PTTL key`: the remaining milliseconds of `key`. Otherwise as TTL.
/// Source: <https://redis.io/commands/pttl> (2.6.0).
pub(super) fn pttl(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    read(cx, args, u64::saturating_sub)
}

/// `EXPIRETIME key`: the Unix time, in seconds, rounded, at which `key` expires. Otherwise as TTL.
/// Source: <https://redis.io/commands/expiretime> (7.0.0).
pub(super) fn expiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    read(cx, args, |deadline, _| seconds(deadline))
}

/// `PEXPIRETIME key`: the Unix time, in milliseconds, at which `key` expires. Otherwise as TTL.
/// Source: <https://redis.io/commands/pexpiretime> (7.0.0).
pub(super) fn pexpiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    read(cx, args, |deadline, _| deadline)
}

/// `PERSIST key`: removes the deadline of `key`.
///
/// Reply: 1, or 0 when the key is absent or has no deadline. Refusals: none. Cost: O(1).
/// Source: <https://redis.io/commands/persist> (2.2.0).
pub(super) fn persist(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    args.end()?;

    let has_deadline = cx.db.read(&key).is_some_and(|found| found.deadline().is_some());
    if has_deadline {
        cx.db.set_deadline(&key, None);
    }
    cx.reply.int(i64::from(has_deadline));
    Ok(Flow::Done)
}

fn read(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    show: impl FnOnce(u64, u64) -> u64,
) -> Result<Flow, Refusal> {
    let key = args.key()?;
    args.end()?;

    let now = cx.now;
    let value = match cx.peek(&key).map(|found| found.deadline()) {
        None => ABSENT,
        Some(None) => NO_DEADLINE,
        Some(Some(deadline)) => i64::try_from(show(deadline, now)).unwrap_or(i64::MAX),
    };
    cx.reply.int(value);
    Ok(Flow::Done)
}

/// Converts milliseconds to seconds, rounded to the nearest.
fn seconds(ms: u64) -> u64 {
    ms.saturating_add(500) / 1_000
}
