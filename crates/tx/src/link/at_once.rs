//! Runs that start at once, without locks, and become tasks if they take longer than a turn.
//!
//! Within a turn no other command intervenes, as with point commands. So work on unlocked keys of
//! this core needs no locks until the turn ends. Then it locks all keys that it has touched or will
//! touch; no other command can have intervened. See docs/design/0024.
//!
//! ```text
//! begin_at_once | change a | change b |                        all done: no lock, no task, no mark
//! begin_at_once | change a | the slice is over | go_on | ...   locks of a and b; then the task
//! ```
//! A run that may be undone ([`Tx::open_at_once`]) is an open transaction from its first change on.
//! It ends within its turn, or continues as a transaction that may take more locks.

use super::{Locked, Tx};
use crate::executor::TaskId;
use crate::locks::{Access, Claim, TxId};
use crate::transaction::{Scope, Transaction};
use darter_keyspace::Work;
use std::future::Future;

/// The state of the log and the data when a run started. Only valid during that turn.
#[derive(Clone, Copy, Debug)]
pub struct AtOnce {
    records: u64,
    changes: u64,
}

/// A mark in a run; the changes after it may be undone. Only valid during that turn.
#[must_use]
#[derive(Debug)]
pub struct OpenAtOnce {
    id: TxId,
    changes: u64,
}

impl Tx {
    /// Starts a run on unlocked keys of this core, outside of all tasks.
    #[must_use]
    pub fn begin_at_once(&self) -> AtOnce {
        let mut home = self.home();
        AtOnce { records: home.shard.records_made(), changes: home.shard.changes() }
    }

    /// Continues a run as a task, in the turn in which the run started, under locks of all keys
    /// that it has touched or will touch. Its records so far belong to its transaction.
    ///
    /// Panics if one of the keys is locked, because others could then see the run half done.
    pub fn go_on<F: Future<Output = ()> + 'static>(
        &self,
        begun: AtOnce,
        claim: Claim,
        rest: impl FnOnce(Transaction) -> F,
    ) -> TaskId {
        let writers = if claim.is_write() { vec![self.core()] } else { Vec::new() };
        let mut locked = Locked::new(self, writers);
        locked.take_first(claim.clone());
        let task = self.0.tasks.borrow().next_id();
        let scope = Scope::of(vec![(self.core(), claim)], Some(locked.id()));
        locked.hold_for(task, begun.records);
        self.note_changed(task, begun.changes);
        self.spawn_as(task, rest(Transaction::new(self.within(scope), locked)))
    }

    /// Attributes the changes made since `before` to this task, which starts later.
    fn note_changed(&self, task: TaskId, before: u64) {
        if self.changes() != before {
            self.0.changed.borrow_mut().insert(task, ());
        }
    }

    fn spawn_as(&self, task: TaskId, rest: impl Future<Output = ()> + 'static) -> TaskId {
        let spawned = self.spawn(rest);
        assert_eq!(spawned, task, "another task was given the locks");
        task
    }

    /// Makes later changes on this core, outside of all tasks, undoable until they are committed,
    /// undone or handed to a task in this turn. The keys must be this core's, and not locked.
    pub fn open_at_once(&self) -> OpenAtOnce {
        let (id, changes) = (self.next_tx(), self.changes());
        self.0.home.borrow_mut().shard.work_for(Work::Open(id));
        OpenAtOnce { id, changes }
    }

    /// Commits the changes made since: publishes their records, and notifies watchers. Cost: that
    /// of the changes.
    pub fn commit_at_once(&self, open: OpenAtOnce) {
        let mut home = self.home();
        while home.shard.commit(open.id, 1) {}
    }

    /// Undoes the changes made since, without notifying anyone. Cost: that of the changes.
    pub fn undo_at_once(&self, open: OpenAtOnce) {
        let mut home = self.home();
        while home.shard.undo(open.id, usize::MAX) {}
    }

    /// Continues a run as a task, in the turn in which the run started, under locks of these keys
    /// of this core, which are all that it has touched. It may take more locks, and be undone with
    /// everything it has changed so far (nothing, if it is not open yet).
    ///
    /// Panics if one of the keys is locked, as [`Tx::go_on`].
    pub fn go_on_open<F: Future<Output = ()> + 'static>(
        &self,
        open: Option<OpenAtOnce>,
        keys: Vec<(u64, Access)>,
        rest: impl FnOnce(Transaction) -> F,
    ) -> TaskId {
        let task = self.0.tasks.borrow().next_id();
        let mut locked = Locked::new(self, Vec::new());
        if let Some(open) = open {
            self.0.home.borrow_mut().shard.work_for(Work::Alone);
            locked.id = open.id;
            self.note_changed(task, open.changes);
        }
        let claim = Claim::Keys(keys);
        let scope = Scope::of_open(vec![(self.core(), claim.clone())], locked.id);
        locked.take_first(claim);
        locked.hold_open_for(task);
        self.spawn_as(task, rest(Transaction::new(self.within(scope), locked)))
    }
}
