//! EXEC on another core, which owns all of its keys: a part of the connection's batch, as point
//! commands are, so that a pipeline of transactions does not wait for each.

use super::super::conn::{Lane, Session};
use super::super::core::Core;
use super::super::entry::Entry;
use super::super::point::View;
use super::super::presence::{Awaited, Gone, Presence};
use super::super::state::batches::{Batch, Stops};
use super::super::unit::settle::Caller;
use super::at_once::For;
use super::claims::claim_here;
use super::exec::{Begun, Exec, Rest};
use super::inner::Inner;
use super::queued::{Queued, Watched};
use super::replies::Replies;
use darter_resp as resp;
use darter_tx::{CoreId, TaskId};
use std::rc::Rc;

impl Core {
    /// Adds an EXEC to the batch for another core, where the keys are that it names and watches.
    pub(super) fn send_exec_away(
        &self,
        lane: &mut Lane,
        entry: &Entry,
        core: CoreId,
        args: resp::Args<'_>,
        mut queued: Box<Queued>,
    ) {
        // They are forgotten there, after EXEC: a message of its own would overtake the batch.
        let watched = lane.watched.take();
        queued.watched =
            watched.map(|watched| Rc::try_unwrap(watched).expect("no EXEC of the connection runs"));
        self.discard(lane);
        self.send_away(lane, entry, core, args);
        lane.attach(core, queued);
    }

    /// Runs an EXEC from another core. Returns its batch, unless that has to wait for a task.
    pub(crate) fn exec_in_batch(
        self: &Rc<Self>,
        mut batch: Box<Batch>,
        mut queued: Box<Queued>,
    ) -> Option<Box<Batch>> {
        let item = &batch.items[batch.next];
        let (entry, view) = (&self.table.entries()[item.entry], item.view);
        let (resp3, caller) = (batch.resp3, Caller::Client(batch.from, batch.client));
        let watched = queued.watched.take();
        let is_touched = self.may_run_at_once(&queued, view.db, watched.as_ref(), batch.client);
        let Some(is_touched) = is_touched else {
            self.exec_after_locks(batch, queued, watched.unwrap_or_default());
            return None;
        };
        if watched.is_some() {
            self.tx.home().shard.unwatch(batch.client);
        }
        let whose = For { view, resp3, caller };
        match self.run_exec(entry, batch.args(item), queued, is_touched, whose) {
            Ok(replies) => {
                match replies.into_flat() {
                    Ok(flat) => {
                        batch.replied_flat(&flat);
                        self.admin.keep_buffer(flat);
                    }
                    Err(replies) => {
                        let (out, stream) = replies.into_part();
                        batch.replied(out, stream);
                    }
                }
                Some(batch)
            }
            Err(rest) => {
                self.go_on_in_batch(batch, *rest);
                None
            }
        }
    }

    /// The rest of an EXEC from another core, which began in this turn, is a task that its batch waits
    /// for.
    fn go_on_in_batch(self: &Rc<Self>, batch: Box<Batch>, rest: Rest) {
        let Rest { begun, queued, next, replies } = rest;
        let claim = claim_here(self, batch.items[batch.next].view.db, &queued, None);
        let exec = self.exec_that_is_wanted(&batch, queued, Watched::default());
        self.start_in_batch(exec, |exec| {
            let begun_with = |transaction| Begun { transaction, next, replies };
            self.tx.go_on(begun, claim, |locks| finish(exec, batch, Some(begun_with(locks))))
        });
    }

    /// The same of a whole EXEC, which waits for locks.
    fn exec_after_locks(self: &Rc<Self>, batch: Box<Batch>, queued: Box<Queued>, watched: Watched) {
        let exec = self.exec_that_is_wanted(&batch, queued, watched);
        self.start_in_batch(exec, |exec| self.tx.spawn(finish(exec, batch, None)));
    }

    fn start_in_batch(&self, exec: Exec, start: impl FnOnce(Exec) -> TaskId) {
        let (client, is_read) = (exec.client, exec.queued.is_read);
        let presence = Rc::clone(&exec.presence);
        let task = start(exec);
        // A write goes on: what came after it in its pipeline may have been done elsewhere.
        if is_read {
            self.batches.borrow_mut().note_awaited(
                client,
                Awaited { task, presence },
                Stops::Always,
            );
        }
    }

    /// The EXEC that is next in a batch, which is held for it, while its client is there.
    fn exec_that_is_wanted(
        self: &Rc<Self>,
        batch: &Batch,
        queued: Box<Queued>,
        watched: Watched,
    ) -> Exec {
        self.batches.borrow_mut().hold(batch.client);
        let presence = Presence::new(self.batches.borrow().gone(batch.client));
        Exec { presence, ..self.exec_of(batch, batch.next, queued, watched) }
    }

    /// The EXEC at this place of a batch, whoever wants it.
    pub(super) fn exec_of(
        self: &Rc<Self>,
        batch: &Batch,
        at: usize,
        queued: Box<Queued>,
        watched: Watched,
    ) -> Exec {
        let item = &batch.items[at];
        let (View { db, no_touch, .. }, resp3, handle) = (item.view, batch.resp3, batch.client);
        let session = Session { handle, db, no_touch, resp3, ..Session::default() };
        Exec {
            core: Rc::clone(self),
            client: handle,
            row: item.entry,
            request: batch.args(item).to_request(),
            inner: Inner::of(self, &session),
            queued,
            watched: Rc::new(watched),
            presence: Presence::new(Gone::No),
        }
    }
}

/// Runs an EXEC to its end, and resumes its batch.
async fn finish(exec: Exec, mut batch: Box<Batch>, begun: Option<Begun>) {
    let replies = exec.replies(begun).await;
    let core = &exec.core;
    if exec.watched.len() > 0 {
        core.tx.home().shard.unwatch(batch.client);
    }
    let (out, stream) = replies.map_or_else(Default::default, Replies::into_part);
    batch.replied(out, stream);
    core.batches.borrow_mut().answered(batch);
}
