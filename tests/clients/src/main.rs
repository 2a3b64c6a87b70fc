//! Unmodified clients against the server, each a small real program that asserts its results:
//! redis-cli, redis-benchmark, redis-py (and its own test suite), go-redis, ioredis, Jedis, and the
//! queues, locks, limiters and sessions that applications are built on.
//!
//! `cargo run -p darter-clients -- [--cores N] [--io auto|epoll] [--install] [TEXT]`; with TEXT,
//! only the checks whose names contain it. Missing clients are installed into `target/clients` at
//! pinned versions, from the registries that pip, npm, go and maven are configured for; with
//! `--install` nothing else is done.
//!
//! Not here: replies byte for byte; `tests/conformance` compares those.

#![forbid(unsafe_code)]

mod applications;
mod cli;
mod install;
mod programs;
mod run;

use darter_testkit::{Io, Server, Shape, Tally};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// A check of one client: its name, and a function of a fresh server.
pub(crate) type Check = (&'static str, fn(&Server) -> Result<(), String>);

/// An error as a failure.
pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Fails unless `holds`.
pub(crate) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

fn main() -> ExitCode {
    let (mut shape, mut part) = (Shape { cores: 2, io: Io::Auto }, String::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--cores" => shape.cores = words.next().and_then(|n| n.parse().ok()).unwrap_or(1),
            "--io" => shape.io = words.next().and_then(|n| Io::from_name(&n)).unwrap_or(Io::Auto),
            "--install" => return install_all(),
            other => part = other.to_owned(),
        }
    }
    let checks = [cli::CHECKS, programs::CHECKS, applications::CHECKS].concat();
    let chosen: Vec<Check> = checks.into_iter().filter(|(name, _)| name.contains(&part)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut tally = Tally::default();
        while let Some((name, check)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            tally.run(name, || check(&Server::subject(shape).map_err(text)?));
        }
        tally
    };
    // Two at a time, because the clients mostly sleep.
    let tally = thread::scope(|scope| {
        let second = scope.spawn(work);
        let mut tally = work();
        tally.absorb(second.join().expect("the panic of a check is caught"));
        tally
    });
    tally.close()
}

fn install_all() -> ExitCode {
    let mut tally = Tally::default();
    for (name, install) in install::ALL {
        tally.run(name, || install().map(|_| ()));
    }
    tally.close()
}
