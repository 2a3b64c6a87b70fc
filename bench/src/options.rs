//! The command line, and the settings derived from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::data::Scale;
use crate::fault::{Fault, Outcome};
use crate::process::{Processors, Program, Subject};

/// The benchmarks by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Benchmark {
    /// Big commands beside small ones.
    BigKey,
    /// DEBUG POPULATE.
    Populate,
    /// Operations and CPU per operation.
    Throughput,
    /// Values with a TTL, under load.
    Expiry,
    /// Small collections.
    Small,
    /// Loading RDB files.
    Load,
    /// BGSAVE.
    Save,
    /// A mixed load beside big keys.
    GaussDb,
    /// Throughput for each number of cores.
    Scaling,
    /// SETs and GETs with an append-only file.
    Durability,
    /// Transactions, scripts, messages, queues and invalidations.
    Programs,
}

/// The options of the command line.
#[derive(Debug)]
pub(crate) struct Options {
    /// The benchmark to run.
    pub(crate) benchmark: Benchmark,
    /// The processors for server and client.
    pub(crate) processors: Processors,
    redis: PathBuf,
    alone: bool,
    darter: PathBuf,
    io: String,
    floor: PathBuf,
    cores: Vec<usize>,
    /// The size of the data.
    pub(crate) scale: Scale,
    /// Whether the run is short: fewer repeats, shorter loads.
    pub(crate) quick: bool,
    only: Option<String>,
    /// The rate of the paced stream, in GETs a second.
    pub(crate) rate: u64,
    /// How long the streams run before the act.
    pub(crate) lead: Duration,
    /// How long the streams run after the reply of the act. This time counts as part of the act.
    pub(crate) tail: Duration,
    /// How long the saturating client runs for one figure of `throughput`.
    pub(crate) push: Duration,
    /// The longest time that one act may take.
    pub(crate) limit: Duration,
    /// How often a pair of measurements is repeated.
    pub(crate) repeats: u64,
    /// The report's directory.
    pub(crate) results: PathBuf,
}

impl Options {
    /// Reads the command line. `--help` and mistakes end the process.
    pub(crate) fn parse() -> Outcome<Options> {
        Options::of(&command().get_matches())
    }

    /// Options of a run in miniature, for tests. `words` does not contain the program's name.
    #[cfg(test)]
    pub(crate) fn miniature(words: &[&str], results: &std::path::Path) -> Options {
        let words = ["darter-bench"].iter().chain(words).chain(&["--elements", "2000"]);
        let mut options = Options::of(&command().get_matches_from(words)).unwrap();
        options.results = results.to_owned();
        options.lead = Duration::from_millis(10);
        options.tail = Duration::from_millis(10);
        options.push = Duration::from_millis(50);
        options.repeats = 1;
        options
    }

    fn of(matches: &ArgMatches) -> Outcome<Options> {
        let (name, sub) = matches.subcommand().ok_or(Fault::Setup("no benchmark".to_owned()))?;
        let number = |id: &str| sub.get_one::<u64>(id).copied();
        let path = |id: &str| sub.get_one::<PathBuf>(id).cloned();
        let quick = sub.get_flag("quick");
        let cores = sub.get_many::<u64>("cores").into_iter().flatten();
        Ok(Options {
            benchmark: match name {
                "bigkey" => Benchmark::BigKey,
                "populate" => Benchmark::Populate,
                "throughput" => Benchmark::Throughput,
                "expiry" => Benchmark::Expiry,
                "load" => Benchmark::Load,
                "save" => Benchmark::Save,
                "gaussdb" => Benchmark::GaussDb,
                "scaling" => Benchmark::Scaling,
                "programs" => Benchmark::Programs,
                "durability" => Benchmark::Durability,
                _ => Benchmark::Small,
            },
            processors: Processors::allowed()?,
            redis: path("redis").unwrap_or_else(|| "redis-server".into()),
            alone: sub.get_flag("alone"),
            darter: path("darter").unwrap_or_else(|| "target/release/darter".into()),
            io: sub.get_one::<String>("io").cloned().unwrap_or_default(),
            floor: path("floor").unwrap_or_else(|| "target/release/examples/echo".into()),
            cores: cores.map(|count| *count as usize).collect(),
            scale: Scale {
                elements: number("elements").unwrap_or(if quick { 1_000_000 } else { 10_000_000 }),
            },
            quick,
            only: sub.get_one::<String>("only").cloned(),
            rate: number("rate").unwrap_or(2_000),
            lead: Duration::from_secs(if quick { 1 } else { 2 }),
            tail: Duration::from_secs(1),
            push: Duration::from_secs(if quick { 1 } else { 2 }),
            limit: Duration::from_secs(number("limit").unwrap_or(180)),
            repeats: number("repeats").unwrap_or(if quick { 1 } else { 3 }),
            results: path("results").unwrap_or_else(|| "bench/results".into()),
        })
    }

    /// The servers to compare: redis-server on one core, then Darter on each number of cores.
    pub(crate) fn subjects(&self) -> Vec<Subject> {
        let mut subjects = Vec::new();
        if !self.alone {
            subjects.push(Subject { program: Program::Redis(self.redis.clone()), cores: 1 });
        }
        for cores in self.cores.iter().filter(|cores| **cores <= self.processors.count()) {
            let program = Program::Darter { path: self.darter.clone(), io: self.io.clone() };
            subjects.push(Subject { program, cores: *cores });
        }
        subjects
    }

    /// The servers on one core only, for ratios of CPU time.
    pub(crate) fn single_core_subjects(&self) -> Vec<Subject> {
        self.subjects().into_iter().filter(|subject| subject.cores == 1).collect()
    }

    /// The echo server that answers every request with `reply`.
    pub(crate) fn floor(&self, reply: String) -> Subject {
        Subject { program: Program::Floor { path: self.floor.clone(), reply }, cores: 1 }
    }

    /// Whether `--only` includes this row.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.only.as_ref().is_none_or(|only| {
            only.split(',').any(|part| name.contains(part.trim().to_lowercase().as_str()))
        })
    }
}

fn command() -> Command {
    let number = |id: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name("N").value_parser(value_parser!(u64).range(1..)).help(help)
    };
    let path = |id: &'static str, help: &'static str| {
        Arg::new(id).long(id).value_name("PATH").value_parser(value_parser!(PathBuf)).help(help)
    };
    let arguments = vec![
        number("elements", "Elements of the big key; all other sizes follow [10000000]"),
        Arg::new("quick")
            .long("quick")
            .action(ArgAction::SetTrue)
            .help("A small, short run: a tenth of the elements, one repeat"),
        Arg::new("only")
            .long("only")
            .value_name("PARTS")
            .help("Only the rows whose name contains one of these, comma-separated"),
        number("cores", "Darter's cores, comma-separated")
            .value_delimiter(',')
            .default_value("1,2"),
        number("rate", "GETs a second in the stream on other keys [2000]"),
        number("limit", "Seconds that one step may take [180]"),
        number("repeats", "How often each pair is measured [3]"),
        path("redis", "redis-server to compare with [from PATH]"),
        Arg::new("alone")
            .long("alone")
            .action(ArgAction::SetTrue)
            .help("Without redis-server: while working on Darter"),
        path("darter", "Darter's binary [target/release/darter]"),
        Arg::new("io")
            .long("io")
            .value_name("BACK")
            .value_parser(["auto", "uring", "epoll"])
            .default_value("auto")
            .help("Darter's event loop"),
        path("floor", "The echo server of `throughput` [target/release/examples/echo]"),
        path("results", "Folder for reports [bench/results]"),
    ];
    let benchmark = |name: &'static str, about: &'static str| {
        Command::new(name).about(about).args(arguments.clone())
    };
    Command::new("darter-bench")
        .about("Compares Darter with redis-server in one run")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(benchmark("bigkey", "Big commands amid everybody else's small ones"))
        .subcommand(benchmark("populate", "DEBUG POPULATE: time and bytes a key"))
        .subcommand(benchmark("throughput", "Operations a second, server CPU per operation"))
        .subcommand(benchmark("expiry", "SETs with a TTL: rate and peak memory"))
        .subcommand(benchmark("small", "Small collections: bytes a key, CPU an operation"))
        .subcommand(benchmark("save", "BGSAVE, alone and under overwrites: time, memory, others"))
        .subcommand(benchmark("load", "RDB files of each type: time and memory"))
        .subcommand(benchmark("gaussdb", "A mixed load over time, beside big keys"))
        .subcommand(benchmark("scaling", "Throughput by the number of cores"))
        .subcommand(benchmark("durability", "SETs and GETs with an append-only file"))
        .subcommand(benchmark("programs", "Transactions, scripts, messages, queues: CPU, latency"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        command().debug_assert();
        let words = ["b", "bigkey", "--quick", "--only", "hgetall,del", "--cores", "1"];
        let options = Options::of(&command().get_matches_from(words)).unwrap();
        assert_eq!(options.scale.elements, 1_000_000);
        assert!(options.wants("HGETALL slow reader") && options.wants("DEL hash"));
        assert!(!options.wants("KEYS *"));
        assert_eq!(options.subjects().len(), 2);
        assert_eq!(options.subjects()[1].name(), "darter, 1 core");
    }
}
