//! The tracking clients of one core, and the prefixes of clients in broadcast mode.
//!
//! Trees instead of hash tables, as for subscriptions: no table is ever copied as a whole. A prefix
//! with 100 000 clients, or a client with 100 000 prefixes, can be visited in portions.
//!
//! Invariants (`check_invariants`):
//! - R1: each prefix lists exactly the clients that have it, and those that have left but whose
//!   prefixes are not removed yet.

use super::Prefix;
use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::ops::Bound;

/// The prefixes of one client.
pub(crate) type Prefixes = BTreeSet<Prefix>;

/// The tracking clients and their prefixes, each findable by the other.
#[derive(Debug, Default)]
pub(crate) struct Trackers {
    clients: BTreeSet<u64>,
    prefixes: BTreeMap<u64, Prefixes>,
    members: BTreeMap<Prefix, BTreeSet<u64>>,
}

/// Bytes of memory for one prefix of one client: its entries in trees whose nodes are two thirds
/// full.
pub(crate) fn held_bytes(prefix: &[u8]) -> usize {
    const ENTRIES: usize = (2 * size_of::<Prefix>() + size_of::<u64>()) * 3 / 2;
    ENTRIES + prefix.len()
}

impl Trackers {
    /// Adds a tracking client.
    pub(crate) fn enter(&mut self, client: u64) {
        self.clients.insert(client);
    }

    /// Removes a client, and returns its prefixes. The caller must remove these with
    /// [`Trackers::remove_some`].
    pub(crate) fn leave(&mut self, client: u64) -> Prefixes {
        self.clients.remove(&client);
        self.prefixes.remove(&client).unwrap_or_default()
    }

    /// The number of tracking clients.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// The tracking clients whose handle is above `after`.
    pub(crate) fn clients_after(&self, after: u64) -> impl Iterator<Item = u64> {
        self.clients.range((Bound::Excluded(after), Bound::Unbounded)).copied()
    }

    /// The clients with a prefix whose handle is above `after`.
    pub(crate) fn members_after(&self, prefix: &[u8], after: u64) -> impl Iterator<Item = u64> {
        let members = self.members.get(prefix);
        let range = (Bound::Excluded(after), Bound::Unbounded);
        members.into_iter().flat_map(move |members| members.range(range)).copied()
    }

    /// The prefixes of a client, in their order.
    pub(crate) fn prefixes_of(&self, client: u64) -> Option<&Prefixes> {
        self.prefixes.get(&client)
    }

    /// Adds a prefix to a client. Returns whether it is new for the client, and whether it is new
    /// for the core.
    pub(crate) fn add(&mut self, client: u64, prefix: &Prefix) -> (bool, bool) {
        let is_new = self.prefixes.entry(client).or_default().insert(prefix.clone());
        let is_first = !self.members.contains_key(&**prefix);
        self.members.entry(prefix.clone()).or_default().insert(client);
        (is_new, is_first)
    }

    /// Removes `count` of the prefixes of a client that has left. A prefix that the client has
    /// tracked again stays. Returns the prefixes that no client of this core has any more.
    pub(crate) fn remove_some(
        &mut self,
        client: u64,
        all: &mut Prefixes,
        count: usize,
    ) -> Vec<Prefix> {
        let mut unused = Vec::new();
        for prefix in std::iter::from_fn(|| all.pop_first()).take(count) {
            if self.prefixes.get(&client).is_some_and(|own| own.contains(&prefix)) {
                continue;
            }
            let Entry::Occupied(mut members) = self.members.entry(prefix) else { continue };
            members.get_mut().remove(&client);
            if members.get().is_empty() {
                unused.push(members.remove_entry().0);
            }
        }
        unused
    }

    #[cfg(test)]
    fn check_invariants(&self, leaving: (u64, &Prefixes)) {
        let own = self.prefixes.iter().flat_map(|(id, own)| own.iter().map(move |own| (*id, own)));
        let leaving = leaving.1.iter().map(|prefix| (leaving.0, prefix));
        let own: BTreeSet<_> = own.chain(leaving).collect();
        let of = |(prefix, ids): (_, &BTreeSet<u64>)| -> Vec<_> {
            ids.iter().map(|id| (*id, prefix)).collect()
        };
        assert_eq!(own, self.members.iter().flat_map(of).collect(), "R1");
        assert!(self.members.values().all(|ids| !ids.is_empty()), "a prefix of nobody");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Prefixes are removed in portions.
    fn the_first_and_last_client_of_a_prefix_are_reported() {
        let mut trackers = Trackers::default();
        let names: Vec<Prefix> = (0..100_u8).map(|at| Prefix::from([at].as_slice())).collect();
        for client in [3, 9] {
            trackers.enter(client);
            let firsts = names.iter().filter(|name| trackers.add(client, name).1).count();
            assert_eq!(firsts, if client == 3 { 100 } else { 0 });
            trackers.check_invariants((0, &Prefixes::new()));
        }
        assert_eq!(trackers.members_after(&[5], 0).collect::<Vec<_>>(), [3, 9]);
        assert_eq!(trackers.members_after(&[5], 3).collect::<Vec<_>>(), [9]);
        assert_eq!(trackers.members_after(&[200], 0).count(), 0);
        let mut gone = trackers.leave(3);
        assert_eq!((trackers.len(), trackers.clients_after(0).next()), (1, Some(9)));
        assert_eq!(trackers.add(3, &names[50]), (true, false), "it is back, with one of them");
        while !gone.is_empty() {
            assert_eq!(trackers.remove_some(3, &mut gone, 7), [], "another has them");
            trackers.check_invariants((3, &gone));
        }
        assert_eq!(trackers.prefixes_of(3).map(Prefixes::len), Some(1));
        let mut gone = trackers.leave(9);
        assert_eq!(trackers.remove_some(9, &mut gone, 50), names[..50], "nobody has them");
        assert_eq!(trackers.remove_some(9, &mut gone, 60), names[51..]);
        trackers.check_invariants((9, &gone));
    }
}
