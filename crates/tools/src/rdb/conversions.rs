//! The command lines of `convert`, `merge` and `split`, and the files that they write.
//!
//! A file is written under a temporary name and renamed when it is complete.

use super::convert::{Deadlines, Format, Output, RdbOutput};
use super::filter::{self, Filter, SLOT_MAX};
use super::input::{self, Place, Visitor};
use super::line_reader::{self, Target};
use super::lines::LineWriter;
use super::{files, text};
use clap::{Arg, ArgMatches, Command, value_parser};
use darter_rdb::Event;
use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write, stderr, stdout};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The most files of a split.
const PARTS_MAX: u16 = 1_024;

fn deadlines_argument() -> Arg {
    Arg::new("deadlines")
        .long("deadlines")
        .value_name("keep|drop|shift:SECONDS")
        .help("Keep, drop or shift the deadlines of keys; those of fields stay [default: keep]")
        .allow_hyphen_values(true)
        .value_parser(Deadlines::parse)
}

pub(crate) fn convert_arguments(command: Command) -> Command {
    let command = command
        .arg(files())
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("rdb|aof|json")
                .help("The format: an RDB file, commands, or JSON lines")
                .value_parser(["rdb", "aof", "json"])
                .required(true),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .help("The file to write, which must not exist; '-' for standard output")
                .required(true),
        )
        .arg(
            Arg::new("rdb-version")
                .long("rdb-version")
                .value_name("N")
                .help("From JSON lines: the version of the RDB file, from 10 to 12")
                .value_parser(value_parser!(u16).range(10..=12)),
        )
        .arg(deadlines_argument());
    filter::arguments(command)
}

pub(crate) fn run_convert(matches: &ArgMatches) -> Result<ExitCode, String> {
    let inputs: Vec<&PathBuf> = matches.get_many("file").into_iter().flatten().collect();
    let to = matches.get_one::<String>("to").map_or("rdb", String::as_str);
    let mut written = Written::new(matches.get_one::<String>("output").ok_or("no output")?)?;
    let filter = Filter::of(matches)?;
    let deadlines = matches.get_one("deadlines").copied().unwrap_or(Deadlines::Keep);
    let keys = if is_lines(inputs[0])? {
        if inputs.len() > 1 || !filter.is_open() || deadlines != Deadlines::Keep || to == "json" {
            return Err("JSON lines are converted whole, one file at a time, to rdb or aof: \
                 filter the RDB file"
                .to_owned());
        }
        let version = matches.get_one::<u16>("rdb-version").copied();
        let target = if to == "rdb" { Target::Rdb(version) } else { Target::Commands };
        let mut out = written.open()?;
        let keys = line_reader::convert(inputs[0], target, &mut out)?;
        out.flush().map_err(text)?;
        keys
    } else {
        let format = match to {
            "rdb" => Format::Rdb(Box::new(RdbOutput::new())),
            "aof" => Format::Commands { database: 0, out: Vec::new() },
            _ => Format::Lines(LineWriter::default()),
        };
        let mut output = Output::new(filter, deadlines, format, written.open()?);
        if inputs.len() > 1 {
            output = output.refusing_twins();
        }
        for path in inputs {
            input::read(path, &mut output)?;
        }
        output.finish()?;
        output.keys
    };
    written.keep()?;
    let _ = writeln!(stderr(), "{keys} keys written");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn split_arguments(command: Command) -> Command {
    let command = command
        .arg(files())
        .arg(
            Arg::new("parts")
                .long("parts")
                .value_name("N")
                .help("The number of parts, with equal numbers of slots")
                .value_parser(value_parser!(u16).range(1..=i64::from(PARTS_MAX)))
                .required_unless_present("range"),
        )
        .arg(
            Arg::new("range")
                .long("range")
                .value_name("FROM-TO")
                .help("The slots of a part; once for each part")
                .action(clap::ArgAction::Append)
                .value_parser(filter::slots)
                .conflicts_with("parts"),
        )
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("PREFIX")
                .help("The files are PREFIX.0.rdb, PREFIX.1.rdb, and so on")
                .required(true),
        );
    command.arg(deadlines_argument())
}

pub(crate) fn run_split(matches: &ArgMatches) -> Result<ExitCode, String> {
    let prefix = matches.get_one::<String>("output").ok_or("no output")?;
    let deadlines = matches.get_one("deadlines").copied().unwrap_or(Deadlines::Keep);
    let ranges: Vec<RangeInclusive<u16>> = match matches.get_one::<u16>("parts") {
        Some(parts) => (0..*parts).map(|part| part_of(part, *parts)).collect(),
        None => matches.get_many("range").into_iter().flatten().cloned().collect(),
    };
    let (mut written, mut outputs) = (Vec::new(), Vec::new());
    for (index, range) in ranges.into_iter().enumerate() {
        let mut file = Written::new(&format!("{prefix}.{index}.rdb"))?;
        let format = Format::Rdb(Box::new(RdbOutput::new()));
        let out = file.open()?;
        outputs.push(Output::new(Filter::of_slots(range), deadlines, format, out).refusing_twins());
        written.push(file);
    }
    let mut split = Split { outputs };
    for path in matches.get_many::<PathBuf>("file").into_iter().flatten() {
        input::read(path, &mut split)?;
    }
    for (output, file) in split.outputs.iter_mut().zip(&mut written) {
        output.finish()?;
        let _ = writeln!(stderr(), "{}: {} keys written", file.path.display(), output.keys);
    }
    written.iter_mut().try_for_each(Written::keep)?;
    Ok(ExitCode::SUCCESS)
}

/// The slots of a part.
fn part_of(part: u16, parts: u16) -> RangeInclusive<u16> {
    let begin = |part: u16| {
        let slots = u32::from(SLOT_MAX) + 1;
        (u32::from(part) * slots).div_ceil(u32::from(parts)) as u16
    };
    begin(part)..=begin(part + 1) - 1
}

/// Several outputs that are written in one pass.
struct Split {
    outputs: Vec<Output>,
}

impl Visitor for Split {
    fn event(&mut self, event: &Event<'_>) -> Result<(), String> {
        self.outputs.iter_mut().try_for_each(|output| output.event(event))
    }

    fn end_of_key(&mut self, place: Place<'_>) -> Result<(), String> {
        self.outputs.iter_mut().try_for_each(|output| output.end_of_key(place))
    }

    fn command(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.outputs.iter_mut().try_for_each(|output| output.command(bytes))
    }
}

/// A file that is being written.
pub(crate) struct Written {
    path: PathBuf,
    /// The temporary name; `None` for standard output.
    temporary: Option<PathBuf>,
    is_kept: bool,
}

impl Written {
    /// A file under this name. Errors: it exists.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let path = PathBuf::from(name);
        if name == "-" {
            return Ok(Self { path, temporary: None, is_kept: true });
        }
        if path.exists() {
            return Err(format!("{name} exists"));
        }
        let temporary = Some(PathBuf::from(format!("{name}.{}.tmp", std::process::id())));
        Ok(Self { path, temporary, is_kept: false })
    }

    /// Creates the file.
    pub(crate) fn open(&mut self) -> Result<Box<dyn Write>, String> {
        let Some(temporary) = &self.temporary else { return Ok(Box::new(stdout())) };
        let file = File::create_new(temporary)
            .map_err(|error| format!("{}: {error}", temporary.display()))?;
        Ok(Box::new(BufWriter::with_capacity(1 << 18, file)))
    }

    /// Gives the complete file its name.
    pub(crate) fn keep(&mut self) -> Result<(), String> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        let wrong = |error| format!("{}: {error}", self.path.display());
        File::open(temporary).and_then(|file| file.sync_all()).map_err(wrong)?;
        fs::rename(temporary, &self.path).map_err(wrong)?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.as_ref().filter(|_| !self.is_kept) {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// True for a file that begins with `{`.
fn is_lines(path: &Path) -> Result<bool, String> {
    let wrong = |error| format!("{}: {error}", path.display());
    if path.metadata().map_err(wrong)?.is_dir() {
        return Ok(false);
    }
    let mut head = Vec::new();
    let file = File::open(path).map_err(wrong)?;
    std::io::Read::take(file, 1).read_to_end(&mut head).map_err(wrong)?;
    Ok(head == b"{")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_slots_without_overlap() {
        for parts in [1, 2, 3, 7, 1_024] {
            let mut next = 0_u32;
            for part in 0..parts {
                let range = part_of(part, parts);
                assert_eq!(u32::from(*range.start()), next, "{part} of {parts}");
                next = u32::from(*range.end()) + 1;
            }
            assert_eq!(next, u32::from(SLOT_MAX) + 1);
        }
    }
}
