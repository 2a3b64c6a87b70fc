//! CONFIG SETs that wait their turn: core 0 applies one after the other.

use std::collections::VecDeque;

/// Names and values, as given.
pub(crate) type Pairs = Vec<(String, String)>;

/// One CONFIG SET, and who waits for its result.
pub(crate) struct Change {
    pub(crate) pairs: Pairs,
    /// The core that asked.
    pub(crate) from: usize,
    /// Its ticket.
    pub(crate) ticket: u64,
}

/// Those that wait.
#[derive(Default)]
pub(crate) struct Changes {
    queue: VecDeque<Change>,
    /// A task is applying them.
    are_made: bool,
}

impl Changes {
    /// Queues one more. True when no task applies them: start one.
    pub(crate) fn ask(&mut self, change: Change) -> bool {
        self.queue.push_back(change);
        !std::mem::replace(&mut self.are_made, true)
    }

    /// The next one, for the task that applies them. It ends when there is none.
    pub(crate) fn next(&mut self) -> Option<Change> {
        let next = self.queue.pop_front();
        self.are_made = next.is_some();
        next
    }
}
