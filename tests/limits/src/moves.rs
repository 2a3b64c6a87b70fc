//! Connections that move to the core of their keys, on two cores: messages between cores disappear,
//! a moving pipeline loses and mixes up nothing, and a connection that has moved is found.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::{Client, Reply, Server, Shape};
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("connections move to the core of their keys", Asks::More, moves),
    ("connections that move lose nothing",         Asks::More, pipelines_on_the_move),
];

/// The longest time until a move starts; a streak lasts at least a fifth of it.
const PATIENCE: Duration = Duration::from_secs(5);

fn two_cores(stage: &Stage) -> Result<Server, String> {
    Server::subject(Shape { cores: 2, ..stage.shape }).map_err(text)
}

/// A number of INFO.
fn fact(client: &mut Client, section: &str, name: &str) -> Result<u64, String> {
    let info = client.command(&["INFO", section]).map_err(text)?;
    let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.parse().ok()).ok_or_else(|| format!("no {name} in {info}"))
}

fn int(client: &mut Client, line: &str) -> Result<i64, String> {
    let reply = client.words(line).map_err(text)?;
    reply.int().ok_or_else(|| format!("{line}: {reply:?}"))
}

/// If two clients constantly use one key, one is on its core and the other moves there.
fn moves(stage: &Stage) -> Result<(), String> {
    let server = two_cores(stage)?;
    let mut clients = [server.client().map_err(text)?, server.client().map_err(text)?];
    let mut watcher = server.client().map_err(text)?;
    let ids = [int(&mut clients[0], "CLIENT ID")?, int(&mut clients[1], "CLIENT ID")?];
    let began = Instant::now();
    let mut counted = 0;
    while fact(&mut watcher, "stats", "connections_moved")? == 0 {
        ensure(began.elapsed() < PATIENCE, || "none moves".to_owned())?;
        for client in &mut clients {
            for _ in 0..20 {
                counted += 1;
                let number = int(client, "INCR key")?;
                ensure(number == counted, || format!("{number} where {counted} was due"))?;
            }
        }
    }
    let hops = fact(&mut watcher, "stats", "hops")?;
    for client in &mut clients {
        (0..1_000).try_for_each(|_| int(client, "INCR key").map(|_| ()))?;
    }
    let more = fact(&mut watcher, "stats", "hops")? - hops;
    ensure(more < 200, || format!("{more} messages for keys that are at hand"))?;
    for (client, id) in clients.iter_mut().zip(ids) {
        let now = int(client, "CLIENT ID")?;
        ensure(now == id, || format!("client {id} is now {now}"))?;
        let list = watcher.words("CLIENT LIST").map_err(text)?;
        let list = String::from_utf8_lossy(list.text().unwrap_or_default()).into_owned();
        let times = list.lines().filter(|line| line.starts_with(&format!("id={id} "))).count();
        ensure(times == 1, || format!("client {id} is {times} times in {list}"))?;
        let killed = int(&mut watcher, &format!("CLIENT KILL ID {id}"))?;
        ensure(killed == 1, || format!("client {id} is not found"))?;
    }
    Ok(())
}

/// Pipelines of INCR to one key, then to one of the other core. Each reply arrives once and in
/// order, while the client moves between cores, and other clients connect and disconnect.
fn pipelines_on_the_move(stage: &Stage) -> Result<(), String> {
    let server = two_cores(stage)?;
    let mut watcher = server.client().map_err(text)?;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(server.client().map_err(text)?);
    }
    let began = Instant::now();
    let mut counts = vec![[0_i64; 2]; clients.len()];
    let mut round = 0;
    while fact(&mut watcher, "stats", "connections_moved")? < 12 {
        ensure(began.elapsed() < 4 * PATIENCE, || "they do not move on".to_owned())?;
        // The clients use each core for long enough.
        let key = (began.elapsed().as_millis() / 600 % 2) as usize;
        round += 1;
        let name = ["queue:0", "queue"][key];
        if round % 16 == 0 {
            // Only one, because a core that is busy with others is not given connections.
            let mut other = server.client().map_err(text)?;
            int(&mut other, "CLIENT ID")?;
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let line = format!("HINCRBY {name} {number} 1\r\n").repeat(1 + round % 9);
            client.send(line.as_bytes()).map_err(text)?;
        }
        for (client, counts) in clients.iter_mut().zip(&mut counts) {
            for _ in 0..1 + round % 9 {
                counts[key] += 1;
                let reply = client.receive().map_err(text)?;
                let due = Reply::Int(counts[key]);
                ensure(reply == due, || format!("{reply:?} where {due:?} was due"))?;
            }
        }
    }
    Ok(())
}
