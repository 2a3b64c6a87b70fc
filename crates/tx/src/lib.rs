//! How commands that span slices, keys or cores stay atomic.
//!
//! - A [`Task`](executor) is a future that one core polls: the coordinator of a command. It awaits
//!   a hop to a shard, a lock, or its next slice; it never holds data across an await.
//! - [`Tx`] is a task's handle: `on` runs a closure on the shard of another core; `lock` takes
//!   intent locks; `pause` ends the slice when it is over.
//! - A [`Transaction`] has the locks of several commands: with its `Tx` they take none.
//! - [`Serving`] has the locks under which blocked calls on a key are served.
//! - [`LockTable`] is one shard's locks. An uncontended point command pays one branch.
//!
//! Order: locks are taken on all cores at once if they are all free; otherwise core by core, in
//! ascending order, waiting in each core's queue. A waiter holds no lock of the same core or of a
//! higher one, so nothing deadlocks; queues are first come, first served, so nothing starves. The
//! record: docs/design/0002-order.md.
//!
//! Not here: sockets, threads, clocks, commands. Messages leave through [`Tx::drain_outbox`] and
//! arrive through [`Tx::deliver`]; the thread's loop or the simulator carries them.

#![forbid(unsafe_code)]

mod claims;
mod executor;
mod keylist;
mod keyset;
mod link;
mod locks;
mod transaction;
mod waited;

pub use claims::ClaimSet;
pub use executor::TaskId;
pub use keylist::KeyList;
pub use keyset::KeySet;
pub use link::{AtOnce, Home, Locked, Locking, Message, OpenAtOnce, Tx, When};
pub use locks::{Access, Claim, LockTable, TxId, lock_key};
pub use transaction::Transaction;
pub use waited::{Serving, Waited};

/// A core, `0..cores`.
pub type CoreId = usize;
