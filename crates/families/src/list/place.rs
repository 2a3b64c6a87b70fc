//! Changes by index: LSET, LTRIM.

use super::read::{index, range};
use super::value::List;
use darter_command::{Args, Cx, Flow, Refusal};

/// `LSET key index element`: replaces the element at an index.
///
/// Reply: OK. Refusals: `NoSuchKey`, `WrongType`, `NotAnInteger`, an index out of range.
/// Cost: O(log n). Source: <https://redis.io/commands/lset> (1.0.0).
pub(super) fn lset(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    if cx.db.read_value::<List>(&key)?.is_none() {
        return Err(Refusal::NoSuchKey);
    }
    let (at, element) = (args.int()?, args.value()?);
    let is_set = cx.db.edit::<List, _>(&key, false, |edit| {
        index(at, edit.elements().len()).is_some_and(|at| edit.set(at, element))
    })?;
    if is_set != Some(true) {
        return Err(Refusal::line("ERR index out of range"));
    }
    cx.reply.ok();
    Ok(Flow::Done)
}

/// `LTRIM key start stop`: keeps only the elements from `start` to `stop`.
///
/// Reply: OK. Refusals: `NotAnInteger`, `WrongType`. Cost: O(log n); the removed elements are freed
/// later. Source: <https://redis.io/commands/ltrim> (1.0.0).
pub(super) fn ltrim(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, start, stop) = (args.key()?, args.int()?, args.int()?);
    cx.db.edit::<List, _>(&key, false, |edit| {
        edit.keep(range(start, stop, edit.elements().len()));
    })?;
    cx.reply.ok();
    Ok(Flow::Done)
}
