//! Scripts on another core, which owns all keys that the request names. Such a script is a part of
//! the connection's batch, like point commands: one message each way, however many commands the
//! script calls.
//!
//! ```text
//! batch: GET  EVALSHA  SET …      EVALSHA runs at once (`at_once`) or as a task
//! ```
//! If the script takes longer than a slice, it continues as a task of that core: it takes its locks
//! there, works there, and is killed there. It may use keys of any core. So it is sent only if no
//! reply is pending on a third core, and until its reply arrives nothing is sent to another core.
//! After many runs that have used only named keys, a script is *trusted* (`darter_script::Reach`),
//! and these two rules do not apply to it.

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
    /// Adds a script to the batch for the core of its keys. If earlier replies are pending, the
    /// request may be held instead. Returns false if the script must run as a task of this core.
    pub(super) fn send_script_away(
        &self,
        lane: &mut Lane,
        (entry, script): (&Entry, Scripted),
        core: CoreId,
        args: resp::Args<'_>,
    ) -> bool {
        if lane.input.eof {
            // The script may be endless. As a task of this core, it notices when its client
            // half-closes.
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

    /// True if the script is trusted to use only the keys that its request names.
    fn is_trusted(&self, script: Scripted, args: resp::Args<'_>) -> bool {
        /// The text of a longer script is not hashed here, because that takes too long.
        const TEXT_MAX: usize = 4096;
        if args.len() < 2 || args.arg(1).len() > TEXT_MAX {
            return false;
        }
        let evaluation = (script.find)(self, args);
        evaluation.is_some_and(|one| one.reach().is_some_and(Reach::is_named_keys))
    }

    /// True if a request must wait for the reply of a script of the same connection. It is held
    /// unless it goes to the core on which the script runs.
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
    /// Runs a script, the next command of a batch from another core. Returns the batch, unless it
    /// must wait for a task.
    pub(crate) fn script_in_batch(
        self: &Rc<Self>,
        mut batch: Box<Batch>,
        script: Scripted,
    ) -> Option<Box<Batch>> {
        let item = &batch.items[batch.next];
        let (entry, args) = (&self.table.entries()[item.entry], batch.args(item));
        let whose = For { view: item.view, resp3: batch.resp3, caller: caller_of(&batch) };
        let begun = self.begun(entry, args);
        // Only a script that runs as a task shows its commands to MONITOR.
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

    /// Holds a batch until the script that is its next command has run as a task. A script that
    /// writes does not stop when its client closes, if later commands of its pipeline may have run
    /// on other cores.
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

    /// The call of the script that is the next command of a batch.
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
