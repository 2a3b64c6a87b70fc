//! Publish and subscribe, as far as it needs no core.
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
//! docs/design/0025-publish-subscribe.md says who tells whom what, and why.

pub(crate) mod backlog;
pub(crate) mod deliveries;
pub(crate) mod events;
pub(crate) mod frame;
pub(crate) mod memberships;
pub(crate) mod name;
pub(crate) mod outbox;
pub(crate) mod registry;

use backlog::Backlog;
use darter_keyspace::Record;
use deliveries::Deliveries;
use events::EventClasses;
use memberships::Memberships;
use registry::Registry;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::vec::IntoIter;

/// What is subscribed to. Each is a namespace of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// SUBSCRIBE.
    Channel,
    /// PSUBSCRIBE.
    Pattern,
    /// SSUBSCRIBE.
    Shard,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

/// What a connection has subscribed to, as its session knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subscribed {
    /// By which [`Memberships`] knows it; 0 before its first subscription.
    pub(crate) id: u64,
    /// Subscriptions of each [`Kind`].
    pub(crate) counts: [usize; 3],
    /// Bytes of memory that they take.
    pub(crate) bytes: usize,
}

impl Subscribed {
    /// True while it holds a subscription: it is of the class `pubsub` then.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.counts != [0; 3]
    }

    /// The subscriptions that a confirmation of `kind` counts: shard channels alone, or all others.
    pub(crate) fn counted_with(&self, kind: Kind) -> usize {
        let [channels, patterns, shards] = self.counts;
        if kind == Kind::Shard { shards } else { channels + patterns }
    }
}

/// A core's part in it.
#[derive(Default)]
pub(crate) struct PubSub {
    pub(crate) registry: RefCell<Registry>,
    pub(crate) memberships: RefCell<Memberships>,
    pub(crate) backlog: RefCell<Backlog>,
    pub(crate) deliveries: RefCell<Deliveries>,
    /// The keyspace events that are recorded and published, and those that are to be.
    pub(crate) events: Cell<EventClasses>,
    pub(crate) wanted_events: Cell<EventClasses>,
    /// Whether reads that find nothing are among them.
    pub(crate) hears_misses: Cell<bool>,
    /// What has happened, and is yet to be published.
    pub(crate) recorded: RefCell<VecDeque<IntoIter<Record>>>,
}

impl PubSub {
    /// Whether events are yet to be published.
    pub(crate) fn has_recorded(&self) -> bool {
        !self.recorded.borrow().is_empty()
    }

    /// The first of these.
    pub(crate) fn next_recorded(&self) -> Option<Record> {
        let mut recorded = self.recorded.borrow_mut();
        loop {
            let first = recorded.front_mut()?;
            let next = first.next();
            if first.as_slice().is_empty() {
                recorded.pop_front();
            }
            if next.is_some() {
                return next;
            }
        }
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
