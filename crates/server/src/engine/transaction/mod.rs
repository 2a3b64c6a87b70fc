//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! Between MULTI and EXEC requests pass the gates and are queued (`queued`). A short EXEC whose keys
//! are all one core's runs there at once (`at_once`), in the batch of its connection if that is another
//! core (`away`). Any other, and one that takes longer, is a task (`exec`): it locks all keys that the
//! queued commands name, and those that are watched, on all cores (`claims`); asks whether a watched
//! one was touched (`watching`); and runs the commands one after another (`inner`) under these locks, but
//! those of other cores together, if they are few (`parts`).
//! A command that does not name all of its keys makes it lock all keys.
//! docs/design/0024-transaction-context.md.
//!
//! ```text
//! MULTI   SET a 1   GET b   EXEC
//!   +OK   +QUEUED   +QUEUED   locks of a and b | clean? | SET | GET | replies, in one array
//! ```
//! Not here: how a shard knows what was touched. See `keyspace::watch`.

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
