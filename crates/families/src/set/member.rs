//! Members one by one: SISMEMBER, SMISMEMBER, SCARD, SMEMBERS.

use super::reply::{Count, Form, Members, SEGMENTS_AT_ONCE, flow, is_small};
use darter_base::hash;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Set;
use darter_resp::{self as resp, Reply, Request};
use darter_structs::table::{LiveCount, Never, Table};
use std::sync::Arc;

/// Members whose lines are asked for before they are looked up.
const BATCH: usize = 16;
/// Members that a long SMISMEMBER looks up in one portion: about 15 us.
const ASKED_AT_ONCE: usize = 128;
/// Below this many members a set lies in the caches anyway.
const PREFETCHED_MIN: usize = 4_096;

/// Asks the memory for the members that come next among the arguments, when that pays.
pub(super) fn prefetch(members: &Table<Never>, mut args: Args<'_>) {
    if members.len() < PREFETCHED_MIN || args.left() < 2 {
        return;
    }
    for _ in 0..BATCH.min(args.left()) {
        if let Some(member) = args.next() {
            members.prefetch(hash::of(member));
        }
    }
}

/// True when members should be asked for before the member of this index.
pub(super) fn begins_batch(index: usize) -> bool {
    index.is_multiple_of(BATCH)
}

/// Calls `act` for the next `count` members among the arguments; before every batch of them with
/// no member, and with what comes.
pub(super) fn in_batches<'a>(
    mut args: Args<'a>,
    count: usize,
    mut act: impl FnMut(Option<&'a [u8]>, Args<'a>),
) {
    for done in 0..count.min(args.left()) {
        if begins_batch(done) {
            act(None, args);
        }
        act(args.next(), args);
    }
}

/// `SISMEMBER key member`: is it in the set?
///
/// Reply: 1 or 0. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/sismember> (1.0.0).
pub(super) fn sismember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, member) = (args.key()?, args.bytes()?);
    let now = cx.now;
    let found = match cx.find(&key) {
        Some(found) => found.set()?.contains(member, now),
        None => false,
    };
    cx.reply.int(i64::from(found));
    Ok(Flow::Done)
}

/// `SMISMEMBER key member [member ...]`: which of them are in the set?
///
/// Reply: array of 1 and 0. Refusals: `WrongType`. Cost: O(members asked for); beyond 256 the reply
/// is streamed from a cut. Source: <https://redis.io/commands/smismember> (6.2.0).
pub(super) fn smismember(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let set = match cx.find(&key) {
        Some(found) => found.set()?.clone(),
        None => Set::new(),
    };
    cx.reply.array(args.left());
    if args.left() <= ENTRIES_AT_ONCE {
        ask(&mut cx.reply, &set, args, args.left(), cx.now);
        return Ok(Flow::Done);
    }
    let (request, next) = (args.all().to_request(), args.position());
    Ok(Flow::Stream(Box::new(Asking { request, next, set, now: cx.now })))
}

/// Replies for the next `count` members.
fn ask(reply: &mut Reply<'_>, set: &Set, args: Args<'_>, count: usize, now: u64) {
    in_batches(args, count, |member, rest| match member {
        None => prefetch(set.members(), rest),
        Some(member) => reply.int(i64::from(set.contains(member, now))),
    });
}

/// A long SMISMEMBER.
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
}

/// `SCARD key`: how many members the set has.
///
/// Reply: integer, exact: members that are dead but still in memory do not count. Refusals:
/// `WrongType`. Cost: O(1); O(members), in slices, at a moment when many of them have just died.
/// Source: <https://redis.io/commands/scard> (1.0.0).
pub(super) fn scard(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let now = cx.now;
    let Some(found) = cx.find(&key) else {
        cx.reply.int(0);
        return Ok(Flow::Done);
    };
    let members = found.set()?.members();
    match members.live_len(now, SEGMENTS_AT_ONCE) {
        Some(count) => cx.reply.count(count),
        None => {
            let count = LiveCount::new(members.clone(), now);
            return Ok(Flow::Stream(Box::new(Count { count })));
        }
    }
    Ok(Flow::Done)
}

/// `SMEMBERS key`: all members.
///
/// Reply: set (array in RESP2), streamed from a cut when large. Refusals: `WrongType`.
/// Cost: O(members). Source: <https://redis.io/commands/smembers> (1.0.0).
pub(super) fn smembers(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let cut = match cx.find(&key) {
        Some(found) => found.set()?.members().clone(),
        None => Table::new(),
    };
    let small = is_small(cut.len());
    Ok(flow(&mut cx.reply, small, Members::new(cut, Form::Set, cx.now)))
}
