//! Checks that no client keeps a copy of a value that is no longer valid.
//!
//! Readers cache what they read, as client libraries do: a copy is kept from the reply on, and
//! dropped when an invalidation comes. Writers write increasing numbers to the same keys, delete
//! them, give them deadlines, flush and swap; some readers track by prefixes, and some also write,
//! with NOLOOP. Connections are reset. These properties must hold:
//!
//! - Whenever nothing is on its way, every copy of every client is what the key holds. So an
//!   invalidation is neither lost nor comes before the reply that it is about, whatever the delays.
//! - A reader by prefixes gets its prefixes only, and a client that does not track gets nothing.

use crate::CounterTest;
use crate::value::{self, Value};
use crate::world::Sim;
use darter_base::Prng;
use darter_server::engine::Table;
use std::collections::{BTreeMap, VecDeque};

/// Times that all is done and compared, and steps before each in which clients act.
const ROUNDS: usize = 4;
const STEPS: usize = 800;
/// By then a dead key has been removed.
const REAPED_MS: u64 = 50;
/// Requests of a client that are not answered yet, at most.
const AHEAD: usize = 8;
const KEYS: [&str; 6] = ["a1", "a2", "b1", "b2", "c", "{a1}x"];

/// A fault on the way to clients, which must be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrackingBug {
    None,
    /// Invalidations come before replies that were sent before them.
    Overtakes,
    /// Some do not come.
    Loses,
}

/// The bugs, with their names.
const BUGS: &[(&str, TrackingBug)] = &[
    ("invalidations that overtake replies", TrackingBug::Overtakes),
    ("invalidations that are lost", TrackingBug::Loses),
];

/// How a client tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The client does not track: it only writes.
    Off,
    /// The keys that it has read.
    Reads,
    /// The same, of others' changes: it updates its own copies.
    Quiet,
    /// All keys that begin with this.
    Prefix(&'static str),
}

/// The request of a reply.
#[derive(Clone, Debug)]
enum Asked {
    Read(Vec<&'static str>),
    /// A change by the client itself.
    Write(&'static str),
    Other,
}

struct Client {
    mode: Mode,
    asked: VecDeque<Asked>,
    copies: BTreeMap<&'static str, Option<String>>,
    is_reset: bool,
}

struct Run {
    sim: Sim,
    prng: Prng,
    clients: Vec<Client>,
    resets: bool,
    written: u64,
    bug: TrackingBug,
}

/// Runs one seed on this many cores.
pub(crate) fn track(seed: u64, cores: usize, bug: TrackingBug) -> Result<(), String> {
    let mut run = Run::new(seed, cores, bug);
    for _ in 0..ROUNDS {
        for _ in 0..STEPS {
            run.act();
            run.step()?;
        }
        run.finish()?;
        run.sim.pass_ms(REAPED_MS); // Expired keys are invalidated when they are removed.
        run.finish()?;
        run.check()?;
    }
    Ok(())
}

impl Run {
    fn new(seed: u64, cores: usize, bug: TrackingBug) -> Self {
        let mut prng = Prng::from_seed(seed ^ 0x7ac4_e41d);
        let (count, resets) = (2 + at(&mut prng, 6), prng.chance(40));
        let mut families = darter_families::TABLES.to_vec();
        families.push(darter_persist::commands::TABLE);
        let table = Table::new(&families, darter_server::admin::TABLES);
        let sim = Sim::new(seed, cores, count, table);
        let modes =
            [Mode::Off, Mode::Reads, Mode::Reads, Mode::Quiet, Mode::Prefix("a"), Mode::Prefix("")];
        let client = |_| {
            let mode = modes[at(&mut prng, modes.len())];
            Client { mode, asked: VecDeque::new(), copies: BTreeMap::new(), is_reset: false }
        };
        let clients = (0..count).map(client).collect();
        let mut run = Self { sim, prng, clients, resets, written: 0, bug };
        (0..count).for_each(|client| run.greet(client));
        run
    }

    fn greet(&mut self, client: usize) {
        let line = match self.clients[client].mode {
            Mode::Off => "PING".to_owned(),
            Mode::Reads => "CLIENT TRACKING ON".to_owned(),
            Mode::Quiet => "CLIENT TRACKING ON NOLOOP".to_owned(),
            Mode::Prefix(prefix) => format!("CLIENT TRACKING ON BCAST PREFIX \"{prefix}\""),
        };
        self.send(client, "HELLO 3", Asked::Other);
        self.send(client, &line, Asked::Other);
    }

    fn send(&mut self, client: usize, line: &str, asked: Asked) {
        self.clients[client].asked.push_back(asked);
        self.sim.send(client, format!("{line}\r\n").as_bytes());
    }

    /// Some clients send something, or are reset.
    fn act(&mut self) {
        for client in 0..self.clients.len() {
            if self.clients[client].is_reset {
                if self.sim.is_closed(client) {
                    let mode = self.clients[client].mode;
                    self.clients[client] = Client {
                        mode,
                        asked: VecDeque::new(),
                        copies: BTreeMap::new(),
                        is_reset: false,
                    };
                    self.sim.reconnect(client);
                    self.greet(client);
                }
            } else if self.resets && self.prng.below(3_000) == 0 {
                self.clients[client].is_reset = true;
                self.sim.reset(client);
            } else if self.clients[client].asked.len() < AHEAD && self.prng.chance(6) {
                (0..=self.prng.below(3)).for_each(|_| self.ask(client));
            }
        }
    }

    fn ask(&mut self, client: usize) {
        let key = KEYS[at(&mut self.prng, KEYS.len())];
        let writes = match self.clients[client].mode {
            Mode::Off => 80,
            _ => 15,
        };
        if !self.prng.chance(writes) {
            return self.ask_read(client, key);
        }
        self.written += 1;
        let number = self.written;
        let kinds = if self.clients[client].mode == Mode::Quiet { 40 } else { 20 };
        match kinds - 1 - self.prng.below(20) {
            0 => self.send(client, "FLUSHALL", Asked::Other),
            1 => self.send(client, "SWAPDB 0 1", Asked::Other),
            2 | 3 => self.send(client, &format!("SET {key} {number} PX 3"), Asked::Other),
            4 | 5 => self.send(client, &format!("DEL {key}"), Asked::Other),
            6 => {
                let other = KEYS[at(&mut self.prng, KEYS.len())];
                self.send(client, &format!("MSET {key} {number} {other} {number}"), Asked::Other);
            }
            7 => self.send(client, &format!("RENAME {key} {}", KEYS[0]), Asked::Other),
            8 => {
                self.send(client, "MULTI", Asked::Other);
                self.send(client, &format!("SET {key} {number}"), Asked::Other);
                self.send(client, "EXEC", Asked::Other);
            }
            _ => self.send(client, &format!("SET {key} {number}"), Asked::Write(key)),
        }
    }

    fn ask_read(&mut self, client: usize, key: &'static str) {
        match self.prng.below(4) {
            0 => {
                let other = KEYS[at(&mut self.prng, KEYS.len())];
                self.send(client, &format!("MGET {key} {other}"), Asked::Read(vec![key, other]));
            }
            _ => self.send(client, &format!("GET {key}"), Asked::Read(vec![key])),
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.sim.step();
        (0..self.clients.len()).try_for_each(|client| self.take_replies(client))
    }

    fn take_replies(&mut self, at_client: usize) -> Result<(), String> {
        if self.clients[at_client].is_reset {
            return Ok(()); // Unread output is lost with its connection.
        }
        let mut values: Vec<Value> =
            std::iter::from_fn(|| value::take(self.sim.inbox(at_client))).collect();
        match self.bug {
            TrackingBug::None => {}
            TrackingBug::Overtakes => values.sort_by_key(|value| !matches!(value, Value::Push(_))),
            TrackingBug::Loses => {
                values.retain(|value| !matches!(value, Value::Push(_)) || self.prng.chance(80));
            }
        }
        for value in values {
            let client = &mut self.clients[at_client];
            if let Value::Push(items) = &value {
                let told = client.take_push(items);
                told.ok_or_else(|| format!("{at_client}, {:?}, got {value:?}", client.mode))?;
                continue;
            }
            let asked = client.asked.pop_front();
            let asked = asked.ok_or_else(|| format!("{at_client} did not ask for {value:?}"))?;
            client.take_reply(&asked, &value);
        }
        Ok(())
    }

    /// Until nothing is on its way.
    fn finish(&mut self) -> Result<(), String> {
        /// Steps after which the run counts as hung.
        const PATIENCE: usize = 100_000;
        for _ in 0..PATIENCE {
            self.step()?;
            if self.is_done() {
                return Ok(());
            }
        }
        Err("the clients do not finish".to_owned())
    }

    fn is_done(&self) -> bool {
        let is_answered = |client: &Client| client.is_reset || client.asked.is_empty();
        self.clients.iter().all(is_answered) && self.sim.is_asleep()
    }

    /// Every cached copy equals the key's value.
    fn check(&mut self) -> Result<(), String> {
        let live = (0..self.clients.len()).filter(|client| !self.clients[*client].is_reset);
        for client in live.collect::<Vec<_>>() {
            let copies = self.clients[client].copies.clone();
            for (key, copy) in copies {
                self.send(client, &format!("GET {key}"), Asked::Read(vec![key]));
                self.finish()?;
                let Client { mode, copies, .. } = &self.clients[client];
                let now = copies.get(key);
                if now.is_some_and(|now| *now != copy) {
                    return Err(format!("{client}, {mode:?}, held {copy:?} of {key}: {now:?}"));
                }
            }
        }
        Ok(())
    }
}

impl Client {
    /// None if it must not come.
    fn take_push(&mut self, items: &[Value]) -> Option<()> {
        let [Value::Bulk(word), what] = items else { return None };
        if word != "invalidate" || self.mode == Mode::Off {
            return None;
        }
        match what {
            Value::Array(names) => names.iter().try_for_each(|name| {
                let Value::Bulk(name) = name else { return None };
                if let Mode::Prefix(prefix) = self.mode
                    && !name.starts_with(prefix)
                {
                    return None;
                }
                self.copies.retain(|key, _| key != name);
                Some(())
            }),
            _ => {
                self.copies.clear();
                Some(())
            }
        }
    }

    fn take_reply(&mut self, asked: &Asked, value: &Value) {
        let text = |value: &Value| match value {
            Value::Bulk(text) => Some(text.clone()),
            _ => None,
        };
        match (asked, value) {
            (Asked::Read(keys), Value::Array(values)) => {
                keys.iter().zip(values).for_each(|(key, value)| self.keep(key, text(value)));
            }
            (Asked::Read(keys), value) => self.keep(keys[0], text(value)),
            // A client that ignores its own changes drops its copy itself.
            (Asked::Write(key), _) if self.mode == Mode::Quiet => {
                self.copies.remove(key);
            }
            _ => {}
        }
    }

    fn keep(&mut self, key: &'static str, value: Option<String>) {
        let is_told = match self.mode {
            Mode::Prefix(prefix) => key.starts_with(prefix),
            Mode::Off => false,
            Mode::Reads | Mode::Quiet => true,
        };
        if is_told {
            self.copies.insert(key, value);
        }
    }
}

fn at(prng: &mut Prng, count: usize) -> usize {
    usize::try_from(prng.below(count as u64)).unwrap_or(0)
}

/// The world with each of [`BUGS`].
pub(crate) fn counter_tests() -> impl Iterator<Item = CounterTest> {
    BUGS.iter().map(|&(name, bug)| CounterTest::new(name, 200, move |seed| track(seed, 2, bug)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_caches_are_invalidated_when_values_change() {
        for cores in [1, 2, 3, 5] {
            for seed in 0..10 {
                assert_eq!(
                    track(seed, cores, TrackingBug::None),
                    Ok(()),
                    "seed {seed}, {cores} cores"
                );
            }
        }
    }
}
