//! Acquiring locks: on all cores at once if they are free, otherwise core by core, in ascending
//! order, waiting in each core's queue.
//!
//! A claim of all keys conflicts with every writer. If it held one core while waiting on another,
//! or queued, then a single long-held key would stop all writes. So it holds nothing while it
//! waits: all cores are tried at once, and after a refusal it *watches* the conflicting
//! transactions until they have ended (`locks::watch`). Later claims overtake it.
//!
//! Overlapping claims could starve it. So every [`TRIES`] refusals it queues on the cores like any
//! other claim, for at most [`QUEUED_MS`], and then leaves the queues again. It is granted there if
//! the claims before it end within that time; later claims wait for it no longer than that.
//!
//! A claim of all keys for a [`Access::Cut`] passes builds, unless a source of one has changed. If it
//! has been refused twice, it waits for builds as well.
//!
//! ```text
//! try | watch | try | watch | try | watch | try | queue, at most 10 ms | watch | try ..
//! ```

use super::message::When;
use super::tickets::{AwaitedEvent, Pending};
use super::{Locked, Message, Tx, downcast};
use crate::CoreId;
use crate::locks::{Access, Claim, TxId};
use crate::transaction::{Scope, Transaction};
use darter_keyspace::Work;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Refusals of a claim of all keys before it queues.
const TRIES: usize = 4;
/// Refusals of a cut before it waits for builds.
const CUT_TRIES: usize = 2;
/// The longest time that a claim of all keys stays in the queues in one go.
const QUEUED_MS: u64 = 10;

impl Tx {
    /// Takes the locks in `claims`, which are sorted by core.
    pub(super) async fn acquire(&self, locked: &mut Locked, claims: &mut [(CoreId, Claim)]) {
        if claims.iter().all(|(_, claim)| matches!(claim, Claim::All(_))) {
            return self.acquire_all_keys(locked, claims).await;
        }
        let claims = &*claims;
        if claims.len() > 1 && self.try_all(locked, claims).await {
            return;
        }
        for (core, claim) in claims {
            if let Some(granted) = self.ask(locked, *core, claim, When::Granted) {
                granted.await;
            }
            locked.note_granted(*core);
        }
    }

    async fn acquire_all_keys(&self, locked: &mut Locked, claims: &mut [(CoreId, Claim)]) {
        let mut refusals = 0;
        while !self.try_all(locked, claims).await {
            refusals += 1;
            if refusals == CUT_TRIES {
                let cuts = claims.iter_mut().filter(|(_, claim)| claim.is_cut());
                cuts.for_each(|(_, claim)| *claim = Claim::All(Access::Shared));
            }
            if refusals % TRIES == 0 && self.queue_for_a_while(locked, claims).await {
                return;
            }
            for (core, claim) in &*claims {
                if let Some(ended) = self.ask(locked, *core, claim, When::Unobstructed) {
                    ended.await;
                }
                locked.asked.clear();
            }
        }
    }

    /// Queues on one core after another. Returns false if this took too long; then nothing is held.
    async fn queue_for_a_while(&self, locked: &mut Locked, claims: &[(CoreId, Claim)]) -> bool {
        let mut alarm = self.set_alarm();
        for (core, claim) in claims {
            if let Some(granted) = self.ask(locked, *core, claim, When::Granted)
                && !is_first(granted, &mut alarm).await
            {
                locked.release();
                return false;
            }
            locked.note_granted(*core);
        }
        true
    }

    pub(super) fn try_all(
        &self,
        locked: &mut Locked,
        claims: &[(CoreId, Claim)],
    ) -> impl Future<Output = bool> {
        let (mut asked, mut all) = (Vec::new(), true);
        for (core, claim) in claims {
            if *core != self.0.core {
                locked.asked.push(*core);
                asked.push((*core, self.ask_core(locked.id, *core, claim.clone(), When::AtOnce)));
            } else if self.try_here(locked.id, claim) {
                locked.cores.push(*core);
            } else {
                all = false;
            }
        }
        async move {
            for (core, answer) in asked {
                let granted = downcast(answer.await);
                locked.asked.retain(|asked| *asked != core);
                if granted {
                    locked.cores.push(core);
                }
                all &= granted;
            }
            if !all {
                locked.release();
            }
            all
        }
    }

    /// [`Tx::begin`] without waiting, for keys of `other` and of this core: `work` starts there as
    /// soon as `other` has granted its claim. So locks and work take one message each way. `None` if
    /// some locks are not free; then `work` does not start.
    pub async fn begin_with<R, F, T>(
        &self,
        claims: Vec<(CoreId, Claim)>,
        other: CoreId,
        work: F,
    ) -> Option<(Transaction, impl Future<Output = R> + use<R, F, T>)>
    where
        R: Send + 'static,
        F: FnOnce(Tx) -> T + Send + 'static,
        T: Future<Output = R> + 'static,
    {
        assert!(self.takes_locks(), "a transaction within a transaction");
        let writes = claims.iter().filter(|(_, claim)| claim.is_write());
        let mut locked = Locked::new(self, writes.map(|(core, _)| *core).collect());
        let (id, changes) = (locked.id, locked.whole().map_or(Work::Alone, Work::Part));
        let tx = self.within(Scope::of(claims.clone(), Some(id)));
        let mut asked = None;
        for (core, claim) in claims {
            if core == other {
                asked = Some(claim);
                continue;
            }
            assert_eq!(core, self.0.core, "a third core might refuse");
            if !self.try_here(id, &claim) {
                return None;
            }
            locked.cores.push(core);
        }
        locked.asked.push(other);
        let claim = asked.expect("the work has keys");
        let granted = self.ask_core(id, other, claim, When::AtOnce);
        // This message arrives after the claim.
        let done = tx.start_for(changes, other, move |tx| async move {
            let is_granted = tx.home().locks.has_granted(id);
            if is_granted { Some(work(tx).await) } else { None }
        });
        let is_granted: bool = downcast(granted.await);
        locked.asked.clear();
        if !is_granted {
            return None;
        }
        locked.note_granted(other);
        locked.begin();
        let done = async move { downcast::<Option<R>>(done.await).expect("its locks are held") };
        Some((Transaction::new(tx, locked), done))
    }

    /// Requests a claim from a core (or from this one). `None` if the core has answered already.
    fn ask(&self, locked: &mut Locked, core: CoreId, claim: &Claim, when: When) -> Option<Pending> {
        assert!(locked.asked.is_empty(), "it waits on one core after another: {core}");
        if core != self.0.core {
            locked.asked.push(core);
            return Some(self.ask_core(locked.id, core, claim.clone(), when));
        }
        let answer = self.open_ticket(AwaitedEvent::Lock);
        let notify = (core, answer.ticket);
        if self.lock_here(locked.id, claim.clone(), notify, when) {
            self.0.tickets.borrow_mut().remove(&answer.ticket);
            return None;
        }
        locked.asked.push(core);
        self.tell_if_stuck(locked.id, notify);
        Some(answer)
    }

    pub(super) fn ask_core(&self, tx: TxId, core: CoreId, claim: Claim, when: When) -> Pending {
        let pending = self.open_ticket(AwaitedEvent::Lock);
        let (from, ticket) = (self.0.core, pending.ticket);
        self.post(core, Message::Lock { from, ticket, tx, claim, when });
        pending
    }

    /// Returns true if the answer is known at once.
    pub(super) fn lock_here(
        &self,
        tx: TxId,
        claim: Claim,
        notify: (CoreId, u64),
        when: When,
    ) -> bool {
        match when {
            When::AtOnce => self.try_here(tx, &claim),
            When::Granted => self.home().locks.acquire(tx, claim, notify),
            When::Unobstructed => self.home().locks.watch(tx, &claim, notify),
        }
    }

    fn try_here(&self, tx: TxId, claim: &Claim) -> bool {
        let mut home = self.home();
        let is_late = claim.is_cut() && home.shard.has_changed_sources();
        !is_late && home.locks.try_acquire(tx, claim)
    }

    /// A ticket that is completed after [`QUEUED_MS`].
    fn set_alarm(&self) -> Pending {
        let alarm = self.open_ticket(AwaitedEvent::Lock);
        let now = self.0.home.borrow().shard.now();
        self.0.alarms.borrow_mut().push_back((now, alarm.ticket));
        alarm
    }

    /// The next time at which a claim leaves its queues, in Unix milliseconds.
    #[must_use]
    pub fn next_alarm(&self) -> Option<u64> {
        self.0.alarms.borrow().front().map(|(since, _)| since + QUEUED_MS)
    }

    /// Wakes the tasks whose claims have queued for too long at `now`.
    pub fn ring_alarms(&self, now: u64) {
        // The clock may have been set back.
        let is_due = |(since, _): &(u64, u64)| now.abs_diff(*since) >= QUEUED_MS;
        while self.0.alarms.borrow().front().is_some_and(is_due) {
            let due = self.0.alarms.borrow_mut().pop_front();
            due.into_iter().for_each(|(_, ticket)| self.complete(ticket, Box::new(())));
        }
    }
}

/// Returns true if `granted` is completed before `alarm`.
async fn is_first(mut granted: Pending, alarm: &mut Pending) -> bool {
    poll_fn(|cx| {
        if Pin::new(&mut granted).poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        Pin::new(&mut *alarm).poll(cx).map(|_| false)
    })
    .await
}
