//! Whose locks a command works under: its own, or those of the transaction that runs it.
//!
//! A command alone takes its locks and gives them back. Inside a transaction its keys are locked
//! before it begins and stay locked after it, and a claim of its own would wait for the
//! transaction's for ever. So a command does not know where its locks come from: it asks the [`Tx`]
//! that it was handed. That of a core takes them; that of a transaction finds that they are held.
//! docs/design/0024-transaction-context.md has the reasons.

use crate::CoreId;
use crate::link::{Locked, Tx};
use crate::locks::{Access, Claim};
use std::sync::Arc;

/// The claims that are held for whoever works with this handle; `None`: it takes its own.
#[derive(Clone, Default)]
pub struct Scope(Option<Arc<Vec<(CoreId, Claim)>>>);

impl Scope {
    /// True when whoever works here takes locks.
    pub(crate) fn is_own(&self) -> bool {
        self.0.is_none()
    }

    /// True when the locks are a transaction's. Asserts that it holds what is asked for: a change
    /// of another key would be seen before the others.
    pub(crate) fn holds(&self, asked: &[(CoreId, Claim)]) -> bool {
        let Some(held) = &self.0 else { return false };
        for (core, asked) in asked {
            let own = held.iter().find(|(owner, _)| owner == core);
            let is_held = own.is_some_and(|(_, held)| held.includes(asked));
            assert!(is_held, "a command of a transaction wants {asked:?}, which is not held");
        }
        true
    }
}

/// Locks that several commands work under, until this is dropped. What they change is recorded as
/// one transaction, whatever the number of cores and turns.
#[must_use]
pub struct Transaction {
    tx: Tx,
    _locked: Locked,
}

impl Transaction {
    /// What its commands work with.
    #[must_use]
    pub fn tx(&self) -> &Tx {
        &self.tx
    }
}

impl Tx {
    /// Takes the locks in `claims`, at most one claim a core, for several commands.
    pub async fn begin(&self, claims: Vec<(CoreId, Claim)>) -> Transaction {
        assert!(self.takes_locks(), "a transaction within a transaction");
        let held = Arc::new(claims.clone());
        let locked = self.lock_framed(claims).await;
        Transaction { tx: self.within(Scope(Some(held))), _locked: locked }
    }

    /// The handle of who works under `claims`, which the caller has locked.
    #[must_use]
    pub fn holding(&self, claims: Vec<(CoreId, Claim)>) -> Self {
        self.within(Scope(Some(Arc::new(claims))))
    }
}

impl Claim {
    /// True when it covers all of `asked`. Of two lists that is not compared: it would take
    /// milliseconds.
    fn includes(&self, asked: &Claim) -> bool {
        match asked {
            Claim::Keys(keys) => keys.iter().all(|(key, access)| self.covers(*key, *access)),
            Claim::All(access) => self.is_all(*access),
            Claim::List(_, access) => match self {
                Claim::Keys(_) => false,
                Claim::List(_, held) | Claim::All(held) => held >= access,
            },
        }
    }

    fn is_all(&self, access: Access) -> bool {
        matches!(self, Claim::All(held) if *held >= access)
    }
}
