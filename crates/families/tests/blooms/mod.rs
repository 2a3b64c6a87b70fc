//! Bloom filters against a set of the added items, and in files and dumps.

use crate::common::value::Value;
use crate::common::world::World;
use darter_base::Prng;
use darter_families::bloom::BloomFilter;
use darter_keyspace::{Key, NewItem, Value as _};
use std::collections::BTreeSet;

const NOW: u64 = 1_000_000;

fn run(world: &mut World, words: &[&[u8]]) -> Value {
    Value::read(&world.run(words))
}

fn text(world: &mut World, line: &str) -> Value {
    run(world, &line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

fn ints(value: Value) -> Vec<i64> {
    let Value::Array(values) = value else { panic!("an array: {value:?}") };
    let int = |value| if let Value::Int(int) = value { int } else { panic!("{value:?}") };
    values.into_iter().map(int).collect()
}

/// The parts of the filter at a key.
fn parts(world: &mut World, key: &[u8]) -> Vec<Vec<u8>> {
    world.edit(key, |db| {
        let filter = db.value::<BloomFilter>(&Key::new(key)).unwrap().unwrap();
        filter.check_invariants();
        let (mut items, mut parts) = (filter.items(NOW), Vec::new());
        while let Some(item) = items.next() {
            parts.push(NewItem::of(item).unwrap().name().to_vec());
        }
        parts
    })
}

/// A filter of parts, if they are those of one.
fn of_parts<'a>(parts: impl IntoIterator<Item = &'a Vec<u8>>) -> Option<BloomFilter> {
    let mut filter = BloomFilter::default();
    let mut take = |part| filter.take_in(NewItem::Single { name: part, deadline: None });
    let are_taken = parts.into_iter().all(|part| take(part));
    (are_taken && filter.is_complete() && !filter.is_empty()).then_some(filter)
}

#[test] // The count is the number of new items.
fn bloom_filters_find_all_added_items_and_few_others() {
    for seed in 0..12 {
        let mut world = World::new(1, NOW, seed);
        let mut prng = Prng::from_seed(seed);
        let mut model = BTreeSet::new();
        let plan = ["0.01 100", "0.001 5000", "0.01 30 EXPANSION 1", "0.1 100000 NONSCALING"];
        text(&mut world, &format!("BF.RESERVE k {}", plan[seed as usize % 4]));
        let mut added = 0;
        for _ in 0..40 {
            let items: Vec<u64> = (0..=prng.below(300)).map(|_| prng.below(8_000)).collect();
            let words: Vec<String> = items.iter().map(u64::to_string).collect();
            let mut line = vec![&b"BF.MADD"[..], b"k"];
            line.extend(words.iter().map(String::as_bytes));
            let before = model.clone();
            for (item, new) in items.iter().zip(ints(run(&mut world, &line))) {
                assert!(new == 0 || !before.contains(item), "seed {seed}: {item} is new again");
                added += new;
            }
            model.extend(items.iter().copied());
            assert_eq!(text(&mut world, "BF.CARD k"), Value::Int(added), "seed {seed}");
        }
        let all: Vec<String> = (0..20_000_u64).map(|item| item.to_string()).collect();
        let mut line = vec![&b"BF.MEXISTS"[..], b"k"];
        line.extend(all.iter().map(String::as_bytes));
        let there = ints(run(&mut world, &line));
        assert!(model.iter().all(|item| there[*item as usize] == 1), "seed {seed}: one is missing");
        let wrong = there.iter().sum::<i64>() as usize - model.len();
        assert!(wrong < 20_000 / if seed % 4 == 3 { 9 } else { 80 }, "seed {seed}: {wrong}");
        let copy = of_parts(&parts(&mut world, b"k")).unwrap();
        assert_eq!(copy.chain().len(), added.unsigned_abs());
    }
}

#[test]
fn long_items_have_the_same_hash_in_pieces() {
    let mut world = World::new(1, NOW, 5);
    let long: Vec<Vec<u8>> = [65_519, 65_520, 65_521, 300_000].map(|len| vec![7; len]).into();
    for item in &long {
        assert_eq!(run(&mut world, &[b"BF.EXISTS", b"k", item]), Value::Int(0));
        assert_eq!(run(&mut world, &[b"BF.ADD", b"k", item]), Value::Int(1));
        assert_eq!(run(&mut world, &[b"BF.ADD", b"k", item]), Value::Int(0));
    }
    let mut line = vec![&b"BF.MEXISTS"[..], b"k"];
    line.extend(long.iter().map(Vec::as_slice));
    assert_eq!(ints(run(&mut world, &line)), [1, 1, 1, 1]);
}

#[test] // Runs of zeros are omitted.
fn a_dumped_filter_is_restored_piece_by_piece() {
    for plan in ["0.01 100", "0.01 1000000", "1e-9 1073741824"] {
        let mut world = World::new(1, NOW, 5);
        text(&mut world, &format!("BF.RESERVE k {plan}"));
        let mut line = vec!["BF.MADD".to_owned(), "k".to_owned()];
        line.extend((0..500).map(|item| format!("item{item}")));
        text(&mut world, &line.join(" "));
        let (mut at, mut pieces) = (0, 0);
        loop {
            let dump = text(&mut world, &format!("BF.SCANDUMP k {at}"));
            let Value::Array(pair) = dump else { panic!("{dump:?}") };
            let [Value::Int(next), Value::Bulk(piece)] = &pair[..] else { panic!("{pair:?}") };
            if *next == 0 {
                break;
            }
            assert!(*next > at, "{plan}: {next} after {at}");
            at = *next;
            pieces += 1;
            let words = [&b"BF.LOADCHUNK"[..], b"copy", at.to_string().as_bytes(), piece]
                .map(<[u8]>::to_vec);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            assert_eq!(run(&mut world, &words), Value::Simple("OK".to_owned()), "{plan} {at}");
        }
        assert!(pieces > 1 && pieces < 600, "{plan}: {pieces}");
        assert!(parts(&mut world, b"k") == parts(&mut world, b"copy"), "{plan}");
    }
}

#[test]
fn a_damaged_filter_file_is_refused_or_read_as_valid() {
    let mut world = World::new(1, NOW, 5);
    text(&mut world, "BF.RESERVE k 0.01 50");
    let mut line = vec!["BF.MADD".to_owned(), "k".to_owned()];
    line.extend((0..5_000).map(|item| format!("item{item}")));
    text(&mut world, &line.join(" "));
    let good = parts(&mut world, b"k");
    assert!(of_parts(&good).is_some() && good.len() > 8, "{}", good.len());
    let mut prng = Prng::from_seed(7);
    for _ in 0..3_000 {
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
                let head = bad[at].len().min(45) as u64;
                bad[at][prng.below(head) as usize] ^= 1 << prng.below(8);
            }
        }
        if let Some(mut filter) = of_parts(&bad) {
            filter.check_invariants();
            filter.take_in(NewItem::Pair {
                name: b"x",
                value: darter_keyspace::Fresh::Bytes(b""),
                deadline: None,
            });
        }
    }
    for without in 0..2 {
        let rest = good.iter().enumerate().filter(|(at, _)| *at != without).map(|(_, part)| part);
        assert!(of_parts(rest).is_none(), "without part {without}");
    }
}

#[test]
fn scandump_ends_at_an_unknown_iterator() {
    let mut world = World::new(1, NOW, 5);
    text(&mut world, "BF.ADD k item");
    let end = text(&mut world, "BF.SCANDUMP k 100");
    for iterator in ["9223372036854775807", "576460752303423489", "-1"] {
        assert_eq!(text(&mut world, &format!("BF.SCANDUMP k {iterator}")), end, "{iterator}");
    }
}

#[test] // An addition would take milliseconds.
fn error_rates_that_would_make_additions_slow_are_refused() {
    let mut world = World::new(1, NOW, 5);
    for error in ["0", "1", "1e-300", "9e-10"] {
        let reply = text(&mut world, &format!("BF.RESERVE k {error} 1000000"));
        let range = "ERR error rate must be in the range (0.000000, 1.000000)";
        assert_eq!(reply, Value::Error(range.to_owned()), "{error}");
        let reply = text(&mut world, &format!("BF.INSERT k ERROR {error} ITEMS x"));
        assert_eq!(reply, Value::Error("Bad error rate".to_owned()), "{error}");
    }
    let mut good = {
        text(&mut world, "BF.RESERVE k 1e-9 1000000");
        parts(&mut world, b"k")
    };
    assert!(of_parts(&good).is_some());
    good[1][25..29].copy_from_slice(&1_100_u32.to_le_bytes());
    assert!(of_parts(&good).is_none(), "hashes");
    let huge = "BF.RESERVE huge 0.000001 1073741824 NONSCALING";
    assert_eq!(text(&mut world, huge), Value::Simple("OK".to_owned()));
}
