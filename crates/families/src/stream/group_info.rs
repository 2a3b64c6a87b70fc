//! XINFO GROUPS, XINFO CONSUMERS, XINFO STREAM FULL.

use super::id;
use super::progress::lag;
use super::reply::{Showing, ShownEntries};
use super::value::Stream;
use super::xgroup::no_group;
use crate::lookup::find_value;
use crate::pending_values::flow;
use crate::text::BYTES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Refusal, Stream as Portions};
use darter_resp::Reply;
use darter_structs::groups::{Consumer, Group, Groups};
use darter_structs::stream::End;
use std::ops::Range;

/// Groups or consumers in one portion; fewer if their names are long.
const SHOWN_AT_ONCE: usize = 64;

fn number(reply: &mut Reply<'_>, name: &str, value: usize) {
    reply.bulk(name.as_bytes());
    reply.count(value);
}

fn time(reply: &mut Reply<'_>, name: &str, value: u64) {
    reply.bulk(name.as_bytes());
    reply.int(value.cast_signed());
}

fn maybe(reply: &mut Reply<'_>, name: &str, value: Option<i64>) {
    reply.bulk(name.as_bytes());
    match value {
        Some(value) => reply.int(value),
        None => reply.null(),
    }
}

/// `XINFO GROUPS key`: the consumer groups of a stream.
///
/// Reply: array of maps. Refusals: `NoSuchKey`, `WrongType`. Cost: O(groups), in slices.
/// Source: <https://redis.io/commands/xinfo-groups> (5.0.0).
pub(super) fn groups(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let stream = find_value::<Stream>(cx.db, cx.stats, &key)?.ok_or(Refusal::NoSuchKey)?;
    let stream = stream.clone();
    cx.reply.array(stream.groups().len());
    Ok(flow(&mut cx.reply, ShowingGroups { stream, next: 0 }))
}

struct ShowingGroups {
    stream: Stream,
    next: usize,
}

impl Portions for ShowingGroups {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let (from, stream, before) = (self.next, &self.stream, reply.out.len());
        for index in from..from + SHOWN_AT_ONCE {
            let Some(group) = stream.groups().at(index) else { break };
            self.next += 1;
            reply.map(6);
            reply.bulk(b"name");
            reply.bulk(group.name());
            number(reply, "consumers", group.consumers_len());
            number(reply, "pending", group.pending_len());
            reply.bulk(b"last-delivered-id");
            id::encode(reply, group.last());
            maybe(reply, "entries-read", group.read().map(u64::cast_signed));
            maybe(reply, "lag", lag(stream, group));
            if reply.out.len() - before >= BYTES_AT_ONCE {
                break;
            }
        }
        self.next < stream.groups().len()
    }
}

/// `XINFO CONSUMERS key group`: the consumers of a group.
///
/// Reply: array of maps. Refusals: `NoSuchKey`, `WrongType`, a missing group. Cost: O(consumers), in
/// slices. Source: <https://redis.io/commands/xinfo-consumers> (5.0.0).
pub(super) fn consumers(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, name) = (args.key()?, id::name(&mut args)?);
    let stream = find_value::<Stream>(cx.db, cx.stats, &key)?.ok_or(Refusal::NoSuchKey)?;
    let Some(group) = stream.groups().get(name).cloned() else { return Err(no_group(name, &key)) };
    cx.reply.array(group.consumers_len());
    Ok(flow(&mut cx.reply, ShowingConsumers { group, next: 0, now: cx.now }))
}

struct ShowingConsumers {
    group: Group,
    next: usize,
    now: u64,
}

impl Portions for ShowingConsumers {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let (from, before) = (self.next, reply.out.len());
        for consumer in self.group.consumers(from..from + SHOWN_AT_ONCE) {
            self.next += 1;
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(consumer.name());
            number(reply, "pending", consumer.pending_len());
            time(reply, "idle", self.now.saturating_sub(consumer.seen_ms()));
            if reply.out.len() - before >= BYTES_AT_ONCE {
                break;
            }
        }
        self.next < self.group.consumers_len()
    }
}

/// The rest of `XINFO STREAM key FULL [COUNT n]`, after the fields of the short form: entries, and
/// groups with their pending entries; at most `n` of each, or all if `n` is 0.
pub(super) fn full(reply: &mut Reply<'_>, stream: &Stream, count: usize) -> Flow {
    let count = if count == 0 { usize::MAX } else { count };
    let shown = stream.entries().len().min(count);
    reply.bulk(b"entries");
    reply.array(shown);
    let mut entries = Showing::default();
    if shown > 0 {
        entries.push(ShownEntries::begun(stream.entries(), 0..shown, End::Front));
    }
    let (groups, next) = (stream.groups().clone(), Next::Entries);
    flow(reply, Full { stream: stream.clone(), entries, groups, count, next })
}

/// The next piece: group index, consumer index, rank of the entry.
#[derive(Clone, Copy, Debug)]
enum Next {
    Entries,
    Group(usize),
    Pending(usize, usize),
    Consumer(usize, usize),
    Owned(usize, usize, usize),
}

struct Full {
    stream: Stream,
    entries: Showing,
    groups: Groups,
    /// The most entries that are shown of each.
    count: usize,
    next: Next,
}

impl Full {
    /// Writes the next pieces. Returns false at the end.
    fn step(&mut self, reply: &mut Reply<'_>) -> bool {
        self.next = match self.next {
            Next::Entries => {
                reply.bulk(b"groups");
                reply.array(self.groups.len());
                Next::Group(0)
            }
            Next::Group(index) => {
                let Some(group) = self.groups.at(index) else { return false };
                self.group(reply, group);
                Next::Pending(index, 0)
            }
            Next::Pending(index, rank) => {
                let Some(group) = self.groups.at(index) else { return false };
                let len = group.pending_len().min(self.count);
                let end = self.pending(reply, group, rank..len);
                if end < len {
                    Next::Pending(index, end)
                } else {
                    reply.bulk(b"consumers");
                    reply.array(group.consumers_len());
                    Next::Consumer(index, 0)
                }
            }
            Next::Consumer(index, at) => {
                let Some(group) = self.groups.at(index) else { return false };
                match group.consumers(at..at + 1).next() {
                    None => Next::Group(index + 1),
                    Some(consumer) => {
                        self.consumer(reply, consumer);
                        Next::Owned(index, at, 0)
                    }
                }
            }
            Next::Owned(index, at, rank) => {
                let Some(group) = self.groups.at(index) else { return false };
                let Some(consumer) = group.consumers(at..at + 1).next() else { return false };
                let len = consumer.pending_len().min(self.count);
                let end = len.min(rank + SHOWN_AT_ONCE);
                for pending in consumer.pending(rank..end).filter_map(|id| group.get(id)) {
                    reply.array(3);
                    id::encode(reply, pending.id);
                    reply.int(pending.delivered_ms.cast_signed());
                    reply.int(pending.times.cast_signed());
                }
                if end < len { Next::Owned(index, at, end) } else { Next::Consumer(index, at + 1) }
            }
        };
        true
    }

    fn group(&self, reply: &mut Reply<'_>, group: &Group) {
        reply.map(7);
        reply.bulk(b"name");
        reply.bulk(group.name());
        reply.bulk(b"last-delivered-id");
        id::encode(reply, group.last());
        maybe(reply, "entries-read", group.read().map(u64::cast_signed));
        maybe(reply, "lag", lag(&self.stream, group));
        number(reply, "pel-count", group.pending_len());
        reply.bulk(b"pending");
        reply.array(group.pending_len().min(self.count));
    }

    /// Writes the first of these pending entries. Returns the rank of the next one.
    fn pending(&self, reply: &mut Reply<'_>, group: &Group, ranks: Range<usize>) -> usize {
        let (mut next, before) = (ranks.start, reply.out.len());
        for pending in group.pending(ranks).take(SHOWN_AT_ONCE) {
            next += 1;
            let owner = pending.consumer.and_then(|number| group.numbered(number));
            reply.array(4);
            id::encode(reply, pending.id);
            reply.bulk(owner.map_or(&b""[..], Consumer::name));
            reply.int(pending.delivered_ms.cast_signed());
            reply.int(pending.times.cast_signed());
            if reply.out.len() - before >= BYTES_AT_ONCE {
                break;
            }
        }
        next
    }

    fn consumer(&self, reply: &mut Reply<'_>, consumer: &Consumer) {
        reply.map(4);
        reply.bulk(b"name");
        reply.bulk(consumer.name());
        time(reply, "seen-time", consumer.seen_ms());
        number(reply, "pel-count", consumer.pending_len());
        reply.bulk(b"pending");
        reply.array(consumer.pending_len().min(self.count));
    }
}

impl Portions for Full {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if !self.entries.is_over() {
            self.entries.pump(reply);
            return true;
        }
        let before = reply.out.len();
        (0..8).all(|_| reply.out.len() - before >= BYTES_AT_ONCE || self.step(reply))
    }

    fn pinned_bytes(&self) -> usize {
        self.entries.pinned_bytes()
    }
}
