//! Tables that start as packs and stop being packs, compared with plain maps.

use super::super::{Never, New, OutOfLine, Reader, Root, Table, ValueRef};
use darter_base::{Prng, hash};
use std::collections::BTreeMap;
use std::sync::Arc;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn content<X: OutOfLine>(table: &Table<X>) -> Model {
    let mut all = Model::new();
    table.for_each(&mut |entry| {
        let ValueRef::Text(value) = entry.value() else { return };
        assert!(all.insert(entry.key().to_vec(), value.to_vec()).is_none(), "a key twice");
    });
    all
}

fn is_pack<X: OutOfLine>(table: &Table<X>) -> bool {
    matches!(table.0, Root::Pack(_))
}

/// A random name: mostly with a common prefix; also integers and UUIDs.
fn name(prng: &mut Prng, range: u64, odd: u64) -> Vec<u8> {
    let number = prng.below(range);
    if prng.below(100) >= odd {
        return format!("field:{number}").into_bytes();
    }
    match number % 5 {
        0 => number.to_string().into_bytes(),
        1 => format!("fie{number}").into_bytes(),
        2 => format!("{number:08x}-0000-4000-8000-{number:012x}").into_bytes(),
        3 => Vec::new(),
        _ => format!("{number:x>240}").into_bytes(),
    }
}

fn value(prng: &mut Prng) -> Vec<u8> {
    match prng.below(8) {
        0 => Vec::new(),
        1 => (prng.next_u64().cast_signed() >> prng.below(64)).to_string().into(),
        2 => b"6ba7b810-9dad-11d1-80b4-00c04fd430c8".to_vec(),
        3 if prng.chance(10) => prng.bytes(200..=super::super::INLINE_MAX),
        _ => prng.bytes(1..=30),
    }
}

/// Compares random changes of a table with a map at every step, and checks that cuts do not change.
fn matches_a_map<X: OutOfLine>(
    seed: u64,
    range: u64,
    name: impl Fn(&mut Prng) -> Vec<u8>,
    value: impl Fn(&mut Prng) -> Vec<u8>,
) -> bool {
    let mut prng = Prng::from_seed(seed);
    let (mut table, mut model, mut was_more) = (Table::<X>::new(), Model::new(), false);
    let mut cuts: Vec<(Table<X>, Model)> = Vec::new();
    for step in 0..if cfg!(miri) { 60 } else { 1_500 } {
        let (name, value) = (name(&mut prng), value(&mut prng));
        let hash = hash::of(&name);
        let removals = if step % 500 < 350 { 25 } else { 70 };
        if prng.chance(removals) {
            assert_eq!(table.remove(hash, &name).is_some(), model.remove(&name).is_some());
        } else if prng.chance(30) {
            let entry = table.get_mut(hash, &name);
            assert_eq!(entry.is_some(), model.contains_key(&name), "seed {seed} step {step}");
            if let Some(mut entry) = entry {
                entry.set_value(New::Bytes(&value));
                assert!(matches!(entry.entry().value(),
                    ValueRef::Text(text) if text.to_vec() == value));
                model.insert(name, value);
            }
        } else {
            let old = table.insert(hash, &name, New::Bytes(&value), None, 0);
            assert_eq!(old.is_some(), model.insert(name, value).is_some());
        }
        table.check_invariants();
        assert_eq!(content(&table), model, "seed {seed} step {step}");
        was_more |= !is_pack(&table) && !table.is_empty();
        if prng.below(100) == 0 {
            cuts.push((table.clone(), model.clone()));
        }
        look(&mut prng, &table, &model, range);
    }
    cuts.iter().for_each(|(cut, expected)| assert_eq!(content(cut), *expected));
    for name in model.keys() {
        assert!(table.remove(hash::of(name), name).is_some());
    }
    assert_eq!((table.len(), table.memory_bytes()), (0, 0), "an empty table holds nothing");
    was_more
}

/// Reads a table in all ways except one by one.
fn look<X: OutOfLine>(prng: &mut Prng, table: &Table<X>, model: &Model, range: u64) {
    let mut absent = format!("absent:{}", prng.below(range)).into_bytes();
    assert!(!table.contains(hash::of(&absent), &absent));
    if prng.chance(10) {
        let len = *prng.weighted(&[(1, 241), (1, 1_008), (1, 1_009), (1, 6_000), (1, 173_000)]);
        absent.resize(len, b'x'); // Longer than a pack's names, and than their lengths can say.
        assert!(!table.contains(hash::of(&absent), &absent));
    }
    assert_eq!((table.len(), table.earliest_deadline()), (model.len(), None));
    let random = table.random(&mut || prng.next_u64()).map(|entry| entry.key().to_vec());
    assert_eq!(random.is_some(), !model.is_empty());
    assert!(random.is_none_or(|name| model.contains_key(&name)));
    if let Some((name, value)) = model.iter().nth(prng.below(model.len().max(1) as u64) as usize) {
        let entry = table.get(hash::of(name), name).expect("it is there");
        assert!(entry.key() == name[..] && entry.key().len() == name.len());
        assert_eq!(entry.key().hash(), hash::of(name));
        assert!(matches!(entry.value(), ValueRef::Text(text) if text.to_vec() == *value));
        assert_eq!((entry.deadline(), entry.bits(), entry.stamp()), (None, 0, 0));
    }
    let (mut reader, mut read) = (Reader::new(table.reader()), 0);
    while reader.next_slice(7, &mut |entry| {
        read += 1;
        assert!(model.contains_key(&entry.key().to_vec()));
    }) {}
    assert_eq!((read, reader.left()), (model.len(), 0));
}

fn seeds() -> std::ops::Range<u64> {
    if cfg!(miri) { 0..1 } else { 0..8 }
}

#[test] // From a few fields to more than fit a pack, and back.
fn random_changes_of_packed_hashes_agree_with_a_map() {
    let mut was_more = 0;
    for seed in seeds() {
        let range = [6, 40, 200, 900][seed as usize % 4];
        let odd = [0, 3, 60][seed as usize % 3];
        let is_more = matches_a_map::<Arc<u64>>(seed, range, |prng| name(prng, range, odd), value);
        was_more += u64::from(is_more);
    }
    assert!(cfg!(miri) || (1..8).contains(&was_more), "{was_more}");
}

#[test]
fn random_changes_of_packed_text_sets_agree_with_a_map() {
    for seed in seeds() {
        let range = [6, 40, 200, 900][seed as usize % 4];
        let odd = [0, 3, 60][seed as usize % 3];
        matches_a_map::<Never>(seed, range, |prng| name(prng, range, odd), |_| Vec::new());
    }
}

#[test] // Integers of all widths, and an occasional text.
fn random_changes_of_packed_integer_sets_agree_with_a_map() {
    for seed in 0..if cfg!(miri) { 2 } else { 24 } {
        let range = [5, 60, 300, 2_000][seed as usize % 4];
        let (base, scale) = [
            (0, 1),
            (-40, 1),
            (i64::MIN, 1),
            (i64::MAX - 2_000, 1),
            (i64::MIN / 2, i64::MAX / 2_000),
            (1 << 40, 97),
        ][seed as usize % 6];
        let name = |prng: &mut Prng| {
            if range == 60 && prng.below(300) == 0 {
                return b"seven".to_vec();
            }
            let value = base + scale * prng.below(range).cast_signed();
            value.to_string().into_bytes()
        };
        matches_a_map::<Never>(seed, range, name, |_| Vec::new());
    }
}

#[test]
fn a_text_of_any_length_is_added_to_packed_integers() {
    for (ints, len) in [1, 3, 40, 200, 500].into_iter().flat_map(|ints| {
        [1, 200, 239, 240, 241, 255, 256, 300, 511, 512, 1_008, 1_009, 4_096].map(|len| (ints, len))
    }) {
        let (mut table, mut model) = (Table::<Never>::new(), Model::new());
        let mut add = |key: Vec<u8>| {
            table.insert(hash::of(&key), &key, New::Bytes(&[]), None, 0);
            model.insert(key, Vec::new());
        };
        (0..ints).for_each(|number| add(number.to_string().into_bytes()));
        add(vec![b'x'; len]);
        table.check_invariants();
        assert_eq!(content(&table), model, "{ints} integers, {len} letters");
    }
}

#[test] // In ascending, descending and mixed order.
fn packed_integers_take_the_fewest_bits() {
    let ascending: Vec<i64> = (0..200).map(|number| number * 50).collect();
    let descending: Vec<i64> = ascending.iter().rev().copied().collect();
    for order in [&ascending, &descending] {
        let mut table = Table::<Never>::new();
        for number in order {
            let name = number.to_string();
            table.insert(hash::of(name.as_bytes()), name.as_bytes(), New::Int(*number), None, 0);
        }
        // `New::Int` is a value: such an entry is no name alone.
        assert!(!is_pack(&table));
        let mut table = Table::<Never>::new();
        for number in order {
            let name = number.to_string();
            table.insert(hash::of(name.as_bytes()), name.as_bytes(), New::Bytes(b""), None, 0);
            table.check_invariants();
        }
        assert!(is_pack(&table) && table.memory_bytes() <= 448, "{}", table.memory_bytes());
        let mut read = Vec::new();
        table.for_each(&mut |entry| read.push(entry.key().as_int().unwrap()));
        assert_eq!(read, ascending);
    }
}

#[test] // With all its entries.
fn a_value_that_cannot_be_packed_converts_the_pack_to_a_table() {
    let filled = || {
        let mut table = Table::<Arc<u64>>::new();
        for number in 0..40 {
            let name = format!("field:{number}").into_bytes();
            table.insert(hash::of(&name), &name, New::Bytes(b"value"), None, 0);
        }
        assert!(is_pack(&table));
        table
    };
    let (name, long) = (b"field:7".as_slice(), vec![b'k'; 300]);
    type Change<'a> = &'a dyn Fn(&mut Table<Arc<u64>>);
    let changes: [Change<'_>; 6] = [
        &|table| table.get_mut(hash::of(name), name).unwrap().set_deadline(Some(5)),
        &|table| table.get_mut(hash::of(name), name).unwrap().set_bits(2),
        &|table| {
            assert!(table.get_mut(hash::of(name), name).unwrap().out_mut().is_none());
            table.get_mut(hash::of(name), name).unwrap().set_value(New::Out(Arc::new(5)));
        },
        &|table| drop(table.insert(hash::of(name), name, New::Bytes(b"value"), Some(9), 0)),
        &|table| drop(table.insert(hash::of(&long), &long, New::Bytes(b"value"), None, 0)),
        &|table| drop(table.insert(hash::of(b"new"), b"new", New::Out(Arc::new(1)), None, 3)),
    ];
    for change in changes {
        let mut table = filled();
        let cut = table.clone();
        change(&mut table);
        assert!(!is_pack(&table) && is_pack(&cut));
        assert_eq!((cut.len(), table.len() >= 40), (40, true));
        table.check_invariants();
        for number in 0..40 {
            let name = format!("field:{number}").into_bytes();
            assert!(table.contains(hash::of(&name), &name), "{number}");
        }
    }
}

#[test] // A byte of hash for each entry, and the allocator's rounding.
fn packs_take_hardly_more_than_their_content() {
    let bounds =
        [(1, 32, 32), (5, 96, 96), (20, 384, 384), (100, 1_792, 1_024), (200, 4_096, 2_048)];
    for (count, most, most_halved) in bounds {
        let mut table = Table::<Arc<u64>>::new();
        for number in 0..count {
            let name = format!("field:{number}").into_bytes();
            table.insert(hash::of(&name), &name, New::Bytes(b"twelve bytes"), None, 0);
        }
        assert!(is_pack(&table) && table.memory_bytes() <= most, "{count}: {table:?}");
        for number in 0..count / 2 {
            let name = format!("field:{number}").into_bytes();
            table.remove(hash::of(&name), &name);
        }
        let halved = table.memory_bytes();
        assert!(halved <= most_halved, "{count}: {halved} of {most}");
    }
}

#[test] // However full the block is.
fn adding_and_removing_one_entry_does_not_move_the_pack() {
    let mut table = Table::<Arc<u64>>::new();
    for number in 0..150 {
        let name = format!("field:{number}").into_bytes();
        let add = |table: &mut Table<Arc<u64>>| {
            table.insert(hash::of(&name), &name, New::Bytes(b"twelve bytes"), None, 0);
            table.memory_bytes()
        };
        let block = add(&mut table);
        for _ in 0..if number == 0 { 0 } else { 3 } {
            table.remove(hash::of(&name), &name);
            assert_eq!(table.memory_bytes(), block, "{number}");
            assert_eq!(add(&mut table), block, "{number}");
        }
    }
}

/// Checks that a pack written at once equals one to which each entry was added, and that it can be
/// changed.
fn one_write_is_many_additions<X: OutOfLine>(are_pairs: bool) {
    let mut packs = 0;
    for seed in 0..if cfg!(miri) { 5 } else { 400 } {
        let mut prng = Prng::from_seed(seed);
        let (odd, only_ints) = (prng.below(60), prng.chance(30));
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for _ in 0..1 + prng.below(if seed % 2 == 0 { 20 } else { 280 }) {
            let name = match only_ints {
                true => prng.below(1_000).to_string().into_bytes(),
                false => name(&mut prng, 1_000, odd),
            };
            entries.push((name, if are_pairs { value(&mut prng) } else { Vec::new() }));
        }
        let (mut table, mut model) = (Table::<X>::new(), Model::new());
        for (name, value) in &entries {
            table.insert(hash::of(name), name, New::Bytes(value), None, 0);
            model.insert(name.clone(), value.clone());
        }
        let all: Vec<_> = entries.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let is_twice = model.len() < entries.len();
        let Some(mut written) = Table::<X>::of_all(&all) else {
            assert!(is_twice || !is_pack(&table), "seed {seed}");
            continue;
        };
        assert!(!is_twice && is_pack(&written), "seed {seed}");
        packs += 1;
        written.check_invariants();
        assert_eq!((written.len(), content(&written)), (model.len(), content(&table)));
        assert!(all.iter().all(|(name, _)| written.contains(hash::of(name), name)));
        for _ in 0..20 {
            let name = name(&mut prng, 1_000, odd);
            written.insert(hash::of(&name), &name, New::Bytes(b""), None, 0);
            written.remove(hash::of(all[0].0), all[0].0);
            written.check_invariants();
        }
    }
    assert!(cfg!(miri) || packs > 100, "{packs}");
}

#[test]
fn packs_written_at_once_equal_packs_grown_entry_by_entry() {
    one_write_is_many_additions::<Never>(false);
    one_write_is_many_additions::<Arc<crate::blob::Blob>>(true);
    assert!(Table::<Never>::of_all(&[]).is_none());
}
