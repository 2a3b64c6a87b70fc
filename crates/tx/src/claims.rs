//! Gathering the keys of a command or a transaction into claims, one a core.

use crate::locks::{Access, Claim};
use crate::{CoreId, KeyList};
use std::sync::Arc;

/// The claim of one core, while keys are added to it.
#[derive(Default)]
pub(crate) struct CoreClaim {
    /// A few keys, each with the strongest access.
    few: Vec<(u64, Access)>,
    list: Option<KeyList>,
    all: Option<Access>,
    /// The strongest access to any of the keys.
    access: Option<Access>,
}

impl CoreClaim {
    /// Adds all of another claim.
    pub(crate) fn join(&mut self, claim: Option<&Claim>) {
        match claim {
            Some(Claim::Keys(keys)) => {
                keys.iter().for_each(|(key, access)| self.add(*key, *access, keys.len()));
            }
            Some(Claim::List(list, access)) => {
                self.access = self.access.max(Some(*access));
                self.list.get_or_insert_with(|| KeyList::with_capacity(0)).join(Arc::clone(list));
            }
            Some(Claim::All(access)) => self.all = self.all.max(Some(*access)),
            None => {}
        }
    }

    /// Adds a key, one of about `count`. Many keys become a list.
    pub(crate) fn add(&mut self, key: u64, access: Access, count: usize) {
        /// Keys that are searched one by one.
        const FEW: usize = 64;
        self.access = self.access.max(Some(access));
        if let Some(list) = &mut self.list {
            return list.push(key);
        }
        match self.few.iter().position(|(one, _)| *one == key) {
            Some(at) => self.few[at].1 = access.max(self.few[at].1),
            None if self.few.len() < FEW => self.few.push((key, access)),
            None => self.list.insert(KeyList::with_capacity(count)).push(key),
        }
    }

    /// The claim; `None` if nothing was added.
    pub(crate) fn into_claim(self) -> Option<Claim> {
        let access = self.access.max(self.all)?;
        if self.all.is_some() {
            return Some(Claim::All(access));
        }
        assert!(self.list.is_some() || !self.few.is_empty(), "{access:?} to nothing");
        let Some(mut list) = self.list else { return Some(Claim::Keys(self.few)) };
        self.few.iter().for_each(|(key, _)| list.push(*key));
        Some(Claim::List(Arc::new(list), access))
    }
}

/// Claims on several cores, while keys are added to them.
pub struct ClaimSet {
    cores: Vec<CoreClaim>,
    /// About how many keys there may be.
    count: usize,
    /// All keys of all cores.
    all: Option<Access>,
}

impl ClaimSet {
    /// No claims yet, for about `count` keys.
    #[must_use]
    pub fn new(cores: usize, count: usize) -> Self {
        Self { cores: (0..cores).map(|_| CoreClaim::default()).collect(), count, all: None }
    }

    /// Adds a key of a core, by its [`lock_key`](crate::lock_key).
    pub fn add(&mut self, core: CoreId, key: u64, access: Access) {
        self.cores[core].add(key, access, self.count);
    }

    /// Adds all keys of all cores.
    pub fn add_all(&mut self, access: Access) {
        self.all = self.all.max(Some(access));
    }

    /// The claims, in the order of their cores: of each key once, for its strongest access; of a list,
    /// for the strongest access to any of its keys.
    #[must_use]
    pub fn into_claims(self) -> Vec<(CoreId, Claim)> {
        if let Some(access) = self.all {
            let strongest =
                self.cores.iter().filter_map(|core| core.access).fold(access, Access::max);
            return (0..self.cores.len()).map(|core| (core, Claim::All(strongest))).collect();
        }
        let cores = self.cores.into_iter().enumerate();
        cores.filter_map(|(core, claim)| Some((core, claim.into_claim()?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Each key is claimed once, for the strongest access. Many keys become a list.
    fn wanted_keys_become_claims() {
        let mut wanted = ClaimSet::new(3, 10);
        for (key, access) in [(1, Access::Update), (1, Access::Exclusive), (2, Access::Update)] {
            wanted.add(1, key, access);
        }
        let claims = wanted.into_claims();
        let [(1, Claim::Keys(keys))] = &claims[..] else { panic!("{claims:?}") };
        assert_eq!(keys[..], [(1, Access::Exclusive), (2, Access::Update)]);

        let mut wanted = ClaimSet::new(2, 1_000);
        let hash = |key: u64| darter_base::hash::of(&key.to_le_bytes());
        (0..1_000).for_each(|key| wanted.add(0, hash(key), Access::Update));
        wanted.add(1, 1, Access::Exclusive);
        let claims = wanted.into_claims();
        let [(0, Claim::List(list, Access::Update)), (1, Claim::Keys(_))] = &claims[..] else {
            panic!("{claims:?}")
        };
        assert!((0..1_000).all(|key| list.contains(hash(key))));

        let mut wanted = ClaimSet::new(2, 1_000);
        wanted.add(0, 1, Access::Exclusive);
        wanted.add_all(Access::Update);
        let claims = wanted.into_claims();
        let [(0, Claim::All(Access::Exclusive)), (1, Claim::All(Access::Exclusive))] = claims[..]
        else {
            panic!("{claims:?}")
        };
    }
}
