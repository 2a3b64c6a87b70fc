//! What a command changed, as data: absolute times, chosen members, results.
//!
//! Effects, not commands, are what files, replicas and slot migrations will drink: replaying them
//! gives the same data whatever the command was, without its randomness, its time or its script.
//! The recorder sits below the commands, in the methods that change data, so no command can
//! forget. While nobody listens, an effect costs one branch.

use crate::text::{Fresh, StrPieces};
use crate::{Db, Deadline, Hash, Key, Object, Set, Shard, WrongType};

/// One change to one key. Deadlines are absolute, in Unix milliseconds.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum Effect {
    /// The key holds this string now.
    Text { key: Vec<u8>, value: StrPieces, deadline: Option<u64>, bits: u8 },
    /// The key holds this value now, whole: restored, renamed, copied or built. Shared, not copied.
    Install { key: Vec<u8>, object: Object, deadline: Option<u64> },
    /// The key is gone: deleted or expired.
    Delete { key: Vec<u8> },
    /// The key's deadline changed.
    Deadline { key: Vec<u8>, deadline: Option<u64> },
    /// A field of the hash at the key holds this value now.
    HashSet { key: Vec<u8>, field: Vec<u8>, value: StrPieces, deadline: Option<u64> },
    /// A field is gone.
    HashRemove { key: Vec<u8>, field: Vec<u8> },
    /// A member belongs to the set at the key now.
    SetAdd { key: Vec<u8>, member: Vec<u8>, deadline: Option<u64> },
    /// A member is gone.
    SetRemove { key: Vec<u8>, member: Vec<u8> },
    /// All keys of the database are gone.
    Flush,
}

/// One change to a shard.
#[derive(Clone, Debug)]
pub enum ShardEffect {
    /// A change to a key of this database, or to all of them.
    In(usize, Effect),
    /// Two databases were exchanged, whatever they hold.
    Swap(usize, usize),
    /// All keys of all databases are gone.
    Flush,
}

/// The effects of one database since they were last taken.
#[derive(Debug, Default)]
pub struct Journal {
    listening: bool,
    effects: Vec<Effect>,
    /// Changes since the database began, whether or not somebody listens: what a snapshot lacks.
    changes: u64,
}

impl Journal {
    /// Starts or stops recording.
    pub fn listen(&mut self, listening: bool) {
        self.listening = listening;
    }

    /// True when somebody drinks.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.listening
    }

    /// True when nothing waits to be taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.effects.is_empty()
    }

    /// Changes so far, but for what time removed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Counts changes that are recorded elsewhere, or in one.
    pub(crate) fn count(&mut self, changes: usize) {
        self.changes += changes as u64;
    }

    /// Counts one change, and records what `effect` makes, if somebody listens.
    #[inline]
    pub(crate) fn record(&mut self, effect: impl FnOnce() -> Effect) {
        self.changes += 1;
        self.record_death(effect);
    }

    /// [`Journal::record`] of what time removed: nobody changed it.
    #[inline]
    pub(crate) fn record_death(&mut self, effect: impl FnOnce() -> Effect) {
        if self.listening {
            self.effects.push(effect());
        }
    }

    /// Takes what was recorded.
    #[must_use]
    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}

/// Where a change to the value of one key tells what it does; nowhere, when the value is built aside.
pub struct Recorder<'a>(Option<(&'a mut Journal, &'a Key<'a>)>);

impl<'a> Recorder<'a> {
    /// Of a value that belongs to no key yet.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Of the value at `key`.
    pub(crate) fn new(journal: &'a mut Journal, key: &'a Key<'a>) -> Self {
        Self(Some((journal, key)))
    }

    /// Counts one change, and records what `effect` makes of the key, if somebody listens.
    #[inline]
    pub fn record(&mut self, effect: impl FnOnce(Vec<u8>) -> Effect) {
        if let Some((journal, key)) = &mut self.0 {
            journal.record(|| effect(key.bytes.to_vec()));
        }
    }
}

/// Applies a recorded effect: what a replica or a recovery does.
///
/// Nothing dies of its deadline meanwhile, whatever the time is: the recorder says itself what has
/// gone, and a key that looks dead to a later clock was alive when its effect was recorded. So
/// whoever applies must not reap before the stream's own clock has come so far; reads may filter.
/// Times of access are no effects: what is applied is of now.
///
/// Errors: [`WrongType`] when the effect does not follow from the data: a stream with a gap.
/// Cost: that of the change, O(1) but for the copy of a short value.
pub fn apply(db: &mut Db, effect: &Effect) -> Result<(), WrongType> {
    /// Before every deadline.
    const NOTHING_IS_DEAD: u64 = 0;
    let now = db.now();
    db.judge_by(NOTHING_IS_DEAD);
    let applied = apply_at_once(db, effect);
    db.judge_by(now);
    applied
}

/// [`apply`] for an effect of a shard.
///
/// Errors: as there.
pub fn apply_to_shard(shard: &mut Shard, effect: &ShardEffect) -> Result<(), WrongType> {
    match effect {
        ShardEffect::In(database, effect) => apply(shard.db_mut(*database), effect),
        ShardEffect::Swap(one, other) => {
            shard.swap(*one, *other);
            Ok(())
        }
        ShardEffect::Flush => {
            shard.flush();
            Ok(())
        }
    }
}

fn apply_at_once(db: &mut Db, effect: &Effect) -> Result<(), WrongType> {
    match effect {
        Effect::Text { key, value, deadline, bits } => {
            db.set_text_bits(&Key::new(key), value.fresh(), Deadline::from(*deadline), *bits);
        }
        Effect::Install { key, object, deadline } => {
            db.install(&Key::new(key), object.clone(), Deadline::from(*deadline));
        }
        Effect::Delete { key } => {
            db.remove(&Key::new(key));
        }
        Effect::Deadline { key, deadline } => {
            db.set_deadline(&Key::new(key), *deadline);
        }
        Effect::HashSet { key, field, value, deadline } => {
            db.edit::<Hash, _>(&Key::new(key), true, |edit| {
                edit.set(field, value.fresh(), Deadline::from(*deadline))
            })?;
        }
        Effect::HashRemove { key, field } => {
            db.edit::<Hash, _>(&Key::new(key), false, |edit| edit.remove(field))?;
        }
        Effect::SetAdd { key, member, deadline } => {
            db.edit::<Set, _>(&Key::new(key), true, |edit| {
                edit.add(member, Deadline::from(*deadline))
            })?;
        }
        Effect::SetRemove { key, member } => {
            db.edit::<Set, _>(&Key::new(key), false, |edit| edit.remove(member))?;
        }
        Effect::Flush => db.flush(),
    }
    Ok(())
}

/// A copy of a value for an effect.
pub(crate) fn copy(value: &Fresh<'_>) -> StrPieces {
    match value.inline() {
        Some(bytes) => StrPieces::Bytes(bytes.to_vec()),
        None => StrPieces::Blob(value.to_blob()),
    }
}
