//! Shares with a task whether its client is still connected.
//!
//! A task and its connection share a [`Presence`]. After the connection has closed, the task stops
//! as soon as it can stop without losing a change: docs/design/0024-transaction-context.md.

use darter_tx::TaskId;
use std::cell::Cell;
use std::rc::Rc;

/// The state of a client's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Connected.
    #[default]
    No,
    /// Half-closed: the client may still read its replies, or may have gone.
    Ended,
    /// Closed.
    Closed,
}

/// The state of a client's connection, shared by the connection and its task.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    gone: Cell<Gone>,
    /// The time that the task has worked since the half-close.
    worked_ns: Cell<u64>,
}

impl Presence {
    /// Creates a presence with this state.
    pub(crate) fn new(gone: Gone) -> Rc<Self> {
        Rc::new(Self { gone: Cell::new(gone), ..Self::default() })
    }

    /// The current state of the connection.
    pub(crate) fn gone(&self) -> Gone {
        self.gone.get()
    }

    /// Sets the state of the connection.
    pub(crate) fn set(&self, gone: Gone) {
        self.gone.set(gone);
    }

    /// Adds `ns` nanoseconds of the task's work since the half-close. Returns the sum.
    pub(crate) fn work(&self, ns: u64) -> u64 {
        self.worked_ns.set(self.worked_ns.get() + ns);
        self.worked_ns.get()
    }
}

/// The task whose reply a client waits for.
#[derive(Debug)]
pub(crate) struct Awaited {
    /// The task.
    pub(crate) task: TaskId,
    /// The presence that the task shares with its connection.
    pub(crate) presence: Rc<Presence>,
}
