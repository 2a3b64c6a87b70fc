//! Lists compared with vectors under random seeds; cuts, readers, searches, and freeing in
//! portions.

use super::*;
use crate::lazyfree;
use crate::table::pack::item::SHORT_MAX;
use darter_base::Prng;
use darter_base::preempt::{Countdown, Never};
use std::collections::VecDeque;

type Model = VecDeque<Vec<u8>>;

fn content(list: &List) -> Model {
    list.range(0..list.len()).map(|element| element.to_vec()).collect()
}

/// Texts with a common prefix, mostly; some longer than those for which a pack's prefix is used.
fn alike(prng: &mut Prng) -> Vec<u8> {
    let beginning = "x".repeat(if prng.chance(80) { 228 } else { 225 });
    let digits = prng.below(16) as u32;
    format!("{beginning}{}", prng.below(10_u64.pow(digits))).into_bytes()
}

/// Numbers and texts from a small range, so that searches match; some of any length.
fn value(prng: &mut Prng, longest: usize) -> Vec<u8> {
    match prng.below(20) {
        0..=5 => prng.below(40).to_string().into_bytes(),
        6..=9 => format!("element:{}", prng.below(30)).into_bytes(),
        10 => format!("{:08x}-0000-4000-8000-000000000000", prng.below(9)).into_bytes(),
        11 => prng.bytes(0..=longest),
        12..=15 => prng.next_u64().to_string().into_bytes(),
        _ => prng.bytes(0..=40),
    }
}

fn check(list: &List, model: &Model, prng: &mut Prng) {
    list.check_invariants();
    assert_eq!(list.len(), model.len());
    if let Some(last) = model.len().checked_sub(1) {
        let index = prng.below(model.len() as u64) as usize;
        assert_eq!(list.get(index).map(|one| one.to_vec()).as_ref(), model.get(index));
        assert_eq!(list.get(last).map(|one| one.to_vec()).as_ref(), model.get(last));
    }
    assert!(list.get(model.len()).is_none());
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Push,
    PushNumbers,
    PushTexts,
    Pop,
    Insert,
    Set,
    Remove,
    RemoveRange,
    Trim,
    Split,
    Cut,
    RemoveValue,
    Unshare,
}

#[rustfmt::skip] // A table.
const GROW: &[(u64, Op)] = &[
    (40, Op::Push), (8, Op::PushNumbers), (8, Op::PushTexts), (10, Op::Pop), (20, Op::Insert), (10, Op::Set), (5, Op::Remove),
    (2, Op::Split), (3, Op::Cut), (1, Op::RemoveValue), (1, Op::Unshare),
];
#[rustfmt::skip] // A table.
const SHRINK: &[(u64, Op)] = &[
    (10, Op::Push), (2, Op::PushNumbers), (2, Op::PushTexts), (20, Op::Pop), (5, Op::Insert), (10, Op::Set), (30, Op::Remove),
    (5, Op::RemoveRange), (3, Op::Trim), (2, Op::Split), (3, Op::Cut), (2, Op::RemoveValue),
    (1, Op::Unshare),
];

/// A list and its model, and cuts with their models.
struct Trial {
    list: List,
    model: Model,
    cuts: Vec<(List, Model)>,
    longest: usize,
    /// Whether the texts have a common prefix.
    are_alike: bool,
}

impl Trial {
    fn value(&self, prng: &mut Prng) -> Vec<u8> {
        let are_alike = self.are_alike && prng.chance(if self.model.len() < 9 { 99 } else { 96 });
        if are_alike { alike(prng) } else { value(prng, self.longest) }
    }

    fn push_texts(&mut self, prng: &mut Prng) {
        let texts: Vec<_> = (0..prng.below(600)).map(|_| self.value(prng)).collect();
        self.list.push_texts(&texts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        self.model.extend(texts);
    }

    fn step(&mut self, op: Op, prng: &mut Prng) {
        let len = self.model.len();
        let end = if prng.chance(50) { End::Front } else { End::Back };
        let (a, b) = (prng.below(len as u64 + 1) as usize, prng.below(len as u64 + 1) as usize);
        let (from, to) = (a.min(b), a.max(b));
        let bytes = self.value(prng);
        let many: Vec<_> = (0..=prng.below(20)).map(|_| self.value(prng)).collect();
        let (list, model) = (&mut self.list, &mut self.model);
        match op {
            Op::Push => {
                for bytes in many {
                    list.push(end, &*bytes);
                    match end {
                        End::Front => model.push_front(bytes),
                        End::Back => model.push_back(bytes),
                    }
                }
            }
            Op::PushNumbers => {
                let bits = |prng: &mut Prng| prng.next_u64().cast_signed() >> prng.below(64);
                let numbers: Vec<_> = (0..prng.below(600)).map(|_| bits(prng)).collect();
                list.push_numbers(&numbers);
                model.extend(numbers.iter().map(|number| number.to_string().into_bytes()));
            }
            Op::PushTexts => self.push_texts(prng),
            Op::Pop => {
                let popped = list.pop(end, |element| element.to_vec());
                let expected = if end == End::Front { model.pop_front() } else { model.pop_back() };
                assert_eq!(popped, expected);
            }
            Op::Insert => {
                list.insert(a, &*bytes);
                model.insert(a, bytes);
            }
            Op::Set if a < len => {
                list.set(a, &*bytes);
                model[a] = bytes;
            }
            Op::Remove if a < len => {
                list.remove(a);
                model.remove(a);
            }
            Op::RemoveRange => {
                let to = to.min(from + len / 4);
                list.remove_range(from..to);
                model.drain(from..to);
            }
            Op::Trim => {
                let (front, back) = (from.min(len / 8), (len - to).min(len / 8));
                list.cut(End::Back, back);
                list.cut(End::Front, front);
                model.truncate(len - back);
                model.drain(..front);
            }
            Op::Split => {
                let rest = list.split_off(a);
                rest.check_invariants();
                list.check_invariants();
                assert_eq!((list.len(), rest.len()), (a, len - a));
                list.append(rest);
            }
            Op::Cut => self.cuts.push((list.clone(), model.clone())),
            Op::RemoveValue => self.remove_value(prng, end),
            Op::Unshare if a < len => {
                list.unshare(a);
                assert!(!list.unshare(a), "it is its own now");
            }
            _ => {}
        }
    }

    fn remove_value(&mut self, prng: &mut Prng, end: End) {
        let bytes = self.value(prng);
        let max = if prng.chance(50) { usize::MAX } else { 1 + prng.below(4) as usize };
        let mut removal =
            Removal::new(&self.list, Needle::new(NewElement::Bytes(&bytes)), max, end);
        let max_runs = 1 + prng.below(3) as usize;
        let mut told = self.model.clone();
        while removal.next_slice(&mut self.list, max_runs, &mut |index| {
            assert_eq!(told.remove(index).as_ref(), Some(&bytes), "what goes is told where it is");
        }) == Progress::More
        {}
        let mut hits: Vec<usize> =
            (0..self.model.len()).filter(|&at| self.model[at] == bytes).collect();
        if end == End::Back {
            hits.reverse();
        }
        hits.truncate(max);
        assert_eq!(removal.removed(), hits.len());
        hits.sort_unstable();
        for hit in hits.into_iter().rev() {
            self.model.remove(hit);
        }
    }
}

#[test] // Cuts do not change.
fn random_list_operations_agree_with_a_deque() {
    for seed in 0..48 {
        let mut prng = Prng::from_seed(seed);
        let longest = [30, 300, 1_500, 3_000][seed as usize % 4];
        let (list, model, are_alike) = (List::new(), Model::new(), seed >= 24);
        let mut trial = Trial { list, model, cuts: Vec::new(), longest, are_alike };
        for step in 0..600 {
            let ops = if step / 150 % 2 == 0 { GROW } else { SHRINK };
            let op = *prng.weighted(ops);
            trial.step(op, &mut prng);
            check(&trial.list, &trial.model, &mut prng);
            if step % 50 == 0 {
                assert_eq!(content(&trial.list), trial.model, "seed {seed} step {step} {op:?}");
            }
            if trial.cuts.len() > 6 {
                let (cut, expected) = trial.cuts.remove(prng.below(6) as usize);
                cut.check_invariants();
                assert_eq!(content(&cut), expected, "seed {seed} step {step}: a cut has changed");
            }
        }
        let backwards: Model =
            trial.list.range_back(0..usize::MAX).map(|element| element.to_vec()).collect();
        assert!(backwards.iter().eq(trial.model.iter().rev()), "seed {seed}");
        drop(trial);
        while lazyfree::run(&Never) {}
    }
}

fn numbers(range: Range<u64>) -> List {
    let mut list = List::new();
    range.for_each(|number| list.push(End::Back, number.to_string().as_bytes()));
    list
}

fn int(element: Element<'_>) -> u64 {
    let Element::Text(text) = element else { panic!("a blob") };
    u64::try_from(text.as_int().unwrap()).unwrap()
}

#[test] // Indexes and splits in the middle are correct.
fn a_large_list_is_a_shallow_tree_with_little_overhead() {
    let mut list = numbers(0..200_000);
    list.check_invariants();
    let bytes = list.memory_bytes();
    assert!(bytes < 200_000 * 48 / 10, "{bytes} bytes");
    for index in (0..200_000).step_by(777) {
        assert_eq!(list.get(index).map(int), Some(index as u64));
    }
    let cut = list.clone();
    let rest = list.split_off(77_777);
    assert_eq!((list.len(), rest.len()), (77_777, 122_223));
    assert_eq!(rest.get(0).map(int), Some(77_777));
    let mut turned = rest;
    turned.append(list);
    turned.check_invariants();
    assert_eq!(turned.get(122_222).map(int), Some(199_999));
    assert_eq!(turned.get(122_223).map(int), Some(0));
    turned.remove_range(1..199_999);
    turned.check_invariants();
    assert_eq!(turned.range(0..9).map(int).collect::<Vec<_>>(), [77_777, 77_776]);
    assert!(turned.packed().is_some(), "two elements are a pack");
    cut.check_invariants();
    assert_eq!(cut.memory_bytes(), bytes, "the cut has changed");
    assert!((0..200_000).eq(cut.range(0..usize::MAX).map(int)));
}

#[test] // They are split and merged.
fn chunks_stay_filled_under_insertions_and_removals() {
    let mut prng = Prng::from_seed(7);
    let mut list = numbers(0..2_000);
    for _ in 0..30_000 {
        let index = prng.below(list.len() as u64) as usize;
        list.insert(index, &b"123456"[..]);
    }
    list.check_invariants();
    assert!(list.memory_bytes() < 32_000 * 9, "{} bytes", list.memory_bytes());
    while list.len() > 3_000 {
        let index = prng.below(list.len() as u64) as usize;
        list.remove(index);
    }
    list.check_invariants();
    assert!(list.memory_bytes() < 3_000 * 16, "{} bytes", list.memory_bytes());
}

#[test] // Four fill a chunk, so half a chunk has room for one.
fn the_longest_elements_fit_anywhere() {
    for seed in 0..20 {
        let mut prng = Prng::from_seed(seed);
        let (mut list, mut model) = (numbers(0..200), Model::new());
        model.extend((0..200).map(|number: u64| number.to_string().into_bytes()));
        for _ in 0..300 {
            let long = if prng.chance(30) { 0 } else { 600 };
            let bytes = prng.bytes(long..=INLINE_MAX + 1);
            let index = prng.below(model.len() as u64 + 1) as usize;
            if index < model.len() && prng.chance(40) {
                list.set(index, &*bytes);
                model[index] = bytes;
            } else {
                list.insert(index, &*bytes);
                model.insert(index, bytes);
            }
        }
        list.check_invariants();
        assert_eq!(content(&list), model, "seed {seed}");
    }
}

#[test] // Also after reading single elements.
fn runs_and_single_elements_are_read_alike() {
    for len in [1, 100, 5_000] {
        let list = numbers(0..len);
        for (first, last) in [(0, len), (1, len), (len / 3, len / 2), (len - 1, len + 9)] {
            for single in [0, 1, 20] {
                let mut forward = list.range(first as usize..last as usize);
                let mut read: Vec<_> = forward.by_ref().take(single).map(int).collect();
                forward.for_each(|element| read.push(int(element)));
                assert!((first..last.min(len)).eq(read), "{first}..{last} of {len}, {single}");
            }
        }
    }
}

#[test] // With the same bytes; and back.
fn small_lists_are_packed_and_grow_into_chunks() {
    let mut list = numbers(0..100);
    let bytes = list.packed().unwrap().to_vec();
    let pack = ListPackRef::new(&bytes);
    pack.check_invariants();
    assert_eq!((pack.len(), pack.get(42).map(int)), (100, Some(42)));
    assert!((0..100).eq(pack.iter().map(int)));
    assert_eq!(content(&List::of_packed(&bytes)), content(&list));
    while list.packed().is_some() {
        list.push(End::Front, &b"a text of some length"[..]);
    }
    let len = list.len();
    list.check_invariants();
    assert!(list.memory_bytes() > pack::PACK_BYTES_MAX);
    list.cut(End::Front, len - 100);
    assert_eq!(list.packed(), Some(&*bytes), "the same bytes");
    list.push(End::Back, &*vec![b'l'; INLINE_MAX]);
    assert!(list.packed().is_some());
    list.push(End::Back, &*vec![b'l'; INLINE_MAX + 1]);
    assert!(list.packed().is_none(), "a blob is in no pack");
    list.cut(End::Front, 102);
    assert!(list.is_empty() && list.packed() == Some(&[]) && list.memory_bytes() == 0);
}

// The common prefix of all texts of a pack is stored once. A text without it shortens the prefix,
// or changes the list's form.
#[test]
fn texts_with_a_common_prefix_store_it_once() {
    let text = |number: u64| format!("element:{number}").into_bytes();
    let mut list = List::new();
    (0..200).for_each(|number| list.push(End::Back, &*text(number)));
    let bytes = list.packed().expect("200 texts are a pack").len();
    assert!(bytes < 200 * 4, "{bytes} bytes");
    list.push(End::Front, &b"12"[..]);
    list.push(End::Front, &*vec![b'e'; SHORT_MAX + 1]);
    assert!(list.packed().unwrap().len() < bytes + 260, "these have no part in it");
    let part = list.split_off(102);
    part.check_invariants();
    assert_eq!(part.get(7).unwrap().to_vec(), text(107));
    list.append(part);
    list.set(5, &b"elephant"[..]);
    list.check_invariants();
    assert!(list.packed().is_some_and(|packed| packed.len() > bytes + 200 * 5));
    assert_eq!([list.get(4), list.get(6)].map(|one| one.unwrap().to_vec()), [text(2), text(4)]);
    (0..500).for_each(|number| list.push(End::Back, &*text(number)));
    assert!(list.packed().is_none());
    list.check_invariants();
    list.cut(End::Front, list.len() - 70);
    assert!(list.packed().is_some_and(|packed| packed.len() < 70 * 5), "once again");
    assert!((430..500).map(text).eq(list.range(0..70).map(|one| one.to_vec())), "{list:?}");
}

#[test] // In order.
fn a_pack_with_a_long_prefix_becomes_many_chunks() {
    for end in [End::Front, End::Back] {
        let text = |number: u64| format!("{}{number:03}", "y".repeat(230)).into_bytes();
        let mut list = List::new();
        (0..400).for_each(|number| list.push(End::Back, &*text(number)));
        assert!(list.packed().is_some_and(|packed| packed.len() < 2_000));
        list.push(end, &b"z"[..]);
        assert!(list.packed().is_none() && list.memory_bytes() > 400 * 230);
        list.check_invariants();
        let first = usize::from(end == End::Front);
        let range = list.range(first..400 + first);
        assert!((0..400).map(text).eq(range.map(|one| one.to_vec())), "{end:?}");
    }
}

#[test] // It reads its range of the cut, however the list changes.
fn a_reader_frees_the_chunks_that_it_has_read() {
    for range in [0..30_000, 12_345..12_346, 500..29_000, 29_999..30_000, 5..5] {
        let mut list = numbers(0..30_000);
        let mut reader = ListReader::new(list.reader(), range.clone());
        list.cut(End::Front, 17_000);
        list.set(5, &b"other"[..]);
        let (mut read, mut expected) = (Vec::new(), reader.left());
        assert_eq!(expected, range.len());
        while reader.next_slice(100, &mut |element| read.push(int(element))) {
            expected -= 100;
            assert_eq!(reader.left(), expected);
        }
        assert!((range.start as u64..range.end as u64).eq(read.iter().copied()), "{range:?}");
        while lazyfree::run(&Never) {}
        assert!(!list.unshare(3_000), "{range:?}: what was let go of is the list's own");
    }
    let list = numbers(0..100);
    let mut read = Vec::new();
    let mut reader = ListReader::new(list, 90..1_000);
    while reader.next_slice(3, &mut |element| read.push(int(element))) {}
    assert!((90..100).eq(read.iter().copied()), "of a pack");
}

#[test] // Before that it pins nothing.
fn a_reader_pins_its_unread_bytes_after_the_list_is_deleted() {
    let list = numbers(0..50_000);
    let watch = list.watch();
    let mut reader = ListReader::new(list.reader(), 0..50_000);
    let other = list.reader();
    assert_eq!((reader.pinned_bytes(), other.is_pinned(), watch.pinned_bytes()), (0, false, 0));
    let bytes = list.memory_bytes();
    drop(list);
    assert!(other.is_pinned() && watch.pinned_bytes() == bytes);
    let all = reader.pinned_bytes();
    assert!(all > bytes * 9 / 10 && all <= bytes, "{all} of {bytes}");
    reader.next_slice(25_000, &mut |_| {});
    assert!(reader.pinned_bytes() <= all / 2 + 1);
    drop((reader, other));
    while lazyfree::run(&Never) {}
}

#[test] // But not while a cut shares them.
fn large_lists_are_freed_in_portions() {
    let list = numbers(0..300_000);
    let (cut, bytes) = (list.clone(), list.memory_bytes());
    drop(list);
    assert!(lazyfree::waiting().1 == 0, "the cut has all of it");
    while lazyfree::run(&Never) {}
    assert!((0..300_000).eq(cut.range(0..usize::MAX).map(int)), "it is whole");
    drop(cut);
    let (count, waiting) = lazyfree::waiting();
    assert!(count == 1 && waiting > bytes * 9 / 10, "{count} values of {waiting} bytes");
    let mut portions = 0;
    while lazyfree::run(&Countdown::new(0)) {
        portions += 1;
        assert!(lazyfree::waiting().1 < waiting, "portion {portions} freed something");
    }
    assert!(portions > 8, "{portions} portions");
    assert_eq!(lazyfree::waiting(), (0, 0));
}

#[test] // Cuts do not change.
fn removed_ranges_are_freed_later() {
    let mut list = numbers(0..300_000);
    list.remove_range(100..299_900);
    list.check_invariants();
    assert!(!lazyfree::is_empty(), "the large part waits");
    while lazyfree::run(&Never) {}
    assert_eq!(list.len(), 200);
    assert_eq!(list.get(100).map(int), Some(299_900));
}

#[test] // They are found by all of their bytes, and freed with their chunk.
fn long_elements_are_stored_out_of_line() {
    let long = |last: u8| {
        let mut bytes = vec![b'x'; 100_000];
        bytes[99_999] = last;
        bytes
    };
    let mut list = numbers(0..3_000);
    for index in [10, 1_500, 2_900] {
        list.insert(index, &*long(b'a'));
        list.insert(index, &*long(b'b'));
    }
    list.check_invariants();
    assert!(list.memory_bytes() > 600_000);
    assert_eq!(list.get(1_501).unwrap().to_vec(), long(b'a'));
    let mut search =
        Search::new(Needle::new(NewElement::Bytes(&long(b'a'))), 0..list.len(), End::Back);
    let (mut found, mut calls) = (Vec::new(), 0);
    loop {
        let mut budget = 2;
        found.extend(search.next(&list, &mut budget));
        calls += 1;
        if budget > 0 && found.last() == Some(&11) {
            break;
        }
        assert!(calls < 1_000, "{found:?}");
    }
    assert_eq!(found, [2_901, 1_501, 11]);
    assert!(calls > 10, "600 KB are compared in {calls} calls");
    let mut removal =
        Removal::new(&list, Needle::new(NewElement::Bytes(&long(b'b'))), 2, End::Front);
    while removal.next_slice(&mut list, 1, &mut |_| {}) == Progress::More {}
    list.check_invariants();
    assert_eq!((removal.removed(), list.len()), (2, 3_004));
    assert_eq!(list.get(2_898).unwrap().to_vec(), long(b'b'), "the third is there");
}

#[test] // From either end, within a range, in slices.
fn a_search_finds_the_same_elements_as_an_iteration() {
    let mut prng = Prng::from_seed(3);
    let mut list = List::new();
    for _ in 0..20_000 {
        list.push(End::Back, &*value(&mut prng, 30));
    }
    let all = content(&list);
    for end in [End::Front, End::Back] {
        for needle in [&b"7"[..], b"element:12", b"absent", b""] {
            let range = 100..19_000;
            let mut expected: Vec<usize> =
                range.clone().filter(|&index| all[index] == needle).collect();
            if end == End::Back {
                expected.reverse();
            }
            let mut search = Search::new(Needle::new(NewElement::Bytes(needle)), range, end);
            let mut found = Vec::new();
            loop {
                let mut budget = 1;
                found.extend(search.next(&list, &mut budget));
                if budget > 0 && found.len() >= expected.len() {
                    break;
                }
            }
            assert_eq!(found, expected, "{needle:?} from {end:?}");
        }
    }
}

#[test] // Wherever in the chunk they are.
fn a_chunk_full_of_blobs_is_split_for_one_more() {
    let (long, text) = (vec![b'b'; INLINE_MAX + 1], [b't'; 30]);
    for (end, far) in [(End::Front, End::Back), (End::Back, End::Front)] {
        let mut list = List::new();
        (0..110).for_each(|_| list.push(far, &text[..]));
        (0..crate::chunk::OUTSIDE_MAX).for_each(|_| list.push(end, &*long));
        let index = if end == End::Front { 1 } else { list.len() - 1 };
        list.insert(index, &*long);
        list.set(index, &*long);
        list.check_invariants();
        assert_eq!(list.len(), 110 + crate::chunk::OUTSIDE_MAX + 1);
    }
}
