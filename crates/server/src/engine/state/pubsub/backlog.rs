//! The queue at the home of channels: messages that cannot be published at once, and all later
//! orders.
//!
//! A message waits while it is matched with many patterns, and while a core has too many messages
//! to deliver; it is sent for a few patterns at a time. So publishers are throttled to the speed of
//! delivery, and the messages in flight are bounded. Subscribers that do not read slow no publisher
//! down: `client-output-buffer-limit` limits their output.

use super::SubscriptionKind;
use super::name::{Message, Name};
use darter_base::glob::Walk;
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::sync::Arc;

/// Messages in flight from a home to one core, by [`weight`]: about a millisecond of work.
const IN_FLIGHT_MAX: usize = 4_096;
/// The delivered weight after which a core reports it.
pub(crate) const REPORT_AT: usize = IN_FLIGHT_MAX / 4;

/// The weight of delivering a message to this number of clients of a core.
pub(crate) fn weight(message: &Message, receivers: usize) -> usize {
    const KIB: usize = 1_024;
    1 + receivers + message.payload.len() / (4 * KIB)
}

/// A subscriber joins or leaves names of one kind: the home changes its counts.
#[derive(Debug)]
pub(crate) struct SubscriptionChange {
    pub(crate) subscriber: u64,
    pub(crate) kind: SubscriptionKind,
    pub(crate) names: Vec<Name>,
    pub(crate) joins: bool,
    /// The ticket to complete on the subscriber's core when the change is counted; `None` if the
    /// subscriber is gone.
    pub(crate) ticket: Option<u64>,
}

/// A message that is being published.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) message: Arc<Message>,
    /// The number of receivers so far.
    pub(crate) receivers: usize,
    /// The subscribers of the channel are counted and sent to.
    pub(crate) is_begun: bool,
    /// The last pattern that was checked.
    pub(crate) after: Option<Name>,
    /// The next pattern, and the state of matching it.
    pub(crate) walk: Option<(Name, Walk)>,
    /// All patterns were checked.
    pub(crate) is_matched: bool,
}

impl Publication {
    /// A message that was not sent yet.
    pub(crate) fn new(message: Arc<Message>) -> Self {
        let (is_begun, is_matched) = (false, false);
        Self { message, receivers: 0, is_begun, after: None, walk: None, is_matched }
    }
}

/// The recipient of the outcome of a publication.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    /// A task that waits, with this ticket, for the number of receivers.
    Waits(u64),
    /// The count of events in flight, which falls by this weight.
    Event(usize),
}

/// An order, in the queue of its home.
#[derive(Debug)]
pub(crate) enum Order {
    Publish(Publication, Sender),
    Change(CoreId, SubscriptionChange),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    orders: VecDeque<Order>,
    /// By core: the weight that it has not delivered yet, as far as reported.
    in_flight: Vec<usize>,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    pub(crate) fn push(&mut self, order: Order) {
        self.orders.push_back(order);
    }

    /// Takes the first order.
    pub(crate) fn take(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Puts an unfinished order back at the front.
    pub(crate) fn put_back(&mut self, order: Order) {
        self.orders.push_front(order);
    }

    /// Whether the first order can be done, or a portion of it.
    pub(crate) fn can_go_on(&self) -> bool {
        match self.orders.front() {
            None => false,
            Some(Order::Publish(..)) => !self.is_full(),
            Some(Order::Change(..)) => true,
        }
    }

    /// Whether some core has too much to deliver.
    pub(crate) fn is_full(&self) -> bool {
        self.in_flight.iter().any(|weight| *weight >= IN_FLIGHT_MAX)
    }

    /// Adds the weight of a message sent to core `to`.
    pub(crate) fn sent(&mut self, to: CoreId, weight: usize) {
        if self.in_flight.len() <= to {
            self.in_flight.resize(to + 1, 0);
        }
        self.in_flight[to] += weight;
    }

    /// Subtracts the weight that core `by` has delivered.
    pub(crate) fn delivered(&mut self, by: CoreId, weight: usize) {
        self.in_flight[by] -= weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::state::pubsub::name::Text;

    #[test] // The backlog is full with one core's messages, and continues when they are delivered.
    fn messages_in_flight_are_bounded() {
        let mut backlog = Backlog::default();
        backlog.sent(1, IN_FLIGHT_MAX - 1);
        backlog.sent(0, IN_FLIGHT_MAX - 1);
        assert!(!backlog.is_full());
        backlog.sent(1, 1);
        assert!(backlog.is_full());
        let payload = Text::Short(vec![0; 8 * 1_024].into());
        let message = Message::new(SubscriptionKind::Channel, Name::from_bytes(b"c"), payload);
        assert_eq!(weight(&message, 5), 8);
        backlog.push(Order::Publish(Publication::new(Arc::new(message)), Sender::Waits(0)));
        assert!(!backlog.can_go_on());
        backlog.delivered(1, REPORT_AT);
        assert!(backlog.can_go_on() && backlog.take().is_some() && backlog.is_empty());
    }
}
