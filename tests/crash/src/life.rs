//! One life of a server: its start, its readiness, its death.

use darter_testkit::server::{dies_with_us, free_port, subject_path};
use darter_testkit::{Client, Protocol};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// The longest start that is not called hung.
const START_MAX: Duration = Duration::from_secs(30);

/// The settings of a start.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) cores: u64,
    pub(crate) io: &'static str,
    pub(crate) mode: &'static str,
}

/// A server process. It is killed with its handle.
pub(crate) struct Life {
    child: Child,
    port: u16,
    log: PathBuf,
    born: Instant,
}

impl Life {
    /// Starts the server in `folder`, with its log in `log`; it is not ready yet.
    pub(crate) fn start(folder: &Path, log: &Path, start: &Start) -> io::Result<Self> {
        let port = free_port()?;
        let mut command = dies_with_us(&subject_path(), None);
        let file = fs::File::create(log)?;
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "yes"]);
        command.args(["--cores", &start.cores.to_string(), "--io", start.io]);
        command.args(["--appendfsync", start.mode, "--auto-aof-rewrite-min-size", "1mb", "--dir"]);
        command.arg(folder).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn()?;
        Ok(Self { child, port, log: log.to_owned(), born: Instant::now() })
    }

    /// Waits until it answers PING; returns the time since its start.
    ///
    /// # Errors
    /// With its log, when it ends or is not ready in time.
    pub(crate) fn until_ready(&mut self) -> Result<Duration, String> {
        loop {
            let pong = self.client().and_then(|mut client| client.command(&["PING"]));
            if pong.is_ok_and(|reply| reply.text() == Some(b"PONG")) {
                return Ok(self.born.elapsed());
            }
            let ended = self.child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || self.born.elapsed() > START_MAX {
                return Err(format!("the start is refused ({ended:?}); its log:\n{}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn client(&self) -> io::Result<Client> {
        Client::connect(self.port, Protocol::Resp2)
    }

    /// The end of its log.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Kills it, and does not wait for its end.
    pub(crate) fn strike(&self) {
        use rustix::process::{Pid, Signal, kill_process};
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
    }

    /// Kills it, and waits for its end.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to shut down.
    ///
    /// # Errors
    /// When it does not end with exit code 0.
    pub(crate) fn shut_down(&mut self) -> Result<(), String> {
        let mut client = self.client().map_err(|error| error.to_string())?;
        let reply = client.words("SHUTDOWN");
        if let Ok(reply) = reply {
            return Err(format!("SHUTDOWN: {reply:?}\n{}", self.log()));
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("{status}\n{}", self.log())) }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.kill();
    }
}
