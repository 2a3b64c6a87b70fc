//! Soak: pipelines of mixed sizes over two cores, with a limit on how late each reply may be.
//!
//! A core that goes to sleep with work left, or misses a wake-up, is woken by whatever happens
//! next. So only few clients send, all at once, and then wait: no later request frees a stuck
//! reply. A reply counts as stalled when its client waited for it longer than [`STALL`] *beyond*
//! all time in which the server, or the client, ran or was runnable: a loaded machine delays
//! replies, but is not idle.

use crate::{Asks, Check, Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::client::encode;
use darter_testkit::process::{self, Process};
use darter_testkit::{Client, Server, Shape};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("no reply stalls in pipelines of mixed sizes: one client",  Asks::AsRedis, |stage| soak(stage, 1)),
    ("no reply stalls in pipelines of mixed sizes: two clients", Asks::AsRedis, |stage| soak(stage, 2)),
];

/// Idle time of all parties from which a late reply is a stall.
const STALL: Duration = Duration::from_millis(300);
/// The number of commands in a pipeline.
const DEPTH: usize = 50;

fn soak(stage: &Stage, clients: u64) -> Result<(), String> {
    let shape = Shape { cores: 2, ..stage.shape };
    let server = Server::subject(shape).map_err(text)?;
    let until = Instant::now() + stage.soak;
    let mut prng = Prng::from_seed(clients);
    let players: Result<Vec<_>, _> = (1..=clients).map(|seed| Player::new(&server, seed)).collect();
    let mut players = players?;
    while Instant::now() < until {
        players.iter_mut().try_for_each(Player::send)?;
        players.iter_mut().try_for_each(|player| player.receive(server.process()))?;
        if prng.chance(30) {
            sleep(Duration::from_millis(prng.below(20)));
        }
    }
    Ok(())
}

/// A client that sends pipelines, one after another.
struct Player {
    name: String,
    client: Client,
    prng: Prng,
    pipelines: usize,
    /// The commands whose replies are outstanding.
    sent: Vec<Vec<String>>,
}

impl Player {
    fn new(server: &Server, seed: u64) -> Result<Self, String> {
        let (name, prng) = (format!("client {seed}"), Prng::from_seed(seed));
        let client = server.client().map_err(text)?;
        Ok(Self { name, client, prng, pipelines: 0, sent: Vec::new() })
    }

    fn send(&mut self) -> Result<(), String> {
        // Sometimes a single command, with nothing after it.
        let depth = if self.prng.chance(30) { 1 } else { DEPTH };
        self.sent = (0..depth).map(|_| draw(&mut self.prng)).collect();
        self.pipelines += 1;
        let bytes: Vec<u8> = self.sent.iter().flat_map(|words| encode(words)).collect();
        self.client.send(&bytes).map_err(|error| format!("{}: {error}", self.name))
    }

    fn receive(&mut self, server: Process) -> Result<(), String> {
        let mut since = Moment::now(server);
        for (at, words) in self.sent.iter().enumerate() {
            let name = || format!("{}, pipeline {}, {at}: {}", self.name, self.pipelines, words[0]);
            let reply = self.client.receive().map_err(|error| format!("{}: {error}", name()))?;
            let waited = since.at.elapsed();
            ensure(!reply.is_error(), || format!("{}: {reply:?}", name()))?;
            if waited > STALL {
                let idle = waited.saturating_sub(active(server) - since.active);
                ensure(idle < STALL, || format!("{}: {waited:?}, {idle:?} idle", name()))?;
            }
            since = Moment::now(server);
        }
        Ok(())
    }
}

/// When a client began to wait for its next reply, and what had run until then: CPU time spent on
/// one reply does not excuse the next.
struct Moment {
    at: Instant,
    active: Duration,
}

impl Moment {
    fn now(server: Process) -> Self {
        let active = active(server);
        Self { at: Instant::now(), active }
    }
}

/// How long the server's threads and this thread have run or been runnable.
fn active(server: Process) -> Duration {
    server.active_time() + process::own_thread_active_time()
}

fn draw(prng: &mut Prng) -> Vec<String> {
    let text = |prng: &mut Prng| format!("text:{}", prng.below(40));
    let set = |prng: &mut Prng| format!("set:{}", prng.below(40));
    let mut words: Vec<String> = Vec::new();
    match prng.below(8) {
        kind @ 0..3 => {
            words.extend(["SADD".to_owned(), set(prng)]);
            let (count, base) = ([2, 600, 3_000][kind as usize], prng.below(9_000));
            words.extend((base..base + count).map(|member| format!("member:{member}")));
        }
        3 => words.extend(["SET".to_owned(), text(prng), "v".repeat(70_000)]),
        4 => words.extend(["GET".to_owned(), text(prng)]),
        5 => {
            words.push("MSET".to_owned());
            (0..3).for_each(|at| words.extend([text(prng), format!("short {at}")]));
        }
        6 => {
            let key = if prng.chance(50) { text(prng) } else { set(prng) };
            words.extend(["DEL".to_owned(), key]);
        }
        _ => {
            words.push("SUNIONSTORE".to_owned());
            words.extend((0..9).map(|_| set(prng)));
        }
    }
    words
}
