//! Short fuzzing of everything that parses untrusted bytes (requests, RDB files, append-only
//! folders, payloads of DUMP),
//! of JSON, filters, sketches, HyperLogLogs and BITFIELD, of the libraries of scripts, and of small
//! collections, which Darter packs into bytes. Seeded mutations of real input, for a given number
//! of seconds a target; each processor takes a target at a time.
//!
//! `cargo run -p darter-fuzz -- [--seconds N] [--target T] [--seed S]`. With a seed one input is
//! repeated. A target fails by a panic; the seed is printed.
//!
//! This is no replacement for coverage-guided fuzzing: the targets are plain functions of bytes,
//! so that `cargo fuzz` can call them too.

#![forbid(unsafe_code)]

mod aof;
mod corpus;
mod documents;
mod mutate;
mod packs;
mod rdb;
mod requests;
mod scripts;
mod sketches;
mod streams;

use darter_base::Prng;
use darter_testkit::{Tally, over_threads};
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Code that must survive any bytes.
struct Target {
    name: &'static str,
    corpus: fn() -> Result<Vec<Vec<u8>>, String>,
    run: fn(&[u8]),
}

const TARGETS: &[Target] = &[
    Target { name: "requests", corpus: corpus::requests, run: requests::fuzz_requests },
    Target { name: "rdb", corpus: corpus::files, run: rdb::fuzz_rdb },
    Target { name: "manifests", corpus: aof::manifests, run: aof::fuzz_manifests },
    Target { name: "increments", corpus: aof::files, run: aof::fuzz_files },
    Target { name: "packs", corpus: corpus::changes, run: packs::fuzz_packs },
    Target { name: "documents", corpus: documents::corpus, run: documents::fuzz_documents },
    Target { name: "streams", corpus: streams::corpus, run: streams::fuzz_streams },
    Target { name: "tokens", corpus: documents::tokens, run: documents::fuzz_tokens },
    Target { name: "scripts", corpus: scripts::corpus, run: scripts::fuzz_scripts },
    Target { name: "libraries", corpus: scripts::libraries, run: scripts::fuzz_libraries },
    Target { name: "sketches", corpus: sketches::corpus, run: sketches::fuzz_sketches },
    Target {
        name: "hyperloglogs",
        corpus: sketches::strings,
        run: darter_families::fuzz_hyperloglog,
    },
    Target { name: "bitfields", corpus: corpus::bitfields, run: darter_families::fuzz_bitfield },
];

/// The options of the command line.
struct Options {
    seconds: u64,
    target: Option<String>,
    seed: Option<u64>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { seconds: 10, target: None, seed: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{word} needs a number"));
        match word.as_str() {
            "--seconds" => options.seconds = number()?,
            "--target" => options.target = Some(value),
            "--seed" => options.seed = Some(number()?),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let is_wanted = |target: &&Target| options.target.as_ref().is_none_or(|it| it == target.name);
    let targets: Vec<&Target> = TARGETS.iter().filter(is_wanted).collect();
    let outcomes = over_threads(targets.len(), |at| fuzz(targets[at], &options));
    let mut tally = Tally::default();
    for (target, outcome) in targets.iter().zip(outcomes) {
        tally.run(target.name, || outcome);
    }
    tally.close()
}

fn fuzz(target: &Target, options: &Options) -> Result<(), String> {
    let corpus = (target.corpus)()?;
    let start = Instant::now();
    let limit = Duration::from_secs(options.seconds);
    let mut seed = options.seed.unwrap_or(0);
    loop {
        let input = mutate::input(&corpus, &mut Prng::from_seed(seed));
        if catch_unwind(|| (target.run)(&input)).is_err() {
            return Err(format!(
                "again: cargo run -p darter-fuzz -- --target {} --seed {seed}",
                target.name
            ));
        }
        seed += 1;
        if options.seed.is_some() || start.elapsed() >= limit {
            println!("  {}: {} inputs", target.name, seed - options.seed.unwrap_or(0));
            return Ok(());
        }
    }
}
