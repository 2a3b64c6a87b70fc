//! The journal on a core: what changes is encoded and handed over, and replies that show it wait.
//!
//! ```text
//! end of a unit:  its records ─► commands, in the block of the turn    record
//! end of a turn:  the block ─► the journal's thread                    hand_over
//!                 messages to other cores leave, then the sends:
//!                 one that may show unsafe changes is held             send_or_hold
//! next turns:     once the safe time is reached, it leaves             release_held
//! ```
//! A reply shows a change if its command has made it, or has read its key. Replies of point commands
//! are told apart by their keys; all others may show any change, except those of commands that
//! concern the connection or the server.
//!
//! WAITAOF waits for the disk in the same way: for the time up to which everything is there.
//!
//! Not here: the thread, its files and its order (`crate::journal`).

use super::conn::Lane;
use super::core::Core;
use super::entry::{Entry, Runner};
use super::state::outgoing::Action;
use super::state::waits::WaitingCall;
use super::transaction::queued::Verb;
use crate::journal::{Journal, JournalState, Sync};
use darter_command::Flags;
use darter_keyspace::{Act, Key, Read, Wants};
use darter_resp::Args;
use darter_tx::lock_key;

/// Calls that have waited for the disk and are answered in one turn.
const ANSWERED_AT_ONCE: usize = 16;

/// Begins to write changes to the journal: those from now on. All keys are locked, or no client
/// is served yet.
pub(crate) fn begin(core: &Core) {
    if !core.journal.is_on() {
        core.is_logged.set(true);
        core.journal.begin(core.tx.home().shard.join(Wants::CHANGES));
    }
}

/// [`begin`] if the journal is on when this core begins to serve.
pub(crate) fn begin_if_on(core: &Core) {
    if core.admin.shared.journal.state() == JournalState::On {
        begin(core);
    }
}

/// Stops to write changes to the journal, and hands over what is left.
pub(crate) fn end(core: &Core) {
    hand_over(core);
    if let Some(reader) = core.journal.end() {
        let shard = &mut core.tx.home().shard;
        shard.leave(reader);
        core.is_logged.set(shard.is_read());
    }
}

/// Encodes all records that were not encoded yet.
pub(crate) fn record(core: &Core) {
    let Some(reader) = core.journal.reader.get() else { return };
    let many = core.tx.cores() > 1;
    let mut home = core.tx.home();
    loop {
        match home.shard.read(reader) {
            Read::Next(record) => {
                let key = match &record.act {
                    Act::Key(name, _) => Some(lock_key(record.database, Key::new(name).hash)),
                    _ => None,
                };
                core.journal.take_in(record, key, many);
            }
            Read::End => return,
            Read::Lapsed(count) => unreachable!("{count} records were pinned"),
        }
    }
}

/// Hands the blocks of this turn to the journal's thread. Must be called before messages and
/// replies leave.
pub(super) fn hand_over(core: &Core) {
    if core.journal.is_on() {
        record(core);
        let shared = &core.admin.shared.journal;
        core.journal.hand_over(core.id(), shared, || core.clock.monotonic_ns());
    }
}

/// Adds the cut of a snapshot to the journal, after all changes so far. If the journal has not begun
/// here, it begins now.
pub(super) fn cut(core: &Core, number: u64) {
    if core.admin.shared.journal.state() == JournalState::Off {
        return;
    }
    begin(core);
    record(core);
    core.journal.cut(number, core.tx.home().shard.stamp());
}

// ---- WAITAOF ----

/// True if changes are not written to a journal.
pub(super) fn is_off(core: &Core) -> bool {
    core.admin.shared.journal.state() == JournalState::Off
}

/// Lets a call wait until everything so far is on the disk.
pub(super) fn await_disk(core: &Core, call: &WaitingCall) {
    hand_over(core);
    let shared = &core.admin.shared.journal;
    core.journal.await_disk(shared.handed_ns(), call.client, call.number);
    shared.set_awaits_disk(core.id(), true);
}

/// Answers calls whose changes are on the disk, some of them in each turn.
fn end_waits_for_disk(core: &Core) {
    if core.journal.awaits_disk() {
        for _ in 0..ANSWERED_AT_ONCE {
            let Some((client, number)) = core.journal.reaches_disk(disk_ns(core)) else { break };
            core.end_at_disk(client, number, !is_off(core));
        }
        core.admin.shared.journal.set_awaits_disk(core.id(), core.journal.awaits_disk());
    }
}

/// The time for which calls may be answered that wait for the disk. Until the first base, or a new
/// one, is complete, the files do not make up the data.
fn disk_ns(core: &Core) -> u64 {
    let shared = &core.admin.shared.journal;
    match shared.state() {
        JournalState::Off => u64::MAX,
        JournalState::On => shared.synced_ns(),
        JournalState::Starting | JournalState::Failed => 0,
    }
}

/// True if a call that waits for the disk may be answered.
pub(super) fn may_end_wait_for_disk(core: &Core) -> bool {
    core.journal.awaits_disk() && core.journal.may_reach_disk(disk_ns(core))
}

// ---- replies ----

/// True if the reply of a point command may show a change that is not safe.
#[inline]
pub(super) fn shows_unsafe(core: &Core, entry: &Entry, args: Args<'_>, db: usize) -> bool {
    core.journal.is_on() && {
        let mut keys = entry.row.keys.positions(args);
        entry.row.is_write() || keys.any(|at| core.journal.is_unsafe(lock_key(db, args.hash(at))))
    }
}

/// Notes, before a command runs, whether its reply may show changes that are not safe. For point
/// commands, see [`shows_unsafe`].
#[inline]
pub(super) fn note_shown(core: &Core, lane: &mut Lane, entry: &Entry) {
    if core.journal.is_on() {
        let is_told_apart = entry.point().is_some() || matches!(entry.run, Runner::Session(_));
        lane.sending.gated |= !is_told_apart && may_show(entry);
    }
}

/// [`note_shown`] for a command that runs as a task, also if it could be a point command.
#[inline]
pub(super) fn note_task_shown(core: &Core, lane: &mut Lane, entry: &Entry) {
    lane.sending.gated |= core.journal.is_on() && may_show(entry);
}

/// Sends, or holds the send until all that it may show is safe.
pub(super) fn send_or_hold(core: &Core, lane: &mut Lane, action: Action) {
    let shared = &core.admin.shared.journal;
    let is_gated = lane.sending.gated;
    if lane.is_settled() && lane.out.is_empty() {
        lane.sending.gated = false;
    }
    if !is_gated || !core.journal.is_on() {
        return core.act(action);
    }
    if is_lost(shared) {
        lane.closing = true;
        return core.act(Action::Close(lane.token));
    }
    if shared.all_is_safe() {
        return core.act(action);
    }
    core.journal.hold(action, shared);
    shared.set_waits(core.id(), true);
}

/// Passes on the sends that may leave now.
pub(super) fn release_held(core: &Core) {
    end_waits_for_disk(core);
    if core.journal.is_on() || core.journal.holds() {
        let shared = &core.admin.shared.journal;
        if is_lost(shared) {
            close_held(core);
        } else {
            let is_on = shared.state() == JournalState::On;
            let safe_ns = if is_on { shared.safe_ns() } else { u64::MAX };
            core.journal.note_safe(safe_ns);
            core.journal.release(safe_ns, |action| core.act(action));
        }
        shared.set_waits(core.id(), core.journal.holds());
    }
}

/// Closes the connections whose sends are held: the changes that they may show will never be
/// safe, so these clients get no reply.
#[cold]
fn close_held(core: &Core) {
    core.journal.release(u64::MAX, |action| {
        if let Action::SendFlat(token, _) | Action::Send(token, _) = action {
            core.with_conn(token, |conn| core.kill(&mut conn.lane));
        }
    });
}

/// True if a held send may leave now.
pub(super) fn may_release_held(core: &Core) -> bool {
    let shared = &core.admin.shared.journal;
    core.journal.can_release(if shared.state() == JournalState::On {
        shared.safe_ns()
    } else {
        u64::MAX
    })
}

/// True if a reply that may show changes which are not safe must never leave.
fn is_lost(journal: &Journal) -> bool {
    journal.state() == JournalState::Failed && journal.sync() == Sync::Always
}

/// True if the reply of a command may depend on data. Commands that run while the data is loaded
/// have no such reply, except EXEC.
fn may_show(entry: &Entry) -> bool {
    let is_exec = matches!(entry.run, Runner::Transaction(Verb::Exec));
    is_exec || entry.row.is_write() || !entry.row.flags.has(Flags::LOADING)
}
