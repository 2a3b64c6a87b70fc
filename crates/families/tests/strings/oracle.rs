//! Tests that run random commands here and on redis-server 7.0.15: every reply is equal, byte for
//! byte.

use crate::common::engine::Engine;
use crate::common::oracle::Oracle;
use crate::common::unix_millis;
use darter_base::Prng;

fn pick<'a>(prng: &mut Prng, choices: &[&'a str]) -> &'a str {
    choices[usize::try_from(prng.below(choices.len() as u64)).unwrap()]
}

fn key(prng: &mut Prng) -> Vec<u8> {
    pick(prng, &["a", "a", "b", "b", "c", "s"]).into()
}

fn value(prng: &mut Prng) -> Vec<u8> {
    match prng.below(12) {
        0 => prng.bytes(0..=60),
        1 => prng.bytes(400..=3_000),
        2 if prng.chance(20) => prng.bytes(60_000..=200_000),
        3 => number(prng).into(),
        4 => "ohmytext,mynewtext".repeat(1 + usize::try_from(prng.below(3)).unwrap()).into(),
        _ => {
            let texts = [
                "0",
                "1",
                "-1",
                "10",
                "9223372036854775807",
                "-9223372036854775808",
                "007",
                "+5",
                " 5",
                "5 ",
                "1.5",
                "-0",
                "abc",
                "",
                "inf",
                "-inf",
                "nan",
                "1e5",
                "ohmytext",
                "mynewtext",
                "EX",
                "3.0e3",
                "0x10",
                "9223372036854775808",
            ];
            pick(prng, &texts).into()
        }
    }
}

/// The text of a number, in many spellings and sizes.
fn number(prng: &mut Prng) -> String {
    let digits = |prng: &mut Prng, most: u64| -> String {
        (0..prng.below(most)).map(|_| char::from(b'0' + prng.below(10).to_le_bytes()[0])).collect()
    };
    let sign = pick(prng, &["", "", "-", "+"]);
    let exponent = match prng.below(6) {
        0 => format!("e{}", prng.below(40)),
        1 => format!("E-{}", prng.below(40)),
        2 if prng.chance(30) => format!("e{}", prng.below(5_200)),
        3 if prng.chance(30) => format!("e-{}", prng.below(5_200)),
        _ => String::new(),
    };
    match prng.below(12) {
        0 => {
            format!("{sign}0x{:x}.{:x}p{}", prng.next_u64() >> 20, prng.next_u64(), prng.below(90))
        }
        1 => format!("{sign}0x{:x}p-{}", prng.next_u64(), prng.below(200)),
        2 => format!("{sign}{}", prng.next_u64()),
        3 => format!("{sign}{}.{}{exponent}", digits(prng, 60), digits(prng, 60)),
        4 => format!("{sign}{}", f64::from_bits(prng.next_u64())),
        _ => format!("{sign}{}.{}{exponent}", digits(prng, 12), digits(prng, 20)),
    }
}

/// An option of SET or GETEX, or a wrong word.
fn option(prng: &mut Prng, words: &mut Vec<Vec<u8>>) {
    let word = pick(
        prng,
        &["NX", "xx", "GET", "KEEPTTL", "PERSIST", "EX", "PX", "EXAT", "pxat", "bogus", "GET"],
    );
    words.push(word.into());
    if ["EX", "PX", "EXAT", "pxat"].contains(&word) && prng.chance(95) {
        let times = ["100000", "99999999999999", "99999999999999", "0", "-5", "x", "1"];
        let time = pick(prng, &times);
        // A deadline in one second or millisecond could pass during the test.
        let soon = time == "1" && ["EX", "PX"].contains(&word);
        words.push(if soon { "1000000".into() } else { time.into() });
    }
}

fn command(prng: &mut Prng) -> Vec<Vec<u8>> {
    let name = pick(
        prng,
        &[
            "APPEND",
            "DECR",
            "DECRBY",
            "GET",
            "GETDEL",
            "GETEX",
            "GETRANGE",
            "GETSET",
            "INCR",
            "INCRBY",
            "INCRBYFLOAT",
            "LCS",
            "MGET",
            "MSET",
            "MSETNX",
            "PSETEX",
            "SET",
            "SET",
            "SET",
            "SETEX",
            "SETNX",
            "SETRANGE",
            "STRLEN",
            "SUBSTR",
            "GETEX",
        ],
    );
    let mut words: Vec<Vec<u8>> = vec![name.into(), key(prng)];
    match name {
        "APPEND" | "GETSET" | "SETNX" | "DECRBY" | "INCRBY" => words.push(value(prng)),
        "INCRBYFLOAT" => words.push(number(prng).into()),
        "GETRANGE" | "SUBSTR" | "SETRANGE" => range_words(prng, name, &mut words),
        "LCS" => lcs_words(prng, &mut words),
        "MGET" => (0..prng.below(4)).for_each(|_| words.push(key(prng))),
        "MSET" | "MSETNX" => pair_words(prng, &mut words),
        "PSETEX" | "SETEX" => {
            words.push(pick(prng, &["100000", "0", "-1", "x", "9223372036854775807"]).into());
            words.push(value(prng));
        }
        "SET" => {
            words.push(value(prng));
            (0..prng.below(4)).for_each(|_| option(prng, &mut words));
        }
        "GETEX" => (0..prng.below(3)).for_each(|_| option(prng, &mut words)),
        _ => {}
    }
    if prng.chance(3) {
        words.pop();
    }
    words
}

/// Two ends, or an offset and a value.
fn range_words(prng: &mut Prng, name: &str, words: &mut Vec<Vec<u8>>) {
    if name == "SETRANGE" {
        let offset = pick(prng, &["0", "1", "5", "600", "70000", "-1", "x", "536870911"]);
        // Two bytes at the last offset exceed the limit.
        let new = if offset == "536870911" { b"ab".to_vec() } else { value(prng) };
        words.extend([offset.into(), new]);
        return;
    }
    for _ in 0..2 {
        let near = i64::try_from(prng.below(40)).unwrap() - 20;
        let far = pick(prng, &["-100000", "70000", "x", "9223372036854775807"]);
        words.push(if prng.chance(85) { near.to_string().into() } else { far.into() });
    }
}

/// The rest of some pairs, now and then with the last value missing.
fn pair_words(prng: &mut Prng, words: &mut Vec<Vec<u8>>) {
    words.push(value(prng));
    for _ in 0..prng.below(3) {
        words.extend([key(prng), value(prng)]);
    }
    if prng.chance(10) {
        words.push(b"odd".to_vec());
    }
}

fn lcs_words(prng: &mut Prng, words: &mut Vec<Vec<u8>>) {
    words.push(key(prng));
    for _ in 0..prng.below(4) {
        let word = pick(prng, &["IDX", "len", "WITHMATCHLEN", "MINMATCHLEN", "IDX", "what"]);
        words.push(word.into());
        if word == "MINMATCHLEN" && prng.chance(90) {
            words.push(pick(prng, &["0", "2", "-3", "5", "x"]).into());
        }
    }
}

fn show(words: &[Vec<u8>]) -> String {
    let short = |word: &Vec<u8>| {
        String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned()
            + if word.len() > 40 { "…" } else { "" }
    };
    words.iter().map(short).collect::<Vec<_>>().join(" ")
}

/// Runs a command on both servers and compares the replies.
fn both(engine: &mut Engine, oracle: &mut Oracle, words: &[Vec<u8>], seed: u64) {
    let borrowed: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    let (found, expected) = (engine.run(&borrowed), oracle.run(&borrowed));
    assert!(
        found == expected,
        "seed {seed}: {}\n darter: {}\n redis:  {}",
        show(words),
        show(&[found]),
        show(&[expected])
    );
}

#[test]
fn random_string_commands_reply_as_in_redis() {
    let mut oracle = Oracle::start("strings");
    for seed in 0..24 {
        let mut prng = Prng::from_seed(seed);
        let mut engine = Engine::new(unix_millis(), 1);
        engine.resp3 = seed % 2 == 1;
        oracle.run(&[b"HELLO", if engine.resp3 { b"3" } else { b"2" }]);
        oracle.run(&[b"FLUSHALL"]);
        oracle.run(&[b"SADD", b"s", b"m"]);
        engine.add_set(b"s");
        for _ in 0..1_000 {
            let words = command(&mut prng);
            both(&mut engine, &mut oracle, &words, seed);
            let key = words.get(1).cloned().unwrap_or_else(|| b"a".to_vec());
            both(&mut engine, &mut oracle, &[b"GET".to_vec(), key], seed);
            if !engine.db.exists(&darter_keyspace::Key::new(b"s")) {
                oracle.run(&[b"SADD", b"s", b"m"]);
                engine.add_set(b"s");
            }
        }
        engine.db.check_invariants();
    }
}

#[test] // 10 000 pairs: decimal, hexadecimal, denormal, huge, and refused ones.
fn incrbyfloat_sums_equal_those_of_redis() {
    let mut oracle = Oracle::start("floats");
    let mut engine = Engine::new(unix_millis(), 1);
    let mut prng = Prng::from_seed(0xf10a7);
    for seed in 0..10_000 {
        let old = [b"SET".to_vec(), b"k".to_vec(), number(&mut prng).into()];
        both(&mut engine, &mut oracle, &old, seed);
        let add = [b"INCRBYFLOAT".to_vec(), b"k".to_vec(), number(&mut prng).into()];
        both(&mut engine, &mut oracle, &add, seed);
    }
}

#[test] // Long enough for many portions.
fn lcs_of_long_strings_equals_that_of_redis() {
    let mut oracle = Oracle::start("lcs");
    let mut engine = Engine::new(unix_millis(), 1);
    let mut prng = Prng::from_seed(3);
    for (one, other) in [(3_000, 2_900), (1, 100_000), (70_000, 40), (64, 64), (65, 127)] {
        let mut draw = |len| -> Vec<u8> {
            (0..len).map(|_| b"abcd"[usize::try_from(prng.below(4)).unwrap()]).collect()
        };
        for words in [
            vec![b"SET".to_vec(), b"one".to_vec(), draw(one)],
            vec![b"SET".to_vec(), b"other".to_vec(), draw(other)],
        ] {
            both(&mut engine, &mut oracle, &words, one);
        }
        for options in ["", "LEN", "IDX", "IDX MINMATCHLEN 3 WITHMATCHLEN"] {
            let words = format!("LCS one other {options}");
            let words: Vec<Vec<u8>> = words.split_whitespace().map(Into::into).collect();
            both(&mut engine, &mut oracle, &words, one);
        }
    }
    assert!(engine.portions > 500, "{}", engine.portions);
}
