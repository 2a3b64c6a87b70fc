//! The call of a point command: its view of the session, and its result.

use darter_command::{Job, Stream};
use darter_tx::{CoreId, Locked};
use std::pin::Pin;

/// A data command's view of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The selected database.
    pub(crate) db: usize,
    /// CLIENT NO-TOUCH.
    pub(crate) no_touch: bool,
    /// CLIENT TRACKING.
    pub(crate) tracker: Tracker,
}

/// The tracking of a call, in one word: the client's handle, a bit if its reads are tracked, and a
/// bit if it has NOLOOP. Usually 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tracker(u64);

impl Tracker {
    const READS: u64 = 1;
    const IS_AUTHOR: u64 = 2;

    pub(crate) fn new(client: u64, reads: bool, is_author: bool) -> Self {
        let bits = u64::from(reads) * Self::READS + u64::from(is_author) * Self::IS_AUTHOR;
        if bits == 0 { Self(0) } else { Self(client << 2 | bits) }
    }

    /// True if there is nothing to track.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The client for which reads are tracked.
    pub(crate) fn reader(self) -> Option<u64> {
        (self.0 & Self::READS > 0).then_some(self.0 >> 2)
    }

    /// The client, if it has NOLOOP; otherwise 0.
    pub(crate) fn author(self) -> u64 {
        if self.0 & Self::IS_AUTHOR > 0 { self.0 >> 2 } else { 0 }
    }
}

/// A call that has begun.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    /// The monotonic time of its beginning.
    pub(crate) ns: u64,
    /// Whether the call shares the time between two readings of the clock with others.
    pub(crate) shares: bool,
}

impl Begun {
    /// A call that is timed alone, from this monotonic time on.
    pub(crate) fn at(ns: u64) -> Self {
        Self { ns, shares: false }
    }
}

/// The result of a point command.
pub(crate) enum Ran {
    /// Done: the reply is encoded, up to the stream.
    Done(Option<Box<dyn Stream>>),
    /// The command must wait, or takes more than a slice.
    Waits(Work),
}

/// The rest of a point command that could not finish at once.
pub(crate) enum Work {
    /// Its keys are locked: run the command when they are free.
    Blocked,
    /// Drive its job, which began at this time. Its key is locked.
    Job(Box<dyn Job>, Locked, Begun),
    /// Reply with this number.
    Count(Pin<Box<dyn Future<Output = usize>>>),
}

/// The cores that own the keys of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    None,
    One(CoreId),
    Many,
}
