//! Keys with blocked calls, and the locks under which these calls are served.
//!
//! A call that is blocked on a key gets the new value before any other command can see it: between
//! the change and the serving, the key stays locked. A command that ran at once locks the changed
//! keys afterwards, in the same step ([`Tx::serve_keys`]). A claim under which keys were changed is
//! passed to the serving when it is released, before all waiting claims.
//!
//! Here a key is identified by its lock name. The engine holds the blocked calls: it takes the keys
//! to be served ([`Tx::next_serving`]), and releases the locks when no call can be served any more.
//! See docs/design/0027-blocking.md.

use crate::CoreId;
use crate::link::{Locked, Tx};
use crate::locks::{Access, Claim};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// The names of the keys of one shard that have blocked calls.
#[derive(Default)]
pub struct Waited(BTreeSet<u64>);

impl Waited {
    /// Adds a blocked call for the key with this name.
    pub fn add(&mut self, name: u64) {
        self.0.insert(name);
    }

    /// Removes a key's name after its last blocked call.
    pub fn remove(&mut self, name: u64) {
        self.0.remove(&name);
    }

    /// True if no call is blocked.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next name after `name`, or the first one.
    #[must_use]
    pub fn after(&self, last: Option<u64>) -> Option<u64> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.0.range((from, Bound::Unbounded)).next().copied()
    }

    /// The part of a released claim that may have blocked calls. A claim that does not name its
    /// keys counts as a whole.
    pub(crate) fn touched_by(&self, claim: &Claim) -> Option<Claim> {
        if self.is_empty() || !claim.is_write() {
            return None;
        }
        match claim {
            Claim::Keys(keys) => {
                let is_waited = |(name, access): &&(u64, Access)| {
                    *access > Access::Shared && self.0.contains(name)
                };
                let keys: Vec<_> = keys.iter().filter(is_waited).map(exclusive).collect();
                (!keys.is_empty()).then_some(Claim::Keys(keys))
            }
            Claim::List(list, _) => Some(Claim::List(Arc::clone(list), Access::Exclusive)),
            Claim::All(_) => Some(Claim::All(Access::Exclusive)),
        }
    }
}

fn exclusive((name, _): &(u64, Access)) -> (u64, Access) {
    (*name, Access::Exclusive)
}

/// Changed keys of this core that have blocked calls. They are locked until this is dropped.
#[must_use]
pub struct Serving {
    locked: Locked,
    claim: Claim,
    /// A key of another core that is also locked.
    joined: Option<(CoreId, u64)>,
}

impl Serving {
    pub(crate) fn new(locked: Locked, claim: Claim) -> Self {
        assert!(claim.is_exclusive(), "others could look at what is served: {claim:?}");
        Self { locked, claim, joined: None }
    }

    /// [`Serving::new`] for keys that are locked together with one of another core.
    pub(crate) fn with_other(locked: Locked, claim: Claim, other: (CoreId, u64)) -> Self {
        Self { joined: Some(other), ..Self::new(locked, claim) }
    }

    /// Waits until the keys are locked: readers of several keys may still hold them.
    pub async fn granted(&mut self) {
        self.locked.granted().await;
    }

    /// True if the keys are locked already.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.locked.is_granted()
    }

    /// The next key after `name`, or the first one, in the order of names.
    #[must_use]
    pub fn next(&self, waited: &Waited, last: Option<u64>) -> Option<u64> {
        match &self.claim {
            Claim::Keys(keys) => {
                let names = keys.iter().map(|(name, _)| *name);
                names.filter(|name| last.is_none_or(|last| *name > last)).min()
            }
            Claim::List(..) | Claim::All(_) => waited.after(last),
        }
    }

    /// True when the key is one of those.
    #[must_use]
    pub fn covers(&self, name: u64) -> bool {
        self.claim.covers(name, Access::Exclusive)
    }

    /// The key, if there is only one.
    #[must_use]
    pub fn single(&self) -> Option<u64> {
        match &self.claim {
            Claim::Keys(keys) if keys.len() == 1 => Some(keys[0].0),
            Claim::Keys(_) | Claim::List(..) | Claim::All(_) => None,
        }
    }

    /// Locks a key of another core, too, without waiting. A change of both is one transaction,
    /// until [`Serving::part`]. Returns false on a conflict.
    pub async fn join(&mut self, core: CoreId, name: u64) -> bool {
        if self.joined == Some((core, name)) {
            return true;
        }
        self.part();
        let claim = Claim::Keys(vec![(name, Access::Exclusive)]);
        self.joined = self.locked.join(core, claim).await.then_some((core, name));
        self.joined.is_some()
    }

    /// Releases the key of another core, unless it is `other`; the transaction ends.
    pub fn part_unless(&mut self, other: Option<(CoreId, u64)>) {
        if self.joined != other {
            self.part();
        }
    }

    /// Releases the key of another core, if there is one.
    pub fn part(&mut self) {
        self.joined = None;
        self.locked.part_from_others();
    }

    /// The handle for work on these keys, and on the other key that is also locked.
    #[must_use]
    pub fn tx(&self, name: u64, other: Option<(CoreId, u64)>) -> Tx {
        assert!(self.covers(name), "{name} is not being served");
        assert!(self.is_granted(), "{name} is not locked yet");
        let tx = self.locked.handle();
        let mut claims = vec![(tx.core(), Claim::Keys(vec![(name, Access::Exclusive)]))];
        match other {
            Some((core, other)) if core == tx.core() => {
                let both = [name, other].map(|name| (name, Access::Exclusive));
                claims[0].1 = Claim::Keys(both.into());
            }
            Some((core, other)) => {
                claims.push((core, Claim::Keys(vec![(other, Access::Exclusive)])));
            }
            None => {}
        }
        tx.holding(claims)
    }
}
