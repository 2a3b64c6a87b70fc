//! The commands for operators, with files of real servers, and beside Redis's own tools.

mod files;
mod rdb;
mod running;

use crate::{Asks, Check, ensure, text};
use darter_testkit::server::subject_path;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("darter check agrees with redis-check-aof",                 Asks::More, files::check_aof),
    ("darter check agrees with redis-check-rdb",                 Asks::More, files::check_rdb),
    ("a folder that darter check has cut is loaded by Redis",    Asks::More, files::cut),
    ("darter restore undoes FLUSHALL",                           Asks::More, files::restore),
    ("darter backup is consistent beside writes and rewrites",   Asks::More, running::backup),
    ("redis-server loads a backup, and its own files are taken", Asks::More, running::backup_of_redis),
    ("darter journal tail follows over rewrites and a restart",  Asks::More, running::tail),
    ("darter rdb converts files without changing data",          Asks::More, rdb::round_trips),
    ("darter rdb converts the types of Darter",                  Asks::More, rdb::own_types),
    ("darter rdb reports the sizes that the servers report",     Asks::More, rdb::sizes),
    ("darter rdb takes the keys that are asked for",             Asks::More, rdb::filters),
    ("darter rdb names the place of damage",                     Asks::More, rdb::damage),
];

const FOLDER: &str = "appendonlydir";
const ON: &[&str] = &["--appendonly", "yes"];

/// A folder that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("darter-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path); // It may not exist.
        fs::create_dir_all(&path).map_err(text)?;
        Ok(Self(path))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The exit code and the output of a program.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    output: String,
}

fn ran(command: &mut Command) -> Result<Ran, String> {
    let Output { status, stdout, stderr } = command.output().map_err(text)?;
    let output = [stdout, stderr].concat();
    Ok(Ran { code: status.code(), output: String::from_utf8_lossy(&output).into_owned() })
}

/// Runs a command for operators.
fn darter(words: &[&str]) -> Result<Ran, String> {
    ran(Command::new(subject_path()).args(words))
}

/// Runs a command for operators, which must succeed.
fn darter_good(words: &[&str]) -> Result<String, String> {
    let ran = darter(words)?;
    ensure(ran.code == Some(0), || format!("{words:?}: {ran:?}"))?;
    Ok(ran.output)
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}
