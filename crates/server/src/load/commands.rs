//! The commands of append-only files, on their way from the loader's thread to the cores.

use super::Cause;
use darter_resp::Args;
use darter_runtime::net::Waker;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// The maximal number of deliveries in transit to one core.
const IN_TRANSIT_MAX: usize = 16;

/// The core on which a command of a file runs, or its meaning for the commands that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandPlace {
    /// The command touches only keys that this core owns.
    Core(usize),
    /// SELECT.
    Select,
    /// MULTI.
    Multi,
    /// EXEC.
    Exec,
    /// DISCARD.
    Discard,
    /// Any other command: it waits for all commands before it, and those after it wait for it.
    Anywhere,
}

/// Finds the place of a command.
pub(crate) type PlaceOf = Box<dyn Fn(Args<'_>) -> CommandPlace + Send>;

/// A delivery to a core.
pub(crate) enum ReplayDelivery {
    /// A file begins: database 0, outside of a transaction.
    Begin {
        /// True if each error reply refuses the file: it is Darter's own.
        is_strict: bool,
    },
    /// Commands. A long one is delivered in parts.
    Commands(ReplayPortion),
    /// The core answers when all commands before this have run.
    Drain,
    /// The file ends. The core answers when all its commands have run.
    End,
    /// All files were replayed.
    Finish,
}

/// Bytes of commands.
#[derive(Debug, Default)]
pub(crate) struct ReplayPortion {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// The file offsets of the commands that end in these bytes, in order.
    pub(crate) offsets: Vec<u64>,
}

/// The errors of a file that do not refuse it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplayErrors {
    /// The number of error replies.
    pub(crate) count: u64,
    /// The first one: the file offset of its command, and its text.
    pub(crate) first: Option<(u64, String)>,
}

impl ReplayErrors {
    fn join(self, other: Self) -> Self {
        let count = self.count + other.count;
        let first = self.first.into_iter().chain(other.first).min_by_key(|(offset, _)| *offset);
        Self { count, first }
    }
}

/// The error reply that refuses a file: the file offset of its command, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FatalReply(pub(crate) u64, pub(crate) String);

type Ended = Result<ReplayErrors, FatalReply>;

/// The end of the loader's thread.
pub(super) struct Deliveries {
    cores: Vec<(SyncSender<ReplayDelivery>, Waker)>,
    ended: Receiver<Ended>,
    spares: Receiver<ReplayPortion>,
}

/// A core's end.
pub(crate) struct Deliverer {
    /// The deliveries of the thread.
    pub(crate) deliveries: Receiver<ReplayDelivery>,
    /// The answers to [`ReplayDelivery::Drain`] and [`ReplayDelivery::End`], or an error at any
    /// time.
    pub(crate) ended: Sender<Ended>,
    /// Returns portions for reuse.
    pub(crate) returns: Sender<ReplayPortion>,
}

/// Both ends, with an end for each core that `wakers` wake.
pub(super) fn deliveries(wakers: Vec<Waker>) -> (Deliveries, Vec<Deliverer>) {
    let ((answers, ended), (returns, spares)) = (channel(), channel());
    let (mut cores, mut deliverers) = (Vec::new(), Vec::new());
    for waker in wakers {
        let (sender, deliveries) = sync_channel(IN_TRANSIT_MAX);
        cores.push((sender, waker));
        let (ended, returns) = (answers.clone(), returns.clone());
        deliverers.push(Deliverer { deliveries, ended, returns });
    }
    (Deliveries { cores, ended, spares }, deliverers)
}

impl Deliveries {
    /// The number of cores.
    pub(super) fn cores(&self) -> usize {
        self.cores.len()
    }

    /// An empty portion.
    pub(super) fn spare(&self) -> ReplayPortion {
        let mut spare = self.spares.try_recv().unwrap_or_default();
        spare.bytes.clear();
        spare.offsets.clear();
        spare
    }

    /// Sends a delivery. Waits while enough are in transit to that core.
    ///
    /// Errors: a core has refused a command, or has stopped.
    pub(super) fn send(&self, core: usize, delivery: ReplayDelivery) -> Result<(), Cause> {
        let (sender, waker) = &self.cores[core];
        if sender.send(delivery).is_err() {
            // The core has dropped its end: either a command was refused, or it was stopped.
            let why = self.ended.try_iter().find_map(Result::err);
            return Err(why.map_or(Cause::Stopped, Cause::Reply));
        }
        waker.wake();
        Ok(())
    }

    /// Waits for the answers of `count` cores.
    ///
    /// Errors: the same.
    pub(super) fn wait(&self, count: usize) -> Result<ReplayErrors, Cause> {
        let mut errors = ReplayErrors::default();
        for _ in 0..count {
            match self.ended.recv() {
                Ok(Ok(more)) => errors = errors.join(more),
                Ok(Err(why)) => return Err(Cause::Reply(why)),
                Err(_) => return Err(Cause::Stopped),
            }
        }
        Ok(errors)
    }
}
