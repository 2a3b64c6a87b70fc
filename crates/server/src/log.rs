//! The log: lines on standard output, or in a file. Colour only where people read: on a terminal.

use crate::settings::{Settings, read};
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::sync::{Mutex, OnceLock};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// The log level; nothing is kept where no log was started, as in the simulator.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts the log according to the settings.
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

/// Logs what a script or a library tells, with its level: from 0 for debugging to 3 for warnings.
pub(crate) fn of_script(level: u8, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    match level {
        0 => tracing::debug!("{line}"),
        1 | 2 => tracing::info!("{line}"),
        _ => tracing::warn!("{line}"),
    }
}

/// Logs what starts here, with which settings, and which of those have no effect.
pub(crate) fn begin(settings: &Settings) {
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    tracing::info!("darter {version} begins, pid {pid}");
    match &settings.file {
        Some(file) => tracing::info!("settings: {}", file.display()),
        None => tracing::info!("settings: no file, defaults and options"),
    }
    tracing::info!("folder: {}", settings.text("dir"));
    for line in read::warnings(settings) {
        tracing::warn!("{line}");
    }
    let unknown = &settings.asked.unknown;
    if !unknown.is_empty() {
        tracing::info!("left out, unknown here: {}", unknown.join(" "));
    }
}

/// Logs what is running, once all cores are.
pub(crate) fn running(settings: &Settings, cores: usize, back: &str) {
    let (bind, port) = (settings.text("bind"), settings.text("port"));
    tracing::info!("addresses: {bind}, port {port} {}", settings.text("unixsocket"));
    tracing::info!("cores: {cores}, {back}");
    let maxmemory = match settings.text("maxmemory") {
        "0" => "no limit",
        bytes => bytes,
    };
    let files = darter_runtime::limits::open_files();
    let clients = settings.text("maxclients");
    tracing::info!("limits: maxmemory {maxmemory}, maxclients {clients}, open files {files}");
    match settings.text("save") {
        "" => tracing::warn!("save is empty: what is in memory ends with this process"),
        points => tracing::info!("save points: {points}; saved at the end, too"),
    }
}

/// Logs what is lost.
pub(crate) fn end([changes, keys]: [u64; 2]) {
    if changes > 0 {
        tracing::warn!("{changes} changes were not saved and are lost; there were {keys} keys");
    }
    tracing::info!("bye");
}

/// Logs why the server ends, if standard error goes elsewhere, or nowhere.
pub fn failed(failure: &impl std::fmt::Display) {
    tracing::error!("{failure}");
}

/// Applies `loglevel` after it was changed.
pub fn follow(settings: &Settings) {
    if let Some(handle) = LEVEL.get() {
        // It fails only when the log is gone.
        let _ = handle.modify(|filter| *filter = level(settings));
    }
}

/// Below this scripts' lines are not logged: levels as `redis.log` counts them.
pub fn level_of_scripts(settings: &Settings) -> u8 {
    match settings.text("loglevel") {
        "debug" => 0,
        "verbose" => 1,
        "notice" => 2,
        "warning" => 3,
        _ => 4,
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
