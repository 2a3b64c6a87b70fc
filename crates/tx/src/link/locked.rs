//! The locks that a task holds or has requested, and the transaction of its changes.

use super::message::When;
use super::tickets::Pending;
use super::{Message, Tx, downcast};
use crate::CoreId;
use crate::executor::TaskId;
use crate::locks::{Access, Claim, TxId};
use darter_keyspace::{Part, Work};

/// Locks that are held until this is dropped.
///
/// While the locks are held, the task's changes on any core are recorded as one transaction, if
/// they span several cores, or more keys than change in one turn.
#[must_use]
pub struct Locked {
    tx: Tx,
    pub(super) id: TxId,
    task: TaskId,
    pub(super) cores: Vec<CoreId>,
    /// Cores that have been asked and have not answered yet.
    pub(super) asked: Vec<CoreId>,
    /// The cores with a part in the transaction, if it is recorded as one.
    writers: Vec<CoreId>,
    has_begun: bool,
    /// The changes may be undone.
    is_open: bool,
    /// The locks belong to a transaction, which releases them.
    is_of_transaction: bool,
    /// Set for locks that serve blocked calls: their release causes no further serving. Until the
    /// locks are granted, it holds the ticket.
    serves: Option<Option<Pending>>,
}

impl Locked {
    pub(super) fn new(tx: &Tx, writers: Vec<CoreId>) -> Self {
        Self {
            tx: tx.clone(),
            id: tx.next_tx(),
            task: tx.0.running.get(),
            cores: Vec::new(),
            asked: Vec::new(),
            writers,
            has_begun: false,
            is_open: false,
            is_of_transaction: false,
            serves: None,
        }
    }

    /// Locks for serving the calls that are blocked on keys of this core. If `granted` is given, it
    /// must still be completed.
    pub(super) fn to_serve(tx: &Tx, id: TxId, granted: Option<Pending>) -> Self {
        let mut locked = Self::new(tx, Vec::new());
        locked.id = id;
        let list = if granted.is_some() { &mut locked.asked } else { &mut locked.cores };
        list.push(tx.core());
        locked.serves = Some(granted);
        locked
    }

    /// From now on, these locks serve the calls that are blocked on keys of this core; they may
    /// span several cores.
    pub(super) fn serve(&mut self) {
        let here = self.tx.core();
        assert!(self.cores.contains(&here), "{:?} are locked, and not {here}", self.cores);
        // Locks of other cores are released first, from the end.
        self.cores.sort_by_key(|core| *core != here);
        self.has_begun = !self.writers.is_empty();
        self.serves = Some(None);
    }

    /// True when nothing is awaited.
    pub(crate) fn is_granted(&self) -> bool {
        !matches!(self.serves, Some(Some(_)))
    }

    /// Waits for the locks of the keys to serve. From now on the running task holds them.
    pub(crate) async fn granted(&mut self) {
        assert!(self.serves.is_some(), "these locks were granted as they were taken");
        self.task = self.tx.0.running.get();
        if let Some(Some(granted)) = &mut self.serves {
            granted.await;
            self.serves = Some(None);
            self.cores.append(&mut self.asked);
        }
    }

    /// The handle of the holder.
    pub(crate) fn handle(&self) -> &Tx {
        &self.tx
    }

    /// The transaction that holds them.
    #[must_use]
    pub fn id(&self) -> TxId {
        self.id
    }

    /// Records that this core has granted something, which must be released at the end.
    pub(crate) fn note_core(&mut self, core: CoreId) {
        assert!(!self.is_of_transaction, "what a transaction's command takes is not its own");
        if !self.cores.contains(&core) {
            self.cores.push(core);
        }
    }

    /// Records that a core has granted its claim.
    pub(super) fn note_granted(&mut self, core: CoreId) {
        self.asked.clear();
        self.cores.push(core);
    }

    /// Requests more from a core, without waiting there.
    pub(crate) fn ask_more(
        &mut self,
        core: CoreId,
        claim: Claim,
    ) -> impl Future<Output = bool> + use<> {
        assert!(self.has_begun, "transaction {} has not begun", self.id);
        assert!(!self.asked.contains(&core), "core {core} is asked twice");
        if !self.cores.contains(&core) {
            self.asked.push(core);
        }
        let answer = self.tx.ask_more(self.id, core, claim);
        async move { downcast(answer.await) }
    }

    /// Handles a core's answer.
    pub(crate) fn hear_more(&mut self, core: CoreId, is_granted: bool) {
        self.asked.retain(|asked| *asked != core);
        if is_granted {
            self.note_core(core);
        }
    }

    /// Locks keys of another core, too, without waiting. Both are one transaction with its own
    /// number, because several may follow each other.
    pub(crate) async fn join(&mut self, core: CoreId, claim: Claim) -> bool {
        assert!(
            self.writers.is_empty() && self.cores == [self.tx.core()],
            "it joins one at a time"
        );
        assert_ne!(core, self.tx.core(), "it has a claim of its own core");
        let id = self.tx.next_tx();
        let pending = self.tx.ask_core(id, core, claim, When::AtOnce);
        if !downcast::<bool>(pending.await) {
            return false;
        }
        self.tx.home().locks.rename(self.id, id);
        self.id = id;
        self.writers = vec![self.tx.core(), core];
        self.cores.push(core);
        self.begin();
        true
    }

    /// Releases the joined locks; the transaction ends.
    pub(crate) fn part_from_others(&mut self) {
        let Some(part) = self.part() else { return };
        for other in self.cores.split_off(1) {
            self.unlock(other);
        }
        self.tx.end_part_here(part);
        self.tx.0.works.borrow_mut().remove(&self.task);
        self.writers.clear();
        self.has_begun = false;
    }

    pub(super) fn of_transaction(tx: &Tx) -> Self {
        let mut locked = Self::new(tx, Vec::new());
        locked.is_of_transaction = true;
        locked
    }

    /// All locks are granted: from now on, the task's changes belong to the transaction.
    pub(super) fn begin(&mut self) {
        assert!(self.asked.is_empty(), "not all locks are granted: {:?}", self.asked);
        assert!(!self.has_begun, "transaction {} begins twice", self.id);
        self.has_begun = true;
        if let Some(part) = self.part() {
            self.work_for(Work::Part(part));
        }
    }

    /// Locks keys of this core that are not locked.
    pub(super) fn take_first(&mut self, claim: Claim) {
        // As with a point command, this precedes waiting claims.
        let granted = self.tx.home().locks.take_first(self.id, claim);
        assert!(granted, "somebody holds what transaction {} has touched", self.id);
        self.cores.push(self.tx.core());
    }

    /// Makes a task that starts later the holder of the locks on this core. Records from `since` on
    /// belong to its transaction.
    pub(super) fn hold_for(&mut self, task: TaskId, since: u64) {
        self.begin_for(task);
        if let Some(part) = self.part() {
            self.tx.home().shard.mark_since(since, part);
            self.tx.0.works.borrow_mut().insert(task, Work::Part(part));
        }
    }

    /// [`Locked::hold_for`] for changes that may be undone.
    pub(super) fn hold_open_for(&mut self, task: TaskId) {
        assert!(self.writers.is_empty(), "{} is recorded otherwise", self.id);
        self.begin_for(task);
        self.is_open = true;
        self.tx.0.works.borrow_mut().insert(task, Work::Open(self.id));
    }

    fn begin_for(&mut self, task: TaskId) {
        assert_eq!(self.cores, [self.tx.core()], "its keys are this core's");
        (self.task, self.has_begun) = (task, true);
    }

    /// From now on, the task's changes may be undone.
    pub(super) fn open(&mut self) {
        assert!(self.has_begun && self.writers.is_empty(), "{} is recorded otherwise", self.id);
        self.is_open = true;
        self.work_for(Work::Open(self.id));
    }

    /// Ends the period in which changes may be undone. Returns the cores on which something may
    /// have changed.
    pub(crate) fn close(&mut self) -> Vec<CoreId> {
        assert!(self.is_open, "{} was not begun to be undone", self.id);
        self.stop_work();
        self.cores.clone()
    }

    fn work_for(&self, work: Work) {
        let other = self.tx.0.works.borrow_mut().insert(self.task, work);
        assert_eq!(other, None, "a task has one transaction at a time");
        self.tx.work_for(work);
    }

    fn stop_work(&mut self) {
        self.is_open = false;
        self.tx.0.works.borrow_mut().remove(&self.task);
        self.tx.work_for(Work::Alone);
    }

    /// The transaction that all changes are recorded as, if any.
    pub(super) fn whole(&self) -> Option<Part> {
        let parts = self.writers.len();
        (parts > 0).then_some(Part { transaction: self.id, parts })
    }

    fn part(&self) -> Option<Part> {
        self.whole().filter(|_| self.has_begun)
    }

    fn part_on(&self, core: CoreId) -> Option<Part> {
        self.part().filter(|_| self.writers.contains(&core))
    }

    /// Releases all locks except `key` of `core`, which must be held. A transaction keeps all.
    pub fn keep_only(&mut self, core: CoreId, key: u64, access: Access) {
        if self.is_of_transaction {
            return;
        }
        assert!(self.cores.contains(&core), "core={core} is not locked");
        for other in std::mem::replace(&mut self.cores, vec![core]) {
            match (other == core, other == self.tx.core()) {
                (true, _) => self.narrow(core, Some((key, access))),
                (false, true) => self.tx.release_here(self.id, self.part_on(other)),
                (false, false) => self.unlock(other),
            }
        }
    }

    /// Releases all locks except `key` of `core`, which must be held, in order to build its value
    /// from the other keys, the sources. Their cores are notified when the build ends. A
    /// transaction keeps all.
    pub fn keep_build(&mut self, core: CoreId, key: u64) {
        if self.is_of_transaction {
            return;
        }
        assert!(self.cores.contains(&core), "core={core} is not locked");
        for other in &self.cores {
            self.narrow(*other, (*other == core).then_some((key, Access::Build)));
        }
    }

    /// The number of a build under these locks, for its sources. A transaction keeps its sources
    /// locked.
    #[must_use]
    pub fn build(&self) -> Option<TxId> {
        (!self.is_of_transaction).then_some(self.id)
    }

    fn narrow(&self, core: CoreId, kept: Option<(u64, Access)>) {
        if core == self.tx.core() {
            self.tx.narrow_here(self.id, kept);
        } else {
            self.tx.post(core, Message::Narrow { tx: self.id, kept });
        }
    }

    fn unlock(&self, core: CoreId) {
        self.tx.post(core, Message::Unlock { tx: self.id, part: self.part_on(core) });
    }

    pub(super) fn release(&mut self) {
        if self.is_open {
            self.stop_work();
        }
        for core in std::mem::take(&mut self.asked) {
            if core == self.tx.core() {
                self.tx.withdraw_here(self.id);
            } else {
                self.tx.post(core, Message::Withdraw { tx: self.id });
            }
        }
        for core in std::mem::take(&mut self.cores) {
            if core == self.tx.core() && self.serves.is_some() {
                self.tx.release_served(self.id);
            } else if core == self.tx.core() {
                self.tx.release_here(self.id, self.part_on(core));
            } else {
                self.unlock(core);
            }
        }
        if self.part().is_some() {
            self.stop_work();
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.release();
    }
}
