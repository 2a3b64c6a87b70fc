//! Busy transactions: they hold their locks for so long that no claim should wait for them.
//!
//! A command that waits for one of their keys is notified with an error line, and decides: if it
//! has changed nothing, it ends with that line; otherwise it keeps waiting. Nothing else changes: a
//! busy transaction keeps its locks, and compatible claims beside it are granted.
//!
//! Invariant (`check_invariants`, with those of the table):
//! - B1: a busy transaction holds a lock here, and is listed once.

use super::{LockTable, Notify, TxId};

impl LockTable {
    /// Marks `tx`, which holds locks here, as busy; `line` is the error for others. Returns the
    /// claims that wait for it now.
    ///
    /// Cost: a look at each waiting claim.
    pub fn note_busy(&mut self, tx: TxId, line: &'static str) -> Vec<Notify> {
        assert!(self.granted.contains_key(&tx), "B1: {tx} holds nothing");
        if self.busy.iter().any(|(busy, _)| *busy == tx) {
            return Vec::new();
        }
        self.busy.push((tx, line));
        let stuck = self.waiting.iter().filter(|waiting| self.waits_for(tx, &waiting.claim));
        stuck.map(|waiting| waiting.notify).chain(self.watches_of(tx)).collect()
    }

    /// The error with which `tx`, which waits here, must end: a busy transaction holds some of its
    /// keys.
    #[must_use]
    pub fn why_stuck(&self, tx: TxId) -> Option<&'static str> {
        if self.busy.is_empty() {
            return None;
        }
        let waiting = self.waiting.iter().rev().find(|waiting| waiting.tx == tx);
        let is_ahead = |holder: TxId| match waiting {
            Some(waiting) => self.waits_for(holder, &waiting.claim),
            None => self.is_watched_by(tx, holder),
        };
        self.busy.iter().find(|(holder, _)| is_ahead(*holder)).map(|(_, line)| *line)
    }

    /// Forgets `tx`, which holds nothing any more.
    pub(super) fn forget_busy(&mut self, tx: TxId) {
        self.busy.retain(|(busy, _)| *busy != tx);
    }

    /// Checks B1.
    pub(super) fn check_busy(&self) {
        for (at, (tx, _)) in self.busy.iter().enumerate() {
            assert!(self.granted.contains_key(tx), "B1: {tx} is busy with nothing");
            assert!(
                self.busy[..at].iter().all(|(other, _)| other != tx),
                "B1: {tx} is there twice"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Access, Claim};
    use super::*;
    use crate::KeyList;
    use std::sync::Arc;

    fn keys(list: &[(u64, Access)]) -> Claim {
        Claim::Keys(list.to_vec())
    }

    // Waiters for a busy transaction are notified, whether they came before or after; others are
    // not.
    #[test]
    fn waiters_for_busy_keys_are_notified() {
        let mut locks = LockTable::default();
        assert!(locks.try_acquire(1, &keys(&[(1, Access::Exclusive)])));
        assert!(locks.try_acquire(2, &keys(&[(2, Access::Exclusive)])));
        assert!(!locks.acquire(3, keys(&[(1, Access::Shared)]), (0, 3)));
        assert!(!locks.acquire(4, keys(&[(2, Access::Shared)]), (0, 4)));
        assert_eq!(locks.why_stuck(3), None);
        assert_eq!(locks.note_busy(1, "why"), [(0, 3)]);
        assert_eq!(locks.note_busy(1, "why"), [], "they are told once");
        assert!(!locks.acquire(5, Claim::All(Access::Shared), (0, 5)));
        let why = [3, 4, 5, 6].map(|tx| locks.why_stuck(tx));
        assert_eq!(why, [Some("why"), None, Some("why"), None]);
        locks.check_invariants();
    }

    #[test] // Its later locks count, too.
    fn a_transaction_is_busy_until_it_ends() {
        let mut locks = LockTable::default();
        assert!(locks.try_acquire(1, &keys(&[(1, Access::Exclusive)])));
        assert_eq!(locks.note_busy(1, "why"), []);
        assert!(locks.widen_by(1, 7, Access::Exclusive));
        assert!(!locks.acquire(2, keys(&[(7, Access::Shared)]), (0, 2)));
        assert_eq!(locks.why_stuck(2), Some("why"));
        assert_eq!(locks.release(1), [(0, 2)]);
        assert!(!locks.acquire(3, keys(&[(7, Access::Exclusive)]), (0, 3)));
        assert_eq!(locks.why_stuck(3), None);
        locks.check_invariants();
    }

    // Claims of key lists always count as conflicting with each other, so lists are notified, too.
    #[test]
    fn locks_in_key_lists_become_busy_too() {
        let mut locks = LockTable::default();
        assert!(locks.try_acquire(1, &keys(&[(0, Access::Exclusive)])));
        assert!((1..200).all(|key| locks.widen_by(1, key, Access::Exclusive)));
        let mut others = KeyList::with_capacity(100);
        (1_000..1_100).for_each(|key| others.push(key));
        assert!(!locks.acquire(2, Claim::List(Arc::new(others), Access::Exclusive), (0, 2)));
        assert_eq!(locks.why_stuck(2), None);
        assert_eq!(locks.note_busy(1, "why"), [(0, 2)]);
        assert_eq!(locks.why_stuck(2), Some("why"));
        assert_eq!(locks.release(1), [(0, 2)]);
        locks.check_invariants();
    }

    #[test] // Readers pass a value being rebuilt, so only writers are notified.
    fn readers_pass_a_busy_reader() {
        let mut locks = LockTable::default();
        assert!(locks.try_acquire(1, &keys(&[(1, Access::Update)])));
        assert_eq!(locks.note_busy(1, "why"), []);
        assert!(locks.acquire(2, keys(&[(1, Access::Shared)]), (0, 2)));
        assert!(!locks.acquire(3, keys(&[(1, Access::Update)]), (0, 3)));
        assert_eq!(locks.why_stuck(3), Some("why"));
    }
}
