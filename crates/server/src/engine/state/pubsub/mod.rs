//! The state of publish and subscribe. It does not depend on the core's other parts.
//!
//! ```text
//! name         names of channels and patterns, and texts of messages
//! registry     on the home of a channel: the number of subscribers on each core
//! backlog      on the home: messages that wait, and those that other cores must still deliver
//! memberships  on the core of subscribers: the subscriptions of each client
//! deliveries   on the core of subscribers: items from the homes, in order
//! frame        the encoding of messages
//! outbox       the messages that a script has published, until it ends
//! events       the classes of keyspace events that are published
//! ```
//! docs/design/0025-publish-subscribe.md describes the messages between the cores.

pub(crate) mod backlog;
pub(crate) mod deliveries;
pub(crate) mod events;
pub(crate) mod frame;
pub(crate) mod memberships;
pub(crate) mod name;
pub(crate) mod outbox;
pub(crate) mod registry;

use backlog::Backlog;
use darter_keyspace::Reader;
use deliveries::Deliveries;
use events::EventClasses;
use memberships::Memberships;
use registry::SubscriberCounts;
use std::cell::{Cell, RefCell};

/// A kind of subscription. Names of different kinds are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriptionKind {
    /// A channel: SUBSCRIBE.
    Channel,
    /// A pattern: PSUBSCRIBE.
    Pattern,
    /// A shard channel: SSUBSCRIBE.
    Shard,
}

impl SubscriptionKind {
    pub(crate) const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

/// A summary of a connection's subscriptions, stored in its session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subscribed {
    /// The number of the subscriber in [`Memberships`]; 0 before the first subscription.
    pub(crate) id: u64,
    /// The number of subscriptions of each [`SubscriptionKind`].
    pub(crate) counts: [usize; 3],
    /// Bytes of memory that the subscriptions occupy.
    pub(crate) bytes: usize,
}

impl Subscribed {
    /// True if there is any subscription. Then the client belongs to the class `pubsub`.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.counts != [0; 3]
    }

    /// The number of subscriptions that a confirmation of `kind` reports: shard channels alone, or
    /// channels and patterns together.
    pub(crate) fn counted_with(&self, kind: SubscriptionKind) -> usize {
        let [channels, patterns, shards] = self.counts;
        if kind == SubscriptionKind::Shard { shards } else { channels + patterns }
    }
}

/// A core's state of publish and subscribe.
#[derive(Default)]
pub(crate) struct PubSub {
    pub(crate) registry: RefCell<SubscriberCounts>,
    pub(crate) memberships: RefCell<Memberships>,
    pub(crate) backlog: RefCell<Backlog>,
    pub(crate) deliveries: RefCell<Deliveries>,
    /// The classes of keyspace events that are published, as the setting says.
    pub(crate) events: Cell<EventClasses>,
    pub(crate) wanted_events: Cell<EventClasses>,
    /// True if keyspace misses are published, too.
    pub(crate) hears_misses: Cell<bool>,
    /// The reader of the shard's log; `None` while no events are published.
    pub(crate) reader: Cell<Option<Reader>>,
    /// True if the log may have records that were not read yet.
    pub(crate) has_recorded: Cell<bool>,
}

impl PubSub {
    /// True if recorded events wait to be published.
    pub(crate) fn has_recorded(&self) -> bool {
        self.has_recorded.get()
    }

    /// True if a message can be published or delivered now.
    pub(crate) fn has_work(&self) -> bool {
        !self.deliveries.borrow().is_empty() || self.backlog.borrow().can_go_on()
    }

    /// True if no event, message or delivery waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.deliveries.borrow().is_empty()
            && self.backlog.borrow().is_empty()
            && !self.has_recorded()
    }
}
