//! Commands that need all keys, while one key is held for long: writers of other keys do not wait,
//! and reads of all keys do not wait for commands that store a result.

use crate::beside::{measure_wait, waits_are_short};
use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Reply, Server};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("commands on all keys delay no writer: beside ZUNIONSTORE", Asks::More, |stage| beside(stage, STORE)),
    ("commands on all keys delay no writer: beside a script",    Asks::More, |stage| beside(stage, SCRIPT)),
    ("reads of all keys pass ZUNIONSTORE",                       Asks::More, pass),
    ("reads of all keys see ZUNIONSTORE before a later DEL",     Asks::AsRedis, order),
];

/// How often the order of a read and a later DEL is looked at.
const ROUNDS: usize = 5;
/// The time for which a script is left running.
const SCRIPT_TIME: Duration = Duration::from_millis(150);

const STORE: &[&str] = &["ZUNIONSTORE", "{b}d", "2", "{a}", "{a}2"];
/// The script has changed keys, so no client may read them before it ends.
const SCRIPT: &[&str] = &["EVAL", "redis.call('SET', KEYS[1], 1) while true do end", "1", "held"];

#[rustfmt::skip] // A table.
const COMMANDS: [&str; 6] = [
    "DBSIZE", "KEYS x*", "SWAPDB 1 2", "BGSAVE", "SORT l BY w* LIMIT 0 1", "FLUSHALL",
];

fn beside(stage: &Stage, holder: &[&str]) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    for command in COMMANDS {
        waits_are_short(command, || {
            fill(&mut client)?;
            Ok((longest_wait(&server, holder, command)?, "a writer"))
        })?;
    }
    Ok(())
}

/// Stores the data for the holders and the commands.
fn fill(client: &mut Client) -> Result<(), String> {
    const FILL: &str = "for i = 1, 100000, 100 do local t = {} \
        for j = i, i + 99 do t[#t + 1] = j t[#t + 1] = KEYS[1] .. j end \
        redis.call('ZADD', KEYS[1], unpack(t)) end";
    if client.words("EXISTS {a}").map_err(text)?.int() != Some(1) {
        for key in ["{a}", "{a}2"] {
            let reply = client.command(&["EVAL", FILL, "1", key]).map_err(text)?;
            ensure(!reply.is_error(), || format!("{reply:?}"))?;
        }
        client.words("RPUSH l 1 2 3").map_err(text)?;
    }
    let is_saving = |info: &[u8]| !info.windows(26).any(|at| at == b"rdb_bgsave_in_progress:0\r\n");
    while is_saving(client.words("INFO persistence").map_err(text)?.text().unwrap_or_default()) {
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The longest wait of writers while `holder` holds its keys, and `command` is waiting or has run.
fn longest_wait(server: &Server, holder: &[&str], command: &str) -> Result<Duration, String> {
    let client = || server.client().map_err(text);
    let (mut holds, mut needs_all, mut writes) = (client()?, client()?, client()?);
    holds.send(&encode(holder)).map_err(text)?;
    sleep(Duration::from_millis(50)); // The holder has started.
    let words: Vec<&str> = command.split(' ').collect();
    needs_all.send(&encode(&words)).map_err(text)?;
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    let mut at = 0;
    while begun.elapsed() < SCRIPT_TIME {
        at += 1;
        for line in [format!("SET s:{at} v"), format!("MSET m:{at} v n:{at} v")] {
            let wait = measure_wait(server, || {
                let reply = writes.words(&line).map_err(text)?;
                ensure(reply.text() == Some(b"OK"), || format!("{line}: {reply:?}"))
            });
            longest = longest.max(wait?);
        }
    }
    if holder == SCRIPT {
        client()?.words("SCRIPT KILL").map_err(text)?;
    }
    holds.receive().map_err(text)?;
    let reply = needs_all.receive().map_err(text)?;
    ensure(!reply.is_error(), || format!("{command}: {reply:?}"))?;
    Ok(longest)
}

fn pass(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let (mut client, mut holds) = (server.client().map_err(text)?, server.client().map_err(text)?);
    for command in ["DBSIZE", "KEYS x*", "BGSAVE"] {
        waits_are_short(command, || {
            fill(&mut client)?;
            holds.send(&encode(STORE)).map_err(text)?;
            sleep(Duration::from_millis(50)); // ZUNIONSTORE has started.
            let wait = measure_wait(&server, || {
                let reply = client.words(command).map_err(text)?;
                ensure(!reply.is_error(), || format!("{command}: {reply:?}"))
            })?;
            holds.receive().map_err(text)?;
            Ok((wait, "its client"))
        })?;
    }
    Ok(())
}

fn order(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let (mut client, mut holds) = (server.client().map_err(text)?, server.client().map_err(text)?);
    for _ in 0..ROUNDS {
        fill(&mut client)?;
        holds.send(&encode(STORE)).map_err(text)?;
        sleep(Duration::from_millis(50)); // ZUNIONSTORE has started.
        client.words("DEL {a}").map_err(text)?;
        let (keys, size) = (
            client.words("KEYS *").map_err(text)?.items().map_or(0, <[Reply]>::len),
            client.words("DBSIZE").map_err(text)?.int(),
        );
        let is_of_both = holds.receive().map_err(text)?.int() == Some(200_000);
        let is_right = !is_of_both || (keys, size) == (3, Some(3));
        ensure(is_right, || format!("the source and the result are missing: {keys}, {size:?}"))?;
        client.words("DEL {b}d").map_err(text)?;
    }
    Ok(())
}
