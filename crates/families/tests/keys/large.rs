//! Tests with very many keys and very large values, and tests of what other clients see during the
//! work.

use crate::common::value::bulks;
use crate::common::world::World;
use darter_families::hash::Hash;
use darter_families::set::Set;
use darter_keyspace::{Deadline, Fresh, Key};

const NOW: u64 = 1_700_000_000_000;

fn name(at: usize) -> Vec<u8> {
    format!("key:{at}").into_bytes()
}

fn fill(world: &World, keys: std::ops::Range<usize>, deadline: Option<u64>) {
    for at in keys {
        let key = name(at);
        world.edit(&key, |db| {
            db.set_text(&Key::new(&key), Fresh::Bytes(b"v"), Deadline::from(deadline));
        });
    }
}

fn command<'a>(name: &'a [u8], keys: &'a [Vec<u8>]) -> Vec<&'a [u8]> {
    std::iter::once(name).chain(keys.iter().map(Vec::as_slice)).collect()
}

#[test] // Counted and removed in portions: exact, doubles included, and nothing else is touched. Each
// core does its own without being asked for every portion.
fn exists_and_del_of_very_many_keys_are_exact() {
    for cores in [1, 3] {
        let mut world = World::new(cores, NOW, 9);
        fill(&world, 0..20_000, None);
        let keys: Vec<Vec<u8>> = (0..30_000).map(|at| name(at / 2 + 10_000)).collect();
        assert_eq!(world.run(&command(b"EXISTS", &keys)), b":20000\r\n");
        assert_eq!(world.run(&command(b"TOUCH", &keys[..300])), b":300\r\n");
        world.questions.set(0);
        world.letters = 0;
        assert_eq!(world.run(&command(b"UNLINK", &keys)), b":10000\r\n");
        assert!(world.letters < 30, "{} letters", world.letters);
        assert!(world.questions.get() > 200, "{} pauses", world.questions.get());
        assert_eq!(world.run(&command(b"DEL", &keys)), b":0\r\n");
        assert_eq!(world.run(&[b"DBSIZE"]), b":10000\r\n");
        world.check();
    }
}

#[test]
fn a_large_del_frees_its_memory() {
    for cores in [1, 3] {
        let mut world = World::new(cores, NOW, 9);
        fill(&world, 0..40_000, None);
        let bytes = |world: &World| -> usize {
            world.cores.iter().map(|tx| tx.home().shard.db(0).keys().memory_bytes()).sum()
        };
        let before = bytes(&world);
        let keys: Vec<Vec<u8>> = (0..38_000).map(name).collect();
        assert_eq!(world.run(&command(b"DEL", &keys)), b":38000\r\n");
        let after = bytes(&world);
        assert!(after <= before / 10, "{cores} cores: {before}, then {after} bytes");
        world.check();
    }
}

#[test] // A count during the DEL sees all of the keys, or none.
fn a_large_del_is_atomic() {
    for seed in 0..40 {
        let mut world = World::new(3, NOW, seed);
        fill(&world, 0..2_000, None);
        let keys: Vec<Vec<u8>> = (0..2_000).map(name).collect();
        let del = world.start(0, &command(b"DEL", &keys));
        let mut readers = Vec::new();
        for core in 0..3 {
            for _ in 0..world.prng.below(30) {
                world.step();
            }
            readers.push(world.start(core, &command(b"EXISTS", &keys[..200])));
            readers.push(world.start(core, &command(b"EXISTS", &keys[..1_000])));
            readers.push(world.start(core, &[b"DBSIZE"]));
            readers.push(world.start(core, &[b"KEYS", b"*"]));
        }
        world.settle();
        assert_eq!(world.reply(&del), b":2000\r\n");
        for (at, reader) in readers.iter().enumerate() {
            let reply = world.reply(reader);
            let line = String::from_utf8_lossy(&reply);
            let line = line.lines().next().unwrap();
            assert!(
                [":200", ":1000", ":2000", "*2000", ":0", "*0"].contains(&line),
                "{seed} {at} {line}"
            );
        }
        world.check();
    }
}

// A writer of one of very many keys that a TOUCH names waits only for a moment, never for the end
// of the TOUCH.
#[test]
fn a_large_touch_does_not_delay_other_clients() {
    for cores in [1, 3] {
        let mut world = World::new(cores, NOW, 9);
        fill(&world, 0..20_000, None);
        let keys: Vec<Vec<u8>> = (0..20_000).map(name).collect();
        let touch = world.start(0, &command(b"TOUCH", &keys));
        let (mut writers, mut longest) = (0, 0);
        while touch.borrow().is_none() {
            let key = usize::try_from(world.prng.below(20_000)).unwrap();
            let writer = world.start(0, &[b"MSET", &name(key), b"new"]);
            let mut steps = 0;
            while writer.borrow().is_none() {
                world.step();
                steps += 1;
            }
            assert_eq!(world.reply(&writer), b"+OK\r\n");
            (writers, longest) = (writers + 1, longest.max(steps));
        }
        assert!(writers > 20, "{cores} cores: {writers} writers");
        assert!(longest < 100, "{cores} cores: one waited for {longest} steps");
        assert_eq!(world.reply(&touch), b":20000\r\n");
        world.check();
    }
}

#[test] // On the other core, a turn earlier than a task would.
fn requests_of_few_keys_run_on_message_arrival() {
    let mut world = World::new(2, NOW, 9);
    let keys: Vec<Vec<u8>> = (0..40).map(name).collect();
    let pairs: Vec<Vec<u8>> = keys.iter().flat_map(|key| [key.clone(), b"v".to_vec()]).collect();
    let commands =
        [("MSETNX", &pairs), ("MSET", &pairs), ("EXISTS", &keys), ("TOUCH", &keys), ("DEL", &keys)];
    for (name, words) in commands {
        let slot = world.start(0, &command(name.as_bytes(), words));
        while world.step() {
            assert_eq!(world.cores[1].tasks_len(), 0, "{name}");
        }
        assert!(slot.borrow().is_some(), "{name}");
    }
    // A request that is too long for one portion is done in slices instead.
    let keys: Vec<Vec<u8>> = (0..2_000).map(name).collect();
    let del = world.start(0, &command(b"DEL", &keys));
    let mut tasks = 0;
    while world.step() {
        tasks = tasks.max(world.cores[1].tasks_len());
    }
    assert_eq!((world.reply(&del), tasks), (b":0\r\n".to_vec(), 1));
}

#[test] // Expired keys are not counted.
fn keys_lists_exactly_the_live_keys() {
    for (cores, dying) in [(1, false), (3, false), (1, true), (4, true)] {
        let mut world = World::new(cores, NOW, 9);
        fill(&world, 0..9_000, None);
        if dying {
            fill(&world, 0..3_000, Some(NOW + 5));
            world.set_now(NOW + 10);
        }
        let living: Vec<usize> = (if dying { 3_000 } else { 0 }..9_000).collect();
        for (pattern, keep) in [("*", ""), ("key:*", ""), ("key:12*", "key:12"), ("nothing", "-")] {
            let mut found = bulks(&world.run(&[b"KEYS", pattern.as_bytes()]));
            found.sort();
            let all = living.iter().map(|at| name(*at));
            let mut expected: Vec<_> = all.filter(|key| key.starts_with(keep.as_bytes())).collect();
            expected.sort();
            assert!(found == expected, "{cores} {dying} {pattern}: {}", found.len());
        }
        assert_eq!(world.run(&[b"DBSIZE"]), format!(":{}\r\n", living.len()).into_bytes());
        world.check();
    }
}

#[test] // Nor does a flush.
fn writes_do_not_change_a_keys_reply_in_progress() {
    let mut world = World::new(2, NOW, 9);
    fill(&world, 0..20_000, None);
    let slots = [world.start(0, &[b"KEYS", b"*"]), world.start(1, &[b"KEYS", b"key:*"])];
    world.settle();
    assert_eq!(world.run(&[b"FLUSHALL"]), b"+OK\r\n");
    fill(&world, 30_000..30_100, None);
    for slot in &slots {
        let mut found = bulks(&world.reply(slot));
        found.sort();
        let mut expected: Vec<_> = (0..20_000).map(name).collect();
        expected.sort();
        assert!(found == expected);
    }
    world.check();
}

#[test] // Even before the sweeper removes it.
fn a_collection_of_expired_members_is_not_listed() {
    let mut world = World::new(2, NOW, 9);
    for key in [b"one".as_slice(), b"two"] {
        world.edit(key, |db| {
            let add =
                |set: &mut darter_families::set::SetEdit<'_>| set.add(b"m", Deadline::At(NOW + 5));
            db.edit::<Set, _>(&Key::new(key), true, add).unwrap();
        });
    }
    fill(&world, 0..1, None);
    world.set_now(NOW + 10);
    assert_eq!(bulks(&world.run(&[b"KEYS", b"*"])), [name(0)]);
    assert_eq!(world.run(&[b"EXISTS", b"one", b"two"]), b":0\r\n");
    assert_eq!(world.run(&[b"SCAN", b"0"]), b"*2\r\n$1\r\n0\r\n*1\r\n$5\r\nkey:0\r\n");
    assert_eq!(world.run(&[b"RENAME", b"one", b"three"]), b"-ERR no such key\r\n");
    for _ in 0..50 {
        assert_eq!(world.run(&[b"RANDOMKEY"]), b"$5\r\nkey:0\r\n");
    }
    world.check();
}

#[test] // Until a copy changes.
fn renamed_moved_and_copied_values_are_not_copied_in_memory() {
    let mut world = World::new(4, NOW, 9);
    let object = |world: &World, key: &[u8]| {
        let held = world.edit(key, |db| db.get(&Key::new(key)).map(|found| found.hold()));
        match held.expect("it is there").value {
            darter_keyspace::HeldValue::Object(object) => object,
            darter_keyspace::HeldValue::Text(_) => panic!("a collection lies out of line"),
        }
    };
    for at in 0..50_000 {
        world.edit(b"big", |db| {
            let set = |hash: &mut darter_families::hash::HashEdit<'_>| {
                hash.set(format!("f{at}").as_bytes(), Fresh::Bytes(b"v"), Deadline::Clear)
            };
            db.edit::<Hash, _>(&Key::new(b"big"), true, set).unwrap();
        });
    }
    let before = object(&world, b"big").address();
    world.run(&[b"EXPIRE", b"big", b"100"]);
    for at in 0..20 {
        let (from, to) = (if at == 0 { b"big".to_vec() } else { name(at - 1) }, name(at));
        assert_eq!(world.run(&[b"RENAME", &from, &to]), b"+OK\r\n");
        assert_eq!(world.run(&[b"EXISTS", &from, &to]), b":1\r\n");
        assert_eq!(world.run(&[b"TTL", &to]), b":100\r\n");
    }
    assert_eq!(world.run(&[b"COPY", &name(19), b"copy", b"DB", b"3"]), b":1\r\n");
    assert_eq!(world.run(&[b"MOVE", &name(19), b"2"]), b":1\r\n");
    world.db = 2;
    assert_eq!(object(&world, &name(19)).address(), before);
    world.edit(&name(19), |db| {
        db.edit::<Hash, _>(&Key::new(&name(19)), false, |hash| hash.remove(b"f7")).unwrap();
    });
    assert_eq!(object(&world, &name(19)).get::<Hash>().unwrap().len(), 49_999);
    world.db = 3;
    assert_eq!(object(&world, b"copy").get::<Hash>().unwrap().len(), 50_000);
    assert_eq!(world.run(&[b"TTL", b"copy"]), b":100\r\n");
    world.check();
}

#[test] // In a ring of names, readers always find the value under exactly one.
fn renames_between_cores_are_atomic() {
    for seed in 0..40 {
        let mut world = World::new(4, NOW, seed);
        let ring: Vec<Vec<u8>> = (0..6).map(name).collect();
        fill(&world, 0..1, None);
        let (mut renames, mut readers) = (Vec::new(), Vec::new());
        for _ in 0..12 {
            let at = usize::try_from(world.prng.below(6)).unwrap();
            let core = usize::try_from(world.prng.below(4)).unwrap();
            let command = [b"RENAME".as_slice(), &ring[at], &ring[(at + 1) % 6]];
            renames.push(world.start(core, &command));
            readers.push(world.start(core, &self::command(b"EXISTS", &ring)));
            readers.push(world.start(core, &[b"DBSIZE"]));
            (0..world.prng.below(6)).for_each(|_| {
                world.step();
            });
        }
        world.settle();
        for reader in &readers {
            assert_eq!(world.reply(reader), b":1\r\n", "seed {seed}");
        }
        for rename in &renames {
            let reply = world.reply(rename);
            assert!(reply == b"+OK\r\n" || reply == b"-ERR no such key\r\n");
        }
        world.check();
    }
}

#[test]
fn randomkey_is_uniform_and_skips_expired_keys() {
    let mut world = World::new(3, NOW, 9);
    fill(&world, 0..40, None);
    fill(&world, 1_000..1_200, Some(NOW + 5));
    world.set_now(NOW + 10);
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..8_000 {
        *counts.entry(world.run(&[b"RANDOMKEY"])).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 40);
    assert!(counts.values().all(|count| (50..500).contains(count)), "{counts:?}");
    assert_eq!(world.run(&[b"FLUSHDB"]), b"+OK\r\n");
    fill(&world, 1_000..9_000, Some(NOW + 15));
    fill(&world, 0..1, None);
    world.set_now(NOW + 20);
    assert_eq!(world.run(&[b"RANDOMKEY"]), b"$5\r\nkey:0\r\n", "one among 8 000 dead");
    assert_eq!(world.run(&[b"DEL", &name(0)]), b":1\r\n");
    assert_eq!(world.run(&[b"RANDOMKEY"]), b"$-1\r\n");
}

#[test]
fn memory_usage_follows_the_elements_that_remain() {
    let mut world = World::new(1, NOW, 9);
    let mut usage = |key: &[u8], value: &[u8]| -> usize {
        world.edit(key, |db| db.set_text(&Key::new(key), Fresh::Bytes(value), Deadline::Clear));
        let reply = world.run(&[b"MEMORY", b"USAGE", key]);
        std::str::from_utf8(&reply[1..reply.len() - 2]).unwrap().parse().unwrap()
    };
    assert!(usage(b"1", b"2") < 10);
    assert!((110..125).contains(&usage(b"key:1", &[b'x'; 100])));
    assert!((100_000..140_000).contains(&usage(b"key:1", &[b'x'; 100_000])));
}
