//! The subscriptions of the clients of one core.
//!
//! A subscriber has a number of its own, which is not the client's id. After RESET, or after the
//! connection has closed, the number is removed at once, and its subscriptions are removed in
//! portions.
//!
//! Every core counts all patterns. The cores are notified one by one, so for some time only some of
//! them have counted a new subscriber, or still count one that leaves. During that time, the
//! subscription records which cores count it. A message from a core that does not count the
//! subscriber is not delivered to it.
//!
//! Invariants (`check_invariants`):
//! - R1: a subscriber is a member of each name to which it is subscribed. Members without a
//!   subscriber exist only while the subscriptions of a removed subscriber are being removed.
//! - R2: for each entry of `partial`, the subscriber is a member of the pattern.
//! - R3: `patterns` contains the same patterns as `held`.

use super::name::Name;
use super::{Subscribed, SubscriptionKind};
use darter_base::hash::IdentityMap;
use darter_resp::Output;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The numbers of the subscribers of one name.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "most have one member: it is to be small")]
enum Members {
    One(u64),
    Many(Box<BTreeSet<u64>>),
}

/// One subscription of a subscriber.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// True if the subscriber is leaving the name, and the homes are being notified.
    is_leaving: bool,
    /// The position of the subscription in the order in which the subscriber made them.
    number: u64,
}

/// Bytes of a pattern's entry in `patterns`, if the nodes of the tree are two thirds full.
const ORDER_BYTES: usize = (size_of::<u64>() + size_of::<Name>()) * 3 / 2;

/// The subscriptions of one client.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) token: Token,
    held: [BTreeMap<Name, Held>; 3],
    /// The patterns, in the order in which they were subscribed to.
    patterns: BTreeMap<u64, Name>,
    /// The number of subscriptions made so far.
    last: u64,
    /// Bytes of memory that the subscriptions occupy.
    bytes: usize,
    /// Messages that arrived before the confirmation of a subscription in progress. `None` if none
    /// is in progress.
    pub(crate) early: Option<Output>,
}

impl Subscriber {
    /// The summary of the subscriptions, for the session of the client.
    pub(crate) fn summary(&self, id: u64) -> Subscribed {
        Subscribed {
            id,
            counts: SubscriptionKind::ALL.map(|kind| self.len(kind)),
            bytes: self.bytes,
        }
    }

    /// The number of subscriptions of a kind.
    pub(crate) fn len(&self, kind: SubscriptionKind) -> usize {
        self.held[kind as usize].len()
    }

    pub(crate) fn holds(&self, kind: SubscriptionKind, name: &Name) -> bool {
        self.held[kind as usize].contains_key(name)
    }

    /// At most `most` subscriptions of a kind. Patterns come oldest first; other names are in no
    /// order, as in Redis.
    pub(crate) fn some(&self, kind: SubscriptionKind, most: usize) -> Vec<Name> {
        match kind {
            SubscriptionKind::Pattern => self.patterns.values().take(most).cloned().collect(),
            _ => self.held[kind as usize].keys().take(most).cloned().collect(),
        }
    }

    /// Adds a subscription.
    pub(crate) fn hold(&mut self, kind: SubscriptionKind, name: &Name) {
        let Entry::Vacant(place) = self.held[kind as usize].entry(name.clone()) else { return };
        self.last += 1;
        place.insert(Held { is_leaving: false, number: self.last });
        self.bytes += name.held_bytes();
        if kind == SubscriptionKind::Pattern {
            self.patterns.insert(self.last, name.clone());
            self.bytes += ORDER_BYTES;
        }
    }

    /// Marks a subscription as leaving, while the homes are notified.
    pub(crate) fn give_up(&mut self, kind: SubscriptionKind, name: &Name) {
        let held = self.held[kind as usize].get_mut(name);
        held.expect("what is given up is held").is_leaving = true;
    }

    /// Removes a subscription.
    pub(crate) fn let_go(&mut self, kind: SubscriptionKind, name: &Name) {
        if let Some(held) = self.held[kind as usize].remove(name) {
            self.note_gone(kind, name, held);
        }
    }

    fn note_gone(&mut self, kind: SubscriptionKind, name: &Name, held: Held) {
        self.bytes -= name.held_bytes();
        if kind == SubscriptionKind::Pattern {
            self.patterns.remove(&held.number).expect("R3: it has a place in their order");
            self.bytes -= ORDER_BYTES;
        }
    }

    /// Takes any one subscription: its kind, its name, and whether it was leaving.
    pub(crate) fn take_one(&mut self) -> Option<(SubscriptionKind, Name, bool)> {
        let kind = SubscriptionKind::ALL.into_iter().find(|kind| self.len(*kind) > 0)?;
        let (name, held) = self.held[kind as usize].pop_first()?;
        self.note_gone(kind, &name, held);
        Some((kind, name, held.is_leaving))
    }
}

/// All subscribers of one core, by number and by name.
#[derive(Debug, Default)]
pub(crate) struct Memberships {
    kinds: [BTreeMap<Name, Members>; 3],
    subscribers: IdentityMap<Subscriber>,
    /// Subscribers of patterns that only some cores count: for each core, whether it does.
    partial: BTreeMap<(Name, u64), Vec<bool>>,
    last: u64,
}

impl Memberships {
    /// Adds a client without subscriptions. Returns its number as a subscriber.
    pub(crate) fn enter(&mut self, token: Token) -> u64 {
        self.last += 1;
        let held = [const { BTreeMap::new() }; 3];
        let (patterns, last) = (BTreeMap::new(), 0);
        let subscriber = Subscriber { token, held, patterns, last, bytes: 0, early: None };
        self.subscribers.insert(self.last, subscriber);
        self.last
    }

    /// Removes a subscriber and returns it. The caller must still remove its subscriptions.
    pub(crate) fn leave(&mut self, id: u64) -> Option<Subscriber> {
        self.subscribers.remove(&id)
    }

    pub(crate) fn get(&mut self, id: u64) -> Option<&mut Subscriber> {
        self.subscribers.get_mut(&id)
    }

    /// Makes a subscriber a member of a name.
    pub(crate) fn add(&mut self, kind: SubscriptionKind, name: &Name, id: u64) {
        let Some(members) = self.kinds[kind as usize].get_mut(name) else {
            self.kinds[kind as usize].insert(name.clone(), Members::One(id));
            return;
        };
        match members {
            Members::One(only) => *members = Members::Many(Box::new([*only, id].into())),
            Members::Many(all) => {
                all.insert(id);
            }
        }
    }

    /// Ends the membership of a subscriber in a name.
    #[expect(clippy::mutable_key_type, reason = "a name's bytes stay: it notes where they are")]
    pub(crate) fn remove(&mut self, kind: SubscriptionKind, name: &Name, id: u64) {
        let names = &mut self.kinds[kind as usize];
        let Some(members) = names.get_mut(name) else { return };
        let is_empty = match members {
            Members::One(only) => *only == id,
            Members::Many(all) => {
                all.remove(&id);
                all.is_empty()
            }
        };
        if is_empty {
            names.remove(name);
        }
    }

    /// The members of a name whose number is above `after`, in the order of their numbers.
    pub(crate) fn members_after(
        &self,
        kind: SubscriptionKind,
        name: &Name,
        after: u64,
    ) -> impl Iterator<Item = u64> {
        let (one, many) = match self.kinds[kind as usize].get(name) {
            Some(Members::One(only)) => (Some(*only).filter(|id| *id > after), None),
            Some(Members::Many(all)) => (None, Some(all)),
            None => (None, None),
        };
        let range = (Bound::Excluded(after), Bound::Unbounded);
        one.into_iter().chain(many.into_iter().flat_map(move |all| all.range(range).copied()))
    }

    /// Begins a subscription to a pattern, or its end. No core has counted the change yet.
    pub(crate) fn begin_partial(&mut self, name: &Name, id: u64, joins: bool, cores: usize) {
        self.partial.insert((name.clone(), id), vec![!joins; cores]);
    }

    /// Records that core `core` has counted the change. Returns true if all cores have.
    pub(crate) fn note_counted(&mut self, name: &Name, id: u64, joins: bool, core: CoreId) -> bool {
        let key = (name.clone(), id);
        let Some(cores) = self.partial.get_mut(&key) else { return false };
        cores[core] = joins;
        let is_all = cores.iter().all(|counted| *counted == joins);
        if is_all {
            self.partial.remove(&key);
        }
        is_all
    }

    /// Takes the record of the cores that count this member of a pattern; `None` if all do.
    pub(crate) fn take_partial(&mut self, name: &Name, id: u64) -> Option<Vec<bool>> {
        self.partial.remove(&(name.clone(), id))
    }

    /// True if core `core` counts this member of a pattern, so that messages from there are
    /// delivered to it.
    pub(crate) fn is_counted(&self, name: &Name, id: u64, core: CoreId) -> bool {
        self.partial.is_empty()
            || self.partial.get(&(name.clone(), id)).is_none_or(|cores| cores[core])
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        for (id, subscriber) in &self.subscribers {
            for kind in SubscriptionKind::ALL {
                for name in subscriber.held[kind as usize].keys() {
                    let mut members = self.members_after(kind, name, id - 1);
                    assert_eq!(members.next(), Some(*id), "R1");
                }
            }
        }
        for subscriber in self.subscribers.values() {
            assert_eq!(subscriber.patterns.len(), subscriber.len(SubscriptionKind::Pattern), "R3");
            let is_held = |name| subscriber.holds(SubscriptionKind::Pattern, name);
            assert!(subscriber.patterns.values().all(is_held), "R3");
        }
        for (name, id) in self.partial.keys() {
            let mut members = self.members_after(SubscriptionKind::Pattern, name, id - 1);
            assert_eq!(members.next(), Some(*id), "R2");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    const TOKEN: Token = Token { index: 0, generation: 1 };

    #[test]
    fn random_subscriptions_match_a_simple_model() {
        for seed in 0..30 {
            let (mut prng, mut memberships) = (Prng::from_seed(seed), Memberships::default());
            let ids: Vec<u64> = (0..5).map(|_| memberships.enter(TOKEN)).collect();
            let mut model = BTreeSet::new();
            for _ in 0..300 {
                let id = ids[prng.below(5) as usize];
                let (kind, at) = (SubscriptionKind::ALL[prng.below(3) as usize], prng.below(4));
                let name = Name::from_bytes(&at.to_le_bytes());
                let subscriber = memberships.get(id).unwrap();
                if model.insert((kind as usize, at, id)) {
                    subscriber.hold(kind, &name);
                    memberships.add(kind, &name, id);
                } else if prng.chance(50) {
                    model.remove(&(kind as usize, at, id));
                    subscriber.let_go(kind, &name);
                    memberships.remove(kind, &name, id);
                }
                let members: Vec<u64> = memberships.members_after(kind, &name, 0).collect();
                let range = (kind as usize, at, 0)..=(kind as usize, at, u64::MAX);
                let expected: Vec<u64> = model.range(range).map(|(.., id)| *id).collect();
                assert_eq!(members, expected, "seed {seed}");
                memberships.check_invariants();
            }
            for id in ids {
                let mut gone = memberships.leave(id).unwrap();
                while let Some((kind, name, _)) = gone.take_one() {
                    memberships.remove(kind, &name, id);
                }
            }
            assert!(memberships.kinds.iter().all(BTreeMap::is_empty));
            assert!(memberships.subscribers.is_empty());
        }
    }

    #[test]
    fn the_bytes_of_each_subscription_are_counted_once() {
        let (mut memberships, name) = (Memberships::default(), Name::from_bytes(b"news"));
        let id = memberships.enter(TOKEN);
        let subscriber = memberships.get(id).unwrap();
        assert!(!subscriber.summary(id).is_any());
        subscriber.hold(SubscriptionKind::Channel, &name);
        subscriber.hold(SubscriptionKind::Channel, &name);
        subscriber.hold(SubscriptionKind::Shard, &name);
        let summary = subscriber.summary(id);
        assert_eq!((summary.counts, summary.bytes), ([1, 0, 1], 2 * name.held_bytes()));
        let counted = [SubscriptionKind::Pattern, SubscriptionKind::Shard]
            .map(|kind| summary.counted_with(kind));
        assert_eq!(counted, [1, 1]);
        subscriber.let_go(SubscriptionKind::Channel, &name);
        subscriber.let_go(SubscriptionKind::Channel, &name);
        assert_eq!(subscriber.summary(id).bytes, name.held_bytes());
    }

    #[test] // The order does not depend on the hashes of the patterns.
    fn patterns_are_left_in_the_order_of_subscription() {
        let mut memberships = Memberships::default();
        let id = memberships.enter(TOKEN);
        let subscriber = memberships.get(id).unwrap();
        let names: Vec<Name> = (0..50_u8).map(|at| Name::from_bytes(&[b'p', at])).collect();
        names.iter().for_each(|name| subscriber.hold(SubscriptionKind::Pattern, name));
        // Subscribing again does not change the order.
        subscriber.hold(SubscriptionKind::Pattern, &names[0]);
        assert_eq!(subscriber.some(SubscriptionKind::Pattern, 20), names[..20]);
        let bytes = subscriber.summary(id).bytes;
        subscriber.let_go(SubscriptionKind::Pattern, &names[0]);
        subscriber.hold(SubscriptionKind::Pattern, &names[0]);
        assert_eq!(subscriber.some(SubscriptionKind::Pattern, 50).last(), Some(&names[0]));
        assert_eq!(subscriber.summary(id).bytes, bytes);
    }

    #[test] // Cores count a new subscriber of a pattern one after the other.
    fn messages_come_only_from_cores_that_count_the_subscriber() {
        let (mut memberships, name) = (Memberships::default(), Name::from_bytes(b"n*"));
        let id = memberships.enter(TOKEN);
        memberships.add(SubscriptionKind::Pattern, &name, id);
        memberships.begin_partial(&name, id, true, 3);
        let counted = |memberships: &Memberships| {
            [0, 1, 2].map(|core| memberships.is_counted(&name, id, core))
        };
        assert_eq!(counted(&memberships), [false; 3]);
        assert!(!memberships.note_counted(&name, id, true, 1));
        assert_eq!(counted(&memberships), [false, true, false]);
        assert!(
            !memberships.note_counted(&name, id, true, 0)
                && memberships.note_counted(&name, id, true, 2)
        );
        assert_eq!(counted(&memberships), [true; 3]);
        memberships.begin_partial(&name, id, false, 3);
        assert_eq!(counted(&memberships), [true; 3]);
        assert!(!memberships.note_counted(&name, id, false, 2));
        assert_eq!(memberships.take_partial(&name, id), Some(vec![true, true, false]));
        memberships.check_invariants();
    }
}
