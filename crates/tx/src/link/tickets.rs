//! Tickets, which tasks wait for, and the future that returns a ticket's result.

use super::{Link, Value};
use crate::executor::TaskId;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The state of an open ticket.
pub(super) enum Ticket {
    Waiting(TaskId, AwaitedEvent),
    Done(Value),
    /// The task that waited has stopped.
    Abandoned,
}

/// The kind of event that a ticket waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AwaitedEvent {
    /// Work, which may change data.
    Work,
    /// A lock: the task does nothing until it is granted.
    Lock,
}

/// The waiting end of a ticket. If it is dropped early, the result is discarded.
pub(super) struct Pending {
    pub(super) link: Rc<Link>,
    pub(super) ticket: u64,
    pub(super) is_taken: bool,
}

impl Future for Pending {
    type Output = Value;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Value> {
        let taken = {
            let mut tickets = self.link.tickets.borrow_mut();
            match tickets.remove(&self.ticket).expect("a ticket is open until it is taken") {
                Ticket::Done(value) => value,
                Ticket::Waiting(_, asked) => {
                    let waiting = Ticket::Waiting(self.link.running.get(), asked);
                    tickets.insert(self.ticket, waiting);
                    return Poll::Pending;
                }
                Ticket::Abandoned => unreachable!("its other end is here"),
            }
        };
        self.is_taken = true;
        Poll::Ready(taken)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        let mut tickets = self.link.tickets.borrow_mut();
        let old = tickets.remove(&self.ticket);
        if let Some(Ticket::Waiting(..)) = old {
            tickets.insert(self.ticket, Ticket::Abandoned);
        }
        drop(tickets); // Dropping a result may create tickets itself.
        drop(old);
    }
}
