//! Tests with many members and many keys: samples are fair, and STORE locks no more keys than it
//! must.

use super::{NOW, run};
use crate::common::Bytes;
use crate::common::value::Value;
use crate::common::world::World;
use darter_families::zset::{ZSet, ZSetEdit};
use darter_keyspace::{Fresh, Key, NewItem, Value as _};
use std::collections::BTreeMap;

#[test] // By each method of drawing.
fn zrandmember_draws_members_uniformly() {
    for (size, count) in [(40, 1), (40, 35), (600, 150), (2_000, 100)] {
        let mut world = World::new(1, NOW, 5);
        let members: Vec<Bytes> = (0..size).map(|n| format!("m{n}").into_bytes()).collect();
        let mut add: Vec<&[u8]> = vec![b"zadd", b"k"];
        add.extend(members.iter().flat_map(|member| [&b"1"[..], &member[..]]));
        run(&mut world, &add);
        let text = count.to_string();
        let (mut drawn, rounds) = (BTreeMap::<Bytes, u32>::new(), 200_000 / size / 4);
        for _ in 0..rounds {
            for member in run(&mut world, &[b"zrandmember", b"k", text.as_bytes()]).bulks() {
                *drawn.entry(member).or_default() += 1;
            }
        }
        // Chi-square, scaled for samples without repetition. The bound is far beyond what chance
        // gives.
        let expected = f64::from(rounds) * f64::from(count) / f64::from(size);
        let share = f64::from(count) / f64::from(size);
        let sum: f64 = members
            .iter()
            .map(|member| f64::from(drawn.get(member).copied().unwrap_or(0)) - expected)
            .map(|difference| difference * difference / expected / (1.0 - share))
            .sum();
        let degrees = f64::from(size - 1);
        let limit = degrees + 6.0 * (2.0 * degrees).sqrt();
        assert!(sum < limit, "size={size} count={count} sum={sum} limit={limit}");
    }
}

#[test] // More keys than are locked one by one, and more operands than are sorted.
fn zset_commands_over_very_many_keys_are_exact() {
    let mut world = World::new(3, NOW, 9);
    let keys: Vec<Bytes> = (0..2_000).map(|n| format!("key:{n}").into_bytes()).collect();
    for (number, key) in keys.iter().enumerate().skip(1_000) {
        run(&mut world, &[b"zadd", key, b"1", b"all", b"2", number.to_string().as_bytes()]);
    }
    let call = |head: &[&'static [u8]], skip: usize, tail: &[&'static [u8]]| -> Vec<&[u8]> {
        let names = keys.iter().skip(skip).map(|key| &key[..]);
        head.iter().copied().chain(names).chain(tail.iter().copied()).collect()
    };
    let union = call(&[b"zunionstore", b"to", b"2000"], 0, &[]);
    assert_eq!(run(&mut world, &union), Value::Int(1_001));
    assert_eq!(run(&mut world, &[b"zscore", b"to", b"all"]), Value::Bulk(b"1000".to_vec()));
    let inter = call(&[b"zinter", b"1000"], 1_000, &[b"WITHSCORES"]);
    assert_eq!(run(&mut world, &inter).bulks(), [&b"all"[..], b"1000"]);
    assert_eq!(run(&mut world, &call(&[b"zintercard", b"2000"], 0, &[])), Value::Int(0));
    let diff = call(&[b"zdiff", b"1000"], 1_000, &[]);
    assert_eq!(run(&mut world, &diff).bulks(), [b"1000"]);
    let popped = run(&mut world, &call(&[b"zmpop", b"2000"], 0, &[b"MAX", b"COUNT", b"9"]));
    assert_eq!(popped.list()[0], Value::Bulk(b"key:1000".to_vec()));
    assert_eq!(run(&mut world, &[b"exists", b"key:1000", b"key:1001"]), Value::Int(1));
}

#[test] // Its sources can be written; its destination cannot be read.
fn a_store_in_progress_locks_only_its_destination() {
    let mut world = World::new(1, NOW, 3);
    for key in [b"one", b"two"] {
        let add = |edit: &mut ZSetEdit<'_>| {
            for number in 0..2_000 {
                edit.insert(format!("{}{number}", key[0]).as_bytes(), f64::from(number));
            }
        };
        world.edit(key, |db| db.edit::<ZSet, _>(&Key::new(key), true, add)).unwrap();
    }
    let slot = world.start(0, &[b"ZUNIONSTORE", b"to", b"2", b"one", b"two"]);
    let tx = world.cores[0].clone();
    assert!(tx.run_one());
    let locked = |key: &[u8], write| {
        tx.home().locks.blocks_point(darter_tx::lock_key(0, Key::new(key).hash), write)
    };
    while locked(b"one", true) {
        assert!(tx.run_one(), "it ends, or gives the sources back");
    }
    assert!(tx.has_ready(), "it has only begun");
    assert!(locked(b"to", false));
    let late = |edit: &mut ZSetEdit<'_>| edit.insert(b"late", 1.0);
    world.edit(b"one", |db| db.edit::<ZSet, _>(&Key::new(b"one"), true, late)).unwrap();
    world.settle();
    assert_eq!(Value::read(&world.reply(&slot)), Value::Int(4_000));
    assert_eq!(run(&mut world, &[b"zscore", b"to", b"late"]), Value::Null);
}

#[test] // As in Redis's listpacks. A large sorted set keeps -0.
fn small_sorted_sets_store_minus_zero_as_zero() {
    let mut world = World::new(1, NOW, 7);
    run(&mut world, &[b"zadd", b"a", b"0", b"m"]);
    let negated = run(&mut world, &[b"zunion", b"1", b"a", b"weights", b"-1", b"withscores"]);
    assert_eq!(negated.bulks(), [&b"m"[..], b"0"]);
    let members: Vec<Bytes> = (0..200).map(|n| format!("m{n}").into_bytes()).collect();
    let mut add: Vec<&[u8]> = vec![b"zadd", b"a"];
    add.extend(members.iter().flat_map(|member| [&b"1"[..], &member[..]]));
    run(&mut world, &add);
    run(&mut world, &[b"zadd", b"a", b"-0", b"z"]);
    assert_eq!(run(&mut world, &[b"zscore", b"a", b"z"]), Value::Bulk(b"-0".to_vec()));
    let mut add: Vec<&[u8]> = vec![b"zadd", b"full"];
    add.extend(members[..128].iter().flat_map(|member| [&b"1"[..], &member[..]]));
    run(&mut world, &add);
    // The command turns the value into a skiplist first.
    run(&mut world, &[b"zadd", b"full", b"-0", b"one more"]);
    let score = run(&mut world, &[b"zscore", b"full", b"one more"]);
    assert_eq!(score, Value::Bulk(b"-0".to_vec()));
}

#[test] // As in Redis.
fn a_sorted_set_loaded_from_a_skiplist_keeps_minus_zero() {
    let mut set = ZSet::new();
    for number in 0..200 {
        let (name, score) = (format!("m{number}"), if number == 7 { "-0" } else { "1" });
        let value = Fresh::Bytes(score.as_bytes());
        assert!(set.take_in(NewItem::Pair { name: name.as_bytes(), value, deadline: None }));
    }
    let score = set.score(b"m7").expect("it is there");
    assert!(score == 0.0 && score.is_sign_negative(), "{score}");
}

#[test] // In portions.
fn a_removed_range_is_freed_without_further_changes_of_the_key() {
    let mut world = World::new(1, NOW, 3);
    let key = Key::new(b"k");
    let add = |edit: &mut ZSetEdit<'_>| {
        for number in 0..5_000 {
            edit.insert(format!("member:{number}").as_bytes(), f64::from(number));
        }
    };
    world.edit(b"k", |db| db.edit::<ZSet, _>(&key, true, add)).unwrap();
    let bytes = |world: &mut World| world.edit(b"k", |db| db.memory_bytes());
    let full = bytes(&mut world);
    assert_eq!(run(&mut world, &[b"zremrangebyrank", b"k", b"100", b"-1"]), Value::Int(4_900));
    assert!(bytes(&mut world) > full / 2, "it is not at once that the memory is back");
    let dying = |world: &mut World| world.edit(b"k", |db| db.has_field_deadlines());
    assert!(!dying(&mut world), "it is no deadline of a field, and a file has none");
    run(&mut world, &[b"hset", b"h", b"f", b"v"]);
    let set = run(&mut world, &[b"hpexpireat", b"h", b"9999999999999", b"fields", b"1", b"f"]);
    assert_eq!(set.list(), [Value::Int(1)]);
    assert!(dying(&mut world));
    run(&mut world, &[b"del", b"h"]);
    let stored = run(&mut world, &[b"zrangestore", b"to", b"k", b"0", b"-1"]);
    assert_eq!(stored, Value::Int(100));
    let portions = world.edit(b"k", |db| (0..).take_while(|_| db.reap(64)).count());
    assert!((4_900 / 64..4_900 / 32).contains(&portions), "{portions} portions");
    assert!(bytes(&mut world) < full / 5, "{} of {full}", bytes(&mut world));
    world.edit(b"k", |db| db.check_invariants());
    assert_eq!(run(&mut world, &[b"zcard", b"k"]), Value::Int(100));
}

#[test]
fn repeated_options_beyond_the_limit_are_refused() {
    let mut world = World::new(1, NOW, 3);
    let refused = Value::Error("ERR syntax error".into());
    for (call, option, tail) in [
        (&[&b"zadd"[..], b"k"][..], &[&b"CH"[..]][..], &[&b"1"[..], b"m"][..]),
        (&[b"zrange", b"k", b"0", b"-1"], &[b"WITHSCORES"], &[]),
        (&[b"zunion", b"1", b"k"], &[b"WEIGHTS", b"1"], &[]),
    ] {
        for (count, is_refused) in [(64, false), (65, true)] {
            let options = std::iter::repeat_n(option, count).flatten();
            let words: Vec<&[u8]> = call.iter().chain(options).chain(tail).copied().collect();
            assert_eq!(run(&mut world, &words) == refused, is_refused, "{count} of {option:?}");
        }
    }
}

#[test] // Scores of kilobytes; then all members are added at once.
fn long_scores_are_read_in_portions() {
    let mut world = World::new(1, NOW, 3);
    let score = [&b"0."[..], &[b'5'; 4_000]].concat();
    let members: Vec<Bytes> = (0..100).map(|n| format!("m{n}").into_bytes()).collect();
    let mut add: Vec<&[u8]> = vec![b"zadd", b"k"];
    add.extend(members.iter().flat_map(|member| [&score[..], &member[..]]));
    assert_eq!(run(&mut world, &add), Value::Int(100));
    let text = run(&mut world, &[b"zscore", b"k", b"m99"]);
    assert_eq!(text, Value::Bulk(b"0.55555555555555558".to_vec()));
}

#[test]
fn very_many_members_added_together_equal_single_additions() {
    let mut world = World::new(1, NOW, 3);
    for (key, first) in [(b"a", 0), (b"b", 2_000)] {
        let add = |edit: &mut ZSetEdit<'_>| {
            for number in first..first + 5_000 {
                edit.insert(format!("m{number}").as_bytes(), f64::from(number * 7_919 % 5_000));
            }
        };
        world.edit(key, |db| db.edit::<ZSet, _>(&Key::new(key), true, add)).unwrap();
    }
    run(&mut world, &[b"sadd", b"few", b"m1", b"m6999", b"none"]);
    let score =
        |world: &mut World, key: &[u8], member: &[u8]| run(world, &[b"zscore", key, member]);
    let number = |number: u32| Value::Bulk(number.to_string().into_bytes());
    let of = |member: u32| member * 7_919 % 5_000;

    let union = run(&mut world, &[b"zunionstore", b"u", b"2", b"a", b"b", b"weights", b"1", b"10"]);
    assert_eq!(union, Value::Int(7_000));
    assert_eq!(score(&mut world, b"u", b"m1999"), number(of(1_999)));
    assert_eq!(score(&mut world, b"u", b"m2000"), number(of(2_000) * 11));
    assert_eq!(score(&mut world, b"u", b"m6999"), number(of(6_999) * 10));
    let inter = run(&mut world, &[b"zinterstore", b"i", b"2", b"b", b"a", b"aggregate", b"max"]);
    assert_eq!(inter, Value::Int(3_000));
    assert_eq!(score(&mut world, b"i", b"m2000"), number(of(2_000)));
    assert_eq!(score(&mut world, b"i", b"m5000"), Value::Null);
    assert_eq!(run(&mut world, &[b"zinterstore", b"f", b"2", b"u", b"few"]), Value::Int(2));
    let infinite = [&b"zinterstore"[..], b"z", b"2", b"a", b"b", b"weights", b"0", b"inf"];
    assert_eq!(run(&mut world, &infinite), Value::Int(3_000));
    assert_eq!(run(&mut world, &[b"zdiffstore", b"d", b"2", b"a", b"b"]), Value::Int(2_000));
    let range = run(&mut world, &[b"zrangestore", b"r", b"u", b"0", b"-1", b"rev"]);
    assert_eq!(range, Value::Int(7_000));
    run(&mut world, &[b"zunionstore", b"u2", b"2", b"u", b"u", b"weights", b"1", b"1"]);
    assert_eq!(score(&mut world, b"u2", b"m2000"), number(of(2_000) * 22));
    let shown = run(&mut world, &[b"zunion", b"2", b"a", b"b", b"withscores"]).bulks();
    assert_eq!(shown.len(), 14_000);
    world.check();
}
