//! The invalidations for a core's clients, in order of arrival.

use super::Prefix;
use super::message::Invalidation;
use darter_base::spare;
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::sync::Arc;

/// The recipients of an invalidation.
#[derive(Debug)]
pub(crate) enum To {
    /// These clients, which have read the key.
    Readers(Vec<u64>),
    /// All tracking clients after `after`.
    All {
        /// The last client that was notified.
        after: u64,
    },
    /// All clients with this prefix after `after`. Then the core of the keys gets a report.
    Prefix {
        /// The prefix.
        prefix: Prefix,
        /// The last client that was notified.
        after: u64,
        /// The core of the keys.
        from: CoreId,
    },
}

/// An invalidation that is being delivered.
#[derive(Debug)]
pub(crate) struct InvalidationDelivery {
    pub(crate) message: Arc<Invalidation>,
    pub(crate) to: To,
    /// The encoded message for RESP2 and RESP3, after its first use; `None` for a long one.
    pub(crate) frames: [Option<Vec<u8>>; 2],
}

/// See the module.
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

    /// Puts an unfinished invalidation back at the front.
    pub(crate) fn put_back(&mut self, delivery: InvalidationDelivery) {
        self.items.push_front(delivery);
    }
}
