//! The open transactions of a shard: running, undone, committed. See `kept`.

use super::{Shard, ShardStats};
use crate::effect::Work;
use crate::log::kept::{Counts, Step};
use crate::{Key, Part};

impl Shard {
    /// Attributes the following changes to this transaction.
    pub fn work_for(&mut self, work: Work) {
        self.rest();
        match work {
            Work::Open(transaction) => self.work_open(transaction),
            Work::Part(part) => self.set_part(Some(part)),
            Work::Alone => self.set_part(None),
        }
    }

    fn set_part(&mut self, part: Option<Part>) {
        if let Some(log) = self.databases.log() {
            log.set_part(part);
        }
    }

    /// True while an open transaction is running.
    pub(super) fn is_open(&mut self) -> bool {
        self.databases.log().as_ref().is_some_and(|log| log.is_open())
    }

    fn work_open(&mut self, transaction: u64) {
        self.set_part(None);
        self.before = self.counts();
        let kept = self.kept.remove(&transaction).unwrap_or_default();
        self.log().begin_open(transaction, kept);
    }

    /// Suspends the running open transaction, if there is one.
    fn rest(&mut self) {
        if !self.is_open() {
            return;
        }
        let after = self.counts();
        let Some(log) = self.databases.log() else { return };
        let Some((transaction, mut kept)) = log.end_open() else { return };
        self.drop_unneeded();
        kept.counts.add(&self.before, &after);
        if !kept.is_empty() {
            let other = self.kept.insert(transaction, kept);
            assert!(other.is_none(), "transaction {transaction} keeps twice");
        }
    }

    fn counts(&self) -> Counts {
        let ShardStats { hits, misses } = self.stats;
        let (changes, expired) = (self.databases.changes(), self.databases.expired());
        Counts { changes, expired, hits, misses }
    }

    /// True while nothing may expire: new values may still be undone, and undone values would have
    /// expired through the change.
    pub(super) fn holds_death(&self) -> bool {
        self.kept.values().any(|kept| kept.steps_len() > 0)
    }

    /// The number of permanent changes: without those of open or undone transactions.
    #[must_use]
    pub fn lasting_changes(&self) -> u64 {
        let open: u64 = self.kept.values().map(|kept| kept.counts.changes).sum();
        self.changes() - self.undone.changes - open
    }

    /// True if the open transaction has changed something on this shard.
    #[must_use]
    pub fn has_kept(&self, transaction: u64) -> bool {
        self.kept.get(&transaction).is_some_and(|kept| kept.counts.changes > 0)
    }

    /// Undoes about `most` changes of an open transaction on this shard. Returns true while more
    /// are left. Cost: O(most).
    pub fn undo(&mut self, transaction: u64, most: usize) -> bool {
        self.rest();
        let Some(mut kept) = self.kept.remove(&transaction) else { return false };
        for _ in 0..most {
            match kept.pop() {
                Some(step) => {
                    let before = self.changes();
                    self.undo_step(step);
                    self.undone.changes += self.changes() - before;
                }
                None => {
                    self.undone.add(&Counts::default(), &kept.counts);
                    self.stats.hits -= kept.counts.hits;
                    self.stats.misses -= kept.counts.misses;
                    return false;
                }
            }
        }
        self.kept.insert(transaction, kept);
        true
    }

    fn undo_step(&mut self, step: Step) {
        match step {
            Step::Key(mut step) => {
                let db = self.db_mut(step.db);
                db.restore(&mut step);
                let key = Key::new(&step.name);
                let there = db.get(&key).map(|found| found.deadline());
                if let Some(log) = self.databases.log() {
                    log.watches.hear_undone(step.db, &step.name, there);
                }
            }
            Step::Swap([one, other]) => {
                let log = self.databases.take_log();
                self.exchange(one, other);
                self.databases.give_log(log);
            }
            Step::Flush(db, mut contents) => self.db_mut(db).put_contents(&mut contents),
            Step::FlushAll(mut cleared) => self.databases.put_back(&mut cleared),
        }
    }

    /// Publishes a portion of the records of an open transaction, which has parts on `parts`
    /// shards, and notifies the watchers of touched keys. Returns true while more is left.
    pub fn commit(&mut self, transaction: u64, parts: usize) -> bool {
        self.rest();
        let kept = self.kept.remove(&transaction);
        let mut kept = kept.unwrap_or_default();
        let part = kept.mark(transaction, parts);
        let Some(log) = self.databases.log() else { return false };
        if log.let_out(&mut kept, part) {
            self.kept.insert(transaction, kept);
            return true;
        }
        if let Some(part) = part {
            log.end_part(part);
        }
        false
    }

    /// Ends a transaction or a build. If the transaction was open and neither committed nor undone,
    /// its changes stay.
    pub fn forget(&mut self, transaction: u64) {
        self.end_build(transaction);
        if self.kept.contains_key(&transaction) {
            while self.commit(transaction, 1) {}
        }
    }

    /// Asserts the invariants of the copies. Cost: O(kept): for tests.
    pub fn check_kept(&self) {
        self.kept.values().for_each(|kept| kept.check_invariants());
    }
}
