//! The transactions that a connection has begun with another core: see `halves`.

use super::queued::Queued;
use darter_tx::{CoreId, TxId};
use std::collections::VecDeque;

/// What a connection has begun with another core.
#[derive(Default)]
pub(crate) struct Begun {
    /// Those without a reply.
    pub(super) count: usize,
    /// The other core of all of them.
    pub(super) other: CoreId,
    /// One was refused: no other begins until they have run.
    pub(super) is_stalled: bool,
    /// Those that wait for it, by their numbers, with the row of EXEC.
    pub(super) refused: VecDeque<(TxId, usize, Box<Queued>)>,
}

impl Begun {
    /// True while replies are owed.
    pub(crate) fn are_any(&self) -> bool {
        self.count > 0
    }

    /// True when another may begin behind them.
    pub(super) fn allow(&self, other: CoreId) -> bool {
        !self.is_stalled && (self.count == 0 || self.other == other)
    }
}
