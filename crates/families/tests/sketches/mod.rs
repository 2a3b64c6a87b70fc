//! Tests of sketches against exact counts, and of loading damaged sketches.

#![allow(clippy::unwrap_used, reason = "a test: helpers included")]

mod cms;
mod tdigest;
mod topk;

use crate::common::world::World;
use darter_base::Prng;
use darter_keyspace::{Key, NewItem, Value};
use darter_rdb::{Item, Source};

/// The parts that a value is written as.
fn parts(value: &dyn Value) -> Vec<Vec<u8>> {
    let (mut items, mut parts) = (value.items(0), Vec::new());
    while let Some(item) = items.next() {
        let Item::Single { name, .. } = item else { panic!("{item:?} of a sketch") };
        parts.push(name.to_vec());
    }
    parts
}

/// Loads a value of these parts, if they are valid.
fn of_parts<V: Value + Default>(parts: &[Vec<u8>]) -> Option<V> {
    let mut value = V::default();
    let new = |part| NewItem::Single { name: part, deadline: None };
    let is_taken = parts.iter().all(|part| value.take_in(new(part)));
    (is_taken && value.is_complete() && !value.is_empty()).then_some(value)
}

/// Changes one part at random: changes a byte, its length or its position, or removes it.
fn damage(parts: &mut Vec<Vec<u8>>, prng: &mut Prng) {
    let mut below = |len: usize| prng.below(len as u64) as usize;
    let at = below(parts.len());
    match below(5) {
        0 if !parts[at].is_empty() => {
            let place = below(parts[at].len());
            parts[at][place] ^= 1 << below(8);
        }
        1 => parts[at].truncate(below(40)),
        2 => parts[at].extend(vec![7; below(40)]),
        3 => _ = parts.remove(at),
        _ => {
            let other = below(parts.len());
            parts.swap(at, other);
        }
    }
}

/// Checks that loading damaged parts never panics: the parts are refused, or load as another value.
fn survives_damage<V: Value + Default>(value: &V, rounds: u64) {
    let whole = parts(value);
    let again: V = of_parts(&whole).unwrap();
    assert!(parts(&again) == whole, "its items make it again");
    let (mut refused, mut prng) = (0, Prng::from_seed(5));
    for _ in 0..rounds {
        let mut parts = whole.clone();
        (0..=prng.below(2)).for_each(|_| damage(&mut parts, &mut prng));
        match of_parts::<V>(&parts) {
            Some(value) => assert!(!self::parts(&value).is_empty()),
            None => refused += 1,
        }
    }
    assert!(refused > rounds / 10 && refused < rounds, "{refused} of {rounds}");
}

#[test]
fn a_merge_does_not_revive_a_destination_that_expires_meanwhile() {
    const NOW: u64 = 1_000_000;
    let split = |line: &'static str| line.split(' ').map(str::as_bytes).collect::<Vec<_>>();
    let cases = [
        ("CMS.INITBYDIM s 30000 3", "CMS.INITBYDIM k 30000 3", "CMS.MERGE k 2 s k"),
        ("TDIGEST.CREATE s", "TDIGEST.CREATE k", "TDIGEST.MERGE k 2 s k"),
        ("TDIGEST.CREATE s", "TDIGEST.CREATE k", "TDIGEST.MERGE k 1 s OVERRIDE"),
    ];
    for (source, target, merge) in cases {
        for steps in 0..60 {
            let mut world = World::new(2, NOW, steps);
            world.run(&split(source));
            world.run(&split(target));
            world.run(&split("PEXPIRE k 1000"));
            let merged = world.start(0, &split(merge));
            (0..steps).for_each(|_| _ = world.step());
            world.set_now(NOW + 1_001);
            world.settle();
            let is_done = world.reply(&merged) == b"+OK\r\n";
            let is_there = world.edit(b"k", |db| db.get(&Key::new(b"k")).is_some());
            // A merge that finds no value at its destination may make a new one.
            let is_new = steps < 20 && is_done && merge.starts_with("TDIGEST");
            assert!(!is_there || is_new, "{merge}: there is one after {steps} steps");
        }
    }
}
