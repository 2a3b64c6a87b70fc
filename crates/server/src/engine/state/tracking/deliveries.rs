//! The invalidations that wait to be sent to the clients of a core, in order of arrival.

use super::Prefix;
use super::message::Invalidation;
use darter_base::spare;
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::sync::Arc;

/// The clients that must receive an invalidation.
#[derive(Debug)]
pub(crate) enum To {
    /// The clients with these handles, because they have read the key.
    Readers(Vec<u64>),
    /// All tracking clients, in the order of their handles.
    All {
        /// The last client that was notified; 0 for none.
        after: u64,
    },
    /// All clients with a prefix, in the order of their handles. Afterwards the core of the keys is
    /// notified that the message was delivered.
    Prefix {
        /// The prefix.
        prefix: Prefix,
        /// The last client that was notified; 0 for none.
        after: u64,
        /// The core that owns the keys.
        from: CoreId,
    },
}

/// An invalidation that is being sent to clients, in portions.
#[derive(Debug)]
pub(crate) struct InvalidationDelivery {
    pub(crate) message: Arc<Invalidation>,
    pub(crate) to: To,
    /// The encoded message, for RESP2 and for RESP3, once it was needed. `None` for a long message.
    pub(crate) frames: [Option<Vec<u8>>; 2],
}

/// The queue of invalidations of a core.
#[derive(Debug, Default)]
pub(crate) struct InvalidationQueue {
    items: VecDeque<InvalidationDelivery>,
}

impl InvalidationQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn push(&mut self, message: Arc<Invalidation>, to: To) {
        self.items.push_back(InvalidationDelivery { message, to, frames: [None, None] });
    }

    pub(crate) fn take(&mut self) -> Option<InvalidationDelivery> {
        let first = self.items.pop_front();
        spare::release_queue(&mut self.items);
        first
    }

    /// Puts an unfinished invalidation back to the front of the queue.
    pub(crate) fn put_back(&mut self, delivery: InvalidationDelivery) {
        self.items.push_front(delivery);
    }
}
