//! Cuckoo filters against a bag of the added items, and in files and dumps.

use crate::common::value::Value;
use crate::common::world::World;
use darter_base::Prng;
use darter_families::cuckoo::CuckooFilter;
use darter_keyspace::{Fresh, Key, NewItem, Value as _};
use std::collections::BTreeMap;

const NOW: u64 = 1_000_000;

fn run(world: &mut World, words: &[&[u8]]) -> Value {
    Value::read(&world.run(words))
}

fn text(world: &mut World, line: &str) -> Value {
    run(world, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

fn int(value: &Value) -> i64 {
    let Value::Int(int) = value else { panic!("an integer: {value:?}") };
    *int
}

/// A command with numbers as its last words, and its answers.
fn many(world: &mut World, line: &str, numbers: &[u64]) -> Vec<i64> {
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    match text(world, &format!("{line} {}", numbers.join(" "))) {
        Value::Array(values) => values.iter().map(int).collect(),
        other => panic!("an array: {other:?}"),
    }
}

/// The parts of the filter at a key.
fn parts(world: &mut World, key: &[u8]) -> Vec<Vec<u8>> {
    world.edit(key, |db| {
        let filter = db.value::<CuckooFilter>(&Key::new(key)).unwrap().unwrap();
        filter.check_invariants();
        let (mut items, mut parts) = (filter.items(NOW), Vec::new());
        while let Some(item) = items.next() {
            parts.push(NewItem::of(item).unwrap().name().to_vec());
        }
        parts
    })
}

/// A filter of parts, if they are those of one.
fn of_parts<'a>(parts: impl IntoIterator<Item = &'a Vec<u8>>) -> Option<CuckooFilter> {
    let mut filter = CuckooFilter::default();
    let mut take = |part| filter.take_in(NewItem::Single { name: part, deadline: None });
    let are_taken = parts.into_iter().all(|part| take(part));
    (are_taken && filter.is_complete() && !filter.is_empty()).then_some(filter)
}

#[test]
fn cuckoo_filters_find_all_items_after_additions_and_removals() {
    const PLANS: [&str; 4] =
        ["4", "2000 BUCKETSIZE 4", "64 MAXITERATIONS 3000 EXPANSION 4", "500 BUCKETSIZE 1"];
    for seed in 0..12 {
        let mut world = World::new(1, NOW, seed);
        let mut prng = Prng::from_seed(seed);
        let mut model = BTreeMap::<u64, i64>::new();
        text(&mut world, &format!("CF.RESERVE k {}", PLANS[seed as usize % 4]));
        for _ in 0..60 {
            let numbers: Vec<u64> = (0..=prng.below(60)).map(|_| prng.below(400)).collect();
            let line = ["CF.INSERT k ITEMS", "CF.INSERTNX k ITEMS"][prng.below(2) as usize];
            for (number, added) in numbers.iter().zip(many(&mut world, line, &numbers)) {
                *model.entry(*number).or_default() += added.max(0);
            }
            for _ in 0..prng.below(30) {
                let number = prng.below(400);
                if model.get(&number).is_some_and(|there| *there > 0) {
                    assert_eq!(text(&mut world, &format!("CF.DEL k {number}")), Value::Int(1));
                    *model.entry(number).or_default() -= 1;
                }
            }
        }
        let numbers: Vec<u64> = (0..400).collect();
        let there = many(&mut world, "CF.MEXISTS k", &numbers);
        for (number, times) in &model {
            assert!(*times == 0 || there[*number as usize] == 1, "seed {seed}: {number}");
            let count = int(&text(&mut world, &format!("CF.COUNT k {number}")));
            assert!(count >= *times, "seed {seed}: {number} {count} times of {times}");
        }
        let copy = of_parts(&parts(&mut world, b"k")).unwrap();
        assert_eq!(copy.cuckoo().len(), model.values().sum::<i64>().unsigned_abs());
    }
}

#[test] // Each command hashes them in pieces.
fn long_items_are_found_by_all_commands() {
    let mut world = World::new(1, NOW, 5);
    for len in [65_520, 65_521, 300_000] {
        let item = vec![7; len];
        for (command, answer) in
            [("CF.ADD", 1), ("CF.ADDNX", 0), ("CF.EXISTS", 1), ("CF.COUNT", 1), ("CF.DEL", 1)]
        {
            let reply = run(&mut world, &[command.as_bytes(), b"k", &item]);
            assert_eq!(reply, Value::Int(answer), "{command} of {len} bytes");
        }
        assert_eq!(run(&mut world, &[b"CF.EXISTS", b"k", &item]), Value::Int(0));
    }
}

#[test] // Runs of zeros are omitted.
fn a_dumped_filter_is_restored_piece_by_piece() {
    for plan in ["100", "1000000 EXPANSION 2", "50000000000"] {
        let mut world = World::new(1, NOW, 5);
        text(&mut world, &format!("CF.RESERVE k {plan}"));
        many(&mut world, "CF.INSERT k ITEMS", &(0..500).collect::<Vec<_>>());
        let (mut at, mut pieces) = (0, 0);
        loop {
            let dump = text(&mut world, &format!("CF.SCANDUMP k {at}"));
            let Value::Array(pair) = dump else { panic!("{dump:?}") };
            let [Value::Int(next), Value::Bulk(piece)] = &pair[..] else { panic!("{pair:?}") };
            if *next == 0 {
                break;
            }
            assert!(*next > at, "{plan}: {next} after {at}");
            (at, pieces) = (*next, pieces + 1);
            let number = at.to_string();
            let words = [&b"CF.LOADCHUNK"[..], b"copy", number.as_bytes(), piece];
            assert_eq!(run(&mut world, &words), Value::Simple("OK".to_owned()), "{plan} {at}");
        }
        assert!(pieces > 1 && pieces < 1_100, "{plan}: {pieces}");
        assert!(parts(&mut world, b"k") == parts(&mut world, b"copy"), "{plan}");
    }
}

#[test]
fn a_damaged_filter_file_is_refused_or_read_as_valid() {
    let mut world = World::new(1, NOW, 5);
    text(&mut world, "CF.RESERVE k 1000 EXPANSION 4");
    many(&mut world, "CF.INSERT k ITEMS", &(0..20_000).collect::<Vec<_>>());
    let good = parts(&mut world, b"k");
    assert!(of_parts(&good).is_some() && good.len() > 5, "{}", good.len());
    let mut prng = Prng::from_seed(7);
    for _ in 0..2_000 {
        let mut bad = good.clone();
        let at = prng.below(bad.len() as u64) as usize;
        match prng.below(5) {
            0 => _ = bad.remove(at),
            1 => bad.insert(at, good[prng.below(good.len() as u64) as usize].clone()),
            2 => {
                let len = prng.below(bad[at].len() as u64);
                bad[at].truncate(len as usize);
            }
            3 => bad[at].push(0),
            _ => {
                let head = bad[at].len().min(36) as u64;
                bad[at][prng.below(head) as usize] ^= 1 << prng.below(8);
            }
        }
        if let Some(mut filter) = of_parts(&bad) {
            filter.check_invariants();
            let value = Fresh::Bytes(b"");
            filter.take_in(NewItem::Pair { name: b"x", value, deadline: None });
        }
    }
    assert!(of_parts(&good[1..]).is_none(), "without its head");
}

#[test]
fn a_partly_loaded_filter_can_be_used_saved_and_loaded() {
    let mut world = World::new(1, NOW, 1);
    text(&mut world, "CF.RESERVE a 100");
    many(&mut world, "CF.INSERT a ITEMS", &(0..100).collect::<Vec<_>>());
    let Value::Array(piece) = text(&mut world, "CF.SCANDUMP a 0") else { panic!("two values") };
    let Value::Bulk(head) = &piece[1] else { panic!("a head") };
    run(&mut world, &[b"CF.LOADCHUNK", b"b", b"1", head]);
    many(&mut world, "CF.INSERT b ITEMS", &(0..100).collect::<Vec<_>>());
    let saved = parts(&mut world, b"b");
    let loaded = of_parts(&saved).expect("it can be loaded");
    assert_eq!(loaded.cuckoo().len(), 200);
}

#[test] // After very many refusals, items are refused without moving others.
fn full_filters_refuse_items_without_moves() {
    let mut world = World::new(1, NOW, 1);
    text(&mut world, "CF.RESERVE a 64 BUCKETSIZE 2 MAXITERATIONS 65535 EXPANSION 0");
    let before = world.questions.get();
    let answers = many(&mut world, "CF.INSERT a ITEMS", &(0..5_000).collect::<Vec<_>>());
    let added = answers.iter().filter(|answer| **answer == 1).count();
    assert!(added > 50 && added <= 64, "{added}");
    let steps = world.questions.get() - before;
    assert!(steps < 256 * 2 * 512 / 8 + 6_000, "{steps}");
}

#[test]
fn scandump_ends_at_an_unknown_iterator() {
    let mut world = World::new(1, NOW, 5);
    text(&mut world, "CF.ADD k item");
    let end = text(&mut world, "CF.SCANDUMP k 100");
    for iterator in ["9223372036854775807", "576460752303423489", "-1"] {
        assert_eq!(text(&mut world, &format!("CF.SCANDUMP k {iterator}")), end, "{iterator}");
    }
}
