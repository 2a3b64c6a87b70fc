//! Tests with many members and many keys: samples are fair, and STORE locks no more keys than it
//! must.

use super::{run, world};
use crate::common::Bytes;
use crate::common::value::Value;
use darter_families::set::{Set, SetEdit};
use darter_keyspace::{Deadline, Key};
use std::collections::BTreeMap;

#[test] // By each method of drawing.
fn spop_and_srandmember_draw_members_uniformly() {
    for (size, count) in [(40, 1), (40, 15), (40, 35), (600, 150), (600, 500), (2_000, 100)] {
        let mut world = world(1, 5);
        let members: Vec<Bytes> = (0..size).map(|n| format!("m{n}").into_bytes()).collect();
        let mut add: Vec<&[u8]> = vec![b"sadd", b"k"];
        add.extend(members.iter().map(|member| &member[..]));
        let text = count.to_string();
        let (mut drawn, rounds) = (BTreeMap::<Bytes, u32>::new(), 200_000 / size / 4);
        for round in 0..rounds {
            let name: &[u8] = if round % 2 == 0 { b"spop" } else { b"srandmember" };
            run(&mut world, &add);
            for member in run(&mut world, &[name, b"k", text.as_bytes()]).bulks() {
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

#[test] // More keys than are locked one by one, and more sets than are sorted.
fn sinter_sunion_and_sdiff_of_very_many_keys_are_exact() {
    let mut world = world(3, 9);
    let keys: Vec<Bytes> = (0..2_000).map(|n| format!("key:{n}").into_bytes()).collect();
    for (number, key) in keys.iter().enumerate() {
        run(&mut world, &[b"sadd", key, b"all", number.to_string().as_bytes()]);
    }
    let list = || keys.iter().map(|key| &key[..]);
    let call =
        |head: &[&'static [u8]]| -> Vec<&[u8]> { head.iter().copied().chain(list()).collect() };
    assert_eq!(run(&mut world, &call(&[b"sunion"])).bulks().len(), 2_001);
    assert_eq!(run(&mut world, &call(&[b"sinter"])).bulks(), [b"all"]);
    assert_eq!(run(&mut world, &call(&[b"sdiff"])).bulks(), [b"0"]);
    assert_eq!(run(&mut world, &call(&[b"sunionstore", b"key:5"])), Value::Int(2_001));
    assert_eq!(run(&mut world, &[b"scard", b"key:5"]), Value::Int(2_001));
    assert_eq!(run(&mut world, &call(&[b"sunioncard", b"2000"])), Value::Int(2_001));
}

#[test] // Its sources can be written; its destination cannot be read.
fn a_store_in_progress_locks_only_its_destination() {
    let mut world = world(1, 3);
    for key in [b"one", b"two"] {
        let add = |edit: &mut SetEdit<'_>| {
            for number in 0..2_000 {
                edit.add(format!("{}{number}", key[0]).as_bytes(), Deadline::Clear);
            }
        };
        world.edit(key, |db| db.edit::<Set, _>(&Key::new(key), true, add)).unwrap();
    }
    let slot = world.start(0, &[b"SUNIONSTORE", b"to", b"one", b"two"]);
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
    let late = |edit: &mut SetEdit<'_>| edit.add(b"late", Deadline::Clear);
    world.edit(b"one", |db| db.edit::<Set, _>(&Key::new(b"one"), true, late)).unwrap();
    world.settle();
    assert_eq!(world.reply(&slot), b":4000\r\n");
    assert_eq!(run(&mut world, &[b"SCARD", b"to"]), Value::Int(4_000));
    assert_eq!(run(&mut world, &[b"SISMEMBER", b"to", b"late"]), Value::Int(0));
    world.check();
}
