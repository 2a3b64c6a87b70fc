//! What one core owns: its part of every database.

use crate::{Db, ShardEffect, Usage};
use darter_base::Prng;

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

/// The databases of one core.
pub struct Shard {
    dbs: Vec<Db>,
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
            dbs: (0..databases).map(|_| Db::default()).collect(),
            stats: ShardStats::default(),
            prng: Prng::from_seed(seed),
            told: Vec::new(),
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

    /// Database `index`, for changes, and for reads that are accesses.
    pub fn db_mut(&mut self, index: usize) -> &mut Db {
        self.db_for(index, false)
    }

    /// Database `index`, for a client that may have said CLIENT NO-TOUCH.
    pub fn db_for(&mut self, index: usize, no_touch: bool) -> &mut Db {
        let db = &mut self.dbs[index];
        db.set_no_touch(no_touch);
        db
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
        let db = &mut self.dbs[index];
        db.set_no_touch(no_touch);
        (db, &mut self.prng, &mut self.stats)
    }

    /// All databases, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Db> {
        self.dbs.iter()
    }

    /// Exchanges two databases: SWAPDB. Cost: O(1), and moving the effects that
    /// were recorded and not yet taken.
    pub fn swap(&mut self, one: usize, other: usize) {
        if self.dbs[one].journal().is_listening() && one != other {
            self.told = self.take_effects();
            self.told.push(ShardEffect::Swap(one, other));
        }
        self.dbs.swap(one, other);
    }

    /// Starts or stops recording, in all databases.
    pub fn listen(&mut self, listening: bool) {
        self.dbs.iter_mut().for_each(|db| db.journal().listen(listening));
    }

    /// Takes what was recorded, in an order in which it can be applied: that of each database, and
    /// of their exchanges.
    #[must_use]
    pub fn take_effects(&mut self) -> Vec<ShardEffect> {
        let mut told = std::mem::take(&mut self.told);
        for (at, db) in self.dbs.iter_mut().enumerate() {
            told.extend(db.journal().take().into_iter().map(|effect| ShardEffect::In(at, effect)));
        }
        told
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

    /// No key dies before this moment of its own deadline. Unix milliseconds.
    #[must_use]
    pub fn next_key_death(&self) -> Option<u64> {
        self.dbs.iter().filter_map(Db::next_key_death).min()
    }

    /// No field or member dies before this moment. Unix milliseconds.
    #[must_use]
    pub fn next_field_death(&self) -> Option<u64> {
        self.dbs.iter().filter_map(Db::next_field_death).min()
    }

    /// Removes about `most` of the dead: fields and members first. Returns true while more are left.
    pub fn reap(&mut self, most: usize) -> bool {
        let now = self.now();
        let is_due = |moment: Option<u64>| moment.is_some_and(|at| at <= now);
        let fields = self.dbs.iter().position(|db| is_due(db.next_field_death()));
        let next = fields.or_else(|| self.dbs.iter().position(|db| is_due(db.next_key_death())));
        if let Some(at) = next {
            self.dbs[at].reap(most);
        }
        next.is_some()
    }
}
