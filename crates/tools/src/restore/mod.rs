//! `darter restore`: writes a folder with the data of an earlier moment.
//!
//! ```text
//! base | increment | increment: … batch 14:02:31 | batch 14:02:32: SET, FLUSHALL, SET | …
//!                                                ▲                     ▲
//!                                --to 14:02:31 ──┘                     └── --before FLUSHALL
//! ```
//! - `moment`: finds the place at which the files are to be cut.
//!
//! A batch that is cut gets a new line, with the checksum of the bytes that are left.

mod moment;

use crate::commands::{Entry, FoundCommand};
use crate::files::{Folder, named, read};
use crate::place::{PlacedFile, place};
use crate::time;
use crate::verify::{FaultKind, Verified, verify};
use clap::{Arg, ArgMatches, Command, value_parser};
use darter_persist::aof::annotation::{Annotation, Head, LINE_MAX_BYTES};
use darter_persist::aof::manifest::{Generation, Manifest};
use moment::{Cut, Moment, find, walk};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The commands that are listed when no moment is given.
const LISTED: &[&str] = &["FLUSHALL", "FLUSHDB", "SWAPDB"];
/// The folder of append-only files within the new folder: the default of `appenddirname`.
const FOLDER: &str = "appendonlydir";

pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("folder")
                .value_name("FOLDER")
                .help("The folder with the append-only files. It is not changed")
                .value_parser(value_parser!(PathBuf))
                .required(true),
        )
        .arg(
            Arg::new("to")
                .long("to")
                .value_name("TIME")
                .help("Keep the changes up to this time: 'HH:MM:SS' (today), 'YYYY-MM-DD HH:MM:SS', Unix seconds"),
        )
        .arg(
            Arg::new("before")
                .long("before")
                .value_name("COMMAND")
                .help("Keep the changes before the last command that begins so, such as FLUSHALL or 'DEL key'; with --to: the last one up to that time"),
        )
        .arg(
            Arg::new("into")
                .long("into")
                .value_name("FOLDER")
                .help("The new folder [default: restored]. It must not exist")
                .value_parser(value_parser!(PathBuf))
                .default_value("restored"),
        )
        .after_help("Without --to and --before, the times that can be restored and all FLUSHALL, FLUSHDB and SWAPDB are listed.")
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, String> {
    let path = matches.get_one::<PathBuf>("folder").ok_or("no folder")?;
    let to_ms = matches.get_one::<String>("to").map(|text| time::parse(text)).transpose()?;
    let before = matches.get_one::<String>("before").map(|text| {
        text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>()
    });
    let folder = Folder::find(path)?;
    let text = match (to_ms, before) {
        (None, None) => listing(&folder)?,
        (to_ms, before) => {
            let into = matches.get_one::<PathBuf>("into").ok_or("no folder")?;
            restore(&folder, &Moment { to_ms, before }, into)?
        }
    };
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// The verified files of a generation. Damage is reported on standard error.
fn verified(folder: &Folder, generation: &Generation) -> Result<Vec<Verified>, String> {
    let Generation { base, increments } = generation;
    let paths: Vec<PathBuf> =
        base.iter().chain(increments).map(|file| file.path_in(&folder.path)).collect();
    let files = verify(&paths)?;
    for file in &files {
        if let Some(fault) = file.fault.as_ref().filter(|it| it.kind == FaultKind::Damage) {
            let _ = writeln!(
                std::io::stderr(),
                "{}: damage at offset {}: what follows cannot be restored",
                file.path.display(),
                fault.offset
            );
        }
    }
    Ok(files)
}

/// The times that can be restored, and the commands of [`LISTED`].
fn listing(folder: &Folder) -> Result<String, String> {
    let mut text = String::new();
    for generation in folder.manifest.generations().iter().rev() {
        list_generation(&verified(folder, generation)?, &mut text)?;
    }
    Ok(text)
}

fn list_generation(files: &[Verified], text: &mut String) -> Result<(), String> {
    let (mut times, mut now) = (None::<(u64, u64)>, None);
    if let Some(unix_s) = base_time(files) {
        let _ = writeln!(text, "base: {}", time::show(unix_s.saturating_mul(1_000)));
    }
    walk(files, &mut |file, entry| {
        match entry {
            Entry::Batch(Annotation { head: Head { unix_ms, .. }, .. }, _)
            | Entry::Time(unix_ms, _) => {
                now = Some(*unix_ms);
                times = Some((times.map_or(*unix_ms, |(first, _)| first), *unix_ms));
            }
            Entry::Command(command) if LISTED.contains(&&*command.name()) => {
                let when = now.map_or_else(|| "at an unknown time".into(), time::show);
                let name = files[file].path.file_name().unwrap_or_default().to_string_lossy();
                let _ = writeln!(text, "{when} {name}:{} {}", command.offset, command.show());
            }
            Entry::Command(_) => {}
        }
        true
    })?;
    match times {
        Some((first, last)) => {
            let _ = writeln!(text, "changes: from {} to {}", time::show(first), time::show(last));
        }
        None => text.push_str("the increments have no times, so only --before can be used\n"),
    }
    Ok(())
}

/// The time of the base in Unix seconds.
fn base_time(files: &[Verified]) -> Option<u64> {
    files.first()?.rdb.as_ref()?.unix_s
}

/// Writes the folder, from the newest generation that has the moment. Returns a report.
fn restore(folder: &Folder, moment: &Moment, into: &Path) -> Result<String, String> {
    if into.exists() {
        return Err(named(into, "the folder exists; name a new one by --into"));
    }
    let generations = folder.manifest.generations();
    let mut why = String::new();
    for (index, generation) in generations.iter().enumerate() {
        let files = verified(folder, generation)?;
        if let (Some(to_ms), Some(unix_s)) = (moment.to_ms, base_time(&files)) {
            // The base's time lacks its milliseconds; the earlier generation has the data up to it.
            let is_oldest = index + 1 == generations.len();
            let first_ms = (unix_s + u64::from(!is_oldest)).saturating_mul(1_000);
            if to_ms < first_ms {
                let base = time::show(unix_s.saturating_mul(1_000));
                why = format!("the oldest base was made at {base}: no earlier data is kept");
                continue;
            }
        }
        match find(&files, moment) {
            Ok(cut) => return write(folder, generation, &files, &cut, into),
            Err(error) => why = error,
        }
        if moment.before.is_none() {
            break;
        }
    }
    Err(why)
}

/// Writes the folder with the files of a generation up to the cut. Returns a report.
fn write(
    folder: &Folder,
    generation: &Generation,
    files: &[Verified],
    cut: &Cut,
    into: &Path,
) -> Result<String, String> {
    let mut placed = Vec::new();
    for (index, file) in files.iter().enumerate().take(cut.file + 1) {
        if index < cut.file {
            placed.push(PlacedFile::new(&file.path, file.good));
        } else if cut.offset > 0 {
            placed.push(last_file(file, cut)?);
        }
    }
    if placed.is_empty() {
        return Err("no data precedes this moment".into());
    }
    let Generation { base, mut increments } = generation.clone();
    increments.truncate(placed.len() - usize::from(base.is_some()));
    let manifest = Manifest { base, increments, ..Manifest::default() };
    fs::create_dir(into).map_err(|error| named(into, error))?;
    place(&placed, &into.join(FOLDER), &folder.manifest_name, &manifest)?;
    let mut text = format!("restored into {}", into.display());
    if let Some(unix_ms) = cut.unix_ms {
        let _ = write!(text, ": changes up to {}", time::show(unix_ms));
    }
    if let Some(command) = &cut.before {
        let _ = write!(text, ", before {command}");
    }
    let _ = writeln!(text, "\nto use it: darter --dir {} --appendonly yes", into.display());
    Ok(text)
}

/// The last file, up to the cut. A batch that is cut is sealed again.
fn last_file(file: &Verified, cut: &Cut) -> Result<PlacedFile, String> {
    let Some((annotation, begin)) = cut.batch else {
        return Ok(PlacedFile::new(&file.path, cut.offset));
    };
    let mut bytes = Vec::new();
    read(&file.path, (begin, cut.offset), &mut |part| {
        bytes.extend_from_slice(part);
        true
    })?;
    let line = memchr::memchr(b'\n', &bytes).filter(|end| *end < LINE_MAX_BYTES);
    let body = &bytes[line.ok_or_else(|| named(&file.path, "the file changes"))? + 1..];
    let head = Head { bytes: body.len() as u64, ..annotation.head };
    let mut tail = Vec::new();
    head.seal([body]).write(&mut tail);
    tail.extend_from_slice(body);
    Ok(PlacedFile { source: file.path.clone(), bytes: begin, tail })
}

/// True if the arguments of a command begin with these words. The case of its name does not matter.
fn begins_with(command: &FoundCommand<'_>, words: &[Vec<u8>]) -> bool {
    let mut arguments = command.arguments();
    words.iter().enumerate().all(|(index, word)| {
        arguments.next().is_some_and(|argument| {
            *word == argument.bytes || index == 0 && word.eq_ignore_ascii_case(argument.bytes)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, command};

    fn set(value: &str) -> Vec<u8> {
        command(&["SET", "k", value])
    }

    /// The folder with three batches in two increments.
    fn sample(name: &str) -> (Sample, Folder) {
        let sample = Sample::new(name);
        let mut chain = sample.chain();
        chain.add(1_000, &[set("1"), set("2")]);
        chain.add(2_000, &[set("3"), command(&["flushall"]), set("4")]);
        let first = chain.next_file();
        chain.add(
            3_000,
            &[command(&["MULTI"]), set("5"), command(&["FLUSHALL"]), command(&["EXEC"])],
        );
        let second = [&chain.next_file()[..], &[0; 40]].concat();
        let folder = sample.folder(&[&first, &second]);
        (sample, Folder::find(&folder).unwrap())
    }

    /// The values that the restored files set, after they were verified.
    fn restored(sample: &Sample, folder: &Folder, moment: &Moment) -> Result<Vec<String>, String> {
        let into = sample.path.join("restored");
        let _ = fs::remove_dir_all(&into); // The first time, there is none.
        restore(folder, moment, &into)?;
        let files = verify(&Folder::find(&into)?.loaded())?;
        assert!(files.iter().all(|file| file.fault.is_none() && file.good == file.bytes));
        let mut found = Vec::new();
        walk(&files, &mut |_, entry| {
            if let Entry::Command(command) = entry {
                found.push(
                    command.arguments().last().map_or_else(String::new, |it| {
                        String::from_utf8_lossy(it.bytes).into_owned()
                    }),
                );
            }
            true
        })?;
        Ok(found)
    }

    #[test]
    fn data_are_restored_to_a_time() {
        let (sample, folder) = sample("restore-to");
        let to = |to_ms| {
            restored(&sample, &folder, &Moment { to_ms: Some(to_ms), before: None })
                .map(|values| values.len())
        };
        assert_eq!(to(999), Err("no data precedes this moment".into()));
        assert_eq!(to(1_000), Ok(2));
        assert_eq!(to(2_500), Ok(5));
        assert_eq!(to(3_000), Ok(9));
        assert_eq!(to(u64::MAX), Ok(9));
    }

    #[test]
    fn data_are_restored_to_the_state_before_a_command() {
        let (sample, folder) = sample("restore-before");
        let before = |words: &str, to_ms| {
            let before = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            restored(&sample, &folder, &Moment { to_ms, before: Some(before) })
        };
        // The last one is in a transaction, which is left out as a whole.
        assert_eq!(before("FLUSHALL", None).unwrap(), ["1", "2", "3", "flushall", "4"]);
        // The batch is cut.
        assert_eq!(before("FLUSHALL", Some(2_999)).unwrap(), ["1", "2", "3"]);
        assert_eq!(before("set k 2", None).unwrap(), ["1"]);
        let why = before("FLUSHALL", Some(1_500)).unwrap_err();
        assert!(why.contains("no command"), "{why}");
        assert!(before("SET k 9", None).is_err());
    }

    #[test]
    fn timestamps_of_redis_are_moments() {
        let sample = Sample::new("restore-redis");
        let bytes = [b"#TS:1\r\n", &set("1")[..], b"#TS:2\r\n", &set("2")].concat();
        let folder = Folder::find(&sample.folder(&[&bytes])).unwrap();
        for (to_ms, wanted) in [(1_999, 1), (2_000, 2)] {
            let moment = Moment { to_ms: Some(to_ms), before: None };
            assert_eq!(restored(&sample, &folder, &moment).unwrap().len(), wanted);
        }
        let text = listing(&folder).unwrap();
        assert!(text.starts_with("changes: from "), "{text}");
    }

    #[test]
    fn commands_that_remove_all_are_listed() {
        let (_sample, folder) = sample("restore-list");
        let text = listing(&folder).unwrap();
        assert_eq!(text.matches("\"flushall\"").count(), 1, "{text}");
        assert_eq!(text.matches("\"FLUSHALL\"").count(), 1, "{text}");
    }

    /// An RDB file without keys, made at this Unix second.
    fn rdb(unix_s: u8) -> Vec<u8> {
        [b"REDIS0010\xfa\x05ctime\xc0", &[unix_s][..], b"\xff\0\0\0\0\0\0\0\0"].concat()
    }

    #[test]
    fn kept_generations_are_restored_without_later_increments() {
        let sample = Sample::new("restore-kept");
        let path = sample.folder(&[]);
        let mut chain = sample.chain();
        chain.add(1_500, &[set("1"), command(&["FLUSHALL"])]);
        let old = chain.next_file();
        chain.add(6_000, &[set("2")]);
        let files: [(&str, &[u8]); 5] = [
            ("a.1.base.rdb", &rdb(1)),
            ("a.1.incr.aof", &old),
            ("a.2.base.rdb", &rdb(5)),
            ("a.2.incr.aof", &chain.bytes),
            (
                "appendonly.aof.manifest",
                b"file a.2.base.rdb seq 2 type b\nfile a.1.incr.aof seq 1 type h\n\
                  file a.1.base.rdb seq 1 type h\nfile a.2.incr.aof seq 2 type i\n",
            ),
        ];
        for (name, bytes) in files {
            fs::write(path.join(name), bytes).unwrap();
        }
        let folder = Folder::find(&path).unwrap();
        let to = |to_ms| restored(&sample, &folder, &Moment { to_ms: Some(to_ms), before: None });
        assert_eq!(to(6_000).unwrap(), ["2"]);
        // The base may be from the end of this second.
        assert_eq!(to(5_900).unwrap(), ["1", "FLUSHALL"]);
        assert_eq!(to(4_000).unwrap(), ["1", "FLUSHALL"]);
        assert_eq!(to(1_200).unwrap(), [""; 0]);
        assert!(to(999).unwrap_err().contains("the oldest base was made at"));
        let before = Some(vec![b"FLUSHALL".to_vec()]);
        let found = restored(&sample, &folder, &Moment { to_ms: None, before });
        assert_eq!(found.unwrap(), ["1"]);
        assert_eq!(listing(&folder).unwrap().matches("base: ").count(), 2);
    }

    #[test]
    fn an_existing_folder_is_not_touched() {
        let (sample, folder) = sample("restore-exists");
        let moment = Moment { to_ms: Some(5_000), before: None };
        let why = restore(&folder, &moment, &sample.path);
        assert!(why.unwrap_err().contains("the folder exists"));
    }
}
