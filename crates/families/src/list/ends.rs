//! Pushing and popping: LPUSH, RPUSH, LPUSHX, RPUSHX, LPOP, RPOP.
//!
//! A few elements are pushed at once. More than a slice can push are added to a cut, which replaces
//! the stored list at the end: until then other writers of the key wait, and readers see the
//! previous list.

use super::read::Popped;
use super::value::{List, sent};
use crate::bulk_edit::is_long;
use crate::pending_values::{PendingValues, flow};
use crate::unshare::KEY;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_base::number;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, reply_str};
use darter_keyspace::{Draft, Key};
use darter_resp::{self as resp, Request};
use darter_structs::list::End;
use std::sync::Arc;

/// With more bytes of elements, the push runs in portions, too: copying takes time.
const BYTES_AT_ONCE: usize = 128 * 1024;
/// Elements pushed between two checks of the slice.
const PUSHES: usize = 8;
/// Elements pushed in one portion.
const PORTION_PUSHES: usize = 512;

/// `LPUSH key element [element ...]`: adds the elements at the front, one after another; so the
/// last one named becomes the first.
///
/// Reply: integer, the new length. Refusals: `WrongType`. Cost: O(elements named), in slices if
/// they are many. Source: <https://redis.io/commands/lpush> (1.0.0).
pub(super) fn lpush(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    push(cx, args, End::Front, true)
}

/// `RPUSH key element [element ...]`: LPUSH at the back.
/// Source: <https://redis.io/commands/rpush> (1.0.0).
pub(super) fn rpush(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    push(cx, args, End::Back, true)
}

/// `LPUSHX key element [element ...]`: LPUSH if the list exists; otherwise the reply is 0.
/// Source: <https://redis.io/commands/lpushx> (2.2.0).
pub(super) fn lpushx(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    push(cx, args, End::Front, false)
}

/// `RPUSHX key element [element ...]`: RPUSH if the list exists; otherwise the reply is 0.
/// Source: <https://redis.io/commands/rpushx> (2.2.0).
pub(super) fn rpushx(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    push(cx, args, End::Back, false)
}

fn push(cx: &mut Cx<'_>, mut args: Args<'_>, end: End, create: bool) -> Result<Flow, Refusal> {
    let key = args.key()?;
    if args.left() > 1 && is_long(args, ENTRIES_AT_ONCE, BYTES_AT_ONCE) {
        let draft = cx.db.draft::<List>(&key)?;
        if draft.is_new() && !create {
            cx.reply.int(0);
            return Ok(Flow::Done);
        }
        let (request, next) = (args.all().to_request(), args.position());
        return Ok(Flow::Job(Box::new(Pushing { request, next, draft, end })));
    }
    let len = cx.db.edit::<List, _>(&key, create, |edit| {
        while let Ok(element) = args.value() {
            edit.push(end, element);
        }
        edit.elements().len()
    })?;
    cx.reply.count(len.unwrap_or(0));
    Ok(Flow::Done)
}

/// A push of many elements in progress.
struct Pushing {
    request: Arc<Request>,
    /// Index of the next element.
    next: usize,
    /// The new list.
    draft: Draft<List>,
    end: End,
}

impl Job for Pushing {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let all = resp::Args::owned(&self.request);
        let mut args = Args::new(all, self.next);
        let mut edit = self.draft.edit(cx.now);
        for pushed in 1..=PORTION_PUSHES {
            let Ok(element) = args.value() else { break };
            edit.push(self.end, element);
            if pushed % PUSHES == 0 && cx.preempt.must_yield() {
                break;
            }
        }
        self.next = args.position();
        if args.left() > 0 {
            return Ok(Step::More);
        }
        let draft = std::mem::take(&mut self.draft);
        cx.reply.count(draft.value().elements().len());
        cx.db.install_draft(&Key::new(all.get(KEY)), draft);
        Ok(Step::Done(Flow::Done))
    }
}

/// `LPOP key [count]`: removes the first element, or the first `count`.
///
/// Reply: bulk, or null without a list; with a count an array, or a null array. Long elements are
/// streamed. Refusals: more arguments, a count that is negative or not a number, `WrongType`. Cost:
/// O(log n + elements replied). Source: <https://redis.io/commands/lpop> (1.0.0).
pub(super) fn lpop(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    pop(cx, args, End::Front, "lpop")
}

/// `RPOP key [count]`: LPOP at the back, the last element first.
/// Source: <https://redis.io/commands/rpop> (1.0.0).
pub(super) fn rpop(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    pop(cx, args, End::Back, "rpop")
}

fn pop(cx: &mut Cx<'_>, mut args: Args<'_>, end: End, name: &'static str) -> Result<Flow, Refusal> {
    let key = args.key()?;
    if args.left() > 1 {
        return Err(Refusal::Arity(name.into()));
    }
    if args.left() == 1 {
        let count = number::parse_i64(args.word()?).and_then(|count| usize::try_from(count).ok());
        return pop_some(cx, &key, end, count.ok_or(Refusal::OutOfRangePositive)?);
    }
    let reply = &mut cx.reply;
    let popped = cx.db.edit::<List, _>(&key, false, |edit| {
        edit.pop(end, |element| reply_str(reply, &sent(&element)))
    })?;
    Ok(popped.flatten().unwrap_or_else(|| {
        cx.reply.null();
        Flow::Done
    }))
}

/// Removes up to `count` elements, and replies with them.
fn pop_some(cx: &mut Cx<'_>, key: &Key<'_>, end: End, count: usize) -> Result<Flow, Refusal> {
    let Some(list) = cx.db.read_value::<List>(key)? else {
        cx.reply.null_array();
        return Ok(Flow::Done);
    };
    let count = count.min(list.elements().len());
    cx.reply.array(count);
    if count > ENTRIES_AT_ONCE {
        let gone = cx.db.edit::<List, _>(key, false, |edit| edit.detach(end, count))?;
        return Ok(flow(&mut cx.reply, Popped::new(gone.unwrap_or_default(), end)));
    }
    let (reply, mut unsent) = (&mut cx.reply, PendingValues::default());
    cx.db.edit::<List, _>(key, false, |edit| {
        for _ in 0..count {
            edit.pop(end, |element| unsent.value(reply, &sent(&element)));
        }
    })?;
    Ok(unsent.into_flow())
}
