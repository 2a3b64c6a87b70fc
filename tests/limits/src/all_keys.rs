//! Commands that need all keys, while one key is held for long: writers of other keys do not wait,
//! and reads of all keys do not wait for commands that store a result.
//!
//! A busy machine delays replies, too. So the time in which threads waited for a processor is
//! subtracted, and the best of a few attempts counts; a faulty server delays writers in all of
//! them.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Reply, Server, process};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("commands on all keys delay no writer: beside ZUNIONSTORE", Asks::More, |stage| beside(stage, STORE)),
    ("commands on all keys delay no writer: beside a script",    Asks::More, |stage| beside(stage, SCRIPT)),
    ("reads of all keys pass ZUNIONSTORE",                       Asks::More, pass),
    ("reads of all keys see ZUNIONSTORE before a later DEL",     Asks::AsRedis, order),
];

/// The longest wait of a writer.
const WAIT_MAX: Duration = Duration::from_millis(20);
const ATTEMPTS: usize = 5;
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
        let mut worst = Duration::MAX;
        for _ in 0..ATTEMPTS {
            fill(&mut client)?;
            worst = worst.min(longest_wait(&server, holder, command)?);
            if worst <= WAIT_MAX {
                break;
            }
        }
        ensure(worst <= WAIT_MAX, || format!("{command}: a writer waited for {worst:?}"))?;
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
            let (sent, before) = (Instant::now(), delayed(server));
            let reply = writes.words(&line).map_err(text)?;
            let waited = sent.elapsed();
            longest = longest.max(waited.saturating_sub(delayed(server).saturating_sub(before)));
            ensure(reply.text() == Some(b"OK"), || format!("{line}: {reply:?}"))?;
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
        let mut shortest = Duration::MAX;
        for _ in 0..ATTEMPTS {
            fill(&mut client)?;
            holds.send(&encode(STORE)).map_err(text)?;
            sleep(Duration::from_millis(50)); // The script has started.
            let (sent, before) = (Instant::now(), delayed(&server));
            let reply = client.words(command).map_err(text)?;
            let waited = sent.elapsed();
            ensure(!reply.is_error(), || format!("{command}: {reply:?}"))?;
            shortest = shortest.min(waited.saturating_sub(delayed(&server).saturating_sub(before)));
            holds.receive().map_err(text)?;
        }
        ensure(shortest <= WAIT_MAX, || format!("{command} waited for {shortest:?}"))?;
    }
    Ok(())
}

fn order(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let (mut client, mut holds) = (server.client().map_err(text)?, server.client().map_err(text)?);
    for _ in 0..ATTEMPTS {
        fill(&mut client)?;
        holds.send(&encode(STORE)).map_err(text)?;
        sleep(Duration::from_millis(50)); // The script has started.
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

/// The time for which the server's threads, and this one, were ready but did not run.
pub(crate) fn delayed(server: &Server) -> Duration {
    let process = server.process();
    let waited = process.active_time().saturating_sub(process.cpu_time());
    waited + process::own_thread_active_time()
}
