//! Groups against maps, under seeds; cuts, and freeing in portions.

use super::*;
use crate::lazyfree;
use darter_base::Prng;
use darter_base::preempt::Never;
use std::collections::BTreeMap;

/// The model of a group.
#[derive(Clone, Debug, Default, PartialEq)]
struct Plain {
    last: StreamId,
    read: Option<u64>,
    pending: BTreeMap<StreamId, (u64, u64, Option<Vec<u8>>)>,
    consumers: BTreeMap<Vec<u8>, (u64, Option<u64>)>,
}

type Model = BTreeMap<Vec<u8>, Plain>;

fn content(groups: &Groups) -> Model {
    let group = |group: &Group| {
        let name = |number| group.numbered(number).expect("it exists").name().to_vec();
        let pending =
            |one: Pending| (one.id, (one.delivered_ms, one.times, one.consumer.map(name)));
        let consumer = |one: &Consumer| (one.name().to_vec(), (one.seen_ms(), one.active_ms()));
        let plain = Plain {
            last: group.last(),
            read: group.read(),
            pending: group.pending(0..usize::MAX).map(pending).collect(),
            consumers: group.consumers(0..usize::MAX).map(consumer).collect(),
        };
        (group.name().to_vec(), plain)
    };
    groups.iter().map(group).collect()
}

fn name(prng: &mut Prng, names: u64) -> Vec<u8> {
    match prng.below(names) {
        0 => Vec::new(),
        number => format!("name:{number}").into_bytes(),
    }
}

fn id(prng: &mut Prng) -> StreamId {
    match prng.below(4) {
        0 => StreamId::new(prng.next_u64(), prng.next_u64()),
        1 => StreamId::new(prng.below(50), prng.below(3)),
        _ => StreamId::new(1_763_841_600_000 + prng.below(3_000), prng.below(2)),
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Create,
    Destroy,
    Position,
    CreateConsumer,
    Times,
    Put,
    Remove,
    Release,
    Cut,
}

#[rustfmt::skip] // A table.
const OPS: &[(u64, Op)] = &[
    (10, Op::Create), (1, Op::Destroy), (2, Op::Position), (20, Op::CreateConsumer), (5, Op::Times),
    (40, Op::Put), (15, Op::Remove), (3, Op::Release), (2, Op::Cut),
];

/// Groups, what they should be, and cuts of them with what they should be.
struct Trial {
    groups: Groups,
    model: Model,
    cuts: Vec<(Groups, Model)>,
    names: u64,
}

impl Trial {
    fn step(&mut self, op: Op, prng: &mut Prng) {
        let (name, who) = (name(prng, self.names), name(prng, self.names));
        let (groups, model) = (&mut self.groups, &mut self.model);
        match op {
            Op::Create => {
                let (last, read) = (id(prng), prng.chance(50).then(|| prng.below(100)));
                let is_new = !model.contains_key(&name);
                assert_eq!(groups.create(&name, last, read), is_new);
                model.entry(name).or_insert(Plain { last, read, ..Plain::default() });
            }
            Op::Destroy => assert_eq!(groups.destroy(&name), model.remove(&name).is_some()),
            Op::Cut => self.cuts.push((groups.clone(), model.clone())),
            op => {
                let Some(plain) = model.get_mut(&name) else {
                    assert_eq!(groups.edit(&name, |_| ()), None);
                    return;
                };
                let done = groups.edit(&name, |group| change(op, group, plain, &who, prng));
                assert!(done.is_some());
            }
        }
    }
}

fn change(op: Op, group: &mut Group, plain: &mut Plain, who: &[u8], prng: &mut Prng) {
    let number = group.consumer(who).map(Consumer::number);
    assert_eq!(number.is_some(), plain.consumers.contains_key(who));
    match op {
        Op::Position => {
            (plain.last, plain.read) = (id(prng), Some(prng.next_u64()));
            group.set_position(plain.last, plain.read);
        }
        Op::CreateConsumer => {
            let seen = prng.below(1_000);
            let is_new = group.create_consumer(who, seen).is_some();
            assert_eq!(is_new, number.is_none());
            plain.consumers.entry(who.to_vec()).or_insert((seen, None));
        }
        Op::Times => {
            if let Some(number) = number {
                let times = (prng.next_u64(), prng.chance(50).then(|| prng.next_u64()));
                group.set_times(number, times.0, times.1);
                plain.consumers.insert(who.to_vec(), times);
            }
        }
        Op::Put => {
            let first = id(prng);
            for step in 0..prng.below(40) {
                let id = StreamId::new(first.ms.wrapping_add(step), first.seq);
                put(group, plain, (id, number, who), prng);
            }
        }
        Op::Remove => {
            for _ in 0..prng.below(20) {
                let id = if prng.chance(50) { id(prng) } else { some_id(plain, prng) };
                assert_eq!(group.remove(id).is_some(), plain.pending.remove(&id).is_some());
            }
        }
        Op::Release => {
            if let Some(number) = number {
                while group.release(number, 7) > 0 {}
                group.remove_consumer(number);
                plain.consumers.remove(who);
                plain.pending.retain(|_, one| one.2.as_deref() != Some(who));
            }
        }
        Op::Create | Op::Destroy | Op::Cut => unreachable!("not of one group"),
    }
}

fn put(
    group: &mut Group,
    plain: &mut Plain,
    (id, number, who): (StreamId, Option<u64>, &[u8]),
    prng: &mut Prng,
) {
    let (delivered_ms, times) = (prng.next_u64() >> prng.below(64), prng.below(300));
    let consumer = number.filter(|_| prng.chance(90));
    let old = group.put(&Pending { id, delivered_ms, times, consumer });
    let who = consumer.map(|_| who.to_vec());
    let before = plain.pending.insert(id, (delivered_ms, times, who));
    assert_eq!(old.map(|old| (old.delivered_ms, old.times)), before.map(|old| (old.0, old.1)));
}

fn some_id(plain: &Plain, prng: &mut Prng) -> StreamId {
    let at = prng.below(plain.pending.len() as u64 + 1) as usize;
    plain.pending.keys().nth(at).copied().unwrap_or_default()
}

#[test] // Cuts do not change.
fn random_changes_of_groups_agree_with_maps() {
    for seed in 0..12 {
        let mut prng = Prng::from_seed(seed);
        let names = [3, 8, 300][seed as usize % 3];
        let (groups, model, cuts) = (Groups::new(), Model::new(), Vec::new());
        let mut trial = Trial { groups, model, cuts, names };
        for step in 0..600 {
            trial.step(*prng.weighted(OPS), &mut prng);
            if step % 20 == 0 {
                trial.groups.check_invariants();
                assert_eq!(content(&trial.groups), trial.model, "{seed} {step}");
            }
        }
        for (cut, model) in &trial.cuts {
            cut.check_invariants();
            assert_eq!(content(cut), *model, "{seed}");
        }
    }
}

fn filled(entries: u64) -> Groups {
    let mut groups = Groups::new();
    assert!(groups.create(b"g", StreamId::MIN, None));
    groups.edit(b"g", |group| {
        let consumer = group.create_consumer(b"c", 0);
        for step in 0..entries {
            let id = StreamId::new(1_763_841_600_000 + step, 0);
            group.put(&Pending { id, delivered_ms: id.ms + 100, times: 1, consumer });
        }
    });
    groups
}

#[test] // In a group and in a consumer.
fn pending_entries_are_found_by_rank_and_by_bound() {
    let groups = filled(5_000);
    let group = groups.get(b"g").expect("created");
    let consumer = group.consumer(b"c").expect("created");
    for rank in [0, 1, 17, 2_499, 4_999, 5_000] {
        let id = StreamId::new(1_763_841_600_000 + rank as u64, 0);
        assert_eq!((group.rank_of(id), consumer.rank_of(id)), (rank, rank));
        let behind = StreamId::new(id.ms, 1);
        assert_eq!(group.rank_of(behind), (rank + 1).min(5_000));
        let found: Vec<_> = group.pending(rank..rank + 40).map(|one| one.id).collect();
        assert_eq!(found.len(), 40.min(5_000 - rank));
        assert_eq!(found.first().copied(), (rank < 5_000).then_some(id));
        assert_eq!(consumer.pending(rank..rank + 40).collect::<Vec<_>>(), found);
    }
    assert_eq!(group.get(StreamId::new(7, 7)), None);
}

#[test]
fn pending_entries_are_ordered_by_delivery_time_then_id() {
    let mut groups = filled(3);
    let ids = [0, 1, 2].map(|step| StreamId::new(1_763_841_600_000 + step, 0));
    let now = ids[0].ms + 100; // When the first was delivered; the others a millisecond later each.
    groups.edit(b"g", |group| {
        let later = |group: &mut Group, id: StreamId, delivered_ms: u64| {
            let old = group.get(id).expect("it is pending");
            group.put(&Pending { delivered_ms, ..old });
        };
        let order = |group: &Group| group.by_age(0..9).collect::<Vec<_>>();
        assert_eq!((order(group), group.first_delivered()), (ids.to_vec(), Some(now)));
        let counts = [now - 1, now, now + 1, now + 2, u64::MAX];
        assert_eq!(counts.map(|ms| group.delivered_until(ms)), [0, 1, 2, 3, 3]);
        later(group, ids[0], now + 2);
        assert_eq!(order(group), [ids[1], ids[0], ids[2]]);
        later(group, ids[2], 0);
        assert_eq!(
            (order(group), group.first_delivered()),
            (vec![ids[2], ids[1], ids[0]], Some(0))
        );
        group.remove(ids[2]);
        assert_eq!((order(group), group.delivered_until(now)), (vec![ids[1], ids[0]], 0));
    });
    groups.check_invariants();
}

#[test] // Once no cut holds them; a pending entry takes few bytes.
fn dropped_groups_are_freed_in_portions() {
    let mut groups = filled(100_000);
    let bytes = groups.memory_bytes();
    assert!((26 * 100_000..36 * 100_000).contains(&bytes), "{bytes}");
    let cut = groups.clone();
    assert!(groups.destroy(b"g"));
    assert_eq!(groups.memory_bytes(), 0);
    while lazyfree::run(&Never) {}
    assert_eq!(cut.get(b"g").map(Group::pending_len), Some(100_000));
    cut.check_invariants();
    drop(cut);
    assert!(!lazyfree::is_empty(), "the trees wait");
    assert!(!lazyfree::run(&Never));
}

#[test] // Changing one copies only that one.
fn cutting_a_hundred_thousand_consumers_copies_none() {
    let mut groups = filled(0);
    groups.edit(b"g", |group| {
        for number in 0..100_000 {
            group.create_consumer(format!("consumer:{number}").as_bytes(), number);
        }
    });
    let cut = groups.clone();
    groups.edit(b"g", |group| {
        let number = group.consumer(b"consumer:77").expect("created").number();
        group.set_times(number, 1, Some(2));
        group.remove_consumer(group.consumer(b"consumer:78").expect("created").number());
    });
    let seen = |groups: &Groups, name: &[u8]| {
        groups.get(b"g").and_then(|group| group.consumer(name)).map(Consumer::seen_ms)
    };
    assert_eq!((seen(&groups, b"consumer:77"), seen(&cut, b"consumer:77")), (Some(1), Some(77)));
    assert_eq!((seen(&groups, b"consumer:78"), seen(&cut, b"consumer:78")), (None, Some(78)));
    groups.check_invariants();
    cut.check_invariants();
}
