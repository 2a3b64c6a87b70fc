//! Client tracking under load: the table stays within its bound, many readers and prefixes are
//! notified in slices and freed, and clients that do not read are closed.

use crate::subscribers::number_of;
use crate::{Asks, Check, Stage, ensure, slices, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Reply, Server};
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("a flood of reads stays within the table's bound", Asks::More,    flood),
    ("the readers of a key are notified in slices",     Asks::More,    many_readers),
    ("a hundred thousand prefixes are given back",      Asks::More,    many_prefixes),
    ("a client that reads no invalidations is closed",  Asks::AsRedis, deaf),
];

const PATIENCE: Duration = Duration::from_secs(30);

/// A client that tracks, in RESP3.
fn tracker(server: &Server, how: &str) -> Result<Client, String> {
    let mut client = server.client().map_err(text)?;
    client.words("HELLO 3").map_err(text)?;
    let reply = client.words(&format!("CLIENT TRACKING ON {how}")).map_err(text)?;
    ensure(reply.text() == Some(b"OK"), || format!("{how}: {reply:?}"))?;
    Ok(client)
}

fn is_push(reply: &Reply) -> bool {
    reply.items().and_then(<[Reply]>::first).and_then(Reply::text) == Some(b"invalidate")
}

/// Each evicted key is invalidated.
fn flood(stage: &Stage) -> Result<(), String> {
    const KEYS: usize = 20_000;
    const EACH: usize = 500;
    const MOST: u64 = 1_000;
    let server = stage.server_with(&["--tracking-table-max-keys", "1000"])?;
    let mut reader = tracker(&server, "")?;
    let mut told = 0;
    for from in (0..KEYS).step_by(EACH) {
        let gets = (from..from + EACH).flat_map(|at| encode(&["GET", &format!("key:{at}")]));
        reader.send(&gets.collect::<Vec<u8>>()).map_err(text)?;
        let mut answered = 0;
        while answered < EACH {
            match is_push(&reader.receive().map_err(text)?) {
                true => told += 1,
                false => answered += 1,
            }
        }
    }
    let mut client = server.client().map_err(text)?;
    let known = number_of(&mut client, "tracking_total_keys")?;
    ensure(known <= MOST, || format!("{known} keys are remembered"))?;
    let dropped = KEYS - usize::try_from(known).unwrap_or(0);
    while told < dropped {
        told += usize::from(is_push(&reader.receive().map_err(text)?));
    }
    client.words("CONFIG SET tracking-table-max-keys 10").map_err(text)?;
    let begun = Instant::now();
    while number_of(&mut client, "tracking_total_keys")? > 10 {
        ensure(begun.elapsed() < PATIENCE, || "the bound is not reached".to_owned())?;
    }
    slices::are_short(&mut client)
}

fn many_readers(stage: &Stage) -> Result<(), String> {
    const READERS: usize = 500;
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut reader = tracker(&server, "")?;
        reader.words("GET k").map_err(text)?;
        readers.push(reader);
    }
    ensure(number_of(&mut client, "tracking_total_items")? == READERS as u64, || {
        "not all are remembered".to_owned()
    })?;
    client.words("CONFIG RESETSTAT").map_err(text)?;
    client.words("SET k v").map_err(text)?;
    for reader in &mut readers {
        let push = reader.receive().map_err(text)?;
        ensure(is_push(&push), || format!("{push:?}"))?;
    }
    client.words("FLUSHALL").map_err(text)?;
    for reader in &mut readers {
        let push = reader.receive().map_err(text)?;
        ensure(is_push(&push), || format!("{push:?}"))?;
    }
    slices::are_short(&mut client)
}

fn many_prefixes(stage: &Stage) -> Result<(), String> {
    const PREFIXES: usize = 100_000;
    const EACH: usize = 5_000;
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let before = number_of(&mut client, "used_memory")?;
    let mut reader = tracker(&server, "BCAST PREFIX first")?;
    for from in (0..PREFIXES).step_by(EACH) {
        let names: Vec<String> = (from..from + EACH).map(|at| format!("app:{at:06}:")).collect();
        let mut words = vec!["CLIENT", "TRACKING", "ON", "BCAST"];
        names.iter().for_each(|name| words.extend(["PREFIX", name]));
        let reply = reader.command(&words).map_err(text)?;
        ensure(reply.text() == Some(b"OK"), || format!("{reply:?}"))?;
    }
    let known = number_of(&mut client, "tracking_total_prefixes")?;
    ensure(known == PREFIXES as u64 + 1, || format!("{known} prefixes"))?;
    for at in (0..PREFIXES).step_by(1_000) {
        client.command(&["SET", &format!("app:{at:06}:k"), "v"]).map_err(text)?;
        let push = reader.receive().map_err(text)?;
        ensure(is_push(&push), || format!("{push:?}"))?;
    }
    drop(reader);
    let begun = Instant::now();
    while number_of(&mut client, "tracking_total_prefixes")? > 0 {
        ensure(begun.elapsed() < PATIENCE, || "prefixes are left".to_owned())?;
    }
    let after = number_of(&mut client, "used_memory")?;
    ensure(after < before + 2_000_000, || format!("{before} bytes, then {after}"))?;
    slices::are_short(&mut client)
}

fn deaf(stage: &Stage) -> Result<(), String> {
    let limits = "normal 4mb 0 0 pubsub 0 0 0";
    let server = stage.server_with(&["--client-output-buffer-limit", limits])?;
    let mut client = server.client().map_err(text)?;
    let _deaf = tracker(&server, "BCAST")?;
    let (long, begun) = ("k".repeat(50_000), Instant::now());
    let mut at = 0;
    while number_of(&mut client, "tracking_clients")? > 0 {
        for _ in 0..20 {
            at += 1;
            client.command(&["SET", &format!("{at}:{long}"), "v"]).map_err(text)?;
        }
        ensure(begun.elapsed() < PATIENCE, || "it is not closed".to_owned())?;
    }
    // The sockets may hold some megabytes more.
    ensure(at >= 40, || format!("closed after {at} messages"))
}
