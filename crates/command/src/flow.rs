//! How a command continues after its first portion.

use crate::{Cx, Refusal};
use darter_resp::Reply;

/// The outcome of a point command.
#[must_use]
pub enum Flow {
    /// The reply is complete.
    Done,
    /// The reply's header (with its exact count) is encoded. The rest is read from a cut in
    /// portions, as the socket drains. The shape *Scan*.
    Stream(Box<dyn Stream>),
    /// Nothing is encoded yet. The work continues in portions beside the stored value, and other
    /// writers are locked out of the key. The shapes *Build* and *Edit* on one key.
    Job(Box<dyn Job>),
}

/// The rest of a long reply. The stream owns its source: a cut.
pub trait Stream: Send {
    /// Encodes the next portion: about 10-30 us of work and at most about 64 KiB. Returns true
    /// while more is left.
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool;

    /// Bytes that the stream keeps from being freed and that are accounted for nowhere else.
    /// Constant between pumps.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Bytes that only this reply keeps alive: data removed from the keyspace (perhaps with other
    /// readers), and data made for the reply. Cost: O(1), or a look at a few of the values.
    fn pinned_bytes(&self) -> usize {
        0
    }

    /// The error, if the final reply is one.
    fn refusal(&self) -> Option<&Refusal> {
        None
    }

    /// The row of the stream's command, once the engine has set it.
    fn row(&self) -> Option<usize> {
        None
    }
}

/// A change of one key that takes more than a slice.
///
/// Its steps must leave the database unchanged until the last one, which installs the result and
/// encodes the reply: until then readers see the previous value.
pub trait Job: Send {
    /// Does the next portion, about 10-30 us of work.
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal>;
}

/// The outcome of a step of a [`Job`].
#[must_use]
pub enum Step {
    /// There is more to do.
    More,
    /// The job is done. Its reply is encoded, or continues as the flow says.
    Done(Flow),
}
