//! Blocking list commands: BLPOP, BRPOP, BLMPOP, BLMOVE, BRPOPLPUSH, BLMOVEM.

use super::value::{List, sent};
use super::{movem, mpop, transfer};
use crate::waiting::{counted, seconds};
use darter_command::{
    Answer, Args, Call, Condition, Cx, Flow, Look, Looking, MultiFuture, Refusal, Since, Taking,
    Wait, Want, When, reply_str,
};
use darter_keyspace::Key;
use darter_structs::list::End;

/// Whether the list at a key has at least `count` elements. A client that is already waiting keeps
/// waiting while the key holds another type.
fn look(call: &Looking<'_>, count: usize) -> Look {
    match call.db.value::<List>(&call.key) {
        Ok(Some(list)) if list.elements().len() >= count => Look::There,
        Err(_) if call.when == When::Called => Look::Refused(Refusal::WrongType),
        Ok(_) | Err(_) => Look::Nothing,
    }
}

/// The condition that the list has `count` elements.
fn condition(count: usize) -> Option<Condition> {
    Some(Condition("list", count as u64, Box::default()))
}

/// Takes one element from an end.
struct Element(End);

impl Want for Element {
    fn look(&self, call: &Looking<'_>) -> Look {
        look(call, 1)
    }

    fn condition(&self) -> Option<Condition> {
        condition(1)
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        let Taking { db, args, reply, when } = call;
        let key = Key::hashed(args.get(at), args.hash(at));
        reply.array(2);
        reply.bulk(key.bytes);
        let popped = counted(db, *when, |db| {
            db.edit::<List, _>(&key, false, |edit| {
                edit.pop(self.0, |element| reply_str(reply, &sent(&element)))
            })
        })?;
        Ok(popped.flatten().unwrap_or(Flow::Done))
    }
}

fn element(args: Args<'_>, end: End) -> Result<Wait, Refusal> {
    let (first, last) = (args.position(), args.all().len() - 1);
    let patience = seconds(args.all().head(last))?;
    Ok(Wait { keys: first..last, patience, want: Box::new(Element(end)) })
}

/// `BLPOP key [key ...] timeout`: removes the first element of the first existing list; waits for
/// one for at most `timeout` seconds.
///
/// Reply: array of the key and the element, or a null array. Refusals: an invalid timeout,
/// `WrongType` of a key before the first list. Cost: O(keys). Source:
/// <https://redis.io/commands/blpop> (2.0.0).
pub(super) fn blpop(args: Args<'_>) -> Result<Wait, Refusal> {
    element(args, End::Front)
}

/// `BRPOP key [key ...] timeout`: BLPOP for the last element.
/// Source: <https://redis.io/commands/brpop> (2.0.0).
pub(super) fn brpop(args: Args<'_>) -> Result<Wait, Refusal> {
    element(args, End::Back)
}

/// Takes several elements from an end.
struct Elements {
    end: End,
    count: usize,
}

impl Want for Elements {
    fn look(&self, call: &Looking<'_>) -> Look {
        look(call, 1)
    }

    fn condition(&self) -> Option<Condition> {
        condition(1)
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        let Taking { db, args, reply, .. } = call;
        let key = Key::hashed(args.get(at), args.hash(at));
        let popped = mpop::pop(db, &key, self.end, self.count)?.unwrap_or_default();
        Ok(mpop::reply(reply, key.bytes, popped, self.end))
    }
}

/// `BLMPOP timeout numkeys key [key ...] LEFT|RIGHT [COUNT count]`: blocking LMPOP.
///
/// Source: <https://redis.io/commands/blmpop> (7.0.0).
pub(super) fn blmpop(mut args: Args<'_>) -> Result<Wait, Refusal> {
    let timeout = args.word()?;
    let asked = mpop::MultiPopRequest::parse(args)?;
    let patience = seconds(timeout)?;
    let want = Elements { end: asked.end, count: asked.count };
    Ok(Wait { keys: asked.keys, patience, want: Box::new(want) })
}

/// Moves an element to another list.
struct Transfer(transfer::Ends);

impl Want for Transfer {
    fn look(&self, call: &Looking<'_>) -> Look {
        look(call, 1)
    }

    fn condition(&self) -> Option<Condition> {
        condition(1)
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        let Taking { db, args, reply, when } = call;
        let args = Args::new(*args, at);
        counted(db, *when, |db| transfer::carry(db, reply, args, self.0))
    }

    fn take_across(&self, call: Call) -> Option<MultiFuture> {
        Some(Box::pin(transfer::across(call, self.0, When::Waiting(Since::default()))))
    }

    fn second(&self) -> Option<usize> {
        Some(2)
    }
}

fn transfer(args: Args<'_>, ends: transfer::Ends) -> Result<Wait, Refusal> {
    let (first, last) = (args.position(), args.all().len() - 1);
    let patience = seconds(args.all().head(last))?;
    Ok(Wait { keys: first..first + 1, patience, want: Box::new(Transfer(ends)) })
}

/// `BLMOVE source destination LEFT|RIGHT LEFT|RIGHT timeout`: blocking LMOVE.
///
/// Reply: bulk, or a null array after the timeout. Refusals: those of LMOVE (the destination's type
/// is checked only when there is an element); an invalid timeout. Source:
/// <https://redis.io/commands/blmove> (6.2.0).
pub(super) fn blmove(args: Args<'_>) -> Result<Wait, Refusal> {
    let ends = transfer::Ends::read(&mut { args })?;
    transfer(args, ends)
}

/// `BRPOPLPUSH source destination timeout`: blocking RPOPLPUSH.
/// Source: <https://redis.io/commands/brpoplpush> (2.2.0).
pub(super) fn brpoplpush(args: Args<'_>) -> Result<Wait, Refusal> {
    transfer(args, transfer::Ends::ROTATION)
}

/// BLMOVE where blocking is not allowed.
pub(super) fn blmove_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    blmove(args)?;
    transfer::carry(cx.db, &mut cx.reply, args, transfer::Ends::read(&mut { args })?)
}

/// BRPOPLPUSH where blocking is not allowed.
pub(super) fn brpoplpush_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    brpoplpush(args)?;
    transfer::carry(cx.db, &mut cx.reply, args, transfer::Ends::ROTATION)
}

/// [`blmove_here`] for lists on two cores.
pub(super) async fn blmove_anywhere(call: Call) -> Result<Answer, Refusal> {
    blmove(call.args())?;
    let ends = transfer::Ends::read(&mut call.args())?;
    transfer::anywhere(call, ends).await
}

/// [`brpoplpush_here`] for lists on two cores.
pub(super) async fn brpoplpush_anywhere(call: Call) -> Result<Answer, Refusal> {
    brpoplpush(call.args())?;
    transfer::anywhere(call, transfer::Ends::ROTATION).await
}

/// Moves several elements to another list.
struct Block {
    /// The fewest elements that are moved.
    count: usize,
}

impl Want for Block {
    fn look(&self, call: &Looking<'_>) -> Look {
        look(call, self.count)
    }

    fn condition(&self) -> Option<Condition> {
        condition(self.count)
    }

    /// Unused: `second` names the other list, so `take_across` does the work.
    fn take(&self, _: &mut Taking<'_>, _: usize) -> Result<Flow, Refusal> {
        unreachable!("BLMOVEM has no form for one shard")
    }

    fn second(&self) -> Option<usize> {
        Some(2)
    }
}

/// `BLMOVEM source destination LEFT|RIGHT LEFT|RIGHT timeout [COUNT count|EXACTLY count OBO|BULK]`:
/// blocking LMOVEM: waits for one element, or for the number given by EXACTLY.
///
/// Reply: as LMOVEM, or a null array after the timeout. Source: <https://redis.io/commands/blmovem>
/// (8.10.0).
pub(super) fn blmovem(args: Args<'_>) -> Result<Wait, Refusal> {
    let first = args.position();
    let (asked, timeout) = movem::MoveRequest::parse_waiting(args)?;
    let patience = seconds(timeout)?;
    let want = Block { count: asked.least() };
    Ok(Wait { keys: first..first + 1, patience, want: Box::new(want) })
}
