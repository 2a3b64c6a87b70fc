//! The log of a shard: what was changed, in one order over all its databases, numbered.
//!
//! The recorder sits below the commands, in the methods that change data, so no command can forget.
//! There is a log only while somebody listens; without one, a change costs a branch.
//!
//! A shard has one log, and its databases are handed out for changes one at a time. So the log goes
//! with the one that was handed out (`databases`), and needs neither a lock nor a merge.
//!
//! Whoever listens takes the records in every turn. A command that runs at once is whole in what is
//! taken; one that spans turns or shards is a transaction, and its records say so ([`Part`]).
//!
//! Invariants:
//! - I1: numbers follow each other, without a gap, from 1 on.
//! - I2: the changes of one record are of one edit of one value.

use crate::effect::{Act, Change, Effect, Part, Record};
use crate::{Key, Name};
use std::any::Any;

/// Changes in one record, at most: the list grows, and is freed, in about 10 us.
const CHANGES_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Log {
    records: Vec<Record>,
    /// Records so far, those that were taken included.
    count: u64,
    /// What is recorded now concerns this database,
    database: usize,
    /// and belongs to this transaction.
    part: Option<Part>,
}

impl Log {
    /// What follows concerns this database.
    pub(crate) fn enter(&mut self, database: usize) {
        self.database = database;
    }

    /// What follows belongs to this transaction, or to none.
    pub(crate) fn set_part(&mut self, part: Option<Part>) {
        self.part = part;
    }

    /// Records that this shard's part of a transaction has ended.
    pub(crate) fn end_part(&mut self, part: Part) {
        let before = self.part.replace(part);
        self.push(Act::EndOfPart);
        self.part = before;
    }

    /// Records what was done.
    pub(crate) fn push(&mut self, act: Act) {
        self.count += 1;
        let (number, database, part) = (self.count, self.database, self.part);
        self.records.push(Record { number, database, part, act });
    }

    /// Records what became of a key.
    pub(crate) fn push_key(&mut self, key: &[u8], effect: Effect) {
        self.push(Act::Key(Name::from(key), effect));
    }

    /// Records a change within the value at `key`: beside those of the same edit, if `is_open` says
    /// that the last record is theirs.
    fn push_change<C: Change>(&mut self, key: &[u8], is_open: &mut bool, change: C) {
        let last = if *is_open { self.records.last_mut() } else { None };
        if let Some(Record { act: Act::Key(_, Effect::Changes(changes)), .. }) = last
            && let Some(list) = (&mut **changes as &mut dyn Any).downcast_mut::<Vec<C>>()
            && list.len() < CHANGES_MAX
        {
            list.push(change);
            return;
        }
        *is_open = true;
        self.push_key(key, Effect::Changes(Box::new(vec![change])));
    }

    /// Takes what was recorded.
    pub(crate) fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }
}

/// Where an edit of the value at one key tells what it does; nowhere, when the value belongs to no
/// key yet.
pub struct Recorder<'a>(Option<Target<'a>>);

struct Target<'a> {
    /// Changes to the database so far.
    count: &'a mut u64,
    log: Option<&'a mut Log>,
    key: &'a Key<'a>,
    /// The last record of the log is of this edit.
    is_open: bool,
}

impl<'a> Recorder<'a> {
    /// Of a value that belongs to no key yet.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Of the value at `key`.
    #[inline]
    pub(crate) fn new(count: &'a mut u64, log: Option<&'a mut Log>, key: &'a Key<'a>) -> Self {
        Self(Some(Target { count, log, key, is_open: false }))
    }

    /// Counts one change, and records what `change` makes, if somebody listens.
    #[inline]
    pub fn record<C: Change>(&mut self, change: impl FnOnce() -> C) {
        if let Some(target) = &mut self.0 {
            *target.count += 1;
        }
        self.record_death(change);
    }

    /// [`Recorder::record`] of what time removed: nobody changed it.
    #[inline]
    pub fn record_death<C: Change>(&mut self, change: impl FnOnce() -> C) {
        if let Some(Target { log: Some(log), key, is_open, .. }) = &mut self.0 {
            log.push_change(key.bytes, is_open, change());
        }
    }
}
