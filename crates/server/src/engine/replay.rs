//! The connection that replays append-only files. It has no socket: commands of a file are passed to
//! it as received bytes, and its replies are taken instead of sent. So they run as commands of
//! clients do, on all cores, but nothing about the server's state refuses them (see `admit`).
//!
//! Not here: reading the files, and judging the replies. See `replay` of the crate.

use super::conn::{Conn, Session};
use super::core::Core;
use super::journal;
use super::state::clients::REPLAY;
use std::rc::Rc;

/// Adds the connection. Its token is [`REPLAY`].
pub(crate) fn begin_replay(core: &Core) {
    let handle = core.new_handle();
    let session = Session {
        id: handle,
        handle,
        authenticated: true,
        is_replay: true,
        created_ms: core.now_ms(),
        active_ms: core.now_ms(),
        ..Session::default()
    };
    let bulk_max = core.hot.borrow().bulk_max;
    let mut conn = Box::new(Conn::new(REPLAY, session, bulk_max, core.tx.cores()));
    conn.lane.location.home = core.id();
    core.clients.add(conn);
}

/// The number of bytes passed to the connection that were not parsed yet; `None` if it has
/// gone.
pub(crate) fn replay_pending(core: &Core) -> Option<usize> {
    core.with_conn(REPLAY, |conn| conn.parser.pending_bytes())
}

/// True if every command passed to the connection has run, and its reply was taken.
pub(crate) fn replay_is_settled(core: &Core) -> bool {
    let is_settled = |conn: &mut Conn| conn.lane.is_settled() && conn.lane.output_bytes() == 0;
    core.with_conn(REPLAY, is_settled).unwrap_or(true)
}

/// Ends loading on this core: clients are served, and expired entries are removed.
pub(crate) fn loading_ended(core: &Core) {
    core.hot.borrow_mut().loading = false;
    {
        let shard = &mut core.tx.home().shard;
        shard.keep_dead(false);
        // Loaded keys are in a file already, so they do not count as changes.
        core.saving.set_saved_changes(shard.lasting_changes());
    }
    journal::begin_if_on(core);
}

/// Removes the connection. Commands after a MULTI without EXEC have not run.
pub(crate) fn end_replay(core: &Rc<Core>) {
    core.closed(REPLAY);
}
