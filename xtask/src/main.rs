//! Chores of the workspace: `cargo x <verb>`.
//!
//! Verbs are rows of [`VERBS`]. `tidy` and `mutants` are implemented here; the others start the
//! package that does the work, so that its name need not be remembered.

#![forbid(unsafe_code)]

mod asserts;
mod circles;
mod english;
mod layers;
mod mutants;
mod paths;
mod ranks;
mod statics;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The act of a verb. The rest of the command line is its input.
enum Act {
    /// The rules that no compiler checks.
    Tidy,
    /// A list of the faults of English below a path.
    English,
    /// A sample of mutations.
    Mutants,
    /// `cargo run -p PACKAGE -- ARGUMENTS`.
    Package(&'static str),
    /// A program in the root of the workspace.
    Program(&'static str),
}

#[rustfmt::skip] // A table.
const VERBS: &[(&str, Act, &str)] = &[
    ("tidy",    Act::Tidy,                           "layers, files, comments"),
    ("english", Act::English,                        "the places that tidy's rule of English counts: PATH"),
    ("conform", Act::Package("darter-conformance"),  "replies against redis-server, byte for byte"),
    ("differ",  Act::Package("darter-differential"), "random commands against redis-server"),
    ("limits",  Act::Package("darter-limits"),       "hostile clients, start and stop"),
    ("crash",   Act::Package("darter-crash"),        "kills and losses of power, and the data afterwards"),
    ("clients", Act::Package("darter-clients"),      "unmodified clients"),
    ("fuzz",    Act::Package("darter-fuzz"),         "random bytes into every parser"),
    ("sim",     Act::Package("darter-simulation"),          "cores, clients and clock in one thread: --seed N"),
    ("mutants", Act::Mutants,                        "changes in the code that no test notices: a sample"),
    ("bench",   Act::Package("darter-bench"),        "the benchmarks of bench/"),
    ("check",   Act::Program("./check"),             "all of it"),
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let verb = words.next().unwrap_or_default();
    let rest: Vec<String> = words.collect();
    match VERBS.iter().find(|(name, _, _)| *name == verb) {
        Some((_, Act::Tidy, _)) => tidy::run(&root()),
        Some((_, Act::English, _)) => tidy::list_english(&root(), rest.first()),
        Some((_, Act::Mutants, _)) => mutants::run(&root(), &rest),
        Some((_, Act::Package(package), _)) => start_package(package, &rest),
        Some((_, Act::Program(program), _)) => start(Command::new(program).args(&rest)),
        None => {
            for (name, _, help) in VERBS {
                eprintln!("cargo x {name:<8} {help}");
            }
            ExitCode::from(2)
        }
    }
}

/// The workspace's root.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Runs a package. Those that start a server need the binary; those that measure want it optimised.
fn start_package(package: &str, rest: &[String]) -> ExitCode {
    let release = package == "darter-bench";
    let profile: &[&str] = if release { &["--release"] } else { &[] };
    let built =
        start(Command::new("cargo").args(["build", "--quiet", "-p", "darter"]).args(profile));
    if built != ExitCode::SUCCESS {
        return built;
    }
    if release {
        let floor = ["build", "--quiet", "--release", "-p", "darter-runtime", "--example", "echo"];
        let built = start(Command::new("cargo").args(floor));
        if built != ExitCode::SUCCESS {
            return built;
        }
    }
    let mut run = Command::new("cargo");
    start(run.args(["run", "--quiet", "-p", package]).args(profile).arg("--").args(rest))
}

fn start(command: &mut Command) -> ExitCode {
    match command.current_dir(root()).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{command:?}: {error}");
            ExitCode::from(2)
        }
    }
}
