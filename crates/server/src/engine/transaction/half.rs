//! What two cores that run one EXEC send each other: see `halves`.

use darter_base::hash::IdentityMap;
use darter_command::Stream;
use darter_resp::Output;
use darter_tx::{Locked, TxId};
use std::collections::VecDeque;

/// The locks of those that this core has begun, by their numbers, until the other core has answered.
pub(crate) type Halves = IdentityMap<Locked>;

/// What became of the part of the other core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing: it could not begin at once.
    Refused,
    /// Nothing: a key that is watched there was touched.
    Touched,
    /// It was done.
    Done,
}

/// The reply to a command of the other core.
pub(super) enum Answer {
    /// So many bytes.
    Flat(usize),
    /// Has parts, or continues as a stream.
    Parts(Box<(Output, Option<Box<dyn Stream>>)>),
}

/// The part of the other core.
pub(crate) struct Half {
    /// The number of the transaction: that of the locks here.
    pub(super) transaction: TxId,
    pub(super) outcome: Outcome,
    pub(super) bytes: Vec<u8>,
    /// Where in them the next answer begins.
    pub(super) start: usize,
    pub(super) answers: VecDeque<Answer>,
}

impl Half {
    pub(super) fn new(transaction: TxId) -> Self {
        let (bytes, answers) = (Vec::new(), VecDeque::new());
        Self { transaction, outcome: Outcome::Refused, bytes, start: 0, answers }
    }

    /// Bytes of what is answered, without what is streamed.
    pub(super) fn held_bytes(&self) -> usize {
        let parts = self.answers.iter().map(|answer| match answer {
            Answer::Flat(_) => 0,
            Answer::Parts(part) => part.0.len(),
        });
        self.bytes.len() + parts.sum::<usize>()
    }
}
