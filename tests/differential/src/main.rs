//! Random sequences of commands on few keys, sent to redis-server and to Darter: every reply must
//! agree, and so must the final contents of the keys. A failing sequence is shrunk to a minimal one
//! that still fails, and printed with its seed.
//!
//! `cargo run -p darter-differential -- [--runs N] [--steps N] [--seed S] [--family F]
//! [--cores N] [--io auto|epoll]`. With `--seed` one run is repeated.
//!
//! Not here: commands that depend on chance or on exact instants; `tests/conformance` has those.

#![forbid(unsafe_code)]

mod generate;
mod odd;
mod play;
mod scripts;
mod shrink;
mod transactions;
mod vocabulary;

use darter_base::Prng;
use darter_testkit::{Io, Shape, Tally};
use std::process::ExitCode;

/// The options of the command line.
#[derive(Debug)]
struct Options {
    runs: u64,
    steps: usize,
    seed: Option<u64>,
    family: Option<String>,
    shape: Shape,
}

fn options() -> Result<Options, String> {
    let shape = Shape::default();
    let mut options = Options { runs: 20, steps: 150, seed: None, family: None, shape };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} needs a number"));
        match word.as_str() {
            "--runs" => options.runs = number()?,
            "--steps" => options.steps = usize::try_from(number()?).unwrap_or(usize::MAX),
            "--seed" => options.seed = Some(number()?),
            "--family" => options.family = Some(value),
            "--cores" => options.shape.cores = usize::try_from(number()?).unwrap_or(1),
            "--io" => options.shape.io = Io::from_name(&value).ok_or("--io auto")?,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let prepared = options().and_then(|options| Ok((play::Pair::start(options.shape)?, options)));
    let (mut pair, options) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let mut tally = Tally::default();
    for family in generate::FAMILIES {
        if options.family.as_ref().is_some_and(|name| name != family.name) {
            continue;
        }
        let first = options.seed.unwrap_or(0);
        let last = if options.seed.is_some() { first + 1 } else { options.runs };
        for seed in first..last {
            let name = format!("{} seed {seed}", family.name);
            let outcome = run(&mut pair, family, seed, options.steps);
            tally.count(&name, outcome);
        }
        println!("{:<10} {} runs of {} commands", family.name, last - first, options.steps);
    }
    tally.close()
}

/// Runs one sequence; returns its shortest failing part, if it fails.
fn run(
    pair: &mut play::Pair,
    family: &generate::Family,
    seed: u64,
    steps: usize,
) -> Result<(), String> {
    let mut prng = Prng::from_seed(seed);
    let commands = generate::sequence(family, &mut prng, steps);
    let Err(first) = pair.play(&commands) else { return Ok(()) };
    let shortest = shrink::shrink(commands, |part| pair.play(part).is_err());
    let why = pair.play(&shortest).err().unwrap_or(first);
    let played = scripts::folded(&shortest);
    let lines: Vec<String> = played.iter().map(vocabulary::Command::show).collect();
    let again =
        format!("cargo run -p darter-differential -- --family {} --seed {seed}", family.name);
    Err(format!("{}\n{why}\nagain: {again} --steps {steps}", lines.join("\n")))
}
