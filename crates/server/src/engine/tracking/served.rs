//! What tracking adds to the end of a request on its connection.

use super::super::conn::Lane;
use super::super::core::Core;
use darter_command::Flags;
use darter_resp::Args;
use std::rc::Rc;

/// A request has run, or is run by a task, or must wait: its client gets the invalidations of its own
/// changes after its reply, and CLIENT CACHING does not hold any longer.
#[inline]
pub(crate) fn end_tracked(core: &Rc<Core>, lane: &mut Lane, args: Args<'_>) {
    if lane.session.tracking.is_excepted {
        end_caching(core, lane, args);
    }
    core.push_invalidations(Some(lane));
}

/// CLIENT CACHING holds for one command, or for one transaction, and whatever else CLIENT does.
#[cold]
fn end_caching(core: &Core, lane: &mut Lane, args: Args<'_>) {
    let entry = core.table.resolve(args);
    let keeps = entry.is_ok_and(|entry| entry.row.flags.has(Flags::KEEPS_CACHING));
    if !keeps && lane.held().is_none() && lane.session.queued.is_none() {
        lane.session.tracking.is_excepted = false;
    }
}
