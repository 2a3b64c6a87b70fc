//! The subscriptions of one core's clients.
//!
//! A subscriber has its own number, not its client's. After RESET, or after the connection has
//! closed, the number is removed at once, and its subscriptions are removed in portions.
//!
//! Every core counts patterns, and the cores are notified of a change one after the other. Until
//! all are, the subscription records which cores count it. A message from a core that did not count
//! it yet is not for this subscriber.
//!
//! Invariants (`check_invariants`):
//! - R1: a subscriber is a member of each of its subscriptions. Members without a subscriber exist
//!   only while its subscriptions are being removed.
//! - R2: each entry of `partial` has a member of its pattern.
//! - R3: `patterns` has the same patterns as `held`.

use super::name::Name;
use super::{Subscribed, SubscriptionKind};
use darter_base::hash::IdentityMap;
use darter_resp::Output;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The subscribers of one name.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "most have one member: it is to be small")]
enum Members {
    One(u64),
    Many(Box<BTreeSet<u64>>),
}

/// A subscription.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The subscriber is leaving: the homes are notified.
    is_leaving: bool,
    /// The order of the subscription among those of its subscriber.
    number: u64,
}

/// The size of a pattern in `patterns`: an entry of a tree that is two thirds full.
const ORDER_BYTES: usize = (size_of::<u64>() + size_of::<Name>()) * 3 / 2;

/// A client with subscriptions.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) token: Token,
    held: [BTreeMap<Name, Held>; 3],
    /// The patterns, in order of subscription.
    patterns: BTreeMap<u64, Name>,
    /// The number of subscriptions made so far.
    last: u64,
    /// Bytes of memory of the subscriptions.
    bytes: usize,
    /// Messages that arrived before the confirmation of a subscription in progress; `None` without
    /// one.
    pub(crate) early: Option<Output>,
}

impl Subscriber {
    /// The summary for its session.
    pub(crate) fn summary(&self, id: u64) -> Subscribed {
        Subscribed {
            id,
            counts: SubscriptionKind::ALL.map(|kind| self.len(kind)),
            bytes: self.bytes,
        }
    }

    /// Subscriptions of a kind.
    pub(crate) fn len(&self, kind: SubscriptionKind) -> usize {
        self.held[kind as usize].len()
    }

    pub(crate) fn holds(&self, kind: SubscriptionKind, name: &Name) -> bool {
        self.held[kind as usize].contains_key(name)
    }

    /// At most `most` subscriptions of a kind: the oldest patterns, and others in no order, as in
    /// Redis.
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

    /// Marks a subscription as leaving: the homes are being notified.
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

    /// Takes any subscription: its kind, its name, and whether it was leaving.
    pub(crate) fn take_one(&mut self) -> Option<(SubscriptionKind, Name, bool)> {
        let kind = SubscriptionKind::ALL.into_iter().find(|kind| self.len(*kind) > 0)?;
        let (name, held) = self.held[kind as usize].pop_first()?;
        self.note_gone(kind, &name, held);
        Some((kind, name, held.is_leaving))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Memberships {
    kinds: [BTreeMap<Name, Members>; 3],
    subscribers: IdentityMap<Subscriber>,
    /// Members of patterns that not all cores count: by core, whether it does.
    partial: BTreeMap<(Name, u64), Vec<bool>>,
    last: u64,
}

impl Memberships {
    /// Adds a client without subscriptions. Returns its number.
    pub(crate) fn enter(&mut self, token: Token) -> u64 {
        self.last += 1;
        let held = [const { BTreeMap::new() }; 3];
        let (patterns, last) = (BTreeMap::new(), 0);
        let subscriber = Subscriber { token, held, patterns, last, bytes: 0, early: None };
        self.subscribers.insert(self.last, subscriber);
        self.last
    }

    /// Removes a subscriber. The caller must still remove its subscriptions.
    pub(crate) fn leave(&mut self, id: u64) -> Option<Subscriber> {
        self.subscribers.remove(&id)
    }

    pub(crate) fn get(&mut self, id: u64) -> Option<&mut Subscriber> {
        self.subscribers.get_mut(&id)
    }

    /// Adds a member.
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

    /// Removes a member.
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

    /// The members after number `after`, in the order of their numbers.
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

    /// Begins a join or leave of a pattern: no core has counted it yet.
    pub(crate) fn begin_partial(&mut self, name: &Name, id: u64, joins: bool, cores: usize) {
        self.partial.insert((name.clone(), id), vec![!joins; cores]);
    }

    /// Records that core `core` has counted a join or leave of a pattern. True if all have.
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

    /// Takes the cores that count a member of a pattern; `None` for all.
    pub(crate) fn take_partial(&mut self, name: &Name, id: u64) -> Option<Vec<bool>> {
        self.partial.remove(&(name.clone(), id))
    }

    /// Whether a message from core `core` is for this member of a pattern.
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

    #[test] // Random joins and leaves on memberships and on a plain model agree.
    fn memberships_match_a_model() {
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

    #[test] // The bytes of each subscription count once.
    fn bytes_of_subscriptions_are_counted() {
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

    #[test] // Patterns leave in the order of subscription, whatever their hashes.
    fn patterns_keep_their_order() {
        let mut memberships = Memberships::default();
        let id = memberships.enter(TOKEN);
        let subscriber = memberships.get(id).unwrap();
        let names: Vec<Name> = (0..50_u8).map(|at| Name::from_bytes(&[b'p', at])).collect();
        names.iter().for_each(|name| subscriber.hold(SubscriptionKind::Pattern, name));
        subscriber.hold(SubscriptionKind::Pattern, &names[0]); // A second subscription keeps the order.
        assert_eq!(subscriber.some(SubscriptionKind::Pattern, 20), names[..20]);
        let bytes = subscriber.summary(id).bytes;
        subscriber.let_go(SubscriptionKind::Pattern, &names[0]);
        subscriber.hold(SubscriptionKind::Pattern, &names[0]);
        assert_eq!(subscriber.some(SubscriptionKind::Pattern, 50).last(), Some(&names[0]));
        assert_eq!(subscriber.summary(id).bytes, bytes);
    }

    #[test] // A pattern's member gets messages from the cores that count the member.
    fn cores_count_patterns_one_by_one() {
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
