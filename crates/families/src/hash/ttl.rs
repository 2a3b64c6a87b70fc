//! Remaining time of fields: HTTL, HPTTL, HEXPIRETIME, HPEXPIRETIME.

use super::deadline::{COUNT_REFUSED, fields};
use super::value::Hash;
use crate::code_replies::{ABSENT, NO_DEADLINE};
use crate::lookup::find_value;
use crate::pending_values::flow;
use crate::prefetch::prefetch;
use darter_base::UnixMillis;
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Lent;
use darter_resp::{self as resp, Reply, Request};
use std::sync::Arc;

/// Fields in one portion.
const PORTION: usize = 128;
const SECOND: UnixMillis = 1_000;

/// How a deadline is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    /// Milliseconds from this time: now, or 1970.
    SinceMillis(UnixMillis),
    /// Seconds from this time, rounded up.
    SinceSeconds(UnixMillis),
}

impl Clock {
    fn tell(self, deadline: UnixMillis) -> i64 {
        let amount = match self {
            Self::SinceMillis(base) => deadline.saturating_sub(base),
            Self::SinceSeconds(base) => deadline.saturating_sub(base).div_ceil(SECOND),
        };
        i64::try_from(amount).unwrap_or(i64::MAX)
    }
}

/// `HTTL key FIELDS count field [field ...]`: the remaining seconds of fields, rounded up.
///
/// Reply: array of seconds; -1 if the field has no deadline, -2 if there is no such field.
/// Refusals: `WrongType`, `FIELDS` missing, a count that differs from the number of fields. Cost:
/// O(fields named), in slices when they are many. Source: <https://redis.io/commands/httl> (7.4.0).
pub(super) fn httl(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let clock = Clock::SinceSeconds(cx.now);
    tell(cx, args, clock)
}

/// `HPTTL key FIELDS count field [field ...]`: HTTL in milliseconds.
///
/// Source: <https://redis.io/commands/hpttl> (7.4.0).
pub(super) fn hpttl(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    let clock = Clock::SinceMillis(cx.now);
    tell(cx, args, clock)
}

/// `HEXPIRETIME key FIELDS count field [field ...]`: the expiry times of fields in Unix seconds,
/// rounded up. As HTTL.
pub(super) fn hexpiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    tell(cx, args, Clock::SinceSeconds(0))
}

/// `HPEXPIRETIME key FIELDS count field [field ...]`: the expiry times of fields in Unix
/// milliseconds. As HTTL.
pub(super) fn hpexpiretime(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    tell(cx, args, Clock::SinceMillis(0))
}

fn tell(cx: &mut Cx<'_>, mut args: Args<'_>, clock: Clock) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let hash = find_value::<Hash>(cx.db, cx.stats, &key)?;
    fields(&mut args, COUNT_REFUSED)?;
    cx.reply.array(args.left());
    let hash = hash.unwrap_or(Lent::Copied(Hash::new()));
    if args.left() <= PORTION {
        portion(&mut cx.reply, &hash, args, clock, cx.now);
        return Ok(Flow::Done);
    }
    let (request, next, hash) = (args.all().to_request(), args.position(), hash.reader());
    Ok(flow(&mut cx.reply, Telling { request, next, hash, clock, now: cx.now }))
}

/// Replies for the next fields.
fn portion(reply: &mut Reply<'_>, hash: &Hash, mut args: Args<'_>, clock: Clock, now: UnixMillis) {
    for index in 0..PORTION.min(args.left()) {
        prefetch(index, hash.fields(), args, 1);
        let entry = args.next().and_then(|field| hash.get(field, now));
        reply.int(match entry.map(|entry| entry.deadline()) {
            None => i64::from(ABSENT),
            Some(None) => i64::from(NO_DEADLINE),
            Some(Some(deadline)) => clock.tell(deadline),
        });
    }
}

/// A long reply of deadlines, from a cut.
struct Telling {
    request: Arc<Request>,
    next: usize,
    hash: Hash,
    clock: Clock,
    now: UnixMillis,
}

impl Stream for Telling {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let args = Args::new(resp::Args::owned(&self.request), self.next);
        portion(reply, &self.hash, args, self.clock, self.now);
        self.next += PORTION;
        self.next < self.request.len()
    }

    fn pinned_bytes(&self) -> usize {
        self.hash.pinned_bytes()
    }
}
