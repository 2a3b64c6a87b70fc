//! Runs other programs with a time limit, and installs what the clients need into
//! `target/clients`, once.

use crate::{ensure, text};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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

/// Runs a program to its end and returns its output.
///
/// Fails when it exits with an error or takes longer than `limit`.
pub(crate) fn run(command: &mut Command, input: &[u8], limit: Duration) -> Result<String, String> {
    let shown = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{shown}: {error}"))?;
    let input = input.to_vec();
    let mut stdin = child.stdin.take().ok_or("no stdin")?;
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let stdout = reader(child.stdout.take().ok_or("no stdout")?);
    let stderr = reader(child.stderr.take().ok_or("no stderr")?);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(text)? {
            break status;
        }
        if start.elapsed() > limit {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{shown} took longer than {limit:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let _ = writer.join();
    let output = stdout.join().unwrap_or_default();
    let errors = stderr.join().unwrap_or_default();
    ensure(status.success(), || format!("{shown}: {status}\n{}\n{errors}", tail(&output)))?;
    Ok(output)
}

fn reader(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The last lines of a long output.
fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

const INSTALL_MAX: Duration = Duration::from_secs(600);

/// Installs once: `install` runs unless `folder` remembers the same `version`.
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

/// A Python with redis-py and what its tests need.
pub(crate) fn python() -> Result<PathBuf, String> {
    let folder = folder("python")?;
    let list = sources().join("python/requirements.txt");
    let wanted = fs::read_to_string(&list).map_err(text)?;
    once(&folder, &wanted, || {
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder), b"", INSTALL_MAX)?;
        let mut pip = Command::new(folder.join("bin/pip"));
        pip.args(["install", "--quiet", "--requirement"]).arg(&list);
        run(&mut pip, b"", INSTALL_MAX).map(|_| ())
    })?;
    Ok(folder.join("bin/python"))
}

/// The unpacked source of redis-py, whose tests are not in its wheel.
pub(crate) fn redis_py_source() -> Result<PathBuf, String> {
    let version = "redis==5.2.1";
    let folder = folder("redis-py")?;
    let python = python()?;
    once(&folder, version, || {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]);
        run(pip.arg("--dest").arg(&folder).arg(version), b"", INSTALL_MAX)?;
        let mut tar = Command::new("tar");
        tar.arg("-xzf").arg(folder.join("redis-5.2.1.tar.gz")).arg("-C").arg(&folder);
        run(&mut tar, b"", INSTALL_MAX).map(|_| ())
    })?;
    Ok(folder.join("redis-5.2.1"))
}

/// Copies the files of a client's source folder to its build folder.
fn copy_sources(name: &str, files: &[&str]) -> Result<PathBuf, String> {
    let folder = folder(name)?;
    for file in files {
        fs::copy(sources().join(name).join(file), folder.join(file)).map_err(text)?;
    }
    Ok(folder)
}

/// The folder with ioredis and the program.
pub(crate) fn node() -> Result<PathBuf, String> {
    let folder =
        copy_sources("node", &["package.json", "package-lock.json", "basics.js", "programs.js"])?;
    once(&folder, "ioredis 5.9.3", || {
        let mut npm = Command::new("npm");
        npm.args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder);
        run(&mut npm, b"", INSTALL_MAX).map(|_| ())
    })?;
    Ok(folder)
}

/// The built Go program.
pub(crate) fn go() -> Result<PathBuf, String> {
    let folder = copy_sources("go", &["go.mod", "go.sum", "main.go", "programs.go"])?;
    let mut build = Command::new("go");
    build.args(["build", "-o", "programs", "."]).current_dir(&folder);
    run(&mut build, b"", INSTALL_MAX)?;
    Ok(folder.join("programs"))
}

/// The folder with Jedis's jars in `jars` and the program.
pub(crate) fn java() -> Result<PathBuf, String> {
    let folder = copy_sources("java", &["pom.xml", "Basics.java", "Programs.java"])?;
    once(&folder, "jedis 5.2.0", || {
        let mut maven = Command::new("mvn");
        maven.args(["--batch-mode", "--quiet", "dependency:copy-dependencies"]);
        maven.arg("-DoutputDirectory=jars").current_dir(&folder);
        run(&mut maven, b"", INSTALL_MAX).map(|_| ())
    })?;
    Ok(folder)
}
