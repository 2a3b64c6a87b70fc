//! CONFIG SET port and bind: the running server changes its addresses completely, or not at all.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::{Client, Protocol, server};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("CONFIG SET port moves the server",               Asks::AsRedis, moves),
    ("CONFIG SET port to one in use changes nothing",  Asks::AsRedis, in_use),
    ("CONFIG SET port 0 leaves the unix socket",       Asks::AsRedis, no_port),
    ("CONFIG SET bind changes the addresses",          Asks::AsRedis, addresses),
    ("no core waits for the lookup of a name",         Asks::More,    names),
    ("CONFIG SET tcp-keepalive applies to new clients",  Asks::AsRedis, keepalive),
    ("a new port is written by CONFIG REWRITE",        Asks::AsRedis, rewritten),
];

fn is_ok(client: &mut Client, words: &[&str]) -> Result<(), String> {
    let reply = client.command(words).map_err(text)?;
    ensure(reply.text() == Some(b"OK"), || format!("{words:?}: {reply:?}"))
}

fn is_refused(client: &mut Client, words: &[&str], why: &str) -> Result<(), String> {
    let reply = client.command(words).map_err(text)?;
    let wanted =
        format!("-ERR CONFIG SET failed (possibly related to argument '{}') - {why}\r\n", words[2]);
    ensure(reply.encode() == wanted.as_bytes(), || format!("{words:?}: {reply:?}"))
}

/// Whether a new client is served at `address`.
fn serves(address: &str, port: u16) -> Result<bool, String> {
    let Ok(mut socket) = TcpStream::connect((address, port)) else { return Ok(false) };
    socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).map_err(text)?;
    socket.write_all(b"PING\r\n").map_err(text)?;
    let mut answer = [0; 7];
    socket.read_exact(&mut answer).map_err(text)?;
    ensure(&answer == b"+PONG\r\n", || format!("{address}:{port}: {answer:?}"))?;
    Ok(true)
}

fn serves_only(open: &[(&str, u16)], closed: &[(&str, u16)]) -> Result<(), String> {
    for (address, port) in open {
        ensure(serves(address, *port)?, || format!("{address}:{port} does not serve"))?;
    }
    for (address, port) in closed {
        ensure(!serves(address, *port)?, || format!("{address}:{port} still serves"))?;
    }
    Ok(())
}

fn moves(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let mut old = server.port();
    for _ in 0..5 {
        let new = server::free_port().map_err(text)?;
        is_ok(&mut client, &["CONFIG", "SET", "port", &new.to_string()])?;
        serves_only(&[("127.0.0.1", new)], &[("127.0.0.1", old)])?;
        let info = client.words("INFO server").map_err(text)?.encode();
        let line = format!("tcp_port:{new}\r\n");
        ensure(String::from_utf8_lossy(&info).contains(&line), || "INFO: another".to_owned())?;
        old = new;
    }
    Client::connect(old, Protocol::Resp3).and_then(|mut new| new.words("PING")).map_err(text)?;
    client.words("PING").map(drop).map_err(|error| format!("who was there before: {error}"))
}

fn in_use(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let taken = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let port = taken.local_addr().map_err(text)?.port().to_string();
    let why = "Unable to listen on this port. Check server logs.";
    is_refused(&mut client, &["CONFIG", "SET", "port", &port, "timeout", "9"], why)?;
    serves_only(&[("127.0.0.1", server.port())], &[])?;
    let listed = client.words("CONFIG GET port").map_err(text)?.encode();
    let listed = String::from_utf8_lossy(&listed).into_owned();
    ensure(listed.contains(&server.port().to_string()), || format!("CONFIG GET port: {listed}"))?;
    let timeout = client.words("CONFIG GET timeout").map_err(text)?.encode();
    ensure(timeout.ends_with(b"$1\r\n0\r\n"), || "timeout has changed".to_owned())
}

fn no_port(stage: &Stage) -> Result<(), String> {
    let path = std::env::temp_dir().join(format!("darter-ports-{}.sock", std::process::id()));
    let server = stage.server_with(&["--unixsocket", &path.to_string_lossy()])?;
    let mut client = server.client().map_err(text)?;
    is_ok(&mut client, &["CONFIG", "SET", "port", "0"])?;
    serves_only(&[], &[("127.0.0.1", server.port())])?;
    let mut local = UnixStream::connect(&path).map_err(text)?;
    let words = format!("CONFIG SET port {}\r\n", server.port());
    local.write_all(words.as_bytes()).map_err(text)?;
    let mut answer = [0; 5];
    local.read_exact(&mut answer).map_err(text)?;
    ensure(&answer == b"+OK\r\n", || format!("{answer:?}"))?;
    serves_only(&[("127.0.0.1", server.port())], &[])
}

fn names(stage: &Stage) -> Result<(), String> {
    let why = "Failed to bind to specified addresses.";
    let server = stage.server_with(&["--bind", "127.0.0.1"])?;
    let mut client = server.client().map_err(text)?;
    is_refused(&mut client, &["CONFIG", "SET", "bind", "localhost"], why)?;
    let server = stage.server_with(&["--bind", "localhost"])?; // Configured from the start.
    let mut client = server.client().map_err(text)?;
    is_ok(&mut client, &["CONFIG", "SET", "bind", "localhost 127.0.0.2"])?;
    let new = server::free_port().map_err(text)?.to_string();
    is_ok(&mut client, &["CONFIG", "SET", "port", &new])
}

/// No machine has the address 192.0.2.1: it is reserved for documentation.
fn addresses(stage: &Stage) -> Result<(), String> {
    let server = stage.server_with(&["--bind", "127.0.0.1"])?;
    let mut client = server.client().map_err(text)?;
    let port = server.port();
    let (one, two) = (("127.0.0.1", port), ("127.0.0.2", port));
    let mut bind = |words: &str| is_ok(&mut client, &["CONFIG", "SET", "bind", words]);
    bind("127.0.0.1 127.0.0.2")?;
    serves_only(&[one, two], &[])?;
    bind("127.0.0.2 -192.0.2.1 -::1")?;
    serves_only(&[two], &[one])?;
    bind("*")?; // Overlaps with an open listener.
    serves_only(&[one, two], &[])?;
    bind("127.0.0.1")?;
    serves_only(&[one], &[two])?;
    let why = "Failed to bind to specified addresses.";
    is_refused(&mut client, &["CONFIG", "SET", "bind", "127.0.0.2 192.0.2.1"], why)?;
    serves_only(&[one], &[two])?;
    let listed = client.words("CONFIG GET bind").map_err(text)?.encode();
    ensure(listed.ends_with(b"$9\r\n127.0.0.1\r\n"), || format!("CONFIG GET bind: {listed:?}"))?;
    is_ok(&mut client, &["CONFIG", "SET", "bind", ""])?;
    serves_only(&[], &[one, two])?;
    is_ok(&mut client, &["CONFIG", "SET", "bind", "127.0.0.1"])?;
    serves_only(&[one], &[])
}

/// Seconds until the server probes its silent client, as reported by the kernel; `None` if it never
/// does.
fn probed_after_s(server: u16, client: u16) -> Result<Option<u64>, String> {
    /// The timer types in the kernel's table: none, unacknowledged data, and keepalive.
    const OFF: &str = "00";
    const KEEPALIVE: &str = "02";
    let ends = [format!(":{server:04X}"), format!(":{client:04X}")];
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while std::time::Instant::now() < until {
        let table = std::fs::read_to_string("/proc/net/tcp").map_err(text)?;
        let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row[1].ends_with(&ends[0]) && row[2].ends_with(&ends[1]));
        let row = row.ok_or("the kernel knows no such connection")?;
        match row[5].split_once(':') {
            Some((OFF, _)) => return Ok(None),
            Some((KEEPALIVE, ticks)) => {
                let ticks = u64::from_str_radix(ticks, 16).map_err(text)?;
                return Ok(Some(ticks.div_ceil(100)));
            }
            _ => std::thread::yield_now(),
        }
    }
    Err("what is sent is never acknowledged".to_owned())
}

fn keepalive(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let mut first = None;
    for (set, wanted) in [("", 300_u64), ("60", 60), ("0", 0), ("300", 300)] {
        if !set.is_empty() {
            is_ok(&mut client, &["CONFIG", "SET", "tcp-keepalive", set])?;
        }
        let new = TcpStream::connect(("127.0.0.1", server.port())).map_err(text)?;
        let port = new.local_addr().map_err(text)?.port();
        // The next client is accepted.
        server.client().and_then(|mut next| next.words("PING")).map_err(text)?;
        let after_s = probed_after_s(server.port(), port)?.unwrap_or(0);
        let is_about = (wanted.saturating_sub(30)..=wanted).contains(&after_s);
        ensure(is_about, || format!("{set:?}: after {after_s} s, not {wanted}"))?;
        first.get_or_insert((new, port));
    }
    let (_first, port) = first.ok_or("nobody came")?;
    let after_s = probed_after_s(server.port(), port)?;
    ensure(after_s.is_some_and(|after_s| after_s > 240), || {
        format!("the first client: after {after_s:?} s")
    })?;
    // The kernel allows less than that.
    let server = stage.server_with(&["--tcp-keepalive", "100000"])?;
    serves_only(&[("127.0.0.1", server.port())], &[])
}

fn rewritten(stage: &Stage) -> Result<(), String> {
    let folder = std::env::temp_dir().join(format!("darter-ports-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(text)?;
    let path = folder.join("server.conf");
    std::fs::write(&path, "timeout 0\n").map_err(text)?;
    let server = stage.server_with(&[&path.to_string_lossy()])?;
    let mut client = server.client().map_err(text)?;
    let new = server::free_port().map_err(text)?.to_string();
    is_ok(&mut client, &["CONFIG", "SET", "port", &new, "bind", "127.0.0.1 -::1"])?;
    is_ok(&mut client, &["CONFIG", "REWRITE"])?;
    let written = std::fs::read_to_string(&path).map_err(text)?;
    let _ = std::fs::remove_dir_all(&folder);
    for line in [format!("port {new}"), "bind 127.0.0.1 -::1".to_owned()] {
        ensure(written.lines().any(|found| found == line), || format!("no {line:?}:\n{written}"))?;
    }
    Ok(())
}
