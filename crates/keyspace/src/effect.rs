//! The changes of a command, as data: absolute times, chosen members, results.
//!
//! Files, replicas and slot migrations receive effects, not commands: applying them gives the same
//! data whatever the command was, without its randomness, its time or its script. Changes to a
//! whole key are here; changes inside a value are described by its type ([`Change`]), acts of the
//! server by the server ([`ServerAct`]). How effects are recorded and numbered: see `log`.
//!
//! FLUSHDB, FLUSHALL and SWAPDB are *acts of all cores* ([`Act::is_of_all`]): each core records the
//! act, within one transaction that has a part on every core. A reader of all logs applies it once,
//! when it has come to it on all of them; whatever a core recorded before comes before.
//!
//! A long value that was renamed, moved or copied is recorded with its source ([`Source`]), so that a
//! reader may name it instead of sending it.
//!
//! docs/design/0014-effects.md has the reasons.

use crate::event::Events;
use crate::text::StrPieces;
use crate::{Db, Deadline, Key, Name, Object, Shard, Type, WrongType, event};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// One entry of a shard's log.
#[derive(Debug)]
pub struct Record {
    /// The number in the log: one more than that of the record before it.
    pub number: u64,
    /// The turn in which it was made, by the monotonic clock of its core: unique there, and growing.
    pub stamp: u64,
    /// It is the first of a unit: a command, an EXEC or a script. A stream may be cut before it.
    pub begins: bool,
    /// The database that it concerns.
    pub database: usize,
    /// The transaction that it belongs to, if that spans shards or turns.
    pub part: Option<Part>,
    /// The client that made it, if it ignores its own changes; otherwise 0.
    pub author: u64,
    /// The act.
    pub act: Act,
    /// The events, by Redis's names; in the first of the records of one change.
    pub events: Events,
}

impl Record {
    /// Bytes of memory that it takes, or holds: a shared value counts whole. Cost: O(changes).
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
    /// Which transaction: a number of this process.
    pub transaction: u64,
    /// How many shards have a part in it.
    pub parts: usize,
}

/// The author of a change of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// A command that is done in one step.
    #[default]
    Alone,
    /// A transaction, whose changes are recorded as one.
    Part(Part),
    /// A transaction of this number that may be undone: its changes are kept, and leave when it is
    /// committed.
    Open(u64),
}

/// A recorded act.
#[derive(Debug)]
pub enum Act {
    /// The effect on one key.
    Key(Name, Effect),
    /// Something became of this key, and no reader wants to know what.
    Touched(Name),
    /// This key was looked for and is absent. Nothing became of it.
    Miss(Name),
    /// A client that tracks has read this key, within an open transaction.
    Read(Name, u64),
    /// All keys of the database are gone.
    Flush,
    /// All keys of all databases are gone.
    FlushAll,
    /// The database was swapped with this one.
    Swap(usize),
    /// This shard's part of the transaction ends here.
    EndOfPart,
    /// An act of the server beside its data.
    Server(Arc<dyn ServerAct>),
}

/// An act of the server beside its data, which one core records: a published message, a change of
/// the libraries of functions.
pub trait ServerAct: Any + Debug + Send + Sync {
    /// Bytes of memory that it holds.
    fn held_bytes(&self) -> usize;

    /// True if it is made while all keys of all cores are locked, as one act of all.
    fn is_of_all(&self) -> bool;
}

impl Act {
    /// True if it belongs to no transaction: it changes nothing, so its shard may have no part there.
    pub(crate) fn is_aside(&self) -> bool {
        match self {
            Self::Miss(_) | Self::Read(..) => true,
            Self::Server(act) => !act.is_of_all(),
            _ => false,
        }
    }

    /// True for an act of all cores: see the module.
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
    /// The key holds this string now.
    Text { value: StrPieces, deadline: Option<u64>, bits: u8 },
    /// The key holds this value now, whole: restored, renamed, copied or built. Shared, not copied.
    /// With a source, that key held it.
    Install { object: Object, deadline: Option<u64>, bits: u8, source: Option<Box<Source>> },
    /// The value was changed from within.
    Changes(Box<dyn Changes>),
    /// The deadline changed.
    Deadline(Option<u64>),
    /// The key is gone: deleted or expired.
    Delete,
    /// The key is gone to this place: there an `Install` with this source follows, in the same unit or
    /// transaction.
    Take(Place),
}

/// A key of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are what they are called")]
pub struct Place {
    pub database: usize,
    pub key: Name,
}

/// The key that a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The key: when the value was taken from there, or copied.
    pub place: Place,
    /// The value was taken from there, by an [`Effect::Take`]. Otherwise it is still there, and its
    /// key is of the same core.
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

    /// Bytes of memory that it holds beside its own.
    fn held_bytes(&self) -> usize;

    /// Replays `changes`, in order.
    ///
    /// Errors: [`WrongType`] when they do not fit the data.
    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType>
    where
        Self: Sized;
}

/// Changes within one value, of any type, in order.
pub trait Changes: Any + Debug + Send {
    /// The type of value.
    fn kind(&self) -> &'static Type;

    /// How many there are.
    fn count(&self) -> usize;

    /// Bytes of memory that they take, or hold.
    fn bytes(&self) -> usize;

    /// Replays them.
    ///
    /// Errors: those of [`Change::apply`].
    fn apply(&self, db: &mut Db, key: &Key<'_>) -> Result<(), WrongType>;
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
}

/// Applies a record to a shard, as a replica or a recovery does.
///
/// Nothing expires during it, whatever the time is: the log itself records removals, and a key that
/// looks dead to a later clock was alive when the record was made. So the caller must not reap;
/// reads may filter. Times of access are not effects: an applied change is stamped now.
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
    /// Before every deadline.
    const NOTHING_IS_DEAD: u64 = 0;
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
