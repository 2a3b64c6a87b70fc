//! Tests of SORT on several cores: compared with redis-server, as of one instant, and in slices
//! that delay no client.

use crate::common::Bytes;
use crate::common::oracle::Oracle;
use crate::common::unix_millis;
use crate::common::value::Value;
use crate::common::world::World;
use darter_base::Prng;
use darter_keyspace::{Deadline, Fresh, Key, Wants};

/// Runs a command. Returns its reply.
fn run(world: &mut World, words: &[&[u8]]) -> Value {
    Value::read(&world.run(words))
}

/// The words of a line.
fn words(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

#[test] // Every type, with weights on all cores; some keys are expired, absent or long.
fn large_collections_are_sorted_as_by_redis() {
    const LINES: &[&str] = &[
        "SORT l",
        "SORT l DESC LIMIT 700 40",
        "SORT l ALPHA",
        "SORT l ALPHA DESC LIMIT 0 30",
        "SORT l BY w_* GET # GET w_* GET h_*->f",
        "SORT l BY w_* DESC LIMIT 10 50 GET w_* GET nothing",
        "SORT l BY h_*->f GET h_*->f GET h_*->long",
        "SORT_RO l BY nosort DESC GET # LIMIT 1500 9",
        "SORT l BY w_* GET # GET w_* STORE to",
        "LRANGE to 0 -1",
        "SORT l DESC LIMIT 3 700 STORE to",
        "LRANGE to 0 -1",
        "SORT s ALPHA LIMIT 100 900",
        "SORT s BY w_* GET w_*",
        "SORT z BY nosort DESC GET h_*->f STORE to",
        "LRANGE to 0 -1",
        "SORT z DESC BY h_*->f LIMIT 0 10",
        "SORT l BY x_*",
        "SORT l BY x_* STORE to",
        "LLEN to",
    ];
    for cores in [1, 3] {
        let mut oracle = Oracle::start(&format!("sorting-{cores}"));
        let mut world = World::new(cores, unix_millis(), 5);
        let mut both = |words: &[&[u8]]| {
            let (found, wanted) = (world.run(words), oracle.run(words));
            let line: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
            assert!(found == wanted, "{}", &line.join(" ")[..60.min(line.join(" ").len())]);
        };
        let mut prng = Prng::from_seed(8);
        let long = vec![b'x'; 70_000];
        for at in 0..2_000 {
            let (name, weight) = (at.to_string(), prng.below(600).to_string());
            both(&[b"RPUSH", b"l", (at * 7 % 2_000).to_string().as_bytes()]);
            both(&[b"SADD", b"s", name.as_bytes()]);
            both(&[b"ZADD", b"z", weight.as_bytes(), name.as_bytes()]);
            if at % 3 > 0 {
                both(&[b"SET", format!("w_{name}").as_bytes(), weight.as_bytes()]);
            }
            if at % 100 == 7 {
                both(&[b"HSET", format!("h_{name}").as_bytes(), b"long", &long]);
            }
            both(&[b"HSET", format!("h_{name}").as_bytes(), b"f", weight.as_bytes()]);
        }
        both(&words("SET x_77 none"));
        LINES.iter().for_each(|line| both(&words(line)));
        world.check();
    }
}

/// A list of the numbers from 0 to `count`, each with its weight at a key of its own.
fn weighed(cores: usize, count: usize) -> World {
    let mut world = World::new(cores, 1_000, 11);
    for at in 0..count {
        run(&mut world, &[b"RPUSH", b"l", at.to_string().as_bytes()]);
        weigh(&world, at, count - at);
    }
    world
}

/// Changes a weight.
fn weigh(world: &World, at: usize, weight: usize) {
    let (name, weight) = (format!("w_{at}"), weight.to_string());
    world.edit(name.as_bytes(), |db| {
        let weight = Fresh::Bytes(weight.as_bytes());
        db.set_text(&Key::new(name.as_bytes()), weight, Deadline::Clear);
    });
}

#[test] // No other client waits for it.
fn sort_reads_weights_and_elements_at_one_instant() {
    const COUNT: usize = 1_500;
    for cores in [1, 3] {
        let mut world = weighed(cores, COUNT);
        let slot = world.start(0, &words("SORT l BY w_* GET w_* STORE to"));
        let hash = |key: &[u8]| darter_tx::lock_key(0, Key::new(key).hash);
        let locked = |world: &World, key: &[u8], write| {
            let tx = &world.cores[world.cores[0].core_of(key)];
            tx.home().locks.blocks_point(hash(key), write)
        };
        while !locked(&world, b"to", false) || locked(&world, b"l", true) {
            assert!(world.step(), "it locks its destination, and gives all others back");
        }
        assert!((0..COUNT).all(|at| !locked(&world, format!("w_{at}").as_bytes(), true)));
        (0..COUNT).for_each(|at| weigh(&world, at, 7));
        run(&mut world, &[b"RPUSH", b"l", b"none"]);
        world.settle();
        assert_eq!(Value::read(&world.reply(&slot)), Value::Int(COUNT as i64));
        let stored: Vec<Bytes> = (1..=COUNT).map(|at| at.to_string().into_bytes()).collect();
        assert_eq!(run(&mut world, &words("LRANGE to 0 -1")).bulks(), stored);
        world.check();
    }
}

#[test] // After some ten elements, or some hundred integers.
fn sort_checks_the_slice_every_few_elements() {
    let mut world = World::new(1, 1_000, 3);
    let numbers: Vec<Bytes> = (0..50_000).map(|at| (at * 7 % 50_000).to_string().into()).collect();
    for portion in numbers.chunks(500) {
        let push = [&b"RPUSH"[..], b"l"].into_iter().chain(portion.iter().map(|word| &word[..]));
        run(&mut world, &push.collect::<Vec<_>>());
    }
    let lines = [
        ("SORT l", 256),
        ("SORT l ALPHA", 32),
        ("SORT l BY w_*", 32),
        ("SORT l STORE to", 256),
        ("SORT l LIMIT 0 5", 256),
    ];
    for (line, portion) in lines {
        let before = world.questions.get();
        world.run(&words(line));
        let asked = world.questions.get() - before;
        assert!(asked > 50_000 / portion, "{line} asked {asked} times");
    }
    world.check();
}

#[test]
fn sort_counts_hits_and_misses_as_redis_does() {
    let mut world = weighed(3, 10);
    run(&mut world, &words("DEL w_3 w_4"));
    let count = |world: &mut World, line: &str| {
        let sum = |world: &World| {
            let stats = world.cores.iter().map(|tx| tx.home().shard.stats);
            stats.fold((0, 0), |sum, stats| (sum.0 + stats.hits, sum.1 + stats.misses))
        };
        let before = sum(world);
        run(world, &words(line));
        let after = sum(world);
        (after.0 - before.0, after.1 - before.1)
    };
    assert_eq!(count(&mut world, "SORT l"), (1, 0));
    assert_eq!(count(&mut world, "SORT none BY w_*"), (0, 1));
    assert_eq!(count(&mut world, "SORT l BY w_* GET w_* GET x_* GET #"), (1 + 8 + 8, 2 + 2 + 10));
    assert_eq!(count(&mut world, "SORT l BY w_* GET w_* LIMIT 0 2 STORE to"), (1 + 8, 2 + 2));
    let changes = |world: &World| world.edit(b"other", |db| db.changes());
    let before = changes(&world);
    run(&mut world, &words("SORT l STORE other"));
    assert_eq!(changes(&world) - before, 10, "each element is a change, as in Redis");
}

#[test]
fn replies_of_many_get_patterns_are_sent_in_portions() {
    let mut world = World::new(2, 1_000, 11);
    for at in 0..30 {
        run(&mut world, &[b"RPUSH", b"l", at.to_string().as_bytes()]);
    }
    for pattern in [&b"#"[..], b"w_*"] {
        let mut words = vec![&b"SORT"[..], b"l"];
        words.extend((0..10_000).flat_map(|_| [&b"GET"[..], pattern]));
        let Value::Array(values) = run(&mut world, &words) else { panic!("an array") };
        assert_eq!(values.len(), 30 * 10_000);
        let expected = |at: usize| match pattern {
            b"#" => Value::Bulk((at / 10_000).to_string().into_bytes()),
            _ => Value::Null,
        };
        assert!(values.iter().enumerate().all(|(at, value)| *value == expected(at)));
        let before = world.questions.get();
        run(&mut world, &[&words[..], &[b"STORE", b"to"]].concat());
        assert!(world.questions.get() - before >= 30 * 10_000 / 64);
        let len = run(&mut world, &[b"LLEN", b"to"]);
        assert_eq!(len, Value::Int(300_000));
    }
}

#[test]
fn long_key_names_are_built_a_few_at_a_time() {
    let mut world = World::new(2, 1_000, 11);
    for at in 0..64 {
        run(&mut world, &[b"RPUSH", b"l", at.to_string().as_bytes()]);
    }
    let long = [&b"w".repeat(60_000)[..], b"_*"].concat();
    let before = world.questions.get();
    let Value::Array(values) = run(&mut world, &[b"SORT", b"l", b"BY", &long, b"GET", b"#"]) else {
        panic!("an array")
    };
    assert_eq!(values.len(), 64);
    assert!(world.questions.get() - before >= 64);
}

#[test]
fn many_long_get_patterns_for_one_element_run_in_portions() {
    let mut world = World::new(2, 1_000, 11);
    run(&mut world, &[b"RPUSH", b"l", b"1", b"2"]);
    let long = [&b"w".repeat(60_000)[..], b"_*"].concat();
    run(&mut world, &[b"SET", &[&long[..60_001], b"2"].concat(), b"two"]);
    let mut words = vec![&b"SORT"[..], b"l"];
    words.extend((0..40).flat_map(|_| [&b"GET"[..], &long]));
    let Value::Array(values) = run(&mut world, &words) else { panic!("an array") };
    assert!(values[..40].iter().all(|value| *value == Value::Null));
    assert!(values[40..].iter().all(|value| *value == Value::Bulk(b"two".to_vec())));
    words.extend([&b"STORE"[..], b"to"]);
    let before = world.questions.get();
    assert_eq!(run(&mut world, &words), Value::Int(80));
    assert!(world.questions.get() - before >= 80);
}

/// How often a command asked whether its slice is over.
fn questions(world: &mut World, line: &str) -> usize {
    let before = world.questions.get();
    world.run(&words(line));
    world.questions.get() - before
}

#[test] // Their bytes count, not their number.
fn texts_with_a_long_common_prefix_are_compared_in_portions() {
    for (count, bytes) in [(2_000, 1_000), (200, 20_000), (24, 300_000)] {
        let mut world = World::new(1, 1_000, 3);
        let mut expected: Vec<Bytes> = Vec::new();
        for at in 0..count {
            let text =
                [&b"x".repeat(bytes)[..], format!("{:05}", at * 7 % count).as_bytes()].concat();
            run(&mut world, &[b"RPUSH", b"l", &text]);
            expected.push(text);
        }
        expected.sort();
        assert!(run(&mut world, &words("SORT l ALPHA")).bulks() == expected);
        let nul = run(&mut world, &words("SORT l ALPHA DESC LIMIT 1 2")).bulks();
        assert!(nul[..] == [expected[count - 2].clone(), expected[count - 3].clone()]);
        // Each merge of two runs of `n` texts compares at least `n` pairs.
        let compared = count * (count.ilog2() as usize - 4) / 2 * bytes;
        let asked = questions(&mut world, "SORT l ALPHA STORE to");
        assert!(asked >= compared / (16 * 1024), "{count} of {bytes}: {asked} times");
        // No text goes through more merges than there are doublings.
        let all = count * (count.ilog2() as usize + 3) * (bytes + 4_096);
        assert!(asked <= 3 * count + all / (12 * 1024), "{count} of {bytes}: {asked} times");
        world.check();
    }
}

#[test]
fn numbers_of_many_digits_are_parsed_in_portions() {
    let mut world = World::new(1, 1_000, 3);
    let digits = |at: usize| [b"1.", &b"0".repeat(60_000)[..], at.to_string().as_bytes()].concat();
    for at in 0..32 {
        run(&mut world, &[b"RPUSH", b"l", &digits(at)]);
    }
    assert!(questions(&mut world, "SORT l") >= 2 * 32);
}

#[test]
fn members_of_megabytes_are_sent_and_stored_in_portions() {
    let mut world = World::new(1, 1_000, 3);
    let long = b"m".repeat(3 << 20);
    run(&mut world, &[b"SADD", b"s", &long, b"short"]);
    run(&mut world, &[b"SET", b"w_short", b"9"]);
    let expected = vec![long.clone(), b"short".to_vec()];
    assert!(run(&mut world, &words("SORT s ALPHA")).bulks() == expected);
    let twice = run(&mut world, &words("SORT s ALPHA GET # GET w_* GET #"));
    let one = |text: &[u8]| Value::Bulk(text.to_vec());
    let expected = [&long[..], b"", &long, b"short", b"9", b"short"].map(one);
    let Value::Array(values) = twice else { panic!("an array") };
    assert!(values.iter().zip(&expected).enumerate().all(|(at, (value, wanted))| match at {
        1 => *value == Value::Null,
        _ => value == wanted,
    }));
    // Sixteen portions of the reply are only a part of the command.
    assert!(questions(&mut world, "SORT s ALPHA") >= 16);
    assert!(questions(&mut world, "SORT s ALPHA STORE to") >= (3 << 20) / (32 * 1024));
    assert!(run(&mut world, &words("LRANGE to 0 -1")).bulks()[0] == long);
}

#[test]
fn empty_texts_are_sorted() {
    let mut world = World::new(1, 1_000, 3);
    let words_of = |count: usize| [&b"RPUSH"[..], b"l"].into_iter().chain(vec![&b""[..]; count]);
    run(&mut world, &words_of(16_384).collect::<Vec<_>>());
    for line in ["SORT l ALPHA", "SORT l BY nosort GET #", "SORT l ALPHA DESC LIMIT 9 20000"] {
        let reply = run(&mut world, &words(line)).bulks();
        assert!(reply.len() >= 16_375 && reply.iter().all(Vec::is_empty), "{line}");
    }
}

#[test] // Names above a bound are stored in portions.
fn sort_store_keeps_the_order_of_long_and_short_names() {
    for len in [30_000, 33_000, 40_000, 65_535, 65_536, 65_537, 100_000] {
        let mut world = World::new(1, 1_000, 3);
        let [first, third] = [b"a", b"c"].map(|letter| letter.repeat(len));
        run(&mut world, &[b"SADD", b"s", &first, b"b", &third, b"d"]);
        run(&mut world, &words("SORT s ALPHA STORE to"));
        let wanted = vec![first.clone(), b"b".to_vec(), third.clone(), b"d".to_vec()];
        assert!(run(&mut world, &words("LRANGE to 0 -1")).bulks() == wanted, "{len}");
        run(&mut world, &words("SORT s ALPHA GET absent GET # GET absent GET # STORE to"));
        let each = |name: &Vec<u8>| [Vec::new(), name.clone(), Vec::new(), name.clone()];
        let wanted: Vec<_> = wanted.iter().flat_map(each).collect();
        assert!(run(&mut world, &words("LRANGE to 0 -1")).bulks() == wanted, "{len}");
    }
}

#[test]
fn too_long_and_too_many_patterns_are_refused() {
    let mut world = World::new(2, 1_000, 3);
    run(&mut world, &[b"RPUSH", b"l", b"1", b"2"]);
    let long = [&b"w".repeat(64 * 1024)[..], b"_*"].concat();
    for option in [&b"BY"[..], b"GET"] {
        let Value::Error(error) = run(&mut world, &[b"SORT", b"l", option, &long]) else {
            panic!("it is too long")
        };
        assert_eq!(error, "ERR BY or GET pattern is too long");
    }
}

#[test] // Their names are not kept until the end.
fn sort_publishes_misses_before_it_ends() {
    for cores in [1, 3] {
        let mut world = World::new(cores, 1_000, 3);
        (0..3_000)
            .for_each(|at| drop(run(&mut world, &[b"RPUSH", b"l", at.to_string().as_bytes()])));
        world.cores.iter().for_each(|tx| {
            tx.home().shard.join(Wants::ALL);
            drop(tx.home().shard.take_records());
        });
        let told = |world: &World| -> usize {
            world.cores.iter().map(|tx| tx.home().shard.take_records().len()).sum()
        };
        let slot = world.start(0, &words("SORT l BY w_* LIMIT 0 5"));
        let (mut steps, mut first, mut all) = (0, None, 0);
        while world.step() {
            steps += 1;
            let now = told(&world);
            all += now;
            first = first.or((now > 0).then_some(steps));
            assert!(now <= 512, "{now} in one step");
        }
        assert!(slot.borrow().is_some());
        assert_eq!(all, 3_000);
        assert!(first.is_some_and(|first| first < steps / 3), "{first:?} of {steps}");
    }
}

#[test]
fn long_weights_are_parsed_in_portions() {
    let mut world = World::new(1, 1_000, 3);
    for at in 0..32 {
        run(&mut world, &[b"RPUSH", b"l", at.to_string().as_bytes()]);
        let digits =
            [b"1.", &b"0".repeat(60_000)[..], (9 - at % 9).to_string().as_bytes()].concat();
        run(&mut world, &[b"SET", format!("w_{at}").as_bytes(), &digits]);
    }
    let hits = |world: &World| world.cores[0].home().shard.stats.hits;
    let before = hits(&world);
    assert!(questions(&mut world, "SORT l BY w_*") >= 32);
    assert_eq!(hits(&world) - before, 1 + 32);
}
