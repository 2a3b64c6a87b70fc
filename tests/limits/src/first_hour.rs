//! The first hour after a move from Redis: the settings file, the log, a supervisor's
//! notifications, and losses at the exit.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Protocol, server};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("stock files of Redis and Valkey start",         Asks::More,    stock_files),
    ("settings are checked without a start",          Asks::More,    check_config),
    ("settings are read from standard input",         Asks::AsRedis, standard_input),
    ("files are included, by patterns too",           Asks::AsRedis, included),
    ("the log begins with what runs, and ends",       Asks::More,    log_lines),
    ("data that cannot be read is not passed over",   Asks::AsRedis, unreadable),
    ("changes lost at the end are logged",            Asks::More,    lost),
    ("changes are counted as in Redis",               Asks::AsRedis, changes),
    ("an absent command is logged once",              Asks::More,    absent_command),
    ("SIGHUP ends nothing",                           Asks::AsRedis, hangup),
    ("systemd is notified of start and stop",         Asks::More,    notified),
    ("a daemon leaves, with its pidfile",             Asks::AsRedis, daemon),
    ("a second start spares the first one's pidfile", Asks::AsRedis, second_daemon),
];

/// Names and stock values of each, with paths that a test may use.
#[rustfmt::skip] // A table.
const STOCK: &[(&str, &str)] = &[
    ("redis-7.0", include_str!("stock/redis-7.0.txt")),
    ("redis-7.2", include_str!("stock/redis-7.2.txt")),
    ("redis-8",   include_str!("stock/redis-8.txt")),
    ("valkey-8",  include_str!("stock/valkey-8.txt")),
];

/// A folder that is removed with this.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self, String> {
        let name = format!("darter-first-{}-{name}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).map_err(text)?;
        Ok(folder)
    }

    fn file(&self, name: &str, lines: &str) -> Result<String, String> {
        let path = self.0.join(name);
        fs::write(&path, lines).map_err(text)?;
        Ok(path.to_string_lossy().into_owned())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A child that is killed with its handle.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn subject() -> Command {
    let mut command = Command::new(server::subject_path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs the server until it exits, which it must do by itself.
fn output(args: &[&str]) -> Result<Output, String> {
    Command::new(server::subject_path()).args(args).stdin(Stdio::null()).output().map_err(text)
}

fn setting(client: &mut Client, name: &str) -> Result<String, String> {
    let reply = client.command(&["CONFIG", "GET", name]).map_err(text)?;
    let value = reply.items().and_then(|items| items.get(1)?.text());
    let value = value.ok_or_else(|| format!("CONFIG GET {name}: {reply:?}"))?;
    Ok(String::from_utf8_lossy(value).into_owned())
}

fn stock_files(stage: &Stage) -> Result<(), String> {
    let folder = Folder::new("stock")?;
    for (name, lines) in STOCK {
        let file = folder.file(&format!("{name}.conf"), lines)?;
        let server = stage.server_with(&[&file]).map_err(|why| format!("{name}: {why}"))?;
        let mut client = server.client().map_err(text)?;
        for (of, wanted) in [("tcp-backlog", "511"), ("repl-diskless-sync-delay", "5")] {
            let value = setting(&mut client, of)?;
            ensure(value == wanted, || format!("{name}: {of} is {value}"))?;
        }
        let log = server.log();
        let count = log.lines().filter(|line| line.contains("ignored, unknown settings")).count();
        let is_newer = *name != "redis-7.0";
        ensure(count == usize::from(is_newer), || format!("{name}: logged {count} times:\n{log}"))?;
    }
    Ok(())
}

fn check_config(_: &Stage) -> Result<(), String> {
    let folder = Folder::new("check")?;
    let sound = folder
        .file("sound.conf", "port 7000\nsyslog-enabled yes\nhide-user-data-from-log yes\n")?;
    let checked = output(&["--check-config", &sound])?;
    let shown = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure(checked.status.success(), || format!("{}: {shown}", checked.status))?;
    for words in ["warning: syslog-enabled", "hide-user-data-from-log", "the settings are valid"] {
        ensure(shown.contains(words), || format!("no {words:?} in:\n{shown}"))?;
    }
    let faulty = folder.file("faulty.conf", "prot 7000\ntimeout 1\nmaxmemory x\nuser a on\n")?;
    let checked = output(&["--check-config", &faulty])?;
    let shown = String::from_utf8_lossy(&checked.stderr).into_owned();
    ensure(checked.status.code() == Some(1), || format!("{}: {shown}", checked.status))?;
    for words in ["at line 1\n", "did you mean 'port'?", "at line 3\n", "at line 4\n"] {
        ensure(shown.contains(words), || format!("no {words:?} in:\n{shown}"))?;
    }
    ensure(!shown.contains("at line 2\n"), || shown.clone())?;
    let file = folder.0.join("stray.conf");
    fs::write(&file, b"timeout 1\nrequirepass \xff\nmaxmemory x\n").map_err(text)?;
    let checked = output(&["--check-config", &file.to_string_lossy()])?;
    let shown = String::from_utf8_lossy(&checked.stderr).into_owned();
    for words in ["at line 2\n", "the byte 0xff is not UTF-8", "at line 3\n"] {
        ensure(shown.contains(words), || format!("no {words:?} in:\n{shown}"))?;
    }
    for (name, value) in [("--bind", "300.1.1.1"), ("--logfile", "/nonexistent/log")] {
        let checked = output(&["--check-config", name, value])?;
        let shown = String::from_utf8_lossy(&checked.stderr).into_owned();
        let is_refused = checked.status.code() == Some(1) && shown.contains(value);
        ensure(is_refused, || format!("{name} {value}: {}: {shown}", checked.status))?;
    }
    Ok(())
}

/// Waits for a server that this process did not start.
fn client_at(port: u16) -> Result<Client, String> {
    let start = Instant::now();
    loop {
        let client = Client::connect(port, Protocol::Resp2).and_then(|mut client| {
            client.words("PING")?;
            Ok(client)
        });
        match client {
            Ok(client) => return Ok(client),
            Err(error) if start.elapsed() > SOON => return Err(format!("no answer: {error}")),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn standard_input(_: &Stage) -> Result<(), String> {
    let port = server::free_port().map_err(text)?;
    let mut command = subject();
    command.args(["-", "--timeout", "44"]).stdin(Stdio::piped());
    let mut child = Running(command.spawn().map_err(text)?);
    let mut input = child.0.stdin.take().ok_or("no standard input")?;
    writeln!(input, "port {port}\ntimeout 1\nmaxclients 77\ndir /tmp\ndbfilename none.rdb")
        .map_err(text)?;
    drop(input);
    let mut client = client_at(port)?;
    let found = (setting(&mut client, "timeout")?, setting(&mut client, "maxclients")?);
    ensure(found == ("44".into(), "77".into()), || format!("{found:?}"))
}

fn included(stage: &Stage) -> Result<(), String> {
    let folder = Folder::new("include")?;
    folder.file("b.part", "timeout 2\n")?;
    folder.file("a.part", "timeout 1\nmaxclients 55\n")?;
    folder.file("one.txt", "slowlog-max-len 5\n")?;
    let place = folder.0.display();
    let lines =
        format!("include {place}/*.part\ninclude {place}/none-*\ninclude {place}/one.txt\n");
    let file = folder.file("whole.conf", &lines)?;
    let server = stage.server_with(&[&file])?;
    let mut client = server.client().map_err(text)?;
    for (name, wanted) in [("timeout", "2"), ("maxclients", "55"), ("slowlog-max-len", "5")] {
        let value = setting(&mut client, name)?;
        ensure(value == wanted, || format!("{name} is {value}, not {wanted}"))?;
    }
    Ok(())
}

fn log_lines(stage: &Stage) -> Result<(), String> {
    let mut server = stage.server_with(&["--maxmemory", "100mb", "--timeout", "5"])?;
    ensure(server.logs("Ready to accept connections", SOON), || server.log())?;
    server.signal(Signal::TERM).map_err(text)?;
    ensure(server.wait_for_exit(SOON).map_err(text)?.is_some(), || "it runs on".into())?;
    let log = server.log();
    let folder = format!("directory: {}", server.folder().display());
    let mut rest = log.as_str();
    let order = [
        "starting, pid ",
        "settings: ",
        &folder,
        "listening: ",
        "cores: ",
        "limits: maxmemory 104857600",
        "Ready to accept connections",
        "stopping",
        "bye",
    ];
    for words in order {
        let at = rest.find(words).ok_or_else(|| format!("no {words:?} in its place:\n{log}"))?;
        rest = &rest[at..];
    }
    ensure(!log.contains('\u{1b}'), || format!("colour in a file: {log:?}"))
}

/// A folder in place of the files: they exist but are unreadable, even for root.
fn unreadable(_: &Stage) -> Result<(), String> {
    let folder = Folder::new("unreadable")?;
    fs::create_dir_all(folder.0.join("dump.rdb")).map_err(text)?;
    let port = server::free_port().map_err(text)?.to_string();
    let mut command = subject();
    command.args(["--port", &port, "--dir"]).arg(&folder.0);
    let mut child = Running(command.spawn().map_err(text)?);
    let start = Instant::now();
    loop {
        match child.0.try_wait().map_err(text)? {
            Some(status) => return ensure(status.code() == Some(1), || format!("{status}")),
            None if start.elapsed() > SOON => return Err("it starts empty".to_owned()),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn lost(stage: &Stage) -> Result<(), String> {
    for asks in ["SIGTERM", "SHUTDOWN"] {
        let mut server = stage.server()?;
        let mut client = server.client().map_err(text)?;
        client.words("MSET a 1 b 2 c 3").map_err(text)?;
        client.words("DEL a").map_err(text)?;
        if asks == "SIGTERM" {
            server.signal(Signal::TERM).map_err(text)?;
        } else {
            client.send(&encode(&["SHUTDOWN"])).map_err(text)?;
        }
        ensure(server.wait_for_exit(SOON).map_err(text)?.is_some(), || "it runs on".into())?;
        let log = server.log();
        ensure(log.contains("4 changes were not saved"), || format!("{asks}:\n{log}"))?;
    }
    let mut server = stage.server()?;
    server.signal(Signal::TERM).map_err(text)?;
    ensure(server.wait_for_exit(SOON).map_err(text)?.is_some(), || "it runs on".into())?;
    ensure(!server.log().contains("not saved"), || server.log())
}

fn changes(stage: &Stage) -> Result<(), String> {
    #[rustfmt::skip] // A table.
    const STEPS: &[(&str, u64)] = &[
        ("SET a 1", 1), ("MSET b 2 c 3 d 4", 3), ("SADD s 1 2 2", 2), ("SADD s 1", 0),
        ("HSET h a 1 b 2", 2), ("HSET h a 1", 1), ("HDEL h a b", 2), ("DEL a b nothing", 2),
        ("INCR n", 1), ("APPEND n 1", 1), ("EXPIRE n 100", 1), ("PERSIST n", 1), ("COPY n m", 1),
        ("GETDEL m", 1), ("SREM s 1 9", 1), ("SPOP s", 1), ("SETRANGE r 3 abc", 1),
        ("SET z v NX", 1), ("SET z v NX", 0), ("SADD s2 a b c", 3), ("SINTERSTORE y s2 s2", 1),
        ("SET x 1 PX 1", 1), ("GET nothing", 0),
    ];
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let mut counted = || -> Result<u64, String> {
        let info = client.words("INFO persistence").map_err(text)?;
        let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.and_then(|number| number.parse().ok()).ok_or(info)
    };
    let mut before = counted()?;
    let mut writer = server.client().map_err(text)?;
    for (line, wanted) in STEPS {
        writer.words(line).map_err(text)?;
        let now = counted()?;
        ensure(now - before == *wanted, || format!("{line}: {}, not {wanted}", now - before))?;
        before = now;
    }
    std::thread::sleep(Duration::from_millis(50)); // An expired key does not count as a change.
    writer.words("EXISTS x").map_err(text)?;
    let now = counted()?;
    ensure(now == before, || format!("the death of a key counts {}", now - before))
}

fn absent_command(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    for _ in 0..3 {
        let mut client = server.client().map_err(text)?;
        let reply = client.words("replicaof stream a").map_err(text)?;
        let wanted =
            "-ERR unknown command 'replicaof', with args beginning with: 'stream' 'a' \r\n";
        ensure(reply.encode() == wanted.as_bytes(), || format!("{reply:?}"))?;
        client.words("nothing-like-it").map_err(text)?;
    }
    ensure(server.logs("REPLICAOF is not supported yet", SOON), || server.log())?;
    let count = server.log().matches("is not supported yet").count();
    ensure(count == 1, || format!("logged {count} times:\n{}", server.log()))
}

fn hangup(stage: &Stage) -> Result<(), String> {
    let mut server = stage.server()?;
    server.signal(Signal::HUP).map_err(text)?;
    let ended = server.wait_for_exit(Duration::from_millis(200)).map_err(text)?;
    ensure(ended.is_none(), || format!("{ended:?}"))?;
    let pong = server.client().and_then(|mut client| client.words("PING")).map_err(text)?;
    ensure(pong.text() == Some(b"PONG"), || format!("{pong:?}"))
}

fn notified(_: &Stage) -> Result<(), String> {
    let folder = Folder::new("notify")?;
    let path = folder.0.join("socket");
    let socket = UnixDatagram::bind(&path).map_err(text)?;
    socket.set_read_timeout(Some(SOON)).map_err(text)?;
    let mut bytes = [0; 256];
    let mut notification = || -> Result<String, String> {
        let length = socket.recv(&mut bytes).map_err(text)?;
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    };
    let port = server::free_port().map_err(text)?.to_string();
    let mut command = subject();
    command.args(["--port", &port, "--supervised", "systemd", "--daemonize", "yes", "--dir"]);
    command.arg(&folder.0).env("NOTIFY_SOCKET", &path);
    let child = Running(command.spawn().map_err(text)?);
    let ready = notification()?;
    ensure(ready.contains("READY=1"), || ready.clone())?;
    kill_process(Pid::from_child(&child.0), Signal::TERM).map_err(text)?;
    let stopping = notification()?;
    ensure(stopping.contains("STOPPING=1"), || stopping.clone())
}

fn daemon(_: &Stage) -> Result<(), String> {
    let daemon = Daemon::new("daemon")?;
    daemon.start()?;
    let mut client = client_at(daemon.port)?;
    let found = daemon.pid()?;
    let running = format!("/proc/{}", found.as_raw_nonzero());
    ensure(Path::new(&running).exists(), || format!("no {running}"))?;
    client.send(&encode(&["SHUTDOWN", "NOSAVE"])).map_err(text)?;
    client.read_to_end().map_err(text)?;
    let start = Instant::now();
    while daemon.pid_file().exists() {
        ensure(start.elapsed() < SOON, || "the pidfile stays".to_owned())?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn second_daemon(_: &Stage) -> Result<(), String> {
    let daemon = Daemon::new("second")?;
    daemon.start()?;
    let mut client = client_at(daemon.port)?;
    let first = daemon.pid()?;
    daemon.start()?;
    let log = || fs::read_to_string(daemon.folder.0.join("log")).unwrap_or_default();
    let start = Instant::now();
    while !log().contains("Address already in use") {
        ensure(start.elapsed() < SOON, || format!("no reason in the log:\n{}", log()))?;
        std::thread::sleep(Duration::from_millis(10));
    }
    ensure(daemon.pid()? == first, || "the pidfile is another's".to_owned())?;
    let pong = client.words("PING").map_err(text)?;
    ensure(pong.text() == Some(b"PONG"), || format!("{pong:?}"))
}

/// A server that daemonizes; it is stopped with this handle.
struct Daemon {
    folder: Folder,
    port: u16,
}

impl Daemon {
    fn new(name: &str) -> Result<Self, String> {
        Ok(Self { folder: Folder::new(name)?, port: server::free_port().map_err(text)? })
    }

    /// Starts one, also a second one on the same port. Returns once the server has detached.
    fn start(&self) -> Result<(), String> {
        let mut command = subject();
        command.args(["--daemonize", "yes", "--save", "", "--port", &self.port.to_string()]);
        command.arg("--dir").arg(&self.folder.0).arg("--pidfile").arg(self.pid_file());
        let status = command.arg("--logfile").arg(self.folder.0.join("log")).status();
        let status = status.map_err(text)?;
        ensure(status.success(), || format!("{status}"))
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.0.join("pid")
    }

    fn pid(&self) -> Result<Pid, String> {
        let line = fs::read_to_string(self.pid_file()).map_err(text)?;
        let pid = line.trim().parse::<i32>().ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| format!("no number: {line:?}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(mut client) = Client::connect(self.port, Protocol::Resp2) {
            let _ = client.send(&encode(&["SHUTDOWN", "NOSAVE"]));
            let _ = client.read_to_end();
        }
    }
}
