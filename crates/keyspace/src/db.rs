//! One database of one shard: keys to values.
//!
//! Reads filter the dead by their deadline; removing them is the reaper's work (`reap`), so a read
//! never writes, except for the time of access, in place, and only where no cut would have to be
//! copied for it (`read`; `get` leaves no trace). Every change goes through a method here, which
//! keeps the accounts, records the effect, and drops a collection's key with its last entry.
//!
//! Invariants (`check_invariants`):
//! - I1: `usage` is the sum over all entries.
//! - I2: no key holds an empty collection, except while a change is running.
//! - I3: `clocks` has every value with deadlines on fields or members, under the moment of its
//!   mark, which is at most its earliest deadline; and nothing else.

mod cuts;
mod undo;

pub(crate) use undo::Contents;

use crate::access;
use crate::check::{self, Checker};
use crate::clocks::{Clock, Clocks, Pair};
use crate::compaction::Compaction;
use crate::effect::Effect;
use crate::effect::Source;
use crate::event::{
    DEL, EXPIRE, EXPIRED, Events, INCRBY, INCRBYFLOAT, PERSIST, Replaced, SET, Tells,
};
use crate::found::Found;
use crate::held::{Held, HeldValue};
use crate::log::{Lists, Log, Recorder};
use crate::object::{Collection, Object, Typed, Value, is_hollow, memory_bytes};
use crate::packed::{self, Lent};
use crate::text::{Fresh, Str, StrPieces, TextEdit};
use crate::usage::exchange;
use crate::{Key, Usage};
use darter_structs::blob::Blob;
use darter_structs::table::{EntryMut, New, Old, PackRef, PackedValue, Scratch, Table, ValueRef};
use std::cell::Cell;

/// The bit of an entry whose string was edited in place: OBJECT ENCODING says `raw`.
pub(crate) const BIT_RAW: u8 = 1;

/// The bit of an entry whose number was computed as a float: OBJECT ENCODING does not say `int`.
const BIT_FLOAT: u8 = 2;

/// Both bits: a copy of an integer, which Redis does not share. OBJECT REFCOUNT shows it.
pub(crate) const COPIED_INT: u8 = BIT_RAW | BIT_FLOAT;

/// The error that the key holds a value of another type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// The effect of a write on the key's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The key has no deadline from now on.
    Clear,
    /// The key keeps its deadline.
    Keep,
    /// The key gets this deadline, in Unix milliseconds.
    At(u64),
}

impl From<Option<u64>> for Deadline {
    fn from(at: Option<u64>) -> Self {
        at.map_or(Self::Clear, Self::At)
    }
}

impl Deadline {
    /// The deadline of a value that is written over an entry with the deadline `old`.
    #[inline]
    #[must_use]
    pub fn resolve(self, old: Option<u64>) -> Option<u64> {
        match self {
            Self::Clear => None,
            Self::Keep => old,
            Self::At(at) => Some(at),
        }
    }
}

/// A database: see the module.
#[derive(Default)]
pub struct Db {
    keys: Table<Object>,
    usage: Usage,
    expires: usize,
    /// The log of changes while there is a subscriber and this is the shard's current database.
    pub(crate) log: Option<Box<Log>>,
    /// The number of changes since the database began, recorded or not. Snapshots compare it.
    changes: u64,
    /// The values that have deadlines on fields or members.
    clocks: Clocks,
    /// The time of this turn. The shard sets it on each access, so that it need not visit all
    /// databases.
    now: Cell<u64>,
    /// The stamp of an access at the time of this turn.
    stamp: Cell<u32>,
    /// Whether commands do not count as access, as under CLIENT NO-TOUCH.
    no_touch: bool,
    expired: u64,
    compaction: Compaction,
}

impl Db {
    /// Sets the time, in Unix milliseconds.
    #[inline]
    pub fn set_now(&self, now: u64) {
        if now != self.now.replace(now) {
            self.stamp.set(access::stamp(now));
        }
    }

    /// Sets the time that decides which keys have expired, without changing the stamp of an access.
    pub(crate) fn judge_by(&self, moment: u64) {
        self.now.set(moment);
    }

    /// Sets whether the following calls count as access to the keys that they read and change. New
    /// values are stamped in any case.
    pub fn set_no_touch(&mut self, no_touch: bool) {
        self.no_touch = no_touch;
    }

    /// The time of this turn.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now.get()
    }

    /// The number of keys, including expired ones that are not removed yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether the database differs from a new one in its counters only.
    pub(crate) fn is_blank(&self) -> bool {
        self.keys.is_empty() && self.log.is_none()
    }

    /// The number of keys with a deadline.
    #[must_use]
    pub fn expires_len(&self) -> usize {
        self.expires
    }

    /// The number of keys that expired since the database began.
    #[must_use]
    pub fn expired_count(&self) -> u64 {
        self.expired
    }

    /// The number of changes since the database began, without expired entries.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Counts `more` changes, for elements that were installed as one value.
    pub fn count_more(&mut self, more: usize) {
        self.changes += more as u64;
    }

    /// Counts as many changes as `act` returns, whatever the records say. `act` returns 0 if it had
    /// no effect, or was a part of a change that was counted before: a task that has changed
    /// nothing may be dropped.
    pub fn counted_as<R>(&mut self, act: impl FnOnce(&mut Self) -> (R, usize)) -> R {
        let before = self.changes;
        let (result, changes) = act(self);
        self.changes = before + changes as u64;
        result
    }

    /// The counts and bytes of the values.
    #[must_use]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The bytes of keys, short strings, all out-of-line values, and the order of their deadlines.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.usage.total_bytes() + self.clocks.memory_bytes()
    }

    /// The table of keys, for snapshots (clone it), scans and samples. Expired keys may be in it.
    #[must_use]
    pub fn keys(&self) -> &Table<Object> {
        &self.keys
    }

    /// Prefetches the entries of `keys` together: first their index lines, then the entries.
    pub fn prefetch(&self, keys: &[Key<'_>]) {
        keys.iter().for_each(|key| self.keys.prefetch(key.hash));
        keys.iter().for_each(|key| self.keys.prefetch_entry(key.hash));
    }

    /// The out-of-line value at `key`, expired or not, for prefetching its entries. The entries of
    /// a pack in the key's entry are prefetched here.
    #[must_use]
    pub fn object(&self, key: &Key<'_>) -> Option<&Object> {
        match self.keys.get(key.hash, key.bytes)?.value() {
            ValueRef::Text(_) => None,
            ValueRef::Packed(packed) => {
                PackRef::new(packed.bytes).prefetch();
                None
            }
            ValueRef::Out(object) => Some(object),
        }
    }

    // ---- reads ----

    /// The entry of `key`, if it has not expired, for a command that uses it. This counts as an
    /// access.
    #[inline]
    #[must_use]
    pub fn read(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        if self.no_touch {
            return self.get(key);
        }
        self.touch(key)
    }

    /// [`Db::read`] that counts as an access even under CLIENT NO-TOUCH: for TOUCH.
    #[inline]
    #[must_use]
    pub fn touch(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        let entry = self.keys.touch(key.hash, key.bytes, self.stamp.get())?;
        Found::alive(entry, self.now.get())
    }

    /// [`Db::read`] for a command that replies with the value. Records a miss for subscribers.
    #[inline]
    #[must_use]
    pub fn find(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        self.look_up(key, self.access())
    }

    /// [`Db::find`] that counts as an access even under CLIENT NO-TOUCH: for TOUCH.
    #[must_use]
    pub fn find_touched(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        self.look_up(key, Some(self.stamp.get()))
    }

    /// [`Db::find`] that does not count as an access.
    #[must_use]
    pub fn peek(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        self.look_up(key, None)
    }

    #[inline]
    fn look_up(&mut self, key: &Key<'_>, stamp: Option<u32>) -> Option<Found<'_>> {
        let entry = match stamp {
            Some(stamp) => self.keys.touch(key.hash, key.bytes, stamp),
            None => self.keys.get(key.hash, key.bytes),
        };
        let found = entry.and_then(|entry| Found::alive(entry, self.now.get()));
        if let (None, Some(log)) = (&found, &mut self.log) {
            log.push_miss(key.bytes);
        }
        found
    }

    /// Records the misses of a command that read from a snapshot.
    pub fn tell_missed<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8]>) {
        if let Some(log) = &mut self.log {
            keys.into_iter().for_each(|key| log.push_miss(key));
        }
    }

    /// The entry of `key`, if it has not expired. This does not count as an access.
    #[must_use]
    pub fn get(&self, key: &Key<'_>) -> Option<Found<'_>> {
        let entry = self.keys.get(key.hash, key.bytes)?;
        Found::alive(entry, self.now.get())
    }

    /// Whether `key` exists.
    #[must_use]
    pub fn exists(&self, key: &Key<'_>) -> bool {
        self.get(key).is_some()
    }

    /// The string at `key`, for a command that uses it.
    pub fn read_text(&mut self, key: &Key<'_>) -> Result<Option<Str<'_>>, WrongType> {
        self.read(key).map(|found| found.text()).transpose()
    }

    /// The value at `key`, which must be of type `V`, for a command that uses it.
    pub fn read_value<V: Typed>(
        &mut self,
        key: &Key<'_>,
    ) -> Result<Option<Lent<'_, V>>, WrongType> {
        self.read(key).map(|found| found.value()).transpose()
    }

    /// The string at `key`.
    pub fn text(&self, key: &Key<'_>) -> Result<Option<Str<'_>>, WrongType> {
        self.get(key).map(|found| found.text()).transpose()
    }

    /// The value at `key`, which must be of type `V`.
    pub fn value<V: Typed>(&self, key: &Key<'_>) -> Result<Option<Lent<'_, V>>, WrongType> {
        self.get(key).map(|found| found.value()).transpose()
    }

    // ---- writes ----

    /// Sets `key` to a string, replacing a value of any type.
    pub fn set_text(&mut self, key: &Key<'_>, value: Fresh<'_>, deadline: Deadline) {
        let tells: Tells<'_> = if let Deadline::At(_) = deadline { &[SET, EXPIRE] } else { &[SET] };
        self.set_text_told(key, (value, 0), deadline, tells);
    }

    /// [`Db::set_text`] that records other events.
    pub fn set_text_as(
        &mut self,
        key: &Key<'_>,
        value: Fresh<'_>,
        deadline: Deadline,
        tells: Tells<'_>,
    ) {
        self.set_text_told(key, (value, 0), deadline, tells);
    }

    /// [`Db::set_text`] for a string that was edited in place: its encoding is `raw`.
    pub fn set_text_raw(
        &mut self,
        key: &Key<'_>,
        value: Fresh<'_>,
        deadline: Deadline,
        tells: Tells<'_>,
    ) {
        self.set_text_told(key, (value, BIT_RAW), deadline, tells);
    }

    /// [`Db::set_text`] for the result of float arithmetic: its encoding is not `int`.
    pub fn set_text_float(&mut self, key: &Key<'_>, value: Fresh<'_>, deadline: Deadline) {
        self.set_text_told(key, (value, BIT_FLOAT), deadline, &[INCRBYFLOAT]);
    }

    pub(crate) fn set_text_told(
        &mut self,
        key: &Key<'_>,
        (value, bits): (Fresh<'_>, u8),
        deadline: Deadline,
        tells: Tells<'_>,
    ) {
        let deadline = self.resolve(key, deadline);
        let (told, replaced);
        if let Some(bytes) = value.inline() {
            replaced = self.insert(key, New::Bytes(bytes), deadline, bits);
            told = self.wants_effects().then(|| StrPieces::Bytes(bytes.to_vec()));
        } else {
            let blob = value.to_blob();
            told = self.wants_effects().then(|| StrPieces::Blob(blob.clone()));
            replaced = self.insert(key, New::Out(Object::new(blob)), deadline, bits);
        }
        self.changes += 1;
        let events = || Events::from(tells).of_put(replaced);
        self.tell(key.bytes, events, || {
            let value = told.expect("it is kept for whoever takes the records");
            Effect::Text { value, deadline, bits }
        });
    }

    /// Replaces the string at `key` by an integer that `update` computes from it, and keeps its
    /// deadline. It needs one lookup for INCR. `Ok(None)`: the key is absent.
    pub fn update_int<E: From<WrongType>>(
        &mut self,
        key: &Key<'_>,
        update: impl FnOnce(Str<'_>) -> Result<i64, E>,
    ) -> Result<Option<i64>, E> {
        self.keep(key);
        let stamp = self.access();
        let Some(mut entry) = used(&mut self.keys, key, self.now.get(), stamp) else {
            return Ok(None);
        };
        let found = Found(entry.entry());
        let (deadline, bits) = (found.deadline(), found.0.bits());
        let Ok(text) = found.text() else {
            // A collection whose entries have all expired counts as absent.
            return if self.exists(key) { Err(WrongType.into()) } else { Ok(None) };
        };
        let is_long = matches!(text, Str::Blob(_));
        let value = update(text)?;
        if is_long {
            let text = value.to_string();
            self.set_text_as(key, Fresh::Bytes(text.as_bytes()), Deadline::Keep, &[INCRBY]);
            return Ok(Some(value));
        }
        entry.set_value(New::Int(value));
        if bits != 0 {
            entry.set_bits(0);
        }
        self.changes += 1;
        let events = || Events::from(&[INCRBY][..]);
        self.tell(key.bytes, events, || {
            let value = StrPieces::Bytes(value.to_string().into_bytes());
            Effect::Text { value, deadline, bits: 0 }
        });
        Ok(Some(value))
    }

    /// Changes the long string at `key` in place. `None` if the key holds no long string.
    #[inline]
    pub fn edit_text<R>(
        &mut self,
        key: &Key<'_>,
        edit: impl FnOnce(&mut TextEdit<'_>) -> R,
    ) -> Option<R> {
        self.keep(key);
        let stamp = self.access();
        let mut entry = used(&mut self.keys, key, self.now.get(), stamp)?;
        let object = entry.out_mut()?;
        // Measured before a shared value is copied: the copy may have less spare capacity.
        let before = object.get::<Blob>()?.content_bytes();
        let (blob, _) = object.make_mut::<Blob>()?;
        let recorder = Recorder::new(&mut self.changes, self.log.as_deref_mut(), key);
        let mut text = TextEdit::new(blob, recorder);
        let result = edit(&mut text);
        let (is_written, after) = (text.is_written(), blob.content_bytes());
        if is_written {
            entry.set_bits(BIT_RAW);
        }
        self.usage.resize(Blob::TYPE, before, after);
        Some(result)
    }

    /// Changes the collection at `key`, which must be of type `V`. With `create`, a missing
    /// collection starts empty. If the change leaves it empty, its key is removed. `Ok(None)`:
    /// missing and not created.
    #[inline]
    pub fn edit<V: Collection, R>(
        &mut self,
        key: &Key<'_>,
        create: bool,
        edit: impl FnOnce(&mut V::Edit<'_>) -> R,
    ) -> Result<Option<R>, WrongType> {
        self.keep(key);
        let now = self.now.get();
        let stamp = self.access();
        if let Some(mut entry) = used(&mut self.keys, key, now, stamp) {
            if let Some(packed) = packed::in_entry(&entry.entry()) {
                let (mut value, note) = (packed::value::<V>(packed).ok_or(WrongType)?, packed.note);
                let before = self.changes;
                let recorder = Recorder::new(&mut self.changes, self.log.as_deref_mut(), key);
                let result = edit(&mut value.edit(now, recorder));
                if self.changes == before {
                    debug_assert!(value.packed() == packed::in_entry(&entry.entry()), "unrecorded");
                    return Ok(Some(result)); // The copy has replaced the pack.
                }
                match packed::put_back(entry, note, value, &mut self.usage) {
                    Some(after) => self.set_clock(key, Clock::default(), after),
                    None => self.remove_hollow(key),
                }
                return Ok(Some(result));
            }
            let object = entry.out_mut().ok_or(WrongType)?;
            debug_assert!(!object.is_empty(), "I2: an empty collection is found");
            // A value whose entries have all expired counts as absent, and is created anew below.
            if !(is_dead(object.mark().at(), now) && is_hollow(object, now)) {
                // Measured before a shared value is copied: the copy may have less spare capacity.
                let before = object.get::<V>().ok_or(WrongType)?.content_bytes();
                let (value, clock) = object.make_mut::<V>().ok_or(WrongType)?;
                let recorder = Recorder::new(&mut self.changes, self.log.as_deref_mut(), key);
                let result = edit(&mut value.edit(now, recorder));
                self.usage.resize(V::TYPE, before, value.content_bytes());
                let is_empty = value.is_empty();
                let after = clock.settled(value.earliest_deadline());
                let before = std::mem::replace(clock, after);
                if let Some((note, bytes)) = packed::shrunk(value) {
                    self.usage.remove(Some(object), None);
                    self.usage.add(None, Some(note));
                    entry.set_value(New::Packed(PackedValue { note, bytes: &bytes }));
                }
                self.set_clock(key, before, after);
                if is_empty {
                    self.remove_hollow(key);
                }
                return Ok(Some(result));
            }
            self.remove_hollow(key);
        }
        if !create {
            return Ok(None);
        }
        if self.is_listening() {
            // An expired value would live on in a copy that applies the effects.
            self.remove_hollow(key);
        }
        let mut value = V::default();
        let recorder = Recorder::of_new(&mut self.changes, self.log.as_deref_mut(), key);
        let result = edit(&mut value.edit(now, recorder));
        if !value.is_empty() {
            match packed::fitting(&value) {
                Some(packed) => self.insert(key, New::Packed(packed), None, 0),
                None => self.insert(key, New::Out(Object::new(value)), None, 0),
            };
        }
        Ok(Some(result))
    }

    /// Puts a value that was built on the side, or came from elsewhere, at `key`, over any previous
    /// value. An empty value removes the key. Cost: O(1).
    pub fn install(&mut self, key: &Key<'_>, object: Object, deadline: Deadline, tells: Tells<'_>) {
        let deadline = self.resolve(key, deadline);
        let told = if object.is_empty() { Events::default() } else { Events::from(tells) };
        self.install_told(key, (object, deadline, 0), (None, 1), told);
    }

    /// [`Db::install`] of the value at the key after `changes`, if these are known. `count` is the
    /// number of changes.
    pub(crate) fn install_told(
        &mut self,
        key: &Key<'_>,
        (object, deadline, bits): (Object, Option<u64>, u8),
        (changes, count): (Option<Lists>, u64),
        told: Events,
    ) {
        if object.is_empty() {
            self.remove_emptied(key, count, told);
            return;
        }
        let is_told = count > 0 || told.iter().next().is_some();
        let effect = self.wants_effects().then(|| match changes {
            None => Some(Effect::Install { object: object.clone(), deadline, bits, source: None }),
            Some(changes) if changes.count() == 0 => None,
            Some(changes) => Some(Effect::Changes(Box::new(changes))),
        });
        let replaced = match packed::fitting(&*object) {
            Some(packed) => self.insert(key, New::Packed(packed), deadline, bits),
            None => self.insert(key, New::Out(object), deadline, bits),
        };
        self.changes += count;
        match effect {
            Some(Some(effect)) => self.tell(key.bytes, || told.of_put(replaced), || effect),
            None if is_told => self.tell_touch(key.bytes, || told.of_put(replaced)),
            Some(None) | None => {}
        }
    }

    /// Whether the key still holds this value, unchanged.
    pub(crate) fn is_at(
        &self,
        key: &Key<'_>,
        object: Option<&Object>,
        deadline: Option<u64>,
    ) -> bool {
        let entry = self.keys.get(key.hash, key.bytes);
        entry.is_some_and(|entry| {
            let is_same = match packed::in_entry(&entry) {
                Some(packed) => object.and_then(|object| object.packed()) == Some(packed),
                None => entry.out().map(Object::address) == object.map(Object::address),
            };
            is_same && entry.deadline() == deadline
        })
    }

    /// Puts a held value with its deadline at `key`, over any previous value. O(1).
    pub fn put(&mut self, key: &Key<'_>, held: Held, tells: Tells<'_>) {
        let stamp = held.stamp.unwrap_or(self.stamp.get());
        match held.value {
            HeldValue::Object(object) => {
                self.install(key, object, Deadline::from(held.deadline), tells);
            }
            HeldValue::Text(bytes) => {
                let deadline = Deadline::from(held.deadline);
                self.set_text_told(key, (Fresh::Bytes(&bytes), held.bits), deadline, tells);
            }
        }
        if let (Some(source), Some(log)) = (held.source, &mut self.log) {
            log.name_source(key.bytes, source);
        }
        if stamp != self.stamp.get() {
            self.restamp(key, stamp);
        }
    }

    /// [`Db::put`] of a value taken from another key, where the change was counted.
    pub fn put_taken(&mut self, key: &Key<'_>, held: Held, tells: Tells<'_>) {
        self.counted_as(|db| (db.put(key, held, tells), 0));
    }

    /// Sets the idle time of `key`.
    pub fn set_idle(&mut self, key: &Key<'_>, seconds: u64) {
        self.restamp(key, access::stamp_of_idle(seconds, self.now.get()));
    }

    /// Removes `key` and returns its value. This counts as an access. O(1).
    pub fn take(&mut self, key: &Key<'_>, tells: Tells<'_>) -> Option<Held> {
        self.take_as(key, None, tells)
    }

    /// [`Db::take`] of a value that moves to another key, in this database if no other is named.
    pub fn take_to(
        &mut self,
        key: &Key<'_>,
        to: (Option<usize>, &[u8]),
        tells: Tells<'_>,
    ) -> Option<Held> {
        self.take_as(key, Some(to), tells)
    }

    fn take_as(
        &mut self,
        key: &Key<'_>,
        to: Option<(Option<usize>, &[u8])>,
        tells: Tells<'_>,
    ) -> Option<Held> {
        self.keep(key);
        let found = self.read(key)?;
        let mut held = Held { stamp: Some(found.0.stamp()), ..found.hold() };
        held.source = to.and_then(|_| self.source_of(key, &held, true));
        let to = to.filter(|_| held.source.is_some());
        let place = to.zip(self.log.as_ref()).map(|((db, to), log)| log.place(db, to));
        debug_assert_eq!(place.is_some(), held.source.is_some(), "a source without a place");
        let old = self.keys.remove(key.hash, key.bytes);
        let was_there =
            self.note_removed_as(key, old, tells, || place.map_or(Effect::Delete, Effect::Take));
        // Otherwise the entry would exist twice.
        assert!(was_there, "what was found was not removed");
        Some(held)
    }

    /// A copy of the value at `key`, to be put at another key of this core.
    #[must_use]
    pub fn with_source(&self, key: &Key<'_>, mut held: Held) -> Held {
        held.source = self.source_of(key, &held, false);
        held
    }

    /// A reference to the source of a value, if the value is worth one: a short string is not.
    fn source_of(&self, key: &Key<'_>, held: &Held, is_moved: bool) -> Option<Box<Source>> {
        let log = self.log.as_ref().filter(|log| log.wants_effects())?;
        let is_long = matches!(held.value, HeldValue::Object(_));
        is_long.then(|| Box::new(Source { place: log.place(None, key.bytes), is_moved }))
    }

    /// Removes `key`. Returns false if it was absent or had expired. O(1): a large value is freed
    /// later, in slices.
    pub fn remove(&mut self, key: &Key<'_>) -> bool {
        self.keep(key);
        let old = self.keys.remove(key.hash, key.bytes);
        self.note_removed(key, old, &[DEL])
    }

    /// [`Db::remove`] that leaves the memory of the table to [`Db::settle`]. When most keys are
    /// removed, that takes a third of the work.
    pub fn remove_loosely(&mut self, key: &Key<'_>) -> bool {
        self.keep(key);
        let old = self.keys.remove_loosely(key.hash, key.bytes);
        self.note_removed(key, old, &[DEL])
    }

    /// Reclaims the memory of the table, one place a call: see [`Table::settle`].
    pub fn settle(&mut self, hash: u64) -> Option<u64> {
        self.keys.settle(hash)
    }

    /// Moves the table's entries closer together, one place a call: see [`Table::compact`].
    pub fn compact(&mut self, hash: u64) -> Option<u64> {
        self.keys.compact(hash)
    }

    /// The time from which on [`Db::compact_next`] has something to do, in Unix milliseconds. O(1).
    #[must_use]
    pub fn next_compaction(&self) -> Option<u64> {
        self.compaction.next(&self.keys, self.now.get())
    }

    /// Compacts the next place of a table that has shrunk.
    pub fn compact_next(&mut self) {
        self.compaction.step(&mut self.keys);
    }

    /// Removes `key`, whose value has become empty. `told` are the events of the change that
    /// emptied it, and `count` the number of changes.
    fn remove_emptied(&mut self, key: &Key<'_>, count: u64, mut told: Events) {
        self.keep(key);
        let Some(old) = self.keys.remove(key.hash, key.bytes) else { return };
        self.changes += count * u64::from(was_alive(&old, self.now.get()));
        self.forget(key, &old);
        told.add(DEL);
        self.tell(key.bytes, || told, || Effect::Delete);
    }

    fn note_removed(&mut self, key: &Key<'_>, old: Option<Old<Object>>, tells: Tells<'_>) -> bool {
        self.note_removed_as(key, old, tells, || Effect::Delete)
    }

    fn note_removed_as(
        &mut self,
        key: &Key<'_>,
        old: Option<Old<Object>>,
        tells: Tells<'_>,
        effect: impl FnOnce() -> Effect,
    ) -> bool {
        let Some(old) = old else { return false };
        let has_expired = is_dead(old.deadline, self.now.get());
        let was_alive = was_alive(&old, self.now.get());
        self.forget(key, &old);
        self.expired += u64::from(!was_alive);
        self.changes += u64::from(was_alive);
        let events = || Events::from(if has_expired { &[EXPIRED] } else { tells });
        self.tell(key.bytes, events, effect);
        was_alive
    }

    /// Changes the deadline of `key`. Returns false if the key is absent.
    pub fn set_deadline(&mut self, key: &Key<'_>, deadline: Option<u64>) -> bool {
        self.keep(key);
        let stamp = self.access();
        let Some(mut entry) = used(&mut self.keys, key, self.now.get(), stamp) else {
            return false;
        };
        if Found(entry.entry()).is_hollow(self.now.get()) {
            return false;
        }
        let old = entry.entry().deadline();
        entry.set_deadline(deadline);
        self.expires =
            exchange(self.expires, usize::from(old.is_some()), usize::from(deadline.is_some()));
        assert!(self.expires <= self.keys.len(), "{} of {}", self.expires, self.keys.len());
        self.changes += 1;
        let tells: Tells<'_> = match deadline {
            Some(_) => &[EXPIRE],
            None if old.is_some() => &[PERSIST],
            None => &[],
        };
        self.tell(key.bytes, || Events::from(tells), || Effect::Deadline(deadline));
        true
    }

    // ---- the dead ----

    /// The earliest time at which [`Db::reap`] may have work, in Unix milliseconds.
    #[must_use]
    pub fn next_death(&self) -> Option<u64> {
        self.next_key_death().into_iter().chain(self.next_field_death()).min()
    }

    /// The time before which no key reaches its own deadline, in Unix milliseconds. O(1).
    #[must_use]
    pub fn next_key_death(&self) -> Option<u64> {
        self.keys.earliest_deadline()
    }

    /// The time before which no field or member expires, in Unix milliseconds. O(1).
    #[must_use]
    pub fn next_field_death(&self) -> Option<u64> {
        self.clocks.next()
    }

    /// Whether a field or member has a deadline. A value whose clock is overdue but that has no
    /// deadline left does not count. O(1).
    #[must_use]
    pub fn has_field_deadlines(&self) -> bool {
        self.clocks.has_deadlines()
    }

    /// Removes about `most` expired entries: fields and members first, because [`Db::len`] counts a
    /// collection until its last entry is removed, then keys. Returns true while more are left.
    /// Cost: O(most), however many have expired.
    pub fn reap(&mut self, most: usize) -> bool {
        self.reap_fields(most) || self.reap_keys(most)
    }

    fn reap_keys(&mut self, most: usize) -> bool {
        let (usage, expires, log) = (&mut self.usage, &mut self.expires, &mut self.log);
        let (clocks, now) = (&mut self.clocks, self.now.get());
        let reaped = self.keys.reap(now, most, &mut |key, old| {
            assert!(is_dead(old.deadline, now), "{:?} is not over at {now}", old.deadline);
            usage.remove(old.out.as_ref(), old.note);
            *expires = exchange(*expires, 1, 0);
            if clock(&old) != Clock::default() {
                clocks.change(key.bytes(&mut Scratch::new()), clock(&old), Clock::default());
            }
            if let Some(log) = log.as_mut() {
                let told = Events::from(&[EXPIRED][..]);
                log.push_key(key.bytes(&mut Scratch::new()), Effect::Delete, told);
            }
        });
        self.expired += reaped.removed as u64;
        reaped.more
    }

    fn reap_fields(&mut self, most: usize) -> bool {
        if !is_dead(self.clocks.next(), self.now.get()) {
            return false;
        }
        let Some(name) = self.clocks.next_name().cloned() else { return false };
        let (key, now) = (Key::new(&name), self.now.get());
        let Some(mut entry) = living(&mut self.keys, &key, now) else {
            self.remove(&key); // The key itself has expired.
            return true;
        };
        let object = entry.out_mut().expect("I3: clocks are of collections");
        let (kind, clock) = (object.row(), object.mark());
        assert_eq!(clock.at(), self.clocks.next(), "I3: it would be looked at for ever");
        let bytes = object.content_bytes();
        let value = object.face_mut();
        let mut recorder = Recorder::new(&mut self.changes, self.log.as_deref_mut(), &key);
        let more = value.reap(now, most, &mut recorder);
        self.usage.resize(kind, bytes, value.content_bytes());
        object.set_mark(Clock::default().settled(object.earliest_deadline()));
        self.clocks.change(&name, clock, object.mark());
        // Otherwise the sweeper would come again and again, and do nothing.
        assert!(more || !is_dead(object.mark().at(), now), "{:?} at {now}", object.mark());
        if object.is_empty() {
            self.remove_hollow(&key);
        }
        true
    }

    // ---- helpers ----

    /// The stamp that an access sets, if it sets one.
    fn access(&self) -> Option<u32> {
        (!self.no_touch).then_some(self.stamp.get())
    }

    fn restamp(&mut self, key: &Key<'_>, stamp: u32) {
        self.keep(key);
        if let Some(mut entry) = living(&mut self.keys, key, self.now.get()) {
            entry.set_stamp(stamp);
        }
    }

    fn resolve(&self, key: &Key<'_>, deadline: Deadline) -> Option<u64> {
        let old = match deadline {
            Deadline::Keep => self.get(key).and_then(|found| found.deadline()),
            _ => None,
        };
        deadline.resolve(old)
    }

    fn insert(
        &mut self,
        key: &Key<'_>,
        value: New<'_, Object>,
        deadline: Option<u64>,
        bits: u8,
    ) -> Replaced {
        self.keep(key);
        self.insert_stamped(key, value, (deadline, bits, self.stamp.get()))
    }

    fn insert_stamped(
        &mut self,
        key: &Key<'_>,
        mut value: New<'_, Object>,
        (deadline, bits, stamp): (Option<u64>, u8, u32),
    ) -> Replaced {
        let (mut clock, mut out_bytes) = (Clock::default(), 0);
        match &mut value {
            New::Out(object) => {
                out_bytes = memory_bytes(object);
                clock = object.mark().settled(object.earliest_deadline());
                if object.mark() != clock {
                    object.set_mark(clock);
                }
                self.usage.add(Some(object), None);
            }
            New::Packed(packed) => self.usage.add(None, Some(packed.note)),
            _ => self.usage.add(None, None),
        }
        let is_empty = matches!(&value, New::Out(object) if object.is_empty());
        // Nothing would ever remove the key of an empty collection.
        assert!(!is_empty, "I2: an empty collection");
        self.expires += usize::from(deadline.is_some());
        let old = self.keys.insert_stamped(key.hash, key.bytes, value, deadline, bits, stamp);
        let replaced = match old {
            None => Replaced::Nothing,
            Some(old) => {
                cuts::note_replaced(old.out.as_ref(), out_bytes);
                self.forget(key, &old);
                let is_dead = is_dead(old.deadline, self.now.get());
                if is_dead { Replaced::Dead } else { Replaced::Living }
            }
        };
        self.set_clock(key, Clock::default(), clock);
        debug_assert!(self.expires <= self.keys.len(), "{} of {}", self.expires, self.keys.len());
        replaced
    }

    /// Moves the value at `key` from one time to another in the clocks.
    #[inline]
    fn set_clock(&mut self, key: &Key<'_>, before: Clock, after: Clock) {
        if before == after {
            return;
        }
        self.clocks.change(key.bytes, before, after);
    }

    fn forget(&mut self, key: &Key<'_>, old: &Old<Object>) {
        self.usage.remove(old.out.as_ref(), old.note);
        self.expires = exchange(self.expires, usize::from(old.deadline.is_some()), 0);
        self.clocks.change(key.bytes, clock(old), Clock::default());
    }

    fn remove_hollow(&mut self, key: &Key<'_>) {
        if let Some(old) = self.keys.remove(key.hash, key.bytes) {
            // A pack is emptied in a copy: see `packed::put_back`.
            let is_empty = old.out.as_ref().map_or(old.note.is_some(), |object| object.is_empty());
            assert!(is_empty || !was_alive(&old, self.now.get()), "what is removed has entries");
            self.forget(key, &old);
            // The removal of the last entries was counted already, or they expired.
            let has_expired = is_dead(old.deadline, self.now.get());
            let event = if has_expired { EXPIRED } else { DEL };
            self.tell(key.bytes, || Events::from(&[event][..]), || Effect::Delete);
        }
    }

    /// Begins a check of I1 and I2 as of now, in slices.
    pub fn checker(&self) -> Checker {
        Checker::new(self.keys.clone(), self.usage, self.expires)
    }

    /// Asserts I3 of the next few values: see [`check::values`].
    pub fn check_clocks_of_values(&self, cursor: u64) -> u64 {
        check::values(&self.keys, &self.clocks, cursor)
    }

    /// Asserts I3 of a few pairs after `last`: see [`check::pairs`].
    pub fn check_clocks_after(&self, last: Option<&Pair>) -> Option<Pair> {
        check::pairs(&self.keys, &self.clocks, last)
    }

    /// Asserts the invariants. Cost: O(keys), so it is for tests only. DEBUG CHECK uses slices.
    pub fn check_invariants(&self) {
        let mut checker = self.checker();
        while checker.next_slice() {}
        let mut cursor = self.check_clocks_of_values(0);
        while cursor != 0 {
            cursor = self.check_clocks_of_values(cursor);
        }
        let mut last = self.check_clocks_after(None);
        while last.is_some() {
            last = self.check_clocks_after(last.as_ref());
        }
        self.clocks.check();
    }
}

/// Whether `deadline` has passed.
#[inline]
#[must_use]
pub fn is_dead(deadline: Option<u64>, now: u64) -> bool {
    deadline.is_some_and(|deadline| deadline <= now)
}

/// The clock of a value that was removed.
fn clock(old: &Old<Object>) -> Clock {
    old.out.as_ref().map_or(Clock::default(), Object::mark)
}

/// Whether a removed entry had not expired at `now`.
fn was_alive(old: &Old<Object>, now: u64) -> bool {
    let hollow = |object: &Object| is_dead(object.mark().at(), now) && is_hollow(object, now);
    !is_dead(old.deadline, now) && !old.out.as_ref().is_some_and(hollow)
}

/// The entry of `key` for a change, if it has not expired.
#[inline]
fn living<'a>(
    keys: &'a mut Table<Object>,
    key: &Key<'_>,
    now: u64,
) -> Option<EntryMut<'a, Object>> {
    keys.get_mut(key.hash, key.bytes).filter(|entry| !is_dead(entry.entry().deadline(), now))
}

/// [`living`] for a change that counts as an access.
#[inline]
fn used<'a>(
    keys: &'a mut Table<Object>,
    key: &Key<'_>,
    now: u64,
    stamp: Option<u32>,
) -> Option<EntryMut<'a, Object>> {
    let mut entry = living(keys, key, now)?;
    if let Some(stamp) = stamp {
        entry.set_stamp(stamp);
    }
    Some(entry)
}
