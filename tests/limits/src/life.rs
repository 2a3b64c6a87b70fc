//! Start and stop: signals, SHUTDOWN, settings from a file, loading, the forced backend.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::client::encode;
use darter_testkit::notation::show;
use darter_testkit::{Client, Io, Protocol, Reply, Server, Shape, server};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(5);

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("SIGTERM answers what was received and exits 0", Asks::AsRedis, sigterm),
    ("SIGINT stops in order too",                     Asks::AsRedis, sigint),
    ("a second signal exits at once",                 Asks::AsRedis, second_signal),
    ("SHUTDOWN NOSAVE exits 0",                       Asks::AsRedis, shutdown),
    ("CONFIG SETs at once do not undo each other's",  Asks::AsRedis, settings_at_once),
    ("clients learn that a file is loading",          Asks::AsRedis, reports_loading),
    ("a file that redis-server wrote is loaded",      Asks::AsRedis, loads_file),
];

/// Checks that depend neither on the number of cores nor on the backend.
#[rustfmt::skip] // A table.
pub(crate) const STARTS: &[Check] = &[
    ("epoll can be forced and is logged",             Asks::More,    epoll),
    ("settings from a file, flags on top",            Asks::More,    settings_file),
    ("CONFIG REWRITE writes what a start reads",      Asks::More,    rewrite),
    ("dir and dbfilename are checked",                Asks::AsRedis, checked_folder),
    ("a wrong setting is refused at the start",       Asks::AsRedis, wrong_setting),
    ("a port in use is refused at the start",         Asks::AsRedis, port_in_use),
    ("a start right after a kill",                    Asks::AsRedis, start_after_kill),
    ("a truncated file is refused",                   Asks::AsRedis, truncated_file),
    ("a corrupted file is refused",                   Asks::AsRedis, corrupted_file),
    ("more cores than processors are logged",         Asks::More,    cores_that_share),
];

fn sigterm(stage: &Stage) -> Result<(), String> {
    let mut server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    client.send(&encode(&["INCR", "n"]).repeat(500)).map_err(text)?;
    let first = client.receive().map_err(text)?;
    ensure(first.int() == Some(1), || format!("{first:?}"))?;
    server.signal(Signal::TERM).map_err(text)?;
    let rest = client.read_to_end().map_err(text)?;
    ensure(rest.ends_with(b":500\r\n"), || {
        format!("its last bytes: {:?}", String::from_utf8_lossy(&rest[rest.len().max(20) - 20..]))
    })?;
    exits_with(&mut server, 0)
}

fn exits_with(server: &mut Server, code: i32) -> Result<(), String> {
    let status = server.wait_for_exit(SOON).map_err(text)?;
    let status = status.ok_or("it runs on")?;
    ensure(status.code() == Some(code), || format!("{status}; its log:\n{}", server.log()))
}

fn sigint(stage: &Stage) -> Result<(), String> {
    let mut server = stage.server()?;
    let _idle = server.client().map_err(text)?;
    server.signal(Signal::INT).map_err(text)?;
    exits_with(&mut server, 0)
}

/// The first signal waits for a client that does not read; the second does not.
fn second_signal(stage: &Stage) -> Result<(), String> {
    let mut server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    client.command(&["SET", "big", &"x".repeat(8_000_000)]).map_err(text)?;
    client.send(&encode(&["GET", "big"]).repeat(20)).map_err(text)?;
    server.client().and_then(|mut other| other.words("PING")).map_err(text)?;
    server.signal(Signal::TERM).map_err(text)?;
    if server.wait_for_exit(Duration::from_millis(200)).map_err(text)?.is_some() {
        return Ok(()); // The server abandoned the client.
    }
    server.signal(Signal::TERM).map_err(text)?;
    let status = server.wait_for_exit(Duration::from_secs(1)).map_err(text)?;
    ensure(status.is_some(), || "it runs on after a second signal".to_owned())
}

fn shutdown(stage: &Stage) -> Result<(), String> {
    let mut server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    client.send(&encode(&["SHUTDOWN", "NOSAVE"])).map_err(text)?;
    let answer = client.read_to_end().map_err(text)?;
    ensure(answer.is_empty(), || format!("{:?}", String::from_utf8_lossy(&answer)))?;
    exits_with(&mut server, 0)
}

fn epoll(stage: &Stage) -> Result<(), String> {
    let shape = Shape { io: Io::Epoll, ..stage.shape };
    let server = Server::subject(shape).map_err(text)?;
    ensure(server.logs("epoll", Duration::from_secs(5)), || format!("its log:\n{}", server.log()))?;
    let pong = server.client().and_then(|mut client| client.words("PING")).map_err(text)?;
    ensure(pong.text() == Some(b"PONG"), || format!("{pong:?}"))
}

fn setting(client: &mut Client, name: &str) -> Result<String, String> {
    let reply = client.command(&["CONFIG", "GET", name]).map_err(text)?;
    let value = reply.items().and_then(|items| items.get(1)?.text());
    let value = value.ok_or_else(|| format!("CONFIG GET {name}: {reply:?}"))?;
    Ok(String::from_utf8_lossy(value).into_owned())
}

fn expect_setting(client: &mut Client, name: &str, wanted: &str) -> Result<(), String> {
    let value = setting(client, name)?;
    ensure(value == wanted, || format!("{name} is {value}, not {wanted}"))
}

fn settings_file(stage: &Stage) -> Result<(), String> {
    let file = std::env::temp_dir().join(format!("darter-limits-{}.conf", std::process::id()));
    let lines = "# a comment\n\nmaxclients 77\ntimeout 33\nmaxmemory 12mb\nrequirepass \"a b\"\n";
    fs::write(&file, lines).map_err(text)?;
    let name = file.to_string_lossy().into_owned();
    let server = stage.server_with(&["--timeout", "44", &name]);
    let _ = fs::remove_file(&file);
    let server = server?;
    let mut client = server.client().map_err(text)?;
    let ok = client.command(&["AUTH", "a b"]).map_err(text)?;
    ensure(ok.text() == Some(b"OK"), || format!("AUTH: {ok:?}"))?;
    expect_setting(&mut client, "maxclients", "77")?;
    expect_setting(&mut client, "timeout", "44")?;
    expect_setting(&mut client, "maxmemory", "12582912")
}

/// Even if clients may set `dir` and `dbfilename`, a value that would write elsewhere is refused,
/// and changes nothing.
fn checked_folder(stage: &Stage) -> Result<(), String> {
    let server = stage.server_with(&["--enable-protected-configs", "local"])?;
    let mut client = server.client().map_err(text)?;
    let failed = "-ERR CONFIG SET failed (possibly related to argument";
    let before = setting(&mut client, "dir")?;
    let no_path = "dbfilename can't be a path, just a filename";
    for (name, value, why) in [
        ("dbfilename", "../x.rdb", no_path),
        ("dbfilename", "/tmp/x.rdb", no_path),
        ("dir", "/no/such/folder", "No such file or directory"),
        ("dir", "/etc/passwd", "Not a directory"),
        ("dir", "", "No such file or directory"),
    ] {
        let reply = client.command(&["CONFIG", "SET", name, value]).map_err(text)?;
        let wanted = format!("{failed} '{name}') - {why}\r\n");
        ensure(reply.encode() == wanted.as_bytes(), || format!("{name} {value}: {reply:?}"))?;
    }
    client.command(&["CONFIG", "SET", "dir", "/", "timeout", "x"]).map_err(text)?;
    expect_setting(&mut client, "dir", &before)?;
    client.command(&["CONFIG", "SET", "dir", "/usr/.."]).map_err(text)?;
    expect_setting(&mut client, "dir", "/")?;
    client.command(&["CONFIG", "SET", "dbfilename", "other.rdb"]).map_err(text)?;
    expect_setting(&mut client, "dbfilename", "other.rdb")
}

/// Two clients on different cores each change a setting.
fn settings_at_once(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(server.client().map_err(text)?);
    }
    for round in 0..4 {
        for (client, name) in clients.iter_mut().zip(["timeout", "slowlog-max-len"]) {
            let asks = (0..100).map(|step| {
                let value = (100 + round * 100 + step).to_string();
                [encode(&["CONFIG", "SET", name, &value]), encode(&["CONFIG", "GET", name])]
            });
            client.send(&asks.flatten().collect::<Vec<_>>().concat()).map_err(text)?;
        }
        for (client, name) in clients.iter_mut().zip(["timeout", "slowlog-max-len"]) {
            for step in 0..100 {
                let ok = client.receive().map_err(text)?;
                ensure(ok.text() == Some(b"OK"), || format!("{name}: {ok:?}"))?;
                let kept = client.receive().map_err(text)?;
                let value = kept.items().and_then(|items| items.get(1)?.text());
                let wanted = (100 + round * 100 + step).to_string();
                let shown = value.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                ensure(shown.as_ref() == Some(&wanted), || {
                    format!("{name} is {shown:?}, not {wanted}, which was set")
                })?;
            }
        }
    }
    Ok(())
}

fn rewrite(stage: &Stage) -> Result<(), String> {
    let file = std::env::temp_dir().join(format!("darter-rewrite-{}.conf", std::process::id()));
    fs::write(&file, "# keep me\nmaxclients 77\n").map_err(text)?;
    let name = file.to_string_lossy().into_owned();
    let outcome = rewrite_and_read(stage, &name);
    let _ = fs::remove_file(&file);
    outcome
}

fn rewrite_and_read(stage: &Stage, name: &str) -> Result<(), String> {
    let first = stage.server_with(&[name])?; // The folder goes with the server.
    let mut client = first.client().map_err(text)?;
    client.words("CONFIG SET timeout 55 maxmemory-policy allkeys-lru").map_err(text)?;
    let limits = "normal 10485760 1048576 9 slave 0 0 0 pubsub 0 0 0";
    client.command(&["CONFIG", "SET", "client-output-buffer-limit", limits]).map_err(text)?;
    let ok = client.words("CONFIG REWRITE").map_err(text)?;
    ensure(ok.text() == Some(b"OK"), || format!("CONFIG REWRITE: {ok:?}"))?;
    let written = fs::read_to_string(name).map_err(text)?;
    ensure(written.contains("# keep me"), || format!("comments are lost:\n{written}"))?;
    let server = stage.server_with(&[name])?;
    let mut client = server.client().map_err(text)?;
    expect_setting(&mut client, "timeout", "55")?;
    expect_setting(&mut client, "maxclients", "77")?;
    expect_setting(&mut client, "client-output-buffer-limit", limits)?;
    expect_setting(&mut client, "maxmemory-policy", "allkeys-lru")
}

/// Starts the subject with arguments that it must refuse. Returns its output.
fn refused_start(args: &[&str]) -> Result<String, String> {
    let mut child = Command::new(server::subject_path())
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(text)?;
    let start = std::time::Instant::now();
    while child.try_wait().map_err(text)?.is_none() {
        if start.elapsed() > SOON {
            let _ = child.kill();
            let _ = child.wait();
            return Err("it runs on".to_owned());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().map_err(text)?;
    let shown = [output.stdout, output.stderr].concat();
    let shown = String::from_utf8_lossy(&shown).into_owned();
    ensure(!output.status.success(), || format!("it exited with 0:\n{shown}"))?;
    Ok(shown)
}

fn wrong_setting(_: &Stage) -> Result<(), String> {
    let port = server::free_port().map_err(text)?.to_string();
    let shown = refused_start(&["--port", &port, "--maxclients", "many"])?;
    ensure(shown.contains("maxclients"), || format!("it does not say which:\n{shown}"))
}

fn port_in_use(stage: &Stage) -> Result<(), String> {
    let running = stage.server()?;
    let shown = refused_start(&["--port", &running.port().to_string()])?;
    ensure(shown.contains("in use"), || format!("it does not say why:\n{shown}"))
}

/// A child of the test, killed with it.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the subject on a port, and waits until it answers, possibly with a refusal.
fn start_on(port: u16, more: &[&str]) -> Result<(Child, Client), String> {
    let mut command = Command::new(server::subject_path());
    command.args(["--port", &port.to_string(), "--save", ""]).args(more);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = Child(child.map_err(text)?);
    let start = std::time::Instant::now();
    loop {
        let answered = Client::connect(port, Protocol::Resp2)
            .and_then(|mut client| client.words("PING").map(|_| client));
        if let Ok(client) = answered {
            return Ok((child, client));
        }
        let ended = child.0.try_wait().map_err(text)?;
        ensure(ended.is_none(), || format!("it ended with {ended:?}"))?;
        ensure(start.elapsed() < SOON, || "it takes no connections".to_owned())?;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The kernel may hold a killed server's sockets for a while; the next server must wait for them.
fn start_after_kill(_: &Stage) -> Result<(), String> {
    let port = server::free_port().map_err(text)?;
    for round in 0..8 {
        let (child, mut client) = start_on(port, &[]).map_err(|why| format!("{round}: {why}"))?;
        let pong = client.words("PING").map_err(text)?;
        ensure(pong.text() == Some(b"PONG"), || format!("{round}: {pong:?}"))?;
        drop(child); // SIGKILL.
    }
    Ok(())
}

/// While a file loads: connections are accepted, data is refused, INFO reports the progress.
fn reports_loading(stage: &Stage) -> Result<(), String> {
    let oracle = Server::oracle().map_err(text)?;
    let mut client = oracle.client().map_err(text)?;
    client.words("DEBUG POPULATE 300000 key 20").map_err(text)?;
    client.words("SAVE").map_err(text)?;
    let folder = oracle.folder().to_string_lossy().into_owned();
    let port = server::free_port().map_err(text)?;
    let cores = stage.shape.cores.to_string();
    let more: &[&str] = if server::subject_is_redis() { &[] } else { &["--cores", &cores] };
    let here = ["--dir", &folder, "--enable-protected-configs", "yes"];
    let (_child, mut client) = start_on(port, &[&here, more].concat())?;
    let info = client.words("INFO persistence").map_err(text)?;
    let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    let wanted: &[u8] = b"-LOADING Redis is loading the dataset in memory\r\n";
    for line in ["GET key:1", "CONFIG SET dir /tmp", "CONFIG SET timeout 1 appendonly yes"] {
        let refused = client.words(line).map_err(text)?;
        ensure(refused.encode() == wanted, || format!("{line} while loading: {refused:?}"))?;
    }
    #[rustfmt::skip] // A table.
    const FIELDS: &[&str] = &[
        "loading:1", "loading_start_time:1", "loading_total_bytes:", "loading_rdb_used_mem:",
        "loading_loaded_bytes:", "loading_eta_seconds:",
    ];
    for field in FIELDS {
        ensure(info.contains(field), || format!("no {field} in:\n{info}"))?;
    }
    let selected = client.words("SELECT 0").map_err(text)?;
    ensure(selected.text() == Some(b"OK"), || format!("SELECT while loading: {selected:?}"))?;
    let start = std::time::Instant::now();
    while client.words("GET key:1").map_err(text)?.is_error() {
        ensure(start.elapsed() < Duration::from_secs(60), || "it never ends".to_owned())?;
        std::thread::sleep(Duration::from_millis(5));
    }
    let count = client.words("DBSIZE").map_err(text)?;
    ensure(count.int() == Some(300_000), || format!("{count:?}"))
}

/// An RDB file with strings, and hashes and sets of both sizes, in two databases; some with
/// deadlines.
fn written_by_redis() -> Result<(Vec<u8>, Vec<Reply>), String> {
    let oracle = Server::oracle().map_err(text)?;
    let mut client = oracle.client().map_err(text)?;
    for i in 0..500 {
        client.command(&["SET", &format!("s{i}"), &format!("value {i}")]).map_err(text)?;
        client.command(&["HSET", "big", &format!("f{i}"), &"v".repeat(i)]).map_err(text)?;
        client.command(&["SADD", "members", &format!("m{i}")]).map_err(text)?;
        client.command(&["SADD", "numbers", &i.to_string()]).map_err(text)?;
    }
    client.words("HSET small a 1 b 2").map_err(text)?;
    client.words("SET later v PXAT 33177117420000").map_err(text)?;
    client.command(&["SET", "long", &"ab".repeat(50_000)]).map_err(text)?;
    client.words("SELECT 3").map_err(text)?;
    client.words("SADD few a b c").map_err(text)?;
    client.words("SAVE").map_err(text)?;
    let bytes = fs::read(oracle.folder().join("dump.rdb")).map_err(text)?;
    Ok((bytes, contents(&mut client)?))
}

/// The contents of the file's keys, in an order independent of the server.
fn contents(client: &mut Client) -> Result<Vec<Reply>, String> {
    let lines = [
        "SELECT 3",
        "DBSIZE",
        "SMEMBERS few",
        "SELECT 0",
        "DBSIZE",
        "KEYS *",
        "GET s77",
        "GET long",
        "PEXPIRETIME later",
        "PTTL s77",
        "HGETALL small",
        "HKEYS big",
        "HVALS big",
        "HGET big f499",
        "SMEMBERS members",
        "SMEMBERS numbers",
        "OBJECT ENCODING numbers",
        "OBJECT ENCODING big",
    ];
    let mut found = Vec::new();
    for line in lines {
        let mut reply = client.words(line).map_err(text)?;
        if let Reply::Array(items) = &mut reply {
            items.sort();
        }
        found.push(reply);
    }
    Ok(found)
}

fn loads_file(stage: &Stage) -> Result<(), String> {
    let (bytes, wanted) = written_by_redis()?;
    let place = |folder: &Path| fs::write(folder.join("dump.rdb"), &bytes);
    let server = Server::subject_in(stage.shape, &[], place).map_err(text)?;
    let mut client = server.client().map_err(text)?;
    let count = client.words("DBSIZE").map_err(text)?;
    ensure(count.int() == Some(506), || format!("DBSIZE: {count:?}"))?;
    let deadline = client.words("PEXPIRETIME later").map_err(text)?;
    ensure(deadline.int() == Some(33_177_117_420_000), || format!("deadline: {deadline:?}"))?;
    let found = contents(&mut client)?;
    for (wanted, found) in wanted.iter().zip(&found) {
        ensure(wanted == found, || format!("{}\nis not {}", show(found, 300), show(wanted, 300)))?;
    }
    Ok(())
}

fn refuses_file(bytes: &[u8], name: &str) -> Result<String, String> {
    let folder = std::env::temp_dir().join(format!("darter-limits-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(text)?;
    fs::write(folder.join("dump.rdb"), bytes).map_err(text)?;
    let port = server::free_port().map_err(text)?.to_string();
    let shown = refused_start(&["--port", &port, "--dir", &folder.to_string_lossy()]);
    let _ = fs::remove_dir_all(&folder);
    shown
}

/// Redis reports the offset in its log, Darter in its last message.
fn names_offset(shown: &str) -> Result<(), String> {
    let has_offset = shown.to_lowercase().contains("offset");
    ensure(has_offset || shown.contains("truncated"), || format!("it does not say where:\n{shown}"))
}

fn truncated_file(_: &Stage) -> Result<(), String> {
    let (bytes, _) = written_by_redis()?;
    let shown = refuses_file(&bytes[..bytes.len() / 2], "truncated")?;
    names_offset(&shown)
}

fn corrupted_file(_: &Stage) -> Result<(), String> {
    let (mut bytes, _) = written_by_redis()?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let shown = refuses_file(&bytes, "corrupted")?;
    names_offset(&shown)
}

/// A warning when cores outnumber processors, and none otherwise.
fn cores_that_share(stage: &Stage) -> Result<(), String> {
    let processors = std::thread::available_parallelism().map_err(text)?.get();
    for (cores, is_said) in [(1, false), (processors + 1, true)] {
        let server = Server::subject(Shape { cores, ..stage.shape }).map_err(text)?;
        let mut client = server.client().map_err(text)?;
        client.words("PING").map_err(text)?;
        let log = server.log();
        ensure(log.contains("cores share") == is_said, || format!("{cores} cores: {log}"))?;
    }
    Ok(())
}
