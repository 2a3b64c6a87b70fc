//! Tests of the facts about a value: its type, its encoding's name, its bytes and its memory.

#![allow(clippy::unwrap_used, reason = "a test: helpers included")]

use darter_base::limits::CHUNK_BYTES;
use darter_base::preempt::{Countdown, Never};
use darter_families::TYPES;
use darter_families::hash::Hash;
use darter_families::list::List;
use darter_families::set::Set;
use darter_families::stream::{Stream, StreamEdit};
use darter_families::zset::{ZSet, ZSetEdit};
use darter_keyspace::{
    Act, Collection, Db, Deadline, Effect, Found, Fresh, Key, NewItem, Object, Record, Recorder,
    StrPieces, Touch, Type, Typed, Usage, Value, WrongType, apply_to_db, event, lazyfree,
    memory_bytes,
};
use darter_structs::blob::Blob;
use darter_structs::list::End;
use std::sync::Arc;

const NOW: u64 = 1_000_000;

fn db() -> Db {
    let db = Db::default();
    db.set_now(NOW);
    db
}

/// Fields with their values.
type Fields = Vec<(String, Vec<u8>)>;

/// Sets fields of the hash at `key`.
fn hash(db: &mut Db, key: &str, fields: impl IntoIterator<Item = (String, Vec<u8>)>) {
    db.edit::<Hash, _>(&Key::new(key.as_bytes()), true, |edit| {
        for (field, value) in fields {
            edit.set(field.as_bytes(), Fresh::Bytes(&value), Deadline::Keep);
        }
    })
    .unwrap();
}

/// Adds members to the set at `key`.
fn set(db: &mut Db, key: &str, members: impl IntoIterator<Item = String>, deadline: Deadline) {
    db.edit::<Set, _>(&Key::new(key.as_bytes()), true, |edit| {
        members.into_iter().filter(|member| edit.add(member.as_bytes(), deadline)).count()
    })
    .unwrap();
}

fn numbered(count: usize) -> impl Iterator<Item = (String, Vec<u8>)> {
    (0..count).map(|at| (at.to_string(), b"v".to_vec()))
}

fn numbers(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|at| at.to_string())
}

/// Appends elements to the list at `key`.
fn list(db: &mut Db, key: &str, elements: impl IntoIterator<Item = String>) {
    db.edit::<List, _>(&Key::new(key.as_bytes()), true, |edit| {
        let push = |element: String| edit.push(End::Back, Fresh::Bytes(element.as_bytes()));
        elements.into_iter().for_each(push);
    })
    .unwrap();
}

/// Adds members to the sorted set at `key`, with the score 1.
fn zset(db: &mut Db, key: &str, members: impl IntoIterator<Item = String>) {
    let add = |edit: &mut ZSetEdit<'_>| {
        members.into_iter().for_each(|member| _ = edit.insert(member.as_bytes(), 1.0));
    };
    db.edit::<ZSet, _>(&Key::new(key.as_bytes()), true, add).unwrap();
}

/// Adds entries of one field to the stream at `key`.
fn stream(db: &mut Db, key: &str, values: impl IntoIterator<Item = String>) {
    let add = |edit: &mut StreamEdit<'_>| {
        for value in values {
            let id = edit.stream().state().last.next().unwrap();
            edit.append(id, [&b"field"[..], value.as_bytes()].into_iter().map(Fresh::Bytes));
        }
    };
    db.edit::<Stream, _>(&Key::new(key.as_bytes()), true, add).unwrap();
}

/// A database with a key of each type: short and long strings, a list, a hash, a set, a sorted set
/// and a stream.
fn one_of_each() -> Db {
    let mut db = db();
    db.set_text(&Key::new(b"short"), Fresh::Bytes(b"text"), Deadline::At(NOW + 5));
    db.set_text(&Key::new(b"long"), Fresh::Bytes(&[b'x'; 5_000]), Deadline::Clear);
    list(&mut db, "list", numbers(3));
    hash(&mut db, "hash", numbered(3));
    set(&mut db, "set", numbers(3), Deadline::Clear);
    zset(&mut db, "zset", numbers(3));
    stream(&mut db, "stream", numbers(3));
    db
}

fn set_raw(db: &mut Db, key: &Key<'_>, value: Fresh<'_>, deadline: Deadline) {
    db.set_text_raw(key, value, deadline, &[event::SETRANGE]);
}

#[test]
fn string_encodings_follow_length_text_and_origin() {
    type Set = fn(&mut Db, &Key<'_>, Fresh<'_>, Deadline);
    #[rustfmt::skip] // A table.
    let cases: &[(Set, &[u8], &str)] = &[
        (Db::set_text,       b"12",          "int"),
        (Db::set_text,       b"-12",         "int"),
        (Db::set_text,       b"012",         "embstr"),
        (Db::set_text,       b"",            "embstr"),
        (Db::set_text,       &[b'x'; 44],    "embstr"),
        (Db::set_text,       &[b'x'; 45],    "raw"),
        (Db::set_text,       &[b'x'; 512],   "raw"),
        (Db::set_text,       &[b'x'; 513],   "raw"),
        (set_raw,            b"12",          "raw"),
        (set_raw,            b"abc",         "raw"),
        (Db::set_text_float, b"12",          "embstr"),
        (Db::set_text_float, b"1.5",         "embstr"),
    ];
    for (set, text, encoding) in cases {
        let (mut db, key) = (db(), Key::new(b"k"));
        set(&mut db, &key, Fresh::Bytes(text), Deadline::Clear);
        let found = db.get(&key).unwrap();
        assert_eq!(found.encoding(), *encoding, "{text:?}");
        assert_eq!(found.is_int(), *encoding == "int", "{text:?}");
        assert_eq!(found.is_raw(), *set as usize == set_raw as Set as usize, "{text:?}");
        let is_long = text.len() > 512;
        assert_eq!((found.object().is_some(), found.kind()), (is_long, Blob::TYPE));
        // A copy of the value has the same encoding.
        let held = found.hold();
        db.put(&Key::new(b"copy"), held, &[]);
        assert_eq!(db.get(&Key::new(b"copy")).unwrap().encoding(), *encoding, "a copy of {text:?}");
    }
}

#[test] // Both sides of each bound.
fn collections_keep_the_encoding_of_their_largest_size() {
    let at =
        |key: &[u8], value: usize| (String::from_utf8_lossy(key).into_owned(), vec![b'v'; value]);
    #[rustfmt::skip] // A table.
    let hashes: &[(&str, Fields, &str)] = &[
        ("as many as there may be", numbered(512).collect(),                      "listpack"),
        ("the last one again",      numbered(512).chain(numbered(1)).collect(),   "listpack"),
        ("one more",                numbered(513).collect(),                      "hashtable"),
        ("a field as long as may",  vec![at(&[b'f'; 64], 1)],                     "listpack"),
        ("a longer field",          vec![at(&[b'f'; 65], 1)],                     "hashtable"),
        ("a value as long as may",  vec![at(b"f", 64)],                           "listpack"),
        ("a longer value",          vec![at(b"f", 65)],                           "hashtable"),
        ("a longer value is gone",  vec![at(b"f", 65), at(b"f", 1)],              "hashtable"),
    ];
    for (what, fields, encoding) in hashes {
        let mut db = db();
        hash(&mut db, "k", fields.clone());
        assert_eq!(db.get(&Key::new(b"k")).unwrap().encoding(), *encoding, "{what}");
        assert_eq!(
            db.value::<Hash>(&Key::new(b"k")).unwrap().unwrap().encoding(),
            *encoding,
            "{what}"
        );
    }
    let word = || ["word".to_owned()];
    #[rustfmt::skip] // A table.
    let sets: &[(&str, Vec<String>, Deadline, &str)] = &[
        ("as many as there may be", numbers(512).collect(),              Deadline::Clear,         "intset"),
        ("one more",                numbers(513).collect(),              Deadline::Clear,         "hashtable"),
        ("a word",                  word().into(),                       Deadline::Clear,         "hashtable"),
        ("a word among numbers",    numbers(3).chain(word()).collect(),  Deadline::Clear,         "hashtable"),
        ("a timed one",             numbers(1).collect(),                Deadline::At(NOW + 9),   "hashtable"),
    ];
    for (what, members, deadline, encoding) in sets {
        let mut db = db();
        set(&mut db, "k", members.clone(), *deadline);
        assert_eq!(db.get(&Key::new(b"k")).unwrap().encoding(), *encoding, "{what}");
    }
}

#[test] // In every encoding.
fn access_as_another_type_is_refused() {
    let names = [
        "string",
        "list",
        "hash",
        "set",
        "zset",
        "stream",
        "ReJSON-RL",
        "MBbloom--",
        "MBbloomCF",
        "CMSk-TYPE",
        "TopK-TYPE",
        "TDIS-TYPE",
    ];
    assert!(TYPES.iter().map(|kind| kind.name).eq(names));
    let mut db = one_of_each();
    for (name, kind) in [
        ("short", Blob::TYPE),
        ("long", Blob::TYPE),
        ("list", List::TYPE),
        ("hash", Hash::TYPE),
        ("set", Set::TYPE),
        ("zset", ZSet::TYPE),
        ("stream", Stream::TYPE),
    ] {
        let key = Key::new(name.as_bytes());
        assert_eq!(db.get(&key).map(|found| found.kind()), Some(kind));
        let is = |asked: &Type| if asked == kind { Ok(true) } else { Err(WrongType) };
        assert_eq!(db.text(&key).map(|text| text.is_some()), is(Blob::TYPE), "{name}");
        assert_eq!(db.value::<Hash>(&key).map(|hash| hash.is_some()), is(Hash::TYPE), "{name}");
        assert_eq!(db.value::<Set>(&key).map(|set| set.is_some()), is(Set::TYPE), "{name}");
        assert_eq!(db.value::<ZSet>(&key).map(|set| set.is_some()), is(ZSet::TYPE), "{name}");
        assert_eq!(db.value::<Stream>(&key).map(|one| one.is_some()), is(Stream::TYPE), "{name}");
        assert_eq!(db.value::<List>(&key).map(|list| list.is_some()), is(List::TYPE), "{name}");
        assert_eq!(db.read_text(&key).map(|text| text.is_some()), is(Blob::TYPE), "{name}");
        assert_eq!(
            db.read_value::<Hash>(&key).map(|hash| hash.is_some()),
            is(Hash::TYPE),
            "{name}"
        );
        assert_eq!(db.read_value::<Set>(&key).map(|set| set.is_some()), is(Set::TYPE), "{name}");
        let is_out = matches!(name, "long" | "stream");
        assert_eq!(db.object(&key).is_some(), is_out, "the others lie in their entries");
        let held = db.get(&key).unwrap().hold();
        assert_eq!(held.kind(), kind);
        assert_eq!(held.as_text().is_some(), kind == Blob::TYPE, "{name}");
        assert_eq!(held.get::<Hash>().is_some(), kind == Hash::TYPE, "{name}");
        assert_eq!(held.get::<Set>().is_some(), kind == Set::TYPE, "{name}");
        assert_eq!(held.get::<List>().is_some(), kind == List::TYPE, "{name}");
        assert_eq!(held.deadline, (name == "short").then_some(NOW + 5));
    }
    let absent = Key::new(b"absent");
    assert!(db.text(&absent).unwrap().is_none() && db.read_text(&absent).unwrap().is_none());
    assert!(
        db.value::<Hash>(&absent).unwrap().is_none()
            && db.read_value::<Hash>(&absent).unwrap().is_none()
    );
    assert!(
        db.value::<Set>(&absent).unwrap().is_none()
            && db.read_value::<Set>(&absent).unwrap().is_none()
    );
    assert!(!db.exists(&absent) && db.object(&absent).is_none() && db.touch(&absent).is_none());
    assert!(!db.is_empty());
    db.flush();
    assert!(db.is_empty());
}

#[test]
fn strings_of_every_encoding_are_read_whole_in_part_and_as_numbers() {
    let long: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
    let texts: [&[u8]; 6] = [b"", b"7", b"-12345", b"short text", &long[..512], &long];
    for text in texts {
        let (mut db, key) = (db(), Key::new(b"k"));
        db.set_text(&key, Fresh::Bytes(text), Deadline::Clear);
        let read = db.text(&key).unwrap().unwrap();
        assert_eq!((read.len(), read.is_empty()), (text.len(), text.is_empty()));
        assert_eq!(read.to_vec(), text);
        assert_eq!(
            read.as_int(),
            std::str::from_utf8(text).ok().and_then(|text| text.parse().ok())
        );
        for range in [0..0, 0..1, 0..text.len(), 1..text.len(), 2..4, 500..text.len()] {
            let end = range.end.min(text.len());
            let wanted = &text[range.start.min(end)..end];
            let mut part = b"before".to_vec();
            if range.end <= text.len() || text.len() <= 512 {
                read.write_range(range.clone(), &mut part);
                assert_eq!(&part[6..], wanted, "{range:?} of {}", text.len());
            }
        }
        let pieces = read.to_pieces();
        assert_eq!(matches!(pieces, StrPieces::Blob(_)), text.len() > 512);
        let fresh = pieces.fresh();
        assert_eq!((fresh.len(), fresh.is_empty()), (text.len(), text.is_empty()));
        assert_eq!(fresh.to_blob().slices(0..text.len()).collect::<Vec<_>>().concat(), text);
    }
}

#[test]
fn values_in_one_piece_in_chunks_or_shared_are_equal() {
    let long: Vec<u8> = (0..150_000_u32).map(|at| (at % 251) as u8).collect();
    for text in [&long[..0], &long[..512], &long[..513], &long[..CHUNK_BYTES], &long] {
        let chunks: Vec<Arc<[u8]>> = text.chunks(CHUNK_BYTES).map(Arc::from).collect();
        let blob = Fresh::Bytes(text).to_blob();
        let forms = [Fresh::Bytes(text), Fresh::Chunks(&chunks), Fresh::Blob(&blob)];
        for (number, fresh) in forms.into_iter().enumerate() {
            assert_eq!((fresh.len(), fresh.is_empty()), (text.len(), text.is_empty()), "{number}");
            let (mut db, key) = (db(), Key::new(b"k"));
            db.set_text(&key, fresh, Deadline::Clear);
            assert_eq!(db.text(&key).unwrap().unwrap().to_vec(), text, "{number}");
            // An empty value has no chunk, and so is not in one piece.
            let is_out = db.object(&key).is_some();
            assert!(is_out == (text.len() > 512) || chunks.is_empty(), "{number} {}", text.len());
        }
    }
}

#[test] // By type and by database.
fn key_and_byte_totals_follow_the_values() {
    let db = one_of_each();
    let usage = *db.usage();
    assert!(TYPES.iter().map(|kind| usage.keys(kind)).eq([2, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]));
    let bytes_of = |key: &str| db.object(&Key::new(key.as_bytes())).map_or(0, memory_bytes);
    assert_eq!(usage.bytes(Blob::TYPE), bytes_of("long"));
    assert_eq!(usage.bytes(Hash::TYPE), bytes_of("hash"));
    assert_eq!(usage.bytes(Set::TYPE), bytes_of("set"));
    assert_eq!(usage.bytes(List::TYPE), bytes_of("list"));
    assert_eq!(usage.bytes(ZSet::TYPE), bytes_of("zset"));
    assert_eq!(usage.bytes(Stream::TYPE), bytes_of("stream"));
    assert!(bytes_of("long") >= 5_000 && bytes_of("hash") == 0, "a small one is the table's");
    let sum = ["long", "hash", "set", "zset", "stream"].map(bytes_of).iter().sum::<usize>();
    assert_eq!(usage.total_bytes(), sum);
    assert_eq!(db.memory_bytes(), db.keys().memory_bytes() + usage.total_bytes());
    let mut both = usage;
    both.merge(db.usage());
    for kind in TYPES.iter() {
        assert_eq!(both.keys(kind), 2 * usage.keys(kind));
        assert_eq!(both.bytes(kind), 2 * usage.bytes(kind));
    }
    let text = format!("{:?}", db.get(&Key::new(b"hash")).unwrap().to_object().unwrap());
    assert!(text.starts_with("Type { name: \"hash\""), "{text}");
}

#[test] // By the hash or by another holder.
fn long_field_values_are_counted_while_held() {
    let mut db = db();
    let bytes = |db: &Db| db.usage().bytes(Hash::TYPE);
    hash(&mut db, "k", [("f".to_owned(), b"short".to_vec())]);
    assert_eq!(bytes(&db), 0, "in its entry");
    hash(&mut db, "k", [("f".to_owned(), vec![b'x'; 100_000])]);
    let short = 128; // The memory of values out of line, measured from here on.
    assert!((100_000..140_000).contains(&(bytes(&db) - short)), "{}", bytes(&db));
    hash(&mut db, "k", [("f".to_owned(), vec![b'x'; 50_000])]);
    assert!((50_000..90_000).contains(&(bytes(&db) - short)), "{}", bytes(&db));
    let key = Key::new(b"k");
    db.edit::<Hash, _>(&key, false, |edit| {
        assert_eq!(edit.update_int(b"f", |_| Ok::<_, WrongType>(5)), Ok(Some(5)));
        assert_eq!(edit.update_int(b"g", |_| Ok::<_, WrongType>(5)), Ok(None));
        assert_eq!(edit.hash().len(), 1);
    })
    .unwrap();
    assert!(bytes(&db) <= short, "{} {short}", bytes(&db));
    hash(&mut db, "k", [("f".to_owned(), vec![b'x'; 50_000]), ("g".to_owned(), b"v".to_vec())]);
    assert_eq!(db.edit::<Hash, _>(&key, false, |edit| edit.remove(b"f")), Ok(Some(true)));
    assert!(bytes(&db) <= short + 64, "{} {short}", bytes(&db));
    // An expired value is freed when the sweeper removes it.
    let at = Deadline::At(NOW + 1);
    db.edit::<Hash, _>(&key, false, |edit| edit.set(b"f", Fresh::Bytes(&[b'x'; 50_000]), at))
        .unwrap();
    db.set_now(NOW + 1);
    while db.reap(10) {}
    assert!(bytes(&db) <= short + 64, "{} {short}", bytes(&db));
    db.check_invariants();
}

#[test] // And they are replaced by writes.
fn expired_entries_are_neither_read_nor_changed_nor_counted() {
    let mut db = db();
    let (key, at) = (Key::new(b"k"), Deadline::At(NOW + 10));
    db.edit::<Hash, _>(&Key::new(b"hash"), true, |edit| {
        assert!(edit.set(b"f", Fresh::Bytes(b"1"), at) && edit.set(b"g", Fresh::Bytes(b"1"), at));
        assert!(edit.set(b"stays", Fresh::Bytes(b"1"), Deadline::Clear));
        assert!(!edit.set(b"f", Fresh::Bytes(b"2"), Deadline::Keep));
        assert!(!edit.set_deadline(b"none", None));
    })
    .unwrap();
    db.edit::<Set, _>(&Key::new(b"set"), true, |edit| {
        assert!(edit.add(b"m", at) && edit.add(b"n", at) && edit.add(b"stays", Deadline::Clear));
        assert!(!edit.add(b"m", Deadline::Keep) && !edit.set_deadline(b"none", None));
        assert_eq!(edit.set().len(), 3);
    })
    .unwrap();
    db.set_text(&key, Fresh::Bytes(b"text"), at);
    for (now, alive) in [(NOW + 9, true), (NOW + 10, false)] {
        db.set_now(now);
        assert_eq!(db.exists(&key), alive);
        assert_eq!(
            db.value::<Hash>(&Key::new(b"hash")).unwrap().unwrap().get(b"f", now).is_some(),
            alive
        );
        assert_eq!(db.value::<Set>(&Key::new(b"set")).unwrap().unwrap().contains(b"m", now), alive);
    }
    assert!(!db.set_deadline(&key, None) && !db.remove(&key));
    assert_eq!(db.expired_count(), 1, "whoever comes upon a dead key removes it");
    db.edit::<Hash, _>(&Key::new(b"hash"), false, |edit| {
        assert_eq!(edit.update_int(b"f", |_| Ok::<_, WrongType>(1)), Ok(None));
        assert!(!edit.set_deadline(b"f", None) && !edit.remove(b"f"));
        assert!(edit.set(b"g", Fresh::Bytes(b"3"), Deadline::Keep), "its old self was dead");
    })
    .unwrap();
    let now = db.now();
    let hash = db.value::<Hash>(&Key::new(b"hash")).unwrap().unwrap();
    assert_eq!(hash.get(b"g", now).map(|entry| entry.deadline()), Some(None));
    db.edit::<Set, _>(&Key::new(b"set"), false, |edit| {
        assert!(!edit.set_deadline(b"m", None) && !edit.remove(b"m"));
        assert!(edit.add(b"n", Deadline::Keep), "its old self was dead");
    })
    .unwrap();
    let set = db.value::<Set>(&Key::new(b"set")).unwrap().unwrap();
    assert_eq!((set.len(), set.is_empty(), set.contains(b"n", now)), (2, false, true));
    db.check_invariants();
}

#[test]
fn expired_entries_of_a_draft_are_removed_on_request() {
    let mut fields = darter_families::hash::Hash::new();
    let mut members = darter_families::set::Set::new();
    assert!(fields.is_empty() && members.is_empty());
    for at in 0..10_u64 {
        let (name, deadline) = (at.to_string(), Deadline::At(NOW + at));
        fields.edit_aside(NOW - 1).set(name.as_bytes(), Fresh::Bytes(b"v"), deadline);
        members.edit_aside(NOW - 1).add(name.as_bytes(), deadline);
    }
    fields.edit_aside(NOW + 4).reap(100);
    members.edit_aside(NOW + 4).reap(100);
    assert_eq!((fields.len(), members.len()), (5, 5));
    let mut object = Object::new(fields);
    assert_eq!(object.earliest_deadline(), Some(NOW + 5));
    assert!(!object.face_mut().reap(NOW + 6, 100, &mut Recorder::none()) && !object.is_empty());
    assert_eq!(object.get::<Hash>().map(|hash| (hash.len(), hash.is_empty())), Some((3, false)));
    assert!(!object.face_mut().reap(NOW + 9, 100, &mut Recorder::none()) && object.is_empty());
    let mut object = Object::new(members);
    assert!(!object.face_mut().reap(NOW + 9, 100, &mut Recorder::none()) && object.is_empty());
    assert_eq!((object.get::<Set>().map(|set| set.len()), object.row()), (Some(0), Set::TYPE));
}

#[test] // After a flush of the database, 64 in a portion.
fn clocks_are_freed_in_portions() {
    let mut db = db();
    for at in 0..128 {
        set(&mut db, &at.to_string(), numbers(1), Deadline::At(NOW + 9));
    }
    // The keys are few enough to be freed at once. All other portions are those of the clocks.
    let keys_take = portions(|| drop(db.keys().clone()));
    let taken = portions(|| db.flush());
    assert!(taken >= keys_take + 2, "{taken} {keys_take}");
    assert_eq!((db.next_death(), portions(|| db.flush())), (None, 0));
}

#[test]
fn clocks_pending_to_be_freed_report_their_bytes() {
    const CLOCKS: usize = 10_000;
    let mut db = db();
    for at in 0..CLOCKS {
        set(&mut db, &at.to_string(), numbers(1), Deadline::At(NOW + 9));
    }
    let held = db.memory_bytes();
    portions(|| ());
    let before = lazyfree::waiting().1;
    db.flush();
    let waiting = lazyfree::waiting().1 - before;
    assert!(waiting > CLOCKS * 40 && waiting <= held, "{waiting} of {held}");
    while !lazyfree::is_empty() {
        let before = lazyfree::waiting().1;
        lazyfree::run(&Countdown::new(0));
        let freed = before.saturating_sub(lazyfree::waiting().1);
        assert!(freed < waiting / 4, "{freed} of {waiting} at once");
    }
}

#[test]
fn settling_frees_the_gaps_of_loose_removals() {
    const KEYS: usize = 20_000;
    let [mut loose, mut tidy] = [db(), db()];
    let names: Vec<String> = numbers(KEYS).collect();
    for name in &names {
        for db in [&mut loose, &mut tidy] {
            db.set_text(&Key::new(name.as_bytes()), Fresh::Bytes(&[b'v'; 30]), Deadline::Clear);
        }
    }
    for key in names[100..].iter().map(|name| Key::new(name.as_bytes())) {
        assert!(loose.remove_loosely(&key) && tidy.remove(&key));
    }
    let before = loose.memory_bytes();
    assert!(before > 2 * tidy.memory_bytes(), "{before}");
    let mut next = Some(0);
    while let Some(hash) = next {
        next = loose.settle(hash);
    }
    assert!(loose.memory_bytes() < before / 2, "{} of {before}", loose.memory_bytes());
    loose.check_invariants();
}

/// The number of portions in which the memory released by `act` is freed.
fn portions(act: impl FnOnce()) -> usize {
    while !lazyfree::is_empty() {
        lazyfree::run(&Never);
    }
    act();
    let mut portions = 0;
    while !lazyfree::is_empty() {
        lazyfree::run(&Countdown::new(0));
        portions += 1;
    }
    portions
}

#[test] // Each once.
fn changes_are_recorded_only_while_the_log_has_a_reader() {
    let mut db = db();
    assert!(!db.is_listening());
    set(&mut db, "k", numbers(2), Deadline::Clear);
    assert!(db.take_records().is_empty());
    db.listen(true);
    assert!(db.is_listening());
    set(&mut db, "k", numbers(3), Deadline::Clear); // One of these members is new.
    db.edit::<Set, _>(&Key::new(b"k"), false, |edit| edit.remove(b"0")).unwrap();
    hash(&mut db, "h", numbered(1));
    db.edit::<Hash, _>(&Key::new(b"h"), false, |edit| edit.remove(b"0")).unwrap();
    let records = db.take_records();
    assert_eq!(
        records.iter().map(name).collect::<Vec<_>>(),
        ["Add", "Remove", "Put", "Remove", "Delete"]
    );
    assert!(records.iter().map(|record| record.number).eq(1..6), "I1 of the log");
    db.listen(false);
    assert!(db.remove(&Key::new(b"k")) && db.take_records().is_empty());
}

/// The names of the recorded changes, joined if one edit made several.
fn name(record: &Record) -> String {
    let first =
        |debug: String| -> String { debug.chars().take_while(char::is_ascii_alphabetic).collect() };
    match &record.act {
        Act::Key(_, Effect::Changes(changes)) => first(format!("{changes:?}")[1..].to_owned()),
        Act::Key(_, effect) => first(format!("{effect:?}")),
        act => first(format!("{act:?}")),
    }
}

#[test] // Or a few, if its list would be long.
fn an_edit_makes_one_record() {
    let mut db = db();
    db.listen(true);
    hash(&mut db, "h", numbered(200));
    hash(&mut db, "h", numbered(2));
    let counts = |db: &mut Db| {
        let of = |record: Record| match record.act {
            Act::Key(key, Effect::Changes(changes)) => {
                assert_eq!((&*key, changes.kind()), (&b"h"[..], Hash::TYPE));
                changes.count()
            }
            act => panic!("{act:?}"),
        };
        db.take_records().into_iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(counts(&mut db), [200, 2]);
    hash(&mut db, "h", numbered(600));
    assert_eq!(counts(&mut db), [256, 256, 88]);
}

#[test] // A replayed copy ends up equal.
fn expiry_found_by_the_sweeper_is_recorded() {
    let mut db = db();
    db.listen(true);
    set(&mut db, "set", numbers(10), Deadline::At(NOW + 1));
    db.set_text(&Key::new(b"text"), Fresh::Bytes(b"v"), Deadline::At(NOW + 1));
    hash(&mut db, "hash", numbered(2));
    db.edit::<Hash, _>(&Key::new(b"hash"), false, |edit| {
        (0..2).for_each(|at| assert!(edit.set_deadline(at.to_string().as_bytes(), Some(NOW + 1))));
    })
    .unwrap();
    db.set_now(NOW + 1);
    let mut rounds = 0;
    while db.reap(4) {
        rounds += 1;
    }
    assert!(rounds >= 3, "ten members, about four at a time: {rounds}");
    let (mut copy, mut gone) = (Db::default(), 0);
    for record in db.take_records() {
        if let Act::Key(_, Effect::Changes(changes)) = &record.act {
            gone += changes.count() * usize::from(format!("{changes:?}").starts_with("[Remove"));
        }
        apply_to_db(&mut copy, &record.act).unwrap();
    }
    assert_eq!(gone, 12, "each member and field that time removed");
    assert!(db.is_empty() && copy.is_empty());
    assert_eq!((*copy.usage(), copy.expires_len()), (Usage::default(), 0));
}

#[test] // In portions.
fn segments_shared_with_a_cut_are_copied_before_a_change() {
    let (key, many) = (Key::new(b"k"), 20_000);
    let names: Vec<String> = numbers(many).collect();
    let named: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let others: Vec<Vec<u8>> = (0..many).map(|at| format!("new:{at}").into_bytes()).collect();
    let others: Vec<&[u8]> = others.iter().map(Vec::as_slice).collect();
    for kind in [Hash::TYPE, Set::TYPE] {
        let mut db = db();
        if kind == Hash::TYPE {
            hash(&mut db, "k", numbered(many));
        } else {
            set(&mut db, "k", numbers(many), Deadline::Clear);
        }
        let wrong = if kind == Hash::TYPE { Set::TYPE } else { Hash::TYPE };
        for (asked, touch, names, copies) in [
            (kind, Touch::All, &named, true),
            (kind, Touch::Present, &named, true),
            (kind, Touch::Absent, &named, false),
            (kind, Touch::Present, &others, false),
            (kind, Touch::Absent, &others, true),
            (wrong, Touch::All, &named, false),
        ] {
            let cut = db.get(&key).unwrap().hold();
            let (mut portions, mut from) = (0, 0);
            while let Some(looked_at) =
                db.unshare(&key, (asked, touch), &names[from..], &Countdown::new(0))
            {
                assert!((1..=names.len() - from).contains(&looked_at));
                (portions, from) = (portions + 1, from + looked_at);
            }
            assert_eq!(portions > 3, copies, "{kind:?} {asked:?} {touch:?} {portions}");
            assert_eq!(db.unshare(&key, (asked, touch), names, &Countdown::new(0)), None, "again");
            drop(cut);
            db.check_invariants();
        }
        assert_eq!(db.unshare(&Key::new(b"none"), (kind, Touch::All), &named, &Never), None);
    }
}

#[test]
fn copying_ahead_continues_after_the_last_copied_name() {
    let key = Key::new(b"k");
    let names: Vec<String> = (0..40).map(|at| format!("name:{at}")).collect();
    let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    for at in [0, 1, 15, 16, 17, 31, 33, 39] {
        let mut db = db();
        hash(&mut db, "k", numbered(5_000));
        hash(&mut db, "k", [(format!("name:{at}"), b"v".to_vec())]);
        let touch = (Hash::TYPE, Touch::Present); // The change touches this name alone.
        let cut = db.get(&key).unwrap().hold();
        assert_eq!(db.unshare(&key, touch, &names, &Countdown::new(0)), Some(at + 1));
        assert_eq!(db.unshare(&key, touch, &names[at + 1..], &Countdown::new(0)), None);
        drop(cut);
    }
}

#[test] // They keep their deadlines.
fn only_live_long_strings_are_edited_in_place() {
    let mut db = one_of_each();
    db.set_text(&Key::new(b"timed"), Fresh::Bytes(&[b'x'; 5_000]), Deadline::At(NOW + 5));
    let append = |db: &mut Db, name: &str, more: usize| {
        let key = Key::new(name.as_bytes());
        let len = db.text(&key).ok().flatten().map_or(0, |text| text.len());
        db.write_text(&key, len, Fresh::Bytes(&vec![b'y'; more]), event::APPEND)
    };
    for name in ["short", "hash", "set", "absent"] {
        assert_eq!(append(&mut db, name, 10), None, "{name}");
    }
    let held = db.get(&Key::new(b"long")).unwrap().hold();
    assert_eq!(append(&mut db, "long", 100_000), Some(105_000));
    assert_eq!(append(&mut db, "timed", 10), Some(5_010));
    let long = db.get(&Key::new(b"long")).unwrap();
    let text = long.text().unwrap().to_vec();
    assert!(text[..5_000].iter().all(|byte| *byte == b'x') && text[5_000..].contains(&b'y'));
    assert_eq!((text.len(), long.encoding(), long.is_raw()), (105_000, "raw", true));
    assert_eq!(held.as_text().map(|text| text.fresh().len()), Some(5_000), "a cut is spared");
    assert_eq!(db.get(&Key::new(b"timed")).unwrap().deadline(), Some(NOW + 5));
    assert!(db.usage().bytes(Blob::TYPE) >= 110_000, "{}", db.usage().bytes(Blob::TYPE));
    db.check_invariants();
    db.set_now(NOW + 5);
    assert_eq!(append(&mut db, "timed", 10), None);
}

#[test] // Types without values use only the names.
fn every_type_accepts_pairs_from_debug_populate() {
    for kind in TYPES.iter().filter(|kind| !kind.rdb.is_text()) {
        let mut object = (kind.empty)();
        let value = Fresh::Bytes(b"5"); // The value of a sorted set's member is its score.
        let pair = NewItem::Pair { name: b"name", value, deadline: None };
        assert!(object.face_mut().take_in(pair), "{}", kind.name);
        assert!(!object.is_empty());
    }
}

#[test] // Not at the time of the reading.
fn a_cut_hides_entries_expired_at_its_instant() {
    let db = one_of_each();
    for (now, alive) in [(NOW + 4, 7), (NOW + 5, 6)] {
        let mut found = 0;
        db.keys().for_each(&mut |entry| found += usize::from(Found::alive(entry, now).is_some()));
        assert_eq!(found, alive);
    }
}
