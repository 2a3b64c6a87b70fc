//! A type whose entries are found by name, each with an optional deadline: the second toy of
//! docs/adding-a-type.md, with everything that the heap lacks.
#![allow(dead_code, unreachable_pub, reason = "the library's tests use a part")]

use darter_base::hash;
use darter_keyspace::{
    Change, Collection, Commands, Db, Deadline, Event, Key, Kind, Name, Named, NewItem, Object,
    Recorder, Type, Typed, Value, WrongType, is_dead, of_table,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Items, Layout, Origin};
use darter_structs::table::{Never, New, PackedValue, Scratch, Table};

/// How a roll is in a payload.
const NAMES: u8 = PRIVATE + 2;

/// The row.
pub static ROLL: Type = Type {
    name: "roll",
    number: 6,
    rdb: &Kind {
        encodings: &[Encoding::of(Origin::Darter, NAMES, Layout::Singles)],
        packed: Bounds::DEFAULT,
        plan: |survey| survey.plain(NAMES),
    },
    empty: || Object::new(Roll::default()),
    bounds: &[],
    is_ordered: false,
};

const ENTERED: &Event = &Event::new("entered", b'd');
const STRUCK: &Event = &Event::new("struck", b'd');

/// The value.
#[derive(Clone, Default)]
pub struct Roll(Table<Never>);

impl Roll {
    /// The number of names, including expired ones that have not been removed.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if `name` is on the roll and live.
    pub fn contains(&self, name: &[u8], now: u64) -> bool {
        let entry = self.0.get(hash::of(name), name);
        entry.is_some_and(|entry| !is_dead(entry.deadline(), now))
    }
}

impl Value for Roll {
    fn content_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    fn encoding(&self) -> &'static str {
        "table"
    }

    fn items(&self, now: u64) -> Items {
        of_table(self.0.clone(), now, None)
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let NewItem::Single { name, deadline } = item else { return false };
        self.edit_aside(0).enter(name, Deadline::from(deadline))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn packed(&self) -> Option<PackedValue<'_>> {
        self.0.packed().map(|bytes| ROLL.pack(false, bytes))
    }

    fn take_packed(&mut self, packed: PackedValue<'_>) -> bool {
        let Some((bytes, _)) = ROLL.unpack(packed) else { return false };
        self.0 = Table::of_packed(bytes);
        true
    }

    fn check_invariants(&self) {
        self.0.check_invariants();
    }

    fn earliest_deadline(&self) -> Option<u64> {
        self.0.earliest_deadline()
    }

    fn reap(&mut self, now: u64, most: usize, recorder: &mut Recorder<'_>) -> bool {
        let reaped = self.0.reap(now, most, &mut |name, _| {
            recorder.record_death(&[STRUCK], || {
                RollChange::Strike(Name::from(name.bytes(&mut Scratch::new())))
            });
        });
        reaped.more
    }

    fn has_living(&self, now: u64, segments: usize) -> bool {
        self.0.has_living(now, segments)
    }

    fn named(&self) -> Option<&dyn Named> {
        Some(&self.0)
    }

    fn named_mut(&mut self) -> Option<&mut dyn Named> {
        Some(&mut self.0)
    }
}

impl Typed for Roll {
    const TYPE: &'static Type = &ROLL;
}

impl Collection for Roll {
    type Edit<'a> = RollEdit<'a>;

    fn edit<'a>(&'a mut self, now: u64, recorder: Recorder<'a>) -> RollEdit<'a> {
        RollEdit { roll: self, now, recorder }
    }
}

/// A recorded change.
#[derive(Debug)]
pub enum RollChange {
    Enter(Name, Option<u64>),
    Strike(Name),
}

impl Change for RollChange {
    const TYPE: &'static Type = &ROLL;

    fn held_bytes(&self) -> usize {
        let (Self::Enter(name, _) | Self::Strike(name)) = self;
        name.len()
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<Roll, _>(key, true, |edit| {
            for change in changes {
                match change {
                    Self::Enter(name, deadline) => edit.enter(name, Deadline::from(*deadline)),
                    Self::Strike(name) => edit.strike(name),
                };
            }
        })?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        for change in changes {
            match change {
                Self::Enter(name, None) => to.command(&[b"ROLL.ENTER", key, name]),
                Self::Enter(name, Some(at)) => {
                    to.begin(4);
                    [&b"ROLL.ENTER"[..], key, name].iter().for_each(|word| to.word(word));
                    to.natural(*at);
                }
                Self::Strike(name) => to.command(&[b"ROLL.STRIKE", key, name]),
            }
        }
    }
}

/// The editor of a roll.
pub struct RollEdit<'a> {
    roll: &'a mut Roll,
    now: u64,
    recorder: Recorder<'a>,
}

impl RollEdit<'_> {
    /// Adds `name`. Returns true if it is new (or had expired).
    pub fn enter(&mut self, name: &[u8], deadline: Deadline) -> bool {
        let was_there = self.roll.contains(name, self.now);
        let hash = hash::of(name);
        let old = self.roll.0.get(hash, name).and_then(|entry| entry.deadline());
        let deadline = deadline.resolve(old.filter(|_| was_there));
        self.roll.0.insert(hash, name, New::Bytes(&[]), deadline, 0);
        self.recorder.record(&[ENTERED], || RollChange::Enter(Name::from(name), deadline));
        !was_there
    }

    /// Removes `name`. Returns true if it was on the roll and live.
    pub fn strike(&mut self, name: &[u8]) -> bool {
        let Some(old) = self.roll.0.remove(hash::of(name), name) else { return false };
        self.recorder.record(&[STRUCK], || RollChange::Strike(Name::from(name)));
        !is_dead(old.deadline, self.now)
    }
}
