//! Measures the entries of streams: memory, time of each operation, cuts. The numbers in
//! docs/design/0018-streams.md come from here.
//!
//! `cargo run --release -p darter-structs --example stream_bench [CASE] [ENTRIES]`
//!
//! Times are the CPU time of this thread: other processes add to it only by what they do to caches.

use darter_base::Prng;
use darter_base::preempt::Countdown;
use darter_structs::lazyfree;
use darter_structs::stream::{End, Entries, New, Reader, StreamId};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

#[global_allocator] // The server's.
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Case = fn(u64);

fn main() {
    let mut args = std::env::args().skip(1);
    let case = args.next();
    let entries = args.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let cases: [(&str, Case); 4] =
        [("memory", memory), ("speed", speed), ("cut", cut), ("small", small)];
    for (name, run) in cases {
        if case.as_deref().is_none_or(|case| case == name) {
            println!("== {name}, {entries} entries");
            run(entries);
        }
    }
}

fn mixed(number: u64) -> u64 {
    Prng::from_seed(number).next_u64()
}

/// How IDs and fields are made.
struct Kind {
    name: &'static str,
    id: fn(u64) -> StreamId,
    /// Shapes that take turns.
    shapes: u64,
}

const KINDS: [Kind; 3] = [
    Kind { name: "17 ms apart", id: |n| StreamId::new(START + 17 * n, 0), shapes: 1 },
    Kind {
        name: "1 000 a millisecond",
        id: |n| StreamId::new(START + n / 1_000, n % 1_000),
        shapes: 1,
    },
    Kind { name: "three shapes in turn", id: |n| StreamId::new(START + 17 * n, 0), shapes: 3 },
];
const START: u64 = 1_763_000_000_000;

fn add(entries: &mut Entries, kind: &Kind, n: u64) {
    let names = [[&b"sensor"[..], b"value"], [b"user", b"action"], [b"level", b"message"]];
    let [first, second] = names[(n % kind.shapes) as usize];
    let (one, other) = ((n % 100).to_string(), mixed(n) % 1_000_000);
    let other = other.to_string();
    let fields = [first, one.as_bytes(), second, other.as_bytes()];
    entries.append((kind.id)(n), fields.into_iter().map(New::Bytes));
}

fn stream_of(kind: &Kind, entries: u64) -> Entries {
    let mut stream = Entries::new();
    (0..entries).for_each(|n| add(&mut stream, kind, n));
    stream
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Question: how many bytes an entry, and how long does it take to fill and to free a stream?
fn memory(entries: u64) {
    for kind in &KINDS {
        let (before, begin) = (resident_bytes(), cpu_ns());
        let stream = stream_of(kind, entries);
        let (resident, filled) = (resident_bytes().saturating_sub(before), cpu_ns() - begin);
        println!(
            "{:20} {:6.2} B counted, {:6.2} B resident: {:.1} MiB; {:.0} ns to add",
            kind.name,
            stream.memory_bytes() as f64 / entries as f64,
            resident as f64 / entries as f64,
            resident as f64 / f64::from(1 << 20),
            filled as f64 / entries as f64,
        );
        let begin = cpu_ns();
        drop(stream);
        println!("{:20} dropped in {} ns, freed in {} us", "", cpu_ns() - begin, free());
    }
}

/// Frees what waits; microseconds.
fn free() -> u64 {
    let begin = cpu_ns();
    while lazyfree::run(&Countdown::new(100)) {}
    (cpu_ns() - begin) / 1_000
}

/// Nanoseconds that this thread has run: other processes do not count, page faults do.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Times `count` runs of `step`.
fn timed(name: &str, count: u64, mut step: impl FnMut(u64)) {
    let begin = cpu_ns();
    (0..count).for_each(&mut step);
    println!("{name:34} {:8.1} ns", (cpu_ns() - begin) as f64 / count as f64);
}

/// Question: what do additions, look-ups, ranges and removals cost?
fn speed(entries: u64) {
    let kind = &KINDS[0];
    let mut stream = stream_of(kind, entries);
    let (rounds, mut sum) = (entries.min(1_000_000), 0);
    let random = |n: u64| mixed(n ^ 0x5a) % entries;
    timed("rank of an ID", rounds, |n| sum += stream.rank_of((kind.id)(random(n))));
    timed("entry by ID", rounds, |n| {
        sum += stream.get((kind.id)(random(n))).map_or(0, |entry| entry.pairs());
    });
    timed("range of 100, random", rounds / 20, |n| {
        let at = random(n) as usize;
        stream.range(at..at + 100).for_each(|one| sum += one.fields().count());
    });
    timed("100 in reverse, random", rounds / 20, |n| {
        let at = random(n) as usize;
        stream.range_back(at..at + 100).for_each(|one| sum += one.fields().count());
    });
    let mut reader = Reader::new(stream.reader(), 0..usize::MAX, End::Front);
    timed("read, slices of 1000 (each)", entries / 1_000, |_| {
        reader.next_slice(1_000, &mut |one| sum += one.fields().count());
    });
    drop(reader);
    timed("add one, trim one", rounds, |n| {
        add(&mut stream, kind, entries + n);
        stream.remove_range(0..1);
    });
    timed("add 100, trim 100", rounds / 100, |n| {
        (0..100).for_each(|at| add(&mut stream, kind, entries + rounds + 100 * n + at));
        stream.remove_range(0..100);
    });
    timed("remove one, random", entries / 2, |n| {
        sum += usize::from(stream.remove((kind.id)(2 * rounds + random(n) / 2)));
    });
    println!("{:34} {:8.2} B", "then", stream.memory_bytes() as f64 / stream.len() as f64);
    black_box(sum);
}

/// Question: what do a cut, the first write after it, and trimming half cost?
fn cut(entries: u64) {
    let kind = &KINDS[0];
    let mut stream = stream_of(kind, entries);
    let mut cut = stream.clone();
    timed("cut", 1_000, |_| cut = stream.clone());
    for (n, name) in ["first entry after it", "second"].into_iter().enumerate() {
        timed(name, 1, |_| add(&mut stream, kind, entries + n as u64));
    }
    timed("20 000 more", 20_000, |n| add(&mut stream, kind, entries + 2 + n));
    drop(cut);
    free();
    timed("trim half", 1, |_| stream.remove_range(0..entries as usize / 2));
    println!("freed in {} us", free());
}

/// Question: what do small streams cost?
fn small(_: u64) {
    for len in [1, 5, 20, 100, 200, 1_000] {
        let stream = stream_of(&KINDS[0], len);
        let bytes = stream.memory_bytes();
        println!("{len:6} entries: {bytes} B, {:5.1} each", bytes as f64 / len as f64);
    }
}
