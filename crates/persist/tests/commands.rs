//! Tests of `DUMP` and `RESTORE`, run as the engine runs them, against redis-server and against
//! each other.

use crate::common::{Bytes, Oracle, Record, Reply, Value};
use darter_base::Prng;
use darter_base::preempt::Never;
use darter_command::{Args, Command, Cx, Flags, Flow, Refusal, Run, Step};
use darter_families::hash::{Hash, value_of};
use darter_families::list::List;
use darter_families::set::Set;
use darter_families::zset::{ZSet, ZSetEdit};
use darter_keyspace::{Deadline, Fresh, Key, Shard, Wants};
use darter_persist::commands::TABLE;
use darter_rdb::{crc64, dump};
use darter_resp::{self as resp, Output};
use darter_structs::list::End;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const NOW: u64 = 1_700_000_000_000;

/// A shard that runs commands of the table to their end, and counts the portions.
struct Engine {
    shard: Shard,
    now: u64,
    /// The number of steps of jobs and portions of streams in the last command.
    portions: usize,
    /// The bytes of the longest portion of a reply.
    longest: usize,
}

impl Engine {
    fn new() -> Self {
        Self { shard: Shard::new(1, 1), now: NOW, portions: 0, longest: 0 }
    }

    /// The bytes of the reply, with errors encoded as by the engine.
    fn call(&mut self, parts: &[&[u8]]) -> Bytes {
        let request = Arc::new(resp::Request::from_args(parts.iter().copied()));
        self.run(resp::Args::owned(&request)).unwrap_or_else(error)
    }

    fn run(&mut self, args: resp::Args<'_>) -> Result<Bytes, Refusal> {
        let name = String::from_utf8(args.get(0).to_ascii_lowercase()).unwrap();
        let row = TABLE.iter().find(|row| row.name == name).unwrap();
        assert!(row.accepts(args.len()));
        let Run::Point(run) = row.run else { panic!("{name} is a point command") };
        self.shard.set_now(self.now);
        (self.portions, self.longest) = (0, 0);
        let mut out = Output::default();
        let mut flow = run(&mut cx(&mut self.shard, &mut out, self.now), Args::new(args, 1))?;
        loop {
            match flow {
                Flow::Done => return Ok(out.flatten()),
                Flow::Job(mut job) => {
                    flow = loop {
                        self.portions += 1;
                        self.now += 1; // Time passes between slices.
                        self.shard.set_now(self.now);
                        match job.step(&mut cx(&mut self.shard, &mut out, self.now))? {
                            Step::More => {}
                            Step::Done(flow) => break flow,
                        }
                    };
                }
                Flow::Stream(mut stream) => {
                    let mut more = true;
                    while more {
                        let before = out.len();
                        more = stream.pump(&mut resp::Reply::new(&mut out, false));
                        self.portions += 1;
                        self.longest = self.longest.max(out.len() - before);
                    }
                    flow = Flow::Done;
                }
            }
        }
    }

    fn dump(&mut self, key: &[u8]) -> Bytes {
        bulk(&self.call(&[b"DUMP", key]))
    }

    fn put(&mut self, key: &[u8], value: &Value) {
        let key = Key::new(key);
        let db = self.shard.db_mut(0);
        match value {
            Value::String(text) => db.set_text(&key, Fresh::Bytes(text), Deadline::Clear),
            Value::List(elements) => {
                db.edit::<List, _>(&key, true, |edit| {
                    elements.iter().for_each(|element| {
                        edit.push(End::Back, Fresh::Bytes(element));
                    });
                })
                .unwrap()
                .unwrap();
            }
            Value::Hash(fields) => {
                db.edit::<Hash, _>(&key, true, |edit| {
                    for (field, (value, at)) in fields {
                        edit.set(field, Fresh::Bytes(value), Deadline::from(*at));
                    }
                })
                .unwrap()
                .unwrap();
            }
            Value::Set(members) => {
                db.edit::<Set, _>(&key, true, |edit| {
                    for member in members {
                        edit.add(member, Deadline::Clear);
                    }
                })
                .unwrap()
                .unwrap();
            }
            Value::Items(items) => panic!("{items:?} are for comparing"),
        }
    }

    /// The value at `key`, in the form in which the oracle reports its own.
    fn record(&self, key: &[u8]) -> Option<Record> {
        let found = self.shard.db(0).get(&Key::new(key))?;
        let value = if let Ok(text) = found.text() {
            Value::String(text.to_vec())
        } else if let Ok(list) = found.value::<List>() {
            let elements = list.elements();
            let all = elements.range(0..elements.len()).map(|element| element.to_vec());
            Value::List(all.collect())
        } else if let Ok(hash) = found.value::<Hash>() {
            let mut fields = BTreeMap::new();
            hash.fields().for_each(&mut |entry| {
                fields.insert(entry.key().to_vec(), (value_of(&entry).to_vec(), entry.deadline()));
            });
            Value::Hash(fields)
        } else {
            let mut members = BTreeSet::new();
            found.value::<Set>().unwrap().members().for_each(&mut |entry| {
                members.insert(entry.key().to_vec());
            });
            Value::Set(members)
        };
        Some(Record { value, expiry_ms: found.deadline() })
    }
}

fn cx<'a>(shard: &'a mut Shard, out: &'a mut Output, now: u64) -> Cx<'a> {
    let (db, prng, stats) = shard.parts(0);
    Cx { db, reply: resp::Reply::new(out, false), now, prng, stats, preempt: &Never }
}

fn error(refusal: Refusal) -> Bytes {
    [b"-", &refusal.text()[..], b"\r\n"].concat()
}

fn bulk(reply: &[u8]) -> Bytes {
    assert_eq!(reply[0], b'$', "{}", reply.escape_ascii());
    let end = reply.iter().position(|byte| *byte == b'\r').unwrap();
    let len: usize = std::str::from_utf8(&reply[1..end]).unwrap().parse().unwrap();
    assert_eq!(reply.len(), end + 2 + len + 2, "the header's length");
    reply[end + 2..end + 2 + len].to_vec()
}

/// Values of all types: small ones, ones of many thousand entries, and long ones.
fn values() -> Vec<Value> {
    let mut prng = Prng::from_seed(5);
    let mut values = vec![Value::String(Bytes::new()), Value::String(b"-128".to_vec())];
    for len in [1, 500, 513, 20_000, 65_536, 65_537, 131_072, 1_000_000] {
        values.push(Value::String(prng.bytes(len..=len)));
    }
    for count in [1, 3, 128, 255, 256, 257, 513, 20_000] {
        values
            .push(Value::Set((0..count).map(|at: i64| (at * 3 - 90).to_string().into()).collect()));
        values.push(Value::Set((0..count).map(|_| prng.bytes(9..=40)).collect()));
        let fields = (0..count).map(|at| format!("field:{at}").into_bytes());
        values.push(Value::Hash(fields.map(|f| (f, (prng.bytes(0..=30), None))).collect()));
    }
    let long = |at| (format!("f{at}").into_bytes(), (vec![b'v'; 90_000], None));
    values.push(Value::Hash((0..5).map(long).collect()));
    let names = || (0..5).map(|at| vec![b'a' + at; 90_000]);
    values.push(Value::Hash(names().map(|name| (name, (b"7".to_vec(), None))).collect()));
    values.push(Value::Set(names().collect()));
    for (count, len) in [(1, 0), (3, 20), (600, 30), (40_000, 9), (300, 1_500), (20, 5_000)] {
        values.push(Value::List((0..count).map(|_| prng.bytes(0..=len)).collect()));
        let text = |at: usize| format!("{at}").into_bytes();
        values.push(Value::List((0..count).map(text).collect()));
    }
    let lens = [9, 4_095, 4_096, 3_000, 8_177, 8_178, 8_192, 5, 90_000, 1, 300_000];
    values.push(Value::List(lens.iter().map(|len| vec![b'e'; *len]).collect()));
    values
}

#[test]
fn dumps_are_restored_by_either_server() {
    let (mut oracle, mut engine) = (Oracle::start(&[]), Engine::new());
    for (at, value) in values().into_iter().enumerate() {
        let key = format!("key:{at}").into_bytes();
        engine.put(&key, &value);
        let payload = engine.dump(&key);
        assert_eq!(dump::verify(&payload), Ok(10), "{at}");
        oracle.must(&[b"RESTORE", &key, b"0", &payload]);
        assert!(oracle.record(&key).value == value, "{at}: the oracle reads another value");

        let theirs = oracle.must(&[b"DUMP", &key]).bulk();
        let reply = engine.call(&[b"RESTORE", &key, b"0", &theirs, b"REPLACE"]);
        assert_eq!(reply, b"+OK\r\n", "{at}");
        assert!(engine.record(&key).unwrap().value == value, "{at}: we read another value");
    }
    engine.shard.db(0).check_invariants();
}

#[test]
fn large_values_are_dumped_and_restored_in_portions() {
    let mut engine = Engine::new();
    let members = (0..20_000).map(|at| format!("member:{at}").into_bytes());
    engine.put(b"set", &Value::Set(members.collect()));
    let payload = engine.dump(b"set");
    assert!(engine.portions > 20_000 / 256 && engine.longest < 40_000, "{}", engine.longest);
    assert_eq!(engine.call(&[b"RESTORE", b"copy", b"0", &payload]), b"+OK\r\n");
    assert!(engine.portions > 20_000 / 256, "{}", engine.portions);
    assert_eq!(engine.record(b"copy"), engine.record(b"set"));
}

#[test] // A duplicate member is found before the key exists.
fn restore_sorts_large_sorted_sets_in_portions() {
    let mut engine = Engine::new();
    for at in 0..20_000_u32 {
        let member = format!("member:{at}").into_bytes();
        let score = f64::from(at.wrapping_mul(7_919) % 5_000);
        let edit = |edit: &mut ZSetEdit<'_>| edit.insert(&member, score);
        engine.shard.db_mut(0).edit::<ZSet, _>(&Key::new(b"z"), true, edit).unwrap();
    }
    let mut dumped = engine.dump(b"z");
    assert_eq!(engine.call(&[b"RESTORE", b"copy", b"0", &dumped]), b"+OK\r\n");
    // The portions that read the items, and those that sort them.
    assert!(engine.portions > 20_000 / 64 + 20_000 / 256, "{}", engine.portions);
    assert_eq!(engine.dump(b"copy"), dumped);
    engine.shard.db(0).check_invariants();

    let found = dumped.windows(7).position(|bytes| bytes == b"ber:123").unwrap();
    // Changes the first of the names that begin with it.
    dumped[found + 4..found + 7].copy_from_slice(b"124");
    dumped.truncate(dumped.len() - 10);
    let reply = engine.call(&[b"RESTORE", b"z", b"0", &payload(&dumped, 10), b"REPLACE"]);
    assert_eq!(reply, b"-ERR Bad data format\r\n");
    let len = engine.shard.db(0).value::<ZSet>(&Key::new(b"z")).unwrap().unwrap().len();
    assert_eq!(len, 20_000);
}

/// A compressed string: one byte, and the number of its copies.
fn packed(copies: usize) -> Bytes {
    let operations = [&b"\x00v"[..], &b"\xe0\xff\x00".repeat(copies)].concat();
    let mut packed = vec![0xc3, 0x80];
    packed.extend_from_slice(&(operations.len() as u32).to_be_bytes());
    packed.push(0x80);
    packed.extend_from_slice(&(1 + 264 * copies as u32).to_be_bytes());
    [packed, operations].concat()
}

#[test] // Names, values and packed collections, compressed to a ninetieth.
fn compressed_texts_are_unpacked_in_portions() {
    const COPIES: usize = 15_000;
    let mut engine = Engine::new();
    let long = vec![b'v'; 1 + 264 * COPIES];
    let (name, value) = (b"name".to_vec(), (long.clone(), None));
    for (body, expected) in [
        (
            [&b"\x04\x01\x04name"[..], &packed(COPIES)].concat(),
            Value::Hash([(name.clone(), value)].into()),
        ),
        (
            [&b"\x04\x01"[..], &packed(COPIES), b"\x04name"].concat(),
            Value::Hash([(long.clone(), (name, None))].into()),
        ),
        ([&b"\x02\x01"[..], &packed(COPIES)].concat(), Value::Set([long.clone()].into())),
        ([&b"\x12\x01\x01"[..], &packed(COPIES)].concat(), Value::List(vec![long.clone()])),
    ] {
        let reply = engine.call(&[b"RESTORE", b"x", b"0", &payload(&body, 10), b"REPLACE"]);
        assert_eq!(reply, b"+OK\r\n", "{:?}", &body[..2]);
        assert!(engine.portions > long.len() / 65_536, "{:?}: {}", &body[..2], engine.portions);
        assert!(engine.record(b"x").unwrap().value == expected, "{:?}", &body[..2]);
        // The payload announces one byte less.
        let mut lying = body.clone();
        let at = lying.windows(4).position(|bytes| bytes == (long.len() as u32).to_be_bytes());
        lying[at.unwrap() + 3] -= 1;
        let reply = engine.call(&[b"RESTORE", b"x", b"0", &payload(&lying, 10), b"REPLACE"]);
        assert_eq!(reply, b"-ERR Bad data format\r\n", "{:?}", &body[..2]);
    }
}

#[test] // Fields of hashes and elements of lists.
fn long_values_are_restored_without_collecting_them_whole() {
    let len = 1 + 264 * 15_000_usize;
    let raw = [&[0x80][..], &(len as u32).to_be_bytes(), &vec![b'v'; len]].concat();
    for text in [raw, packed(15_000)] {
        for lead in [&b"\x04\x02\x01a\x011\x04name"[..], b"\x12\x02\x01\x01a\x01"] {
            let payload = payload(&[lead, &text].concat(), 10);
            let limits = darter_rdb::Limits::default();
            let reader = darter_rdb::dump::reader(&payload, darter_families::TYPES.kinds(), limits);
            let (mut reader, mut read) = (reader.unwrap().with_parts(), 0);
            for piece in payload.chunks(16_384) {
                reader.push(piece);
                while let Some(event) = reader.next().unwrap() {
                    let darter_rdb::Event::Item(item) = event else { continue };
                    assert!(item.text_bytes() <= 65_536, "{} bytes", item.text_bytes());
                    read += item.text_bytes();
                }
                assert!(reader.memory_bytes() < 400_000, "{}", reader.memory_bytes());
            }
            assert!(reader.is_done() && read > len, "{read} of {len}");
        }
    }
}

#[test] // With and without deadlines in its hash.
fn a_huge_field_is_dumped_and_restored_in_portions() {
    let mut engine = Engine::new();
    let huge = (b"huge".to_vec(), (vec![b'v'; 3_000_000], None));
    let timed = (b"timed".to_vec(), (vec![b'w'; 70_001], Some(NOW + 100_000)));
    for fields in [vec![huge.clone()], vec![huge, timed]] {
        engine.put(b"hash", &Value::Hash(fields.into_iter().collect()));
        let payload = engine.dump(b"hash");
        assert!(engine.portions > 3_000_000 / 40_000, "{}", engine.portions);
        assert!(engine.longest < 70_000, "{}", engine.longest);
        assert_eq!(engine.call(&[b"RESTORE", b"copy", b"0", &payload, b"REPLACE"]), b"+OK\r\n");
        assert!(engine.record(b"copy") == engine.record(b"hash"));
    }
}

#[test] // Fields and members of megabytes.
fn huge_names_are_dumped_and_restored_in_portions() {
    let mut engine = Engine::new();
    let huge = |byte| vec![byte; 3_000_000];
    for at in [None, Some(NOW + 100_000)] {
        let fields = [
            (huge(b'a'), (b"short".to_vec(), at)),
            (huge(b'b'), (vec![b'v'; 70_001], at)),
            (huge(b'c'), (Bytes::new(), None)),
            (vec![b'd'; 70_001], (b"17".to_vec(), at)),
            (b"short".to_vec(), (b"value".to_vec(), None)),
        ];
        let names: BTreeSet<_> = fields.iter().map(|(name, _)| name.clone()).collect();
        let set = Value::Set(names.iter().cloned().collect());
        for value in [Value::Hash(fields.into_iter().collect()), set] {
            engine.shard.db_mut(0).remove(&Key::new(b"from"));
            engine.put(b"from", &value);
            if at.is_some() && matches!(value, Value::Set(_)) {
                engine
                    .shard
                    .db_mut(0)
                    .edit::<Set, _>(&Key::new(b"from"), false, |edit| {
                        names.iter().for_each(|name| _ = edit.set_deadline(name, at));
                    })
                    .unwrap();
            }
            let payload = engine.dump(b"from");
            assert!(engine.longest < 70_000, "{}", engine.longest);
            assert!(engine.portions > 9_000_000 / 40_000, "{}", engine.portions);
            let reply = engine.call(&[b"RESTORE", b"copy", b"0", &payload, b"REPLACE"]);
            assert_eq!(reply, b"+OK\r\n");
            assert!(engine.record(b"copy") == engine.record(b"from"));
        }
    }
}

#[test]
fn dump_skips_expired_entries_in_portions() {
    const DEAD: usize = 20_000;
    let mut engine = Engine::new();
    let dead = (0..DEAD).map(|at| (at.to_string().into(), (Bytes::new(), Some(NOW + 5))));
    let living = (b"living".to_vec(), (b"value".to_vec(), None));
    engine.put(b"hash", &Value::Hash(dead.chain([living.clone()]).collect()));
    engine.now = NOW + 5;
    let payload = engine.dump(b"hash");
    assert!(engine.portions > DEAD / 256 + DEAD / 2_048, "{}", engine.portions);
    assert_eq!(engine.call(&[b"RESTORE", b"copy", b"0", &payload]), b"+OK\r\n");
    let expected = Value::Hash([living].into_iter().collect());
    assert!(engine.record(b"copy").is_some_and(|record| record.value == expected));
}

#[test]
fn a_payload_in_chunks_is_restored() {
    let mut engine = Engine::new();
    for value in values() {
        engine.put(b"from", &value);
        let payload = engine.dump(b"from");
        let header =
            format!("*5\r\n$7\r\nRESTORE\r\n$2\r\nto\r\n$1\r\n0\r\n${}\r\n", payload.len());
        let request = [header.as_bytes(), &payload, b"\r\n$7\r\nREPLACE\r\n"].concat();
        let mut parser = resp::Parser::new(1 << 29, true);
        let mut reply = None;
        for piece in request.chunks(10_000) {
            parser.feed(piece);
            while let Some(args) = parser.next_request().unwrap() {
                reply = Some(engine.run(args).unwrap());
            }
        }
        assert_eq!(reply.as_deref(), Some(&b"+OK\r\n"[..]));
        assert!(engine.record(b"to").unwrap().value == value);
        engine.shard.db_mut(0).remove(&Key::new(b"from"));
    }
}

#[test]
fn restored_fields_and_members_keep_their_deadlines() {
    let mut engine = Engine::new();
    for count in [3_u64, 200, 2_000] {
        let deadline = |at: u64| match at % 4 {
            0 => None,
            1 => Some(NOW + 5), // Dies between the dump and the restore.
            _ => Some(NOW + 1_000_000 + at),
        };
        let name = |at: u64| format!("name:{at}").into_bytes();
        let fields = (0..count).map(|at| (name(at), (b"v".to_vec(), deadline(at))));
        engine.now = NOW;
        engine.put(b"hash", &Value::Hash(fields.collect()));
        let set = Key::new(b"set");
        let edit = engine.shard.db_mut(0).edit::<Set, _>(&set, true, |edit| {
            for at in 0..count {
                edit.add(&name(at), Deadline::from(deadline(at)));
            }
        });
        edit.unwrap().unwrap();
        let (hash, set) = (engine.dump(b"hash"), engine.dump(b"set"));
        assert!(matches!(hash[0], 24 | 25) && matches!(set[0], 224 | 225), "{count}");

        engine.now = NOW + 10;
        assert_eq!(engine.call(&[b"RESTORE", b"hash", b"0", &hash, b"REPLACE"]), b"+OK\r\n");
        assert_eq!(engine.call(&[b"RESTORE", b"set", b"0", &set, b"REPLACE"]), b"+OK\r\n");
        let db = engine.shard.db(0);
        let (hash, set) =
            (db.value::<Hash>(&Key::new(b"hash")), db.value::<Set>(&Key::new(b"set")));
        let (hash, set) = (hash.unwrap().unwrap(), set.unwrap().unwrap());
        for at in 0..count {
            let expected = (at % 4 != 1).then(|| deadline(at));
            let field = hash.get(&name(at), engine.now).map(|entry| entry.deadline());
            let member = set.get(&name(at), engine.now).map(|entry| entry.deadline());
            assert_eq!((field, member), (expected, expected), "{count} {at}");
        }
        for key in [&b"hash"[..], b"set"] {
            engine.shard.db_mut(0).remove(&Key::new(key));
        }
    }
    let mut oracle = Oracle::start(&[]);
    engine.now = NOW;
    engine.shard.set_now(NOW);
    let set = Key::new(b"timed");
    let db = engine.shard.db_mut(0);
    db.edit::<Set, _>(&set, true, |edit| edit.add(b"m", Deadline::At(NOW + 9))).unwrap();
    let payload = engine.dump(b"timed");
    let refused = oracle.call(&[b"RESTORE", b"k", b"0", &payload]);
    assert!(matches!(refused, Reply::Error(_)), "Redis must not keep members past their deadlines");
}

/// A payload with a good trailer.
fn payload(body: &[u8], version: u16) -> Bytes {
    let mut bytes = [body, &version.to_le_bytes()].concat();
    bytes.extend_from_slice(&crc64::of(&bytes).to_le_bytes());
    bytes
}

#[test]
fn replies_and_errors_of_dump_and_restore_equal_those_of_redis() {
    let (mut oracle, mut engine) = (Oracle::start(&[]), Engine::new());
    let good = payload(b"\x00\xc1\x39\x30", 10);
    let mut bad = good.clone();
    bad[3] ^= 1;
    let bodies: Vec<Bytes> = [
        &b""[..],
        b"\x04\x00",
        b"\x02\x00",
        b"\x02\x02\x01a\x01a",
        b"\x63ab",
        b"\x06ab",
        b"\x10\x07\x07\0\0\0\0\0\xff",
        b"\x00\x01a",
    ]
    .iter()
    .map(|body| payload(body, 10))
    .chain([payload(b"\x00\x01a", 0), payload(b"\x00\x01a", 80 - 1), good, bad, Bytes::new()])
    .chain([b"short".to_vec()])
    .collect();
    let options: Vec<Vec<&[u8]>> = vec![
        vec![],
        vec![b"replace"],
        vec![b"REPLACE", b"ABSTTL"],
        vec![b"ABSTTL", b"replace", b"absttl"],
        vec![b"FOO"],
        vec![b"IDLETIME"],
        vec![b"IDLETIME", b"x"],
        vec![b"IDLETIME", b"-1", b"FOO"],
        vec![b"IDLETIME", b"1", b"IDLETIME", b"2"],
        vec![b"IDLETIME", b"1", b"FREQ", b"2"],
        vec![b"FREQ", b"256"],
        vec![b"FREQ", b"255", b"FREQ", b"-1"],
        vec![b"FREQ", b"1", b"IDLETIME", b"1"],
        vec![b"freq", b"1", b"replace"],
    ];
    let ttls: [&[u8]; 7] = [b"0", b"1", b"x", b"-1", b"9999999", b"9223372036854775807", b"01"];
    // Relative times, so that the oracle's clock does not matter; 1 ms is dead in both at once.
    for key in [&b"there"[..], b"absent"] {
        for body in &bodies {
            for ttl in ttls.iter().filter(|ttl| **ttl != b"1") {
                for options in &options {
                    oracle.must(&[b"DEL", b"absent"]);
                    oracle.must(&[b"SET", b"there", b"old"]);
                    engine.shard.db_mut(0).remove(&Key::new(b"absent"));
                    engine.put(b"there", &Value::String(b"old".to_vec()));
                    let mut parts: Vec<&[u8]> = vec![b"RESTORE", key, ttl, body];
                    parts.extend(options);
                    let theirs = match oracle.call(&parts) {
                        Reply::Status(text) => format!("+{text}\r\n"),
                        Reply::Error(text) => format!("-{text}\r\n"),
                        other => panic!("{other:?}"),
                    };
                    let ours = String::from_utf8(engine.call(&parts)).unwrap();
                    assert_eq!(ours, theirs, "{}", parts.concat().escape_ascii());
                    let there = matches!(oracle.must(&[b"EXISTS", key]), Reply::Int(1));
                    assert_eq!(engine.record(key).is_some(), there, "{options:?} {ttl:?}");
                }
            }
        }
    }
}

#[test] // docs/compat.md lists these differences.
fn payloads_are_refused_and_accepted_like_redis() {
    let (mut oracle, mut engine) = (Oracle::start(&[]), Engine::new());
    let packed = b"\x10\x13\x13\0\0\0\x04\0\x81a\x02\x81b\x02\x81a\x02\x81c\x02\xff";
    let broken = "-ERR Bad data format\r\n";
    let cases: [(&str, Bytes, bool, &str); 7] = [
        ("version 11", payload(b"\x00\x01a", 11), false, "+OK\r\n"),
        ("version 80", payload(b"\x00\x01a", 80), false, "+OK\r\n"),
        ("bytes behind", payload(b"\x00\xc1\x39\x30zz", 10), true, broken),
        ("runs into the trailer", payload(b"\x00\x05ab", 10), true, broken),
        ("a field twice", payload(b"\x04\x02\x01a\x01b\x01a\x01c", 10), true, broken),
        ("a field twice, packed", payload(packed, 10), true, broken),
        ("half a document", payload(b"\xcf\x01\x01[", 10), false, broken),
    ];
    for (name, payload, taken, ours) in cases {
        let parts: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &payload, b"REPLACE"];
        let theirs = oracle.call(&parts);
        assert_eq!(matches!(theirs, Reply::Status(_)), taken, "{name}: {theirs:?}");
        assert_eq!(String::from_utf8(engine.call(&parts)).unwrap(), ours, "{name}");
    }
}

#[test]
fn expired_keys_and_fields_are_neither_dumped_nor_restored() {
    let mut engine = Engine::new();
    assert_eq!(engine.call(&[b"DUMP", b"absent"]), b"$-1\r\n");
    let fields = (0..2_000).map(|at: u32| (at.to_string().into(), (Bytes::new(), Some(NOW + 5))));
    engine.put(b"hash", &Value::Hash(fields.collect()));
    let payload = engine.dump(b"hash");
    engine.now = NOW + 5;
    assert_eq!(engine.call(&[b"DUMP", b"hash"]), b"$-1\r\n");
    engine.put(b"to", &Value::String(b"old".to_vec()));
    assert_eq!(engine.call(&[b"RESTORE", b"to", b"0", &payload, b"REPLACE"]), b"+OK\r\n");
    assert_eq!(engine.record(b"to"), None);

    let text = self::payload(b"\x00\x01a", 10);
    let at = (engine.now + 100).to_string();
    let reply = engine.call(&[b"RESTORE", b"to", at.as_bytes(), &text, b"ABSTTL"]);
    assert_eq!(reply, b"+OK\r\n");
    assert_eq!(engine.record(b"to").unwrap().expiry_ms, Some(engine.now + 100));
    engine.call(&[b"RESTORE", b"to", b"100", &text, b"REPLACE"]);
    assert_eq!(engine.record(b"to").unwrap().expiry_ms, Some(engine.now + 100));
    engine.call(&[b"RESTORE", b"to", b"1", &text, b"REPLACE", b"ABSTTL"]);
    assert_eq!(engine.record(b"to"), None);
}

#[test] // RESTORE deletes first, so its key is new.
fn restore_publishes_the_same_events_as_redis() {
    let mut engine = Engine::new();
    engine.shard.join(Wants::ALL);
    let mut told = |words: &[&[u8]]| -> Vec<&str> {
        engine.call(words);
        let records = engine.shard.take_records();
        records.iter().flat_map(|record| record.events.iter().map(|event| event.name)).collect()
    };
    let text = payload(b"\x00\x01v", 11);
    let set = payload(b"\x02\x01\x01m", 11);
    let past = (NOW - 1).to_string();
    assert_eq!(told(&[b"DUMP", b"k"]), ["keymiss"]);
    assert_eq!(told(&[b"RESTORE", b"k", b"0", &text]), ["new", "restore"]);
    assert_eq!(told(&[b"DUMP", b"k"]), [""; 0]);
    assert_eq!(told(&[b"RESTORE", b"k", b"0", &text]), [""; 0], "refused");
    assert_eq!(told(&[b"RESTORE", b"k", b"9", &set, b"REPLACE"]), ["new", "restore"]);
    let abs = |key: &'static [u8]| [b"RESTORE", key, past.as_bytes(), &set, b"REPLACE", b"ABSTTL"];
    assert_eq!(told(&abs(b"none")), [""; 0], "it is dead at once");
    assert_eq!(told(&abs(b"k")), ["del"], "and so is what was there");
}

#[test]
fn command_rows_of_dump_and_restore_equal_those_of_redis() {
    let mut oracle = Oracle::start(&[]);
    for Command { name, arity, flags, tips, .. } in TABLE {
        let Reply::Array(infos) = oracle.must(&[b"COMMAND", b"INFO", name.as_bytes()]) else {
            panic!("no info of {name}")
        };
        let Reply::Array(info) = &infos[0] else { panic!("no info of {name}") };
        assert_eq!(info[1], Reply::Int(i64::from(*arity)), "{name}");
        let names = Flags::NAMES.iter().filter(|(flag, _)| flags.has(*flag));
        let names = names.map(|(_, name)| Reply::Status((*name).to_string())).collect();
        assert_eq!(info[2], Reply::Array(names), "{name}");
        let tips = tips.iter().map(|tip| Reply::Bulk(tip.as_bytes().to_vec())).collect();
        assert_eq!(info[7], Reply::Array(tips), "{name}");
    }
}
