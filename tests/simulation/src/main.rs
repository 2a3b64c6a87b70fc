//! Runs the simulator: `cargo x sim [--seed N] [--seeds COUNT] [--cores N] [--trace]`.
//!
//! For every tenth seed it also checks that replaying the recorded effects gives the same data (see
//! `replay`), and for every second that pipelines are seen in order (see `order`),
//! that messages are (see `pubsub`), that those who wait are served (see `waiting`), and that no copy
//! outlives its value (see `tracking`).
//!
//! One seed decides everything: cores, clients, commands, the end of every slice, the delay of
//! every message, the cuts in every byte stream. A failure prints its seed and the command that
//! repeats it.

#![forbid(unsafe_code)]

mod broken;
mod check;
mod client;
mod faults;
mod model;
mod ops;
mod order;
mod pubsub;
mod replay;
mod run;
mod saving;
mod streams;
mod tracking;
mod transaction;
mod value;
mod waiting;
mod world;

use clap::{Arg, ArgAction, Command, value_parser};
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

/// Seeds of histories for each seed of replayed effects, and for each of snapshots.
const REPLAYED_EACH: u64 = 10;
/// Seeds of histories for each seed of observed pipelines.
const WATCHED_EACH: u64 = 2;
/// The same of those who wait.
const WAITED_EACH: u64 = 2;

fn main() -> ExitCode {
    let options = command().get_matches();
    let number = |name: &str| options.get_one::<u64>(name).copied();
    let (first, seeds) = (number("seed").unwrap_or(1), number("seeds").unwrap_or(1));
    let cores = number("cores").and_then(|cores| usize::try_from(cores).ok());
    let trace = options.get_flag("trace");
    let mut failed = 0;
    for seed in first..first + seeds {
        let outcome = run::simulate(&run::Plan::of_seed(seed, cores, trace));
        if let Err(failure) = outcome {
            failed += 1;
            println!("seed {seed} failed: {failure}");
            println!("replay: cargo x sim --seed {seed} --trace");
        }
    }
    for seed in first..first + seeds.div_ceil(REPLAYED_EACH) {
        if let Err(failure) = replay::replay(seed) {
            failed += 1;
            println!("replay of seed {seed} failed: {failure}");
        }
    }
    for seed in first..first + seeds.div_ceil(WATCHED_EACH) {
        let drawn = usize::try_from(2 + seed % 4).unwrap_or(2);
        if let Err(failure) = order::watch(seed, cores.unwrap_or(drawn), world::Flaw::None) {
            failed += 1;
            println!("order of seed {seed} failed: {failure}");
        }
    }
    for seed in first..first + seeds.div_ceil(WATCHED_EACH) {
        let drawn = usize::try_from(1 + seed % 8).unwrap_or(2);
        if let Err(failure) = pubsub::publish(seed, cores.unwrap_or(drawn), world::Flaw::None) {
            failed += 1;
            println!("messages of seed {seed} failed: {failure}");
        }
    }
    for seed in first..first + seeds.div_ceil(WATCHED_EACH) {
        let drawn = usize::try_from(1 + seed % 8).unwrap_or(2);
        if let Err(failure) = tracking::track(seed, cores.unwrap_or(drawn), tracking::Bug::None) {
            failed += 1;
            println!("tracking of seed {seed} failed: {failure}");
        }
    }
    for seed in first..first + seeds.div_ceil(WAITED_EACH) {
        let drawn = usize::try_from(1 + seed % 8).unwrap_or(2);
        if let Err(failure) = waiting::wait_for(seed, cores.unwrap_or(drawn), "BLPOP") {
            failed += 1;
            println!("waiting of seed {seed} failed: {failure}");
        }
        let verbs = ["XREADGROUP", "XREAD"];
        if let Err(failure) = streams::wait_for(seed, cores.unwrap_or(drawn), verbs) {
            failed += 1;
            println!("waiting for streams of seed {seed} failed: {failure}");
        }
    }
    for seed in first..first + seeds.div_ceil(REPLAYED_EACH) {
        let drawn = usize::try_from(1 + seed % 5).unwrap_or(2);
        if let Err(failure) = saving::save(seed, cores.unwrap_or(drawn), false) {
            failed += 1;
            println!("snapshots of seed {seed} failed: {failure}");
        }
    }
    let missed = broken::caught_in_all().into_iter().chain(order::missed());
    let missed = missed.chain(saving::missed()).chain(pubsub::missed());
    let missed = missed.chain(waiting::missed()).chain(streams::missed());
    for name in missed.chain(tracking::missed()) {
        println!("counter-test {name}: not caught");
        failed += 1;
    }
    let bugs = [broken::BUGS.len(), order::BUGS.len(), pubsub::BUGS.len(), waiting::BUGS.len()];
    let bugs = bugs.iter().sum::<usize>() + streams::BUGS.len() + tracking::BUGS.len() + 1;
    let runs = seeds
        + 2 * seeds.div_ceil(REPLAYED_EACH)
        + 3 * seeds.div_ceil(WATCHED_EACH)
        + 2 * seeds.div_ceil(WAITED_EACH)
        + bugs as u64;
    println!("simulation: {} passed, {failed} failed", runs - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
