//! Tests of SCAN against a model: keys that exist from the first call to the last are returned.

use crate::common::value::bulks;
use crate::common::world::World;
use darter_base::Prng;
use darter_families::set::Set;
use darter_keyspace::{Deadline, Fresh, Key};
use std::collections::BTreeSet;

const NOW: u64 = 1_700_000_000_000;

fn set(world: &World, key: &[u8]) {
    world.edit(key, |db| db.set_text(&Key::new(key), Fresh::Bytes(b"v"), Deadline::Clear));
}

/// Runs one SCAN. Returns the next cursor and the keys.
fn scan(world: &mut World, words: &[&[u8]]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let reply = world.run(words);
    let rest = reply.strip_prefix(b"*2\r\n$").expect("two elements");
    let line = |rest: &[u8]| rest.windows(2).position(|two| two == b"\r\n").unwrap();
    let rest = &rest[line(rest) + 2..];
    let end = line(rest);
    (rest[..end].to_vec(), bulks(&rest[end + 2..]))
}

#[test] // Between calls, keys are added and removed, and tables grow and shrink.
fn scan_returns_all_keys_that_exist_throughout() {
    for seed in 0..30 {
        let mut prng = Prng::from_seed(seed);
        let mut world = World::new(1 + usize::try_from(seed % 4).unwrap(), NOW, 9);
        let base = usize::try_from(prng.below(6_000)).unwrap();
        let staying: BTreeSet<Vec<u8>> = (0..base).map(|at| format!("s{at}").into()).collect();
        staying.iter().for_each(|key| set(&world, key));
        let mut going: Vec<Vec<u8>> = Vec::new();
        let mut ever = staying.clone();
        let (mut cursor, mut seen) = (b"0".to_vec(), BTreeSet::new());
        loop {
            let count = (1 + prng.below(400)).to_string();
            let (next, keys) = scan(&mut world, &[b"SCAN", &cursor, b"COUNT", count.as_bytes()]);
            seen.extend(keys);
            cursor = next;
            if cursor == b"0" {
                break;
            }
            if prng.chance(30) {
                for _ in 0..prng.below(2_000) {
                    let key = format!("g{}", prng.below(1_000_000)).into_bytes();
                    set(&world, &key);
                    ever.insert(key.clone());
                    going.push(key);
                }
            } else if prng.chance(30) {
                for key in going.drain(..) {
                    world.edit(&key, |db| db.remove(&Key::new(&key)));
                }
            }
        }
        assert!(seen.is_superset(&staying), "seed {seed}: {} of {base}", seen.len());
        assert!(seen.is_subset(&ever), "seed {seed}: a key that never was");
        world.check();
    }
}

#[test]
fn scan_accepts_huge_counts_patterns_types_and_unknown_cursors() {
    for cores in [1, 3] {
        let mut world = World::new(cores, NOW, 9);
        (0..20_000).for_each(|at| set(&world, format!("key:{at}").as_bytes()));
        world.edit(b"set", |db| {
            db.edit::<Set, _>(&Key::new(b"set"), true, |set| set.add(b"m", Deadline::Clear))
                .unwrap();
        });
        world.questions.set(0);
        let (cursor, keys) = scan(&mut world, &[b"SCAN", b"0", b"COUNT", b"1000000000"]);
        assert_eq!(cursor, b"0");
        assert_eq!(keys.into_iter().collect::<BTreeSet<_>>().len(), 20_001);
        assert!(world.questions.get() >= 20_000 / 300, "{} pauses", world.questions.get());
        let pattern: [&[u8]; 6] = [b"SCAN", b"0", b"MATCH", b"key:77??", b"COUNT", b"999999"];
        assert_eq!(scan(&mut world, &pattern).1.len(), 100);
        let kind: [&[u8]; 6] = [b"SCAN", b"0", b"TYPE", b"SET", b"COUNT", b"999999"];
        assert_eq!(scan(&mut world, &kind).1, [b"set".to_vec()]);
        let (cursor, keys) = scan(&mut world, &[b"SCAN", b"0"]);
        assert_ne!(cursor, b"0");
        assert!((10..60).contains(&keys.len()), "{} keys for a COUNT of 10", keys.len());
        let mut prng = Prng::from_seed(1);
        for _ in 0..2_000 {
            let cursor = (prng.next_u64() >> prng.below(64)).to_string();
            scan(&mut world, &[b"SCAN", cursor.as_bytes()]);
        }
        world.check();
    }
}

#[test] // One by one; it waits for a locked key.
fn rm_removes_all_matching_keys() {
    let mut world = World::new(3, NOW, 21);
    let keys: Vec<Vec<u8>> = (0..1_000).map(|at| format!("k{at}").into_bytes()).collect();
    keys.iter().for_each(|key| set(&world, key));
    set(&world, b"other");
    let core = world.cores[0].core_of(b"k7");
    let lock = darter_tx::lock_key(0, Key::new(b"k7").hash);
    let access = darter_tx::Access::Exclusive;
    let held = world.cores[core].try_lock_here(lock, access).expect("it is free");
    let slot = world.start(0, &[b"RM", b"0", b"MATCH", b"k*", b"COUNT", b"100000"]);
    world.settle();
    assert!(slot.borrow().is_none(), "it waits for what is held");
    assert!(world.edit(b"k7", |db| db.exists(&Key::new(b"k7"))));
    drop(held);
    world.settle();
    assert_eq!(world.reply(&slot), b"*2\r\n$1\r\n0\r\n:1000\r\n");
    assert_eq!(world.run(&[b"DBSIZE"]), b":1\r\n");
    world.check();
}
