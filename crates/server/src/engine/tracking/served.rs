//! The end of a request, for client tracking.

use super::super::conn::Lane;
use super::super::core::Core;
use darter_command::Flags;
use darter_resp::Args;
use std::rc::Rc;

/// Ends a request that has run, runs as a task, or waits. Sends the invalidations of the client's
/// own changes after its reply, and ends the effect of CLIENT CACHING.
#[inline]
pub(crate) fn end_tracked(core: &Rc<Core>, lane: &mut Lane, args: Args<'_>) {
    if lane.session.tracking.is_excepted {
        end_caching(core, lane, args);
    }
    core.push_invalidations(Some(lane));
}

/// Ends the effect of CLIENT CACHING after one command or transaction. CLIENT commands do not end
/// it.
#[cold]
fn end_caching(core: &Core, lane: &mut Lane, args: Args<'_>) {
    let entry = core.table.resolve(args);
    let keeps = entry.is_ok_and(|entry| entry.row.flags.has(Flags::KEEPS_CACHING));
    if !keeps && lane.held().is_none() && lane.session.queued.is_none() {
        lane.session.tracking.is_excepted = false;
    }
}
