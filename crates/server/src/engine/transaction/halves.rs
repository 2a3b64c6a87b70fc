//! EXEC whose keys are on this core and one other: a message there and one back.
//!
//! ```text
//! this core     locks its own keys | item of a batch                    | own commands | unlock, reply
//! the other                          its commands at once, if all is free
//! ```
//! The step of the other core is the instant of the whole: nothing has changed before, and what is
//! locked here does not change, and is not seen to have changed, until this core has done its own
//! part. Neither waits for a lock meanwhile. If the other core cannot begin at once it refuses: then
//! nothing has happened, the locks are given back, and EXEC is a task like any other (`exec`).
//!
//! A pipeline of such transactions travels in one batch. So that they keep their order, nothing but
//! MULTI and what is queued is run behind them until all are answered; and once one is refused,
//! those behind it are, too, until the core that sent them has heard of it. They run again one after
//! another. docs/design/0024-transaction-context.md.

use super::super::account::Caller;
use super::super::conn::Lane;
use super::super::core::{Core, Mail};
use super::super::entry::{Entry, Runner};
use super::super::presence::Presence;
use super::super::state::batches::{Batch, Replied};
use super::at_once::For;
use super::claims::claim_here;
use super::exec::Exec;
use super::half::{Answer, Half, Outcome};
use super::inner::Inner;
use super::queued::{Queued, Verb, Watched};
use super::replies::Replies;
use darter_keyspace::Seen;
use darter_resp::{self as resp, Reply, Request};
use darter_tx::{AtOnce, CoreId, Transaction, TxId};
use std::rc::Rc;
use std::sync::Arc;

impl Half {
    /// The next command of the other core was answered so. Returns a buffer that is free.
    fn push(&mut self, replies: Replies) -> Option<Vec<u8>> {
        match replies.into_flat() {
            Ok(flat) => {
                self.bytes.extend_from_slice(&flat);
                self.answers.push_back(Answer::Flat(flat.len()));
                Some(flat)
            }
            Err(replies) => {
                self.answers.push_back(Answer::Parts(Box::new(replies.into_part())));
                None
            }
        }
    }

    /// The next answer takes its place among the replies.
    fn take_next(&mut self, replies: &mut Replies) {
        match self.answers.pop_front().expect("each command of the other core is answered") {
            Answer::Flat(len) => {
                replies.out.copy(&self.bytes[self.start..self.start + len]);
                self.start += len;
                replies.settle();
            }
            Answer::Parts(part) => {
                let (out, stream) = *part;
                replies.out.append(out);
                match stream {
                    Some(stream) => replies.stream(stream),
                    None => replies.settle(),
                }
            }
        }
    }
}

// ---- on the core of the connection ----

impl Core {
    /// Begins an EXEC of this core and another. If that cannot be, what is queued comes back.
    pub(super) fn begin_halves(
        &self,
        lane: &mut Lane,
        entry: &Entry,
        other: CoreId,
        args: resp::Args<'_>,
        mut queued: Box<Queued>,
    ) -> Result<(), Box<Queued>> {
        let is_behind = lane.halves.are_any() || lane.is_settled();
        if !is_behind || !lane.halves.allow(other) {
            return Err(queued);
        }
        let (db, client) = (lane.session.db, lane.session.handle);
        let watched = lane.watched.as_deref();
        let is_watched = watched.is_some_and(|watched| watched.cores().contains(&self.id()));
        if is_watched && self.tx.home().shard.ask_watches(client) != Seen::Clean {
            return Err(queued);
        }
        let claim = claim_here(self, db, &queued, watched);
        let Some(locked) = self.tx.try_hold(claim) else { return Err(queued) };
        let number = locked.id();
        queued.half = Some(Half::new(number));
        self.send_exec_away(lane, entry, other, args, queued);
        lane.owe_half(number);
        lane.halves.count += 1;
        lane.halves.other = other;
        self.halves.borrow_mut().insert(number, locked);
        Ok(())
    }

    /// True for a request that may not run while transactions of its connection are under way: it is
    /// held until they are answered.
    #[inline]
    pub(crate) fn waits_for_halves(
        &self,
        lane: &mut Lane,
        entry: &Entry,
        args: resp::Args<'_>,
    ) -> bool {
        let waits = lane.halves.are_any()
            && !matches!(entry.run, Runner::Transaction(Verb::Multi | Verb::Exec));
        if waits {
            lane.hold(args.to_request());
        }
        waits
    }

    /// Another core has done its parts of transactions, or has refused.
    pub(crate) fn halves_done(self: &Rc<Self>, from: CoreId, mut batch: Box<Batch>) {
        if let Some(token) = self.clients.token_of(batch.client) {
            self.with_conn(token, |conn| conn.lane.away_bytes -= batch.request_bytes);
        }
        for (at, replied) in std::mem::take(&mut batch.ends).into_iter().enumerate() {
            let Replied::Half(queued) = replied else { unreachable!("they travel by themselves") };
            self.end_half(from, &batch, at, queued);
        }
        self.batches.borrow_mut().keep(batch);
    }

    /// Does the part of this core, and replies.
    fn end_half(self: &Rc<Self>, from: CoreId, batch: &Batch, at: usize, mut queued: Box<Queued>) {
        let (item, client, resp3) = (&batch.items[at], batch.client, batch.is_resp3());
        let (entry, args) = (&self.table.entries()[item.entry], batch.args(item));
        let mut half = queued.half.take().expect("it is a half");
        let number = half.transaction;
        let locked = self.halves.borrow_mut().remove(&number).expect("it was begun here");
        let (begun, run) = (self.begun(args), self.tx.begin_at_once());
        let whose = For { view: item.view, resp3, caller: Caller::Client(self.id(), client) };
        let mut replies = Replies::into_buffer(self.admin.take_buffer());
        match half.outcome {
            Outcome::Refused => {
                drop(locked);
                return self.half_refused(from, client, (number, item.entry, queued));
            }
            Outcome::Touched => Reply::new(&mut replies.out, resp3).null_array(),
            Outcome::Done => {
                Reply::new(&mut replies.out, resp3).array(queued.sizes.count);
                self.prefetch_queued(&queued, item.view.db);
                let joined = self.join(from, &queued, whose, &mut half, &mut replies);
                if let Err(next) = joined {
                    let exec = self.exec_of(batch, at, queued, Watched::default());
                    let claim = claim_here(self, whose.view.db, &exec.queued, None);
                    let rest = Rest { exec, half, next };
                    self.tx.go_on_holding(run, locked, from, claim, |transaction| {
                        finish_here(rest, from, replies, transaction)
                    });
                    return;
                }
                self.tx.end_part(run, number);
                self.publish_events();
            }
        }
        self.account_call(entry, begun, None, args, whose.caller);
        drop(locked);
        if queued.watched.is_some() {
            self.tx.home().shard.unwatch(client);
        }
        self.spare_queued.keep(queued);
        self.admin.keep_buffer(half.bytes);
        self.answer_half(client, number, replies);
    }

    /// Runs the commands of this core, and puts the answers of the other one between their replies. If
    /// the slice is over before, or a command takes longer, the place of the next.
    fn join(
        self: &Rc<Self>,
        from: CoreId,
        queued: &Queued,
        whose: For<'_>,
        half: &mut Half,
        replies: &mut Replies,
    ) -> Result<(), usize> {
        let mut is_first = true;
        for (at, (core, row, args)) in queued.placed().enumerate() {
            if core == Some(from) {
                half.take_next(replies);
                continue;
            }
            let is_over = !is_first && self.slice.is_over(self.meter.now_ns());
            if is_over || !self.run_inner(&self.table.entries()[row], args, whose, replies) {
                return Err(at);
            }
            is_first = false;
        }
        Ok(())
    }

    /// One has ended: its reply takes its place.
    fn answer_half(&self, client: u64, number: TxId, replies: Replies) {
        let Some(token) = self.clients.token_of(client) else { return };
        self.with_conn(token, |conn| {
            let lane = &mut conn.lane;
            lane.halves.count -= 1;
            match replies.into_flat() {
                Ok(flat) => {
                    lane.half_done(number, |lane, slot| lane.flat_at(slot, &flat));
                    self.admin.keep_buffer(flat);
                }
                Err(replies) => {
                    let (out, stream) = replies.into_part();
                    lane.half_done(number, |lane, slot| lane.ready_at(slot, out, stream));
                }
            }
            self.after_settling(lane);
        });
    }

    /// The other core could not begin at once: it runs as a task, once those that were refused before
    /// have ended.
    fn half_refused(
        self: &Rc<Self>,
        from: CoreId,
        client: u64,
        refused: (TxId, usize, Box<Queued>),
    ) {
        // What has been sent until now is refused, too, and nothing is sent before this has run.
        let heard = move |there: &Rc<Self>| there.batches.borrow_mut().refuse_no_more(client);
        self.post(from, Mail::Ask(Box::new(heard)));
        let Some(token) = self.clients.token_of(client) else {
            let (_, _, mut queued) = refused;
            let watched = queued.watched.take().unwrap_or_default();
            return self.unwatch_on(client, &watched.cores());
        };
        self.with_conn(token, |conn| {
            let lane = &mut conn.lane;
            lane.halves.refused.push_back(refused);
            if !lane.halves.is_stalled {
                lane.halves.is_stalled = true;
                self.run_next_refused(lane);
            }
        });
    }

    fn run_next_refused(self: &Rc<Self>, lane: &mut Lane) {
        let Some((number, row, mut queued)) = lane.halves.refused.pop_front() else {
            lane.halves.is_stalled = false;
            return;
        };
        let watched = queued.watched.take().unwrap_or_default();
        let exec = Exec {
            core: Rc::clone(self),
            client: lane.session.handle,
            row,
            request: Arc::new(Request::from_args([&b"EXEC"[..]])),
            inner: Inner::of(self, &lane.session),
            queued,
            watched: Rc::new(watched),
            presence: Presence::new(lane.gone()),
        };
        let presence = Rc::clone(&exec.presence);
        let task = self.tx.spawn(run_refused(exec, number));
        self.await_answer(lane, task, presence);
    }

    /// One that was refused has run, or nobody wants it any more.
    fn refused_done(self: &Rc<Self>, client: u64, number: TxId, replies: Option<Replies>) {
        let Some(token) = self.clients.token_of(client) else { return };
        self.with_conn(token, |conn| conn.lane.awaited = None);
        match replies {
            Some(replies) => self.answer_half(client, number, replies),
            None => {
                self.with_conn(token, |conn| {
                    self.kill(&mut conn.lane);
                    self.mark_dirty(&mut conn.lane);
                });
            }
        }
        self.with_conn(token, |conn| self.run_next_refused(&mut conn.lane));
    }
}

/// What is left of a part that takes longer.
struct Rest {
    exec: Exec,
    half: Half,
    /// The place of the next command.
    next: usize,
}

/// The part of this core as a task: the other one has done its own.
async fn finish_here(rest: Rest, from: CoreId, mut replies: Replies, transaction: Transaction) {
    let Rest { exec, mut half, next } = rest;
    let core = &exec.core;
    let begun_ns = core.clock.monotonic_ns();
    for (place, row, args) in exec.queued.placed().skip(next) {
        if place == Some(from) {
            half.take_next(&mut replies);
            continue;
        }
        exec.inner.run(row, args, transaction.tx(), &mut replies).await;
        core.tx.pause().await;
    }
    drop(transaction);
    let ns = core.clock.monotonic_ns().saturating_sub(begun_ns);
    core.count_inner(&core.table.entries()[exec.row], ns, None);
    if exec.queued.watched.is_some() {
        core.tx.home().shard.unwatch(exec.client);
    }
    core.answer_half(exec.client, half.transaction, replies);
}

/// An EXEC that was refused, as a task.
async fn run_refused(exec: Exec, number: TxId) {
    let replies = exec.replies(None).await;
    let core = &exec.core;
    core.unwatch_on(exec.client, &exec.watched.cores());
    core.refused_done(exec.client, number, replies);
}

// ---- on the other core ----

impl Core {
    /// Runs the commands of an EXEC from another core whose keys are here, or refuses. Returns its
    /// batch, unless that has to wait for a task.
    pub(super) fn half_in_batch(
        self: &Rc<Self>,
        mut batch: Box<Batch>,
        mut queued: Box<Queued>,
    ) -> Option<Box<Batch>> {
        let (item, client) = (&batch.items[batch.next], batch.client);
        let (view, resp3) = (item.view, batch.is_resp3());
        let mut half = queued.half.take().expect("it is a half");
        let is_refusing = self.batches.borrow().refuses(client);
        let watched = queued.watched.as_ref();
        let watched = watched.filter(|watched| watched.cores().contains(&self.id()));
        let is_touched = if is_refusing {
            None
        } else {
            self.may_run_at_once(&queued, view.db, watched, client)
        };
        if watched.is_some() && is_touched.is_some() {
            self.tx.home().shard.unwatch(client);
        }
        half.outcome = match is_touched {
            None => Outcome::Refused,
            Some(true) => Outcome::Touched,
            Some(false) => Outcome::Done,
        };
        if half.outcome == Outcome::Refused {
            self.batches.borrow_mut().refuse(client);
        }
        if half.outcome == Outcome::Done {
            let run = self.tx.begin_at_once();
            let whose = For { view, resp3, caller: Caller::Client(batch.from, client) };
            if let Err(next) = self.run_part(run, &queued, whose, &mut half) {
                self.go_on_with_part(batch, queued, run, (half, next));
                return None;
            }
        }
        batch.replied_half(half.held_bytes(), with(queued, half));
        Some(batch)
    }

    /// Runs the commands whose keys are here, and serves who waits for what they changed. If the slice
    /// is over before, or a command takes longer, the place of the next.
    fn run_part(
        self: &Rc<Self>,
        run: AtOnce,
        queued: &Queued,
        whose: For<'_>,
        half: &mut Half,
    ) -> Result<(), usize> {
        let own = || {
            let all = queued.placed().enumerate();
            all.filter(|(_, (core, ..))| *core == Some(self.id()))
        };
        half.bytes = self.admin.take_buffer();
        half.bytes.clear();
        let mut is_first = true;
        for (at, (_, row, args)) in own() {
            let is_over = !is_first && self.slice.is_over(self.meter.now_ns());
            let mut replies = Replies::into_buffer(self.admin.take_buffer());
            let entry = &self.table.entries()[row];
            if is_over || !self.run_inner(entry, args, whose, &mut replies) {
                return Err(at);
            }
            if let Some(buffer) = half.push(replies) {
                self.admin.keep_buffer(buffer);
            }
            is_first = false;
        }
        self.tx.end_part(run, half.transaction);
        self.publish_events();
        if !queued.is_read && !self.waits.borrow().is_empty() {
            let all = own().map(|(_, (_, row, args))| (&self.table.entries()[row], args));
            self.serve_changed(all.filter(|(entry, _)| entry.row.is_write()), whose.view.db);
            self.publish_events();
        }
        Ok(())
    }

    /// The rest of a part, which began in this turn, is a task that its batch waits for.
    fn go_on_with_part(
        self: &Rc<Self>,
        batch: Box<Batch>,
        queued: Box<Queued>,
        run: AtOnce,
        (half, next): (Half, usize),
    ) {
        let (number, from) = (half.transaction, batch.from);
        let exec = self.exec_of(&batch, batch.next, queued, Watched::default());
        let claim = claim_here(self, batch.items[batch.next].view.db, &exec.queued, None);
        self.batches.borrow_mut().hold(batch.client);
        let rest = Rest { exec, half, next };
        self.tx.go_on_for(run, (number, from), claim, |transaction| {
            finish_there(rest, batch, transaction)
        });
    }
}

fn with(mut queued: Box<Queued>, half: Half) -> Box<Queued> {
    queued.half = Some(half);
    queued
}

/// The part of the core that was asked, as a task. It goes on whoever is gone: the other core waits.
async fn finish_there(rest: Rest, mut batch: Box<Batch>, transaction: Transaction) {
    let Rest { exec, mut half, next } = rest;
    let Exec { core, inner, queued, .. } = exec;
    for (place, row, args) in queued.placed().skip(next) {
        if place == Some(core.id()) {
            let mut replies = Replies::default();
            inner.run(row, args, transaction.tx(), &mut replies).await;
            half.push(replies);
            core.tx.pause().await;
        }
    }
    drop(transaction);
    batch.replied_half(half.held_bytes(), with(queued, half));
    core.batches.borrow_mut().answered(batch);
}
