//! The log: lines on standard output, or in a file.

use crate::settings::Settings;
use std::fs::OpenOptions;
use std::sync::Mutex;
use tracing_subscriber::filter::LevelFilter;

/// Starts the log as the settings say.
///
/// Errors: the file cannot be opened; the text says which.
pub fn start(settings: &Settings) -> Result<(), String> {
    let level = match settings.text("loglevel") {
        "debug" => LevelFilter::DEBUG,
        "verbose" | "notice" => LevelFilter::INFO,
        "warning" => LevelFilter::WARN,
        _ => LevelFilter::OFF,
    };
    let lines = tracing_subscriber::fmt().with_max_level(level).with_target(false);
    let path = settings.text("logfile");
    if path.is_empty() {
        lines.init();
        return Ok(());
    }
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.map_err(|error| format!("cannot open logfile '{path}': {error}"))?;
    lines.with_ansi(false).with_writer(Mutex::new(file)).init();
    Ok(())
}
