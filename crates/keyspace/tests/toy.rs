//! A type unknown to the keyspace works as any other type: tests docs/adding-a-type.md.
//!
//! Payloads and digests of the toy are tested in `crates/persist/tests/toy.rs`, files in
//! `crates/server/src/load/tests.rs`.

use crate::heap::{HEAP, Heap, HeapChange};
use crate::roll::{ROLL, Roll};
use darter_keyspace::{
    Act, Db, Deadline, Effect, Fresh, Key, Object, Touch, WrongType, apply_to_db, memory_bytes,
};

fn db() -> Db {
    let mut db = Db::default();
    db.set_now(1_000);
    let filled = db.edit::<Heap, _>(&Key::new(b"heap"), true, |edit| {
        (1..=100).for_each(|number| edit.push(number));
    });
    assert_eq!(filled, Ok(Some(())));
    db
}

fn sum(db: &Db, key: &[u8]) -> Result<Option<u64>, WrongType> {
    Ok(db.value::<Heap>(&Key::new(key))?.map(|heap| heap.0.iter().sum()))
}

#[test]
fn a_new_type_reports_its_name_encoding_and_bytes() {
    let db = db();
    let found = db.get(&Key::new(b"heap")).unwrap();
    assert_eq!((found.kind().name, found.encoding()), ("heap", "vector"));
    assert!(found.value::<Heap>().is_ok() && found.value::<Roll>().is_err());
    let bytes = memory_bytes(found.object().unwrap());
    assert!(bytes > 100 * size_of::<u64>(), "{bytes}");
    assert_eq!((db.usage().keys(&HEAP), db.usage().bytes(&HEAP)), (1, bytes));
    assert_eq!(db.usage().total_bytes(), bytes);
    db.check_invariants();
}

#[test] // And changes nothing.
fn access_as_another_type_is_refused() {
    let mut db = db();
    let key = Key::new(b"heap");
    assert!(db.edit::<Roll, _>(&key, true, |edit| edit.enter(b"m", Deadline::Clear)).is_err());
    assert_eq!(db.text(&key).map(|text| text.is_some()), Err(WrongType));
    db.set_text(&Key::new(b"text"), Fresh::Bytes(b"value"), Deadline::Clear);
    assert_eq!(sum(&db, b"text"), Err(WrongType));
    assert_eq!(sum(&db, b"heap"), Ok(Some(5_050)));
    let names: &[&[u8]] = &[b"1"];
    let asked = (&HEAP, Touch::All);
    let preempt = &darter_base::preempt::Never;
    assert_eq!(db.unshare(&key, asked, names, preempt), None, "it has no named entries");
    db.check_invariants();
}

#[test] // Expired and empty values are removed.
fn a_value_of_a_new_type_is_cut_moved_and_removed() {
    let mut db = db();
    let (key, other) = (Key::new(b"heap"), Key::new(b"other"));
    let cut = db.get(&key).unwrap().hold();
    assert_eq!(db.edit::<Heap, _>(&key, false, |edit| edit.pop()), Ok(Some(Some(100))));
    assert_eq!(cut.get::<Heap>().map(|heap| heap.0.len()), Some(100));
    let held = db.take(&key, &[]).unwrap();
    db.put(&other, held, &[]);
    assert_eq!((sum(&db, b"heap"), sum(&db, b"other")), (Ok(None), Ok(Some(4_950))));
    db.install(&key, Object::new(Heap(vec![7])), Deadline::At(2_000), &[]);
    db.check_invariants();
    assert_eq!(sum(&db, b"heap"), Ok(Some(7)));
    db.set_now(2_000);
    assert_eq!(sum(&db, b"heap"), Ok(None));
    while db.reap(10) {}
    db.edit::<Heap, _>(&other, false, |edit| while edit.pop().is_some() {}).unwrap();
    assert_eq!((db.len(), db.usage().keys(&HEAP), db.usage().total_bytes()), (0, 0, 0));
    db.check_invariants();
}

#[test]
fn replayed_changes_of_a_new_type_make_an_equal_value() {
    let (mut db, mut copy) = (Db::default(), Db::default());
    db.set_now(1_000);
    db.listen(true);
    let (heap, roll) = (Key::new(b"heap"), Key::new(b"roll"));
    db.edit::<Heap, _>(&heap, true, |edit| {
        (1..=5).for_each(|number| edit.push(number));
        assert_eq!(edit.pop(), Some(5));
    })
    .unwrap();
    db.edit::<Roll, _>(&roll, true, |edit| {
        edit.enter(b"stays", Deadline::Clear);
        edit.enter(b"dies", Deadline::At(2_000));
        edit.enter(b"struck", Deadline::Clear) && edit.strike(b"struck")
    })
    .unwrap();
    let mut draft = db.draft::<Heap>(&heap).unwrap();
    draft.edit(1_000).push(7);
    db.install_draft(&heap, draft);
    db.set_now(2_000);
    while db.reap(10) {}
    let records = db.take_records();
    let told: Vec<Vec<_>> = records
        .iter()
        .map(|record| record.events.iter().map(|event| event.name).collect())
        .collect();
    let words: [&[&str]; 4] =
        [&["new", "pushed", "popped"], &["new", "entered", "struck"], &["pushed"], &["struck"]];
    assert_eq!(told, words.map(<[_]>::to_vec));
    for record in &records {
        apply_to_db(&mut copy, &record.act).unwrap();
    }
    assert_eq!(sum(&copy, b"heap"), Ok(Some(1 + 2 + 3 + 4 + 7)));
    let names = copy.value::<Roll>(&roll).unwrap().unwrap();
    assert!(names.contains(b"stays", 0) && names.len() == 1);
    assert_eq!((copy.usage().keys(&HEAP), copy.usage().keys(&ROLL)), (1, 1));
    let wrong = Act::Key(b"roll"[..].into(), Effect::Changes(Box::new(vec![HeapChange::Pop])));
    assert_eq!(apply_to_db(&mut copy, &wrong), Err(WrongType), "it does not follow from the data");
    copy.check_invariants();
}
