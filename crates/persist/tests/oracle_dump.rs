//! `DUMP` payloads against the real server: the same bytes as its own where the encoding is
//! deterministic, and values that survive the round trip.

use crate::common::{Bytes, Fields, INTEGERS, Oracle, Reply, Value, feed, kind, read};
use darter_base::Prng;
use darter_families::TYPES;
use darter_families::json::Json;
use darter_keyspace::{Typed, Value as _};
use darter_rdb::dump::{self, Dumper};
use darter_rdb::{Item, Kind, Limits, Source, Survey, Writer};
use darter_structs::json::JsonBuilder;

/// A value's items in a given order; a string in chunks of 1000 bytes.
#[derive(Clone)]
struct Items {
    kind: &'static Kind,
    items: Vec<(Bytes, Bytes)>,
    next: usize,
}

impl Items {
    fn string(text: &[u8]) -> Self {
        let items = text.chunks(1000).map(|chunk| (chunk.to_vec(), Bytes::new())).collect();
        Self { kind: kind("string"), items, next: 0 }
    }

    fn hash(pairs: &[Bytes]) -> Self {
        let items = pairs.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        Self { kind: kind("hash"), items, next: 0 }
    }

    fn set(members: Vec<Bytes>) -> Self {
        let items = members.into_iter().map(|member| (member, Bytes::new())).collect();
        Self { kind: kind("set"), items, next: 0 }
    }

    fn list(elements: Vec<Bytes>) -> Self {
        Self { kind: kind("list"), ..Self::set(elements) }
    }

    /// The value at `key`, in the order in which the oracle returns it.
    fn of(oracle: &mut Oracle, key: &[u8]) -> Self {
        match oracle.must(&[b"TYPE", key]) {
            Reply::Status(kind) if kind == "string" => {
                Self::string(&oracle.must(&[b"GET", key]).bulk())
            }
            Reply::Status(kind) if kind == "list" => {
                Self::list(oracle.must(&[b"LRANGE", key, b"0", b"-1"]).texts())
            }
            Reply::Status(kind) if kind == "hash" => {
                Self::hash(&oracle.must(&[b"HGETALL", key]).texts())
            }
            _ => Self::set(oracle.must(&[b"SMEMBERS", key]).texts()),
        }
    }

    fn payload(&self) -> Bytes {
        dump::write(self.clone(), self.kind)
    }
}

impl Source for Items {
    fn next(&mut self) -> Option<Item<'_>> {
        let (first, second) = self.items.get(self.next)?;
        self.next += 1;
        Some(if self.kind.is_text() {
            Item::Chunk(first)
        } else if self.kind != kind("hash") {
            Item::Single { name: first, deadline_ms: None }
        } else {
            Item::Pair { name: first, value: second, deadline_ms: None }
        })
    }

    fn rewind(&mut self) {
        self.next = 0;
    }
}

fn text(prng: &mut Prng) -> Bytes {
    match prng.below(4) {
        0 => INTEGERS[prng.below(INTEGERS.len() as u64) as usize].into(),
        1 => prng.next_u64().to_string().into(),
        2 => prng.bytes(0..=70),
        _ => prng.bytes(0..=10),
    }
}

/// Values of all types and sizes; the keys' names say what they hold.
fn fill(oracle: &mut Oracle, prng: &mut Prng) -> Vec<Bytes> {
    let mut keys = Vec::new();
    for edge in INTEGERS.iter().chain(&[""]) {
        oracle.must(&[b"SET", format!("string:{edge}").as_bytes(), edge.as_bytes()]);
        keys.push(format!("string:{edge}").into_bytes());
    }
    for len in [1, 10, 11, 12, 20, 21, 63, 64, 16_383, 16_384, 100_000] {
        let key = format!("string of {len}").into_bytes();
        let value = prng.bytes(len..=len);
        oracle.must(&[b"SET", &key, &value]);
        keys.push(key);
    }
    for index in 0..60_u64 {
        let hash = format!("hash:{index}").into_bytes();
        let set = format!("set:{index}").into_bytes();
        let integers = format!("integers:{index}").into_bytes();
        let count = [1, 2, 5, 60, 512, 513, 700][prng.below(7) as usize];
        let width = [7, 15, 16, 31, 40, 63][prng.below(6) as usize];
        for _ in 0..count {
            let (field, value) = (text(prng), text(prng));
            oracle.must(&[b"HSET", &hash, &field, &value]);
            oracle.must(&[b"SADD", &set, &field]);
            let number = (prng.next_u64() as i64) >> (64 - width);
            oracle.must(&[b"SADD", &integers, number.to_string().as_bytes()]);
        }
        keys.extend([hash, set, integers]);
    }
    for index in 0..40_u64 {
        let list = format!("list:{index}").into_bytes();
        let count = [1, 2, 60, 500, 3_000][prng.below(5) as usize];
        for _ in 0..count {
            let element = match prng.below(200) {
                0 => prng.bytes(4_000..=9_000),
                1 => prng.bytes(20_000..=20_000),
                _ => text(prng),
            };
            oracle.must(&[b"RPUSH", &list, &element]);
        }
        keys.push(list);
    }
    keys
}

#[test] // Without compression, which is not deterministic.
fn payloads_equal_those_of_redis_byte_for_byte() {
    let mut oracle = Oracle::start(&["--rdbcompression", "no"]);
    let mut prng = Prng::from_seed(11);
    let keys = fill(&mut oracle, &mut prng);
    let mut types = std::collections::BTreeMap::new();
    for key in &keys {
        let expected = oracle.must(&[b"DUMP", key]).bulk();
        let payload = Items::of(&mut oracle, key).payload();
        assert!(payload == expected, "{}", String::from_utf8_lossy(key));
        *types.entry(payload[0]).or_insert(0) += 1;
    }
    assert_eq!(types.keys().copied().collect::<Vec<u8>>(), [0, 2, 4, 11, 16, 18]);
    assert!(types.values().all(|count| *count >= 5), "{types:?}");
}

#[test]
fn values_restored_by_redis_are_dumped_and_restored_here() {
    let mut oracle = Oracle::start(&[]); // Compression on: it dumps LZF.
    let mut prng = Prng::from_seed(12);
    let mut keys = fill(&mut oracle, &mut prng);
    for (key, size) in [(b"zeros".to_vec(), 300_000), (b"few zeros".to_vec(), 50)] {
        oracle.must(&[b"SET", &key, &vec![0; size]]);
        oracle.must(&[b"HSET", b"packed hash", &key, &vec![b'h'; size / 2]]);
        keys.push(key);
    }
    keys.push(b"packed hash".to_vec());
    for key in &keys {
        let record = oracle.record(key);
        let theirs = oracle.must(&[b"DUMP", key]).bulk();
        let name = String::from_utf8_lossy(key).into_owned();
        assert_eq!(dump::verify(&theirs), Ok(10), "{name}");
        for chunk in [7, 4096, theirs.len()] {
            let reader = dump::reader(&theirs, TYPES.kinds(), Limits::default()).unwrap();
            let file = feed(reader, &theirs, chunk, false);
            let file = file.unwrap_or_else(|broken| panic!("{name}: {}", broken.0));
            assert!(file.keys[&(0, Bytes::new())] == record, "{name}");
        }
        let ours = Items::of(&mut oracle, key).payload();
        oracle.must(&[b"RESTORE", b"copy", b"0", &ours, b"REPLACE"]);
        assert!(oracle.record(b"copy") == record, "{name}");
        let encoding = oracle.must(&[b"OBJECT", b"ENCODING", key]);
        assert_eq!(oracle.must(&[b"OBJECT", b"ENCODING", b"copy"]), encoding, "{name}");
    }
}

#[test]
fn slices_of_any_size_make_the_same_payload() {
    let mut prng = Prng::from_seed(13);
    let many: Vec<Bytes> = (0..4000).map(|index: u32| index.to_string().into()).collect();
    let values = [
        Items::string(&prng.bytes(50_000..=50_000)),
        Items::string(b"-12"),
        Items::string(b""),
        Items::hash(&many),
        Items::hash(&many[..40]),
        Items::set(many.clone()),
        Items::set(many[..9].to_vec()),
        Items::list(many[..9].to_vec()),
    ];
    for value in values {
        let whole = value.payload();
        for slice in [1, 100, 5000] {
            let mut dumper = Dumper::new(value.clone(), value.kind);
            let len = loop {
                if let Some(len) = dumper.survey(slice) {
                    break len;
                }
            };
            assert_eq!(len, whole.len() as u64);
            let (mut payload, mut piece) = (Bytes::new(), Bytes::new());
            while !dumper.fill(&mut piece, slice) {
                assert!(piece.len() <= slice + 1000, "{}", piece.len());
                payload.append(&mut piece);
            }
            payload.append(&mut piece);
            assert!(payload == whole, "slices of {slice}");
        }
    }
}

#[test] // A bound in bytes alone would allow very many items of one byte.
fn portions_of_short_items_are_bounded_by_their_number() {
    let mut builder = JsonBuilder::default();
    builder.open(false);
    (0..20_000).for_each(|_| assert!(builder.open(false) && builder.close()));
    builder.close();
    let document = Json::of(builder.finish().unwrap());
    let mut dumper = Dumper::new(document.items(0), Json::TYPE.rdb);
    while dumper.survey(256).is_none() {}
    let (mut piece, mut written) = (Bytes::new(), 0);
    while !dumper.fill(&mut piece, 32 * 1024) {
        assert!(piece.len() <= 2 * 512 + 16, "{}", piece.len());
        written += std::mem::take(&mut piece).len();
    }
    assert!(written > 75_000, "{written}");
}

#[test] // In the format of 7.4, which redis-server 7.0 cannot read.
fn hashes_with_field_deadlines_are_written_and_read_back() {
    for (count, span, encoding) in [(5, 1_u64 << 20, 25), (600, 1 << 20, 24), (600, 1 << 40, 24)] {
        let mut prng = Prng::from_seed(count);
        let fields = (0..count).map(|index| {
            let deadline = (index % 3 == 0).then(|| (1 << 41) + prng.below(span));
            (text(&mut prng).repeat(2), index.to_string().into_bytes(), deadline)
        });
        // Two fields of one name would be one: names are made unique by the index.
        let fields: Vec<_> =
            fields.map(|(name, index, at)| ([&index[..], &name].concat(), index, at)).collect();
        let short: Vec<_> = fields
            .iter()
            .map(|(name, value, at)| (name[..name.len().min(60)].to_vec(), value.clone(), *at))
            .collect();
        let model = short.iter().map(|(name, value, at)| (name.clone(), (value.clone(), *at)));
        let model = Value::Hash(model.collect());
        let payload = dump::write(Fields(short, 0), kind("hash"));
        assert_eq!(payload[0], encoding);
        assert_eq!(dump::verify(&payload), Ok(12));
        let reader = dump::reader(&payload, TYPES.kinds(), Limits::default()).unwrap();
        let file =
            feed(reader, &payload, 100, true).unwrap_or_else(|broken| panic!("{}", broken.0));
        assert!(file.keys[&(0, Bytes::new())].value == model, "{count} {span}");
        if encoding == 25 {
            // The earliest deadline first, fields without one last: Redis expires from the head.
            let ends: Vec<bool> = file
                .log
                .iter()
                .filter(|l| l.starts_with("Item(Pair"))
                .map(|l| l.ends_with("None })"))
                .collect();
            assert!(ends.is_sorted(), "{:?}", file.log);
        }
    }
}

#[test]
fn snapshot_files_load_in_redis() {
    let mut source = Oracle::start(&[]);
    let mut prng = Prng::from_seed(14);
    let keys = fill(&mut source, &mut prng);
    let (mut writer, mut out) = (Writer::new(), Bytes::new());
    writer.start(10, &mut out);
    writer.aux(b"redis-ver", b"7.0.15", &mut out);
    for database in [0, 5] {
        writer.select_db(database, &mut out);
        writer.resize_db(keys.len() as u64, 1, &mut out);
        for (index, key) in keys.iter().enumerate() {
            let mut items = Items::of(&mut source, key);
            let mut survey = Survey::new(items.kind);
            while let Some(item) = items.next() {
                survey.item(item);
            }
            items.rewind();
            let expiry_ms = (index % 2 == 0).then_some(33_333_333_333_333);
            writer.key(key, expiry_ms, survey.plan(), &mut out);
            while let Some(item) = items.next() {
                writer.item(item, &mut out);
            }
            writer.end_of_key(&mut out);
        }
    }
    writer.eof(&mut out);
    let file = read(&out, 5000, false).unwrap_or_else(|broken| panic!("{}", broken.0));
    let mut oracle = Oracle::start_with_file(&out);
    assert!(oracle.records(6) == file.keys);
    assert_eq!(file.keys.len(), keys.len() * 2);
}
