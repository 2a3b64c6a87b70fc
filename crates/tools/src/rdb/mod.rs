//! `darter rdb`: reports on RDB files and append-only files, and converts them.
//!
//! - `input`: reads files, and passes their keys to a `Visitor`; `progress`: how far it is.
//! - `filter`: the choice of keys.
//! - `report`: figures; `measure`, `redis_size`: the memory of a key; `prefixes`: sums by name.
//! - `conversions`: command lines of conversions; `convert`: writes files; `lines`, `line_reader`:
//!   JSON lines; `resp`: commands as bytes.
//!
//! Files are streamed: memory does not grow with values or with the number of keys, except where
//! docs/rdb.md says so.

mod conversions;
mod convert;
mod filter;
mod input;
mod line_reader;
mod lines;
mod measure;
mod prefixes;
mod progress;
mod redis_size;
mod report;
mod resp;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use filter::Filter;
use prefixes::{Grouping, Prefixes};
use report::Report;
use std::io::{BufWriter, Write as _, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

/// A subcommand.
struct Act {
    name: &'static str,
    about: &'static str,
    arguments: fn(Command) -> Command,
    run: fn(&ArgMatches) -> Result<ExitCode, String>,
}

#[rustfmt::skip] // A table.
const ACTS: &[Act] = &[
    Act { name: "report", about: "Count keys and memory: the default", arguments: report_arguments, run: run_report },
    Act { name: "convert", about: "Convert, filter and merge RDB files, append-only files and JSON lines", arguments: conversions::convert_arguments, run: conversions::run_convert },
    Act { name: "split", about: "Split RDB files by slot", arguments: conversions::split_arguments, run: conversions::run_split },
];

pub(crate) fn arguments(command: Command) -> Command {
    let acts = ACTS.iter().map(|act| (act.arguments)(Command::new(act.name).about(act.about)));
    report_arguments(command)
        .subcommands(acts)
        .disable_help_subcommand(true)
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, String> {
    let Some((name, matches)) = matches.subcommand() else { return run_report(matches) };
    let act = ACTS.iter().find(|act| act.name == name).ok_or("an unknown subcommand")?;
    (act.run)(matches)
}

/// The argument for the files to read.
fn files() -> Arg {
    Arg::new("file")
        .value_name("FILE")
        .help("An RDB file, an append-only file, a manifest, or a folder with one")
        .value_parser(value_parser!(PathBuf))
        .required(true)
        .num_args(1..)
}

/// The arguments that choose the pattern of a name.
fn grouping_arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("separator")
                .long("separator")
                .value_name("BYTE")
                .help("Group names by their segments, instead of folding digits and identifiers"),
        )
        .arg(
            Arg::new("depth")
                .long("depth")
                .value_name("N")
                .help("The number of segments of a prefix [default: 1]")
                .value_parser(value_parser!(u64))
                .requires("separator"),
        )
}

fn grouping(matches: &ArgMatches) -> Result<Grouping, String> {
    let Some(separator) = matches.get_one::<String>("separator") else {
        return Ok(Grouping::Found);
    };
    let [separator] = *separator.as_bytes() else {
        return Err("the separator is not one byte".to_owned());
    };
    let depth = matches.get_one::<u64>("depth").copied().unwrap_or(1);
    Ok(Grouping::Segments { separator, depth: usize::try_from(depth).unwrap_or(usize::MAX) })
}

fn report_arguments(command: Command) -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
    };
    let command = command
        .arg(files())
        .arg(flag("json", "Print the report as JSON").conflicts_with("csv"))
        .arg(flag("csv", "Print one line for each key, with the columns of rdbtools"))
        .arg(
            Arg::new("largest")
                .long("largest")
                .value_name("N")
                .help("The number of keys and prefixes that are listed [default: 20]")
                .value_parser(value_parser!(u64)),
        );
    filter::arguments(grouping_arguments(command))
}

fn run_report(matches: &ArgMatches) -> Result<ExitCode, String> {
    let filter = Filter::of(matches)?;
    let largest = matches.get_one::<u64>("largest").map_or(20, |count| *count as usize);
    let mut report = Report::new(filter, Prefixes::new(grouping(matches)?), largest, now());
    let is_csv = matches.get_flag("csv");
    if is_csv {
        let mut out = BufWriter::new(stdout());
        writeln!(out, "{}", report::COLUMNS).map_err(text)?;
        report =
            report.with_each(move |size| writeln!(out, "{}", report::csv_line(size)).map_err(text));
    }
    for file in matches.get_many::<PathBuf>("file").into_iter().flatten() {
        input::read(file, &mut report)?;
    }
    let mut out = BufWriter::new(stdout().lock());
    if matches.get_flag("json") {
        writeln!(out, "{:#}", report.into_json()).map_err(text)?;
    } else if !is_csv {
        report.write_table(&mut out).map_err(text)?;
    }
    out.flush().map_err(text)?;
    Ok(ExitCode::SUCCESS)
}

/// Unix milliseconds.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
