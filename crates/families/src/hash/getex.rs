//! Commands that read fields and change them: HGETEX, HGETDEL.

use super::deadline::{COUNT_REFUSED, deadline, fields};
use super::edit::{Answer, Change, Plan};
use super::field::values;
use super::value::Hash;
use crate::expiry::{Conditions, Unit};
use darter_command::{Args, Cx, Flow, Refusal};

/// `HGETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST] FIELDS count field [field ...]`: returns
/// the values of fields, and sets their deadline. A deadline in the past removes them.
///
/// Reply: array of bulks and nulls. Refusals: `WrongType`, `NotAnInteger`, a negative time,
/// `InvalidExpire`, `FIELDS` missing, a count that differs from the number of fields, in this
/// order. Cost: O(fields named), in slices when they are many. Source:
/// <https://redis.io/commands/hgetex> (8.0.0).
pub(super) fn hgetex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    cx.db.read_value::<Hash>(&key)?;
    let change = if let Some(unit) = args.peek().and_then(Unit::of_option) {
        args.next();
        let at = deadline(unit, args.bytes()?, cx.now, "hgetex")?;
        Some(Change::Expire(at, Conditions::NONE))
    } else {
        args.option("PERSIST").then_some(Change::Persist)
    };
    fields(&mut args, COUNT_REFUSED)?;
    if let Some(change) = change {
        return Plan::new(change, Answer::Values).run(cx, &key, args);
    }
    let hash = cx.db.read_value::<Hash>(&key)?;
    cx.reply.array(args.left());
    Ok(values(&mut cx.reply, hash.as_deref(), args, cx.now))
}

/// `HGETDEL key FIELDS count field [field ...]`: returns the values of fields, and removes the
/// fields.
///
/// Reply: array of bulks and nulls. Refusals: `WrongType`, `FIELDS` missing, a count that differs
/// from the number of fields. Cost: as HGETEX. Source: <https://redis.io/commands/hgetdel> (8.0.0).
pub(super) fn hgetdel(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    cx.db.read_value::<Hash>(&key)?;
    fields(&mut args, COUNT_REFUSED)?;
    Plan::new(Change::Remove, Answer::Values).run(cx, &key, args)
}
