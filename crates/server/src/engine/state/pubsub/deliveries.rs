//! What the homes of channels have sent to a core: messages for its subscribers, and that they have
//! heard of a change. In its order: a message counted before a change is delivered before it takes
//! effect.

use super::backlog::{Change, TOLD_AT};
use super::frame::Frame;
use super::name::{Message, Name};
use darter_base::spare;
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::sync::Arc;

/// A message on a core with subscribers to its channel, or to patterns that it matches.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) message: Arc<Message>,
    /// It has subscribers to the channel.
    pub(crate) direct: bool,
    /// Those of the patterns that have subscribers here.
    pub(crate) patterns: Vec<Name>,
    pub(crate) weight: usize,
    /// How far it has come: the stage (the channel, then pattern by pattern), the last member, and
    /// what is sent in this stage, in RESP2 and RESP3.
    pub(crate) stage: usize,
    pub(crate) after: u64,
    pub(crate) frames: [Option<Frame>; 2],
}

/// What a home sends.
#[derive(Debug)]
pub(crate) enum Item {
    Message(Box<Delivery>),
    Counted(Change),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    items: VecDeque<(CoreId, Item)>,
    /// What was delivered for each home since it was last told.
    delivered: Vec<usize>,
}

impl Deliveries {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// From home `from`.
    pub(crate) fn push(&mut self, from: CoreId, item: Item) {
        self.items.push_back((from, item));
    }

    pub(crate) fn take(&mut self) -> Option<(CoreId, Item)> {
        let first = self.items.pop_front();
        spare::release_queue(&mut self.items);
        first
    }

    /// Puts back what is not done yet.
    pub(crate) fn put_back(&mut self, from: CoreId, item: Item) {
        self.items.push_front((from, item));
    }

    /// A message from home `from` is delivered: what that is to be told, if anything now.
    pub(crate) fn delivered(&mut self, from: CoreId, weight: usize) -> Option<usize> {
        if self.delivered.len() <= from {
            self.delivered.resize(from + 1, 0);
        }
        self.delivered[from] += weight;
        (self.delivered[from] >= TOLD_AT).then(|| std::mem::take(&mut self.delivered[from]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // A home is told now and then, each of what was its own.
    fn homes_are_told_in_sums() {
        let mut deliveries = Deliveries::default();
        assert_eq!(deliveries.delivered(3, TOLD_AT - 1), None);
        assert_eq!(deliveries.delivered(0, TOLD_AT + 5), Some(TOLD_AT + 5));
        assert_eq!(deliveries.delivered(3, 1), Some(TOLD_AT));
        assert_eq!(deliveries.delivered(3, 1), None);
    }
}
