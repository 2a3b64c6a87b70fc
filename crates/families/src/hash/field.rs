//! Reading fields: HGET, HEXISTS, HSTRLEN, HMGET; HLEN.

use super::value::{Hash, value_of};
use crate::live_entries::reply_count;
use crate::lookup;
use crate::pending_values::{PORTION_BYTES, PendingValues, flow};
use crate::prefetch::prefetch;
use darter_command::{Args, Cx, Flow, Refusal, Stream, reply_str};
use darter_resp::{self as resp, Reply, Request};
use std::sync::Arc;

/// Fields that one portion of a reply looks up.
const ASKED_AT_ONCE: usize = 128;

/// `HGET key field`: the value of a field.
///
/// Reply: bulk, or null; streamed when long. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/hget> (2.0.0).
pub(super) fn hget(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, field) = (args.key()?, args.key()?);
    let found = lookup::find(cx.db, cx.stats, &key);
    match found.map(|found| Hash::look(&found, &field, cx.now)).transpose()?.flatten() {
        Some(entry) => Ok(reply_str(&mut cx.reply, &value_of(&entry))),
        None => {
            cx.reply.null();
            Ok(Flow::Done)
        }
    }
}

/// `HEXISTS key field`: tests whether the field exists.
///
/// Reply: 1 or 0. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/hexists> (2.0.0).
pub(super) fn hexists(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, field) = (args.key()?, args.key()?);
    let found = lookup::find(cx.db, cx.stats, &key);
    let entry = found.map(|found| Hash::look(&found, &field, cx.now)).transpose()?.flatten();
    cx.reply.int(i64::from(entry.is_some()));
    Ok(Flow::Done)
}

/// `HSTRLEN key field`: the length of the value of a field.
///
/// Reply: integer, 0 when the field is absent. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/hstrlen> (3.2.0).
pub(super) fn hstrlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, field) = (args.key()?, args.key()?);
    let found = lookup::find(cx.db, cx.stats, &key);
    let entry = found.map(|found| Hash::look(&found, &field, cx.now)).transpose()?.flatten();
    cx.reply.count(entry.map_or(0, |entry| value_of(&entry).len()));
    Ok(Flow::Done)
}

/// `HLEN key`: the number of fields.
///
/// Reply: integer, exact: expired fields are not counted, even while they are still in memory.
/// Refusals: `WrongType`. Cost: O(1); O(fields), in slices, if many of them have just expired.
/// Source: <https://redis.io/commands/hlen> (2.0.0).
pub(super) fn hlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let Some(hash) = lookup::find_value::<Hash>(cx.db, cx.stats, &key)? else {
        cx.reply.int(0);
        return Ok(Flow::Done);
    };
    Ok(reply_count(&mut cx.reply, hash.fields(), cx.now))
}

/// `HMGET key field [field ...]`: the values of some fields.
///
/// Reply: array of bulks and nulls. Refusals: `WrongType`. Cost: O(fields asked for); beyond 128
/// the reply is streamed from a cut. Source: <https://redis.io/commands/hmget> (2.0.0).
pub(super) fn hmget(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let hash = lookup::find_value::<Hash>(cx.db, cx.stats, &key)?;
    cx.reply.array(args.left());
    Ok(values(&mut cx.reply, hash.as_deref(), args, cx.now))
}

/// Replies with the values of the fields in the remaining arguments; the header is already written.
pub(super) fn values(reply: &mut Reply<'_>, hash: Option<&Hash>, args: Args<'_>, now: u64) -> Flow {
    let empty = Hash::new();
    let hash = hash.unwrap_or(&empty);
    if args.left() <= ASKED_AT_ONCE {
        let mut unsent = PendingValues::default();
        let asked = ask(reply, &mut unsent, hash, args, now, &mut |_| true);
        if asked == args.left() {
            return unsent.into_flow();
        }
        return asking(unsent, hash, args, asked, now);
    }
    flow(reply, Values::new(hash, args, now, None))
}

fn asking(unsent: PendingValues, hash: &Hash, args: Args<'_>, asked: usize, now: u64) -> Flow {
    let mut values = Values::new(hash, args, now, None);
    values.unsent = unsent;
    values.next += asked;
    Flow::Stream(Box::new(values))
}

/// Encodes the values of the next fields, until the portion is full or a value has to wait. Fields
/// rejected by `shown` become null. Returns the number of processed fields.
fn ask(
    reply: &mut Reply<'_>,
    unsent: &mut PendingValues,
    hash: &Hash,
    mut args: Args<'_>,
    now: u64,
    shown: &mut dyn FnMut(usize) -> bool,
) -> usize {
    let (mut asked, mut bytes) = (0, 0);
    while asked < ASKED_AT_ONCE && bytes < PORTION_BYTES && unsent.is_empty() {
        prefetch(asked, hash.fields(), args, 1);
        let Some(field) = args.next() else { break };
        let entry = if shown(asked) { hash.get(field, now) } else { None };
        match entry {
            Some(entry) => bytes += unsent.value(reply, &value_of(&entry)),
            None => unsent.null(reply),
        }
        asked += 1;
    }
    asked
}

/// A long reply of values, from a cut.
pub(super) struct Values {
    request: Arc<Request>,
    first: usize,
    next: usize,
    hash: Hash,
    now: u64,
    /// The codes from changing the fields; a field that was absent replies null.
    codes: Option<Vec<i8>>,
    unsent: PendingValues,
}

impl Values {
    /// The values in `hash`, as of `now`, of the fields in the remaining arguments.
    pub(super) fn new(hash: &Hash, args: Args<'_>, now: u64, codes: Option<Vec<i8>>) -> Self {
        let (request, next, hash) = (args.all().to_request(), args.position(), hash.reader());
        Self { request, first: next, next, hash, now, codes, unsent: PendingValues::default() }
    }
}

impl Stream for Values {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Self { request, next, hash, now, codes, unsent, first } = self;
        if unsent.is_empty() {
            let done = *next - *first;
            let args = Args::new(resp::Args::owned(request), *next);
            *next += ask(reply, unsent, hash, args, *now, &mut |index| {
                codes
                    .as_ref()
                    .is_none_or(|codes| codes[done + index] != crate::code_replies::ABSENT)
            });
        } else {
            unsent.pump(reply);
        }
        !unsent.is_empty() || *next < request.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.hash.pinned_bytes() + self.unsent.pinned_bytes()
    }
}
