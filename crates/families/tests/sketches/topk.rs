//! Tests of Top-K: the most frequent items are in the list, and hardly any count is too high.

use super::{of_parts, survives_damage};
use crate::common::value::Value as Answer;
use crate::common::world::World;
use darter_base::Prng;
use darter_base::hash::digest;
use darter_families::topk::{TopK, TopKShape};
use darter_keyspace::{Collection, Key, Value};
use darter_rdb::Item;
use std::collections::HashMap;

fn name(item: u64) -> Vec<u8> {
    format!("item:{item}").into_bytes()
}

/// A sketch with random items, the lower ones added more often, and their exact counts.
fn counted(seed: u64, shape: TopKShape, times: usize) -> (TopK, HashMap<u64, u32>) {
    let (mut prng, mut exact) = (Prng::from_seed(seed), HashMap::new());
    let mut sketch = TopK::new(shape).unwrap();
    for step in 0..times {
        let kinds = 1 << prng.below(12);
        let (item, by) = (prng.below(kinds), prng.below(3) as u32);
        *exact.entry(item).or_insert(0) += by;
        let expelled = sketch.edit_aside(0).add(&name(item), by, &mut prng);
        assert!(expelled.is_none_or(|one| sketch.listed(one.bytes()).is_none()), "{step}");
        if step % 1_000 == 0 {
            sketch.check_invariants();
        }
    }
    (sketch, exact)
}

#[test]
fn topk_list_has_the_most_frequent_items() {
    for (seed, width, decay) in [(1, 200, 0.9), (2, 1_000, 0.925), (3, 100, 0.8)] {
        let (sketch, exact) = counted(seed, TopKShape { k: 8, width, depth: 5, decay }, 60_000);
        let mut counts: Vec<(u32, u64)> =
            exact.iter().map(|(item, count)| (*count, *item)).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let found = counts[..8].iter().filter(|(_, item)| sketch.listed(&name(*item)).is_some());
        assert!(found.count() >= 7, "{seed}: {:?}", &counts[..10]);
        assert_eq!(sketch.list().len(), 8);
        for (count, item) in &counts[..4] {
            let listed = sketch.listed(&name(*item)).unwrap();
            assert!(listed <= *count && listed > count - count / 10, "{seed}: {listed} of {count}");
        }
    }
}

#[test]
fn with_a_decay_of_1_each_other_item_decrements_the_counter() {
    let mut sketch = TopK::new(TopKShape { k: 1, width: 1, depth: 1, decay: 1.0 }).unwrap();
    let mut prng = Prng::from_seed(1);
    for (item, times, owner, count) in
        [("a", 5, "a", 5), ("b", 3, "a", 2), ("b", 2, "b", 1), ("b", 4, "b", 5), ("a", 9, "a", 5)]
    {
        sketch.edit_aside(0).add(item.as_bytes(), times, &mut prng);
        assert_eq!(sketch.count_in(digest(owner.as_bytes()), 0), count, "{item} {times}");
    }
    assert_eq!(sketch.listed(b"b"), None);
    assert_eq!(sketch.listed(b"a"), Some(5));
}

#[test]
fn adding_n_at_once_decays_as_likely_as_one_by_one() {
    let decayed = |times: u32, rounds: u32| {
        let mut prng = Prng::from_seed(7);
        let left = (0..2_000).map(|_| {
            let shape = TopKShape { k: 1, width: 1, depth: 1, decay: 0.9 };
            let mut sketch = TopK::new(shape).unwrap();
            sketch.edit_aside(0).add(b"a", 10, &mut prng);
            (0..rounds).for_each(|_| _ = sketch.edit_aside(0).add(b"b", times, &mut prng));
            u64::from(sketch.count_in(digest(b"a"), 0))
        });
        left.sum::<u64>() as f64 / 2_000.0
    };
    let (together, singly) = (decayed(8, 1), decayed(1, 8));
    assert!((together - singly).abs() < 0.2, "{together} {singly}");
    assert!((5.5..7.5).contains(&together), "{together}: eight chances of a third and more");
}

/// The parts that a value is written as, the long ones split.
fn in_parts(value: &dyn Value) -> Vec<Vec<u8>> {
    let (mut items, mut parts) = (value.items(0), Vec::new());
    while let Some(item) = items.next() {
        match item {
            Item::Single { name, .. } => {
                assert!(name.len() < 8_192, "{} bytes at once", name.len());
                parts.push(name.to_vec());
            }
            Item::LongSingle { len, .. } => parts.push(Vec::with_capacity(len as usize)),
            Item::Part(part) => {
                assert!(part.len() < 65_536, "{} bytes at once", part.len());
                parts.last_mut().unwrap().extend_from_slice(part);
            }
            other => panic!("{other:?} of a sketch"),
        }
    }
    parts
}

#[test] // No step copies a whole item of a list of megabytes.
fn long_items_are_sent_in_pieces() {
    let long = |byte| vec![byte; 4 << 20];
    let mut world = World::new(1, 1_000_000, 3);
    world.run(&[b"TOPK.RESERVE", b"k", b"2", b"50", b"4", b"0.9"]);
    for item in [long(b'a'), long(b'b')] {
        world.run(&[b"TOPK.ADD", b"k", &item]);
    }
    let listed = Answer::read(&world.run(&[b"TOPK.LIST", b"k", b"WITHCOUNT"])).list();
    let items: Vec<_> = listed.iter().step_by(2).cloned().map(Answer::bulk).collect();
    assert!(items.contains(&long(b'a')) && items.contains(&long(b'b')));
    assert_eq!((listed.len(), &listed[1]), (4, &Answer::Int(1)));
    let copy = world.edit(b"k", |db| {
        let sketch = db.value::<TopK>(&Key::new(b"k")).unwrap().unwrap();
        let parts = in_parts(&*sketch);
        assert!(parts.contains(&long(b'a')), "alone, so that its hash is known before it is whole");
        of_parts::<TopK>(&parts).unwrap()
    });
    assert!(copy.listed(&long(b'a')) == Some(1) && copy.listed(&long(b'b')) == Some(1));
    let expelled = Answer::read(&world.run(&[b"TOPK.INCRBY", b"k", b"short", b"9"])).bulks();
    assert!(expelled == [long(b'a')] || expelled == [long(b'b')]);
}

#[test]
fn damaged_lists_are_refused_or_loaded() {
    let shape = TopKShape { k: 20, width: 300, depth: 5, decay: 0.9 };
    survives_damage(&counted(8, shape, 3_000).0, 2_000);
}
