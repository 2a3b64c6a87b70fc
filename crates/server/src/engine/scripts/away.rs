//! A script on another core, which has all of the keys that its command names: a part of the
//! connection's batch, as point commands are. A message there and one back, whatever it calls.
//!
//! ```text
//! batch: GET  EVALSHA  SET …      it runs at once (`at_once`), else as a task that the batch waits for
//! ```
//! Such a task is that core's: it locks, works and is killed there. It may touch keys of any core. So a
//! script leaves only when no other core owes its connection a reply, and until it is answered nothing
//! is sent to another core. A script is exempt after many runs that touched named keys only
//! (`darter_script::Reach`).

use super::super::batch::caller_of;
use super::super::conn::{Lane, Session};
use super::super::core::Core;
use super::super::entry::{Entry, Runner, Scripted, ServerCall, ServerFuture};
use super::super::point::{Begun, Owner, View};
use super::super::presence::{Awaited, Gone, Presence};
use super::super::serve::blaming;
use super::super::state::batches::{Batch, Stops};
use super::super::transaction::at_once::For;
use super::super::wanted::Stopped;
use super::at_once::{AtOnce, End};
use darter_command::Flags;
use darter_resp as resp;
use darter_script::Reach;
use darter_tx::{CoreId, TaskId};
use std::rc::Rc;

// ---- on the core of the connection ----

impl Core {
    /// Adds a script to the batch for the core that has the keys which it names; or holds it, until
    /// nothing is owed before it. False if it must be a task here.
    pub(super) fn send_script_away(
        &self,
        lane: &mut Lane,
        (entry, script): (&Entry, Scripted),
        core: CoreId,
        args: resp::Args<'_>,
    ) -> bool {
        if lane.eof {
            return false; // It may take for ever: as a task here it knows that its client has ended.
        }
        let is_trusted = self.is_trusted(script, args);
        if !is_trusted && !lane.is_owed_only_by(core) {
            lane.hold(args.to_request());
            return true;
        }
        self.send_away(lane, entry, core, args);
        if !is_trusted {
            lane.script_at = Some(core);
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

    /// The task of a client's script has stopped without an answer, on another core: if the client has
    /// only ended its side, the connection is closed.
    fn end_unanswered(self: &Rc<Self>, client: u64) {
        let Some(token) = self.clients.token_of(client) else { return };
        self.with_conn(token, |conn| {
            self.kill(&mut conn.lane);
            self.mark_dirty(&mut conn.lane);
        });
    }

    /// True for a request that may not run before a script of its connection is answered: it is held
    /// until then, unless it goes where the script is.
    #[inline]
    pub(crate) fn waits_for_script(
        &self,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
    ) -> bool {
        lane.script_at.is_some() && self.holds_behind_script(lane, entry, args)
    }

    #[cold]
    fn holds_behind_script(&self, lane: &mut Lane, entry: &Entry, args: resp::Args<'_>) -> bool {
        if lane.is_settled() {
            lane.script_at = None;
            return false;
        }
        let has_place =
            matches!(entry.run, Runner::Point(_) | Runner::Multi(Some(_), _) | Runner::Script(_));
        let follows =
            has_place && lane.script_at.map(Owner::One) == Some(self.owner_of(entry, args));
        if !follows {
            lane.hold(args.to_request());
        }
        !follows
    }
}

// ---- on the core of the keys ----

/// A script in a batch, as a task.
struct Item {
    batch: Box<Batch>,
    presence: Rc<Presence>,
    /// When it may stop as its client is gone, if it may.
    stops: Option<Stops>,
    begun: Begun,
}

impl Core {
    /// Runs the script that is next in a batch from another core. Returns the batch, unless that has to
    /// wait for a task.
    pub(crate) fn script_in_batch(
        self: &Rc<Self>,
        mut batch: Box<Batch>,
        script: Scripted,
    ) -> Option<Box<Batch>> {
        let item = &batch.items[batch.next];
        let (entry, args) = (&self.table.entries()[item.entry], batch.args(item));
        let whose = For { view: item.view, resp3: batch.resp3, caller: caller_of(&batch) };
        let begun = self.begun(entry, args);
        // What it calls is shown to those who watch all commands by a task only.
        let is_watched = self.watchers.borrow().are_any();
        let evaluation = if is_watched { None } else { self.short_script(script, args) };
        let run = evaluation.and_then(|evaluation| {
            let run = AtOnce::begin(self, whose.view, whose.resp3, args, &evaluation);
            run.map(|run| (run, evaluation))
        });
        let Some((mut run, evaluation)) = run else {
            let (call, item) = self.script_that_is_wanted(batch, script, begun);
            let awaited = item.awaited();
            let task = self.tx.spawn(answer(Rc::clone(self), item, (script.run)(call)));
            self.note_script(awaited, task);
            return None;
        };
        match run.drive(&evaluation) {
            End::Replied => match run.finish(entry, args, begun, whose) {
                Some((out, stream)) => batch.replied(out, stream),
                None => batch.replied_flat(run.reply()),
            },
            End::GoesOn { is_called } => {
                let (call, item) = self.script_that_is_wanted(batch, script, begun);
                let awaited = item.awaited();
                let rest = |work| answer(Rc::clone(self), item, work);
                let task = run.go_on(call, evaluation, is_called, rest);
                self.note_script(awaited, task);
                return None;
            }
        }
        Some(batch)
    }

    /// The script that is next in a batch, which is held for it, while its client is there.
    fn script_that_is_wanted(
        self: &Rc<Self>,
        batch: Box<Batch>,
        script: Scripted,
        begun: Begun,
    ) -> (ServerCall, Item) {
        let (item, handle) = (&batch.items[batch.next], batch.client);
        let (entry, args) = (&self.table.entries()[item.entry], batch.args(item));
        // One that writes goes on where what came after it may have been done.
        let is_last = || batch.next + 1 == batch.items.len() && !self.is_trusted(script, args);
        let stops = match entry.row.flags.has(Flags::READONLY) {
            true => Some(Stops::Always),
            false => is_last().then_some(Stops::AtTheEnd),
        };
        self.batches.borrow_mut().hold(handle);
        let gone = stops.map_or(Gone::No, |_| self.batches.borrow().gone(handle));
        let presence = Presence::new(gone);
        let (View { db, no_touch, .. }, resp3) = (item.view, batch.resp3);
        let call = ServerCall {
            core: Rc::clone(self),
            session: Session {
                handle,
                db,
                no_touch,
                resp3,
                authenticated: true,
                ..Session::default()
            },
            request: args.to_request(),
            first: entry.first,
            within: None,
            presence: Rc::clone(&presence),
        };
        (call, Item { batch, presence, stops, begun })
    }

    fn note_script(&self, awaited: Option<(u64, Rc<Presence>, Stops)>, task: TaskId) {
        if let Some((client, presence, stops)) = awaited {
            let awaited = Awaited { task, presence };
            self.batches.borrow_mut().note_awaited(client, awaited, stops);
        }
    }
}

impl Item {
    /// For whom it is awaited, if it may stop.
    fn awaited(&self) -> Option<(u64, Rc<Presence>, Stops)> {
        self.stops.map(|stops| (self.batch.client, Rc::clone(&self.presence), stops))
    }
}

/// Runs the task of a script to its end, counts it, and resumes its batch.
async fn answer(core: Rc<Core>, item: Item, work: ServerFuture) {
    let Item { mut batch, presence, begun, .. } = item;
    let entry = &core.table.entries()[batch.items[batch.next].entry];
    let is_read = entry.row.flags.has(Flags::READONLY);
    let work = blaming(&core, entry.index, work);
    let (out, stream) = match core.while_wanted(is_read, &presence, work).await {
        Ok(answer) => {
            let (args, caller) = (batch.args(&batch.items[batch.next]), caller_of(&batch));
            core.settle(entry, begun, answer.as_ref().err(), args, caller);
            core.encode_answer(answer, batch.resp3)
        }
        Err(Stopped::Unwanted) => {
            let client = batch.client;
            core.tell(batch.from, move |there| there.end_unanswered(client));
            Default::default()
        }
        Err(Stopped::Busy(line)) => {
            core.encode_answer(Err(core.refuse_busy(entry, line)), batch.resp3)
        }
    };
    batch.replied(out, stream);
    core.batches.borrow_mut().answered(batch);
}
