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
    /// CLIENT TRACKING.
    pub(crate) tracker: Tracker,
}

/// Whether the keys that a command reads are remembered for its client, and whether that does not want
/// to hear of its own changes: the client's id with two bits, or 0, as mostly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tracker(u64);

impl Tracker {
    const READS: u64 = 1;
    const IS_AUTHOR: u64 = 2;

    pub(crate) fn new(client: u64, reads: bool, is_author: bool) -> Self {
        let bits = u64::from(reads) * Self::READS + u64::from(is_author) * Self::IS_AUTHOR;
        if bits == 0 { Self(0) } else { Self(client << 2 | bits) }
    }

    /// Nothing of that.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// For whom keys are remembered.
    pub(crate) fn reader(self) -> Option<u64> {
        (self.0 & Self::READS > 0).then_some(self.0 >> 2)
    }

    /// Whose changes are not told to itself; otherwise 0.
    pub(crate) fn author(self) -> u64 {
        if self.0 & Self::IS_AUTHOR > 0 { self.0 >> 2 } else { 0 }
    }
}

/// A call that has begun.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    /// The monotonic time of its beginning.
    pub(crate) ns: u64,
    /// The call shares the time between two readings of the clock with its neighbours.
    pub(crate) shares: bool,
}

impl Begun {
    /// A call that is timed alone, from this monotonic time on.
    pub(crate) fn at(ns: u64) -> Self {
        Self { ns, shares: false }
    }
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
    /// Drive its job, which has begun then; its key is held.
    Job(Box<dyn Job>, Locked, Begun),
    /// Reply with this number.
    Count(Pin<Box<dyn Future<Output = usize>>>),
}

/// Where the keys of a request live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    None,
    One(CoreId),
    Many,
}
