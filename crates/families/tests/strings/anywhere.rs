//! Tests of commands over several keys that run as tasks, even if their keys are on one core.

use crate::common::oracle::Oracle;
use crate::common::world::World;
use darter_base::Prng;
use darter_keyspace::Key;
use darter_tx::{Access, lock_key};

const NOW: u64 = 1_700_000_000_000;

/// Runs a command as a task on any core.
fn run(world: &mut World, words: &[&[u8]]) -> Vec<u8> {
    let core = any(world);
    world.run_task(core, words)
}

fn any(world: &mut World) -> usize {
    usize::try_from(world.prng.below(world.cores.len() as u64)).unwrap()
}

#[test] // Random keys on one to four cores.
fn multi_key_string_commands_over_cores_reply_as_in_redis() {
    let mut oracle = Oracle::start("anywhere");
    for seed in 0..40 {
        let mut prng = Prng::from_seed(seed);
        let mut world = World::new(1 + usize::try_from(seed % 4).unwrap(), NOW, seed);
        oracle.run(&[b"FLUSHALL"]);
        for _ in 0..30 {
            let name = *prng.weighted(&[(3, "MSET"), (3, "MSETNX"), (4, "MGET"), (1, "LCS")]);
            let mut words: Vec<Vec<u8>> = vec![name.into()];
            let count = if name == "LCS" { 2 } else { 1 + prng.below(6) };
            for _ in 0..count {
                words.push(format!("key:{}", prng.below(12)).into_bytes());
                if name.starts_with("MSET") {
                    let most = *prng.weighted(&[(90, 20), (10, 150_000)]);
                    words.push(prng.bytes(0..=most));
                }
            }
            if prng.chance(5) {
                words.push(b"odd".to_vec());
            }
            if name == "LCS" {
                words.push(b"LEN".to_vec());
                words[1] = b"none".to_vec(); // Two long strings would take the oracle too long.
            }
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            assert!(run(&mut world, &words) == oracle.run(&words), "seed {seed}");
        }
        world.check();
    }
}

/// The words of `MSET` or a similar command for `count` keys, all with the same value.
fn pairs<'a>(name: &'a [u8], keys: &'a [Vec<u8>], value: &'a [u8]) -> Vec<&'a [u8]> {
    let mut words = vec![name];
    words.extend(keys.iter().flat_map(|key| [key.as_slice(), value]));
    words
}

#[test] // The values are read from cuts.
fn mget_of_very_many_keys_replies_in_order() {
    for (cores, count) in [(1, 20_000), (3, 40_000), (2, 3_000)] {
        let mut world = World::new(cores, NOW, 5);
        let keys: Vec<Vec<u8>> = (0..count).map(|at| format!("key:{at}").into_bytes()).collect();
        assert_eq!(run(&mut world, &pairs(b"MSETNX", &keys, b"one")), b":1\r\n");
        world.letters = 0;
        assert_eq!(run(&mut world, &pairs(b"MSET", &keys, b"three")), b"+OK\r\n");
        assert!(world.letters < 30, "{} letters", world.letters);
        assert_eq!(run(&mut world, &pairs(b"MSETNX", &keys[count - 1..], b"x")), b":0\r\n");
        let mut words: Vec<&[u8]> = vec![b"MGET", b"nothing"];
        words.extend(keys.iter().map(Vec::as_slice));
        let expected =
            [format!("*{}\r\n$-1\r\n", count + 1).into_bytes(), b"$5\r\nthree\r\n".repeat(count)];
        assert!(run(&mut world, &words) == expected.concat());
        world.check();
    }
}

#[test]
fn writes_during_a_large_mget_are_not_seen() {
    let mut world = World::new(2, NOW, 6);
    let keys: Vec<Vec<u8>> = (0..17_000).map(|at| format!("key:{at}").into_bytes()).collect();
    run(&mut world, &pairs(b"MSET", &keys, b"old"));
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.extend(keys.iter().map(Vec::as_slice));
    let slot = world.start(0, &words);
    world.settle();
    run(&mut world, &pairs(b"MSET", &keys, b"newer"));
    let expected = [b"*17000\r\n".to_vec(), b"$3\r\nold\r\n".repeat(17_000)].concat();
    assert!(world.reply(&slot) == expected);
    world.check();
}

#[test]
fn a_large_mget_waits_only_for_locks_on_its_own_keys() {
    for cores in [1, 3] {
        let mut world = World::new(cores, NOW, 6);
        let keys: Vec<Vec<u8>> = (0..17_000).map(|at| format!("key:{at}").into_bytes()).collect();
        run(&mut world, &pairs(b"MSET", &keys, b"v"));
        let mut words: Vec<&[u8]> = vec![b"MGET"];
        words.extend(keys.iter().map(Vec::as_slice));
        for (name, waits) in [(&b"other"[..], false), (b"key:9999", true)] {
            let owner = &world.cores[world.cores[0].core_of(name)];
            let held = owner.try_lock_here(lock_key(0, Key::new(name).hash), Access::Exclusive);
            assert!(held.is_some());
            let slot = world.start(0, &words);
            world.settle();
            assert_eq!(slot.borrow().is_none(), waits, "{cores} cores");
            drop(held);
            world.settle();
            assert!(world.reply(&slot).starts_with(b"*17000\r\n$1\r\nv\r\n"), "{cores} cores");
        }
        world.check();
    }
}

#[test] // With concurrent writers and readers of the same keys.
fn mget_never_sees_a_partial_mset() {
    for seed in 0..60 {
        let mut world = World::new(3, NOW, seed);
        let keys: Vec<Vec<u8>> = (0..600).map(|at| format!("key:{at}").into_bytes()).collect();
        let mut mget: Vec<&[u8]> = vec![b"MGET"];
        mget.extend(keys.iter().map(Vec::as_slice));
        let mut readers = Vec::new();
        for round in 0..4 {
            let value = round.to_string();
            let core = any(&mut world);
            let writer = pairs(b"MSET", &keys, value.as_bytes());
            world.start(core, &writer);
            let core = any(&mut world);
            readers.push(world.start(core, &mget));
            for _ in 0..world.prng.below(40) {
                let core = any(&mut world);
                world.cores[core].run_one();
            }
        }
        world.settle();
        for reader in readers {
            let reply = String::from_utf8(world.reply(&reader)).unwrap();
            let mut lines: Vec<&str> = reply.lines().skip(1).collect();
            lines.sort_unstable();
            lines.dedup();
            assert!(lines.len() <= 2, "seed {seed}: a mixture: {lines:?}");
        }
        world.check();
        assert!(world.cores.iter().any(|tx| tx.home().shard.db(0).exists(&Key::new(b"key:0"))));
    }
}
