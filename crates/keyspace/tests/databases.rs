//! Random changes of a [`Shard`], compared at every step with plain databases that are searched
//! completely: totals, next expiries, counters. Also: whole databases are freed in portions.

use crate::roll::{ROLL, Roll};
use darter_base::Prng;
use darter_base::preempt::{Countdown, Never};
use darter_keyspace::{Db, Deadline, Fresh, Key, Shard, Typed, Usage, Wants, apply, lazyfree};
use darter_structs::blob::Blob;
use std::collections::BTreeMap;

const SEEDS: u64 = 30;
const STEPS: usize = 600;
/// Databases of both kinds: those with low numbers stored side by side, and others.
const DATABASES: [usize; 12] = [0, 1, 2, 63, 64, 65, 66, 1_000, 5_000, 5_001, 77_777, 99_999];
const NOW: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
enum Op {
    Text,
    Member,
    Remove,
    Look,
    Swap,
    FlushOne,
    FlushAll,
    Wait,
    TakeRecords,
}

const OPS: [(u64, Op); 9] = [
    (40, Op::Text),
    (25, Op::Member),
    (20, Op::Remove),
    (10, Op::Look),
    (3, Op::Swap),
    (2, Op::FlushOne),
    (1, Op::FlushAll),
    (6, Op::Wait),
    (3, Op::TakeRecords),
];

/// A shard, and the databases it should contain, none of which is ever removed.
struct Run {
    prng: Prng,
    shard: Shard,
    plain: BTreeMap<usize, Db>,
    /// A replica built from the records, and their number.
    copy: Shard,
    records: u64,
    now: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut run = Self {
            prng: Prng::from_seed(seed),
            shard: Shard::new(100_000, seed),
            plain: BTreeMap::new(),
            copy: Shard::new(100_000, seed),
            records: 0,
            now: NOW,
        };
        run.shard.join(Wants::CHANGES);
        run.tell_time();
        run
    }

    fn tell_time(&mut self) {
        self.shard.set_now(self.now);
        self.copy.set_now(self.now);
        self.plain.values().for_each(|db| db.set_now(self.now));
    }

    fn any(&mut self) -> usize {
        DATABASES[self.prng.below(DATABASES.len() as u64) as usize]
    }

    fn plain(&mut self, at: usize) -> &mut Db {
        let db = self.plain.entry(at).or_default();
        db.set_now(self.now);
        db
    }

    /// Makes one change to a database of the shard and of the model.
    fn both(&mut self, at: usize, change: impl Fn(&mut Db)) {
        change(self.shard.db_mut(at));
        change(self.plain(at));
    }

    fn deadline(&mut self) -> Deadline {
        let at = self.now + 1 + self.prng.below(50);
        if self.prng.chance(50) { Deadline::At(at) } else { Deadline::Clear }
    }

    fn step(&mut self) {
        let at = self.any();
        let name = format!("key:{}", self.prng.below(6));
        let key = Key::new(name.as_bytes());
        let deadline = self.deadline();
        match *self.prng.weighted(&OPS) {
            Op::Text => {
                let value = self.prng.bytes(0..=700);
                self.both(at, |db| db.set_text(&key, Fresh::Bytes(&value), deadline));
            }
            Op::Member => {
                let member = self.prng.bytes(1..=3);
                self.both(at, |db| {
                    _ = db.edit::<Roll, _>(&key, true, |edit| edit.enter(&member, deadline))
                });
            }
            Op::Remove => self.both(at, |db| _ = db.remove(&key)),
            Op::Look => self.both(at, |db| _ = db.read(&key).map(|found| found.kind())),
            Op::Swap => self.swap(at),
            Op::FlushOne => self.both(at, Db::flush),
            Op::FlushAll => {
                self.shard.flush();
                self.plain.values_mut().for_each(Db::flush);
            }
            Op::Wait => self.wait(),
            Op::TakeRecords => self.take_records(),
        }
    }

    fn swap(&mut self, one: usize) {
        let other = self.any();
        self.shard.swap(one, other);
        if one == other {
            return;
        }
        let first = std::mem::take(self.plain(one));
        let second = std::mem::replace(self.plain(other), first);
        *self.plain(one) = second;
    }

    /// Lets time pass, and removes expired items.
    fn wait(&mut self) {
        self.now += self.prng.below(30);
        self.tell_time();
        while self.shard.reap(3) {}
        let now = self.now;
        for db in self.plain.values_mut() {
            while db.next_death().is_some_and(|at| at <= now) {
                db.reap(3);
            }
        }
    }

    fn take_records(&mut self) {
        for record in self.shard.take_records() {
            self.records += 1;
            assert_eq!(record.number, self.records, "one order, without a gap");
            apply(&mut self.copy, &record).unwrap();
        }
        let keys = |shard: &Shard| {
            let used = shard.iter().filter(|(_, db)| !db.is_empty());
            used.map(|(at, db)| (at, [Blob::TYPE, &ROLL].map(|kind| db.usage().keys(kind))))
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&self.copy), keys(&self.shard));
    }

    fn check(&self) {
        let (shard, plain) = (&self.shard, &self.plain);
        shard.check_invariants();
        let mut usage = Usage::default();
        plain.values().for_each(|db| usage.merge(db.usage()));
        assert_eq!(shard.usage(), usage);
        assert_eq!(shard.keys(), plain.values().map(Db::len).sum());
        assert_eq!(shard.expired_count(), plain.values().map(Db::expired_count).sum());
        assert_eq!(shard.changes(), plain.values().map(Db::changes).sum());
        assert_eq!(shard.next_key_death(), plain.values().filter_map(Db::next_key_death).min());
        assert_eq!(shard.next_field_death(), plain.values().filter_map(Db::next_field_death).min());
        let bytes = plain.values().map(Db::memory_bytes).sum::<usize>();
        let more = shard.memory_bytes() - bytes;
        assert!(more <= DATABASES.len() * 1_024, "{more} bytes to keep them");
        for (at, db) in plain {
            assert_eq!(shard.db(*at).len(), db.len(), "{at}");
            assert_eq!(shard.db(*at).now(), self.now, "{at}");
        }
    }
}

#[test] // After any change of one of them.
fn totals_over_databases_equal_a_recount() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.step();
            run.check();
        }
        run.take_records();
        run.shard.flush();
        lazyfree::run(&Never);
        assert_eq!(run.shard.usage(), Usage::default());
    }
}

#[test] // By FLUSHALL, a few in each portion.
fn many_databases_are_freed_in_portions() {
    const MANY: usize = 20_000;
    let mut shard = Shard::new(usize::MAX, 1);
    shard.set_now(NOW);
    for at in 0..MANY {
        let deadline = Deadline::At(NOW + at as u64);
        shard.db_mut(at * 7).set_text(&Key::new(b"key"), Fresh::Bytes(b"value"), deadline);
    }
    let big = shard.db_mut(1_000_000);
    for number in 0..30_000_u32 {
        big.set_text(&Key::new(&number.to_le_bytes()), Fresh::Bytes(b"value"), Deadline::Clear);
    }
    let (used, changes) = (shard.memory_bytes(), shard.changes());
    shard.flush();
    assert_eq!((shard.keys(), shard.changes()), (0, changes + MANY as u64 + 30_000));
    assert_eq!((shard.next_key_death(), shard.next_field_death()), (None, None));
    assert_eq!((shard.usage().keys(Blob::TYPE), shard.iter().count()), (0, 64));
    let waiting = lazyfree::waiting().1;
    assert!(waiting > used * 3 / 4 && waiting < used * 5 / 4, "{waiting} of {used}");
    let (mut portions, mut last) = (0, waiting);
    while lazyfree::run(&Countdown::new(0)) {
        portions += 1;
        let left = lazyfree::waiting().1;
        assert!(left + 128 * 1024 > last, "{} at once", last - left);
        last = left;
    }
    assert!(portions > MANY / 50, "{portions}");
    assert_eq!(lazyfree::waiting(), (0, 0));
    shard.check_invariants();
}

#[test] // Databases that become empty are freed.
fn the_sweeper_finds_expired_keys_in_all_databases() {
    let mut shard = Shard::new(usize::MAX, 1);
    shard.set_now(NOW);
    for at in 0..5_000 {
        let deadline = Deadline::At(NOW + 5_000 - at as u64);
        shard.db_mut(at).set_text(&Key::new(b"key"), Fresh::Bytes(b"value"), deadline);
    }
    shard.set_now(NOW + 2_500);
    let mut steps = 0;
    while shard.reap(64) {
        steps += 1;
        assert!(steps <= 3_000, "each step finds some");
    }
    assert_eq!((shard.keys(), shard.expired_count()), (2_500, 2_500));
    assert_eq!(shard.next_key_death(), Some(NOW + 2_501));
    shard.db_mut(0);
    assert_eq!(shard.iter().count(), 2_500, "64 of them side by side");
    shard.check_invariants();
}
