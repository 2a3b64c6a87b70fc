//! Commands about the files of servers that have ended.

use super::{FOLDER, ON, Ran, Scratch, darter, darter_good, ran, shown};
use crate::append_only::copy_folder;
use crate::saving::{digest, expect, fill, say, wait_for};
use crate::{Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::Server;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MANIFEST: &str = "appendonly.aof.manifest";
/// The number of damaged files that are compared, of each kind.
const ROUNDS: usize = 40;

/// The last word after `name` in the output, up to a character that is no digit.
fn number_after(output: &str, name: &str) -> Option<u64> {
    let rest = &output[output.rfind(name)? + name.len()..];
    rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// The number of good bytes that `darter check` reports of its last file.
fn good_bytes(output: &str) -> Option<u64> {
    let line = output
        .lines()
        .rev()
        .find(|line| line.contains(" bytes are good") || line.contains("good: "))?;
    line.trim().trim_start_matches("good: ").split(' ').next()?.parse().ok()
}

/// The folder of a server that has all types, a base and two increments.
fn folder_of_redis(scratch: &Scratch) -> Result<PathBuf, String> {
    let there = Server::oracle_with(&[ON, &["--aof-timestamp-enabled", "yes"]].concat());
    let there = there.map_err(text)?;
    let mut client = there.client().map_err(text)?;
    fill(&mut client, &mut Prng::from_seed(3))?;
    expect(&mut client, "BGREWRITEAOF", "Background")?;
    wait_for(&mut client, "aof_rewrite_in_progress:0")?;
    for line in ["SET k v", "RPUSH l a b", "MULTI", "SET k w", "DEL l", "EXEC", "SET last value"] {
        say(&mut client, line)?;
    }
    let folder = scratch.path("redis");
    copy_folder(&there.folder().join(FOLDER), &folder).map_err(text)?;
    Ok(folder)
}

fn redis_check_aof(folder: &Path) -> Result<Ran, String> {
    ran(Command::new("redis-check-aof").arg(folder.join(MANIFEST)))
}

/// The path of the only file whose name ends so.
fn file_in(folder: &Path, end: &str) -> Result<PathBuf, String> {
    let mut files = fs::read_dir(folder).map_err(text)?.flatten().map(|entry| entry.path());
    files.find(|path| shown(path).ends_with(end)).ok_or_else(|| format!("no {end}"))
}

pub(super) fn check_aof(_: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("check-aof")?;
    let folder = folder_of_redis(&scratch)?;
    let (base, increment) = (file_in(&folder, ".base.rdb")?, file_in(&folder, ".incr.aof")?);
    let originals = [&base, &increment].map(fs::read).map(Result::unwrap_or_default);
    let mut prng = Prng::from_seed(11);
    let mut faults = 0;
    for round in 0..2 * ROUNDS {
        let (path, original) = [(&base, &originals[0]), (&increment, &originals[1])][round % 2];
        let at = prng.below(original.len() as u64) as usize;
        let bytes = match round % 8 {
            0 | 1 => original.clone(),
            2 | 3 | 5 => original[..at].to_vec(),
            4 => [&original[..at], &[original[at] ^ 1], &original[at + 1..]].concat(),
            _ => [&original[..at], b"junk"].concat(),
        };
        fs::write(path, &bytes).map_err(text)?;
        let (theirs, ours) = (redis_check_aof(&folder)?, darter(&["check", shown(&folder)])?);
        // An empty increment is good here: no start is needed for an increment without commands.
        let is_same = theirs.code == ours.code || bytes.is_empty();
        ensure(is_same, || format!("round {round}, offset {at}: {theirs:?}\n{ours:?}"))?;
        if round % 2 == 1 && !bytes.is_empty() {
            let (wanted, found) =
                (number_after(&theirs.output, "ok_up_to="), good_bytes(&ours.output));
            ensure(wanted.is_some() && wanted == found, || {
                format!("round {round}, offset {at}: {wanted:?}, {found:?}\n{theirs:?}\n{ours:?}")
            })?;
        }
        faults += usize::from(ours.code != Some(0));
        fs::write(path, original).map_err(text)?;
    }
    ensure(faults > ROUNDS / 2, || format!("only {faults} faults"))
}

pub(super) fn check_rdb(stage: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("check-rdb")?;
    let here = stage.server()?;
    let mut client = here.client().map_err(text)?;
    fill(&mut client, &mut Prng::from_seed(5))?;
    say(&mut client, "SAVE")?;
    let original = fs::read(here.folder().join("dump.rdb")).map_err(text)?;
    let path = scratch.path("dump.rdb");
    let mut prng = Prng::from_seed(12);
    for round in 0..ROUNDS {
        let at = prng.below(original.len() as u64) as usize;
        let bytes = match round % 4 {
            0 => original.clone(),
            1 => original[..at].to_vec(),
            _ => [&original[..at], &[original[at] ^ 4], &original[at + 1..]].concat(),
        };
        fs::write(&path, &bytes).map_err(text)?;
        let theirs = ran(Command::new("redis-check-rdb").arg(&path))?;
        let ours = darter(&["check", shown(&path)])?;
        let is_same = (theirs.code == Some(0)) == (ours.code == Some(0));
        ensure(is_same, || format!("round {round}, offset {at}: {theirs:?}\n{ours:?}"))?;
    }
    Ok(())
}

pub(super) fn cut(stage: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("check-cut")?;
    // Each reply waits for the file, so that each command is a batch.
    let here = stage.server_with(&[ON, &["--appendfsync", "always"]].concat())?;
    let mut client = here.client().map_err(text)?;
    for number in 1..=100 {
        say(&mut client, &format!("RPUSH l {number}"))?;
    }
    let folder = scratch.path(FOLDER);
    copy_folder(&here.folder().join(FOLDER), &folder).map_err(text)?;
    let increment = file_in(&folder, ".incr.aof")?;
    let bytes = fs::read(&increment).map_err(text)?;
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    // The last command is torn, as by a loss of power, and zeros follow.
    let torn = [&bytes[..end - 3], &[0; 5_000]].concat();
    fs::write(&increment, torn).map_err(text)?;
    let before = darter(&["check", shown(&folder)])?;
    let is_torn = before.code == Some(1) && before.output.contains("torn end");
    ensure(is_torn && before.output.contains("a cut loses"), || format!("{before:?}"))?;
    ensure(redis_check_aof(&folder)?.code == Some(1), || "redis-check-aof found no fault".into())?;
    darter_good(&["check", "--cut", shown(&folder)])?;
    darter_good(&["check", shown(&folder)])?;
    let there = redis_check_aof(&folder)?;
    ensure(there.code == Some(0), || format!("{there:?}"))?;
    let there = Server::oracle_in(ON, |to| copy_folder(&folder, &to.join(FOLDER))).map_err(text)?;
    expect(&mut there.client().map_err(text)?, "LLEN l", "Int(99)")
}

pub(super) fn restore(stage: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("restore")?;
    let here = stage.server_with(&[ON, &["--snapshot-keep", "2"]].concat())?;
    let mut client = here.client().map_err(text)?;
    fill(&mut client, &mut Prng::from_seed(6))?;
    expect(&mut client, "BGREWRITEAOF", "Background")?;
    wait_for(&mut client, "aof_rewrite_in_progress:0")?;
    say(&mut client, "SET more 1")?;
    let sum = digest(&mut client)?;
    for line in ["FLUSHALL", "SET after 1"] {
        expect(&mut client, line, "OK")?;
    }
    // Two rewrites later, the files of the moment are in the history.
    for _ in 0..2 {
        expect(&mut client, "BGREWRITEAOF", "Background")?;
        wait_for(&mut client, "aof_rewrite_in_progress:0")?;
    }
    let folder = here.folder().join(FOLDER);
    let listed = darter_good(&["restore", shown(&folder)])?;
    ensure(listed.matches("\"FLUSHALL\"").count() == 1, || listed.clone())?;
    let into = scratch.path("restored");
    let words = ["restore", shown(&folder), "--before", "FLUSHALL", "--into", shown(&into)];
    darter_good(&words)?;
    ensure(darter(&words)?.code == Some(1), || "the folder was written twice".into())?;
    let place = |to: &Path| copy_folder(&into.join(FOLDER), &to.join(FOLDER));
    let restored = Server::subject_in(stage.shape, ON, place).map_err(text)?;
    let found = digest(&mut restored.client().map_err(text)?)?;
    ensure(found == sum, || format!("{sum} before FLUSHALL, {found} restored"))?;
    let there = Server::oracle_in(ON, place).map_err(text)?;
    let found = digest(&mut there.client().map_err(text)?)?;
    ensure(found == sum, || format!("{sum} before FLUSHALL, {found} in redis-server"))?;
    expect(&mut client, "GET after", "1")
}
