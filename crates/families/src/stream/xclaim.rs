//! XCLAIM, XAUTOCLAIM: moving pending entries to another consumer.

use super::id;
use super::rows::{IdRows, Rows, ShowingRows, Shown};
use super::value::{Stream, StreamEdit};
use super::work::{self, CHANGED_AT_ONCE, Ids, StreamJob};
use super::xpending::no_group;
use crate::lookup::find_value;
use crate::option_names;
use crate::pending_values::flow;
use darter_base::number;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::Key;
use darter_keyspace::rebuild::NOTHING_IS_DEAD;
use darter_resp::{self as resp, Reply};
use darter_structs::groups::{Group, Pending};
use darter_structs::stream::StreamId;

/// Entries that are claimed in one step: they may be at random places.
const CLAIMED_AT_ONCE: usize = 4;
/// Options that are read in one step.
const OPTIONS_AT_ONCE: usize = 256;
/// Pending entries that are visited in one step.
const LOOKED_AT_ONCE: usize = 32;
/// XAUTOCLAIM visits this many pending entries for each that it may return.
const LOOKS_EACH: usize = 10;

/// The claiming consumer, and its options.
struct Claim {
    group: Vec<u8>,
    consumer: Vec<u8>,
    min_idle_ms: u64,
    /// The consumer's number, once the consumer exists.
    number: Option<u64>,
    /// The delivery time of claimed entries; `None` for now.
    delivered_ms: Option<u64>,
    /// The delivery count of claimed entries; `None` to increment it.
    times: Option<u64>,
    /// Only IDs are returned, and the delivery is not counted.
    only_ids: bool,
    ids: IdRows,
    rows: Rows,
}

impl Claim {
    fn new(args: &mut Args<'_>, command: &str) -> Result<(Self, Option<Refusal>), Refusal> {
        let (group, consumer) = (id::name(args)?.to_vec(), id::name(args)?.to_vec());
        let idle = number::parse_i64(args.word()?);
        let refusal = idle
            .is_none()
            .then(|| Refusal::line(format!("ERR Invalid min-idle-time argument for {command}")));
        let claim = Self {
            group,
            consumer,
            min_idle_ms: idle.and_then(|idle| u64::try_from(idle).ok()).unwrap_or(0),
            number: None,
            delivered_ms: None,
            times: None,
            only_ids: false,
            ids: IdRows::default(),
            rows: Rows::default(),
        };
        Ok((claim, refusal))
    }

    /// True if a pending entry has not been idle for long enough.
    fn is_fresh(&self, pending: &Pending, now: u64) -> bool {
        let idle = i128::from(now) - i128::from(pending.delivered_ms);
        self.min_idle_ms > 0 && idle < i128::from(self.min_idle_ms)
    }

    /// Assigns a pending entry, which exists in the stream, to the consumer.
    fn take(&mut self, edit: &mut StreamEdit<'_>, old: &Pending, now: u64) {
        let number = match self.number {
            Some(number) => number,
            None => {
                let number = edit.consumer(&self.group, &self.consumer, now);
                edit.see(&self.group, number, now, true);
                *self.number.insert(number)
            }
        };
        let more = u64::from(!self.only_ids);
        let new = Pending {
            id: old.id,
            delivered_ms: self.delivered_ms.unwrap_or(now),
            times: self.times.unwrap_or(old.times.wrapping_add(more)),
            consumer: Some(number),
        };
        edit.deliver(&self.group, &new);
        edit.count(1);
        if self.only_ids {
            self.ids.add(old.id);
        } else {
            let rank = edit.stream().entries().rank_of(old.id);
            self.rows.add(rank..rank + 1);
        }
    }

    /// Returns the claimed entries.
    fn shown(&mut self, stream: &Stream) -> Shown {
        if self.only_ids {
            return Shown::Ids(std::mem::take(&mut self.ids));
        }
        Shown::Rows(std::mem::take(&mut self.rows), stream.entries().reader())
    }
}

/// An XCLAIM in progress.
struct Claiming {
    claim: Claim,
    wanted: Ids,
    /// The index of the next option, once all IDs are read.
    options: Option<usize>,
    /// The time of the command.
    now: u64,
    /// FORCE: entries become pending if they are not.
    is_forced: bool,
    /// DELETED: entries that were deleted are claimed, too.
    takes_deleted: bool,
    /// LASTID: the group's position moves to this ID.
    last: Option<StreamId>,
    /// The position has moved, and no entry has been counted yet.
    has_advanced: bool,
}

impl StreamJob for Claiming {
    fn read(&mut self, all: resp::Args<'_>) -> Result<bool, Refusal> {
        let Some(next) = self.options else {
            if !self.wanted.seek_end(all) {
                self.options = Some(self.wanted.end());
            }
            return Ok(true);
        };
        let mut args = Args::new(all, next);
        for _ in 0..OPTIONS_AT_ONCE {
            if args.left() == 0 {
                break;
            }
            self.option(&mut args)?;
        }
        self.options = Some(args.position());
        Ok(args.left() > 0)
    }

    fn step(&mut self, edit: &mut StreamEdit<'_>, all: resp::Args<'_>, now: u64) -> bool {
        let group = self.claim.group.clone();
        if let Some(last) = self.last.take()
            && let Some(found) = edit.group(&group)
            && last > found.last()
        {
            let read = found.read();
            edit.advance_group(&group, last, read);
            self.has_advanced = true;
        }
        let Self { claim, wanted, is_forced, takes_deleted, has_advanced, .. } = self;
        for _ in 0..CLAIMED_AT_ONCE {
            let Some(id) = wanted.take(all) else { break };
            if !*takes_deleted && !edit.stream().entries().contains(id) {
                *has_advanced &= !edit.acknowledge(&group, id);
                continue;
            }
            let pending = edit.group(&group).and_then(|group| group.get(id));
            let new = Pending { id, delivered_ms: now, times: 1, consumer: None };
            match pending {
                Some(old) if old.consumer.is_some() && claim.is_fresh(&old, now) => continue,
                Some(old) => claim.take(edit, &old, now),
                None if *is_forced => claim.take(edit, &new, now),
                None => continue,
            }
            *has_advanced = false;
        }
        let more = wanted.len() > 0;
        // As in Redis, a moved position counts as a change only if no entry does.
        edit.count(usize::from(!more && self.has_advanced));
        more
    }

    fn reply(&mut self, reply: &mut Reply<'_>, stream: &Stream) -> Flow {
        let mut showing = ShowingRows::default();
        showing.push(self.claim.shown(stream));
        flow(reply, showing)
    }
}

/// `XCLAIM key group consumer min-idle id [id ...] [IDLE ms] [TIME ms] [RETRYCOUNT n] [FORCE]
/// [JUSTID] [LASTID id]`: assigns pending entries that have been idle for at least `min-idle` to
/// the consumer. In Darter's files, JUSTID DELETED also claims entries that were deleted.
///
/// Reply: array of entries, or of IDs with JUSTID. Refusals: `WrongType`, a missing key or group,
/// invalid numbers, options; then nothing changes. Cost: O(log n) for each entry, in portions if
/// there are many. Source: <https://redis.io/commands/xclaim> (5.0.0).
pub(super) fn xclaim(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let at = args.position();
    let key = args.key()?;
    let (claim, refusal) = Claim::new(&mut args, "XCLAIM")?;
    look(cx, &key, &claim.group)?;
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    let wanted = Ids::new(args.position(), args.all().len());
    let (now, options, last) = (cx.now, None, None);
    let claiming = Claiming {
        claim,
        wanted,
        options,
        now,
        is_forced: false,
        takes_deleted: false,
        last,
        has_advanced: false,
    };
    work::run(cx, args, at, wanted.len() > CHANGED_AT_ONCE, claiming)
}

impl Claiming {
    /// Reads the next option.
    fn option(&mut self, args: &mut Args<'_>) -> Result<(), Refusal> {
        let invalid =
            |name: &str| Refusal::line(format!("ERR Invalid {name} option argument for XCLAIM"));
        let int = |args: &mut Args<'_>, name| {
            number::parse_i64(args.word()?).ok_or_else(|| invalid(name))
        };
        let present = self.now.cast_signed();
        let has_value = args.left() > 1;
        if args.option("FORCE") {
            self.is_forced = true;
        } else if args.option("DELETED") {
            (self.takes_deleted, self.claim.only_ids) = (true, true);
        } else if args.option("JUSTID") {
            self.claim.only_ids = true;
        } else if has_value && args.option("IDLE") {
            let idle = int(args, "IDLE")?;
            self.delivered(present.wrapping_sub(idle), present);
        } else if has_value && args.option("TIME") {
            let time = int(args, "TIME")?;
            self.delivered(time, present);
        } else if has_value && args.option("RETRYCOUNT") {
            let times = int(args, "RETRYCOUNT")?;
            self.claim.times = u64::try_from(times).ok();
        } else if has_value && args.option("LASTID") {
            self.last = Some(id::parse(args.word()?, 0)?);
        } else {
            let word = args.word()?;
            return Err(Refusal::quoting("ERR Unrecognized XCLAIM option '", word, "'"));
        }
        Ok(())
    }

    /// Sets the delivery time; a time in the future becomes now. A replay has no time of its own.
    fn delivered(&mut self, at: i64, now: i64) {
        let is_replay = self.now == NOTHING_IS_DEAD;
        let at = if at < 0 || at > now && !is_replay { now } else { at };
        self.claim.delivered_ms = Some(at.cast_unsigned());
    }
}

/// The number of pending entries. Refuses a missing key or group.
fn look(cx: &mut Cx<'_>, key: &Key<'_>, group: &[u8]) -> Result<usize, Refusal> {
    let stream = find_value::<Stream>(cx.db, cx.stats, key)?;
    let found = stream.as_ref().and_then(|stream| stream.groups().get(group));
    found.map(Group::pending_len).ok_or_else(|| no_group(key, group))
}

/// An XAUTOCLAIM in progress.
struct AutoClaiming {
    claim: Claim,
    next: StreamId,
    /// The number of entries that may still be returned, and visited.
    count: usize,
    looks: usize,
    /// The first entry not visited; 0-0 if there is none.
    cursor: StreamId,
    gone: IdRows,
}

impl StreamJob for AutoClaiming {
    fn step(&mut self, edit: &mut StreamEdit<'_>, _: resp::Args<'_>, now: u64) -> bool {
        let name = self.claim.group.clone();
        let Some(group) = edit.group(&name) else { return false };
        let rank = group.rank_of(self.next);
        // One entry more than is visited, for the cursor.
        let pending: Vec<_> = group.pending(rank..rank + LOOKED_AT_ONCE + 1).collect();
        let mut claimed = 0;
        for (index, old) in pending.iter().enumerate() {
            self.cursor = old.id;
            if self.count == 0 || self.looks == 0 {
                return false;
            }
            if index == LOOKED_AT_ONCE || claimed == CLAIMED_AT_ONCE {
                self.next = old.id;
                return true;
            }
            self.looks -= 1;
            if !edit.stream().entries().contains(old.id) {
                edit.acknowledge(&name, old.id);
                self.gone.add(old.id);
                self.count -= 1;
                claimed += 1;
            } else if !self.claim.is_fresh(old, now) {
                self.claim.take(edit, old, now);
                self.count -= 1;
                claimed += 1;
            }
        }
        self.cursor = StreamId::MIN;
        false
    }

    fn reply(&mut self, reply: &mut Reply<'_>, stream: &Stream) -> Flow {
        reply.array(3);
        id::encode(reply, self.cursor);
        let mut showing = ShowingRows::default();
        showing.push(self.claim.shown(stream));
        showing.push(Shown::Ids(std::mem::take(&mut self.gone)));
        flow(reply, showing)
    }
}

/// `XAUTOCLAIM key group consumer min-idle start [COUNT n] [JUSTID]`: assigns pending entries from
/// the ID `start` on, which have been idle for at least `min-idle`, to the consumer. Deleted
/// entries are dropped.
///
/// Reply: an array of the ID for the next call (0-0 at the end), the entries (with JUSTID their
/// IDs), and the IDs of dropped entries. Refusals: invalid numbers, `Syntax`, `WrongType`, a
/// missing key or group; then nothing changes. Cost: O(log n) for each visited entry, at most ten
/// times the count; in portions if those are many. Source: <https://redis.io/commands/xautoclaim>
/// (6.2.0).
pub(super) fn xautoclaim(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    /// Redis's limit: the largest array that it could allocate.
    const COUNT_MAX: i64 = i64::MAX / 16;
    let at = args.position();
    let key = args.key()?;
    let (mut claim, refusal) = Claim::new(&mut args, "XAUTOCLAIM")?;
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    let (next, mut count) = (id::first(&mut args)?, 100);
    let mut said = option_names::Count::default();
    while args.left() > 0 {
        said.add()?;
        if args.left() > 1 && args.option("COUNT") {
            let wanted = number::parse_i64(args.word()?);
            let wanted = wanted.filter(|count| (1..=COUNT_MAX).contains(count));
            let wanted = wanted.and_then(|count| usize::try_from(count).ok());
            count = wanted.ok_or(Refusal::line("ERR COUNT must be > 0"))?;
        } else if args.option("JUSTID") {
            claim.only_ids = true;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    let pending = look(cx, &key, &claim.group)?;
    let looks = count.saturating_mul(LOOKS_EACH);
    let is_long = count.min(pending) > CHANGED_AT_ONCE || looks.min(pending) > LOOKED_AT_ONCE;
    let (cursor, gone) = (StreamId::MIN, IdRows::default());
    let work = AutoClaiming { claim, next, count, looks, cursor, gone };
    work::run(cx, args, at, is_long, work)
}
