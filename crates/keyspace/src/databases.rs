//! The databases of one shard, their sums, and the order of their next chores.
//!
//! A core asks in every turn how much its databases hold, when the next key dies, and whether a table
//! is to be compacted. A hundred thousand of them may be in use, so nothing here walks them. They are
//! handed out for changes one at a time; the last one handed out is the *current* one. Its share of the
//! sums is settled when another is handed out; until then the sums are corrected by its own counts. So
//! a client that stays in one database, as most do, pays a comparison.
//!
//! ```text
//! near:   | 0 | 1 | 2 | ...    at most [`NEAR`], made at once: at one addition's distance
//! far:    1_000 -> database    the current one, and those that hold something
//! sums:   what all of them hold      agenda: (moment, index) of each with something to do
//! ```
//! Invariants (`check_invariants`):
//! - D1: `sums` is the sum of the noted counters of each database, plus the counters of removed
//!   databases. The noted counters are those of the database, unless it is the current one.
//! - D2: a far database that is not the current one is not blank.
//! - D3: `agenda` has the moments that were noted, and nothing else.
//! - D4: the log, while there is a subscriber, is with the current one, and knows its index.

use crate::db::Contents;
use crate::lazyfree::{self, Dismantle};
use crate::log::Log;
use crate::usage::exchange;
use crate::{Db, Usage};
use std::collections::{BTreeMap, BTreeSet};

/// Databases that are stored side by side: the commonly used ones, at one addition's distance.
pub(crate) const NEAR: usize = 64;
/// The size of a far database without its entries: in a map of typical fill.
const FAR_BYTES: usize = size_of::<Slot>() + 24;
/// The size of a moment in [`Agenda`].
const MOMENT_BYTES: usize = 24;

/// The contents and counters of one database, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) keys: usize,
    pub(crate) memory_bytes: usize,
    pub(crate) usage: Usage,
    /// Keys that died of their deadline.
    pub(crate) expired: u64,
    pub(crate) changes: u64,
}

impl Sums {
    fn of(db: &Db) -> Self {
        Self {
            keys: db.len(),
            memory_bytes: db.memory_bytes(),
            usage: *db.usage(),
            expired: db.expired_count(),
            changes: db.changes(),
        }
    }

    /// The counters: they stay when a database goes.
    fn counted(&self) -> Self {
        Self { expired: self.expired, changes: self.changes, ..Self::default() }
    }

    /// Replaces one share, `before`, by `after`.
    fn replace(&mut self, before: &Self, after: &Self) {
        self.keys = exchange(self.keys, before.keys, after.keys);
        self.memory_bytes = exchange(self.memory_bytes, before.memory_bytes, after.memory_bytes);
        self.usage.replace(&before.usage, &after.usage);
        assert!(before.expired <= self.expired, "{} of {}", before.expired, self.expired);
        assert!(before.changes <= self.changes, "{} of {}", before.changes, self.changes);
        self.expired = self.expired - before.expired + after.expired;
        self.changes = self.changes - before.changes + after.changes;
    }
}

/// When the next key and the next field of a database die, at the earliest, and when its table is to be
/// compacted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Next {
    key: Option<u64>,
    field: Option<u64>,
    compaction: Option<u64>,
}

impl Next {
    fn of(db: &Db) -> Self {
        Self {
            key: db.next_key_death(),
            field: db.next_field_death(),
            compaction: db.next_compaction(),
        }
    }
}

/// Times, and the databases that have work then.
type Moments = BTreeSet<(u64, usize)>;

/// The next deaths and chores of all databases.
#[derive(Default)]
struct Agenda {
    keys: Moments,
    fields: Moments,
    compactions: Moments,
}

impl Agenda {
    /// Replaces the next chore of database `at`, `before`, by `after`.
    fn replace(&mut self, at: usize, before: Next, after: Next) {
        replace(&mut self.keys, at, before.key, after.key);
        replace(&mut self.fields, at, before.field, after.field);
        replace(&mut self.compactions, at, before.compaction, after.compaction);
    }

    fn len(&self) -> usize {
        self.keys.len() + self.fields.len() + self.compactions.len()
    }
}

/// The database in which something is to be done first, if that is due at `now`.
fn first(moments: &Moments, now: u64) -> Option<usize> {
    moments.first().filter(|(moment, _)| *moment <= now).map(|(_, at)| *at)
}

fn replace(moments: &mut Moments, at: usize, before: Option<u64>, after: Option<u64>) {
    if before == after {
        return;
    }
    if let Some(moment) = before {
        let was_there = moments.remove(&(moment, at));
        assert!(was_there, "D3: {moment} of database {at} was not noted");
    }
    if let Some(moment) = after {
        let is_new = moments.insert((moment, at));
        assert!(is_new, "D3: {moment} of database {at} is noted twice");
    }
}

/// A database, and its sums at the time when another was handed out.
#[derive(Default)]
struct Slot {
    db: Db,
    sums: Sums,
    next: Next,
}

/// See the module.
pub(crate) struct Databases {
    near: Vec<Slot>,
    far: BTreeMap<usize, Box<Slot>>,
    /// The one that was handed out last.
    current: usize,
    sums: Sums,
    agenda: Agenda,
}

impl Databases {
    /// `count` empty ones, 1 or more.
    pub(crate) fn new(count: usize) -> Self {
        Self {
            near: (0..count.min(NEAR)).map(|_| Slot::default()).collect(),
            far: BTreeMap::new(),
            current: 0,
            sums: Sums::default(),
            agenda: Agenda::default(),
        }
    }

    /// Database `at`, unless it is a far one that is not in use.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&Db> {
        self.slot(at).map(|slot| &slot.db)
    }

    #[inline]
    fn slot(&self, at: usize) -> Option<&Slot> {
        self.near.get(at).or_else(|| self.far.get(&at).map(|slot| &**slot))
    }

    fn slot_mut(&mut self, at: usize) -> Option<&mut Slot> {
        match self.near.get_mut(at) {
            Some(slot) => Some(slot),
            None => self.far.get_mut(&at).map(|slot| &mut **slot),
        }
    }

    fn current(&self) -> &Slot {
        self.slot(self.current).expect("the current one is there")
    }

    /// Database `at`, for changes. Cost: O(1) for the current one, O(log(databases in use)) for
    /// another.
    #[inline(always)]
    pub(crate) fn hand_out(&mut self, at: usize) -> &mut Db {
        if at != self.current {
            self.settle();
            self.open(at);
        }
        &mut self.slot_mut(at).expect("opened when it became the current one").db
    }

    fn open(&mut self, at: usize) {
        assert_eq!(self.current, 0, "the one before is settled");
        if at >= self.near.len() && !self.far.contains_key(&at) {
            self.far.insert(at, Box::default());
        }
        self.go_to(at);
    }

    /// Makes an existing database the current one.
    fn go_to(&mut self, at: usize) {
        let log = self.take_log();
        self.current = at;
        self.give_log(log);
    }

    /// The log, if there is a subscriber.
    pub(crate) fn log(&mut self) -> &mut Option<Box<Log>> {
        let current = self.current;
        self.slot_mut(current).expect("the current one is there").db.log()
    }

    /// Takes the log away from the current one.
    pub(crate) fn take_log(&mut self) -> Option<Box<Log>> {
        self.log().take()
    }

    /// Gives the current one the log.
    pub(crate) fn give_log(&mut self, mut log: Option<Box<Log>>) {
        let current = self.current;
        log.iter_mut().for_each(|log| log.enter(current));
        *self.log() = log;
    }

    /// Notes the sums of the current one, and releases it if it is far and blank. Then the first is
    /// the current one.
    fn settle(&mut self) {
        let at = self.current;
        let Some(slot) = self.slot_mut(at) else { return };
        let before = (slot.sums, slot.next);
        let after = (Sums::of(&slot.db), Next::of(&slot.db));
        (slot.sums, slot.next) = after;
        if before != after {
            self.sums.replace(&before.0, &after.0);
            self.agenda.replace(at, before.1, after.1);
        }
        self.go_to(0);
        self.close_blank(at);
    }

    /// Releases a settled one if it is far and blank. Its counters stay in the sums.
    fn close_blank(&mut self, at: usize) {
        if at < self.near.len() || !self.get(at).is_some_and(Db::is_blank) {
            return;
        }
        debug_assert_ne!(at, self.current, "D1: database {at} is handed out");
        let Some(gone) = self.far.remove(&at) else { return };
        assert_eq!(gone.sums.keys, 0, "D1: database {at} is let go of");
        self.sums.replace(&gone.sums, &gone.sums.counted());
        self.agenda.replace(at, gone.next, Next::default());
    }

    /// The databases in use with their indexes, in order, from `first` on.
    pub(crate) fn iter_from(&self, first: usize) -> impl Iterator<Item = (usize, &Db)> {
        let near = self.near.iter().enumerate().skip(first);
        let far = self.far.range(first..).map(|(at, slot)| (*at, &**slot));
        near.chain(far).map(|(at, slot)| (at, &slot.db))
    }

    /// The contents of all databases, without their own overhead: see [`Databases::memory_bytes`].
    pub(crate) fn sums(&self) -> Sums {
        let (mut sums, current) = (self.sums, self.current());
        sums.replace(&current.sums, &Sums::of(&current.db));
        sums
    }

    /// Changes in all of them since the start.
    pub(crate) fn changes(&self) -> u64 {
        let current = self.current();
        self.sums.changes - current.sums.changes + current.db.changes()
    }

    /// Keys that died in all of them since the start.
    pub(crate) fn expired(&self) -> u64 {
        let current = self.current();
        self.sums.expired - current.sums.expired + current.db.expired_count()
    }

    /// Bytes held by all of them.
    pub(crate) fn memory_bytes(&self) -> usize {
        let current = self.current();
        let (noted, now) = (current.sums.memory_bytes, current.db.memory_bytes());
        exchange(self.sums.memory_bytes, noted, now)
            + self.far.len() * FAR_BYTES
            + self.agenda.len() * MOMENT_BYTES
    }

    /// No key dies before this moment of its own deadline.
    pub(crate) fn next_key_death(&self) -> Option<u64> {
        self.next(&self.agenda.keys, Db::next_key_death)
    }

    /// No field or member dies before this moment.
    pub(crate) fn next_field_death(&self) -> Option<u64> {
        self.next(&self.agenda.fields, Db::next_field_death)
    }

    /// The time of the next compaction of a table, as of `now`.
    pub(crate) fn next_compaction(&self, now: u64) -> Option<u64> {
        // The database notes the time since which its table is unchanged.
        self.current().db.set_now(now);
        self.next(&self.agenda.compactions, Db::next_compaction)
    }

    fn next(&self, noted: &Moments, of: fn(&Db) -> Option<u64>) -> Option<u64> {
        let others = noted.iter().find(|(_, at)| *at != self.current).map(|(moment, _)| *moment);
        others.into_iter().chain(of(&self.current().db)).min()
    }

    /// A database with dead entries: one with dead fields or members before one with dead keys.
    pub(crate) fn first_with_dead(&mut self, now: u64) -> Option<usize> {
        self.settle();
        let at = first(&self.agenda.fields, now).or_else(|| first(&self.agenda.keys, now));
        debug_assert!(at.is_none_or(|at| self.slot(at).is_some()), "D3: {at:?} has gone");
        at
    }

    /// A database whose table must be compacted.
    pub(crate) fn first_to_compact(&mut self, now: u64) -> Option<usize> {
        self.settle();
        first(&self.agenda.compactions, now)
    }

    /// Takes all keys out of all databases, and records nothing. Cost: O([`NEAR`]): memory is freed in
    /// slices.
    pub(crate) fn clear(&mut self) -> Cleared {
        self.settle();
        let mut near = Vec::new();
        for at in 0..self.near.len() {
            if !self.near[at].db.is_empty() {
                near.push((at, self.hand_out(at).take_contents()));
            }
        }
        self.settle();
        // The sums now have the far databases, the bytes of the empty near tables, and
        // counters.
        let near_bytes = self.near.iter().map(|slot| slot.sums.memory_bytes).sum::<usize>();
        let sums = Sums { memory_bytes: self.sums.memory_bytes - near_bytes, ..self.sums };
        let far = Gone {
            dbs: std::mem::take(&mut self.far),
            bytes: sums.memory_bytes,
            agenda: std::mem::take(&mut self.agenda),
        };
        let changes = self.sums.changes + self.sums.keys as u64;
        let counted = Sums { changes, ..self.sums.counted() };
        self.sums = Sums { memory_bytes: near_bytes, ..counted };
        debug_assert!(self.near.iter().all(|slot| slot.sums.keys == 0), "keys are left");
        Cleared { near, far, sums }
    }

    /// Puts the removed contents back, in the place of the present ones.
    pub(crate) fn put_back(&mut self, cleared: &mut Cleared) {
        drop(self.clear());
        assert!(self.far.is_empty() && self.agenda.len() == 0, "something is left");
        self.far = std::mem::take(&mut cleared.far.dbs);
        self.agenda = std::mem::take(&mut cleared.far.agenda);
        self.sums.keys += cleared.sums.keys;
        self.sums.memory_bytes += cleared.sums.memory_bytes;
        self.sums.usage.merge(&cleared.sums.usage);
        for (at, contents) in &mut cleared.near {
            self.hand_out(*at).put_contents(contents);
        }
        self.settle();
    }

    /// Asserts the invariants, those of all databases included. Cost: O(keys): for tests.
    pub(crate) fn check_invariants(&self) {
        let (mut sums, mut agenda) = (Sums::default(), Agenda::default());
        for (at, db) in self.iter_from(0) {
            db.check_invariants();
            let slot = self.slot(at).expect("it was just found");
            if at != self.current {
                assert_eq!(slot.sums, Sums::of(db), "D1 of database {at}");
                assert_eq!(slot.next, Next::of(db), "D1 of database {at}");
                assert!(at < self.near.len() || !db.is_blank(), "D2: database {at}");
                assert!(!db.has_log(), "D4: database {at}");
            }
            sums.replace(&Sums::default(), &slot.sums);
            agenda.replace(at, Next::default(), slot.next);
        }
        let counted = self.sums.counted();
        assert!(sums.expired <= counted.expired && sums.changes <= counted.changes, "D1");
        let sums = Sums { expired: counted.expired, changes: counted.changes, ..sums };
        assert_eq!(sums, self.sums, "D1");
        assert_eq!(self.agenda.keys, agenda.keys, "D3");
        assert_eq!(self.agenda.fields, agenda.fields, "D3");
        assert_eq!(self.agenda.compactions, agenda.compactions, "D3");
    }
}

/// The contents of all databases, freed in slices.
pub(crate) struct Cleared {
    near: Vec<(usize, Contents)>,
    far: Gone,
    /// The contents of the far databases.
    sums: Sums,
}

impl Drop for Cleared {
    fn drop(&mut self) {
        if !self.far.dbs.is_empty() {
            let (dbs, bytes) = (std::mem::take(&mut self.far.dbs), self.far.bytes);
            let agenda = std::mem::take(&mut self.far.agenda);
            lazyfree::defer(Box::new(Gone { dbs, bytes, agenda }));
        }
    }
}

/// Far databases that were released.
struct Gone {
    dbs: BTreeMap<usize, Box<Slot>>,
    /// The bytes that they count themselves.
    bytes: usize,
    agenda: Agenda,
}

impl Dismantle for Gone {
    fn dismantle(&mut self) -> bool {
        /// Databases in a portion.
        const DATABASES: usize = 32;
        const MOMENTS: usize = 64;
        for _ in 0..DATABASES {
            let Some((_, mut gone)) = self.dbs.pop_first() else { break };
            self.bytes = self.bytes.saturating_sub(gone.sums.memory_bytes);
            gone.db.clear(); // Large contents wait for their own turn.
        }
        if self.dbs.is_empty() {
            for _ in 0..MOMENTS {
                let Agenda { keys, fields, compactions } = &mut self.agenda;
                let popped = [keys, fields, compactions].map(|moments| moments.pop_first());
                if popped.iter().all(Option::is_none) {
                    return false;
                }
            }
        }
        true
    }

    fn bytes(&self) -> usize {
        self.bytes + self.dbs.len() * FAR_BYTES + self.agenda.len() * MOMENT_BYTES
    }
}
