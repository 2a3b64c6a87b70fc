//! The table compared with plain maps, under random seeds.

use super::directory::Path;
use super::edit::big_mut;
use super::entry::{Buf, Needle, encode};
use super::scan::CURSOR_BITS;
use super::segment::{Full, Limits, Seg};
use super::{
    Entry, LiveCount, Never, New, OutOfLine, Reader, Root, STAMP_END, Table, Target, ValueRef,
};
use darter_base::{Prng, hash};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// A value in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(Vec<u8>),
    Out(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    value: Value,
    deadline: Option<u64>,
    bits: u8,
    stamp: u32,
}

/// The out-of-line values in these tests: a number, for entries with and without a stamp.
trait Number: Target + Clone + From<u64> + std::fmt::Debug {
    fn get(&self) -> u64;
}

impl Target for u64 {}

impl Number for u64 {
    fn get(&self) -> u64 {
        *self
    }
}

impl Target for Arc<()> {}

#[derive(Clone, Debug)]
struct Stamped(u64);

impl From<u64> for Stamped {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl Target for Stamped {
    const STAMPED: bool = true;
}

impl Number for Stamped {
    fn get(&self) -> u64 {
        self.0
    }
}

type Model = BTreeMap<Vec<u8>, Kept>;
type Subject = Table<Arc<u64>>;

fn kept<N: Number>(entry: &Entry<'_, Arc<N>>) -> Kept {
    let value = match entry.value() {
        ValueRef::Text(text) => Value::Text(text.to_vec()),
        ValueRef::Packed(_) => unreachable!("none is put there"),
        ValueRef::Out(out) => Value::Out(out.get()),
    };
    Kept { value, deadline: entry.deadline(), bits: entry.bits(), stamp: entry.stamp() }
}

fn content<N: Number>(table: &Table<Arc<N>>) -> Model {
    let mut all = Model::new();
    table.for_each(&mut |entry| {
        assert!(all.insert(entry.key().to_vec(), kept(&entry)).is_none(), "a key twice");
    });
    all
}

/// A key out of `range`, of one of five kinds, with 1 to 600 bytes.
fn key(prng: &mut Prng, range: u64) -> Vec<u8> {
    let number = prng.below(range);
    match number % 5 {
        0 => number.to_string().into_bytes(),
        1 => format!("key:{number}").into_bytes(),
        2 => format!("{number:08x}-0000-4000-8000-{number:012x}").into_bytes(),
        3 => format!("-{}", number * number + 1).into_bytes(),
        _ if number.is_multiple_of(7) => format!("{number:0>600}x").into_bytes(),
        _ => format!("a somewhat longer key, number {number}").into_bytes(),
    }
}

fn value(prng: &mut Prng) -> Value {
    match prng.below(6) {
        0 => Value::Text(Vec::new()),
        1 => Value::Text((prng.next_u64().cast_signed() >> prng.below(64)).to_string().into()),
        2 => Value::Text(b"6ba7b810-9dad-11d1-80b4-00c04fd430c8".to_vec()),
        3 => Value::Out(prng.next_u64()),
        4 if prng.chance(10) => Value::Text(prng.bytes(0..=super::INLINE_MAX)),
        _ => Value::Text(prng.bytes(1..=30)),
    }
}

fn deadline(prng: &mut Prng) -> Option<u64> {
    prng.chance(30).then(|| 1_000_000 + prng.below(1_000))
}

/// A stamp, 0 where entries have none.
fn stamp<N: Number>(prng: &mut Prng) -> u32 {
    if N::STAMPED { prng.below(u64::from(STAMP_END)) as u32 } else { 0 }
}

fn new<N: Number>(value: &Value) -> New<'_, Arc<N>> {
    match value {
        Value::Text(bytes) => New::Bytes(bytes),
        Value::Out(number) => New::Out(Arc::new(N::from(*number))),
    }
}

/// Applies one random change to the table and to the model.
fn change<N: Number>(
    prng: &mut Prng,
    table: &mut Table<Arc<N>>,
    model: &mut Model,
    range: u64,
    removals: u64,
) {
    let key = key(prng, range);
    let hash = hash::of(&key);
    if prng.chance(removals) {
        let old = table.remove(hash, &key);
        let expected = model.remove(&key);
        assert_eq!(old.is_some(), expected.is_some());
        check_old(old, expected);
        return;
    }
    if prng.chance(10) {
        touch(prng, table, model, &key);
        return;
    }
    if prng.chance(30) {
        let entry = table.get_mut(hash, &key);
        assert_eq!(entry.is_some(), model.contains_key(&key));
        let (Some(mut entry), Some(kept_in_model)) = (entry, model.get_mut(&key)) else { return };
        match prng.below(5) {
            0 => {
                kept_in_model.deadline = deadline(prng);
                entry.set_deadline(kept_in_model.deadline);
            }
            1 => {
                kept_in_model.bits = prng.below(4) as u8;
                entry.set_bits(kept_in_model.bits);
            }
            2 => {
                let value = value(prng);
                let old = entry.set_value(new(&value)).map(|out| Value::Out(out.get()));
                assert!(old.is_none_or(|old| old == kept_in_model.value));
                kept_in_model.value = value;
            }
            3 => {
                kept_in_model.stamp = stamp::<N>(prng);
                entry.set_stamp(kept_in_model.stamp);
            }
            _ => {
                if let Some(out) = entry.out_mut() {
                    *out = Arc::new(N::from(out.get() + 1));
                    let Value::Out(number) = &mut kept_in_model.value else { panic!("not out") };
                    *number += 1;
                }
            }
        }
        assert_eq!(kept(&entry.entry()), *kept_in_model);
        return;
    }
    let (value, stamp) = (value(prng), stamp::<N>(prng));
    let kept = Kept { value, deadline: deadline(prng), bits: prng.below(4) as u8, stamp };
    let new = new(&kept.value);
    let old = table.insert_stamped(hash, &key, new, kept.deadline, kept.bits, stamp);
    let expected = model.insert(key, kept);
    assert_eq!(old.is_some(), expected.is_some());
    check_old(old, expected);
}

/// Stamps an entry, unless a cut holds it.
fn touch<N: Number>(prng: &mut Prng, table: &mut Table<Arc<N>>, model: &mut Model, key: &[u8]) {
    let stamp = stamp::<N>(prng);
    let found = table.touch(hash::of(key), key, stamp).map(|entry| kept(&entry));
    if let (Some(found), Some(kept)) = (&found, model.get_mut(key)) {
        assert!(found.stamp == stamp || found.stamp == kept.stamp);
        kept.stamp = found.stamp;
    }
    assert_eq!(found.as_ref(), model.get(key));
}

fn check_old<N: Number>(old: Option<super::Old<Arc<N>>>, expected: Option<Kept>) {
    let (Some(old), Some(expected)) = (old, expected) else { return };
    assert_eq!((old.deadline, old.bits), (expected.deadline, expected.bits));
    match expected.value {
        Value::Out(number) => assert_eq!(old.out.map(|out| out.get()), Some(number)),
        Value::Text(_) => assert!(old.out.is_none()),
    }
}

fn steps(many: usize) -> usize {
    if cfg!(miri) { many / 100 } else { many }
}

#[test] // While it grows, stays and shrinks; cuts do not change.
fn random_changes_of_a_table_agree_with_a_map() {
    matches_a_map::<u64>();
}

#[test]
fn random_changes_of_a_stamped_table_agree_with_a_map() {
    matches_a_map::<Stamped>();
}

fn matches_a_map<N: Number>() {
    for seed in 0..if cfg!(miri) { 1 } else { 16 } {
        let mut prng = Prng::from_seed(seed);
        let (mut table, mut model) = (Table::new(), Model::new());
        let mut cuts: Vec<(Table<Arc<N>>, Model)> = Vec::new();
        let range = [60, 300, 3_000, 20_000][seed as usize % 4];
        for step in 0..steps(6_000) {
            let removals = if step < steps(4_000) { 15 } else { 70 };
            change(&mut prng, &mut table, &mut model, range, removals);
            assert_eq!(table.len(), model.len(), "seed {seed} step {step}");
            if step % 97 == 0 || (model.len() < 130 && step % 7 == 0) {
                table.check_invariants();
                let probe = key(&mut prng, range);
                let found = table.get(hash::of(&probe), &probe).map(|entry| kept(&entry));
                assert_eq!(found.as_ref(), model.get(&probe), "seed {seed} step {step}");
            }
            if prng.below(400) == 0 {
                cuts.push((table.clone(), model.clone()));
            }
            if prng.below(600) == 0 && !cuts.is_empty() {
                let at = prng.below(cuts.len() as u64) as usize;
                let (cut, expected) = cuts.swap_remove(at);
                cut.check_invariants();
                assert_eq!(content(&cut), expected, "a cut has changed: seed {seed}");
            }
        }
        assert_eq!(content(&table), model, "seed {seed}");
        cuts.iter().for_each(|(cut, expected)| assert_eq!(content(cut), *expected));
        for key in model.keys() {
            assert!(table.remove(hash::of(key), key).is_some());
        }
        assert_eq!((table.len(), table.memory_bytes()), (0, 0), "an empty table holds nothing");
        cuts.iter().for_each(|(cut, expected)| assert_eq!(content(cut), *expected));
    }
}

#[test] // A stamp takes three bytes.
fn setting_a_stamp_copies_nothing_shared_with_a_cut() {
    for count in [40, 5_000] {
        let mut table = Table::<Arc<Stamped>>::new();
        let key = |number: u32| format!("key:{number}").into_bytes();
        for number in 0..count {
            let key = key(number);
            table.insert_stamped(hash::of(&key), &key, New::Bytes(b"value"), None, 0, 1);
        }
        let stamps = |table: &Table<Arc<Stamped>>| {
            let mut all = HashSet::new();
            table.for_each(&mut |entry| _ = all.insert(entry.stamp()));
            all
        };
        let touch = |table: &mut Table<Arc<Stamped>>, stamp: u32| {
            for number in 0..count {
                let key = key(number);
                let entry = table.touch(hash::of(&key), &key, stamp).unwrap();
                assert!(entry.key().eq(&key[..]));
            }
        };
        touch(&mut table, STAMP_END - 1);
        assert_eq!(stamps(&table), HashSet::from([STAMP_END - 1]));
        let cut = table.clone();
        touch(&mut table, 2);
        assert_eq!(stamps(&table), stamps(&cut), "what is shared is not stamped");
        assert!(table.unshare(hash::of(&key(0))), "and not copied");
        touch(&mut table, 3);
        assert_eq!(stamps(&cut), HashSet::from([STAMP_END - 1]));
        let partly = HashSet::from([3, STAMP_END - 1]);
        assert_eq!(stamps(&table), if count > 100 { partly } else { HashSet::from([3]) });
        drop(cut);
        free_all();
        touch(&mut table, 4);
        assert_eq!(stamps(&table), HashSet::from([4]));
        table.check_invariants();
        assert!(table.touch(hash::of(b"absent"), b"absent", 5).is_none());
    }
}

#[test]
fn only_stamped_tables_pay_three_bytes_an_entry() {
    const COUNT: usize = 20_000;
    fn bytes<N: Number>() -> usize {
        let mut table = Table::<Arc<N>>::new();
        for number in 0..COUNT as u64 {
            let key = format!("key:{number}").into_bytes();
            table.insert_stamped(hash::of(&key), &key, New::Bytes(b"value"), None, 0, 7);
        }
        let stamp = if Arc::<N>::STAMPED { 7 } else { 0 };
        table.for_each(&mut |entry| assert_eq!(entry.stamp(), stamp));
        table.memory_bytes()
    }
    let cost = (bytes::<Stamped>() - bytes::<u64>()) as f64 / COUNT as f64;
    assert!((2.8..=3.3).contains(&cost), "{cost} bytes an entry");
}

fn set_of(numbers: std::ops::Range<u64>) -> Table<Never> {
    let mut table = Table::new();
    for number in numbers {
        let key = format!("member:{number}");
        table.insert(hash::of(key.as_bytes()), key.as_bytes(), New::Bytes(&[]), None, 0);
    }
    table
}

fn remove(table: &mut Table<Never>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let key = format!("member:{number}");
        assert!(table.remove(hash::of(key.as_bytes()), key.as_bytes()).is_some(), "{key}");
    }
}

#[test] // From nothing to many leaves and back.
fn memory_grows_and_shrinks_with_the_content() {
    let mut table = Table::<Never>::new();
    let most = if cfg!(miri) { 400 } else { 300_000 };
    let mut sizes = HashMap::new();
    let (mut from, mut to) = (0, 1);
    while to <= most {
        for number in from..to {
            let key = format!("member:{number}");
            table.insert(hash::of(key.as_bytes()), key.as_bytes(), New::Bytes(&[]), None, 0);
        }
        table.check_invariants();
        sizes.insert(to, table.memory_bytes());
        let per = table.memory_bytes() / to as usize;
        assert!(to < 8 || per <= 40, "{to} entries: {per} bytes each");
        (from, to) = (to, to + to / 5 + 1);
    }
    let mut left = from;
    let peak = table.memory_bytes();
    while left > 0 {
        let next = left - left / 6 - 1;
        remove(&mut table, next..left);
        left = next;
        table.check_invariants();
        let share = peak as u64 * left / from;
        assert!(table.memory_bytes() as u64 <= share * 4 + 2_000, "{left}: {table:?}");
    }
    assert!(matches!(table.0, Root::Empty));
}

#[test] // Though all segments become due together.
fn merges_of_segments_are_spread_over_commands() {
    let most = if cfg!(miri) { 400 } else { 400_000 };
    let mut table = set_of(0..most);
    let rest = |table: &Table<Never>| if let Root::Big(big) = &table.0 { big.rest } else { 0 };
    let (mut merges, mut worst) = (0, 0);
    for from in (0..most).step_by(100) {
        let mut met = 0;
        for number in from..from + 100 {
            let before = rest(&table);
            remove(&mut table, number..number + 1);
            met += u32::from(rest(&table) > before);
        }
        (merges, worst) = (merges + met, worst.max(met));
    }
    assert!(cfg!(miri) || (100..=1_000).contains(&merges), "{merges} merges");
    assert!(worst <= 4, "{worst} merges in a hundred removals");
}

#[test] // The table is then as small as if there had been none.
fn settling_reclaims_the_gaps_of_loose_removals() {
    let most = if cfg!(miri) { 400 } else { 20_000 };
    for (kept, has_cut) in
        [(0, false), (1, false), (10, true), (most / 20, false), (most / 2, true)]
    {
        let (mut table, mut plain) = (set_of(0..most), set_of(0..most));
        let cut = has_cut.then(|| table.clone());
        for number in kept..most {
            let key = format!("member:{number}");
            let hash = hash::of(key.as_bytes());
            assert!(table.remove_loosely(hash, key.as_bytes()).is_some());
            assert!(table.remove_loosely(hash, key.as_bytes()).is_none());
        }
        remove(&mut plain, kept..most);
        table.check_invariants();
        let (before, mut next, mut places) = (table.memory_bytes(), Some(0), 0);
        while let Some(hash) = next {
            next = table.settle(hash);
            places += 1;
        }
        table.check_invariants();
        assert_eq!(table.len() as u64, kept);
        assert!((0..most).all(|number| {
            let key = format!("member:{number}");
            table.contains(hash::of(key.as_bytes()), key.as_bytes()) == (number < kept)
        }));
        let (after, plain) = (table.memory_bytes(), plain.memory_bytes());
        assert!(after <= plain + plain / 8 + 1_024, "{kept}: {after} bytes, {plain} one by one");
        assert!(
            kept == 0 || cfg!(miri) || before > after + after / 4 && places > 5,
            "{before} {after}"
        );
        assert!(cut.is_none_or(|cut| cut.len() as u64 == most));
    }
}

#[test] // Whatever is added and removed in between.
fn scan_returns_all_entries_that_exist_throughout() {
    for seed in 0..if cfg!(miri) { 1 } else { 12 } {
        let mut prng = Prng::from_seed(seed);
        let base =
            [50, 2_000, 20_000][seed as usize % 3].min(if cfg!(miri) { 150 } else { 20_000 });
        let mut table = set_of(0..base * 4);
        let mut live = 0..base * 4; // Keys below `base` stay. Those above are added and removed.
        let (mut seen, mut cursor, mut calls) = (HashSet::new(), 0, 0);
        let shrinks = prng.chance(50);
        loop {
            assert!(cursor < 1 << CURSOR_BITS);
            cursor = table.scan(cursor, &mut |entry| {
                seen.insert(entry.key().to_vec());
            });
            if cursor == 0 {
                break;
            }
            calls += 1;
            let many = prng.below(base / 10 + 2);
            if shrinks == (prng.below(8) != 0) && live.end > base + many {
                remove(&mut table, live.end - many..live.end);
                live.end -= many;
            } else if live.end < base * 20 {
                for number in live.end..live.end + many {
                    let key = format!("member:{number}");
                    table.insert(
                        hash::of(key.as_bytes()),
                        key.as_bytes(),
                        New::Bytes(&[]),
                        None,
                        0,
                    );
                }
                live.end += many;
            }
            assert!(calls < 1_000_000, "the scan does not end");
        }
        table.check_invariants();
        for number in 0..base {
            let key = format!("member:{number}");
            assert!(seen.contains(key.as_bytes()), "missed {key}, seed {seed}, base {base}");
        }
    }
}

#[test] // Without changes.
fn scan_and_reader_return_each_entry_once() {
    for base in [0, 1, 90, 97, 500, 3_000, if cfg!(miri) { 1 } else { 200_000 }] {
        if cfg!(miri) && base > 500 {
            continue;
        }
        let table = set_of(0..base);
        let (mut count, mut seen, mut cursor) = (0, HashSet::new(), 0);
        loop {
            cursor = table.scan(cursor, &mut |entry| {
                count += 1;
                seen.insert(entry.key().to_vec());
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!((count, seen.len()), (base, base as usize));
        let (mut reader, mut read, mut slice) = (Reader::new(table.clone()), HashSet::new(), 0);
        loop {
            let before = read.len();
            slice = slice % 300 + 1;
            let more = reader.next_slice(slice, &mut |entry| {
                assert!(read.insert(entry.key().to_vec()), "twice");
            });
            assert!(read.len() - before == slice || !more);
            assert_eq!(reader.left(), base as usize - read.len());
            if !more {
                break;
            }
        }
        assert_eq!(read, seen);
    }
}

#[test]
fn scan_accepts_any_number_as_a_cursor() {
    let table = set_of(0..if cfg!(miri) { 200 } else { 50_000 });
    let mut prng = Prng::from_seed(9);
    for _ in 0..steps(100_000) {
        let shift = prng.below(64);
        let next = table.scan(prng.next_u64() >> shift & ((1 << CURSOR_BITS) - 1), &mut |_| {});
        assert!(next < 1 << CURSOR_BITS);
    }
}

#[test]
fn a_reader_returns_its_cut_despite_writes() {
    let base = if cfg!(miri) { 300 } else { 60_000 };
    let mut table = set_of(0..base);
    let mut reader = Reader::new(table.clone());
    let (mut read, mut step, mut added) = (HashSet::new(), 0, base);
    while reader.next_slice(500, &mut |entry| assert!(read.insert(entry.key().to_vec()))) {
        remove(&mut table, step * 100..step * 100 + 50);
        for number in added..added + 200 {
            let key = format!("member:{number}");
            table.insert(hash::of(key.as_bytes()), key.as_bytes(), New::Bytes(&[]), None, 0);
        }
        (step, added) = (step + 1, added + 200);
    }
    assert_eq!(read.len() as u64, base);
    drop(reader);
    table.check_invariants();
    assert_eq!(table.len() as u64, added - step * 50);
}

#[test] // Counts of live entries are exact.
fn reap_removes_exactly_the_expired_entries() {
    for seed in 0..if cfg!(miri) { 1 } else { 12 } {
        let mut prng = Prng::from_seed(seed);
        let (mut table, mut model) = (Subject::new(), Model::new());
        let range = [80, 1_000, 40_000][seed as usize % 3];
        for _ in 0..steps(range as usize * 2) {
            change(&mut prng, &mut table, &mut model, range, 5);
        }
        for now in [999_999, 1_000_000, 1_000_300, 1_000_301, 1_000_999] {
            let is_dead = |kept: &Kept| kept.deadline.is_some_and(|deadline| deadline <= now);
            let live = model.values().filter(|kept| !is_dead(kept)).count();
            assert_eq!(table.live_len(now, usize::MAX), Some(live));
            let mut counter = LiveCount::new(table.clone(), now);
            while counter.next_slice(1) {}
            assert_eq!(counter.count(), live);
            let cut = table.clone();
            let mut told = HashSet::new();
            loop {
                let reaped = table.reap(now, 20, &mut |key, old| {
                    let key = key.to_vec();
                    assert!(is_dead(&model[&key]) && told.insert(key.clone()));
                    check_old(Some(old), model.get(&key).cloned());
                });
                assert!(reaped.removed <= 20);
                table.check_invariants();
                if !reaped.more {
                    break;
                }
            }
            assert_eq!(content(&cut), model, "the cut keeps the dead");
            model.retain(|_, kept| !is_dead(kept));
            assert_eq!(content(&table), model, "seed {seed}, now {now}");
            assert!(table.earliest_deadline().is_none_or(|earliest| earliest > now));
        }
        assert_eq!(table.earliest_deadline(), None, "all deadlines have come");
    }
}

#[test] // From a table of uneven segments.
fn random_draws_each_entry_equally_often() {
    for len in [7, 90, 400, 5_000] {
        let table = set_of(0..len);
        let mut prng = Prng::from_seed(len);
        let draws = if cfg!(miri) { 50 } else { len * 40 };
        let mut drawn: HashMap<Vec<u8>, u64> = HashMap::new();
        for _ in 0..draws {
            let entry = table.random(&mut || prng.next_u64()).unwrap();
            *drawn.entry(entry.key().to_vec()).or_default() += 1;
        }
        if cfg!(miri) {
            continue;
        }
        let expected = draws as f64 / len as f64;
        let missed = (len as usize - drawn.len()) as f64 * expected;
        let square = |count: &u64| (*count as f64 - expected).powi(2) / expected;
        let chi = drawn.values().map(square).sum::<f64>() + missed;
        let freedom = (len - 1) as f64;
        assert!((chi - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(), "len {len}: chi2 {chi}");
    }
    assert!(Table::<Never>::new().random(&mut || 1).is_none());
}

#[test] // With and without cuts.
fn values_and_long_keys_are_dropped_exactly_once() {
    let alive = Arc::new(());
    let long = vec![b'k'; 1_000];
    let mut table = Table::<Arc<Arc<()>>>::new();
    let mut cuts = Vec::new();
    let count = if cfg!(miri) { 250_u64 } else { 5_000 };
    for number in 0..count {
        let mut key = number.to_string().into_bytes();
        if number % 10 == 0 {
            key.extend_from_slice(&long);
        }
        let out = Arc::new(Arc::clone(&alive));
        table.insert(hash::of(&key), &key, New::Out(out), None, 0);
        if number % (count / 5) == 0 {
            cuts.push(table.clone());
        }
    }
    assert_eq!(Arc::strong_count(&alive) as u64, count + 1, "values are shared, not copied");
    for number in 0..count / 2 {
        let mut key = number.to_string().into_bytes();
        if number % 10 == 0 {
            key.extend_from_slice(&long);
        }
        let removed = table.remove(hash::of(&key), &key);
        assert!(removed.is_some_and(|old| old.out.is_some()), "{number}");
    }
    table.check_invariants();
    drop(cuts);
    free_all();
    assert_eq!(Arc::strong_count(&alive) as u64, count - count / 2 + 1);
    let mut turns = 0;
    while table.dismantle(1) {
        assert_eq!(table.len(), 0);
        free_all();
        turns += 1;
    }
    free_all();
    assert!(turns > 1 || cfg!(miri));
    assert_eq!(Arc::strong_count(&alive), 1);
    assert_eq!(table.memory_bytes(), 0);
}

#[test] // A thousand cuts of a growing table take memory only for the differences.
fn cuts_share_unchanged_segments() {
    let mut table = set_of(0..if cfg!(miri) { 150 } else { 20_000 });
    let len = table.len();
    let cuts: Vec<_> = (0..len as u64 / 20)
        .map(|number| {
            let cut = table.clone();
            remove(&mut table, number..number + 1);
            (cut, len - number as usize)
        })
        .collect();
    for (cut, expected) in &cuts {
        let mut count = 0;
        cut.for_each(&mut |_| count += 1);
        assert_eq!((cut.len(), count), (*expected, *expected));
    }
}

#[test] // Each is copied once.
fn copying_segments_ahead_has_no_visible_effect() {
    let mut table = set_of(0..20_000);
    assert!(!table.unshare(hash::of(b"1")), "there is no cut");
    let (cut, bytes) = (table.clone(), table.memory_bytes());
    let places = (0..200_u64).map(|number| hash::of(number.to_string().as_bytes()));
    let copied = places.clone().filter(|place| table.unshare(*place)).count();
    assert!((10..=40).contains(&copied), "copied={copied}");
    assert!(!places.into_iter().any(|place| table.unshare(place)));
    assert_eq!((table.len(), table.memory_bytes()), (cut.len(), bytes));
    remove(&mut table, 0..200);
    table.check_invariants();
    cut.check_invariants();
    assert_eq!((table.len(), cut.len()), (19_800, 20_000));
}

#[test]
fn values_of_every_inline_length_fit() {
    let mut table = Table::<Never>::new();
    let count = if cfg!(miri) { 40 } else { 3_000 };
    for number in 0..count {
        let key = format!("{number:0>width$}", width = 1 + number % 240);
        let value = vec![b'v'; number * 7 % (super::INLINE_MAX + 1)];
        table.insert(hash::of(key.as_bytes()), key.as_bytes(), New::Bytes(&value), Some(1), 3);
        if number % 50 == 0 {
            table.check_invariants();
        }
    }
    for number in 0..count {
        let key = format!("{number:0>width$}", width = 1 + number % 240);
        let entry = table.get(hash::of(key.as_bytes()), key.as_bytes()).unwrap();
        let ValueRef::Text(text) = entry.value() else { panic!("never out of line") };
        let len = number * 7 % (super::INLINE_MAX + 1);
        assert!(text.eq(&vec![b'v'; len]) && text.len() == len);
        assert!(entry.key().eq(key.as_bytes()) && entry.bits() == 3);
    }
}

#[test] // The cut keeps all entries.
fn removals_in_scan_order_merge_segments_correctly() {
    let count = if cfg!(miri) { 400 } else { 20_000 };
    let mut table = set_of(0..count);
    let cut = table.clone();
    let (mut cursor, mut round) = (0, 0);
    loop {
        let mut found = Vec::new();
        cursor = table.scan(cursor, &mut |entry| found.push(entry.key().to_vec()));
        for key in found {
            table.remove(hash::of(&key), &key);
        }
        round += 1;
        if round % 16 == 0 {
            table.check_invariants();
        }
        if cursor == 0 {
            break;
        }
    }
    assert_eq!((table.len(), table.memory_bytes()), (0, 0));
    cut.check_invariants();
    assert_eq!(cut.len() as u64, count);
}

#[test] // A cut keeps the old value.
fn a_value_of_equal_length_is_overwritten_in_place() {
    let values = ["abcdef", "ABCDEF", "longer than before", "", "123456", "654321", "-1", "63"];
    for keys in [4, 5_000] {
        let mut table = Subject::new();
        let key = |number: u64| format!("key:{number}").into_bytes();
        for round in 0..values.len() * 2 {
            let (value, before) = (values[round % values.len()], table.clone());
            let (known, bits) = (content(&before), (round % 4) as u8);
            for number in 0..keys {
                let key = key(number);
                let deadline = (round % 5 == 4).then_some(1 + number);
                let new = New::Bytes(value.as_bytes());
                table.insert(hash::of(&key), &key, new, deadline, bits);
            }
            let wanted = Value::Text(value.as_bytes().to_vec());
            for (number, kept) in content(&table).into_values().enumerate() {
                assert_eq!((&kept.value, kept.bits), (&wanted, bits), "{round} {number}");
                assert_eq!(kept.deadline.is_some(), round % 5 == 4, "{round} {number}");
            }
            assert_eq!(content(&before), known, "the cut, round {round}");
            table.check_invariants();
        }
    }
}

/// The pages of the only segment of a table, and its class.
fn pages_of(table: &Subject) -> (Vec<*const u8>, u8) {
    let Root::Big(big) = &table.0 else { panic!("{table:?} is not big") };
    let segment = big.directory.segment_at(ONLY);
    (segment.page_addresses(), segment.class())
}

const ONLY: Path = Path { top: 0, leaf: 0 };

#[test] // With gaps, values out of line, long keys, and a cut.
fn an_index_grows_and_shrinks_over_the_same_pages() {
    let (mut changed, mut refused) = (0, 0);
    for seed in 0..if cfg!(miri) { 1 } else { 24 } {
        let mut prng = Prng::from_seed(seed);
        let (mut table, mut model) = (Subject::new(), Model::new());
        while model.len() < 130 {
            change(&mut prng, &mut table, &mut model, 400, 5);
        }
        for step in 0..steps(400) {
            change(&mut prng, &mut table, &mut model, 250 + seed % 3 * 100, 35);
            let Root::Big(big) = &mut table.0 else { break };
            if big.directory.paths().count() > 1 {
                break;
            }
            let cut = prng.chance(30).then(|| (Table(Root::Big(Arc::clone(big))), model.clone()));
            let (before, was) = pages_of(&table);
            let class = prng.below(4) as u8;
            let Root::Big(big) = &mut table.0 else { unreachable!("it was") };
            let fits = big_mut(big).reclass(ONLY, class);
            let (after, is) = pages_of(&table);
            assert_eq!(is, if fits { class } else { was }, "seed {seed} step {step}");
            assert_eq!(before == after, cut.is_none(), "only a cut makes a copy of the pages");
            table.check_invariants();
            assert_eq!(content(&table), model, "seed {seed} step {step}");
            if let Some((cut, model)) = cut {
                cut.check_invariants();
                assert_eq!((pages_of(&cut), content(&cut)), ((before, was), model));
            }
            (changed, refused) = (changed + u32::from(fits), refused + u32::from(!fits));
        }
    }
    assert!(cfg!(miri) || (changed > 1_000 && refused > 50), "{changed}, {refused}");
}

#[test] // Though many become due together; waiting segments stay valid.
fn splits_of_segments_are_spread_over_commands() {
    const GROWN: usize = 1_239 - 735;
    const SPLIT: usize = 735 * 2 - 1_239;
    for (value_len, blocks, pause) in [(0, 1_500, 50), (200, 1_000, 20)] {
        let (mut table, mut number, mut most) = (Table::<Never>::new(), 0_u64, 0);
        for block in 0..if cfg!(miri) { 10 } else { blocks } {
            let before = table.fill_report();
            for _ in 0..pause {
                let key = number.to_string();
                let value = vec![b'v'; value_len];
                table.insert(hash::of(key.as_bytes()), key.as_bytes(), New::Bytes(&value), None, 0);
                number += 1;
            }
            let after = table.fill_report();
            let more = (after.segments - before.segments, after.slots.wrapping_sub(before.slots));
            assert!(more.0 <= 1 || before.segments == 0, "block {block}: {more:?}");
            let one = [(0, 0), (0, GROWN), (1, SPLIT)];
            assert!(value_len > 0 || before.segments < 2 || one.contains(&more), "{more:?}");
            most = most.max(after.entries_max);
            if block % 50 == 0 {
                table.check_invariants();
            }
        }
        assert_eq!(table.len() as u64, number);
        assert!(cfg!(miri) || value_len > 0 || most < 1_239 * 94 / 100, "{most}");
    }
}

#[test] // In the hash order of another table.
fn inserting_in_hash_order_makes_a_valid_compact_table() {
    let source = set_of(0..60_000);
    let mut copy = Table::<Never>::new();
    source.for_each(&mut |entry| {
        let key = entry.key().to_vec();
        assert!(copy.insert(hash::of(&key), &key, New::Bytes(&[]), None, 0).is_none());
        if copy.len().is_multiple_of(5_000) {
            copy.check_invariants();
        }
    });
    copy.check_invariants();
    assert_eq!(copy.len(), 60_000);
    assert!(copy.memory_bytes() < source.memory_bytes() * 3 / 2, "{}", copy.memory_bytes());
    remove(&mut copy, 0..60_000);
    assert_eq!(copy.memory_bytes(), 0);
}

#[test] // While the writer continues.
fn a_cut_can_be_read_by_another_thread() {
    let mut table = Subject::new();
    let count = if cfg!(miri) { 150_u64 } else { 20_000 };
    for number in 0..count {
        let key = number.to_string();
        let out = New::Out(Arc::new(number));
        table.insert(hash::of(key.as_bytes()), key.as_bytes(), out, None, 0);
    }
    let sum = |cut: Subject| {
        let (mut sum, mut reader) = (0, Reader::new(cut));
        while reader.next_slice(64, &mut |entry| {
            let ValueRef::Out(out) = entry.value() else { panic!("all are out of line") };
            sum += **out;
        }) {}
        sum
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let cut = table.clone();
                scope.spawn(move || sum(cut))
            })
            .collect();
        for number in (0..count).step_by(3) {
            let key = number.to_string();
            assert!(table.remove(hash::of(key.as_bytes()), key.as_bytes()).is_some());
        }
        for reader in readers {
            assert_eq!(reader.join().unwrap(), count * (count - 1) / 2);
        }
    });
    table.check_invariants();
}

#[test]
fn dismantling_frees_a_table_piece_by_piece() {
    let alive = Arc::new(());
    let mut table = Table::<Arc<Arc<()>>>::new();
    let count = if cfg!(miri) { 250_u64 } else { 250_000 };
    for number in 0..count {
        let key = number.to_string();
        let out = New::Out(Arc::new(Arc::clone(&alive)));
        table.insert(hash::of(key.as_bytes()), key.as_bytes(), out, None, 0);
    }
    let before = table.memory_bytes();
    let mut left = Arc::strong_count(&alive);
    while table.dismantle(8) {
        free_all();
        let now = Arc::strong_count(&alive);
        assert!(now < left && left - now < 8 * 1_300, "{left}, then {now}");
        assert!(table.memory_bytes() < before);
        left = now;
    }
    free_all();
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test] // The block defers its values, of which a few are freed at once.
fn values_of_a_block_are_freed_in_portions() {
    use darter_base::{lazyfree, preempt::Countdown};
    for count in [40, 1_000] {
        let alive = Arc::new(());
        let mut table = Table::<Arc<Arc<()>>>::new();
        for number in 0..count {
            let key = number.to_string();
            let out = New::Out(Arc::new(Arc::clone(&alive)));
            table.insert(hash::of(key.as_bytes()), key.as_bytes(), out, None, 0);
        }
        drop(table);
        let mut left = Arc::strong_count(&alive);
        assert!(left > count / 2, "the values wait: {left} of {count}");
        while lazyfree::run(&Countdown::new(0)) {
            let now = Arc::strong_count(&alive);
            assert!(left - now <= 8, "{left}, then {now}");
            left = now;
        }
        assert_eq!(Arc::strong_count(&alive), 1);
    }
}

fn free_all() {
    while darter_base::lazyfree::run(&darter_base::preempt::Never) {}
}

#[test] // The entry fits neither its old place nor any page of its segment.
fn long_keys_that_move_to_another_segment_are_counted_once() {
    let mut table = Subject::new();
    for len in [100, 500, 40, 512] {
        for number in 0..40 {
            let key = format!("{number:0>300}x").into_bytes();
            table.insert(hash::of(&key), &key, New::Bytes(&vec![b'v'; len]), None, 0);
            table.check_invariants();
        }
    }
    for number in 0..40 {
        let key = format!("{number:0>300}x").into_bytes();
        assert!(table.remove(hash::of(&key), &key).is_some());
    }
    assert_eq!(table.memory_bytes(), 0);
}

/// Adds an entry. Returns true if it exceeded the segment's target size.
fn fill(segment: &mut Seg<Never>, key: &[u8], value: &[u8]) -> bool {
    let (mut buf, hash) = (Buf::new(), hash::of(key));
    encode::<Never>(&mut buf, &Needle::of(hash, key), New::Bytes(value), None, 0, 0);
    match segment.insert(hash, buf.raw(), buf.len()) {
        Err(Full::Index) => segment.squeeze(hash, buf.raw(), buf.len()).map(|_| true).unwrap(),
        inserted => inserted.map(|_| false).unwrap(),
    }
}

fn empty(segment: &mut Seg<Never>, key: &[u8]) {
    let (loc, _) = segment.find(hash::of(key), &Needle::of(hash::of(key), key)).unwrap();
    segment.detach(hash::of(key), loc);
}

#[test]
fn an_overfull_segment_takes_entries_again_after_removals() {
    let mut segment = Seg::<Never>::new(0, Limits::new(168, 8));
    let squeezed = (0..168_u64)
        .position(|number| fill(&mut segment, number.to_string().as_bytes(), b""))
        .expect("an entry's neighbourhood is full before the segment is");
    assert_eq!(segment.is_due(), Some(Full::Index));
    for number in 0..=squeezed {
        empty(&mut segment, number.to_string().as_bytes());
        assert_eq!(segment.is_due(), None, "{} left", segment.len());
        segment.check();
    }
}

#[test] // The entries fit their pages in one order only.
fn a_failed_repack_is_not_retried_at_once() {
    let (long, short, value) = ("l".repeat(180), "s".repeat(120), [b'v'; super::INLINE_MAX]);
    let key = |number: usize| {
        let name = if number % 3 == 2 { &short } else { &long };
        [name.as_bytes(), format!("{number:03}").as_bytes()].concat()
    };
    let mut failed = 0;
    for seed in 0..20 {
        let mut segment = Seg::<Never>::new(0, Limits::new(168, 8));
        let numbers = seed * 24..seed * 24 + 24;
        numbers.clone().for_each(|number| _ = fill(&mut segment, &key(number), &value));
        let dead = numbers.filter(|number| number % 3 == 2).take(5);
        dead.for_each(|number| empty(&mut segment, &key(number)));
        assert!(segment.tidy(), "a fifth has gone");
        segment.check();
        failed += u32::from(segment.has_gaps());
        assert!(!segment.tidy(), "and nothing since");
    }
    assert!(failed > 5, "{failed}");
}

#[test] // Though a cut shares them.
fn a_sweep_without_dead_entries_copies_no_segment() {
    let mut table = Subject::new();
    for number in 0..150_u64 {
        let (key, deadline) = (number.to_string(), (number == 7).then_some(1_000));
        table.insert(hash::of(key.as_bytes()), key.as_bytes(), New::Bytes(b"v"), deadline, 0);
    }
    table.remove(hash::of(b"7"), b"7").unwrap();
    let cut = table.clone();
    assert_eq!(table.reap(1_000, 100, &mut |_, _| panic!("nobody is dead")).removed, 0);
    assert_eq!(pages_of(&table), pages_of(&cut));
    table.check_invariants();
}
