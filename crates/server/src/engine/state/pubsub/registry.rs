//! Counts the subscribers of each name by core. The home of a channel counts its subscribers; every
//! core counts those of all patterns.
//!
//! Trees instead of hash tables, because a hash table with a million names would sometimes be
//! copied as a whole.

use super::SubscriptionKind;
use super::name::Name;
use darter_tx::CoreId;
use std::collections::{BTreeMap, btree_map::Entry};
use std::ops::Bound;

/// The number of subscribers of one name on each core. Cores without subscribers are not listed.
#[derive(Clone, Debug)]
#[expect(clippy::box_collection, reason = "most are on one core: it is to be small")]
pub(crate) enum Counts {
    /// All subscribers are on one core: the core and their number.
    One(u32, u32),
    /// The subscribers are, or have been, on several cores.
    Many(Box<Vec<(u32, u32)>>),
}

impl Counts {
    /// The cores with subscribers, and the number on each.
    pub(crate) fn by_core(&self) -> impl Iterator<Item = (CoreId, usize)> {
        let one = match self {
            Self::One(core, count) => Some((*core, *count)),
            Self::Many(_) => None,
        };
        let many = match self {
            Self::One(..) => &[][..],
            Self::Many(all) => &all[..],
        };
        one.into_iter()
            .chain(many.iter().copied())
            .map(|(core, count)| (core as CoreId, count as usize))
    }

    /// The number of subscribers on all cores.
    pub(crate) fn sum(&self) -> usize {
        self.by_core().map(|(_, count)| count).sum()
    }

    fn add(&mut self, core: u32) {
        match self {
            Self::One(only, count) if *only == core => *count += 1,
            Self::One(only, count) => {
                *self = Self::Many(Box::new(vec![(*only, *count), (core, 1)]));
            }
            Self::Many(all) => match all.iter_mut().find(|(other, _)| *other == core) {
                Some((_, count)) => *count += 1,
                None => all.push((core, 1)),
            },
        }
    }

    /// Removes a subscriber on `core` from the count. Returns true if none is left on any core.
    fn take(&mut self, core: u32) -> bool {
        match self {
            Self::One(only, count) => {
                assert_eq!(*only, core, "no subscriber is there");
                *count -= 1;
                *count == 0
            }
            Self::Many(all) => {
                let at = all.iter().position(|(other, _)| *other == core);
                let at = at.expect("a subscriber is there");
                all[at].1 -= 1;
                if all[at].1 == 0 {
                    all.swap_remove(at);
                }
                all.is_empty()
            }
        }
    }
}

/// The counts of all names.
#[derive(Debug, Default)]
pub(crate) struct SubscriberCounts {
    kinds: [BTreeMap<Name, Counts>; 3],
}

impl SubscriberCounts {
    /// Adds a subscriber on `core` to the count of a name.
    pub(crate) fn add(&mut self, kind: SubscriptionKind, name: &Name, core: CoreId) {
        let core = u32::try_from(core).expect("few cores");
        match self.kinds[kind as usize].entry(name.clone()) {
            Entry::Occupied(mut counts) => counts.get_mut().add(core),
            Entry::Vacant(place) => {
                place.insert(Counts::One(core, 1));
            }
        }
    }

    /// Removes a subscriber on `core` from the count of a name.
    #[expect(clippy::mutable_key_type, reason = "a name's bytes stay: it notes where they are")]
    pub(crate) fn take(&mut self, kind: SubscriptionKind, name: &Name, core: CoreId) {
        let core = u32::try_from(core).expect("few cores");
        let names = &mut self.kinds[kind as usize];
        let counts = names.get_mut(name).expect("what is given up was subscribed to");
        if counts.take(core) {
            names.remove(name);
        }
    }

    /// The number of different names of a kind.
    pub(crate) fn len(&self, kind: SubscriptionKind) -> usize {
        self.kinds[kind as usize].len()
    }

    pub(crate) fn counts(&self, kind: SubscriptionKind, name: &Name) -> Option<&Counts> {
        self.kinds[kind as usize].get(name)
    }

    /// The names that follow `after`, in their order.
    pub(crate) fn names_after(
        &self,
        kind: SubscriptionKind,
        after: Option<&Name>,
    ) -> impl Iterator<Item = (&Name, &Counts)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.kinds[kind as usize].range((from, Bound::Unbounded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // A name without subscribers is removed.
    fn subscribers_of_a_name_are_counted_by_core() {
        let (mut registry, name) = (SubscriberCounts::default(), Name::from_bytes(b"news.*"));
        for core in [1, 1, 4, 2] {
            registry.add(SubscriptionKind::Pattern, &name, core);
        }
        assert_eq!(registry.len(SubscriptionKind::Pattern), 1);
        assert!(registry.counts(SubscriptionKind::Channel, &name).is_none(), "another namespace");
        let counts = registry.counts(SubscriptionKind::Pattern, &name).unwrap();
        assert_eq!(counts.by_core().collect::<Vec<_>>(), [(1, 2), (4, 1), (2, 1)]);
        assert_eq!(counts.sum(), 4);
        for core in [4, 1, 2, 1] {
            registry.take(SubscriptionKind::Pattern, &name, core);
        }
        assert_eq!(registry.len(SubscriptionKind::Pattern), 0);
    }

    #[test]
    fn visiting_names_in_portions_finds_all_names_despite_changes() {
        let mut registry = SubscriberCounts::default();
        let names: Vec<Name> = (0..50_u8).map(|number| Name::from_bytes(&[number])).collect();
        names.iter().for_each(|name| registry.add(SubscriptionKind::Channel, name, 0));
        let (mut seen, mut after) = (0, None);
        loop {
            let next = registry.names_after(SubscriptionKind::Channel, after.as_ref()).next();
            let Some(name) = next.map(|(name, _)| name.clone()) else { break };
            registry.take(SubscriptionKind::Channel, &name, 0);
            (seen, after) = (seen + 1, Some(name));
        }
        assert_eq!((seen, registry.len(SubscriptionKind::Channel)), (50, 0));
    }
}
