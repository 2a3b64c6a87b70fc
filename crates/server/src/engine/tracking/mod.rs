//! Client tracking: a client that caches values gets an invalidation when one of them changes.
//!
//! ```text
//! a client reads a key --> the key's core records the client as a reader, in the same step
//! the key is touched ----> its core removes all readers ---> the readers' cores: deliveries
//! any key is touched ----> its core matches it with BCAST prefixes, then -> their cores
//! ```
//! Two rules make this correct (docs/design/0030-tracking.md). First, messages between two cores
//! stay in order. So a client that reads a value after a change gets the invalidation before that
//! value, or right after it. Second, on the client's core an invalidation is sent after all pending
//! replies, and after the reply of a running task. So a value that was read before the change is
//! sent before the invalidation.
//!
//! Not here: the state (`state::tracking`), and the commands (`admin::tracking`).

mod change;
mod deliver;
mod remember;
pub(super) mod served;
mod touched;

pub(crate) use change::Tracks;
