//! `darter journal tail`: prints the commands of append-only files, and follows a running server.
//!
//! - `cursor`: reads what is complete in a file.
//!
//! ```text
//! 2026-11-28 23:31:26.007+01:00 2:1048 "SET" "user:1" "x"
//! `───────── time ────────────´ │ └ offset in the file
//!                               └── sequence number of the increment
//! ```

mod cursor;

use crate::files::{Folder, is_manifest};
use crate::verify::verify;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cursor::{Cursor, Follows};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The pause after the end of the data was reached.
const POLL: Duration = Duration::from_millis(10);
/// The number of pauses after which a batch that is missing before the next file is given up: a
/// server never writes it if its disk has failed.
const WAITS_MAX: u32 = 300;
/// The number of commands that are printed first, if the data are followed.
const LINES: usize = 10;

pub(crate) fn arguments(command: Command) -> Command {
    let tail = Command::new("tail")
        .about("print the commands, one a line, with time, increment and offset")
        .disable_version_flag(true)
        .arg(
            Arg::new("path")
                .value_name("FILE|FOLDER")
                .help("A folder with append-only files, or one such file")
                .value_parser(value_parser!(PathBuf))
                .default_value("appendonlydir"),
        )
        .arg(
            Arg::new("follow")
                .short('f')
                .long("follow")
                .help("Wait for more commands, also over rewrites and restarts")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("lines")
                .short('n')
                .long("lines")
                .value_name("N")
                .help("Print only the last N of the present commands [default: all; 10 with -f]")
                .value_parser(value_parser!(usize)),
        );
    command.subcommand_required(true).disable_help_subcommand(true).subcommand(tail)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, String> {
    let Some(("tail", matches)) = matches.subcommand() else { return Err("no command".into()) };
    let path = matches.get_one::<PathBuf>("path").ok_or("no path")?;
    let follows = matches.get_flag("follow");
    let lines = matches.get_one("lines").copied();
    let lines = lines.unwrap_or(if follows { LINES } else { usize::MAX });
    let mut printer = Printer { out: io::stdout().lock(), last: VecDeque::new(), lines };
    let mut tail = Tail::open(path)?;
    loop {
        tail.open_later()?;
        let has_read = tail.read(&mut |line| printer.take(line))?;
        if printer.is_closed() {
            return Ok(ExitCode::SUCCESS);
        }
        if has_read || tail.next_file()? {
            continue;
        }
        if printer.print_last().is_err() || !follows {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(POLL);
    }
}

/// Prints lines. At first, it keeps the last ones.
struct Printer<W> {
    out: W,
    last: VecDeque<String>,
    /// The number of lines to keep. After they were printed, or if there is no limit, each line is
    /// printed at once.
    lines: usize,
}

impl<W: Write> Printer<W> {
    fn take(&mut self, line: String) -> bool {
        if self.lines == usize::MAX {
            let printed = writeln!(self.out, "{line}");
            if printed.is_err() {
                self.lines = 0;
            }
            return printed.is_ok();
        }
        self.last.push_back(line);
        if self.last.len() > self.lines {
            self.last.pop_front();
        }
        true
    }

    /// True if nobody reads the output.
    fn is_closed(&mut self) -> bool {
        self.out.flush().is_err()
    }

    /// Prints the lines that were kept. From now on there is no limit.
    fn print_last(&mut self) -> io::Result<()> {
        self.lines = usize::MAX;
        for line in self.last.drain(..) {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }
}

/// The files, one after the other.
struct Tail {
    /// The manifest. `None` for a single file.
    manifest: Option<PathBuf>,
    cursor: Option<Cursor>,
    /// The later files, opened at once: a rewrite may remove them.
    later: VecDeque<Cursor>,
    /// The number of pauses since the next file was found.
    waits: u32,
}

impl Tail {
    fn open(path: &Path) -> Result<Self, String> {
        if path.is_dir() || is_manifest(path) {
            let folder = Folder::find(path)?;
            let manifest = folder.path.join(&folder.manifest_name);
            return Ok(Self {
                manifest: Some(manifest),
                cursor: None,
                later: VecDeque::new(),
                waits: 0,
            });
        }
        let files = verify(&[path.to_owned()])?;
        let begin = files.first().map_or(0, |file| file.commands_from);
        let cursor = Some(Cursor::open(path, 0, begin)?);
        Ok(Self { manifest: None, cursor, later: VecDeque::new(), waits: 0 })
    }

    /// Passes the complete commands to `take` as lines, until it returns false. Returns false if
    /// there are none yet.
    fn read(&mut self, take: &mut dyn FnMut(String) -> bool) -> Result<bool, String> {
        self.cursor.as_mut().map_or(Ok(false), |cursor| cursor.read(take))
    }

    /// Opens the increments that the manifest names by now.
    fn open_later(&mut self) -> Result<(), String> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        if !manifest.exists() {
            return Ok(()); // The folder is being replaced.
        }
        let folder = Folder::open(manifest)?;
        let mut last = self.later.back().or(self.cursor.as_ref()).map(Cursor::sequence);
        for listed in &folder.manifest.increments {
            // A file that cannot be opened was removed by a rewrite, after the manifest was read.
            if last.is_none_or(|last| listed.sequence > last)
                && let Ok(next) = Cursor::open(&listed.path_in(&folder.path), listed.sequence, 0)
            {
                last = Some(listed.sequence);
                self.later.push_back(next);
            }
        }
        Ok(())
    }

    /// Goes on to the next increment, if the current one is complete.
    fn next_file(&mut self) -> Result<bool, String> {
        let Some(next) = self.later.front() else { return Ok(false) };
        let follows = self.cursor.as_ref().map_or(Ok(Follows::Directly), |it| it.follows(next))?;
        match follows {
            Follows::NotYet if self.waits < WAITS_MAX => {
                self.waits += 1;
                return Ok(false);
            }
            Follows::Directly => {}
            Follows::NotYet | Follows::WithGap => {
                let _ = writeln!(
                    io::stderr(),
                    "commands before increment {} are missing: they were removed by a rewrite, or \
                     never written",
                    next.sequence()
                );
            }
        }
        let before = self.cursor.take();
        self.cursor = self.later.pop_front().map(|next| match &before {
            Some(before) => next.after(before),
            None => next,
        });
        self.waits = 0;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, command};
    use std::fs;

    fn set(value: &str) -> Vec<u8> {
        command(&["SET", "k", value])
    }

    /// The new lines, without their times.
    fn lines(tail: &mut Tail) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            tail.open_later().unwrap();
            let has_read = tail.read(&mut |line| {
                found.push(line[line.find("+").map_or(0, |at| at + 7)..].to_owned());
                true
            });
            if !has_read.unwrap() && !tail.next_file().unwrap() {
                return found;
            }
        }
    }

    #[test]
    fn complete_batches_are_followed_over_files() {
        let sample = Sample::new("tail");
        let mut chain = sample.chain();
        chain.add(1_000, &[set("1"), set("2")]);
        let one = chain.bytes.clone();
        chain.add(2_000, &[set("3")]);
        let two = chain.next_file();
        // The last byte of the second batch is not there yet.
        let mut partial = two.clone();
        let last = partial.len() - 1;
        partial[last] = 0;
        partial.extend([0; 60]);
        let folder = sample.folder(&[&partial]);
        let mut tail = Tail::open(&folder).unwrap();
        let wanted = |offset: usize, value: &str| format!("1:{offset} \"SET\" \"k\" \"{value}\"");
        let line = one.len() - 2 * set("1").len();
        assert_eq!(lines(&mut tail), [wanted(line, "1"), wanted(line + set("1").len(), "2")]);
        assert_eq!(lines(&mut tail), [""; 0]);

        // A rewrite names the next file before the last batch of this one is written.
        chain.add(3_000, &[]);
        let begin = chain.bytes.clone();
        sample.folder(&[&partial, &[]]);
        assert_eq!(lines(&mut tail), [""; 0]);
        sample.folder(&[&two, &begin]);
        assert_eq!(lines(&mut tail), [wanted(two.len() - set("3").len(), "3")]);
        chain.add(4_000, &[set("4")]);
        fs::write(folder.join("appendonly.aof.2.incr.aof"), &chain.bytes).unwrap();
        let offset = chain.bytes.len() - set("4").len();
        assert_eq!(lines(&mut tail), [format!("2:{offset} \"SET\" \"k\" \"4\"")]);
    }

    #[test]
    fn commands_of_redis_are_followed_outside_of_transactions() {
        let sample = Sample::new("tail-redis");
        let open = [&set("1")[..], &command(&["MULTI"]), &set("2"), b"*1\r\n$4"].concat();
        let file = sample.path.join("a.aof");
        fs::write(&file, &open).unwrap();
        let mut tail = Tail::open(&file).unwrap();
        assert_eq!(lines(&mut tail), ["- 0:0 \"SET\" \"k\" \"1\""]);
        fs::write(&file, [&open[..], b"\r\nEXEC\r\n"].concat()).unwrap();
        assert_eq!(lines(&mut tail).len(), 3);
    }

    #[test]
    fn only_the_last_lines_are_printed_at_first() {
        let mut printer = Printer { out: Vec::new(), last: VecDeque::new(), lines: 2 };
        for line in ["a", "b", "c"] {
            assert!(printer.take(line.into()));
        }
        printer.print_last().unwrap();
        printer.take("d".into());
        assert_eq!(String::from_utf8(printer.out).unwrap(), "b\nc\nd\n");
    }
}
