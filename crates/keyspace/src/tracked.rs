//! A shard's part of client tracking: which clients have read which of its keys, and which of these
//! keys were touched since.
//!
//! It reads the shard's log for events. Reads within an open transaction are recorded there, too,
//! so that their order with respect to touches is preserved.
//!
//! A key is remembered with its readers until it is touched (see `watch`) or evicted. Then it is
//! forgotten, and reported as touched to all its readers. So each read is reported once, and a
//! client that reads again is remembered again. Databases do not matter: clients identify a key by
//! its name.
//!
//! No step grows with the number of readers or of keys: a touched key is removed together with its
//! tree of readers, and everything is freed in portions. Trees are used because a hash table of a
//! million keys would move as a whole when it grows.
//!
//! Keys are found by their hashes. If two keys share a hash, the earlier one is dropped as if it
//! had been touched.
//!
//! Invariants (`check_invariants`):
//! - T1: every remembered key has a reader.
//! - T2: `items` is the sum of the readers of all keys.
//! - T3: there are no more keys than `most`, unless that has just been lowered.

use crate::lazyfree::{self, Dismantle};
use crate::watch::is_touch;
use crate::{Act, Key, Name, Record};
use darter_base::Prng;
use std::collections::{BTreeMap, BTreeSet};

/// The clients that have read a key.
#[derive(Debug)]
pub enum Readers {
    /// A single reader, the usual case.
    One(u64),
    /// Several readers. Take them in portions, because there may be very many.
    Many(BTreeSet<u64>),
}

impl Readers {
    /// Adds a reader. Returns true if it is new.
    fn add(&mut self, client: u64) -> bool {
        match self {
            Self::One(other) if *other == client => false,
            Self::One(other) => {
                *self = Self::Many(BTreeSet::from([*other, client]));
                true
            }
            Self::Many(all) => all.insert(client),
        }
    }

    /// The number of readers.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(all) => all.len(),
        }
    }

    /// True when all readers have been taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes some of the readers.
    pub fn take(&mut self, most: usize) -> Vec<u64> {
        match self {
            Self::One(client) => {
                let client = *client;
                *self = Self::Many(BTreeSet::new());
                vec![client]
            }
            Self::Many(all) => std::iter::from_fn(|| all.pop_first()).take(most).collect(),
        }
    }
}

/// Flag added to an author whose script is running. For readers of every touch, a script's changes
/// are not the author's own, as in Redis, where scripts have their own client.
pub const BY_SCRIPT: u64 = 1 << 63;

/// A notice for readers.
#[derive(Debug)]
pub enum Touched {
    /// The readers' copies of this key are invalid.
    Read {
        /// The key.
        name: Name,
        /// The clients that have read it.
        readers: Readers,
        /// The author of the command, if it ignores its own changes; otherwise 0.
        author: u64,
    },
    /// A key was touched, whether or not it has readers.
    Any {
        /// The key.
        name: Name,
        /// The author of the command, if it ignores its own changes; otherwise 0.
        author: u64,
    },
    /// All keys of some database were removed, and the remembered ones are forgotten.
    All,
}

/// The changes that are observed for tracking clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hears {
    /// Removals of all keys of a database.
    pub flushes: bool,
    /// Every touch of any key.
    pub all: bool,
}

/// A remembered key.
#[derive(Debug)]
struct Remembered {
    name: Name,
    readers: Readers,
}

type Keys = BTreeMap<u64, Remembered>;

/// The remembered keys of a shard; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Tracked {
    /// The keys by their hashes.
    keys: Keys,
    items: usize,
    /// The most keys to remember; 0 for no limit.
    most: usize,
    hears: Hears,
    touched: Vec<Touched>,
}

impl Tracked {
    /// True if there is nothing to observe and nothing to report.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.touched.is_empty() && self.hears == Hears::default()
    }

    /// Processes a record of the log.
    pub(crate) fn follow(&mut self, record: &Record, prng: &mut Prng) {
        match &record.act {
            Act::Key(name, _) | Act::Touched(name) => {
                if record.events.iter().any(is_touch) {
                    self.hear_touch(name, record.author);
                }
            }
            Act::Read(name, client) => self.remember(*client, &Key::new(name), prng),
            // After a swap a key's name may stand for another value.
            Act::Flush | Act::FlushAll | Act::Swap(_) => self.hear_flush(),
            Act::Miss(_) | Act::Server(_) | Act::EndOfPart => {}
        }
    }

    /// Remembers that a client has read a key, which need not exist.
    pub(crate) fn remember(&mut self, client: u64, key: &Key<'_>, prng: &mut Prng) {
        if let Some(known) = self.keys.get_mut(&key.hash) {
            if *known.name == *key.bytes {
                self.items += usize::from(known.readers.add(client));
                return;
            }
            self.drop_key(key.hash);
        }
        let remembered = Remembered { name: Name::from(key.bytes), readers: Readers::One(client) };
        self.keys.insert(key.hash, remembered);
        self.items += 1;
        self.make_room(1, prng);
    }

    /// Sets the most keys to remember; [`Tracked::make_room`] drops the others.
    pub(crate) fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// True if more keys are remembered than allowed.
    pub(crate) fn is_over(&self) -> bool {
        self.most > 0 && self.keys.len() > self.most
    }

    /// Drops at most `count` random keys while there are too many. Their readers are notified as if
    /// the keys had been touched.
    pub(crate) fn make_room(&mut self, count: usize, prng: &mut Prng) {
        for _ in 0..count {
            if !self.is_over() {
                return;
            }
            let from = prng.next_u64();
            let next = self.keys.range(from..).next().or_else(|| self.keys.first_key_value());
            let victim = next.map(|(hash, _)| *hash);
            self.drop_key(victim.expect("there are more than none"));
        }
    }

    fn drop_key(&mut self, hash: u64) {
        self.hear_read(hash, None, 0);
    }

    /// Sets the changes to observe.
    pub(crate) fn hear_for(&mut self, hears: Hears) {
        self.hears = hears;
    }

    /// Handles a touch of a key by the author of the running command.
    fn hear_touch(&mut self, key: &[u8], author: u64) {
        if !self.keys.is_empty() {
            self.hear_read(darter_base::hash::of(key), Some(key), author & !BY_SCRIPT);
        }
        if self.hears.all {
            // The records of one change are adjacent.
            let author = if author & BY_SCRIPT > 0 { 0 } else { author };
            let is_told = match self.touched.last() {
                Some(Touched::Any { name, author: other }) => **name == *key && *other == author,
                _ => false,
            };
            if !is_told {
                self.touched.push(Touched::Any { name: Name::from(key), author });
            }
        }
    }

    /// Handles a touch or an eviction of a key with this hash, and with this name if it is given.
    fn hear_read(&mut self, hash: u64, name: Option<&[u8]>, author: u64) {
        let Some(known) = self.keys.get(&hash) else { return };
        if name.is_some_and(|name| *known.name != *name) {
            return;
        }
        let known = self.keys.remove(&hash).expect("it was just found");
        self.items -= known.readers.len();
        let (name, readers) = (known.name, known.readers);
        self.touched.push(Touched::Read { name, readers, author });
    }

    /// Handles a removal or exchange of all keys of a database: forgets all remembered keys.
    pub(crate) fn hear_flush(&mut self) {
        if !self.keys.is_empty() {
            let (keys, items) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.items));
            lazyfree::defer(Box::new(Forgotten { keys, items }));
        }
        if self.hears.flushes {
            self.touched.push(Touched::All);
        }
    }

    /// Takes the touched keys, in order.
    pub(crate) fn take_touched(&mut self) -> Vec<Touched> {
        std::mem::take(&mut self.touched)
    }

    /// The number of remembered keys, and the number of all their readers.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.keys.len(), self.items)
    }

    /// Asserts the invariants. Cost: O(keys): for tests.
    pub(crate) fn check_invariants(&self) {
        let readers = |known: &Remembered| known.readers.len();
        assert!(self.keys.values().all(|known| readers(known) > 0), "T1");
        assert_eq!(self.keys.values().map(readers).sum::<usize>(), self.items, "T2");
        assert!(!self.is_over(), "T3: {} of {}", self.keys.len(), self.most);
        let hash = |known: &Remembered| darter_base::hash::of(&known.name);
        assert!(
            self.keys.iter().all(|(at, known)| *at == hash(known)),
            "a key is in another place"
        );
    }
}

/// Forgotten keys and readers, waiting to be freed.
struct Forgotten {
    keys: Keys,
    items: usize,
}

impl Dismantle for Forgotten {
    fn dismantle(&mut self) -> bool {
        /// Keys or readers in a portion.
        const AT_ONCE: usize = 64;
        for _ in 0..AT_ONCE {
            let Some(mut first) = self.keys.first_entry() else { return false };
            let taken = first.get_mut().readers.take(AT_ONCE).len();
            self.items -= taken;
            if first.get().readers.is_empty() {
                first.remove();
            }
            if taken > 1 {
                break;
            }
        }
        !self.keys.is_empty()
    }

    fn bytes(&self) -> usize {
        /// Estimated size of an entry, for trees that are two thirds full.
        const KEY: usize = size_of::<(u64, Remembered)>() * 3 / 2;
        const READER: usize = size_of::<u64>() * 3 / 2;
        self.keys.len() * KEY + self.items * READER
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Never;
    use std::collections::BTreeSet as Set;

    fn told(tracked: &mut Tracked) -> Vec<(Vec<u8>, Vec<u64>)> {
        let one = |touched| match touched {
            Touched::Read { name, mut readers, .. } => (name.to_vec(), readers.take(usize::MAX)),
            Touched::Any { name, .. } => (name.to_vec(), Vec::new()),
            Touched::All => (b"all".to_vec(), Vec::new()),
        };
        tracked.take_touched().into_iter().map(one).collect()
    }

    #[test] // Random reads and touches, compared with a plain map: each read is reported once.
    fn a_read_key_is_reported_once_when_touched() {
        const KEYS: [&[u8]; 5] = [b"a", b"b", b"c", b"", b"a long name, longer than what is kept"];
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let (mut tracked, mut model) = (Tracked::default(), BTreeMap::new());
            for step in 0..300 {
                let key = KEYS[usize::try_from(prng.below(5)).unwrap()];
                let client = 1 + prng.below(4);
                match prng.below(20) {
                    0 => {
                        tracked.hear_flush();
                        model.clear();
                    }
                    1..=8 => {
                        tracked.hear_touch(key, 0);
                        let expected: Vec<_> = model.remove(key).into_iter().collect();
                        let told: Vec<_> =
                            told(&mut tracked).into_iter().map(|one| one.1).collect();
                        let expected: Vec<Vec<u64>> = expected
                            .into_iter()
                            .map(|all: Set<u64>| all.into_iter().collect())
                            .collect();
                        assert_eq!(told, expected, "seed {seed} step {step}");
                    }
                    _ => {
                        tracked.remember(client, &Key::new(key), &mut prng);
                        model.entry(key).or_insert_with(Set::new).insert(client);
                    }
                }
                tracked.check_invariants();
                let items = model.values().map(Set::len).sum();
                assert_eq!(tracked.sizes(), (model.len(), items), "seed {seed} step {step}");
            }
            while lazyfree::run(&Never) {}
        }
    }

    #[test] // At the limit, each new key evicts one, and its readers are notified.
    fn evicted_keys_are_invalidated() {
        let (mut tracked, mut prng) = (Tracked::default(), Prng::from_seed(1));
        tracked.limit(10);
        for number in 0..100_u32 {
            tracked.remember(7, &Key::new(&number.to_le_bytes()), &mut prng);
            tracked.check_invariants();
        }
        assert_eq!((tracked.sizes(), told(&mut tracked).len()), ((10, 10), 90));
        tracked.limit(3);
        assert!(tracked.is_over());
        tracked.make_room(100, &mut prng);
        assert_eq!((tracked.sizes(), told(&mut tracked).len()), ((3, 3), 7));
        tracked.limit(0);
        (0..20_u8).for_each(|key| tracked.remember(7, &Key::new(&[key]), &mut prng));
        assert_eq!(tracked.sizes(), (23, 23), "0: any number");
    }

    #[test] // Flushes are reported only on request.
    fn touches_are_reported_with_their_author() {
        let mut tracked = Tracked::default();
        tracked.hear_touch(b"k", 0);
        tracked.hear_flush();
        assert!(tracked.is_empty());
        tracked.hear_for(Hears { flushes: true, all: true });
        [9, 9].iter().for_each(|author| tracked.hear_touch(b"k", *author));
        tracked.remember(8, &Key::new(b"s"), &mut Prng::from_seed(1));
        tracked.hear_touch(b"s", 9 | BY_SCRIPT);
        tracked.hear_touch(b"k", 0);
        tracked.hear_flush();
        let authors = tracked.take_touched().into_iter().map(|touched| match touched {
            Touched::Any { author, .. } => ("any", author),
            Touched::Read { author, .. } => ("read", author),
            Touched::All => ("all", 0),
        });
        let expected = [("any", 9), ("read", 9), ("any", 0), ("any", 0), ("all", 0)];
        assert_eq!(authors.collect::<Vec<_>>(), expected);
    }

    #[test] // A hundred thousand readers of one key, and as many keys.
    fn tracked_keys_and_readers_are_freed_in_portions() {
        let (mut tracked, mut prng) = (Tracked::default(), Prng::from_seed(1));
        for client in 0..100_000_u64 {
            tracked.remember(client, &Key::new(b"k"), &mut prng);
            tracked.remember(7, &Key::new(&client.to_le_bytes()), &mut prng);
        }
        assert_eq!(tracked.sizes(), (100_001, 200_000));
        tracked.hear_flush();
        let mut portions = 0;
        while lazyfree::run(&darter_base::preempt::Countdown::new(0)) {
            portions += 1;
        }
        assert!(portions > 3_000, "{portions}");
    }
}
