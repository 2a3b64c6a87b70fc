//! On the core of the keys: the prefixes of clients of all cores, and what was touched that begins with
//! them.
//!
//! A touched key is matched with prefixes in steps: the greatest prefix that is not above the key
//! either begins it, and then a shorter one may do so, too; or it has some bytes in common with it,
//! and no other that matches is longer than these. So few prefixes are looked at, of however many.
//!
//! What is gathered of a prefix leaves once a turn, when the cores that had the messages before have
//! delivered them. If it grows beyond [`GATHERED_MAX`] meanwhile, its clients are told to drop all
//! keys: so nobody has to wait, and nothing grows without bound.
//!
//! Invariants (`check_invariants`):
//! - B1: a prefix of which something is gathered is listed in `dirty`. (One that is listed may have
//!   gone since, or come anew.)
//! - B2: `gathered` is the number of keys of all prefixes.

use super::message::Message;
use super::{Prefix, Touch};
use darter_keyspace::Name;
use darter_keyspace::lazyfree::{self, Dismantle};
use darter_tx::CoreId;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// Keys of all prefixes that are gathered at most.
const GATHERED_MAX: usize = 64 * 1024;
/// Keys of one message: about 20 us to encode.
const KEYS_MAX: usize = 256;

type Keys = BTreeMap<Arc<Name>, u64>;

/// A prefix, with the cores that have clients with it.
#[derive(Debug, Default)]
struct Known {
    cores: Vec<CoreId>,
    /// Touched keys, and whose commands touched them: 0 if several clients' did.
    keys: Keys,
    /// There were too many.
    is_all: bool,
}

impl Known {
    fn is_dirty(&self) -> bool {
        self.is_all || !self.keys.is_empty()
    }
}

/// What is to be sent to some cores.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) prefix: Prefix,
    pub(crate) cores: Vec<CoreId>,
    pub(crate) message: Arc<Message>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Broadcasts {
    prefixes: BTreeMap<Prefix, Known>,
    /// Touched keys that are yet to be matched,
    touched: VecDeque<Touch>,
    /// and how many bytes of the first a prefix may still have.
    left: Option<usize>,
    /// The prefixes of which something is gathered.
    dirty: BTreeSet<Prefix>,
    gathered: usize,
    /// Messages that cores have yet to deliver.
    away: usize,
}

impl Broadcasts {
    /// True when nobody has a prefix.
    pub(crate) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Different prefixes.
    pub(crate) fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether something can be matched.
    pub(crate) fn can_match(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Whether something can be sent as the turn ends.
    pub(crate) fn can_send(&self) -> bool {
        self.away == 0 && !self.dirty.is_empty()
    }

    /// Core `core` has clients with this prefix from now on.
    pub(crate) fn add(&mut self, prefix: &Prefix, core: CoreId) {
        let cores = &mut self.prefixes.entry(prefix.clone()).or_default().cores;
        debug_assert!(!cores.contains(&core), "core {core} has it already");
        cores.push(core);
    }

    /// Core `core` has none any more.
    pub(crate) fn remove(&mut self, prefix: &Prefix, core: CoreId) {
        let Some(known) = self.prefixes.get_mut(prefix) else { return };
        known.cores.retain(|other| *other != core);
        if known.cores.is_empty() {
            self.gathered -= known.keys.len();
            forget(std::mem::take(&mut known.keys));
            self.prefixes.remove(prefix);
        }
    }

    /// A key was touched.
    pub(crate) fn touch(&mut self, touch: Touch) {
        if !self.prefixes.is_empty() {
            self.touched.push_back(touch);
        }
    }

    /// Matches touched keys with prefixes: so many steps at most.
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

    /// A step: a prefix of the first `left` bytes of a name, perhaps, and how many bytes the next may
    /// have. Nothing if there is none.
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
            // Two have changed it, so each is told of the other's change.
            Entry::Occupied(mut place) if *place.get() != author => *place.get_mut() = 0,
            Entry::Occupied(_) => {}
        }
        if self.gathered > GATHERED_MAX {
            self.gathered -= known.keys.len();
            forget(std::mem::take(&mut known.keys));
            known.is_all = true;
        }
    }

    /// Takes what is gathered of some prefixes, unless messages sent before are still to be delivered.
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
                Message::All
            } else {
                let keys = std::iter::from_fn(|| known.keys.pop_first()).take(KEYS_MAX);
                let keys: Box<[Touch]> = keys.collect();
                self.gathered -= keys.len();
                Message::Keys(keys)
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

    /// A core has delivered a message.
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
    /// As many are freed at once.
    const FEW: usize = 64;
    if keys.len() > FEW {
        lazyfree::defer(Box::new(Forgotten(keys)));
    }
}

/// Keys that are not told one by one.
struct Forgotten(Keys);

impl Dismantle for Forgotten {
    fn dismantle(&mut self) -> bool {
        (0..64).for_each(|_| drop(self.0.pop_first()));
        !self.0.is_empty()
    }

    fn bytes(&self) -> usize {
        const ENTRY: usize = (size_of::<(Arc<Name>, u64)>() + size_of::<Name>()) * 3 / 2;
        self.0.len() * ENTRY
    }
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

    /// What each prefix has gathered.
    fn taken(broadcasts: &mut Broadcasts) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
        let mut all = BTreeSet::new();
        while broadcasts.can_send() {
            for Broadcast { prefix, cores, message } in broadcasts.take(3) {
                cores.iter().for_each(|_| broadcasts.delivered());
                let Message::Keys(keys) = &*message else { panic!("few keys") };
                all.extend(keys.iter().map(|(name, _)| (prefix.to_vec(), name.to_vec())));
            }
            broadcasts.check_invariants();
        }
        all
    }

    #[test] // Random prefixes and keys over two letters, in steps: as if each were compared with each.
    fn keys_match_their_prefixes() {
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

    #[test] // Of a hundred thousand prefixes, a key is compared with a few.
    fn many_prefixes_are_not_searched() {
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

    #[test] // A key once, without an author if several have changed it; nothing more while a message is on its way.
    fn what_is_gathered_waits_for_what_was_sent() {
        let (mut broadcasts, all) = (Broadcasts::default(), Prefix::from(&b""[..]));
        broadcasts.add(&all, 1);
        [1, 2].iter().for_each(|author| broadcasts.touch(touch(b"k", *author)));
        settle(&mut broadcasts, 1);
        let sent = broadcasts.take(9);
        let [Broadcast { message, .. }] = &sent[..] else { panic!("one message") };
        assert!(matches!(&**message, Message::Keys(keys) if keys.len() == 1 && keys[0].1 == 0));
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

    #[test] // Too many keys become all keys; many leave in several messages.
    fn what_is_gathered_is_bounded() {
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
        assert!(matches!(&*sent[0].message, Message::All) && sent.len() == 1);
        assert!(!has_work(&broadcasts) && broadcasts.gathered == 0);
    }
}
