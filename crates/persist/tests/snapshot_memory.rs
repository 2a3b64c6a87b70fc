//! What a snapshot holds beside the data while all of it is overwritten. Alone in its process: what
//! is allocated is counted for all threads.

#![allow(clippy::unwrap_used, reason = "a test: helpers included")]

use darter_base::Prng;
use darter_base::preempt::Never;
use darter_families::hash::Hash;
use darter_keyspace::{Deadline, Fresh, Key, Shard, lazyfree};
use darter_persist::snapshot::{Part, Snapshot, Step, Style};
use darter_runtime::heap::{self, Counting};

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

#[test]
fn large_values_are_released_as_they_are_read() {
    let mut shard = Shard::new(16, 1);
    for number in 0..ITEMS {
        write(&mut shard, number, b"a value");
    }
    for number in 0..OTHERS {
        let (key, text) = (name(number), Fresh::Bytes(b"a value"));
        shard.db_mut(0).set_text(&Key::new(&key), text, Deadline::Clear);
    }
    lazyfree::run(&Never);
    let before = held();
    let keys = shard.db(0).keys().reader();
    let part = Part { database: 0, keys, now: shard.db(0).now() };
    let mut snapshot = Snapshot::new(vec![part], Style::default());
    let (mut most, mut is_done, mut prng) = (0, false, Prng::from_seed(1));
    while !is_done {
        (0..2).for_each(|_| write(&mut shard, prng.below(ITEMS), b"another"));
        most = most.max(held().saturating_sub(before));
        let mut steps = 0;
        while !is_done && (steps == 0 || snapshot.is_behind()) {
            is_done = matches!(snapshot.step(), Step::Done);
            steps += 1;
        }
        lazyfree::run(&Never);
    }
    assert!(most * 4 < before, "{most} bytes more than {before}");
}
