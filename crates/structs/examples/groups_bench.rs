//! What pending entries cost: `cargo run --release -p darter-structs --example groups_bench`.

use darter_base::StreamId;
use darter_base::preempt::Never;
use darter_structs::groups::{Groups, Pending};
use darter_structs::lazyfree;
use std::time::Instant;

const ENTRIES: u64 = 2_000_000;

fn id(step: u64) -> StreamId {
    StreamId::new(1_763_841_600_000 + step, 0)
}

/// Prints what each of `count` took since `start`.
fn tell(what: &str, start: Instant, count: u64) {
    let each = start.elapsed().as_nanos() / u128::from(count.max(1));
    println!("{what}: {each} ns each");
}

fn main() {
    let mut groups = Groups::new();
    assert!(groups.create(b"g", StreamId::MIN, None), "it is new");
    let one = groups.edit(b"g", |group| group.create_consumer(b"one", 0)).flatten();
    let two = groups.edit(b"g", |group| group.create_consumer(b"two", 0)).flatten();
    let pending = |step, consumer| Pending {
        id: id(step),
        delivered_ms: id(step).ms + 100,
        times: 1,
        consumer,
    };
    let start = Instant::now();
    for step in 0..ENTRIES {
        groups.edit(b"g", |group| group.put(&pending(step, one)));
    }
    tell("delivered in order", start, ENTRIES);
    println!("bytes each: {:.1}", groups.memory_bytes() as f64 / ENTRIES as f64);
    let start = Instant::now();
    for step in 0..ENTRIES {
        groups.edit(b"g", |group| group.put(&pending(step.wrapping_mul(7_919) % ENTRIES, two)));
    }
    tell("claimed at random", start, ENTRIES);
    let cut = groups.clone();
    let start = Instant::now();
    groups.edit(b"g", |group| group.remove(id(ENTRIES / 2)));
    tell("first acknowledged after a cut", start, 1);
    drop(cut);
    let start = Instant::now();
    for step in 0..ENTRIES / 2 {
        groups.edit(b"g", |group| group.remove(id(step)));
    }
    tell("acknowledged in order", start, ENTRIES / 2);
    let start = Instant::now();
    assert!(groups.destroy(b"g"), "it is there");
    tell("destroyed", start, 1);
    let start = Instant::now();
    while lazyfree::run(&Never) {}
    tell("freed", start, 1);
}
