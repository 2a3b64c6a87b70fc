//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! Between MULTI and EXEC requests are admitted and queued (`queued`). A short EXEC with all keys
//! on one core runs there at once (`at_once`), in the connection's batch if that is another core
//! (`away`). Any other EXEC is a task (`exec`). It locks the keys of all queued commands, and the
//! watched keys, on all cores (`claims`). It asks whether a watched key was touched (`watching`).
//! Then it runs the commands one after another (`inner`); few commands of other cores run together
//! (`parts`). A command that does not name all its keys makes EXEC lock all keys. See
//! docs/design/0024-transaction-context.md.
//!
//! ```text
//! MULTI   SET a 1   GET b   EXEC
//!   +OK   +QUEUED   +QUEUED   locks of a and b | clean? | SET | GET | replies, in one array
//! ```
//! Not here: the watches of a shard. See `keyspace::watch`.

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
