//! The target of small collections: any bytes, read as changes of a hash and a set, give the same
//! contents as in a map, in every form of the table.
//!
//! Bytes from outside are never used as a pack: files and payloads are read and added item by item.
//! So the changes that lead to a pack are fuzzed, not the bytes of a pack.

use darter_base::hash;
use darter_structs::blob::Blob;
use darter_structs::table::{Never, New, OutOfLine, PackRef, Table, ValueRef};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Changes between two comparisons of all entries.
const STEP: usize = 16;
/// Numbers that names are made of.
const EDGES: [i64; 8] = [0, -1, 7, i64::MIN, i64::MAX, 1 << 40, i64::MAX / 2, -(1 << 55)];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Bytes that are read as changes; 0 after the last.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let len = (usize::from(self.byte()) * 2).min(most).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    /// A name: with a common prefix, a number near others or near the limits, a UUID, a long one,
    /// or anything.
    fn name(&mut self) -> Vec<u8> {
        let (kind, number) = (self.byte(), self.byte());
        let near = |edge: i64| edge.saturating_add(i64::from(number) - 128).to_string();
        match kind % 8 {
            0..4 => format!("field:{number}").into_bytes(),
            4 => near(0).into_bytes(),
            5 => near(EDGES[usize::from(kind / 8) % EDGES.len()]).into_bytes(),
            6 => format!("{number:08x}-0000-4000-8000-{number:012x}").into_bytes(),
            _ if number.is_multiple_of(2) => vec![b'x'; usize::from(self.byte()) * 8],
            _ => self.bytes(300).to_vec(),
        }
    }
}

/// Changes tables by the instructions in `data`.
///
/// Panics when a table and a map differ, or an invariant does not hold.
pub(crate) fn fuzz_packs(data: &[u8]) {
    run::<Arc<Blob>>(data, true);
    run::<Never>(data, false);
}

fn run<X: OutOfLine>(data: &[u8], has_values: bool) {
    let (mut table, mut model, mut input) = (Table::<X>::new(), Model::new(), Input(data));
    for step in 1.. {
        let (act, name) = (input.byte(), input.name());
        let value = input.bytes(400);
        let value = if has_values { value } else { &[] };
        change(&mut table, &mut model, (act, &name, value));
        let is_over = input.0.is_empty();
        if is_over || step % STEP == 0 {
            compare(&table, &model);
        }
        if is_over {
            break;
        }
    }
}

fn change<X: OutOfLine>(
    table: &mut Table<X>,
    model: &mut Model,
    (act, name, value): (u8, &[u8], &[u8]),
) {
    let hash = hash::of(name);
    match act % 8 {
        0..4 => {
            let old = table.insert(hash, name, New::Bytes(value), None, 0);
            assert_eq!(old.is_some(), model.insert(name.to_vec(), value.to_vec()).is_some());
        }
        4 => {
            let entry = table.get_mut(hash, name);
            assert_eq!(entry.is_some(), model.contains_key(name), "what is changed");
            if let Some(mut entry) = entry {
                entry.set_value(New::Bytes(value));
                model.insert(name.to_vec(), value.to_vec());
            }
        }
        _ => assert_eq!(table.remove(hash, name).is_some(), model.remove(name).is_some()),
    }
}

/// Checks that the table has the same contents as the map, by name and in iteration; so must its
/// pack, if it is one, and a table made from that pack.
fn compare<X: OutOfLine>(table: &Table<X>, model: &Model) {
    table.check_invariants();
    assert_eq!(content(table), *model);
    if let Some(bytes) = table.packed() {
        let pack = PackRef::new(bytes);
        pack.check_invariants();
        assert!(model.keys().all(|name| pack.contains(hash::of(name), name)));
        let again = Table::<X>::of_packed(bytes);
        assert_eq!((again.packed(), content(&again)), (Some(bytes), model.clone()));
    }
    for (name, value) in model {
        let entry = table.get(hash::of(name), name).expect("what was added");
        assert!(matches!(entry.value(), ValueRef::Text(text) if text.to_vec() == *value));
    }
}

fn content<X: OutOfLine>(table: &Table<X>) -> Model {
    let mut all = Model::new();
    table.for_each(&mut |entry| {
        let ValueRef::Text(value) = entry.value() else { unreachable!("none is out of line") };
        assert!(all.insert(entry.key().to_vec(), value.to_vec()).is_none(), "a name twice");
    });
    all
}
