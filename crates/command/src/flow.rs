//! How a command continues after its first portion.

use crate::{Cx, Refusal};
use darter_resp::Reply;

/// The outcome of a point command.
#[must_use]
pub enum Flow {
    /// The reply is encoded whole.
    Done,
    /// The reply's header (with its exact count) is encoded; the rest comes from a cut, in
    /// portions, as the socket drains. The shape *Scan*.
    Stream(Box<dyn Stream>),
    /// Nothing is encoded yet; the work continues aside, in portions, with the key locked against
    /// other writers. The shapes *Build* and *Edit* on one key.
    Job(Box<dyn Job>),
}

/// The rest of a long reply. The stream owns its source: a cut.
pub trait Stream: Send {
    /// Encodes the next portion: about 10-30 us of work and at most about 64 KiB. Returns true
    /// while more is left.
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool;

    /// Bytes that it keeps from being freed, where nothing else accounts for them. Constant from
    /// pump to pump.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Bytes that are kept only to be read: data that has left the keyspace, which others may read
    /// too, and data made for the reply. Cost: O(1), or a look at some of the values.
    fn pinned_bytes(&self) -> usize {
        0
    }

    /// The final reply, if it is an error.
    fn refusal(&self) -> Option<&Refusal> {
        None
    }

    /// The row of its command, once the engine has noted it.
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
    /// The job is done; its reply is encoded, as far as the flow says.
    Done(Flow),
}
