//! Removing members: ZREM by name, ZREMRANGEBYRANK, ZREMRANGEBYSCORE and ZREMRANGEBYLEX by range.

use super::add::SEARCHES;
use super::bounds::Bounds;
use super::value::{ZSet, ZSetEdit};
use crate::bulk_edit::{self, BulkEdit, is_long};
use crate::prefetch::prefetch;
use crate::unshare;
use darter_base::UnixMillis;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_keyspace::{Event, Key, Touch, Type, Typed, Value};

/// More bytes of members than this are processed aside: hashing takes time.
const BYTES_AT_ONCE: usize = 64 * 1024;

/// `ZREM key member [member ...]`: removes members.
///
/// Reply: integer, members that were there. Refusals: `WrongType`. Cost: O(members named *
/// log(members there)), in slices when they are many.
/// Source: <https://redis.io/commands/zrem> (1.2.0).
pub(super) fn zrem(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    if !is_long(args, ENTRIES_AT_ONCE / 2, BYTES_AT_ONCE) {
        return unshare::run(cx, &key, args, Remove);
    }
    let draft = cx.db.draft::<ZSet>(&key)?;
    if draft.is_new() {
        cx.reply.int(0);
        return Ok(Flow::Done);
    }
    Ok(BulkEdit::start(args, draft, Removing { removed: 0 }))
}

/// Removal of some members.
#[derive(Clone, Copy)]
struct Remove;

impl unshare::EntryEdit for Remove {
    fn touches(self) -> (&'static Type, Touch) {
        (ZSet::TYPE, Touch::Present)
    }

    fn copy(
        self,
        cx: &mut Cx<'_>,
        key: &Key<'_>,
        mut args: Args<'_>,
        entries: usize,
    ) -> Option<usize> {
        let preempt = cx.preempt;
        let copy = |edit: &mut ZSetEdit<'_>| {
            (1..=entries).find(|done| {
                let copied = args.next().is_some_and(|member| edit.unshare(member, None));
                (copied || done.is_multiple_of(SEARCHES)) && preempt.must_yield()
            })
        };
        cx.db.edit::<ZSet, _>(key, false, copy).ok()??
    }

    fn run(self, cx: &mut Cx<'_>, key: &Key<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
        let removed = cx.db.edit::<ZSet, _>(key, false, |edit| {
            let mut removed = 0;
            for done in 0.. {
                if let Some(ahead) = edit.zset().ahead() {
                    prefetch(done, ahead, args, 1);
                }
                let Some(member) = args.next() else { break };
                removed += usize::from(edit.remove(member).is_some());
            }
            removed
        })?;
        cx.reply.count(removed.unwrap_or(0));
        Ok(Flow::Done)
    }
}

/// Removal of many members.
struct Removing {
    removed: usize,
}

impl bulk_edit::Change for Removing {
    type Value = ZSet;

    fn apply(&mut self, edit: &mut ZSetEdit<'_>, member: &[u8], _now: UnixMillis) {
        self.removed += usize::from(edit.remove(member).is_some());
    }

    fn has_changed(&self) -> bool {
        self.removed > 0
    }

    fn reply(&mut self, cx: &mut Cx<'_>) -> Flow {
        cx.reply.count(self.removed);
        Flow::Done
    }
}

/// `ZREMRANGEBYRANK key start stop`: removes the members with these ranks, both included; negative
/// ones count from the end.
///
/// Reply: integer, how many there were. Refusals: `NotAnInteger`, `WrongType`. Cost:
/// O(log(members)), however many are removed: they are freed later, in slices.
/// Source: <https://redis.io/commands/zremrangebyrank> (2.0.0).
pub(super) fn zremrangebyrank(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    const EVENT: &Event = &Event::new("zremrangebyrank", b'z');
    let (key, start, stop) = (args.key()?, args.int()?, args.int()?);
    remove(cx, &key, Bounds::Ranks(start, stop), EVENT)
}

/// `ZREMRANGEBYSCORE key min max`: removes the members whose score is in the range.
///
/// Refusals: invalid bounds, `WrongType`. Otherwise as ZREMRANGEBYRANK. Source:
/// <https://redis.io/commands/zremrangebyscore> (1.2.0).
pub(super) fn zremrangebyscore(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    const EVENT: &Event = &Event::new("zremrangebyscore", b'z');
    let (key, min, max) = (args.key()?, args.bytes()?, args.bytes()?);
    remove(cx, &key, Bounds::scores(min, max)?, EVENT)
}

/// `ZREMRANGEBYLEX key min max`: removes the members in the range, all having the same score.
///
/// Otherwise as ZREMRANGEBYSCORE. Source: <https://redis.io/commands/zremrangebylex> (2.8.9).
pub(super) fn zremrangebylex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    const EVENT: &Event = &Event::new("zremrangebylex", b'z');
    let (key, min, max) = (args.key()?, args.bytes()?, args.bytes()?);
    remove(cx, &key, Bounds::members(min, max)?, EVENT)
}

fn remove(
    cx: &mut Cx<'_>,
    key: &Key<'_>,
    bounds: Bounds<'_>,
    event: &'static Event,
) -> Result<Flow, Refusal> {
    let removed = cx.db.edit::<ZSet, _>(key, false, |edit| {
        edit.tell_as(event);
        let ranks = bounds.ranks(edit.zset().entries(), false);
        edit.remove_range(ranks)
    })?;
    cx.reply.count(removed.unwrap_or(0));
    Ok(Flow::Done)
}
