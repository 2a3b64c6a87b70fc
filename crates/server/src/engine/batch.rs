//! Batches: the point commands, transactions and scripts that one connection sends to another core
//! together. Their replies return together, too.
//!
//! A pipeline is divided into one batch per core. The commands of a batch run in order on the core
//! that owns their keys. If a command must wait for a lock, or takes more than a slice, the rest of
//! its batch waits. Later batches of the connection wait, too, because only the order tells which
//! reply belongs to which request. If the end of a slice interrupts a batch, the next slice resumes
//! it first, because messages run in order (see `queue`). The sender bounds the size of a batch:
//! [`AWAY_AT_ONCE`].
//!
//! [`AWAY_AT_ONCE`]: super::conn::AWAY_AT_ONCE
//!
//! When the replies of a batch have grown large, they are sent to the client's core. The batch then
//! *rests* until that core has passed the replies to the client and needs the next. A batch that
//! reaches a command held by CLIENT PAUSE also sends its replies, and continues after the pause.

use super::conn::outbound;
use super::core::{Core, Mail};
use super::entry::Runner;
use super::journal;
use super::owed::Owed;
use super::point::{Ran, Work};
use super::prefetch::{prefetch, prefetch_queued};
use super::state::batches::{Batch, HELD_BYTES_MAX, Replied, Stops};
use super::unit::admit::is_paused;
use super::unit::place::own_flags;
use super::wanted::{HeldBatch, caller_of};
use darter_resp::{LOOKAHEAD_MAX, Output, Reply};
use darter_tx::CoreId;
use std::rc::Rc;
use std::sync::Arc;

impl Core {
    /// Begins to run a batch from another core.
    pub(super) fn begin_batch(self: &Rc<Self>, batch: Box<Batch>) {
        let begun = self.batches.borrow_mut().begin(batch);
        if let Some(batch) = begun {
            self.run_batch(batch);
        }
    }

    /// Resumes the next batch that can continue.
    pub(super) fn resume_batch(self: &Rc<Self>) {
        let next = self.batches.borrow_mut().next();
        if let Some(batch) = next {
            self.run_batch(batch);
        }
    }

    /// Runs a batch until it is done, the slice is over, or a command must wait.
    fn run_batch(self: &Rc<Self>, mut batch: Box<Batch>) {
        let mut begun = self.meter.now_ns();
        while batch.next < batch.items.len() {
            if batch.next.is_multiple_of(LOOKAHEAD_MAX) {
                let db = batch.items[batch.next].view.db;
                prefetch(self, batch.lookahead().map(|request| (request, db)));
            }
            let args = batch.args(&batch.items[batch.next]);
            let entry = &self.table.entries()[batch.items[batch.next].entry];
            let flags = own_flags(self, entry, args);
            let item = &mut batch.items[batch.next];
            let flags = item.queued.as_ref().map_or(flags, |queued| queued.flags_of_exec(flags));
            if is_paused(self, flags) {
                self.pause_batch(batch);
                return;
            }
            let queued = item.queued.take();
            if let Some(queued) = &queued {
                prefetch_queued(self, queued, batch.items[batch.next].view.db);
            }
            batch.gated |= self.journal.is_on()
                && (queued.is_some() || matches!(entry.run, Runner::Script(_)));
            let ran = match (queued, entry.run) {
                (Some(queued), _) => self.exec_in_batch(batch, queued),
                (None, Runner::Script(script)) => self.script_in_batch(batch, script),
                (None, _) => self.run_in_batch(batch),
            };
            let Some(same) = ran else { return };
            batch = same;
            let now = self.meter.now_ns();
            batch.took_ns += now - begun;
            begun = now;
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

    /// Runs the next command of a batch. Returns the batch, or `None` if it must wait.
    #[inline]
    fn run_in_batch(self: &Rc<Self>, mut batch: Box<Batch>) -> Option<Box<Batch>> {
        let item = &batch.items[batch.next];
        let entry = &self.table.entries()[item.entry];
        let mut out = Output::with_buffer(self.admin.take_buffer());
        let mut reply = Reply::new(&mut out, batch.resp3);
        let (args, caller) = (batch.args(item), caller_of(&batch));
        let shows_unsafe = journal::shows_unsafe(self, entry, args, item.view.db);
        let ran = self.call_unless_locked(entry, args, item.view, &mut reply, caller);
        batch.gated |= shows_unsafe;
        match ran {
            Ran::Done(None) => match out.take_flat(Vec::new()) {
                Some(flat) => {
                    batch.replied_flat(&flat);
                    self.admin.keep_buffer(flat);
                }
                None => batch.replied(out, None),
            },
            Ran::Done(stream) => batch.replied(out, stream),
            Ran::Waits(work) => {
                self.wait_in_batch(batch, work);
                return None;
            }
        }
        Some(batch)
    }

    /// Holds a batch until CLIENT PAUSE ends, and sends its replies so far to the client's core.
    fn pause_batch(&self, mut batch: Box<Batch>) {
        if !batch.ends.is_empty() {
            self.post(batch.from, Mail::BatchDone(batch.split_replies(false)));
        }
        self.batches.borrow_mut().pause(batch);
    }

    /// Runs the next command of a batch as a task. A read stops when its client has closed. A write
    /// does not stop, because later commands of its pipeline may have run on other cores.
    fn wait_in_batch(self: &Rc<Self>, mut batch: Box<Batch>, work: Work) {
        batch.gated |= self.journal.is_on();
        let item = &batch.items[batch.next];
        let (view, resp3, caller) = (item.view, batch.resp3, caller_of(&batch));
        let is_read = !self.table.entries()[item.entry].row.is_write();
        HeldBatch::new(self, batch, is_read.then_some(Stops::Always)).start(|held| {
            let of = held.answering(None);
            let (core, request) = (Rc::clone(self), Arc::clone(&of.request));
            let work = core.finish_waiting(of.row, request, view, resp3, work, caller);
            let task = self.tx.spawn(Rc::clone(self).answer(of, Box::pin(work)));
            self.tx.note_author(task, view.tracker.author());
            task
        });
    }

    /// Handles the replies that another core returns for a batch.
    pub(super) fn batch_done(self: &Rc<Self>, from: CoreId, mut batch: Box<Batch>) {
        let Some(token) = self.clients.token_of(batch.client) else {
            if batch.rests {
                // The client's later commands must run even if it has closed.
                outbound::wake_batch(self, from, batch.client);
            }
            return;
        };
        self.with_conn(token, |conn| {
            let lane = &mut conn.lane;
            if batch.rests {
                lane.away.resting.push(from);
            }
            lane.sending.gated |= batch.gated;
            lane.away.bytes -= batch.request_bytes;
            lane.learn_owed(batch.ends.len(), batch.held_bytes, batch.took_ns);
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
}
