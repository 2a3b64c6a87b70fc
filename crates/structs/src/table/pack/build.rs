//! Builds a pack in one step, for collections that arrive whole.
//!
//! Adding entries one by one costs a search for each, and moves the present ones each time. Here
//! the names are read twice: to find their common prefix, and to be written. Duplicates are
//! detected by their hashes, which the index of most packs needs anyway; if two hashes are equal,
//! the caller must look closer.

use super::item::Tagged;
use super::records::{self, Shape, Spot};
use super::{BYTES_MAX, INTS_MAX, KEYS, PAIRS, Pack, Packed, class, fits, ints};
use darter_base::hash;

impl Pack {
    /// A pack with these names and values, in this order; or with names alone, whose values are
    /// empty. `None` if no pack can hold them, or if two names may be equal.
    pub(in super::super) fn of_all(entries: &[(&[u8], &[u8])], are_pairs: bool) -> Option<Self> {
        let names: Vec<Packed<'_>> = entries.iter().map(|(name, _)| Packed::of(name)).collect();
        if !are_pairs && let Some(pack) = of_ints(&names) {
            return Some(pack);
        }
        let is_held =
            |(name, value): &(&[u8], &[u8])| fits(name) && (are_pairs || value.is_empty());
        if !(1..=records::COUNT_MAX).contains(&entries.len()) || !entries.iter().all(is_held) {
            return None;
        }
        let hashes: Vec<u64> = entries.iter().map(|(name, _)| hash::of(name)).collect();
        if has_equal(hashes.clone()) {
            return None;
        }
        of_records(entries, names, &hashes, if are_pairs { PAIRS } else { KEYS })
    }
}

/// A pack of integers, if all names are integers.
fn of_ints(names: &[Packed<'_>]) -> Option<Pack> {
    let int = |name: &Packed<'_>| if let Packed::Int(int) = name { Some(*int) } else { None };
    if names.len() > INTS_MAX {
        return None;
    }
    let mut all = names.iter().map(int).collect::<Option<Vec<i64>>>()?;
    all.sort_unstable();
    let (first, last) = (*all.first()?, *all.last()?);
    let width = ints::width_of(first, last);
    let size = ints::HEAD + ints::bytes_of(all.len(), width);
    if size > BYTES_MAX || all.windows(2).any(|pair| pair[0] == pair[1]) {
        return None;
    }
    let mut bytes = Vec::with_capacity(class(size));
    ints::write(&mut bytes, first, width, &all);
    Some(Pack(bytes))
}

fn has_equal(mut hashes: Vec<u64>) -> bool {
    hashes.sort_unstable();
    hashes.windows(2).any(|pair| pair[0] == pair[1])
}

fn of_records(
    entries: &[(&[u8], &[u8])],
    names: Vec<Packed<'_>>,
    hashes: &[u64],
    kind: u8,
) -> Option<Pack> {
    let prefix = common_prefix(&names);
    let texts: usize = entries.iter().map(|(name, value)| name.len() + value.len()).sum();
    let mut bytes = Vec::with_capacity(class((texts + 4 * entries.len()).min(BYTES_MAX)));
    records::begin_with(&mut bytes, kind, entries.len(), prefix);
    let shape = Shape::of(&bytes);
    bytes.resize(shape.texts_at, 0);
    for (index, ((_, value), name)) in entries.iter().zip(names).enumerate() {
        let at = bytes.len();
        let name = match name {
            Packed::Raw(name) => Tagged::raw(&name[prefix.len()..]),
            coded => Tagged::of(coded),
        };
        let tags_at = shape.tags_of(index);
        bytes[tags_at] = name.tag();
        name.write_body(&mut bytes);
        if kind == PAIRS {
            let value = Tagged::of(Packed::of(value));
            bytes[tags_at + 1] = value.tag();
            value.write_body(&mut bytes);
        }
        if bytes.len() > BYTES_MAX {
            return None;
        }
        if shape.has_index() {
            records::note(&mut bytes, Spot { index, at }, hashes[index]);
        }
    }
    Some(Pack(bytes))
}

/// The common prefix of all names that are stored as texts.
fn common_prefix<'a>(names: &[Packed<'a>]) -> &'a [u8] {
    let raw = |name: &Packed<'a>| if let Packed::Raw(name) = name { Some(*name) } else { None };
    let common = names.iter().filter_map(raw).reduce(|common, name| {
        let len = common.iter().zip(name).take_while(|(one, other)| one == other).count();
        &common[..len]
    });
    common.unwrap_or_default()
}
