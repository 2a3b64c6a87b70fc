//! The commands of append-only files, on their way from the loader's thread to core 0.

use super::Cause;
use darter_runtime::net::Waker;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// The maximal number of deliveries in transit.
const IN_TRANSIT_MAX: usize = 16;

/// A delivery to core 0.
pub(crate) enum ReplayDelivery {
    /// A file begins: database 0, outside of a transaction.
    Begin {
        /// True if each error reply refuses the file: it is Darter's own.
        is_strict: bool,
    },
    /// Bytes of commands. A long command is delivered in parts.
    Commands {
        /// The bytes.
        bytes: Vec<u8>,
        /// The file offsets of the commands that end in these bytes, in order.
        offsets: Vec<u64>,
    },
    /// The file ends. Core 0 answers when all its commands have run.
    End,
    /// All files were replayed.
    Finish,
}

/// The errors of a file that do not refuse it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplayErrors {
    /// The number of error replies.
    pub(crate) count: u64,
    /// The first one: the file offset of its command, and its text.
    pub(crate) first: Option<(u64, String)>,
}

/// The error reply that refuses a file: the file offset of its command, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FatalReply(pub(crate) u64, pub(crate) String);

type Ended = Result<ReplayErrors, FatalReply>;

/// The end of the loader's thread.
pub(super) struct Deliveries {
    sender: SyncSender<ReplayDelivery>,
    ended: Receiver<Ended>,
    waker: Waker,
}

/// Core 0's end.
pub(crate) struct Deliverer {
    /// The deliveries of the thread.
    pub(crate) deliveries: Receiver<ReplayDelivery>,
    /// The answer to [`ReplayDelivery::End`], or an error at any time.
    pub(crate) ended: Sender<Ended>,
}

/// Both ends. `waker` wakes core 0.
pub(super) fn deliveries(waker: Waker) -> (Deliveries, Deliverer) {
    let (sender, deliveries) = sync_channel(IN_TRANSIT_MAX);
    let (answers, ended) = channel();
    (Deliveries { sender, ended, waker }, Deliverer { deliveries, ended: answers })
}

impl Deliveries {
    /// Sends a delivery. Waits while enough are in transit.
    ///
    /// Errors: the core has refused a command, or has stopped.
    pub(super) fn send(&self, delivery: ReplayDelivery) -> Result<(), Cause> {
        if self.sender.send(delivery).is_err() {
            // The core has dropped its end: either a command was refused, or it was stopped.
            let why = self.ended.try_iter().find_map(Result::err);
            return Err(why.map_or(Cause::Stopped, Cause::Reply));
        }
        self.waker.wake();
        Ok(())
    }

    /// Ends the file, and waits until all its commands have run.
    ///
    /// Errors: the same.
    pub(super) fn end(&self) -> Result<ReplayErrors, Cause> {
        self.send(ReplayDelivery::End)?;
        match self.ended.recv() {
            Ok(Ok(errors)) => Ok(errors),
            Ok(Err(why)) => Err(Cause::Reply(why)),
            Err(_) => Err(Cause::Stopped),
        }
    }
}
