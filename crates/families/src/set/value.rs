//! The set type: its row, its values, its editor.

use crate::multi_input::{Hold, Input};
use darter_base::{hash, number};
use darter_keyspace::commands::{self, Commands};
use darter_keyspace::rebuild::{self, NOTHING_IS_DEAD, Parts};
use darter_keyspace::{
    Bound, Build, Change, Collection, Db, Deadline, Event, Found, Key, Name, Named, NewItem,
    Object, Recorder, Tabular, Tells, Twice, Type, Typed, Value, WrongType, is_dead, of_table,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Form, Items, Kind, Layout, Origin, Plan, Survey};
use darter_structs::table::{self, Builder, Entry, Never, New, PackedValue, Scratch, Table};

static TYPE: &Type = &Type {
    name: "set",
    number: 2,
    rdb: &Kind { encodings: ENCODINGS, packed: Bounds::DEFAULT, plan },
    empty: || Object::new(Set::new()),
    bounds: &[&INTEGERS_MAX],
    is_ordered: false,
};

static INTEGERS_MAX: Bound = Bound::new("set-max-intset-entries", "512");

// The file format of a set.
const PLAIN: u8 = 2;
const INTSET: u8 = 11;
const LISTPACK: u8 = 20;
/// Redis has no format for members with deadlines. Such a set is written as a hash whose fields are
/// the members, under a type number of Darter's own. So other servers refuse it instead of keeping
/// members that should have expired.
const DEADLINES: u8 = PRIVATE + 24;
const DEADLINES_LISTPACK: u8 = PRIVATE + 25;

#[rustfmt::skip] // A table.
const ENCODINGS: &[Encoding] = &[
    Encoding::new(PLAIN,    Layout::Singles),
    Encoding::new(INTSET,   Layout::Block(Form::Intset, 1)),
    Encoding::new(LISTPACK, Layout::Block(Form::Listpack, 1)),
    Encoding::of(Origin::Darter, DEADLINES,          Layout::PairsFromEarliest),
    Encoding::of(Origin::Darter, DEADLINES_LISTPACK, Layout::BlockFromEarliest(Form::Listpack, 3)),
    // This layout without deadlines: for sets whose members with deadlines have all expired.
    Encoding::of(Origin::Darter, PRIVATE + 4,     Layout::Pairs),
    Encoding::of(Origin::Darter, PRIVATE + 16,    Layout::Block(Form::Listpack, 2)),
];

/// The format that Redis 7.0 would write.
fn plan(survey: &Survey) -> Plan {
    if survey.has_deadlines() {
        return survey
            .listpack_with_deadlines(DEADLINES_LISTPACK)
            .unwrap_or_else(|| survey.with_deadlines(DEADLINES));
    }
    survey.intset(INTSET).unwrap_or_else(|| survey.plain(PLAIN))
}

const SADD: &Event = &Event::new("sadd", b's');
const SREM: &Event = &Event::new("srem", b's');

/// A set. Cloning it is a cut.
#[derive(Clone, Default)]
pub struct Set {
    members: Table<Never>,
    grown: bool,
}

impl Set {
    /// An empty set. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The table of members, for readers of cuts, scans and samples. It may still contain expired
    /// members.
    #[must_use]
    pub fn members(&self) -> &Table<Never> {
        &self.members
    }

    /// The number of members, including expired ones that have not been removed. `live_len` of the
    /// table excludes them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// True when there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The entry of `member`, if it is live.
    #[must_use]
    pub fn get(&self, member: &[u8], now: u64) -> Option<Entry<'_, Never>> {
        self.members.get(hash::of(member), member).filter(|entry| !is_dead(entry.deadline(), now))
    }

    /// True if `member` is in the set and live.
    #[must_use]
    pub fn contains(&self, member: &[u8], now: u64) -> bool {
        self.get(member, now).is_some()
    }

    /// [`Set::contains`] for the set at a key, in any representation, without copying.
    pub fn has(found: &Found<'_>, member: &[u8], now: u64) -> Result<bool, WrongType> {
        let entry = found.look::<Self>(&Key::new(member))?;
        Ok(entry.is_some_and(|entry| !is_dead(entry.deadline(), now)))
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.members.memory_bytes()
    }

    /// A cut for a long-lived reader. It does not count as an owner of the value.
    #[must_use]
    pub fn reader(&self) -> Self {
        Self { members: self.members.reader(), ..self.clone() }
    }

    /// Bytes of a deleted set that only a [`Set::reader`] keeps alive: see [`Table::is_pinned`].
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        if self.members.is_pinned() { self.memory_bytes() } else { 0 }
    }
}

impl Value for Set {
    fn content_bytes(&self) -> usize {
        self.memory_bytes()
    }

    /// The encoding under Redis's default limits.
    fn encoding(&self) -> &'static str {
        if self.grown { "hashtable" } else { "intset" }
    }

    fn items(&self, now: u64) -> Items {
        of_table(self.members.clone(), now, None)
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let (NewItem::Single { name, deadline } | NewItem::Pair { name, deadline, .. }) = item
        else {
            return false;
        };
        // At time 0 no member is expired, so an existing name is recognized.
        self.edit_aside(0).add(name, Deadline::from(deadline))
    }

    fn take_all(&mut self, items: &[NewItem<'_>]) -> bool {
        let is_plain = items.iter().all(|item| item.plain().is_some());
        let names: Vec<(&[u8], &[u8])> = items.iter().map(|item| (item.name(), &b""[..])).collect();
        let Some(members) = is_plain.then(|| Table::of_all(&names)).flatten() else {
            return items.iter().all(|item| self.take_in(*item));
        };
        let is_int = |(name, _): &(&[u8], &[u8])| number::parse_i64(name).is_some();
        self.grown = names.len() > INTEGERS_MAX.get() || !names.iter().all(is_int);
        self.members = members;
        true
    }

    fn builder(&self, items: u64) -> Option<Box<dyn Build>> {
        let members = Builder::new(usize::try_from(items).ok()?)?;
        Some(Box::new(Loading { members, grown: false }))
    }

    fn rebuild(&self) -> Option<Box<dyn Parts>> {
        Some(rebuild::of_items(self.items(NOTHING_IS_DEAD), FORM))
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn packed(&self) -> Option<PackedValue<'_>> {
        self.members.packed().map(|bytes| TYPE.pack(self.grown, bytes))
    }

    fn take_packed(&mut self, packed: PackedValue<'_>) -> bool {
        let Some((bytes, grown)) = TYPE.unpack(packed) else { return false };
        *self = Self { members: Table::of_packed(bytes), grown };
        true
    }

    fn check_invariants(&self) {
        self.members.check_invariants();
    }

    fn earliest_deadline(&self) -> Option<u64> {
        self.members.earliest_deadline()
    }

    fn reap(&mut self, now: u64, most: usize, recorder: &mut Recorder<'_>) -> bool {
        let reaped = self.members.reap(now, most, &mut |member, _| {
            recorder.record_death(&[], || {
                let member = Name::from(member.bytes(&mut Scratch::new()));
                SetChange::Remove { member }
            });
        });
        reaped.more
    }

    fn has_living(&self, now: u64, segments: usize) -> bool {
        self.members.has_living(now, segments)
    }

    fn named(&self) -> Option<&dyn Named> {
        Some(&self.members)
    }

    fn named_mut(&mut self) -> Option<&mut dyn Named> {
        Some(&mut self.members)
    }
}

/// A set being built from very many members.
struct Loading {
    members: Builder<Never>,
    grown: bool,
}

impl Build for Loading {
    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let (NewItem::Single { name, deadline } | NewItem::Pair { name, deadline, .. }) = item
        else {
            return false;
        };
        self.grown |= deadline.is_some() || (!self.grown && number::parse_i64(name).is_none());
        self.members.push(hash::of(name), name, New::Bytes(&[]), deadline)
    }

    fn step(&mut self) -> Result<bool, Twice> {
        self.members.step().map_err(|table::Twice| Twice)
    }

    fn finish(self: Box<Self>) -> Object {
        let Self { members, grown } = *self;
        let members = members.finish();
        let grown = grown || members.len() > INTEGERS_MAX.get();
        Object::new(Set { members, grown })
    }
}

impl Typed for Set {
    const TYPE: &'static Type = TYPE;
}

impl Input for Set {
    fn cut(found: &Found<'_>, hold: Hold) -> Result<Self, WrongType> {
        let set = found.value::<Self>()?;
        Ok(if hold == Hold::Reader { set.reader() } else { set.into_cut() })
    }
}

impl Tabular for Set {
    type Out = Never;

    fn table(&self) -> &Table<Never> {
        &self.members
    }
}

impl Collection for Set {
    type Edit<'a> = SetEdit<'a>;

    fn edit<'a>(&'a mut self, now: u64, recorder: Recorder<'a>) -> SetEdit<'a> {
        SetEdit { set: self, now, recorder }
    }
}

/// A change of a set, as recorded in the log. Deadlines are absolute, in Unix milliseconds.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum SetChange {
    /// Adds the member, or sets its deadline.
    Add { member: Name, deadline: Option<u64> },
    /// Adds the member without a deadline; it had one.
    Persist { member: Name },
    /// Removes the member.
    Remove { member: Name },
}

impl Change for SetChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        self.member().len()
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<Set, _>(key, true, |edit| changes.iter().for_each(|change| edit.apply(change)))?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        commands::runs(changes, Self::are_like, |run| {
            match &run[0] {
                Self::Add { deadline, .. } => (FORM.head)(key, run.len(), *deadline, to),
                Self::Persist { .. } => {
                    to.begin(3 + run.len());
                    to.word(b"SADDEX");
                    to.word(key);
                    to.word(b"PERSIST");
                }
                Self::Remove { .. } => {
                    to.begin(2 + run.len());
                    to.word(b"SREM");
                    to.word(key);
                }
            }
            run.iter().for_each(|change| to.word(change.member()));
        });
    }
}

impl SetChange {
    fn member(&self) -> &[u8] {
        let (Self::Add { member, .. } | Self::Persist { member } | Self::Remove { member }) = self;
        member
    }

    /// True if one command makes both changes.
    fn are_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Add { deadline, .. }, Self::Add { deadline: other, .. }) => deadline == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// The commands that add members.
const FORM: rebuild::Form = rebuild::Form {
    head: |key, members, deadline, to| match deadline {
        None => {
            to.begin(2 + members);
            to.word(b"SADD");
            to.word(key);
        }
        Some(at) => {
            to.begin(4 + members);
            to.word(b"SADDEX");
            to.word(key);
            to.word(b"PXAT");
            to.natural(at);
        }
    },
    until: None,
};

/// Changes a set, and records the effects.
pub struct SetEdit<'a> {
    set: &'a mut Set,
    now: u64,
    recorder: Recorder<'a>,
}

impl SetEdit<'_> {
    /// Publishes the next changes as `event`.
    pub fn tell_as(&mut self, event: &'static Event) {
        self.recorder.tell_as(event);
    }

    /// The current state of the set.
    #[must_use]
    pub fn set(&self) -> &Set {
        self.set
    }

    /// Adds `member`; `deadline` also applies to an existing member. Returns true if the member is
    /// new (or had expired).
    pub fn add(&mut self, member: &[u8], deadline: Deadline) -> bool {
        self.put(&Key::new(member), deadline)
    }

    /// [`SetEdit::add`] for a member whose hash is known.
    pub(super) fn put(&mut self, member: &Key<'_>, deadline: Deadline) -> bool {
        self.put_told(member, deadline, &[SADD])
    }

    fn put_told(&mut self, member: &Key<'_>, deadline: Deadline, tells: Tells<'_>) -> bool {
        let Key { bytes: member, hash } = *member;
        let old = self.set.members.get(hash, member).map(|entry| entry.deadline());
        let was_alive = old.is_some_and(|old| !is_dead(old, self.now));
        let deadline = deadline.resolve(old.flatten().filter(|_| was_alive));
        if was_alive && deadline == old.flatten() {
            return false;
        }
        self.set.grown |= !self.set.grown && number::parse_i64(member).is_none();
        self.set.members.insert(hash, member, New::Bytes(&[]), deadline, 0);
        self.set.grown |= self.set.members.len() > INTEGERS_MAX.get() || deadline.is_some();
        self.recorder.record(tells, || {
            let member = Name::from(member);
            if deadline.is_none() && old.flatten().is_some() {
                SetChange::Persist { member }
            } else {
                SetChange::Add { member, deadline }
            }
        });
        !was_alive
    }

    /// Removes `member`. Returns true if it existed and had not expired.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        let Some(old) = self.set.members.remove(hash::of(member), member) else { return false };
        self.recorder.record(&[SREM], || SetChange::Remove { member: Name::from(member) });
        !is_dead(old.deadline, self.now)
    }

    /// Changes the deadline of `member`. Returns false if there is no such member, or it has
    /// expired.
    pub fn set_deadline(&mut self, member: &[u8], deadline: Option<u64>) -> bool {
        self.set.contains(member, self.now) && {
            // Redis publishes no such event.
            self.put_told(&Key::new(member), Deadline::from(deadline), &[]);
            true
        }
    }

    fn apply(&mut self, change: &SetChange) {
        match change {
            SetChange::Add { member, deadline } => {
                self.add(member, Deadline::from(*deadline));
            }
            SetChange::Persist { member } => {
                self.add(member, Deadline::Clear);
            }
            SetChange::Remove { member } => {
                self.remove(member);
            }
        }
    }

    /// Removes at most `most` expired members.
    pub fn reap(&mut self, most: usize) {
        self.set.reap(self.now, most, &mut self.recorder);
    }
}
