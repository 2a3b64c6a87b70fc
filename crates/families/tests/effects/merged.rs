//! The logs of several cores make one shard: acts of all cores are applied once, and what was
//! renamed, moved or copied is found at its source.

use super::{Seen, contents};
use crate::common::unix_millis;
use crate::common::world::World;
use darter_base::Prng;
use darter_keyspace::{Act, Effect, Key, Record, Shard, Wants, apply};
use std::collections::{BTreeMap, VecDeque};

const DATABASES: usize = 16;

/// A shard that is made of the logs of all cores.
struct Follower {
    shard: Shard,
    by_reference: usize,
    of_all: usize,
}

impl Follower {
    /// Applies the records of one command, core by core; an act of all cores when all have come to
    /// it.
    fn follow(&mut self, mut logs: Vec<VecDeque<Record>>) {
        loop {
            for log in &mut logs {
                while log.front().is_some_and(|record| !record.act.is_of_all()) {
                    self.apply(&log.pop_front().unwrap());
                }
            }
            let acts: Vec<Record> = logs.iter_mut().filter_map(VecDeque::pop_front).collect();
            let Some(first) = acts.first() else { return };
            assert_eq!(acts.len(), logs.len(), "{first:?} is not on every core");
            let part = first.part.expect("an act of all is a transaction");
            assert_eq!(part.parts, logs.len(), "{part:?} has not a part on every core");
            for act in &acts {
                assert_eq!((act.part, act.database), (Some(part), first.database));
                assert_eq!(format!("{:?}", act.act), format!("{:?}", first.act));
            }
            apply(&mut self.shard, first).unwrap();
            self.of_all += 1;
        }
    }

    fn apply(&mut self, record: &Record) {
        match &record.act {
            // The value stays until it is installed elsewhere.
            Act::Key(_, Effect::Take(_)) => {}
            Act::Key(key, Effect::Install { source: Some(source), .. }) => {
                let db = self.shard.db_mut(source.place.database);
                let from = Key::new(&source.place.key);
                let held = match source.is_moved {
                    true => db.take(&from, &[]),
                    false => db.get(&from).map(|found| found.hold_copy()),
                };
                let held = held.expect("the source holds it");
                self.shard.db_mut(record.database).put(&Key::new(key), held, &[]);
                self.by_reference += 1;
            }
            _ => apply(&mut self.shard, record).unwrap(),
        }
    }
}

/// All keys of some shards, by database and name.
fn union<'a>(shards: impl Iterator<Item = &'a Shard>) -> BTreeMap<(usize, Vec<u8>), Seen> {
    let mut all = BTreeMap::new();
    for shard in shards {
        for (at, db) in shard.iter() {
            all.extend(contents(db).into_iter().map(|(key, seen)| ((at, key), seen)));
        }
    }
    all
}

#[test]
fn replaying_the_logs_of_all_cores_gives_the_same_data() {
    const LINES: [&str; 14] = [
        "SET K v",
        "MSET K a K b K c",
        "RPUSH K 1 2 3 4 5 6 7 8",
        "SADD K a b c",
        "RENAME K K",
        "RENAME K K",
        "RENAMENX K K",
        "COPY K K REPLACE",
        "COPY K K DB N REPLACE",
        "MOVE K N",
        "SWAPDB N N",
        "FLUSHDB",
        "FLUSHALL",
        "SELECT N",
    ];
    let (mut by_reference, mut of_all) = (0, 0);
    for seed in 0..30 {
        let (mut prng, cores) = (Prng::from_seed(seed), 1 + seed as usize % 4);
        let now = unix_millis();
        let mut world = World::new(cores, now, seed);
        let readers: Vec<_> =
            world.cores.iter().map(|tx| tx.home().shard.join(Wants::CHANGES)).collect();
        let mut follower = Follower { shard: Shard::new(DATABASES, 1), by_reference: 0, of_all: 0 };
        follower.shard.set_now(now);
        for step in 0..400 {
            let line = LINES[prng.below(LINES.len() as u64) as usize];
            if line.starts_with("FLUSH") && prng.chance(80) {
                continue;
            }
            let words: Vec<String> = line
                .split(' ')
                .map(|word| match word {
                    "K" => format!("key:{}", prng.below(12)),
                    "N" => prng.below(3).to_string(),
                    word => word.to_owned(),
                })
                .collect();
            if words[0] == "SELECT" {
                world.db = words[1].parse().unwrap();
                continue;
            }
            world.run(&words.iter().map(String::as_bytes).collect::<Vec<_>>());
            let logs = world.cores.iter().map(|tx| tx.home().shard.take_records().into());
            follower.follow(logs.collect());
            let homes: Vec<_> = world.cores.iter().map(|tx| tx.home()).collect();
            let ours = union(homes.iter().map(|home| &home.shard));
            let theirs = union(std::iter::once(&follower.shard));
            assert!(ours == theirs, "seed {seed}, step {step}: {words:?}");
        }
        assert_eq!(readers.len(), cores);
        by_reference += follower.by_reference;
        of_all += follower.of_all;
    }
    assert!(by_reference > 200 && of_all > 300, "{by_reference} by reference, {of_all} of all");
}
