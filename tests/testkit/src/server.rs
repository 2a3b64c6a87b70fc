//! Servers as children: the oracle (redis-server) and the subject (Darter), each on a free port
//! with a folder of its own, killed and removed when the handle is dropped.
//!
//! The subject is `DARTER_BIN`, or `target/debug/darter` next to the running test. A name that
//! contains `redis` or `valkey` is started as such a server, so that the tests can be checked
//! against the oracle itself.
//!
//! Not here: what tests do with a server, and orderly shutdown; see `tests/limits`.

use crate::client::{Client, Protocol};
use crate::process::Process;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a server may take to answer PING after its start.
const START_MAX: Duration = Duration::from_secs(20);

/// The backend of the subject's event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// The server's own choice.
    Auto,
    /// Epoll, although io_uring may be there.
    Epoll,
    /// io_uring or nothing.
    Uring,
}

impl Io {
    /// The value of `--io`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Epoll => "epoll",
            Self::Uring => "uring",
        }
    }

    /// Reads the value of `--io`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Auto, Self::Epoll, Self::Uring].into_iter().find(|io| io.name() == name)
    }
}

/// How the subject is started.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of cores.
    pub cores: usize,
    /// The backend of its event loop.
    pub io: Io,
}

impl Default for Shape {
    fn default() -> Self {
        Self { cores: 1, io: Io::Auto }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
    folder: PathBuf,
}

impl Server {
    /// Starts redis-server, as a plain in-memory server with DEBUG allowed.
    ///
    /// # Errors
    /// When it cannot be started or does not answer.
    pub fn oracle() -> io::Result<Self> {
        Self::start(Path::new("redis-server"), Shape::default(), &[])
    }

    /// Starts redis-server with more arguments.
    ///
    /// # Errors
    /// When it cannot be started or does not answer.
    pub fn oracle_with(more: &[&str]) -> io::Result<Self> {
        Self::start(Path::new("redis-server"), Shape::default(), more)
    }

    /// Starts Darter.
    ///
    /// # Errors
    /// When it cannot be started or does not answer.
    pub fn subject(shape: Shape) -> io::Result<Self> {
        Self::subject_with(shape, &[])
    }

    /// Starts Darter with more arguments; a name that ends in `.conf` is put in front.
    ///
    /// # Errors
    /// When it cannot be started or does not answer.
    pub fn subject_with(shape: Shape, more: &[&str]) -> io::Result<Self> {
        Self::start(&subject_path(), shape, more)
    }

    /// Starts Darter where it may open `files` files.
    ///
    /// # Errors
    /// When it cannot be started or does not answer.
    pub fn subject_under(files: u64, shape: Shape, more: &[&str]) -> io::Result<Self> {
        Self::try_start(&subject_path(), shape, more, Some(files), &|_| Ok(()))
    }

    /// Starts Darter in a folder filled by `prepare`.
    ///
    /// # Errors
    /// When it cannot be started or does not answer.
    pub fn subject_in(
        shape: Shape,
        more: &[&str],
        prepare: impl Fn(&Path) -> io::Result<()>,
    ) -> io::Result<Self> {
        Self::try_start(&subject_path(), shape, more, None, &prepare)
    }

    /// Starts redis-server in a folder filled by `prepare`.
    ///
    /// # Errors
    /// When it cannot be started or does not answer.
    pub fn oracle_in(more: &[&str], prepare: impl Fn(&Path) -> io::Result<()>) -> io::Result<Self> {
        let binary = Path::new("redis-server");
        Self::try_start(binary, Shape::default(), more, None, &prepare)
    }

    fn start(binary: &Path, shape: Shape, more: &[&str]) -> io::Result<Self> {
        let mut last = io::Error::other("no attempt");
        for _ in 0..3 {
            // Another process may take the port before the server binds it.
            match Self::try_start(binary, shape, more, None, &|_| Ok(())) {
                Ok(server) => return Ok(server),
                Err(error) => last = error,
            }
        }
        Err(io::Error::other(format!("{}: {last}", binary.display())))
    }

    fn try_start(
        binary: &Path,
        shape: Shape,
        more: &[&str],
        files_open: Option<u64>,
        prepare: &dyn Fn(&Path) -> io::Result<()>,
    ) -> io::Result<Self> {
        let port = free_port()?;
        let folder = fresh_folder()?;
        prepare(&folder)?;
        let log = fs::File::create(folder.join("log"))?;
        let mut command = dies_with_us(binary, files_open);
        // A settings file comes first, as in `darter /path/darter.conf --port 7000`.
        let (files, more): (Vec<&str>, Vec<&str>) =
            more.iter().copied().partition(|word| word.ends_with(".conf"));
        command.args(files).arg("--port").arg(port.to_string()).arg("--dir").arg(&folder);
        command.args(["--save", ""]);
        if is_redis(binary) {
            command.args(["--appendonly", "no"]);
            command.args(["--enable-debug-command", "yes", "--protected-mode", "no"]);
        } else {
            command.args(["--cores", &shape.cores.to_string(), "--io", shape.io.name()]);
        }
        command.args(more).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn()?;
        let mut server = Self { child, port, folder };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            let pong = self.client().and_then(|mut client| {
                client.set_patience(Duration::from_secs(2))?;
                client.command(&["PING"])
            });
            match pong {
                Ok(reply) if reply.text() == Some(b"PONG") => return Ok(()),
                Ok(reply) if reply.text().is_some_and(|text| text.starts_with(b"NOAUTH")) => {
                    return Ok(());
                }
                _ => {}
            }
            if self.child.try_wait()?.is_some() || start.elapsed() > START_MAX {
                return Err(io::Error::other(format!("not ready; its log:\n{}", self.log())));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The working folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The process in `/proc`.
    #[must_use]
    pub fn process(&self) -> Process {
        Process(self.child.id())
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Whether `words` appear in the log within `patience`: a core may answer before another has
    /// logged what it does.
    #[must_use]
    pub fn logs(&self, words: &str, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while !self.log().contains(words) {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// A RESP2 connection.
    ///
    /// # Errors
    /// When it does not accept.
    pub fn client(&self) -> io::Result<Client> {
        Client::connect(self.port, Protocol::Resp2)
    }

    /// Waits for the process to end by itself; none if it does not.
    ///
    /// # Errors
    /// When the child cannot be waited for.
    pub fn wait_for_exit(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if start.elapsed() > patience {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn signal(&self, signal: rustix::process::Signal) -> io::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        Ok(rustix::process::kill_process(pid, signal)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A command for `binary` that the kernel kills when this thread ends, however it ends: a test that
/// is killed leaves nothing running. Without `setpriv` it is a plain command. With `files_open`, it
/// may open that many files and no more: not even a child of root raises that.
#[must_use]
pub fn dies_with_us(binary: &Path, files_open: Option<u64>) -> Command {
    if !Path::new("/usr/bin/setpriv").exists() {
        return Command::new(binary);
    }
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some(files) = files_open {
        if fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
            command.arg("--bounding-set=-sys_resource");
        }
        command.arg("prlimit").arg(format!("--nofile={files}:{files}"));
    }
    command.arg(binary);
    command
}

/// The binary under test.
#[must_use]
pub fn subject_path() -> PathBuf {
    if let Some(path) = std::env::var_os("DARTER_BIN") {
        return PathBuf::from(path);
    }
    let here = std::env::current_exe().unwrap_or_default();
    let folders = here.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join("darter")).find(|path| path.exists()).unwrap_or_default()
}

/// Whether the subject is a Redis or Valkey in Darter's place.
#[must_use]
pub fn subject_is_redis() -> bool {
    is_redis(&subject_path())
}

fn is_redis(binary: &Path) -> bool {
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    name.contains("redis") || name.contains("valkey")
}

/// A port on 127.0.0.1 that is free at this moment.
///
/// # Errors
/// When the system has none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn fresh_folder() -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("darter-test-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
