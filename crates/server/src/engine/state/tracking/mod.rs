//! The state of client tracking, independent of the core.
//!
//! ```text
//! mode        what a connection has declared
//! trackers    on a client's core: who tracks, and with which prefixes
//! broadcasts  on a key's core: which prefixes there are, and what was touched that begins with them
//! deliveries  on a client's core: the invalidations for its clients
//! message     an invalidation as a client reads it
//! ```
//! The shard records which keys clients have read: `darter_keyspace`. docs/design/0030-tracking.md
//! describes the messages between the cores.

pub(crate) mod broadcasts;
pub(crate) mod deliveries;
pub(crate) mod message;
pub(crate) mod mode;
pub(crate) mod trackers;

use broadcasts::Broadcasts;
use darter_keyspace::{Name, Readers};
use deliveries::InvalidationQueue;
use message::Invalidation;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use trackers::Trackers;

/// The shared bytes of a prefix.
pub(crate) type Prefix = Arc<[u8]>;

/// A touched key, and the client that touched it if that has NOLOOP; otherwise 0.
pub(crate) type Touch = (Arc<Name>, u64);

/// A core's state of tracking.
#[derive(Default)]
pub(crate) struct Tracking {
    pub(crate) trackers: RefCell<Trackers>,
    pub(crate) broadcasts: RefCell<Broadcasts>,
    pub(crate) deliveries: RefCell<InvalidationQueue>,
    /// Touched keys with many readers, which are notified in portions.
    pub(crate) fans: RefCell<VecDeque<(Arc<Invalidation>, Readers)>>,
    /// The limit of tracked keys on this core; 0 for no limit.
    pub(crate) most: Cell<usize>,
    /// The core tracks more keys than the limit.
    pub(crate) is_over: Cell<bool>,
}

impl Tracking {
    /// Whether there is something to match, notify or deliver now.
    pub(crate) fn has_work(&self) -> bool {
        !self.deliveries.borrow().is_empty()
            || !self.fans.borrow().is_empty()
            || self.is_over.get()
            || self.broadcasts.borrow().can_match()
    }

    /// Whether there is no work, and nothing to send at the end of the turn.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_work() && !self.broadcasts.borrow().can_send()
    }
}
