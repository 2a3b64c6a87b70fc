//! Client tracking: clients that keep copies of values are told when these are no longer valid.
//!
//! ```text
//! read of a key -----> its core remembers the client, in the step of the read
//! touch of the key --> its core forgets all who have read it ---> their cores: deliveries -> pushes
//! touch of any key --> matched with the prefixes of BCAST, gathered in a turn ---> the same
//! ```
//! Two rules make that enough (docs/design/0030-tracking.md). What a core sends to another is in one
//! order, so a client that reads a value after a touch is told of the touch before or right after
//! that. And on the client's core an invalidation goes behind all that the client is owed, and behind
//! the reply of a task that runs for it: whatever was read before the touch comes before it.
//!
//! Not here: the state (`state::tracking`), and the commands (`admin::tracking`).

mod change;
mod deliver;
mod remember;
pub(super) mod served;
mod touched;

pub(crate) use change::Tracks;
