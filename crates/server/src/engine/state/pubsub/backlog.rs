//! What waits at the home of channels: messages that cannot be published at once, and whatever came
//! after them.
//!
//! A message waits while it is matched with many patterns, and while some core has more to deliver
//! than it should; it is sent to those who subscribe to a few patterns at a time. So those who
//! publish are slowed down to what the cores deliver, and what is under way stays bounded.
//! Subscribers that do not read slow nobody down: what they are owed is limited by
//! `client-output-buffer-limit`.

use super::Kind;
use super::name::{Message, Name};
use darter_base::glob::Walk;
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::sync::Arc;

/// What one home has another core deliver at a time, by [`weight`]: about a millisecond of work.
const UNDER_WAY_MAX: usize = 4_096;
/// How much a core has delivered when it says so.
pub(crate) const TOLD_AT: usize = UNDER_WAY_MAX / 4;

/// What the delivery of a message to so many clients of a core weighs.
pub(crate) fn weight(message: &Message, receivers: usize) -> usize {
    const KIB: usize = 1_024;
    1 + receivers + message.payload.len() / (4 * KIB)
}

/// A subscriber joins or leaves: names of one kind, which a home is to count from now on, or no
/// longer.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) subscriber: u64,
    pub(crate) kind: Kind,
    pub(crate) names: Vec<Name>,
    pub(crate) joins: bool,
    /// Whom to tell on the subscriber's core once it is counted; nobody when it is gone.
    pub(crate) ticket: Option<u64>,
}

/// A message that waits.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) message: Arc<Message>,
    /// How many it was sent to so far.
    pub(crate) receivers: usize,
    /// Those who subscribe to the channel are among them.
    pub(crate) is_begun: bool,
    /// The last pattern that was looked at.
    pub(crate) after: Option<Name>,
    /// How far it is matched with the next, which is this one.
    pub(crate) walk: Option<(Name, Walk)>,
    /// All were looked at.
    pub(crate) is_matched: bool,
}

impl Publication {
    /// A message that was sent to nobody yet.
    pub(crate) fn new(message: Arc<Message>) -> Self {
        let (is_begun, is_matched) = (false, false);
        Self { message, receivers: 0, is_begun, after: None, walk: None, is_matched }
    }
}

/// Who is told that a message was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    /// Who waits, by this ticket, to hear how many receive it.
    Waits(u64),
    /// Those who cause events: one of this weight is published.
    Event(usize),
}

/// Something to be done in its turn.
#[derive(Debug)]
pub(crate) enum Order {
    Publish(Publication, Sender),
    Change(CoreId, Change),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    orders: VecDeque<Order>,
    /// What each core still has to deliver, as far as is known.
    under_way: Vec<usize>,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    pub(crate) fn push(&mut self, order: Order) {
        self.orders.push_back(order);
    }

    /// The first that waits.
    pub(crate) fn take(&mut self) -> Option<Order> {
        self.orders.pop_front()
    }

    /// Puts it back: it is not done yet.
    pub(crate) fn put_back(&mut self, order: Order) {
        self.orders.push_front(order);
    }

    /// Whether the first can be done, or a portion of it.
    pub(crate) fn can_go_on(&self) -> bool {
        match self.orders.front() {
            None => false,
            Some(Order::Publish(..)) => !self.is_full(),
            Some(Order::Change(..)) => true,
        }
    }

    /// Whether some core has enough to deliver.
    pub(crate) fn is_full(&self) -> bool {
        self.under_way.iter().any(|weight| *weight >= UNDER_WAY_MAX)
    }

    /// Core `to` is to deliver so much more.
    pub(crate) fn sent(&mut self, to: CoreId, weight: usize) {
        if self.under_way.len() <= to {
            self.under_way.resize(to + 1, 0);
        }
        self.under_way[to] += weight;
    }

    /// Core `by` has delivered so much.
    pub(crate) fn delivered(&mut self, by: CoreId, weight: usize) {
        self.under_way[by] -= weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::state::pubsub::name::Text;

    #[test] // Full with what one core has yet to deliver, and going on once it has.
    fn what_is_under_way_is_bounded() {
        let mut backlog = Backlog::default();
        backlog.sent(1, UNDER_WAY_MAX - 1);
        backlog.sent(0, UNDER_WAY_MAX - 1);
        assert!(!backlog.is_full());
        backlog.sent(1, 1);
        assert!(backlog.is_full());
        let payload = Text::Short(vec![0; 8 * 1_024].into());
        let message = Message::new(Kind::Channel, Name::from_bytes(b"c"), payload);
        assert_eq!(weight(&message, 5), 8);
        backlog.push(Order::Publish(Publication::new(Arc::new(message)), Sender::Waits(0)));
        assert!(!backlog.can_go_on());
        backlog.delivered(1, TOLD_AT);
        assert!(backlog.can_go_on() && backlog.take().is_some() && backlog.is_empty());
    }
}
