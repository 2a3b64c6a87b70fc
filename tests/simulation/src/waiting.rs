//! Checks of blocked clients: no element is lost or delivered twice, no client waits while there is
//! an element for it, and the first to wait is served first.
//!
//! In the first kind of run, producers push elements that are all different, by RPUSH, by other
//! ways to make a list, and in transactions, while takers wait for them, with and without a
//! timeout, on one key or on several, on all cores. Connections are reset, half-closed and killed
//! at any moment, and takers are unblocked. In the end every element was received once or is still
//! in a list. Elements may be missing whose answers were in flight to a connection that closed.
//!
//! In the second kind, takers wait for one key, one after the other, and as many elements come as
//! there are takers, one way or another, while others ask for them. Each taker gets its own.

use crate::CounterTest;
use crate::value::{self, Value};
use crate::world::Sim;
use darter_base::Prng;
use darter_command::{
    Args, Command, Condition, Flags, Flow, Group, KeyFlags, KeySpec, Keys, Look, Looking, Patience,
    Place, Refusal, Taking, Wait, Want, When,
};
use darter_families::list::List;
use darter_keyspace::Key;
use darter_server::engine::Table;
use darter_structs::list::{Element, End};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Elements that are pushed in a run of the first kind.
const ELEMENTS: usize = 60;
/// Steps after which a run counts as hung.
const PATIENCE: usize = 300_000;

/// The name of the command that waits for an element of one key: BLPOP, or one with a bug.
type Verb = &'static str;

/// Commands with a bug.
const BROKEN: &[Command] = &[
    waits("losing", |args| wait(args, Box::new(Losing))),
    waits("doubling", |args| wait(args, Box::new(Doubling))),
    waits("hesitating", |args| wait(args, Box::new(Hesitating::default()))),
    waits("sleeping", |args| wait(args, Box::new(Sleeping))),
];

/// Bugs that the checks must find: a name, and the command with the bug.
const BUGS: &[(&str, Verb)] = &[
    ("an element that is taken and not given", "LOSING"),
    ("an element that is given and not taken", "DOUBLING"),
    ("one who is passed over at first", "HESITATING"),
    ("one who is never asked", "SLEEPING"),
];

const ONE_KEY: Keys =
    Keys(&[KeySpec::new(Place::Range { first: 1, last: -2, step: 1 }, KeyFlags::RW_ACCESS_DELETE)]);

const fn waits(name: &'static str, read: darter_command::WaitFn) -> Command {
    let run =
        darter_command::Run::Multi { here: Some(never_here), anywhere: |_| Box::pin(never()) };
    Command::new(name, "0.0.0", -3, Flags::WRITE, ONE_KEY, Group::Generic, run).waits(read)
}

fn never_here(_: &mut darter_command::Cx<'_>, _: Args<'_>) -> Result<Flow, Refusal> {
    Err(Refusal::line("ERR it only waits"))
}

async fn never() -> Result<darter_command::Answer, Refusal> {
    Err(Refusal::line("ERR it only waits"))
}

fn wait(args: Args<'_>, want: Box<dyn Want>) -> Result<Wait, Refusal> {
    let (first, last) = (args.position(), args.all().len() - 1);
    Ok(Wait { keys: first..last, patience: Patience::Endless, want })
}

fn is_there(call: &Looking<'_>) -> Look {
    let is_waiting = matches!(call.when, When::Waiting(_));
    let is_there = is_waiting && matches!(call.db.value::<List>(&call.key), Ok(Some(_)));
    if is_there { Look::There } else { Look::Nothing }
}

/// Replies with the first element, after removing `count` elements.
fn pop(call: &mut Taking<'_>, at: usize, count: usize) -> Result<Flow, Refusal> {
    let Taking { db, args, reply, .. } = call;
    let key = Key::new(args.get(at));
    let mut first = Vec::new();
    if let Some(list) = db.value::<List>(&key)?
        && let Some(Element::Text(text)) = list.elements().get(0)
    {
        first = text.to_vec().to_vec();
    }
    reply.array(2);
    reply.bulk(key.bytes);
    reply.bulk(&first);
    for _ in 0..count {
        db.edit::<List, _>(&key, false, |edit| edit.pop(End::Front, |_| ()))?;
    }
    Ok(Flow::Done)
}

struct Losing;
struct Doubling;
struct Sleeping;
#[derive(Default)]
struct Hesitating(AtomicBool);

impl Want for Losing {
    fn look(&self, call: &Looking<'_>) -> Look {
        is_there(call)
    }

    fn condition(&self) -> Option<Condition> {
        None
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        pop(call, at, 2)
    }
}

impl Want for Doubling {
    fn look(&self, call: &Looking<'_>) -> Look {
        is_there(call)
    }

    fn condition(&self) -> Option<Condition> {
        None
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        pop(call, at, 0)
    }
}

impl Want for Hesitating {
    fn look(&self, call: &Looking<'_>) -> Look {
        let look = is_there(call);
        if look == Look::There && !self.0.swap(true, Ordering::Relaxed) {
            return Look::Nothing;
        }
        look
    }

    fn condition(&self) -> Option<Condition> {
        None
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        pop(call, at, 1)
    }
}

impl Want for Sleeping {
    fn look(&self, _: &Looking<'_>) -> Look {
        Look::Nothing
    }

    fn condition(&self) -> Option<Condition> {
        None
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        pop(call, at, 1)
    }
}

fn world(seed: u64, cores: usize, clients: usize) -> Sim {
    let mut families = darter_families::TABLES.to_vec();
    families.push(darter_persist::commands::TABLE);
    families.push(BROKEN);
    Sim::new(seed, cores, clients, Table::new(&families, darter_server::admin::TABLES))
}

/// These commands, as one transaction.
fn exec(lines: &[String]) -> Vec<String> {
    let (multi, exec) = (["MULTI".to_owned()], ["EXEC".to_owned()]);
    multi.iter().chain(lines).chain(&exec).cloned().collect()
}

fn below(prng: &mut Prng, count: usize) -> usize {
    usize::try_from(prng.below(count as u64)).unwrap_or(0)
}

/// A taker: the number of replies it waits for, and its id.
#[derive(Default)]
struct Taker {
    outstanding: usize,
    id: Option<i64>,
    ends: bool,
}

/// A run of the first kind. Clients 0 and 1 produce, client 2 meddles, the others take.
struct Run {
    sim: Sim,
    prng: Prng,
    verb: Verb,
    takers: Vec<Taker>,
    /// How often each element was received.
    received: BTreeMap<usize, usize>,
    pushed: usize,
    /// Replies that the first three clients wait for.
    outstanding: [usize; 3],
}

const FIRST_TAKER: usize = 3;
const KEYS: usize = 4;

/// Runs one seed of both kinds on this many cores.
pub(crate) fn wait_for(seed: u64, cores: usize, verb: Verb) -> Result<(), String> {
    Run::new(seed, cores, verb).play()?;
    in_order(seed, cores, verb)
}

impl Run {
    fn new(seed: u64, cores: usize, verb: Verb) -> Self {
        let mut prng = Prng::from_seed(seed ^ 0x00b1_0c4e);
        let takers = 2 + below(&mut prng, 6);
        Self {
            sim: world(seed, cores, FIRST_TAKER + takers),
            prng,
            verb,
            takers: (0..takers).map(|_| Taker::default()).collect(),
            received: BTreeMap::new(),
            pushed: 0,
            outstanding: [0; 3],
        }
    }

    fn play(mut self) -> Result<(), String> {
        for _ in 0..PATIENCE {
            self.produce();
            self.meddle();
            (0..self.takers.len()).for_each(|taker| self.take(taker));
            self.sim.step();
            self.receive()?;
            if self.pushed >= ELEMENTS && self.outstanding.iter().sum::<usize>() == 0 {
                return self.close();
            }
        }
        Err("the producers do not finish".to_owned())
    }

    fn key(&mut self) -> String {
        format!("q{}", below(&mut self.prng, KEYS))
    }

    fn produce(&mut self) {
        for client in 0..2 {
            if self.pushed >= ELEMENTS || self.outstanding[client] > 4 || !self.prng.chance(5) {
                continue;
            }
            let (key, first) = (self.key(), self.pushed);
            let count = 1 + below(&mut self.prng, 3);
            let words: Vec<String> = (first..first + count).map(|at| format!("e{at}")).collect();
            let words = words.join(" ");
            self.pushed += count;
            let lines = match self.prng.below(7) {
                0 => vec![
                    format!("RPUSH t{client} {words}"),
                    format!("LMOVE t{client} {key} LEFT RIGHT"),
                ],
                1 => vec![format!("LPUSH u{client} {words}"), format!("RENAMENX u{client} {key}")],
                2 => vec![format!("LPUSH {key} {words}")],
                3 => exec(&[format!("RPUSH {key} {words}"), format!("LPOP {key}")]),
                4 => exec(&[
                    format!("RPUSH u{client} {words}"),
                    format!("RENAMENX u{client} {key}"),
                    format!("SET w{client} x"),
                ]),
                _ => vec![format!("RPUSH {key} {words}")],
            };
            self.outstanding[client] += lines.len();
            self.sim.send(client, (lines.join("\r\n") + "\r\n").as_bytes());
        }
    }

    /// Takes an element without waiting, or ends a taker's waiting.
    fn meddle(&mut self) {
        if self.outstanding[2] > 0 || !self.prng.chance(3) {
            return;
        }
        let taker = below(&mut self.prng, self.takers.len());
        let id = self.takers[taker].id;
        let key = self.key();
        let line = match (self.prng.below(6), id) {
            (0 | 1, Some(id)) => format!("CLIENT UNBLOCK {id}"),
            (2, Some(id)) => format!("CLIENT KILL ID {id}"),
            (3, _) => format!("LMOVE {key} {} LEFT RIGHT", self.key()),
            _ => format!("LMPOP 1 {key} LEFT"),
        };
        self.outstanding[2] += 1;
        self.sim.send(2, (line + "\r\n").as_bytes());
    }

    fn take(&mut self, taker: usize) {
        let client = FIRST_TAKER + taker;
        if self.sim.is_closed(client) {
            self.sim.reconnect(client);
            self.takers[taker] = Taker::default();
        }
        let Taker { outstanding, id, ends } = &mut self.takers[taker];
        if *ends {
            return;
        }
        if id.is_none() {
            if *outstanding == 0 && self.pushed < ELEMENTS {
                *outstanding = 1;
                self.sim.send(client, b"CLIENT ID\r\n");
            }
            return;
        }
        if *outstanding > 0 {
            if self.prng.below(600) == 0 {
                *ends = true;
                match self.prng.chance(50) {
                    true => self.sim.reset(client),
                    false => self.sim.end(client),
                }
            }
            return;
        }
        if self.pushed >= ELEMENTS || !self.prng.chance(20) {
            return;
        }
        let count = 1 + usize::from(self.prng.chance(20));
        let lines: Vec<String> = (0..count).map(|_| self.call()).collect();
        self.takers[taker].outstanding = count;
        self.sim.send(client, (lines.join("\r\n") + "\r\n").as_bytes());
    }

    fn call(&mut self) -> String {
        let (one, other) = (self.key(), self.key());
        let timeout = ["0", "0", "0.003", "0.02"][below(&mut self.prng, 4)];
        match self.prng.below(6) {
            0 => format!("BRPOP {one} {other} {timeout}"),
            1 => format!("BLMPOP {timeout} 2 {one} {other} LEFT COUNT 2"),
            2 => format!("BLMOVE {one} {other} LEFT RIGHT {timeout}"),
            3 => format!("BLPOP {one} {other} q0 q1 {timeout}"),
            _ => format!("{} {one} {timeout}", self.verb),
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        for client in 0..FIRST_TAKER + self.takers.len() {
            while let Some(reply) = value::take(self.sim.inbox(client)) {
                match client.checked_sub(FIRST_TAKER) {
                    None => self.outstanding[client] -= 1,
                    Some(taker) => {
                        let taker = &mut self.takers[taker];
                        taker.outstanding -= 1;
                        if let (None, Value::Int(id)) = (taker.id, &reply) {
                            taker.id = Some(*id);
                            continue;
                        }
                    }
                }
                self.count(&reply)?;
            }
        }
        Ok(())
    }

    /// Counts an array as served; any other reply was not.
    fn count(&mut self, reply: &Value) -> Result<(), String> {
        if let Value::Array(values) = reply {
            for value in values {
                match value {
                    Value::Bulk(word) => self.count_element(word)?,
                    nested => self.count(nested)?,
                }
            }
        }
        Ok(())
    }

    fn count_element(&mut self, word: &str) -> Result<(), String> {
        let Some(element) = word.strip_prefix('e') else { return Ok(()) };
        let element: usize = element.parse().map_err(|_| format!("{word} was never pushed"))?;
        let times = self.received.entry(element).or_default();
        *times += 1;
        if *times > 1 { Err(format!("{word} was received twice")) } else { Ok(()) }
    }

    /// Ends the run after the last push: no client may wait while its key has an element, and no
    /// element may be missing.
    fn close(mut self) -> Result<(), String> {
        for _ in 0..PATIENCE {
            self.sim.step();
            self.receive()?;
            if self.sim.is_asleep() && self.sim.wakes_ms().is_none() {
                break;
            }
        }
        let keys: Vec<String> = (0..KEYS)
            .map(|at| format!("q{at}"))
            .chain((0..2).flat_map(|at| [format!("t{at}"), format!("u{at}")]))
            .collect();
        let blocked: usize = self.sim.cores.iter().map(|core| core.blocked_counts().0).sum();
        for key in &keys {
            self.outstanding[2] += 1;
            self.sim.send(2, format!("LRANGE {key} 0 -1\r\n").as_bytes());
            for _ in 0..PATIENCE {
                self.sim.step();
                let Some(reply) = value::take(self.sim.inbox(2)) else { continue };
                let is_waited = key.starts_with('q') && self.waits_for(key);
                if is_waited && reply != Value::Array(Vec::new()) {
                    return Err(format!("{blocked} wait, and {key} holds {reply:?}"));
                }
                self.count(&reply)?;
                break;
            }
        }
        let missing = (0..self.pushed).filter(|at| !self.received.contains_key(at)).count();
        let lost: u64 = self.sim.cores.iter().map(|core| core.ended_amid_replies()).sum();
        // A connection has two replies under way at most, and one of BLMPOP has two elements.
        let most = 4 * lost;
        if missing as u64 > most {
            return Err(format!("{missing} elements are missing, {most} at most may be"));
        }
        self.sim.check_invariants();
        Ok(())
    }

    /// True if a client waits for the key.
    fn waits_for(&self, key: &str) -> bool {
        self.sim.cores.iter().any(|core| core.is_waited_for(0, key.as_bytes()))
    }
}

/// A run of the second kind.
fn in_order(seed: u64, cores: usize, verb: Verb) -> Result<(), String> {
    const TAKERS: usize = 6;
    let mut prng = Prng::from_seed(seed ^ 0x0f1f_0f1f);
    let mut sim = world(seed, cores, TAKERS + 2);
    for taker in 0..TAKERS {
        let line = match prng.below(4) {
            0 => "BLMOVE q sink LEFT RIGHT 0\r\n".to_owned(),
            1 => "BLPOP other q 0\r\n".to_owned(),
            _ => format!("{verb} q 0\r\n"),
        };
        sim.send(taker, line.as_bytes());
        until(&mut sim, |sim| sim.is_asleep())?;
    }
    let (mut pushed, mut asked) = (0, 0);
    let mut got: Vec<Option<String>> = vec![None; TAKERS];
    for _ in 0..PATIENCE {
        if pushed < TAKERS && prng.chance(10) {
            let count = 1 + below(&mut prng, TAKERS - pushed);
            let words: Vec<String> = (pushed..pushed + count).map(|at| format!("e{at}")).collect();
            pushed += count;
            let lines = match prng.below(4) {
                3 => {
                    let push = format!("RPUSH q {}", words.join(" "));
                    let all = ["RPUSH q x", "LPOP q", "SET side x", &push].map(str::to_owned);
                    exec(&all).join("\r\n") + "\r\n"
                }
                0 => format!("RPUSH t {}\r\nRENAME t q\r\n", words.join(" ")),
                1 => words
                    .iter()
                    .map(|word| format!("RPUSH t {word}\r\nLMOVE t q LEFT LEFT\r\n"))
                    .collect(),
                _ => format!("RPUSH q {}\r\n", words.join(" ")),
            };
            sim.send(TAKERS, lines.as_bytes());
        }
        if asked < 40 && prng.chance(20) {
            asked += 1;
            let line = if prng.chance(50) { "LPOP q\r\n" } else { "EXISTS q\r\n" };
            sim.send(TAKERS + 1, line.as_bytes());
        }
        sim.step();
        while let Some(reply) = value::take(sim.inbox(TAKERS + 1)) {
            if !matches!(reply, Value::Null | Value::Int(0)) {
                return Err(format!("somebody else sees {reply:?}"));
            }
        }
        for (taker, got) in got.iter_mut().enumerate() {
            *got = value::take(sim.inbox(taker)).map(|reply| format!("{reply:?}")).or(got.take());
        }
        if got.iter().all(Option::is_some) {
            break;
        }
    }
    for (taker, got) in got.iter().enumerate() {
        let element = format!("\"e{taker}\"");
        if !got.as_ref().is_some_and(|got| got.contains(&element)) {
            return Err(format!("taker {taker} gets {got:?}"));
        }
    }
    Ok(())
}

fn until(sim: &mut Sim, is_done: impl Fn(&Sim) -> bool) -> Result<(), String> {
    for _ in 0..PATIENCE {
        sim.step();
        if is_done(sim) {
            return Ok(());
        }
    }
    Err("it does not come to rest".to_owned())
}

/// The world with each of [`BUGS`].
pub(crate) fn counter_tests() -> impl Iterator<Item = CounterTest> {
    BUGS.iter().map(|&(name, verb)| CounterTest::new(name, 50, move |seed| wait_for(seed, 2, verb)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_clients_are_served_in_order_and_no_element_is_lost() {
        for cores in [1, 2, 3, 5] {
            for seed in 0..10 {
                assert_eq!(wait_for(seed, cores, "BLPOP"), Ok(()), "seed {seed}, {cores} cores");
            }
        }
    }
}
