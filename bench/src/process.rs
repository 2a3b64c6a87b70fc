//! Starts the servers under test, pins them, and reads their costs from /proc.
//!
//! A server gets the first N of the processors that this process may use, the client the last one.
//! Pinning needs no `unsafe` and no helper: a child inherits the mask of the thread that starts it,
//! so the mask is set, the child is started, and the mask is restored. A server is killed when its
//! [`Server`] is dropped, and its directory goes with it. When this process itself is killed,
//! nothing is dropped: then the kernel ends the server (`setpriv --pdeathsig`, if installed), and
//! the next run removes the directory.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::client::Connection;
use crate::fault::{Fault, Outcome};

/// The beginning of the names of temporary directories. The process id and a number follow.
const FOLDER_PREFIX: &str = "darter-bench-";

/// The program to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// `redis-server`, from this path.
    Redis(PathBuf),
    /// `redis-server` from this path, with an I/O thread for each of its processors.
    ThreadedRedis(PathBuf),
    /// Darter, from this path.
    Darter {
        /// The program.
        path: PathBuf,
        /// The event loop: the value of the setting `io`.
        io: String,
    },
    /// The echo server on Darter's runtime, from this path. It shows the costs of the kernel, which
    /// no server can avoid.
    Floor {
        /// The program.
        path: PathBuf,
        /// The answer to every request.
        reply: String,
    },
}

impl Program {
    fn path(&self) -> &Path {
        match self {
            Program::Redis(path) | Program::ThreadedRedis(path) => path,
            Program::Darter { path, .. } | Program::Floor { path, .. } => path,
        }
    }
}

/// A program and its number of cores: one column of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    /// The program to start.
    pub(crate) program: Program,
    /// The number of processors that it gets.
    pub(crate) cores: usize,
}

impl Subject {
    /// The name in tables and plots.
    pub(crate) fn name(&self) -> String {
        match (&self.program, self.cores) {
            (Program::Redis(_), 1) => "redis-server".to_owned(),
            (Program::Redis(_), cores) => format!("redis-server, {cores} processors"),
            (Program::ThreadedRedis(_), cores) => format!("redis-server, {cores} cores"),
            (Program::Darter { io, .. }, cores) => {
                let cores = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
                let io = if io == "auto" { String::new() } else { format!(", {io}") };
                format!("darter, {cores}{io}")
            }
            (Program::Floor { .. }, _) => "floor".to_owned(),
        }
    }
}

/// The processors that this process may use, split between server and client.
#[derive(Clone, Debug)]
pub(crate) struct Processors(Vec<usize>);

impl Processors {
    /// Reads the mask of this process.
    pub(crate) fn allowed() -> Outcome<Processors> {
        let set = sched_getaffinity(None).map_err(std::io::Error::from)?;
        let list: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
        if list.is_empty() { Err(Fault::Setup("no processor".to_owned())) } else { Ok(Self(list)) }
    }

    /// The number of processors.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Keeps this thread, and the threads it starts, on the client's processor.
    pub(crate) fn pin_client(&self) -> Outcome<()> {
        pin(&self.0[self.0.len() - 1..])
    }

    /// The processors of clients that load a server with this many cores: the processors that the
    /// server leaves free, or half of all.
    pub(crate) fn clients(&self, cores: usize) -> &[usize] {
        &self.0[cores.min(self.0.len() / 2)..]
    }

    /// Whether such clients share no processor with the server.
    pub(crate) fn has_clients_apart(&self, cores: usize) -> bool {
        cores <= self.0.len() / 2
    }

    /// Processors from 0 up, which need not exist.
    #[cfg(test)]
    pub(crate) fn of(count: usize) -> Processors {
        Processors((0..count).collect())
    }

    /// The processors of a server with this many cores.
    pub(crate) fn server(&self, cores: usize) -> &[usize] {
        &self.0[..cores.clamp(1, self.0.len())]
    }
}

/// Keeps this thread, and those it starts, on these processors.
pub(crate) fn pin(list: &[usize]) -> Outcome<()> {
    let mut set = CpuSet::new();
    for cpu in list {
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set).map_err(std::io::Error::from)?)
}

/// A directory that is removed when its owner is dropped.
#[derive(Debug)]
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates a new, empty directory below the system's temporary directory.
    pub(crate) fn create() -> Outcome<TempFolder> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if number == 0 {
            remove_orphans();
        }
        let name = format!("{FOLDER_PREFIX}{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path)?;
        Ok(TempFolder(path))
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // If the directory cannot be removed, there is nothing to do about it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the directories of killed runs, whose processes do not exist any more.
fn remove_orphans() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(FOLDER_PREFIX).and_then(|rest| rest.split_once('-'));
        let number = process.and_then(|(process, _)| process.parse::<u32>().ok());
        if number.is_some_and(|number| !Path::new(&format!("/proc/{number}")).exists()) {
            // The directory may belong to another user. Then it stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    folder: TempFolder,
    /// The port on 127.0.0.1 on which it listens.
    pub(crate) port: u16,
    /// The time from its start to its first PONG.
    pub(crate) ready_after: Duration,
    /// The longest time that a new client waited for -LOADING until then.
    pub(crate) waited: Duration,
}

impl Server {
    /// Starts `subject` with the file `dump` (or empty) and waits until it answers PING.
    pub(crate) fn start(
        subject: &Subject,
        processors: &Processors,
        dump: Option<&Path>,
        limit: Duration,
    ) -> Outcome<Server> {
        let folder = TempFolder::create()?;
        if let Some(dump) = dump {
            // A hard link costs nothing. Across file systems the file is copied instead.
            let inside = folder.path().join("dump.rdb");
            fs::hard_link(dump, &inside).or_else(|_| fs::copy(dump, &inside).map(|_| ()))?;
        }
        let port = free_port()?;
        let mut command = command_line(subject, port, folder.path());
        let log = File::create(folder.path().join("log"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        pin(processors.server(subject.cores))?;
        let started = Instant::now();
        let child = command.spawn();
        processors.pin_client()?;
        let child = child
            .map_err(|error| Fault::Setup(format!("cannot start {}: {error}", subject.name())))?;
        let (ready_after, waited) = (Duration::ZERO, Duration::ZERO);
        let mut server = Server { child, folder, port, ready_after, waited };
        server.wait_ready(started, limit)?;
        Ok(server)
    }

    fn wait_ready(&mut self, started: Instant, limit: Duration) -> Outcome<()> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let last = log.lines().rev().find(|line| !line.trim().is_empty());
                let last = last.unwrap_or("no log").to_owned();
                return Err(Fault::Setup(format!("ended while starting: {last} ({status})")));
            }
            let asked = Instant::now();
            let answer = Connection::open(self.port, Duration::from_secs(5))
                .and_then(|mut connection| connection.ask(&["PING"]));
            self.waited = self.waited.max(asked.elapsed());
            match answer {
                Ok(_) => {
                    self.ready_after = started.elapsed();
                    return Ok(());
                }
                // The server is loading, or is not listening yet: ask again.
                Err(_) if started.elapsed() < limit => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => return Err(Fault::TimedOut),
            }
        }
    }

    /// The RDB file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("dump.rdb")
    }

    /// Opens a connection whose reads wait for at most `limit`.
    pub(crate) fn connect(&self, limit: Duration) -> Outcome<Connection> {
        Connection::open(self.port, limit)
    }

    /// Ends the server at once, whatever it is doing.
    pub(crate) fn kill(&mut self) {
        // Both calls fail only for a process that has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn proc_file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.child.id()))
    }

    /// CPU time of all its running threads so far, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.schedule_ns(0)
    }

    /// CPU time of all its threads so far, including those that have ended, in nanoseconds. The
    /// kernel reports the time of ended threads only in hundredths of a second.
    pub(crate) fn cpu_ns_of_all(&self) -> u64 {
        /// The kernel's unit in /proc (`USER_HZ`).
        const TICK_NS: u64 = 10_000_000;
        let stat = fs::read_to_string(self.proc_file("stat")).unwrap_or_default();
        // The name, in parentheses, may contain anything. User and system time are the 12th and
        // 13th field after it.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|text| text.parse::<u64>().ok()).sum();
        self.cpu_ns().max(ticks * TICK_NS)
    }

    /// How long its threads have been runnable while other processes had their processor, in
    /// nanoseconds. This is noise of the machine, not caused by the server.
    pub(crate) fn held_up_ns(&self) -> u64 {
        self.schedule_ns(1)
    }

    /// The sum of a field of `schedstat` over its threads.
    fn schedule_ns(&self, field: usize) -> u64 {
        let Ok(tasks) = fs::read_dir(self.proc_file("task")) else { return 0 };
        let of = |text: String| text.split_whitespace().nth(field)?.parse::<u64>().ok();
        tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
            .filter_map(of)
            .sum()
    }

    /// The current resident memory, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The current memory of the process and its children, in bytes. A page that a child shares
    /// with the process counts once. Cost: some milliseconds for each gigabyte, during which the
    /// process cannot map memory.
    pub(crate) fn share_bytes(&self) -> u64 {
        let own = self.child.id().to_string();
        let children = fs::read_to_string(self.proc_file(&format!("task/{own}/children")));
        let children = children.unwrap_or_default();
        let processes = std::iter::once(own.as_str()).chain(children.split_whitespace());
        let share = |process: &str| {
            let rollup = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
            let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        processes.filter_map(share).sum()
    }

    /// The highest resident memory since [`Server::forget_peak`], in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    /// Starts a new measurement of the peak.
    pub(crate) fn forget_peak(&self) {
        // If the kernel refuses, the peak covers the whole life of the process: an upper bound.
        let _ = fs::write(self.proc_file("clear_refs"), "5");
    }

    fn status_bytes(&self, field: &str) -> u64 {
        let status = fs::read_to_string(self.proc_file("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0");
        let kib = line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The slices that a server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slices {
    pub(crate) all: u64,
    pub(crate) over_512us: u64,
    pub(crate) longest_us: u64,
    /// The cause of the longest one: `free`, or `command SET`.
    pub(crate) cause: String,
}

impl Slices {
    /// Asks for the slices of all cores since the statistics were reset; `None` for a server
    /// without any.
    pub(crate) fn ask(admin: &mut Connection) -> Option<Slices> {
        let info = admin.ask(&["INFO", "slices"]).ok()?.text();
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let number = |name: &str| Some(field(name)?.parse::<f64>().ok()? as u64);
        let part = |name: &str| {
            let mut parts = field("slice_longest_0")?.split(',');
            parts
                .find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
                .filter(|text| *text != "-")
        };
        let cause = [part("cause"), part("command")].into_iter().flatten().collect::<Vec<_>>();
        Some(Slices {
            all: number("slice_count")?,
            over_512us: number("slices_over_512us")?,
            longest_us: number("slice_max_us")?,
            cause: cause.join(" "),
        })
    }
}

/// The command line that starts the server.
fn command_line(subject: &Subject, port: u16, folder: &Path) -> Command {
    let port = port.to_string();
    let path = subject.program.path();
    let mut command = if dies_with_parent() {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(path);
        command
    } else {
        Command::new(path)
    };
    let files =
        ["--dbfilename".as_ref(), "dump.rdb".as_ref(), "--dir".as_ref(), folder.as_os_str()];
    match &subject.program {
        Program::Redis(_) | Program::ThreadedRedis(_) => {
            command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
            command.args(["--appendonly", "no", "--enable-debug-command", "yes"]);
            command.args(["--loglevel", "warning"]).args(files);
            if let Program::ThreadedRedis(_) = subject.program {
                command.args(["--io-threads", &subject.cores.to_string()]);
                command.args(["--io-threads-do-reads", "yes"]);
            }
        }
        Program::Darter { io, .. } => {
            command.args(["--port", &port, "--cores", &subject.cores.to_string()]).args(files);
            command.args(["--io", io, "--save", ""]);
        }
        Program::Floor { reply, .. } => {
            command.args(["serve", &port, reply]);
        }
    }
    command
}

/// Whether `setpriv` is available and can end a child together with this process. `setpriv` then
/// replaces itself by the server, which keeps the child's process id.
fn dies_with_parent() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// Finds a port that was free a moment ago.
fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Asks the kernel to prefer this thread over others on the client's processor.
///
/// The streams that measure latency share that processor with the client that reads gigabytes;
/// without this they would measure each other. `chrt` is tried, and where it is not allowed the
/// streams run as they are. Returns whether it worked.
pub(crate) fn run_first() -> bool {
    schedule(&["--fifo", "-p", "10"])
}

/// Asks the kernel to run this thread only while the processor is idle.
pub(crate) fn run_last() -> bool {
    schedule(&["--idle", "-p", "0"])
}

/// Calls `chrt` with `words` and the number of this thread.
fn schedule(words: &[&str]) -> bool {
    let thread = rustix::thread::gettid().as_raw_nonzero().get().to_string();
    let mut command = Command::new("chrt");
    command.args(words).arg(&thread).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
