//! XACK: entries that a consumer is done with.

use super::value::{Stream, StreamEdit};
use super::work::{self, CHANGED_AT_ONCE, Ids, Work};
use crate::lookup::find_value;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_resp::{self as resp, Reply};

/// Entries in one step: up to 5 us each, where they are at random places.
const ACKNOWLEDGED_AT_ONCE: usize = 8;

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
    let ids = Ids::new(args.position(), args.all().len());
    let work = Acknowledging { group: group.to_vec(), ids, done: 0 };
    work::run(cx, args, at, ids.len() > 2 * CHANGED_AT_ONCE, work)
}

/// IDs that are still to be looked at.
struct Acknowledging {
    group: Vec<u8>,
    ids: Ids,
    done: usize,
}

impl Work for Acknowledging {
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
