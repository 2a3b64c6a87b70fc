//! One client's big command, and three others beside it: a writer of other keys, a pair that hands
//! elements over (BLPOP and RPUSH), and short connections. None of them may wait for it.
//!
//! A busy machine delays replies too: the time in which threads waited for a processor is subtracted,
//! and the calmest of a few attempts counts. A server at fault delays clients in each attempt.

use crate::{Asks, Check, Stage, ensure, slices, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Server, process};
use std::thread;
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("nobody waits for commands on big strings",       Asks::More, |stage| beside(stage, "string", STRINGS)),
    ("nobody waits for commands on big hashes",        Asks::More, |stage| beside(stage, "hash", HASHES)),
    ("nobody waits for commands on big lists",         Asks::More, |stage| beside(stage, "list", LISTS)),
    ("nobody waits for commands on big sets",          Asks::More, |stage| beside(stage, "set", SETS)),
    ("nobody waits for commands on big sorted sets",   Asks::More, |stage| beside(stage, "zset", SORTED_SETS)),
    ("nobody waits for commands on big streams",       Asks::More, |stage| beside(stage, "stream", STREAMS)),
];

// Commands that remove a big value come last: then both values are made again.
const STRINGS: &[&str] =
    &["KEYS x*", "SCAN 0 COUNT 100000", "BGSAVE", "FLUSHALL ASYNC", "FLUSHALL"];
#[rustfmt::skip] // Lists.
const HASHES: &[&str] = &[
    "HGETALL big:0", "HRANDFIELD big:0 50000", "DUMP big:0", "COPY big:0 copy REPLACE", "BGSAVE", FILLING,
    "RENAME big:0 big:1", "SET big:0 v", "DEL big:0", "UNLINK big:0", "FLUSHALL",
];
#[rustfmt::skip] // Lists.
const LISTS: &[&str] = &[
    "LRANGE big:0 0 -1", "LREM big:0 0 absent", "LINDEX big:0 50000", "SORT big:0 ALPHA LIMIT 0 10",
    "LINSERT big:0 AFTER absent x", "LPOS big:0 absent", "LTRIM big:0 50000 -1", "LPOP big:0 50000",
    "DEL big:1",
];
#[rustfmt::skip] // Lists.
const SETS: &[&str] = &[
    "SMEMBERS big:0", "SINTER big:0 big:1", "SUNIONSTORE union big:0 big:1", "SDIFF big:0 big:1",
    "SRANDMEMBER big:0 -50000", "SPOP big:0 50000", "EXPIRE big:1 0",
];
#[rustfmt::skip] // Lists.
const SORTED_SETS: &[&str] = &[
    "ZRANGE big:0 0 -1 WITHSCORES", "ZUNIONSTORE union 2 big:0 big:1", "ZRANGESTORE part big:0 0 50000",
    "ZCOUNT big:0 -inf +inf", "ZREMRANGEBYRANK big:0 0 50000", "ZPOPMIN big:0 20000", "DEL big:1",
];
const STREAMS: &[&str] = &["XRANGE big:0 - +", "XLEN big:0", "XTRIM big:0 MAXLEN 10", "DEL big:1"];
/// Underscores are spaces.
const FILLING: &str = "EVAL for_i=1,50000_do_redis.call('HSET',KEYS[1],i,i)_end 1 filled";

/// Elements of a big value, and bytes of each.
const ELEMENTS: usize = 100_000;
const BYTES: usize = 20;
/// The longest wait of a client.
const WAIT_MAX: Duration = Duration::from_millis(20);
const ATTEMPTS: usize = 5;
/// How long the others go on after the reply: what was removed is freed then.
const AFTER: Duration = Duration::from_millis(30);

fn beside(stage: &Stage, kind: &str, commands: &[&str]) -> Result<(), String> {
    let server = stage.server()?;
    let mut client = server.client().map_err(text)?;
    let mut others = Others::new(&server)?;
    for command in commands {
        waits_are_short(command, || {
            fill(&mut client, kind)?;
            others.longest_wait(&mut client, command)
        })?;
    }
    slices::are_short(&mut client)
}

/// Makes two big values, or as many strings as they would have elements.
fn fill(client: &mut Client, kind: &str) -> Result<(), String> {
    if client.words("EXISTS big:0 big:1").map_err(text)?.int() == Some(2) {
        return Ok(());
    }
    let line = match kind {
        "string" => format!("DEBUG POPULATE {ELEMENTS} big {BYTES}"),
        _ => format!("DEBUG POPULATE 2 big {BYTES} TYPE {kind} ELEMENTS {ELEMENTS}"),
    };
    let reply = client.words(&line).map_err(text)?;
    ensure(reply.text() == Some(b"OK"), || format!("{line}: {reply:?}"))
}

/// The clients beside the big command.
struct Others<'a> {
    server: &'a Server,
    writes: Client,
    takes: Client,
    gives: Client,
}

/// One exchange with the server.
type Act<'a> = fn(&mut Others<'a>) -> Result<(), String>;

impl<'a> Others<'a> {
    fn new(server: &'a Server) -> Result<Self, String> {
        let client = || server.client().map_err(text);
        Ok(Self { server, writes: client()?, takes: client()?, gives: client()? })
    }

    /// The longest wait of another client while `command` runs and just after it, and the
    /// name of that client.
    fn longest_wait(
        &mut self,
        client: &mut Client,
        command: &str,
    ) -> Result<(Duration, &'static str), String> {
        let words: Vec<String> = command.split(' ').map(|word| word.replace('_', " ")).collect();
        thread::scope(|scope| {
            let big = scope.spawn(|| client.command(&words).map_err(text));
            let mut longest = (Duration::ZERO, "");
            let mut end = None;
            while end.is_none_or(|end| Instant::now() < end) {
                if end.is_none() && big.is_finished() {
                    end = Some(Instant::now() + AFTER);
                }
                longest = longest.max(self.round()?);
            }
            let reply = big.join().map_err(|_| "the client of the big command panicked")??;
            ensure(!reply.is_error(), || format!("{command}: {reply:?}"))?;
            Ok(longest)
        })
    }

    /// Lets each of the others act once. Returns the longest wait, and the name of that client.
    fn round(&mut self) -> Result<(Duration, &'static str), String> {
        let acts: [(&str, Act<'a>); 3] = [
            ("a writer", Self::write),
            ("a pair", Self::hand_over),
            ("a short connection", Self::come_and_go),
        ];
        let mut longest = (Duration::ZERO, "");
        for (name, act) in acts {
            longest = longest.max((measure_wait(self.server, || act(self))?, name));
        }
        Ok(longest)
    }

    fn write(&mut self) -> Result<(), String> {
        let reply = self.writes.words("INCR counter").map_err(text)?;
        ensure(reply.int().is_some(), || format!("INCR: {reply:?}"))
    }

    fn hand_over(&mut self) -> Result<(), String> {
        self.takes.send(&encode(&["BLPOP", "handed", "0"])).map_err(text)?;
        self.gives.words("RPUSH handed x").map_err(text)?;
        let reply = self.takes.receive().map_err(text)?;
        ensure(reply.items().is_some(), || format!("BLPOP: {reply:?}"))
    }

    fn come_and_go(&mut self) -> Result<(), String> {
        let reply = self.server.client().map_err(text)?.words("GET absent").map_err(text)?;
        ensure(!reply.is_error(), || format!("GET: {reply:?}"))
    }
}

/// Fails if a client waits for too long in each attempt. An attempt returns its longest wait, and the
/// client that waited.
pub(crate) fn waits_are_short(
    command: &str,
    mut attempt: impl FnMut() -> Result<(Duration, &'static str), String>,
) -> Result<(), String> {
    let mut shortest = attempt()?;
    for _ in 1..ATTEMPTS {
        if shortest.0 <= WAIT_MAX {
            break;
        }
        shortest = shortest.min(attempt()?);
    }
    let (wait, client) = shortest;
    ensure(wait <= WAIT_MAX, || format!("{command}: {client} waited for {wait:?}"))
}

/// The time that `exchange` took, without the delays of a busy machine.
pub(crate) fn measure_wait(
    server: &Server,
    exchange: impl FnOnce() -> Result<(), String>,
) -> Result<Duration, String> {
    let (begun, before) = (Instant::now(), delayed(server));
    exchange()?;
    let waited = begun.elapsed();
    Ok(waited.saturating_sub(delayed(server).saturating_sub(before)))
}

/// Time in which the threads of the server were ready to run and did not, and the time of this one.
fn delayed(server: &Server) -> Duration {
    let process = server.process();
    let waited = process.active_time().saturating_sub(process.cpu_time());
    waited + process::own_thread_active_time()
}
