//! The state of publish and subscribe, independent of the core.
//!
//! ```text
//! name         what channels and patterns are called, and what messages say
//! registry     at the home of a channel: how many subscribers each core has
//! backlog      at the home: what waits to be published, and what other cores have yet to deliver
//! memberships  at the subscribers: who holds which subscriptions
//! deliveries   at the subscribers: what came from the homes, in its order
//! frame        a message as a client reads it
//! outbox       what a script publishes, until it ends
//! events       which keyspace events are published
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

/// A kind of subscription. Each has its own namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubscriptionKind {
    /// SUBSCRIBE.
    Channel,
    /// PSUBSCRIBE.
    Pattern,
    /// SSUBSCRIBE.
    Shard,
}

impl SubscriptionKind {
    pub(crate) const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

/// The summary of a connection's subscriptions, in its session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subscribed {
    /// The subscriber's number in [`Memberships`]; 0 before the first subscription.
    pub(crate) id: u64,
    /// Subscriptions of each [`SubscriptionKind`].
    pub(crate) counts: [usize; 3],
    /// Bytes of memory of the subscriptions.
    pub(crate) bytes: usize,
}

impl Subscribed {
    /// True if there is a subscription: then the client is of the class `pubsub`.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.counts != [0; 3]
    }

    /// The subscriptions that a confirmation of `kind` counts: shard channels alone, or all others.
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
    /// The classes of keyspace events that are published, and the classes of the new setting.
    pub(crate) events: Cell<EventClasses>,
    pub(crate) wanted_events: Cell<EventClasses>,
    /// Whether misses are among them.
    pub(crate) hears_misses: Cell<bool>,
    /// The reader of the shard's log, while events are published.
    pub(crate) reader: Cell<Option<Reader>>,
    /// Records are yet to be read.
    pub(crate) has_recorded: Cell<bool>,
}

impl PubSub {
    /// Whether recorded events wait.
    pub(crate) fn has_recorded(&self) -> bool {
        self.has_recorded.get()
    }

    /// Whether a message can be published, or delivered, now.
    pub(crate) fn has_work(&self) -> bool {
        !self.deliveries.borrow().is_empty() || self.backlog.borrow().can_go_on()
    }

    /// Whether nothing waits.
    pub(crate) fn is_quiet(&self) -> bool {
        self.deliveries.borrow().is_empty()
            && self.backlog.borrow().is_empty()
            && !self.has_recorded()
    }
}
