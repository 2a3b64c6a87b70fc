//! Darter: runs a command for operators; or reads the settings, starts the log, runs the server.

#![forbid(unsafe_code)]

use darter_server::settings::cli::{self, CliRequest};
use std::io::Write;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: darter_server::Counting = darter_server::Counting;

fn main() -> ExitCode {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.collect();
    if let Some(exit) = darter_tools::run(&words) {
        return exit;
    }
    let settings = match cli::parse(&words, &darter_tools::summary()) {
        Ok(CliRequest::Run(settings)) => *settings,
        Ok(CliRequest::Print(text)) => return said(&text),
        Err(wrong) => return fail(&wrong),
    };
    // The log first: a daemon cannot report otherwise that its log file does not open.
    if let Err(wrong) = darter_server::log::start(&settings) {
        return fail(&format!("darter: {wrong}"));
    }
    if let Err(wrong) = darter_server::boot::leave_terminal(&settings) {
        return fail(&format!("darter: {wrong}"));
    }
    let has_file = !settings.text("logfile").is_empty();
    match darter_server::boot::run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if has_file {
                darter_server::log::failed(&failure);
            }
            fail(&format!("darter: {failure}"))
        }
    }
}

fn said(text: &str) -> ExitCode {
    let _ = writeln!(std::io::stdout(), "{text}");
    ExitCode::SUCCESS
}

fn fail(line: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{line}");
    ExitCode::FAILURE
}
