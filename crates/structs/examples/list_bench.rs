//! The list's bench: how many bytes and nanoseconds an element costs, and how long the longest
//! single step takes.
//!
//! `cargo run --release -p darter-structs --example list_bench -- [case] [elements]`
//! Cases: `memory`, `speed`, `search`, `middle`, `cut`, `small`; all of them without an argument,
//! with a million elements. What came out is in docs/design/0015-lists.md. Times are those of this
//! thread's own running.

use darter_base::Prng;
use darter_base::preempt::Countdown;
use darter_structs::lazyfree;
use darter_structs::list::{End, List, Needle, New, Progress, Reader, Removal, Search};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

#[global_allocator] // The server's.
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Case = fn(u64);

fn main() {
    let mut args = std::env::args().skip(1);
    let case = args.next();
    let elements = args.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let cases: [(&str, Case); 6] = [
        ("memory", memory),
        ("speed", speed),
        ("search", search),
        ("middle", middle),
        ("cut", cut),
        ("small", small),
    ];
    for (name, run) in cases {
        if case.as_deref().is_none_or(|case| case == name) {
            println!("== {name}, {elements} elements");
            run(elements);
        }
    }
}

fn mixed(number: u64) -> u64 {
    Prng::from_seed(number).next_u64()
}

fn uuid(number: u64) -> Vec<u8> {
    let (high, low) = (mixed(number), mixed(!number));
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    let (d, e) = (low >> 48 & 0xfff, low & ((1 << 48) - 1));
    format!("{a:08x}-{b:04x}-4{c:03x}-8{d:03x}-{e:012x}").into_bytes()
}

type Kind = (&'static str, fn(u64) -> Vec<u8>);

const KINDS: [Kind; 4] = [
    ("integers in order", |n| n.to_string().into_bytes()),
    ("integers below 10^9", |n| (mixed(n) % 1_000_000_000).to_string().into_bytes()),
    ("UUIDs", uuid),
    ("element:N", |n| format!("element:{n}").into_bytes()),
];

fn list_of(kind: Kind, elements: u64) -> List {
    let mut list = List::new();
    (0..elements).for_each(|n| list.push(End::Back, &*kind.1(n)));
    list
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Question: how many bytes an element?
fn memory(elements: u64) {
    let mut kept = Vec::new(); // What is freed may stay resident.
    for kind in KINDS {
        let before = resident_bytes();
        let list = list_of(kind, elements);
        let resident = resident_bytes() - before;
        println!(
            "{:20} {:6.2} B counted, {:6.2} B resident: {:.1} MiB",
            kind.0,
            list.memory_bytes() as f64 / elements as f64,
            resident as f64 / elements as f64,
            resident as f64 / f64::from(1 << 20),
        );
        kept.push((kind.0, list));
    }
    for (name, list) in kept {
        let begin = cpu_ns();
        drop(list);
        println!("{name:20} dropped in {} ns, freed in {} us", cpu_ns() - begin, free());
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

/// Question: what do the ends, an index and a range cost?
fn speed(elements: u64) {
    for kind in [KINDS[0], KINDS[2], KINDS[3]] {
        println!("-- {}", kind.0);
        let made: Vec<_> = (0..elements).map(kind.1).collect();
        let made = |n: u64| &*made[n as usize];
        for (end, name) in [(End::Back, "push, back"), (End::Front, "push, front")] {
            let mut list = List::new();
            timed(name, elements, |n| list.push(end, made(n)));
        }
        let mut list = list_of(kind, elements);
        let mut sum = 0;
        timed("index, random", 1_000_000, |n| {
            sum += list.get((mixed(n) % elements) as usize).map_or(0, |one| one.len());
        });
        let hundreds = (elements / 100).min(1_000_000);
        timed("range of 100, random", hundreds, |n| {
            let at = (mixed(n) % elements) as usize;
            list.range(at..at + 100).for_each(|one| sum += one.len());
        });
        timed("range of 100, at the front", hundreds, |_| {
            list.range(0..100).for_each(|one| sum += one.len());
        });
        timed("100 in reverse, random", hundreds, |n| {
            let at = (mixed(n) % elements) as usize;
            list.range_back(at..at + 100).for_each(|one| sum += one.len());
        });
        let mut reader = Reader::new(list.reader(), 0..usize::MAX);
        timed("read, slices of 1000 (each)", elements / 1_000, |_| {
            reader.next_slice(1_000, &mut |one| sum += one.len());
        });
        drop(reader);
        timed("push and pop, a queue", elements, |n| {
            list.push(End::Back, made(n));
            sum += list.pop(End::Front, |one| one.len()).unwrap_or(0);
        });
        for (end, name) in [(End::Back, "pop, back"), (End::Front, "pop, front")] {
            timed(name, elements / 2, |_| {
                sum += list.pop(end, |one| one.len()).unwrap_or(0);
            });
        }
        black_box(sum);
    }
}

/// Question: how long does it take to look for a value that is not there, and to remove one that is
/// everywhere?
fn search(elements: u64) {
    for kind in KINDS {
        let mut list = list_of(kind, elements);
        let absent = kind.1(elements + 7);
        let mut search = Search::new(Needle::new(New::Bytes(&absent)), 0..list.len(), End::Front);
        let begin = cpu_ns();
        loop {
            let mut budget = 16;
            assert!(search.next(&list, &mut budget).is_none(), "it is absent");
            if budget > 0 {
                break;
            }
        }
        let took = cpu_ns() - begin;
        let per = took as f64 / elements as f64;
        println!("{:20} absent: {:.1} ms, {per:.2} ns each", kind.0, took as f64 / 1e6);
        let (begin, mut longest) = (cpu_ns(), 0);
        let mut removal =
            Removal::new(&list, Needle::new(New::Bytes(&absent)), usize::MAX, End::Back);
        while removal.next_slice(&mut list, 16, &mut |_| {}) == Progress::More {}
        println!("{:20} removal of it: {:.1} ms", "", (cpu_ns() - begin) as f64 / 1e6);
        for index in (0..list.len()).step_by(3) {
            list.set(index, &b"7"[..]);
        }
        let (mut aside, begin) = (list.clone(), cpu_ns());
        let mut removal =
            Removal::new(&list, Needle::new(New::Bytes(b"7")), usize::MAX, End::Front);
        loop {
            let before = cpu_ns();
            let progress = removal.next_slice(&mut aside, 2, &mut |_| {});
            longest = longest.max(cpu_ns() - before);
            if progress == Progress::Done {
                break;
            }
        }
        println!(
            "{:20} removal of every third, beside a cut: {:.1} ms for {}, longest two runs {longest} ns",
            "",
            (cpu_ns() - begin) as f64 / 1e6,
            removal.removed(),
        );
        drop((list, aside));
        free();
    }
}

/// Question: what does a change in the middle cost, and how well do chunks stay filled?
fn middle(elements: u64) {
    let kind = KINDS[0];
    let mut list = list_of(kind, elements / 2);
    let random = |n: u64, list: &List| (mixed(n) % list.len() as u64) as usize;
    timed("set, random", elements / 2, |n| list.set(random(n, &list), &b"1234567"[..]));
    timed("insert, random", elements / 2, |n| list.insert(random(n, &list), &b"1234567"[..]));
    let per = |list: &List| list.memory_bytes() as f64 / list.len() as f64;
    println!("{:34} {:8.2} B each", "then", per(&list));
    timed("remove, random", elements * 9 / 10, |n| list.remove(random(n, &list)));
    println!("{:34} {:8.2} B each", "then", per(&list));
    timed("insert, at one place", elements / 2, |_| list.insert(list.len() / 2, &b"1234567"[..]));
    println!("{:34} {:8.2} B each", "then", per(&list));
    timed("remove a range of 5000, random", list.len() as u64 / 20_000, |n| {
        let at = random(n, &list);
        list.remove_range(at..at + 5_000);
    });
}

/// Question: what do a cut, the first write after it, cutting off half and freeing cost?
fn cut(elements: u64) {
    let mut list = list_of(KINDS[0], elements);
    let mut cut = list.clone();
    timed("cut", 1_000, |_| cut = list.clone());
    for name in ["first write after it", "second"] {
        timed(name, 1, |_| list.set(elements as usize / 2, &b"7"[..]));
    }
    timed("20 000 writes after it", 20_000, |n| {
        list.set((mixed(n) % elements) as usize, &b"7"[..]);
    });
    drop(cut);
    free();
    timed("cut off half, in the middle", 1, |_| {
        list.remove_range(elements as usize / 4..elements as usize * 3 / 4);
    });
    timed("drop", 1, |_| drop(std::mem::take(&mut list)));
    let (begin, mut longest, mut portions) = (cpu_ns(), 0, 0);
    loop {
        let before = cpu_ns();
        let more = lazyfree::run(&Countdown::new(0));
        longest = longest.max(cpu_ns() - before);
        portions += 1;
        if !more {
            break;
        }
    }
    let took = (cpu_ns() - begin) / 1_000;
    println!("freed in {took} us, {portions} portions, the longest {longest} ns");
}

/// Question: what do small lists cost, and is there a cliff?
fn small(_: u64) {
    for len in [1, 5, 20, 100, 200, 400, 512, 600, 1_000, 2_000, 5_000, 20_000] {
        let mut line = format!("{len:6} elements:");
        for kind in [KINDS[0], KINDS[2], KINDS[3]] {
            let made: Vec<_> = (0..len).map(kind.1).collect();
            let (mut list, rounds) = (List::new(), 200_000 / len + 1);
            let begin = cpu_ns();
            for _ in 0..rounds {
                list = List::new();
                made.iter().for_each(|bytes| list.push(End::Front, &**bytes));
            }
            let push = (cpu_ns() - begin) as f64 / (rounds * len) as f64;
            let (begin, mut sum) = (cpu_ns(), 0);
            for n in 0..200_000 {
                sum += list.get((mixed(n) % len) as usize).map_or(0, |one| one.len());
            }
            let index = (cpu_ns() - begin) as f64 / 200_000.0;
            black_box(sum);
            let per = list.memory_bytes() as f64 / len as f64;
            line += &format!("  {}: {per:5.1} B, push {push:3.0}, index {index:3.0} ns;", kind.0);
        }
        println!("{line}");
    }
}
