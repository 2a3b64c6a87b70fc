//! The server and whoever watches over it: word to systemd, the file with the process's number.

use crate::settings::Settings;
use darter_runtime::supervise;
use std::ffi::OsString;
use std::path::PathBuf;

/// Where the process's number stands when a daemon is not told a place.
const PID_FILE: &str = "/run/darter.pid";

/// What was agreed upon with the supervisor. The file is removed when this is dropped, unless another
/// server has written its own there meanwhile.
pub(crate) struct Supervisor {
    /// `NOTIFY_SOCKET`, where states are told.
    socket: Option<OsString>,
    pid_file: Option<PathBuf>,
}

/// What stands in the file.
fn pid_line() -> String {
    format!("{}\n", std::process::id())
}

/// Whether the process is to leave its terminal: not below a supervisor, who watches this process.
#[must_use]
pub fn leaves_terminal(settings: &Settings) -> bool {
    settings.flag("daemonize") && socket(settings).is_none()
}

fn socket(settings: &Settings) -> Option<OsString> {
    let wants = matches!(settings.text("supervised"), "systemd" | "auto");
    std::env::var_os("NOTIFY_SOCKET").filter(|name| wants && !name.is_empty())
}

impl Supervisor {
    /// Writes the file: if it cannot be written, that is logged, and nothing else, as in Redis.
    ///
    /// Call it once the server listens: whoever cannot, because another one does, leaves the other's
    /// file alone.
    pub(crate) fn begin(settings: &Settings) -> Self {
        let socket = socket(settings);
        if socket.is_none() && matches!(settings.text("supervised"), "systemd" | "upstart") {
            tracing::warn!("supervised: no supervisor is there to be told (NOTIFY_SOCKET)");
        }
        let name = match settings.text("pidfile") {
            "" if leaves_terminal(settings) => PID_FILE,
            name => name,
        };
        let mut pid_file = (!name.is_empty()).then(|| PathBuf::from(name));
        if let Some(path) = &pid_file
            && let Err(error) = std::fs::write(path, pid_line())
        {
            tracing::warn!("cannot write pidfile {}: {error}", path.display());
            pid_file = None;
        }
        Self { socket, pid_file }
    }

    /// It takes connections, and all data is there.
    pub(crate) fn ready(&self) {
        self.tell("STATUS=Ready to accept connections\nREADY=1\n");
    }

    /// The end has begun.
    pub(crate) fn stopping(&self) {
        self.tell("STATUS=Stopping\nSTOPPING=1\n");
    }

    fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = supervise::notify(socket, state)
        {
            tracing::warn!("the supervisor cannot be told: {error}");
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(path) = &self.pid_file
            && std::fs::read_to_string(path).is_ok_and(|line| line == pid_line())
        {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}
