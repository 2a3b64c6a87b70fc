//! Latency, memory and CPU of Darter next to redis-server, with one command.
//!
//! `cargo run --release -p darter-bench -- bigkey --quick`: the tool starts both servers itself,
//! one after the other, pinned to as many processors as they may use, loads both with the same
//! data, and writes a Markdown report with pictures to `bench/results/`.
//!
//! It knows the servers only from outside: RESP on a socket, and /proc. Wall-clock latencies on a
//! shared machine are noisy, so servers are compared within one run, and CPU time is reported too.

#![forbid(unsafe_code)]

mod bigkey;
mod client;
mod control;
mod data;
mod durability;
mod expiry;
mod fault;
mod gaussdb;
mod load;
mod options;
mod plot;
mod populate;
mod prng;
mod process;
mod programs;
mod rdb;
mod report;
mod saturate;
mod save;
mod scaling;
mod small;
mod stream;
mod summary;
mod throughput;
mod workloads;

use std::process::ExitCode;

use fault::Outcome;
use options::{Benchmark, Options};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("darter-bench: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let options = Options::parse()?;
    options.processors.pin_client()?;
    match options.benchmark {
        Benchmark::BigKey => bigkey::run(&options),
        Benchmark::Populate => populate::run(&options),
        Benchmark::Throughput => throughput::run(&options),
        Benchmark::Durability => durability::run(&options),
        Benchmark::Expiry => expiry::run(&options),
        Benchmark::Small => small::run(&options),
        Benchmark::Save => save::run(&options),
        Benchmark::Load => load::run(&options),
        Benchmark::GaussDb => gaussdb::run(&options),
        Benchmark::Scaling => scaling::run(&options),
        Benchmark::Programs => programs::run(&options),
    }
}
