//! Transactions: MULTI, EXEC, DISCARD, WATCH and UNWATCH.
//!
//! After MULTI, requests are checked and queued (`queued`). A short EXEC with all keys on one core
//! runs there at once (`at_once`); if that is another core, it is sent in the connection's batch
//! (`away`). Any other EXEC runs as a task (`exec`). The task locks the keys of all queued
//! commands, and the watched keys, on all cores (`claims`). It checks whether a watched key was
//! touched (`watching`). Then it runs the commands one by one (`inner`), or lets each core run its
//! own commands if there are few (`parts`). If a command does not name all its keys, EXEC locks all
//! keys of the server. See docs/design/0024-transaction-context.md.
//!
//! ```text
//! MULTI   SET a 1   GET b   EXEC
//!   +OK   +QUEUED   +QUEUED   lock a and b | watched keys touched? | SET | GET | reply
//! ```
//! Not here: the watches that a shard keeps. See `keyspace::watch`.

pub(super) mod at_once;
mod away;
pub(super) mod claims;
mod exec;
pub(super) mod inner;
mod parts;
pub(super) mod queued;
pub(super) mod replies;
mod verbs;
mod watching;
