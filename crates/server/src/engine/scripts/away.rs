//! A script on another core, which owns all keys that its command names. It is a part of the
//! connection's batch, like point commands: one message each way for any number of calls.
//!
//! ```text
//! batch: GET  EVALSHA  SET …      it runs at once (`at_once`), else as a task that the batch waits for
//! ```
//! Such a task belongs to that core: it locks, works and is killed there. It may touch keys of any
//! core. So a script is sent only if no reply is pending on a third core, and until its reply
//! nothing is sent to another core. A script is exempt after many runs that touched named keys only
//! (`darter_script::Reach`).

use super::super::conn::outbound::send_away;
use super::super::conn::{Lane, Session};
use super::super::core::Core;
use super::super::entry::{Entry, Runner, Scripted, ServerCall};
use super::super::point::{Owner, View};
use super::super::state::batches::{Batch, Stops};
use super::super::transaction::at_once::For;
use super::super::unit::place::owner_of;
use super::super::wanted::{HeldBatch, caller_of};
use super::at_once::{AtOnce, End};
use darter_command::Flags;
use darter_resp as resp;
use darter_script::Reach;
use darter_tx::CoreId;
use std::rc::Rc;

// ---- on the core of the connection ----

impl Core {
    /// Adds a script to the batch for the core of its keys, or holds it until no reply before it is
    /// pending. False if it must be a task of this core.
    pub(super) fn send_script_away(
        &self,
        lane: &mut Lane,
        (entry, script): (&Entry, Scripted),
        core: CoreId,
        args: resp::Args<'_>,
    ) -> bool {
        if lane.input.eof {
            // It may be endless: as a task of this core it notices that its client has half-closed.
            return false;
        }
        let is_trusted = self.is_trusted(script, args);
        if !is_trusted && !lane.is_owed_only_by(core) {
            lane.hold(args.to_request());
            return true;
        }
        send_away(self, lane, entry, core, args);
        if !is_trusted {
            lane.away.script_at = Some(core);
        }
        true
    }

    /// Whether the keys of a script are trusted to be those that its request names.
    fn is_trusted(&self, script: Scripted, args: resp::Args<'_>) -> bool {
        /// The text of a longer script is not hashed here.
        const TEXT_MAX: usize = 4096;
        if args.len() < 2 || args.arg(1).len() > TEXT_MAX {
            return false;
        }
        let evaluation = (script.find)(self, args);
        evaluation.is_some_and(|one| one.reach().is_some_and(Reach::is_named_keys))
    }

    /// True for a request that must wait for the reply of a script of its connection. It is held,
    /// unless it goes to the core of the script.
    #[inline]
    pub(crate) fn waits_for_script(
        &self,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
    ) -> bool {
        lane.away.script_at.is_some() && self.holds_behind_script(lane, entry, args)
    }

    #[cold]
    fn holds_behind_script(&self, lane: &mut Lane, entry: &Entry, args: resp::Args<'_>) -> bool {
        if lane.is_settled() {
            lane.away.script_at = None;
            return false;
        }
        let has_place =
            matches!(entry.run, Runner::Point(_) | Runner::Multi(Some(_), _) | Runner::Script(_));
        let follows = has_place
            && lane.away.script_at.map(Owner::One) == Some(owner_of(&self.tx, entry, args));
        if !follows {
            lane.hold(args.to_request());
        }
        !follows
    }
}

// ---- on the core of the keys ----

impl Core {
    /// Runs the next script of a batch from another core. Returns the batch, unless it must wait
    /// for a task.
    pub(crate) fn script_in_batch(
        self: &Rc<Self>,
        mut batch: Box<Batch>,
        script: Scripted,
    ) -> Option<Box<Batch>> {
        let item = &batch.items[batch.next];
        let (entry, args) = (&self.table.entries()[item.entry], batch.args(item));
        let whose = For { view: item.view, resp3: batch.resp3, caller: caller_of(&batch) };
        let begun = self.begun(entry, args);
        // Only a task shows its calls to MONITOR.
        let is_watched = self.watchers.borrow().are_any();
        let evaluation = if is_watched { None } else { script.find_short(self, args) };
        let run = evaluation.and_then(|evaluation| {
            let run = AtOnce::begin(self, whose.view, whose.resp3, args, &evaluation);
            run.map(|run| (run, evaluation))
        });
        let mut rest = None;
        if let Some((mut run, evaluation)) = run {
            match run.drive(&evaluation) {
                End::Replied => {
                    match run.finish(entry, args, begun, whose) {
                        Some((out, stream)) => batch.replied(out, stream),
                        None => batch.replied_flat(run.reply()),
                    }
                    return Some(batch);
                }
                End::GoesOn { is_called } => rest = Some((run, evaluation, is_called)),
            }
        }
        self.hold_script(batch, script).start(|held| {
            let (core, call) = (Rc::clone(self), self.call_of(&held));
            let of = held.answering(Some(begun));
            match rest {
                None => self.tx.spawn(core.answer(of, (script.run)(call))),
                Some((run, evaluation, is_called)) => {
                    run.go_on(call, evaluation, is_called, |work| core.answer(of, work))
                }
            }
        });
        None
    }

    /// Holds a batch for the task of its next command, a script. One that writes does not stop with its
    /// client if later commands of its pipeline may have run.
    fn hold_script(self: &Rc<Self>, batch: Box<Batch>, script: Scripted) -> HeldBatch {
        let item = &batch.items[batch.next];
        let (row, args) = (&self.table.entries()[item.entry].row, batch.args(item));
        let is_last = || batch.next + 1 == batch.items.len() && !self.is_trusted(script, args);
        let stops = match row.flags.has(Flags::READONLY) {
            true => Some(Stops::Always),
            false => is_last().then_some(Stops::AtTheEnd),
        };
        HeldBatch::new(self, batch, stops)
    }

    /// The call of the script that is next in a batch.
    fn call_of(self: &Rc<Self>, held: &HeldBatch) -> ServerCall {
        let batch = &held.batch;
        let item = &batch.items[batch.next];
        let (View { db, no_touch, .. }, resp3, handle) = (item.view, batch.resp3, batch.client);
        let authenticated = true;
        let session = Session { handle, db, no_touch, resp3, authenticated, ..Session::default() };
        ServerCall {
            core: Rc::clone(self),
            session,
            request: batch.args(item).to_request(),
            first: self.table.entries()[item.entry].first,
            within: None,
            presence: Rc::clone(&held.presence),
        }
    }
}
