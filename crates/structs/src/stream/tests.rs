//! Streams compared with a map under random seeds; cuts, readers, shapes, and freeing in portions.

use super::shapes::SHAPES_MAX;
use super::*;
use crate::lazyfree;
use darter_base::Prng;
use darter_base::preempt::Never;
use std::collections::BTreeMap;

/// The model of the entries: names and values by ID.
type Model = BTreeMap<StreamId, Vec<Vec<u8>>>;

fn shown(entry: StreamEntry<'_>) -> (StreamId, Vec<Vec<u8>>) {
    let fields: Vec<_> = entry.fields().map(|field| field.to_vec()).collect();
    assert_eq!(entry.pairs() * 2, fields.len());
    (entry.id(), fields)
}

fn content(entries: &Entries) -> Model {
    entries.range(0..entries.len()).map(shown).collect()
}

fn add(entries: &mut Entries, id: StreamId, fields: &[Vec<u8>]) {
    entries.append(id, fields.iter().map(|field| NewElement::Bytes(field)));
}

/// Fields of one of several shapes, or of a unique shape; a few are long.
fn fields(prng: &mut Prng, shapes: u64, longest: usize) -> Vec<Vec<u8>> {
    let shape = prng.below(shapes);
    let pairs = match prng.below(40) {
        0 => 300,
        _ => 1 + shape % 4,
    };
    let name = |at| format!("field:{shape}:{at}").into_bytes();
    let mut fields = Vec::new();
    for at in 0..pairs {
        fields.push(if prng.chance(3) { prng.bytes(0..=longest) } else { name(at) });
        fields.push(match prng.below(6) {
            0..=2 => prng.below(1 << 30).to_string().into_bytes(),
            3 => prng.bytes(0..=longest),
            4 => format!("{:08x}-0000-4000-8000-000000000000", prng.below(9)).into_bytes(),
            _ => prng.bytes(0..=20),
        });
    }
    fields
}

/// An ID after `last`, usually close to it.
fn behind(prng: &mut Prng, last: StreamId) -> StreamId {
    let StreamId { ms, seq } = last;
    match prng.below(10) {
        0..=3 => StreamId::new(ms, seq + 1 + prng.below(3)),
        4 => StreamId::new(ms + 1, prng.next_u64() >> prng.below(64)),
        5 => StreamId::new(ms + prng.below(1 << 40), seq + 1),
        _ => StreamId::new(ms + 1 + prng.below(3_000), 0),
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Append,
    Remove,
    Trim,
    RemoveRange,
    Cut,
    Unshare,
    Empty,
}

#[rustfmt::skip] // A table.
const GROW: &[(u64, Op)] = &[
    (60, Op::Append), (10, Op::Remove), (3, Op::Cut), (2, Op::Unshare),
];
#[rustfmt::skip] // A table.
const SHRINK: &[(u64, Op)] = &[
    (20, Op::Append), (60, Op::Remove), (8, Op::Trim), (4, Op::RemoveRange), (3, Op::Cut),
    (2, Op::Unshare), (1, Op::Empty),
];

/// A stream and its model, and cuts with their models.
struct Trial {
    entries: Entries,
    model: Model,
    cuts: Vec<(Entries, Model)>,
    last: StreamId,
    shapes: u64,
    longest: usize,
}

impl Trial {
    fn step(&mut self, op: Op, prng: &mut Prng) {
        let len = self.model.len();
        let rank = prng.below(len.max(1) as u64) as usize;
        let id = self.model.keys().nth(rank).copied();
        match op {
            Op::Append => {
                for _ in 0..=prng.below(20) {
                    self.append(prng);
                }
            }
            Op::Remove => {
                let id = if prng.chance(20) { None } else { id };
                let id = id.unwrap_or_else(|| StreamId::new(prng.next_u64() >> 20, 1));
                assert_eq!(self.entries.remove(id), self.model.remove(&id).is_some());
            }
            Op::Trim | Op::RemoveRange => {
                let from = if matches!(op, Op::Trim) { 0 } else { rank };
                let to = (from + prng.below(len as u64 / 4 + 1) as usize).min(len);
                let gone: Vec<_> = self.model.keys().copied().take(to).skip(from).collect();
                gone.iter().for_each(|id| _ = self.model.remove(id));
                self.entries.remove_range(from..to);
            }
            Op::Empty => {
                self.entries.remove_range(0..usize::MAX);
                self.model.clear();
            }
            Op::Cut => self.cuts.push((self.entries.clone(), self.model.clone())),
            Op::Unshare if len > 0 => {
                self.entries.unshare(rank);
                assert!(!self.entries.unshare(rank), "it is its own now");
            }
            Op::Unshare => {}
        }
    }

    fn append(&mut self, prng: &mut Prng) {
        self.last = behind(prng, self.last);
        let fields = fields(prng, self.shapes, self.longest);
        if prng.chance(20) {
            let mut list = List::new();
            fields.iter().for_each(|field| list.push(End::Back, &**field));
            self.entries.append_list(self.last, list);
        } else {
            add(&mut self.entries, self.last, &fields);
        }
        self.model.insert(self.last, fields);
    }

    fn check(&self, prng: &mut Prng) {
        let (entries, model) = (&self.entries, &self.model);
        entries.check_invariants();
        assert_eq!((entries.len(), entries.is_empty()), (model.len(), model.is_empty()));
        assert_eq!(entries.first(), model.keys().next().copied());
        assert_eq!(entries.last(), model.keys().next_back().copied());
        let rank = prng.below(model.len().max(1) as u64) as usize;
        let Some((id, fields)) = model.iter().nth(rank) else { return };
        assert_eq!(entries.get(*id).map(shown).as_ref(), Some(&(*id, fields.clone())));
        assert_eq!(entries.rank_of(*id), rank);
        let next = id.next().expect("far from the last");
        assert_eq!((entries.rank_of(next), entries.contains(*id)), (rank + 1, true));
        assert_eq!(entries.contains(next), model.contains_key(&next));
        let near = prng.below(40) as usize;
        let back = entries.range_back(rank.saturating_sub(near)..rank).map(shown);
        let expected = model.iter().take(rank).rev().take(near);
        assert!(back.eq(expected.map(|(id, fields)| (*id, fields.clone()))), "rank {rank}");
    }
}

#[test] // Cuts do not change.
fn random_stream_operations_agree_with_a_map() {
    for seed in 0..24 {
        let mut prng = Prng::from_seed(seed);
        let longest = [30, 300, 1_500, 3_000][seed as usize % 4];
        let shapes = [1, 3, SHAPES_MAX as u64 * 3][seed as usize % 3];
        let (entries, model, cuts) = (Entries::new(), Model::new(), Vec::new());
        let mut trial = Trial { entries, model, cuts, last: StreamId::MIN, shapes, longest };
        for step in 0..600 {
            let ops = if step / 150 % 2 == 0 { GROW } else { SHRINK };
            let op = *prng.weighted(ops);
            trial.step(op, &mut prng);
            trial.check(&mut prng);
            if step % 50 == 0 {
                assert_eq!(content(&trial.entries), trial.model, "seed {seed} step {step} {op:?}");
            }
            if trial.cuts.len() > 6 {
                let (cut, expected) = trial.cuts.remove(prng.below(6) as usize);
                cut.check_invariants();
                assert_eq!(content(&cut), expected, "seed {seed} step {step}: a cut has changed");
            }
        }
        drop(trial);
        while lazyfree::run(&Never) {}
    }
}

/// Entries with two short fields each, seventeen milliseconds apart.
fn events(count: u64) -> Entries {
    let mut entries = Entries::new();
    for number in 0..count {
        let fields = [&b"sensor"[..], b"12", b"value", &number.to_string().into_bytes()];
        entries.append(time(number), fields.into_iter().map(NewElement::Bytes));
    }
    entries
}

fn time(number: u64) -> StreamId {
    StreamId::new(1_763_000_000_000 + 17 * number, 0)
}

#[test] // Ranks by ID and trimming are correct.
fn a_large_stream_is_a_shallow_tree_with_little_overhead() {
    let mut entries = events(200_000);
    entries.check_invariants();
    let bytes = entries.memory_bytes();
    assert!(bytes < 200_000 * 14, "{bytes} bytes");
    for number in (0..200_000).step_by(777) {
        let id = time(number);
        assert_eq!(entries.rank_of(id), number as usize);
        assert_eq!(entries.rank_of(id.next().unwrap()), number as usize + 1);
        assert_eq!(entries.get(id).map(|entry| entry.id()), Some(id));
    }
    assert_eq!((entries.rank_of(StreamId::MIN), entries.rank_of(StreamId::MAX)), (0, 200_000));
    let cut = entries.clone();
    entries.remove_range(0..123_456);
    entries.check_invariants();
    assert_eq!((entries.len(), entries.first()), (76_544, Some(time(123_456))));
    assert!(entries.memory_bytes() < bytes / 2);
    cut.check_invariants();
    assert_eq!((cut.len(), cut.memory_bytes()), (200_000, bytes), "the cut has changed");
    drop(cut);
    let mut portions = 0;
    while lazyfree::run(&Never) {
        portions += 1;
    }
    assert!(portions < 200_000, "{portions}");
}

#[test] // Entries beyond the limit store their own names.
fn numbers_of_unused_shapes_are_reused() {
    let mut entries = Entries::new();
    let add = |entries: &mut Entries, number: u64| {
        let name = format!("a name of some length, {number}");
        let fields = [name.as_bytes(), b"1"];
        entries.append(StreamId::new(number + 1, 0), fields.into_iter().map(NewElement::Bytes));
        let entry = entries.get(StreamId::new(number + 1, 0)).expect("just added");
        assert_eq!(entry.fields().next().map(|name| name.to_vec()), Some(name.into_bytes()));
    };
    let shapes = SHAPES_MAX as u64;
    (0..shapes).for_each(|number| add(&mut entries, number));
    let full = entries.shapes.memory_bytes();
    (shapes..2 * shapes).for_each(|number| add(&mut entries, number));
    assert_eq!(entries.shapes.memory_bytes(), full, "all numbers are taken");
    entries.check_invariants();
    entries.remove_range(0..SHAPES_MAX + 10);
    let cut = entries.clone();
    let before = content(&cut);
    (2 * shapes..3 * shapes).for_each(|number| add(&mut entries, number));
    entries.check_invariants();
    assert_eq!(content(&cut), before, "the cut has the old shapes");
    assert_ne!(entries.shapes.memory_bytes(), full, "their numbers were given away");
}

#[test]
fn a_value_too_long_to_collect_leaves_the_earlier_ones() {
    let mut names = List::new();
    [b"one", b"two"].iter().for_each(|name| names.push(End::Back, &name[..]));
    let mut gathered = Gathered::of(&names).unwrap();
    assert!(gathered.push(&[b'x'; 500]));
    assert!(!gathered.push(&[b'y'; 505]) && !gathered.is_whole());
    assert!(gathered.push(&[b'z'; 500]) && gathered.is_whole());
    let values: Vec<_> = gathered.values().map(|value| value.to_vec()).collect();
    assert!(values == [vec![b'x'; 500], vec![b'z'; 500]]);
}

#[test] // In either direction, however the stream changes.
fn a_reader_frees_the_chunks_that_it_has_read() {
    for range in [0..30_000, 12_345..12_346, 500..29_000, 29_999..30_000, 5..5, 3..90_000] {
        for from in [End::Front, End::Back] {
            let mut entries = events(30_000);
            let mut reader = StreamReader::new(entries.reader(), range.clone(), from);
            entries.remove_range(0..17_000);
            let end = range.end.min(30_000);
            assert_eq!(reader.left(), end - range.start);
            let mut read = Vec::new();
            while reader.next_slice(100, &mut |entry| read.push(entry.id())) {}
            if from == End::Back {
                read.reverse();
            }
            assert!((range.start..end).map(|number| time(number as u64)).eq(read), "{range:?}");
            while lazyfree::run(&Never) {}
            assert!(!entries.unshare(3_000), "{range:?}: what was let go of is the stream's own");
        }
    }
}

#[test] // Before that it pins nothing.
fn a_reader_pins_its_unread_bytes_after_the_stream_is_deleted() {
    let entries = events(50_000);
    let watch = entries.watch();
    let mut reader = StreamReader::new(entries.reader(), 0..50_000, End::Front);
    let other = entries.reader();
    assert_eq!((reader.pinned_bytes(), other.is_pinned(), watch.pinned_bytes()), (0, false, 0));
    let bytes = entries.memory_bytes();
    drop(entries);
    assert!(other.is_pinned() && watch.pinned_bytes() == bytes);
    let all = reader.pinned_bytes();
    assert!(all > bytes * 9 / 10 && all <= bytes, "{all} of {bytes}");
    reader.next_slice(25_000, &mut |_| {});
    assert!(reader.pinned_bytes() <= all / 2);
}

#[test] // So is a long entry.
fn removed_parts_of_a_stream_are_freed_in_portions() {
    let mut entries = events(100_000);
    entries.remove_range(0..90_000);
    assert!(!lazyfree::is_empty());
    while lazyfree::run(&Never) {}
    assert!(lazyfree::is_empty());
    let mut list = List::new();
    (0..50_000).for_each(|number: u64| list.push(End::Back, number.to_string().as_bytes()));
    entries.append_list(StreamId::MAX, list);
    let entry = entries.get(StreamId::MAX).expect("just added");
    assert_eq!((entry.pairs(), entry.long().map(List::len)), (25_000, Some(50_000)));
    assert!(entries.remove(StreamId::MAX));
    assert!(!lazyfree::is_empty(), "the list of its fields");
    entries.check_invariants();
    while lazyfree::run(&Never) {}
}
