//! A run that begins at once, without locks, and becomes a task if it takes longer than its turn.
//!
//! Within a turn nobody comes between, as with point commands. So what works on keys of this core
//! only, which nobody holds, needs no lock until the turn ends: then it locks all that it has
//! touched and is going to touch, and nobody can have come between. docs/design/0024.
//!
//! ```text
//! begin_at_once | change a | change b |                        all done: no lock, no task, no mark
//! begin_at_once | change a | the slice is over | go_on | ...   locks of a and b; then the task
//! ```

use super::{Locked, Tx};
use crate::executor::TaskId;
use crate::locks::Claim;
use crate::transaction::{Scope, Transaction};
use std::future::Future;

/// Where the log and the data were when a run began. It does not outlive the turn.
#[derive(Clone, Copy, Debug)]
pub struct AtOnce {
    records: u64,
    changes: u64,
}

impl Tx {
    /// A run begins, on keys of this core that nobody holds: outside of all tasks.
    #[must_use]
    pub fn begin_at_once(&self) -> AtOnce {
        let mut home = self.home();
        AtOnce { records: home.shard.records_made(), changes: home.shard.changes() }
    }

    /// The rest of a run is a task, in the turn in which it began: under locks of all that it has
    /// touched or is going to. What it has recorded so far is part of its transaction.
    ///
    /// Panics if anybody holds some of it: then others could see the run half done.
    pub fn go_on<F: Future<Output = ()> + 'static>(
        &self,
        begun: AtOnce,
        claim: Claim,
        rest: impl FnOnce(Transaction) -> F,
    ) -> TaskId {
        let (core, task) = (self.core(), self.0.tasks.borrow().next_id());
        let writers = if claim.is_write() { vec![core] } else { Vec::new() };
        let mut locked = Locked::new(self, writers);
        let scope = Scope::of(vec![(core, claim.clone())], Some(locked.id()));
        locked.hold_for(task, claim, begun.records);
        if self.changes() != begun.changes {
            self.0.changed.borrow_mut().insert(task, ());
        }
        let spawned = self.spawn(rest(Transaction::new(self.within(scope), locked)));
        assert_eq!(spawned, task, "another task was given the locks");
        task
    }
}
