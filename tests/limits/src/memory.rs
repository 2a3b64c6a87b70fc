//! Memory: what is told of it, and what costs none.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::{Client, Server};

const MIB: u64 = 1 << 20;

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("two billion databases cost nothing until used", Asks::More, databases),
];

/// The number behind `name:` in a section of INFO.
fn told(client: &mut Client, section: &str, name: &str) -> Result<u64, String> {
    let info = client.command(&["INFO", section]).map_err(text)?;
    let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
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

fn resident(server: &Server) -> u64 {
    server.process().resident_bytes()
}

/// What goes through all databases goes through those in use.
fn databases(stage: &Stage) -> Result<(), String> {
    let small = resident(&stage.server()?);
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
    let more = resident(&server).saturating_sub(small);
    ensure(more < 8 * MIB, || format!("it took {more} bytes more than with sixteen"))
}
