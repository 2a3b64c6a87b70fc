//! What one core owns: its part of every database.

use crate::{Db, ShardEffect, Usage};
use darter_base::Prng;
use std::collections::BTreeMap;

/// Counters of one shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardStats {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
}

impl ShardStats {
    /// Counts a read.
    #[inline]
    pub fn count(&mut self, hit: bool) {
        if hit {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
    }
}

/// Databases that lie side by side: the ones that are commonly used, at one addition's distance.
const NEAR: usize = 64;
/// Other databases that each new one looks at: those that are empty again go.
const LOOKED_AT: usize = 2;

/// The databases of one core. There may be two billion; they cost nothing until they are used.
///
/// ```text
/// near:  | 0 | 1 | 2 | ...    at most [`NEAR`], made at once
/// far:   1_000 -> Db          those beyond that somebody has used
/// ```
/// All methods cost O(databases in use) at most, whatever [`Shard::databases`] says.
pub struct Shard {
    databases: usize,
    near: Vec<Db>,
    far: BTreeMap<usize, Db>,
    /// What is read where nothing was ever written.
    nothing: Db,
    /// The time of this turn.
    now: u64,
    /// Effects are recorded.
    listening: bool,
    /// From which of `far` on the next look for empty ones begins.
    looked_at: usize,
    /// Keys that expired in databases that have gone since.
    expired_in_gone: u64,
    changes_in_gone: u64,
    /// Counters, for INFO.
    pub stats: ShardStats,
    /// Randomness for samples, seeded by whoever made the shard.
    pub prng: Prng,
    /// Effects that came before the last exchange of databases, and that exchange.
    told: Vec<ShardEffect>,
}

impl Shard {
    /// `databases` empty databases.
    #[must_use]
    pub fn new(databases: usize, seed: u64) -> Self {
        assert!(databases > 0, "no database");
        Self {
            databases,
            near: (0..databases.min(NEAR)).map(|_| Db::default()).collect(),
            far: BTreeMap::new(),
            nothing: Db::default(),
            now: 0,
            listening: false,
            looked_at: 0,
            expired_in_gone: 0,
            changes_in_gone: 0,
            stats: ShardStats::default(),
            prng: Prng::from_seed(seed),
            told: Vec::new(),
        }
    }

    /// Tells all databases the time, in Unix milliseconds.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
        self.nothing.set_now(now);
        self.iter_mut().for_each(|(_, db)| db.set_now(now));
    }

    /// The time of this turn.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Number of databases.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.databases
    }

    /// Database `index`. Panics when there is none: SELECT has checked it.
    #[must_use]
    pub fn db(&self, index: usize) -> &Db {
        if let Some(db) = self.near.get(index) {
            return db;
        }
        assert!(index < self.databases, "database {index} of {}", self.databases);
        self.far.get(&index).unwrap_or(&self.nothing)
    }

    /// Database `index`, for changes, and for reads that are accesses.
    pub fn db_mut(&mut self, index: usize) -> &mut Db {
        self.db_for(index, false)
    }

    /// Database `index`, for a client that may have said CLIENT NO-TOUCH.
    pub fn db_for(&mut self, index: usize, no_touch: bool) -> &mut Db {
        self.parts_for(index, no_touch).0
    }

    /// Database `index`, the randomness and the counters, for one command.
    pub fn parts(&mut self, index: usize) -> (&mut Db, &mut Prng, &mut ShardStats) {
        self.parts_for(index, false)
    }

    /// [`Shard::parts`], for a client that may have said CLIENT NO-TOUCH.
    pub fn parts_for(
        &mut self,
        index: usize,
        no_touch: bool,
    ) -> (&mut Db, &mut Prng, &mut ShardStats) {
        if index >= self.near.len() {
            self.open(index);
        }
        let db = match self.near.get_mut(index) {
            Some(db) => db,
            None => self.far.get_mut(&index).expect("opened above"),
        };
        db.set_no_touch(no_touch);
        (db, &mut self.prng, &mut self.stats)
    }

    /// Makes sure that a far database is there. Cost: a look at [`LOOKED_AT`] others, so that who
    /// selects one after another leaves few empty ones behind.
    fn open(&mut self, index: usize) {
        assert!(index < self.databases, "database {index} of {}", self.databases);
        if self.far.contains_key(&index) {
            return;
        }
        self.close_empty();
        let mut db = Db::default();
        db.set_now(self.now);
        db.journal().listen(self.listening);
        self.far.insert(index, db);
    }

    fn close_empty(&mut self) {
        for _ in 0..LOOKED_AT {
            let next = self.far.range(self.looked_at..).next();
            let Some((at, is_blank)) = next.map(|(at, db)| (*at, db.is_blank())) else {
                self.looked_at = 0;
                return;
            };
            self.looked_at = at + 1;
            if is_blank && let Some(gone) = self.far.remove(&at) {
                self.expired_in_gone += gone.expired_count();
                self.changes_in_gone += gone.changes();
            }
        }
    }

    /// The databases in use with their indexes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Db)> {
        let far = self.far.iter().map(|(at, db)| (*at, db));
        self.near.iter().enumerate().chain(far)
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Db)> {
        let far = self.far.iter_mut().map(|(at, db)| (*at, db));
        self.near.iter_mut().enumerate().chain(far)
    }

    /// Removes all keys of all databases: FLUSHALL.
    pub fn flush(&mut self) {
        self.iter_mut().for_each(|(_, db)| db.flush());
    }

    /// Exchanges two databases: SWAPDB. Cost: O(1), and moving the effects that
    /// were recorded and not yet taken.
    pub fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        if self.listening {
            self.told = self.take_effects();
            self.told.push(ShardEffect::Swap(one, other));
        }
        // What is opened for one of them meanwhile is as any new one.
        let first = std::mem::take(self.db_mut(one));
        let second = std::mem::replace(self.db_mut(other), first);
        *self.db_mut(one) = second;
    }

    /// Starts or stops recording, in all databases.
    pub fn listen(&mut self, listening: bool) {
        self.listening = listening;
        self.iter_mut().for_each(|(_, db)| db.journal().listen(listening));
    }

    /// Takes what was recorded, in an order in which it can be applied: that of each database, and
    /// of their exchanges.
    #[must_use]
    pub fn take_effects(&mut self) -> Vec<ShardEffect> {
        let mut told = std::mem::take(&mut self.told);
        for (at, db) in self.iter_mut() {
            told.extend(db.journal().take().into_iter().map(|effect| ShardEffect::In(at, effect)));
        }
        told
    }

    /// Bytes held by all databases.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let far = self.far.len() * size_of::<(usize, Db)>();
        far + self.iter().map(|(_, db)| db.memory_bytes()).sum::<usize>()
    }

    /// Keys that have expired, in all databases.
    #[must_use]
    pub fn expired_count(&self) -> u64 {
        self.expired_in_gone + self.iter().map(|(_, db)| db.expired_count()).sum::<u64>()
    }

    /// Changes to all databases, but for what time removed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes_in_gone + self.iter().map(|(_, db)| db.changes()).sum::<u64>()
    }

    /// Keys in all databases.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.iter().map(|(_, db)| db.len()).sum()
    }

    /// The account of all values.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut total = Usage::default();
        self.iter().for_each(|(_, db)| total.merge(db.usage()));
        total
    }

    /// No key dies before this moment of its own deadline. Unix milliseconds.
    #[must_use]
    pub fn next_key_death(&self) -> Option<u64> {
        self.iter().filter_map(|(_, db)| db.next_key_death()).min()
    }

    /// No field or member dies before this moment. Unix milliseconds.
    #[must_use]
    pub fn next_field_death(&self) -> Option<u64> {
        self.iter().filter_map(|(_, db)| db.next_field_death()).min()
    }

    /// Removes about `most` of the dead: fields and members first. Returns true while more are left.
    pub fn reap(&mut self, most: usize) -> bool {
        let now = self.now();
        let first_due = |death: fn(&Db) -> Option<u64>| {
            let mut due = self.iter().filter(|(_, db)| death(db).is_some_and(|at| at <= now));
            due.next().map(|(at, _)| at)
        };
        let fields = first_due(Db::next_field_death);
        let next = fields.or_else(|| first_due(Db::next_key_death));
        if let Some(at) = next {
            self.db_mut(at).reap(most);
        }
        next.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Deadline, Fresh, Key};

    const DATABASES: usize = i32::MAX as usize;

    fn set(shard: &mut Shard, db: usize) {
        shard.db_mut(db).set_text(&Key::new(b"k"), Fresh::Bytes(b"value"), Deadline::Clear);
    }

    fn used(shard: &Shard) -> Vec<usize> {
        shard.iter().filter(|(_, db)| !db.is_empty()).map(|(at, _)| at).collect()
    }

    #[test] // Two billion databases: the work follows those in use.
    fn databases_cost_nothing_until_they_are_used() {
        let mut shard = Shard::new(DATABASES, 1);
        for db in [0, 63, 64, 1_000_000, DATABASES - 1] {
            assert!(shard.db(db).is_empty());
            set(&mut shard, db);
            assert_eq!(shard.db(db).len(), 1);
        }
        assert_eq!(used(&shard), [0, 63, 64, 1_000_000, DATABASES - 1]);
        shard.set_now(7);
        assert_eq!(shard.db(DATABASES - 1).now(), 7);
        assert_eq!(shard.db(DATABASES - 2).now(), 7, "one that nobody has used");
        shard.swap(0, DATABASES - 2);
        shard.swap(63, 64);
        assert_eq!(used(&shard), [63, 64, 1_000_000, DATABASES - 2, DATABASES - 1]);
        assert_eq!(shard.db_mut(DATABASES - 3).now(), 7, "one that is new");
        shard.flush();
        assert_eq!(used(&shard), []);
    }

    #[test] // Whoever looks into one after another leaves nothing behind.
    fn empty_databases_are_let_go_of() {
        let mut shard = Shard::new(DATABASES, 1);
        for db in 0..10_000 {
            assert!(shard.db_mut(db * 1_000).is_empty());
            assert!(shard.iter().count() <= NEAR + 4, "{} after {db}", shard.iter().count());
        }
        set(&mut shard, 77_777);
        (0..1_000).for_each(|db| _ = shard.db_mut(db * 1_000));
        assert_eq!(used(&shard), [77_777]);
    }
}
