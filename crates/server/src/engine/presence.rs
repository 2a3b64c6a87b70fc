//! Whether the client of a task is still connected.
//!
//! A task shares this with its connection. After the connection has closed, the task stops where
//! nothing is lost: docs/design/0024-transaction-context.md.

use darter_tx::TaskId;
use std::cell::Cell;
use std::rc::Rc;

/// The state of a client's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Open.
    #[default]
    No,
    /// Half-closed: the client may still read, or be gone.
    Ended,
    /// Closed.
    Closed,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    gone: Cell<Gone>,
    /// The task's work since the half-close.
    worked_ns: Cell<u64>,
}

impl Presence {
    /// The presence of a client in this state.
    pub(crate) fn new(gone: Gone) -> Rc<Self> {
        Rc::new(Self { gone: Cell::new(gone), ..Self::default() })
    }

    /// The state.
    pub(crate) fn gone(&self) -> Gone {
        self.gone.get()
    }

    /// Sets the state.
    pub(crate) fn set(&self, gone: Gone) {
        self.gone.set(gone);
    }

    /// Adds the task's work after the half-close. Returns the sum.
    pub(crate) fn work(&self, ns: u64) -> u64 {
        self.worked_ns.set(self.worked_ns.get() + ns);
        self.worked_ns.get()
    }
}

/// The task that a client waits for.
#[derive(Debug)]
pub(crate) struct Awaited {
    /// The task.
    pub(crate) task: TaskId,
    /// The presence that it shares with its client.
    pub(crate) presence: Rc<Presence>,
}
