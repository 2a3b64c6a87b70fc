//! What the clients of a core are to be told, in the order in which it came.

use super::Prefix;
use super::message::Message;
use darter_base::spare;
use darter_tx::CoreId;
use std::collections::VecDeque;
use std::sync::Arc;

/// To whom a message goes.
#[derive(Debug)]
pub(crate) enum To {
    /// To these, who have read the key.
    Readers(Vec<u64>),
    /// To all who track, after this one.
    All {
        /// The last that was told.
        after: u64,
    },
    /// To all with this prefix, after this one; then the core it came from is told.
    Prefix {
        /// It.
        prefix: Prefix,
        /// The last that was told.
        after: u64,
        /// Where the keys are.
        from: CoreId,
    },
}

/// A message on its way to clients.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) message: Arc<Message>,
    pub(crate) to: To,
    /// It as clients of RESP2 and RESP3 read it, once one has needed that; not a long one.
    pub(crate) frames: [Option<Vec<u8>>; 2],
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    items: VecDeque<Delivery>,
}

impl Deliveries {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn push(&mut self, message: Arc<Message>, to: To) {
        self.items.push_back(Delivery { message, to, frames: [None, None] });
    }

    pub(crate) fn take(&mut self) -> Option<Delivery> {
        let first = self.items.pop_front();
        spare::release_queue(&mut self.items);
        first
    }

    /// Puts back what is not done yet.
    pub(crate) fn put_back(&mut self, delivery: Delivery) {
        self.items.push_front(delivery);
    }
}
