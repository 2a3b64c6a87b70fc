//! Memory pinned by readers of a table, and bytes reported while it is freed.

use crate::table::{Never, New, Reader, Table};
use darter_base::{hash, lazyfree, preempt};

/// Enough for several segments.
const MANY: u64 = if cfg!(miri) { 250 } else { 20_000 };

/// A table that is not a pack (a pack would be copied); a few of its members can expire.
fn set_of(members: u64) -> Table<Never> {
    let mut table = Table::new();
    let deadline = (members < MANY).then_some(u64::from(u32::MAX));
    for number in 0..members {
        let member = number.to_string();
        table.insert(hash::of(member.as_bytes()), member.as_bytes(), New::Bytes(b""), deadline, 0);
    }
    table
}

fn free_all() {
    while lazyfree::run(&preempt::Never) {}
}

// Checks that a reader pins nothing while the table or a copy exists, and then everything left to
// read, whatever other readers exist.
#[test]
fn a_reader_pins_a_table_only_after_its_deletion() {
    for members in [20, MANY] {
        let table = set_of(members);
        let (cut, copy) = (table.reader(), table.clone());
        assert_eq!((cut.len(), cut.is_pinned()), (table.len(), false));
        drop(table);
        assert!(!cut.is_pinned(), "{members}: its copy is there");
        drop(copy);
        assert!(cut.is_pinned(), "{members}");
        let bytes = cut.memory_bytes();
        let mut reader = Reader::new(cut.reader());
        assert_eq!(cut.is_pinned(), members == MANY, "{members}: a small one with two readers");
        drop(cut);
        assert_eq!(reader.pinned_bytes(), bytes, "{members}");
        reader.next_slice(members as usize / 2, &mut |_| ());
        let half = reader.pinned_bytes();
        assert!(
            (bytes / 2 - members as usize..=bytes / 2).contains(&half),
            "{members}: {half} of {bytes}"
        );
        assert!(!reader.next_slice(usize::MAX, &mut |_| ()));
        assert_eq!(reader.pinned_bytes(), 0);
        free_all();
    }
}

#[test]
fn a_reader_pins_nothing_while_the_table_is_being_changed() {
    let mut table = set_of(MANY);
    let cut = table.reader();
    for number in 0..MANY / 2 {
        let member = number.to_string();
        table.remove(hash::of(member.as_bytes()), member.as_bytes());
    }
    assert!(!cut.is_pinned());
    assert_eq!(cut.len(), MANY as usize);
    cut.check_invariants();
    drop(table);
    free_all();
}

#[test]
fn only_the_last_reader_reports_bytes_to_free() {
    drop(set_of(MANY));
    assert!(lazyfree::waiting().1 > 0, "nobody else has it");
    free_all();
    let table = set_of(MANY);
    let (cut, reader) = (table.reader(), Reader::new(table.clone()));
    drop(table);
    assert_eq!(lazyfree::waiting(), (1, 0), "two readers have all of it");
    drop(cut);
    assert_eq!(lazyfree::waiting().1, 0, "one reader has");
    free_all();
    let bytes = reader.pinned_bytes();
    drop(reader);
    let (values, waiting) = lazyfree::waiting();
    assert!(values == 1 && waiting > bytes / 2 && waiting <= bytes, "{waiting} of {bytes}");
    free_all();
    assert_eq!(lazyfree::waiting(), (0, 0));
}

/// The most that a reader may hold before it lags, in KiB.
const HELD_MAX_KIB: u32 = 128;

/// Overwrites the members with these numbers.
fn overwrite(table: &mut Table<Never>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let member = number.to_string();
        table.insert(hash::of(member.as_bytes()), member.as_bytes(), New::Bytes(b"x"), None, 0);
    }
}

#[test] // So the reader soon holds little, however fast writers copy.
fn segments_copied_by_writers_are_read_first() {
    let mut table = set_of(MANY);
    let mut reader = Reader::new(table.reader()).copied_first();
    let mut read = std::collections::HashSet::new();
    let (mut steps, mut was_behind) = (0, 0);
    let mut written = 0;
    while reader.left() > 0 {
        let end = (written + 2).min(MANY);
        overwrite(&mut table, written..end);
        written = end;
        let mut portions = 0;
        while reader.held_kib() > HELD_MAX_KIB {
            reader.next_slice(64, &mut |entry| assert!(read.insert(entry.key().to_vec())));
            portions += 1;
            assert!(portions < 20 * 30, "it does not catch up");
        }
        was_behind += usize::from(portions > 0);
        if written > MANY / 2 {
            reader.next_slice(64, &mut |entry| assert!(read.insert(entry.key().to_vec())));
        }
        steps += 1;
        assert!(steps < 10_000, "it does not end");
    }
    assert_eq!(read.len() as u64, MANY);
    assert!(cfg!(miri) || was_behind > 1, "{was_behind} times");
    table.check_invariants();
    free_all();
}

#[test] // They may be large.
fn copied_segments_are_read_next_even_if_few() {
    let mut table = set_of(MANY);
    let mut reader = Reader::new(table.reader()).copied_first();
    let mut read = std::collections::HashSet::new();
    for number in 0..8 {
        let name = number.to_string().into_bytes();
        if read.contains(&name) {
            continue;
        }
        overwrite(&mut table, number..number + 1);
        let before = reader.segments();
        while !read.contains(&name) {
            reader.next_slice(1, &mut |entry| assert!(read.insert(entry.key().to_vec())));
        }
        assert!(reader.segments() <= before + 2, "{} segments", reader.segments() - before);
    }
    drop(reader);
    free_all();
}

// For a value within a cut: segments copied before its reader started are read first, and count.
#[test]
fn segments_copied_before_the_read_are_read_first() {
    let mut table = set_of(MANY);
    let before = table.reader();
    overwrite(&mut table, 0..MANY / 2);
    let cut = before.reader();
    drop(before);
    let mut reader = Reader::new(cut).copied_first().since_snapshot();
    assert!(cfg!(miri) || reader.held_kib() > HELD_MAX_KIB);
    while reader.held_kib() > HELD_MAX_KIB {
        reader.next_slice(64, &mut |_| ());
    }
    let mut left = 0;
    while reader.next_slice(64, &mut |_| ()) {
        left += 1;
    }
    assert!(left < MANY / 64, "it was not read");
    table.check_invariants();
    free_all();
}
