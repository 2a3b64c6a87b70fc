//! The log: lines on standard output, or in a file. Colour only where people read: on a terminal.

use crate::settings::Settings;
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::sync::{Mutex, OnceLock};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// How much is logged; nothing is kept where no log was started, as in the simulator.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts the log as the settings say.
///
/// Errors: the file cannot be opened; the text says which.
pub fn start(settings: &Settings) -> Result<(), String> {
    let (filter, handle) = reload::Layer::new(level(settings));
    let lines = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_target(false);
    let path = settings.text("logfile");
    if path.is_empty() {
        lines.with(layer.with_ansi(std::io::stdout().is_terminal())).init();
    } else {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|error| format!("cannot open logfile '{path}': {error}"))?;
        lines.with(layer.with_ansi(false).with_writer(Mutex::new(file))).init();
    }
    let _ = LEVEL.set(handle); // Only a second start could find one.
    Ok(())
}

/// Follows `loglevel` after it was changed.
pub fn follow(settings: &Settings) {
    if let Some(handle) = LEVEL.get() {
        // It fails only when the log is gone.
        let _ = handle.modify(|filter| *filter = level(settings));
    }
}

fn level(settings: &Settings) -> LevelFilter {
    match settings.text("loglevel") {
        "debug" => LevelFilter::DEBUG,
        "verbose" | "notice" => LevelFilter::INFO,
        "warning" => LevelFilter::WARN,
        _ => LevelFilter::OFF,
    }
}
