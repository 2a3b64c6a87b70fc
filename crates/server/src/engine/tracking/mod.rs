//! Client tracking: clients that cache values get an invalidation when a value changes.
//!
//! ```text
//! read of a key -----> its core remembers the client, in the step of the read
//! touch of the key --> its core forgets all who have read it ---> their cores: deliveries -> pushes
//! touch of any key --> matched with the prefixes of BCAST, gathered in a turn ---> the same
//! ```
//! Two rules make that correct (docs/design/0030-tracking.md). Messages between two cores are
//! ordered, so a client that reads a value after a touch gets the invalidation before, or right
//! after, the value. On the client's core an invalidation follows all pending replies, and the
//! reply of a running task, so a value that was read before the touch comes before it.
//!
//! Not here: the state (`state::tracking`), and the commands (`admin::tracking`).

mod change;
mod deliver;
mod remember;
pub(super) mod served;
mod touched;

pub(crate) use change::Tracks;
