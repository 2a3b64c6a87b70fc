//! Tasks stop when nobody wants their answer any more, or when they are not to wait any longer.
//!
//! - What only reads stops at once: its locks are released, and answers that come are dropped.
//! - What writes stops if it has changed nothing yet, which is so for all that is built or edited
//!   aside; amid its changes it goes on to their end. In a batch of another core it goes on in any
//!   case: what came after it in its pipeline may have been done elsewhere.
//! - A client that has ended its own side may still read. It may also be gone: TCP does not tell.
//!   So what reads works a little longer for it, and what writes goes on.
//! - What waits for the keys of a script that takes very long stops, too, if it has changed nothing:
//!   it is answered `BUSY`. See `scripts::busy`.

use super::conn::Lane;
use super::core::Core;
use super::entry::{Entry, ServerCall};
use super::presence::{Gone, Presence};
use darter_command::{Answer, Refusal};
use darter_tx::TaskId;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// What a task that reads may work for a client that has ended its side: KEYS of a million, for a
/// script that waits for the reply with `nc -N`.
pub(super) const ENDED_WORK_NS: u64 = 100_000_000;

/// Why a task has stopped.
pub(super) enum Stopped {
    /// Its client is gone.
    Unwanted,
    /// A script that takes very long holds what it wants: this is the refusal.
    Busy(&'static str),
}

impl Core {
    /// Runs the task of a command, until it ends or stops. One that only reads stops in more cases.
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

    /// True when the running task is to stop, and may.
    fn stops(&self, is_read: bool, presence: &Presence) -> bool {
        match presence.gone() {
            Gone::No => false,
            Gone::Ended => is_read && presence.work(0) > ENDED_WORK_NS,
            Gone::Closed => is_read || self.tx.is_unchanged(),
        }
    }

    /// Counts a command that is refused since it would wait for a script.
    pub(super) fn refuse_busy(&self, entry: &Entry, line: &'static str) -> Refusal {
        self.count_refused(Some(entry), line.as_bytes());
        Refusal::line(line)
    }

    /// The connection awaits this task.
    pub(super) fn await_answer(&self, lane: &mut Lane, task: TaskId, presence: Rc<Presence>) {
        lane.awaited = Some(super::presence::Awaited { task, presence });
    }

    /// The task of a command of this row has stopped: it is refused; or, if its client wants no answer
    /// and has only ended its side, the connection is closed.
    pub(super) fn stopped(&self, client: u64, entry: &Entry, why: Stopped) {
        if let Stopped::Busy(line) = why {
            return self.finish(client, Err(self.refuse_busy(entry, line)));
        }
        let Some(token) = self.clients.token_of(client) else { return };
        self.with_conn(token, |conn| {
            conn.lane.task_done();
            self.kill(&mut conn.lane);
            self.mark_dirty(&mut conn.lane);
        });
    }
}

impl ServerCall {
    /// Does work that changes nothing, until its connection has closed: after that nobody hears the
    /// answer.
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
