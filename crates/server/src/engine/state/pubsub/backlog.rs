//! The queue on the home of channels. It holds messages that cannot be published at once, and all
//! orders that arrive after them.
//!
//! A message waits while it is matched with many patterns, and while some core has too many
//! messages to deliver. It is sent for a few patterns at a time. So publishers are slowed down to
//! the speed of delivery, and the number of messages in flight is bounded. Subscribers that do not
//! read slow down no publisher; `client-output-buffer-limit` limits their output.

use super::SubscriptionKind;
use super::name::{Message, Name};
use darter_base::glob::Walk;
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::sync::Arc;

/// The limit of the weight (see [`weight`]) of messages in flight from a home to one core: about a
/// millisecond of work.
const IN_FLIGHT_MAX: usize = 4_096;
/// A core reports to the home after it has delivered messages of this weight.
pub(crate) const REPORT_AT: usize = IN_FLIGHT_MAX / 4;

/// The weight of a message that a core delivers to `receivers` clients.
pub(crate) fn weight(message: &Message, receivers: usize) -> usize {
    const KIB: usize = 1_024;
    1 + receivers + message.payload.len() / (4 * KIB)
}

/// A subscriber of another core joins or leaves names of one kind. The home changes its counts.
#[derive(Debug)]
pub(crate) struct SubscriptionChange {
    pub(crate) subscriber: u64,
    pub(crate) kind: SubscriptionKind,
    pub(crate) names: Vec<Name>,
    pub(crate) joins: bool,
    /// The ticket to complete on the subscriber's core when the change is counted. `None` if the
    /// subscriber has gone.
    pub(crate) ticket: Option<u64>,
}

/// A message that is being published, in portions.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) message: Arc<Message>,
    /// The number of receivers to which it was sent so far.
    pub(crate) receivers: usize,
    /// True if the message was sent to the subscribers of the channel itself.
    pub(crate) is_begun: bool,
    /// The last pattern that was compared with the channel.
    pub(crate) after: Option<Name>,
    /// The pattern that is being compared with the channel, and the state of the comparison.
    pub(crate) walk: Option<(Name, Walk)>,
    /// True if all patterns were compared.
    pub(crate) is_matched: bool,
}

impl Publication {
    /// A publication of a message that was not sent to any core yet.
    pub(crate) fn new(message: Arc<Message>) -> Self {
        let (is_begun, is_matched) = (false, false);
        Self { message, receivers: 0, is_begun, after: None, walk: None, is_matched }
    }
}

/// The recipient of the result of a publication.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    /// A task that waits for the number of receivers, under this ticket.
    Waits(u64),
    /// No task: the message is an event, and its weight is subtracted from the events in flight.
    Event(usize),
}

/// An entry in the queue of a home.
#[derive(Debug)]
pub(crate) enum Order {
    Publish(Publication, Sender),
    Change(CoreId, SubscriptionChange),
}

/// The queue of a home, and the weight in flight to each core.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    orders: VecDeque<Order>,
    /// By core: the weight of the messages sent to it that it has not reported as delivered.
    in_flight: Vec<usize>,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    pub(crate) fn push(&mut self, order: Order) {
        self.orders.push_back(order);
    }

    /// Takes the first order out of the queue.
    pub(crate) fn take(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Puts an unfinished order back to the front of the queue.
    pub(crate) fn put_back(&mut self, order: Order) {
        self.orders.push_front(order);
    }

    /// True if the first order, or a portion of it, can be handled now.
    pub(crate) fn can_go_on(&self) -> bool {
        match self.orders.front() {
            None => false,
            Some(Order::Publish(..)) => !self.is_full(),
            Some(Order::Change(..)) => true,
        }
    }

    /// True if some core has too much to deliver.
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

    #[test] // The home continues when that core reports a delivery.
    fn a_home_stops_publishing_while_a_core_has_too_much_to_deliver() {
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
