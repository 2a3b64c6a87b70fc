//! Waits that end because a transaction is busy: see `locks::busy`.

use super::tickets::{AwaitedEvent, Ticket};
use super::{Message, Tx};
use crate::CoreId;
use crate::locks::TxId;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

impl Tx {
    /// From now on, ends all waits for the locks of this handle's transaction with `line`. `told`
    /// lists the cores that have been notified. Call this again after the transaction has taken
    /// locks on other cores.
    pub fn refuse_others(&self, line: &'static str, told: &mut Vec<CoreId>) {
        let Some(tx) = self.scope().id() else { return };
        for core in 0..self.cores() {
            if told.contains(&core) || !self.holds_some_of(core) {
                continue;
            }
            told.push(core);
            if core == self.core() {
                self.note_busy_here(tx, line);
            } else {
                self.post(core, Message::Busy { tx, line });
            }
        }
    }

    /// True if the transaction of this handle has locks on a core.
    fn holds_some_of(&self, core: CoreId) -> bool {
        let scope = self.scope();
        let late = |open| self.with_late(open, core, |late| late.is_some());
        scope.claim(core).is_some() || scope.open().is_some_and(late)
    }

    /// The error with which the running task must end: it waits for a busy transaction, has changed
    /// nothing and has requested no change. Then it can be dropped as if it had never started.
    #[must_use]
    pub fn refusal(&self) -> Option<&'static str> {
        let mut stuck = self.0.stuck.borrow_mut();
        if stuck.is_empty() {
            return None;
        }
        let task = self.0.running.get();
        let (ticket, line) = *stuck.get(&task)?;
        let waits = matches!(self.0.tickets.borrow().get(&ticket), Some(Ticket::Waiting(..)));
        if !waits {
            stuck.remove(&task);
            return None;
        }
        self.is_unchanged().then_some(line)
    }

    /// Runs a future that takes locks, but drops it if it must end: see [`Tx::refusal`].
    ///
    /// # Errors
    /// The error for which the future was dropped.
    pub async fn unless_busy<R>(&self, work: impl Future<Output = R>) -> Result<R, &'static str> {
        let mut work = pin!(work);
        poll_fn(|cx| match self.refusal() {
            Some(line) => Poll::Ready(Err(line)),
            None => work.as_mut().poll(cx).map(Ok),
        })
        .await
    }

    /// Records that a transaction with locks on this core is busy.
    pub(super) fn note_busy_here(&self, tx: TxId, line: &'static str) {
        let stuck = self.0.home.borrow_mut().locks.note_busy(tx, line);
        stuck.into_iter().for_each(|(core, ticket)| self.tell_stuck(core, ticket, line));
    }

    /// Notifies a claim that has just started to wait here, if it waits for a busy transaction.
    pub(super) fn tell_if_stuck(&self, tx: TxId, (core, ticket): (CoreId, u64)) {
        let why = self.0.home.borrow().locks.why_stuck(tx);
        if let Some(line) = why {
            self.tell_stuck(core, ticket, line);
        }
    }

    fn tell_stuck(&self, core: CoreId, ticket: u64, line: &'static str) {
        if core == self.0.core {
            self.note_stuck(ticket, line);
        } else {
            self.post(core, Message::Stuck { ticket, line });
        }
    }

    /// Records that the lock which a ticket of this core waits for is held by a busy transaction.
    /// The lock may have been granted meanwhile.
    pub(super) fn note_stuck(&self, ticket: u64, line: &'static str) {
        if let Some(Ticket::Waiting(task, AwaitedEvent::Lock)) =
            self.0.tickets.borrow().get(&ticket)
        {
            self.0.stuck.borrow_mut().insert(*task, (ticket, line));
            self.0.tasks.borrow_mut().wake(*task);
        }
    }
}
