//! MULTI, EXEC and WATCH under load: very many and very long queued commands, readers of EXEC's
//! reply that are slow or half-closed, and very many watched keys. Their memory is bounded and freed,
//! and no other client waits for them.

use crate::subscribers::number_of;
use crate::{Asks, Check, Stage, ensure, slices, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Reply, Server};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The longest delay of freeing.
const PATIENCE: Duration = Duration::from_secs(20);

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("a million queued commands run, and are given back", Asks::More,    million),
    ("queued commands count for maxmemory",               Asks::AsRedis, out_of_memory),
    ("queued commands count for their client's limit",    Asks::More,    over_limit),
    ("huge queued commands are given back",               Asks::More,    huge),
    ("a slow reader of EXEC's reply holds no lock",       Asks::More,    slow_reader),
    ("a half-closed client gets all replies of EXEC",     Asks::More,    half_closed),
    ("a million watches are given back",                  Asks::More,    watches),
];

fn client(server: &Server) -> Result<Client, String> {
    server.client().map_err(text)
}

fn is(reply: &Reply, wanted: &str) -> Result<(), String> {
    ensure(reply.text() == Some(wanted.as_bytes()), || format!("{reply:?}, and not {wanted}"))
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

/// Queues `count` commands, a thousand at a time, and reads the reply of each.
fn queue(client: &mut Client, count: usize, words: impl Fn(usize) -> String) -> Result<(), String> {
    const EACH: usize = 1_000;
    for first in (0..count).step_by(EACH) {
        let some = first..count.min(first + EACH);
        let line = |at| encode(&words(at).split(' ').collect::<Vec<_>>());
        let bytes: Vec<u8> = some.clone().flat_map(line).collect();
        client.send(&bytes).map_err(text)?;
        for _ in some {
            is(&client.receive().map_err(text)?, "QUEUED")?;
        }
    }
    Ok(())
}

/// One command in ten names a key. If the key is on another core, the command is a round trip.
fn million(stage: &Stage) -> Result<(), String> {
    const COUNT: usize = 1_000_000;
    const ASKS: usize = 10;
    const KEYS: usize = 1_000;
    const BYTES_EACH: u64 = 150;
    let server = stage.server()?;
    let (mut writer, mut other) = (client(&server)?, client(&server)?);
    writer.set_patience(Duration::from_secs(60)).map_err(text)?;
    let before = number_of(&mut other, "used_memory")?;
    writer.words("MULTI").map_err(text)?;
    queue(&mut writer, COUNT, |at| match at % ASKS {
        0 => format!("INCR key:{}", at / ASKS % KEYS),
        _ => "PING".to_owned(),
    })?;
    let held = number_of(&mut other, "used_memory")?.saturating_sub(before);
    ensure(held < COUNT as u64 * BYTES_EACH, || format!("{held} bytes for {COUNT}"))?;
    other.words("CONFIG RESETSTAT").map_err(text)?;
    let replies = writer.words("EXEC").map_err(text)?;
    let replies = replies.items().ok_or("EXEC has no array")?;
    ensure(replies.len() == COUNT, || format!("{} replies", replies.len()))?;
    for (at, reply) in replies.iter().enumerate() {
        let is_right = match at % ASKS {
            0 => reply.int() == Some((at / ASKS / KEYS + 1) as i64),
            _ => reply.text() == Some(b"PONG"),
        };
        ensure(is_right, || format!("reply {at}: {reply:?}"))?;
    }
    slices::are_short(&mut other)?;
    given_back(&mut other, before + 3 * MIB)
}

fn out_of_memory(stage: &Stage) -> Result<(), String> {
    const LINE: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    let server = stage.server()?;
    let (mut writer, mut other) = (client(&server)?, client(&server)?);
    let most = number_of(&mut other, "used_memory")? + 10 * MIB;
    other.command(&["CONFIG", "SET", "maxmemory", &most.to_string()]).map_err(text)?;
    writer.words("MULTI").map_err(text)?;
    let value = "v".repeat(10_000);
    let refused = |reply: &Reply| reply.is_error() && reply.encode() == LINE.as_bytes();
    let mut count = 0;
    while !refused(&writer.command(&["SET", "key", &value]).map_err(text)?) {
        count += 1;
        ensure(count < 20_000, || "nothing was refused".to_owned())?;
    }
    let aborted = writer.words("EXEC").map_err(text)?;
    ensure(aborted.encode().starts_with(b"-EXECABORT "), || format!("{aborted:?}"))?;
    let exists = other.words("EXISTS key").map_err(text)?;
    ensure(exists.int() == Some(0), || "it has run".to_owned())?;
    given_back(&mut other, most - 5 * MIB)
}

fn over_limit(stage: &Stage) -> Result<(), String> {
    let server = stage.server_with(&["--client-query-buffer-limit", "1mb"])?;
    let (mut writer, mut other) = (client(&server)?, client(&server)?);
    let before = number_of(&mut other, "used_memory")?;
    writer.words("MULTI").map_err(text)?;
    let queued = queue(&mut writer, 100_000, |at| format!("SET key:{at} {}", "v".repeat(100)));
    ensure(queued.is_err(), || "it is not closed".to_owned())?;
    let line = "Closing client that reached max query buffer length: id=";
    ensure(server.logs(line, PATIENCE), || server.log())?;
    given_back(&mut other, before + 3 * MIB)
}

fn huge(stage: &Stage) -> Result<(), String> {
    const COUNT: usize = 8;
    let server = stage.server()?;
    let (mut writer, mut other) = (client(&server)?, client(&server)?);
    let before = number_of(&mut other, "used_memory")?;
    other.words("CONFIG RESETSTAT").map_err(text)?;
    let value = "v".repeat(8 * MIB as usize);
    for end in ["DISCARD", "EXEC"] {
        writer.words("MULTI").map_err(text)?;
        for at in 0..COUNT {
            let reply = writer.command(&["SET", &format!("key:{at}"), &value]).map_err(text)?;
            is(&reply, "QUEUED")?;
        }
        let held = number_of(&mut other, "used_memory")?;
        let most = before + (COUNT as u64 + 1) * 9 * MIB;
        ensure(held < most, || format!("{held} bytes are held, and not {most}"))?;
        writer.words(end).map_err(text)?;
        if end == "DISCARD" {
            given_back(&mut other, before + 3 * MIB)?;
        }
    }
    for at in 0..COUNT {
        let length = other.words(&format!("STRLEN key:{at}")).map_err(text)?;
        ensure(length.int() == Some(8 * MIB as i64), || format!("key:{at}: {length:?}"))?;
    }
    slices::are_short(&mut other)?;
    other.words("FLUSHALL").map_err(text)?;
    given_back(&mut other, before + 3 * MIB)
}

/// A connection whose EXEC has a reply of three hundred megabytes, none of which it has read.
fn unread(server: &Server, value: &str) -> Result<Client, String> {
    let mut reader = client(server)?;
    reader.command(&["SET", "big", value]).map_err(text)?;
    reader.words("MULTI").map_err(text)?;
    queue(&mut reader, GETS, |_| "GET big".to_owned())?;
    reader.send(&encode(&["EXEC"])).map_err(text)?;
    Ok(reader)
}

const GETS: usize = 100;

/// The unread part of the reply shows the old value, and is bounded; others change the value during
/// that time.
fn slow_reader(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let mut other = client(&server)?;
    let value = "x".repeat(3_000_000);
    let mut reader = unread(&server, &value)?;
    let before = number_of(&mut other, "used_memory")?;
    for _ in 0..50 {
        let begun = Instant::now();
        is(&other.words("SET big new").map_err(text)?, "OK")?;
        is(&other.words("GET big").map_err(text)?, "new")?;
        let waited = begun.elapsed();
        ensure(waited < Duration::from_secs(2), || format!("a writer waited {waited:?}"))?;
    }
    let held = number_of(&mut other, "used_memory")?.saturating_sub(before);
    ensure(held < 30 * MIB, || format!("{held} bytes wait to be read"))?;
    let replies = reader.receive().map_err(text)?;
    let replies = replies.items().ok_or("EXEC has no array")?;
    ensure(replies.len() == GETS, || format!("{} replies", replies.len()))?;
    let all_old = replies.iter().all(|reply| reply.text() == Some(value.as_bytes()));
    ensure(all_old, || "a reply is not the value of its time".to_owned())
}

fn half_closed(stage: &Stage) -> Result<(), String> {
    const COUNT: usize = 20_000;
    let server = stage.server()?;
    let mut writer = client(&server)?;
    let mut bytes = encode(&["MULTI"]);
    (0..COUNT).for_each(|at| bytes.extend(encode(&["INCR", &format!("key:{}", at % 100)])));
    bytes.extend(encode(&["EXEC"]));
    writer.send(&bytes).map_err(text)?;
    writer.half_close().map_err(text)?;
    is(&writer.receive().map_err(text)?, "OK")?;
    for _ in 0..COUNT {
        is(&writer.receive().map_err(text)?, "QUEUED")?;
    }
    let replies = writer.receive().map_err(text)?;
    let last = replies.items().and_then(<[Reply]>::last).and_then(Reply::int);
    ensure(last == Some((COUNT / 100) as i64), || format!("the last reply is {last:?}"))?;
    let rest = writer.read_to_end().map_err(text)?;
    ensure(rest.is_empty(), || format!("{} bytes more", rest.len()))
}

/// A thousand clients watch a thousand keys each. Each key is watched by two clients. Their watches
/// end in different ways: by a close, after a touch of a key, or by EXEC.
fn watches(stage: &Stage) -> Result<(), String> {
    const CLIENTS: usize = 1_000;
    const EACH: usize = 1_000;
    const BYTES_EACH: u64 = 300;
    let server = stage.server()?;
    let mut other = client(&server)?;
    let before = number_of(&mut other, "used_memory")?;
    let mut clients = Vec::new();
    for who in 0..CLIENTS {
        let mut client = client(&server)?;
        let names = (0..EACH).map(|at| format!("key:{}", who * EACH / 2 + at));
        let words: Vec<String> = ["WATCH".to_owned()].into_iter().chain(names).collect();
        is(&client.command(&words).map_err(text)?, "OK")?;
        clients.push(client);
    }
    let held = number_of(&mut other, "used_memory")?.saturating_sub(before);
    let most = (CLIENTS * EACH) as u64 * BYTES_EACH;
    ensure(held < most, || format!("{held} bytes for {CLIENTS} clients"))?;
    other.words("CONFIG RESETSTAT").map_err(text)?;
    // Two clients watch the key.
    is(&other.command(&["SET", "key:700", "v"]).map_err(text)?, "OK")?;
    for (who, client) in clients.iter_mut().enumerate().take(100) {
        client.words("MULTI").map_err(text)?;
        let replies = client.words("EXEC").map_err(text)?;
        let has_run = replies.items().is_some_and(<[Reply]>::is_empty);
        ensure(has_run == (who > 1), || format!("client {who}: {replies:?}"))?;
    }
    drop(clients);
    given_back(&mut other, before + 4 * MIB)?;
    slices::are_short(&mut other)
}
