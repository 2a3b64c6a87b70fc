//! Sends every script in `cases/` to redis-server and to Darter, in RESP2 and again in RESP3,
//! and compares the replies byte for byte.
//!
//! `cargo run -p darter-conformance -- [--family F,..] [--case TEXT] [--cores N] [--io auto|epoll]
//! [--list]`. The language of the scripts is described in `script`.
//!
//! Commands that Redis 7.0.15 lacks carry their expected reply in the script. With
//! `DARTER_BIN=redis-server` the scripts themselves are checked; `--origin 8.0` then also tries
//! the literal replies of that version, against a newer server.

#![forbid(unsafe_code)]

mod args;
mod run;
mod script;

use darter_testkit::{Protocol, Tally, server};
use std::process::ExitCode;

/// The options of the command line.
#[derive(Debug)]
struct Options {
    /// Names of families; all of them when it is empty.
    families: Vec<String>,
    case: Option<String>,
    origin: Option<String>,
    shape: darter_testkit::Shape,
    list: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        families: Vec::new(),
        case: None,
        origin: None,
        shape: darter_testkit::Shape::default(),
        list: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--family" => options.families.extend(value()?.split(',').map(str::to_owned)),
            "--case" => options.case = Some(value()?),
            "--origin" => options.origin = Some(value()?),
            "--cores" => options.shape.cores = value()?.parse().map_err(|_| "--cores N")?,
            "--io" => {
                options.shape.io = darter_testkit::Io::from_name(&value()?).ok_or("--io auto")?;
            }
            "--list" => options.list = true,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let prepared = options().and_then(|options| Ok((wanted(&options)?, options)));
    let (families, options) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let mut tally = Tally::default();
    let mut bench = match run::Bench::start(options.shape) {
        Ok(bench) => bench,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    for family in &families {
        tally.absorb(run_family(&mut bench, family, &options));
    }
    tally.close()
}

/// The families to run.
fn wanted(options: &Options) -> Result<Vec<script::Family>, String> {
    let mut families = script::load_all()?;
    let is_there = |name: &&String| families.iter().any(|family| family.name == **name);
    if let Some(name) = options.families.iter().find(|name| !is_there(name)) {
        return Err(format!("there is no family {name}"));
    }
    families.retain(|it| options.families.is_empty() || options.families.contains(&it.name));
    Ok(families)
}

fn run_family(bench: &mut run::Bench, family: &script::Family, options: &Options) -> Tally {
    let mut tally = Tally::default();
    for case in &family.cases {
        let wanted = options.case.as_ref().is_none_or(|part| case.name.contains(part));
        if !wanted || !origin_fits(case, options) {
            continue;
        }
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            if !case.protocols.contains(&protocol) {
                continue;
            }
            let name = format!("{}/{} ({protocol:?})", family.name, case.name);
            if options.list {
                println!("{name}");
                continue;
            }
            let outcome = bench.run(case, protocol);
            tally.count(&name, outcome);
        }
    }
    let (passed, failed) = tally.counts();
    println!("{:<14} {passed:>4} passed {failed:>4} failed", family.name);
    tally
}

/// True if the subject has the commands of the case: Darter has all, a Redis only those of its
/// version.
fn origin_fits(case: &script::Case, options: &Options) -> bool {
    match (&case.origin, &options.origin) {
        (None, None) => true,
        (_, None) => !server::subject_is_redis(),
        (origin, wanted) => origin == wanted,
    }
}
