//! Snapshots of cuts: the chunks have the contents of the databases.

use crate::common::{Bytes, File, Record, Value, read};
use darter_base::Prng;
use darter_families::hash::Hash;
use darter_families::set::Set;
use darter_keyspace::{Deadline, Fresh, Key, Shard};
use darter_persist::snapshot::{Chunk, Part, Portions, Snapshot, Step, Style};
use darter_rdb::Writer;
use std::collections::BTreeMap;

const NOW: u64 = 1_800_000_000_000;
/// Beyond which the tests live.
const LATER: u64 = 4_000_000_000_000;

/// The model of a shard, by database and key.
type Model = BTreeMap<(u32, Bytes), Record>;

fn shard() -> Shard {
    let mut shard = Shard::new(100, 1);
    shard.set_now(NOW);
    shard
}

fn set_text(
    shard: &mut Shard,
    db: u32,
    key: &[u8],
    value: &[u8],
    expiry_ms: Option<u64>,
) -> Record {
    let value_of = Fresh::Bytes(value);
    shard.db_mut(db as usize).set_text(&Key::new(key), value_of, Deadline::from(expiry_ms));
    Record { value: Value::String(value.to_vec()), expiry_ms }
}

fn set_fields(shard: &mut Shard, db: u32, key: &[u8], fields: &Fields) -> Record {
    let edited = shard.db_mut(db as usize).edit::<Hash, _>(&Key::new(key), true, |edit| {
        for (name, (value, deadline)) in fields {
            edit.set(name, Fresh::Bytes(value), Deadline::from(*deadline));
        }
    });
    edited.unwrap();
    Record { value: Value::Hash(fields.clone()), expiry_ms: None }
}

type Fields = BTreeMap<Bytes, (Bytes, Option<u64>)>;

fn add_members(shard: &mut Shard, key: &[u8], members: &[(Bytes, Option<u64>)]) -> Record {
    let edited = shard.db_mut(0).edit::<Set, _>(&Key::new(key), true, |edit| {
        for (name, deadline) in members {
            edit.add(name, Deadline::from(*deadline));
        }
    });
    edited.unwrap();
    let names = members.iter().map(|(name, _)| name.clone()).collect();
    Record { value: Value::Set(names), expiry_ms: None }
}

fn parts(shard: &Shard) -> Vec<Part> {
    let part = |(at, db): (usize, &darter_keyspace::Db)| Part {
        database: at as u32,
        keys: db.keys().reader(),
        now: db.now(),
        bytes: db.memory_bytes(),
    };
    shard.iter().filter(|(_, db)| !db.is_empty()).map(part).collect()
}

fn chunks(shard: &Shard, style: Style) -> Vec<Chunk> {
    chunks_of(Snapshot::new(parts(shard), style))
}

fn chunks_of(mut snapshot: Snapshot) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    loop {
        match snapshot.step() {
            Step::More => {}
            Step::Chunk(chunk) => chunks.push(chunk),
            Step::Done => return chunks,
        }
    }
}

/// A file of these chunks, which may come from several cores as long as open ones are continued.
fn file(chunks: &[Chunk], version: u16) -> Vec<u8> {
    let (mut writer, mut out) = (Writer::new(), Vec::new());
    let mut is_open = false;
    writer.start(version, &mut out);
    for chunk in chunks {
        if !is_open {
            writer.select_db(chunk.database, &mut out);
        }
        writer.follow(&chunk.bytes);
        out.extend_from_slice(&chunk.bytes);
        is_open = chunk.is_open;
    }
    assert!(!is_open, "the last value is not ended");
    writer.eof(&mut out);
    out
}

fn saved(shard: &Shard, style: Style, version: u16) -> File {
    let chunks = chunks(shard, style);
    let keys: u64 = chunks.iter().map(|chunk| chunk.keys).sum();
    let file = read(&file(&chunks, version), 4_096, false).unwrap();
    assert_eq!(keys, file.keys.len() as u64, "every key is counted");
    file
}

fn text(prng: &mut Prng, most: usize) -> Bytes {
    let len = prng.below(most as u64 + 1) as usize;
    match prng.below(3) {
        0 => vec![b'a'; len],
        1 => prng.next_u64().to_string().into_bytes(),
        _ => prng.bytes(len..=len),
    }
}

fn fields(prng: &mut Prng, count: u64, most: usize) -> Fields {
    (0..count).map(|at| (format!("f{at}").into_bytes(), (text(prng, most), None))).collect()
}

fn fill(shard: &mut Shard, prng: &mut Prng) -> Model {
    let mut model = Model::new();
    for at in 0..400_u64 {
        let db = [0, 0, 3, 77][prng.below(4) as usize];
        let key =
            if at % 97 == 0 { vec![b'k'; 70_000 + at as usize] } else { at.to_string().into() };
        shard.db_mut(db as usize).remove(&Key::new(&key)); // The key may hold another type.
        let record = match prng.below(10) {
            0 => {
                let fields = fields(prng, 1 + at * 3, 40);
                set_fields(shard, db, &key, &fields)
            }
            1 => {
                let fields = fields(prng, 5, 9_000);
                set_fields(shard, db, &key, &fields)
            }
            2 => {
                let value = text(prng, 200_000);
                set_text(shard, db, &key, &value, None)
            }
            _ => {
                let expiry_ms = prng.chance(30).then_some(LATER + at);
                let value = text(prng, 700);
                set_text(shard, db, &key, &value, expiry_ms)
            }
        };
        model.insert((db, key), record);
    }
    for (key, count) in [("few", 3), ("some", 600), ("many", 40_000_u64)] {
        let names = |at: u64| (format!("m{}", at * 7).into_bytes(), None);
        let members: Vec<_> = (0..count).map(names).collect();
        model.insert((0, key.into()), add_members(shard, key.as_bytes(), &members));
    }
    model
}

// Whatever the style; and the cut is of one instant, though all is overwritten during the snapshot.
#[test]
fn changes_after_the_cut_are_not_in_the_snapshot() {
    for seed in 0..4 {
        let (mut shard, mut prng) = (shard(), Prng::from_seed(seed));
        let model = fill(&mut shard, &mut prng);
        let style = Style { packs: seed % 2 == 0, tells_idle: seed == 3 };
        let mut snapshot = Snapshot::new(parts(&shard), style);
        fill(&mut shard, &mut prng);
        shard.db_mut(3).flush();
        let mut chunks = Vec::new();
        loop {
            match snapshot.step() {
                Step::More => {}
                Step::Chunk(chunk) => chunks.push(chunk),
                Step::Done => break,
            }
        }
        let file = read(&file(&chunks, 10), 4_096, false).unwrap();
        assert!(file.keys == model, "seed {seed}");
        assert_eq!(file.idle, if style.tells_idle { model.len() } else { 0 });
        let longest = chunks.iter().map(|chunk| chunk.bytes.len()).max().unwrap();
        assert!(longest < 220_000, "{longest} bytes in a chunk");
        assert!(chunks.iter().any(|chunk| chunk.is_open), "a long value takes several chunks");
    }
}

#[test]
fn the_last_value_is_complete_even_if_it_fills_a_chunk() {
    let mut shard = shard();
    let all = (0..200).map(|n| (format!("field-{n}").into_bytes(), (vec![b'v'; 100], None)));
    let record = set_fields(&mut shard, 0, b"hash", &all.collect());
    for chunk_bytes in 21_000..23_000 {
        let portions = Portions { chunk_bytes, step_bytes: 64, ..Portions::default() };
        let chunks = chunks_of(Snapshot::in_portions(parts(&shard), Style::default(), portions));
        let file = read(&file(&chunks, 10), 4_096, false).unwrap();
        assert_eq!(file.keys[&(0, b"hash".to_vec())], record, "{chunk_bytes}");
    }
}

#[test]
fn compression_makes_a_snapshot_smaller() {
    let mut shard = shard();
    for at in 0..1_000_u32 {
        set_text(&mut shard, 0, &at.to_le_bytes(), &[b'x'; 300], None);
    }
    let bytes = |packs| -> usize {
        let style = Style { packs, ..Style::default() };
        chunks(&shard, style).iter().map(|chunk| chunk.bytes.len()).sum()
    };
    assert!(bytes(true) * 10 < bytes(false), "{} and {}", bytes(true), bytes(false));
}

#[test] // Also for a value that compresses to nearly nothing.
fn steps_are_bounded_by_the_bytes_they_read() {
    let mut shard = shard();
    let name = |at: u64| at.to_string().into_bytes();
    let fields: Fields = (0..1_000).map(|at| (name(at), (vec![0; 4_000], None))).collect();
    set_fields(&mut shard, 0, b"k", &fields);
    let style = Style { packs: true, tells_idle: false };
    let mut snapshot = Snapshot::new(parts(&shard), style);
    let mut steps = 0;
    while !matches!(snapshot.step(), Step::Done) {
        steps += 1;
    }
    // The value has 4 MB, written in one pass of four fields a step.
    assert!(steps > 225, "{steps}");
}

#[test]
fn expired_keys_and_fields_are_not_saved() {
    let mut shard = shard();
    set_text(&mut shard, 0, b"alive", b"v", Some(NOW + 10_000));
    set_text(&mut shard, 0, b"dead", b"v", Some(NOW + 10));
    let fields = Fields::from([(b"f".to_vec(), (b"v".to_vec(), Some(NOW + 10)))]);
    set_fields(&mut shard, 0, b"hollow", &fields);
    shard.set_now(NOW + 100);
    let file = saved(&shard, Style::default(), 12);
    let names: Vec<&[u8]> = file.keys.keys().map(|(_, key)| &key[..]).collect();
    assert_eq!(names, [b"alive"]);
}

#[test] // Hashes in Redis 7.4's format, sets in our own.
fn deadlines_of_fields_and_members_are_saved() {
    let (mut shard, mut prng) = (shard(), Prng::from_seed(1));
    let mut model = Model::new();
    for (key, count) in [("small", 10), ("large", 5_000)] {
        let mut fields = fields(&mut prng, count, 30);
        fields.values_mut().step_by(3).for_each(|(_, deadline)| *deadline = Some(LATER + count));
        model.insert((0, key.into()), set_fields(&mut shard, 0, key.as_bytes(), &fields));
    }
    let file = saved(&shard, Style { packs: true, ..Style::default() }, 12);
    assert!(file.keys == model);
    assert_eq!(file.encodings, [24, 25].into());
    for (key, count) in [("few", 10), ("many", 5_000_u64)] {
        let name = |at: u64| (at.to_string().into_bytes(), at.is_multiple_of(2).then_some(LATER));
        let members: Vec<_> = (0..count).map(name).collect();
        model.insert((0, key.into()), add_members(&mut shard, key.as_bytes(), &members));
    }
    let file = saved(&shard, Style { packs: true, ..Style::default() }, 12);
    assert!(file.keys == model);
    assert_eq!(file.encodings, [24, 25, 224, 225].into());
    assert!(chunks(&shard, Style::default()).iter().any(|chunk| chunk.is_private));
}
