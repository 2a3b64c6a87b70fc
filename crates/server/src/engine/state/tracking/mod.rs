//! Client tracking, as far as it needs no core.
//!
//! ```text
//! mode        what a connection has declared
//! trackers    on a client's core: who tracks, and with which prefixes
//! broadcasts  on a key's core: which prefixes there are, and what was touched that begins with them
//! deliveries  on a client's core: what its clients are to be told
//! message     an invalidation as a client reads it
//! ```
//! Which keys clients have read is known to the shard: `darter_keyspace`. docs/design/0030-tracking.md
//! says who tells whom what, and why.

pub(crate) mod broadcasts;
pub(crate) mod deliveries;
pub(crate) mod message;
pub(crate) mod mode;
pub(crate) mod trackers;

use broadcasts::Broadcasts;
use darter_keyspace::{Name, Readers};
use deliveries::Deliveries;
use message::Message;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use trackers::Trackers;

/// What a prefix is called: its bytes, shared by all who know it.
pub(crate) type Prefix = Arc<[u8]>;

/// A key that was touched, and whose command that was, if its client does not want to hear of its
/// own; otherwise 0.
pub(crate) type Touch = (Arc<Name>, u64);

/// A core's part in it.
#[derive(Default)]
pub(crate) struct Tracking {
    pub(crate) trackers: RefCell<Trackers>,
    pub(crate) broadcasts: RefCell<Broadcasts>,
    pub(crate) deliveries: RefCell<Deliveries>,
    /// Touched keys with so many readers that these are told in portions.
    pub(crate) fans: RefCell<VecDeque<(Arc<Message>, Readers)>>,
    /// Something may be heard of the shard.
    pub(crate) hears: Cell<bool>,
    /// How many keys this core remembers at most; 0: any number.
    pub(crate) most: Cell<usize>,
    /// It remembers more.
    pub(crate) is_over: Cell<bool>,
}

impl Tracking {
    /// Whether something can be matched, told, or delivered, now.
    pub(crate) fn has_work(&self) -> bool {
        !self.deliveries.borrow().is_empty()
            || !self.fans.borrow().is_empty()
            || self.is_over.get()
            || self.broadcasts.borrow().can_match()
    }

    /// Whether nothing waits, and nothing can be sent as the turn ends.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.has_work() && !self.broadcasts.borrow().can_send()
    }
}
