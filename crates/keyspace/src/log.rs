//! The log of a shard: its changes, in one order over all its databases, numbered.
//!
//! Recording is below the commands, in the methods that change data, so no command can forget it.
//! There is a log only while there is a subscriber, or a key is watched (`watch`) or tracked
//! (`tracked`), which needs no records; otherwise a change costs a branch.
//!
//! A shard has one log, and its databases are handed out for changes one at a time. So the log goes
//! with the current one (`databases`), and needs neither a lock nor a merge.
//!
//! The subscriber takes the records in every turn. A command that runs at once is complete in the
//! records taken; one that spans turns or shards is a transaction, and its records say so
//! ([`Part`]).
//!
//! While an open transaction is at work ([`Work::Open`](crate::Work)), the log holds its copies
//! (`kept`), and records and events go there. It leaves in portions when the transaction is
//! committed.
//!
//! Invariants:
//! - I1: numbers are consecutive, from 1 on.
//! - I2: the changes of one record are of one edit of one value.

pub(crate) mod kept;

use crate::db::Contents;
use crate::effect::{Act, Change, Changes, Effect, Part, Record};
use crate::event::{Events, KEYMISS, NEW, Tells};
use crate::lazyfree::{self, Dismantle};
use crate::object::Object;
use crate::tracked::Tracked;
use crate::watch::Watches;
use crate::{Db, Event, Key, Name, Type, WrongType};
use darter_structs::table::Table;
use kept::Kept;
use std::any::Any;

/// The most changes in one record: the list grows, and is freed, in one step.
const CHANGES_MAX: usize = 256;

/// See the module.
#[derive(Default)]
pub(crate) struct Log {
    /// The watches, which observe events only.
    pub(crate) watches: Watches,
    pub(crate) tracked: Tracked,
    /// True if a subscriber takes the records. Otherwise there are none.
    pub(crate) is_taken: bool,
    records: Vec<Record>,
    /// Records so far, including those that were taken.
    count: u64,
    /// The database of the records made now,
    database: usize,
    /// and their transaction,
    part: Option<Part>,
    /// whose claims were compared with the records before this one.
    compared: usize,
    /// The last record belongs to the edit in progress.
    is_open: bool,
    /// The events of that edit.
    told: Events,
    /// The key is new, which is still to be recorded.
    is_new: bool,
    /// Misses are recorded, too.
    hears_misses: bool,
    /// The open transaction that is at work.
    open: Option<Open>,
}

/// An open transaction at work.
struct Open {
    transaction: u64,
    kept: Box<Kept>,
    /// Records made before, by others; and the number of records.
    records: Vec<Record>,
    count: u64,
}

impl Log {
    /// The records that follow concern this database.
    pub(crate) fn enter(&mut self, database: usize) {
        self.database = database;
    }

    /// All keys of the database go.
    pub(crate) fn hear_flush(&mut self) {
        match &mut self.open {
            Some(open) => open.kept.hear_flush(Some(self.database)),
            None => self.watches.hear_flush(Some(self.database)),
        }
        self.tracked.hear_flush();
    }

    /// True if the log has a reader: events, WATCH, tracking or an open transaction.
    pub(crate) fn is_needed(&self) -> bool {
        self.is_taken || self.is_open() || !self.watches.is_empty() || !self.tracked.is_empty()
    }

    /// All keys of all databases go.
    pub(crate) fn hear_flush_all(&mut self) {
        match &mut self.open {
            Some(open) => open.kept.hear_flush(None),
            None => self.watches.hear_flush(None),
        }
        self.tracked.hear_flush();
    }

    /// Two databases are about to be swapped.
    pub(crate) fn hear_swap(&mut self, both: [usize; 2], is_there: impl Fn(usize, &[u8]) -> bool) {
        self.tracked.hear_flush(); // A key's name may stand for another value now.
        let Some(open) = &mut self.open else { return self.watches.hear_swap(both, is_there) };
        for place in self.watches.touched_by_swap(both, is_there) {
            open.kept.hear_place(place, NEW);
        }
    }

    /// Something happened to a key.
    #[inline]
    pub(crate) fn hear(&mut self, key: &[u8], events: impl IntoIterator<Item = &'static Event>) {
        events.into_iter().for_each(|event| self.hear_one(key, event));
    }

    #[inline]
    fn hear_one(&mut self, key: &[u8], event: &'static Event) {
        hear(&mut self.watches, &mut self.open, (self.database, key), event);
        self.tracked.hear(key, event);
    }

    // ---- open transactions ----

    /// The records that follow belong to this open transaction.
    pub(crate) fn begin_open(&mut self, transaction: u64, mut kept: Box<Kept>) {
        assert!(self.open.is_none() && self.part.is_none(), "another is at work");
        let records = std::mem::replace(&mut self.records, kept.take_last_records());
        (self.compared, self.is_open) = (self.records.len(), false);
        self.part = Some(Part { transaction, parts: 1 });
        self.open = Some(Open { transaction, kept, records, count: self.count });
    }

    /// Suspends the open transaction at work, if there is one.
    pub(crate) fn end_open(&mut self) -> Option<(u64, Box<Kept>)> {
        let Open { transaction, mut kept, records, count } = self.open.take()?;
        kept.put_last_records(std::mem::replace(&mut self.records, records));
        (self.compared, self.is_open) = (self.records.len(), false);
        (self.part, self.count) = (None, count);
        Some((transaction, kept))
    }

    /// True while an open transaction is at work.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Keeps a key that is about to be changed.
    #[inline]
    pub(crate) fn keep(&mut self, keys: &Table<Object>, key: &Key<'_>) {
        if let Some(open) = &mut self.open {
            open.kept.keep(keys, self.database, key);
        }
    }

    /// Keeps the contents of the database.
    pub(crate) fn keep_flush(&mut self, contents: Contents) {
        self.with_kept(|kept, database| kept.keep_flush(database, contents));
    }

    /// Calls `act` with the copies of the open transaction at work, and the database.
    pub(crate) fn with_kept(&mut self, act: impl FnOnce(&mut Kept, usize)) {
        if let Some(open) = &mut self.open {
            act(&mut open.kept, self.database);
        }
    }

    /// Publishes a portion of the records and events. True while there is more.
    pub(crate) fn let_out(&mut self, kept: &mut Kept, part: Option<Part>) -> bool {
        assert!(self.open.is_none(), "an open transaction is at work");
        if let Some(records) = kept.next_records() {
            if self.is_taken {
                self.records.reserve(records.len());
                for mut record in records {
                    self.count += 1;
                    record.number = self.count;
                    record.part = record.part.and(part);
                    self.records.push(record);
                }
            }
            self.compared = self.records.len();
            return true;
        }
        if kept.next_touched(|(place, event)| self.watches.hear_touch(*place, event)) {
            return true;
        }
        kept.take_flushed().into_iter().for_each(|db| self.watches.hear_flush(db));
        false
    }

    /// [`Log::push_change`] without a subscriber for the records.
    fn hear_change(&mut self, key: &[u8], tells: &[&'static Event]) {
        debug_assert!(!self.is_taken, "it is to be recorded");
        if std::mem::take(&mut self.is_new) {
            self.hear(key, [NEW]);
        }
        self.hear(key, tells.iter().copied());
    }

    /// The records that follow belong to this transaction, or to none.
    pub(crate) fn set_part(&mut self, part: Option<Part>) {
        assert!(part.is_none_or(|part| part.parts > 0), "{part:?} would never be whole");
        (self.part, self.compared) = (part, self.records.len());
    }

    /// The records of the transaction since it was last asked.
    pub(crate) fn compare_part(&mut self) -> Option<(Part, &[Record])> {
        let from = std::mem::replace(&mut self.compared, self.records.len());
        assert!(from <= self.records.len(), "{from} of {} were compared", self.records.len());
        Some((self.part?, &self.records[from..]))
    }

    /// Records so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The records after number `since` belong to this transaction: they are of this turn, and have
    /// not been taken. A miss belongs to none.
    pub(crate) fn mark_since(&mut self, since: u64, part: Part) {
        assert!(part.parts > 0, "{part:?} would never be whole");
        assert!(
            !self.is_taken || self.count - since <= self.records.len() as u64,
            "records after {since} of {} were taken",
            self.count
        );
        let later = self.records.iter_mut().rev().take_while(|record| record.number > since);
        for record in later.filter(|record| !matches!(record.act, Act::Miss(_))) {
            assert_eq!(record.part, None, "it is of another transaction");
            record.part = Some(part);
        }
    }

    /// Records that this shard's part of a transaction has ended.
    pub(crate) fn end_part(&mut self, part: Part) {
        assert!(self.open.is_none(), "{part:?} ends while another is at work");
        assert!(part.parts > 0, "{part:?} would never be whole");
        let before = self.part.replace(part);
        self.push(Act::EndOfPart, Events::default());
        (self.part, self.compared) = (before, self.records.len());
    }

    /// Records an act, and its events.
    pub(crate) fn push(&mut self, act: Act, events: Events) {
        if let Act::Key(key, _) = &act {
            self.hear(key, events.iter());
        }
        if !self.is_taken {
            return;
        }
        self.count += 1;
        let (number, database, part) = (self.count, self.database, self.part);
        self.records.push(Record { number, database, part, act, events });
    }

    /// Records the effect on a key.
    pub(crate) fn push_key(&mut self, key: &[u8], effect: Effect, events: Events) {
        self.push(Act::Key(Name::from(key), effect), events);
    }

    /// Whether keys that were not found are recorded.
    pub(crate) fn hear_misses(&mut self, hears: bool) {
        self.hears_misses = hears;
    }

    /// Whether they are.
    pub(crate) fn hears_misses(&self) -> bool {
        self.hears_misses
    }

    /// Records a miss, if that is wanted. It belongs to no transaction: one that only reads has no
    /// part here that would end.
    #[cold]
    pub(crate) fn push_miss(&mut self, key: &[u8]) {
        if self.hears_misses {
            let part = self.part.take();
            self.push(Act::Miss(Name::from(key)), Events::from(&[KEYMISS][..]));
            self.part = part;
        }
    }

    /// An edit of the value at one key begins.
    fn begin_edit(&mut self, is_new: bool) {
        (self.is_open, self.told, self.is_new) = (false, Events::default(), is_new);
    }

    /// Records a change within the value at `key`: with the others of the same edit.
    fn push_change<C: Change>(&mut self, key: &[u8], tells: &[&'static Event], change: C) {
        let last = if self.is_open { self.records.last_mut() } else { None };
        let last = match last {
            Some(Record {
                act: Act::Key(name, Effect::Changes(changes)), database, part, ..
            }) => {
                debug_assert_eq!(&**name, key, "I2: the edit of another key is open");
                debug_assert_eq!((*database, *part), (self.database, self.part), "I2: elsewhere");
                Some(changes)
            }
            _ => None,
        };
        if let Some(changes) = join(last, change) {
            self.push_key(key, Effect::Changes(changes), Events::default());
            self.is_open = true;
        }
        let new: Tells<'_> = if std::mem::take(&mut self.is_new) { &[NEW] } else { &[] };
        for event in new.iter().chain(tells) {
            if self.told.add(event)
                && let Some(last) = self.records.last_mut()
            {
                last.events.add(event);
                hear(&mut self.watches, &mut self.open, (self.database, key), event);
                self.tracked.hear(key, event);
            }
        }
    }

    /// Takes the records.
    pub(crate) fn take(&mut self) -> Vec<Record> {
        if self.open.is_some() {
            return Vec::new(); // Records of an open transaction stay until its commit.
        }
        self.compared = 0;
        assert!(self.is_taken || self.records.is_empty(), "records that nobody takes");
        let last = self.records.last().map_or(self.count, |record| record.number);
        assert_eq!(last, self.count, "I1: the last record has the highest number");
        let first = self.records.first().map_or(0, |record| self.count - record.number + 1);
        assert_eq!(first, self.records.len() as u64, "I1: a gap");
        std::mem::take(&mut self.records)
    }
}

/// Notes an event of a key: its watchers observe it at once, or when the open transaction at work
/// is committed.
#[inline]
fn hear(
    watches: &mut Watches,
    open: &mut Option<Open>,
    (database, key): (usize, &[u8]),
    event: &'static Event,
) {
    match open {
        None => watches.hear(database, key, event),
        Some(open) => {
            debug_assert!(open.kept.has(database, key), "{event:?} of what is not kept");
            if watches.wants(event) {
                open.kept.hear(database, key, event);
            }
        }
    }
}

/// Adds a change to the last list, if it takes one more of this type; otherwise starts a new one.
fn join<C: Change>(last: Option<&mut Box<dyn Changes>>, change: C) -> Option<Box<dyn Changes>> {
    if let Some(last) = last
        && let Some(list) = (&mut **last as &mut dyn Any).downcast_mut::<Vec<C>>()
        && list.len() < CHANGES_MAX
    {
        list.push(change);
        return None;
    }
    Some(Box::new(vec![change]))
}

/// Changes to a value that is changed aside: they may be very many.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    lists: Vec<Box<dyn Changes>>,
    count: usize,
}

/// The outcome of an edit aside: its changes, while they are worth recording, and its events.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) changes: Option<Lists>,
    pub(crate) told: Events,
}

impl Lists {
    /// How many changes there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn push<C: Change>(&mut self, change: C) {
        self.count += 1;
        let kind = self.lists.last().map(|list| list.kind());
        debug_assert!(kind.is_none_or(|kind| kind == C::TYPE), "{kind:?} and {:?}", C::TYPE);
        let new = join(self.lists.last_mut(), change);
        self.lists.extend(new);
    }
}

impl Changes for Lists {
    fn kind(&self) -> &'static Type {
        self.lists.first().expect("it is recorded when something was changed").kind()
    }

    fn count(&self) -> usize {
        self.count
    }

    fn apply(&self, db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        let count: usize = self.lists.iter().map(|list| list.count()).sum();
        assert_eq!(count, self.count, "changes are lost");
        self.lists.iter().try_for_each(|list| list.apply(db, key))
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        if self.lists.len() > 1 {
            lazyfree::defer(Box::new(FreedChanges(std::mem::take(&mut self.lists))));
        }
    }
}

/// Lists that no one reads any more.
struct FreedChanges(Vec<Box<dyn Changes>>);

impl Dismantle for FreedChanges {
    fn dismantle(&mut self) -> bool {
        self.0.pop();
        !self.0.is_empty()
    }

    fn bytes(&self) -> usize {
        /// The bytes of a short name and value in a record.
        const CHANGE_BYTES: usize = 128;
        self.0.len() * CHANGES_MAX * CHANGE_BYTES
    }
}

/// The destination of an edit's records and events; none if the value belongs to no key yet.
pub struct Recorder<'a> {
    target: Target<'a>,
    /// Changes are reported as this event, whatever the editor calls them.
    told_as: Option<&'static Event>,
}

enum Target<'a> {
    Nowhere,
    /// The value at a key.
    Key {
        /// Changes to the database so far.
        count: &'a mut u64,
        log: Option<&'a mut Log>,
        key: &'a Key<'a>,
    },
    /// A value that is changed aside.
    Aside {
        /// Changes to it so far.
        count: &'a mut u64,
        done: Option<&'a mut Done>,
    },
}

impl<'a> Recorder<'a> {
    /// A recorder for a value that belongs to no key yet.
    #[must_use]
    pub fn none() -> Self {
        Self { target: Target::Nowhere, told_as: None }
    }

    /// A recorder for a value that is changed aside.
    pub(crate) fn aside(count: &'a mut u64, done: Option<&'a mut Done>) -> Self {
        Self { target: Target::Aside { count, done }, told_as: None }
    }

    /// A recorder for the value at `key`.
    #[inline]
    pub(crate) fn new(count: &'a mut u64, log: Option<&'a mut Log>, key: &'a Key<'a>) -> Self {
        Self::at(count, log, key, false)
    }

    /// A recorder for a value that begins empty, and will be at `key`.
    pub(crate) fn of_new(count: &'a mut u64, log: Option<&'a mut Log>, key: &'a Key<'a>) -> Self {
        Self::at(count, log, key, true)
    }

    #[inline]
    fn at(
        count: &'a mut u64,
        mut log: Option<&'a mut Log>,
        key: &'a Key<'a>,
        is_new: bool,
    ) -> Self {
        if let Some(log) = &mut log {
            log.begin_edit(is_new);
        }
        Self { target: Target::Key { count, log, key }, told_as: None }
    }

    /// Records what happens from now on as `event`, whatever the editor calls it.
    #[inline]
    pub fn tell_as(&mut self, event: &'static Event) {
        self.told_as = Some(event);
    }

    /// Counts one change, and records what `change` makes, if there is a subscriber; `tells` are
    /// the key's events.
    #[inline]
    pub fn record<C: Change>(&mut self, tells: Tells<'_>, change: impl FnOnce() -> C) {
        self.count_more(1);
        self.record_death(tells, change);
    }

    /// Counts more changes than the one that is recorded next: those that it stands for.
    #[inline]
    pub fn count_more(&mut self, changes: usize) {
        if let Target::Key { count, .. } | Target::Aside { count, .. } = &mut self.target {
            **count += changes as u64;
        }
    }

    /// [`Recorder::record`] of an event that does not count as a change: removals by time, and
    /// events that Redis publishes though nothing has changed.
    #[inline]
    pub fn record_death<C: Change>(&mut self, tells: Tells<'_>, change: impl FnOnce() -> C) {
        let tells = self.told_as.as_ref().map_or(tells, std::slice::from_ref);
        match &mut self.target {
            Target::Key { log: Some(log), key, .. } if log.is_taken => {
                log.push_change(key.bytes, tells, change());
            }
            Target::Key { log: Some(log), key, .. } => log.hear_change(key.bytes, tells),
            Target::Aside { done: Some(done), .. } => {
                if let Some(changes) = &mut done.changes {
                    changes.push(change());
                }
                tells.iter().for_each(|event| _ = done.told.add(event));
            }
            Target::Key { log: None, .. } | Target::Aside { done: None, .. } | Target::Nowhere => {}
        }
    }
}
