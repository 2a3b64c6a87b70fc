//! Tests that make random changes to a [`Db`] and to a map of maps. Contents, expired entries and
//! counts agree at every step, snapshots do not change, and the recorded effects make a second
//! database equal.

#![allow(clippy::unwrap_used, reason = "a test: helpers included")]

use darter_base::Prng;
use darter_base::preempt::Never;
use darter_families::hash::{Hash, HashEdit, value_of};
use darter_families::set::{Set, SetChange};
use darter_keyspace::{
    Act, Collection, Db, Deadline, Effect, Found, Fresh, Held, HeldValue, Key, Name, Object, Typed,
    Usage, WrongType, apply_to_db, event, lazyfree,
};
use darter_structs::table::Table;
use std::collections::BTreeMap;

const SEEDS: u64 = 40;
const STEPS: usize = 1_500;
/// The time at which a run begins.
const EPOCH: u64 = 1_000_000;
/// A time before every deadline.
const NOTHING_IS_DEAD: u64 = 0;

type Bytes = Vec<u8>;
/// The fields of a hash with their values, or the members of a set without any, each with its
/// deadline.
type Entries = BTreeMap<Bytes, (Bytes, Option<u64>)>;

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(Bytes),
    Hash(Entries),
    Set(Entries),
}

impl Value {
    fn entries(&mut self) -> Option<&mut Entries> {
        match self {
            Self::Text(_) => None,
            Self::Hash(entries) | Self::Set(entries) => Some(entries),
        }
    }
}

/// The keys with their values and deadlines.
type Data = BTreeMap<Bytes, (Value, Option<u64>)>;

/// The naive database. Expired entries are removed as soon as the time is set.
#[derive(Default)]
struct Model {
    data: Data,
    now: u64,
}

fn is_dead(deadline: Option<u64>, now: u64) -> bool {
    deadline.is_some_and(|at| at <= now)
}

impl Model {
    fn set_now(&mut self, now: u64) {
        self.now = now;
        self.reap();
    }

    /// Removes expired and empty values.
    fn reap(&mut self) {
        let now = self.now;
        self.data.retain(|_, (value, deadline)| {
            if let Some(entries) = value.entries() {
                entries.retain(|_, (_, deadline)| !is_dead(*deadline, now));
                if entries.is_empty() {
                    return false;
                }
            }
            !is_dead(*deadline, now)
        });
    }

    /// The entries of the collection at `key`, created empty by `fresh` if missing. `Err` if the
    /// value has another type.
    fn collection(&mut self, key: &[u8], fresh: Value) -> Result<&mut Entries, WrongType> {
        let same = std::mem::discriminant(&fresh);
        let (value, _) = self.data.entry(key.to_vec()).or_insert((fresh, None));
        if std::mem::discriminant(value) != same {
            return Err(WrongType);
        }
        value.entries().ok_or(WrongType)
    }
}

/// Reads all entries of a table of keys that are not expired at `now`.
fn read(keys: &Table<Object>, now: u64) -> Data {
    let mut data = Data::new();
    keys.for_each(&mut |entry| {
        let Some(found) = Found::alive(entry, now) else { return };
        let mut value = value_in(&found, now);
        if value.entries().is_none_or(|entries| !entries.is_empty()) {
            data.insert(entry.key().to_vec(), (value, found.deadline()));
        }
    });
    data
}

fn value_in(found: &Found<'_>, now: u64) -> Value {
    let mut entries = Entries::new();
    if let Ok(text) = found.text() {
        return Value::Text(text.to_vec());
    }
    if let Ok(hash) = found.value::<Hash>() {
        hash.fields().for_each(&mut |entry| {
            if !is_dead(entry.deadline(), now) {
                let value = value_of(&entry).to_vec();
                entries.insert(entry.key().to_vec(), (value, entry.deadline()));
            }
        });
        return Value::Hash(entries);
    }
    found.value::<Set>().unwrap().members().for_each(&mut |entry| {
        if !is_dead(entry.deadline(), now) {
            entries.insert(entry.key().to_vec(), (Vec::new(), entry.deadline()));
        }
    });
    Value::Set(entries)
}

/// Makes one random change.
#[derive(Clone, Copy, Debug)]
enum Op {
    Text,
    Increment,
    Append,
    HashSet,
    HashRemove,
    HashIncrement,
    HashDeadline,
    SetAdd,
    SetRemove,
    SetDeadline,
    Install,
    Move,
    Copy,
    Remove,
    Deadline,
    Flush,
    Time,
    Reap,
}

#[rustfmt::skip] // A table.
const OPS: &[(u64, Op)] = &[
    (12, Op::Text), (6, Op::Increment), (5, Op::Append),
    (14, Op::HashSet), (7, Op::HashRemove), (4, Op::HashIncrement), (5, Op::HashDeadline),
    (14, Op::SetAdd), (7, Op::SetRemove), (5, Op::SetDeadline),
    (3, Op::Install), (4, Op::Move), (3, Op::Copy), (4, Op::Remove), (6, Op::Deadline),
    (1, Op::Flush), (12, Op::Time), (6, Op::Reap),
];

/// A snapshot of the keys, and its expected contents.
struct Cut {
    keys: Table<Object>,
    now: u64,
    data: Data,
}

struct Run {
    prng: Prng,
    db: Db,
    model: Model,
    cuts: Vec<Cut>,
    /// The copy that the records produce. Its clock is far ahead.
    copy: Db,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut db = Db::default();
        db.listen(true);
        let mut run = Self {
            prng: Prng::from_seed(seed),
            db,
            model: Model::default(),
            cuts: Vec::new(),
            copy: Db::default(),
        };
        run.set_now(EPOCH);
        run
    }

    fn set_now(&mut self, now: u64) {
        self.db.set_now(now);
        self.model.set_now(now);
    }

    fn key(&mut self) -> Bytes {
        format!("key:{}", self.prng.below(6)).into_bytes()
    }

    fn name(&mut self) -> Bytes {
        let at = self.prng.below(12);
        if self.prng.chance(50) { at.to_string() } else { format!("name {at}") }.into_bytes()
    }

    /// Draws a value: one stored beside its key, one stored out of line, or a number.
    fn value(&mut self) -> Bytes {
        match self.prng.below(10) {
            0..4 => self.prng.below(1_000).to_string().into_bytes(),
            4..8 => self.prng.bytes(0..=40),
            8 => self.prng.bytes(500..=530),
            _ => self.prng.bytes(60_000..=140_000),
        }
    }

    fn deadline(&mut self) -> Deadline {
        match self.prng.below(4) {
            0 => Deadline::At(self.model.now + 1 + self.prng.below(400)),
            1 => Deadline::Keep,
            _ => Deadline::Clear,
        }
    }

    fn some_deadline(&mut self) -> Option<u64> {
        self.prng.chance(70).then(|| self.model.now + 1 + self.prng.below(400))
    }

    /// Draws names for one change: usually few, sometimes more than a segment holds.
    fn names(&mut self) -> Vec<Bytes> {
        if self.prng.chance(4) {
            let first = self.prng.below(3_000);
            return (first..first + 1_300).map(|at| format!("many:{at}").into_bytes()).collect();
        }
        (0..1 + self.prng.below(4)).map(|_| self.name()).collect()
    }

    fn step(&mut self) {
        let key = self.key();
        match *self.prng.weighted(OPS) {
            Op::Text => self.set_text(&key),
            Op::Increment => self.increment(&key),
            Op::Append => self.append(&key),
            Op::HashSet => self.hash_set(&key),
            Op::HashRemove => self.remove_names(&key, Value::Hash(Entries::new())),
            Op::HashIncrement => self.hash_increment(&key),
            Op::HashDeadline => self.entry_deadline(&key, Value::Hash(Entries::new())),
            Op::SetAdd => self.set_add(&key),
            Op::SetRemove => self.remove_names(&key, Value::Set(Entries::new())),
            Op::SetDeadline => self.entry_deadline(&key, Value::Set(Entries::new())),
            Op::Install => self.install(&key),
            Op::Move => self.transfer(&key, true),
            Op::Copy => self.transfer(&key, false),
            Op::Remove => {
                let was_there = self.model.data.remove(&key).is_some();
                assert_eq!(self.db.remove(&Key::new(&key)), was_there);
            }
            Op::Deadline => self.key_deadline(&key),
            Op::Flush => {
                if self.prng.chance(20) {
                    self.db.flush();
                    self.model.data.clear();
                }
            }
            Op::Time => {
                let past = self.prng.below(80);
                self.set_now(self.model.now + past);
            }
            Op::Reap => {
                let most = usize::try_from(1 + self.prng.below(300)).unwrap();
                self.db.reap(most);
            }
        }
        self.model.reap();
    }

    fn set_text(&mut self, key: &[u8]) {
        let (value, deadline) = (self.value(), self.deadline());
        let fresh = Fresh::Bytes(&value);
        match self.prng.below(3) {
            0 => self.db.set_text_raw(&Key::new(key), fresh, deadline, &[event::APPEND]),
            1 => self.db.set_text_float(&Key::new(key), fresh, deadline),
            _ => self.db.set_text(&Key::new(key), fresh, deadline),
        }
        let old = self.model.data.get(key).and_then(|(_, deadline)| *deadline);
        let deadline = resolved(deadline, old);
        self.model.data.insert(key.to_vec(), (Value::Text(value), deadline));
    }

    fn increment(&mut self, key: &[u8]) {
        let by = |text: Option<i64>| text.filter(|number| *number < i64::MAX).ok_or(WrongType);
        let outcome: Result<Option<i64>, WrongType> =
            self.db.update_int(&Key::new(key), |text| by(text.as_int()).map(|number| number + 1));
        let wanted = match self.model.data.get_mut(key) {
            None => Ok(None),
            Some((Value::Text(bytes), _)) => {
                by(darter_base::number::parse_i64(bytes)).map(|number| {
                    *bytes = (number + 1).to_string().into_bytes();
                    Some(number + 1)
                })
            }
            Some(_) => Err(WrongType),
        };
        assert_eq!(outcome, wanted);
    }

    fn append(&mut self, key: &[u8]) {
        let more = self.value();
        let before = self.db.text(&Key::new(key)).ok().flatten().map_or(0, |text| text.len());
        let len = self.db.write_text(&Key::new(key), before, Fresh::Bytes(&more), event::APPEND);
        if let Some(len) = len {
            let Some((Value::Text(bytes), _)) = self.model.data.get_mut(key) else {
                panic!("a blob that the model lacks");
            };
            bytes.extend_from_slice(&more);
            assert_eq!(bytes.len(), len);
        }
    }

    fn hash_set(&mut self, key: &[u8]) {
        let (names, value, deadline) = (self.names(), self.value(), self.deadline());
        let many = names.len() > 4;
        let value = if many { b"short".to_vec() } else { value };
        let outcome = self.db.edit::<Hash, _>(&Key::new(key), true, |edit| {
            names.iter().filter(|name| edit.set(name, Fresh::Bytes(&value), deadline)).count()
        });
        let entries = self.model.collection(key, Value::Hash(Entries::new()));
        let wanted = entries.map(|entries| {
            let added = names.iter().filter(|name| {
                let old = entries.get(*name).map(|(_, deadline)| *deadline);
                let deadline = resolved(deadline, old.flatten());
                entries.insert((*name).clone(), (value.clone(), deadline));
                old.is_none()
            });
            Some(added.count())
        });
        assert_eq!(outcome, wanted);
    }

    fn hash_increment(&mut self, key: &[u8]) {
        let name = self.name();
        let outcome = self.db.edit::<Hash, _>(&Key::new(key), false, |edit| {
            edit.update_int(&name, |text| text.as_int().map(|number| number + 1).ok_or(WrongType))
        });
        let wanted = match self.model.data.get_mut(key) {
            None => Ok(None),
            Some((Value::Hash(entries), _)) => Ok(Some(match entries.get_mut(&name) {
                None => Ok(None),
                Some((bytes, _)) => match darter_base::number::parse_i64(bytes) {
                    None => Err(WrongType),
                    Some(number) => {
                        *bytes = (number + 1).to_string().into_bytes();
                        Ok(Some(number + 1))
                    }
                },
            })),
            Some(_) => Err(WrongType),
        };
        assert_eq!(outcome, wanted);
    }

    fn set_add(&mut self, key: &[u8]) {
        let (names, deadline) = (self.names(), self.deadline());
        let outcome = self.db.edit::<Set, _>(&Key::new(key), true, |edit| {
            names.iter().filter(|name| edit.add(name, deadline)).count()
        });
        let entries = self.model.collection(key, Value::Set(Entries::new()));
        let wanted = entries.map(|entries| {
            let added = names.iter().filter(|name| {
                let old = entries.get(*name).map(|(_, deadline)| *deadline);
                let deadline = resolved(deadline, old.flatten());
                entries.insert((*name).clone(), (Vec::new(), deadline));
                old.is_none()
            });
            Some(added.count())
        });
        assert_eq!(outcome, wanted);
    }

    fn remove_names(&mut self, key: &[u8], kind: Value) {
        let names = self.names();
        let outcome = match kind {
            Value::Hash(_) => self.db.edit::<Hash, _>(&Key::new(key), false, |edit| {
                names.iter().filter(|name| edit.remove(name)).count()
            }),
            _ => self.db.edit::<Set, _>(&Key::new(key), false, |edit| {
                names.iter().filter(|name| edit.remove(name)).count()
            }),
        };
        let wanted = if self.model.data.contains_key(key) {
            self.model.collection(key, kind).map(|entries| {
                Some(names.iter().filter(|name| entries.remove(*name).is_some()).count())
            })
        } else {
            Ok(None)
        };
        assert_eq!(outcome, wanted);
    }

    fn entry_deadline(&mut self, key: &[u8], kind: Value) {
        let (name, deadline) = (self.name(), self.some_deadline());
        let outcome = match kind {
            Value::Hash(_) => self
                .db
                .edit::<Hash, _>(&Key::new(key), false, |edit| edit.set_deadline(&name, deadline)),
            _ => self
                .db
                .edit::<Set, _>(&Key::new(key), false, |edit| edit.set_deadline(&name, deadline)),
        };
        let wanted = if self.model.data.contains_key(key) {
            self.model.collection(key, kind).map(|entries| {
                let entry = entries.get_mut(&name);
                Some(entry.map(|(_, old)| *old = deadline).is_some())
            })
        } else {
            Ok(None)
        };
        assert_eq!(outcome, wanted);
    }

    /// Installs a hash that was built on the side, as jobs and RESTORE do.
    fn install(&mut self, key: &[u8]) {
        let (names, value, deadline) = (self.names(), self.value(), self.deadline());
        let value = if names.len() > 4 { b"short".to_vec() } else { value };
        let mut hash = darter_families::hash::Hash::new();
        for name in &names {
            hash.edit_aside(self.model.now).set(name, Fresh::Bytes(&value), Deadline::Clear);
        }
        self.db.install(&Key::new(key), Object::new(hash), deadline, &[]);
        let old = self.model.data.get(key).and_then(|(_, deadline)| *deadline);
        let entries = names.into_iter().map(|name| (name, (value.clone(), None))).collect();
        let deadline = resolved(deadline, old);
        self.model.data.insert(key.to_vec(), (Value::Hash(entries), deadline));
    }

    /// Does what RENAME and COPY do.
    fn transfer(&mut self, from: &[u8], take: bool) {
        let to = self.key();
        let held: Option<Held> = if take {
            self.db.take(&Key::new(from), &[])
        } else {
            self.db.get(&Key::new(from)).map(|found| found.hold())
        };
        let moved =
            if take { self.model.data.remove(from) } else { self.model.data.get(from).cloned() };
        assert_eq!(held.is_some(), moved.is_some());
        if let (Some(held), Some(moved)) = (held, moved) {
            assert_eq!(matches!(held.value, HeldValue::Text(_)), is_short(&moved.0));
            self.db.put(&Key::new(&to), held, &[]);
            self.model.data.insert(to, moved);
        }
    }

    fn key_deadline(&mut self, key: &[u8]) {
        let deadline = self.some_deadline();
        let was_there = self.db.set_deadline(&Key::new(key), deadline);
        let entry = self.model.data.get_mut(key);
        assert_eq!(was_there, entry.map(|(_, old)| *old = deadline).is_some());
    }

    /// Checks everything that must hold between steps.
    fn check(&mut self) {
        let now = self.model.now;
        self.db.check_invariants();
        assert_eq!(read(self.db.keys(), now), self.model.data);
        for at in 0..6 {
            let key = format!("key:{at}").into_bytes();
            let found = self.db.get(&Key::new(&key)).map(|found| value_in(&found, now));
            let wanted = self.model.data.get(&key).map(|(value, _)| value);
            assert_eq!(found.as_ref(), wanted);
        }
        assert!(self.db.len() >= self.model.data.len());
        for cut in &self.cuts {
            assert_eq!(read(&cut.keys, cut.now), cut.data, "a cut has changed");
        }
        self.follow();
    }

    fn cut(&mut self) {
        let data = self.model.data.clone();
        self.cuts.push(Cut { keys: self.db.keys().clone(), now: self.model.now, data });
        if self.cuts.len() > 3 {
            self.cuts.remove(0);
        }
    }

    /// The records produce the same data from an empty database, including expired entries that
    /// were not removed.
    fn follow(&mut self) {
        const AHEAD: u64 = 1_000_000;
        self.copy.set_now(self.model.now + AHEAD);
        for record in self.db.take_records() {
            apply_to_db(&mut self.copy, &record.act).unwrap();
            assert_eq!(self.copy.now(), self.model.now + AHEAD);
        }
        self.copy.check_invariants();
        assert_eq!(read(self.copy.keys(), NOTHING_IS_DEAD), read(self.db.keys(), NOTHING_IS_DEAD));
    }

    /// Without keys no bytes are counted, and nothing is left to free.
    fn check_end(mut self) {
        for at in 0..6 {
            self.db.remove(&Key::new(format!("key:{at}").as_bytes()));
        }
        assert_eq!(*self.db.usage(), Usage::default());
        assert_eq!((self.db.len(), self.db.expires_len()), (0, 0));
        self.db.flush();
        assert_eq!(self.db.memory_bytes(), Db::default().memory_bytes());
        drop(self);
        while !lazyfree::is_empty() {
            lazyfree::run(&Never);
        }
    }
}

fn resolved(deadline: Deadline, old: Option<u64>) -> Option<u64> {
    match deadline {
        Deadline::Clear => None,
        Deadline::Keep => old,
        Deadline::At(at) => Some(at),
    }
}

/// Whether a string is short enough to be stored beside its key.
fn is_short(value: &Value) -> bool {
    matches!(value, Value::Text(bytes) if bytes.len() <= 512)
}

#[test] // See the module's documentation.
fn random_changes_of_a_database_agree_with_a_map_of_maps() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for step in 0..STEPS {
            run.step();
            if run.prng.chance(3) {
                run.cut();
            }
            if step % 25 == 0 {
                run.check();
            }
        }
        run.check();
        run.check_end();
    }
}

#[test] // By the sweeper alone.
fn all_expired_entries_and_empty_collections_are_removed() {
    let mut db = Db::default();
    db.set_now(EPOCH);
    for at in 0..3_000_u64 {
        let name = at.to_string().into_bytes();
        let deadline = Deadline::At(EPOCH + 1 + at % 50);
        db.set_text(&Key::new(&name), Fresh::Bytes(b"short"), deadline);
        db.edit::<Hash, _>(&Key::new(b"hash"), true, |edit| {
            edit.set(&name, Fresh::Bytes(b"value"), deadline)
        })
        .unwrap();
        db.edit::<Set, _>(&Key::new(b"set"), true, |edit| edit.add(&name, deadline)).unwrap();
    }
    db.set_now(EPOCH + 50);
    while db.reap(64) {}
    assert_eq!((db.len(), db.expires_len(), db.next_death()), (0, 0, None));
    assert_eq!(*db.usage(), Usage::default());
    assert_eq!(db.expired_count(), 3_000);
    db.check_invariants();
}

#[test] // And no expired entry stays in memory.
fn counts_are_exact_while_entries_expire_continuously() {
    let (mut db, mut prng) = (Db::default(), Prng::from_seed(11));
    let (mut keys, mut fields) = (BTreeMap::new(), BTreeMap::new());
    for step in 0..600 {
        let now = EPOCH + step;
        db.set_now(now);
        for _ in 0..40 {
            let (name, at) =
                (prng.below(20_000).to_string().into_bytes(), now + 1 + prng.below(300));
            db.set_text(&Key::new(&name), Fresh::Bytes(b"short"), Deadline::At(at));
            keys.insert(name.clone(), at);
            db.edit::<Hash, _>(&Key::new(b"hash"), true, |edit| {
                edit.set(&name, Fresh::Bytes(b"value"), Deadline::At(at))
            })
            .unwrap();
            fields.insert(name, at);
        }
        keys.retain(|_, at| *at > now);
        fields.retain(|_, at| *at > now);
        assert_eq!(db.keys().live_len(now, usize::MAX), Some(keys.len() + 1));
        let hash = db.value::<Hash>(&Key::new(b"hash")).unwrap().unwrap().fields().clone();
        assert_eq!(hash.live_len(now, usize::MAX), Some(fields.len()));
        if prng.chance(20) {
            while db.reap(64) {}
            assert_eq!(db.len(), keys.len() + 1, "dead keys stay");
            let hash = db.value::<Hash>(&Key::new(b"hash")).unwrap().unwrap();
            assert_eq!(hash.fields().len(), fields.len(), "dead fields stay");
            assert!(db.next_death().is_none_or(|at| at > now));
        }
    }
    db.check_invariants();
}

#[test] // However fields and keys are removed; clocks are included in the memory totals.
fn deadline_clocks_are_removed_with_their_keys() {
    let mut db = Db::default();
    db.set_now(EPOCH);
    let with_deadline = |db: &mut Db, key: &[u8], field: &[u8], at: u64| {
        let at = Deadline::At(EPOCH + at);
        db.edit::<Hash, _>(&Key::new(key), true, |edit| edit.set(field, Fresh::Bytes(b"v"), at))
            .unwrap();
    };
    for round in 0..200_u64 {
        let (key, other) = (format!("s:{round}"), format!("t:{round}"));
        let (key, other) = (Key::new(key.as_bytes()), Key::new(other.as_bytes()));
        with_deadline(&mut db, key.bytes, b"f", 3_600_000 - round);
        with_deadline(&mut db, key.bytes, b"g", 1_000 - round); // An earlier deadline.
        let held = db.get(&key).unwrap().hold();
        db.put(&other, held, &[]); // As COPY does. Then both values are changed.
        with_deadline(&mut db, key.bytes, b"g", 2_000_000);
        with_deadline(&mut db, other.bytes, b"g", 3_000_000);
        db.check_invariants();
        let held = db.take(&key, &[]).unwrap();
        db.put(&other, held, &[]); // As RENAME does, over another value.
        db.check_invariants();
        match round % 4 {
            0 => assert!(db.remove(&other)),
            1 => db.set_text(&other, Fresh::Bytes(b"text"), Deadline::Clear),
            2 => assert!(db.set_deadline(&other, Some(EPOCH + 1))),
            _ => {
                let both = [&b"f"[..], b"g"];
                let edit = |edit: &mut HashEdit<'_>| both.map(|field| edit.remove(field));
                db.edit::<Hash, _>(&other, false, edit).unwrap();
            }
        }
        db.check_invariants();
    }
    let with = db.memory_bytes();
    db.set_now(EPOCH + 1);
    while db.reap(64) {}
    assert_eq!((db.next_death(), db.len()), (None, 50));
    assert!(with > db.memory_bytes());
    let bare = db.memory_bytes();
    with_deadline(&mut db, b"s", b"f", 10);
    assert!(db.memory_bytes() > bare + db.usage().bytes(Hash::TYPE), "a clock is counted");
    db.check_invariants();
}

#[test] // A small one is treated as absent at once.
fn a_huge_expired_hash_exists_until_it_is_swept() {
    let mut db = Db::default();
    db.set_now(EPOCH);
    for (key, many) in [("small", 2_000), ("huge", 20_000), ("lasting", 20_000)] {
        for at in 0..many {
            let deadline = if key == "lasting" && at == 9 { None } else { Some(EPOCH + 1) };
            let edit = |edit: &mut HashEdit<'_>| {
                edit.set(at.to_string().as_bytes(), Fresh::Bytes(b"v"), Deadline::from(deadline))
            };
            db.edit::<Hash, _>(&Key::new(key.as_bytes()), true, edit).unwrap();
        }
    }
    db.set_now(EPOCH + 1);
    let there =
        |db: &Db| ["small", "huge", "lasting"].map(|key| db.exists(&Key::new(key.as_bytes())));
    assert_eq!(there(&db), [false, true, true]);
    while db.reap(64) {}
    assert_eq!(there(&db), [false, false, true]);
}

#[test]
fn integer_results_of_arithmetic_are_encoded_as_integers() {
    let mut db = Db::default();
    db.listen(true);
    let key = Key::new(b"k");
    for is_float in [true, false] {
        let five = Fresh::Bytes(b"5");
        if is_float {
            db.set_text_float(&key, five, Deadline::Clear);
        } else {
            db.set_text_raw(&key, five, Deadline::Clear, &[event::SETRANGE]);
        }
        assert_eq!(db.get(&key).map(|found| found.encoding() == "int"), Some(false));
        assert_eq!(db.update_int(&key, |_| Ok::<_, WrongType>(6)), Ok(Some(6)));
        assert_eq!(db.get(&key).map(|found| found.encoding()), Some("int"));
    }
    let mut copy = Db::default();
    let records = db.take_records();
    records.iter().for_each(|record| apply_to_db(&mut copy, &record.act).unwrap());
    assert_eq!(copy.get(&key).map(|found| found.encoding()), Some("int"));
}

#[test] // A record that does not fit the data is told from one that does.
fn a_gap_in_the_replayed_records_is_detected() {
    let mut db = Db::default();
    db.set_now(EPOCH);
    db.set_text(&Key::new(b"k"), Fresh::Bytes(b"v"), Deadline::Clear);
    let name = |name: &[u8]| Name::from(name);
    let changes = vec![SetChange::Add { member: name(b"m"), deadline: None }];
    let add = Act::Key(name(b"k"), Effect::Changes(Box::new(changes)));
    assert_eq!(apply_to_db(&mut db, &add), Err(WrongType));
    assert_eq!(apply_to_db(&mut db, &Act::Key(name(b"k"), Effect::Delete)), Ok(()));
    assert_eq!(apply_to_db(&mut db, &add), Ok(()));
    assert!(db.value::<Set>(&Key::new(b"k")).unwrap().is_some());
}
