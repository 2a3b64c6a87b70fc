//! EXEC on another core, which owns all its keys. It is a part of the connection's batch, like
//! point commands, so a pipeline of transactions does not wait for each reply.

use super::super::conn::outbound::send_away;
use super::super::conn::{Lane, Session};
use super::super::core::Core;
use super::super::entry::Entry;
use super::super::point::View;
use super::super::state::batches::{Batch, Stops};
use super::super::unit::settle::Caller;
use super::super::wanted::{HeldBatch, To};
use super::at_once::For;
use super::exec::Exec;
use super::inner::Inner;
use super::queued::{Queued, Watched};
use darter_resp as resp;
use darter_tx::CoreId;
use std::rc::Rc;

impl Core {
    /// Adds an EXEC to the batch for the core that owns its keys and the watched keys.
    pub(super) fn send_exec_away(
        &self,
        lane: &mut Lane,
        entry: &Entry,
        core: CoreId,
        args: resp::Args<'_>,
        mut queued: Box<Queued>,
    ) {
        // The other core ends the watches after EXEC, because a separate message would overtake the
        // batch.
        let watched = lane.transaction.watched.take();
        queued.watched =
            watched.map(|watched| Rc::try_unwrap(watched).expect("no EXEC of the connection runs"));
        self.discard(lane);
        send_away(self, lane, entry, core, args);
        lane.attach(core, queued);
    }

    /// Runs an EXEC from another core. Returns its batch, unless it must wait for a task.
    pub(crate) fn exec_in_batch(
        self: &Rc<Self>,
        mut batch: Box<Batch>,
        mut queued: Box<Queued>,
    ) -> Option<Box<Batch>> {
        let item = &batch.items[batch.next];
        let (entry, view) = (&self.table.entries()[item.entry], item.view);
        let (resp3, caller) = (batch.resp3, Caller::Client(batch.from, batch.client));
        let mut watched = queued.watched.take();
        let is_touched = self.may_run_at_once(&queued, view.db, watched.as_ref(), batch.client);
        let mut rest = None;
        if let Some(is_touched) = is_touched {
            if watched.take().is_some() {
                self.tx.home().shard.unwatch(batch.client);
            }
            let whose = For { view, resp3, caller };
            match self.run_exec(entry, batch.args(item), &queued, is_touched, whose) {
                Ok(replies) => {
                    self.spare_queued.keep(queued);
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
                    return Some(batch);
                }
                Err(begun) => rest = Some(begun),
            }
        }
        // An EXEC that writes does not stop when its client closes: later commands of its pipeline
        // may have run on other cores.
        let stops = queued.is_read.then_some(Stops::Always);
        HeldBatch::new(self, batch, stops).start(|held| {
            let exec = exec_of(self, &held, queued, watched.unwrap_or_default());
            exec.spawn(To::Batch(held), rest)
        });
        None
    }
}

/// The EXEC that is the next command of a batch.
fn exec_of(core: &Rc<Core>, held: &HeldBatch, queued: Box<Queued>, watched: Watched) -> Exec {
    let batch = &held.batch;
    let item = &batch.items[batch.next];
    let (View { db, no_touch, .. }, resp3, handle) = (item.view, batch.resp3, batch.client);
    let session = Session { handle, db, no_touch, resp3, ..Session::default() };
    Exec {
        core: Rc::clone(core),
        client: handle,
        row: item.entry,
        request: batch.args(item).to_request(),
        inner: Inner::of(core, &session),
        queued,
        watched: Rc::new(watched),
        presence: Rc::clone(&held.presence),
    }
}
