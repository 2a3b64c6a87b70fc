//! Checks the invariants of a database in slices, for DEBUG CHECK.
//!
//! The accounts (I1, I2 of `db`) must agree at one instant, so they are checked on a snapshot of
//! the table. The clocks (I3) have no snapshots and need none: the rules for a single value or pair
//! hold at any time, so a few of them are checked at a time, in the live database.

use crate::clocks::{Clocks, Pair};
use crate::{Object, Usage, packed};
use darter_structs::table::{self, PackedValue, Scratch, Table, ValueRef};

/// The number of groups of entries in which clocks are looked for at a time, unless this many
/// clocks are found first.
const GROUPS: usize = 16;
const CLOCKS: usize = 24;

/// One slice checks packs until they have this many bytes together.
const PACK_BYTES: usize = 1024;

/// A pack of the segment that was checked last, still to be checked.
enum Pending {
    /// A copy of a pack that was in an entry, and its note.
    Inline(u8, Vec<u8>),
    /// The value that holds the pack.
    Out(Object),
}

impl Pending {
    /// Panics if the pack is not sound. Returns its bytes.
    fn check(&self) -> usize {
        let pack = match self {
            Self::Inline(note, bytes) => Some(PackedValue { note: *note, bytes }),
            Self::Out(object) => object.packed(),
        };
        let pack = pack.expect("it was a pack, and is shared");
        packed::check(pack);
        pack.bytes.len()
    }
}

/// Compares a snapshot of a database's keys with the database's counts.
pub struct Checker {
    keys: table::Checker<Object>,
    /// Whether the last segment was checked.
    is_through: bool,
    /// The packs to check before the next segment.
    packs: Vec<Pending>,
    len: usize,
    usage: Usage,
    expires: usize,
    /// The sums found so far.
    found: (Usage, usize, usize),
}

impl Checker {
    pub(crate) fn new(keys: Table<Object>, usage: Usage, expires: usize) -> Self {
        let (len, found) = (keys.len(), (Usage::default(), 0, 0));
        let (keys, packs) = (table::Checker::new(keys), Vec::new());
        Self { keys, is_through: false, packs, len, usage, expires, found }
    }

    /// Checks the next segment of the table, or a few packs of the last one. Returns true while
    /// some are left. Panics if an invariant does not hold. The sums are checked with the last
    /// segment.
    pub fn next_slice(&mut self) -> bool {
        if self.packs.is_empty() {
            self.check_segment();
        } else {
            self.check_packs();
        }
        !(self.is_through && self.packs.is_empty())
    }

    fn check_packs(&mut self) {
        let mut bytes = 0;
        while bytes < PACK_BYTES
            && let Some(pack) = self.packs.pop()
        {
            bytes += pack.check();
        }
    }

    fn check_segment(&mut self) {
        let (usage, expires, len) = &mut self.found;
        self.is_through = !self.keys.next_slice(&mut |entry| {
            *len += 1;
            *expires += usize::from(entry.deadline().is_some());
            match entry.value() {
                ValueRef::Text(_) => usage.add(None, None),
                ValueRef::Packed(pack) => {
                    self.packs.push(Pending::Inline(pack.note, pack.bytes.to_vec()));
                    usage.add(None, Some(pack.note));
                }
                ValueRef::Out(object) => {
                    assert!(!object.is_empty(), "I2: an empty collection");
                    usage.add(Some(object), None);
                    let clock = object.mark();
                    assert_eq!(clock, clock.settled(object.earliest_deadline()), "I3");
                    if object.packed().is_some() {
                        self.packs.push(Pending::Out(object.clone()));
                    }
                }
            }
        });
        if self.is_through {
            assert_eq!(self.found, (self.usage, self.expires, self.len), "I1");
        }
    }
}

/// Asserts that the next values that have a clock are in `clocks` under it. Returns the cursor to
/// continue with, or 0 at the end.
pub(crate) fn values(keys: &Table<Object>, clocks: &Clocks, cursor: u64) -> u64 {
    let (mut cursor, mut found) = (cursor, 0);
    for _ in 0..GROUPS {
        cursor = keys.scan(cursor, &mut |entry| {
            let ValueRef::Out(object) = entry.value() else { return };
            let Some(at) = object.mark().at() else { return };
            let mut scratch = Scratch::default();
            assert!(
                clocks.has(at, entry.key().bytes(&mut scratch)),
                "I3: a value without its pair"
            );
            found += 1;
        });
        if cursor == 0 || found >= CLOCKS {
            break;
        }
    }
    cursor
}

/// Asserts that the pairs after `last` belong to values. Returns the last pair checked, or `None`
/// at the end.
pub(crate) fn pairs(keys: &Table<Object>, clocks: &Clocks, last: Option<&Pair>) -> Option<Pair> {
    let next = clocks.after(last).take(CLOCKS);
    let end = next.inspect(|(at, name)| {
        let found = keys.get(darter_base::hash::of(name), name).map(|entry| entry.value());
        let clock = match found {
            Some(ValueRef::Out(object)) => object.mark().at(),
            _ => None,
        };
        assert_eq!(clock, Some(*at), "I3: a pair without its value");
    });
    end.last().cloned()
}

#[cfg(test)]
#[path = "../tests/roll/mod.rs"]
mod roll;

#[cfg(test)]
mod tests {
    use super::roll::{ROLL, Roll, RollEdit};
    use crate::{Db, Deadline, Fresh, Key};

    /// A database of strings and rolls. The names of every third roll expire.
    fn db() -> Db {
        let mut db = Db::default();
        db.set_now(1_000);
        for number in 0..5_000_u64 {
            let (name, at) = (format!("key:{number}"), 2_000 + number);
            let key = Key::new(name.as_bytes());
            if number % 3 == 0 {
                let enter = |edit: &mut RollEdit<'_>| edit.enter(b"name", Deadline::At(at));
                db.edit::<Roll, _>(&key, true, enter).unwrap();
            } else {
                db.set_text(&key, Fresh::Bytes(name.as_bytes()), Deadline::At(at));
            }
        }
        db
    }

    #[test] // Changes during the check do not affect the result.
    fn a_database_is_checked_in_slices() {
        let mut db = db();
        let (mut checker, mut slices) = (db.checker(), 1);
        while checker.next_slice() {
            slices += 1;
            db.remove(&Key::new(format!("key:{slices}").as_bytes()));
        }
        assert!(slices >= db.keys().fill_report().segments && slices > 4, "{slices}");
        let (mut cursor, mut last, mut slices) = (0, None, [0, 0]);
        loop {
            cursor = db.check_clocks_of_values(cursor);
            slices[0] += 1;
            db.remove(&Key::new(format!("key:{}", 1_000 + slices[0]).as_bytes()));
            if cursor == 0 {
                break;
            }
        }
        loop {
            last = db.check_clocks_after(last.as_ref());
            slices[1] += 1;
            db.remove(&Key::new(format!("key:{}", 2_000 + slices[1]).as_bytes()));
            if last.is_none() {
                break;
            }
        }
        assert!(slices.iter().all(|&slices| slices > 50), "{slices:?}");
        db.check_invariants();
    }

    #[test]
    fn packed_values_are_checked_a_few_at_a_time() {
        let mut db = Db::default();
        for number in 0..200 {
            let (name, names) = (format!("key:{number}"), if number % 2 == 0 { 5 } else { 200 });
            let enter = |edit: &mut RollEdit<'_>| {
                for name in 0..names {
                    edit.enter(format!("name:{name}").as_bytes(), Deadline::Clear);
                }
            };
            db.edit::<Roll, _>(&Key::new(name.as_bytes()), true, enter).unwrap();
        }
        let (mut checker, mut slices, mut seen) = (db.checker(), 1, [false; 2]);
        while checker.next_slice() {
            slices += 1;
            for pack in &checker.packs {
                seen[usize::from(matches!(pack, super::Pending::Out(_)))] = true;
            }
        }
        assert!(slices > 50 && seen == [true; 2], "{slices} {seen:?}");
    }

    #[test]
    #[should_panic(expected = "an empty pack")]
    fn a_damaged_packed_value_is_detected() {
        let pack = ROLL.pack(false, &[1, 0, 0]); // The number of names, and no names.
        let pack = super::Pending::Inline(pack.note, pack.bytes.to_vec());
        let mut checker = super::Checker { packs: vec![pack], ..db().checker() };
        while checker.next_slice() {}
    }

    #[test]
    #[should_panic(expected = "I1")]
    fn wrong_totals_are_detected() {
        let mut checker = super::Checker { expires: 1, ..db().checker() };
        while checker.next_slice() {}
    }

    #[test]
    #[should_panic(expected = "without its pair")]
    fn live_values_without_a_clock_are_detected() {
        let (db, mut cursor) = (db(), 0);
        loop {
            cursor = super::values(db.keys(), &crate::clocks::Clocks::default(), cursor);
            assert_ne!(cursor, 0, "the end is reached");
        }
    }

    #[test]
    #[should_panic(expected = "without its value")]
    fn pairs_without_a_value_are_detected() {
        let (db, mut clocks) = (db(), crate::clocks::Clocks::default());
        clocks.change(
            b"no key",
            Default::default(),
            crate::clocks::Clock::default().settled(Some(7)),
        );
        super::pairs(db.keys(), &clocks, None);
    }
}
