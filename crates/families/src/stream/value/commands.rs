//! A stream as commands: its changes, and the whole of a large one.
//!
//! A claim needs its entry, but an entry may be pending after its deletion. When a whole stream is
//! written, such entries are added first and deleted last.

use super::super::group_edit::GroupChange;
use super::{State, Stream, StreamChange, sent};
use darter_keyspace::commands::{self, Commands, ITEMS_MAX};
use darter_keyspace::rebuild::{PORTION_BYTES, Parts};
use darter_structs::groups::{Group, Pending};
use darter_structs::stream::{End, List, StreamId, StreamReader};

/// Pending entries that are looked at in one step.
const LOOKED_AT_ONCE: usize = 64;

/// Writes the commands that make `changes`.
pub(super) fn encode(changes: &[StreamChange], key: &[u8], to: &mut Commands) {
    commands::runs(changes, are_like, |run| match &run[0] {
        StreamChange::Append { id: at, fields } => append(key, *at, fields, to),
        StreamChange::Remove { .. } => {
            begin(to, &[b"XDEL", key], run.len());
            run.iter().for_each(|change| {
                if let StreamChange::Remove { id: at } = change {
                    id(to, *at);
                }
            });
        }
        StreamChange::Trim { left, .. } => {
            begin(to, &[b"XTRIM", key, b"MAXLEN"], 1);
            to.size(*left);
        }
        StreamChange::TrimOne { id: at, state: after } => {
            begin(to, &[b"XDEL", key], 1);
            id(to, *at);
            state(key, after, true, to);
        }
        StreamChange::State { state: after } => state(key, after, false, to),
        // The memory of messages is not in files.
        StreamChange::Remember { .. } | StreamChange::Configure { .. } => {}
        StreamChange::Group { group, change } => encode_group(run, (key, group), change, to),
    });
}

/// True if one command makes both changes.
fn are_like(one: &StreamChange, other: &StreamChange) -> bool {
    use GroupChange::{Acknowledge, Deliver};
    match (one, other) {
        (StreamChange::Remove { .. }, StreamChange::Remove { .. }) => true,
        (
            StreamChange::Group { group, change },
            StreamChange::Group { group: of, change: next },
        ) => {
            group == of
                && match (change, next) {
                    (Acknowledge { .. }, Acknowledge { .. }) => true,
                    (
                        Deliver { delivered_ms, times, consumer, is_deleted, .. },
                        Deliver {
                            delivered_ms: ms,
                            times: more,
                            consumer: by,
                            is_deleted: are,
                            ..
                        },
                    ) => (delivered_ms, times, consumer, is_deleted) == (ms, more, by, are),
                    _ => false,
                }
        }
        _ => false,
    }
}

/// The IDs of pending entries in a run.
fn pending(run: &[StreamChange]) -> impl Iterator<Item = StreamId> {
    run.iter().filter_map(|change| match change {
        StreamChange::Group {
            change: GroupChange::Deliver { id, .. } | GroupChange::Acknowledge { id },
            ..
        } => Some(*id),
        _ => None,
    })
}

fn encode_group(
    run: &[StreamChange],
    (key, group): (&[u8], &[u8]),
    change: &GroupChange,
    to: &mut Commands,
) {
    match change {
        GroupChange::Create { last, read } => create(key, group, (*last, *read), to),
        GroupChange::Destroy => to.command(&[b"XGROUP", b"DESTROY", key, group]),
        GroupChange::Position { last, read } => {
            begin(to, &[b"XGROUP", b"SETID", key, group], 3);
            position((*last, *read), to);
        }
        GroupChange::CreateConsumer { name, .. } => {
            to.command(&[b"XGROUP", b"CREATECONSUMER", key, group, name]);
        }
        GroupChange::RemoveConsumer { name } => {
            to.command(&[b"XGROUP", b"DELCONSUMER", key, group, name]);
        }
        GroupChange::See { .. } => {}
        GroupChange::Deliver { delivered_ms, times, consumer, is_deleted, .. } => {
            let delivery = Delivery {
                consumer: consumer.as_deref(),
                delivered_ms: *delivered_ms,
                times: *times,
                is_deleted: *is_deleted,
                count: run.len(),
            };
            delivery.encode(key, group, pending(run), to);
        }
        GroupChange::Acknowledge { .. } => {
            begin(to, &[b"XACK", key, group], run.len());
            pending(run).for_each(|at| id(to, at));
        }
    }
}

/// Begins a command with these words, and `more` others.
fn begin(to: &mut Commands, words: &[&[u8]], more: usize) {
    to.begin(words.len() + more);
    words.iter().for_each(|word| to.word(word));
}

fn id(to: &mut Commands, id: StreamId) {
    to.word(id.text(&mut [0; StreamId::TEXT_MAX]));
}

fn append(key: &[u8], at: StreamId, fields: &List, to: &mut Commands) {
    begin(to, &[b"XADD", key], 1 + fields.len());
    id(to, at);
    fields.range(0..fields.len()).for_each(|field| to.text(&sent(&field)));
}

/// Sets the counters. Redis and Darter ignore a highest deleted ID 0-0, which is an old one unless
/// `is_lowered`; only Darter knows `-`.
fn state(key: &[u8], state: &State, is_lowered: bool, to: &mut Commands) {
    let is_none = state.max_deleted == StreamId::MIN;
    begin(to, &[b"XSETID", key], if is_none && !is_lowered { 3 } else { 5 });
    id(to, state.last);
    to.word(b"ENTRIESADDED");
    to.natural(state.added);
    if !is_none {
        to.word(b"MAXDELETEDID");
        id(to, state.max_deleted);
    } else if is_lowered {
        to.word(b"MAXDELETEDID");
        to.word(b"NONE");
    }
}

fn create(key: &[u8], group: &[u8], at: (StreamId, Option<u64>), to: &mut Commands) {
    begin(to, &[b"XGROUP", b"CREATE", key, group], 4);
    id(to, at.0);
    to.word(b"MKSTREAM");
    entries_read(at.1, to);
}

/// Writes the last words of a group's position.
fn position((last, read): (StreamId, Option<u64>), to: &mut Commands) {
    id(to, last);
    entries_read(read, to);
}

fn entries_read(read: Option<u64>, to: &mut Commands) {
    to.word(b"ENTRIESREAD");
    match read {
        Some(read) => to.natural(read),
        None => to.word(b"-1"),
    }
}

/// A delivery of several entries.
struct Delivery<'a> {
    consumer: Option<&'a [u8]>,
    delivered_ms: u64,
    times: u64,
    /// The entries are deleted; only Darter's XCLAIM delivers these.
    is_deleted: bool,
    count: usize,
}

impl Delivery<'_> {
    /// Writes the command that makes these entries pending.
    fn encode(
        &self,
        key: &[u8],
        group: &[u8],
        ids: impl Iterator<Item = StreamId>,
        to: &mut Commands,
    ) {
        let Some(consumer) = self.consumer else {
            begin(to, &[b"XNACK", key, group, b"FAIL", b"IDS"], 1 + self.count + 3);
            to.size(self.count);
            ids.for_each(|at| id(to, at));
            to.word(b"RETRYCOUNT");
            to.natural(self.times);
            to.word(b"FORCE");
            return;
        };
        let more = 6 + usize::from(self.is_deleted);
        begin(to, &[b"XCLAIM", key, group, consumer, b"0"], self.count + more);
        ids.for_each(|at| id(to, at));
        to.word(b"TIME");
        to.natural(self.delivered_ms);
        to.word(b"RETRYCOUNT");
        to.natural(self.times);
        to.word(b"FORCE");
        to.word(b"JUSTID");
        if self.is_deleted {
            to.word(b"DELETED");
        }
    }
}

/// Starts writing a whole stream.
pub(super) fn rebuild(stream: Stream) -> Box<dyn Parts> {
    Box::new(StreamParts { stream, ghosts: Vec::new(), stage: BuildStage::Ghosts(0, 0) })
}

struct StreamParts {
    stream: Stream,
    /// Entries that are pending though they are deleted, in order.
    ghosts: Vec<StreamId>,
    stage: BuildStage,
}

/// The next part of the stream to write.
enum BuildStage {
    /// Nothing: the pending entries of this group are searched for ghosts, from this rank on.
    Ghosts(usize, usize),
    /// The entries, together with the ghosts from this index on.
    Entries(Box<StreamReader>, usize),
    /// The group with this index, or its consumers from this index on.
    Consumers(usize, usize),
    /// The pending entries of the group from this rank on.
    Pending(usize, usize),
    /// The deletion of the ghosts from this index on, then the state.
    Deletions(usize),
}

impl Parts for StreamParts {
    fn step(&mut self, key: &[u8], to: &mut Commands) -> bool {
        let before = to.bytes();
        for _ in 0..LOOKED_AT_ONCE {
            if !self.advance(key, to) {
                return false;
            }
            if to.bytes() > before + PORTION_BYTES {
                break;
            }
        }
        true
    }
}

impl StreamParts {
    /// Does one piece of work. Returns false at the end.
    fn advance(&mut self, key: &[u8], to: &mut Commands) -> bool {
        match &mut self.stage {
            BuildStage::Ghosts(group, rank) => {
                let (group, rank) = (*group, *rank);
                self.search(group, rank);
            }
            BuildStage::Entries(reader, next) => {
                if !write_entry(reader, &self.ghosts, next, key, to) {
                    self.stage = BuildStage::Consumers(0, 0);
                }
            }
            BuildStage::Consumers(group, index) => {
                let (at, index) = (*group, *index);
                self.stage = match self.stream.groups().at(at) {
                    None => BuildStage::Deletions(0),
                    Some(group) if write_consumers(group, index, key, to) => {
                        BuildStage::Consumers(at, index + ITEMS_MAX)
                    }
                    Some(_) => BuildStage::Pending(at, 0),
                };
            }
            BuildStage::Pending(group, rank) => {
                let (at, rank) = (*group, *rank);
                let found = self.stream.groups().at(at);
                self.stage = match found.is_some_and(|group| write_pending(group, rank, key, to)) {
                    true => BuildStage::Pending(at, rank + ITEMS_MAX),
                    false => BuildStage::Consumers(at + 1, 0),
                };
            }
            BuildStage::Deletions(next) => {
                let some = &self.ghosts[*next..self.ghosts.len().min(*next + ITEMS_MAX)];
                if some.is_empty() {
                    self.finish(key, to);
                    return false;
                }
                begin(to, &[b"XDEL", key], some.len());
                some.iter().for_each(|at| id(to, *at));
                *next += some.len();
            }
        }
        true
    }

    /// Searches some pending entries of a group for ghosts.
    fn search(&mut self, at: usize, rank: usize) {
        let Some(group) = self.stream.groups().at(at) else {
            self.ghosts.sort_unstable();
            self.ghosts.dedup();
            let cut = self.stream.entries().reader();
            let ranks = 0..cut.len();
            let reader = Box::new(StreamReader::new(cut, ranks, End::Front));
            self.stage = BuildStage::Entries(reader, 0);
            return;
        };
        let entries = self.stream.entries();
        let ids = group.pending(rank..rank + LOOKED_AT_ONCE).map(|pending| pending.id);
        self.ghosts.extend(ids.filter(|id| !entries.contains(*id)));
        let next = rank + LOOKED_AT_ONCE;
        self.stage = match next < group.pending_len() {
            true => BuildStage::Ghosts(at, next),
            false => BuildStage::Ghosts(at + 1, 0),
        };
    }

    fn finish(&self, key: &[u8], to: &mut Commands) {
        if self.stream.entries().is_empty()
            && self.stream.groups().is_empty()
            && self.ghosts.is_empty()
        {
            create(key, b"", (StreamId::MIN, None), to);
            to.command(&[b"XGROUP", b"DESTROY", key, b""]);
        }
        state(key, &self.stream.state(), !self.ghosts.is_empty(), to);
    }
}

/// Writes the next entry, or the ghosts before it. Returns false if there is none.
fn write_entry(
    reader: &mut StreamReader,
    ghosts: &[StreamId],
    next: &mut usize,
    key: &[u8],
    to: &mut Commands,
) -> bool {
    let mut ghosts_before = |end: Option<StreamId>, to: &mut Commands| {
        while let Some(ghost) = ghosts.get(*next)
            && end.is_none_or(|end| *ghost < end)
        {
            begin(to, &[b"XADD", key], 3);
            id(to, *ghost);
            to.word(b"");
            to.word(b"");
            *next += 1;
        }
    };
    if reader.left() == 0 {
        ghosts_before(None, to);
        return false;
    }
    reader.next_slice(1, &mut |entry| {
        ghosts_before(Some(entry.id()), to);
        if let Some(fields) = entry.long() {
            return append(key, entry.id(), fields, to);
        }
        begin(to, &[b"XADD", key], 1 + 2 * entry.pairs());
        id(to, entry.id());
        entry.fields().for_each(|field| to.text(&sent(&field)));
    });
    true
}

/// Writes some consumers of a group, after the group itself. Returns true while more are left.
fn write_consumers(group: &Group, from: usize, key: &[u8], to: &mut Commands) -> bool {
    if from == 0 {
        create(key, group.name(), (group.last(), group.read()), to);
    }
    for consumer in group.consumers(from..from + ITEMS_MAX) {
        to.command(&[b"XGROUP", b"CREATECONSUMER", key, group.name(), consumer.name()]);
    }
    from + ITEMS_MAX < group.consumers_len()
}

/// Writes some pending entries of a group. Returns true while more are left.
fn write_pending(group: &Group, rank: usize, key: &[u8], to: &mut Commands) -> bool {
    let some: Vec<Pending> = group.pending(rank..rank + ITEMS_MAX).collect();
    let of = |one: &Pending| (one.consumer, one.delivered_ms, one.times);
    for run in some.chunk_by(|one, other| of(one) == of(other)) {
        let Pending { consumer, delivered_ms, times, .. } = run[0];
        let consumer = consumer.and_then(|number| group.numbered(number));
        let consumer = consumer.map(|consumer| consumer.name());
        let (is_deleted, count) = (false, run.len());
        let delivery = Delivery { consumer, delivered_ms, times, is_deleted, count };
        delivery.encode(key, group.name(), run.iter().map(|pending| pending.id), to);
    }
    rank + ITEMS_MAX < group.pending_len()
}
