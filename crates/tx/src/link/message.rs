//! Messages between cores.

use super::{Run, Start, Value};
use crate::CoreId;
use crate::locks::{Access, Claim, TxId};
use crate::transaction::Scope;
use darter_keyspace::{Part, Work};

/// A message of one core to another. Between two cores, messages arrive in the order they were
/// sent.
pub enum Message {
    /// Asks a core to run a closure on its shard, and to return the result.
    Call {
        /// The requesting core.
        from: CoreId,
        /// The ticket to complete there.
        ticket: u64,
        /// The transaction of the changes.
        work: Work,
        /// The author of the changes: see [`Tx::note_author`].
        author: u64,
        /// The closure to run.
        run: Run,
    },
    /// Asks a core to run a task of its own, and to return the result.
    Task {
        /// The requesting core.
        from: CoreId,
        /// The ticket to complete there.
        ticket: u64,
        /// The transaction of the changes.
        work: Work,
        /// The author of the changes.
        author: u64,
        /// The locks that the task works under.
        scope: Scope,
        /// The task to start.
        start: Start,
    },
    /// Asks a core to take locks and run a closure under them, in one step.
    Step(Box<Locking>),
    /// The result of a call or a task, or `true`/`false` for a lock.
    Return {
        /// The ticket to complete.
        ticket: u64,
        /// The result.
        value: Value,
        /// True if producing the result has changed data.
        changed: bool,
    },
    /// Asks a core for locks.
    Lock {
        /// The requesting core.
        from: CoreId,
        /// The ticket to complete there.
        ticket: u64,
        /// The transaction.
        tx: TxId,
        /// The requested locks.
        claim: Claim,
        /// When the core answers.
        when: When,
    },
    /// Asks a core to grant a transaction more than it holds there (perhaps nothing), and to answer
    /// at once.
    Widen {
        /// The requesting core.
        from: CoreId,
        /// The ticket to complete there.
        ticket: u64,
        /// The transaction.
        tx: TxId,
        /// The additional locks.
        claim: Claim,
    },
    /// Releases the locks of this transaction.
    Unlock {
        /// The transaction.
        tx: TxId,
        /// The part of the transaction whose records end here.
        part: Option<Part>,
    },
    /// Releases the locks of this transaction, or ends its wait for them, because its client is
    /// gone.
    Withdraw {
        /// The transaction.
        tx: TxId,
    },
    /// Releases the locks of this transaction, except one key, if given.
    Narrow {
        /// The transaction.
        tx: TxId,
        /// The key that stays locked, and the access.
        kept: Option<(u64, Access)>,
    },
    /// From now on, claims do not wait for this transaction's locks, for this reason.
    Busy {
        /// The transaction.
        tx: TxId,
        /// The error line for waiting claims.
        line: &'static str,
    },
    /// The lock that this ticket waits for is held by a busy transaction.
    Stuck {
        /// The ticket.
        ticket: u64,
        /// The error line for the waiting claim.
        line: &'static str,
    },
}

/// When a request for locks is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once, whether or not the locks are granted.
    AtOnce,
    /// When the locks are granted, in queue order.
    Granted,
    /// When the conflicting transactions have ended. Nothing is granted.
    Unobstructed,
}

/// A closure to run under locks that the core takes first. If they are not free, the result is
/// [`Refused`]. Boxed, because most messages are smaller.
pub struct Locking {
    pub(super) from: CoreId,
    pub(super) ticket: u64,
    pub(super) tx: TxId,
    pub(super) claim: Claim,
    pub(super) then: Then,
    pub(super) author: u64,
    pub(super) run: Run,
}

/// The treatment of the locks after the closure.
#[derive(Clone, Copy)]
pub(super) enum Then {
    /// They are released at once, and this part of the transaction, which started with them, ends.
    Release(Option<Part>),
    /// They stay, and the data that was read does not change until their release.
    Keep,
}

/// Some of the locks were not free.
pub(super) struct Refused;
