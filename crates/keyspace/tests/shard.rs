//! The databases of a shard together: totals, expiry, swaps.

use crate::roll::{ROLL, Roll};
use darter_keyspace::{
    Act, Deadline, Fresh, Key, Part, Shard, Type, Typed, Usage, Wants, Work, apply,
};
use darter_structs::blob::Blob;

const NOW: u64 = 1_000_000;
/// Databases with low numbers, stored side by side, and others.
const USED: [usize; 4] = [0, 3, 64, 5_000];

fn shard() -> Shard {
    let mut shard = Shard::new(10_000, 1);
    shard.set_now(NOW);
    shard
}

fn text(shard: &mut Shard, db: usize, key: &str, deadline: Deadline) {
    shard.db_mut(db).set_text(&Key::new(key.as_bytes()), Fresh::Bytes(&[b'x'; 600]), deadline);
}

fn member(shard: &mut Shard, db: usize, key: &str, member: &str, deadline: Deadline) {
    let added = shard.db_mut(db).edit::<Roll, _>(&Key::new(key.as_bytes()), true, |edit| {
        edit.enter(member.as_bytes(), deadline)
    });
    assert_eq!(added, Ok(Some(true)));
}

#[test]
fn shard_totals_are_sums_over_its_databases() {
    let mut shard = shard();
    assert_eq!((shard.databases(), shard.now()), (10_000, NOW));
    let empty = shard.memory_bytes();
    for db in USED {
        text(&mut shard, db, "text", Deadline::Clear);
        member(&mut shard, db, "roll", "m", Deadline::Clear);
    }
    let usage = shard.usage();
    assert_eq!([Blob::TYPE, &ROLL].map(|kind| usage.keys(kind)), [4, 4]);
    assert!(usage.bytes(Blob::TYPE) >= 4 * 600);
    let values: usize = USED.iter().map(|db| shard.db(*db).memory_bytes()).sum();
    let more = shard.memory_bytes() - empty;
    assert!(more >= values && more <= values + 4_096, "{more} {values}");
    shard.flush();
    assert_eq!(shard.usage(), Usage::default());
    assert!(shard.iter().all(|(_, db)| db.is_empty()));
}

#[test] // In any database.
fn each_change_counts_once_and_expiry_does_not() {
    let mut shard = shard();
    for db in USED {
        text(&mut shard, db, "text", Deadline::Clear);
        text(&mut shard, db, "timed", Deadline::At(NOW + 5));
    }
    assert_eq!(shard.changes(), 8);
    shard.set_now(NOW + 6);
    assert!(!shard.db_mut(3).remove(&Key::new(b"timed")), "it was dead");
    assert_eq!(shard.changes(), 8, "a death");
    assert!(shard.db_mut(3).remove(&Key::new(b"text")) && shard.db(3).is_empty());
    assert_eq!(shard.changes(), 9);
    (0..1_000).for_each(|db| _ = shard.db_mut(6_000 + db));
    assert_eq!(shard.changes(), 9, "databases that were let go of");
}

#[test]
fn reads_count_as_hits_or_misses() {
    let mut shard = shard();
    (0..5).for_each(|at| shard.stats.count(at < 3));
    let (db, _, stats) = shard.parts(3);
    stats.count(db.is_empty());
    assert_eq!((shard.stats.hits, shard.stats.misses), (4, 2));
}

#[test]
fn no_touch_applies_to_a_single_command() {
    let mut shard = shard();
    for db in [3, 5_000] {
        text(&mut shard, db, "k", Deadline::Clear);
        let idle = |shard: &Shard| {
            shard.db(db).get(&Key::new(b"k")).map(|found| found.idle_seconds(shard.now()))
        };
        for (no_touch, told) in [(true, Some(100)), (false, Some(0))] {
            shard.db_mut(db).set_idle(&Key::new(b"k"), 100);
            assert!(shard.db_for(db, no_touch).read(&Key::new(b"k")).is_some());
            assert_eq!(idle(&shard), told, "{db} {no_touch}");
        }
    }
}

#[test] // Also in a database that has become empty.
fn shrunk_tables_of_all_databases_are_compacted() {
    const KEYS: usize = if cfg!(miri) { 0 } else { 30_000 };
    let mut shard = shard();
    let name = |number: usize| format!("key:{number}");
    for db in USED.into_iter().take(if KEYS > 0 { 3 } else { 0 }) {
        (0..KEYS).for_each(|number| text(&mut shard, db, &name(number), Deadline::Clear));
        for number in (0..KEYS).step_by(2) {
            shard.db_mut(db).remove(&Key::new(name(number).as_bytes()));
        }
        assert_eq!(shard.next_compaction(), Some(NOW + 1_000), "{db}");
    }
    shard.compact();
    assert_eq!(shard.next_compaction().is_some(), KEYS > 0, "it is not yet time");
    shard.set_now(NOW + 1_000);
    (0..5).for_each(|_| shard.compact()); // One of them is in progress.
    shard.check_invariants();
    shard.db_mut(USED[0]).flush();
    let mut steps = 0;
    while shard.next_compaction().is_some_and(|at| at <= shard.now()) {
        shard.compact();
        steps += 1;
    }
    assert_eq!(shard.next_compaction(), None, "after {steps} steps");
    assert!(KEYS == 0 || (40..1_000).contains(&steps), "{steps} steps");
    let left = |db: usize| shard.db(db).keys().shrunk_bytes();
    assert_eq!(USED.map(left), [0; USED.len()]);
    shard.check_invariants();
    shard.flush();
    assert_eq!(shard.next_compaction(), None);
    shard.check_invariants();
}

#[test] // Setting the clock back does not delay work that waits for a quiet second.
#[cfg_attr(miri, ignore = "it takes many keys")]
fn a_shrunk_table_does_not_wait_for_a_clock_that_was_set_back() {
    let mut shard = shard();
    let names: Vec<String> = (0..30_000).map(|number| format!("key:{number}")).collect();
    names.iter().for_each(|name| text(&mut shard, 0, name, Deadline::Clear));
    for name in names.iter().step_by(2) {
        shard.db_mut(0).remove(&Key::new(name.as_bytes()));
    }
    assert_eq!(shard.next_compaction(), Some(NOW + 1_000));
    shard.set_now(NOW - 100_000);
    assert_eq!(shard.next_compaction(), Some(NOW - 99_000));
    shard.set_now(NOW - 99_001);
    assert_eq!(shard.next_compaction(), Some(NOW - 99_000));
}

#[test] // The earliest deadline is reported, and fields are swept before keys.
fn expiry_is_found_in_all_databases() {
    let mut shard = shard();
    assert_eq!((shard.next_key_death(), shard.next_field_death()), (None, None));
    assert!(!shard.reap(10));
    for (number, db) in (0..).zip(USED) {
        text(&mut shard, db, "k", Deadline::At(NOW + 40 - number));
        member(&mut shard, db, "roll", "dies", Deadline::At(NOW + 20 - number));
        member(&mut shard, db, "roll", "stays", Deadline::Clear);
    }
    assert_eq!(shard.next_key_death(), Some(NOW + 37));
    assert_eq!(shard.next_field_death(), Some(NOW + 17));
    shard.set_now(NOW + 16);
    assert!(!shard.reap(10), "nobody is dead yet");

    shard.set_now(NOW + 20);
    while shard.reap(10) {}
    assert_eq!(shard.next_field_death(), None);
    assert_eq!((shard.usage().keys(&ROLL), shard.usage().keys(Blob::TYPE)), (4, 4));
    assert_eq!(shard.expired_count(), 0, "fields do not count as keys");

    shard.set_now(NOW + 38);
    while shard.reap(10) {}
    assert_eq!((shard.expired_count(), shard.usage().keys(Blob::TYPE)), (2, 2));
    shard.set_now(NOW + 40);
    while shard.reap(10) {}
    assert_eq!((shard.expired_count(), shard.usage().keys(Blob::TYPE)), (4, 0));
    // A database that is freed because it is empty does not lose its counts.
    shard.flush();
    (100..2_000).for_each(|db| assert!(shard.db_mut(db).is_empty()));
    assert!(shard.iter().all(|(at, _)| at != 5_000), "it has gone");
    assert_eq!(shard.expired_count(), 4);
}

#[test] // SWAPDB included.
fn replayed_records_make_an_equal_shard() {
    let mut shard = shard();
    text(&mut shard, 0, "unheard", Deadline::Clear);
    assert!(shard.take_records().is_empty());
    shard.flush();
    let reader = shard.join(Wants::CHANGES);
    text(&mut shard, 0, "a", Deadline::Clear);
    text(&mut shard, 5_000, "b", Deadline::At(NOW + 9));
    shard.swap(0, 5_000);
    text(&mut shard, 0, "c", Deadline::Clear);
    shard.swap(3, 3);
    shard.swap(5_000, 9_999);
    member(&mut shard, 9_999, "roll", "m", Deadline::Clear);
    // In a database that is created while changes are recorded.
    text(&mut shard, 7_000, "new", Deadline::Clear);
    let records = shard.take_records();
    assert!(shard.take_records().is_empty());
    assert!(records.iter().map(|record| record.number).eq(1..8));
    let databases: Vec<usize> = records.iter().map(|record| record.database).collect();
    assert_eq!(databases, [0, 5_000, 0, 0, 5_000, 9_999, 7_000], "one order over all of them");
    let swaps = records.iter().filter(|record| matches!(record.act, Act::Swap(_)));
    assert_eq!(swaps.count(), 2, "an exchange with itself is none");
    let mut copy = Shard::new(10_000, 2);
    for record in &records {
        apply(&mut copy, record).unwrap();
    }
    assert_eq!(contents(&copy), contents(&shard));
    assert_eq!(contents(&shard).len(), 5);
    shard.leave(reader);
    text(&mut shard, 0, "unheard", Deadline::Clear);
    assert!(shard.take_records().is_empty());
}

#[test] // In any database.
fn records_of_a_transaction_carry_its_number() {
    let mut shard = shard();
    shard.join(Wants::CHANGES);
    let part = Part { transaction: 7, parts: 2 };
    text(&mut shard, 0, "before", Deadline::Clear);
    shard.work_for(Work::Part(part));
    text(&mut shard, 0, "a", Deadline::Clear);
    text(&mut shard, 5_000, "b", Deadline::Clear);
    shard.work_for(Work::Alone);
    text(&mut shard, 0, "another's", Deadline::Clear);
    shard.end_part(part);
    text(&mut shard, 0, "after", Deadline::Clear);
    let records = shard.take_records();
    let parts: Vec<Option<Part>> = records.iter().map(|record| record.part).collect();
    assert_eq!(parts, [None, Some(part), Some(part), None, Some(part), None]);
    assert!(matches!(records[4].act, Act::EndOfPart));
}

/// All keys by database, in order.
fn contents(shard: &Shard) -> Vec<(usize, Vec<u8>, &'static Type, Option<u64>)> {
    let mut all = Vec::new();
    for (at, db) in shard.iter() {
        db.keys().for_each(&mut |entry| {
            let found = darter_keyspace::Found::alive(entry, 0).unwrap();
            all.push((at, entry.key().to_vec(), found.kind(), found.deadline()));
        });
    }
    all.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    all
}
