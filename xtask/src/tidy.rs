//! Conventions that neither the compiler nor clippy checks. Each is a function from the workspace
//! to sentences that say what is wrong and where.

use crate::{asserts, circles, english, layers, ranks, statics};
use darter_testkit::Tally;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The most lines of a file.
const LINES_MAX: usize = 1_000;
/// The most source files in one folder.
const FILES_MAX: usize = 25;
/// Crates in which `unsafe` is allowed.
const UNSAFE_CRATES: &[&str] = &["base", "structs", "runtime", "lua"];

/// A source file.
struct Source {
    path: PathBuf,
    text: String,
}

/// A rule: its name, and the function that finds faults.
type Rule = (&'static str, fn(&Path, &[Source]) -> Vec<String>);

#[rustfmt::skip] // A table.
const RULES: &[Rule] = &[
    ("imports point downwards",                     imports),
    ("the server's modules keep their ranks",       ranks),
    ("calls between the engine's files only get fewer", calls),
    ("all global state is listed",                   state),
    ("unsafe only in base, structs, runtime, lua",       unsafe_code),
    ("files have at most 1000 lines",               lengths),
    ("folders have at most 25 files",               folders),
    ("files open with what they are",               headers),
    ("no bare to-do, no ignored test",              comments),
    ("each dependency has its reason",              reasons),
    ("assertions where data could be lost",         assertions),
    ("comments, test names and types in plain English", plain_english),
];

/// Checks all rules, and prints a line for each.
pub(crate) fn run(root: &Path) -> ExitCode {
    let sources = sources(root);
    let mut tally = Tally::default();
    for (name, rule) in RULES {
        tally.run(name, || {
            let faults = rule(root, &sources);
            if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
        });
    }
    tally.close()
}

/// Lists the faults of English in the files below `path`, or in all.
pub(crate) fn list_english(root: &Path, path: Option<&String>) -> ExitCode {
    english::list(files(root, &sources(root)), path.map_or("", |path| path))
}

/// The files, by their paths from the root.
fn files<'a>(
    root: &'a Path,
    sources: &'a [Source],
) -> impl Iterator<Item = english::File<'a>> + Clone {
    sources
        .iter()
        .map(move |file| (file.path.strip_prefix(root).unwrap_or(&file.path), &*file.text))
}

/// All Rust files of the workspace.
fn sources(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    for folder in ["src", "crates", "tests", "bench", "xtask"] {
        collect(&root.join(folder), &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(folder: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap_or_default();
            found.push(Source { path, text });
        }
    }
}

fn imports(root: &Path, _: &[Source]) -> Vec<String> {
    layers::packages(root).map_or_else(|why| vec![why], |packages| layers::faults(&packages))
}

fn ranks(root: &Path, sources: &[Source]) -> Vec<String> {
    ranks::faults(root, sources.iter().map(|source| (&*source.path, &*source.text)))
}

fn calls(root: &Path, sources: &[Source]) -> Vec<String> {
    circles::faults(root, sources.iter().map(|source| (&*source.path, &*source.text)))
}

fn state(root: &Path, sources: &[Source]) -> Vec<String> {
    let list = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    statics::faults(root, sources.iter().map(|source| (&*source.path, &*source.text)), &list)
}

fn assertions(root: &Path, sources: &[Source]) -> Vec<String> {
    asserts::faults(root, sources.iter().map(|source| (&*source.path, &*source.text)))
}

fn plain_english(root: &Path, sources: &[Source]) -> Vec<String> {
    english::faults(files(root, sources))
}

/// Checks that the root of every crate outside those four forbids unsafe code.
fn unsafe_code(root: &Path, sources: &[Source]) -> Vec<String> {
    let allowed: Vec<PathBuf> =
        UNSAFE_CRATES.iter().map(|name| root.join("crates").join(name)).collect();
    let is_root = |path: &Path| path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
    sources
        .iter()
        .filter(|source| is_root(&source.path))
        .filter(|source| !allowed.iter().any(|folder| source.path.starts_with(folder)))
        .filter(|source| !source.text.contains("#![forbid(unsafe_code)]"))
        .map(|source| format!("{} does not forbid unsafe code", source.path.display()))
        .collect()
}

fn lengths(_: &Path, sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .map(|source| (source, source.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(source, lines)| format!("{} has {lines} lines", source.path.display()))
        .collect()
}

fn folders(_: &Path, sources: &[Source]) -> Vec<String> {
    let mut counts: std::collections::BTreeMap<&Path, usize> = std::collections::BTreeMap::new();
    for folder in sources.iter().filter_map(|source| source.path.parent()) {
        *counts.entry(folder).or_default() += 1;
    }
    counts
        .into_iter()
        .filter(|(_, count)| *count > FILES_MAX)
        .map(|(folder, count)| format!("{} has {count} files", folder.display()))
        .collect()
}

fn headers(_: &Path, sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|source| !source.text.starts_with("//!"))
        .map(|source| format!("{} does not open with //!", source.path.display()))
        .collect()
}

fn comments(_: &Path, sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        for (index, line) in source.text.lines().enumerate() {
            if is_bare(line) || line.trim() == concat!("#[", "ignore]") {
                faults.push(format!("{}:{}: {}", source.path.display(), index + 1, line.trim()));
            }
        }
    }
    faults
}

/// Whether a comment has one of the two marks without a colon and a sentence after it.
fn is_bare(line: &str) -> bool {
    let Some((_, comment)) = line.split_once("//") else { return false };
    [concat!("TO", "DO"), concat!("FIX", "ME")].iter().any(|mark| {
        comment.split_once(mark).is_some_and(|(_, rest)| {
            rest.strip_prefix(": ").is_none_or(|text| text.split_whitespace().count() < 3)
        })
    })
}

fn reasons(root: &Path, _: &[Source]) -> Vec<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    manifest
        .lines()
        .skip_while(|line| *line != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| line.contains('=') && !line.contains("path ="))
        .filter(|line| line.split_once(" # ").is_none_or(|(_, reason)| reason.len() < 10))
        .map(|line| format!("Cargo.toml: {line}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_do_marks_without_a_sentence_are_found() {
        let mark = concat!("TO", "DO");
        assert!(is_bare(&format!("// {mark}")));
        assert!(is_bare(&format!("x(); // {mark}: soon")));
        assert!(!is_bare(&format!("// {mark}: say why it waits")));
        assert!(!is_bare(&format!("let x = \"{mark}\";")));
    }

    #[test]
    fn each_rule_finds_a_file_that_breaks_it() {
        let root = Path::new("/w");
        let source = |path: &str, text: String| Source { path: root.join(path), text };
        let long = source("crates/tx/src/lib.rs", "x\n".repeat(LINES_MAX + 1));
        let allowed = source("crates/base/src/lib.rs", "//! Base.\n".to_owned());
        let both = [long, allowed];
        assert_eq!(lengths(root, &both).len(), 1);
        assert_eq!(headers(root, &both).len(), 1);
        assert_eq!(unsafe_code(root, &both).len(), 1);
        let many: Vec<Source> =
            (0..=FILES_MAX).map(|i| source(&format!("src/{i}.rs"), String::new())).collect();
        assert_eq!(folders(root, &many).len(), 1);
    }
}
