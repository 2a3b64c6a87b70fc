//! What do a subscriber to effects, and the removals that it receives, add to a change?
//!
//! `cargo run --release -p darter-families --example listener_cost -- [OPERATIONS] [ROUNDS]` makes
//! changes of one kind, on one shard, in rounds without and with a listener in turn; the listener
//! takes what was recorded after every [`TURN`] changes and drops it. Printed are nanoseconds of
//! CPU time an operation: the median round, and the lowest and the highest. No network, no
//! commands: the methods of the database only.

use darter_base::{lazyfree, preempt::Never};
use darter_families::hash::{Hash, HashEdit};
use darter_keyspace::{Deadline, Fresh, Key, Shard};
use std::io;

/// Changes in one turn of a core.
const TURN: usize = 32;
const NOW: u64 = 1_700_000_000_000;
/// Fields of each of the hashes that are changed or that die.
const FIELDS: usize = 1_000;

/// A kind of change: what is there before a round, and one operation of it.
struct Kind {
    name: &'static str,
    prepare: fn(&mut Shard, usize),
    /// Makes the changes with these numbers.
    change: fn(&mut Shard, std::ops::Range<usize>),
}

#[rustfmt::skip] // A table.
const KINDS: &[Kind] = &[
    Kind { name: "SET, 16 bytes, over another", prepare: set_all, change: set },
    Kind { name: "SET, 16 bytes, a new key", prepare: |_, _| {}, change: set },
    Kind { name: "HSET, one field, over another", prepare: hset_all, change: hset },
    Kind { name: "a key that dies", prepare: expiring_keys, change: reap },
    Kind { name: "a field that dies", prepare: expiring_fields, change: reap },
    Kind { name: "GET of a key that is not there", prepare: |_, _| {}, change: miss },
];

fn main() -> io::Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let operations = numbers.next().unwrap_or(1_000);
    let rounds = numbers.next().unwrap_or(3);
    println!("{operations} operations a round, {rounds} rounds of each, ns of CPU time each");
    println!("| change | no listener | listener |\n|---|---|---|");
    for kind in KINDS {
        let mut cells = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (listening, rounds) in [false, true].into_iter().zip(&mut cells) {
                rounds.push(round(kind, operations, listening)?);
            }
        }
        let [without, with] = cells.map(shown);
        println!("| {} | {without} | {with} |", kind.name);
    }
    Ok(())
}

/// The nanoseconds that an operation takes in one round.
fn round(kind: &Kind, operations: usize, listening: bool) -> io::Result<u64> {
    let mut shard = Shard::new(16, 1);
    shard.set_now(NOW);
    (kind.prepare)(&mut shard, operations);
    shard.set_now(NOW + 1_000);
    shard.listen(listening);
    shard.hear_misses(listening);
    let (mut records, begun) = (0, cpu_ns()?);
    for from in (0..operations).step_by(TURN) {
        (kind.change)(&mut shard, from..operations.min(from + TURN));
        records += shard.take_records().len();
        while lazyfree::run(&Never) {}
    }
    let ns = cpu_ns()? - begun;
    assert_eq!(records > 0, listening, "{}: {records} records", kind.name);
    Ok(ns / operations as u64)
}

/// The median, the lowest and the highest.
fn shown(mut rounds: Vec<u64>) -> String {
    rounds.sort_unstable();
    let (low, high) = (rounds[0], rounds[rounds.len() - 1]);
    format!("{} ({low} to {high})", rounds[rounds.len() / 2])
}

/// Nanoseconds for which this thread has had a processor.
fn cpu_ns() -> io::Result<u64> {
    std::thread::yield_now(); // Else it is what it was at the last tick, up to 4 ms ago.
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split(' ').next().and_then(|text| text.parse().ok());
    first.ok_or_else(|| io::Error::other("schedstat begins with a number"))
}

fn name(at: usize) -> [u8; 16] {
    let mut name = *b"key:000000000000";
    let digits = at.to_string();
    name[16 - digits.len()..].copy_from_slice(digits.as_bytes());
    name
}

fn set_all(shard: &mut Shard, count: usize) {
    set(shard, 0..count);
}

fn set(shard: &mut Shard, keys: std::ops::Range<usize>) {
    for at in keys {
        let (name, value) = (name(at), name(at + 1));
        shard.db_mut(0).set_text(&Key::new(&name), Fresh::Bytes(&value), Deadline::Clear);
    }
}

fn hset_all(shard: &mut Shard, count: usize) {
    hset(shard, 0..count);
}

fn hset(shard: &mut Shard, fields: std::ops::Range<usize>) {
    set_fields(shard, fields, Deadline::Clear);
}

fn set_fields(shard: &mut Shard, fields: std::ops::Range<usize>, deadline: Deadline) {
    for at in fields {
        let (name, field) = (name(at / FIELDS), name(at));
        let set = |hash: &mut HashEdit<'_>| {
            hash.set(&field, Fresh::Bytes(&field), deadline);
        };
        shard.db_mut(0).edit::<Hash, _>(&Key::new(&name), true, set).expect("it is a hash");
    }
}

fn expiring_keys(shard: &mut Shard, count: usize) {
    for at in 0..count {
        let name = name(at);
        let deadline = Deadline::At(NOW + 1);
        shard.db_mut(0).set_text(&Key::new(&name), Fresh::Bytes(&name), deadline);
    }
}

fn expiring_fields(shard: &mut Shard, count: usize) {
    set_fields(shard, 0..count, Deadline::At(NOW + 1));
}

/// About as many die as the range has.
fn reap(shard: &mut Shard, dead: std::ops::Range<usize>) {
    shard.reap(dead.len());
}

fn miss(shard: &mut Shard, keys: std::ops::Range<usize>) {
    for at in keys {
        assert!(shard.db_mut(0).find(&Key::new(&name(at))).is_none(), "nothing is there");
    }
}
