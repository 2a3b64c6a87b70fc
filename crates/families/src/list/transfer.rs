//! LMOVE, RPOPLPUSH: moving an element between two lists, perhaps on two cores.
//!
//! As in Redis, the element is added before it is removed. So a list of one element that is rotated
//! is never empty.

use super::value::{List, sent};
use crate::waiting::counted;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal, When, reply_str};
use darter_keyspace::{Db, Key, Str, StrPieces, WrongType};
use darter_resp::{Output, Reply};
use darter_structs::list::End;
use darter_tx::Access;

/// The end of the source to take from, and the end of the destination to add to.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    pub(super) from: End,
    pub(super) to: End,
}

impl Ends {
    /// The ends used by RPOPLPUSH.
    pub(super) const ROTATION: Self = Self { from: End::Back, to: End::Front };

    /// Reads the ends after the two keys; no further arguments are allowed.
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let ends = Self::read(&mut args)?;
        args.end()?;
        Ok(ends)
    }

    /// Reads the ends after the two keys.
    pub(super) fn read(args: &mut Args<'_>) -> Result<Self, Refusal> {
        args.seek(args.position() + 2);
        Ok(Self { from: end(args)?, to: end(args)? })
    }
}

/// Reads the next argument as an end.
pub(super) fn end(args: &mut Args<'_>) -> Result<End, Refusal> {
    if args.option("LEFT") {
        return Ok(End::Front);
    }
    if args.option("RIGHT") { Ok(End::Back) } else { Err(Refusal::Syntax) }
}

/// `LMOVE source destination LEFT|RIGHT LEFT|RIGHT`: moves an element from an end of one list to an
/// end of another.
///
/// Reply: bulk, or null without a source. Refusals: an unknown word, `WrongType` of the source, or
/// of the destination if the source exists. Cost: O(1), plus three messages between cores if the
/// keys are on different cores. Source: <https://redis.io/commands/lmove> (6.2.0).
pub(super) fn lmove_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Ends::parse(args)?)
}

/// `RPOPLPUSH source destination`: LMOVE from the right to the left.
///
/// Source: <https://redis.io/commands/rpoplpush> (1.2.0).
pub(super) fn rpoplpush_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Ends::ROTATION)
}

fn here(cx: &mut Cx<'_>, args: Args<'_>, ends: Ends) -> Result<Flow, Refusal> {
    carry(cx.db, &mut cx.reply, args, ends)
}

/// Moves an element between the lists at the next two arguments, and replies with it.
pub(super) fn carry(
    db: &mut Db,
    out: &mut Reply<'_>,
    mut args: Args<'_>,
    ends: Ends,
) -> Result<Flow, Refusal> {
    let (from, to) = (args.key()?, args.key()?);
    let Some(element) = peek(db, &from, ends.from)? else {
        out.null();
        return Ok(Flow::Done);
    };
    add(db, &to, ends.to, &element)?;
    remove(db, &from, ends.from);
    Ok(reply(out, &element))
}

/// The element at an end of the list at `key`.
fn peek(db: &mut Db, key: &Key<'_>, end: End) -> Result<Option<StrPieces>, WrongType> {
    let Some(list) = db.read_value::<List>(key)? else { return Ok(None) };
    let elements = list.elements();
    let index = if end == End::Front { 0 } else { elements.len() - 1 };
    Ok(elements.get(index).map(|element| match sent(&element) {
        Str::Inline(text) => StrPieces::Bytes(text.to_vec()),
        Str::Blob(blob) => StrPieces::Blob(blob.clone()),
    }))
}

fn add(db: &mut Db, key: &Key<'_>, end: End, element: &StrPieces) -> Result<(), WrongType> {
    db.edit::<List, _>(key, true, |edit| edit.push(end, element.fresh()))?;
    Ok(())
}

/// Does not count as a change: the addition of the element has been counted.
fn remove(db: &mut Db, key: &Key<'_>, end: End) {
    let removed =
        db.counted_as(|db| (db.edit::<List, _>(key, false, |edit| edit.pop(end, |_| {})), 0));
    // The key may have expired since.
    debug_assert!(removed.is_ok(), "its type was just checked");
}

fn reply(reply: &mut Reply<'_>, element: &StrPieces) -> Flow {
    match element {
        StrPieces::Bytes(bytes) => {
            reply.bulk(bytes);
            Flow::Done
        }
        StrPieces::Blob(blob) => reply_str(reply, &Str::Blob(blob)),
    }
}

/// [`lmove_here`] for lists on two cores.
pub(super) async fn lmove(call: Call) -> Result<Answer, Refusal> {
    let ends = Ends::parse(call.args())?;
    anywhere(call, ends).await
}

/// [`rpoplpush_here`] for lists on two cores.
pub(super) async fn rpoplpush(call: Call) -> Result<Answer, Refusal> {
    anywhere(call, Ends::ROTATION).await
}

pub(super) async fn anywhere(call: Call, ends: Ends) -> Result<Answer, Refusal> {
    across(call, ends, When::Called).await
}

/// Moves an element between two cores. Both keys are locked, so the element found does not change
/// before it is moved.
pub(super) async fn across(call: Call, ends: Ends, when: When) -> Result<Answer, Refusal> {
    let (from, to) = (call.first, call.first + 1);
    let _locked = call.lock_keys([from, to].map(|at| (at, Access::Exclusive))).await;
    let look = move |db: &mut Db, key: &Key<'_>| peek(db, key, ends.from);
    let Some(element) = call.on_key(from, look).await? else {
        return Ok(call.answer(|reply| reply.null()));
    };
    let moved = element.clone();
    let add =
        move |db: &mut Db, key: &Key<'_>| counted(db, when, |db| add(db, key, ends.to, &moved));
    call.on_key(to, add).await?;
    call.on_key(from, move |db, key| remove(db, key, ends.from)).await;

    let mut out = Output::default();
    match reply(&mut Reply::new(&mut out, call.resp3), &element) {
        Flow::Stream(rest) => Ok(Answer::Stream(out, rest)),
        _ => Ok(Answer::Done(out)),
    }
}
