//! The queue of a core with subscribers. It holds messages from the homes of channels, and notices
//! that a subscription was counted. The order matters: a message that was sent before a change of
//! the counts is delivered before the change takes effect.

use super::backlog::{REPORT_AT, SubscriptionChange};
use super::frame::Frame;
use super::name::{Message, Name};
use darter_base::spare;
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::sync::Arc;

/// A message to deliver on a core that has subscribers of its channel, or of patterns that match
/// it.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) message: Arc<Message>,
    /// True if the channel itself has subscribers on this core.
    pub(crate) direct: bool,
    /// The matching patterns that have subscribers on this core.
    pub(crate) patterns: Vec<Name>,
    pub(crate) weight: usize,
    /// The progress: 0 while the channel's subscribers are served, then one more for each pattern.
    pub(crate) stage: usize,
    pub(crate) after: u64,
    pub(crate) frames: [Option<Frame>; 2],
}

/// An entry of the queue, sent by a home.
#[derive(Debug)]
pub(crate) enum DeliveryItem {
    Message(Box<Delivery>),
    Counted(SubscriptionChange),
}

/// The queue, and the delivered weights that must be reported.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    items: VecDeque<(CoreId, DeliveryItem)>,
    /// By home: the weight delivered since the last report to it.
    delivered: Vec<usize>,
}

impl Deliveries {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds an item that home `from` has sent.
    pub(crate) fn push(&mut self, from: CoreId, item: DeliveryItem) {
        self.items.push_back((from, item));
    }

    pub(crate) fn take(&mut self) -> Option<(CoreId, DeliveryItem)> {
        let first = self.items.pop_front();
        spare::release_queue(&mut self.items);
        first
    }

    /// Puts an unfinished item back to the front of the queue.
    pub(crate) fn put_back(&mut self, from: CoreId, item: DeliveryItem) {
        self.items.push_front((from, item));
    }

    /// Counts a delivered message of home `from`. If a report to that home is due, returns the
    /// weight to report.
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

    #[test]
    fn each_home_gets_reports_of_the_weight_of_its_delivered_messages() {
        let mut deliveries = Deliveries::default();
        assert_eq!(deliveries.delivered(3, REPORT_AT - 1), None);
        assert_eq!(deliveries.delivered(0, REPORT_AT + 5), Some(REPORT_AT + 5));
        assert_eq!(deliveries.delivered(3, 1), Some(REPORT_AT));
        assert_eq!(deliveries.delivered(3, 1), None);
    }
}
