//! Waiting until some transactions have ended, without a claim: see `link::acquire`.
//!
//! A watch is not a claim: it holds nothing, and no claim waits for it.
//!
//! Invariant (`check_invariants` asserts it, with those of the table):
//! - W1: a watch waits for at least one transaction, and each of these holds or waits for a lock
//!   here.

use super::{Access, Claim, LockTable, Notify, TxId, blocks};

/// A watch: a wait for the end of some transactions.
pub(super) struct Watch {
    tx: TxId,
    asked: Access,
    ahead: Vec<TxId>,
    notify: Notify,
}

impl LockTable {
    /// Waits for the end of the transactions that currently conflict with `claim`, a claim of all
    /// keys; then a release returns `notify`. Returns true if there are none.
    ///
    /// Cost: a look at each held and waiting claim.
    pub fn watch(&mut self, tx: TxId, claim: &Claim, notify: Notify) -> bool {
        let Claim::All(asked) = *claim else { unreachable!("{claim:?} waits in the queue") };
        let queued = self.waiting.iter().filter(|waiting| self.precedes(&waiting.claim, claim));
        let mut ahead: Vec<TxId> = queued.map(|waiting| waiting.tx).collect();
        ahead.extend(self.granted.keys().copied().filter(|held| self.waits_for(*held, claim)));
        let is_free = ahead.is_empty();
        if !is_free {
            self.watches.push(Watch { tx, asked, ahead, notify });
            self.check_if_few();
        }
        is_free
    }

    /// Removes the watch of `tx`, if any; returns its receiver.
    pub(super) fn drop_watch(&mut self, tx: TxId) -> Option<Notify> {
        let place = self.watches.iter().position(|watch| watch.tx == tx);
        place.map(|place| self.watches.swap_remove(place).notify)
    }

    /// Updates the watches after `tx` has ended: it holds nothing and waits for nothing.
    pub(super) fn note_ended(&mut self, tx: TxId) {
        self.watches.iter_mut().for_each(|watch| watch.ahead.retain(|ahead| *ahead != tx));
    }

    /// Updates the watches after the holder `tx` got another number.
    pub(super) fn note_renamed(&mut self, tx: TxId, next: TxId) {
        let ahead = self.watches.iter_mut().flat_map(|watch| &mut watch.ahead);
        ahead.filter(|ahead| **ahead == tx).for_each(|ahead| *ahead = next);
    }

    /// Updates the watches after the holder `tx` has released all but one key.
    pub(super) fn note_narrowed(&mut self, tx: TxId, access: Access) {
        let passing = self.watches.iter_mut().filter(|watch| !blocks(access, watch.asked));
        passing.for_each(|watch| watch.ahead.retain(|ahead| *ahead != tx));
    }

    /// Removes the watches that have ended. Returns their receivers.
    pub(super) fn take_ended_watches(&mut self) -> Vec<Notify> {
        let over = self.watches.extract_if(.., |watch| watch.ahead.is_empty());
        over.map(|watch| watch.notify).collect()
    }

    /// The receivers of watches that wait for `holder`.
    pub(super) fn watches_of(&self, holder: TxId) -> impl Iterator<Item = Notify> {
        let watches = self.watches.iter().filter(move |watch| watch.ahead.contains(&holder));
        watches.map(|watch| watch.notify)
    }

    /// True if `tx` has a watch that waits for `holder`.
    pub(super) fn is_watched_by(&self, tx: TxId, holder: TxId) -> bool {
        self.watches.iter().any(|watch| watch.tx == tx && watch.ahead.contains(&holder))
    }

    /// Checks W1.
    pub(super) fn check_watches(&self) {
        for Watch { tx, ahead, .. } in &self.watches {
            let is_here = |one: &TxId| {
                self.granted.contains_key(one)
                    || self.waiting.iter().any(|waiting| waiting.tx == *one)
            };
            assert!(ahead.iter().all(is_here), "W1: {tx} waits for an ended one of {ahead:?}");
            assert!(!ahead.is_empty(), "W1: {tx} waits for none");
        }
    }
}
