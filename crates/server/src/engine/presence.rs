//! Whether somebody still wants the answer of a task.
//!
//! A task shares this with the connection that it works for. Once the connection is gone, the task
//! stops where nothing is lost: docs/design/0024-transaction-context.md.

use darter_tx::TaskId;
use std::cell::Cell;
use std::rc::Rc;

/// How far a client has gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It may still send.
    #[default]
    No,
    /// It sends no more. It may still read, or have gone without a word.
    Ended,
    /// The connection is closed.
    Closed,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    gone: Cell<Gone>,
    /// What the task has worked since the end.
    worked_ns: Cell<u64>,
}

impl Presence {
    /// Of a client that has gone so far.
    pub(crate) fn new(gone: Gone) -> Rc<Self> {
        Rc::new(Self { gone: Cell::new(gone), ..Self::default() })
    }

    /// How far it has gone.
    pub(crate) fn gone(&self) -> Gone {
        self.gone.get()
    }

    /// It has gone so far now.
    pub(crate) fn set(&self, gone: Gone) {
        self.gone.set(gone);
    }

    /// The task has worked so long since the client ended its side. Returns the sum.
    pub(crate) fn work(&self, ns: u64) -> u64 {
        self.worked_ns.set(self.worked_ns.get() + ns);
        self.worked_ns.get()
    }
}

/// The task that a client waits for.
#[derive(Debug)]
pub(crate) struct Awaited {
    /// Which.
    pub(crate) task: TaskId,
    /// What it knows of its client.
    pub(crate) presence: Rc<Presence>,
}
