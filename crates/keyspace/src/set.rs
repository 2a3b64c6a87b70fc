//! Sets: members, each with an optional deadline. Integers are packed by the table.

use crate::clocks::Clock;
use crate::effect::{Effect, Journal};
use crate::encoding;
use crate::hash::is_dead;
use crate::{Deadline, Key, Touch};
use darter_base::{Preempt, hash, number};
use darter_structs::table::{Entry, Never, New, Table};

/// A set. Cloning it is a cut.
#[derive(Clone, Default)]
pub struct Set {
    members: Table<Never>,
    grown: bool,
    /// The database's.
    pub(crate) clock: Clock,
}

impl Set {
    /// An empty set. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The table of members: for readers of cuts, scans and samples. The dead may still be in it.
    #[must_use]
    pub fn members(&self) -> &Table<Never> {
        &self.members
    }

    /// Members, the dead that are not yet reaped included. `live_len` of the table excludes them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// True when there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The living entry of `member`.
    #[must_use]
    pub fn get(&self, member: &[u8], now: u64) -> Option<Entry<'_, Never>> {
        self.members.get(hash::of(member), member).filter(|entry| !is_dead(entry.deadline(), now))
    }

    /// True when `member` is in the set, alive.
    #[must_use]
    pub fn contains(&self, member: &[u8], now: u64) -> bool {
        self.get(member, now).is_some()
    }

    /// The name that OBJECT ENCODING gives: Redis 7.0's, by its default bounds.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        if self.grown { "hashtable" } else { "intset" }
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.members.memory_bytes()
    }

    /// Edits outside a database: for values that are built aside, in slices.
    pub fn edit_aside(&mut self, now: u64) -> SetEdit<'_> {
        SetEdit { set: self, now, journal: None }
    }

    pub(crate) fn unshare(
        &mut self,
        names: &[&[u8]],
        touch: Touch,
        preempt: &dyn Preempt,
    ) -> Option<usize> {
        crate::unshare::unshare(&mut self.members, names, touch, preempt)
    }

    pub(crate) fn reap(&mut self, now: u64, most: usize) -> bool {
        self.members.reap(now, most, &mut |_, _| {}).more
    }
}

/// Changes a set, and records the effects.
pub struct SetEdit<'a> {
    set: &'a mut Set,
    now: u64,
    journal: Option<(&'a mut Journal, &'a Key<'a>)>,
}

impl<'a> SetEdit<'a> {
    pub(crate) fn new(
        set: &'a mut Set,
        now: u64,
        journal: &'a mut Journal,
        key: &'a Key<'a>,
    ) -> Self {
        Self { set, now, journal: Some((journal, key)) }
    }

    /// The set as it is now.
    #[must_use]
    pub fn set(&self) -> &Set {
        self.set
    }

    /// Adds `member`; `deadline` also changes that of a member already there. Returns true when
    /// the member is new (or its old self was dead).
    pub fn add(&mut self, member: &[u8], deadline: Deadline) -> bool {
        let hash = hash::of(member);
        let old = self.set.members.get(hash, member).map(|entry| entry.deadline());
        let was_alive = old.is_some_and(|old| !is_dead(old, self.now));
        let deadline = deadline.resolve(old.flatten().filter(|_| was_alive));
        if was_alive && deadline == old.flatten() {
            return false;
        }
        self.set.grown |= !self.set.grown && number::parse_i64(member).is_none();
        self.set.members.insert(hash, member, New::Bytes(&[]), deadline, 0);
        self.set.grown |= self.set.members.len() > encoding::set_entries() || deadline.is_some();
        self.record(|key| Effect::SetAdd { key, member: member.to_vec(), deadline });
        !was_alive
    }

    /// Removes `member`. Returns true when it was there, alive.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let Some(old) = self.set.members.remove(hash::of(member), member) else { return false };
        self.record(|key| Effect::SetRemove { key, member: member.to_vec() });
        !is_dead(old.deadline, self.now)
    }

    /// Changes the deadline of `member`. Returns false when it is not there, alive.
    pub fn set_deadline(&mut self, member: &[u8], deadline: Option<u64>) -> bool {
        self.set.contains(member, self.now) && {
            self.add(member, Deadline::from(deadline));
            true
        }
    }

    /// Removes members that are dead, at most `most`.
    pub fn reap(&mut self, most: usize) {
        self.set.reap(self.now, most);
    }

    fn record(&mut self, effect: impl FnOnce(Vec<u8>) -> Effect) {
        if let Some((journal, key)) = &mut self.journal {
            journal.record(|| effect(key.bytes.to_vec()));
        }
    }
}
