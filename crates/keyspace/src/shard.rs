//! The data of one core: its share of every database.

mod open;

use crate::databases::Databases;
use crate::effect::NOTHING_IS_DEAD;
use crate::event::Events;
use crate::log::Log;
use crate::log::kept::{Counts, Kept};
use crate::log::ring::{Read, Reader, Wants};
use crate::tracked::{Hears, Touched, Tracked};
use crate::watch::{Seen, Watches};
use crate::{Act, Db, Key, Part, Record, ServerAct, Usage};
use darter_base::Prng;
use darter_base::hash::IdentityMap;
use std::sync::Arc;

/// Counters of one shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardStats {
    /// Reads that found a key.
    pub hits: u64,
    /// Reads that found no key.
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

/// The databases of one core. There may be two billion; they cost nothing until they are used, and
/// a turn costs no more with a hundred thousand in use (see `databases`).
pub struct Shard {
    count: usize,
    databases: Databases,
    /// An empty database, which stands for those that were never written.
    nothing: Db,
    /// The time of this turn.
    now: u64,
    /// True if commands treat expired entries as live.
    keeps_dead: bool,
    /// The stamp of this turn's records.
    stamp: u64,
    /// The log while it has no subscribers. Later records continue its numbers.
    resting: Option<Box<Log>>,
    tracked: Tracked,
    /// Client tracking's reader of the log, while it observes anything.
    tracking: Option<Reader>,
    /// The copies of open transactions that are suspended.
    kept: IdentityMap<Box<Kept>>,
    /// The counters when the running open transaction was resumed.
    before: Counts,
    /// The counters of undone transactions.
    undone: Counts,
    /// Counters, for INFO.
    pub stats: ShardStats,
    /// Randomness for samples, seeded by the creator of the shard.
    pub prng: Prng,
}

impl Shard {
    /// A shard with `databases` empty databases.
    #[must_use]
    pub fn new(databases: usize, seed: u64) -> Self {
        assert!(databases > 0, "no database");
        Self {
            count: databases,
            databases: Databases::new(databases),
            nothing: Db::default(),
            now: 0,
            keeps_dead: false,
            stamp: 0,
            resting: None,
            tracked: Tracked::default(),
            tracking: None,
            kept: IdentityMap::default(),
            before: Counts::default(),
            undone: Counts::default(),
            stats: ShardStats::default(),
            prng: Prng::from_seed(seed),
        }
    }

    /// Sets the time, in Unix milliseconds. Each database gets it when it is next accessed.
    pub fn set_now(&mut self, now: u64) {
        self.now = now;
    }

    /// The time of this turn.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Sets whether commands treat expired entries as live, as while a journal is replayed: it has
    /// the removals itself. The caller must not reap until then. Commands compute relative
    /// deadlines from time 0.
    pub fn keep_dead(&mut self, keeps_dead: bool) {
        self.keeps_dead = keeps_dead;
    }

    /// True if commands treat expired entries as live.
    #[must_use]
    pub fn keeps_dead(&self) -> bool {
        self.keeps_dead
    }

    /// Sets the time of a database that is accessed.
    #[inline(always)]
    fn set_time(&self, db: &Db) {
        db.set_now(self.now);
        if self.keeps_dead {
            db.judge_by(NOTHING_IS_DEAD);
        }
    }

    /// Number of databases.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.count
    }

    /// Database `index`. Panics if there is none: SELECT has checked the index.
    #[must_use]
    pub fn db(&self, index: usize) -> &Db {
        self.check(index);
        let db = self.databases.get(index).unwrap_or(&self.nothing);
        self.set_time(db);
        db
    }

    fn check(&self, index: usize) {
        assert!(index < self.count, "database {index} of {}", self.count);
    }

    /// Database `index` for changes, and for reads that count as accesses.
    pub fn db_mut(&mut self, index: usize) -> &mut Db {
        self.db_for(index, false)
    }

    /// Database `index` for a client that may have set CLIENT NO-TOUCH.
    pub fn db_for(&mut self, index: usize, no_touch: bool) -> &mut Db {
        self.parts_for(index, no_touch).0
    }

    /// Database `index`, the random generator and the counters, for one command.
    pub fn parts(&mut self, index: usize) -> (&mut Db, &mut Prng, &mut ShardStats) {
        self.parts_for(index, false)
    }

    /// [`Shard::parts`] for a client that may have set CLIENT NO-TOUCH.
    #[inline(always)]
    pub fn parts_for(
        &mut self,
        index: usize,
        no_touch: bool,
    ) -> (&mut Db, &mut Prng, &mut ShardStats) {
        self.check(index);
        let (now, keeps_dead) = (self.now, self.keeps_dead);
        let db = self.databases.hand_out(index);
        db.set_now(now);
        if keeps_dead {
            db.judge_by(NOTHING_IS_DEAD);
        }
        db.set_no_touch(no_touch);
        (db, &mut self.prng, &mut self.stats)
    }

    /// The databases in use with their indexes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Db)> {
        self.iter_from(0)
    }

    /// [`Shard::iter`] from database `first` on: for walking them in portions.
    pub fn iter_from(&self, first: usize) -> impl Iterator<Item = (usize, &Db)> {
        self.databases.iter_from(first).inspect(|(_, db)| self.set_time(db))
    }

    /// Removes all keys of all databases: FLUSHALL. Cost: O(1); memory is freed in slices.
    pub fn flush(&mut self) {
        let cleared = self.databases.clear();
        debug_assert_eq!(self.keys(), 0, "keys are left");
        if let Some(log) = self.databases.log() {
            log.with_kept(|kept, _| kept.keep_flush_all(cleared));
            log.hear_flush_all();
            log.push(Act::FlushAll, Events::default());
        }
    }

    /// Swaps two databases: SWAPDB. Cost: O(1).
    pub fn swap(&mut self, one: usize, other: usize) {
        // The bounds are checked before anything is recorded.
        [one, other].into_iter().for_each(|index| self.check(index));
        if one == other {
            return;
        }
        let keys = self.keys();
        // The log belongs to the shard, so it is not swapped.
        let mut log = self.databases.take_log();
        if let Some(log) = &mut log {
            let is_there = |db, key: &[u8]| self.db(db).exists(&Key::new(key));
            log.hear_swap([one, other], is_there);
            log.with_kept(|kept, _| kept.keep_swap([one, other]));
        }
        self.exchange(one, other);
        self.databases.give_log(log);
        assert_eq!(self.keys(), keys, "databases {one} and {other} hold what they held");
        if let Some(log) = self.databases.log() {
            log.push(Act::Swap(other), Events::default());
        }
    }

    /// Exchanges two databases without a record. The log must have been taken.
    fn exchange(&mut self, one: usize, other: usize) {
        let first = std::mem::take(self.db_mut(one));
        let second = std::mem::replace(self.db_mut(other), first);
        *self.db_mut(one) = second;
    }

    // ---- the log ----

    /// Adds a reader of all records from now on.
    ///
    /// Each reader reads at its own pace, from a cursor. Unread records stay in memory, so a reader
    /// that must not lapse reads in every turn.
    pub fn join(&mut self, wants: Wants) -> Reader {
        self.log().join(wants)
    }

    /// Changes the records that the reader needs.
    pub fn set_wants(&mut self, reader: Reader, wants: Wants) {
        self.log().set_wants(reader, wants);
    }

    /// Removes a reader.
    pub fn leave(&mut self, reader: Reader) {
        self.log().leave(reader);
        self.drop_unneeded();
    }

    /// The next record for a reader. Cost: O(readers), and freeing a record.
    pub fn read(&mut self, reader: Reader) -> Read<'_> {
        self.log().read(reader)
    }

    /// True if the log has a reader.
    pub fn is_read(&mut self) -> bool {
        self.databases.log().as_ref().is_some_and(|log| log.is_read())
    }

    /// Starts a turn at this monotonic time, in nanoseconds. The time must be taken after the poll
    /// that found the turn's events. So a change has a higher stamp than the changes that led to
    /// it, on any core, and is in the log before anything of its turn is published
    /// (docs/design/0011).
    pub fn begin_turn(&mut self, now_ns: u64) {
        self.stamp = now_ns.max(self.stamp + 1);
        if let Some(log) = self.databases.log() {
            log.begin_turn(self.stamp);
        }
    }

    /// The stamp of the current turn.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Ends a unit of commands; the next record starts another.
    pub fn end_unit(&mut self) {
        if let Some(log) = self.databases.log() {
            log.end_unit();
        }
    }

    /// Records an act of the server, if a reader wants effects.
    pub fn record_act(&mut self, act: Arc<dyn ServerAct>) {
        if let Some(log) = self.databases.log()
            && log.wants_effects()
        {
            log.push(Act::Server(act), Events::default());
        }
    }

    /// True if the reader has not read all records.
    pub fn has_unread(&mut self, reader: Reader) -> bool {
        self.log().has_unread(reader)
    }

    /// Starts watching a key for a client: see `watch`.
    pub fn watch(&mut self, client: u64, db: usize, key: &Key<'_>) {
        let there = self.db(db).get(key).map(|found| found.deadline());
        self.log().watches.add(client, (db, key), there);
    }

    /// The log, no longer resting.
    fn log(&mut self) -> &mut Log {
        if self.databases.log().is_none() {
            let mut log = self.resting.take().unwrap_or_default();
            log.begin_turn(self.stamp);
            self.databases.give_log(Some(log));
        }
        self.databases.log().as_mut().expect("it was just given")
    }

    /// Ends all watches of a client. Returns true while [`Shard::settle_watches`] has work to do.
    pub fn unwatch(&mut self, client: u64) -> bool {
        self.with_watches(|watches| watches.remove(client)).unwrap_or(false)
    }

    /// Makes a key, whose value was read by the build with this number, a source of the build,
    /// until [`Shard::forget`] is called.
    pub fn watch_source(&mut self, build: u64, db: usize, key: &Key<'_>) {
        let there = self.db(db).get(key).map(|found| found.deadline());
        self.log().watches.add_source(build, (db, key), there);
    }

    /// True if a source of a build may have changed since it was read. Cost: a branch, if no build
    /// uses values of this shard.
    pub fn has_changed_sources(&mut self) -> bool {
        if !self.has_builds() {
            return false;
        }
        // Members expire without a touch.
        let (now, die) = (self.now(), self.next_field_death().is_some());
        die || self.with_watches(|watches| watches.has_changed_sources(now)).unwrap_or(false)
    }

    fn has_builds(&mut self) -> bool {
        self.databases.log().as_ref().is_some_and(|log| log.watches.have_builds())
    }

    /// Ends the build with this number, if there is one.
    pub(super) fn end_build(&mut self, build: u64) {
        if self.has_builds() {
            self.with_watches(|watches| watches.end_build(build));
        }
    }

    /// Does a portion of the work left by touches, and by clients that have stopped watching.
    /// Returns true while more is left.
    pub fn settle_watches(&mut self) -> bool {
        self.with_watches(Watches::settle).unwrap_or(false)
    }

    /// Whether a key watched by the client was touched, or has expired. Cost: a portion.
    pub fn ask_watches(&mut self, client: u64) -> Seen {
        let now = self.now();
        self.with_watches(|watches| watches.ask(client, now)).unwrap_or(Seen::Clean)
    }

    /// Takes the clients with a watched key that was touched since the last call. Cost: a branch,
    /// if nothing is watched.
    pub fn take_watch_news(&mut self) -> Vec<u64> {
        match self.databases.log() {
            Some(log) => log.watches.take_news(),
            None => Vec::new(),
        }
    }

    /// True when [`Shard::settle_watches`] or [`Shard::take_watch_news`] has something to do.
    #[must_use]
    pub fn has_watch_work(&mut self) -> bool {
        self.databases.log().as_ref().is_some_and(|log| log.watches.has_work())
    }

    /// True when a key is watched.
    #[must_use]
    pub fn is_watched(&mut self) -> bool {
        self.databases.log().as_ref().is_some_and(|log| !log.watches.is_empty())
    }

    /// Asserts the invariants of watches. Cost: O(watches): for tests.
    pub fn check_watches(&mut self) {
        self.tracked.check_invariants();
        if let Some(log) = self.databases.log() {
            log.watches.check_invariants();
            log.check_records();
        }
    }

    /// Calls `act` with the watches, if there are any. A log that only they need is then dropped
    /// with them.
    fn with_watches<R>(&mut self, act: impl FnOnce(&mut Watches) -> R) -> Option<R> {
        let log = self.databases.log().as_mut()?;
        let result = act(&mut log.watches);
        self.drop_unneeded();
        Some(result)
    }

    fn drop_unneeded(&mut self) {
        if self.databases.log().as_ref().is_some_and(|log| !log.is_needed()) {
            self.resting = self.databases.take_log();
        }
    }

    // ---- client tracking: see `tracked` ----

    /// Remembers that a client has read a key, so that the next touch is reported. Beyond `most`
    /// keys (unless that is 0), random keys are dropped.
    pub fn remember(&mut self, client: u64, key: &Key<'_>, most: usize) {
        self.follow_log(); // Earlier touches concern only earlier readers.
        self.begin_tracking();
        self.tracked.limit(most);
        match self.databases.log() {
            Some(log) if log.is_open() => log.push_read(key.bytes, client),
            _ => self.tracked.remember(client, key, &mut self.prng),
        }
    }

    /// Sets which changes are observed for tracking clients.
    pub fn hear_for(&mut self, hears: Hears) {
        self.follow_log();
        self.tracked.hear_for(hears);
        if !self.tracked.is_empty() {
            self.begin_tracking();
        }
    }

    fn begin_tracking(&mut self) {
        if self.tracking.is_none() {
            self.tracking = Some(self.join(Wants::EVENTS));
        }
    }

    fn end_tracking(&mut self) {
        debug_assert!(self.tracked.is_empty(), "something is observed");
        if let Some(reader) = self.tracking.take() {
            self.leave(reader);
        }
    }

    /// Reads the log for the tracked keys.
    fn follow_log(&mut self) {
        let (Some(reader), Some(log)) = (self.tracking, self.databases.log()) else { return };
        loop {
            match log.read(reader) {
                Read::Next(record) => self.tracked.follow(record, &mut self.prng),
                Read::End => return,
                Read::Lapsed(count) => unreachable!("{count} records were pinned"),
            }
        }
    }

    /// Sets the author of the following commands: 0, or a client that ignores its own changes.
    #[inline]
    pub fn set_author(&mut self, author: u64) {
        if let Some(log) = self.databases.log() {
            log.set_author(author);
        }
    }

    /// Drops at most `count` keys while more than `most` are remembered. Returns true if there may
    /// be more.
    pub fn forget_some(&mut self, most: usize, count: usize) -> bool {
        self.follow_log();
        self.tracked.limit(most);
        self.tracked.make_room(count, &mut self.prng);
        self.tracked.is_over()
    }

    /// Takes the touched keys, in order.
    pub fn take_touched(&mut self) -> Vec<Touched> {
        self.follow_log();
        let touched = self.tracked.take_touched();
        // An open transaction may have read something for tracking.
        if self.tracked.is_empty() && self.kept.is_empty() && !self.is_open() {
            self.end_tracking();
        }
        touched
    }

    /// True if any touch is observed for tracking clients.
    #[must_use]
    pub fn is_tracked(&self) -> bool {
        self.tracking.is_some()
    }

    /// The number of remembered keys, and the number of all their readers.
    pub fn tracked_sizes(&mut self) -> (usize, usize) {
        self.follow_log();
        self.tracked.sizes()
    }

    /// True if misses of commands are recorded.
    pub fn hears_misses(&mut self) -> bool {
        self.databases.log().as_ref().is_some_and(|log| log.wants_misses())
    }

    /// Takes all records that the only reader has not read.
    #[must_use]
    pub fn take_records(&mut self) -> Vec<Record> {
        self.databases.log().as_mut().map_or_else(Vec::new, |log| log.take())
    }

    /// Number of the last record.
    pub fn records_made(&mut self) -> u64 {
        let log = self.databases.log().as_ref().or(self.resting.as_ref());
        log.map_or(0, |log| log.count())
    }

    /// Attributes the records after number `since` to this transaction.
    pub fn mark_since(&mut self, since: u64, part: Part) {
        if let Some(log) = self.databases.log() {
            log.mark_since(since, part);
        }
    }

    /// The records of the transaction since the previous call, to be compared with its locks.
    pub fn compare_part(&mut self) -> Option<(Part, impl Iterator<Item = &Record>)> {
        self.databases.log().as_mut().and_then(|log| log.compare_part())
    }

    /// Ends this shard's part of the transaction.
    pub fn end_part(&mut self, part: Part) {
        if let Some(log) = self.databases.log() {
            log.end_part(part);
        }
    }

    /// Bytes held by all databases, and by changes that may be undone.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let kept: usize = self.kept.values().map(|kept| kept.memory_bytes()).sum();
        self.databases.memory_bytes() + kept
    }

    /// The number of expired keys, in all databases.
    #[must_use]
    pub fn expired_count(&self) -> u64 {
        self.databases.sums().expired - self.undone.expired
    }

    /// The number of changes to all databases, except for removals by expiry. Undone changes are
    /// included, so a higher number means that something has changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.databases.changes()
    }

    /// The number of keys in all databases.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.databases.sums().keys
    }

    /// The memory account of all values.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.databases.sums().usage
    }

    /// Keys expire by their own deadlines no earlier than this. Unix milliseconds.
    #[must_use]
    pub fn next_key_death(&self) -> Option<u64> {
        if self.holds_death() {
            return None;
        }
        self.databases.next_key_death()
    }

    /// Fields and members expire no earlier than this. Unix milliseconds.
    #[must_use]
    pub fn next_field_death(&self) -> Option<u64> {
        if self.holds_death() {
            return None;
        }
        self.databases.next_field_death()
    }

    /// Removes about `most` expired items: fields and members first. Returns true while more may be
    /// left.
    pub fn reap(&mut self, most: usize) -> bool {
        if self.holds_death() {
            return false;
        }
        let Some(at) = self.databases.first_with_dead(self.now) else { return false };
        self.db_mut(at).reap(most);
        true
    }

    /// The time from which [`Shard::compact`] has work to do, in Unix milliseconds. O(1).
    #[must_use]
    pub fn next_compaction(&self) -> Option<u64> {
        self.databases.next_compaction(self.now)
    }

    /// Compacts one place of a table that has shrunk.
    pub fn compact(&mut self) {
        if let Some(at) = self.databases.first_to_compact(self.now) {
            self.db_mut(at).compact_next();
        }
    }

    /// Asserts the invariants, including those of all databases. Cost: O(keys): for tests.
    pub fn check_invariants(&self) {
        self.databases.check_invariants();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::databases::NEAR;
    use crate::{Deadline, Fresh, Key};

    const DATABASES: usize = i32::MAX as usize;

    fn set(shard: &mut Shard, db: usize) {
        shard.db_mut(db).set_text(&Key::new(b"k"), Fresh::Bytes(b"value"), Deadline::Clear);
    }

    fn used(shard: &Shard) -> Vec<usize> {
        shard.iter().filter(|(_, db)| !db.is_empty()).map(|(at, _)| at).collect()
    }

    #[test] // With two billion databases, work depends only on those in use.
    fn unused_databases_cost_nothing() {
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

    #[test] // Reading one database after another leaves no memory behind.
    fn empty_databases_are_freed() {
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
