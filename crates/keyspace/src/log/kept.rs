//! Copies of a shard's data that an *open* transaction keeps, so that it can be undone.
//!
//! Before the first change of a key, its entry is copied: an out-of-line value by reference (a cut,
//! so the change copies what it touches), anything in the entry bytewise. Before a change to all
//! keys, the whole table is kept. Undoing installs everything in reverse order. Copies are made
//! below the commands, in the methods that change data, so no command can forget it. While no open
//! transaction is running, this costs only a branch.
//!
//! Its changes are recorded and noted as usual, but published only when the transaction is
//! committed, and never if it is undone:
//!
//! ```text
//! kept:   steps:   key, entry or none | swapped | all keys of a database | of all databases
//!         records: in portions, numbered as they leave
//!         touched: the watched keys that were touched
//! ```
//! There may be several open transactions; the running one is attached to the shard's log (`log`).
//!
//! Invariants (`check_invariants`):
//! - K1: `places` leads to every kept key of the databases in their current order, and to nothing
//!   else.
//! - K2: runs are full, except for the last.
//!
//! Not here: the locks on keys whose changes may be undone. See `tx`.

use crate::databases::Cleared;
use crate::db::Contents;
use crate::effect::Record;
use crate::event::EXPIRED;
use crate::lazyfree;
use crate::object::Object;
use crate::watch;
use crate::{Event, Key, Name, Part};
use darter_base::hashtree::HashTree;
use darter_structs::table::{Entry, PackedValue, Scratch, Table, ValueRef};
use std::collections::VecDeque;

/// Steps in a run. The list of runs is short, and runs do not move when it grows.
const RUN: usize = 256;
/// Records in a portion.
const RECORDS: usize = 256;

/// Counters, from which the changes of an undone transaction are subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) changes: u64,
    pub(crate) expired: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl Counts {
    /// Adds the differences between two moments.
    pub(crate) fn add(&mut self, before: &Self, after: &Self) {
        assert!(before.changes <= after.changes, "{} to {}", before.changes, after.changes);
        self.changes += after.changes - before.changes;
        self.expired += after.expired - before.expired;
        self.hits += after.hits - before.hits;
        self.misses += after.misses - before.misses;
    }
}

/// The previous value of a key.
#[derive(Debug)]
pub(crate) enum WasValue {
    Text(Box<[u8]>),
    /// A small collection in the entry: its note and its bytes.
    Packed(u8, Box<[u8]>),
    Out(Object),
}

/// The previous entry of a key.
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

    /// Bytes of memory of its own.
    fn bytes(&self) -> usize {
        match &self.value {
            WasValue::Text(bytes) | WasValue::Packed(_, bytes) => bytes.len(),
            WasValue::Out(_) => 0,
        }
    }
}

/// The previous state of a key.
#[derive(Debug)]
pub(crate) struct KeyStep {
    pub(crate) db: usize,
    pub(crate) name: Name,
    /// The previous entry; `None` if the key was absent.
    pub(crate) was: Option<Was>,
    /// The previous step with the same place, for another key.
    same: Option<usize>,
}

/// A step that can be undone.
pub(crate) enum Step {
    Key(KeyStep),
    /// These databases were swapped.
    Swap([usize; 2]),
    /// The contents of a flushed database.
    Flush(usize, Box<Contents>),
    /// The contents of all databases, which were flushed.
    FlushAll(Box<Cleared>),
}

/// The copies of one open transaction; see the module's documentation.
#[derive(Default)]
pub(crate) struct Kept {
    steps: Vec<Vec<Step>>,
    /// The steps of keys, by their [`place`].
    places: HashTree<usize>,
    /// Databases that are kept whole.
    whole: Vec<usize>,
    /// All databases are kept whole.
    is_all_whole: bool,
    /// Watched keys that were touched, by their names in the table of watches.
    touched: HashTree<&'static Event>,
    /// Flushed databases; `None` stands for all.
    flushed: Vec<Option<usize>>,
    /// The records, in order.
    records: VecDeque<Vec<Record>>,
    /// Once some records have been published: whether they are marked as one transaction.
    is_marked: Option<bool>,
    /// The transaction is being undone.
    is_ending: bool,
    /// The place from which touched keys continue to be published.
    path: u32,
    pub(crate) counts: Counts,
    /// Bytes of copied names and values.
    copied_bytes: usize,
}

/// The place of a key; other keys may have the same.
fn place(db: usize, hash: u64) -> u64 {
    hash ^ (db as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Kept {
    /// True if there is nothing to undo and nothing to publish.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.records.is_empty() && self.counts == Counts::default()
    }

    /// Copies a key, unless that has been done.
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

    /// True if the key has been copied, so that it may be changed.
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

    /// The number of steps.
    pub(crate) fn steps_len(&self) -> usize {
        self.steps.last().map_or(0, |last| (self.steps.len() - 1) * RUN + last.len())
    }

    fn push(&mut self, step: Step) {
        match self.steps.last_mut() {
            Some(run) if run.len() < RUN => run.push(step),
            _ => self.steps.push(vec![step]),
        }
    }

    /// Records a swap of two databases: keys are in other places now, and are copied again.
    pub(crate) fn keep_swap(&mut self, both: [usize; 2]) {
        self.forget_places();
        self.push(Step::Swap(both));
    }

    /// Records that a database was flushed.
    pub(crate) fn keep_flush(&mut self, db: usize, contents: Contents) {
        self.push(Step::Flush(db, Box::new(contents)));
        self.whole.push(db);
    }

    /// Records that all databases were flushed.
    pub(crate) fn keep_flush_all(&mut self, cleared: Cleared) {
        self.push(Step::FlushAll(Box::new(cleared)));
        self.is_all_whole = true;
    }

    fn forget_places(&mut self) {
        self.places = HashTree::default();
        self.whole.clear();
    }

    /// Removes the last step, to be undone.
    pub(crate) fn pop(&mut self) -> Option<Step> {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.forget_places(); // No key counts as copied any more.
        }
        let run = self.steps.last_mut()?;
        let step = run.pop();
        if run.is_empty() {
            self.steps.pop();
        }
        step
    }

    // ---- records to publish ----

    /// Notes that a watched key was touched.
    pub(crate) fn hear(&mut self, db: usize, key: &[u8], event: &'static Event) {
        self.hear_place(watch::place(db, darter_base::hash::of(key)), event);
    }

    /// [`Kept::hear`] with the key's name in the table of watches.
    pub(crate) fn hear_place(&mut self, place: u64, event: &'static Event) {
        let before = self.touched.get(place);
        if before.is_none_or(|before| *before == EXPIRED && event != EXPIRED) {
            self.touched.insert(place, event);
        }
    }

    /// Notes that all keys of a database, or of all databases, were removed.
    pub(crate) fn hear_flush(&mut self, db: Option<usize>) {
        if !self.flushed.contains(&db) {
            self.flushed.push(db);
        }
    }

    /// Takes the last records out, to add others.
    pub(crate) fn take_last_records(&mut self) -> Vec<Record> {
        match self.records.back() {
            Some(last) if last.len() < RECORDS => self.records.pop_back().unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Puts the last records back.
    pub(crate) fn put_last_records(&mut self, records: Vec<Record>) {
        if !records.is_empty() {
            self.records.push_back(records);
        }
    }

    /// The mark of published records: the part in a transaction with `parts` parts, unless this
    /// shard has the only part and publishes it all at once.
    pub(crate) fn mark(&mut self, transaction: u64, parts: usize) -> Option<Part> {
        assert!(parts > 0, "{transaction} has no part");
        let is_long = self.records.len() > 1;
        let is_marked = *self.is_marked.get_or_insert(parts > 1 || is_long);
        is_marked.then_some(Part { transaction, parts })
    }

    /// Takes the next records to publish.
    pub(crate) fn next_records(&mut self) -> Option<Vec<Record>> {
        self.records.pop_front()
    }

    /// Calls `each` for some of the touched keys. Returns true while more are left.
    pub(crate) fn next_touched(&mut self, each: impl FnMut((&u64, &&'static Event))) -> bool {
        let (leaf, next) = self.touched.leaf(self.path);
        leaf.iter().for_each(each);
        self.path = next.unwrap_or_default();
        next.is_some()
    }

    /// Takes the list of flushed databases.
    pub(crate) fn take_flushed(&mut self) -> Vec<Option<usize>> {
        std::mem::take(&mut self.flushed)
    }

    /// Bytes of memory, excluding values that are shared, or that were replaced.
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
        let (steps, records) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.records));
        lazyfree::defer_long(steps, 1, RUN * size_of::<Step>());
        lazyfree::defer_long(records, 1, RECORDS * size_of::<Record>());
    }
}
