//! Checks that others see a pipeline's writes in order.
//!
//! Writers pipeline increasing numbers to keys on all cores; watchers read one key at a time and
//! wait for each reply. Once a watcher has seen a number, a later read of any key of that writer
//! must return the last number written there before it, or a later one. That holds for every
//! watcher whose read begins afterwards.
//!
//! Not here: pipelined reads and commands over several keys, which are concurrent with the
//! pipeline: docs/design/0011-pipeline-order.md.

use crate::CounterTest;
use crate::value::{self, Value};
use crate::world::{Flaw, Sim};
use darter_base::Prng;
use darter_server::engine::Table;

/// Numbers that each writer writes, at least.
const WRITES: usize = 150;
/// The most numbers in one pipeline, and the number in flight beyond which a writer waits.
const PIPELINE: u64 = 8;
const AHEAD: usize = 20;

/// Flawed worlds, with the number of cores that exposes each.
const BUGS: &[(&str, Flaw, usize)] = &[
    ("messages that are taken before they are published", Flaw::TakesUnpublished, 3),
    ("messages that are stamped after the look", Flaw::TakesLater, 5),
    ("sockets before the messages of their look", Flaw::SocketsFirst, 2),
    ("messages that are left over and overtaken", Flaw::Reorders, 2),
    ("replies before the messages of their flush", Flaw::RepliesFirst, 2),
    ("a connection that moves before the messages of its core", Flaw::MovesFirst, 2),
];

/// A writer.
struct Writer {
    keys: Vec<String>,
    /// Indexed by number, less one: the index of the key it was written to.
    written: Vec<usize>,
    /// Numbers whose reply has arrived.
    answered: usize,
    /// The highest number that any client has seen.
    seen: usize,
}

/// A read in flight.
struct Asked {
    writer: usize,
    key: usize,
    /// The writer's highest seen number when the read was sent.
    floor: usize,
}

/// A watcher.
#[derive(Default)]
struct Watcher {
    asked: Option<Asked>,
    /// A writer, and the last number of it that the watcher saw.
    last: Option<(usize, usize)>,
}

struct Run {
    sim: Sim,
    prng: Prng,
    writers: Vec<Writer>,
    watchers: Vec<Watcher>,
}

/// Runs one seed on this many cores.
pub(crate) fn watch(seed: u64, cores: usize, flaw: Flaw) -> Result<(), String> {
    /// Steps after which the run counts as hung.
    const PATIENCE: usize = 400_000;
    let mut run = Run::new(seed, cores, flaw);
    for _ in 0..PATIENCE {
        run.step()?;
        if run.is_done() {
            return Ok(());
        }
    }
    Err("the writers do not finish".to_owned())
}

impl Run {
    fn new(seed: u64, cores: usize, flaw: Flaw) -> Self {
        let mut prng = Prng::from_seed(seed ^ 0x0d0e_0f10);
        let writers = at(&mut prng, 2) + 1;
        let watchers = 4 + at(&mut prng, 5);
        let mut families = darter_families::TABLES.to_vec();
        families.push(darter_persist::commands::TABLE);
        let table = Table::new(&families, darter_server::admin::TABLES);
        let mut sim = Sim::new(seed, cores, writers + watchers, table);
        sim.flaw = flaw;
        let writer =
            |writer| Writer { keys: keys(&sim, writer), written: Vec::new(), answered: 0, seen: 0 };
        let writers = (0..writers).map(writer).collect();
        let watchers = (0..watchers).map(|_| Watcher::default()).collect();
        Self { sim, prng, writers, watchers }
    }

    fn step(&mut self) -> Result<(), String> {
        for writer in 0..self.writers.len() {
            self.write(writer);
        }
        for watcher in 0..self.watchers.len() {
            self.look(watcher);
        }
        self.sim.step();
        for writer in 0..self.writers.len() {
            self.take_answers(writer)?;
        }
        (0..self.watchers.len()).try_for_each(|watcher| self.take_look(watcher))
    }

    fn is_done(&self) -> bool {
        self.writers.iter().all(|writer| writer.answered >= WRITES)
    }

    /// A writer may send a pipeline.
    fn write(&mut self, client: usize) {
        let writer = &mut self.writers[client];
        let ahead = writer.written.len() - writer.answered;
        if writer.written.len() >= WRITES || ahead > AHEAD || !self.prng.chance(10) {
            return;
        }
        let mut bytes = Vec::new();
        for _ in 0..=self.prng.below(PIPELINE) {
            let key = at(&mut self.prng, writer.keys.len());
            writer.written.push(key);
            let number = writer.written.len(); // From 1; 0 stands for a missing key.
            bytes.extend(format!("SET {} {number}\r\n", writer.keys[key]).into_bytes());
        }
        self.sim.send(client, &bytes);
    }

    /// A watcher may read a key: preferably the one written just before the number it last saw.
    fn look(&mut self, watcher: usize) {
        if self.watchers[watcher].asked.is_some() || !self.prng.chance(60) {
            return;
        }
        let followed = self.watchers[watcher].last.filter(|_| self.prng.chance(70));
        let before = followed.and_then(|(writer, number)| {
            let key = *self.writers[writer].written.get(number.checked_sub(2)?)?;
            Some((writer, key))
        });
        let (writer, key) = before.unwrap_or_else(|| {
            let writer = at(&mut self.prng, self.writers.len());
            (writer, at(&mut self.prng, self.writers[writer].keys.len()))
        });
        let floor = self.writers[writer].seen;
        self.watchers[watcher].asked = Some(Asked { writer, key, floor });
        let line = format!("GET {}\r\n", self.writers[writer].keys[key]);
        self.sim.send(self.writers.len() + watcher, line.as_bytes());
    }

    fn take_answers(&mut self, client: usize) -> Result<(), String> {
        while let Some(reply) = value::take(self.sim.inbox(client)) {
            let writer = &mut self.writers[client];
            writer.answered += 1;
            writer.seen = writer.seen.max(writer.answered);
            if reply != Value::Simple("OK".to_owned()) {
                return Err(format!("writer {client}: {reply:?}"));
            }
        }
        Ok(())
    }

    fn take_look(&mut self, watcher: usize) -> Result<(), String> {
        let client = self.writers.len() + watcher;
        let Some(reply) = value::take(self.sim.inbox(client)) else { return Ok(()) };
        let Some(Asked { writer, key, floor }) = self.watchers[watcher].asked.take() else {
            return Err(format!("watcher {watcher} asked for nothing: {reply:?}"));
        };
        let number = match reply {
            Value::Null => 0,
            Value::Bulk(text) => text.parse().unwrap_or(0),
            other => return Err(format!("watcher {watcher}: {other:?}")),
        };
        let Writer { written, seen, .. } = &mut self.writers[writer];
        let due = written[..floor].iter().rposition(|at| *at == key).map_or(0, |at| at + 1);
        if number < due {
            return Err(format!(
                "watcher {watcher} sees {number} where {due} was written before {floor}, which was seen"
            ));
        }
        *seen = (*seen).max(number);
        self.watchers[watcher].last = Some((writer, number));
        Ok(())
    }
}

/// Two keys on every core.
fn keys(sim: &Sim, writer: usize) -> Vec<String> {
    let tx = &sim.cores[0].tx;
    let of_core = |core: usize| {
        let names = (0..).map(move |at| format!("key:{writer}:{at}"));
        names.filter(move |name| tx.core_of(name.as_bytes()) == core).take(2)
    };
    (0..tx.cores()).flat_map(of_core).collect()
}

fn at(prng: &mut Prng, count: usize) -> usize {
    usize::try_from(prng.below(count as u64)).unwrap_or(0)
}

/// The world with each of [`BUGS`].
pub(crate) fn counter_tests() -> impl Iterator<Item = CounterTest> {
    BUGS.iter().map(|&(name, flaw, cores)| {
        CounterTest::new(name, 1_000, move |seed| watch(seed, cores, flaw))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_clients_see_a_pipeline_in_its_order() {
        for cores in [2, 3, 5] {
            for seed in 0..10 {
                assert_eq!(watch(seed, cores, Flaw::None), Ok(()), "seed {seed}, {cores} cores");
            }
        }
    }
}
