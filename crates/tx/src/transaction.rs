//! The locks under which a command works: its own, or those of its transaction.
//!
//! A single command takes its locks and releases them. Inside a transaction its keys are locked
//! before it starts and stay locked after it, and its own claim would wait for the transaction's
//! forever. So a command does not know where its locks come from: it requests them from its [`Tx`].
//! A core's [`Tx`] takes them; a transaction's [`Tx`] finds that they are already held.
//!
//! If not all keys are known at the start ([`Tx::begin_open`]), a transaction locks more of them as
//! it goes, before the command that needs them ([`Transaction::widen`]). If a lock is refused, its
//! changes are undone. For the reasons, see docs/design/0024-transaction-context.md.

use crate::CoreId;
use crate::claims::CoreClaim;
use crate::link::{Locked, Tx};
use crate::locks::{Access, Claim, Late, TxId};
use std::cell::RefCell;
use std::sync::Arc;

/// The claims held for work through this handle.
#[derive(Clone, Default)]
pub struct Scope {
    /// The claims from the start; `None` if the handle takes its own locks.
    held: Option<Arc<Vec<(CoreId, Claim)>>>,
    /// The transaction.
    id: Option<TxId>,
    /// The transaction may take more locks.
    is_open: bool,
}

impl Scope {
    /// The scope of a transaction that holds these claims.
    pub(crate) fn of(held: Vec<(CoreId, Claim)>, id: Option<TxId>) -> Self {
        Self { held: Some(Arc::new(held)), id, is_open: false }
    }

    /// The transaction that holds the locks, if known.
    pub(crate) fn id(&self) -> Option<TxId> {
        self.id
    }

    /// The transaction, if it may take more locks.
    pub(crate) fn open(&self) -> Option<TxId> {
        self.id.filter(|_| self.is_open)
    }

    /// The scope of a transaction that holds these claims, and may take more.
    pub(crate) fn of_open(held: Vec<(CoreId, Claim)>, id: TxId) -> Self {
        Self { held: Some(Arc::new(held)), id: Some(id), is_open: true }
    }

    /// True if work through this handle takes its own locks.
    fn is_own(&self) -> bool {
        self.held.is_none()
    }

    /// The claim on a core that was taken at the start.
    pub(crate) fn claim(&self, core: CoreId) -> Option<&Claim> {
        let held = self.held.as_ref()?;
        held.iter().find(|(owner, _)| *owner == core).map(|(_, claim)| claim)
    }
}

/// Locks for several commands, held until this is dropped. The changes are recorded as one
/// transaction, on any number of cores and in any number of turns.
#[must_use]
pub struct Transaction {
    tx: Tx,
    locked: RefCell<Locked>,
}

impl Transaction {
    /// Makes `locked` the locks of all commands that work through `tx`.
    pub(crate) fn new(tx: Tx, locked: Locked) -> Self {
        Self { tx, locked: RefCell::new(locked) }
    }

    /// The handle of its commands.
    #[must_use]
    pub fn tx(&self) -> &Tx {
        &self.tx
    }

    /// True if the transaction holds a key for this access, or a stronger one.
    #[must_use]
    pub fn holds(&self, core: CoreId, key: u64, access: Access) -> bool {
        let claim = self.tx.scope().claim(core);
        claim.is_some_and(|claim| claim.covers(key, access))
            || self.with_late(core, |late| late.is_some_and(|late| late.covers(key, access)))
    }

    /// Locks a key of this core, too, without waiting, unless it is held already. Returns false if
    /// others hold it, or came first; the transaction must then be undone. Only for transactions
    /// started as open.
    #[must_use]
    pub fn widen_here(&self, key: u64, access: Access) -> bool {
        let mut locked = self.locked.borrow_mut();
        let is_granted = self.tx.home().locks.widen_by(self.open(), key, access);
        if is_granted {
            debug_assert!(self.tx.home().locks.holds(self.open(), key, access), "of {key}");
            locked.note_core(self.tx.core());
        }
        is_granted
    }

    /// Takes the locks in `claims`, too (at most one claim a core), without waiting and in any
    /// order. Returns false if others hold some of them, or came first. The transaction must then
    /// be undone; locks that other cores have granted stay until it ends.
    ///
    /// Cost: nothing for held keys; two messages for each other core with keys that are not held.
    pub async fn widen(&self, claims: Vec<(CoreId, Claim)>) -> bool {
        let open = self.open();
        let mut asked = Vec::new();
        for (core, claim) in claims {
            let Some(claim) = self.missing(core, claim) else { continue };
            if core != self.tx.core() {
                asked.push((core, claim));
                continue;
            }
            if !self.tx.home().locks.widen(open, &claim) {
                return false;
            }
            self.locked.borrow_mut().note_core(core);
        }
        let ask = |(core, claim): (CoreId, Claim)| {
            let answer = self.locked.borrow_mut().ask_more(core, claim.clone());
            (core, claim, answer)
        };
        let asked: Vec<_> = asked.into_iter().map(ask).collect();
        let mut all = true;
        for (core, claim, answer) in asked {
            debug_assert_ne!(core, self.tx.core(), "it is granted here already");
            let is_granted = answer.await;
            self.locked.borrow_mut().hear_more(core, is_granted);
            if is_granted {
                self.tx.note_late(open, core, claim);
            }
            all &= is_granted;
        }
        all
    }

    /// All claims of the transaction plus `more` (at most one claim a core), for a restart.
    pub async fn claims(&self, more: Vec<(CoreId, Claim)>) -> Vec<(CoreId, Claim)> {
        let mut claims = Vec::new();
        for core in 0..self.tx.cores() {
            let mut union = CoreClaim::default();
            union.join(self.tx.scope().claim(core));
            union.join(more.iter().find(|(of, _)| *of == core).map(|(_, claim)| claim));
            let count = self.with_late(core, |late| {
                let wide = late.into_iter().flat_map(Late::wide);
                wide.for_each(|claim| union.join(Some(claim)));
                late.map_or(0, Late::len)
            });
            let mut next = (count > 0).then_some(0);
            while let Some(path) = next {
                let (keys, after) = self.with_late(core, |late| {
                    late.map_or((Vec::new(), None), |late| late.some_keys(path))
                });
                keys.into_iter().for_each(|(key, access)| union.add(key, access, count));
                next = after;
                self.tx.pause().await;
            }
            claims.extend(union.into_claim().map(|claim| (core, claim)));
        }
        claims
    }

    /// Commits the changes: publishes their records, and notifies watchers. Then the locks are
    /// released. Only for transactions started as open.
    pub async fn commit(self) {
        let cores = self.locked.borrow_mut().close();
        let (open, parts) = (self.open(), cores.len());
        let commit = |_| {
            async move |tx: Tx| {
                while tx.home().shard.commit(open, parts) {
                    tx.pause().await;
                }
            }
        };
        self.tx.drive_each(cores, commit).await;
    }

    /// Undoes all changes, without notifying anyone. Then the locks are released. Only for
    /// transactions started as open.
    pub async fn undo(self) {
        /// Steps in a portion.
        const STEPS: usize = 32;
        let cores = self.locked.borrow_mut().close();
        let open = self.open();
        let undo = |_| {
            async move |tx: Tx| {
                while tx.home().shard.undo(open, STEPS) {
                    tx.pause().await;
                }
            }
        };
        self.tx.drive_each(cores, undo).await;
        self.tx.note_undone().await;
    }

    fn open(&self) -> TxId {
        self.tx.scope().open().expect("it was begun to be widened")
    }

    /// The part of a claim that the transaction does not hold yet.
    fn missing(&self, core: CoreId, claim: Claim) -> Option<Claim> {
        match claim {
            Claim::Keys(mut keys) => {
                keys.retain(|(key, access)| !self.holds(core, *key, *access));
                (!keys.is_empty()).then_some(Claim::Keys(keys))
            }
            Claim::List(list, access) => {
                let is_held = self
                    .with_late(core, |late| late.is_some_and(|late| late.covers_all(access)))
                    || self.tx.scope().claim(core).is_some_and(|held| held.is_all(access));
                (!is_held).then_some(Claim::List(list, access))
            }
            Claim::All(access) => (!self.tx.includes(core, &claim)).then_some(Claim::All(access)),
        }
    }

    fn with_late<R>(&self, core: CoreId, look: impl FnOnce(Option<&Late>) -> R) -> R {
        match self.tx.scope().open() {
            Some(open) => self.tx.with_late(open, core, look),
            None => look(None),
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(open) = self.tx.scope().open() {
            self.tx.forget_late(open);
        }
    }
}

impl Tx {
    /// Takes the locks in `claims` (at most one claim a core) for several commands.
    pub async fn begin(&self, claims: Vec<(CoreId, Claim)>) -> Transaction {
        assert!(self.takes_locks(), "a transaction within a transaction");
        let held = claims.clone();
        let locked = self.lock_framed(claims).await;
        let scope = Scope::of(held, Some(locked.id()));
        Transaction::new(self.within(scope), locked)
    }

    /// [`Tx::begin`] for a transaction that may take more locks later, and may be undone. Its
    /// changes are published when it is committed. If it is dropped instead, its changes stay.
    pub async fn begin_open(&self, claims: Vec<(CoreId, Claim)>) -> Transaction {
        assert!(self.takes_locks(), "a transaction within a transaction");
        let locked = self.lock_open(claims.clone()).await;
        Transaction::new(self.within(Scope::of_open(claims, locked.id())), locked)
    }

    /// The handle for work under `claims`, which the caller has locked.
    #[must_use]
    pub fn holding(&self, claims: Vec<(CoreId, Claim)>) -> Self {
        self.within(Scope::of(claims, None))
    }

    /// True outside of a transaction.
    pub(crate) fn takes_locks(&self) -> bool {
        self.scope().is_own()
    }

    /// True if the locks are a transaction's. Asserts that it holds `asked`: a change of another
    /// key would be visible too early.
    pub(crate) fn is_held(&self, asked: &[(CoreId, Claim)]) -> bool {
        if self.takes_locks() {
            return false;
        }
        for (core, asked) in asked {
            let is_held = self.includes(*core, asked);
            assert!(is_held, "a command of a transaction wants {asked:?}, which is not held");
        }
        true
    }

    /// True if the transaction holds all of `asked`. Lists are not compared, which would take
    /// milliseconds.
    fn includes(&self, core: CoreId, asked: &Claim) -> bool {
        let scope = self.scope();
        let own = scope.claim(core);
        let late = |look: &dyn Fn(&Late) -> bool| {
            let open = scope.open();
            open.is_some_and(|open| self.with_late(open, core, |late| late.is_some_and(look)))
        };
        match asked {
            Claim::Keys(keys) => keys.iter().all(|(key, access)| {
                own.is_some_and(|own| own.covers(*key, *access))
                    || late(&|late| late.covers(*key, *access))
            }),
            Claim::List(_, access) => {
                own.is_some_and(|own| own.covers_list(*access))
                    || late(&|late| late.covers_list(*access))
            }
            Claim::All(access) => {
                own.is_some_and(|own| own.is_all(*access)) || late(&|late| late.covers_all(*access))
            }
        }
    }
}

impl Claim {
    fn is_all(&self, access: Access) -> bool {
        matches!(self, Claim::All(held) if *held >= access)
    }
}
