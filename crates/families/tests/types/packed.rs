//! Tests of small collections, which are stored in the entries of their keys. Only their memory
//! shows it.

#![allow(clippy::unwrap_used, reason = "a test: helpers included")]

use darter_base::Prng;
use darter_families::hash::{Hash, value_of};
use darter_families::list::{List, ListEdit};
use darter_families::set::Set;
use darter_keyspace::{Db, Deadline, Fresh, Key, WrongType};
use darter_structs::list::End;
use std::collections::BTreeMap;

const NOW: u64 = 1_000;

fn db() -> Db {
    let db = Db::default();
    db.set_now(NOW);
    db
}

fn set_field(db: &mut Db, key: &[u8], field: &str, value: &[u8], deadline: Deadline) {
    let set = |edit: &mut darter_families::hash::HashEdit<'_>| {
        edit.set(field.as_bytes(), Fresh::Bytes(value), deadline);
    };
    db.edit::<Hash, _>(&Key::new(key), true, set).unwrap();
}

fn field(db: &Db, key: &[u8], field: &str) -> Option<Vec<u8>> {
    let found = db.get(&Key::new(key))?;
    let entry = Hash::look(&found, &Key::new(field.as_bytes()), NOW).unwrap()?;
    Some(value_of(&entry).to_vec())
}

fn is_in_entry(db: &Db, key: &[u8]) -> bool {
    db.get(&Key::new(key)).is_some_and(|found| found.object().is_none())
}

#[test] // And are removed with their last field.
fn packed_hashes_grow_out_of_their_entry_and_shrink_back() {
    let mut db = db();
    let (key, name) = (Key::new(b"hash"), |number: usize| format!("field:{number}"));
    let mut places = Vec::new();
    for number in 0..300 {
        set_field(&mut db, b"hash", &name(number), b"some value", Deadline::Clear);
        places.push(is_in_entry(&db, b"hash"));
        db.check_invariants();
    }
    assert!(places[10] && !places[290] && places.is_sorted_by(|one, other| one >= other));
    let kind = db.get(&key).unwrap().kind();
    assert!(db.usage().bytes(kind) > 300 * 10);
    for number in 0..300 {
        assert_eq!(field(&db, b"hash", &name(number)).as_deref(), Some(&b"some value"[..]));
    }
    places.clear();
    for number in 0..300 {
        let remove =
            |edit: &mut darter_families::hash::HashEdit<'_>| edit.remove(name(number).as_bytes());
        assert_eq!(db.edit::<Hash, _>(&key, false, remove), Ok(Some(true)));
        db.check_invariants();
        places.push(!db.exists(&key) || is_in_entry(&db, b"hash"));
    }
    assert!(!places[0] && places[290] && places.is_sorted());
    assert_eq!((db.len(), db.usage().keys(kind), db.usage().total_bytes()), (0, 0, 0));
}

#[test]
fn fields_with_deadlines_or_long_values_leave_the_entry() {
    let mut db = db();
    let long = vec![b'v'; 70_000];
    for (key, value, deadline) in [
        (&b"timed"[..], &b"value"[..], Deadline::At(NOW + 50)),
        (&b"lengthy"[..], &long[..], Deadline::Clear),
    ] {
        set_field(&mut db, key, "a", b"1", Deadline::Clear);
        assert!(is_in_entry(&db, key));
        set_field(&mut db, key, "b", value, deadline);
        assert!(!is_in_entry(&db, key));
        assert_eq!(field(&db, key, "a").as_deref(), Some(&b"1"[..]));
        assert_eq!(field(&db, key, "b").as_deref(), Some(value));
        db.check_invariants();
    }
    assert_eq!(db.next_field_death(), Some(NOW + 50));
    db.set_now(NOW + 50);
    while db.reap(10) {}
    db.check_invariants();
    let found = db.get(&Key::new(b"timed")).unwrap();
    assert_eq!(found.value::<Hash>().unwrap().len(), 1);
}

#[test] // Access as another type is refused.
fn packed_values_can_be_read_held_moved_and_restored() {
    let mut db = db();
    let (key, other) = (Key::new(b"set"), Key::new(b"other"));
    for member in ["3", "1", "2"] {
        db.edit::<Set, _>(&key, true, |edit| edit.add(member.as_bytes(), Deadline::Clear)).unwrap();
    }
    assert!(is_in_entry(&db, b"set"));
    assert_eq!(db.get(&key).unwrap().encoding(), "intset");
    let cut = db.get(&key).unwrap().hold();
    db.edit::<Set, _>(&key, false, |edit| edit.add(b"four", Deadline::Clear)).unwrap();
    let found = db.get(&key).unwrap();
    assert_eq!((found.kind().name, found.encoding()), ("set", "hashtable"));
    assert_eq!(Set::has(&found, b"four", NOW), Ok(true));
    assert_eq!(Set::has(&found, b"5", NOW), Ok(false));
    assert!(found.value::<Hash>().is_err() && found.text().is_err());
    assert!(Hash::look(&found, &Key::new(b"1"), NOW).is_err());
    assert_eq!(
        (found.deadline_of(b"2", NOW), found.deadline_of(b"9", NOW)),
        (Ok(Some(None)), Ok(None))
    );
    assert_eq!(db.edit::<Hash, _>(&key, true, |_| ()), Err(WrongType));
    assert_eq!(
        cut.get::<Set>().map(|set| (set.len(), set.contains(b"four", NOW))),
        Some((3, false))
    );

    db.put(&other, cut, &[]);
    let held = db.take(&key, &[]).unwrap();
    assert_eq!((held.kind().name, db.exists(&key)), ("set", false));
    db.put(&other, held, &[]);
    assert!(is_in_entry(&db, b"other"));
    assert_eq!(db.value::<Set>(&other).unwrap().map(|set| set.len()), Some(4));
    db.check_invariants();
    db.set_text(&other, Fresh::Bytes(b"text"), Deadline::Clear);
    db.check_invariants();
    assert_eq!(db.usage().total_bytes(), 0);
}

#[test]
fn a_packed_list_refuses_lookups_by_name() {
    let (mut db, key) = (db(), Key::new(b"list"));
    for element in ["a", "12", "a longer element, which is no number"] {
        let push = |edit: &mut ListEdit<'_>| {
            edit.push(End::Back, Fresh::Bytes(element.as_bytes()));
        };
        db.edit::<List, _>(&key, true, push).unwrap();
        db.check_invariants();
    }
    assert!(is_in_entry(&db, b"list"));
    let found = db.get(&key).unwrap();
    for name in [&b"a"[..], b"12", b"none"] {
        assert_eq!(found.deadline_of(name, NOW), Err(WrongType));
        assert!(Hash::look(&found, &Key::new(name), NOW).is_err());
        assert_eq!(Set::has(&found, name, NOW), Err(WrongType));
    }
    assert!(db.object(&key).is_none(), "nothing is prefetched for it");
}

#[test] // With deadlines, and cuts of the keyspace.
fn random_changes_of_packed_values_agree_with_a_map() {
    for seed in 0..6 {
        let mut prng = Prng::from_seed(seed);
        let (mut db, mut model) = (db(), BTreeMap::<Vec<u8>, BTreeMap<String, Vec<u8>>>::new());
        let mut cuts = Vec::new();
        for step in 0..3_000 {
            let key = format!("key:{}", prng.below(12)).into_bytes();
            let name = format!("field:{}", prng.below(40));
            match prng.below(20) {
                0 => assert_eq!(db.remove(&Key::new(&key)), model.remove(&key).is_some()),
                1 => assert_eq!(
                    db.set_deadline(&Key::new(&key), Some(NOW * 2)),
                    model.contains_key(&key)
                ),
                2..6 => {
                    let remove = |edit: &mut darter_families::hash::HashEdit<'_>| {
                        edit.remove(name.as_bytes())
                    };
                    let removed = db.edit::<Hash, _>(&Key::new(&key), false, remove).unwrap();
                    let fields = model.get_mut(&key);
                    assert_eq!(removed, fields.map(|fields| fields.remove(&name).is_some()));
                    model.retain(|_, fields| !fields.is_empty());
                }
                _ => {
                    let value = prng.bytes(0..=40);
                    set_field(&mut db, &key, &name, &value, Deadline::Clear);
                    model.entry(key.clone()).or_default().insert(name.clone(), value);
                }
            }
            let expected = model.get(&key).and_then(|fields| fields.get(&name));
            assert_eq!(field(&db, &key, &name).as_ref(), expected, "seed {seed} step {step}");
            if step % 50 == 0 {
                db.check_invariants();
                cuts.push((db.keys().clone(), model.len()));
                cuts.truncate(3);
            }
        }
        for (cut, len) in cuts {
            cut.check_invariants();
            assert_eq!(cut.len(), len);
        }
        for (key, fields) in &model {
            let hash = db.value::<Hash>(&Key::new(key)).unwrap().unwrap();
            assert_eq!(hash.len(), fields.len());
        }
    }
}
