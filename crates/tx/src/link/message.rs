//! The messages between cores.

use super::{Run, Start, Value};
use crate::CoreId;
use crate::locks::{Access, Claim, TxId};
use crate::transaction::Scope;
use darter_keyspace::{Part, Work};

/// A message of one core to another. Between two cores, messages arrive in the order they were
/// sent.
pub enum Message {
    /// Run this on your shard, and return the result.
    Call {
        /// The requester.
        from: CoreId,
        /// The ticket to complete there.
        ticket: u64,
        /// The author of the changes.
        work: Work,
        /// The author of the changes: see [`Tx::note_author`].
        author: u64,
        /// The closure to run.
        run: Run,
    },
    /// Run this as a task of yours, and return its result.
    Task {
        /// The requester.
        from: CoreId,
        /// The ticket to complete there.
        ticket: u64,
        /// The author of the changes.
        work: Work,
        /// As above.
        author: u64,
        /// The locks that it works under.
        scope: Scope,
        /// The task to start.
        start: Start,
    },
    /// Take locks, and run this under them, in one step.
    Step(Box<Locking>),
    /// The result of a call or a task, or `true`/`false` for a lock.
    Return {
        /// The ticket to complete.
        ticket: u64,
        /// The result.
        value: Value,
        /// Data has changed on the way to it.
        changed: bool,
    },
    /// Take these locks, and answer.
    Lock {
        /// The requester.
        from: CoreId,
        /// The ticket to complete there.
        ticket: u64,
        /// The transaction.
        tx: TxId,
        /// Which locks.
        claim: Claim,
        /// When to answer.
        when: When,
    },
    /// Grant this transaction more than it holds here, which may be nothing, and answer at once.
    Widen {
        /// The requester.
        from: CoreId,
        /// The ticket to complete there.
        ticket: u64,
        /// The transaction.
        tx: TxId,
        /// The locks that it holds, too.
        claim: Claim,
    },
    /// Release the locks of this transaction.
    Unlock {
        /// The transaction.
        tx: TxId,
        /// The part of the transaction, whose records end here.
        part: Option<Part>,
    },
    /// Release what this transaction holds, or no longer wait for it: its client is gone.
    Withdraw {
        /// The transaction.
        tx: TxId,
    },
    /// Release the locks of this transaction, except one key, if any.
    Narrow {
        /// The transaction.
        tx: TxId,
        /// The key that stays locked, and the access.
        kept: Option<(u64, Access)>,
    },
    /// Claims do not wait for this transaction's locks any more, and the reason.
    Busy {
        /// The transaction.
        tx: TxId,
        /// The error line for others.
        line: &'static str,
    },
    /// The lock that this ticket waits for is held by such a transaction.
    Stuck {
        /// The ticket.
        ticket: u64,
        /// The error for the claims.
        line: &'static str,
    },
}

/// When a request for locks is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At once, with whether they are granted.
    AtOnce,
    /// When they are granted, in the order of the queue.
    Granted,
    /// When the transactions in its way have ended. Nothing is granted.
    Unobstructed,
}

/// A closure to run under locks that the core takes first; if they are not free, it returns
/// [`Refused`]. In a box, since most messages are smaller.
pub struct Locking {
    pub(super) from: CoreId,
    pub(super) ticket: u64,
    pub(super) tx: TxId,
    pub(super) claim: Claim,
    pub(super) then: Then,
    pub(super) author: u64,
    pub(super) run: Run,
}

/// The locks' fate.
#[derive(Clone, Copy)]
pub(super) enum Then {
    /// The locks are released at once, and this part of the transaction ends, which began with
    /// them.
    Release(Option<Part>),
    /// The locks stay, and the data read does not change until then.
    Keep,
}

/// Some of the locks were not free.
pub(super) struct Refused;
