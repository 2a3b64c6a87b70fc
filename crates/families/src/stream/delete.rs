//! XDELEX, XACKDEL: deleting entries, and pending references to them.

use super::id;
use super::refs::{Found, Refs, look};
use super::value::{Stream, StreamEdit};
use super::work::{self, CHANGED_AT_ONCE, Ids, StreamJob};
use crate::lookup::find_value;
use crate::pending_values::flow;
use darter_command::{Args, Cx, Flow, Refusal, Stream as Portions};
use darter_resp::{self as resp, Reply};
use darter_structs::stream::StreamId;

/// Groups that are searched in one step, and entries that are deleted in one step.
const LOOKED_AT_ONCE: usize = 8;
/// Codes in one portion.
const SHOWN_AT_ONCE: usize = 512;

/// There is no such entry, or it is not pending.
const ABSENT: i8 = -1;
const DELETED: i8 = 1;
/// Some group has not read or not acknowledged the entry.
const HELD: i8 = 2;

/// `XDELEX key [KEEPREF | DELREF | ACKED] IDS count id [id ...]`: deletes entries. Pending
/// references to them stay (KEEPREF) or are removed (DELREF). With ACKED, an entry is deleted only
/// if all groups have read and acknowledged it.
///
/// Reply: array of a code for each: 1 deleted, 2 held, -1 absent. Refusals: `Syntax`, an invalid
/// count, invalid IDs if there is a stream, `WrongType`; then nothing changes. Cost: O(log n) for
/// each in each group, in portions if that takes long. Source: <https://redis.io/commands/xdelex>
/// (8.2.0).
pub(super) fn xdelex(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let at = args.position();
    let key = args.key()?;
    let (refs, ids) = options(args)?;
    let stream = find_value::<Stream>(cx.db, cx.stats, &key)?;
    let groups = stream.map(|stream| stream.groups().len());
    delete(cx, args, at, Deleting::new(None, refs, ids), groups)
}

/// `XACKDEL key group [KEEPREF | DELREF | ACKED] IDS count id [id ...]`: acknowledges entries, and
/// deletes those that were pending, as XDELEX does.
///
/// Reply: array of a code for each: 1 acknowledged and deleted, 2 acknowledged and held, -1 not pending.
/// Refusals and cost: XDELEX's. Source: <https://redis.io/commands/xackdel> (8.2.0).
pub(super) fn xackdel(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let at = args.position();
    let (key, group) = (args.key()?, id::name(&mut args)?);
    let (refs, ids) = options(args)?;
    let stream = find_value::<Stream>(cx.db, cx.stats, &key)?;
    let stream = stream.filter(|stream| stream.groups().get(group).is_some());
    let groups = stream.map(|stream| stream.groups().len());
    delete(cx, args, at, Deleting::new(Some(group.to_vec()), refs, ids), groups)
}

/// Reads the option for references, and the position of the IDs, in any order.
fn options(mut args: Args<'_>) -> Result<(Refs, Ids), Refusal> {
    let (mut refs, mut ids) = (None, None);
    while args.left() > 0 {
        if refs.is_none()
            && let Some(word) = Refs::take(&mut args)
        {
            refs = Some(word);
        } else if ids.is_none() && args.left() > 1 && args.option("IDS") {
            let count = args.int().ok().and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| *count > 0);
            let count =
                count.ok_or(Refusal::line("ERR Number of IDs must be a positive integer"))?;
            if count > args.left() {
                return Err(Refusal::line(
                    "ERR The `numids` parameter must match the number of arguments",
                ));
            }
            ids = Some(Ids::new(args.position(), args.position() + count));
            args.seek(args.position() + count);
        } else {
            return Err(Refusal::Syntax);
        }
    }
    Ok((refs.unwrap_or_default(), ids.ok_or(Refusal::Syntax)?))
}

/// Runs the deletion on a stream with this number of groups, if it exists.
fn delete(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    at: usize,
    mut work: Deleting,
    groups: Option<usize>,
) -> Result<Flow, Refusal> {
    let Some(groups) = groups else {
        work.codes = vec![ABSENT; work.ids.len()];
        return Ok(work.show(&mut cx.reply));
    };
    let looked_at = if work.refs == Refs::Keep { 1 } else { 1 + groups };
    let is_long = work.ids.len().saturating_mul(looked_at) > CHANGED_AT_ONCE;
    work::run(cx, args, at, is_long, work)
}

/// A deletion in progress.
struct Deleting {
    /// The group in which the entries are acknowledged.
    group: Option<Vec<u8>>,
    refs: Refs,
    ids: Ids,
    /// The current entry, and the first group that has not been searched for it.
    entry: Option<(StreamId, usize)>,
    codes: Vec<i8>,
}

impl Deleting {
    fn new(group: Option<Vec<u8>>, refs: Refs, ids: Ids) -> Self {
        Self { group, refs, ids, entry: None, codes: Vec::new() }
    }

    /// The code of an entry for which no group must be searched.
    fn known(&self, edit: &mut StreamEdit<'_>, id: StreamId) -> Option<i8> {
        if let Some(group) = &self.group {
            return (!edit.acknowledge(group, id)).then_some(ABSENT);
        }
        let is_absent = self.refs == Refs::Acked && !edit.stream().entries().contains(id);
        is_absent.then_some(ABSENT)
    }

    fn show(&mut self, reply: &mut Reply<'_>) -> Flow {
        reply.array(self.codes.len());
        flow(reply, Codes(std::mem::take(&mut self.codes).into_iter()))
    }
}

impl StreamJob for Deleting {
    fn read(&mut self, all: resp::Args<'_>) -> Result<bool, Refusal> {
        self.ids.check(all)
    }

    fn step(&mut self, edit: &mut StreamEdit<'_>, all: resp::Args<'_>, _: u64) -> bool {
        let mut looks = LOOKED_AT_ONCE;
        while looks > 0 {
            looks -= 1;
            let (id, from) = match self.entry.take() {
                Some(entry) => entry,
                None => {
                    let Some(id) = self.ids.take(all) else { return false };
                    if let Some(code) = self.known(edit, id) {
                        self.codes.push(code);
                        continue;
                    }
                    (id, 0)
                }
            };
            match look(edit, self.refs, id, from, &mut looks) {
                Found::More(index) => self.entry = Some((id, index)),
                Found::Held => self.codes.push(HELD),
                Found::Free => {
                    let is_removed = edit.remove(id) || self.group.is_some();
                    self.codes.push(if is_removed { DELETED } else { ABSENT });
                }
            }
        }
        true
    }

    fn reply(&mut self, reply: &mut Reply<'_>, _: &Stream) -> Flow {
        self.show(reply)
    }
}

/// A reply of codes.
struct Codes(std::vec::IntoIter<i8>);

impl Portions for Codes {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        for code in self.0.by_ref().take(SHOWN_AT_ONCE) {
            reply.int(i64::from(code));
        }
        self.0.len() > 0
    }
}
