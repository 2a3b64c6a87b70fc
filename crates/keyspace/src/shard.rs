//! What one core owns: its part of every database.

use crate::{Db, Usage};
use darter_base::Prng;

/// Counters of one shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardStats {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
}

/// The databases of one core.
pub struct Shard {
    dbs: Vec<Db>,
    /// Counters, for INFO.
    pub stats: ShardStats,
    /// Randomness for samples, seeded by whoever made the shard.
    pub prng: Prng,
}

impl Shard {
    /// `databases` empty databases.
    #[must_use]
    pub fn new(databases: usize, seed: u64) -> Self {
        assert!(databases > 0, "no database");
        Self {
            dbs: (0..databases).map(|_| Db::default()).collect(),
            stats: ShardStats::default(),
            prng: Prng::from_seed(seed),
        }
    }

    /// Tells all databases the time, in Unix milliseconds.
    pub fn set_now(&mut self, now: u64) {
        self.dbs.iter_mut().for_each(|db| db.set_now(now));
    }

    /// The time of this turn.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.dbs[0].now()
    }

    /// Number of databases.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.dbs.len()
    }

    /// Database `index`. Panics when there is none: SELECT has checked it.
    #[must_use]
    pub fn db(&self, index: usize) -> &Db {
        &self.dbs[index]
    }

    /// Database `index`, for changes.
    pub fn db_mut(&mut self, index: usize) -> &mut Db {
        &mut self.dbs[index]
    }

    /// Database `index`, the randomness and the counters, for one command.
    pub fn parts(&mut self, index: usize) -> (&mut Db, &mut Prng, &mut ShardStats) {
        (&mut self.dbs[index], &mut self.prng, &mut self.stats)
    }

    /// All databases, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Db> {
        self.dbs.iter()
    }

    /// Exchanges two databases: SWAPDB. O(1).
    pub fn swap(&mut self, one: usize, other: usize) {
        self.dbs.swap(one, other);
    }

    /// Bytes held by all databases.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.dbs.iter().map(Db::memory_bytes).sum()
    }

    /// The account of all values.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut total = Usage::default();
        self.dbs.iter().for_each(|db| total.merge(db.usage()));
        total
    }

    /// The earliest moment at which [`Shard::reap`] may have work.
    #[must_use]
    pub fn next_death(&self) -> Option<u64> {
        self.dbs.iter().filter_map(Db::next_death).min()
    }

    /// Removes about `most` of the dead. Returns true while more are left.
    pub fn reap(&mut self, most: usize) -> bool {
        let now = self.now();
        match self.dbs.iter_mut().find(|db| db.next_death().is_some_and(|at| at <= now)) {
            Some(db) => {
                db.reap(most);
                true
            }
            None => false,
        }
    }
}
