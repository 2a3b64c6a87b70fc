//! `cargo x mutants`: do the tests notice when the code is wrong?
//!
//! The tool `cargo-mutants` changes one place at a time (a `<` into `<=`, a function's result into
//! a default) in a copy of the tree, and runs the crate's tests. A change that no test notices is
//! *missed*: either a test is missing, or the change is equivalent, and then it is listed with its
//! reason in `.cargo/mutants.toml`.
//!
//! All places would take days, so a run takes a sample: every n-th place, which spreads it evenly
//! over the files. The seed selects the first one, so that other seeds find others.
//!
//! `cargo x mutants [--count 50] [--seed 0] [resp tx ...]`; not part of `./check`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A part that is sampled separately, with its own tests.
struct Part {
    name: &'static str,
    package: &'static str,
    /// The files whose places count.
    files: &'static str,
}

/// All parts but `runtime`, which is about real sockets and threads: a change there hangs more
/// often than it fails.
#[rustfmt::skip] // A table.
const PARTS: &[Part] = &[
    Part { name: "base",     package: "darter-base",     files: "crates/base/src/**" },
    Part { name: "structs",  package: "darter-structs",  files: "crates/structs/src/**" },
    Part { name: "resp",     package: "darter-resp",     files: "crates/resp/src/**" },
    Part { name: "keyspace", package: "darter-keyspace", files: "crates/keyspace/src/**" },
    Part { name: "tx",       package: "darter-tx",       files: "crates/tx/src/**" },
    Part { name: "command",  package: "darter-command",  files: "crates/command/src/**" },
    Part { name: "families", package: "darter-families", files: "crates/families/src/**" },
    Part { name: "rdb",      package: "darter-rdb",      files: "crates/rdb/src/**" },
    Part { name: "persist",  package: "darter-persist",  files: "crates/persist/src/**" },
    Part { name: "engine",   package: "darter-server",   files: "crates/server/src/engine/**" },
];

/// Parts that are also tested by another package: the one with the types that they serve.
const TESTED_ABOVE: &[(&str, &str)] = &[("keyspace", "darter-families"), ("rdb", "darter-persist")];

/// Outcomes, in the order of the table, each the name of a file that the tool writes.
const OUTCOMES: [&str; 4] = ["caught", "missed", "timeout", "unviable"];

/// The options of the command line.
#[derive(Debug, PartialEq)]
struct Sample {
    /// Approximate number of places in each part.
    count: usize,
    seed: usize,
    /// Names of parts; none means all.
    parts: Vec<String>,
}

/// Runs the samples one after the other and prints a table. Fails when a change was missed.
pub(crate) fn run(root: &Path, words: &[String]) -> ExitCode {
    match parse(words).and_then(|sample| run_sample(root, &sample)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn parse(words: &[String]) -> Result<Sample, String> {
    let mut sample = Sample { count: 50, seed: 0, parts: Vec::new() };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().and_then(|value| value.parse::<usize>().ok());
            value.ok_or(format!("{word} needs a number"))
        };
        match word.as_str() {
            "--count" => sample.count = number()?.max(1),
            "--seed" => sample.seed = number()?,
            name if PARTS.iter().any(|part| part.name == name) => {
                sample.parts.push(name.to_owned());
            }
            _ => {
                let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
                return Err(format!("what is {word}? Parts are: {}", names.join(" ")));
            }
        }
    }
    Ok(sample)
}

/// Returns how many changes were missed.
fn run_sample(root: &Path, sample: &Sample) -> Result<usize, String> {
    install_tool()?;
    let mut table =
        format!("| part | places |{}", OUTCOMES.map(|name| format!(" {name} |")).concat());
    let mut missed = Vec::new();
    for part in PARTS
        .iter()
        .filter(|part| sample.parts.is_empty() || sample.parts.iter().any(|name| name == part.name))
    {
        let folder = root.join("target/mutants").join(part.name);
        let places = places(root, part)?;
        test(root, part, &folder, &shard(places, sample))?;
        let lists = OUTCOMES.map(|name| lines(&folder, name));
        let counts = lists.each_ref().map(|list| format!(" {} |", list.len())).concat();
        table.push_str(&format!("\n| {} | {places} |{counts}", part.name));
        missed.extend_from_slice(&lists[1]);
    }
    println!("\n{}\n{table}", missed.join("\n"));
    Ok(missed.len())
}

/// Installs the tool where it is missing.
fn install_tool() -> Result<(), String> {
    let asked = Command::new("cargo").args(["mutants", "--version"]).output();
    if asked.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let words = ["cargo", "install", "--quiet", "--locked", "cargo-mutants"];
    match Command::new("nice").args(words).status() {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("cargo-mutants cannot be installed: {other:?}")),
    }
}

/// The tool, for the places of `part`.
fn tool(root: &Path, part: &Part) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "15", "cargo", "mutants", "--colors", "never"]);
    command.args(["--package", part.package, "--file", part.files]).current_dir(root);
    for (_, above) in TESTED_ABOVE.iter().filter(|(name, _)| *name == part.name) {
        command.args(["--test-package", part.package, "--test-package", above]);
    }
    command
}

/// How many places there are to change.
fn places(root: &Path, part: &Part) -> Result<usize, String> {
    let output = tool(root, part).arg("--list").output().map_err(|error| error.to_string())?;
    match String::from_utf8_lossy(&output.stdout).lines().count() {
        0 => Err(format!("{}: {}", part.name, String::from_utf8_lossy(&output.stderr))),
        places => Ok(places),
    }
}

/// Which places are taken, in the tool's terms: one of `n` shards.
fn shard(places: usize, sample: &Sample) -> String {
    let heaps = places.div_ceil(sample.count);
    format!("{}/{heaps}", sample.seed % heaps)
}

/// Changes the places and runs the tests.
fn test(root: &Path, part: &Part, folder: &Path, shard: &str) -> Result<(), String> {
    let _ = fs::remove_dir_all(folder); // Left by an earlier run, if there was one.
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let mut command = tool(root, part);
    command.args(["--sharding", "round-robin", "--shard", shard, "--output"]).arg(folder);
    let status = command.status().map_err(|error| error.to_string())?;
    // 2: some were missed; 3: some hung.
    match status.code() {
        Some(0 | 2 | 3) => Ok(()),
        _ => Err(format!("{}: cargo-mutants ended with {status}", part.name)),
    }
}

/// The changes with one outcome, a line each.
fn lines(folder: &Path, outcome: &str) -> Vec<String> {
    let path: PathBuf = folder.join("mutants.out").join(format!("{outcome}.txt"));
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_parsed() {
        let parse =
            |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let sample = |count, seed, parts: &[&str]| {
            Ok(Sample { count, seed, parts: parts.iter().map(|name| (*name).to_owned()).collect() })
        };
        assert_eq!(parse(""), sample(50, 0, &[]));
        assert_eq!(parse("--count 9 resp --seed 3 tx"), sample(9, 3, &["resp", "tx"]));
        assert!(
            parse("--count").is_err() && parse("--seed x").is_err() && parse("nobody").is_err()
        );
    }

    #[test] // And every seed selects one that exists.
    fn samples_do_not_exceed_the_requested_size() {
        for (places, count, seed, expected) in
            [(100, 50, 0, "0/2"), (101, 50, 5, "2/3"), (10, 50, 7, "0/1"), (443, 56, 9, "1/8")]
        {
            let sample = Sample { count, seed, parts: Vec::new() };
            assert_eq!(shard(places, &sample), expected);
        }
    }

    #[test]
    fn every_part_names_an_existing_package_and_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for part in PARTS {
            let folder = root.join(part.files.trim_end_matches("/**"));
            let manifest =
                folder.ancestors().find_map(|up| fs::read_to_string(up.join("Cargo.toml")).ok());
            assert!(
                folder.is_dir()
                    && manifest.unwrap().contains(&format!("name = \"{}\"", part.package))
            );
        }
    }
}
