//! Connections: too many, idle, silent, never reading.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Server, Shape};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("maxclients refuses the next, and serves again after", Asks::AsRedis, maxclients),
    ("a flood of connections that say nothing",             Asks::AsRedis, flood),
    ("connections that come and go leave nothing",          Asks::AsRedis, come_and_go),
    ("a client that never reads is bounded",                Asks::More,    never_reads),
    ("a client that never reads delays no other",           Asks::AsRedis, never_reads_others),
    ("a reset in the middle of a reply is survived",        Asks::AsRedis, reset),
    ("timeout closes the idle",                             Asks::AsRedis, timeout),
    ("timeout spares clients that wait for another core",   Asks::More,    timeout_spares),
    ("timeout closes non-readers, on two cores",            Asks::More,    timeout_two_cores),
    ("a unix socket",                                       Asks::AsRedis, unix_socket),
    ("idle costs nothing",                                  Asks::AsRedis, idle),
];

fn maxclients(stage: &Stage) -> Result<(), String> {
    let server = stage.server_with(&["--maxclients", "20"])?;
    let refused: &[u8] = b"-ERR max number of clients reached\r\n";
    let mut held = Vec::new();
    let mut refusals = 0;
    for _ in 0..30 {
        let mut client = server.client().map_err(text)?;
        match client.words("PING") {
            Ok(reply) if reply.text() == Some(b"PONG") => held.push(client),
            Ok(reply) => {
                ensure(reply.encode() == refused, || format!("{reply:?}"))?;
                refusals += 1;
            }
            Err(_) => refusals += 1, // The refusal may be lost in the reset.
        }
    }
    // The last readiness probe may still count as a client when the first clients connect.
    ensure((18..=20).contains(&held.len()), || format!("{} were served", held.len()))?;
    ensure(refusals >= 10, || format!("{refusals} were refused"))?;
    let pong = held[0].words("PING").map_err(text)?;
    ensure(pong.text() == Some(b"PONG"), || format!("a held client: {pong:?}"))?;
    drop(held);
    let start = Instant::now();
    loop {
        let pong = server.client().and_then(|mut client| client.words("PING"));
        if pong.is_ok_and(|pong| pong.text() == Some(b"PONG")) {
            return Ok(());
        }
        ensure(start.elapsed() < Duration::from_secs(5), || "no service after".to_owned())?;
    }
}

fn flood(stage: &Stage) -> Result<(), String> {
    let server = stage.server_with(&["--maxclients", "1000"])?;
    let mut first = server.client().map_err(text)?;
    let before = server.process().resident_bytes();
    let mut held = Vec::new();
    for _ in 0..900 {
        held.push(server.client().map_err(text)?);
    }
    let start = Instant::now();
    let pong = first.words("PING").map_err(text)?;
    ensure(pong.text() == Some(b"PONG"), || format!("{pong:?}"))?;
    ensure(start.elapsed() < Duration::from_secs(1), || format!("{:?}", start.elapsed()))?;
    let grown = server.process().resident_bytes().saturating_sub(before);
    ensure(grown < 40 * MIB, || format!("900 silent connections took {grown} bytes"))
}

fn come_and_go(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let round = |count: usize| -> Result<(), String> {
        for _ in 0..count {
            let mut client = server.client().map_err(text)?;
            client.words("PING").map_err(text)?;
        }
        Ok(())
    };
    round(100)?;
    let (files, memory) = (server.process().files_open(), server.process().resident_bytes());
    round(2_000)?;
    let start = Instant::now();
    while server.process().files_open() > files + 2 {
        ensure(start.elapsed() < Duration::from_secs(5), || "files stay open".to_owned())?;
        std::thread::yield_now();
    }
    let grown = server.process().resident_bytes().saturating_sub(memory);
    ensure(grown < 8 * MIB, || format!("2000 connections left {grown} bytes"))
}

/// Stores the value that the gluttons request, on a separate connection.
fn store_big(server: &Server) -> Result<(), String> {
    let mut client = server.client().map_err(text)?;
    let stored = client.command(&["SET", "big", &"x".repeat(3_000_000)]).map_err(text)?;
    ensure(stored.text() == Some(b"OK"), || format!("SET: {stored:?}"))
}

/// A connection that has requested 300 MB and reads none of it.
fn glutton(server: &Server) -> Result<Client, String> {
    let mut client = server.client().map_err(text)?;
    client.send(&encode(&["GET", "big"]).repeat(100)).map_err(text)?;
    Ok(client)
}

fn never_reads(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    store_big(&server)?;
    let mut other = server.client().map_err(text)?;
    let first = glutton(&server)?;
    other.words("PING").map_err(text)?;
    let before = server.process().resident_bytes();
    let more: Vec<Client> = (0..5).map(|_| glutton(&server)).collect::<Result<_, _>>()?;
    for _ in 0..100 {
        other.words("GET missing").map_err(text)?;
    }
    let grown = server.process().resident_bytes().saturating_sub(before);
    drop((first, more));
    ensure(grown < 30 * MIB, || format!("five such clients took {grown} bytes"))
}

fn never_reads_others(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    store_big(&server)?;
    let mut other = server.client().map_err(text)?;
    let _glutton = glutton(&server)?;
    for _ in 0..200 {
        let reply = other.words("PING").map_err(text)?;
        ensure(reply.text() == Some(b"PONG"), || format!("{reply:?}"))?;
    }
    Ok(())
}

fn reset(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    store_big(&server)?;
    for _ in 0..50 {
        let client = glutton(&server)?;
        let _ = client.socket().read(&mut [0; 1]);
        drop(client); // Unread bytes make the kernel reset the connection.
    }
    let pong = server.client().and_then(|mut client| client.words("PING")).map_err(text)?;
    ensure(pong.text() == Some(b"PONG"), || format!("{pong:?}"))
}

/// A client in MONITOR, or waiting for the end of a pause, does not count as idle.
fn timeout(stage: &Stage) -> Result<(), String> {
    let server = stage.server_with(&["--timeout", "1"])?;
    let client = || server.client().map_err(text);
    let (mut idle, mut watcher, mut held, mut busy) = (client()?, client()?, client()?, client()?);
    store_big(&server)?;
    let mut deaf = client()?;
    deaf.words("CLIENT SETNAME deaf").map_err(text)?;
    deaf.send(&encode(&["GET", "big"]).repeat(100)).map_err(text)?;
    idle.words("PING").map_err(text)?;
    watcher.words("MONITOR").map_err(text)?;
    busy.words("CLIENT PAUSE 100000 WRITE").map_err(text)?;
    held.send(&encode(&["SET", "k", "v"])).map_err(text)?;
    let patience = Duration::from_millis(20);
    idle.set_patience(patience).map_err(text)?;
    let start = Instant::now();
    while !matches!(idle.socket().read(&mut [0; 1]), Ok(0)) {
        ensure(start.elapsed() < Duration::from_secs(8), || "not closed".to_owned())?;
        busy.words("PING").map_err(text)?;
    }
    loop {
        let list = busy.words("CLIENT LIST").map_err(text)?;
        if !String::from_utf8_lossy(list.text().unwrap_or_default()).contains("name=deaf") {
            break;
        }
        let waited = start.elapsed();
        ensure(waited < Duration::from_secs(8), || "who never reads is not closed".to_owned())?;
    }
    busy.words("CLIENT UNPAUSE").map_err(text)?;
    let set = held.receive().map_err(|error| format!("the one who waited: {error}"))?;
    ensure(set.text() == Some(b"OK"), || format!("the one who waited: {set:?}"))?;
    busy.words("ECHO end").map_err(text)?;
    loop {
        let line = watcher.receive().map_err(|error| format!("the one who watches: {error}"))?;
        if line.text().is_some_and(|line| line.ends_with(b"\"ECHO\" \"end\"")) {
            return Ok(());
        }
    }
}

fn two_cores_with_timeout(stage: &Stage) -> Result<Server, String> {
    let more = ["--timeout", "1", "--enable-debug-command", "yes"];
    Server::subject_with(Shape { cores: 2, ..stage.shape }, &more).map_err(text)
}

/// One core is blocked for three seconds. Clients of the other core have requested its keys, and
/// get them, though they have sent and received nothing for longer than the timeout.
fn timeout_spares(stage: &Stage) -> Result<(), String> {
    const KEYS: usize = 20;
    let server = two_cores_with_timeout(stage)?;
    let client = || server.client().map_err(text);
    let mut clients = [client()?, client()?, client()?, client()?];
    let [sleeper, clients @ ..] = &mut clients;
    let sets = |who: usize| -> Vec<u8> {
        (0..KEYS).flat_map(|at| encode(&["SET", &format!("key:{who}:{at}"), "v"])).collect()
    };
    for (who, client) in clients.iter_mut().enumerate() {
        client.send(&sets(who)).map_err(text)?;
        (0..KEYS).try_for_each(|_| client.receive().map(drop)).map_err(text)?;
    }
    sleeper.send(&encode(&["DEBUG", "SLEEP", "3"])).map_err(text)?;
    // Now the core is blocked, and so are its clients.
    std::thread::sleep(Duration::from_millis(50));
    for (who, client) in clients.iter_mut().enumerate() {
        client.send(&sets(who)).map_err(text)?;
    }
    for (who, client) in clients.iter_mut().enumerate() {
        for at in 0..KEYS {
            let reply = client.receive().map_err(|error| format!("{who}, {at}: {error}"))?;
            ensure(reply.text() == Some(b"OK"), || format!("{who}, {at}: {reply:?}"))?;
        }
    }
    Ok(())
}

/// Clients of both cores request values of both, and read none, whichever core sends the next
/// reply.
fn timeout_two_cores(stage: &Stage) -> Result<(), String> {
    const KEYS: usize = 50;
    let server = two_cores_with_timeout(stage)?;
    let mut other = server.client().map_err(text)?;
    let value = "v".repeat(60_000); // Long enough that batches are suspended.
    for at in 0..KEYS {
        other.command(&["SET", &format!("key:{at}"), &value]).map_err(text)?;
    }
    let gets: Vec<u8> =
        (0..2_000).flat_map(|at| encode(&["GET", &format!("key:{}", at % KEYS)])).collect();
    let mut deaf = Vec::new();
    for _ in 0..6 {
        let mut client = server.client().map_err(text)?;
        client.words("CLIENT SETNAME deaf").map_err(text)?;
        client.send(&gets).map_err(text)?;
        deaf.push(client);
    }
    let start = Instant::now();
    loop {
        let list = other.words("CLIENT LIST").map_err(text)?;
        let list = String::from_utf8_lossy(list.text().unwrap_or_default()).into_owned();
        if !list.contains("name=deaf") {
            return Ok(());
        }
        ensure(start.elapsed() < Duration::from_secs(8), || format!("not closed:\n{list}"))?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn unix_socket(stage: &Stage) -> Result<(), String> {
    let path = std::env::temp_dir().join(format!("darter-limits-{}.sock", std::process::id()));
    let name = path.to_string_lossy().into_owned();
    let _server = stage.server_with(&["--unixsocket", &name])?;
    let mut socket = UnixStream::connect(&path).map_err(text)?;
    let timeout = Some(Duration::from_secs(5));
    socket.set_read_timeout(timeout).map_err(text)?;
    std::io::Write::write_all(&mut socket, b"PING\r\n").map_err(text)?;
    let mut answer = [0; 7];
    socket.read_exact(&mut answer).map_err(text)?;
    let _ = std::fs::remove_file(&path);
    ensure(&answer == b"+PONG\r\n", || format!("{answer:?}"))
}

fn idle(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let clients: Vec<Client> =
        (0..20).map(|_| server.client()).collect::<Result<_, _>>().map_err(text)?;
    std::thread::sleep(Duration::from_millis(500));
    // The best of three tries, because other load on the machine is included.
    let window = Duration::from_secs(3);
    let mut used = window;
    for _ in 0..3 {
        let before = server.process().cpu_time();
        std::thread::sleep(window);
        used = used.min(server.process().cpu_time() - before);
        if used < window / 100 {
            break;
        }
    }
    drop(clients);
    ensure(used < window / 100, || format!("{used:?} of CPU in {window:?}"))
}
