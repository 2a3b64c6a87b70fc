//! Memory: what is told of it against what the process takes, what clients may hold, and what costs
//! nothing.
//!
//! `--soak SECONDS` repeats what compares, with more data, for about so long.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Server};
use std::io::Read;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// How long memory, and closing, may take to follow: only what never comes is a fault.
const PATIENCE: Duration = Duration::from_secs(60);

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("two billion databases cost nothing until used",       Asks::More,    databases),
    ("deleted hashes that are still read are told",         Asks::More,    pinned_hashes),
    ("deleted strings that are still read are told",        Asks::More,    pinned_strings),
    ("requests that are arriving are told",                 Asks::More,    arriving),
    ("an idle writer keeps nothing of its argument",        Asks::AsRedis, idle_writers),
    ("copies are counted once",                             Asks::More,    copies),
    ("maxmemory counts what arrives and what is pinned",    Asks::More,    maxmemory),
    ("client-query-buffer-limit closes",                    Asks::AsRedis, query_limit),
    ("client-output-buffer-limit closes who pins too much", Asks::More,    output_limits),
    ("maxmemory-clients closes the largest",                Asks::AsRedis, all_clients),
];

/// The text of a section of INFO.
fn info(client: &mut Client, section: &str) -> Result<String, String> {
    let info = client.command(&["INFO", section]).map_err(text)?;
    Ok(String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned())
}

/// The number behind `name:` in a section of INFO.
fn told(client: &mut Client, section: &str, name: &str) -> Result<u64, String> {
    let info = info(client, section)?;
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.trim().parse().ok());
    number.ok_or_else(|| format!("no {name} in {info}"))
}

/// A reply that must be this text.
fn must_say(client: &mut Client, line: &str, wanted: &str) -> Result<(), String> {
    let reply = client.words(line).map_err(text)?;
    let said = reply.text().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    let said = reply.int().map_or(said, |number| number.to_string());
    ensure(said == wanted, || format!("{line}: {reply:?}"))
}

/// Asks until it holds.
fn wait_until(mut holds: impl FnMut() -> Result<bool, String>) -> Result<bool, String> {
    let start = Instant::now();
    while !holds()? {
        if start.elapsed() > PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

/// A server whose memory is watched.
struct Watched {
    server: Server,
    client: Client,
    resident: u64,
    used: u64,
}

impl Watched {
    fn start(stage: &Stage) -> Result<Self, String> {
        let server = stage.server()?;
        let mut client = server.client().map_err(text)?;
        let used = told(&mut client, "memory", "used_memory")?;
        let resident = server.process().resident_bytes();
        Ok(Self { server, client, resident, used })
    }

    /// How much `used_memory` and the resident memory have grown.
    fn growth(&mut self) -> Result<(u64, u64), String> {
        let used = told(&mut self.client, "memory", "used_memory")?.saturating_sub(self.used);
        Ok((used, self.server.process().resident_bytes().saturating_sub(self.resident)))
    }

    /// What is told grows to `least`, and is what is resident, to a tenth and 10 MB.
    fn must_tell(&mut self, least: u64, what: &str) -> Result<(), String> {
        let mut last = (0, 0);
        let holds = wait_until(|| {
            last = self.growth()?;
            let (used, resident) = last;
            Ok(used >= least && used.abs_diff(resident) <= used.max(resident) / 10 + 10 * MIB)
        })?;
        let (used, resident) = last;
        ensure(holds, || {
            let info = info(&mut self.client, "memory").unwrap_or_default();
            format!("{what}: {used} told, {resident} resident, {least} expected:\n{info}")
        })
    }

    /// What is told falls back to next to nothing.
    fn must_fall(&mut self, what: &str) -> Result<(), String> {
        let mut last = (0, 0);
        let holds = wait_until(|| {
            last = self.growth()?;
            Ok(last.0 < 4 * MIB)
        })?;
        ensure(holds, || format!("{what}: {} told, {} resident", last.0, last.1))
    }

    fn hash(&mut self, key: &str, elements: u64, size: u64) -> Result<(), String> {
        let (elements, size) = (elements.to_string(), size.to_string());
        let words = ["DEBUG", "POPULATE", "1", key, &size, "RAND", "TYPE", "hash", "ELEMENTS"];
        let reply = self.client.command(&[&words[..], &[&*elements]].concat()).map_err(text)?;
        ensure(!reply.is_error(), || format!("{reply:?}"))
    }

    fn string(&mut self, key: &str, bytes: u64) -> Result<(), String> {
        let value = "v".repeat(usize::try_from(bytes).map_err(text)?);
        let reply = self.client.command(&["SET", key, &value]).map_err(text)?;
        ensure(!reply.is_error(), || format!("{reply:?}"))
    }

    /// The keys of the database.
    fn keys(&mut self) -> Result<Vec<String>, String> {
        let keys = self.client.words("KEYS *").map_err(text)?;
        let names = keys.items().unwrap_or_default().iter().filter_map(|key| key.text());
        Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    /// A number of CLIENT LIST for the client of this name, or none when it is gone.
    fn of_client(&mut self, name: &str, field: &str) -> Result<Option<u64>, String> {
        let list = self.client.words("CLIENT LIST").map_err(text)?;
        let list = String::from_utf8_lossy(list.text().unwrap_or_default()).into_owned();
        let Some(line) = list.lines().find(|line| line.contains(&format!(" name={name} "))) else {
            return Ok(None);
        };
        let (_, rest) = line.split_once(&format!(" {field}=")).ok_or_else(|| line.to_owned())?;
        let number = rest.split(' ').next().and_then(|number| number.parse().ok());
        number.map(Some).ok_or_else(|| line.to_owned())
    }
}

/// Clients that have sent a command and read its reply's first byte, and no more.
fn unread(server: &Server, command: &str, keys: &[String]) -> Result<Vec<Client>, String> {
    keys.iter()
        .map(|key| {
            let mut client = server.client().map_err(text)?;
            client.words(&format!("CLIENT SETNAME of:{key}")).map_err(text)?;
            client.send(&encode(&[command, key])).map_err(text)?;
            let first = client.socket().read(&mut [0]).map_err(text)?;
            ensure(first == 1, || format!("no reply to {command} {key}"))?;
            Ok(client)
        })
        .collect()
}

/// Runs a round, with so many times the least data; more and larger ones in a soak.
fn rounds(stage: &Stage, round: impl Fn(u64) -> Result<(), String>) -> Result<(), String> {
    const TIMES_MAX: u64 = 10;
    let start = Instant::now();
    let mut times = 1;
    loop {
        round(times)?;
        if start.elapsed() >= stage.soak {
            return Ok(());
        }
        times = (times + 1).min(TIMES_MAX);
    }
}

/// Two hashes that are read by three clients each, then deleted: each is held once.
fn pinned_hashes(stage: &Stage) -> Result<(), String> {
    rounds(stage, |times| {
        let mut watched = Watched::start(stage)?;
        watched.hash("first", 60_000 * times, 1_000)?;
        watched.hash("second", 60_000 * times, 1_000)?;
        let keys = watched.keys()?;
        let (full, _) = watched.growth()?;
        let readers = unread(&watched.server, "HGETALL", &[&keys[..], &keys, &keys].concat())?;
        let deleted = watched.client.words(&format!("DEL {}", keys.join(" "))).map_err(text)?;
        ensure(deleted.int() == Some(2), || format!("{deleted:?}"))?;
        watched.must_tell(full / 2, "unread hashes")?;
        let (used, _) = watched.growth()?;
        ensure(used < full + full / 4 + 10 * MIB, || format!("{used} of {full} told"))?;
        let pinned = watched.of_client(&format!("of:{}", keys[0]), "tot-mem")?;
        ensure(pinned > Some(full / 4), || format!("{pinned:?} of {full} pinned by a reader"))?;
        drop(readers);
        watched.must_fall("hashes that nobody reads")?;
        Ok(())
    })
}

fn pinned_strings(stage: &Stage) -> Result<(), String> {
    const BYTES: u64 = 20 * MIB;
    rounds(stage, |times| {
        let mut watched = Watched::start(stage)?;
        let keys: Vec<String> = (0..4 * times).map(|at| format!("key:{at}")).collect();
        keys.iter().try_for_each(|key| watched.string(key, BYTES))?;
        let readers = unread(&watched.server, "GET", &keys)?;
        let before = watched.of_client("of:key:0", "omem")?;
        ensure(before < Some(BYTES / 2), || format!("{before:?} told of a key that is there"))?;
        watched.client.words(&format!("DEL {}", keys.join(" "))).map_err(text)?;
        watched.must_tell(keys.len() as u64 * BYTES, "unread strings")?;
        let pinned = watched.of_client("of:key:0", "omem")?;
        ensure(pinned >= Some(BYTES), || format!("{pinned:?} pinned by a reader"))?;
        drop(readers);
        watched.must_fall("strings that nobody reads")?;
        Ok(())
    })
}

/// A client called `name` that has sent `sent` bytes of an argument of `announced`.
fn sender(server: &Server, name: &str, sent: u64, announced: u64) -> Result<Client, String> {
    let mut client = server.client().map_err(text)?;
    client.words(&format!("CLIENT SETNAME {name}")).map_err(text)?;
    let header = format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${announced}\r\n");
    client.send(header.as_bytes()).map_err(text)?;
    client.send(&vec![b'a'; usize::try_from(sent).map_err(text)?]).map_err(text)?;
    Ok(client)
}

fn arriving(stage: &Stage) -> Result<(), String> {
    const SENT: u64 = 12 * MIB + 12_345;
    rounds(stage, |times| {
        let mut watched = Watched::start(stage)?;
        let count = 8 * times;
        let senders = (0..count)
            .map(|at| sender(&watched.server, &format!("sender:{at}"), SENT, 2 * SENT))
            .collect::<Result<Vec<_>, _>>()?;
        watched.must_tell(count * SENT, "requests that arrive")?;
        let (_, resident) = watched.growth()?;
        let most = count * (SENT + SENT / 20) + 16 * MIB;
        ensure(resident < most, || format!("{resident} resident of {count} times {SENT}"))?;
        let query = watched.of_client("sender:3", "qbuf")?;
        ensure(query == Some(SENT), || format!("qbuf={query:?}"))?;
        let peak = told(&mut watched.client, "clients", "client_recent_max_input_buffer")?;
        ensure(peak >= SENT, || format!("the longest input: {peak}"))?;
        drop(senders);
        watched.must_fall("requests that never came")?;
        Ok(())
    })
}

fn idle_writers(stage: &Stage) -> Result<(), String> {
    const BYTES: u64 = 16 * MIB;
    let mut watched = Watched::start(stage)?;
    let mut writers = Vec::new();
    for at in 0..8 {
        let mut writer = watched.server.client().map_err(text)?;
        let value = "v".repeat(usize::try_from(BYTES).map_err(text)?);
        writer.command(&["SET", &format!("key:{at}"), &value]).map_err(text)?;
        writers.push(writer);
    }
    watched.client.words("FLUSHALL").map_err(text)?;
    let mut last = (0, 0);
    let holds = wait_until(|| {
        last = watched.growth()?;
        Ok(last.0 < 16 * MIB && last.1 < 32 * MIB)
    })?;
    ensure(holds, || format!("{} told, {} resident of idle writers", last.0, last.1))
}

fn copies(stage: &Stage) -> Result<(), String> {
    let mut watched = Watched::start(stage)?;
    watched.hash("{h}", 50_000, 500)?;
    let key = watched.keys()?.remove(0);
    for at in 0..10 {
        must_say(&mut watched.client, &format!("COPY {key} {key}{at}"), "1")?;
    }
    watched.must_tell(25 * MIB, "a hash and its copies")?;
    let (used, _) = watched.growth()?;
    ensure(used < 60 * MIB, || format!("{used} told of a hash and its copies"))
}

/// Bytes that are no keys' count too, and again do not once they are gone.
fn maxmemory(stage: &Stage) -> Result<(), String> {
    let mut watched = Watched::start(stage)?;
    must_say(&mut watched.client, "CONFIG SET maxmemory 100mb", "OK")?;
    must_say(&mut watched.client, "SET a b", "OK")?;
    let refused =
        |client: &mut Client| wait_until(|| Ok(client.words("SET a b").map_err(text)?.is_error()));
    let taken =
        |client: &mut Client| wait_until(|| Ok(!client.words("SET a b").map_err(text)?.is_error()));
    let senders = (0..8)
        .map(|at| sender(&watched.server, &format!("sender:{at}"), 15 * MIB, 20 * MIB))
        .collect::<Result<Vec<_>, _>>()?;
    ensure(refused(&mut watched.client)?, || "requests that arrive do not count".to_owned())?;
    drop(senders);
    ensure(taken(&mut watched.client)?, || "no room after they are gone".to_owned())?;
    let keys: Vec<String> = (0..4).map(|at| format!("key:{at}")).collect();
    keys.iter().try_for_each(|key| watched.string(key, 20 * MIB))?;
    let readers = unread(&watched.server, "GET", &keys)?;
    watched.client.words(&format!("DEL {}", keys.join(" "))).map_err(text)?;
    let more: Result<Vec<_>, _> = (0..2)
        .map(|at| sender(&watched.server, &format!("more:{at}"), 15 * MIB, 20 * MIB))
        .collect();
    ensure(refused(&mut watched.client)?, || "what readers pin does not count".to_owned())?;
    drop((readers, more?));
    ensure(taken(&mut watched.client)?, || "no room after the readers are gone".to_owned())
}

fn is_closed(client: &mut Client) -> Result<bool, String> {
    client.set_patience(PATIENCE).map_err(text)?;
    client.read_to_end().map(|bytes| bytes.is_empty()).map_err(text)
}

fn query_limit(stage: &Stage) -> Result<(), String> {
    let mut watched = Watched::start(stage)?;
    must_say(&mut watched.client, "CONFIG SET client-query-buffer-limit 1mb", "OK")?;
    let _below = sender(&watched.server, "below", 900_000, 3 * MIB)?;
    let mut beyond = sender(&watched.server, "beyond", MIB + 200_000, 3 * MIB)?;
    ensure(is_closed(&mut beyond)?, || "a client beyond the limit got a reply".to_owned())?;
    let query = watched.of_client("below", "qbuf")?;
    ensure(query == Some(900_000), || format!("one below the limit: qbuf={query:?}"))?;
    let line = "Closing client that reached max query buffer length: id=";
    ensure(watched.server.logs(line, PATIENCE), || watched.server.log())?;
    let line = "(qbuf initial bytes: \"aaaaaaaa";
    ensure(watched.server.logs(line, PATIENCE), || watched.server.log())
}

/// A reader of a value that is there holds nothing; of one that is gone, all that it has not read.
fn output_limits(stage: &Stage) -> Result<(), String> {
    const CLOSED: &str = "closed for overcoming of output buffer limits.";
    for (limits, set) in [("hard", "normal 10mb 0 0"), ("soft", "normal 0 10mb 1")] {
        let mut watched = Watched::start(stage)?;
        let words = ["CONFIG", "SET", "client-output-buffer-limit", set];
        watched.client.command(&words).map_err(text)?;
        watched.string("large", 30 * MIB)?;
        watched.string("small", 5 * MIB)?;
        let readers = unread(&watched.server, "GET", &["large".to_owned(), "small".to_owned()])?;
        std::thread::sleep(Duration::from_millis(1_500));
        let there = watched.of_client("of:large", "omem")?;
        ensure(there.is_some(), || format!("{limits}: closed before the value was gone"))?;
        watched.client.words("DEL large small").map_err(text)?;
        let gone = wait_until(|| Ok(watched.of_client("of:large", "omem")?.is_none()))?;
        ensure(gone, || format!("{limits}: a reader beyond the limit stays"))?;
        ensure(watched.server.logs(CLOSED, PATIENCE), || watched.server.log())?;
        let small = watched.of_client("of:small", "omem")?;
        ensure(small >= Some(5 * MIB), || format!("{limits}: one below the limit: {small:?}"))?;
        drop(readers);
    }
    Ok(())
}

/// The largest that may be is closed, and nobody else: 30 MB are held, 20 are allowed.
fn all_clients(stage: &Stage) -> Result<(), String> {
    for limit in ["maxmemory-clients 20mb", "maxmemory 200mb maxmemory-clients 10%"] {
        let mut watched = Watched::start(stage)?;
        let server = &watched.server;
        let mut spared = server.client().map_err(text)?;
        must_say(&mut spared, "CLIENT NO-EVICT ON", "OK")?;
        must_say(&mut spared, "CLIENT SETNAME spared", "OK")?;
        let header = format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n${}\r\n", 15 * MIB + 100);
        spared.send(header.as_bytes()).map_err(text)?;
        spared.send(&vec![b'a'; 15 << 20]).map_err(text)?;
        let mut largest = sender(server, "largest", 12 * MIB, 12 * MIB + 100)?;
        let _small = sender(server, "small", 2 * MIB, 2 * MIB + 100)?;
        let held = wait_until(|| Ok(watched.of_client("small", "qbuf")? == Some(2 * MIB)))?;
        ensure(held, || "it has not come".to_owned())?;
        must_say(&mut watched.client, &format!("CONFIG SET {limit}"), "OK")?;
        ensure(is_closed(&mut largest)?, || format!("{limit}: the largest got a reply"))?;
        ensure(watched.server.logs("Evicting client: id=", PATIENCE), || watched.server.log())?;
        std::thread::sleep(Duration::from_millis(300)); // Time to close more.
        let evicted = told(&mut watched.client, "stats", "evicted_clients")?;
        ensure(evicted == 1, || format!("{limit}: {evicted} were closed"))?;
        for name in ["spared", "small"] {
            let there = watched.of_client(name, "qbuf")?;
            ensure(there.is_some(), || format!("{limit}: {name} is gone too"))?;
        }
    }
    Ok(())
}

/// What goes through all databases goes through those in use.
fn databases(stage: &Stage) -> Result<(), String> {
    let small = stage.server()?.process().resident_bytes();
    let server = stage.server_with(&["--databases", "2147483647"])?;
    let mut client = server.client().map_err(text)?;
    for (line, wanted) in [
        ("SELECT 2147483646", "OK"),
        ("SET last 1", "OK"),
        ("SELECT 1000000", "OK"),
        ("SET middle 1 PX 60000", "OK"),
        ("COPY middle copied DB 77", "1"),
        ("SELECT 2147483645", "OK"),
        ("SWAPDB 2147483646 2147483645", "OK"),
        ("GET last", "1"),
        ("DBSIZE", "1"),
        ("DEBUG CHECK", "OK"),
        ("MOVE last 5", "1"),
    ] {
        must_say(&mut client, line, wanted)?;
    }
    let beyond = client.words("SELECT 2147483647").map_err(text)?;
    ensure(beyond.is_error(), || format!("SELECT beyond the last: {beyond:?}"))?;
    let keyspace = client.words("INFO keyspace").map_err(text)?;
    let keyspace = String::from_utf8_lossy(keyspace.text().unwrap_or_default()).into_owned();
    for wanted in ["db5:keys=1,expires=0", "db77:keys=1,expires=1", "db1000000:keys=1,expires=1"] {
        ensure(keyspace.contains(wanted), || format!("{wanted}: {keyspace}"))?;
    }
    let digest = client.words("DEBUG DIGEST").map_err(text)?;
    ensure(digest.text().is_some_and(|sum| sum != [b'0'; 40]), || format!("{digest:?}"))?;
    must_say(&mut client, "FLUSHALL", "OK")?;
    for at in 0..20_000 {
        client.words(&format!("SELECT {}", at * 100_000)).map_err(text)?;
        client.words("GET nothing").map_err(text)?;
    }
    told(&mut client, "memory", "used_memory")?;
    let more = server.process().resident_bytes().saturating_sub(small);
    ensure(more < 8 * MIB, || format!("it took {more} bytes more than with sixteen"))
}
