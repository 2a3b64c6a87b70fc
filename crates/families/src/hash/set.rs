//! Setting and removing fields: HSET, HMSET, HSETNX, HDEL.

use super::edit::{Answer, Change, Plan};
use super::value::Hash;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Deadline;

/// `HSET key field value [field value ...]`: sets fields, and removes their deadlines.
///
/// Reply: integer, the number of new fields. Refusals: a field without its value, `WrongType`.
/// Cost: O(fields named), in slices when they are many.
/// Source: <https://redis.io/commands/hset> (2.0.0).
pub(super) fn hset(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    pairs(cx, args, Answer::Count, "hset")
}

/// `HMSET key field value [field value ...]`: as HSET, but the reply is `OK`.
///
/// Source: <https://redis.io/commands/hmset> (2.0.0).
pub(super) fn hmset(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    pairs(cx, args, Answer::Ok, "hmset")
}

fn pairs(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    answer: Answer,
    name: &'static str,
) -> Result<Flow, Refusal> {
    let key = args.key()?;
    if !args.left().is_multiple_of(2) {
        return Err(Refusal::Arity(name.into()));
    }
    let plan = Plan::new(Change::Set(Deadline::Clear), answer);
    if args.left() > 2 || args.all().is_owned() {
        return plan.run(cx, &key, args);
    }
    // One field, the usual case. Arguments in the parser's buffer are short.
    let (field, value) = (args.key()?, args.value()?);
    let is_new =
        cx.db.edit::<Hash, _>(&key, true, |edit| edit.put(&field, value, Deadline::Clear))?;
    plan.conclude(&mut cx.reply, usize::from(is_new == Some(true)));
    Ok(Flow::Done)
}

/// `HSETNX key field value`: sets a field if it is absent.
///
/// Reply: 1 when it was set, else 0. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/hsetnx> (2.0.0).
pub(super) fn hsetnx(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, field, value, now) = (args.key()?, args.bytes()?, args.value()?, cx.now);
    let set = cx.db.edit::<Hash, _>(&key, true, |edit| {
        edit.hash().get(field, now).is_none() && edit.set(field, value, Deadline::Clear)
    })?;
    cx.reply.int(i64::from(set == Some(true)));
    Ok(Flow::Done)
}

/// `HDEL key field [field ...]`: removes fields.
///
/// Reply: integer, the number of fields removed. Refusals: `WrongType`. Cost: O(fields named), in
/// slices when they are many. Source: <https://redis.io/commands/hdel> (2.0.0).
pub(super) fn hdel(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    Plan::new(Change::Remove, Answer::Count).run(cx, &key, args)
}
