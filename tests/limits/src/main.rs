//! How the server copes with hostile and careless clients, and how it starts and stops: raw
//! sockets, one server a check, memory and CPU read from `/proc`.
//!
//! `cargo run -p darter-limits -- [--cores N] [--io auto|epoll] [--soak SECONDS] [--varying]
//! [TEXT]`; with TEXT, only the checks whose names contain it. Random checks (the soak) run for
//! about SECONDS. With `--varying` only the checks that depend on the cores or on the backend run.
//!
//! With `DARTER_BIN=redis-server` the checks that require more than Redis offers are skipped.
//!
//! Not here: the replies to malformed input, which `tests/conformance` compares with Redis.

#![forbid(unsafe_code)]

mod all_keys;
mod append_only;
mod beside;
mod files;
mod first_hour;
mod functions;
mod input;
mod life;
mod memory;
mod moves;
mod names;
mod operators;
mod peers;
mod pipelines;
mod ports;
mod resets;
mod saved_streams;
mod saving;
mod scripts;
mod slices;
mod stalls;
mod subscribers;
mod tracking;
mod transactions;
mod waiting;
mod watchers;

use darter_testkit::{Io, Server, Shape, Tally, server};
use std::process::ExitCode;
use std::time::Duration;

/// The context of a check.
pub(crate) struct Stage {
    pub(crate) shape: Shape,
    /// About how long a random check runs.
    pub(crate) soak: Duration,
}

impl Stage {
    /// A fresh server.
    pub(crate) fn server(&self) -> Result<Server, String> {
        self.server_with(&[])
    }

    /// A fresh server with further arguments.
    pub(crate) fn server_with(&self, more: &[&str]) -> Result<Server, String> {
        Server::subject_with(self.shape, more).map_err(text)
    }
}

/// An I/O error as a failure.
pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Fails unless `holds`.
pub(crate) fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

/// Whether Redis would also pass the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Redis has this limit as well.
    AsRedis,
    /// Redis would fail.
    More,
}

/// One check: its name, its requirements, and its function.
pub(crate) type Check = (&'static str, Asks, fn(&Stage) -> Result<(), String>);

const GROUPS: &[&[Check]] = &[
    input::CHECKS,
    names::CHECKS,
    peers::CHECKS,
    resets::CHECKS,
    files::CHECKS,
    ports::CHECKS,
    watchers::CHECKS,
    subscribers::CHECKS,
    tracking::CHECKS,
    transactions::CHECKS,
    waiting::CHECKS,
    scripts::CHECKS,
    all_keys::CHECKS,
    beside::CHECKS,
    pipelines::CHECKS,
    moves::CHECKS,
    stalls::CHECKS,
    memory::CHECKS,
    saving::CHECKS,
    append_only::CHECKS,
    append_only::dealt::CHECKS,
    append_only::written::CHECKS,
    operators::CHECKS,
    saved_streams::CHECKS,
    functions::CHECKS,
    life::CHECKS,
];

/// Checks that depend neither on the number of cores nor on the backend.
const INVARIANT: &[&[Check]] = &[life::STARTS, first_hour::CHECKS];

fn main() -> ExitCode {
    let (mut shape, mut part) = (Shape::default(), String::new());
    let mut soak = Duration::from_secs(1);
    let mut is_varying = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--cores" => {
                shape.cores = words.next().and_then(|n| n.parse().ok()).unwrap_or(1);
            }
            "--io" => shape.io = words.next().and_then(|n| Io::from_name(&n)).unwrap_or(Io::Auto),
            "--soak" => {
                soak = Duration::from_secs(words.next().and_then(|n| n.parse().ok()).unwrap_or(1));
            }
            "--varying" => is_varying = true,
            other => part = other.to_owned(),
        }
    }
    let stage = Stage { shape, soak };
    let mut tally = Tally::default();
    let invariant = if is_varying { Vec::new() } else { INVARIANT.concat() };
    for check in [GROUPS.concat(), invariant].concat() {
        let (name, asks, _) = check;
        if !name.contains(&part) || (asks == Asks::More && server::subject_is_redis()) {
            continue;
        }
        tally.run(name, || slices::run(check, &stage));
    }
    tally.close()
}
