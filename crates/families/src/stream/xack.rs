//! XACK, XNACK: acknowledging pending entries, or returning them to the group.

use super::id;
use super::value::{Stream, StreamEdit};
use super::work::{self, CHANGED_AT_ONCE, Ids, StreamJob};
use super::xpending::no_group;
use crate::lookup::find_value;
use crate::option_names;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_resp::{self as resp, Reply};
use darter_structs::groups::Pending;

/// Entries acknowledged in one step: they may be at random places.
const ACKNOWLEDGED_AT_ONCE: usize = 8;

/// `XACK key group id [id ...]`: acknowledges entries: they are no longer pending.
///
/// Reply: the number of entries that were pending. Refusals: `WrongType`, invalid IDs if the group
/// exists; then nothing changes. Cost: O(log n) for each, in portions if there are many. Source:
/// <https://redis.io/commands/xack> (5.0.0).
pub(super) fn xack(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, group) = (args.key()?, id::name(&mut args)?);
    let at = args.position() - 2;
    let stream = find_value::<Stream>(cx.db, cx.stats, &key)?;
    if stream.is_none_or(|stream| stream.groups().get(group).is_none()) {
        cx.reply.int(0);
        return Ok(Flow::Done);
    }
    let ids = Ids::new(args.position(), args.all().len());
    let work = Acknowledging { group: group.to_vec(), ids, done: 0 };
    work::run(cx, args, at, ids.len() > 2 * CHANGED_AT_ONCE, work)
}

/// An XACK in progress.
struct Acknowledging {
    group: Vec<u8>,
    ids: Ids,
    done: usize,
}

impl StreamJob for Acknowledging {
    fn read(&mut self, all: resp::Args<'_>) -> Result<bool, Refusal> {
        self.ids.check(all)
    }

    fn step(&mut self, edit: &mut StreamEdit<'_>, all: resp::Args<'_>, _: u64) -> bool {
        for _ in 0..ACKNOWLEDGED_AT_ONCE {
            let Some(id) = self.ids.take(all) else { break };
            self.done += usize::from(edit.acknowledge(&self.group, id));
        }
        self.ids.len() > 0
    }

    fn reply(&mut self, reply: &mut Reply<'_>, _: &Stream) -> Flow {
        reply.count(self.done);
        Flow::Done
    }
}

/// Entries returned in one step: they may be at random places.
const RELEASED_AT_ONCE: usize = 4;
/// The delivery count that marks entries which must never be processed.
const TIMES_MAX: u64 = i64::MAX.cast_unsigned();

/// The effect on the delivery count.
#[derive(Clone, Copy, Debug)]
enum Mode {
    /// The count decreases by one: this delivery does not count.
    Silent,
    /// The count stays.
    Fail,
    /// The count becomes the maximum.
    Fatal,
}

/// `XNACK key group SILENT | FAIL | FATAL IDS count id [id ...] [RETRYCOUNT n] [FORCE]`: returns
/// entries: they stay pending without a consumer, and can be claimed at once. With FORCE, entries
/// of the stream that were not pending become so.
///
/// Reply: the number of returned entries. Refusals: `Syntax`, invalid numbers, `WrongType`, a
/// missing key or group, invalid IDs; then nothing changes. Cost: O(log n) for each, in portions if
/// there are many. Source: <https://redis.io/commands/xnack> (8.8.0).
pub(super) fn xnack(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let at = args.position();
    let (key, group) = (args.key()?, id::name(&mut args)?);
    let work = Releasing::parse(args, group)?;
    let stream = find_value::<Stream>(cx.db, cx.stats, &key)?;
    if stream.is_none_or(|stream| stream.groups().get(group).is_none()) {
        return Err(no_group(&key, group));
    }
    let is_long = work.ids.len() > CHANGED_AT_ONCE;
    work::run(cx, args, at, is_long, work)
}

/// An XNACK in progress.
struct Releasing {
    group: Vec<u8>,
    mode: Mode,
    ids: Ids,
    /// The explicit delivery count, if given.
    times: Option<u64>,
    is_forced: bool,
    done: usize,
}

impl Releasing {
    fn parse(mut args: Args<'_>, group: &[u8]) -> Result<Self, Refusal> {
        let modes = [("SILENT", Mode::Silent), ("FAIL", Mode::Fail), ("FATAL", Mode::Fatal)];
        let mode = modes.into_iter().find(|(word, _)| args.option(word));
        let (_, mode) = mode.ok_or(Refusal::line("ERR mode must be SILENT, FAIL, or FATAL"))?;
        if !args.option("IDS") {
            return Err(Refusal::line("ERR syntax error, expected IDS keyword"));
        }
        let count = args.int().ok().and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| *count > 0);
        let count = count.ok_or(Refusal::line("ERR numids must be a positive integer"))?;
        if count > args.left() {
            return Err(Refusal::line("ERR number of IDs doesn't match numids"));
        }
        let ids = Ids::new(args.position(), args.position() + count);
        args.seek(args.position() + count);
        let (mut times, mut is_forced) = (None, false);
        let mut said = option_names::Count::default();
        while args.left() > 0 {
            said.add()?;
            if args.left() > 1 && args.option("RETRYCOUNT") {
                let refusal = || Refusal::line("ERR Invalid RETRYCOUNT value, must be >= 0");
                times = Some(u64::try_from(args.int()?).map_err(|_| refusal())?);
            } else if args.option("FORCE") {
                is_forced = true;
            } else {
                let word = args.word()?;
                return Err(Refusal::quoting("ERR Unrecognized XNACK option '", word, "'"));
            }
        }
        Ok(Self { group: group.to_vec(), mode, ids, times, is_forced, done: 0 })
    }

    /// The new delivery count of an entry with the count `before`.
    fn times(&self, before: u64) -> u64 {
        self.times.unwrap_or(match self.mode {
            Mode::Silent => before.saturating_sub(1),
            Mode::Fail => before,
            Mode::Fatal => TIMES_MAX,
        })
    }
}

impl StreamJob for Releasing {
    fn read(&mut self, all: resp::Args<'_>) -> Result<bool, Refusal> {
        self.ids.check(all)
    }

    fn step(&mut self, edit: &mut StreamEdit<'_>, all: resp::Args<'_>, _: u64) -> bool {
        for _ in 0..RELEASED_AT_ONCE {
            let Some(id) = self.ids.take(all) else { return false };
            let pending = edit.group(&self.group).and_then(|group| group.get(id));
            let before = match pending {
                Some(pending) => pending.times,
                None if self.is_forced && edit.stream().entries().contains(id) => 0,
                None => continue,
            };
            let times = self.times(before);
            edit.deliver(&self.group, &Pending { id, delivered_ms: 0, times, consumer: None });
            edit.count(1);
            self.done += 1;
        }
        true
    }

    fn reply(&mut self, reply: &mut Reply<'_>, _: &Stream) -> Flow {
        reply.count(self.done);
        Flow::Done
    }
}
