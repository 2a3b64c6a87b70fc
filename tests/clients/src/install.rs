//! Installs the dependencies of the clients into `target/clients`, once.

use crate::run::{program, run};
use crate::text;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The folder of the clients' sources.
pub(crate) fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder below `target/clients`, created if missing.
pub(crate) fn folder(name: &str) -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(text)?;
    let target = here.ancestors().nth(2).ok_or("no target folder")?;
    let folder = target.join("clients").join(name);
    fs::create_dir_all(&folder).map_err(text)?;
    Ok(folder)
}

const INSTALL_MAX: Duration = Duration::from_secs(600);

/// Runs `install` unless `folder` records the same `version`.
fn once(
    folder: &Path,
    version: &str,
    install: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let stamp = folder.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == version) {
        return Ok(());
    }
    install()?;
    fs::write(stamp, version).map_err(text)
}

/// The peers that this process has installed, and their paths.
static READY: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());

/// Prepares a peer once in this process. Other threads that need a peer wait.
fn prepared(
    name: &'static str,
    prepare: impl FnOnce() -> Result<PathBuf, String>,
) -> Result<PathBuf, String> {
    let mut ready = READY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = ready.get(name) {
        return Ok(path.clone());
    }
    let path = prepare()?;
    ready.insert(name, path.clone());
    Ok(path)
}

/// Installs or builds a peer; returns its folder or program.
type Install = fn() -> Result<PathBuf, String>;

/// Everything that can be installed or built.
pub(crate) const ALL: &[(&str, Install)] = &[
    ("pip, and the source of redis-py", redis_py_source),
    ("pip, for applications", python_applications),
    ("npm", node),
    ("go", go),
    ("maven", java),
];

/// A Python with redis-py and the dependencies of its tests.
pub(crate) fn python() -> Result<PathBuf, String> {
    environment("python", "requirements.txt")
}

/// A second Python, with the libraries of the applications and the redis-py that they need.
pub(crate) fn python_applications() -> Result<PathBuf, String> {
    environment("python-applications", "applications.txt")
}

fn environment(name: &'static str, list: &str) -> Result<PathBuf, String> {
    prepared(name, || virtual_environment(name, list))
}

fn virtual_environment(name: &str, list: &str) -> Result<PathBuf, String> {
    let folder = folder(name)?;
    let list = sources().join("python").join(list);
    let wanted = fs::read_to_string(&list).map_err(text)?;
    once(&folder, &wanted, || {
        run(program("python3").args(["-m", "venv"]).arg(&folder), b"", INSTALL_MAX)?;
        let mut pip = program(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--requirement"]).arg(&list);
        run(&mut pip, b"", INSTALL_MAX).map(|_| ())
    })?;
    Ok(folder.join("bin/python"))
}

/// The unpacked source of redis-py; its tests are not in its wheel.
pub(crate) fn redis_py_source() -> Result<PathBuf, String> {
    let version = "redis==5.2.1";
    let python = python()?;
    prepared("redis-py", || unpacked(version, &python))
}

fn unpacked(version: &str, python: &Path) -> Result<PathBuf, String> {
    let folder = folder("redis-py")?;
    once(&folder, version, || {
        let mut pip = program(python);
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]);
        run(pip.arg("--dest").arg(&folder).arg(version), b"", INSTALL_MAX)?;
        let mut tar = program("tar");
        tar.arg("-xzf").arg(folder.join("redis-5.2.1.tar.gz")).arg("-C").arg(&folder);
        run(&mut tar, b"", INSTALL_MAX).map(|_| ())
    })?;
    Ok(folder.join("redis-5.2.1"))
}

/// Copies the files of a client's source folder to its build folder.
fn copy_sources(name: &str) -> Result<PathBuf, String> {
    let folder = folder(name)?;
    for file in fs::read_dir(sources().join(name)).map_err(text)? {
        let file = file.map_err(text)?;
        fs::copy(file.path(), folder.join(file.file_name())).map_err(text)?;
    }
    Ok(folder)
}

/// The folder with the packages of JavaScript and the programs.
pub(crate) fn node() -> Result<PathBuf, String> {
    prepared("node", install_node)
}

fn install_node() -> Result<PathBuf, String> {
    let folder = copy_sources("node")?;
    let wanted = fs::read_to_string(folder.join("package-lock.json")).map_err(text)?;
    once(&folder, &wanted, || {
        let mut npm = program("npm");
        npm.args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder);
        run(&mut npm, b"", INSTALL_MAX).map(|_| ())
    })?;
    Ok(folder)
}

/// The built Go program.
pub(crate) fn go() -> Result<PathBuf, String> {
    prepared("go", build_go)
}

fn build_go() -> Result<PathBuf, String> {
    let built = folder("go")?.join("programs");
    let mut build = program("go");
    build.args(["build", "-o"]).arg(&built).arg(".").current_dir(sources().join("go"));
    run(&mut build, b"", INSTALL_MAX)?;
    Ok(built)
}

/// The folder with the jars of Java's clients in `jars`, and the programs.
pub(crate) fn java() -> Result<PathBuf, String> {
    prepared("java", install_java)
}

fn install_java() -> Result<PathBuf, String> {
    let folder = copy_sources("java")?;
    let wanted = fs::read_to_string(folder.join("pom.xml")).map_err(text)?;
    once(&folder, &wanted, || {
        let mut maven = program("mvn");
        maven.args(["--batch-mode", "--quiet", "dependency:copy-dependencies"]);
        maven.arg("-DoutputDirectory=jars").current_dir(&folder);
        run(&mut maven, b"", INSTALL_MAX).map(|_| ())
    })?;
    Ok(folder)
}
