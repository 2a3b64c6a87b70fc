//! The connections that replay append-only files, one on each core. They have no sockets: commands of
//! a file are passed to them as received bytes, and their replies are taken instead of sent. So they
//! run as commands of clients do, but nothing about the server's state refuses them (see `admit`).
//!
//! Not here: reading the files, and judging the replies. See `replay` of the crate.

use super::conn::{Conn, Session};
use super::core::Core;
use super::entry::{Entry, Runner, Table};
use super::journal;
use super::state::clients::REPLAY;
use super::transaction::queued::Verb;
use crate::load::CommandPlace;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::Flags;
use darter_resp::Args;
use std::rc::Rc;

/// The place of a command of a file, with `cores` cores.
///
/// Cost: O(keys), at most [`ENTRIES_AT_ONCE`].
pub(crate) fn place_of(
    table: &Table,
    likely: usize,
    args: Args<'_>,
    cores: usize,
) -> (CommandPlace, usize) {
    let Ok(entry) = table.resolve_likely(args, likely) else {
        return (CommandPlace::Anywhere, likely);
    };
    let place = match entry.run {
        _ if !entry.row.accepts(args.len()) => CommandPlace::Anywhere,
        Runner::Transaction(Verb::Multi) => CommandPlace::Multi,
        Runner::Transaction(Verb::Exec) => CommandPlace::Exec,
        Runner::Transaction(Verb::Discard) => CommandPlace::Discard,
        Runner::Session(_) if entry.row.flags.has(Flags::SELECTS) => CommandPlace::Select,
        _ if entry.names_its_keys() => owner_of_keys(entry, args, cores),
        _ => CommandPlace::Anywhere,
    };
    (place, entry.index)
}

/// The core that owns all keys of a request.
fn owner_of_keys(entry: &Entry, args: Args<'_>, cores: usize) -> CommandPlace {
    let mut owner = None;
    for (count, at) in entry.row.keys.positions(args).enumerate() {
        let core = args.owner(at, cores);
        if count >= ENTRIES_AT_ONCE || owner.is_some_and(|other| other != core) {
            return CommandPlace::Anywhere;
        }
        owner = Some(core);
    }
    owner.map_or(CommandPlace::Anywhere, CommandPlace::Core)
}

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
