//! Soak: pipelines of mixed sizes over two cores, and a watch on every reply that is late.
//!
//! A core that goes to sleep with work to do is woken by whatever happens next; so there are few
//! clients, and they rest now and then. A reply counts as stalled when its client waited for it longer
//! than [`STALL`] *beyond* all time in which the server, or the client, ran or was ready to run: a
//! loaded machine makes replies late, but not idle.

use crate::{Asks, Check, Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::client::encode;
use darter_testkit::process::{self, Process};
use darter_testkit::{Server, Shape};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("no reply stalls amid pipelines of mixed sizes: one client",  Asks::AsRedis, |stage| soak(stage, 1)),
    ("no reply stalls amid pipelines of mixed sizes: two clients", Asks::AsRedis, |stage| soak(stage, 2)),
];

/// Idle time of everyone concerned from which a late reply is a stall.
const STALL: Duration = Duration::from_millis(300);
/// Commands of a pipeline.
const DEPTH: usize = 50;

fn soak(stage: &Stage, clients: u64) -> Result<(), String> {
    let shape = Shape { cores: 2, ..stage.shape };
    let server = Server::subject(shape).map_err(text)?;
    let until = Instant::now() + stage.soak;
    scope(|scope| {
        let run = |client| {
            let server = &server;
            scope.spawn(move || play(server, client, until))
        };
        let threads: Vec<_> = (1..=clients).map(run).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a client panicked".to_owned())?)
    })
}

/// One client's pipelines, one after another.
fn play(server: &Server, seed: u64, until: Instant) -> Result<(), String> {
    let mut prng = Prng::from_seed(seed);
    let mut client = server.client().map_err(text)?;
    let mut number = 0;
    while Instant::now() < until {
        let commands: Vec<Vec<String>> = (0..DEPTH).map(|_| draw(&mut prng)).collect();
        let bytes: Vec<u8> = commands.iter().flat_map(|words| encode(words)).collect();
        let mut sent = Moment::now(server.process());
        client.send(&bytes).map_err(text)?;
        for (at, words) in commands.iter().enumerate() {
            let name = || format!("client {seed}, pipeline {number}, {at}: {}", words[0]);
            let reply = client.receive().map_err(|error| format!("{}: {error}", name()))?;
            let waited = sent.at.elapsed();
            ensure(!reply.is_error(), || format!("{}: {reply:?}", name()))?;
            if waited > STALL {
                let idle = waited.saturating_sub(active(server.process()) - sent.active);
                ensure(idle < STALL, || format!("{}: {waited:?}, {idle:?} idle", name()))?;
            }
            sent = Moment::now(server.process());
        }
        number += 1;
        if prng.chance(30) {
            sleep(Duration::from_millis(prng.below(20)));
        }
    }
    Ok(())
}

/// When a client began to wait for its next reply, and what had run until then: what runs for one
/// reply does not excuse the next.
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

/// Time that the server's threads, and this one, have run or been ready to run.
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
