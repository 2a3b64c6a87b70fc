//! The state and the result of running a point command.

use darter_command::{Job, Stream};
use darter_tx::{CoreId, Locked};
use std::pin::Pin;

/// The part of the session that a data command sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The selected database.
    pub(crate) db: usize,
    /// True after CLIENT NO-TOUCH ON.
    pub(crate) no_touch: bool,
    /// The client's tracking mode for this call.
    pub(crate) tracker: Tracker,
}

/// How the keys of a call are tracked, in one word: the client's handle, a bit if its reads are
/// tracked, and a bit if it has NOLOOP. Usually 0, for a client without tracking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tracker(u64);

impl Tracker {
    const READS: u64 = 1;
    const IS_AUTHOR: u64 = 2;

    pub(crate) fn new(client: u64, reads: bool, is_author: bool) -> Self {
        let bits = u64::from(reads) * Self::READS + u64::from(is_author) * Self::IS_AUTHOR;
        if bits == 0 { Self(0) } else { Self(client << 2 | bits) }
    }

    /// True if the call's client has neither tracked reads nor NOLOOP.
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The client whose reads are tracked, if any.
    pub(crate) fn reader(self) -> Option<u64> {
        (self.0 & Self::READS > 0).then_some(self.0 >> 2)
    }

    /// The client that gets no invalidations of its own writes (NOLOOP); otherwise 0.
    pub(crate) fn author(self) -> u64 {
        if self.0 & Self::IS_AUTHOR > 0 { self.0 >> 2 } else { 0 }
    }
}

/// The start of a call, for measuring its time.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    /// The start, by the monotonic clock.
    pub(crate) ns: u64,
    /// True if several quick calls are timed together, and share the measured time.
    pub(crate) shares: bool,
}

impl Begun {
    /// The start of a call that is timed alone, at `ns` by the monotonic clock.
    pub(crate) fn at(ns: u64) -> Self {
        Self { ns, shares: false }
    }
}

/// The result of a point command.
pub(crate) enum Ran {
    /// The command is done. Its reply is encoded, and may continue as the stream.
    Done(Option<Box<dyn Stream>>),
    /// The command must wait, or takes longer than a slice.
    Waits(Work),
}

/// The rest of a point command that did not finish at once.
pub(crate) enum Work {
    /// The command has not run, because its keys are locked. It runs when they are free.
    Blocked,
    /// A job must be run in slices. Its key is locked; the last field is the start of the call.
    Job(Box<dyn Job>, Locked, Begun),
    /// The reply is the number that this future returns.
    Count(Pin<Box<dyn Future<Output = usize>>>),
}

/// The core, or the cores, that own the keys of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    None,
    One(CoreId),
    Many,
}
