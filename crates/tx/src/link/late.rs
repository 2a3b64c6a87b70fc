//! Additional claims of a running transaction, on several cores: see `locks::late`.

use super::tickets::{AwaitedEvent, Pending};
use super::{Locked, Message, Tx};
use crate::CoreId;
use crate::locks::{Claim, Late, TxId};

impl Tx {
    /// Takes locks for a transaction that may take more later.
    pub(crate) async fn lock_open(&self, claims: Vec<(CoreId, Claim)>) -> Locked {
        let mut locked = self.lock_for(claims, Vec::new()).await;
        assert!(locked.is_granted(), "{} waits", locked.id());
        locked.open();
        locked
    }

    /// Calls `look` with a transaction's late locks on a core: either this core, or another one if
    /// the transaction is this core's.
    pub(crate) fn with_late<R>(
        &self,
        open: TxId,
        core: CoreId,
        look: impl FnOnce(Option<&Late>) -> R,
    ) -> R {
        debug_assert!(core < self.0.cores, "core={core} of {}", self.0.cores);
        if core == self.0.core {
            return look(self.0.home.borrow().locks.late(open));
        }
        look(self.0.late.borrow().get(&open).and_then(|late| late.get(&(core as u64))))
    }

    /// Records that a transaction of this core also holds this claim on another core.
    pub(crate) fn note_late(&self, open: TxId, core: CoreId, claim: Claim) {
        let mut late = self.0.late.borrow_mut();
        assert_ne!(core, self.0.core, "its own core knows what it has granted");
        late.entry(open).or_default().entry(core as u64).or_default().add(claim);
    }

    /// Forgets a transaction of this core that has ended.
    pub(crate) fn forget_late(&self, open: TxId) {
        self.0.late.borrow_mut().remove(&open);
    }

    pub(super) fn ask_more(&self, tx: TxId, core: CoreId, claim: Claim) -> Pending {
        let pending = self.open_ticket(AwaitedEvent::Lock);
        let (from, ticket) = (self.0.core, pending.ticket);
        self.post(core, Message::Widen { from, ticket, tx, claim });
        pending
    }

    /// Records that the running task has undone its changes.
    pub(crate) async fn note_undone(&self) {
        self.yield_now().await; // Otherwise the end of this step would record it as changed.
        self.0.changed.borrow_mut().remove(&self.0.running.get());
    }
}
