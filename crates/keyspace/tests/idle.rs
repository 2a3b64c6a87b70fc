//! Access times compared with a map, under random seeds: commands that update them, commands that
//! do not, and the effect of a cut.

use crate::roll::{Roll, RollEdit};
use darter_base::{Prng, lazyfree, preempt};
use darter_keyspace::{Db, Deadline, Fresh, Key, Object};
use darter_structs::table::Table;
use std::collections::BTreeMap;

const KEYS: u64 = 300;
/// The longest idle time that is recorded, in seconds.
const KEPT: u64 = (1 << 24) - (1 << 20);
/// The longest idle time that a client may set.
const GIVEN: u64 = (KEPT - 1) / 2;

struct Run {
    prng: Prng,
    db: Db,
    now: u64,
    no_touch: bool,
    cut: Option<Table<Object>>,
    /// When each key was last used, in milliseconds.
    used: BTreeMap<Vec<u8>, u64>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let (now, prng) = (1_900_000_000_000, Prng::from_seed(seed));
        let (db, used) = (Db::default(), BTreeMap::new());
        db.set_now(now);
        Self { prng, db, now, no_touch: false, cut: None, used }
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key:{}", self.prng.below(KEYS)).into_bytes()
    }

    /// The reply of OBJECT IDLETIME.
    fn told(&self, key: &[u8]) -> Option<u64> {
        self.db.get(&Key::new(key)).map(|found| found.idle_seconds(self.now))
    }

    fn stamp(&self, key: &[u8]) -> Option<u32> {
        self.db.get(&Key::new(key)).map(|found| found.entry().stamp())
    }

    fn agrees(&self, key: &[u8], used: u64) -> bool {
        let (told, idle) = (self.told(key).unwrap(), self.now - used);
        told * 1_000 <= idle && idle < told * 1_000 + 2_000
    }

    /// Records an access to the key, which had this stamp before. If a cut holds its place, the
    /// stamp may stay.
    fn accessed(&mut self, key: &[u8], stamp: Option<u32>, is_write: bool) {
        let Some(before) = self.used.get(key).copied() else { return };
        if self.no_touch {
            assert!(self.stamp(key) == stamp && self.agrees(key, before), "a trace was left");
        } else if is_write || self.cut.is_none() || self.stamp(key) != stamp {
            self.used.insert(key.to_vec(), self.now);
            assert!(self.agrees(key, self.now), "{:?}", self.told(key));
        }
    }

    fn step(&mut self) {
        let name = self.key();
        let (key, stamp) = (Key::new(&name), self.stamp(&name));
        match self.prng.below(14) {
            0..3 => {
                self.db.set_text(&key, Fresh::Bytes(b"value"), Deadline::Clear);
                self.used.insert(name, self.now);
            }
            3 => {
                self.db.remove(&key);
                self.used.remove(&name);
                let enter = |edit: &mut RollEdit<'_>| edit.enter(b"name", Deadline::Clear);
                self.db.edit::<Roll, _>(&key, true, enter).unwrap();
                self.used.insert(name, self.now);
            }
            4..6 => {
                assert_eq!(self.db.read(&key).is_some(), self.used.contains_key(&name));
                self.accessed(&name, stamp, false);
            }
            6 => {
                let no_touch = std::mem::replace(&mut self.no_touch, false);
                assert_eq!(self.db.touch(&key).is_some(), self.used.contains_key(&name));
                self.accessed(&name, stamp, false);
                self.no_touch = no_touch;
            }
            7 => {
                let deadline = self.prng.chance(50).then_some(u64::MAX / 2);
                self.db.set_deadline(&key, deadline);
                self.accessed(&name, stamp, true);
            }
            8 => self.rename(&name),
            9 => self.copy(&name),
            10 => {
                let seconds = self.prng.below(KEPT);
                self.db.set_idle(&key, seconds);
                // A given idle time is reported exactly, so it counts from the start of the second.
                let used = self.now / 1_000 * 1_000 - seconds.min(GIVEN) * 1_000;
                self.used.entry(name).and_modify(|at| *at = used);
            }
            11 => {
                self.no_touch = self.prng.chance(30);
                self.db.set_no_touch(self.no_touch);
            }
            12 => {
                self.cut = self.prng.chance(30).then(|| self.db.keys().clone());
                while lazyfree::run(&preempt::Never) {}
            }
            _ => {
                let shift = self.prng.below(20);
                self.now += self.prng.below(1 << shift);
                self.db.set_now(self.now);
            }
        }
    }

    /// RENAME keeps the access time of the source.
    fn rename(&mut self, from: &[u8]) {
        let (to, stamp) = (self.key(), self.stamp(from));
        let Some(held) = self.db.take(&Key::new(from), &[]) else { return };
        let before = self.used.remove(from).unwrap();
        self.db.put(&Key::new(&to), held, &[]);
        let was_used = !self.no_touch && (self.cut.is_none() || self.stamp(&to) != stamp);
        self.used.insert(to.clone(), if was_used { self.now } else { before });
        assert!(self.agrees(&to, self.used[&to]));
    }

    /// A copied key is new.
    fn copy(&mut self, from: &[u8]) {
        let to = self.key();
        let Some(held) = self.db.get(&Key::new(from)).map(|found| found.hold()) else { return };
        self.db.put(&Key::new(&to), held, &[]);
        self.used.insert(to, self.now);
    }

    fn check(&self) {
        self.db.check_invariants();
        for (key, used) in &self.used {
            assert!(self.agrees(key, *used), "{:?} of {}", self.told(key), self.now - used);
        }
        assert_eq!(self.db.len(), self.used.len());
    }
}

#[test]
fn access_times_agree_with_a_map() {
    for seed in 0..30 {
        let mut run = Run::new(seed);
        for step in 0..3_000 {
            run.step();
            // No idle time is so long that it is lost: one day here, 182 there.
            if run.now - run.used.values().min().copied().unwrap_or(run.now) > KEPT * 1_000 {
                run = Run::new(seed + 1_000);
            }
            if step % 100 == 0 {
                run.check();
            }
        }
        run.check();
    }
}
