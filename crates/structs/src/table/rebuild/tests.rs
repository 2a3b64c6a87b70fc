//! Rewrites of segments are spread out over commands, whatever creates the gaps.

use super::ENTRIES_PER_REST;
use crate::table::{Never, New, Root, Table};
use darter_base::{Prng, hash};

const ENTRIES: usize = 200_000;
/// Entries changed by one command.
const COMMAND: usize = 250;

/// The number of entries and bytes of each segment, in order.
pub(in crate::table) fn segments(table: &Table<Never>) -> Vec<(usize, usize)> {
    let Root::Big(big) = &table.0 else { return Vec::new() };
    let segments = big.directory.paths().map(|path| big.directory.segment_at(path));
    segments.map(|segment| (segment.len(), segment.bytes())).collect()
}

/// A table, and its keys in random order.
fn table_of_some_200_segments() -> (Table<Never>, Vec<[u8; 4]>) {
    let mut keys: Vec<[u8; 4]> = (0..ENTRIES as u32).map(u32::to_le_bytes).collect();
    let (mut table, mut prng) = (Table::new(), Prng::from_seed(1));
    for key in &keys {
        table.insert(hash::of(key), key, New::Bytes(&[b'v'; 30]), None, 0);
    }
    for at in (1..keys.len()).rev() {
        keys.swap(at, prng.below(at as u64 + 1) as usize);
    }
    (table, keys)
}

/// Calls `change` for the first 60 percent of the entries, one after another. Returns the most
/// entries that one command has moved by repacking segments, and the total.
fn moved(mut change: impl FnMut(&mut Table<Never>, &[u8])) -> (usize, usize) {
    let (mut table, keys) = table_of_some_200_segments();
    let (mut most, mut all) = (0, 0);
    for command in keys[..ENTRIES * 6 / 10].chunks(COMMAND) {
        let before = segments(&table);
        command.iter().for_each(|key| change(&mut table, key));
        let after = segments(&table);
        if before.len() == after.len() {
            let written = before.iter().zip(&after).filter(|(before, after)| after.1 < before.1);
            let moved = written.map(|(_, after)| after.0).sum();
            (most, all) = (most.max(moved), all + moved);
        }
    }
    table.check_invariants();
    (most, all)
}

/// The most entries that one command may move: this many for each changed entry, plus the segment
/// that was started after the rest.
const MOVED_MAX: usize = COMMAND * ENTRIES_PER_REST + 1_200;

#[test] // Though the gaps of all segments become due together.
fn one_removal_never_repacks_many_segments() {
    let (most, all) = moved(|table, key| {
        assert!(table.remove(hash::of(key), key).is_some());
    });
    assert!(all > 2 * ENTRIES, "{all}");
    assert!(most <= MOVED_MAX, "{most} of {all} entries in one command");
}

#[test] // Entries that get a deadline grow, and leave gaps.
fn setting_a_deadline_never_repacks_many_segments() {
    let (most, all) = moved(|table, key| {
        table.get_mut(hash::of(key), key).unwrap().set_deadline(Some(1_000_000));
    });
    assert!(all > ENTRIES, "{all}");
    assert!(most <= MOVED_MAX, "{most} of {all} entries in one command");
}

/// Compacts all segments. Returns their number.
fn compact(table: &mut Table<Never>) -> usize {
    let (mut hash, mut places) = (Some(0), 0);
    while let Some(place) = hash {
        (hash, places) = (table.compact(place), places + 1);
    }
    places
}

#[test] // A place that a cut holds is left alone.
fn compacting_reclaims_all_gaps_and_copies_nothing_shared() {
    let (mut table, keys) = table_of_some_200_segments();
    for key in &keys[..ENTRIES / 3] {
        assert!(table.remove(hash::of(key), key).is_some());
    }
    let (cut, before, memory) = (table.clone(), segments(&table), table.memory_bytes());
    assert_eq!(compact(&mut table), 1, "it does not look through places that are all shared");
    assert_eq!((&segments(&table), table.memory_bytes()), (&before, memory), "all were shared");
    drop(cut);
    assert_eq!(compact(&mut table), before.len());
    assert!(table.memory_bytes() < memory * 97 / 100, "{} of {memory}", table.memory_bytes());
    table.check_invariants();
    let left = |key: &&[u8; 4]| table.contains(hash::of(key.as_slice()), key.as_slice());
    assert_eq!(keys.iter().filter(left).count(), keys.len() - ENTRIES / 3);
    let memory = table.memory_bytes();
    compact(&mut table);
    assert_eq!(table.memory_bytes(), memory, "there are no gaps left");
}

#[test] // They have no segments.
fn small_tables_are_not_compacted() {
    let mut table = Table::<Never>::new();
    assert_eq!(compact(&mut table), 1);
    table.insert(hash::of(b"key"), b"key", New::Bytes(b""), None, 0);
    assert_eq!((compact(&mut table), table.len()), (1, 1));
}
