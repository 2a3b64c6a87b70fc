//! XPENDING: delivered entries without acknowledgement.

use super::id;
use super::value::Stream;
use super::xgroup::quoting_two;
use crate::lookup::find_value;
use crate::pending_values::flow;
use crate::text::BYTES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step, Stream as Portions};
use darter_keyspace::Key;
use darter_resp::Reply;
use darter_structs::groups::{Consumer, Group, Pending};
use darter_structs::stream::StreamId;
use std::ops::Range;

/// Entries, or consumers, in one portion of a reply.
const SHOWN_AT_ONCE: usize = 64;
/// Pending entries that are visited in one step.
const LOOKED_AT_ONCE: usize = 256;

/// The refusal if there is no such key or group.
pub(super) fn no_group(key: &Key<'_>, group: &[u8]) -> Refusal {
    quoting_two(["NOGROUP No such key '", "' or consumer group '", "'"], [key.bytes, group])
}

/// The request of the long form.
struct XPendingRequest<'a> {
    idle_ms: u64,
    first: StreamId,
    last: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> XPendingRequest<'a> {
    /// Reads the arguments after the group. The count is checked first.
    fn parse(mut args: Args<'a>) -> Result<Self, Refusal> {
        if !(3..=6).contains(&args.left()) {
            return Err(Refusal::Syntax);
        }
        let mut idle_ms = 0;
        if args.option("IDLE") {
            idle_ms = u64::try_from(args.int()?).unwrap_or(0);
            if args.left() < 3 {
                return Err(Refusal::Syntax);
            }
        }
        let mut ends = args;
        args.seek(args.position() + 2);
        let count = usize::try_from(args.int()?).unwrap_or(0);
        let (first, last) = (id::first(&mut ends)?, id::last(&mut ends)?);
        let consumer = if args.left() > 0 { Some(id::name(&mut args)?) } else { None };
        Ok(Self { idle_ms, first, last, count, consumer })
    }
}

/// `XPENDING key group [[IDLE ms] start end count [consumer]]`: the number of pending entries, the
/// first and last ID, and the number for each consumer. In the long form: some of the entries, each
/// with its consumer, idle time and delivery count.
///
/// Reply: array of four; or array of arrays of four. Refusals: `Syntax`, `NotAnInteger`, invalid
/// IDs, `WrongType`, a missing key or group. Cost: O(consumers); or O(log n + shown), with IDLE
/// O(log n + pending from start to end), in slices.
/// Source: <https://redis.io/commands/xpending> (5.0.0; IDLE 6.2.0).
pub(super) fn xpending(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, name) = (args.key()?, id::name(&mut args)?);
    let asked = if args.left() > 0 { Some(XPendingRequest::parse(args)?) } else { None };
    let stream = find_value::<Stream>(cx.db, cx.stats, &key)?;
    let group = stream.as_ref().and_then(|stream| stream.groups().get(name));
    let Some(group) = group.cloned() else { return Err(no_group(&key, name)) };
    let Some(asked) = asked else { return Ok(summary(&mut cx.reply, group)) };
    let consumer = match asked.consumer {
        None => None,
        Some(name) => match group.consumer(name) {
            Some(consumer) => Some(consumer.clone()),
            None => {
                cx.reply.array(0);
                return Ok(Flow::Done);
            }
        },
    };
    let mut listing = Listing { ranks: 0..0, group, consumer, now: cx.now };
    let behind = asked.last.next();
    listing.ranks = listing.rank_of(asked.first)
        ..behind.map_or(usize::MAX, |behind| listing.rank_of(behind)).min(listing.len());
    if asked.idle_ms > 0 {
        let (idle_ms, count) = (asked.idle_ms, asked.count);
        let mut search = Search { listing, idle_ms, count, found: Vec::new() };
        return Ok(if search.look() { Flow::Job(Box::new(search)) } else { search.show(cx) });
    }
    let ranks = &mut listing.ranks;
    ranks.end = ranks.end.min(ranks.start.saturating_add(asked.count)).max(ranks.start);
    cx.reply.array(ranks.len());
    Ok(flow(&mut cx.reply, listing))
}

/// Replies in the short form.
fn summary(reply: &mut Reply<'_>, group: Group) -> Flow {
    let len = group.pending_len();
    reply.array(4);
    reply.count(len);
    let ends = [0, len.saturating_sub(1)].map(|rank| group.pending(rank..rank + 1).next());
    let [Some(first), Some(last)] = ends else {
        reply.null();
        reply.null();
        reply.null_array();
        return Flow::Done;
    };
    id::encode(reply, first.id);
    id::encode(reply, last.id);
    reply.array(group.busy_len());
    flow(reply, Busy { group, next: 0 })
}

/// Consumers that have pending entries.
struct Busy {
    group: Group,
    next: usize,
}

impl Portions for Busy {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let (from, before) = (self.next, reply.out.len());
        for consumer in self.group.consumers(from..from + SHOWN_AT_ONCE) {
            self.next += 1;
            if consumer.pending_len() > 0 {
                reply.array(2);
                reply.bulk(consumer.name());
                reply.bulk_int(consumer.pending_len().cast_signed() as i64);
            }
            if reply.out.len() - before >= BYTES_AT_ONCE {
                break;
            }
        }
        self.next < self.group.consumers_len()
    }
}

/// Pending entries, of a group or of a consumer.
struct Listing {
    group: Group,
    consumer: Option<Consumer>,
    ranks: Range<usize>,
    now: u64,
}

impl Listing {
    fn len(&self) -> usize {
        let all = self.group.pending_len();
        self.consumer.as_ref().map_or(all, Consumer::pending_len)
    }

    fn rank_of(&self, id: StreamId) -> usize {
        match &self.consumer {
            Some(consumer) => consumer.rank_of(id),
            None => self.group.rank_of(id),
        }
    }

    /// At most `most` of the next entries.
    fn take(&mut self, most: usize) -> Vec<Pending> {
        let end = self.ranks.end.min(self.ranks.start + most);
        let ranks = self.ranks.start..end;
        self.ranks.start = end.max(self.ranks.start);
        match &self.consumer {
            Some(consumer) => consumer.pending(ranks).filter_map(|id| self.group.get(id)).collect(),
            None => self.group.pending(ranks).collect(),
        }
    }

    fn show(&self, reply: &mut Reply<'_>, pending: &Pending) {
        let owner = pending.consumer.and_then(|number| self.group.numbered(number));
        reply.array(4);
        id::encode(reply, pending.id);
        reply.bulk(owner.map_or(&b""[..], Consumer::name));
        // As in Redis 8.8, the idle time of an entry without a consumer is 0.
        let idle = self.now.saturating_sub(pending.delivered_ms).cast_signed();
        reply.int(if owner.is_some() { idle } else { -1 });
        reply.int(pending.times.cast_signed());
    }
}

impl Portions for Listing {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        /// Entries between two checks of the length of names.
        const FEW: usize = 4;
        let (mut shown, before) = (0, reply.out.len());
        while shown < SHOWN_AT_ONCE && reply.out.len() - before < BYTES_AT_ONCE {
            self.take(FEW).iter().for_each(|pending| self.show(reply, pending));
            shown += FEW;
        }
        !self.ranks.is_empty()
    }
}

/// A search for entries that have been idle for long enough.
struct Search {
    listing: Listing,
    idle_ms: u64,
    count: usize,
    found: Vec<Pending>,
}

impl Search {
    /// Visits the next entries. Returns true while more are left and not enough were found.
    fn look(&mut self) -> bool {
        let now = self.listing.now;
        for pending in self.listing.take(LOOKED_AT_ONCE) {
            if self.found.len() < self.count
                && now.saturating_sub(pending.delivered_ms) >= self.idle_ms
            {
                self.found.push(pending);
            }
        }
        self.found.len() < self.count && !self.listing.ranks.is_empty()
    }

    fn show(&mut self, cx: &mut Cx<'_>) -> Flow {
        cx.reply.array(self.found.len());
        let Listing { group, consumer, now, .. } = &self.listing;
        let listing =
            Listing { group: group.clone(), consumer: consumer.clone(), ranks: 0..0, now: *now };
        flow(&mut cx.reply, Found { listing, found: std::mem::take(&mut self.found).into_iter() })
    }
}

impl Job for Search {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        while self.look() {
            if cx.preempt.must_yield() {
                return Ok(Step::More);
            }
        }
        Ok(Step::Done(self.show(cx)))
    }
}

/// A reply of the entries found.
struct Found {
    listing: Listing,
    found: std::vec::IntoIter<Pending>,
}

impl Portions for Found {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let before = reply.out.len();
        for pending in self.found.by_ref().take(SHOWN_AT_ONCE) {
            self.listing.show(reply, &pending);
            if reply.out.len() - before >= BYTES_AT_ONCE {
                break;
            }
        }
        self.found.len() > 0
    }
}
