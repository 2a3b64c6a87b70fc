//! `darter check`: verifies RDB files, append-only files, and folders of them.
//!
//! - `census`: counts what files contain, and what a cut would lose.
//! - `cut`: cuts torn ends.
//! - `report`: the sentences about a file.

mod census;
mod cut;
mod report;

use crate::files::{Folder, is_manifest, list, manifests_below, named};
use crate::needs::{FOLDERS, Needs, Release, Vocabulary};
use crate::verify::{FaultKind, Verified, verify};
use census::{Content, count, count_lost};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const CUT: &str = "cut";
const CUT_DAMAGE: &str = "cut-damage";

pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("path")
                .value_name("FILE|FOLDER")
                .help("An RDB file, an append-only file, a manifest, or a folder of them")
                .value_parser(value_parser!(PathBuf))
                .required(true),
        )
        .arg(
            Arg::new(CUT)
                .long(CUT)
                .help("Cut a torn end, and keep its bytes in a file beside; no server may use the files")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new(CUT_DAMAGE)
                .long(CUT_DAMAGE)
                .help("As --cut, but also cut at damage: all later commands are lost")
                .action(ArgAction::SetTrue),
        )
        .after_help("Exit code: 0 if all files are good, 1 after a fault, 2 for a wrong command line.")
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, String> {
    let path = matches.get_one::<PathBuf>("path").ok_or("no path")?;
    let cuts = match (matches.get_flag(CUT), matches.get_flag(CUT_DAMAGE)) {
        (_, true) => Some(FaultKind::Damage),
        (true, false) => Some(FaultKind::Torn),
        (false, false) => None,
    };
    let mut out = io::stdout().lock();
    let mut is_good = true;
    for set in FileSet::below(path)? {
        is_good &= match check(&set, cuts) {
            Ok((text, is_good)) => {
                // A reader such as `head` may end early.
                let _ = out.write_all(text.as_bytes());
                is_good
            }
            Err(why) => {
                let _ = writeln!(out, "{why}");
                false
            }
        };
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Files that one start loads, in their order.
#[derive(Debug)]
struct FileSet {
    files: Vec<PathBuf>,
    /// The folder, if the files are named by a manifest.
    folder: Option<Folder>,
}

impl FileSet {
    fn single(path: &Path) -> Self {
        Self { files: vec![path.to_owned()], folder: None }
    }

    fn of(manifest: &Path) -> Result<Self, String> {
        let folder = Folder::open(manifest)?;
        Ok(Self { files: folder.loaded(), folder: Some(folder) })
    }

    /// The files that the operator names.
    fn below(path: &Path) -> Result<Vec<Self>, String> {
        if is_manifest(path) {
            return Ok(vec![Self::of(path)?]);
        }
        if !path.metadata().map_err(|error| named(path, error))?.is_dir() {
            return Ok(vec![Self::single(path)]);
        }
        let manifests = manifests_below(path)?;
        let mut sets =
            manifests.iter().map(|path| Self::of(path)).collect::<Result<Vec<Self>, String>>()?;
        let listed: Vec<&PathBuf> = sets.iter().flat_map(|set| &set.files).collect();
        let alone = |path: &PathBuf| path.extension().is_some_and(|it| it == "rdb" || it == "aof");
        let mut others: Vec<Self> = list(path)?
            .iter()
            .filter(|path| alone(path) && path.is_file() && !listed.contains(path))
            .map(|path| Self::single(path))
            .collect();
        if manifests.iter().any(|manifest| manifest.parent() == Some(path)) {
            others.clear(); // They are reported as files that the manifest does not name.
        }
        sets.extend(others);
        if sets.is_empty() {
            return Err(named(path, "the folder has no manifest, RDB file or append-only file"));
        }
        Ok(sets)
    }

    /// The names of files in the folder that the manifest does not have.
    fn unlisted(&self) -> Result<Vec<String>, String> {
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        let history = folder.manifest.history.iter().map(|file| file.path_in(&folder.path));
        let known: BTreeSet<PathBuf> = self.files.iter().cloned().chain(history).collect();
        let unlisted = list(&folder.path)?.into_iter().filter(|path| !known.contains(path));
        let names =
            unlisted.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        Ok(names
            .filter(|name| *name != folder.manifest_name && *name != folder.ring_name())
            .collect())
    }
}

/// A file with its content.
struct CheckedFile {
    verified: Verified,
    content: Content,
    /// The recognized content of the bytes that cannot be loaded, and the number of these bytes
    /// without zeros at the end.
    lost: Option<(Content, u64)>,
}

/// Checks files, and cuts them if `cuts` allows it. Returns the report, and whether all is good.
fn check(set: &FileSet, cuts: Option<FaultKind>) -> Result<(String, bool), String> {
    let (vocabulary, mut needs) = (Vocabulary::new(), Needs::new(Release::Redis(0, 0)));
    if set.folder.is_some() {
        needs = Needs::new(FOLDERS);
    }
    let mut files = Vec::new();
    for verified in verify(&set.files)? {
        let Verified { path, commands_from, good, rdb, .. } = &verified;
        if let Some(rdb) = rdb {
            needs.add_rdb_version(rdb.version);
            needs.add_encoding(rdb.encoding);
        }
        let content = count(path, (*commands_from, *good), &vocabulary, &mut needs)?;
        let is_lost = verified.fault.is_some() || verified.follows_fault;
        let lost = if is_lost { Some(count_lost(path, *good)?) } else { None };
        files.push(CheckedFile { verified, content, lost });
    }
    let mut text = String::new();
    for file in &files {
        report::file(&mut text, file, set.folder.is_some());
    }
    report::set(&mut text, &files, &needs, &set.unlisted()?, set.folder.as_ref());
    let mut is_good = files.iter().all(|file| file.verified.fault.is_none());
    if let Some(cuts) = cuts {
        let verified: Vec<&Verified> = files.iter().map(|file| &file.verified).collect();
        is_good = cut::cut(&verified, cuts, &mut text)?;
    }
    Ok((text, is_good))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, command};
    use std::fs;

    /// The reports about a path, and whether all is good.
    fn reports(path: &Path, cuts: Option<FaultKind>) -> (String, bool) {
        let (mut all, mut is_good) = (String::new(), true);
        for set in FileSet::below(path).unwrap() {
            let (text, good) = check(&set, cuts).unwrap();
            all.push_str(&text);
            is_good &= good;
        }
        (all, is_good)
    }

    fn contains(text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
    }

    #[test]
    fn a_torn_end_is_reported_and_cut_and_its_bytes_are_kept() {
        let sample = Sample::new("check-torn");
        let mut chain = sample.chain();
        chain.add(1_000, &[command(&["SET", "k", "v"])]);
        let good = chain.bytes.len();
        chain.add(2_500, &[command(&["SET", "k", "w"]), command(&["SADDEX", "s", "9", "m"])]);
        let bytes = [&chain.bytes[..chain.bytes.len() - 1], &[0; 70]].concat();
        let folder = sample.folder(&[&bytes]);
        let (text, is_good) = reports(&sample.path, None);
        assert!(!is_good);
        contains(
            &text,
            &[
                "Darter's commands: 1 command in 1 batch\n",
                &format!(
                    "torn end: a start cuts it. At offset {good}: the checksum of a batch is wrong"
                ),
                "1 command in 1 batch, as far as recognized, the last 1.500 s",
                "loaded by Darter and redis-server 7.0 or later\n",
            ],
        );
        let (text, is_good) = reports(&folder, Some(FaultKind::Torn));
        assert!(is_good, "{text}");
        let file = folder.join("appendonly.aof.1.incr.aof");
        let kept = folder.join(format!("appendonly.aof.1.incr.aof.cut-{good}"));
        assert_eq!(fs::read(&file).unwrap(), &bytes[..good]);
        assert_eq!(fs::read(kept).unwrap(), &bytes[good..]);
        let (text, is_good) = reports(&folder, None);
        assert!(is_good, "{text}");
        contains(&text, &["does not name: appendonly.aof.1.incr.aof.cut-"]);
        fs::write(folder.join("appendonly.aof.ring"), b"").unwrap();
        let (text, _) = reports(&folder, None);
        contains(
            &text,
            &["appendonly.aof.ring has the last changes of a server that runs or was killed"],
        );
        assert!(!text.contains("name: appendonly.aof.ring"), "{text}");
    }

    #[test]
    fn damage_is_cut_only_when_it_is_allowed() {
        let sample = Sample::new("check-damage");
        let mut chain = sample.chain();
        chain.add(1_000, &[command(&["SET", "k", "v"])]);
        let good = chain.bytes.len();
        chain.add(2_000, &[command(&["SET", "k", "w"])]);
        let mut first = chain.next_file();
        chain.add(3_000, &[command(&["SET", "k", "x"])]);
        let second = chain.next_file();
        let last_byte = first.len() - 3;
        first[last_byte] ^= 1;
        let folder = sample.folder(&[&first, &second]);
        let (text, is_good) = reports(&folder, Some(FaultKind::Torn));
        assert!(!is_good);
        contains(
            &text,
            &["DAMAGE: a start is refused", "not loaded, because a file before", "not cut"],
        );
        let file = |name: &str| fs::read(folder.join(format!("appendonly.aof.{name}"))).unwrap();
        assert_eq!((file("1.incr.aof"), file("2.incr.aof")), (first.clone(), second.clone()));
        let (_, is_good) = reports(&folder, Some(FaultKind::Damage));
        assert!(is_good);
        assert_eq!((file("1.incr.aof"), file("2.incr.aof")), (first[..good].to_vec(), Vec::new()));
        assert_eq!(file("2.incr.aof.cut-0"), second);
    }

    #[test]
    fn reserved_zeros_are_reported_and_cut() {
        let sample = Sample::new("check-zeros");
        let mut chain = sample.chain();
        chain.add(1_000, &[command(&["HPEXPIREAT", "h", "1", "FIELDS", "1", "f"])]);
        let good = chain.bytes.len();
        let folder = sample.folder(&[&[&chain.bytes[..], &[0; 70]].concat()]);
        let (text, is_good) = reports(&folder, Some(FaultKind::Torn));
        assert!(is_good);
        contains(
            &text,
            &[
                &format!("good: {good} bytes, and 70 reserved for later commands"),
                "redis-server 7.4 or later (because of HPEXPIREAT), after the reserved bytes are cut",
                "only reserved bytes",
            ],
        );
        assert_eq!(fs::read(folder.join("appendonly.aof.1.incr.aof")).unwrap(), chain.bytes);
    }

    #[test]
    fn a_file_that_is_open_is_not_cut() {
        let sample = Sample::new("check-open");
        let path = sample.path.join("a.aof");
        fs::write(&path, [&command(&["PING"])[..], b"*1\r\n"].concat()).unwrap();
        let open = fs::File::open(&path).unwrap();
        let set = FileSet::single(&path);
        let why = check(&set, Some(FaultKind::Torn)).unwrap_err();
        contains(&why, &[&format!("process {} has the file open", std::process::id())]);
        drop(open);
        assert!(check(&set, Some(FaultKind::Torn)).unwrap().1);
        assert_eq!(fs::read(&path).unwrap(), command(&["PING"]));
    }

    #[test]
    fn all_files_of_a_data_folder_are_checked() {
        let sample = Sample::new("check-all");
        sample.folder(&[&command(&["PING"])]);
        fs::write(sample.path.join("dump.rdb"), b"REDIS0010\xff\0\0\0\0\0\0\0\0").unwrap();
        fs::write(sample.path.join("other.txt"), b"text").unwrap();
        let (text, is_good) = reports(&sample.path, None);
        assert!(is_good, "{text}");
        contains(
            &text,
            &["dump.rdb\n  RDB file, Redis's version 10: 0 keys", "Redis's commands: 1 command\n"],
        );
        assert!(!text.contains("other.txt"), "{text}");
        let empty = Sample::new("check-empty");
        let why = FileSet::below(&empty.path).unwrap_err();
        contains(&why, &["no manifest, RDB file or append-only file"]);
    }
}
