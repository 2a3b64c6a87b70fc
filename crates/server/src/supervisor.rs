//! The supervisor of the process: notifications to systemd, and the pidfile.

use crate::settings::Settings;
use darter_runtime::fs::{self, FileSystem};
use darter_runtime::supervise;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// The pidfile of a daemon if the setting is empty.
const PID_FILE: &str = "/run/darter.pid";

/// The connection to the supervisor, and the pidfile. Dropping this value removes the pidfile,
/// unless another server has replaced it.
pub(crate) struct Supervisor {
    /// The socket named by `NOTIFY_SOCKET`, to which states are sent.
    socket: Option<OsString>,
    pid_file: Option<PathBuf>,
    fs: Arc<dyn FileSystem>,
}

/// The contents of the pidfile.
fn pid_line() -> String {
    format!("{}\n", std::process::id())
}

/// True if the process must become a daemon. Under a supervisor it stays in the foreground, because
/// the supervisor watches this process.
#[must_use]
pub fn leaves_terminal(settings: &Settings) -> bool {
    settings.flag("daemonize") && socket(settings).is_none()
}

fn socket(settings: &Settings) -> Option<OsString> {
    let wants = matches!(settings.text("supervised"), "systemd" | "auto");
    std::env::var_os("NOTIFY_SOCKET").filter(|name| wants && !name.is_empty())
}

impl Supervisor {
    /// Connects to the supervisor and writes the pidfile. As in Redis, a failure is only logged.
    ///
    /// Must be called when the server has opened its sockets. A process that cannot open them,
    /// because another server has them, must not replace the pidfile of that server.
    pub(crate) fn begin(settings: &Settings, fs: Arc<dyn FileSystem>) -> Self {
        let socket = socket(settings);
        if socket.is_none() && matches!(settings.text("supervised"), "systemd" | "upstart") {
            tracing::warn!("supervised: NOTIFY_SOCKET is not set; no supervisor will be notified");
        }
        let name = match settings.text("pidfile") {
            "" if leaves_terminal(settings) => PID_FILE,
            name => name,
        };
        let mut pid_file = (!name.is_empty()).then(|| PathBuf::from(name));
        if let Some(path) = &pid_file
            && let Err(error) = fs::write(&*fs, path, pid_line().as_bytes())
        {
            tracing::warn!("cannot write pidfile {}: {error}", path.display());
            pid_file = None;
        }
        Self { socket, pid_file, fs }
    }

    /// Notifies the supervisor that all data is loaded and connections are accepted.
    pub(crate) fn ready(&self) {
        self.notify("STATUS=Ready to accept connections\nREADY=1\n");
    }

    /// Notifies the supervisor that the server begins to stop.
    pub(crate) fn stopping(&self) {
        self.notify("STATUS=Stopping\nSTOPPING=1\n");
    }

    fn notify(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = supervise::notify(socket, state)
        {
            tracing::warn!("cannot notify the supervisor: {error}");
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(path) = &self.pid_file
            && fs::read(&*self.fs, path).is_ok_and(|line| line == pid_line().as_bytes())
        {
            // The file may have been removed already.
            let _ = self.fs.remove(path);
        }
    }
}
