//! Queued CONFIG SETs, which core 0 applies one after the other.

use std::collections::VecDeque;

/// Names and values, as given.
pub(crate) type Pairs = Vec<(String, String)>;

/// A CONFIG SET, with the core and the ticket that wait for its result.
pub(crate) struct Change {
    pub(crate) pairs: Pairs,
    /// The core that waits.
    pub(crate) from: usize,
    /// Its ticket.
    pub(crate) ticket: u64,
}

/// The queue.
#[derive(Default)]
pub(crate) struct Changes {
    queue: VecDeque<Change>,
    /// Whether a task is applying the changes.
    are_made: bool,
}

impl Changes {
    /// Queues a change. True if no task applies changes: the caller starts one.
    pub(crate) fn push(&mut self, change: Change) -> bool {
        self.queue.push_back(change);
        !std::mem::replace(&mut self.are_made, true)
    }

    /// The next change, for the task that applies them. Without one the task ends.
    pub(crate) fn next(&mut self) -> Option<Change> {
        let next = self.queue.pop_front();
        self.are_made = next.is_some();
        next
    }
}
