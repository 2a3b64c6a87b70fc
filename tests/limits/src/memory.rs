//! Memory: the reported figures against the process's own, the limits of clients, and states that
//! must cost no memory.
//!
//! `--soak SECONDS` repeats the comparisons with more data for about that time.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Server};
use std::io::Read;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// How long freeing and closing may take. Only something that never happens is a fault.
const PATIENCE: Duration = Duration::from_secs(60);

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("two billion databases cost nothing until used",               Asks::More,    databases),
    ("a turn costs the same with very many databases",              Asks::More,    very_many_databases),
    ("deleted hashes that are still read count",                    Asks::More,    pinned_hashes),
    ("deleted strings that are still read count",                   Asks::More,    pinned_strings),
    ("replies of several values count as pinned",                   Asks::More,    pinned_by_several),
    ("pinned memory is reported by itself",                         Asks::More,    pinned_by_itself),
    ("requests that are arriving count",                            Asks::More,    arriving),
    ("an idle writer keeps nothing of its argument",                Asks::AsRedis, idle_writers),
    ("a long request leaves nothing behind",                        Asks::AsRedis, long_requests),
    ("a long reply leaves no buffer behind",                        Asks::AsRedis, reply_buffers),
    ("a long reply counts as what it takes",                        Asks::More,    long_replies),
    ("copies are counted once",                                     Asks::More,    copies),
    ("the paths of JSON.MSET are parsed one at a time",             Asks::More,    paths),
    ("maxmemory counts what arrives and what is pinned",            Asks::More,    maxmemory),
    ("client-query-buffer-limit closes",                            Asks::AsRedis, query_limit),
    ("client-output-buffer-limit closes clients that pin too much", Asks::More,    output_limits),
    ("maxmemory-clients closes the largest",                        Asks::AsRedis, all_clients),
];

/// The text of a section of INFO.
fn info(client: &mut Client, section: &str) -> Result<String, String> {
    let info = client.command(&["INFO", section]).map_err(text)?;
    Ok(String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned())
}

/// The number after `name:` in a section of INFO.
pub(crate) fn reported(client: &mut Client, section: &str, name: &str) -> Result<u64, String> {
    let info = info(client, section)?;
    number_of(&info, name).ok_or_else(|| format!("no {name} in {info}"))
}

fn number_of(info: &str, name: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.trim().parse().ok())
}

/// Fails unless the reply is this text.
fn must_say(client: &mut Client, line: &str, wanted: &str) -> Result<(), String> {
    let reply = client.words(line).map_err(text)?;
    let said = reply.text().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    let said = reply.int().map_or(said, |number| number.to_string());
    ensure(said == wanted, || format!("{line}: {reply:?}"))
}

/// Polls until the condition holds. Returns false if it never does.
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
        Self::start_with(stage, &[])
    }

    /// [`Watched::start`] with further arguments for the server.
    fn start_with(stage: &Stage, more: &[&str]) -> Result<Self, String> {
        let server = stage.server_with(more)?;
        let mut client = server.client().map_err(text)?;
        let used = reported(&mut client, "memory", "used_memory")?;
        let resident = server.process().resident_bytes();
        Ok(Self { server, client, resident, used })
    }

    /// The growth of `used_memory` and of the resident memory.
    fn growth(&mut self) -> Result<(u64, u64), String> {
        let used = reported(&mut self.client, "memory", "used_memory")?.saturating_sub(self.used);
        Ok((used, self.server.process().resident_bytes().saturating_sub(self.resident)))
    }

    /// Checks that the reported growth reaches `least`, and matches the resident growth, within a
    /// tenth and 10 MB.
    fn must_report(&mut self, least: u64, what: &str) -> Result<(), String> {
        let mut last = (0, 0);
        let holds = wait_until(|| {
            last = self.growth()?;
            let (used, resident) = last;
            Ok(used >= least && used.abs_diff(resident) <= used.max(resident) / 10 + 10 * MIB)
        })?;
        let (used, resident) = last;
        ensure(holds, || {
            let info = info(&mut self.client, "memory").unwrap_or_default();
            format!("{what}: {used} reported, {resident} resident, {least} expected:\n{info}")
        })
    }

    /// Waits until the reported growth is nearly zero again.
    fn must_fall(&mut self, what: &str) -> Result<(), String> {
        let mut last = (0, 0);
        let holds = wait_until(|| {
            last = self.growth()?;
            Ok(last.0 < 4 * MIB)
        })?;
        ensure(holds, || format!("{what}: {} reported, {} resident", last.0, last.1))
    }

    fn hash(&mut self, key: &str, elements: u64, size: u64) -> Result<(), String> {
        let (elements, size) = (elements.to_string(), size.to_string());
        let words = ["DEBUG", "POPULATE", "1", key, &size, "RAND", "TYPE", "hash", "ELEMENTS"];
        let reply = self.client.command(&[&words[..], &[&*elements]].concat()).map_err(text)?;
        ensure(!reply.is_error(), || format!("{reply:?}"))
    }

    /// A set of `thousands` thousand members, 500 bytes each.
    fn set(&mut self, key: &str, thousands: u64) -> Result<(), String> {
        for thousand in 0..thousands {
            let members = (0..1_000).map(|at| format!("{key}{thousand}:{at:0>490}"));
            let words: Vec<String> =
                ["SADD".to_owned(), key.to_owned()].into_iter().chain(members).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let added = self.client.command(&words).map_err(text)?;
            ensure(added.int() == Some(1_000), || format!("{added:?}"))?;
        }
        Ok(())
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

    /// A number in CLIENT LIST for the client with this name; `None` when the client is gone.
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

/// Clients that have sent a command and read only the first byte of the reply.
fn unread(server: &Server, command: &str, keys: &[String]) -> Result<Vec<Client>, String> {
    keys.iter().map(|key| unread_one(server, key, &format!("{command} {key}"))).collect()
}

/// One client of [`unread`], named `of:` plus its key.
fn unread_one(server: &Server, name: &str, line: &str) -> Result<Client, String> {
    let mut client = server.client().map_err(text)?;
    client.words(&format!("CLIENT SETNAME of:{name}")).map_err(text)?;
    client.send(&encode(&line.split(' ').collect::<Vec<_>>())).map_err(text)?;
    let first = client.socket().read(&mut [0]).map_err(text)?;
    ensure(first == 1, || format!("no reply to {line}"))?;
    Ok(client)
}

/// Runs a round with the least amount of data; in a soak, further rounds with multiples of it.
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

/// Two hashes are read by three clients each, then deleted; each hash counts once.
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
        watched.must_report(full / 2, "unread hashes")?;
        let (used, _) = watched.growth()?;
        ensure(used < full + full / 4 + 10 * MIB, || format!("{used} of {full} reported"))?;
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
        ensure(before < Some(BYTES / 2), || format!("{before:?} reported of a key that is there"))?;
        watched.client.words(&format!("DEL {}", keys.join(" "))).map_err(text)?;
        watched.must_report(keys.len() as u64 * BYTES, "unread strings")?;
        let pinned = watched.of_client("of:key:0", "omem")?;
        ensure(pinned >= Some(BYTES), || format!("{pinned:?} pinned by a reader"))?;
        drop(readers);
        watched.must_fall("strings that nobody reads")?;
        Ok(())
    })
}

/// MGET of strings, random draws from a hash, and a union of sets; everything is deleted before it
/// is read.
fn pinned_by_several(stage: &Stage) -> Result<(), String> {
    rounds(stage, |times| {
        let mut watched = Watched::start(stage)?;
        (0..4 * times).try_for_each(|at| watched.string(&format!("s{at}"), 10 * MIB))?;
        let strings = watched.keys()?;
        watched.hash("h", 40_000 * times, 500)?;
        watched.set("a", 40 * times)?;
        watched.set("b", 40 * times)?;
        let keys = watched.keys()?;
        let of = |word: &str| keys.iter().find(|key| key.starts_with(word)).cloned();
        let (hash, one, two) = (of("h").unwrap_or_default(), of("a"), of("b"));
        let sets = format!("{} {}", one.unwrap_or_default(), two.unwrap_or_default());
        let (full, _) = watched.growth()?;
        let lines = [
            ("strings", format!("MGET {}", strings.join(" ")), 40 * MIB * times),
            ("hash", format!("HRANDFIELD {hash} -10000000"), 16 * MIB * times),
            ("sets", format!("SUNION {sets}"), 32 * MIB * times),
        ];
        let mut readers = Vec::new();
        for (name, line, bytes) in &lines {
            readers.push(unread_one(&watched.server, name, line)?);
            let before = watched.of_client(&format!("of:{name}"), "omem")?;
            ensure(before < Some(bytes / 2), || format!("{line}: {before:?} while it is there"))?;
        }
        watched.client.words(&format!("DEL {}", keys.join(" "))).map_err(text)?;
        watched.must_report(full - full / 4, "replies of several values")?;
        for (name, line, bytes) in &lines {
            let pinned = watched.of_client(&format!("of:{name}"), "omem")?;
            ensure(pinned >= Some(bytes / 2), || format!("{line}: {pinned:?} of {bytes}"))?;
        }
        drop(readers);
        watched.must_fall("values that nobody reads")
    })
}

/// Only deleted values that are still being read count as pinned. The categories sum to the used
/// memory.
fn pinned_by_itself(stage: &Stage) -> Result<(), String> {
    const BYTES: u64 = 20 * MIB;
    const KINDS: [&str; 6] = ["startup", "clients", "dataset", "pinned", "freeing", "other"];
    let mut watched = Watched::start(stage)?;
    let pinned = |watched: &mut Watched| -> Result<u64, String> {
        let info = info(&mut watched.client, "memory")?;
        let number = |name: &str| number_of(&info, name).unwrap_or(u64::MAX / 8);
        let sum: u64 = KINDS.iter().map(|kind| number(&format!("used_memory_{kind}"))).sum();
        ensure(sum == number("used_memory"), || format!("{sum} in all: {info}"))?;
        let clients = number("used_memory_clients") + number("used_memory_pinned");
        ensure(number("mem_clients_normal") == clients, || format!("clients: {info}"))?;
        Ok(number("used_memory_pinned"))
    };
    let must_be = |watched: &mut Watched, least: u64, most: u64, when: &str| {
        let is = pinned(watched)?;
        ensure((least..=most).contains(&is), || format!("{is} pinned {when}"))
    };
    must_be(&mut watched, 0, 0, "at first")?;
    let keys = ["one", "two"].map(str::to_owned);
    keys.iter().try_for_each(|key| watched.string(key, BYTES))?;
    let readers = unread(&watched.server, "GET", &keys)?;
    must_be(&mut watched, 0, 0, "of keys that are there")?;
    watched.client.words("DEL one two").map_err(text)?;
    // Output in transit to the socket counts as the clients'.
    let pinned_least = 2 * BYTES - MIB;
    must_be(&mut watched, pinned_least, 2 * BYTES + MIB, "by two readers")?;
    let stats = watched.client.words("MEMORY STATS").map_err(text)?;
    let stats = stats.items().unwrap_or_default();
    let of = |name: &[u8]| stats.chunks(2).find(|pair| pair[0].text() == Some(name));
    let reported = of(b"readers.pinned").and_then(|pair| pair[1].int());
    ensure(reported >= i64::try_from(pinned_least).ok(), || format!("MEMORY STATS: {reported:?}"))?;
    drop(readers);
    watched.must_fall("strings that nobody reads")?;
    must_be(&mut watched, 0, 0, "at last")
}

/// A client named `name` that has sent `sent` bytes of an argument announced with `announced`
/// bytes.
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
        watched.must_report(count * SENT, "requests that arrive")?;
        let (_, resident) = watched.growth()?;
        let most = count * (SENT + SENT / 20) + 16 * MIB;
        ensure(resident < most, || format!("{resident} resident of {count} times {SENT}"))?;
        let query = watched.of_client("sender:3", "qbuf")?;
        ensure(query == Some(SENT), || format!("qbuf={query:?}"))?;
        let peak = reported(&mut watched.client, "clients", "client_recent_max_input_buffer")?;
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
    ensure(holds, || format!("{} reported, {} resident of idle writers", last.0, last.1))
}

/// Requests of many short arguments, for hashes of both cores.
fn long_requests(stage: &Stage) -> Result<(), String> {
    const FIELDS: i64 = 300_000;
    let mut watched = Watched::start(stage)?;
    let mut writer = watched.server.client().map_err(text)?;
    let names: Vec<String> = (0..FIELDS).map(|at| format!("field:{at}")).collect();
    let pairs: Vec<&str> = names.iter().flat_map(|name| [name.as_str(), "v"]).collect();
    for key in ["a", "b", "c", "d"] {
        let added = writer.command(&[&["HSET", key], &pairs[..]].concat()).map_err(text)?;
        ensure(added.int() == Some(FIELDS), || format!("HSET {key}: {added:?}"))?;
    }
    drop(writer);
    watched.client.words("FLUSHALL").map_err(text)?;
    watched.must_fall("requests that were answered")
}

/// Members of 8 MiB, in sets of both cores.
fn reply_buffers(stage: &Stage) -> Result<(), String> {
    let mut watched = Watched::start(stage)?;
    let member = "m".repeat(usize::try_from(8 * MIB).map_err(text)?);
    for key in ["a", "b", "c", "d"] {
        watched.client.command(&["SADD", key, &member]).map_err(text)?;
        for line in [format!("SMEMBERS {key}"), format!("SRANDMEMBER {key}"), format!("SPOP {key}")]
        {
            let reply = watched.client.words(&line).map_err(text)?;
            ensure(reply.encode().len() > member.len(), || format!("{line}: a short reply"))?;
        }
    }
    watched.must_fall("replies that were read")
}

/// Names and arguments are copied into the reply.
fn long_replies(stage: &Stage) -> Result<(), String> {
    /// The bytes of a reply in the sockets of both ends belong to the system.
    const OF_SOCKETS: u64 = 12 * MIB;
    let long = "m".repeat(usize::try_from(24 * MIB + OF_SOCKETS).map_err(text)?);
    for command in ["ECHO", "PING", "HGETALL", "SMEMBERS"] {
        let mut watched = Watched::start_with(stage, &["--name-max-bytes", "64mb"])?;
        let mut reader = watched.server.client().map_err(text)?;
        let stored = match command {
            "HGETALL" => watched.client.command(&["HSET", "key", &long, "v"]),
            "SMEMBERS" => watched.client.command(&["SADD", "key", &long]),
            _ => watched.client.words("PING"),
        };
        let stored = stored.map_err(text)?;
        ensure(!stored.is_error(), || format!("{command}: {stored:?}"))?;
        let word = if command.len() > 4 { "key" } else { &long };
        reader.send(&encode(&[command, word])).map_err(text)?;
        let first = reader.socket().read(&mut [0]).map_err(text)?;
        ensure(first == 1, || format!("no reply to {command}"))?;
        watched.must_report(24 * MIB, command)?;
        drop(reader);
        watched.client.words("DEL key").map_err(text)?;
        watched.must_fall(command)?;
    }
    Ok(())
}

fn copies(stage: &Stage) -> Result<(), String> {
    let mut watched = Watched::start(stage)?;
    watched.hash("{h}", 50_000, 500)?;
    let key = watched.keys()?.remove(0);
    for at in 0..10 {
        must_say(&mut watched.client, &format!("COPY {key} {key}{at}"), "1")?;
    }
    watched.must_report(25 * MIB, "a hash and its copies")?;
    let (used, _) = watched.growth()?;
    ensure(used < 60 * MIB, || format!("{used} reported of a hash and its copies"))
}

/// A path of 16 KB may take half a megabyte when parsed.
fn paths(stage: &Stage) -> Result<(), String> {
    let mut watched = Watched::start(stage)?;
    let path = format!("$[{}0]", "9,".repeat(8_000));
    let mut words = vec!["JSON.MSET"];
    (0..400).for_each(|_| words.extend(["k", &path, "1"]));
    must_say(&mut watched.client, "JSON.SET k $ [0]", "OK")?;
    let reply = watched.client.command(&words).map_err(text)?;
    ensure(reply.text() == Some(b"OK"), || format!("{reply:?}"))?;
    let peak = watched.server.process().peak_bytes().saturating_sub(watched.resident);
    ensure(peak < 64 * MIB, || format!("{peak} bytes for paths of 6 MB"))
}

/// Memory other than the keys' counts, too, until it is freed.
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
    let mut query = None; // Output in transit when the other client is closed counts, too.
    let is_all = wait_until(|| {
        query = watched.of_client("below", "qbuf")?;
        Ok(query == Some(900_000))
    })?;
    ensure(is_all, || format!("one below the limit: qbuf={query:?}"))?;
    let line = "Closing client that reached max query buffer length: id=";
    ensure(watched.server.logs(line, PATIENCE), || watched.server.log())?;
    let line = "(qbuf initial bytes: \"aaaaaaaa";
    ensure(watched.server.logs(line, PATIENCE), || watched.server.log())
}

/// A reader of an existing value pins nothing; a reader of a deleted one pins everything unread.
fn output_limits(stage: &Stage) -> Result<(), String> {
    const CLOSED: &str = "closed for overcoming of output buffer limits.";
    for (limits, set) in [("hard", "normal 10mb 0 0"), ("soft", "normal 0 10mb 1")] {
        let mut watched = Watched::start(stage)?;
        let words = ["CONFIG", "SET", "client-output-buffer-limit", set];
        watched.client.command(&words).map_err(text)?;
        watched.string("large", 30 * MIB)?;
        watched.string("small", 5 * MIB)?;
        let readers = unread(&watched.server, "GET", &["large".to_owned(), "small".to_owned()])?;
        let several = unread_one(&watched.server, "several", "MGET small large")?;
        std::thread::sleep(Duration::from_millis(1_500));
        let there = watched.of_client("of:large", "omem")?;
        ensure(there.is_some(), || format!("{limits}: closed before the value was gone"))?;
        watched.client.words("DEL large small").map_err(text)?;
        for name in ["of:large", "of:several"] {
            let gone = wait_until(|| Ok(watched.of_client(name, "omem")?.is_none()))?;
            ensure(gone, || format!("{limits}: {name} is beyond the limit and stays"))?;
        }
        ensure(watched.server.logs(CLOSED, PATIENCE), || watched.server.log())?;
        let small = watched.of_client("of:small", "omem")?;
        ensure(small >= Some(5 * MIB), || format!("{limits}: one below the limit: {small:?}"))?;
        drop((readers, several));
    }
    Ok(())
}

/// Only the largest client is closed: 30 MB are held, and 20 MB are allowed.
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
        std::thread::sleep(Duration::from_millis(300)); // Time in which it could close more.
        let evicted = reported(&mut watched.client, "stats", "evicted_clients")?;
        ensure(evicted == 1, || format!("{limit}: {evicted} were closed"))?;
        for name in ["spared", "small"] {
            let there = watched.of_client(name, "qbuf")?;
            ensure(there.is_some(), || format!("{limit}: {name} is gone too"))?;
        }
    }
    Ok(())
}

/// A turn visits no unused database, and commands over all databases visit them in portions.
fn very_many_databases(stage: &Stage) -> Result<(), String> {
    const MANY: u64 = 50_000;
    const GETS: u64 = 200;
    /// Visiting this many databases takes a multiple of this time, in any build.
    const PORTION_US: u64 = 20_000;
    const TRIES: usize = 5;
    let server = stage.server_with(&["--databases", "100000"])?;
    let mut client = server.client().map_err(text)?;
    let cost_of_get = |client: &mut Client| -> Result<Duration, String> {
        let before = server.process().cpu_time();
        for _ in 0..GETS {
            must_say(client, "GET k", "v")?;
        }
        Ok(server.process().cpu_time() - before)
    };
    must_say(&mut client, "SET k v PX 100000000", "OK")?;
    let one = cost_of_get(&mut client)?;
    fill_databases(&mut client, MANY)?;
    let many = cost_of_get(&mut client)?;
    let most = one * 4 + Duration::from_millis(GETS / 2);
    ensure(many < most, || format!("{GETS} GETs took {one:?}, then {many:?}"))?;

    let mut longest = u64::MAX;
    for _ in 0..TRIES {
        must_say(&mut client, "CONFIG RESETSTAT", "OK")?;
        let lines = info(&mut client, "keyspace")?;
        let count = lines.lines().filter(|line| line.ends_with(":keys=1,expires=1,avg_ttl=0"));
        ensure(count.count() as u64 == MANY, || lines.clone())?;
        ensure(lines.contains("\r\ndb9:") && lines.contains("\r\ndb49999:"), || lines.clone())?;
        longest = longest.min(reported(&mut client, "slices", "slice_max_us")?);
    }
    ensure(longest < PORTION_US, || format!("INFO keyspace: a slice of {longest} us"))?;
    must_say(&mut client, "FLUSHALL", "OK")?;
    let freed = wait_until(|| Ok(reported(&mut client, "memory", "used_memory_freeing")? == 0))?;
    ensure(freed, || "what FLUSHALL let go of is not freed".to_owned())?;
    ensure(!info(&mut client, "keyspace")?.contains("db"), || "keys are left".to_owned())?;
    must_say(&mut client, "GET k", "")
}

/// Sets a key with a distant deadline in each of `count` databases.
fn fill_databases(client: &mut Client, count: u64) -> Result<(), String> {
    const AT_ONCE: u64 = 500;
    for first in (0..count).step_by(AT_ONCE as usize) {
        let mut requests = Vec::new();
        for db in first..first + AT_ONCE {
            let (db, at) = (db.to_string(), (100_000_000 + db).to_string());
            requests.extend(encode(&["SELECT", &db]));
            requests.extend(encode(&["SET", "k", "v", "PX", &at]));
        }
        client.send(&requests).map_err(text)?;
        for _ in 0..2 * AT_ONCE {
            client.receive().map_err(text)?;
        }
    }
    Ok(())
}

/// Commands over all databases visit only those in use.
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
    reported(&mut client, "memory", "used_memory")?;
    let more = server.process().resident_bytes().saturating_sub(small);
    ensure(more < 8 * MIB, || format!("it took {more} bytes more than with sixteen"))
}
