//! `darter check`: verifies RDB files, append-only files, and folders of them.

use crate::files::{Folder, is_manifest, is_rdb, manifests};
use clap::{Arg, ArgMatches, Command, value_parser};
use darter_families::TYPES;
use darter_persist::aof::annotation::Annotation;
use darter_persist::aof::check::{Checker, Search, Verdict};
use darter_rdb::{Event, Limits, Reader};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The number of bytes read at a time.
const BLOCK_BYTES: usize = 1 << 20;

pub(crate) fn arguments(command: Command) -> Command {
    command.arg(
        Arg::new("path")
            .value_name("FILE|FOLDER")
            .help("An RDB file, an append-only file, a manifest, or a folder of them")
            .value_parser(value_parser!(PathBuf))
            .required(true),
    )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, String> {
    let path = matches.get_one::<PathBuf>("path").ok_or("no path")?;
    let mut is_good = true;
    let mut out = io::stdout().lock();
    for files in sets(path)? {
        let mut before = None;
        for (index, file) in files.iter().enumerate() {
            let shown = file.display();
            let line = match check(&files[index..], &mut before) {
                Ok(bytes) => format!("{shown}: good, {bytes} bytes"),
                Err(why) => {
                    is_good = false;
                    format!("{shown}: {why}")
                }
            };
            if writeln!(out, "{line}").is_err() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The files to check. Each set is loaded by one start, in its order.
fn sets(path: &Path) -> Result<Vec<Vec<PathBuf>>, String> {
    let wrong = |error: io::Error| format!("{}: {error}", path.display());
    if is_manifest(path) {
        return Ok(vec![Folder::open(path)?.loaded()]);
    }
    if !path.metadata().map_err(wrong)?.is_dir() {
        return Ok(vec![vec![path.to_owned()]]);
    }
    let manifests = manifests(path).map_err(wrong)?;
    if manifests.is_empty() {
        return Err(format!("{}: the folder has no manifest", path.display()));
    }
    manifests.iter().map(|manifest| Ok(Folder::open(manifest)?.loaded())).collect()
}

/// Checks the first of these files. The others tell a torn end from damage. Returns the size.
fn check(files: &[PathBuf], before: &mut Option<Annotation>) -> Result<u64, String> {
    let path = &files[0];
    let begin = if is_rdb(path).map_err(text)? { check_rdb(path)? } else { 0 };
    let mut checker = Checker::new(begin, *before);
    read(path, begin, &mut |bytes| {
        checker.feed(bytes);
        !checker.is_done()
    })?;
    let checked = checker.finish();
    *before = checked.last;
    let bytes = path.metadata().map_err(text)?.len();
    let Some((fault, offset, verdict)) = checked.fault else { return Ok(bytes) };
    let is_damage = match verdict {
        Verdict::Torn => false,
        Verdict::Damaged => true,
        Verdict::Depends(search) => is_damaged(files, checked.good, search)?,
    };
    let kind = if is_damage { "damage" } else { "torn end" };
    let lost = bytes - checked.good;
    Err(format!("{kind}: {fault} at offset {offset}; {lost} of {bytes} bytes cannot be loaded"))
}

/// Searches the bytes after a fault for a batch that proves damage.
fn is_damaged(files: &[PathBuf], good: u64, mut search: Search) -> Result<bool, String> {
    for (index, path) in files.iter().enumerate() {
        if index > 0 {
            search.next_file();
        }
        read(path, if index == 0 { good } else { 0 }, &mut |bytes| {
            search.feed(bytes);
            !search.is_damage()
        })?;
    }
    Ok(search.is_damage())
}

/// Verifies an RDB file. Returns the offset of its end: an append-only file may follow.
fn check_rdb(path: &Path) -> Result<u64, String> {
    let size = path.metadata().map_err(text)?.len();
    let mut reader = Reader::new(TYPES.kinds(), Limits::default()).with_size(size).with_blocks();
    let mut outcome = Ok(false);
    read(path, 0, &mut |bytes| {
        reader.push(bytes);
        outcome = take_all(&mut reader);
        outcome == Ok(false)
    })?;
    if outcome == Ok(false) {
        reader.finish();
        outcome = take_all(&mut reader);
    }
    outcome.map(|_| reader.offset())
}

/// Takes all events. Returns true at the end of the RDB file.
fn take_all(reader: &mut Reader) -> Result<bool, String> {
    loop {
        match reader.next() {
            Ok(Some(Event::Eof { .. })) => return Ok(true),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Reads a file from `offset` on, until `take` returns false.
fn read(path: &Path, offset: u64, take: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), String> {
    let mut file = File::open(path).map_err(text)?;
    file.seek(SeekFrom::Start(offset)).map_err(text)?;
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let len = file.read(&mut block).map_err(text)?;
        if len == 0 || !take(&block[..len]) {
            return Ok(());
        }
    }
}

fn text(error: io::Error) -> String {
    error.to_string()
}
