//! Tests that random commands have the same replies on one to four cores and on redis-server
//! 7.0.15.

use crate::common::oracle::Oracle;
use crate::common::unix_millis;
use crate::common::value::bulks;
use crate::common::world::World;
use darter_base::Prng;
use darter_families::hash::Hash;
use darter_families::set::Set;
use darter_keyspace::{Deadline, Fresh, Key};

fn pick<'a>(prng: &mut Prng, choices: &[&'a str]) -> &'a str {
    choices[usize::try_from(prng.below(choices.len() as u64)).unwrap()]
}

fn key(prng: &mut Prng) -> Vec<u8> {
    pick(prng, &["a", "b", "c", "d", "e", "f", "{t}1", "{t}2", "1", "22"]).into()
}

/// Draws a time that does not pass during the test, or one out of range.
fn time(prng: &mut Prng, name: &str) -> Vec<u8> {
    let edge = pick(
        prng,
        &[
            "0",
            "-1",
            "-5000",
            "x",
            "",
            "9223372036854775807",
            "-9223372036854775808",
            "1.5",
            "+1",
            "9223372036854775",
            "9223372036854776",
            "-9223372036854776",
            "9223370000000000000",
        ],
    );
    if prng.chance(15) {
        return edge.into();
    }
    // The times are far enough apart for GT and LT, even though relative times are set at slightly
    // different moments.
    let far = 20_000_000 + prng.below(1_000_000) * 100;
    match name {
        "EXPIREAT" => (far * 1_000).to_string().into(),
        "PEXPIREAT" => (far * 1_000_000).to_string().into(),
        _ => far.to_string().into(),
    }
}

const NAMES: &[&str] = &[
    "DEL",
    "UNLINK",
    "EXISTS",
    "TOUCH",
    "TYPE",
    "KEYS",
    "RENAME",
    "RENAME",
    "RENAMENX",
    "COPY",
    "COPY",
    "MOVE",
    "OBJECT",
    "EXPIRE",
    "PEXPIRE",
    "EXPIREAT",
    "PEXPIREAT",
    "TTL",
    "PTTL",
    "EXPIRETIME",
    "PEXPIRETIME",
    "PERSIST",
    "DBSIZE",
    "FLUSHDB",
    "FLUSHALL",
    "SWAPDB",
    "SELECT",
    "RANDOMKEY",
    "SET",
    "SET",
    "SET",
    "FILL",
    "FILL",
    "SCAN",
    "MEMORY",
];

fn words(prng: &mut Prng) -> Vec<Vec<u8>> {
    let name = pick(prng, NAMES);
    let mut words: Vec<Vec<u8>> = vec![name.into()];
    match name {
        "DEL" | "UNLINK" | "EXISTS" | "TOUCH" => {
            (0..1 + prng.below(5)).for_each(|_| words.push(key(prng)));
        }
        "KEYS" => {
            words.push(pick(prng, &["*", "?", "[a-c]", "{t}*", "\\1", "[^a]", "22", ""]).into())
        }
        "RENAME" | "RENAMENX" => words.extend([key(prng), key(prng)]),
        "COPY" => copy_words(prng, &mut words),
        "MOVE" => {
            let to =
                pick(prng, &["0", "1", "2", "2", "16", "-1", "x", "99999999999", "-2147483649"]);
            words.extend([key(prng), to.into()]);
        }
        "OBJECT" => {
            let sub = pick(prng, &["ENCODING", "refcount", "FREQ", "ENCODING", "HELP"]);
            words.push(sub.into());
            if sub != "HELP" || prng.chance(10) {
                words.push(key(prng));
            }
        }
        "EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT" => {
            words.extend([key(prng), time(prng, name)]);
            if prng.chance(50) {
                for _ in 0..1 + prng.below(2) {
                    words.push(pick(prng, &["NX", "xx", "GT", "lt", "LT", "what"]).into());
                }
            }
        }
        "SCAN" => scan_words(prng, &mut words),
        "SET" | "FILL" => value_words(prng, &mut words),
        "MEMORY" => memory_words(prng, &mut words),
        "FLUSHDB" | "FLUSHALL" | "SWAPDB" | "SELECT" => whole_words(prng, name, &mut words),
        "DBSIZE" | "RANDOMKEY" => {}
        _ => words.push(key(prng)),
    }
    if prng.chance(2) && words.len() > 1 && name != "FILL" && name != "SELECT" {
        words.pop();
    }
    words
}

/// Commands on whole databases. Those that flush are drawn seldom.
fn whole_words(prng: &mut Prng, name: &str, words: &mut Vec<Vec<u8>>) {
    match name {
        "SELECT" => words.push(pick(prng, &["0", "1", "2"]).into()),
        "SWAPDB" => {
            let index =
                |prng: &mut Prng| pick(prng, &["0", "1", "2", "0", "16", "-1", "x", "4294967296"]);
            words.extend([index(prng).into(), index(prng).into()]);
        }
        _ => match prng.below(20) {
            0 => words.push(pick(prng, &["SYNC", "async"]).into()),
            1 => words.push(b"what".into()),
            2 => words.extend([b"SYNC".into(), b"ASYNC".into()]),
            _ => *words = vec![b"DBSIZE".into()],
        },
    }
}

/// A key with something in it.
fn value_words(prng: &mut Prng, words: &mut Vec<Vec<u8>>) {
    words.push(key(prng));
    if words[0] == b"FILL" {
        // FIXME: no hash of 129 to 512 fields, whose encoding `Hash` does not yet name as Redis
        // 7.0.15 does: its bound, `hash-max-listpack-entries`, is 512 there.
        words.push(pick(prng, &["hash", "set"]).into());
        words.push(pick(prng, &["3", "100", "600"]).into());
        return;
    }
    let short = pick(prng, &["7", "-3", "10000", "abc", "9223372036854775808"]);
    let len = 30 + usize::try_from(prng.below(1_000)).unwrap();
    words.push(if prng.chance(80) { short.into() } else { vec![b'x'; len] });
}

/// MEMORY USAGE only of a missing key: the sizes of existing keys differ from those of Redis.
fn memory_words(prng: &mut Prng, words: &mut Vec<Vec<u8>>) {
    words.extend([b"USAGE".into(), b"nothing".into()]);
    for word in ["samples", "5"].iter().take(usize::try_from(prng.below(3)).unwrap()) {
        words.push(word.as_bytes().into());
    }
    if prng.chance(30) {
        words.push(pick(prng, &["x", "-1", "SAMPLES"]).into());
    }
}

fn copy_words(prng: &mut Prng, words: &mut Vec<Vec<u8>>) {
    words.extend([key(prng), key(prng)]);
    for _ in 0..prng.below(3) {
        match prng.below(3) {
            0 => words.push(b"replace".into()),
            1 => {
                let to = pick(prng, &["0", "1", "2", "16", "-1", "x", "99999999999"]);
                words.extend([b"DB".into(), to.into()]);
            }
            _ => words.push(pick(prng, &["REPLACE", "what", "DB"]).into()),
        }
    }
}

/// One call returns all keys, so that cursors need not be compared.
fn scan_words(prng: &mut Prng, words: &mut Vec<Vec<u8>>) {
    words.push(
        pick(prng, &["0", "0", "0", "", "+0", "x", " 0", "-", "18446744073709551616"]).into(),
    );
    words.extend([b"COUNT".into(), b"1000".into()]);
    for _ in 0..prng.below(3) {
        let word = pick(prng, &["MATCH", "type", "COUNT", "what"]);
        let value = match word {
            "MATCH" => pick(prng, &["*", "[a-c]", "{t}*"]),
            "type" => pick(prng, &["hash", "STRING", "set", "zset", "what"]),
            _ => pick(prng, &["1000", "0", "-1", "x", "9223372036854775807"]),
        };
        words.push(word.into());
        if prng.chance(95) {
            words.push(value.into());
        }
    }
}

/// Fills a key with the same collection on both servers.
fn fill(world: &World, oracle: &mut Oracle, key: &[u8], kind: &[u8], count: u64) {
    oracle.run(&[b"DEL", key]);
    let names: Vec<Vec<u8>> = (0..count).map(|at| at.to_string().into_bytes()).collect();
    world.edit(key, |db| {
        let key = Key::new(key);
        db.remove(&key);
        for name in &names {
            if kind == b"set" {
                db.edit::<Set, _>(&key, true, |set| set.add(name, Deadline::Clear)).unwrap();
            } else {
                db.edit::<Hash, _>(&key, true, |hash| {
                    hash.set(name, Fresh::Bytes(b"v"), Deadline::Clear)
                })
                .unwrap();
            }
        }
    });
    let mut words: Vec<&[u8]> = vec![if kind == b"set" { b"SADD" } else { b"HSET" }, key];
    for name in &names {
        words.push(name);
        if kind != b"set" {
            words.push(b"v");
        }
    }
    oracle.run(&words);
}

fn show(words: &[&[u8]]) -> String {
    words
        .iter()
        .map(|word| String::from_utf8_lossy(&word[..word.len().min(40)]))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The part of a reply that must be equal on both servers.
fn comparable(name: &[u8], reply: &[u8]) -> Vec<u8> {
    match name {
        b"RANDOMKEY" => reply[..1].to_vec(),
        b"KEYS" if reply[0] == b'*' => sorted(reply),
        b"SCAN" if reply[0] == b'*' => {
            let list = reply.strip_prefix(b"*2\r\n$1\r\n0\r\n").expect("one call sees all");
            sorted(list)
        }
        _ => reply.to_vec(),
    }
}

fn sorted(reply: &[u8]) -> Vec<u8> {
    let mut all = bulks(reply);
    all.sort();
    format!("{all:?}").into_bytes()
}

/// The two servers set relative times at slightly different moments.
fn is_near(name: &[u8], ours: &[u8], theirs: &[u8]) -> bool {
    let times = [b"TTL".as_slice(), b"PTTL", b"EXPIRETIME", b"PEXPIRETIME"];
    let time = |reply: &[u8]| {
        std::str::from_utf8(reply).ok()?.trim().strip_prefix(':')?.parse::<i64>().ok()
    };
    match (time(ours), time(theirs)) {
        (Some(ours), Some(theirs)) if times.contains(&name) => {
            ours == theirs || ours > 0 && theirs > 0 && i64::abs(ours - theirs) < 1_000
        }
        _ => false,
    }
}

fn step(world: &mut World, oracle: &mut Oracle, prng: &mut Prng, seed: u64) {
    let words = words(prng);
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    world.set_now(unix_millis());
    match words[0] {
        b"SELECT" => {
            oracle.run(&words);
            world.db = usize::from(words[1][0] - b'0');
            return;
        }
        b"FILL" => {
            let count = std::str::from_utf8(words[3]).unwrap().parse().unwrap();
            fill(world, oracle, words[1], words[2], count);
            return;
        }
        _ => {}
    }
    let (ours, theirs) = (world.run(&words), oracle.run(&words));
    let (found, expected) = (comparable(words[0], &ours), comparable(words[0], &theirs));
    assert!(
        found == expected || is_near(words[0], &ours, &theirs),
        "seed {seed}: {}\n darter: {}\n redis:  {}",
        show(&words),
        show(&[&ours]),
        show(&[&theirs])
    );
}

#[test]
fn random_key_commands_reply_as_in_redis() {
    let mut oracle = Oracle::start("keys");
    for seed in 0..24 {
        let mut prng = Prng::from_seed(seed);
        let mut world = World::new(1 + usize::try_from(seed % 4).unwrap(), unix_millis(), 9);
        world.resp3 = seed % 2 == 1;
        oracle.run(&[b"HELLO", if world.resp3 { b"3" } else { b"2" }]);
        oracle.run(&[b"FLUSHALL"]);
        oracle.run(&[b"SELECT", b"0"]);
        for _ in 0..1_200 {
            step(&mut world, &mut oracle, &mut prng, seed);
        }
        world.check();
    }
}

#[test] // Including rounding, and the largest times.
fn absolute_expiry_times_are_exact_to_the_millisecond() {
    let mut oracle = Oracle::start("times");
    let mut world = World::new(2, unix_millis(), 9);
    let times = [
        "33177117420123",
        "33177117420499",
        "33177117420500",
        "9223372036854775807",
        "9223372036854775300",
        "33177117420000",
    ];
    for time in times {
        for words in [
            &["SET", "k", "v"][..],
            &["PEXPIREAT", "k", time],
            &["PEXPIRETIME", "k"],
            &["EXPIRETIME", "k"],
            &["PEXPIREAT", "k", time, "GT"],
            &["PEXPIREAT", "k", time, "LT"],
            &["PEXPIREAT", "k", "33177117420124", "GT"],
            &["PEXPIRETIME", "k"],
            &["PEXPIREAT", "k", "33177117420122", "LT"],
            &["PEXPIRETIME", "k"],
            &["EXPIREAT", "k", "33177117420", "XX"],
            &["PEXPIRETIME", "k"],
            &["PERSIST", "k"],
            &["PERSIST", "k"],
            &["TTL", "k"],
        ] {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            world.set_now(unix_millis());
            let (found, expected) = (world.run(&words), oracle.run(&words));
            assert_eq!(
                String::from_utf8_lossy(&found),
                String::from_utf8_lossy(&expected),
                "{}",
                show(&words)
            );
        }
    }
}
