//! Stops tasks whose client is gone, or which must not wait any longer.
//!
//! - A read stops at once: its locks are released, and later answers are dropped.
//! - A write stops if it has changed nothing yet, as while a value is built or edited aside. After
//!   its first change it continues to the end. In a batch from another core it always continues:
//!   later commands of its pipeline may have run on other cores.
//! - A half-closed client may still read. It may also be gone: TCP does not show that. So a read
//!   continues for a short time, and a write to its end.
//! - A task that waits for the keys of a slow script, and has changed nothing, stops with `BUSY`.
//!   See `scripts::busy`.

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

/// The time that a read may work for a half-closed client: enough for KEYS of a million keys, with
/// `nc -N`.
pub(super) const ENDED_WORK_NS: u64 = 100_000_000;

/// The reason why a task has stopped.
pub(super) enum Stopped {
    /// Its client is gone.
    Unwanted,
    /// A slow script holds its keys; the refusal's text.
    Busy(&'static str),
}

impl Core {
    /// Runs the task of a command until it ends or stops. A read stops in more cases.
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

    /// True if the running task must and may stop.
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

    /// Records the task that the connection waits for.
    pub(super) fn await_answer(&self, lane: &mut Lane, task: TaskId, presence: Rc<Presence>) {
        lane.awaited = Some(super::presence::Awaited { task, presence });
    }

    /// Handles the stop of a task: the command is refused, or the connection of a half-closed
    /// client is closed.
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
    /// Runs work that changes nothing until its connection has closed.
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
