//! Loads files of Darter and of redis-server into shards, with and without threads.

use super::*;
use darter_base::preempt::{Countdown, Never};
use darter_base::{Prng, slot};
use darter_families::hash::{Hash, value_of};
use darter_families::list::List;
use darter_families::set::Set;
use darter_families::zset::ZSet;
use darter_keyspace::{Key, Shard};
use darter_rdb::{Event, Item, Kind, Survey, Writer};
use std::collections::{BTreeMap, BTreeSet};

#[path = "../../../persist/tests/common/mod.rs"]
mod oracle;

use oracle::{Bytes, Oracle, Record, Value, kind};

type Records = BTreeMap<(u32, Bytes), Record>;

const NOW: u64 = 1_700_000_000_000;
const DATABASES: usize = 4;

/// Writes a file that contains `records`.
fn file(records: &Records) -> Vec<u8> {
    let (mut writer, mut out) = (Writer::new(), Vec::new());
    writer.start(12, &mut out);
    writer.aux(b"redis-ver", b"7.0.15", &mut out);
    for ((database, key), record) in records {
        writer.select_db(*database, &mut out);
        put(&mut writer, key, record, &mut out);
    }
    writer.eof(&mut out);
    out
}

fn put(writer: &mut Writer, key: &[u8], record: &Record, out: &mut Vec<u8>) {
    let (kind, items) = items(&record.value);
    let mut survey = Survey::new(kind);
    items.iter().for_each(|item| survey.item(*item));
    writer.key(key, record.expiry_ms, survey.plan(), out);
    items.iter().for_each(|item| writer.item(*item, out));
    writer.end_of_key(out);
}

fn items(value: &Value) -> (&'static Kind, Vec<Item<'_>>) {
    match value {
        Value::String(text) => (kind("string"), text.chunks(50_000).map(Item::Chunk).collect()),
        Value::List(elements) => {
            let elements = elements.iter().map(|name| Item::Single { name, deadline_ms: None });
            (kind("list"), elements.collect())
        }
        Value::Set(members) => {
            let members = members.iter().map(|name| Item::Single { name, deadline_ms: None });
            (kind("set"), members.collect())
        }
        Value::Hash(fields) => {
            let fields = fields.iter().map(|pair| {
                let (name, value, deadline_ms): (&Bytes, _, _) = (pair.0, &pair.1.0, pair.1.1);
                Item::Pair { name, value, deadline_ms }
            });
            (kind("hash"), fields.collect())
        }
        Value::Items(items) => panic!("{items:?} are for comparing"),
    }
}

fn string(text: &[u8]) -> Record {
    Record { value: Value::String(text.to_vec()), expiry_ms: None }
}

fn hash(pairs: &[(&[u8], &[u8], Option<u64>)]) -> Record {
    let fields = pairs.iter().map(|(f, v, at)| (f.to_vec(), (v.to_vec(), *at))).collect();
    Record { value: Value::Hash(fields), expiry_ms: None }
}

fn set(members: &[&[u8]]) -> Record {
    Record { value: Value::Set(members.iter().map(|m| m.to_vec()).collect()), expiry_ms: None }
}

/// Loads `bytes` into `cores` shards, in this thread. Each portion is inserted when it is sent, in
/// slices of random length.
fn load(bytes: &[u8], cores: usize, prng: &mut Prng) -> Result<(Vec<Shard>, Summary), Cause> {
    let wakers = (0..cores).map(|_| Waker::new().unwrap()).collect();
    let (mut inboxes, lanes) = lanes(TYPES, wakers);
    let mut shards: Vec<_> = (0..cores).map(|core| Shard::new(DATABASES, core as u64)).collect();
    shards.iter_mut().for_each(|shard| shard.set_now(NOW));
    let (mut reader, mut sorter) = (
        Reader::new(TYPES.kinds(), Limits::default()).with_blocks(),
        Sorter::new(cores, DATABASES, NOW),
    );
    let mut questions = prng.clone();
    let mut send = |core: usize, portion| {
        let spare = lanes.send(core, portion)?;
        while inboxes[core].step(&mut shards[core], &Countdown::new(questions.below(4) as usize)) {}
        Ok(spare)
    };
    for piece in bytes.chunks(1 + prng.below(100_000) as usize) {
        reader.push(piece);
        while let Some(event) = reader.next().map_err(Cause::Format)? {
            sorter.take_in(event, 0, &mut send)?;
        }
    }
    reader.finish();
    while let Some(event) = reader.next().map_err(Cause::Format)? {
        sorter.take_in(event, 0, &mut send)?;
    }
    sorter.finish(&mut send)?;
    lanes.wait()?;
    assert!(inboxes.iter().all(Inbox::is_finished));
    shards.iter().flat_map(Shard::iter).for_each(|(_, db)| db.check_invariants());
    Ok((shards, sorter.summary()))
}

/// The contents of the shards. Asserts that every key is on the core that owns it.
fn contents(shards: &[Shard]) -> Records {
    let mut records = Records::new();
    for (core, shard) in shards.iter().enumerate() {
        for (database, db) in shard.iter() {
            db.keys().for_each(&mut |entry| {
                let key = entry.key().to_vec();
                assert_eq!(slot::core_of(slot::of(&key), shards.len()), core, "{key:?}");
                let found = db.get(&Key::new(&key)).expect("the living only");
                let value = if let Ok(text) = found.text() {
                    Value::String(text.to_vec())
                } else if let Ok(hash) = found.value::<Hash>() {
                    Value::Hash(fields(&hash))
                } else if let Ok(list) = found.value::<List>() {
                    let elements = list.elements();
                    let all = elements.range(0..elements.len());
                    Value::List(all.map(|element| element.to_vec()).collect())
                } else {
                    Value::Set(members(&found.value::<Set>().unwrap()))
                };
                let record = Record { value, expiry_ms: found.deadline() };
                assert!(records.insert((database as u32, key), record).is_none());
            });
        }
    }
    records
}

fn fields(hash: &darter_families::hash::Hash) -> BTreeMap<Bytes, (Bytes, Option<u64>)> {
    let mut fields = BTreeMap::new();
    hash.fields().for_each(&mut |entry| {
        fields.insert(entry.key().to_vec(), (value_of(&entry).to_vec(), entry.deadline()));
    });
    fields
}

fn members(set: &darter_families::set::Set) -> BTreeSet<Bytes> {
    let mut members = BTreeSet::new();
    set.members().for_each(&mut |entry| {
        members.insert(entry.key().to_vec());
    });
    members
}

fn random_records(prng: &mut Prng) -> Records {
    let mut records = Records::new();
    for index in 0..prng.below(60) {
        let many = if prng.chance(10) { 3_000 } else { 1 + prng.below(40) };
        let value = match prng.below(4) {
            0 if prng.chance(10) => Value::String(prng.bytes(60_000..=200_000)),
            0 => Value::String(prng.bytes(0..=700)),
            1 => Value::Set((0..many).map(|_| prng.bytes(0..=12)).collect()),
            2 => Value::List((0..many).map(|_| prng.bytes(0..=12)).collect()),
            _ => Value::Hash(
                (0..many)
                    .map(|at| {
                        let long = if prng.chance(1) { 70_000 } else { 20 };
                        let deadline = prng.chance(20).then(|| NOW + 1 + prng.below(1 << 20));
                        (format!("f{at}").into_bytes(), (prng.bytes(0..=long), deadline))
                    })
                    .collect(),
            ),
        };
        let expiry_ms = prng.chance(30).then(|| NOW + 1 + prng.below(1 << 30));
        let key = (prng.below(DATABASES as u64) as u32, format!("key:{index}").into_bytes());
        records.insert(key, Record { value, expiry_ms });
    }
    records
}

#[test]
fn all_keys_of_our_files_are_loaded_on_the_cores_that_own_them() {
    for seed in 0..12 {
        let mut prng = Prng::from_seed(seed);
        let records = random_records(&mut prng);
        let cores = 1 + prng.below(4) as usize;
        let (shards, summary) = load(&file(&records), cores, &mut prng).unwrap();
        assert!(contents(&shards) == records, "seed {seed}");
        assert_eq!(summary.keys, records.len() as u64, "seed {seed}");
    }
}

#[test] // The loading thread has no slices that would free deferred values.
fn loading_long_strings_leaves_nothing_to_be_freed_later() {
    let long = vec![b'v'; 300_000];
    let mut records = Records::new();
    for at in 0..20 {
        let record = if at % 2 == 0 { string(&long) } else { hash(&[(b"f", &long, None)]) };
        records.insert((0, format!("key:{at}").into_bytes()), record);
    }
    let (shards, _) = load(&file(&records), 1, &mut Prng::from_seed(3)).unwrap();
    assert!(darter_base::lazyfree::is_empty());
    assert!(contents(&shards) == records);
}

#[test]
fn a_file_written_by_redis_server_is_loaded() {
    let mut oracle = Oracle::start(&[]);
    let mut prng = Prng::from_seed(7);
    for index in 0..400_u32 {
        let key = format!("key:{index}");
        oracle.must(&[b"SELECT", (index % 4).to_string().as_bytes()]);
        let count = if index % 50 == 0 { 2_000 } else { 1 + index % 30 };
        for _ in 0..count {
            let (one, other) = (prng.bytes(1..=12), prng.bytes(0..=90));
            match index % 3 {
                0 => oracle.must(&[b"HSET", key.as_bytes(), &one, &other]),
                1 => oracle.must(&[b"SADD", key.as_bytes(), &one]),
                _ => oracle.must(&[b"APPEND", key.as_bytes(), &other]),
            };
        }
        if index % 7 == 0 {
            oracle.must(&[b"PEXPIRE", key.as_bytes(), b"100000000"]);
        }
    }
    oracle.must(&[b"SELECT", b"1"]);
    oracle.must(&[b"SETRANGE", b"long", b"300000", b"end"]);
    let bytes = oracle.save();
    for cores in [1, 3] {
        let (shards, _) = load(&bytes, cores, &mut prng).unwrap();
        assert!(contents(&shards) == oracle.records(4), "{cores} cores");
    }
}

#[test]
fn files_with_a_missing_end_or_a_flipped_bit_are_refused() {
    let mut prng = Prng::from_seed(3);
    let mut records = random_records(&mut prng);
    records.insert((0, b"long".to_vec()), string(&[b'x'; 200_000]));
    let bytes = file(&records);
    for at in (0..bytes.len()).step_by(bytes.len() / 150) {
        assert!(matches!(load(&bytes[..at], 2, &mut prng), Err(Cause::Format(_))), "{at}");
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << prng.below(8);
        assert!(load(&flipped, 2, &mut prng).is_err(), "{at}");
    }
}

#[test]
fn expired_and_empty_keys_are_skipped() {
    let mut records = Records::new();
    let dead = |mut record: Record| {
        record.expiry_ms = Some(NOW - 1);
        record
    };
    records.insert((0, b"dead-string".to_vec()), dead(string(&[b'x'; 150_000])));
    records.insert((0, b"dead-hash".to_vec()), dead(hash(&[(b"f", b"v", None)])));
    records.insert((0, b"dead-set".to_vec()), dead(set(&[b"m"])));
    records.insert((0, b"hollow".to_vec()), hash(&[(b"f", b"v", Some(NOW))]));
    let fields: [(&[u8], &[u8], _); 2] =
        [(b"dead", b"v", Some(5)), (b"alive", b"v", Some(NOW + 1))];
    records.insert((1, b"half".to_vec()), hash(&fields));
    let (shards, summary) = load(&file(&records), 2, &mut Prng::from_seed(1)).unwrap();
    let expected = Records::from([((1, b"half".to_vec()), hash(&fields[1..]))]);
    assert_eq!(contents(&shards), expected);
    let figures = (summary.keys, summary.entries, summary.expired, summary.empty);
    assert_eq!(figures, (1, 1, 3, 1));
}

/// A file of pieces that were written by hand.
fn by_hand(body: &[u8]) -> Vec<u8> {
    let mut bytes = b"REDIS0010".to_vec();
    bytes.extend_from_slice(body);
    bytes.push(0xff);
    bytes.extend_from_slice(&[0; 8]); // 0 stands for no checksum.
    bytes
}

#[test] // The longest idle time is clamped. A key without one counts as just used.
fn idle_times_in_the_file_are_kept() {
    const DAY: u64 = 86_400;
    let mut body = Vec::new();
    for (key, idle) in [(b'a', 1_000_u32), (b'b', 90 * 86_400), (b'c', u32::MAX)] {
        body.extend_from_slice(&[0xf8, 0x80]);
        body.extend_from_slice(&idle.to_be_bytes());
        body.extend_from_slice(&[0, 1, key, 1, b'v']);
    }
    // A string without an idle time, and a set with one.
    body.extend_from_slice(&[0, 1, b'd', 1, b'v']);
    body.extend_from_slice(&[0xf8, 0x05, 2, 1, b'e', 1, 1, b'm']);
    let (shards, _) = load(&by_hand(&body), 1, &mut Prng::from_seed(1)).unwrap();
    let idle = |key: &[u8]| shards[0].db(0).get(&Key::new(key)).unwrap().idle_seconds(NOW);
    assert_eq!([b"a", b"b", b"d", b"e"].map(|key| idle(key)), [1_000, 90 * DAY, 0, 5]);
    assert!((91 * DAY..92 * DAY).contains(&idle(b"c")), "{}", idle(b"c"));
}

#[test]
fn files_that_redis_refuses_are_refused() {
    let mut prng = Prng::from_seed(1);
    let mut refused = |body: &[u8]| match load(&by_hand(body), 1, &mut prng) {
        Err(cause) => cause.to_string(),
        Ok(_) => panic!("loaded {body:?}"),
    };
    let text = refused(b"\x00\x01k\x01a\xfe\x01\x00\x01k\x01a\x00\x01k\x01b");
    assert!(text.contains("duplicate key 'k' in database 1"), "{text}");
    let text = refused(b"\x02\x01k\x01\x01a\x00\x01k\x01b");
    assert!(text.contains("duplicate key 'k' in database 0"), "{text}");
    let text = refused(b"\x04\x01h\x02\x01f\x01a\x01f\x01b");
    assert!(text.contains("duplicate or damaged field or member in key 'h'"), "{text}");
    let text = refused(b"\x11\x01z\x0d\x0d\0\0\0\x02\0\x81m\x02\x81x\x02\xff");
    // The score is not a number.
    assert!(text.contains("or damaged field or member in key 'z'"), "{text}");
    let text = refused(b"\xcf\x01j\x01\x01[");
    // The document is truncated.
    assert!(text.contains("or damaged field or member in key 'j'"), "{text}");
    let text = refused(b"\x02\x01s\x02\x01f\x01f");
    assert!(text.contains("duplicate or damaged field or member in key 's'"), "{text}");
    let text = refused(b"\xfe\x04\x00\x01k\x01a");
    assert!(text.contains("database 4 exceeds the setting 'databases' (4)"), "{text}");
    let text = refused(b"\x07\x01k\x01a");
    assert!(text.contains("unsupported value type 'module'"), "{text}");
    let text = refused(b"\x63\x01k\x01a");
    assert!(text.contains("99 at offset 9"), "{text}");
}

#[path = "../../../keyspace/tests/heap/mod.rs"]
mod heap;

static TOYS: Types = darter_keyspace::types![&heap::HEAP];

#[test] // The type is the example of docs/adding-a-type.md.
fn a_type_that_the_loader_does_not_mention_is_loaded() {
    let file = b"REDIS0010\xca\x04heap\x03\x0217\xc0\x05\x0217\xff\0\0\0\0\0\0\0\0";
    let (mut inboxes, lanes) = lanes(TOYS, vec![Waker::new().unwrap()]);
    let mut sorter = Sorter::new(1, 1, NOW);
    let mut send = |core, portion| lanes.send(core, portion);
    let mut reader = Reader::new(TOYS.kinds(), Limits::default());
    reader.push(file);
    while let Some(event) = reader.next().unwrap() {
        sorter.take_in(event, 0, &mut send).unwrap();
    }
    sorter.finish(&mut send).unwrap();
    let mut shard = Shard::new(1, 0);
    while inboxes[0].step(&mut shard, &Never) {}
    let heap = shard.db(0).value::<heap::Heap>(&Key::new(b"heap")).unwrap().unwrap();
    assert_eq!(heap.0, [17, 5, 17]);
    shard.db(0).check_invariants();
}

#[test]
fn a_large_hash_is_loaded_in_small_steps() {
    let fields: Vec<Bytes> = (0..5_000).map(|at| format!("field:{at}").into_bytes()).collect();
    let pairs: Vec<(&[u8], &[u8], _)> = fields.iter().map(|f| (&f[..], &b"v"[..], None)).collect();
    let bytes = file(&Records::from([((0, b"big".to_vec()), hash(&pairs))]));
    let (mut inboxes, lanes) = lanes(TYPES, vec![Waker::new().unwrap()]);
    let mut sorter = Sorter::new(1, 1, NOW);
    let mut send = |core, portion| lanes.send(core, portion);
    let mut reader = Reader::new(TYPES.kinds(), Limits::default());
    reader.push(&bytes);
    while let Some(event) = reader.next().unwrap() {
        sorter.take_in(event, 0, &mut send).unwrap();
    }
    sorter.finish(&mut send).unwrap();
    let mut shard = Shard::new(1, 0);
    let mut steps = 0;
    while inboxes[0].step(&mut shard, &Countdown::new(0)) {
        steps += 1;
        let there = shard.db(0).exists(&Key::new(b"big"));
        assert!(!there || inboxes[0].is_finished() || steps >= 5_000 / 16, "step {steps}");
    }
    assert!(steps >= 5_000 / 16, "{steps}");
    assert_eq!(shard.db(0).value::<Hash>(&Key::new(b"big")).unwrap().unwrap().len(), 5_000);
    assert!(inboxes[0].is_finished());
}

/// A set or hash in the plain format, with the number of its kind in the file. `texts` are the
/// members, or the fields and values.
fn plain_of(kind: u8, entries: u32, texts: &[Bytes]) -> Vec<u8> {
    let mut body = vec![kind, 1, b'p', 0x80];
    body.extend_from_slice(&entries.to_be_bytes());
    for text in texts {
        body.push(text.len() as u8);
        body.extend_from_slice(text);
    }
    body
}

/// Loads a file, and completes its values after the last portion, in the smallest possible steps.
/// Returns the shard and the number of steps.
fn load_slowly(bytes: &[u8]) -> (Shard, usize) {
    let (mut inboxes, lanes) = lanes(TYPES, vec![Waker::new().unwrap()]);
    let (mut sorter, mut shard, mut steps) = (Sorter::new(1, 1, NOW), Shard::new(1, 0), 0);
    let mut send = |core: usize, portion: LoadPortion| {
        let is_last = portion.is_last;
        let spare = lanes.send(core, portion)?;
        while inboxes[core].step(&mut shard, &Countdown::new(if is_last { 0 } else { 1_000 })) {
            steps += usize::from(is_last);
        }
        Ok(spare)
    };
    let size = bytes.len() as u64;
    let mut reader = Reader::new(TYPES.kinds(), Limits::default()).with_size(size).with_blocks();
    reader.push(bytes);
    while let Some(event) = reader.next().unwrap() {
        sorter.take_in(event, 0, &mut send).unwrap();
    }
    sorter.finish(&mut send).unwrap();
    (shard, steps)
}

/// The number of items that are gathered before any is added.
const GATHERED: u32 = 140_000;

#[test]
fn a_set_with_very_many_members_is_loaded_in_small_steps() {
    let mut names: Vec<Bytes> = (0..GATHERED).map(|at| at.to_string().into_bytes()).collect();
    let (shard, steps) = load_slowly(&by_hand(&plain_of(2, GATHERED, &names)));
    assert!(steps >= GATHERED as usize / 64, "{steps} steps add them");
    let set = shard.db(0).value::<Set>(&Key::new(b"p")).unwrap().unwrap();
    set.members().check_invariants();
    assert!(names.iter().all(|name| set.contains(name, NOW)));
    let encoding = shard.db(0).get(&Key::new(b"p")).unwrap().encoding();
    assert_eq!((set.len(), encoding), (names.len(), "hashtable"));

    names[7] = names[100_000].clone();
    let twice = by_hand(&plain_of(2, GATHERED, &names));
    let Err(cause) = load(&twice, 1, &mut Prng::from_seed(1)) else { panic!("one comes twice") };
    assert!(cause.to_string().contains("duplicate"), "{cause}");
}

#[test] // Some fields are not gathered: they have long names or large values.
fn a_hash_with_very_many_fields_is_loaded_in_small_steps() {
    let texts = |at: u32| match at % 1_000 {
        0 => [format!("{at:0>250}"), "v".to_owned()],
        1 => [format!("field:{at}"), format!("{at:0>255}").repeat(3)],
        _ => [format!("field:{at}"), at.to_string()],
    };
    let mut body = vec![4, 1, b'p', 0x80];
    body.extend_from_slice(&GATHERED.to_be_bytes());
    for text in (0..GATHERED).flat_map(texts) {
        body.extend_from_slice(&[0x40 | (text.len() >> 8) as u8, text.len() as u8]);
        body.extend_from_slice(text.as_bytes());
    }
    let (shard, steps) = load_slowly(&by_hand(&body));
    assert!(steps >= GATHERED as usize / 64, "{steps} steps add them");
    let hash = shard.db(0).value::<Hash>(&Key::new(b"p")).unwrap().unwrap();
    hash.fields().check_invariants();
    assert_eq!(hash.len(), GATHERED as usize);
    for [name, value] in (0..GATHERED).map(texts) {
        let entry = hash.get(name.as_bytes(), NOW).unwrap();
        assert_eq!(value_of(&entry).to_vec(), value.as_bytes(), "{name}");
    }
}

#[test] // The announced number is used only if the file can hold that many items.
fn a_value_with_fewer_items_than_announced_is_refused() {
    let names: Vec<Bytes> = (0..3_000).map(|at: u32| at.to_string().into_bytes()).collect();
    for kind in [2, 4, 5] {
        let file = by_hand(&plain_of(kind, 1_000_000_000, &names));
        let Err(cause) = load(&file, 1, &mut Prng::from_seed(1)) else { panic!("they are fewer") };
        assert!(cause.to_string().contains("offset"), "{cause}");
        let size = file.len() as u64;
        let mut reader = Reader::new(TYPES.kinds(), Limits::default()).with_size(size);
        reader.push(&file);
        let hint = loop {
            if let Event::Key { len_hint, .. } = reader.next().unwrap().expect("a key comes") {
                break len_hint;
            }
        };
        assert!(hint.is_some_and(|hint| (3_000..size).contains(&hint)), "{hint:?}");
    }
}

/// A sorted set with these members, in the order in which redis-server writes them.
fn scores_of(entries: &[(Bytes, f64)]) -> Vec<u8> {
    let mut body = b"\x05\x01z\x80".to_vec();
    body.extend_from_slice(&(entries.len() as u32).to_be_bytes());
    for (member, score) in entries.iter().rev() {
        body.push(member.len() as u8);
        body.extend_from_slice(member);
        body.extend_from_slice(&score.to_le_bytes());
    }
    body
}

#[test]
fn a_large_sorted_set_is_sorted_in_small_steps() {
    let name = |at: u32| format!("member:{at}").into_bytes();
    let mut entries: Vec<_> = (0..20_000).map(|at| (name(at), f64::from(at / 3))).collect();
    entries.sort_by(|one, other| one.1.total_cmp(&other.1).then_with(|| one.0.cmp(&other.0)));
    let (shard, steps) = load_slowly(&by_hand(&scores_of(&entries)));
    assert!(steps >= 20_000 / 256, "{steps} steps put it in order");
    let set = shard.db(0).value::<ZSet>(&Key::new(b"z")).unwrap().unwrap();
    set.entries().check_invariants();
    let all = set.entries().range(0..set.len()).map(|one| (one.member().to_vec(), one.score()));
    assert!(all.eq(entries.iter().cloned()));

    entries[7].0 = entries[12_000].0.clone();
    let Err(cause) = load(&by_hand(&scores_of(&entries)), 1, &mut Prng::from_seed(1)) else {
        panic!("a member came twice");
    };
    assert!(cause.to_string().contains("duplicate"), "{cause}");
}

#[test] // The clock is read after each value, even if a portion has many of them.
fn loading_may_pause_after_each_complete_value() {
    let set = |at: usize| {
        let members = (0..100).map(|member| format!("member:{member}").into_bytes()).collect();
        (
            (0, format!("set:{at}").into_bytes()),
            Record { value: Value::Set(members), expiry_ms: None },
        )
    };
    let bytes = file(&(0..40).map(set).collect());
    let (mut inboxes, lanes) = lanes(TYPES, vec![Waker::new().unwrap()]);
    let mut sorter = Sorter::new(1, 1, NOW);
    let mut send = |core, portion| lanes.send(core, portion);
    let mut reader = Reader::new(TYPES.kinds(), Limits::default()).with_blocks();
    reader.push(&bytes);
    while let Some(event) = reader.next().unwrap() {
        sorter.take_in(event, 0, &mut send).unwrap();
    }
    sorter.finish(&mut send).unwrap();
    let (mut shard, mut steps) = (Shard::new(1, 0), 0);
    while inboxes[0].step(&mut shard, &Countdown::new(0)) {
        steps += 1;
    }
    assert!(steps >= 40, "{steps}");
    assert_eq!(shard.db(0).len(), 40);
}

/// A list of `elements` in one packed block: the integers from 0 to 63, repeated.
fn block_of(elements: u16) -> Vec<u8> {
    let mut block = (u32::from(elements) * 2 + 7).to_le_bytes().to_vec();
    block.extend_from_slice(&elements.to_le_bytes());
    (0..elements).for_each(|at| block.extend_from_slice(&[(at % 64) as u8, 1]));
    block.push(0xff);
    block
}

/// A list of one node, in the format of Redis 7.0.
fn node(block: &[u8]) -> Vec<u8> {
    let mut body = b"\x12\x01l\x01\x02\x80".to_vec();
    body.extend_from_slice(&(block.len() as u32).to_be_bytes());
    body.extend_from_slice(block);
    body
}

#[test]
fn a_packed_block_is_loaded_in_small_steps() {
    let bytes = by_hand(&node(&block_of(5_000)));
    let (mut inboxes, lanes) = lanes(TYPES, vec![Waker::new().unwrap()]);
    let mut sorter = Sorter::new(1, 1, NOW);
    let mut send = |core, portion| lanes.send(core, portion);
    let mut reader = Reader::new(TYPES.kinds(), Limits::default()).with_blocks();
    reader.push(&bytes);
    let mut blocks = 0;
    while let Some(event) = reader.next().unwrap() {
        blocks += usize::from(matches!(event, Event::Block(_)));
        sorter.take_in(event, 0, &mut send).unwrap();
    }
    assert_eq!(blocks, 1);
    sorter.finish(&mut send).unwrap();
    let (mut shard, mut steps) = (Shard::new(1, 0), 0);
    while inboxes[0].step(&mut shard, &Countdown::new(0)) {
        steps += 1;
    }
    assert!(steps >= 5_000 / 128, "{steps}");
    let list = shard.db(0).value::<List>(&Key::new(b"l")).unwrap().unwrap();
    let all = list.elements().range(0..5_000).map(|element| element.to_vec());
    assert!(all.eq((0..5_000).map(|at| (at % 64).to_string().into_bytes())));
}

#[test] // If the key is skipped, only the sorter reads the block.
fn the_error_of_a_damaged_block_names_its_key_and_offset() {
    let mut block = block_of(100);
    block[6 + 2 * 50 + 1] = 9; // Damages the length that follows the fifty-first element.
    let dead = [&[0xfc][..], &(NOW - 1).to_le_bytes(), &node(&block)].concat();
    for (body, offset) in [(node(&block), 9 + 10 + 6 + 100), (dead, 18 + 10 + 6 + 100)] {
        let Err(cause) = load(&by_hand(&body), 1, &mut Prng::from_seed(1)) else {
            panic!("loaded {body:?}");
        };
        let text = cause.to_string();
        assert!(text.contains("an entry's length behind it is wrong"), "{text}");
        assert!(text.contains(&format!("offset {offset}")), "{text}");
    }
}

/// A file on disk, which is removed when this value is dropped.
struct Place(PathBuf);

impl Place {
    fn with(bytes: &[u8]) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("darter-load-{}-{count}.rdb", std::process::id());
        let place = Self(std::env::temp_dir().join(name));
        std::fs::write(&place.0, bytes).unwrap();
        place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn onto(databases: usize, progress: &Arc<Progress>) -> Onto {
    Onto {
        fs: Arc::new(darter_runtime::fs::Kernel),
        databases,
        verifies: true,
        progress: Arc::clone(progress),
        libraries: Arc::default(),
    }
}

/// Loads with [`open`], with a thread for each core. Returns the shards of the cores that finished.
fn load_with_threads(bytes: &[u8], cores: usize) -> (Result<Summary, LoadError>, Vec<Shard>) {
    let place = Place::with(bytes);
    let wakers: Vec<_> = (0..cores).map(|_| Waker::new().unwrap()).collect();
    let progress = Arc::new([const { AtomicU64::new(0) }; 6]);
    let (inboxes, opened) =
        open(Data::Rdb(place.0.clone()), wakers, onto(DATABASES, &progress)).unwrap();
    let handle = opened.begin(None).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = inboxes
        .cores
        .into_iter()
        .map(|mut inbox| {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                let mut shard = Shard::new(DATABASES, 0);
                shard.set_now(NOW);
                while !inbox.is_finished() && !over.load(Ordering::Relaxed) {
                    if !inbox.step(&mut shard, &Never) {
                        std::thread::yield_now();
                    }
                }
                inbox.is_finished().then_some(shard)
            })
        })
        .collect();
    let result = handle.join().map(|(summary, _)| summary);
    over.store(result.is_err(), Ordering::Relaxed);
    let shards = threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect();
    if let Ok(summary) = &result {
        assert_eq!(progress[KEYS].load(Ordering::Relaxed), summary.keys);
        assert_eq!(progress[READ].load(Ordering::Relaxed), bytes.len() as u64);
    }
    (result, shards)
}

#[test]
fn loading_with_threads_accepts_and_refuses_the_same_files() {
    let mut prng = Prng::from_seed(11);
    let mut records = random_records(&mut prng);
    let late = clock::unix_millis() + 1_000_000_000;
    for record in records.values_mut() {
        // Here, the machine's clock decides which keys have expired.
        record.expiry_ms = record.expiry_ms.map(|_| late);
        if let Value::Hash(fields) = &mut record.value {
            fields.values_mut().for_each(|field| field.1 = field.1.map(|_| late));
        }
    }
    let bytes = file(&records);
    let (summary, shards) = load_with_threads(&bytes, 3);
    assert_eq!(summary.unwrap().keys, records.len() as u64);
    assert!(contents(&shards) == records);

    let (result, shards) = load_with_threads(&bytes[..bytes.len() - 9], 3);
    let text = result.unwrap_err().to_string();
    assert!(text.contains(&format!("at offset {}", bytes.len() - 9)), "{text}");
    assert!(shards.is_empty(), "a core believes in half a file");

    let (result, shards) = load_with_threads(&by_hand(b"\x00\x01k\x01a\x00\x01k\x01b"), 1);
    assert!(result.unwrap_err().to_string().contains("duplicate"));
    assert!(shards.is_empty(), "a core believes in a file with duplicates");
}

#[test]
fn the_loader_stops_when_the_cores_stop_or_it_is_cancelled() {
    let records = Records::from([((0, b"k".to_vec()), string(&[b'x'; 5 << 20]))]);
    let place = Place::with(&file(&records));
    let progress = || Arc::new([const { AtomicU64::new(0) }; 6]);
    let waker = || vec![Waker::new().unwrap()];
    let (inboxes, opened) =
        open(Data::Rdb(place.0.clone()), waker(), onto(1, &progress())).unwrap();
    let handle = opened.begin(None).unwrap();
    drop(inboxes);
    assert!(matches!(handle.join().unwrap_err().cause, Cause::Stopped));

    // The core handles nothing, so the loading thread still runs when it is cancelled.
    let many = (0..100_u32).map(|at| ((0, at.to_be_bytes().to_vec()), string(&[b'x'; 60_000])));
    let place = Place::with(&file(&many.collect()));
    let (mut inboxes, opened) =
        open(Data::Rdb(place.0.clone()), waker(), onto(1, &progress())).unwrap();
    let handle = opened.begin(None).unwrap();
    assert!(!handle.is_finished());
    handle.cancel();
    let mut shard = Shard::new(1, 0);
    while !handle.is_finished() {
        inboxes.cores[0].step(&mut shard, &Never);
    }
    assert!(matches!(handle.join().unwrap_err().cause, Cause::Stopped));
    assert!(!inboxes.cores[0].is_finished());
    assert!(open(Data::Rdb("/no/such/file".into()), waker(), onto(1, &progress())).is_err());
}
