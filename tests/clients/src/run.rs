//! Runs other programs to completion, with a time limit: arbitrary ones, and those in this crate's
//! language folders. The kernel kills them when this process ends, in any way.

use crate::install::{self, sources};
use crate::{ensure, text};
use darter_testkit::Server;
use darter_testkit::server::dies_with_us;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit of our programs.
const LIMIT: Duration = Duration::from_secs(120);

/// A program by its name or path.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    dies_with_us(Path::new(&name), None)
}

/// Runs a program to its end and returns its output.
///
/// Fails if the program exits with an error or takes longer than `limit`.
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

/// Runs a program of `python/` with redis-py alone.
pub(crate) fn python(server: &Server, name: &str) -> Result<(), String> {
    in_python(install::python()?, server, name)
}

/// Runs a program of `python/` with the libraries of applications.
pub(crate) fn python_app(server: &Server, name: &str) -> Result<(), String> {
    in_python(install::python_applications()?, server, name)
}

fn in_python(python: PathBuf, server: &Server, name: &str) -> Result<(), String> {
    let mut command = program(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(sources().join("python").join(name));
    show(&mut command, &[server])
}

/// Runs the program of `go/` with a name that its `main` knows.
pub(crate) fn go(server: &Server, name: &str) -> Result<(), String> {
    show(program(install::go()?).arg(name), &[server])
}

/// Runs a program of `node/`, with the ports of all `servers`.
pub(crate) fn node(servers: &[&Server], name: &str) -> Result<(), String> {
    let mut command = program("node");
    show(command.current_dir(install::node()?).arg(name), servers)
}

/// Runs a program of `java/`.
pub(crate) fn java(server: &Server, name: &str) -> Result<(), String> {
    let mut command = program("java");
    show(command.current_dir(install::java()?).args(["-cp", "jars/*", name]), &[server])
}

/// Runs a program of `ruby/`.
pub(crate) fn ruby(server: &Server, name: &str) -> Result<(), String> {
    show(program("ruby").arg(sources().join("ruby").join(name)), &[server])
}

/// Runs a program with the ports of servers as its last arguments, and prints its output.
fn show(command: &mut Command, servers: &[&Server]) -> Result<(), String> {
    command.args(servers.iter().map(|server| server.port().to_string()));
    print!("{}", run(command, b"", LIMIT)?);
    Ok(())
}
