//! Reading sets: SISMEMBER, SMISMEMBER, SCARD, SMEMBERS.

use super::reply::{Form, Members, flow, is_small};
use super::value::Set;
use crate::live_entries::reply_count;
use crate::lookup::find;
use crate::prefetch::prefetch;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_resp::{self as resp, Reply, Request};
use darter_structs::table::Table;
use std::sync::Arc;

/// Members that a long SMISMEMBER looks up in one portion.
const ASKED_AT_ONCE: usize = 128;

/// `SISMEMBER key member`: tests whether the member is in the set.
///
/// Reply: 1 or 0. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/sismember> (1.0.0).
pub(super) fn sismember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, member) = (args.key()?, args.bytes()?);
    let now = cx.now;
    let found = match cx.find(&key) {
        Some(found) => Set::has(&found, member, now)?,
        None => false,
    };
    cx.reply.int(i64::from(found));
    Ok(Flow::Done)
}

/// `SMISMEMBER key member [member ...]`: tests for each member whether it is in the set.
///
/// Reply: array of 1 and 0. Refusals: `WrongType`. Cost: O(members asked for); beyond 256 the reply
/// is streamed from a cut. Source: <https://redis.io/commands/smismember> (6.2.0).
pub(super) fn smismember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let set = match cx.find(&key) {
        Some(found) => found.value::<Set>()?.into_cut(),
        None => Set::new(),
    };
    cx.reply.array(args.left());
    if args.left() <= ENTRIES_AT_ONCE {
        ask(&mut cx.reply, &set, args, args.left(), cx.now);
        return Ok(Flow::Done);
    }
    let (request, next) = (args.all().to_request(), args.position());
    Ok(Flow::Stream(Box::new(Asking { request, next, set: set.reader(), now: cx.now })))
}

/// Replies for the next `count` members.
fn ask(reply: &mut Reply<'_>, set: &Set, mut args: Args<'_>, count: usize, now: u64) {
    for index in 0..count {
        prefetch(index, set.members(), args, 1);
        let Some(member) = args.next() else { break };
        reply.int(i64::from(set.contains(member, now)));
    }
}

/// A long SMISMEMBER in progress.
struct Asking {
    request: Arc<Request>,
    next: usize,
    set: Set,
    now: u64,
}

impl Stream for Asking {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let args = Args::new(resp::Args::owned(&self.request), self.next);
        ask(reply, &self.set, args, ASKED_AT_ONCE, self.now);
        self.next += ASKED_AT_ONCE;
        self.next < self.request.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.set.pinned_bytes()
    }
}

/// `SCARD key`: the number of members.
///
/// Reply: integer, exact: expired members are not counted, even while they are still in memory.
/// Refusals: `WrongType`. Cost: O(1); O(members), in slices, if many of them have just expired.
/// Source: <https://redis.io/commands/scard> (1.0.0).
pub(super) fn scard(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let Some(found) = find(cx.db, cx.stats, &key) else {
        cx.reply.int(0);
        return Ok(Flow::Done);
    };
    Ok(reply_count(&mut cx.reply, found.value::<Set>()?.members(), cx.now))
}

/// `SMEMBERS key`: all members.
///
/// Reply: set (array in RESP2), streamed from a cut when large. Refusals: `WrongType`.
/// Cost: O(members). Source: <https://redis.io/commands/smembers> (1.0.0).
pub(super) fn smembers(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let cut = match cx.find(&key) {
        Some(found) => found.value::<Set>()?.members().reader(),
        None => Table::new(),
    };
    let small = is_small(cut.len());
    let members = Members::new(cut, Form::Set, cx.now);
    Ok(flow(cx, small, members))
}
