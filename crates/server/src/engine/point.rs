//! The call of a point command: what it sees of its session, and what it comes to.

use darter_command::{Job, Stream};
use darter_tx::{CoreId, Locked};
use std::pin::Pin;

/// The part of a session that data commands see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The selected database.
    pub(crate) db: usize,
    /// CLIENT NO-TOUCH.
    pub(crate) no_touch: bool,
}

/// What a point command came to.
pub(super) enum Ran {
    /// Its reply is encoded, up to the stream.
    Done(Option<Box<dyn Stream>>),
    /// It must wait, or takes more than a slice.
    Waits(Work),
}

/// The rest of a point command that could not be done at once.
pub(super) enum Work {
    /// Its keys are locked: run it when they are free.
    Blocked,
    /// Drive its job; its key is held.
    Job(Box<dyn Job>, Locked),
    /// Reply with this number.
    Count(Pin<Box<dyn Future<Output = usize>>>),
}

/// Where the keys of a request live.
pub(super) enum Owner {
    None,
    One(CoreId),
    Many,
}
