//! Tasks for whose answer a connection waits. The answer is sent in the order of the requests. A
//! task may have to stop, because its client has gone or it must not wait any longer:
//!
//! - A task that only reads stops at once: its locks are released, and late answers are dropped.
//! - A task that writes stops if it has changed nothing yet, for example while it builds a value
//!   outside the table. After its first change it always runs to the end. In a batch from another
//!   core it always runs, because later commands of its pipeline may have run on other cores.
//! - A half-closed client may still read its replies, or it may have gone; TCP does not show the
//!   difference. So a read continues for a limited time, and a write runs to its end.
//! - A task that waits for keys of a slow script, and has changed nothing, stops with the error
//!   `BUSY`. See `scripts::busy`.

use super::conn::{Lane, ReplyMode};
use super::core::Core;
use super::entry::{Entry, Runner, ServerCall, ServerFuture};
use super::point::Begun;
use super::presence::{Awaited, Gone, Presence};
use super::slices::{Cause, named};
use super::state::batches::{Batch, Stops};
use super::unit::settle::Caller;
use darter_command::{Answer, Flags, Refusal, Stream};
use darter_resp::{self as resp, Output, Reply, Request};
use darter_tx::TaskId;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

/// The time that a read may work for a half-closed client. It is enough for KEYS with a million
/// keys, sent by `nc -N`.
pub(super) const ENDED_WORK_NS: u64 = 100_000_000;

/// The reason why a task has stopped.
pub(super) enum Stopped {
    /// The client of the task has gone.
    Unwanted,
    /// A slow script holds keys of the task. The text is the error for the client.
    Busy(&'static str),
}

/// The command whose task is running.
pub(super) struct Answering {
    pub(super) to: To,
    pub(super) row: usize,
    pub(super) request: Arc<Request>,
    pub(super) presence: Rc<Presence>,
    /// The start of the call. `None` if the task itself counts the call.
    pub(super) begun: Option<Begun>,
}

/// The receiver of a task's answer.
pub(super) enum To {
    /// A connection of this core.
    Conn(u64),
    /// A batch from another core.
    Batch(HeldBatch),
}

impl Core {
    /// Runs the task of a command until it ends, or must stop. For a read there are more reasons to
    /// stop.
    pub(super) async fn while_wanted<R>(
        &self,
        is_read: bool,
        presence: &Presence,
        task: impl Future<Output = R>,
    ) -> Result<R, Stopped> {
        let mut task = pin!(task);
        poll_fn(|cx| {
            if self.stops(is_read, presence) {
                self.stats.borrow_mut().stopped += 1;
                return Poll::Ready(Err(Stopped::Unwanted));
            }
            if let Some(line) = self.tx.refusal() {
                return Poll::Ready(Err(Stopped::Busy(line)));
            }
            if presence.gone() != Gone::Ended {
                return task.as_mut().poll(cx).map(Ok);
            }
            let begun = self.clock.monotonic_ns();
            let polled = task.as_mut().poll(cx).map(Ok);
            presence.work(self.clock.monotonic_ns().saturating_sub(begun));
            polled
        })
        .await
    }

    /// True if the running task must stop, and can do so without losing a change.
    fn stops(&self, is_read: bool, presence: &Presence) -> bool {
        match presence.gone() {
            Gone::No => false,
            Gone::Ended => is_read && presence.work(0) > ENDED_WORK_NS,
            Gone::Closed => is_read || self.tx.is_unchanged(),
        }
    }

    /// Counts a command that is refused because it would wait for a script.
    pub(super) fn refuse_busy(&self, entry: &Entry, line: &'static str) -> Refusal {
        self.count_refused(Some(entry), line.as_bytes());
        Refusal::line(line)
    }

    /// Starts the task of a request, for whose answer the connection waits. `start` receives the
    /// shared state of the client's connection.
    pub(super) fn await_task(
        &self,
        lane: &mut Lane,
        start: impl FnOnce(&mut Lane, Rc<Presence>) -> TaskId,
    ) {
        lane.await_task();
        let presence = Presence::new(lane.gone());
        let task = start(lane, Rc::clone(&presence));
        self.tx.note_author(task, lane.session.view().tracker.author());
        lane.awaited = Some(Awaited { task, presence });
    }

    /// Handles a task that has stopped: sends the refusal, or closes the connection of a
    /// half-closed client.
    pub(super) fn stopped(&self, client: u64, entry: &Entry, why: Stopped) {
        if let Stopped::Busy(line) = why {
            return self.finish(client, Err(self.refuse_busy(entry, line)));
        }
        self.with_client(client, |conn| conn.lane.task_done());
        self.end_unanswered(client);
    }

    /// Closes the connection of a half-closed client whose task has stopped.
    fn end_unanswered(&self, client: u64) {
        self.with_client(client, |conn| {
            self.kill(&mut conn.lane);
            self.mark_dirty(&mut conn.lane);
        });
    }

    /// Runs the task of a command, counts the call, and sends the answer. The task may stop early
    /// if the client has gone.
    pub(super) async fn answer(self: Rc<Self>, of: Answering, work: ServerFuture) {
        let Answering { to, row, request, presence, begun } = of;
        let entry = &self.table.entries()[row];
        let work = blaming(&self, row, work);
        let answer = match entry.run {
            Runner::Point(_) | Runner::Publish(_) | Runner::Multi(..) => {
                self.while_wanted(!entry.row.is_write(), &presence, work).await
            }
            Runner::Script(_) => {
                let is_read = entry.row.flags.has(Flags::READONLY);
                self.while_wanted(is_read, &presence, work).await
            }
            // Administration commands run to the end: SAVE continues even if its client has gone.
            _ => Ok(work.await),
        };
        if let (Ok(answer), Some(begun)) = (&answer, begun) {
            let caller = match &to {
                To::Conn(client) => Caller::Client(self.id(), *client),
                To::Batch(held) => caller_of(&held.batch),
            };
            self.settle(entry, begun, answer.as_ref().err(), resp::Args::owned(&request), caller);
        }
        match (to, answer) {
            (To::Conn(client), Ok(answer)) => self.finish(client, answer),
            (To::Conn(client), Err(stopped)) => self.stopped(client, entry, stopped),
            (To::Batch(held), answer) => held.answer(entry, answer),
        }
    }

    /// Sends the answer of a task to its connection.
    pub(super) fn finish(&self, client: u64, answer: Result<Answer, Refusal>) {
        let Some(token) = self.clients.token_of(client) else { return };
        self.with_conn(token, |conn| {
            conn.parser.release_request();
            let lane = &mut conn.lane;
            lane.task_done();
            let (out, stream) = self.encode_answer(answer, lane.session.resp3);
            self.owe(lane, out, stream);
            lane.send_late();
            if conn.parser.pending_bytes() > 0 {
                self.cork(lane);
            }
            self.after_settling(lane);
        });
    }

    pub(super) fn encode_answer(
        &self,
        answer: Result<Answer, Refusal>,
        resp3: bool,
    ) -> (Output, Option<Box<dyn Stream>>) {
        match answer {
            Ok(Answer::Done(out)) => (out, None),
            Ok(Answer::Stream(out, stream)) => (out, Some(stream)),
            Err(refusal) => {
                let mut out = Output::default();
                Reply::new(&mut out, resp3).error(&refusal.text());
                (out, None)
            }
        }
    }

    /// Appends a reply after all pending replies, unless the client has replies off.
    pub(super) fn owe(&self, lane: &mut Lane, out: Output, stream: Option<Box<dyn Stream>>) {
        if lane.session.reply_mode != ReplyMode::On {
            if lane.session.reply_mode == ReplyMode::Skip {
                lane.session.reply_mode = ReplyMode::On;
            }
            return;
        }
        lane.owe(out, stream);
    }

    /// Continues a connection after its pending replies have advanced. The client has waited for
    /// the server, so it was not idle.
    pub(super) fn after_settling(&self, lane: &mut Lane) {
        lane.session.active_ms = self.now_ms();
        lane.settle();
        self.mark_streaming(lane);
        self.mark_dirty(lane);
        self.mark_ready(lane);
    }

    /// Makes the output wait for the next reply, unless it waits already. Returns the end of the
    /// wait.
    pub(super) fn cork(&self, lane: &mut Lane) -> u64 {
        let now = self.now_ms();
        *lane.sending.corked_until.get_or_insert_with(|| self.corked.add(lane.token, now))
    }
}

impl ServerCall {
    /// Runs work that changes no data, until it ends or its connection has closed.
    pub(crate) async fn while_there(
        &self,
        work: impl Future<Output = Result<Answer, Refusal>>,
    ) -> Result<Answer, Refusal> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if self.presence.gone() == Gone::Closed {
                self.core.stats.borrow_mut().stopped += 1;
                return Poll::Ready(Ok(self.answer(|reply| reply.null())));
            }
            work.as_mut().poll(cx)
        })
        .await
    }
}

/// Runs the task of command `row`. The slices of its steps, and of its streamed reply, are
/// attributed to that command.
pub(super) async fn blaming(
    core: &Core,
    row: usize,
    mut task: Pin<Box<dyn Future<Output = Result<Answer, Refusal>>>>,
) -> Result<Answer, Refusal> {
    let answer = poll_fn(|cx| {
        core.meter.blame(Cause::Command(row));
        task.as_mut().poll(cx)
    });
    match answer.await? {
        Answer::Stream(out, stream) => Ok(Answer::Stream(out, named(row, stream))),
        done @ Answer::Done(_) => Ok(done),
    }
}

/// A batch that waits until the task of its next command has ended.
pub(super) struct HeldBatch {
    core: Rc<Core>,
    pub(super) batch: Box<Batch>,
    /// Whether the client is still connected, for a task that may stop when it is not.
    pub(super) presence: Rc<Presence>,
    stops: Option<Stops>,
}

impl HeldBatch {
    /// Holds a batch and the later batches of its client. If the task may stop after the client has
    /// gone, `stops` says on which condition.
    pub(super) fn new(core: &Rc<Core>, batch: Box<Batch>, stops: Option<Stops>) -> Self {
        core.batches.borrow_mut().hold(batch.client);
        let gone = stops.map_or(Gone::No, |_| core.batches.borrow().gone(batch.client));
        Self { core: Rc::clone(core), batch, presence: Presence::new(gone), stops }
    }

    /// Starts the task. The task must end with [`HeldBatch::reply`].
    pub(super) fn start(self, start: impl FnOnce(Self) -> TaskId) {
        let (core, client) = (Rc::clone(&self.core), self.batch.client);
        let (presence, stops) = (Rc::clone(&self.presence), self.stops);
        let task = start(self);
        if let Some(stops) = stops {
            let awaited = Awaited { task, presence };
            core.batches.borrow_mut().note_awaited(client, awaited, stops);
        }
    }

    /// The next command of the batch, whose task is about to start.
    pub(super) fn answering(self, begun: Option<Begun>) -> Answering {
        let item = &self.batch.items[self.batch.next];
        let (row, request) = (item.entry, self.batch.args(item).to_request());
        let presence = Rc::clone(&self.presence);
        Answering { to: To::Batch(self), row, request, presence, begun }
    }

    /// Adds the task's reply to the batch, and resumes the batch.
    pub(super) fn reply(self, out: Output, stream: Option<Box<dyn Stream>>) {
        let Self { core, mut batch, .. } = self;
        batch.replied(out, stream);
        core.batches.borrow_mut().answered(batch);
    }

    /// Calls [`HeldBatch::reply`] with the answer of the task, with its refusal, or with an empty
    /// reply if it has stopped.
    fn answer(self, entry: &Entry, answer: Result<Result<Answer, Refusal>, Stopped>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(Stopped::Unwanted) => {
                let client = self.batch.client;
                self.core.tell_later(self.batch.from, move |there| there.end_unanswered(client));
                return self.reply(Output::default(), None);
            }
            Err(Stopped::Busy(line)) => Err(self.core.refuse_busy(entry, line)),
        };
        let (out, stream) = self.core.encode_answer(answer, self.batch.resp3);
        self.reply(out, stream);
    }
}

/// The client of a batch.
pub(super) fn caller_of(batch: &Batch) -> Caller<'static> {
    Caller::Client(batch.from, batch.client)
}
