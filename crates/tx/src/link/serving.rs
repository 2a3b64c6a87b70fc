//! Locks that are kept in order to serve blocked calls: see `waited`.

use super::Tx;
use super::locked::Locked;
use super::tickets::{AwaitedEvent, Pending};
use crate::CoreId;
use crate::locks::{Access, Claim, TxId};
use crate::waited::Serving;
use darter_keyspace::{Part, Work};

impl Tx {
    /// Locks keys of this core that a command has just changed, before all waiting claims, so that
    /// blocked calls are served next. `names` are as of [`lock_key`](crate::lock_key).
    pub fn serve_keys(&self, names: &[u64]) {
        let claim = Claim::Keys(names.iter().map(|name| (*name, Access::Exclusive)).collect());
        let (id, pending) = (self.next_tx(), self.open_ticket(AwaitedEvent::Lock));
        let notify = (self.0.core, pending.ticket);
        let is_granted = self.0.home.borrow_mut().locks.acquire_first(id, claim.clone(), notify);
        self.keep_to_serve(id, claim, is_granted, pending);
    }

    /// Creates a serving from locks on keys of this core (`claim`), and perhaps on `other` on
    /// another core. The running task has taken the locks, and serves the calls.
    pub fn serve_under(&self, mut locked: Locked, claim: Claim, other: (CoreId, u64)) -> Serving {
        locked.serve();
        if other.0 == self.core() {
            return Serving::new(locked, claim);
        }
        Serving::with_other(locked, claim, other)
    }

    /// The next keys to be served.
    #[must_use]
    pub fn next_serving(&self) -> Option<Serving> {
        self.0.servings.borrow_mut().pop_front()
    }

    /// True if a serving is waiting.
    #[must_use]
    pub fn has_serving(&self) -> bool {
        !self.0.servings.borrow().is_empty()
    }

    /// Keeps `claims` of the locks of `tx` in order to serve calls blocked on their keys, and
    /// releases the rest.
    pub(super) fn hand_over(&self, tx: TxId, claims: Vec<Claim>) {
        let (mut asked, mut kept) = (Vec::new(), Vec::new());
        for claim in claims {
            let (id, pending) = (self.next_tx(), self.open_ticket(AwaitedEvent::Lock));
            asked.push((id, claim.clone(), (self.0.core, pending.ticket)));
            kept.push((id, claim, pending));
        }
        let (are_granted, granted) = self.0.home.borrow_mut().locks.hand_over(tx, asked);
        for ((id, claim, pending), is_granted) in kept.into_iter().zip(are_granted) {
            self.keep_to_serve(id, claim, is_granted, pending);
        }
        self.notify(granted, true);
    }

    fn keep_to_serve(&self, id: TxId, claim: Claim, is_granted: bool, pending: Pending) {
        if is_granted {
            self.0.tickets.borrow_mut().remove(&pending.ticket);
        }
        let granted = (!is_granted).then_some(pending);
        let serving = Serving::new(Locked::to_serve(self, id, granted), claim);
        self.0.servings.borrow_mut().push_back(serving);
    }

    /// Releases the locks of a serving.
    pub(super) fn release_served(&self, tx: TxId) {
        let granted = self.0.home.borrow_mut().locks.release(tx);
        self.notify(granted, true);
    }

    /// Ends this core's part of a transaction, but keeps its locks.
    pub(super) fn end_part_here(&self, part: Part) {
        let mut home = self.0.home.borrow_mut();
        home.compare_part();
        home.shard.end_part(part);
        home.shard.work_for(Work::Alone);
    }
}
