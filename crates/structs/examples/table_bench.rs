//! The table's benchmark: bytes and nanoseconds an entry, and the longest single step.
//!
//! `cargo run --release -p darter-structs --example table_bench -- [case] [entries]`
//! Cases: `memory`, `speed`, `tail`, `bulk`, `cut`, `expire`, `small`; without an argument all of them,
//! with a million entries. Results are in docs/design/0001-segment-table.md.

use darter_base::{Prng, hash};
use darter_structs::table::{Builder, Never, New, Reader, Table};
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator] // The server's.
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut args = std::env::args().skip(1);
    let case = args.next();
    let entries = args.next().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let cases: [(&str, Case); 7] = [
        ("memory", memory),
        ("speed", speed),
        ("tail", tail),
        ("bulk", bulk),
        ("cut", cut),
        ("expire", expire),
        ("small", small),
    ];
    for (name, run) in cases {
        if case.as_deref().is_none_or(|case| case == name) {
            println!("== {name}, {entries} entries");
            run(entries);
        }
    }
}

type Case = fn(u64);

fn mixed(number: u64) -> u64 {
    Prng::from_seed(number).next_u64()
}

fn uuid(number: u64) -> Vec<u8> {
    let (high, low) = (mixed(number), mixed(!number));
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    let text = format!(
        "{a:08x}-{b:04x}-4{c:03x}-8{:03x}-{:012x}",
        low >> 48 & 0xfff,
        low & ((1 << 48) - 1)
    );
    text.into_bytes()
}

fn reason(number: u64) -> [u8; 12] {
    let mut text = *b"reason......";
    for (at, byte) in text[6..].iter_mut().enumerate() {
        *byte = b'a' + (mixed(number) >> (at * 8)) as u8 % 26;
    }
    text
}

/// Makes the nth key and value.
type Make = fn(u64) -> (Vec<u8>, Vec<u8>);

#[rustfmt::skip] // A table.
const KINDS: [(&str, Make); 4] = [
    ("uuid -> 12 bytes",     |n| (uuid(n), reason(n).to_vec())),
    ("UUID as text -> 12",   |n| (uuid(n).to_ascii_uppercase(), reason(n).to_vec())),
    ("key:N -> 16 bytes",    |n| (format!("key:{n}").into_bytes(), format!("value:{n:0>10}").into_bytes())),
    ("integers, no value",   |n| (n.to_string().into_bytes(), Vec::new())),
];

fn add(table: &mut Table<Never>, key: &[u8], value: &[u8]) {
    table.insert(hash::of(key), key, New::Bytes(value), None, 0);
}

/// How many bytes an entry, on average and at worst, while a table grows tenfold?
fn memory(entries: u64) {
    for (name, make) in KINDS {
        let mut table = Table::new();
        let (mut least, mut most, mut sum, mut samples) = (f64::MAX, 0_f64, 0.0, 0.0);
        for number in 0..entries {
            let (key, value) = make(number);
            add(&mut table, &key, &value);
            if number * 10 >= entries && number % (entries / 1000).max(1) == 0 {
                let per = table.memory_bytes() as f64 / table.len() as f64;
                (least, most) = (least.min(per), most.max(per));
                (sum, samples) = (sum + per, samples + 1.0);
            }
        }
        let fill = table.fill_report();
        let share = fill.entries as f64 / fill.slots.max(1) as f64;
        println!(
            "{name:20} mean {:5.1} ({least:.1}-{most:.1}) B; at the end {} segments, {} entries \
             at most, {:.1} pages, fill {share:.2}",
            sum / samples,
            fill.segments,
            fill.entries_max,
            fill.pages as f64 / fill.segments.max(1) as f64,
        );
        println!("{:20} resident {:.1} B", "", resident_bytes() as f64 / entries as f64);
        drop(table);
    }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Times `count` runs of `step`: nanoseconds each, and how long eight in a row took, since reading
/// the clock costs 30 ns. On a shared machine, trust the percentiles.
fn timed(name: &str, count: u64, mut step: impl FnMut(u64)) {
    let mut eights = Vec::with_capacity(count as usize / 8);
    let begin = Instant::now();
    let mut before = begin;
    for number in 0..count {
        step(number);
        if number % 8 == 7 {
            let now = Instant::now();
            eights.push((now - before).as_nanos() as u32);
            before = now;
        }
    }
    let per = begin.elapsed().as_nanos() as f64 / count as f64;
    eights.sort_unstable();
    let at = |share: f64| eights.get((eights.len() as f64 * share) as usize).copied();
    let [half, p99, p999, p9999] =
        [0.5, 0.99, 0.999, 0.9999].map(|share| f64::from(at(share).unwrap_or(0)) / 1e3);
    let max = f64::from(eights.last().copied().unwrap_or(0)) / 1e3;
    println!(
        "{name:28} {per:7.1} ns; eight took p50 {half:.2}, p99 {p99:.1}, p99.9 {p999:.1}, p99.99 \
         {p9999:.1}, max {max:.0} us"
    );
}

/// What do insert, get, iterate, remove cost in a table that fits no cache?
fn speed(entries: u64) {
    for (name, make) in [KINDS[0], KINDS[2], KINDS[3]] {
        println!("-- {name}");
        let made: Vec<_> = (0..entries).map(make).collect();
        let mut table = Table::new();
        timed("insert", entries, |n| {
            let (key, value) = &made[n as usize];
            add(&mut table, key, value);
        });
        // The sample is in memory in its own order: only the table's misses are timed.
        let sample: Vec<_> =
            (0..entries.min(3_000_000)).map(|n| make(mixed(n) % entries).0).collect();
        let finds = sample.len() as u64;
        let mut hits = 0_u64;
        timed("get, random", finds, |n| {
            let key = &sample[n as usize];
            hits += u64::from(table.get(hash::of(key), key).is_some());
        });
        timed("get, batches of 16 (all)", finds / 16, |n| {
            let keys = &sample[n as usize * 16..][..16];
            let hashes: [u64; 16] = std::array::from_fn(|at| hash::of(&keys[at]));
            hashes.iter().for_each(|&hash| table.prefetch(hash));
            hashes.iter().for_each(|&hash| table.prefetch_entry(hash));
            for (key, hash) in keys.iter().zip(hashes) {
                hits += u64::from(table.get(hash, key).is_some());
            }
        });
        timed("miss", finds, |n| {
            let key = (n | 1 << 60).to_le_bytes();
            hits += u64::from(table.get(hash::of(&key), &key).is_some());
        });
        let mut sum = 0;
        let mut reader = Reader::new(table.clone());
        timed("read, slices of 1000 (each)", entries / 1000, |_| {
            reader.next_slice(1000, &mut |entry| sum += entry.key().len());
        });
        timed("overwrite", finds, |n| add(&mut table, &sample[n as usize], b"another text"));
        timed("remove", entries, |n| {
            let key = &made[n as usize].0;
            hits += u64::from(table.remove(hash::of(key), key).is_some());
        });
        black_box((hits, sum));
    }
}

/// CPU time of this thread: other processes do not count, page faults do.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What does an entry cost, in CPU time, added one by one and gathered; how long is the longest step?
fn bulk(entries: u64) {
    for (name, make) in KINDS {
        let (mut table, mut added) = (Table::new(), 0);
        for hundred in 0..entries / 100 {
            let made: Vec<_> = (hundred * 100..hundred * 100 + 100).map(make).collect();
            let begin = cpu_ns();
            made.iter().for_each(|(key, value)| add(&mut table, key, value));
            added += cpu_ns() - begin;
        }
        let (alone, before) = (table.memory_bytes(), resident_bytes());
        let Some(mut builder) = Builder::<Never>::new(entries as usize) else { return };
        let (mut pushed, mut longest) = (0, 0);
        for hundred in 0..entries / 100 {
            let made: Vec<_> = (hundred * 100..hundred * 100 + 100).map(make).collect();
            let begin = cpu_ns();
            for (key, value) in &made {
                assert!(builder.push(hash::of(key), key, New::Bytes(value), None));
            }
            pushed += cpu_ns() - begin;
        }
        let (gathered, steps) = (resident_bytes() - before, cpu_ns());
        loop {
            let begin = cpu_ns();
            let more = builder.step();
            longest = longest.max(cpu_ns() - begin);
            if !more.expect("each key comes once") {
                break;
            }
        }
        let (steps, built) = (cpu_ns() - steps, builder.finish());
        let each = |all: u64| all as f64 / entries as f64;
        println!(
            "{name:20} one by one {:5.1} ns, {:.1} B; gathered {:5.1} + {:.1} ns, {:.1} B, longest \
             step {} us; resident gathered {:.1}, built {:.1} B",
            each(added),
            each(alone as u64),
            each(pushed),
            each(steps),
            each(built.memory_bytes() as u64),
            longest / 1_000,
            each(gathered as u64),
            each((resident_bytes() - before) as u64),
        );
    }
}

/// How long is the longest command of a hundred additions, in CPU time?
fn tail(entries: u64) {
    for (name, make) in KINDS {
        let (mut table, mut took, mut sum) = (Table::new(), Vec::new(), 0);
        for hundred in 0..entries / 100 {
            let made: Vec<_> = (hundred * 100..hundred * 100 + 100).map(make).collect();
            let begin = cpu_ns();
            made.iter().for_each(|(key, value)| add(&mut table, key, value));
            took.push(cpu_ns() - begin);
            sum += took[took.len() - 1];
        }
        took.sort_unstable();
        let at = |share: f64| took[((took.len() as f64 * share) as usize).min(took.len() - 1)];
        let [half, p99, p999, p9999, most] =
            [0.5, 0.99, 0.999, 0.9999, 1.0].map(|share| at(share) as f64 / 1e3);
        println!(
            "{name:20} {:5.0} ns each; a hundred took p50 {half:.0}, p99 {p99:.0}, p99.9 \
             {p999:.0}, p99.99 {p9999:.0}, max {most:.0} us; {:.1} B each",
            sum as f64 / entries as f64,
            table.memory_bytes() as f64 / entries as f64,
        );
    }
}

/// What do a cut, the first write after it, and freeing the table cost?
fn cut(entries: u64) {
    let mut table = Table::new();
    for number in 0..entries {
        add(&mut table, &uuid(number), &reason(number));
    }
    let mut cut = Table::new();
    timed("cut", 1, |_| cut = table.clone());
    let begin = Instant::now();
    cut = table.clone();
    println!("cut: {:?}", begin.elapsed());
    let mut longest = Duration::ZERO;
    let begin = Instant::now();
    for number in 0..20_000 {
        let key = uuid(mixed(number) % entries);
        let step = Instant::now();
        add(&mut table, &key, b"another text");
        longest = longest.max(step.elapsed());
        if number == 0 {
            println!("first write after it: {:?}", step.elapsed());
        }
    }
    println!("20 000 writes after it: {:?}, longest {longest:?}", begin.elapsed());
    let mut reader = Reader::new(cut);
    let mut longest = Duration::ZERO;
    let begin = Instant::now();
    let mut sum = 0;
    loop {
        let step = Instant::now();
        let more = reader.next_slice(1000, &mut |entry| sum += entry.key().len());
        longest = longest.max(step.elapsed());
        if !more {
            break;
        }
    }
    let rate = entries as f64 / begin.elapsed().as_secs_f64() / 1e6;
    println!("read: {rate:.1} M/s, longest 1000: {longest:?}; {sum}");
    let (begin, mut longest) = (Instant::now(), Duration::ZERO);
    loop {
        let step = Instant::now();
        let more = table.dismantle(4);
        longest = longest.max(step.elapsed());
        if !more {
            break;
        }
    }
    println!("dismantle: {:?}, longest four segments {longest:?}", begin.elapsed());
}

/// How fast are entries reaped that all die at once, and how long is a call?
fn expire(entries: u64) {
    for (name, share) in [("all die", 1), ("one in ten dies", 10)] {
        let mut table = Table::<Never>::new();
        for number in 0..entries {
            let deadline = (number % share == 0).then_some(1_000 + number % 1000);
            let key = uuid(number);
            table.insert(hash::of(&key), &key, New::Bytes(&reason(number)), deadline, 0);
        }
        let (begin, mut longest, mut calls, mut removed) = (Instant::now(), Duration::ZERO, 0, 0);
        loop {
            let step = Instant::now();
            let reaped = table.reap(5_000, 256, &mut |key, _| {
                black_box(key.len());
            });
            longest = longest.max(step.elapsed());
            (calls, removed) = (calls + 1, removed + reaped.removed);
            if !reaped.more {
                break;
            }
        }
        let per = begin.elapsed().as_nanos() as f64 / removed as f64;
        println!(
            "{name}: {removed} in {:?}, {per:.0} ns each; {calls} calls, longest {longest:?}; \
             then {} entries in {} bytes",
            begin.elapsed(),
            table.len(),
            table.memory_bytes()
        );
    }
}

/// Is there a cliff in memory or time where a small table becomes a large one?
fn small(_: u64) {
    for len in [1, 4, 16, 64, 96, 97, 128, 200, 400, 800, 1_500, 3_000, 10_000] {
        let mut line = format!("{len:6} entries:");
        for (name, make) in [KINDS[0], KINDS[2], KINDS[3]] {
            let made: Vec<_> = (0..len).map(make).collect();
            let mut table = Table::new();
            let rounds = 200_000 / len + 1;
            let begin = Instant::now();
            for _ in 0..rounds {
                table = Table::new();
                made.iter().for_each(|(key, value)| add(&mut table, key, value));
            }
            let insert = begin.elapsed().as_nanos() as f64 / (rounds * len) as f64;
            let begin = Instant::now();
            let mut hits = 0;
            for _ in 0..rounds {
                hits += made.iter().filter(|(key, _)| table.contains(hash::of(key), key)).count();
            }
            let get = begin.elapsed().as_nanos() as f64 / hits as f64;
            let per = table.memory_bytes() as f64 / len as f64;
            line += &format!("  {name}: {per:5.1} B, insert {insert:4.0}, get {get:3.0} ns;");
        }
        println!("{line}");
    }
}
