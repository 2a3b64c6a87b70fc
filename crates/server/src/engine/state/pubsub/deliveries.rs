//! The queue of a subscribers' core: messages from the homes of channels, and notices that a change
//! was counted. The order is kept: a message counted before a change is delivered before the change
//! takes effect.

use super::backlog::{REPORT_AT, SubscriptionChange};
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
    /// The channel has subscribers on this core.
    pub(crate) direct: bool,
    /// The matching patterns with subscribers on this core.
    pub(crate) patterns: Vec<Name>,
    pub(crate) weight: usize,
    /// The current stage: 0 for the channel, then one for each pattern.
    pub(crate) stage: usize,
    pub(crate) after: u64,
    pub(crate) frames: [Option<Frame>; 2],
}

/// An item from a home.
#[derive(Debug)]
pub(crate) enum DeliveryItem {
    Message(Box<Delivery>),
    Counted(SubscriptionChange),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    items: VecDeque<(CoreId, DeliveryItem)>,
    /// By home: the weight delivered since the last report.
    delivered: Vec<usize>,
}

impl Deliveries {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds an item from home `from`.
    pub(crate) fn push(&mut self, from: CoreId, item: DeliveryItem) {
        self.items.push_back((from, item));
    }

    pub(crate) fn take(&mut self) -> Option<(CoreId, DeliveryItem)> {
        let first = self.items.pop_front();
        spare::release_queue(&mut self.items);
        first
    }

    /// Puts an unfinished item back at the front.
    pub(crate) fn put_back(&mut self, from: CoreId, item: DeliveryItem) {
        self.items.push_front((from, item));
    }

    /// Counts a delivered message of home `from`. Returns the weight to report to it, if a report
    /// is due.
    pub(crate) fn delivered(&mut self, from: CoreId, weight: usize) -> Option<usize> {
        if self.delivered.len() <= from {
            self.delivered.resize(from + 1, 0);
        }
        self.delivered[from] += weight;
        (self.delivered[from] >= REPORT_AT).then(|| std::mem::take(&mut self.delivered[from]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Each home gets reports now and then, of its own messages.
    fn deliveries_are_reported_in_sums() {
        let mut deliveries = Deliveries::default();
        assert_eq!(deliveries.delivered(3, REPORT_AT - 1), None);
        assert_eq!(deliveries.delivered(0, REPORT_AT + 5), Some(REPORT_AT + 5));
        assert_eq!(deliveries.delivered(3, 1), Some(REPORT_AT));
        assert_eq!(deliveries.delivered(3, 1), None);
    }
}
