//! Replies wait for the journal: none shows a change that is not in the file.

use super::*;
use crate::engine::journal;
use crate::journal::{Collector, Folder, Found, Sync};
use darter_base::Prng;
use darter_persist::aof::manifest::Manifest;
use darter_runtime::fs::{self, Simulated};
use std::path::Path;

/// Cores with a journal on a simulated disk. The thread's passes are the test's.
struct Journaled {
    bench: Bench,
    collector: Collector,
    disk: Simulated,
    prng: Prng,
}

impl Journaled {
    fn new(seed: u64, cores: usize) -> Self {
        let shared = Shared::nowhere(cores, EPOCH_MS);
        let disk = Simulated::new(seed, 1 << 30, Arc::default());
        let folder = Folder {
            fs: Arc::new(disk.clone()),
            path: "aof".into(),
            name: "a".to_owned(),
            manifest: Manifest::default(),
            last_base: 0,
            boot: 1,
        };
        shared.journal.set_sync(Sync::Always);
        let mut collector = Collector::new(Arc::clone(&shared.journal), folder, seed);
        collector.turn_on(&Found::default()).unwrap();
        let bench = Bench::on(shared);
        bench.clock.reading_ns.set(1_000);
        bench.cores.iter().for_each(|core| journal::begin(core));
        Self { bench, collector, disk, prng: Prng::from_seed(seed) }
    }

    fn file_has(&self, value: &str) -> bool {
        let bytes = fs::read(&self.disk, Path::new("aof/a.1.incr.aof")).unwrap();
        bytes.windows(value.len()).any(|part| part == value.as_bytes())
    }

    /// A turn of some core, and now and then a pass of the journal's thread.
    fn step(&mut self) {
        let core = self.prng.below(self.bench.cores.len() as u64) as usize;
        self.bench.turn(core);
        if self.prng.chance(10) {
            let now = self.bench.clock.monotonic_ns();
            self.collector.pass(now, EPOCH_MS);
        }
    }
}

#[test]
fn no_reply_shows_a_change_that_is_not_in_the_file() {
    let mut waited = 0;
    for (seed, cores) in [(1, 1), (2, 2), (3, 3), (4, 4)] {
        let mut it = Journaled::new(seed, cores);
        let reader = it.bench.connect(cores - 1);
        let keys: Vec<String> = (0..cores).map(|core| it.bench.key(core)).collect();
        let any = |prng: &mut Prng| keys[prng.below(cores as u64) as usize].clone();
        for number in 0..120 {
            let value = format!("<{number}>");
            let (one, other) = (any(&mut it.prng), any(&mut it.prng));
            let script = "redis.call('set',KEYS[1],ARGV[1]);redis.call('set',KEYS[2],ARGV[1])";
            let (lines, replies) = match it.prng.below(5) {
                0 => (vec![format!("SET {one} {value}")], 1),
                1 => (vec![format!("MSET {one} {value} {other} {value}")], 1),
                2 => (vec![format!("EVAL \"{script}\" 2 {one} {other} {value}")], 1),
                3 => (vec![format!("DEL {one}"), format!("APPEND {one} {value}")], 2),
                _ => {
                    let set = |key| format!("SET {key} {value}");
                    (vec!["MULTI".into(), set(&one), set(&other), "EXEC".into()], 6)
                }
            };
            lines.iter().for_each(|line| it.bench.send(0, line));
            it.bench.send(reader, &format!("GET {one}"));
            let (mut got, mut steps) = (String::new(), 0);
            while got.matches("\r\n").count() < replies {
                it.step();
                got.push_str(&it.bench.got(0));
                let is_answered = got.matches("\r\n").count() >= replies;
                let is_shown = it.bench.got(reader).contains(&value);
                let is_there = it.file_has(&value);
                assert!(is_there || !is_answered, "{cores} cores: {lines:?} is answered");
                assert!(is_there || !is_shown, "{cores} cores: {lines:?} is shown");
                steps += 1;
                assert!(steps < 10_000, "{lines:?} has no reply: {got}");
            }
            waited += steps;
        }
    }
    assert!(waited > 2_000, "{waited} steps");
}
