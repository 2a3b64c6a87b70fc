//! XACK: entries that a consumer is done with.

use super::id;
use super::value::{Stream, StreamEdit};
use super::work::{self, Work};
use crate::lookup::find_value;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_resp::Reply;
use darter_structs::stream::StreamId;

/// Entries in one step.
const ACKNOWLEDGED_AT_ONCE: usize = 32;

/// `XACK key group id [id ...]`: these entries are not pending any more.
///
/// Reply: how many were. Refusals: `WrongType`, IDs that are none if the group is there; then nothing
/// changes. Cost: O(log n) for each, aside if there are many.
/// Source: <https://redis.io/commands/xack> (5.0.0).
pub(super) fn xack(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let (key, group) = (args.key()?, args.bytes()?);
    let at = args.position() - 2;
    let stream = find_value::<Stream>(cx.db, cx.stats, &key)?;
    if stream.is_none_or(|stream| stream.groups().get(group).is_none()) {
        cx.reply.int(0);
        return Ok(Flow::Done);
    }
    let mut ids = Vec::with_capacity(args.left());
    while args.left() > 0 {
        ids.push(id::parse(args.word()?, 0)?);
    }
    let is_long = ids.len() > ENTRIES_AT_ONCE;
    let work = Acknowledging { group: group.to_vec(), ids: ids.into_iter(), done: 0 };
    work::run(cx, args, at, is_long, work)
}

/// IDs that are still to be looked at.
struct Acknowledging {
    group: Vec<u8>,
    ids: std::vec::IntoIter<StreamId>,
    done: usize,
}

impl Work for Acknowledging {
    fn step(&mut self, edit: &mut StreamEdit<'_>, _: u64) -> bool {
        for id in self.ids.by_ref().take(ACKNOWLEDGED_AT_ONCE) {
            self.done += usize::from(edit.acknowledge(&self.group, id));
        }
        self.ids.len() > 0
    }

    fn reply(&mut self, reply: &mut Reply<'_>, _: &Stream) -> Flow {
        reply.count(self.done);
        Flow::Done
    }
}
