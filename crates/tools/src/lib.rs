//! The commands for operators: `darter check`, and its siblings.
//!
//! Each command is a module and a row of [`SUBCOMMANDS`]. The program calls [`run`] before it reads
//! the server's settings; a settings file named as a command is given as `./check`.
//!
//! A command prints its report to standard output, and errors to standard error. It exits with 0 if
//! all is good, with 1 after a fault or an error, and with 2 if the command line is wrong.
//!
//! Not here: the server. A command reads files, and may talk to a server as a client.

#![forbid(unsafe_code)]

mod backup;
mod check;
mod commands;
mod disk;
mod files;
mod journal;
mod needs;
mod place;
mod rdb;
mod restore;
#[cfg(test)]
mod sample;
mod time;
mod verify;

use clap::ArgMatches;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

/// The exit code of a wrong command line.
const USAGE: u8 = 2;

/// A command for operators.
struct Subcommand {
    name: &'static str,
    about: &'static str,
    /// Adds the arguments.
    arguments: fn(clap::Command) -> clap::Command,
    /// Runs the command. An error is a sentence.
    run: fn(&ArgMatches) -> Result<ExitCode, String>,
}

#[rustfmt::skip] // A table.
const SUBCOMMANDS: &[Subcommand] = &[
    Subcommand { name: "check", about: "verify RDB files and append-only files", arguments: check::arguments, run: check::run },
    Subcommand { name: "backup", about: "copy the data of a running server", arguments: backup::arguments, run: backup::run },
    Subcommand { name: "restore", about: "write a folder with the data of an earlier moment", arguments: restore::arguments, run: restore::run },
    Subcommand { name: "journal", about: "print the commands of append-only files, and follow them", arguments: journal::arguments, run: journal::run },
    Subcommand { name: "disk", about: "measure how long a commit takes in a folder", arguments: disk::arguments, run: disk::run },
    Subcommand { name: "rdb",   about: "report on RDB files, and convert them", arguments: rdb::arguments, run: rdb::run },
];

/// Runs the command that the first word names. Returns `None` if it names none: then the words are
/// the server's.
#[must_use]
pub fn run(words: &[String]) -> Option<ExitCode> {
    let name = words.first()?;
    let subcommand = SUBCOMMANDS.iter().find(|subcommand| subcommand.name == name)?;
    let command = clap::Command::new(subcommand.name)
        .bin_name(format!("darter {name}"))
        .about(subcommand.about)
        .no_binary_name(true)
        .disable_version_flag(true);
    Some(match (subcommand.arguments)(command).try_get_matches_from(&words[1..]) {
        Ok(matches) => (subcommand.run)(&matches).unwrap_or_else(|why| {
            let _ = writeln!(std::io::stderr(), "darter {name}: {why}");
            ExitCode::FAILURE
        }),
        Err(error) => {
            let _ = error.print();
            if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
        }
    })
}

/// The lines about the commands in `darter --help`.
#[must_use]
pub fn summary() -> String {
    let mut text = String::new();
    for Subcommand { name, about, .. } in SUBCOMMANDS {
        let _ = writeln!(text, "  {name:<16} {about}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_name_no_command_are_left_to_the_server() {
        for words in [&[][..], &["./check"], &["--port", "7000"], &["darter.conf"]] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(run(&words), None, "{words:?}");
        }
    }

    #[test]
    fn a_wrong_command_line_exits_with_2_and_help_with_0() {
        let exit = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            run(&words)
        };
        assert_eq!(exit(&["check"]), Some(ExitCode::from(USAGE)));
        assert_eq!(exit(&["check", "--nothing", "x"]), Some(ExitCode::from(USAGE)));
        assert_eq!(exit(&["check", "--help"]), Some(ExitCode::SUCCESS));
        assert_eq!(exit(&["check", "/no/such/file"]), Some(ExitCode::FAILURE));
        assert!(summary().contains("check"), "{}", summary());
    }
}
