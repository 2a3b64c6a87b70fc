//! Setting one string: SET, SETNX, SETEX, PSETEX, GETSET, GETEX, DELEX.

use super::guard::{Guarded, Verdict, judge};
use super::options::{Condition, Expiry, Face, Options, Test};
use crate::expiry::{Unit, positive_deadline};
use crate::lookup::find;
use crate::option_names;
use darter_base::limits::CHUNK_BYTES;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, reply_str};
use darter_keyspace::{Deadline, Found, Fresh};
use darter_resp::{self as resp, Reply, Request};
use darter_structs::blob::Blob;
use std::sync::Arc;

/// `SET key value [NX | XX | IFEQ v | IFNE v | IFDEQ d | IFDNE d] [GET] [EX s | PX ms | EXAT t |
/// PXAT t | KEEPTTL]`: sets `key` to a string, replacing any value.
///
/// Reply: `OK`, or null when a condition did not hold; with GET the old string or null. Refusals:
/// `Syntax`, `InvalidExpire`, `NotAnInteger`; `WrongType` if the old value is read.
/// Cost: O(1); comparing a long string takes slices.
/// Source: <https://redis.io/commands/set> (1.0.0; conditions on the value 8.4.0).
pub(super) fn set(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    if args.left() == 2 {
        let mut rest = args;
        let key = rest.key()?;
        let value = rest.value()?;
        if let Fresh::Chunks(chunks) = value
            && chunks.len() > CHUNKS_AT_ONCE
        {
            return Ok(Flow::Job(Box::new(Adopt::new(args))));
        }
        cx.db.set_text(&key, value, Deadline::Clear);
        cx.reply.ok();
        return Ok(Flow::Done);
    }
    set_with(cx, args, None)
}

/// Chunks that are shared in one step: their reference counts are not in the caches.
const CHUNKS_AT_ONCE: usize = 512;

/// A plain SET of a huge value: shares its chunks in portions, and then sets the key.
struct Adopt {
    request: Arc<Request>,
    first: usize,
    blob: Blob,
}

impl Adopt {
    fn new(args: Args<'_>) -> Self {
        let (request, first) = (args.all().to_request(), args.position());
        Self { request, first, blob: Blob::default() }
    }
}

impl Job for Adopt {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let mut args = Args::new(resp::Args::owned(&self.request), self.first);
        let key = args.key()?;
        let done = self.blob.len() / CHUNK_BYTES;
        if let Fresh::Chunks(chunks) = args.value()?
            && self.blob.len() < Fresh::Chunks(chunks).len()
        {
            let end = chunks.len().min(done + CHUNKS_AT_ONCE);
            self.blob.push_chunks(&chunks[done..end]);
            return Ok(Step::More);
        }
        cx.db.set_text(&key, Fresh::Blob(&self.blob), Deadline::Clear);
        cx.reply.ok();
        Ok(Step::Done(Flow::Done))
    }
}

/// SET with options. `known` is the result of a condition that was evaluated in slices.
fn set_with(cx: &mut Cx<'_>, args: Args<'_>, known: Option<bool>) -> Result<Flow, Refusal> {
    let mut rest = args;
    let (key, value) = (rest.key()?, rest.value()?);
    let options = Options::parse(rest, Face::Set)?;
    let deadline = options.deadline(cx.now, "set")?;
    let counts = options.get && known.is_none();
    let found = if counts { find(cx.db, cx.stats, &key) } else { cx.db.read(&key) };
    if options.get
        && let Some(found) = &found
    {
        found.text()?;
    }
    // The result is valid only if the key did not expire during the slices.
    let holds = match known.filter(|_| found.is_some()) {
        Some(holds) => holds,
        None => match judge(options.condition.as_ref(), found.as_ref())? {
            Verdict::Known(holds) => holds,
            Verdict::Long(comparison) => {
                let act = |cx: &mut Cx<'_>, args: Args<'_>, holds| set_with(cx, args, Some(holds));
                return Ok(Flow::Job(Guarded::new(args, comparison, act)));
            }
        },
    };
    let mut flow = Flow::Done;
    if options.get {
        flow = reply_old(&mut cx.reply, found.as_ref())?;
    } else if holds {
        cx.reply.ok();
    } else {
        cx.reply.null();
    }
    if holds {
        cx.db.set_text(&key, value, deadline);
    }
    Ok(flow)
}

/// Replies with the old string, or null.
fn reply_old(reply: &mut Reply<'_>, found: Option<&Found<'_>>) -> Result<Flow, Refusal> {
    match found {
        Some(found) => Ok(reply_str(reply, &found.text()?)),
        None => {
            reply.null();
            Ok(Flow::Done)
        }
    }
}

/// `SETNX key value`: sets `key` if it is absent.
///
/// Reply: 1, or 0 when the key exists. Refusals: none. Cost: O(1).
/// Source: <https://redis.io/commands/setnx> (1.0.0).
pub(super) fn setnx(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, value) = (args.key()?, args.value()?);
    let absent = cx.db.read(&key).is_none();
    if absent {
        cx.db.set_text(&key, value, Deadline::Clear);
    }
    cx.reply.int(i64::from(absent));
    Ok(Flow::Done)
}

/// `SETEX key seconds value`: sets `key` to a string that expires after `seconds`.
///
/// Reply: `OK`. Refusals: `NotAnInteger`, `InvalidExpire`. Cost: O(1).
/// Source: <https://redis.io/commands/setex> (2.0.0).
pub(super) fn setex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    set_for(cx, args, Unit::Seconds, "setex")
}

/// `PSETEX key milliseconds value`: SETEX in milliseconds.
///
/// Source: <https://redis.io/commands/psetex> (2.6.0).
pub(super) fn psetex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    set_for(cx, args, Unit::Millis, "psetex")
}

fn set_for(
    cx: &mut Cx<'_>,
    mut args: Args<'_>,
    unit: Unit,
    command: &'static str,
) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let time = option_names::take(&mut args).ok_or(Refusal::Syntax)?;
    let value = args.value()?;
    let deadline = positive_deadline(unit, time, cx.now, command)?;
    cx.db.set_text(&key, value, Deadline::At(deadline));
    cx.reply.ok();
    Ok(Flow::Done)
}

/// `GETSET key value`: sets `key`, and replies with the old string.
///
/// Reply: bulk, or null when the key was absent. Refusals: `WrongType`; then nothing changes.
/// Cost: O(1) + bytes of the old value. Source: <https://redis.io/commands/getset> (1.0.0).
pub(super) fn getset(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, value) = (args.key()?, args.value()?);
    let flow = reply_old(&mut cx.reply, find(cx.db, cx.stats, &key).as_ref())?;
    cx.db.set_text(&key, value, Deadline::Clear);
    Ok(flow)
}

/// `GETEX key [EX s | PX ms | EXAT t | PXAT t | PERSIST]`: replies with the string at `key`, and
/// changes its deadline.
///
/// Reply: bulk, or null when the key is absent. Refusals: `Syntax`, `WrongType`, then
/// `NotAnInteger` and `InvalidExpire`. A Unix time in the past removes the key.
/// Cost: O(1) + bytes of the value. Source: <https://redis.io/commands/getex> (6.2.0).
pub(super) fn getex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let options = Options::parse(args, Face::Getex)?;
    let Some(found) = find(cx.db, cx.stats, &key) else {
        cx.reply.null();
        return Ok(Flow::Done);
    };
    let (text, old) = (found.text()?, found.deadline());
    let deadline = options.deadline(cx.now, "getex")?;
    let flow = reply_str(&mut cx.reply, &text);
    match (options.expiry, deadline) {
        (Expiry::Time(Unit::UnixSeconds | Unit::UnixMillis, _), Deadline::At(at))
            if at <= cx.now =>
        {
            cx.db.remove(&key);
        }
        (Expiry::Time(..), Deadline::At(at)) => {
            cx.db.set_deadline(&key, Some(at));
        }
        (Expiry::Persist, _) if old.is_some() => {
            cx.db.set_deadline(&key, None);
        }
        _ => {}
    }
    Ok(flow)
}

/// `DELEX key [IFEQ v | IFNE v | IFDEQ d | IFDNE d]`: removes `key` if the condition on its string
/// holds.
///
/// Reply: 1, or 0 when the key is absent or the condition does not hold. Refusals: the number of
/// arguments, an unknown condition, a value that is not a string, an invalid digest. Without a
/// condition any type is removed. Cost: O(1); comparing a long string takes slices.
/// Source: <https://redis.io/commands/delex> (8.4.0).
pub(super) fn delex(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    delex_with(cx, args, None)
}

fn delex_with(cx: &mut Cx<'_>, args: Args<'_>, known: Option<bool>) -> Result<Flow, Refusal> {
    let mut rest = args;
    let key = rest.key()?;
    let condition = match rest.left() {
        0 => None,
        2 => Some(delex_condition(rest)?),
        _ => return Err(Refusal::Arity("delex".into())),
    };
    // Without a condition, this is DEL, which counts no hit. If the condition was evaluated in
    // slices, the key has been counted.
    let counts = condition.is_some() && known.is_none();
    let found = if counts { find(cx.db, cx.stats, &key) } else { cx.db.read(&key) };
    let holds = match (&found, known) {
        (None, _) => false,
        (Some(_), Some(holds)) => holds,
        (Some(found), None) => match judge(condition.as_ref(), Some(found)) {
            Ok(Verdict::Known(holds)) => holds,
            Ok(Verdict::Long(comparison)) => {
                let act =
                    |cx: &mut Cx<'_>, args: Args<'_>, holds| delex_with(cx, args, Some(holds));
                return Ok(Flow::Job(Guarded::new(args, comparison, act)));
            }
            Err(Refusal::WrongType) => {
                return Err(Refusal::line(
                    "ERR Key should be of string type if conditions are specified",
                ));
            }
            Err(refusal) => return Err(refusal),
        },
    };
    if holds {
        cx.db.remove(&key);
    }
    cx.reply.int(i64::from(holds));
    Ok(Flow::Done)
}

/// The condition of DELEX: a word and its operand.
fn delex_condition<'a>(mut args: Args<'a>) -> Result<Condition<'a>, Refusal> {
    let test =
        option_names::take(&mut args).and_then(Test::of_option).filter(|test| test.compares());
    let unknown = || Refusal::line("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");
    let test = test.ok_or_else(unknown)?;
    let at = args.position();
    let operand: Fresh<'a> = args.value()?;
    Ok(Condition { test, operand, at })
}
