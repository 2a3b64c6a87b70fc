//! Runs on the core that owns the keys: the prefixes tracked by the clients of all cores, and the
//! touched keys that match them.
//!
//! A touched key is matched with the prefixes in steps. Each step looks at the greatest prefix that
//! is not above the key. Either the key begins with that prefix; then shorter prefixes may match,
//! too. Or the two share only some bytes; then no matching prefix is longer than these. So only a
//! few of many prefixes are compared.
//!
//! The matching keys of a prefix are gathered, and sent once a turn, as soon as the cores have
//! delivered the previous messages. If more than [`GATHERED_MAX`] keys gather, the clients with the
//! prefix are told to flush their whole cache. So no writer waits, and memory is bounded.
//!
//! Invariants (`check_invariants`):
//! - B1: a prefix with gathered keys is listed in `dirty`. (A listed prefix may have been removed,
//!   or removed and added again.)
//! - B2: `gathered` is the total number of keys gathered for all prefixes.

use super::message::Invalidation;
use super::{Prefix, Touch};
use darter_keyspace::Name;
use darter_keyspace::lazyfree;
use darter_tx::CoreId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// The limit of gathered keys, in total over all prefixes.
const GATHERED_MAX: usize = 64 * 1024;
/// The maximal number of keys in one message: about 20 us to encode.
const KEYS_MAX: usize = 256;

type Keys = BTreeMap<Arc<Name>, u64>;

/// A tracked prefix, and the cores that have clients with it.
#[derive(Debug, Default)]
struct Known {
    cores: Vec<CoreId>,
    /// The gathered keys, each with the client that has touched it; 0 if several have.
    keys: Keys,
    /// True if too many keys were gathered, so that all keys are invalid.
    is_all: bool,
}

impl Known {
    fn is_dirty(&self) -> bool {
        self.is_all || !self.keys.is_empty()
    }
}

/// A message with gathered keys, for the cores that have clients with a prefix.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) prefix: Prefix,
    pub(crate) cores: Vec<CoreId>,
    pub(crate) message: Arc<Invalidation>,
}

/// The tracked prefixes, and the touched keys.
#[derive(Debug, Default)]
pub(crate) struct Broadcasts {
    prefixes: BTreeMap<Prefix, Known>,
    /// Touched keys that were not matched with the prefixes yet.
    touched: VecDeque<Touch>,
    /// The maximal length of a prefix that may still match the first of these keys, in bytes.
    left: Option<usize>,
    /// The prefixes for which keys were gathered.
    dirty: BTreeSet<Prefix>,
    gathered: usize,
    /// The number of messages that the cores have not delivered yet.
    away: usize,
}

impl Broadcasts {
    /// True if no client tracks a prefix.
    pub(crate) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// The number of different prefixes.
    pub(crate) fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// True if touched keys wait to be matched.
    pub(crate) fn can_match(&self) -> bool {
        !self.touched.is_empty()
    }

    /// True if gathered keys can be sent at the end of the turn.
    pub(crate) fn can_send(&self) -> bool {
        self.away == 0 && !self.dirty.is_empty()
    }

    /// Adds core `core` to a prefix, because its first client with this prefix has come.
    pub(crate) fn add(&mut self, prefix: &Prefix, core: CoreId) {
        let cores = &mut self.prefixes.entry(prefix.clone()).or_default().cores;
        debug_assert!(!cores.contains(&core), "core {core} has it already");
        cores.push(core);
    }

    /// Removes core `core` from a prefix, because its last client with this prefix has gone.
    pub(crate) fn remove(&mut self, prefix: &Prefix, core: CoreId) {
        let Some(known) = self.prefixes.get_mut(prefix) else { return };
        known.cores.retain(|other| *other != core);
        if known.cores.is_empty() {
            self.gathered -= known.keys.len();
            forget(std::mem::take(&mut known.keys));
            self.prefixes.remove(prefix);
        }
    }

    /// Adds a touched key.
    pub(crate) fn touch(&mut self, touch: Touch) {
        if !self.prefixes.is_empty() {
            self.touched.push_back(touch);
        }
    }

    /// Matches touched keys with prefixes, in at most `steps` steps.
    pub(crate) fn match_some(&mut self, mut steps: usize) {
        while steps > 0
            && let Some((name, author)) = self.touched.front()
        {
            steps -= 1;
            let (name, author) = (Arc::clone(name), *author);
            let left = self.left.take().unwrap_or(name.len());
            match self.next_match(&name, left) {
                Some((prefix, next)) => {
                    self.left = next;
                    if let Some(prefix) = prefix {
                        self.gather(&prefix, name, author);
                    }
                }
                None => self.left = None,
            }
            if self.left.is_none() {
                self.touched.pop_front();
            }
        }
    }

    /// Does one step of matching the first `left` bytes of a name. Returns the prefix that was
    /// found, if any, and the maximal length of the next; `None` at the end.
    fn next_match(&self, name: &[u8], left: usize) -> Option<(Option<Prefix>, Option<usize>)> {
        let sought = &name[..left];
        let upto = (Bound::Unbounded, Bound::Included(sought));
        let (prefix, _) = self.prefixes.range::<[u8], _>(upto).next_back()?;
        let common = prefix.iter().zip(sought).take_while(|(one, other)| one == other).count();
        if common < prefix.len() {
            return Some((None, Some(common)));
        }
        Some((Some(prefix.clone()), prefix.len().checked_sub(1)))
    }

    fn gather(&mut self, prefix: &Prefix, name: Arc<Name>, author: u64) {
        let known = self.prefixes.get_mut(prefix).expect("it was just found");
        if known.is_all {
            return;
        }
        if !known.is_dirty() {
            self.dirty.insert(prefix.clone());
        }
        match known.keys.entry(name) {
            Entry::Vacant(place) => {
                place.insert(author);
                self.gathered += 1;
            }
            // Several clients have changed the key, so each of them must be notified.
            Entry::Occupied(mut place) if *place.get() != author => *place.get_mut() = 0,
            Entry::Occupied(_) => {}
        }
        if self.gathered > GATHERED_MAX {
            self.gathered -= known.keys.len();
            forget(std::mem::take(&mut known.keys));
            known.is_all = true;
        }
    }

    /// Takes the gathered keys of at most `most` messages. Returns none while earlier messages are
    /// not delivered yet.
    pub(crate) fn take(&mut self, most: usize) -> Vec<Broadcast> {
        if !self.can_send() {
            return Vec::new();
        }
        let mut all = Vec::new();
        while all.len() < most
            && let Some(prefix) = self.dirty.pop_first()
        {
            let known = self.prefixes.get_mut(&prefix).filter(|known| known.is_dirty());
            let Some(known) = known else { continue };
            let message = if std::mem::take(&mut known.is_all) {
                Invalidation::All
            } else {
                let keys = std::iter::from_fn(|| known.keys.pop_first()).take(KEYS_MAX);
                let keys: Box<[Touch]> = keys.collect();
                self.gathered -= keys.len();
                Invalidation::Keys(keys)
            };
            let cores = known.cores.clone();
            if known.is_dirty() {
                self.dirty.insert(prefix.clone());
            }
            self.away += cores.len();
            all.push(Broadcast { prefix, cores, message: Arc::new(message) });
        }
        all
    }

    /// Records that a core has delivered a message.
    pub(crate) fn delivered(&mut self) {
        self.away -= 1;
    }

    #[cfg(test)]
    fn check_invariants(&self) {
        let is_dirty = |(_, known): &(&Prefix, &Known)| known.is_dirty();
        let dirty: Vec<_> =
            self.prefixes.iter().filter(is_dirty).map(|(prefix, _)| prefix).collect();
        assert!(dirty.iter().all(|prefix| self.dirty.contains(*prefix)), "B1");
        let keys = self.prefixes.values().map(|known| known.keys.len());
        assert_eq!(keys.sum::<usize>(), self.gathered, "B2");
    }
}

fn forget(keys: Keys) {
    /// At most this number of keys is freed at once.
    const FEW: usize = 64;
    const ENTRY: usize = (size_of::<(Arc<Name>, u64)>() + size_of::<Name>()) * 3 / 2;
    lazyfree::defer_long(keys, FEW, ENTRY);
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    fn touch(name: &[u8], author: u64) -> Touch {
        (Arc::new(Name::from(name)), author)
    }

    fn settle(broadcasts: &mut Broadcasts, steps: usize) {
        while !broadcasts.touched.is_empty() {
            broadcasts.match_some(steps);
            broadcasts.check_invariants();
        }
    }

    fn has_work(broadcasts: &Broadcasts) -> bool {
        broadcasts.can_match() || broadcasts.can_send()
    }

    /// Takes all gathered messages, as pairs of a prefix and a key.
    fn taken(broadcasts: &mut Broadcasts) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
        let mut all = BTreeSet::new();
        while broadcasts.can_send() {
            for Broadcast { prefix, cores, message } in broadcasts.take(3) {
                cores.iter().for_each(|_| broadcasts.delivered());
                let Invalidation::Keys(keys) = &*message else { panic!("few keys") };
                all.extend(keys.iter().map(|(name, _)| (prefix.to_vec(), name.to_vec())));
            }
            broadcasts.check_invariants();
        }
        all
    }

    #[test] // A model compares all pairs of random words of two letters.
    fn touched_keys_match_all_prefixes_that_begin_them() {
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let mut word = |most| -> Vec<u8> {
                (0..prng.below(most)).map(|_| b'a' + u8::from(prng.chance(50))).collect()
            };
            let prefixes: BTreeSet<Vec<u8>> = (0..12).map(|_| word(6)).collect();
            let keys: BTreeSet<Vec<u8>> = (0..12).map(|_| word(9)).collect();
            let mut broadcasts = Broadcasts::default();
            for prefix in &prefixes {
                [0, 2].iter().for_each(|core| broadcasts.add(&Prefix::from(&prefix[..]), *core));
            }
            keys.iter().for_each(|key| broadcasts.touch(touch(key, 0)));
            settle(&mut broadcasts, 1 + usize::try_from(seed).unwrap() % 3);
            let begins = |prefix: &Vec<u8>| -> Vec<_> {
                let keys = keys.iter().filter(|key| key.starts_with(prefix));
                keys.map(|key| (prefix.clone(), key.clone())).collect()
            };
            assert_eq!(
                taken(&mut broadcasts),
                prefixes.iter().flat_map(begins).collect(),
                "{seed}"
            );
        }
    }

    #[test] // Twelve steps find the prefix among 100 000.
    fn a_key_is_compared_with_few_of_many_prefixes() {
        let mut broadcasts = Broadcasts::default();
        for number in 0..100_000_u32 {
            broadcasts.add(&Prefix::from(format!("app:{number:06}:").as_bytes()), 0);
        }
        broadcasts.touch(touch(b"app:004711:user", 0));
        broadcasts.match_some(12);
        assert!(broadcasts.touched.is_empty(), "{} bytes are left", broadcasts.left.unwrap());
        let expected = (b"app:004711:".to_vec(), b"app:004711:user".to_vec());
        assert_eq!(taken(&mut broadcasts), BTreeSet::from([expected]));
    }

    #[test] // A key that several clients have changed has no author.
    fn gathered_keys_wait_until_earlier_messages_are_delivered() {
        let (mut broadcasts, all) = (Broadcasts::default(), Prefix::from(&b""[..]));
        broadcasts.add(&all, 1);
        [1, 2].iter().for_each(|author| broadcasts.touch(touch(b"k", *author)));
        settle(&mut broadcasts, 1);
        let sent = broadcasts.take(9);
        let [Broadcast { message, .. }] = &sent[..] else { panic!("one message") };
        assert!(
            matches!(&**message, Invalidation::Keys(keys) if keys.len() == 1 && keys[0].1 == 0)
        );
        broadcasts.touch(touch(b"l", 0));
        settle(&mut broadcasts, 1);
        assert!(broadcasts.take(9).is_empty() && !has_work(&broadcasts));
        broadcasts.delivered();
        assert!(has_work(&broadcasts) && broadcasts.take(9).len() == 1);
        broadcasts.delivered();
        broadcasts.touch(touch(b"m", 0));
        settle(&mut broadcasts, 1);
        broadcasts.remove(&all, 1);
        broadcasts.check_invariants();
        assert!(broadcasts.take(9).is_empty() && broadcasts.is_empty() && !has_work(&broadcasts));
    }

    #[test] // Several messages are needed for many keys.
    fn too_many_gathered_keys_become_a_flush() {
        let (mut broadcasts, all) = (Broadcasts::default(), Prefix::from(&b""[..]));
        broadcasts.add(&all, 0);
        for number in 0..1_000_u32 {
            broadcasts.touch(touch(&number.to_le_bytes(), 0));
        }
        settle(&mut broadcasts, 64);
        assert_eq!((broadcasts.take(3).len(), broadcasts.away), (3, 3));
        for number in 0..100_000_u32 {
            broadcasts.touch(touch(&number.to_le_bytes(), 0));
            broadcasts.match_some(8);
        }
        (0..3).for_each(|_| broadcasts.delivered());
        let sent = broadcasts.take(9);
        assert!(matches!(&*sent[0].message, Invalidation::All) && sent.len() == 1);
        assert!(!has_work(&broadcasts) && broadcasts.gathered == 0);
    }
}
