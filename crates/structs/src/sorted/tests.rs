//! Sorted sets compared with a map under random seeds; cuts, readers, scans, and freeing in
//! portions.

use super::*;
use crate::lazyfree;
use darter_base::preempt::Never;
use darter_base::{Prng, hash};
use std::collections::{BTreeMap, BTreeSet};

/// The model of a sorted set: the scores by member.
type Model = BTreeMap<Vec<u8>, f64>;

/// The entries in their order.
fn ordered(model: &Model) -> Vec<(f64, Vec<u8>)> {
    let mut entries: Vec<_> = model.iter().map(|(name, score)| (*score, name.clone())).collect();
    entries.sort_by(|one, other| {
        one.0.partial_cmp(&other.0).expect("numbers").then_with(|| one.1.cmp(&other.1))
    });
    entries
}

fn shown(entry: SortedEntry<'_>) -> (f64, Vec<u8>) {
    (entry.score(), entry.member().to_vec())
}

fn content(set: &Sorted) -> Vec<(f64, Vec<u8>)> {
    set.range(0..set.len()).map(shown).collect()
}

fn member(prng: &mut Prng, names: u64, longest: usize) -> Vec<u8> {
    let name = prng.below(names);
    match name % 8 {
        0 => name.to_string().into_bytes(),
        1 => format!("{name:08x}-0000-4000-8000-000000000000").into_bytes(),
        2 => vec![b'x'; name as usize % longest],
        _ => format!("member:{name}").into_bytes(),
    }
}

fn score(prng: &mut Prng) -> f64 {
    match prng.below(8) {
        0 => f64::from_bits(prng.next_u64() >> 2),
        1 => -(prng.below(1 << 40) as f64),
        2 => prng.below(1 << 60) as f64,
        3 => [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, 0.5, -1.5][prng.below(6) as usize],
        _ => prng.below(20) as f64,
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert,
    Keep,
    Remove,
    Pop,
    RemoveRange,
    Settle,
    Cut,
    Unshare,
}

#[rustfmt::skip] // A table.
const GROW: &[(u64, Op)] = &[
    (60, Op::Insert), (5, Op::Keep), (5, Op::Remove), (2, Op::Pop), (3, Op::Cut), (2, Op::Unshare),
    (1, Op::Settle),
];
#[rustfmt::skip] // A table.
const SHRINK: &[(u64, Op)] = &[
    (20, Op::Insert), (5, Op::Keep), (30, Op::Remove), (10, Op::Pop), (4, Op::RemoveRange),
    (3, Op::Cut), (2, Op::Unshare), (2, Op::Settle),
];

/// A set and its model, and cuts with their models.
struct Trial {
    set: Sorted,
    model: Model,
    cuts: Vec<(Sorted, Model)>,
    names: u64,
    longest: usize,
}

impl Trial {
    fn step(&mut self, op: Op, prng: &mut Prng) {
        let len = self.model.len();
        let name = member(prng, self.names, self.longest);
        let (hash, score) = (hash::of(&name), score(prng));
        let (set, model) = (&mut self.set, &mut self.model);
        match op {
            Op::Insert => {
                for _ in 0..=prng.below(12) {
                    let name = member(prng, self.names, self.longest);
                    let score = self::score(prng);
                    let old = set.insert(hash::of(&name), &name, score);
                    assert_eq!(old, model.get(&name).copied(), "{name:?}");
                    if old != Some(score) {
                        model.insert(name, score);
                    }
                }
            }
            Op::Keep => {
                let old = set.update(hash, &name, |_| None);
                assert_eq!(old, model.get(&name).copied());
            }
            Op::Remove => assert_eq!(set.remove(hash, &name), model.remove(&name), "{name:?}"),
            Op::Pop => {
                let end = if prng.chance(50) { End::Front } else { End::Back };
                let all = ordered(model);
                let wanted = if end == End::Front { all.first() } else { all.last() };
                assert_eq!(set.pop(end, shown).as_ref(), wanted);
                if let Some((_, name)) = wanted {
                    model.remove(name);
                }
            }
            Op::RemoveRange => {
                let from = prng.below(len as u64 + 1) as usize;
                let ranks = from..from + prng.below(len as u64 / 3 + 2) as usize;
                set.remove_range(ranks.clone());
                for (_, name) in ordered(model).drain(ranks.start..ranks.end.min(len)) {
                    model.remove(&name);
                }
            }
            Op::Settle => while set.settle(1 + prng.below(100) as usize) {},
            Op::Cut => self.cuts.push((set.clone(), model.clone())),
            Op::Unshare => {
                let score = prng.chance(50).then_some(score);
                set.unshare(hash, &name, score);
                assert!(!set.unshare(hash, &name, score), "it is its own now");
            }
        }
    }

    /// Prefetches existing and absent members, more than one batch; must not read outside of the
    /// set.
    fn prefetch(&self, prng: &mut Prng) {
        let wanted: Vec<(f64, u64)> = (0..prng.below(20))
            .map(|_| (score(prng), hash::of(&member(prng, self.names, self.longest))))
            .collect();
        let hashes: Vec<u64> = wanted.iter().map(|(_, hash)| *hash).collect();
        hashes.iter().for_each(|hash| self.set.prefetch(*hash));
        self.set.prefetch_entries(&hashes);
        self.set.prefetch_all(&wanted);
    }

    /// Compares lookups, ranks and bounds with the model.
    fn check(&self, prng: &mut Prng) {
        let (set, all) = (&self.set, ordered(&self.model));
        assert_eq!(set.len(), all.len());
        let name = member(prng, self.names, self.longest);
        self.prefetch(prng);
        let found = set.rank(hash::of(&name), &name);
        let wanted = all.iter().position(|(_, other)| *other == name);
        assert_eq!(found, wanted.map(|rank| (rank, all[rank].0)), "{name:?}");
        let rank = prng.below(all.len() as u64 + 1) as usize;
        assert_eq!(set.get(rank).map(shown).as_ref(), all.get(rank));
        let score = score(prng);
        let places = [
            (Place::Start, 0),
            (Place::BeforeScore(score), all.partition_point(|one| one.0 < score)),
            (Place::AfterScore(score), all.partition_point(|one| one.0 <= score)),
            (
                Place::SortedEntry(score, &name),
                all.partition_point(|one| one.0 < score || one.0 == score && one.1 < name),
            ),
            (Place::End, all.len()),
        ];
        for (place, rank) in places {
            assert_eq!(set.rank_of(place), rank, "{place:?}");
        }
    }
}

#[test] // Cuts do not change.
fn random_changes_of_a_sorted_set_agree_with_a_map() {
    for seed in 0..24 {
        let mut prng = Prng::from_seed(seed);
        let longest = [30, 300, 1_500, 3_000][seed as usize % 4];
        let names = [60, 600, 3_000][seed as usize % 3];
        let (set, model, cuts) = (Sorted::new(), Model::new(), Vec::new());
        let mut trial = Trial { set, model, cuts, names, longest };
        for step in 0..600 {
            let ops = if step / 150 % 2 == 0 { GROW } else { SHRINK };
            let op = *prng.weighted(ops);
            trial.step(op, &mut prng);
            trial.check(&mut prng);
            if step % 10 == 0 {
                trial.set.check_invariants();
            }
            if step % 50 == 0 {
                let wanted = ordered(&trial.model);
                assert_eq!(content(&trial.set), wanted, "seed {seed} step {step} {op:?}");
                let back: Vec<_> = trial.set.range_back(0..usize::MAX).map(shown).collect();
                assert!(back.iter().eq(wanted.iter().rev()), "seed {seed} step {step}");
            }
            if trial.cuts.len() > 6 {
                let (cut, expected) = trial.cuts.remove(prng.below(6) as usize);
                cut.check_invariants();
                assert_eq!(content(&cut), ordered(&expected), "seed {seed} step {step}: a cut");
            }
        }
        drop(trial);
        while lazyfree::run(&Never) {}
    }
}

/// `count` members with mixed scores.
fn numbers(count: u64) -> Sorted {
    let mut set = Sorted::new();
    for number in 0..count {
        let name = format!("member:{number}").into_bytes();
        set.insert(hash::of(&name), &name, (number * 7_919 % count) as f64);
    }
    set
}

#[test]
fn a_large_sorted_set_has_correct_ranks_and_little_overhead() {
    let set = numbers(100_000);
    set.check_invariants();
    assert!(set.memory_bytes() < 100_000 * 40, "{} bytes", set.memory_bytes());
    for rank in (0..100_000).step_by(777) {
        let entry = set.get(rank).unwrap();
        assert_eq!(entry.score(), rank as f64);
        let name = entry.member().to_vec();
        assert_eq!(set.rank(hash::of(&name), &name), Some((rank, rank as f64)));
        assert_eq!(set.rank_of(Place::BeforeScore(rank as f64)), rank);
        assert_eq!(set.rank_of(Place::AfterScore(rank as f64)), rank + 1);
    }
    assert_eq!(set.rank(hash::of(b"none"), b"none"), None);
}

/// One call of a scan; checks that its steps are short, counting visited entries in returned ones.
fn scan(set: &Sorted, cursor: u64, most: usize, f: &mut dyn FnMut(SortedEntry<'_>)) -> u64 {
    let mut scan = Scan::new(cursor, most);
    loop {
        let mut returned = 0;
        let more = scan.step(set, &mut |entry| {
            returned += 1;
            f(entry);
        });
        assert!(returned <= 1_024, "{returned} in one step");
        if !more {
            return scan.cursor();
        }
    }
}

#[test] // A call visits few entries in vain.
fn a_scan_over_equal_scores_is_bounded_per_call() {
    let mut set = Sorted::new();
    let len = if cfg!(miri) { 2_000 } else { 50_000 };
    for number in 0..len {
        let name = format!("member:{number}").into_bytes();
        set.insert(hash::of(&name), &name, f64::from(number % 40));
    }
    let (mut scan, mut steps, mut met) = (Scan::new(0, 10), 1, 0);
    while scan.step(&set, &mut |_| met += 1) {
        steps += 1;
    }
    assert!(scan.cursor() > 0 && met >= len as usize / 100, "{met}");
    assert!(steps > len / 1_024, "{steps}");
}

#[test] // A scan returns each member once.
fn equal_scores_are_ordered_by_member() {
    let mut set = Sorted::new();
    for number in 0..20_000_u32 {
        let name = format!("{:05}", number * 7 % 20_000).into_bytes();
        set.insert(hash::of(&name), &name, 1.0);
    }
    set.check_invariants();
    assert_eq!(set.rank_of(Place::BeforeMember(b"00777")), 777);
    assert_eq!(set.rank_of(Place::AfterMember(b"00777")), 778);
    assert_eq!(set.rank_of(Place::BeforeMember(b"00777x")), 778);
    assert_eq!(set.rank_of(Place::AfterScore(1.0)), 20_000);
    let (mut met, mut cursor, mut calls) = (Vec::new(), 0, 0);
    loop {
        cursor = scan(&set, cursor, 10, &mut |entry| met.push(entry.member().to_vec()));
        calls += 1;
        if cursor == 0 {
            break;
        }
    }
    assert!(calls < 120, "{calls} calls");
    met.sort_unstable();
    assert!(met.iter().eq(content(&set).iter().map(|(_, name)| name)));
}

#[test] // Whatever changes between calls.
fn a_scan_returns_all_entries_that_exist_throughout() {
    let (mut set, mut prng) = (numbers(5_000), Prng::from_seed(1));
    let (mut met, mut cursor) = (BTreeSet::new(), 0);
    loop {
        cursor = scan(&set, cursor, 50, &mut |entry| _ = met.insert(entry.member().to_vec()));
        for _ in 0..30 {
            let name = format!("member:{}", prng.below(7_000)).into_bytes();
            if prng.chance(50) {
                set.insert(hash::of(&name), &name, prng.below(100) as f64);
            } else if name.len() > 10 {
                set.remove(hash::of(&name), &name); // The first thousand are kept.
            }
        }
        if cursor == 0 {
            break;
        }
    }
    for number in 0..1_000 {
        assert!(met.contains(format!("member:{number}").as_bytes()), "{number}");
    }
}

#[test]
fn members_of_equal_hashes_are_distinguished() {
    let name = |number: u64| format!("m{number}").into_bytes();
    let mut hashes: Vec<_> = (0..400_000).map(|n| (hash::of(&name(n)) >> 32, n)).collect();
    hashes.sort_unstable();
    let alike = hashes.chunk_by(|one, other| one.0 == other.0).filter(|names| names.len() > 1);
    let names: Vec<_> = alike.flatten().map(|(_, number)| name(*number)).collect();
    assert!(names.len() >= 8, "{} by chance", names.len());
    let mut set = numbers(1_000);
    for (at, name) in names.iter().enumerate() {
        assert_eq!(set.insert(hash::of(name), name, (at / 2 % 2) as f64), None);
    }
    set.check_invariants();
    for (at, name) in names.iter().enumerate() {
        let score = (at / 2 % 2) as f64;
        assert_eq!(set.score(hash::of(name), name), Some(score));
        assert_eq!(set.insert(hash::of(name), name, score + at as f64), Some(score));
        assert_eq!(set.remove(hash::of(name), name), Some(score + at as f64));
        assert_eq!(set.score(hash::of(name), name), None);
    }
    set.check_invariants();
}

#[test] // The range itself is removed at once.
fn the_index_of_a_removed_range_is_cleaned_up_later() {
    let mut set = numbers(50_000);
    let before = set.memory_bytes();
    let cut = set.clone();
    set.remove_range(10_000..40_000);
    set.check_invariants();
    assert_eq!(set.len(), 20_000);
    let gone = cut.get(20_000).unwrap().member().to_vec();
    assert_eq!(set.rank(hash::of(&gone), &gone), None);
    assert_eq!(set.insert(hash::of(&gone), &gone, 20_000.0), None, "again, as it was");
    set.check_invariants();
    assert_eq!(set.remove(hash::of(&gone), &gone), Some(20_000.0));
    let mut portions = 0;
    while set.settle(100) {
        portions += 1;
    }
    assert!(portions > 250, "{portions} portions");
    set.check_invariants();
    drop(cut);
    while lazyfree::run(&Never) {}
    assert!(set.memory_bytes() < before * 6 / 10, "{} of {before}", set.memory_bytes());
}

#[test] // Also if chunks are merged.
fn clean_up_portions_that_copy_chunks_have_fewer_entries() {
    let portions = |set: &mut Sorted| {
        let mut portions = 1;
        while set.settle(64) {
            portions += 1;
        }
        portions
    };
    let mut set = numbers(100_000);
    set.remove_range(1_000..1_640);
    assert_eq!(portions(&mut set), 10, "nothing is copied");
    let cut = set.clone();
    set.remove_range(1_000..1_640);
    let copying = portions(&mut set);
    assert!(copying > 60, "{copying} portions, where nearly each entry makes it copy a chunk");
    set.remove_range(1_000..1_064); // As many are removed at once, apart from the copying.
    assert!(set.is_unsettled());
    drop(cut);
    set.remove_range(100..set.len() - 100);
    let merging = portions(&mut set);
    assert!(merging > 1_580, "{merging} portions, in which all chunks are merged");
    set.check_invariants();
    while lazyfree::run(&Never) {}
}

#[test] // And back.
fn small_sorted_sets_are_packed_and_grow_into_trees() {
    let mut set = numbers(60);
    let bytes = set.packed().unwrap().to_vec();
    let pack = SortedPackRef::new(&bytes);
    pack.check_invariants();
    assert_eq!((pack.len(), pack.rank(b"member:0")), (60, Some((0, 0.0))));
    assert_eq!(content(&Sorted::of_packed(&bytes)), content(&set));
    let mut number = 0;
    while set.packed().is_some() {
        let name = format!("other:{number}").into_bytes();
        set.insert(hash::of(&name), &name, 1e9);
        number += 1;
    }
    set.check_invariants();
    while number > 0 {
        number -= 1;
        let name = format!("other:{number}").into_bytes();
        assert_eq!(set.remove(hash::of(&name), &name), Some(1e9));
    }
    assert_eq!(set.packed(), Some(&*bytes), "the same bytes");
    let long = vec![b'l'; INLINE_MAX + 1];
    set.insert(hash::of(&long), &long, 5.5);
    assert!(set.packed().is_none(), "a long member is in no pack");
    assert!(set.get(6).unwrap().hold_member().is_some_and(|held| *held.bytes() == *long));
    set.remove(hash::of(&long), &long);
    assert_eq!(set.packed(), Some(&*bytes), "the same bytes");
    set.remove_range(0..60);
    assert!(set.packed() == Some(&[]) && set.memory_bytes() == 0);
}

#[test] // In either direction, whatever becomes of the set.
fn a_reader_frees_the_chunks_that_it_has_read() {
    for from in [End::Front, End::Back] {
        for ranks in [0..30_000, 12_345..12_346, 500..29_000, 29_999..30_000, 5..5] {
            let mut set = numbers(30_000);
            let mut reader = SortedReader::new(set.reader(), ranks.clone(), from);
            set.remove_range(0..17_000);
            let (mut read, mut expected) = (Vec::new(), reader.left());
            assert_eq!(expected, ranks.len());
            while reader.next_slice(100, &mut |entry| read.push(entry.score() as usize)) {
                expected -= 100;
                assert_eq!(reader.left(), expected);
            }
            if from == End::Back {
                read.reverse();
            }
            assert!(ranks.clone().eq(read), "{ranks:?} {from:?}");
            while lazyfree::run(&Never) {}
            assert!(!set.unshare_rank(3_000), "what was let go of is the set's own");
        }
        let mut read = Vec::new();
        let mut reader = SortedReader::new(numbers(50), 40..1_000, from);
        while reader.next_slice(3, &mut |entry| read.push(entry.score() as usize)) {}
        read.sort_unstable();
        assert!((40..50).eq(read), "of a pack");
    }
}

#[test] // All three parts, but not while a cut shares them.
fn large_sorted_sets_are_freed_in_portions() {
    let set = numbers(60_000);
    let (cut, bytes) = (set.clone(), set.memory_bytes());
    let (watch, reader) = (set.watch(), set.reader());
    drop(set);
    while lazyfree::run(&Never) {}
    assert_eq!((cut.len(), watch.pinned_bytes(), reader.is_pinned()), (60_000, 0, false));
    drop(cut);
    assert!(reader.is_pinned() && watch.pinned_bytes() == bytes);
    while lazyfree::run(&Never) {}
    assert_eq!(content(&reader).len(), 60_000, "a reader has all of it");
    drop(reader);
    let waiting = lazyfree::waiting().1;
    assert_eq!(waiting, 0, "the watch holds it, too");
    drop(watch);
    while lazyfree::run(&Never) {}
    assert_eq!(lazyfree::waiting(), (0, 0));
}

#[test]
fn a_dropped_sorted_set_reports_the_bytes_of_both_trees() {
    let set = numbers(60_000);
    let bytes = set.memory_bytes();
    drop(set);
    let waiting = lazyfree::waiting().1;
    assert!((bytes - 1_000..=bytes).contains(&waiting), "{waiting} of {bytes}");
    while lazyfree::run(&Never) {}

    // The index of a reader's cut belongs to the set while that exists, and so do skipped entries.
    let set = numbers(60_000);
    let reader = SortedReader::new(set.reader(), 40_000..60_000, End::Front);
    assert_eq!(lazyfree::waiting().1, 0);
    drop(reader);
    assert_eq!(lazyfree::waiting(), (0, 0), "nothing of it was the reader's alone");
}

#[test]
fn a_writer_copies_nothing_after_a_cut_is_dropped() {
    let mut set = numbers(60_000);
    drop(set.clone());
    drop(set.reader());
    drop(SortedReader::new(set.reader(), 30_000..60_000, End::Back));
    let name = b"member:7";
    assert!(!set.unshare(hash::of(name), name, Some(1.0)), "copied for no one");
}

#[test] // For input in any order.
fn bulk_built_sorted_sets_equal_single_insertions() {
    let lens: &[u64] =
        if cfg!(miri) { &[0, 3, 1_500] } else { &[0, 1, 2, 100, 1_024, 5_000, 40_000] };
    for (seed, len) in (0..2).flat_map(|seed| lens.iter().map(move |len| (seed, *len))) {
        let mut prng = Prng::from_seed(seed * 1_000 + len);
        let (mut builder, mut model) = (SortedBuilder::new(len as usize), Model::new());
        for number in 0..len {
            let name = member(&mut prng, len * 2, if len > 2_000 { 64 } else { 5_000 });
            // In order, as from several sorted sets read one after another.
            let in_order = (number % (len / 2 + 1)) as f64;
            let score = if seed == 0 { in_order } else { score(&mut prng) };
            builder.push(hash::of(&name), &name, score);
            let old = model.get(&name).copied();
            model.insert(name, old.map_or(score, |old| old.max(score)));
        }
        while builder.step(&f64::max) {}
        let set = builder.finish();
        set.check_invariants();
        assert!(content(&set) == ordered(&model), "seed={seed} len={len}");
    }
    while lazyfree::run(&Never) {}
}

#[test] // Input that may be damaged is not accepted.
fn a_small_set_written_at_once_equals_single_insertions() {
    for seed in 0..40 {
        let mut prng = Prng::from_seed(seed);
        let mut model = Model::new();
        for _ in 0..1 + prng.below(140) {
            model.insert(member(&mut prng, 500, 100), score(&mut prng));
        }
        let mut entries: Vec<_> = model.iter().map(|(name, score)| (*score, &name[..])).collect();
        let mut added = Sorted::new();
        for (score, name) in &entries {
            added.insert(hash::of(name), name, *score);
        }
        let written = Sorted::of_all(&mut entries);
        assert_eq!(written.is_some(), added.packed().is_some(), "seed={seed}");
        let Some(written) = written else { continue };
        written.check_invariants();
        assert!(written.packed() == added.packed() && content(&written) == ordered(&model));
        assert!(written.memory_bytes() <= added.memory_bytes(), "seed={seed}");
        entries.push((0.5, entries[0].1));
        assert!(Sorted::of_all(&mut entries).is_none(), "a member twice");
    }
    assert!(Sorted::of_all(&mut []).is_none());
}

#[test]
fn a_builder_step_merges_few_entries_and_bytes() {
    for (members, len) in [(20_000, 0), (200, 60_000)] {
        let mut builder = SortedBuilder::new(2); // Only two buckets.
        for number in (0..members).chain(0..members) {
            let mut name = format!("member:{number}").into_bytes();
            name.resize(name.len().max(len), b'x');
            builder.push(hash::of(&name), &name, 1.0);
        }
        assert!(builder.memory_bytes() >= 2 * members * len, "long members count");
        let merged = std::cell::Cell::new(0);
        let merge = |one, _| {
            merged.set(merged.get() + 1);
            one
        };
        let (mut most, mut before) = (0, 0);
        while builder.step(&merge) {
            most = most.max(merged.get() - before);
            before = merged.get();
        }
        assert!(before == members && most <= if len > 0 { 2 } else { 256 }, "{most} at once");
        let set = builder.finish();
        set.check_invariants();
        assert_eq!(set.len(), members);
    }
    while lazyfree::run(&Never) {}
}

#[test] // Before a step would sort or merge all of the input.
fn repeated_members_are_detected_early() {
    let build = |times: usize| {
        let mut builder = SortedBuilder::of_different(100_000);
        let long = vec![b'x'; 200];
        (0..times).for_each(|_| builder.push(hash::of(&long), &long, 1.0));
        builder
    };
    let all = build(100_000);
    assert!(all.is_overfull() && all.memory_bytes() < 4 << 20, "{}", all.memory_bytes());
    for times in [2, 1_000, 4_000] {
        let (mut builder, merged) = (build(times), std::cell::Cell::new(0));
        let merge = |one, _| {
            merged.set(merged.get() + 1);
            one
        };
        while merged.get() == 0 && builder.step(&merge) {}
        assert!(!builder.is_overfull());
        assert_eq!(merged.get(), 1, "of {times}");
    }
    while lazyfree::run(&Never) {}
}

#[test] // As in a file of Redis.
fn descending_input_is_built_without_merging() {
    let steps = [false, true].map(|descends| {
        let mut builder = SortedBuilder::new(200_000);
        for number in 0..200_000_u32 {
            let score = f64::from(if descends { 200_000 - number } else { number });
            let name = format!("member:{number}").into_bytes();
            builder.push(hash::of(&name), &name, score);
        }
        let mut steps = 0;
        while builder.step(&|_, _| unreachable!("none comes twice")) {
            steps += 1;
        }
        builder.finish().check_invariants();
        steps
    });
    assert_eq!(steps[0], steps[1]);
    while lazyfree::run(&Never) {}
}

/// Entries of `members` distinct members, descending or ascending.
fn in_order(prng: &mut Prng, members: u64, descends: bool) -> Vec<(f64, Vec<u8>)> {
    let named = |number| (score(prng), format!("member:{number}").into_bytes());
    let mut entries: Vec<_> = (0..members).map(named).collect();
    // -0 and 0 are equal scores, so the members decide.
    entries.sort_by(|one, other| {
        one.0.partial_cmp(&other.0).expect("numbers").then_with(|| one.1.cmp(&other.1))
    });
    if descends {
        entries.reverse();
    }
    entries
}

#[test] // In order from either end, up to any point.
fn partly_ordered_input_equals_single_insertions() {
    let members = if cfg!(miri) { 800 } else { 6_000 };
    for (seed, descends) in (0..4).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut prng = Prng::from_seed(seed);
        let mut entries = in_order(&mut prng, members, descends);
        let last = entries.len() - 1;
        match seed {
            0 => {}
            1 => entries.swap(0, last),
            2 => entries[last].1.resize(5_000, b'x'),
            _ => entries[last / 2..].reverse(),
        }
        let mut builder = SortedBuilder::of_different(entries.len());
        let mut added = Sorted::new();
        for (score, name) in &entries {
            builder.push(hash::of(name), name, *score);
            added.insert(hash::of(name), name, *score);
        }
        assert_eq!(builder.is_straight(), seed == 0, "seed={seed} descends={descends}");
        while builder.step(&|_, _| unreachable!("none comes twice")) {}
        let set = builder.finish();
        set.check_invariants();
        assert!(content(&set) == content(&added), "seed={seed} descends={descends}");
        assert!(set.memory_bytes() * 100 <= added.memory_bytes() * 101, "chunks are full");
    }
    while lazyfree::run(&Never) {}
}

#[test]
fn duplicate_members_are_detected_in_any_order() {
    for (again, descends) in (0..4).flat_map(|again| [(again, false), (again, true)]) {
        let mut prng = Prng::from_seed(again);
        let mut entries = in_order(&mut prng, 3_000, descends);
        let (first, last) = (entries[0].clone(), entries[2_999].clone());
        match again {
            // A duplicate next to the original; later in order; out of order; twice.
            0 => entries.push(last),
            1 => entries.push((if descends { f64::NEG_INFINITY } else { f64::INFINITY }, first.1)),
            2 => entries.push(first),
            _ => entries.extend([(0.5, b"other".to_vec()), (0.25, b"other".to_vec())]),
        }
        let mut builder = SortedBuilder::of_different(entries.len());
        entries.iter().for_each(|(score, name)| builder.push(hash::of(name), name, *score));
        let twice = std::cell::Cell::new(0);
        let merge = |one, _| {
            twice.set(twice.get() + 1);
            one
        };
        while twice.get() == 0 && builder.step(&merge) {}
        assert_eq!(twice.get(), 1, "again={again} descends={descends}");
    }
    while lazyfree::run(&Never) {}
}

#[test] // So steps stay short.
fn large_buckets_are_split_before_sorting() {
    let (members, mut builder) = (40_000_u64, SortedBuilder::of_different(2));
    for number in 0..members {
        let name = format!("member:{number}").into_bytes();
        builder.push(hash::of(&name), &name, number as f64);
        if builder.is_overfull() {
            break;
        }
    }
    assert!(builder.is_overfull(), "two buckets are too few");
    let mut builder = SortedBuilder::new(2);
    for number in 0..members {
        let name = format!("member:{number}").into_bytes();
        builder.push(hash::of(&name), &name, (number % 77) as f64);
    }
    let mut steps = 0;
    while builder.step(&|_, _| unreachable!("none comes twice")) {
        steps += 1;
    }
    assert!(steps as u64 > 3 * members / 1_024, "{steps} steps");
    let set = builder.finish();
    set.check_invariants();
    assert_eq!(set.len() as u64, members);
    while lazyfree::run(&Never) {}
}

#[test]
fn intersecting_two_sets_keeps_the_common_members() {
    let mut builder = SortedBuilder::of_common(9_000, 2);
    for number in (0..5_000_u64).chain(1_000..3_000) {
        let name = format!("member:{number}").into_bytes();
        builder.push(hash::of(&name), &name, number as f64);
    }
    while builder.step(&|one, other| one + other) {}
    let set = builder.finish();
    set.check_invariants();
    assert_eq!((set.len(), set.get(0).map(|first| first.score())), (2_000, Some(2_000.0)));
}

#[test]
fn a_dropped_builder_frees_its_entries_in_portions() {
    for steps in [0, 10, 40, 70] {
        let mut builder = SortedBuilder::new(20_000);
        for number in 0..20_000_u64 {
            let name = format!("member:{number}").into_bytes();
            builder.push(hash::of(&name), &name, (number * 7_919 % 20_000) as f64);
        }
        assert!((0..steps).all(|_| builder.step(&f64::max)), "{steps} are not all");
        drop(builder);
        assert!(!lazyfree::is_empty(), "it is freed later");
        while lazyfree::run(&Never) {}
    }
    let filled = || {
        let mut builder = SortedBuilder::new(100_000);
        for number in 0..100_000_u64 {
            let name = format!("member:{number}").into_bytes();
            builder.push(hash::of(&name), &name, number as f64);
        }
        builder
    };
    let (mut whole, mut steps) = (filled(), 0);
    while whole.step(&f64::max) {
        steps += 1;
    }
    let mut builder = filled();
    // All are in the index, and most are in the tree of entries.
    assert!((0..steps - 100).all(|_| builder.step(&f64::max)));
    drop(builder);
    assert_eq!(lazyfree::waiting().0, 3, "the trees too");
    while lazyfree::run(&Never) {}
}

#[test] // From either end.
fn insertions_in_order_fill_whole_chunks() {
    for descending in [false, true] {
        let mut set = Sorted::new();
        for number in 0..50_000_u64 {
            let score = if descending { 50_000 - number } else { number };
            let name = format!("member:{number:05}").into_bytes();
            set.insert(hash::of(&name), &name, score as f64);
        }
        set.check_invariants();
        assert!(set.memory_bytes() < 50_000 * 34, "{} bytes", set.memory_bytes());
    }
}
