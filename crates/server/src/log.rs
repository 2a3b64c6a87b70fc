//! The log: lines on standard output, or in a file. Lines are coloured only on a terminal.

use crate::settings::{Settings, read};
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::sync::{Mutex, OnceLock};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

/// The handle for changing the log level. It is not set if no log was started, as in the simulator.
static LEVEL: OnceLock<reload::Handle<LevelFilter, Registry>> = OnceLock::new();

/// Starts the log as the settings say.
///
/// Errors: the file cannot be opened. The text names the file.
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
    let _ = LEVEL.set(handle); // Setting fails only if the log was started before.
    Ok(())
}

/// Logs a line that a script passes to `redis.log`, with its level: from 0 (debug) to 3 (warning).
pub(crate) fn of_script(level: u8, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    match level {
        0 => tracing::debug!("{line}"),
        1 | 2 => tracing::info!("{line}"),
        _ => tracing::warn!("{line}"),
    }
}

/// Logs the version, the settings file, and the settings that have no effect.
pub(crate) fn begin(settings: &Settings) {
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    tracing::info!("darter {version} starting, pid {pid}");
    match &settings.file {
        Some(file) => tracing::info!("settings: {}", file.display()),
        None => tracing::info!("settings: no file, only defaults and options"),
    }
    tracing::info!("directory: {}", settings.text("dir"));
    for line in read::warnings(settings) {
        tracing::warn!("{line}");
    }
    let unknown = &settings.extras.unknown;
    if !unknown.is_empty() {
        tracing::info!("ignored, unknown settings: {}", unknown.join(" "));
    }
}

/// Logs addresses, cores and limits, when all cores run.
pub(crate) fn running(settings: &Settings, cores: usize, back: &str) {
    let (bind, port) = (settings.text("bind"), settings.text("port"));
    tracing::info!("listening: {bind}, port {port} {}", settings.text("unixsocket"));
    tracing::info!("cores: {cores}, {back}");
    let maxmemory = match settings.text("maxmemory") {
        "0" => "no limit",
        bytes => bytes,
    };
    let files = darter_runtime::limits::open_files();
    let clients = settings.text("maxclients");
    tracing::info!("limits: maxmemory {maxmemory}, maxclients {clients}, open files {files}");
    match settings.text("save") {
        "" if settings.flag("appendonly") => {}
        "" => tracing::warn!("save is empty: all data is lost at shutdown"),
        points => tracing::info!("save points: {points}, and at shutdown"),
    }
}

/// Logs the number of unsaved changes, which are lost at the end of the process.
pub(crate) fn end([changes, keys]: [u64; 2]) {
    if changes > 0 {
        tracing::warn!("{changes} changes were not saved and are lost ({keys} keys in memory)");
    }
    tracing::info!("bye");
}

/// Logs a fatal error, because standard error may be redirected or closed.
pub fn failed(failure: &impl std::fmt::Display) {
    tracing::error!("{failure}");
}

/// Applies a changed `loglevel`.
pub fn follow(settings: &Settings) {
    if let Some(handle) = LEVEL.get() {
        // Fails only if the log was dropped.
        let _ = handle.modify(|filter| *filter = level(settings));
    }
}

/// The level below which messages of `redis.log` are not logged.
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
