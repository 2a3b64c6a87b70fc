//! The records of commands: the change, not the value that it was made to. A value that is built is
//! recorded whole, and shared. Applied to a copy, the records always give the same value.

mod merged;

use crate::common::engine::Engine;
use crate::common::unix_millis;
use crate::common::world::World;
use darter_base::Prng;
use darter_families::hash::{Hash, value_of};
use darter_families::list::List;
use darter_families::set::Set;
use darter_keyspace::{
    Act, Db, Effect, Found, Key, Record, Shard, Typed, Wants, apply, apply_to_db,
};
use std::collections::BTreeMap;

/// A database, and a copy that applies its records.
struct Pair {
    engine: Engine,
    copy: Db,
}

impl Pair {
    fn new() -> Self {
        let mut engine = Engine::new(unix_millis(), 3);
        engine.db.listen(true);
        Self { engine, copy: Db::default() }
    }

    /// Runs a command, applies its records to the copy, and checks it. Returns the records.
    fn run(&mut self, words: &[&[u8]]) -> Vec<String> {
        let reply = self.engine.run(words);
        assert!(!reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
        let records = self.engine.db.take_records();
        records.iter().for_each(|record| apply_to_db(&mut self.copy, &record.act).unwrap());
        assert!(contents(&self.copy) == contents(&self.engine.db), "{:?}", shown(words[0]));
        records.iter().map(short).collect()
    }

    /// [`Pair::run`] of a command whose last `count` arguments are made of numbers.
    fn many(&mut self, line: &str, from: usize, count: usize) -> Vec<String> {
        let names: Vec<String> = (from..from + count).map(|at| format!("name-{at}")).collect();
        let words = line.split(' ').map(str::as_bytes);
        self.run(&words.chain(names.iter().map(String::as_bytes)).collect::<Vec<_>>())
    }
}

fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// A record in short: its type and the number of changes.
fn short(record: &Record) -> String {
    match &record.act {
        Act::Key(_, Effect::Changes(changes)) => {
            format!("{} {}", changes.kind().name, changes.count())
        }
        Act::Key(_, Effect::Text { value, .. }) => format!("text {}", value.fresh().len()),
        Act::Key(_, effect) => {
            format!("{effect:?}").chars().take_while(char::is_ascii_alphabetic).collect()
        }
        act => format!("{act:?}"),
    }
}

/// A key's encoding and deadline, and its entries.
type Seen = (&'static str, Option<u64>, Vec<(Vec<u8>, Vec<u8>, Option<u64>)>);

/// All there is, dead or alive.
fn contents(db: &Db) -> BTreeMap<Vec<u8>, Seen> {
    let mut all = BTreeMap::new();
    db.keys().for_each(&mut |entry| {
        let found = Found::alive(entry, 0).unwrap();
        let mut entries = Vec::new();
        if let Ok(text) = found.text() {
            entries.push((Vec::new(), text.to_vec(), None));
        } else if found.kind() == Hash::TYPE {
            found.value::<Hash>().unwrap().fields().for_each(&mut |entry| {
                entries.push((entry.key().to_vec(), value_of(&entry).to_vec(), entry.deadline()));
            });
        } else if found.kind() == List::TYPE {
            let list = found.value::<List>().unwrap();
            let elements = list.elements();
            for (at, element) in elements.range(0..elements.len()).enumerate() {
                entries.push((format!("{at:09}").into_bytes(), element.to_vec(), None));
            }
        } else {
            found.value::<Set>().unwrap().members().for_each(&mut |entry| {
                entries.push((entry.key().to_vec(), Vec::new(), entry.deadline()));
            });
        }
        entries.sort();
        all.insert(entry.key().to_vec(), (found.encoding(), found.deadline(), entries));
    });
    all
}

#[test]
fn setrange_on_a_long_string_records_only_the_range() {
    let mut pair = Pair::new();
    let (long, longer) = (vec![b'x'; 2_000_000], vec![b'y'; 300_000]);
    assert_eq!(pair.run(&[b"SET", b"k", &long]), ["text 2000000"]);
    assert_eq!(pair.run(&[b"APPEND", b"k", b"12345"]), ["string 1"]);
    assert_eq!(pair.run(&[b"APPEND", b"k", b""]), ["string 1"]);
    assert_eq!(pair.run(&[b"SETRANGE", b"k", b"70000", b"abc"]), ["string 1"]);
    assert_eq!(pair.run(&[b"SETRANGE", b"k", b"3000000", b"behind a gap"]), ["string 1"]);
    assert_eq!(pair.run(&[b"APPEND", b"k", &longer]), ["string 1"], "aside");
    assert_eq!(pair.run(&[b"SETRANGE", b"k", b"5", &longer]), ["string 1"], "aside");
    assert_eq!(pair.run(&[b"EXPIRE", b"k", b"100"]), ["Deadline"]);
    assert_eq!(pair.run(&[b"APPEND", b"k", &longer]), ["string 1"]);
    assert_eq!(pair.run(&[b"SETRANGE", b"k", b"5", &long]), ["Install"], "most of it");
    assert_eq!(pair.run(&[b"APPEND", b"short", b"text"]), ["text 4"]);
    assert_eq!(pair.run(&[b"APPEND", b"short", b"text"]), ["text 8"]);
    assert_eq!(pair.run(&[b"APPEND", b"short", &longer]), ["Install"], "it was short");
    assert_eq!(pair.run(&[b"SETRANGE", b"gap", b"9000", b"x"]), ["text 9001"]);
    let bytes = |record: Record| match record.act {
        Act::Key(_, Effect::Changes(changes)) => format!("{changes:?}").len(),
        act => panic!("{act:?}"),
    };
    pair.engine.run(&[b"APPEND", b"k", b"12345"]);
    let record = pair.engine.db.take_records().pop().unwrap();
    assert!(bytes(record) < 100, "five bytes are recorded");
}

#[test] // In place and in a copy.
fn changes_of_hashes_and_sets_record_the_changed_entries() {
    let mut pair = Pair::new();
    assert_eq!(pair.many("HSET h", 0, 10_000), ["Install"], "all of it is new");
    assert_eq!(pair.many("HSET h", 0, 200), ["hash 100"]);
    assert_eq!(pair.many("HSET h", 0, 514), ["hash 257"], "aside");
    assert_eq!(pair.many("HDEL h", 0, 400), ["hash 200"], "every other is a field");
    assert_eq!(pair.many("HPEXPIRE h 100000 FIELDS 400", 2_000, 400), ["hash 200"]);
    assert_eq!(pair.many("HSET h", 0, 9_000), ["Install"], "most of it");
    assert_eq!(pair.many("SADD s", 0, 10_000), ["Install"]);
    assert_eq!(pair.many("SADD s", 9_900, 300), ["set 200"]);
    assert_eq!(pair.many("SREM s", 0, 500), ["set 500"]);
    assert_eq!(pair.many("SADDEX s 100", 5_000, 300), ["set 300"]);
    assert_eq!(pair.many("FIELDEXPIRE s 50", 5_000, 300), ["set 300"]);
    assert_eq!(pair.run(&[b"SPOP", b"s", b"300"]), ["set 300"]);
    assert_eq!(pair.run(&[b"SPOP", b"s", b"8000"]), ["Install"], "the rest is built anew");
    assert_eq!(pair.run(&[b"SPOP", b"s", b"9000"]), ["Delete"]);
    pair.many("SADD t", 0, 5_000);
    assert_eq!(pair.run(&[b"SPOP", b"t"]), ["set 1"]);
    assert_eq!(pair.many("SREM t", 0, 5_000), ["Delete"], "nothing is left");
}

// A list is recorded by the changes at an end or index; very many pushes to a short one as a whole.
#[test]
fn changes_of_list_elements_are_recorded() {
    let mut pair = Pair::new();
    assert_eq!(pair.many("RPUSH l", 0, 3), ["list 3"]);
    assert_eq!(pair.many("RPUSH l", 0, 10_000), ["Install"], "most of it");
    assert_eq!(pair.many("LPUSH l", 0, 200), ["list 200"]);
    assert_eq!(pair.many("LPUSH l", 0, 400), ["list 400"], "aside");
    assert_eq!(pair.run(&[b"LSET", b"l", b"500", b"x"]), ["list 1"]);
    assert_eq!(pair.run(&[b"LTRIM", b"l", b"100", b"-100"]), ["list 1"]);
    assert_eq!(pair.run(&[b"LTRIM", b"l", b"0", b"-1"]), ["list 1"]);
    assert_eq!(pair.run(&[b"LPOP", b"l"]), ["list 1"]);
    assert_eq!(pair.run(&[b"RPOP", b"l", b"100"]), ["list 100"]);
    assert_eq!(pair.run(&[b"LPOP", b"l", b"5000"]), ["list 1"]);
    assert_eq!(pair.run(&[b"RPOP", b"l", b"9000"]), ["list 1", "Delete"]);
    pair.many("RPUSH l", 0, 10_000);
    assert_eq!(pair.run(&[b"LREM", b"l", b"0", b"name-7"]), ["list 1"]);
    assert_eq!(pair.run(&[b"LREM", b"l", b"0", b"none"]), [""; 0]);
    assert_eq!(pair.run(&[b"LINSERT", b"l", b"BEFORE", b"name-9000", b"x"]), ["list 1"]);
    assert_eq!(pair.run(&[b"LINSERT", b"l", b"AFTER", b"name-9", b"name-9"]), ["list 1"]);
    assert_eq!(pair.run(&[b"LMOVE", b"l", b"m", b"LEFT", b"RIGHT"]), ["list 1", "list 1"]);
    assert_eq!(pair.run(&[b"RPOPLPUSH", b"m", b"m"]), ["list 1", "list 1"]);
    assert_eq!(pair.run(&[b"RPOPLPUSH", b"m", b"l"]), ["list 1", "list 1", "Delete"]);
    assert_eq!(pair.run(&[b"LMPOP", b"2", b"m", b"l", b"LEFT", b"COUNT", b"9"]), ["list 1"]);
    pair.run(&[b"DEL", b"l"]);
    let long = vec![b'x'; 100_000];
    assert_eq!(pair.run(&[b"RPUSH", b"l", b"short", &long]), ["list 2"]);
    assert_eq!(pair.run(&[b"LSET", b"l", b"0", &long]), ["list 1"]);
}

#[test]
fn changes_since_the_last_save_are_counted_as_in_redis() {
    let mut engine = Engine::new(unix_millis(), 3);
    for (line, count) in [
        ("RPUSH l 1 2 3 4 5 6 7 8 9", 9),
        ("LTRIM l 0 -1", 0),
        ("LTRIM l 1 -2", 2),
        ("LPOP l 2", 2),
        ("RPOP l", 1),
        ("LSET l 0 x", 1),
        ("LPUSHX none x", 0),
        ("LPOP l 0", 0),
        ("RPUSH m 1 2 1 3", 4),
        ("LREM m 0 1", 2),
        ("LREM m 0 1", 0),
        ("LINSERT m BEFORE 3 x", 1),
        ("LINSERT m BEFORE 4 x", 0),
        ("LMPOP 1 m LEFT COUNT 2", 2),
        ("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g 8 h", 8),
        ("ZADD z 1 a", 0),
        ("ZADD z 2 a 9 i", 2),
        ("ZINCRBY z 1 b", 1),
        ("ZREM z b none", 1),
        ("ZREMRANGEBYRANK z 0 1", 2),
        ("ZREMRANGEBYSCORE z 5 6", 2),
        ("ZPOPMIN z 2", 2),
        ("ZREMRANGEBYRANK z 0 -1", 2),
        ("XADD x 1 a b", 1),
        ("XADD x 2 a b", 1),
        ("XADD x 3 a b", 1),
        ("XADD x MAXLEN 2 4 a b", 1),
        ("XDEL x 3 9", 1),
        ("XADD x 5 a b", 1),
        ("XTRIM x MAXLEN 0", 2),
        ("XTRIM x MAXLEN 0", 0),
        ("XSETID x 9", 1),
        ("SADD s a b c d", 4),
        ("SPOP s 10", 4),
        ("PFADD p a b c d e f g", 8),
        ("PFADD p a b", 0),
        ("PFADD q", 1),
    ] {
        let before = engine.db.changes();
        engine.line(line);
        assert_eq!(engine.db.changes() - before, count, "{line}");
    }
}

#[test] // The records are equal with and without a reader.
fn changes_made_in_a_copy_are_counted_as_in_redis() {
    let scored = |from: usize| (from..from + 1_000).map(|at| format!(" {at} m{at}"));
    let named = |from: usize, count: usize| (from..from + count).map(|at| format!(" n{at}"));
    let long = "x".repeat(300_000);
    let lines: [(String, u64); 17] = [
        ("RPUSH l".to_owned() + &named(0, 1_000).collect::<String>(), 1_000),
        ("LPUSH l".to_owned() + &named(0, 1_000).collect::<String>(), 1_000),
        ("SADD s".to_owned() + &named(0, 1_000).collect::<String>(), 1_000),
        ("SADD s".to_owned() + &named(500, 1_000).collect::<String>(), 500),
        ("SADD s".to_owned() + &named(1_500, 8_500).collect::<String>(), 8_500),
        ("SREM s".to_owned() + &named(9_500, 1_000).collect::<String>(), 500),
        ("SPOP s 500".to_owned(), 500),
        ("SPOP s 8000".to_owned(), 8_000),
        ("HSET h".to_owned() + &named(0, 1_000).collect::<String>(), 500),
        ("HSET h".to_owned() + &named(0, 1_000).collect::<String>(), 500),
        ("HDEL h".to_owned() + &named(0, 1_000).collect::<String>(), 500),
        ("ZADD z".to_owned() + &scored(0).collect::<String>(), 1_000),
        ("ZADD z".to_owned() + &scored(500).collect::<String>(), 500),
        (format!("SETRANGE t 5 {long}"), 1),
        (format!("APPEND t {long}"), 1),
        ("BITFIELD b".to_owned() + &" SET u8 0 1 SET u8 8 2 GET u8 0".repeat(400), 800),
        ("BITFIELD b".to_owned() + &" SET u8 0 3 SET u8 8 2 GET u8 0".repeat(400), 1),
    ];
    for listens in [false, true] {
        let mut engine = Engine::new(unix_millis(), 3);
        engine.db.listen(listens);
        for (line, count) in &lines {
            let before = engine.db.changes();
            engine.line(line);
            assert_eq!(engine.db.changes() - before, *count, "{}", &line[..10]);
        }
    }
}

#[test]
fn collections_inside_an_entry_record_the_same_changes() {
    let mut pair = Pair::new();
    assert_eq!(pair.many("HSET h", 0, 20), ["hash 10"]);
    assert_eq!(pair.many("HSET h", 0, 4), ["hash 2"]);
    assert_eq!(pair.run(&[b"HDEL", b"h", b"name-18", b"no"]), ["hash 1"]);
    assert_eq!(pair.many("HDEL h", 100, 500), [""; 0], "aside, and none was there");
    assert_eq!(pair.many("HDEL h", 16, 500), ["hash 1"], "aside");
    assert_eq!(pair.many("HDEL h", 2, 500), ["Install"], "aside, most of it");
    assert_eq!(pair.many("HDEL h", 0, 500), ["Delete"], "aside, all of it");
    assert_eq!(pair.run(&[b"HSET", b"h", b"f", b"v"]), ["hash 1"]);
    assert_eq!(pair.run(&[b"HDEL", b"h", b"f"]), ["hash 1", "Delete"]);
    assert_eq!(pair.run(&[b"SADD", b"s", b"1", b"2", b"3"]), ["set 3"]);
    assert_eq!(pair.run(&[b"SREM", b"s", b"2"]), ["set 1"]);
    assert_eq!(pair.many("SREM s", 0, 500), [""; 0], "aside, and none was there");
    assert_eq!(pair.run(&[b"SPOP", b"s"]), ["set 1"]);
    assert_eq!(pair.run(&[b"SREM", b"s", b"1", b"3"]), ["set 1", "Delete"]);
}

#[test] // A deadline moves the hash out of its entry; after the expiry it moves back.
fn expired_fields_of_packed_hashes_are_logged() {
    let mut pair = Pair::new();
    pair.many("HSET h", 0, 20);
    assert_eq!(pair.run(&[b"HPEXPIRE", b"h", b"10", b"FIELDS", b"1", b"name-4"]), ["hash 1"]);
    pair.engine.tick(10);
    while pair.engine.db.reap(16) {}
    let records = pair.engine.db.take_records();
    assert_eq!(records.iter().map(short).collect::<Vec<_>>(), ["hash 1"]);
    records.iter().for_each(|record| apply_to_db(&mut pair.copy, &record.act).unwrap());
    assert!(contents(&pair.copy) == contents(&pair.engine.db));
    assert_eq!(pair.run(&[b"HDEL", b"h", b"name-2"]), ["hash 1"]);
    assert_eq!(pair.run(&[b"HSET", b"h", b"name-2", b"v"]), ["hash 1"]);
}

// An entry that dies during a change made aside is recorded before it; then the whole value is.
#[test]
fn expiry_during_a_bulk_edit_is_logged() {
    let mut pair = Pair::new();
    pair.many("HSET h", 0, 10_000);
    pair.many("HPEXPIRE h 10 FIELDS 200", 4_000, 200);
    let draft = pair.engine.db.draft::<Hash>(&Key::new(b"h")).unwrap();
    let mut draft = draft;
    draft.edit(pair.engine.now).remove(b"name-0");
    pair.engine.tick(10);
    while pair.engine.db.reap(16) {}
    pair.engine.db.install_draft(&Key::new(b"h"), draft);
    let records = pair.engine.db.take_records();
    assert_eq!(records.last().map(short).as_deref(), Some("Install"));
    records.iter().for_each(|record| apply_to_db(&mut pair.copy, &record.act).unwrap());
    assert!(contents(&pair.copy) == contents(&pair.engine.db));
    assert_eq!(pair.run(&[b"HDEL", b"h", b"name-2"]), ["hash 1"]);
}

/// The records of each core, command by command.
type Blocks = Vec<Vec<Vec<Record>>>;

/// Runs MSETs of six keys each on three cores.
fn blocks_of_msets(world: &mut World, count: usize) -> Blocks {
    world.cores.iter().for_each(|tx| _ = tx.home().shard.join(Wants::CHANGES));
    let mut blocks: Blocks = world.cores.iter().map(|_| Vec::new()).collect();
    for number in 0..count {
        let keys: Vec<String> = (0..6).map(|at| format!("{number}:{at}")).collect();
        let pairs = keys.iter().flat_map(|key| [key.as_bytes(), &b"v"[..]]);
        world.run(&std::iter::once(&b"MSET"[..]).chain(pairs).collect::<Vec<_>>());
        for (tx, blocks) in world.cores.iter().zip(&mut blocks) {
            blocks.push(tx.home().shard.take_records());
        }
    }
    blocks
}

/// The shards that a reader of whole transactions makes of logs that end at `ends`.
fn applied(blocks: &Blocks, ends: &[usize]) -> Vec<Shard> {
    let kept = || blocks.iter().zip(ends).map(|(blocks, end)| blocks[..*end].iter().flatten());
    let mut ended: BTreeMap<u64, usize> = BTreeMap::new();
    for record in kept().flatten().filter(|record| matches!(record.act, Act::EndOfPart)) {
        *ended.entry(record.part.unwrap().transaction).or_default() += 1;
    }
    let copies = kept().map(|records| {
        let mut shard = Shard::new(16, 1);
        for record in records {
            let ended = |transaction: u64| ended.get(&transaction).copied().unwrap_or(0);
            if record.part.is_none_or(|part| ended(part.transaction) == part.parts) {
                apply(&mut shard, record).unwrap();
            }
        }
        shard
    });
    copies.collect()
}

#[test] // Wherever the cores' logs end.
fn replay_applies_whole_transactions_or_nothing_of_them() {
    const MSETS: usize = 60;
    let mut world = World::new(3, unix_millis(), 5);
    let blocks = blocks_of_msets(&mut world, MSETS);
    let mut prng = Prng::from_seed(9);
    let mut torn = 0;
    for _ in 0..100 {
        let mut end = || usize::try_from(prng.below(MSETS as u64 + 1)).unwrap();
        let ends = [end(), end(), end()];
        let copies = applied(&blocks, &ends);
        for number in 0..MSETS {
            let there = (0..6).filter(|at| {
                let key = format!("{number}:{at}");
                copies.iter().any(|shard| shard.db(0).exists(&Key::new(key.as_bytes())))
            });
            let count = there.count();
            assert!(count == 0 || count == 6, "{count} keys of {number}, ends {ends:?}");
            torn += usize::from(count == 0 && ends.iter().any(|end| *end > number));
        }
    }
    assert!(torn > 100, "some transactions are cut: {torn}");
}
