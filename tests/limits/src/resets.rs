//! Clients that reset their connection: while they send, while they receive, while the server holds
//! them back, while a long reply streams, and at random bytes of anything. Nothing may remain of
//! them: no client in CLIENT LIST, no descriptor, no memory, no receive buffer.
//!
//! Each check runs on both backends, if available, whatever `--io` says: they detect resets in
//! different ways.

use crate::{Asks, Check, Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::client::encode;
use darter_testkit::{Client, Io, Server, Shape};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// How long it may take to notice a reset: a loaded machine is slow, but a leaked connection stays
/// forever.
const SOON: Duration = Duration::from_secs(10);

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("a thousand resets in a long argument leave nothing", Asks::AsRedis, during_receives),
    ("resets during replies leave nothing",                Asks::AsRedis, during_sends),
    ("resets of clients that are held back leave nothing", Asks::AsRedis, while_held_back),
    ("resets while a long reply streams leave nothing",    Asks::AsRedis, during_streams),
    ("resets at random bytes leave nothing",               Asks::AsRedis, at_random_bytes),
    ("a half-closed client gets all replies",              Asks::More,    half_closed),
    ("work for a client that is gone ends",                Asks::More,    work_ends),
];

/// A server, a client that watches it, and its number of open files without other clients.
struct Place {
    server: Server,
    watcher: Client,
    files: usize,
}

impl Place {
    fn open(stage: &Stage, io: Io) -> Result<Self, String> {
        let server = Server::subject(Shape { io, ..stage.shape }).map_err(text)?;
        let watcher = server.client().map_err(text)?;
        let mut place = Self { server, watcher, files: usize::MAX };
        place.nothing_stays("the start")?; // The connections of the readiness probes.
        place.files = place.server.process().files_open();
        Ok(place)
    }

    fn clients(&mut self) -> Result<usize, String> {
        let list = self.watcher.words("CLIENT LIST").map_err(text)?;
        let list = list.text().unwrap_or_default();
        Ok(list.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count())
    }

    /// Waits until only the watching client is left.
    fn nothing_stays(&mut self, what: &str) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let (clients, files) = (self.clients()?, self.server.process().files_open());
            if clients == 1 && files <= self.files {
                return Ok(());
            }
            ensure(start.elapsed() < SOON, || {
                format!("{what}: {clients} clients, {files} files of {} stay", self.files)
            })?;
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn connect(&self) -> Result<TcpStream, String> {
        let socket = TcpStream::connect(("127.0.0.1", self.server.port())).map_err(text)?;
        let patience = Some(Duration::from_secs(20));
        socket.set_read_timeout(patience).map_err(text)?;
        socket.set_write_timeout(patience).map_err(text)?;
        Ok(socket)
    }

    /// Stores the data of long replies: a string and a hash.
    fn store(&mut self) -> Result<(), String> {
        let big = "x".repeat(3_000_000);
        self.watcher.command(&["SET", "big", &big]).map_err(text)?;
        for part in 0..20 {
            let mut words = vec!["HSET".to_owned(), "hash".to_owned()];
            for field in 0..2_000 {
                words.extend([format!("field:{part}:{field}"), format!("value:{field:030}")]);
            }
            self.watcher.command(&words).map_err(text)?;
        }
        Ok(())
    }
}

/// The available backends; only epoll, with a note, if the server finds that io_uring cannot be
/// used.
fn backends(stage: &Stage) -> Result<Vec<Io>, String> {
    let server = Server::subject(Shape { io: Io::Auto, ..stage.shape }).map_err(text)?;
    if server.log().contains("io_uring is not available") {
        eprintln!("io_uring cannot be used here: epoll alone is tried");
        return Ok(vec![Io::Epoll]);
    }
    Ok(vec![Io::Uring, Io::Epoll])
}

/// Closes the socket so that the server sees a reset, even if nothing is left to read.
fn reset(socket: TcpStream) -> Result<(), String> {
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).map_err(text)?;
    drop(socket);
    Ok(())
}

/// Runs `act` on both backends, in rounds. Afterwards nothing may be left, and memory may not have
/// grown since the first round.
fn on_both(
    stage: &Stage,
    rounds: usize,
    act: impl Fn(&mut Place, &mut Prng) -> Result<(), String>,
) -> Result<(), String> {
    for io in backends(stage)? {
        let mut place = Place::open(stage, io)?;
        place.store()?;
        let mut memory = 0;
        for round in 0..rounds {
            let mut prng = Prng::from_seed(round as u64);
            act(&mut place, &mut prng).map_err(|why| format!("{}, {round}: {why}", io.name()))?;
            place.nothing_stays(&format!("{}, round {round}", io.name()))?;
            if round == 0 {
                memory = place.server.process().resident_bytes();
            }
        }
        let grown = place.server.process().resident_bytes().saturating_sub(memory);
        ensure(grown < 48 * MIB, || format!("{}: memory grew by {grown}", io.name()))?;
        still_receives(&mut place)?;
    }
    Ok(())
}

/// More connections than there are buffers, so that a leaked one would be noticed.
fn still_receives(place: &mut Place) -> Result<(), String> {
    let value = "v".repeat(8_000_000);
    let set = place.watcher.command(&["SET", "after", &value]).map_err(text)?;
    ensure(set.text() == Some(b"OK"), || format!("SET: {set:?}"))?;
    let length = place.watcher.words("STRLEN after").map_err(text)?;
    ensure(length.int() == Some(8_000_000), || format!("STRLEN: {length:?}"))
}

fn during_receives(stage: &Stage) -> Result<(), String> {
    on_both(stage, 10, |place, _| {
        let whole = encode(&["SET", "k", &"v".repeat(1_000_000)]);
        for _ in 0..100 {
            let mut socket = place.connect()?;
            socket.write_all(&whole[..100_000]).map_err(text)?;
            reset(socket)?;
        }
        Ok(())
    })
}

fn during_sends(stage: &Stage) -> Result<(), String> {
    on_both(stage, 10, |place, prng| {
        for _ in 0..50 {
            let mut socket = place.connect()?;
            socket.write_all(&encode(&["GET", "big"]).repeat(20)).map_err(text)?;
            read_some(&mut socket, prng)?;
            reset(socket)?;
        }
        Ok(())
    })
}

/// Reads a random number of bytes, at least one, so a send is in progress.
fn read_some(socket: &mut TcpStream, prng: &mut Prng) -> Result<(), String> {
    let most = [1, 1_000, 100_000, 1_000_000][prng.below(4) as usize];
    let mut left = 1 + prng.below(most) as usize;
    let mut chunk = vec![0; 64 * 1024];
    while left > 0 {
        let part = left.min(chunk.len());
        match socket.read(&mut chunk[..part]).map_err(text)? {
            0 => return Err("closed in the middle of a reply".to_owned()),
            got => left -= got,
        }
    }
    Ok(())
}

/// Writes are paused, so the server receives what it can buffer, and then no more. The resets are
/// noticed during the pause.
fn while_held_back(stage: &Stage) -> Result<(), String> {
    on_both(stage, 4, |place, prng| {
        place.watcher.words("CLIENT PAUSE 100000 WRITE").map_err(text)?;
        let sets = encode(&["SET", "held", &"v".repeat(1_000)]).repeat(600);
        let mut sockets = Vec::new();
        for _ in 0..25 {
            let mut socket = place.connect()?;
            socket.set_nonblocking(true).map_err(text)?;
            let start = Instant::now();
            let mut sent = 0;
            // Until the socket takes no more, or the kernel has all of it.
            while sent < sets.len() && start.elapsed() < Duration::from_millis(20) {
                match socket.write(&sets[sent..]) {
                    Ok(count) => sent += count,
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            }
            sockets.push(socket);
        }
        for socket in sockets {
            if prng.chance(30) {
                socket.shutdown(Shutdown::Write).map_err(text)?;
            }
            reset(socket)?;
        }
        place.nothing_stays("during the pause")?;
        place.watcher.words("CLIENT UNPAUSE").map(drop).map_err(text)
    })
}

fn during_streams(stage: &Stage) -> Result<(), String> {
    on_both(stage, 10, |place, prng| {
        for _ in 0..25 {
            let mut socket = place.connect()?;
            socket.write_all(&encode(&["HGETALL", "hash"]).repeat(3)).map_err(text)?;
            read_some(&mut socket, prng)?;
            reset(socket)?;
        }
        Ok(())
    })
}

/// Part of the soak: requests of all kinds, cut off at any byte, on connections closed in any way.
fn at_random_bytes(stage: &Stage) -> Result<(), String> {
    let rounds = (stage.soak.as_secs() as usize).clamp(1, usize::MAX / 2);
    on_both(stage, 4 * rounds, |place, prng| {
        let mut waiting = Vec::new();
        for _ in 0..100 {
            let mut socket = place.connect()?;
            let bytes = some_requests(prng);
            let cut =
                if prng.chance(70) { prng.below(bytes.len() as u64) } else { bytes.len() as u64 };
            // The server may have stopped receiving; a client that cannot send resets anyway.
            socket.set_nonblocking(true).map_err(text)?;
            let _ = socket.write(&bytes[..cut as usize]);
            socket.set_nonblocking(false).map_err(text)?;
            socket.set_read_timeout(Some(Duration::from_millis(2))).map_err(text)?;
            let mut chunk = vec![0; 1 + prng.below(200_000) as usize];
            if prng.chance(30) {
                let _ = socket.read(&mut chunk); // No bytes, a part of a reply, or several replies.
            }
            if prng.chance(15) {
                // The server closed it, after a malformed request.
                let _ = socket.shutdown(Shutdown::Write);
            }
            match prng.below(4) {
                0 => drop(socket),
                1 => waiting.push(socket),
                _ => reset(socket)?,
            }
        }
        waiting.into_iter().try_for_each(reset)
    })
}

/// A pipeline of small, long and malformed requests.
fn some_requests(prng: &mut Prng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=prng.below(8) {
        let key = format!("key:{}", prng.below(50));
        let length = [10, 1_000, 70_000, 300_000][prng.below(4) as usize];
        let value = "v".repeat(prng.below(length) as usize);
        bytes.extend(match prng.below(11) {
            0 => encode(&["SET", &key, &value]),
            8..=10 => encode(&["SET", &key, &"v".repeat(1_000_000)]),
            1 => encode(&["GET", "big"]).repeat(1 + prng.below(10) as usize),
            2 => encode(&["HGETALL", "hash"]),
            3 => encode(&["MSET", &key, &value, "key:1", "1", "key:2", "2", "key:3", "3"]),
            4 => encode(&["GET", &key]).repeat(1 + prng.below(200) as usize),
            5 => encode(&["KEYS", "*"]),
            6 => b"*3\r\n$3\r\nSET\r\n$x\r\n".to_vec(),
            _ => encode(&["SADD", &key, &value]),
        });
    }
    bytes
}

/// Includes replies that the socket does not take at once, which Redis drops.
fn half_closed(stage: &Stage) -> Result<(), String> {
    for io in backends(stage)? {
        let mut place = Place::open(stage, io)?;
        for length in [1, 2_000, 70_000, 600_000] {
            let mut socket = place.connect()?;
            let mut bytes = encode(&["SET", "k", &"v".repeat(length)]);
            bytes.extend(encode(&["GET", "k"]).repeat(9));
            bytes.extend(encode(&["PING"]));
            socket.write_all(&bytes).map_err(text)?;
            socket.shutdown(Shutdown::Write).map_err(text)?;
            let mut answer = Vec::new();
            socket.read_to_end(&mut answer).map_err(text)?;
            let one = format!("${length}\r\n").len() + length + 2;
            let (got, wanted) = (answer.len(), 5 + 9 * one + 7);
            ensure(got == wanted, || format!("{}: {got} of {wanted} bytes", io.name()))?;
        }
        place.nothing_stays(io.name())?;
    }
    Ok(())
}

/// Long requests: a search, a command that holds locks, and a change of a copy. A reset ends them;
/// a half-close does not.
fn work_ends(stage: &Stage) -> Result<(), String> {
    const KEYS: usize = 300_000;
    let server = Server::subject(stage.shape).map_err(text)?;
    let mut watcher = server.client().map_err(text)?;
    watcher.words(&format!("DEBUG POPULATE {KEYS} key 0")).map_err(text)?;
    let members: Vec<String> = (0..KEYS).map(|at| at.to_string()).collect();
    for name in ["one", "other"] {
        for some in members.chunks(10_000) {
            let words = ["SADD", name].into_iter().chain(some.iter().map(String::as_str));
            watcher.command(&words.collect::<Vec<_>>()).map_err(text)?;
        }
    }
    for name in ["text", "like"] {
        watcher.command(&["SET", name, &name.repeat(2_800)]).map_err(text)?;
    }
    let lines = [
        "KEYS *no*such*key*",
        "SORT one BY key:* LIMIT 0 1",
        "SUNIONSTORE target one other",
        "DEBUG DIGEST",
    ];
    for line in lines {
        stops(&server, &mut watcher, line, true)?;
    }
    let left = watcher.words("EXISTS target").map_err(text)?;
    ensure(left.int() == Some(0), || format!("half of a union: {left:?}"))?;
    stops(&server, &mut watcher, "LCS text like LEN", false)?;
    leave_after(&server, "SUNIONSTORE target one other", Duration::ZERO, false)?;
    let start = Instant::now();
    while watcher.words("SCARD target").map_err(text)?.int() != Some(KEYS as i64) {
        ensure(start.elapsed() < SOON, || "a change is not made".to_owned())?;
    }
    Ok(())
}

/// A client sends a request and disconnects after a while: by a reset if it has an unread reply,
/// otherwise by a close.
fn leave_after(server: &Server, line: &str, stays: Duration, resets: bool) -> Result<(), String> {
    let mut client = server.client().map_err(text)?;
    if resets {
        client.send(&encode(&["PING"])).map_err(text)?;
        client.socket().peek(&mut [0; 1]).map_err(text)?;
    }
    let words: Vec<&str> = line.split(' ').collect();
    client.send(&encode(&words)).map_err(text)?;
    std::thread::sleep(stays);
    Ok(())
}

/// Disconnects repeatedly until the command was running by then, and has stopped: first at once,
/// then later and later, because a busy machine may show the server the request and the end
/// together.
fn stops(server: &Server, watcher: &mut Client, line: &str, resets: bool) -> Result<(), String> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let (before, start) = (stopped(watcher)?, Instant::now());
    let mut stays = Duration::ZERO;
    while start.elapsed() < SOON {
        watcher.words("DEL target").map_err(text)?;
        leave_after(server, line, stays, resets)?;
        stays = stays * 2 + Duration::from_millis(1);
        let left = Instant::now();
        while left.elapsed() < PATIENCE {
            if stopped(watcher)? > before {
                return Ok(());
            }
        }
    }
    Err(format!("it goes on: {line}"))
}

/// The number of commands that have been stopped.
fn stopped(watcher: &mut Client) -> Result<u64, String> {
    let info = watcher.words("INFO stats").map_err(text)?;
    let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    let line = info.lines().find_map(|line| line.strip_prefix("commands_stopped:"));
    line.and_then(|count| count.parse().ok()).ok_or_else(|| "no count of them".to_owned())
}
