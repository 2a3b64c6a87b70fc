//! Snapshots: their contents, and the file after failures.

use crate::{Asks, Check, Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::{Client, Server, server};
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("redis-server and Darter load each other's files",         Asks::More,    both_ways),
    ("SIGTERM under load saves all that was acknowledged",      Asks::AsRedis, end_under_load),
    ("SHUTDOWN saves if there are save points, or if told so",  Asks::AsRedis, shutdown),
    ("a save point saves by itself",                            Asks::AsRedis, save_point),
    ("a failed snapshot leaves the old file, and stops writes", Asks::AsRedis, failure),
    ("a snapshot that fills the disk leaves the old file",      Asks::AsRedis, full_disk),
    ("SIGTERM without a place to save to does not end it",      Asks::AsRedis, no_end_unsaved),
    ("a kill at any moment leaves a whole file",                Asks::AsRedis, kills),
    ("BGSAVE CANCEL leaves the old file",                       Asks::More,    cancel),
    ("a second request to end makes no second snapshot",        Asks::More,    ends_at_once),
    ("an end without saving leaves no half of a file",          Asks::AsRedis, end_while_saving),
    ("a failed snapshot logs its reason",                       Asks::More,    reasons),
    ("snapshots do not overlap",                                Asks::More,    overlaps),
    ("readers do not wait for a snapshot beside writers",       Asks::More,    amid_writers),
    ("writers of other keys do not wait for large values",      Asks::More,    beside_large_values),
];

pub(crate) const SOON: Duration = Duration::from_secs(30);
/// Every type that DEBUG POPULATE may support; refused types are skipped.
const TYPES: &[&str] = &["string", "hash", "set", "list", "zset", "stream"];

pub(crate) fn say(client: &mut Client, words: &str) -> Result<String, String> {
    let reply = client.words(words).map_err(text)?;
    let line = reply.text().map(|text| String::from_utf8_lossy(text).into_owned());
    Ok(line.unwrap_or_else(|| format!("{reply:?}")))
}

pub(crate) fn expect(client: &mut Client, words: &str, wanted: &str) -> Result<(), String> {
    let told = say(client, words)?;
    ensure(told.starts_with(wanted), || format!("{words}: {told}, not {wanted}"))
}

/// Waits until INFO persistence has this line.
pub(crate) fn wait_for(client: &mut Client, line: &str) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let info = say(client, "INFO persistence")?;
        if info.contains(line) {
            return Ok(());
        }
        ensure(start.elapsed() < SOON, || format!("no {line} in\n{info}"))?;
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A server on a folder that outlives it.
fn start_on(stage: &Stage, file: &Path, more: &[&str]) -> Result<Server, String> {
    let place = |folder: &Path| fs::copy(file, folder.join("dump.rdb")).map(|_| ());
    Server::subject_in(stage.shape, more, place).map_err(text)
}

pub(crate) fn digest(client: &mut Client) -> Result<String, String> {
    say(client, "DEBUG DIGEST")
}

/// Data of all types and sizes, some of it compressible, some with deadlines.
pub(crate) fn fill(client: &mut Client, prng: &mut Prng) -> Result<(), String> {
    for (at, name) in TYPES.iter().enumerate() {
        for (keys, elements) in [(40, 3), (5, 200), (1, 3_000)] {
            let size = 1 + prng.below(60);
            let words = format!(
                "DEBUG POPULATE {keys} {at}-{elements} {size} RAND TYPE {name} ELEMENTS {elements}"
            );
            let _ = say(client, &words)?; // Refused, if the type is not supported.
        }
    }
    for key in 0..200_u64 {
        let len = prng.below(if key % 20 == 0 { 300_000 } else { 900 });
        let len = usize::try_from(len).unwrap_or(0);
        let value = if prng.chance(50) { prng.bytes(len..=len) } else { vec![b'a'; len] };
        let name = format!("text-{key}");
        client.command(&[&b"SET"[..], name.as_bytes(), &value]).map_err(text)?;
        let number = prng.next_u64() >> prng.below(64);
        say(client, &format!("SET number-{key} {number}"))?;
        say(client, &format!("SADD numbers-{} {number}", key % 3))?;
        say(client, &format!("HSET mixed-{} f{key} {number}", key % 7))?;
        if prng.chance(30) {
            let deadline = 1_900_000_000_000 + prng.below(1_000_000_000);
            say(client, &format!("PEXPIREAT {name} {deadline}"))?;
        }
    }
    expect(client, "SELECT 5", "OK")?;
    expect(client, "SET elsewhere 1", "OK")?;
    expect(client, "SELECT 0", "OK")
}

fn both_ways(stage: &Stage) -> Result<(), String> {
    for seed in 0..3 {
        let mut prng = Prng::from_seed(seed);
        let packs = if seed % 2 == 0 { "yes" } else { "no" };
        let here = stage.server_with(&["--rdbcompression", packs, "--rdbchecksum", packs])?;
        let mut client = here.client().map_err(text)?;
        fill(&mut client, &mut prng)?;
        expect(&mut client, "SAVE", "OK")?;
        let sum = digest(&mut client)?;
        let there = Server::oracle().map_err(text)?;
        let mut oracle = there.client().map_err(text)?;
        fs::copy(here.folder().join("dump.rdb"), there.folder().join("dump.rdb")).map_err(text)?;
        expect(&mut oracle, "DEBUG RELOAD NOSAVE NOFLUSH MERGE", "OK")?;
        let theirs = digest(&mut oracle)?;
        ensure(theirs == sum, || format!("seed {seed}: {sum} here, {theirs} in redis-server"))?;
        expect(&mut oracle, "SAVE", "OK")?;
        let again = start_on(stage, &there.folder().join("dump.rdb"), &[])?;
        let ours = digest(&mut again.client().map_err(text)?)?;
        ensure(ours == sum, || format!("seed {seed}: {sum} was saved, {ours} came back"))?;
        let again = start_on(stage, &here.folder().join("dump.rdb"), &[])?;
        let ours = digest(&mut again.client().map_err(text)?)?;
        ensure(ours == sum, || format!("seed {seed}: {sum} was saved, {ours} was loaded here"))?;
    }
    Ok(())
}

/// Clients count as fast as they can, each with its own counter. Returns the last acknowledged
/// number of each when the server ended.
fn count_until_the_end(server: &Server) -> Result<Vec<std::thread::JoinHandle<i64>>, String> {
    let mut counters = Vec::new();
    for at in 0..4 {
        let mut client = server.client().map_err(text)?;
        counters.push(std::thread::spawn(move || {
            let (mut last, name) = (0, format!("counter-{at}"));
            while let Ok(reply) = client.command(&["INCR", &name]) {
                let Some(count) = reply.int() else { break };
                last = count;
            }
            last
        }));
    }
    Ok(counters)
}

fn end_under_load(stage: &Stage) -> Result<(), String> {
    let mut server = stage.server_with(&["--save", "3600 1"])?;
    let mut client = server.client().map_err(text)?;
    let populate = "DEBUG POPULATE 50000";
    expect(&mut client, populate, "OK")?;
    let counters = count_until_the_end(&server)?;
    std::thread::sleep(Duration::from_millis(200));
    server.signal(Signal::TERM).map_err(text)?;
    let status = server.wait_for_exit(SOON).map_err(text)?.ok_or("it runs on")?;
    ensure(status.success(), || format!("{status}; its log:\n{}", server.log()))?;
    let acknowledged: Vec<i64> =
        counters.into_iter().map(|counter| counter.join().unwrap_or(-1)).collect();
    let again = start_on(stage, &server.folder().join("dump.rdb"), &[])?;
    let mut client = again.client().map_err(text)?;
    for (at, count) in acknowledged.iter().enumerate() {
        let found = say(&mut client, &format!("GET counter-{at}"))?;
        // One more increment may have been counted whose reply did not arrive.
        let is_there =
            found.parse::<i64>().is_ok_and(|found| (*count..=count + 1).contains(&found));
        ensure(*count > 0 && is_there, || format!("{count} acknowledged, {found} saved"))?;
    }
    expect(&mut client, "GET key:49999", "value:49999")
}

fn shutdown(stage: &Stage) -> Result<(), String> {
    for (points, words, is_saved) in [
        ("", "SHUTDOWN", false),
        ("", "SHUTDOWN SAVE", true),
        ("3600 1", "SHUTDOWN", true),
        ("3600 1", "SHUTDOWN NOSAVE", false),
    ] {
        let mut server = stage.server_with(&["--save", points])?;
        let mut client = server.client().map_err(text)?;
        expect(&mut client, "SET k v", "OK")?;
        let words: Vec<&str> = words.split(' ').collect();
        client.send(&darter_testkit::client::encode(&words)).map_err(text)?;
        let answer = client.read_to_end().map_err(text)?;
        ensure(answer.is_empty(), || format!("{:?}", String::from_utf8_lossy(&answer)))?;
        server.wait_for_exit(SOON).map_err(text)?.ok_or("it runs on")?;
        let has_file = server.folder().join("dump.rdb").exists();
        ensure(has_file == is_saved, || format!("'{points}', {words:?}: saved {has_file}"))?;
    }
    Ok(())
}

fn save_point(stage: &Stage) -> Result<(), String> {
    let server = stage.server_with(&["--save", "1 2"])?;
    let mut client = server.client().map_err(text)?;
    expect(&mut client, "SET a 1", "OK")?;
    std::thread::sleep(Duration::from_millis(2_500));
    ensure(!server.folder().join("dump.rdb").exists(), || "saved after one change".into())?;
    expect(&mut client, "SET b 1", "OK")?;
    wait_for(&mut client, "rdb_changes_since_last_save:0")?;
    ensure(server.folder().join("dump.rdb").exists(), || "there is no file".into())
}

/// A folder with the name of the file: the snapshot can be written, but not renamed into place.
fn failure(stage: &Stage) -> Result<(), String> {
    let server = stage.server_with(&["--save", "3600 1"])?;
    let mut client = server.client().map_err(text)?;
    let place = server.folder().join("dump.rdb");
    expect(&mut client, "SET k v", "OK")?;
    let mut queued = server.client().map_err(text)?;
    expect(&mut queued, "MULTI", "OK")?;
    expect(&mut queued, "SET k w", "QUEUED")?;
    fs::create_dir(&place).map_err(text)?;
    expect(&mut client, "BGSAVE", "Background saving started")?;
    wait_for(&mut client, "rdb_last_bgsave_status:err")?;
    for words in ["SET k w", "DEL k", "FLUSHALL", "PING"] {
        expect(&mut client, words, "MISCONF Redis is configured to save RDB snapshots")?;
    }
    for (words, begin) in [("SET k w", "MISCONF"), ("GET k", "QUEUED")] {
        expect(&mut client, "MULTI", "OK")?;
        expect(&mut client, words, begin)?;
        let end = client.words("EXEC").map_err(text)?;
        ensure(end.is_error() == (begin == "MISCONF"), || format!("{words}, EXEC: {end:?}"))?;
    }
    expect(&mut queued, "EXEC", "EXECABORT Transaction discarded because of: ")?;
    expect(&mut client, "GET k", "v")?;
    expect(&mut client, "SAVE", "ERR")?;
    let leftovers = fs::read_dir(server.folder()).map_err(text)?.flatten();
    let names: Vec<_> = leftovers.map(|entry| entry.file_name()).collect();
    let is_clean = !names.iter().any(|name| name.to_string_lossy().starts_with("temp-"));
    ensure(is_clean, || format!("{names:?}"))?;
    expect(&mut client, "CONFIG SET stop-writes-on-bgsave-error no", "OK")?;
    expect(&mut client, "SET k w", "OK")?;
    expect(&mut client, "CONFIG SET stop-writes-on-bgsave-error yes", "OK")?;
    expect(&mut client, "SET k x", "MISCONF")?;
    fs::remove_dir(&place).map_err(text)?;
    expect(&mut client, "BGSAVE", "Background saving started")?;
    wait_for(&mut client, "rdb_last_bgsave_status:ok")?;
    expect(&mut client, "SET k x", "OK")
}

/// The kernel refuses a file above this many bytes, as a full disk does.
pub(crate) fn limit_files(server: &Server, bytes: &str) -> Result<(), String> {
    let mut command = Command::new("prlimit");
    command.arg("--pid").arg(server.process().0.to_string()).arg(format!("--fsize={bytes}"));
    let status = command.status().map_err(text)?;
    ensure(status.success(), || format!("prlimit: {status}"))
}

fn full_disk(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    expect(&mut client, "DEBUG POPULATE 1000", "OK")?;
    expect(&mut client, "SAVE", "OK")?;
    let place = server.folder().join("dump.rdb");
    let before = fs::read(&place).map_err(text)?;
    expect(&mut client, "DEBUG POPULATE 200000 more 50", "OK")?;
    limit_files(&server, "1000000:1000000")?;
    for words in ["SAVE", "BGSAVE", "SAVE"] {
        say(&mut client, words)?;
        wait_for(&mut client, "rdb_bgsave_in_progress:0")?;
        let now = fs::read(&place).map_err(text)?;
        ensure(now == before, || format!("{words}: the file has changed"))?;
    }
    wait_for(&mut client, "rdb_last_bgsave_status:err")?;
    expect(&mut client, "GET key:999", "value:999")
}

fn no_end_unsaved(stage: &Stage) -> Result<(), String> {
    let mut server = stage.server_with(&["--save", "3600 1"])?;
    let mut client = server.client().map_err(text)?;
    let place = server.folder().join("dump.rdb");
    expect(&mut client, "SET k v", "OK")?;
    fs::create_dir(&place).map_err(text)?;
    for tries in 1..=2 {
        server.signal(Signal::TERM).map_err(text)?;
        let ended = server.wait_for_exit(Duration::from_millis(500)).map_err(text)?;
        ensure(ended.is_none(), || "it ended, and nothing was saved".into())?;
        let told = server.log().matches("SHUTDOWN NOSAVE ends without saving").count();
        ensure(told == tries, || format!("{told} of {tries} failures in\n{}", server.log()))?;
    }
    expect(&mut client, "SHUTDOWN", "ERR Errors trying to SHUTDOWN. Check logs.")?;
    expect(&mut client, "GET k", "v")?;
    fs::remove_dir(&place).map_err(text)?;
    server.signal(Signal::TERM).map_err(text)?;
    let status = server.wait_for_exit(SOON).map_err(text)?.ok_or("it runs on")?;
    ensure(status.success() && place.is_file(), || format!("{status}; {}", server.log()))
}

fn kills(stage: &Stage) -> Result<(), String> {
    let mut prng = Prng::from_seed(1);
    let kept = std::env::temp_dir().join(format!("darter-kills-{}.rdb", std::process::id()));
    let rounds = 5 + stage.soak.as_secs() * 5;
    for round in 0..rounds {
        let server = if kept.exists() { start_on(stage, &kept, &[])? } else { stage.server()? };
        let mut client = server.client().map_err(text)?;
        if round == 0 {
            expect(&mut client, "DEBUG POPULATE 30000", "OK")?;
            expect(&mut client, "SAVE", "OK")?;
        }
        expect(&mut client, "GET key:29999", "value:29999")?;
        let counters = count_until_the_end(&server)?;
        expect(&mut client, "BGSAVE", "Background saving started")?;
        std::thread::sleep(Duration::from_millis(prng.below(120)));
        server.signal(Signal::KILL).map_err(text)?;
        counters.into_iter().for_each(|counter| drop(counter.join()));
        let place = server.folder().join("dump.rdb");
        if place.exists() {
            fs::copy(&place, &kept).map_err(text)?;
        }
        let checked = Command::new("redis-check-rdb").arg(&kept).output().map_err(text)?;
        ensure(checked.status.success(), || {
            format!("round {round}: {}", String::from_utf8_lossy(&checked.stdout))
        })?;
    }
    fs::remove_file(&kept).map_err(text)
}

fn cancel(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    expect(&mut client, "SET k v", "OK")?;
    expect(&mut client, "SAVE", "OK")?;
    let place = server.folder().join("dump.rdb");
    let before = fs::read(&place).map_err(text)?;
    expect(&mut client, "DEBUG POPULATE 300000", "OK")?;
    expect(&mut client, "BGSAVE", "Background saving started")?;
    expect(&mut client, "BGSAVE", "ERR Background save already in progress")?;
    expect(&mut client, "SAVE", "ERR Background save already in progress")?;
    expect(&mut client, "BGSAVE CANCEL", "Background saving cancelled")?;
    wait_for(&mut client, "rdb_bgsave_in_progress:0")?;
    expect(&mut client, "BGSAVE CANCEL", "ERR Background saving is currently not in progress")?;
    ensure(fs::read(&place).map_err(text)? == before, || "the file has changed".into())?;
    wait_for(&mut client, "rdb_last_bgsave_status:ok")?;
    ensure(server::subject_is_redis() || server.log().contains("CANCEL"), || server.log())
}

fn has_half_a_file(server: &Server) -> Result<bool, String> {
    let mut names = fs::read_dir(server.folder()).map_err(text)?.flatten();
    Ok(names.any(|entry| entry.file_name().to_string_lossy().starts_with("temp-")))
}

fn ends_at_once(stage: &Stage) -> Result<(), String> {
    for has_signal in [false, true] {
        let mut server = stage.server_with(&["--save", "3600 1"])?;
        let mut clients = [server.client().map_err(text)?, server.client().map_err(text)?];
        expect(&mut clients[0], "DEBUG POPULATE 300000", "OK")?;
        if has_signal {
            server.signal(Signal::TERM).map_err(text)?;
            std::thread::sleep(Duration::from_millis(100)); // Until the main thread looks.
        }
        for client in &mut clients {
            client.send(&darter_testkit::client::encode(&["SHUTDOWN"])).map_err(text)?;
        }
        for mut client in clients {
            let answer = client.read_to_end().map_err(text)?;
            ensure(answer.is_empty(), || String::from_utf8_lossy(&answer).into_owned())?;
        }
        server.wait_for_exit(SOON).map_err(text)?.ok_or("it runs on")?;
        let log = server.log();
        ensure(!log.contains("saving failed"), || log.clone())?;
        let again = start_on(stage, &server.folder().join("dump.rdb"), &[])?;
        expect(&mut again.client().map_err(text)?, "GET key:299999", "value:299999")?;
    }
    Ok(())
}

fn end_while_saving(stage: &Stage) -> Result<(), String> {
    // The state of a core at its end determines what the writer still waits for.
    (0..4).try_for_each(|_| end_once_while_saving(stage))
}

fn end_once_while_saving(stage: &Stage) -> Result<(), String> {
    let mut server = stage.server_with(&["--save", ""])?;
    let mut client = server.client().map_err(text)?;
    expect(&mut client, "DEBUG POPULATE 300000", "OK")?;
    expect(&mut client, "BGSAVE", "Background saving started")?;
    let start = Instant::now();
    while !has_half_a_file(&server)? {
        ensure(start.elapsed() < SOON, || "nothing is written".into())?;
    }
    server.signal(Signal::TERM).map_err(text)?;
    server.wait_for_exit(SOON).map_err(text)?.ok_or("it runs on")?;
    ensure(!has_half_a_file(&server)?, || "the temporary file is left behind".into())
}

/// Failures and their log lines: a file that cannot be created, one that cannot be renamed into
/// place, a full disk.
fn reasons(stage: &Stage) -> Result<(), String> {
    type Harm = fn(&Server) -> Result<(), String>;
    let harms: [(&str, Harm); 3] = [
        ("Is a directory", |server| fs::create_dir(server.folder().join("dump.rdb")).map_err(text)),
        ("Is a directory", |server| {
            let name = format!("temp-{}.rdb", server.process().0);
            fs::create_dir(server.folder().join(name)).map_err(text)
        }),
        ("File too large", |server| limit_files(server, "10000:10000")),
    ];
    for (why, harm) in harms {
        let server = stage.server_with(&["--save", "3600 1"])?;
        let mut client = server.client().map_err(text)?;
        expect(&mut client, "DEBUG POPULATE 10000", "OK")?;
        harm(&server)?;
        expect(&mut client, "BGSAVE", "Background saving started")?;
        wait_for(&mut client, "rdb_last_bgsave_status:err")?;
        expect(&mut client, "SET k v", "MISCONF")?;
        expect(&mut client, "SAVE", "ERR")?;
        let log = server.log();
        let told = log.lines().filter(|line| line.contains("saving failed") && line.contains(why));
        ensure(told.count() == 2, || format!("{why}:\n{log}"))?;
        expect(&mut client, "GET key:9999", "value:9999")?;
    }
    Ok(())
}

/// One client requests a snapshot while another client's is being written.
fn overlaps(stage: &Stage) -> Result<(), String> {
    const BUSY: &str = "ERR Background save already in progress";
    for second in
        ["SAVE", "BGSAVE", "BGSAVE SCHEDULE", "BGSAVE CANCEL", "SHUTDOWN", "SHUTDOWN NOSAVE"]
    {
        let mut server = stage.server_with(&["--save", "3600 1"])?;
        let mut client = server.client().map_err(text)?;
        expect(&mut client, "SET k v", "OK")?;
        expect(&mut client, "SAVE", "OK")?;
        expect(&mut client, "DEBUG POPULATE 300000", "OK")?;
        expect(&mut client, "BGSAVE SCHEDULE", "Background saving started")?;
        let is_whole = match second {
            "BGSAVE CANCEL" => {
                expect(&mut client, second, "Background saving cancelled")?;
                false
            }
            "SHUTDOWN" | "SHUTDOWN NOSAVE" => {
                let words: Vec<_> = second.split(' ').collect();
                client.send(&darter_testkit::client::encode(&words)).map_err(text)?;
                server.wait_for_exit(SOON).map_err(text)?.ok_or("it runs on")?;
                second == "SHUTDOWN"
            }
            _ => {
                expect(&mut client, second, BUSY)?;
                true
            }
        };
        if !second.starts_with("SHUTDOWN") {
            wait_for(&mut client, "rdb_bgsave_in_progress:0")?;
            wait_for(&mut client, "rdb_last_bgsave_status:ok")?;
        }
        ensure(!has_half_a_file(&server)?, || format!("{second}: half a file is left"))?;
        let again = start_on(stage, &server.folder().join("dump.rdb"), &[])?;
        let mut client = again.client().map_err(text)?;
        expect(&mut client, "GET k", "v")?;
        let wanted = if is_whole { "300001" } else { "1" };
        let keys = say(&mut client, "DBSIZE")?;
        ensure(keys.contains(wanted), || format!("{second}: {keys} keys, not {wanted}"))?;
    }
    Ok(())
}

/// Clients overwrite everything during a snapshot; writers and readers are still answered.
fn amid_writers(stage: &Stage) -> Result<(), String> {
    const KEYS: u64 = 200_000;
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    expect(&mut client, &format!("DEBUG POPULATE {KEYS}"), "OK")?;
    let mut writers = Vec::new();
    for seed in 0..4 {
        let mut writer = server.client().map_err(text)?;
        writers.push(std::thread::spawn(move || {
            let mut prng = Prng::from_seed(seed);
            for _ in 0..300 {
                let lines = (0..16).map(|_| format!("key:{}", prng.below(KEYS)));
                let lines = lines.map(|key| darter_testkit::client::encode(&["SET", &key, "w"]));
                writer.send(&lines.collect::<Vec<_>>().concat()).map_err(text)?;
                for _ in 0..16 {
                    writer.receive().map_err(text)?;
                }
            }
            Ok::<_, String>(())
        }));
    }
    for _ in 0..3 {
        expect(&mut client, "BGSAVE", "Background saving started")?;
        expect(&mut client, "SET other 1", "OK")?;
        expect(&mut client, "GET other", "1")?;
        wait_for(&mut client, "rdb_bgsave_in_progress:0")?;
    }
    for writer in writers {
        writer.join().map_err(|_| "a writer panicked")??;
    }
    Ok(())
}

/// Lists are written before the hash and the set in their segment. Pushes and pops on them copy
/// nothing, so no client is held, and closed connections are freed.
fn beside_large_values(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    for (kind, keys) in [("hash", 2), ("set", 2), ("list", 8)] {
        let words = format!("DEBUG POPULATE {keys} {kind} 10 RAND TYPE {kind} ELEMENTS 100000");
        expect(&mut client, &words, "OK")?;
    }
    let (mut mover, mut pusher) = (server.client().map_err(text)?, server.client().map_err(text)?);
    expect(&mut client, "CONFIG RESETSTAT", "OK")?;
    expect(&mut client, "BGSAVE", "Background saving started")?;
    let mut rounds = 0;
    while say(&mut client, "INFO persistence")?.contains("rdb_bgsave_in_progress:1") {
        let pop = darter_testkit::client::encode(&["BLPOP", "queue", "0"]);
        mover.send(&pop).map_err(text)?;
        let mut short = server.client().map_err(text)?;
        short.send(&darter_testkit::client::encode(&["BLPOP", "nothing", "0"])).map_err(text)?;
        pusher.words("RPUSH queue x").map_err(text)?;
        mover.receive().map_err(text)?;
        pusher.words(&format!("LPUSH small:{} y", rounds % 10)).map_err(text)?;
        drop(short);
        rounds += 1;
    }
    ensure(rounds > 10, || format!("the snapshot took {rounds} rounds"))?;
    wait_for(&mut client, "rdb_last_bgsave_status:ok")?;
    wait_for(&mut client, "rdb_writes_held:0")?;
    let start = Instant::now();
    while !say(&mut client, "INFO clients")?.contains("connected_clients:3") {
        ensure(start.elapsed() < SOON, || "closed connections stay".into())?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
