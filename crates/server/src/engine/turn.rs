//! One turn of a core: a slice of work between two polls of the sockets.

use super::conn::outbound;
use super::conn::{Conn, Lane};
use super::core::{Core, Mail};
use super::journal;
use super::prefetch::prefetch_ready;
use super::queue::Next;
use super::slices::{Cause, Slice};
use super::state::background::{CHORES, Chore};
use super::state::corked;
use super::state::outgoing::Action;
use super::wanted::ENDED_WORK_NS;
use darter_base::Preempt;
use darter_base::limits::SLICE_AIM_NS;
use darter_keyspace::Shard;
use darter_resp::Reply;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use std::rc::Rc;

/// The time that background work gets in each slice, even if arrivals have used up the slice.
/// During this time there are no checks for knocks.
const BACKGROUND_NS: u64 = SLICE_AIM_NS / 4;
/// The time that background work gets while writers wait for the snapshot.
const BEHIND_NS: u64 = SLICE_AIM_NS / 2;
/// The time for freeing memory in each round of a slice. It is half a slice, so that freeing keeps
/// up with the memory whose freeing is deferred.
const FREEING_NS: u64 = SLICE_AIM_NS / 2;
/// The number of bytes of a streamed reply that are encoded before its socket must drain.
pub(super) const STREAM_BUFFER_BYTES: usize = 256 * 1024;
/// The approximate number of bytes handed to a socket at once, because the kernel copies them
/// during the slice.
const SENT_BYTES: usize = STREAM_BUFFER_BYTES;
/// Replies with more bytes do not wait for further ones, because that would save nothing.
const CORKED_BYTES: usize = 16 * 1024;
/// The number of expired entries removed between two reads of the clock: 20 to 50 us. It takes 160
/// us if each is the last holder of a string of some kilobytes. Fewer would take longer in total,
/// because their cache misses overlap.
const REAP_PORTION: usize = 64;

impl Core {
    /// Begins a slice. Must be called after polling the sockets, before the events are passed to
    /// the core.
    pub fn begin_turn(&self) {
        let wall_ns = self.clock.monotonic_ns();
        self.meter.begin(wall_ns, || self.clock.cpu_ns());
        self.slice.begin(wall_ns);
        self.clients.begin_slice();
        self.moves.works(wall_ns);
        let now_ms = self.clock.unix_ms();
        if now_ms != self.now_ms.get() {
            self.now_ms.set(now_ms);
            self.tx.home().shard.set_now(now_ms);
            self.tx.ring_alarms(now_ms);
            if self.tx.cores() > 1 {
                let reports = &self.admin.shared.reports;
                self.moves.look(self.id(), reports, now_ms, wall_ns, || self.clock.cpu_ns());
            }
        }
    }

    /// Runs a slice: first messages and requests, then background work. When the caller has
    /// performed the outputs, [`Core::wait`] returns how long the core may sleep.
    pub fn turn(self: &Rc<Self>) {
        let _ = self.serve_all(); // All outputs are performed at the end.
        self.work_on();
    }

    /// Runs the first part of a slice: messages and connections. Returns true if background work
    /// will use up the slice; then the caller should perform the outputs before the second part,
    /// too.
    #[must_use]
    pub fn serve_all(self: &Rc<Self>) -> bool {
        if self.is_logged.get() {
            // After this look's arrivals, which therefore have a lower stamp.
            let now_ns = self.read_clock();
            self.tx.home().shard.begin_turn(now_ns);
        }
        journal::release_held(self);
        self.end_pause();
        self.end_overdue();
        self.serve_due();
        if self.queue.borrow().has_mail() {
            self.read_clock(); // Receiving has taken time since the slice began.
        }
        self.saving.begin_turn();
        self.release_writer();
        let look = self.look.replace(self.look.get() + 1);
        self.run_arrived(look);
        self.serve_writers();
        if self.has_messages() {
            self.timed(Cause::Deliver, || {
                self.work_on_messages();
            });
        }
        let sends = self.background.used_up() && self.clients.are_dirty();
        if sends {
            self.end_tracked_turn();
            journal::hand_over(self);
            self.send_dirty();
        }
        sends
    }

    /// Runs the second part of a slice: background work.
    pub fn work_on(self: &Rc<Self>) {
        self.begin_servings();
        let share_ns = if self.writers.are_held() { BEHIND_NS } else { BACKGROUND_NS };
        self.slice.begin_background(self.read_clock(), share_ns);
        let used_up = self.run_background();
        self.background.note_used_up(used_up);
        if !self.slice.must_yield() {
            // Runs the batches that a task has just resumed.
            self.run_arrived(self.look.get() - 1);
        }
        self.tick();
        self.release.look(&self.clients, self.now_ms());
        self.report_behind_writers();
        self.uncork();
        self.end_stalls();
        self.end_tracked_turn();
        journal::hand_over(self);
        self.send_dirty();
        self.end_slice();
    }

    /// Sends the invalidations of this turn, before its replies leave.
    fn end_tracked_turn(self: &Rc<Self>) {
        self.send_broadcasts();
        self.push_invalidations(None);
    }

    /// Runs the arrivals of all looks up to `look`, in order, until the slice is over.
    fn run_arrived(self: &Rc<Self>, look: u64) {
        let mut prefetched = 0;
        loop {
            let has_batch = self.batches.borrow().has_next();
            let next = if has_batch { Some(Next::Mail) } else { self.queue.borrow().next(look) };
            let is_over = match next {
                Some(Next::Mail) => {
                    self.run_next_mail(has_batch);
                    self.slice.is_over(self.meter.now_ns())
                }
                Some(Next::Ready) => {
                    self.run_next_ready(&mut prefetched);
                    self.slice.must_yield()
                }
                None => return,
            };
            if is_over {
                return;
            }
        }
    }

    /// Uses the rest of the slice for connections that have waited for a snapshot, if all earlier
    /// arrivals have run.
    fn serve_writers(self: &Rc<Self>) {
        while self.queue.borrow().may_run_ready() && !self.slice.is_over(self.meter.now_ns()) {
            let Some(token) = self.next_writer() else { return };
            self.serve(token);
            // Read the clock, because many connections in a row may have nothing to run.
            self.meter.read(self.clock.monotonic_ns());
        }
    }

    /// Resumes a batch, or runs the next message.
    fn run_next_mail(self: &Rc<Self>, has_batch: bool) {
        self.meter.blame(Cause::Mail);
        if has_batch {
            return self.resume_batch();
        }
        let next = self.queue.borrow_mut().next_mail();
        let Some((from, mail)) = next else { return };
        let is_batch = matches!(mail, Mail::Batch(_));
        if !is_batch && self.meter.untimed() > 0 {
            self.read_clock();
        }
        let begun = self.meter.now_ns();
        self.run_mail(from, mail);
        self.publish_unit();
        self.push_invalidations(None);
        if !is_batch {
            // The commands of a batch read the clock themselves.
            let ended = self.read_clock();
            self.meter.took(ended.saturating_sub(begun));
        }
    }

    /// Runs a message.
    fn run_mail(self: &Rc<Self>, from: CoreId, mail: Mail) {
        match mail {
            Mail::Tx(message) => self.tx.deliver(message),
            Mail::Batch(batch) => self.begin_batch(batch),
            Mail::BatchDone(batch) => self.batch_done(from, batch),
            Mail::Ask(run) => run(self),
        }
    }

    fn run_next_ready(self: &Rc<Self>, prefetched: &mut usize) {
        if *prefetched == 0 && self.queue.borrow().ready().len() > 1 {
            *prefetched = prefetch_ready(self);
        }
        *prefetched = prefetched.saturating_sub(1);
        let next = self.queue.borrow_mut().next_ready();
        let Some(token) = next else { return };
        if !self.waits_for_mail(token) {
            self.serve(token);
        }
    }

    /// True if a connection has received bytes since it was queued, and messages that arrived
    /// before those bytes have not run yet. The connection is then queued again behind those
    /// messages.
    fn waits_for_mail(&self, token: Token) -> bool {
        if !self.queue.borrow().has_mail() {
            return false;
        }
        let look = self.with_conn(token, |conn| conn.lane.input.look);
        look.is_some_and(|look| self.queue.borrow_mut().requeue_after_mail(look, token))
    }

    /// Runs chores in rounds, until the slice is over. The next slice continues with the next
    /// chore, so that no chore starves. Returns true if the slice is over and there may be more
    /// work.
    fn run_background(self: &Rc<Self>) -> bool {
        let mut idle = 0;
        while idle < CHORES.len() {
            if !self.run_chore(self.background.next_chore()) {
                idle += 1;
                continue;
            }
            self.publish_unit();
            self.push_invalidations(None);
            idle = 0;
            if self.slice.must_yield() {
                return true;
            }
        }
        false
    }

    /// Runs a portion of a chore. Returns false if the chore has nothing to do.
    fn run_chore(self: &Rc<Self>, chore: Chore) -> bool {
        match chore {
            Chore::Tasks if self.tx.has_ready() => {
                self.timed(Cause::Task, || {
                    self.tx.run_one();
                });
            }
            Chore::Streams => {
                let stream = self.clients.next_streaming();
                let Some(token) = stream else { return false };
                self.timed(Cause::Stream(None), || self.pump(token));
            }
            Chore::Messages if self.has_messages() => {
                self.timed(Cause::Deliver, || {
                    self.work_on_messages();
                });
            }
            Chore::Invalidations if self.tracking.has_work() => {
                self.timed(Cause::Deliver, || self.work_on_tracking());
            }
            Chore::Dead if !self.events_are_behind() && self.has_dead() => {
                self.timed(Cause::Expiry, || {
                    self.tx.home().shard.reap(REAP_PORTION);
                });
            }
            Chore::Frees if !darter_keyspace::lazyfree::is_empty() => {
                self.timed(Cause::Free, || self.free_deferred());
            }
            Chore::Compaction if self.is_due(self.tx.home().shard.next_compaction()) => {
                self.timed(Cause::Compaction, || self.tx.home().shard.compact());
            }
            Chore::Waits => return self.clear_queues(),
            Chore::Save if self.saving.can_go_on(&self.admin.shared.saves) => {
                self.timed(Cause::Save, || self.save_some());
            }
            Chore::Watches if self.has_watch_work() => {
                self.timed(Cause::Task, || self.settle_watches());
            }
            _ => return false,
        }
        true
    }

    /// Frees memory for its share of the slice. One freeing per round would be too slow, because
    /// jobs that copy segments release as many as they copy.
    fn free_deferred(&self) {
        let share = Share { until_ns: self.clock.monotonic_ns() + FREEING_NS, core: self };
        darter_keyspace::lazyfree::run(&share);
    }

    fn timed(&self, cause: Cause, work: impl FnOnce()) {
        let begun = self.read_clock();
        self.meter.blame(cause);
        work();
        let ended = self.read_clock();
        self.meter.took(ended - begun);
    }

    fn has_dead(&self) -> bool {
        let now = self.now_ms();
        self.background.note_time(now);
        let has_dead = self.next_reap().is_some_and(|at| at <= now);
        if !has_dead {
            self.background.all_reaped(now);
        }
        has_dead
    }

    /// The time at which expired entries are removed next. After a removal, expired keys gather for
    /// a while: removing groups is faster, and no client sees expired keys in any case. Fields do
    /// not gather, because DBSIZE counts a hash until its last field is removed.
    pub(super) fn next_reap(&self) -> Option<u64> {
        let shard = &self.tx.home().shard;
        if !self.hot.borrow().active_expire || shard.keeps_dead() {
            return None;
        }
        let keys = shard.next_key_death().map(|at| self.background.reap_ms(at));
        keys.into_iter().chain(shard.next_field_death()).min()
    }

    /// True if the time `at` (Unix milliseconds) has come.
    pub(super) fn is_due(&self, at: Option<u64>) -> bool {
        at.is_some_and(|at| at <= self.now_ms())
    }

    /// Encodes portions of a long reply while the socket drains.
    fn pump(&self, token: Token) {
        self.with_conn(token, |conn| {
            let lane = &mut conn.lane;
            lane.lists.streaming = false;
            let Some(mut stream) = lane.stream.take() else { return };
            self.meter.blame(Cause::Stream(stream.row()));
            if lane.session.is_killed() {
                return;
            }
            let resp3 = lane.session.resp3;
            if lane.output_bytes() == 0 {
                // The client has waited for the server, so it was not idle.
                lane.session.active_ms = self.now_ms();
            }
            let begun = if lane.input.eof { self.clock.monotonic_ns() } else { 0 };
            let mut more = true;
            while more && lane.output_bytes() < STREAM_BUFFER_BYTES {
                more = stream.pump(&mut Reply::new(&mut lane.out, resp3));
                if self.slice.must_yield() {
                    break;
                }
            }
            self.mark_dirty(lane);
            if lane.output_bytes() > 0 || !more {
                lane.input.silent_ns = 0;
            } else if lane.input.eof {
                lane.input.silent_ns += self.clock.monotonic_ns().saturating_sub(begun);
                if lane.input.silent_ns > ENDED_WORK_NS {
                    self.stats.borrow_mut().stopped += 1;
                    self.kill(lane);
                    return;
                }
            }
            if more {
                lane.stream = Some(stream);
                if lane.output_bytes() < STREAM_BUFFER_BYTES {
                    // Otherwise `sent` adds the connection when the socket has drained.
                    self.mark_streaming(lane);
                }
            } else {
                if let (Some(row), Some(refusal)) = (stream.row(), stream.refusal()) {
                    self.count_failed(row, Some(refusal));
                }
                self.after_settling(lane);
            }
        });
    }

    /// Lists for sending the outputs whose wait for the next reply is over.
    fn uncork(&self) {
        let now = self.now_ms();
        while let Some((until_ms, token)) = self.corked.take_due(now) {
            self.with_conn(token, |conn| {
                if conn.lane.sending.corked_until == Some(until_ms) {
                    // Over, even if the clock is set back later.
                    conn.lane.sending.corked_until = Some(0);
                    self.mark_dirty(&mut conn.lane);
                }
            });
        }
    }

    /// True if the output of a connection should wait for the next reply: see `corked`.
    fn is_corked(&self, conn: &mut Conn) -> bool {
        if !conn.expects_more() || conn.lane.output_bytes() >= CORKED_BYTES {
            return false;
        }
        !corked::is_over(self.cork(&mut conn.lane), self.now_ms())
    }

    fn send_dirty(&self) {
        self.clients.each_dirty(|conn| {
            if conn.lane.closing {
                return;
            }
            if !conn.lane.away.resting.is_empty() {
                outbound::wake_wanted(self, &mut conn.lane);
            }
            let lane = &mut conn.lane;
            let done = lane.session.closes_after_reply() && lane.is_settled();
            if lane.session.is_killed() || (done && lane.output_bytes() == 0) {
                lane.closing = true;
                self.act(Action::Close(lane.token));
            } else if lane.sending.in_flight == 0 && !lane.out.is_empty() && !self.is_corked(conn) {
                self.send(&mut conn.lane);
            }
        });
    }

    /// Hands the output of a connection to the socket.
    fn send(&self, lane: &mut Lane) {
        lane.sending.corked_until = None;
        let (waiting, before) = (lane.waiting_bytes(), lane.out.len());
        self.stats.borrow_mut().output_recent.note(waiting, self.now_ms());
        let action = match lane.out.take_flat(self.outgoing.spare()) {
            Some(bytes) => Action::SendFlat(lane.token, bytes),
            None => Action::Send(lane.token, lane.out.take_some(SENT_BYTES)),
        };
        lane.sending.in_flight = before - lane.out.len();
        lane.note_sent(lane.sending.in_flight, self.now_ms());
        journal::send_or_hold(self, lane, action);
    }

    /// Measures the slice that ends now. `slices` explains why there are two clocks.
    fn end_slice(&self) {
        let now = self.read_clock();
        let (ns, cause) = self.meter.end(now, || self.clock.cpu_ns());
        self.slices.borrow_mut().knocked += u64::from(self.slice.is_knocked());
        self.record_slice(ns, cause);
    }

    /// Runs a portion of loading as a slice of its own. Returns the result of `step`.
    pub fn load_slice(&self, step: impl FnOnce(&mut Shard, &dyn Preempt) -> bool) -> bool {
        let begun = self.clock.monotonic_ns();
        self.slice.extend(begun + SLICE_AIM_NS);
        self.meter.begin(begun, || self.clock.cpu_ns());
        self.meter.blame(Cause::Load);
        let more = step(&mut self.tx.home().shard, &*self.slice);
        let (ns, cause) = self.meter.end(self.clock.monotonic_ns(), || self.clock.cpu_ns());
        self.record_slice(ns, cause);
        more
    }

    fn record_slice(&self, ns: u64, cause: Cause) {
        let slice = Slice { core: self.id(), unix_ms: self.now_ms(), ns, cause };
        self.slices.borrow_mut().record(slice);
        self.admin.note_slice(slice, self.table.command_of(cause), self.clock.monotonic_ns());
    }

    /// Encodes a portion of this core's part of the snapshot.
    fn save_some(&self) {
        let keys = self.saving.step(&self.admin.shared.saves);
        self.admin.shared.reports[self.id()].count_saved(keys);
    }

    /// The end of CLIENT PAUSE, if a connection or a batch waits for it.
    pub(super) fn pause_ends(&self) -> Option<u64> {
        let awaits = self.clients.are_paused() || self.batches.borrow().awaits_pause();
        awaits.then(|| self.hot.borrow().pause.map_or(0, |(until, _)| until))
    }

    pub(super) fn end_pause(&self) {
        if self.pause_ends().is_none_or(|until| until > self.now_ms()) {
            return;
        }
        self.batches.borrow_mut().end_pause();
        self.clients.end_pause(|conn| {
            // The client has waited for the server, so it was not idle.
            conn.lane.session.active_ms = self.now_ms();
            self.mark_ready(&mut conn.lane);
        });
    }
}

/// A share of the running slice, as a bound for freeing memory.
struct Share<'a> {
    until_ns: u64,
    core: &'a Core,
}

impl darter_base::Preempt for Share<'_> {
    fn must_yield(&self) -> bool {
        self.core.clock.monotonic_ns() >= self.until_ns || self.core.slice.must_yield()
    }
}
