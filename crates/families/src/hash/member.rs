//! Deadlines of the entries of any collection, fields and members alike: FIELDTTL, FIELDEXPIRE.

use super::edit::{Answer, Change, Plan};
use crate::EXPIRE_ENTRIES;
use crate::code_replies::{NO_DEADLINE, reply_absent};
use crate::expiry::{Conditions, seconds};
use darter_base::UnixMillis;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Key;

/// `FIELDTTL key field`: the remaining seconds of a hash's field or a set's member.
///
/// Reply: integer, rounded up; -1 for no deadline, -2 for no such key, -3 for no such field.
/// Refusals: `WrongType`. Cost: O(1). Source: Dragonfly,
/// <https://www.dragonflydb.io/docs/command-reference>.
pub(super) fn fieldttl(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    const NO_KEY: i64 = -2;
    const NO_FIELD: i64 = -3;
    let (key, field, now) = (args.key()?, args.bytes()?, cx.now);
    let Some(found) = cx.find(&key) else {
        cx.reply.int(NO_KEY);
        return Ok(Flow::Done);
    };
    let deadline = found.deadline_of(field, now)?;
    let left = |at: UnixMillis| i64::try_from((at - now).div_ceil(1_000)).unwrap_or(i64::MAX);
    cx.reply.int(match deadline {
        None => NO_FIELD,
        Some(deadline) => deadline.map_or(i64::from(NO_DEADLINE), left),
    });
    Ok(Flow::Done)
}

/// `FIELDEXPIRE key seconds field [field ...]`: sets fields of a hash, or members of a set, to
/// expire in `seconds`, replacing any deadline.
///
/// Reply: array with a code for each: 1 done, -2 no such field, no such key, or a key of another
/// type. Refusals: `NotAnInteger` for a time that is invalid or out of range. Cost: O(fields
/// named), in slices when they are many. Source: Dragonfly,
/// <https://www.dragonflydb.io/docs/command-reference>.
pub(super) fn fieldexpire(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let at = seconds(args.bytes()?, cx.now)?;
    let kind = cx.db.read(&key).map(|found| found.kind());
    match EXPIRE_ENTRIES.iter().find(|(row, _)| kind == Some(*row)) {
        Some((_, expire)) => expire(cx, &key, args, at),
        None => Ok(reply_absent(&mut cx.reply, args.left())),
    }
}

/// Sets fields of a hash to expire at `at`. Reply: see [`fieldexpire`].
pub(crate) fn expire(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    args: Args<'_>,
    at: UnixMillis,
) -> Result<Flow, Refusal> {
    Plan::new(Change::Expire(at, Conditions::NONE), Answer::Codes).run(cx, key, args)
}
