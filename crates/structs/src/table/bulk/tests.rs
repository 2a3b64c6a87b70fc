//! Compares bulk-built tables with tables to which the entries were added one by one.

use super::*;
use crate::table::{Entry, Fill, Never, ValueRef};
use darter_base::{Prng, hash};
use std::collections::BTreeMap;
use std::sync::Arc;

type Subject = Table<Arc<u64>>;
/// A value for each key, out of line or inline, and its deadline.
type Model = BTreeMap<Vec<u8>, (Result<Vec<u8>, u64>, Option<u64>)>;

/// A key of one of five kinds, including long ones.
fn key(number: u64) -> Vec<u8> {
    match number % 50 {
        0 => format!("{number:0>300}x").into_bytes(),
        1..10 => format!("{number:08x}-0000-4000-8000-{number:012x}").into_bytes(),
        10..20 => format!("key:{number}").into_bytes(),
        20..30 => {
            vec![b'k'; number as usize % 200 + 1].into_iter().chain(number.to_le_bytes()).collect()
        }
        _ => number.to_string().into_bytes(),
    }
}

fn random_entries(len: u64, prng: &mut Prng) -> Model {
    let mut model = Model::new();
    for number in 0..len {
        let value = match prng.below(20) {
            0 => Err(number),
            1 => Ok(prng.bytes(0..=entry::INLINE_MAX)),
            2..8 => Ok(number.to_string().into_bytes()),
            _ => Ok(prng.bytes(0..=12)),
        };
        let deadline = prng.chance(10).then(|| 1_000_000 + prng.below(1_000));
        model.insert(key(number), (value, deadline));
    }
    model
}

fn new(value: &Result<Vec<u8>, u64>) -> New<'_, Arc<u64>> {
    match value {
        Ok(bytes) => New::Bytes(bytes),
        Err(number) => New::Out(Arc::new(*number)),
    }
}

fn kept(entry: &Entry<'_, Arc<u64>>) -> (Result<Vec<u8>, u64>, Option<u64>) {
    let value = match entry.value() {
        ValueRef::Text(text) => Ok(text.to_vec()),
        ValueRef::Packed(_) => unreachable!("none is put there"),
        ValueRef::Out(out) => Err(**out),
    };
    (value, entry.deadline())
}

/// The keys in random order.
fn shuffled(model: &Model, prng: &mut Prng) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = model.keys().cloned().collect();
    for at in (1..keys.len()).rev() {
        keys.swap(at, prng.below(at as u64 + 1) as usize);
    }
    keys
}

#[test] // Whatever number of entries was announced.
fn bulk_builds_equal_single_insertions() {
    let lens: &[u64] = if cfg!(miri) { &[0, 2, 700] } else { &[0, 2, 100, 3_000, 60_000] };
    for (round, &len) in lens.iter().enumerate() {
        for bits in [1, 5] {
            let mut prng = Prng::from_seed(round as u64);
            let model = random_entries(len, &mut prng);
            let (mut builder, mut alone) = (Builder::with_bits(bits), Subject::new());
            for key in shuffled(&model, &mut prng) {
                let (value, deadline) = &model[&key];
                let hash = hash::of(&key);
                assert!(builder.push(hash, &key, new(value), *deadline));
                alone.insert(hash, &key, new(value), *deadline, 0);
            }
            while builder.step().unwrap() {}
            let table = builder.finish();
            table.check_invariants();
            let mut found = Model::new();
            table.for_each(&mut |entry| {
                assert!(found.insert(entry.key().to_vec(), kept(&entry)).is_none());
            });
            assert_eq!(found, model, "{len} entries, {bits} bits");
            assert_eq!(table.earliest_deadline(), alone.earliest_deadline());
            let (one, other) = (table.memory_bytes(), alone.memory_bytes());
            assert!(one <= other + other / 20, "{len} entries in {one} bytes, alone in {other}");
        }
    }
}

#[test]
fn bulk_builds_create_hardly_more_segments_than_needed() {
    if cfg!(miri) {
        return;
    }
    for len in [50_000_u64, 70_000, 90_000] {
        let names: [fn(u64) -> Vec<u8>; 2] =
            [|number| number.to_string().into(), |number| format!("member:{number:040}").into()];
        for name in names {
            let (mut builder, mut alone) = (Builder::<Never>::with_bits(2), Table::new());
            for name in (0..len).map(name) {
                let hash = hash::of(&name);
                assert!(builder.push(hash, &name, New::Bytes(b""), None));
                alone.insert(hash, &name, New::<Never>::Bytes(b""), None, 0);
            }
            while builder.step().unwrap() {}
            let table = builder.finish();
            table.check_invariants();
            let Fill { segments, bytes, .. } = table.fill_report();
            let expected = alone.fill_report();
            let near = |one: usize, other: usize| one.abs_diff(other) <= other / 40;
            assert!(near(bytes, expected.bytes), "{len}: {bytes} bytes of {}", expected.bytes);
            assert!(near(segments, expected.segments), "{len}: {segments} segments");
        }
    }
}

/// Builds a table of two entries.
fn of_two(entries: [(&[u8], New<'_, Arc<u64>>); 2]) -> Option<Subject> {
    let mut builder = Builder::with_bits(3);
    for (key, value) in entries {
        if !builder.push(hash::of(key), key, value, None) {
            return None;
        }
    }
    while builder.step().ok()? {}
    Some(builder.finish())
}

#[test] // Wherever the two are.
fn duplicate_keys_are_detected() {
    let (long, out) = (vec![b'k'; 1_000], Arc::new(7));
    for key in [&b"name"[..], b"17", b"6ba7b810-9dad-11d1-80b4-00c04fd430c8", &long, b""] {
        for first in [New::Bytes(b"v"), New::Out(Arc::clone(&out))] {
            for second in [New::Bytes(b"other"), New::Int(5), New::Out(Arc::clone(&out))] {
                assert!(of_two([(key, first.clone()), (key, second.clone())]).is_none());
                let table = of_two([(key, first.clone()), (b"another", second)]).unwrap();
                assert_eq!(table.len(), 2);
                table.check_invariants();
            }
        }
    }
    assert_eq!(Arc::strong_count(&out), 1, "what is given up lets go of what it owns");
}

#[test] // At any step.
fn a_dropped_bulk_build_frees_its_entries_later() {
    let out = Arc::new(1);
    let entries = if cfg!(miri) { 300 } else { 20_000 };
    for steps in [0, 1, 2, 5, 50] {
        let mut builder = Builder::with_bits(2);
        for number in 0..entries {
            let key = key(number);
            let value = if number % 9 == 0 { New::Out(Arc::clone(&out)) } else { New::Int(1) };
            assert!(builder.push(hash::of(&key), &key, value, None));
        }
        (0..steps).for_each(|_| _ = builder.step().unwrap());
        drop(builder);
        assert!(!lazyfree::is_empty(), "{steps} steps: some is left to be freed");
        while lazyfree::run(&darter_base::preempt::Never) {}
    }
    assert_eq!(Arc::strong_count(&out), 1);
}

#[test]
fn a_bulk_build_of_few_entries_inserts_directly() {
    assert!(Builder::<Never>::new(LEN_MIN - 1).is_none());
    let builder = Builder::<Never>::new(usize::MAX).expect("they are many");
    assert_eq!(builder.buckets.len(), BUCKETS_MAX);
    assert!(builder.buckets.iter().all(|bucket| bucket.blocks.capacity() == 0), "none came");
}
