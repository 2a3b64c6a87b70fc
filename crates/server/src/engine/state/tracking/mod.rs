//! The state of client tracking. It does not depend on the core's other parts.
//!
//! ```text
//! mode        the tracking mode of a connection
//! trackers    on the core of clients: the tracking clients and their prefixes
//! broadcasts  on the core of keys: all prefixes, and the touched keys that match them
//! deliveries  on the core of clients: invalidations to send
//! message     the encoding of invalidations
//! ```
//! Which keys the clients have read is recorded in the shard: `darter_keyspace`.
//! docs/design/0030-tracking.md describes the messages between the cores.

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

/// A touched key. If the client that has touched it has NOLOOP, its handle follows; otherwise 0.
pub(crate) type Touch = (Arc<Name>, u64);

/// The state of client tracking on one core.
#[derive(Default)]
pub(crate) struct Tracking {
    pub(crate) trackers: RefCell<Trackers>,
    pub(crate) broadcasts: RefCell<Broadcasts>,
    pub(crate) deliveries: RefCell<InvalidationQueue>,
    /// Touched keys that many clients have read. The clients are notified in portions.
    pub(crate) fans: RefCell<VecDeque<(Arc<Invalidation>, Readers)>>,
    /// The limit of tracked keys on this core; 0 for no limit.
    pub(crate) most: Cell<usize>,
    /// True if the core tracks more keys than the limit.
    pub(crate) is_over: Cell<bool>,
}

impl Tracking {
    /// True if there is a key to match, or a client to notify.
    pub(crate) fn has_work(&self) -> bool {
        !self.deliveries.borrow().is_empty()
            || !self.fans.borrow().is_empty()
            || self.is_over.get()
            || self.broadcasts.borrow().can_match()
    }

    /// True if there is no work now, and nothing to send at the end of the turn.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_work() && !self.broadcasts.borrow().can_send()
    }
}
