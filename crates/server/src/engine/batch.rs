//! Batches: point commands, transactions and scripts of one connection for another core, sent and
//! answered together.
//!
//! A pipeline is cut into one batch per core. The commands of a batch run in order on the core of
//! their keys. If one must wait for a lock, or takes more than a slice, the rest of the batch
//! waits, and so do later batches of the connection: replies are matched to requests by order
//! alone. A batch that the end of a slice interrupts is resumed first in the next one, because
//! messages run in order (see `queue`). The sender bounds the size of a batch: [`AWAY_AT_ONCE`].
//!
//! [`AWAY_AT_ONCE`]: super::conn::AWAY_AT_ONCE
//!
//! A batch whose replies have grown large sends them home, and rests until the client's core has
//! sent them and needs the next. A batch that reaches a command held by CLIENT PAUSE also sends its
//! replies home, and continues after the pause.

use super::conn::Lane;
use super::core::{Core, Mail};
use super::entry::Runner;
use super::owed::Owed;
use super::point::{Ran, View, Work};
use super::presence::{Awaited, Presence};
use super::state::batches::{Batch, Replied, Stops};
use super::unit::settle::Caller;
use super::wanted::Stopped;
use darter_resp::{LOOKAHEAD_MAX, Output, Reply, Request};
use darter_tx::CoreId;
use std::rc::Rc;
use std::sync::Arc;

/// Replies held for a batch, in bytes.
const HELD_BYTES_MAX: usize = darter_base::limits::REPLY_BUFFER_BYTES / 4;

impl Core {
    /// Runs a batch from another core.
    pub(super) fn begin_batch(self: &Rc<Self>, batch: Box<Batch>) {
        let begun = self.batches.borrow_mut().begin(batch);
        if let Some(batch) = begun {
            self.run_batch(batch);
        }
    }

    /// Resumes the next batch.
    pub(super) fn resume_batch(self: &Rc<Self>) {
        let next = self.batches.borrow_mut().next();
        if let Some(batch) = next {
            self.run_batch(batch);
        }
    }

    /// Runs a batch until it is done, the slice is over, or a command must wait.
    fn run_batch(self: &Rc<Self>, mut batch: Box<Batch>) {
        while batch.next < batch.items.len() {
            if batch.next.is_multiple_of(LOOKAHEAD_MAX) {
                let db = batch.items[batch.next].view.db;
                self.prefetch(batch.lookahead().map(|request| (request, db)));
            }
            let args = batch.args(&batch.items[batch.next]);
            let entry = &self.table.entries()[batch.items[batch.next].entry];
            let flags = self.own_flags(entry, args);
            let item = &mut batch.items[batch.next];
            let flags = item.queued.as_ref().map_or(flags, |queued| queued.flags_of_exec(flags));
            if self.is_paused(flags) {
                self.pause_batch(batch);
                return;
            }
            let queued = item.queued.take();
            if let Some(queued) = &queued {
                self.prefetch_queued(queued, batch.items[batch.next].view.db);
            }
            let ran = match (queued, entry.run) {
                (Some(queued), _) => self.exec_in_batch(batch, queued),
                (None, Runner::Script(script)) => self.script_in_batch(batch, script),
                (None, _) => self.run_in_batch(batch),
            };
            let Some(same) = ran else { return };
            batch = same;
            if batch.next == batch.items.len() {
                break;
            }
            if batch.held_bytes > HELD_BYTES_MAX {
                self.post(batch.from, Mail::BatchDone(batch.split_replies(true)));
                self.batches.borrow_mut().rest(batch);
                return;
            }
            if self.slice.is_over(self.meter.now_ns()) {
                self.batches.borrow_mut().resume(batch);
                return;
            }
        }
        let from = batch.from;
        self.batches.borrow_mut().done(batch.client);
        self.post(from, Mail::BatchDone(batch));
    }

    /// Runs the next command of a batch. Returns the batch, unless it must wait.
    #[inline]
    fn run_in_batch(self: &Rc<Self>, mut batch: Box<Batch>) -> Option<Box<Batch>> {
        let item = &batch.items[batch.next];
        let entry = &self.table.entries()[item.entry];
        let mut out = Output::with_buffer(self.admin.take_buffer());
        let mut reply = Reply::new(&mut out, batch.resp3);
        let (args, caller) = (batch.args(item), caller_of(&batch));
        match self.call_unless_locked(entry, args, item.view, &mut reply, caller) {
            Ran::Done(None) => match out.take_flat(Vec::new()) {
                Some(flat) => {
                    batch.replied_flat(&flat);
                    self.admin.keep_buffer(flat);
                }
                None => batch.replied(out, None),
            },
            Ran::Done(stream) => batch.replied(out, stream),
            Ran::Waits(work) => {
                let (request, index, view) = (args.to_request(), item.entry, item.view);
                self.wait_in_batch(batch, index, request, view, work);
                return None;
            }
        }
        Some(batch)
    }

    /// Sets a batch aside until the end of CLIENT PAUSE. Its client gets the replies so far.
    fn pause_batch(&self, mut batch: Box<Batch>) {
        if !batch.ends.is_empty() {
            self.post(batch.from, Mail::BatchDone(batch.split_replies(false)));
        }
        self.batches.borrow_mut().pause(batch);
    }

    fn wait_in_batch(
        self: &Rc<Self>,
        mut batch: Box<Batch>,
        index: usize,
        request: Arc<Request>,
        view: View,
        work: Work,
    ) {
        self.batches.borrow_mut().hold(batch.client);
        let (core, client) = (Rc::clone(self), batch.client);
        let presence = Presence::new(self.batches.borrow().gone(client));
        let seen = Rc::clone(&presence);
        let task = self.tx.spawn(async move {
            let (resp3, caller) = (batch.resp3, caller_of(&batch));
            let entry = &core.table.entries()[index];
            let answer = core.finish_waiting(index, request, view, resp3, work, caller);
            let answer = core.while_wanted(!entry.row.is_write(), &seen, answer).await;
            let (out, stream) = match answer {
                Ok(answer) => core.encode_answer(answer, resp3),
                Err(Stopped::Unwanted) => Default::default(), // The client is gone.
                Err(Stopped::Busy(line)) => {
                    core.encode_answer(Err(core.refuse_busy(entry, line)), resp3)
                }
            };
            batch.replied(out, stream);
            core.batches.borrow_mut().answered(batch);
        });
        self.tx.note_author(task, view.tracker.author());
        // A write does not stop: later commands of its pipeline may have run on other cores.
        if !self.table.entries()[index].row.is_write() {
            self.batches.borrow_mut().note_awaited(
                client,
                Awaited { task, presence },
                Stops::Always,
            );
        }
    }

    /// Accepts the replies of a batch that another core has run.
    pub(super) fn batch_done(self: &Rc<Self>, from: CoreId, mut batch: Box<Batch>) {
        let Some(token) = self.clients.token_of(batch.client) else {
            if batch.rests {
                self.wake_batch(from, batch.client); // The client's later commands must run, too.
            }
            return;
        };
        self.with_conn(token, |conn| {
            let lane = &mut conn.lane;
            if batch.rests {
                lane.resting.push(from);
            }
            lane.away_bytes -= batch.request_bytes;
            lane.learn_owed(batch.ends.len(), batch.held_bytes);
            let (mut start, mut slot) = (0, 0);
            let replies = &batch.replies;
            for replied in batch.ends.drain(..) {
                while !lane.owes_from(slot, from) {
                    assert!(slot < lane.owed.len(), "a reply is owed for every command of a batch");
                    slot += 1;
                }
                let in_turn = slot == 0 && lane.stream.is_none();
                let silent = matches!(lane.owed[slot], Owed::Silent(_));
                match replied {
                    silenced if silent => {
                        start = if let Replied::Flat(end) = silenced { end } else { start };
                        lane.flat_at(slot, &[]);
                    }
                    Replied::Flat(end) if in_turn => {
                        lane.out.tail().extend_from_slice(&replies[start..end]);
                        lane.owed.pop_front();
                        start = end;
                        lane.settle();
                    }
                    Replied::Flat(end) => {
                        lane.flat_at(slot, &replies[start..end]);
                        start = end;
                    }
                    Replied::Parts(parts) => {
                        let (out, stream) = *parts;
                        lane.ready_at(slot, out, stream);
                    }
                }
            }
            self.after_settling(lane);
        });
        self.batches.borrow_mut().keep(batch);
    }

    /// Resumes a resting batch on another core, if its reply is next and the earlier ones were
    /// sent.
    pub(super) fn wake_wanted(&self, lane: &mut Lane) {
        if let Some(at) = wanted(lane) {
            let core = lane.resting.swap_remove(at);
            self.wake_batch(core, lane.session.handle);
        }
    }

    /// Resumes all resting batches of a closed connection: its requests must still run.
    pub(super) fn wake_all(&self, lane: &mut Lane) {
        for core in std::mem::take(&mut lane.resting) {
            self.wake_batch(core, lane.session.handle);
        }
    }

    fn wake_batch(&self, core: CoreId, client: u64) {
        let wake = move |there: &Rc<Self>| there.batches.borrow_mut().wake(client);
        self.post(core, Mail::Ask(Box::new(wake)));
    }
}

pub(super) fn caller_of(batch: &Batch) -> Caller<'static> {
    Caller::Client(batch.from, batch.client)
}

/// The index, among the resting cores, of one whose batch may continue: its reply is next, and the
/// earlier ones were sent.
pub(super) fn wanted(lane: &Lane) -> Option<usize> {
    let Some(Owed::Remote(core) | Owed::Silent(core)) = lane.owed.front() else { return None };
    let has_left = lane.stream.is_none() && lane.output_bytes() < HELD_BYTES_MAX;
    lane.resting.iter().position(|resting| resting == core).filter(|_| has_left)
}
