//! Measures sorted sets: memory, time of each operation, cuts. The numbers in
//! docs/design/0016-sorted-sets.md come from here.
//!
//! `cargo run --release -p darter-structs --example sorted_bench [CASE] [MEMBERS]`
//!
//! Times are the CPU time of this thread: what other processes do adds to them only by what it does to
//! caches.

use darter_base::preempt::Countdown;
use darter_base::{Prng, hash};
use darter_structs::lazyfree;
use darter_structs::sorted::{Builder, End, Place, Reader, Sorted};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::io::Write;

#[global_allocator] // The server's.
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Case = fn(u64);

fn main() {
    let mut args = std::env::args().skip(1);
    let case = args.next();
    let members = args.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let cases: [(&str, Case); 5] =
        [("memory", memory), ("speed", speed), ("bulk", bulk), ("cut", cut), ("small", small)];
    for (name, run) in cases {
        if case.as_deref().is_none_or(|case| case == name) {
            println!("== {name}, {members} members");
            run(members);
        }
    }
}

fn mixed(number: u64) -> u64 {
    Prng::from_seed(number).next_u64()
}

/// A random number in 0..1, with all its digits.
fn fraction(number: u64) -> f64 {
    (mixed(number) >> 11) as f64 / (1_u64 << 53) as f64
}

type Kind = (&'static str, fn(u64) -> f64);

const KINDS: [Kind; 4] = [
    ("random fractions", fraction),
    ("integers below 10^6", |n| (mixed(n) % 1_000_000) as f64),
    ("times in order", |n| (1_763_000_000_000 + n * 17) as f64),
    ("all the same", |_| 1.0),
];

/// Calls `f` with the name of a member, and its hash.
fn named<R>(number: u64, f: impl FnOnce(u64, &[u8]) -> R) -> R {
    let mut name = [0; 32];
    let mut rest = &mut name[..];
    write!(rest, "member:{number}").expect("it has room");
    let left = rest.len();
    let name = &name[..32 - left];
    f(hash::of(name), name)
}

fn set_of(kind: Kind, members: u64) -> Sorted {
    let mut set = Sorted::new();
    (0..members).for_each(|n| _ = named(n, |hash, name| set.insert(hash, name, kind.1(n))));
    set
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Question: how many bytes a member, and how long does it take to fill and to free a set?
fn memory(members: u64) {
    for kind in KINDS {
        let (before, begin) = (resident_bytes(), cpu_ns());
        let set = set_of(kind, members);
        let (resident, filled) = (resident_bytes().saturating_sub(before), cpu_ns() - begin);
        println!(
            "{:20} {:6.2} B counted, {:6.2} B resident: {:.1} MiB; {:.0} ns to add",
            kind.0,
            set.memory_bytes() as f64 / members as f64,
            resident as f64 / members as f64,
            resident as f64 / f64::from(1 << 20),
            filled as f64 / members as f64,
        );
        let begin = cpu_ns();
        drop(set);
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

/// Question: what do additions, changes, look-ups and ranges cost?
fn speed(members: u64) {
    for kind in [KINDS[0], KINDS[1], KINDS[3]] {
        println!("-- {}", kind.0);
        let mut set = set_of(kind, members);
        let (rounds, mut sum) = (members.min(1_000_000), 0);
        let random = |n: u64| mixed(n ^ 0x5a) % members;
        timed("score", rounds, |n| {
            sum += usize::from(named(random(n), |hash, name| set.score(hash, name)).is_some());
        });
        timed("score of who is not there", rounds, |n| {
            sum += usize::from(named(n + members, |hash, name| set.score(hash, name)).is_some());
        });
        timed("rank", rounds, |n| {
            sum += named(random(n), |hash, name| set.rank(hash, name)).map_or(0, |one| one.0);
        });
        timed("count between two scores", rounds, |n| {
            let score = kind.1(random(n));
            sum += set.rank_of(Place::AfterScore(score)) - set.rank_of(Place::BeforeScore(score));
        });
        timed("range of 100, random", rounds / 20, |n| {
            let at = random(n) as usize;
            set.range(at..at + 100).for_each(|one| sum += one.member().len());
        });
        timed("100 in reverse, random", rounds / 20, |n| {
            let at = random(n) as usize;
            set.range_back(at..at + 100).for_each(|one| sum += one.member().len());
        });
        let mut reader = Reader::new(set.reader(), 0..usize::MAX, End::Front);
        timed("read, slices of 1000 (each)", members / 1_000, |_| {
            reader.next_slice(1_000, &mut |one| sum += one.member().len());
        });
        drop(reader);
        timed("add 1 to a score", rounds, |n| {
            named(random(n), |hash, name| {
                set.update(hash, name, |old| Some(old.unwrap_or(0.0) + 1.0))
            });
        });
        timed("another score", rounds, |n| {
            named(random(n), |hash, name| set.insert(hash, name, kind.1(n + 77)));
        });
        prefetched(&mut set, kind, rounds);
        timed("remove a range of 1000, settled", 100, |n| {
            let at = mixed(n) as usize % set.len().saturating_sub(1_000).max(1);
            set.remove_range(at..at + 1_000);
            while set.settle(100) {}
        });
        timed("pop the lowest", rounds / 10, |_| {
            sum += set.pop(End::Front, |one| one.member().len()).unwrap_or(0);
        });
        timed("remove", rounds / 2, |n| {
            sum += usize::from(named(n, |hash, name| set.remove(hash, name)).is_some());
        });
        println!("{:34} {:8.2} B", "then", set.memory_bytes() as f64 / set.len() as f64);
        black_box(sum);
        drop(set);
        free();
    }
}

/// Question: what do look-ups and changes cost that are prefetched by the dozen?
fn prefetched(set: &mut Sorted, kind: Kind, rounds: u64) {
    let (members, mut sum) = (set.len() as u64, 0);
    let random = |n: u64| mixed(n ^ 0x5a) % members;
    timed("rank, 16 prefetched (each)", rounds / 16, |n| {
        let batch: [u64; 16] = std::array::from_fn(|at| random(n * 16 + at as u64));
        let hashes = batch.map(|number| named(number, |hash, _| hash));
        hashes.iter().for_each(|hash| set.prefetch(*hash));
        set.prefetch_entries(&hashes);
        for number in batch {
            sum += named(number, |hash, name| set.rank(hash, name)).map_or(0, |one| one.0);
        }
    });
    timed("another score, 16 prefetched (each)", rounds / 16, |n| {
        let batch: [u64; 16] = std::array::from_fn(|at| n * 16 + at as u64);
        let score = |number| kind.1(number + 177);
        set.prefetch_all(
            &batch.map(|number| named(random(number), |hash, _| (score(number), hash))),
        );
        for number in batch {
            named(random(number), |hash, name| set.insert(hash, name, score(number)));
        }
    });
    black_box(sum);
}

/// Question: what does it cost to build at once what comes in any order, and how long is a step?
fn bulk(members: u64) {
    for kind in KINDS {
        let begin = cpu_ns();
        let mut builder = Builder::new(members as usize);
        for number in 0..members {
            named(number, |hash, name| builder.push(hash, name, kind.1(number)));
        }
        let pushed = cpu_ns();
        let (mut longest, mut more) = (0, true);
        while more {
            let before = cpu_ns();
            more = builder.step(&|old, _| old);
            longest = longest.max(cpu_ns() - before);
        }
        let set = builder.finish();
        let each = |ns: u64| ns as f64 / members as f64;
        println!(
            "{:20} {:6.2} B; {:.0} ns to gather, {:.0} ns to sort; the longest step {longest} ns",
            kind.0,
            set.memory_bytes() as f64 / members as f64,
            each(pushed - begin),
            each(cpu_ns() - pushed),
        );
        drop(set);
        free();
    }
}

/// Question: what do a cut, the first write after it, and removing half cost?
fn cut(members: u64) {
    let mut set = set_of(KINDS[0], members);
    let mut cut = set.clone();
    timed("cut", 1_000, |_| cut = set.clone());
    let write = |set: &mut Sorted, n: u64| {
        named(mixed(n) % members, |hash, name| set.insert(hash, name, fraction(n + 99)));
    };
    for name in ["first write after it", "second"] {
        timed(name, 1, |n| write(&mut set, n + 1_000_000));
    }
    timed("20 000 writes after it", 20_000, |n| write(&mut set, n));
    drop(cut);
    free();
    timed("remove half, in the middle", 1, |_| {
        set.remove_range(members as usize / 4..members as usize * 3 / 4);
    });
    let (begin, mut longest, mut portions) = (cpu_ns(), 0, 0_u64);
    loop {
        let before = cpu_ns();
        let more = set.settle(64);
        longest = longest.max(cpu_ns() - before);
        portions += 1;
        if !more {
            break;
        }
    }
    let took = (cpu_ns() - begin) / 1_000;
    println!("settled in {took} us, {portions} portions, the longest {longest} ns");
    timed("drop", 1, |_| drop(std::mem::take(&mut set)));
    println!("freed in {} us", free());
}

/// Question: what do small sets cost, and is there a cliff?
fn small(_: u64) {
    for len in [1, 5, 20, 100, 120, 200, 400, 1_000, 5_000, 20_000] {
        let mut line = format!("{len:6} members:");
        for kind in KINDS {
            let (mut set, rounds) = (Sorted::new(), 100_000 / len + 1);
            let begin = cpu_ns();
            (0..rounds).for_each(|_| set = set_of(kind, len));
            let add = (cpu_ns() - begin) as f64 / (rounds * len) as f64;
            let (begin, mut sum) = (cpu_ns(), 0);
            for n in 0..100_000 {
                let at = mixed(n) % len;
                sum += named(at, |hash, name| set.rank(hash, name)).map_or(0, |one| one.0);
            }
            let rank = (cpu_ns() - begin) as f64 / 100_000.0;
            black_box(sum);
            let per = set.memory_bytes() as f64 / len as f64;
            line += &format!("  {}: {per:5.1} B, add {add:3.0}, rank {rank:3.0} ns;", kind.0);
        }
        println!("{line}");
    }
}
