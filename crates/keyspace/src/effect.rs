//! The changes of a command, as data: absolute times, chosen members, results.
//!
//! Files, replicas and slot migrations receive effects, not commands: applying them gives the same
//! data, independently of the command's randomness, time or script. Changes of whole keys are
//! described here, changes inside a value by its type ([`Change`]), acts of the server by the
//! server ([`ServerAct`]). For recording and numbering, see `log`.
//!
//! FLUSHDB, FLUSHALL and SWAPDB are *acts of all cores* ([`Act::is_of_all`]): each core records the
//! act, within one transaction that has a part on every core. A reader of all logs applies it once,
//! after reaching it in each log, and after everything recorded before it.
//!
//! A long value that was renamed, moved or copied is recorded with its source ([`Source`]), so that a
//! reader may name it instead of sending it.
//!
//! For the reasons, see docs/design/0014-effects.md.

pub mod commands;
pub mod rebuild;

use crate::event::Events;
use crate::text::StrPieces;
use crate::{Db, Deadline, Key, Name, Object, Shard, Type, WrongType, event};
use commands::Commands;
pub(crate) use rebuild::NOTHING_IS_DEAD;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// One entry of a shard's log.
#[derive(Debug)]
pub struct Record {
    /// The number in the log: one more than the previous record's.
    pub number: u64,
    /// The turn of the record: an increasing time of the core's monotonic clock, unique on that
    /// core.
    pub stamp: u64,
    /// The record is the first of a unit (a command, an EXEC or a script). A stream may be cut
    /// before it.
    pub begins: bool,
    /// The database that was changed.
    pub database: usize,
    /// The record's transaction, if it spans shards or turns.
    pub part: Option<Part>,
    /// The client that made the change, if it ignores its own changes; otherwise 0.
    pub author: u64,
    /// The act.
    pub act: Act,
    /// The events, by Redis's names; they are in the first record of a change.
    pub events: Events,
}

impl Record {
    /// Bytes of memory that the record takes or holds; a shared value counts in full. Cost:
    /// O(changes).
    pub(crate) fn bytes(&self) -> usize {
        let held = match &self.act {
            Act::Key(name, effect) => name.len() + effect.held_bytes(),
            Act::Touched(name) | Act::Miss(name) | Act::Read(name, _) => name.len(),
            Act::Server(act) => act.held_bytes(),
            Act::Flush | Act::FlushAll | Act::Swap(_) | Act::EndOfPart => 0,
        };
        size_of::<Self>() + held
    }
}

/// The share of one shard in a transaction. A transaction is everything recorded under its number
/// on all shards; it is complete once each of its parts has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The transaction: a number of this process.
    pub transaction: u64,
    /// The number of shards that take part.
    pub parts: usize,
}

/// The unit to which changes of data are attributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// A command that completes in one step.
    #[default]
    Alone,
    /// A transaction, whose changes are recorded as one.
    Part(Part),
    /// A transaction with this number that may be undone: its changes are held back until it is
    /// committed.
    Open(u64),
}

/// A recorded act.
#[derive(Debug)]
pub enum Act {
    /// The effect on one key.
    Key(Name, Effect),
    /// This key was changed, and no reader wants to know how.
    Touched(Name),
    /// This key was looked up and is absent. Nothing was changed.
    Miss(Name),
    /// A tracking client has read this key within an open transaction.
    Read(Name, u64),
    /// All keys of the database were removed.
    Flush,
    /// All keys of all databases were removed.
    FlushAll,
    /// The database was swapped with this one.
    Swap(usize),
    /// This shard's part of the transaction ends here.
    EndOfPart,
    /// An act of the server that is not a change of data.
    Server(Arc<dyn ServerAct>),
}

/// An act of the server that is not a change of data, recorded by one core: a published message, or
/// a change of the function libraries.
pub trait ServerAct: Any + Debug + Send + Sync {
    /// Bytes of memory that it holds.
    fn held_bytes(&self) -> usize;

    /// True if the act is made while all keys of all cores are locked, as one act of all cores.
    fn is_of_all(&self) -> bool;
}

impl Act {
    /// True if the act belongs to no transaction: it changes nothing, so its shard may have no part
    /// in one.
    pub(crate) fn is_aside(&self) -> bool {
        match self {
            Self::Miss(_) | Self::Read(..) => true,
            Self::Server(act) => !act.is_of_all(),
            _ => false,
        }
    }

    /// True for an act of all cores; see the module's documentation.
    #[must_use]
    pub fn is_of_all(&self) -> bool {
        match self {
            Self::Flush | Self::FlushAll | Self::Swap(_) => true,
            Self::Server(act) => act.is_of_all(),
            _ => false,
        }
    }
}

/// A change to a key. Deadlines are absolute, in Unix milliseconds.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum Effect {
    /// Sets the key to this string.
    Text { value: StrPieces, deadline: Option<u64>, bits: u8 },
    /// Sets the key to this whole value: restored, renamed, copied or built. It is shared, not
    /// copied. If there is a source, that key held the value.
    Install { object: Object, deadline: Option<u64>, bits: u8, source: Option<Box<Source>> },
    /// Changes the value in place.
    Changes(Box<dyn Changes>),
    /// Sets or removes the deadline.
    Deadline(Option<u64>),
    /// Removes the key: deleted or expired.
    Delete,
    /// Moves the key's value to this place. There an `Install` with this source follows, in the
    /// same unit or transaction.
    Take(Place),
}

/// A key of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what they are called")]
pub struct Place {
    pub database: usize,
    pub key: Name,
}

/// The key from which a value was taken or copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The key, at the time when the value was taken or copied.
    pub place: Place,
    /// The value was taken from there, by an [`Effect::Take`]. Otherwise it is still there, on the
    /// same core.
    pub is_moved: bool,
}

impl Effect {
    /// Bytes of memory that it holds.
    fn held_bytes(&self) -> usize {
        match self {
            Self::Text { value, .. } => value.fresh().len(),
            Self::Install { object, .. } => object.content_bytes(),
            Self::Changes(changes) => changes.bytes(),
            Self::Take(place) => place.key.len(),
            Self::Deadline(_) | Self::Delete => 0,
        }
    }
}

/// One change within a value, as its type describes it: a field, a member, a range of bytes.
pub trait Change: Debug + Send + 'static {
    /// The type of value.
    const TYPE: &'static Type;

    /// Bytes of memory that it holds besides its own.
    fn held_bytes(&self) -> usize;

    /// Applies `changes` in order.
    ///
    /// Errors: [`WrongType`] when they do not fit the data.
    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType>
    where
        Self: Sized;

    /// Writes the commands that make `changes` to the value at `key`, in order: see `commands`.
    fn encode(changes: &[Self], key: &[u8], to: &mut Commands)
    where
        Self: Sized;
}

/// Changes within one value, of any type, in order.
pub trait Changes: Any + Debug + Send {
    /// The type of value.
    fn kind(&self) -> &'static Type;

    /// The number of changes.
    fn count(&self) -> usize;

    /// Bytes of memory that the changes take or hold.
    fn bytes(&self) -> usize;

    /// Applies the changes.
    ///
    /// Errors: those of [`Change::apply`].
    fn apply(&self, db: &mut Db, key: &Key<'_>) -> Result<(), WrongType>;

    /// The number of lists that the changes are in; each is short.
    fn lists(&self) -> usize {
        1
    }

    /// Writes the commands that make the changes of this list: [`Change::encode`].
    fn encode(&self, list: usize, key: &[u8], to: &mut Commands);
}

impl<C: Change> Changes for Vec<C> {
    fn kind(&self) -> &'static Type {
        C::TYPE
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        self.iter().map(|change| size_of::<C>() + change.held_bytes()).sum()
    }

    fn apply(&self, db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        C::apply(self, db, key)
    }

    fn encode(&self, list: usize, key: &[u8], to: &mut Commands) {
        debug_assert_eq!(list, 0, "there is one");
        C::encode(self, key, to);
    }
}

/// Applies a record to a shard, as a replica or a recovery does.
///
/// Nothing expires during the call, whatever the time: the log records removals itself, and a key
/// that has expired by a later clock was live when the record was made. So the caller must not
/// reap; reads may filter. Access times are not effects: a changed key is stamped with the current
/// time.
///
/// Errors: [`WrongType`] when the record does not fit the data: a log with a gap. Cost: that of the
/// change.
pub fn apply(shard: &mut Shard, record: &Record) -> Result<(), WrongType> {
    debug_assert!(record.number > 0, "records are numbered from 1 on");
    match &record.act {
        Act::Swap(other) => shard.swap(record.database, *other),
        Act::FlushAll => shard.flush(),
        act => apply_to_db(shard.db_mut(record.database), act)?,
    }
    Ok(())
}

/// [`apply`] for effects on one database; others are ignored.
///
/// Errors: the same.
pub fn apply_to_db(db: &mut Db, act: &Act) -> Result<(), WrongType> {
    let now = db.now();
    db.judge_by(NOTHING_IS_DEAD);
    let applied = match act {
        Act::Key(name, effect) => apply_to_key(db, &Key::new(name), effect),
        Act::Flush => {
            db.flush();
            Ok(())
        }
        Act::Touched(_) | Act::Miss(_) | Act::Read(..) | Act::Server(_) => Ok(()),
        Act::FlushAll | Act::Swap(_) | Act::EndOfPart => Ok(()),
    };
    db.judge_by(now);
    applied
}

fn apply_to_key(db: &mut Db, key: &Key<'_>, effect: &Effect) -> Result<(), WrongType> {
    match effect {
        Effect::Text { value, deadline, bits } => {
            db.set_text_told(key, (value.fresh(), *bits), Deadline::from(*deadline), &[event::SET]);
        }
        Effect::Install { object, deadline, bits, .. } => {
            db.install_told(key, (object.clone(), *deadline, *bits), (None, 1), Events::default());
        }
        Effect::Changes(changes) => changes.apply(db, key)?,
        Effect::Deadline(deadline) => {
            db.set_deadline(key, *deadline);
        }
        Effect::Delete | Effect::Take(_) => {
            db.remove(key);
        }
    }
    Ok(())
}
