//! The log of a shard: its changes, in one order over all its databases, numbered.
//!
//! Recording happens below the commands, in the methods that change data, so no command can forget
//! it. The log is attached to the data only while it has a reader (`ring`), or a key is watched
//! (`watch`, which needs no records). Otherwise it rests, and a change costs only a branch. Effects
//! are recorded only for readers that want them.
//!
//! A shard has one log, and its databases are borrowed for changes one at a time. So the log moves
//! with the current database (`databases`), and needs neither a lock nor a merge.
//!
//! Each reader has a cursor and reads at its own pace. A command that runs at once is complete in
//! the records of its turn; one that spans turns or shards is a transaction, and its records say so
//! ([`Part`]).
//!
//! While an open transaction is running ([`Work::Open`](crate::Work)), the log holds its copies
//! (`kept`), which also collect its records and events. They are published in portions when the
//! transaction is committed.
//!
//! Invariant: the changes of one record are of one edit of one value.

pub(crate) mod kept;
pub(crate) mod ring;

use crate::commands::Commands;
use crate::db::Contents;
use crate::effect::{Act, Change, Changes, Effect, Part, Place, Record, Source};
use crate::event::{Events, KEYMISS, NEW, Tells};
use crate::lazyfree;
use crate::object::Object;
use crate::watch::Watches;
use crate::{Db, Event, Key, Name, Type, WrongType};
use darter_structs::table::Table;
use kept::Kept;
use ring::{Read, Reader, Ring, Wants};
use std::any::Any;

/// The most changes in one record; its list grows, and is freed, in one step.
const CHANGES_MAX: usize = 256;

/// The log of a shard; see the module's documentation.
#[derive(Default)]
pub(crate) struct Log {
    /// The watches, which observe events only.
    pub(crate) watches: Watches,
    ring: Ring,
    /// The stamp of this turn.
    stamp: u64,
    /// A record of the current unit has been made.
    is_within_unit: bool,
    /// The database of the next records.
    database: usize,
    /// The transaction of the next records.
    part: Option<Part>,
    /// The author of the running command, if it ignores its own changes; otherwise 0. May include
    /// [`BY_SCRIPT`](crate::BY_SCRIPT).
    author: u64,
    /// The number of the last records not yet compared with the claims of a transaction.
    uncompared: usize,
    /// The last record belongs to the current edit.
    is_open: bool,
    /// The events of the current edit.
    told: Events,
    /// The key is new, which has yet to be recorded.
    is_new: bool,
    /// The running open transaction.
    open: Option<Open>,
}

/// A running open transaction.
struct Open {
    transaction: u64,
    kept: Box<Kept>,
    /// The latest of its records; they are numbered when they are published.
    records: Vec<Record>,
}

impl Log {
    /// Sets the database of the following records.
    pub(crate) fn enter(&mut self, database: usize) {
        self.database = database;
    }

    /// Records that all keys of the database are removed.
    pub(crate) fn hear_flush(&mut self) {
        match &mut self.open {
            Some(open) => open.kept.hear_flush(Some(self.database)),
            None => self.watches.hear_flush(Some(self.database)),
        }
    }

    /// True if the log has a reader, a watch or an open transaction.
    pub(crate) fn is_needed(&self) -> bool {
        self.is_read() || self.is_open() || !self.watches.is_empty()
    }

    /// Records that all keys of all databases are removed.
    pub(crate) fn hear_flush_all(&mut self) {
        match &mut self.open {
            Some(open) => open.kept.hear_flush(None),
            None => self.watches.hear_flush(None),
        }
    }

    /// Records that two databases will be swapped.
    pub(crate) fn hear_swap(&mut self, both: [usize; 2], is_there: impl Fn(usize, &[u8]) -> bool) {
        let Some(open) = &mut self.open else { return self.watches.hear_swap(both, is_there) };
        for place in self.watches.touched_by_swap(both, is_there) {
            open.kept.hear_place(place, NEW);
        }
    }

    /// Starts a turn, whose records get this stamp.
    pub(crate) fn begin_turn(&mut self, stamp: u64) {
        assert!(stamp >= self.stamp, "stamps grow: {stamp} after {}", self.stamp);
        (self.stamp, self.is_within_unit) = (stamp, false);
    }

    /// Ends a unit.
    pub(crate) fn end_unit(&mut self) {
        self.is_within_unit = false;
    }

    /// Sets the author of the following commands.
    pub(crate) fn set_author(&mut self, author: u64) {
        self.author = author;
    }

    /// Notifies the watchers of an event on a key.
    #[inline]
    fn hear(&mut self, key: &[u8], events: impl IntoIterator<Item = &'static Event>) {
        let place = (self.database, key);
        events.into_iter().for_each(|event| hear(&mut self.watches, &mut self.open, place, event));
    }

    // ---- open transactions ----

    /// Starts an open transaction, to which the following records belong.
    pub(crate) fn begin_open(&mut self, transaction: u64, mut kept: Box<Kept>) {
        assert!(self.open.is_none() && self.part.is_none(), "another is at work");
        let records = kept.take_last_records();
        (self.uncompared, self.is_open) = (0, false);
        self.part = Some(Part { transaction, parts: 1 });
        self.open = Some(Open { transaction, kept, records });
    }

    /// Suspends the running open transaction, if there is one.
    pub(crate) fn end_open(&mut self) -> Option<(u64, Box<Kept>)> {
        let Open { transaction, mut kept, records } = self.open.take()?;
        kept.put_last_records(records);
        (self.uncompared, self.is_open) = (0, false);
        self.part = None;
        Some((transaction, kept))
    }

    /// True while an open transaction is running.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Copies a key that is about to be changed.
    #[inline]
    pub(crate) fn keep(&mut self, keys: &Table<Object>, key: &Key<'_>) {
        if let Some(open) = &mut self.open {
            open.kept.keep(keys, self.database, key);
        }
    }

    /// Keeps the contents of a database that is flushed.
    pub(crate) fn keep_flush(&mut self, contents: Contents) {
        self.with_kept(|kept, database| kept.keep_flush(database, contents));
    }

    /// Calls `act` with the copies of the running open transaction, and the database.
    pub(crate) fn with_kept(&mut self, act: impl FnOnce(&mut Kept, usize)) {
        if let Some(open) = &mut self.open {
            act(&mut open.kept, self.database);
        }
    }

    /// Publishes a portion of the records and events. Returns true while more are left.
    pub(crate) fn let_out(&mut self, kept: &mut Kept, part: Option<Part>) -> bool {
        assert!(self.open.is_none(), "an open transaction is at work");
        if let Some(records) = kept.next_records() {
            let is_read = self.is_read();
            for mut record in records.into_iter().filter(|_| is_read) {
                record.part = record.part.and(part);
                record.stamp = self.stamp;
                record.begins = !std::mem::replace(&mut self.is_within_unit, true);
                self.ring.push(record);
            }
            return true;
        }
        if kept.next_touched(|(place, event)| self.watches.hear_touch(*place, event)) {
            return true;
        }
        kept.take_flushed().into_iter().for_each(|db| self.watches.hear_flush(db));
        false
    }

    /// Sets the transaction of the following records, or none.
    pub(crate) fn set_part(&mut self, part: Option<Part>) {
        assert!(part.is_none_or(|part| part.parts > 0), "{part:?} would never be whole");
        (self.part, self.uncompared) = (part, 0);
    }

    /// The records of the transaction since the previous call, unless all readers have read them.
    pub(crate) fn compare_part(&mut self) -> Option<(Part, impl Iterator<Item = &Record>)> {
        let count = std::mem::take(&mut self.uncompared);
        let part = self.part?;
        let (open, ring) = match &self.open {
            Some(open) => (&open.records[open.records.len().saturating_sub(count)..], None),
            None => (&[][..], Some(self.ring.last(count))),
        };
        Some((part, open.iter().chain(ring.into_iter().flatten())))
    }

    /// The number of the last record.
    pub(crate) fn count(&self) -> u64 {
        self.ring.count()
    }

    /// Attributes the records after number `since`, which are of this turn, to this transaction.
    pub(crate) fn mark_since(&mut self, since: u64, part: Part) {
        assert!(part.parts > 0, "{part:?} would never be whole");
        debug_assert!(self.ring.is_unread_since(since), "a record after {since} was read");
        let later = self.ring.since_mut(since);
        for record in later.filter(|record| !record.act.is_aside()) {
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
        (self.part, self.uncompared) = (before, 0);
    }

    /// Records an act, and its events.
    pub(crate) fn push(&mut self, act: Act, events: Events) {
        if let Act::Key(key, _) = &act {
            self.hear(key, events.iter());
        }
        if self.is_read() {
            self.record(act, events);
        }
    }

    /// Records that a key was touched.
    pub(crate) fn push_touch(&mut self, key: &[u8], events: Events) {
        self.hear(key, events.iter());
        if self.is_read() && events.iter().next().is_some() {
            self.record(Act::Touched(Name::from(key)), events);
        }
    }

    fn record(&mut self, act: Act, events: Events) {
        let part = self.part.filter(|_| !act.is_aside());
        let (database, author) = (self.database, self.author);
        let (number, stamp) = (0, self.stamp);
        let mut record =
            Record { number, stamp, begins: false, database, part, author, act, events };
        self.uncompared += 1;
        match &mut self.open {
            Some(open) => open.records.push(record),
            None => {
                record.begins = !std::mem::replace(&mut self.is_within_unit, true);
                self.ring.push(record);
            }
        }
    }

    fn last_mut(&mut self) -> Option<&mut Record> {
        match &mut self.open {
            Some(open) => open.records.last_mut(),
            None => self.ring.last_mut(),
        }
    }

    /// Records the effect on a key.
    pub(crate) fn push_key(&mut self, key: &[u8], effect: Effect, events: Events) {
        self.push(Act::Key(Name::from(key), effect), events);
    }

    /// Records where the value that was just installed at `key` comes from.
    pub(crate) fn name_source(&mut self, key: &[u8], origin: Box<Source>) {
        let to = (self.database, key);
        debug_assert_ne!((origin.place.database, &*origin.place.key), to, "it is at its source");
        if let Some(Record { act: Act::Key(name, Effect::Install { source, .. }), .. }) =
            self.last_mut()
            && **name == *key
        {
            *source = Some(origin);
        }
    }

    /// A key, in the current database or in another.
    pub(crate) fn place(&self, database: Option<usize>, key: &[u8]) -> Place {
        Place { database: database.unwrap_or(self.database), key: Name::from(key) }
    }

    // ---- readers ----

    /// True if there is a reader, so that records are made.
    pub(crate) fn is_read(&self) -> bool {
        self.ring.is_read()
    }

    /// True if a reader wants effects.
    #[inline]
    pub(crate) fn wants_effects(&self) -> bool {
        self.ring.wants().effects
    }

    /// Adds a reader of all records from now on.
    pub(crate) fn join(&mut self, wants: Wants) -> Reader {
        self.ring.join(wants)
    }

    pub(crate) fn set_wants(&mut self, reader: Reader, wants: Wants) {
        self.ring.set_wants(reader, wants);
    }

    pub(crate) fn leave(&mut self, reader: Reader) {
        self.ring.leave(reader);
    }

    pub(crate) fn read(&mut self, reader: Reader) -> Read<'_> {
        self.ring.read(reader)
    }

    pub(crate) fn has_unread(&self, reader: Reader) -> bool {
        self.ring.has_unread(reader)
    }

    /// True if misses are recorded.
    pub(crate) fn wants_misses(&self) -> bool {
        self.ring.wants().misses
    }

    /// Takes all records for the only reader.
    pub(crate) fn take(&mut self) -> Vec<Record> {
        self.ring.take()
    }

    /// Asserts the invariants of the records. Cost: O(records): for tests.
    pub(crate) fn check_records(&self) {
        self.ring.check_invariants();
    }

    /// Records a miss, if any reader wants misses.
    #[cold]
    pub(crate) fn push_miss(&mut self, key: &[u8]) {
        if self.wants_misses() {
            self.record(Act::Miss(Name::from(key)), Events::from(&[KEYMISS][..]));
        }
    }

    /// Records that a client has read a key within the running open transaction.
    pub(crate) fn push_read(&mut self, key: &[u8], client: u64) {
        debug_assert!(self.is_open() && self.is_read(), "{client} is remembered at once");
        self.record(Act::Read(Name::from(key), client), Events::default());
    }

    /// Starts an edit of the value at one key.
    fn begin_edit(&mut self, is_new: bool) {
        (self.is_open, self.told, self.is_new) = (false, Events::default(), is_new);
    }

    /// Records a change within the value at `key`, together with the other changes of this edit.
    fn push_change<C: Change>(&mut self, key: &[u8], tells: &[&'static Event], change: C) {
        let (place, is_open) = ((self.database, self.part), self.is_open);
        let last = match self.last_mut().filter(|_| is_open) {
            Some(Record {
                act: Act::Key(name, Effect::Changes(changes)), database, part, ..
            }) => {
                debug_assert_eq!(&**name, key, "the edit of another key is open");
                debug_assert_eq!((*database, *part), place, "the edit is of another place");
                Some(changes)
            }
            _ => None,
        };
        if let Some(changes) = join(last, change) {
            self.push_key(key, Effect::Changes(changes), Events::default());
            self.is_open = true;
        }
        self.tell_edit(key, tells);
    }

    /// [`Log::push_change`] if no reader wants effects.
    fn touch_change(&mut self, key: &[u8], tells: &[&'static Event]) {
        let is_told = self.is_new || !tells.is_empty();
        if is_told && self.is_read() && !std::mem::replace(&mut self.is_open, true) {
            self.record(Act::Touched(Name::from(key)), Events::default());
        }
        self.tell_edit(key, tells);
    }

    /// Adds the events of a change to those of its edit; each is recorded once.
    fn tell_edit(&mut self, key: &[u8], tells: &[&'static Event]) {
        let new: Tells<'_> = if std::mem::take(&mut self.is_new) { &[NEW] } else { &[] };
        for event in new.iter().chain(tells) {
            if !self.told.add(event) {
                continue;
            }
            if self.is_read()
                && let Some(last) = self.last_mut()
            {
                last.events.add(event);
            }
            self.hear(key, [*event]);
        }
    }
}

/// Notes an event on a key. Its watchers are notified at once, or when the running open transaction
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

/// Adds a change to the last list, if that has room and is of this type; otherwise starts a new
/// list.
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

/// The changes of a copied value; there may be very many.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    lists: Vec<Box<dyn Changes>>,
    count: usize,
}

/// The result of editing a copy: its changes, while they are worth recording, and its events.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) changes: Option<Lists>,
    pub(crate) told: Events,
}

impl Lists {
    /// The number of changes.
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

    fn bytes(&self) -> usize {
        self.lists.iter().map(|list| list.bytes()).sum()
    }

    fn apply(&self, db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        let count: usize = self.lists.iter().map(|list| list.count()).sum();
        assert_eq!(count, self.count, "changes are lost");
        self.lists.iter().try_for_each(|list| list.apply(db, key))
    }

    fn lists(&self) -> usize {
        self.lists.len()
    }

    fn encode(&self, list: usize, key: &[u8], to: &mut Commands) {
        self.lists[list].encode(0, key, to);
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        /// Assumed bytes of a short name and value in a record.
        const CHANGE_BYTES: usize = 128;
        lazyfree::defer_long(std::mem::take(&mut self.lists), 1, CHANGES_MAX * CHANGE_BYTES);
    }
}

/// Where an edit's records and events go; nowhere, if the value does not belong to a key yet.
pub struct Recorder<'a> {
    target: Target<'a>,
    /// The event to report instead of the editor's default.
    told_as: Option<&'static Event>,
}

enum Target<'a> {
    Nowhere,
    /// The value at a key.
    Key {
        /// The number of changes to the database so far.
        count: &'a mut u64,
        log: Option<&'a mut Log>,
        key: &'a Key<'a>,
    },
    /// A copy of a value that is being changed.
    Aside {
        /// The number of changes to it so far.
        count: &'a mut u64,
        done: Option<&'a mut Done>,
    },
}

impl<'a> Recorder<'a> {
    /// A recorder for a value that does not belong to a key yet.
    #[must_use]
    pub fn none() -> Self {
        Self { target: Target::Nowhere, told_as: None }
    }

    /// A recorder for a changed copy of a value.
    pub(crate) fn aside(count: &'a mut u64, done: Option<&'a mut Done>) -> Self {
        Self { target: Target::Aside { count, done }, told_as: None }
    }

    /// A recorder for the value at `key`.
    #[inline]
    pub(crate) fn new(count: &'a mut u64, log: Option<&'a mut Log>, key: &'a Key<'a>) -> Self {
        Self::at(count, log, key, false)
    }

    /// A recorder for a value that starts empty and will be stored at `key`.
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

    /// Reports the following changes as `event` instead of the editor's default.
    #[inline]
    pub fn tell_as(&mut self, event: &'static Event) {
        self.told_as = Some(event);
    }

    /// True if a change is recorded as an effect, not only as an event.
    #[must_use]
    pub fn wants_effects(&self) -> bool {
        match &self.target {
            Target::Key { log: Some(log), .. } => log.wants_effects(),
            Target::Aside { done: Some(done), .. } => done.changes.is_some(),
            Target::Key { log: None, .. } | Target::Aside { done: None, .. } | Target::Nowhere => {
                false
            }
        }
    }

    /// Counts one change, and records the result of `change` if there is a subscriber. `tells` are
    /// the key's events.
    #[inline]
    pub fn record<C: Change>(&mut self, tells: Tells<'_>, change: impl FnOnce() -> C) {
        self.count_more(1);
        self.record_death(tells, change);
    }

    /// Counts further changes that the next record stands for.
    #[inline]
    pub fn count_more(&mut self, changes: usize) {
        if let Target::Key { count, .. } | Target::Aside { count, .. } = &mut self.target {
            **count += changes as u64;
        }
    }

    /// [`Recorder::record`] for an event that does not count as a change: removal by expiry, and
    /// events that Redis publishes although nothing has changed.
    #[inline]
    pub fn record_death<C: Change>(&mut self, tells: Tells<'_>, change: impl FnOnce() -> C) {
        let tells = self.told_as.as_ref().map_or(tells, std::slice::from_ref);
        match &mut self.target {
            Target::Key { log: Some(log), key, .. } if log.wants_effects() => {
                log.push_change(key.bytes, tells, change());
            }
            Target::Key { log: Some(log), key, .. } => log.touch_change(key.bytes, tells),
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
