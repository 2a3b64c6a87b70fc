//! The queued CONFIG SETs, which core 0 applies one by one.

use std::collections::VecDeque;

/// Settings and their new values, as in the request.
pub(crate) type Pairs = Vec<(String, String)>;

/// A CONFIG SET. A task on core `from` waits for the result under `ticket`.
pub(crate) struct Change {
    pub(crate) pairs: Pairs,
    /// The core on which the task waits.
    pub(crate) from: usize,
    /// The ticket of the task.
    pub(crate) ticket: u64,
}

/// The queue of changes.
#[derive(Default)]
pub(crate) struct Changes {
    queue: VecDeque<Change>,
    /// True while a task is applying the changes.
    are_made: bool,
}

impl Changes {
    /// Queues a change. Returns true if no task is applying changes, so that the caller must start
    /// one.
    pub(crate) fn push(&mut self, change: Change) -> bool {
        self.queue.push_back(change);
        !std::mem::replace(&mut self.are_made, true)
    }

    /// Takes the next change. Without one, the task that applies the changes ends.
    pub(crate) fn next(&mut self) -> Option<Change> {
        let next = self.queue.pop_front();
        self.are_made = next.is_some();
        next
    }
}
