//! Commands that wait, under load: very many clients, very many keys, those that are killed as they
//! are served, that do not read, and whose time is over all at once. Their memory is bounded and
//! freed, and no other client waits for them unless it asked to.

use crate::subscribers::number_of;
use crate::{Asks, Check, Stage, ensure, slices, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Reply, Server};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The longest time for late events: a million keys in a debug build, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("five thousand waiting clients are served in order",          Asks::AsRedis, many_clients),
    ("a hundred thousand keys that one client waits for",          Asks::More,    many_keys),
    ("consumers that get nothing delay no client",                 Asks::More,    many_consumers),
    ("CLIENT KILL during serving loses one element at most",       Asks::AsRedis, killed),
    ("a waiting client that does not read its replies is bounded", Asks::More,    slow_reader),
    ("a flood of timeouts",                                        Asks::More,    timeouts),
];

fn client(server: &Server) -> Result<Client, String> {
    server.client().map_err(text)
}

fn clients(server: &Server, count: usize) -> Result<Vec<Client>, String> {
    let mut all = Vec::new();
    for _ in 0..count {
        let client = client(server)?;
        client.set_patience(PATIENCE).map_err(text)?;
        all.push(client);
    }
    Ok(all)
}

/// Waits until `count` clients are blocked.
fn blocked(client: &mut Client, count: u64) -> Result<(), String> {
    let begun = Instant::now();
    while number_of(client, "blocked_clients")? != count {
        ensure(begun.elapsed() < PATIENCE, || format!("{count} clients do not wait"))?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Waits until at most `most` bytes are used.
fn given_back(client: &mut Client, most: u64) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let used = number_of(client, "used_memory")?;
        if used <= most {
            return Ok(());
        }
        ensure(begun.elapsed() < PATIENCE, || format!("{used} bytes stay of {most}"))?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The last element of the innermost array of a reply.
fn last(reply: &Reply) -> Option<&Reply> {
    reply.items().and_then(<[Reply]>::last)
}

fn many_clients(stage: &Stage) -> Result<(), String> {
    const EACH: usize = 2_500;
    let server = stage.server()?;
    let mut other = client(&server)?;
    other.set_patience(PATIENCE).map_err(text)?;
    let mut takers = clients(&server, EACH)?;
    for (at, taker) in takers.iter_mut().enumerate() {
        taker.send(&encode(&["BLPOP", "a", "b", "c", "d", "0"])).map_err(text)?;
        if at < 100 {
            blocked(&mut other, at as u64 + 1)?; // So the order of these clients is known.
        }
    }
    let mut readers = clients(&server, EACH)?;
    for reader in &mut readers {
        reader.send(&encode(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"])).map_err(text)?;
    }
    blocked(&mut other, 2 * EACH as u64)?;
    other.words("XADD s 1 f v").map_err(text)?;
    for reader in &mut readers {
        let reply = reader.receive().map_err(text)?;
        ensure(!reply.is_error() && reply.items().is_some(), || format!("{reply:?}"))?;
    }
    for at in 0..EACH {
        other.send(&encode(&["RPUSH", "b", &at.to_string()])).map_err(text)?;
    }
    let mut got = Vec::new();
    for taker in &mut takers {
        let reply = taker.receive().map_err(text)?;
        let element = last(&reply).and_then(Reply::text).map(<[u8]>::to_vec);
        got.push(element.ok_or_else(|| format!("{reply:?}"))?);
    }
    let in_order = got.iter().take(100).enumerate();
    for (at, element) in in_order {
        let is_own = *element == at.to_string().into_bytes();
        ensure(is_own, || format!("taker {at} got {}", String::from_utf8_lossy(element)))?;
    }
    got.sort();
    got.dedup();
    ensure(got.len() == EACH, || format!("{} of {EACH} elements", got.len()))?;
    for _ in 0..EACH {
        ensure(other.receive().map_err(text)?.int() == Some(1), || "a length".to_owned())?;
    }
    blocked(&mut other, 0)
}

/// The client is served by the last of its keys, and must be removed from all others.
fn many_keys(stage: &Stage) -> Result<(), String> {
    const KEYS: usize = 100_000;
    const BYTES_EACH: u64 = 400;
    let server = stage.server()?;
    let (mut waiter, mut other) = (client(&server)?, client(&server)?);
    waiter.set_patience(PATIENCE).map_err(text)?;
    other.set_patience(PATIENCE).map_err(text)?;
    let before = number_of(&mut other, "used_memory")?;
    other.words("CONFIG RESETSTAT").map_err(text)?;
    let names = (0..KEYS).map(|at| format!("key:{at}"));
    let words: Vec<String> =
        ["BLPOP".to_owned()].into_iter().chain(names).chain(["0".to_owned()]).collect();
    let request = encode(&words);
    waiter.send(&request).map_err(text)?;
    blocked(&mut other, 1)?;
    let held = number_of(&mut other, "used_memory")?.saturating_sub(before);
    ensure(held < KEYS as u64 * BYTES_EACH, || format!("{held} bytes for {KEYS} keys"))?;
    let key = format!("key:{}", KEYS - 1);
    other.command(&["RPUSH", &key, "x"]).map_err(text)?;
    let reply = waiter.receive().map_err(text)?;
    ensure(last(&reply).and_then(Reply::text) == Some(b"x"), || format!("{reply:?}"))?;
    blocked(&mut other, 0)?;
    slices::are_short(&mut other)?;
    given_back(&mut other, before + 8 * MIB)
}

/// A thousand clients of one group wait for a stream. Each added entry serves one of them, and the
/// others are not visited.
fn many_consumers(stage: &Stage) -> Result<(), String> {
    const CONSUMERS: usize = 1_000;
    const ENTRIES: usize = 500;
    let server = stage.server()?;
    let mut other = client(&server)?;
    other.set_patience(PATIENCE).map_err(text)?;
    for group in ["g", "h"] {
        other.command(&["XGROUP", "CREATE", "s", group, "$", "MKSTREAM"]).map_err(text)?;
    }
    let mut waiters = clients(&server, CONSUMERS)?;
    for (at, waiter) in waiters.iter_mut().enumerate() {
        let group = if at % 2 == 0 { "g" } else { "h" };
        let line = format!("XREADGROUP GROUP {group} c{at} BLOCK 0 STREAMS s >");
        let words: Vec<_> = line.split(' ').collect();
        waiter.send(&encode(&words)).map_err(text)?;
    }
    blocked(&mut other, CONSUMERS as u64)?;
    other.words("CONFIG RESETSTAT").map_err(text)?;
    let line = encode(&["XADD", "s", "*", "f", "v"]);
    other.send(&line.repeat(ENTRIES)).map_err(text)?;
    for _ in 0..ENTRIES {
        let reply = other.receive().map_err(text)?;
        ensure(!reply.is_error(), || format!("{reply:?}"))?;
    }
    for waiter in &mut waiters {
        let reply = waiter.receive().map_err(text)?;
        ensure(reply.items().is_some(), || format!("{reply:?}"))?;
    }
    blocked(&mut other, 0)?;
    for group in ["g", "h"] {
        let pending = other.command(&["XPENDING", "s", group]).map_err(text)?;
        let count = pending.items().and_then(<[Reply]>::first).and_then(Reply::int);
        ensure(count == Some(ENTRIES as i64), || format!("{pending:?}"))?;
    }
    slices::are_short(&mut other)
}

/// A push and a CLIENT KILL run at the same time, again and again. The element is in the list or
/// has been sent to the client, never both.
fn killed(stage: &Stage) -> Result<(), String> {
    const ROUNDS: usize = 200;
    let server = stage.server()?;
    let (mut pusher, mut killer) = (client(&server)?, client(&server)?);
    for round in 0..ROUNDS {
        let mut waiter = client(&server)?;
        let id = waiter.words("CLIENT ID").map_err(text)?.int().ok_or("no id")?;
        waiter.send(&encode(&["BLPOP", "q", "0"])).map_err(text)?;
        blocked(&mut killer, 1)?;
        let kill = encode(&["CLIENT", "KILL", "ID", &id.to_string()]);
        let push = encode(&["RPUSH", "q", "x"]);
        for is_push in [round % 2 == 0, round % 2 == 1] {
            let sent = if is_push { pusher.send(&push) } else { killer.send(&kill) };
            sent.map_err(text)?;
        }
        let reply = pusher.receive().map_err(text)?;
        ensure(reply.int() == Some(1), || format!("{reply:?}"))?;
        let reply = killer.receive().map_err(text)?;
        let has_killed = reply.int() == Some(1);
        let got = waiter.receive().is_ok_and(|reply| reply.items().is_some());
        let left = pusher.words("LLEN q").map_err(text)?.int() == Some(1);
        let is_fine = if has_killed { !(got && left) } else { got != left };
        ensure(is_fine, || format!("round {round}: received: {got}, still there: {left}"))?;
        blocked(&mut killer, 0)?;
        pusher.words("DEL q").map_err(text)?;
    }
    Ok(())
}

/// A client that is sent a hundred entries of 100 KB and reads none of them delays no other client.
fn slow_reader(stage: &Stage) -> Result<(), String> {
    const ENTRIES: usize = 100;
    let server = stage.server()?;
    let (mut reader, mut other) = (client(&server)?, client(&server)?);
    reader.set_patience(PATIENCE).map_err(text)?;
    reader.send(&encode(&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"])).map_err(text)?;
    blocked(&mut other, 1)?;
    let value = "v".repeat(100_000);
    other.words("MULTI").map_err(text)?;
    for _ in 0..ENTRIES {
        other.command(&["XADD", "s", "*", "f", &value]).map_err(text)?;
    }
    other.words("EXEC").map_err(text)?;
    blocked(&mut other, 0)?;
    let before = number_of(&mut other, "used_memory")?;
    for _ in 0..50 {
        let begun = Instant::now();
        other.words("XADD s * f v").map_err(text)?;
        let waited = begun.elapsed();
        ensure(waited < Duration::from_secs(2), || format!("a writer waited {waited:?}"))?;
    }
    let held = number_of(&mut other, "used_memory")?.saturating_sub(before);
    ensure(held < 4 * MIB, || format!("{held} bytes wait to be read"))?;
    let reply = reader.receive().map_err(text)?;
    let entries = last(&reply).and_then(last).and_then(Reply::items).map(<[Reply]>::len);
    ensure(entries == Some(ENTRIES), || format!("{entries:?} entries"))
}

fn timeouts(stage: &Stage) -> Result<(), String> {
    const CLIENTS: usize = 1_000;
    const TIMEOUT: Duration = Duration::from_millis(2_000);
    const LATE: Duration = Duration::from_millis(1_500);
    let server = stage.server()?;
    let mut other = client(&server)?;
    let mut waiters = clients(&server, CLIENTS)?;
    other.words("CONFIG RESETSTAT").map_err(text)?;
    let begun = Instant::now();
    for waiter in &mut waiters {
        waiter.send(&encode(&["BLPOP", "one", "two", "three", "2"])).map_err(text)?;
    }
    let sent = begun.elapsed();
    for waiter in &mut waiters {
        let reply = waiter.receive().map_err(text)?;
        ensure(reply.items().is_none() && !reply.is_error(), || format!("{reply:?}"))?;
    }
    let ended = begun.elapsed();
    ensure(ended >= TIMEOUT, || format!("after {ended:?}"))?;
    ensure(ended < sent + TIMEOUT + LATE, || format!("{ended:?}, sent within {sent:?}"))?;
    blocked(&mut other, 0)?;
    slices::are_short(&mut other)
}
