//! The memory of a snapshot beside the data while all of it is overwritten. Alone in its process:
//! what is allocated is counted for all threads.

#![allow(clippy::unwrap_used, reason = "a test: helpers included")]

use darter_base::Prng;
use darter_base::preempt::Never;
use darter_families::hash::Hash;
use darter_families::list::List;
use darter_families::zset::ZSet;
use darter_keyspace::{Deadline, Fresh, Key, Shard, lazyfree};
use darter_persist::snapshot::{Part, Snapshot, Step, Style};
use darter_runtime::heap::{self, Counting};
use darter_structs::list::End;

#[global_allocator]
static HEAP: Counting = Counting;

const ITEMS: u64 = 100_000;
/// Keys beside it: its own comes somewhere among them.
const OTHERS: u64 = 30_000;

fn held() -> usize {
    heap::report();
    heap::held_bytes()
}

fn name(number: u64) -> Vec<u8> {
    format!("field:{number:010}").into_bytes()
}

fn write(shard: &mut Shard, number: u64, value: &[u8]) {
    let db = shard.db_mut(0);
    let (field, value) = (name(number), Fresh::Bytes(value));
    let written = db.edit::<Hash, _>(&Key::new(b"hash"), true, |edit| {
        edit.set(&field, value, Deadline::Clear);
    });
    written.unwrap();
}

/// As a core sees it.
fn is_behind(snapshot: &Snapshot) -> bool {
    snapshot.holds_more_than(31)
}

/// The peak memory of a snapshot of everything, beside the data, while `write` runs as often as the
/// snapshot lets it; and the memory of the data.
fn most_beside(shard: &mut Shard, write: &mut dyn FnMut(&mut Shard, &mut Prng)) -> (usize, usize) {
    lazyfree::run(&Never);
    let before = held();
    let (keys, bytes) = (shard.db(0).keys().reader(), shard.db(0).memory_bytes());
    let part = Part { database: 0, keys, now: shard.db(0).now(), bytes };
    let mut snapshot = Snapshot::new(vec![part], Style::default());
    let (mut most, mut is_done, mut prng) = (0, false, Prng::from_seed(1));
    while !is_done {
        write(shard, &mut prng);
        most = most.max(held().saturating_sub(before));
        let mut steps = 0;
        while !is_done && (steps == 0 || is_behind(&snapshot)) {
            is_done = matches!(snapshot.step(), Step::Done);
            steps += 1;
        }
        lazyfree::run(&Never);
    }
    (most, before)
}

#[test]
fn large_deleted_values_are_freed_while_they_are_saved() {
    let mut shard = Shard::new(16, 1);
    for number in 0..ITEMS {
        write(&mut shard, number, b"a value");
    }
    for number in 0..OTHERS {
        let (key, text) = (name(number), Fresh::Bytes(b"a value"));
        shard.db_mut(0).set_text(&Key::new(&key), text, Deadline::Clear);
    }
    let (most, before) = most_beside(&mut shard, &mut |shard, prng| {
        (0..2).for_each(|_| write(shard, prng.below(ITEMS), b"another"));
    });
    assert!(most * 4 < before, "{most} bytes more than {before}");
    for (what, fill, write) in OTHER_VALUES {
        let mut shard = Shard::new(16, 1);
        fill(&mut shard);
        let (most, before) = most_beside(&mut shard, &mut |shard, prng| write(shard, prng));
        assert!(most * 4 < before, "{what}: {most} bytes more than {before}");
    }
}

type Fill = fn(&mut Shard);
type Write = fn(&mut Shard, &mut Prng);

/// Values that the table of keys does not hold, and what copies or replaces a part of them.
#[rustfmt::skip] // A table.
const OTHER_VALUES: &[(&str, Fill, Write)] = &[
    ("a list",            fill_list,  write_list),
    ("a sorted set",      fill_zset,  write_zset),
    ("a long string",     fill_text,  write_text),
    ("strings replaced",  fill_texts, write_texts),
];

const TEXT_BYTES: usize = 16 << 20;
const TEXTS: u64 = 500;

fn fill_list(shard: &mut Shard) {
    let pushed = shard.db_mut(0).edit::<List, _>(&Key::new(b"list"), true, |edit| {
        (0..ITEMS).for_each(|number| edit.push(End::Back, Fresh::Bytes(&name(number))));
    });
    pushed.unwrap();
}

fn write_list(shard: &mut Shard, prng: &mut Prng) {
    let at = usize::try_from(prng.below(ITEMS)).unwrap();
    let key = Key::new(b"list");
    let is_set = shard
        .db_mut(0)
        .edit::<List, _>(&key, true, |edit| edit.set(at, Fresh::Bytes(b"another element")));
    assert_eq!(is_set, Ok(Some(true)));
}

fn set_score(shard: &mut Shard, number: u64, score: f64) {
    let key = Key::new(b"zset");
    shard.db_mut(0).edit::<ZSet, _>(&key, true, |edit| edit.insert(&name(number), score)).unwrap();
}

fn fill_zset(shard: &mut Shard) {
    (0..ITEMS).for_each(|number| set_score(shard, number, 1.0));
}

fn write_zset(shard: &mut Shard, prng: &mut Prng) {
    set_score(shard, prng.below(ITEMS), 2.0);
}

fn fill_text(shard: &mut Shard) {
    let text = vec![b'x'; TEXT_BYTES];
    shard.db_mut(0).set_text(&Key::new(b"text"), Fresh::Bytes(&text), Deadline::Clear);
}

fn write_text(shard: &mut Shard, prng: &mut Prng) {
    let at = usize::try_from(prng.below(TEXT_BYTES as u64 - 1)).unwrap();
    let edited = shard.db_mut(0).edit_text(&Key::new(b"text"), |text| {
        text.write(at, Fresh::Bytes(b"y"), &[]);
    });
    assert!(edited.is_some());
}

fn replace_text(shard: &mut Shard, number: u64, byte: u8) {
    let text = vec![byte; 40_000];
    shard.db_mut(0).set_text(&Key::new(&name(number)), Fresh::Bytes(&text), Deadline::Clear);
}

fn fill_texts(shard: &mut Shard) {
    (0..TEXTS).for_each(|number| replace_text(shard, number, b'x'));
}

fn write_texts(shard: &mut Shard, prng: &mut Prng) {
    replace_text(shard, prng.below(TEXTS), b'y');
}
