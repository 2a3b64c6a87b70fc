//! Runs the simulator: `cargo x sim [--seed N] [--seeds COUNT] [--cores N] [--trace]`.
//!
//! For every tenth seed it also checks that replaying the recorded effects gives the same data (see
//! `replay`). For every second seed it checks that pipelines (see `order`) and messages (see
//! `pubsub`) are seen in order, that waiting clients are served (see `waiting`), that no cached
//! copy outlives its value (see `tracking`), and that no connection is lost on its way to another
//! core (see `moving`).
//!
//! One seed decides everything: cores, clients, commands, the end of every slice, the delay of
//! every message, the cuts in every byte stream. A failure prints its seed and the command that
//! repeats it.

#![forbid(unsafe_code)]

mod broken;
mod check;
mod client;
mod faults;
#[cfg(test)]
mod interchange;
mod model;
mod moving;
mod ops;
mod order;
mod pubsub;
mod replay;
mod replayed;
mod run;
mod saving;
#[cfg(test)]
mod scanning;
mod streams;
mod tracking;
mod transaction;
mod value;
mod waiting;
mod world;

use clap::{Arg, ArgAction, Command, value_parser};
use darter_testkit::over_threads;
use std::process::ExitCode;

fn command() -> Command {
    let number = |name: &'static str| Arg::new(name).long(name).value_parser(value_parser!(u64));
    Command::new("cargo x sim")
        .about("Simulates cores, clients, messages and time in one thread; checks the histories.")
        .arg(number("seed").default_value("1").help("The first seed"))
        .arg(number("seeds").default_value("1").help("How many seeds to run"))
        .arg(number("cores").help("Cores; by default drawn from the seed, 1 to 8"))
        .arg(Arg::new("trace").long("trace").action(ArgAction::SetTrue).help("Print the history"))
}

/// A world that is simulated beside the histories.
struct World {
    /// The name of the failing world, in its line.
    name: &'static str,
    /// One seed of this kind for this number of seeds of histories.
    each: u64,
    /// How many cores, if that is drawn: from..from + range.
    from: u64,
    range: u64,
    run: fn(u64, usize) -> Result<(), String>,
}

#[rustfmt::skip] // A table.
const WORLDS: &[World] = &[
    World { name: "replay",              each: 10, from: 1, range: 1, run: |seed, _| replay::replay(seed) },
    World { name: "order",               each: 2,  from: 2, range: 4, run: |seed, cores| order::watch(seed, cores, world::Flaw::None) },
    World { name: "messages",            each: 2,  from: 1, range: 8, run: |seed, cores| pubsub::publish(seed, cores, world::Flaw::None) },
    World { name: "moves",               each: 2,  from: 2, range: 4, run: |seed, cores| moving::wander(seed, cores, world::Flaw::None, moving::LIST) },
    World { name: "tracking",            each: 2,  from: 1, range: 8, run: |seed, cores| tracking::track(seed, cores, tracking::TrackingBug::None) },
    World { name: "waiting",             each: 2,  from: 1, range: 8, run: |seed, cores| waiting::wait_for(seed, cores, "BLPOP") },
    World { name: "waiting for streams", each: 2,  from: 1, range: 8, run: |seed, cores| streams::wait_for(seed, cores, ["XREADGROUP", "XREAD"]) },
    World { name: "snapshots",           each: 10, from: 1, range: 5, run: |seed, cores| saving::save(seed, cores, saving::SaveBug::None) },
];

/// A seeded bug, which must be caught.
pub(crate) struct CounterTest {
    name: &'static str,
    /// The number of seeds of which one must fail.
    seeds: u64,
    run: Box<dyn Fn(u64) -> Result<(), String> + Send + Sync>,
}

impl CounterTest {
    /// The bug `name` must be caught with a seed below `seeds`; `run` runs the world of a seed.
    pub(crate) fn new(
        name: &'static str,
        seeds: u64,
        run: impl Fn(u64) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { name, seeds, run: Box::new(run) }
    }

    fn hunt(&self) -> Result<(), String> {
        let is_caught = (0..self.seeds).any(|seed| (self.run)(seed).is_err());
        if is_caught { Ok(()) } else { Err(format!("{}: not caught", self.name)) }
    }
}

fn counter_tests() -> Vec<CounterTest> {
    let tests = broken::counter_tests().chain(order::counter_tests());
    let tests = tests.chain(saving::counter_tests()).chain(pubsub::counter_tests());
    let tests = tests.chain(waiting::counter_tests()).chain(streams::counter_tests());
    tests.chain(tracking::counter_tests()).chain(moving::counter_tests()).collect()
}

/// One run of the program.
enum Job {
    /// The histories of a seed.
    History(u64),
    World(&'static World, u64),
    Counter(CounterTest),
}

fn main() -> ExitCode {
    let options = command().get_matches();
    let number = |name: &str| options.get_one::<u64>(name).copied();
    let (first, seeds) = (number("seed").unwrap_or(1), number("seeds").unwrap_or(1));
    let cores = number("cores").and_then(|cores| usize::try_from(cores).ok());
    let trace = options.get_flag("trace");
    let mut jobs: Vec<Job> = (first..first + seeds).map(Job::History).collect();
    for world in WORLDS {
        let seeds = first..first + seeds.div_ceil(world.each);
        jobs.extend(seeds.map(|seed| Job::World(world, seed)));
    }
    jobs.extend(counter_tests().into_iter().map(Job::Counter));
    let outcomes = over_threads(jobs.len(), |at| match &jobs[at] {
        Job::History(seed) => run::simulate(&run::Plan::of_seed(*seed, cores, trace)),
        Job::World(world, seed) => {
            let drawn = usize::try_from(world.from + seed % world.range).unwrap_or(2);
            (world.run)(*seed, cores.unwrap_or(drawn))
        }
        Job::Counter(test) => test.hunt(),
    });
    let mut failed = 0;
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let Err(failure) = outcome else { continue };
        failed += 1;
        match job {
            Job::History(seed) => {
                println!("seed {seed} failed: {failure}");
                println!("replay: cargo x sim --seed {seed} --trace");
            }
            Job::World(world, seed) => println!("{} of seed {seed} failed: {failure}", world.name),
            Job::Counter(_) => println!("counter-test {failure}"),
        }
    }
    println!("simulation: {} passed, {failed} failed", jobs.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
