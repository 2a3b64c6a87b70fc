//! Client tracking: a client that caches values gets an invalidation when one of them changes.
//!
//! ```text
//! read of a key -----> its core remembers the client, in the step of the read
//! touch of the key --> its core forgets all who have read it ---> their cores: deliveries -> pushes
//! touch of any key --> matched with the prefixes of BCAST, gathered in a turn ---> the same
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
