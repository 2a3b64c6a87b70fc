//! Darter: reads the settings, starts the log, runs the server.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let settings = match darter_server::settings::cli::parse(std::env::args_os()) {
        Ok(settings) => settings,
        Err(wrong) => return fail(&format!("darter: {wrong}")),
    };
    if let Err(wrong) = darter_server::log::start(&settings) {
        return fail(&format!("darter: {wrong}"));
    }
    match darter_server::boot::run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&format!("darter: {failure}")),
    }
}

fn fail(line: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{line}");
    ExitCode::FAILURE
}
