//! The copies that an *open* transaction keeps of a shard, so that it can be undone.
//!
//! Before the first change of a key its entry is kept: a value out of line by its count, which is a
//! cut, so the change copies what it touches; anything in the entry as a copy. Before a change to
//! all keys, they are kept whole. Undoing installs it all in reverse order. Keeping is below the
//! commands, in the methods that change data, so no command can forget it; while no open
//! transaction is at work, it costs these a branch.
//!
//! Its changes are recorded and observed as always, but leave the shard when the transaction is
//! committed, and never if it is undone:
//!
//! ```text
//! kept:   steps:   key, entry or none | swapped | all keys of a database | of all databases
//!         records: in portions, numbered as they leave
//!         touched: the watched keys that were touched
//! ```
//! There may be several open transactions; the one at work is with the shard's log (`log`).
//!
//! Invariants (`check_invariants`):
//! - K1: `places` leads to every kept key of the databases as they lie now, and to nothing else.
//! - K2: runs are full, except for the last.
//!
//! Not here: whose locks keep others away from what may be undone. See `tx`.

use crate::databases::Cleared;
use crate::db::Contents;
use crate::effect::Record;
use crate::event::EXPIRED;
use crate::lazyfree::{self, Dismantle};
use crate::object::Object;
use crate::watch;
use crate::{Event, Key, Name, Part};
use darter_base::hashtree::HashTree;
use darter_structs::table::{Entry, PackedValue, Scratch, Table, ValueRef};
use std::collections::VecDeque;

/// Steps in a run: the list of runs is short, and none is moved as it grows.
const RUN: usize = 256;
/// Records in a portion.
const RECORDS: usize = 256;

/// Counters that an undone transaction has not moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) changes: u64,
    pub(crate) expired: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl Counts {
    /// Adds the counts between two moments.
    pub(crate) fn add(&mut self, before: &Self, after: &Self) {
        assert!(before.changes <= after.changes, "{} to {}", before.changes, after.changes);
        self.changes += after.changes - before.changes;
        self.expired += after.expired - before.expired;
        self.hits += after.hits - before.hits;
        self.misses += after.misses - before.misses;
    }
}

/// A value as it was found.
#[derive(Debug)]
pub(crate) enum WasValue {
    Text(Box<[u8]>),
    /// A small collection in the entry: its note and its bytes.
    Packed(u8, Box<[u8]>),
    Out(Object),
}

/// An entry as it was found.
#[derive(Debug)]
pub(crate) struct Was {
    pub(crate) value: WasValue,
    pub(crate) deadline: Option<u64>,
    pub(crate) bits: u8,
    pub(crate) stamp: u32,
}

impl Was {
    fn of(entry: &Entry<'_, Object>) -> Self {
        let value = match entry.value() {
            ValueRef::Text(text) => WasValue::Text(text.bytes(&mut Scratch::default()).into()),
            ValueRef::Packed(PackedValue { note, bytes }) => WasValue::Packed(note, bytes.into()),
            ValueRef::Out(object) => WasValue::Out(object.clone()),
        };
        let (deadline, bits, stamp) = (entry.deadline(), entry.bits(), entry.stamp());
        Self { value, deadline, bits, stamp }
    }

    /// Bytes of its own.
    fn bytes(&self) -> usize {
        match &self.value {
            WasValue::Text(bytes) | WasValue::Packed(_, bytes) => bytes.len(),
            WasValue::Out(_) => 0,
        }
    }
}

/// A key as it was found.
#[derive(Debug)]
pub(crate) struct KeyStep {
    pub(crate) db: usize,
    pub(crate) name: Name,
    /// None: it was absent.
    pub(crate) was: Option<Was>,
    /// The step before of another key with the same place.
    same: Option<usize>,
}

/// A step to be undone.
pub(crate) enum Step {
    Key(KeyStep),
    /// These databases were swapped.
    Swap([usize; 2]),
    /// The database held this.
    Flush(usize, Box<Contents>),
    /// All databases held this.
    FlushAll(Box<Cleared>),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Kept {
    steps: Vec<Vec<Step>>,
    /// The steps of keys, by [`place`].
    places: HashTree<usize>,
    /// Databases of which all is kept,
    whole: Vec<usize>,
    /// or of all.
    is_all_whole: bool,
    /// Watched keys that were touched, by the names that watches have for them.
    touched: HashTree<&'static Event>,
    /// Databases that were emptied; none for all of them.
    flushed: Vec<Option<usize>>,
    /// The records, in order.
    records: VecDeque<Vec<Record>>,
    /// Whether the records that leave are marked as those of one transaction, once some have left.
    is_marked: Option<bool>,
    /// The transaction is being undone.
    is_ending: bool,
    /// The place at which the touched keys continue to leave.
    path: u32,
    pub(crate) counts: Counts,
    /// Bytes of names and values that it has copied.
    copied_bytes: usize,
}

/// The place of a key: others may have it, too.
fn place(db: usize, hash: u64) -> u64 {
    hash ^ (db as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Kept {
    /// True when nothing would be undone, and nothing is to leave.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.records.is_empty() && self.counts == Counts::default()
    }

    /// Keeps a key, unless it is kept already.
    pub(crate) fn keep(&mut self, keys: &Table<Object>, db: usize, key: &Key<'_>) {
        debug_assert!(!self.is_ending, "it is being undone");
        let place = place(db, key.hash);
        if self.is_whole(db) || self.find(place, db, key.bytes).is_some() {
            return;
        }
        let was = keys.get(key.hash, key.bytes).map(|entry| Was::of(&entry));
        let name = Name::from(key.bytes);
        self.copied_bytes += name.len() + was.as_ref().map_or(0, Was::bytes);
        let at = self.steps_len();
        let same = self.places.insert(place, at);
        debug_assert!(same.is_none_or(|same| same < at), "K1: {same:?} comes after {at}");
        self.push(Step::Key(KeyStep { db, name, was, same }));
    }

    /// True when the key may be changed: it is kept.
    pub(crate) fn has(&self, db: usize, key: &[u8]) -> bool {
        let place = place(db, darter_base::hash::of(key));
        self.is_whole(db) || self.find(place, db, key).is_some()
    }

    fn is_whole(&self, db: usize) -> bool {
        self.is_all_whole || self.whole.contains(&db)
    }

    fn find(&self, place: u64, db: usize, name: &[u8]) -> Option<usize> {
        let mut next = self.places.get(place).copied();
        while let Some(at) = next {
            let Step::Key(step) = &self.steps[at / RUN][at % RUN] else {
                unreachable!("K1: places are of keys")
            };
            if step.db == db && *step.name == *name {
                break;
            }
            next = step.same;
        }
        next
    }

    /// How many steps there are.
    pub(crate) fn steps_len(&self) -> usize {
        self.steps.last().map_or(0, |last| (self.steps.len() - 1) * RUN + last.len())
    }

    fn push(&mut self, step: Step) {
        match self.steps.last_mut() {
            Some(run) if run.len() < RUN => run.push(step),
            _ => self.steps.push(vec![step]),
        }
    }

    /// Two databases were swapped: keys lie elsewhere now, and are kept again.
    pub(crate) fn keep_swap(&mut self, both: [usize; 2]) {
        self.forget_places();
        self.push(Step::Swap(both));
    }

    /// A database was emptied.
    pub(crate) fn keep_flush(&mut self, db: usize, contents: Contents) {
        self.push(Step::Flush(db, Box::new(contents)));
        self.whole.push(db);
    }

    /// All databases were emptied.
    pub(crate) fn keep_flush_all(&mut self, cleared: Cleared) {
        self.push(Step::FlushAll(Box::new(cleared)));
        self.is_all_whole = true;
    }

    fn forget_places(&mut self) {
        self.places = HashTree::default();
        self.whole.clear();
    }

    /// Takes the last step out, to be undone.
    pub(crate) fn pop(&mut self) -> Option<Step> {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.forget_places(); // Nothing is kept any more.
        }
        let run = self.steps.last_mut()?;
        let step = run.pop();
        if run.is_empty() {
            self.steps.pop();
        }
        step
    }

    // ---- records to publish ----

    /// A watched key was touched.
    pub(crate) fn hear(&mut self, db: usize, key: &[u8], event: &'static Event) {
        self.hear_place(watch::place(db, darter_base::hash::of(key)), event);
    }

    /// [`Kept::hear`] for the name that watches have for the key.
    pub(crate) fn hear_place(&mut self, place: u64, event: &'static Event) {
        let before = self.touched.get(place);
        if before.is_none_or(|before| *before == EXPIRED && event != EXPIRED) {
            self.touched.insert(place, event);
        }
    }

    /// All keys of a database are gone, or of all.
    pub(crate) fn hear_flush(&mut self, db: Option<usize>) {
        if !self.flushed.contains(&db) {
            self.flushed.push(db);
        }
    }

    /// Takes the last records, to add others to them.
    pub(crate) fn take_last_records(&mut self) -> Vec<Record> {
        match self.records.back() {
            Some(last) if last.len() < RECORDS => self.records.pop_back().unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Puts them back.
    pub(crate) fn put_last_records(&mut self, records: Vec<Record>) {
        if !records.is_empty() {
            self.records.push_back(records);
        }
    }

    /// The mark of the published records: the part of a transaction that has `parts` parts, unless
    /// this shard has its only one and publishes all of it at once.
    pub(crate) fn mark(&mut self, transaction: u64, parts: usize) -> Option<Part> {
        assert!(parts > 0, "{transaction} has no part");
        let is_long = self.records.len() > 1;
        let is_marked = *self.is_marked.get_or_insert(parts > 1 || is_long);
        is_marked.then_some(Part { transaction, parts })
    }

    /// Takes the next records that are to leave.
    pub(crate) fn next_records(&mut self) -> Option<Vec<Record>> {
        self.records.pop_front()
    }

    /// Calls `each` with some of the touched keys. True while there are more.
    pub(crate) fn next_touched(&mut self, each: impl FnMut((&u64, &&'static Event))) -> bool {
        let (leaf, next) = self.touched.leaf(self.path);
        leaf.iter().for_each(each);
        self.path = next.unwrap_or_default();
        next.is_some()
    }

    /// Takes the databases that were emptied.
    pub(crate) fn take_flushed(&mut self) -> Vec<Option<usize>> {
        std::mem::take(&mut self.flushed)
    }

    /// Bytes of memory, without those of values that it shares, or that were replaced.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.steps_len() * size_of::<Step>() + self.copied_bytes
    }

    /// Asserts the invariants. Cost: O(steps): for tests.
    pub(crate) fn check_invariants(&self) {
        let full = self.steps.iter().rev().skip(1);
        assert!(full.clone().all(|run| run.len() == RUN), "K2: a run is not full");
        assert!(self.steps.last().is_none_or(|last| !last.is_empty()), "K2: an empty run");
        let mut led = 0;
        for (place, first) in self.places.iter() {
            let mut next = Some(*first);
            while let Some(at) = next {
                let Step::Key(step) = &self.steps[at / RUN][at % RUN] else {
                    panic!("K1: {at} is no key")
                };
                assert_eq!(self::place(step.db, Key::new(&step.name).hash), place, "K1: {at}");
                led += 1;
                next = step.same;
            }
        }
        let last_swap = self.steps.iter().flatten().rev();
        let now = last_swap.take_while(|step| !matches!(step, Step::Swap(_)));
        let keys = now.filter(|step| matches!(step, Step::Key(_))).count();
        assert_eq!(led, if self.is_ending { 0 } else { keys }, "K1: a kept key is not found");
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.steps.len() > 1 || self.records.len() > 1 {
            let (steps, records) =
                (std::mem::take(&mut self.steps), std::mem::take(&mut self.records));
            lazyfree::defer(Box::new(FreedCopies { steps, records }));
        }
    }
}

/// Copies that are no longer needed, to be freed.
struct FreedCopies {
    steps: Vec<Vec<Step>>,
    records: VecDeque<Vec<Record>>,
}

impl Dismantle for FreedCopies {
    fn dismantle(&mut self) -> bool {
        /// Steps in a portion.
        const STEPS: usize = 64;
        match self.steps.last_mut() {
            Some(run) if run.len() > STEPS => run.truncate(run.len() - STEPS),
            Some(_) => drop(self.steps.pop()),
            None => drop(self.records.pop_front()),
        }
        !(self.steps.is_empty() && self.records.is_empty())
    }

    fn bytes(&self) -> usize {
        self.steps.len() * RUN * size_of::<Step>()
            + self.records.len() * RECORDS * size_of::<Record>()
    }
}
