//! `darter backup`: copies the data of a running server, as one consistent set of files.
//!
//! ```text
//! read manifest ─► link base and increments, copy the last one ─► read manifest ─► write manifest
//!      ▲                 up to its last whole batch                   │ changed
//!      └──────────────────────────────────────────────────────────────┘
//! ```
//! The server is not asked to do anything: files that its manifest names never change, except the
//! last one, which only grows. A rewrite replaces the manifest; then the copy begins again. Changes
//! that are in the server's ring only reach the file within some milliseconds: [`SETTLE`].
//!
//! - `source`: finds the files of a server.

mod source;

use crate::files::{Folder, named};
use crate::place::{PlacedFile, place};
use crate::time;
use crate::verify::{FaultKind, Verified, verify};
use clap::{ArgMatches, Command};
use source::Source;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The most attempts to copy an append-only folder while rewrites replace its files.
const ATTEMPTS: usize = 50;
/// The pause before the first attempt. The journal's thread writes every 5 ms what was answered, so
/// the backup has what was answered before it began.
const SETTLE: Duration = Duration::from_millis(200);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn arguments(command: Command) -> Command {
    source::arguments(command)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, String> {
    let target = matches.get_one::<PathBuf>("folder").ok_or("no folder")?;
    let source = Source::find(matches)?;
    let report = backup(&source, target)?;
    let _ = writeln!(std::io::stdout(), "{report}");
    Ok(ExitCode::SUCCESS)
}

/// Writes the backup into the folder `target`, which it creates. Returns a report.
fn backup(source: &Source, target: &Path) -> Result<String, String> {
    if target.exists() {
        return Err(named(target, "the folder exists; name a new one"));
    }
    fs::create_dir(target).map_err(|error| named(target, error))?;
    let done = match source.journal() {
        Some(manifest) => journal(source, &manifest, target),
        None => snapshot(source, target),
    };
    if done.is_err() {
        let _ = fs::remove_dir_all(target); // Half a backup is none.
    }
    done
}

/// Links the snapshot, which is always complete under its final name.
fn snapshot(source: &Source, target: &Path) -> Result<String, String> {
    let from = source.dir.join(&source.snapshot);
    let to = target.join(&source.snapshot);
    if fs::hard_link(&from, &to).is_err() {
        fs::copy(&from, &to).map_err(|error| named(&from, error))?;
    }
    let synced = File::open(&to).and_then(|file| file.sync_all());
    synced.and_then(|()| File::open(target)?.sync_all()).map_err(|error| named(&to, error))?;
    let made = to.metadata().and_then(|data| data.modified()).map_err(|error| named(&to, error))?;
    let made = made.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let made = time::show(u64::try_from(made.as_millis()).unwrap_or(u64::MAX));
    Ok(format!(
        "{}: the snapshot of {made}; the server writes no append-only files. For the present data, \
         run BGSAVE before",
        to.display()
    ))
}

/// The result of an attempt.
enum Attempt {
    Done(String),
    /// A rewrite or a write came between. The reason, in case that it is the last attempt.
    Again(String),
}

fn journal(source: &Source, manifest: &Path, target: &Path) -> Result<String, String> {
    let folder = target.join(&source.journal_folder);
    let mut last = String::new();
    std::thread::sleep(SETTLE);
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            let _ = fs::remove_dir_all(&folder); // It may not exist.
            std::thread::sleep(PAUSE);
        }
        match copy(manifest, &folder)? {
            Attempt::Done(report) => {
                File::open(target)
                    .and_then(|target| target.sync_all())
                    .map_err(|error| named(target, error))?;
                return Ok(report);
            }
            Attempt::Again(why) => last = why,
        }
    }
    Err(format!("no consistent copy after {ATTEMPTS} attempts: {last}"))
}

/// Copies an append-only folder once.
fn copy(manifest: &Path, target: &Path) -> Result<Attempt, String> {
    let read = || fs::read(manifest).map_err(|error| named(manifest, error));
    let Ok(before) = read() else { return Ok(Attempt::Again(named(manifest, "no manifest yet"))) };
    let mut folder = Folder::open(manifest)?;
    let placed = match files(&folder) {
        Ok(placed) => placed,
        Err(why) => return Ok(Attempt::Again(why)),
    };
    folder.manifest.history.clear();
    if let Err(why) = place(&placed, target, &folder.manifest_name, &folder.manifest) {
        return Ok(Attempt::Again(why));
    }
    if read()? != before {
        return Ok(Attempt::Again("rewrites replace the files too often".into()));
    }
    let bytes: u64 = placed.iter().map(|file| file.bytes).sum();
    let count = placed.len();
    Ok(Attempt::Done(format!("{}: {count} files, {bytes} bytes", target.display())))
}

/// The files to copy, and their good bytes. All increments are verified.
///
/// Errors: a file is missing or has a fault, perhaps because it is being written.
fn files(folder: &Folder) -> Result<Vec<PlacedFile>, String> {
    let mut placed = Vec::new();
    if let Some(base) = &folder.manifest.base {
        let path = base.path_in(&folder.path);
        let bytes = path.metadata().map_err(|error| named(&path, error))?.len();
        placed.push(PlacedFile::new(&path, bytes));
    }
    let increments = &folder.manifest.increments;
    let paths: Vec<PathBuf> = increments.iter().map(|file| file.path_in(&folder.path)).collect();
    let verified = verify(&paths)?;
    for (index, file) in verified.iter().enumerate() {
        let is_last = index + 1 == verified.len();
        if let Some(fault) = file.fault.as_ref().filter(|_| !is_last) {
            return Err(named(&file.path, format!("{} at offset {}", fault.reason, fault.offset)));
        }
        if is_last {
            check_end(file)?;
        }
        placed.push(PlacedFile::new(&file.path, file.good));
    }
    Ok(placed)
}

/// Fails if the last file has damage: bytes after the fault that were durable.
fn check_end(file: &Verified) -> Result<(), String> {
    match &file.fault {
        Some(fault) if fault.kind == FaultKind::Damage => {
            Err(named(&file.path, format!("{} at offset {}", fault.reason, fault.offset)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, command};
    use std::os::unix::fs::MetadataExt as _;

    fn source(sample: &Sample) -> Source {
        Source {
            dir: sample.path.clone(),
            has_journal: None,
            journal_folder: "appendonlydir".into(),
            journal_name: "appendonly.aof".into(),
            snapshot: "dump.rdb".into(),
        }
    }

    #[test]
    fn earlier_increments_are_linked_and_the_last_one_is_copied_up_to_its_last_batch() {
        let sample = Sample::new("backup");
        let mut chain = sample.chain();
        chain.add(1_000, &[command(&["SET", "k", "v"])]);
        let first = chain.next_file();
        chain.add(2_000, &[command(&["SET", "k", "w"])]);
        let good = chain.bytes.clone();
        chain.add(3_000, &[command(&["SET", "k", "x"])]);
        let partial = [&chain.bytes[..chain.bytes.len() - 5], &[0; 99]].concat();
        let folder = sample.folder(&[&first, &partial]);
        let target = sample.path.join("target");
        backup(&source(&sample), &target).unwrap();
        let name = |number: u8| format!("appendonly.aof.{number}.incr.aof");
        let copied = target.join("appendonlydir");
        let inode = |path: PathBuf| path.metadata().unwrap().ino();
        assert_eq!(inode(copied.join(name(1))), inode(folder.join(name(1))));
        assert_ne!(inode(copied.join(name(2))), inode(folder.join(name(2))));
        assert_eq!(fs::read(copied.join(name(2))).unwrap(), good);
        let files = verify(&Folder::find(&target).unwrap().loaded()).unwrap();
        assert!(files.iter().all(|file| file.fault.is_none() && file.good == file.bytes));
        let again = backup(&source(&sample), &target).unwrap_err();
        assert!(again.contains("the folder exists"), "{again}");
    }

    #[test]
    fn an_attempt_fails_while_an_earlier_increment_is_incomplete() {
        let sample = Sample::new("backup-incomplete");
        let mut chain = sample.chain();
        chain.add(1_000, &[command(&["SET", "k", "v"])]);
        let first = chain.next_file();
        chain.add(2_000, &[command(&["SET", "k", "w"])]); // It is not in a file yet.
        chain.next_file();
        chain.add(3_000, &[]);
        let folder = sample.folder(&[&first, &chain.bytes]);
        let why = files(&Folder::find(&folder).unwrap()).unwrap_err();
        assert!(why.contains("not the one after the previous batch"), "{why}");
    }

    #[test]
    fn without_append_only_files_the_snapshot_is_taken() {
        let sample = Sample::new("backup-snapshot");
        let target = sample.path.join("target");
        let why = backup(&source(&sample), &target).unwrap_err();
        assert!(why.contains("dump.rdb") && !target.exists(), "{why}");
        fs::write(sample.path.join("dump.rdb"), b"REDIS").unwrap();
        let report = backup(&source(&sample), &target).unwrap();
        assert!(report.contains("BGSAVE"), "{report}");
        assert_eq!(fs::read(target.join("dump.rdb")).unwrap(), b"REDIS");
    }
}
