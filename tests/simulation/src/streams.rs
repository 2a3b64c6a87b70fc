//! Checks of clients that wait for stream entries: each group gets every entry once, a reader gets
//! all entries in order, and no client waits while there is an entry for it.
//!
//! Producers add entries that are all different, alone and in transactions. Takers wait for them as
//! consumers of two groups, with and without a timeout, for two streams at a time; readers wait
//! for entries after the last one that they have seen of every stream. Connections are reset, half-closed
//! and killed at any moment, and takers are unblocked. At the end each group has delivered every
//! entry: to a client that received it, or to a connection that closed while the reply was in
//! flight.

use crate::CounterTest;
use crate::value::{self, Value};
use crate::world::Sim;
use darter_base::Prng;
use darter_command::{
    Args, Command, Condition, Flow, Look, Looking, Refusal, Since, Taking, Wait, WaitFn, Want,
};
use darter_resp::{Output, Reply};
use darter_server::engine::Table;
use std::collections::BTreeMap;

/// Entries that are added in a run.
const ENTRIES: usize = 50;
/// Steps after which a run counts as hung.
const PATIENCE: usize = 300_000;
const STREAMS: usize = 3;
const GROUPS: [&str; 2] = ["g", "h"];
/// Clients 0 and 1 produce, client 2 meddles.
const MEDDLER: usize = 2;
const READERS: usize = 2;
const FIRST_READER: usize = 3;
const FIRST_TAKER: usize = FIRST_READER + READERS;

/// The names of the commands that take and that read: XREADGROUP and XREAD, or one with a bug.
pub(crate) type Verbs = [&'static str; 2];

/// Bugs that the checks must find: a name, and the verbs that have it.
const BUGS: &[(&str, Verbs)] = &[
    ("an entry that is delivered and not sent", ["LOSTGROUP", "XREAD"]),
    ("a consumer who is never asked", ["SLEEPGROUP", "XREAD"]),
    ("a reader who is never asked", ["XREADGROUP", "SLEEPREAD"]),
    ("a reader who is shown what he has seen", ["XREADGROUP", "AGAINREAD"]),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bug {
    Lost,
    Asleep,
    Again,
}

/// A command's wait, with a bug.
struct Broken(Box<dyn Want>, Bug);

impl Want for Broken {
    fn look(&self, call: &Looking<'_>) -> Look {
        let is_called = call.when == darter_command::When::Called;
        if self.1 == Bug::Asleep && !is_called { Look::Nothing } else { self.0.look(call) }
    }

    fn condition(&self) -> Option<Condition> {
        self.0.condition()
    }

    fn since(&self, call: &Looking<'_>) -> Since {
        if self.1 == Bug::Again { Since(0) } else { self.0.since(call) }
    }

    fn take(&self, call: &mut Taking<'_>, at: usize) -> Result<Flow, Refusal> {
        if self.1 != Bug::Lost {
            return self.0.take(call, at);
        }
        let Taking { db, args, reply, when } = call;
        let mut out = Output::default();
        let unsent = Reply::new(&mut out, false);
        let flow = self.0.take(&mut Taking { db, args: *args, reply: unsent, when: *when }, at)?;
        reply.null_array();
        Ok(flow)
    }
}

fn waits_of(name: &str, args: Args<'_>, bug: Bug) -> Result<Wait, Refusal> {
    let wait = row(name).waits.expect("it waits")(args)?;
    Ok(Wait { want: Box::new(Broken(wait.want, bug)), ..wait })
}

fn row(name: &str) -> Command {
    let mut rows = darter_families::TABLES.iter().copied().flatten();
    *rows.find(|row| row.name == name).expect("the command is there")
}

/// The correct commands, with a bug in their wait.
fn broken() -> &'static [Command] {
    let broken = |name: &'static str, of: &str, waits: WaitFn| Command {
        name,
        waits: Some(waits),
        ..row(of)
    };
    Box::leak(Box::new([
        broken("lostgroup", "xreadgroup", |args| waits_of("xreadgroup", args, Bug::Lost)),
        broken("sleepgroup", "xreadgroup", |args| waits_of("xreadgroup", args, Bug::Asleep)),
        broken("sleepread", "xread", |args| waits_of("xread", args, Bug::Asleep)),
        broken("againread", "xread", |args| waits_of("xread", args, Bug::Again)),
    ]))
}

fn below(prng: &mut Prng, count: usize) -> usize {
    usize::try_from(prng.below(count as u64)).unwrap_or(0)
}

/// An entry: of which stream, its ID, and its number.
type Entry = (usize, String, usize);

/// The entries of a reply of XREAD or XREADGROUP.
fn entries(reply: &Value) -> Result<Vec<Entry>, String> {
    let fault = || format!("no entries: {reply:?}");
    let Value::Array(streams) = reply else {
        return if *reply == Value::Null { Ok(Vec::new()) } else { Err(fault()) };
    };
    let mut all = Vec::new();
    for stream in streams {
        let Value::Array(pair) = stream else { return Err(fault()) };
        let [Value::Bulk(key), Value::Array(list)] = &pair[..] else { return Err(fault()) };
        let at = key.strip_prefix('s').and_then(|at| at.parse().ok()).ok_or_else(fault)?;
        for entry in list {
            let Value::Array(parts) = entry else { return Err(fault()) };
            let [Value::Bulk(id), Value::Array(fields)] = &parts[..] else { return Err(fault()) };
            let [_, Value::Bulk(number)] = &fields[..] else { return Err(fault()) };
            all.push((at, id.clone(), number.parse().map_err(|_| fault())?));
        }
    }
    Ok(all)
}

/// A consumer.
#[derive(Default)]
struct Taker {
    outstanding: usize,
    id: Option<i64>,
    ends: bool,
    /// The call that it waits for.
    call: Option<Asked>,
}

/// A call of a consumer.
#[derive(Clone, Copy)]
struct Asked {
    group: usize,
    streams: [usize; 2],
    /// The number in the consumer's name.
    number: usize,
}

/// A client that reads everything.
#[derive(Default)]
struct Reader {
    outstanding: bool,
    /// The last ID seen of each stream.
    last: [Option<String>; STREAMS],
    got: usize,
}

struct Run {
    sim: Sim,
    prng: Prng,
    verbs: Verbs,
    takers: Vec<Taker>,
    readers: [Reader; READERS],
    /// The consumer that got each entry.
    taken: BTreeMap<(usize, usize), usize>,
    /// The outcome of each call of a consumer: whether it got an entry; `None` if its connection
    /// was cut before that.
    calls: Vec<Option<bool>>,
    added: usize,
    /// Replies that the first three clients wait for.
    outstanding: [usize; 3],
}

/// Runs one seed on this many cores.
pub(crate) fn wait_for(seed: u64, cores: usize, verbs: Verbs) -> Result<(), String> {
    let mut prng = Prng::from_seed(seed ^ 0x57ae_a35e);
    let takers = 2 + below(&mut prng, 6);
    let mut families = darter_families::TABLES.to_vec();
    families.push(darter_persist::commands::TABLE);
    families.push(broken());
    let table = Table::new(&families, darter_server::admin::TABLES);
    let run = Run {
        sim: Sim::new(seed, cores, FIRST_TAKER + takers, table),
        prng,
        verbs,
        takers: (0..takers).map(|_| Taker::default()).collect(),
        readers: Default::default(),
        taken: BTreeMap::new(),
        calls: Vec::new(),
        added: 0,
        outstanding: [0; 3],
    };
    run.play()
}

impl Run {
    fn play(mut self) -> Result<(), String> {
        for stream in 0..STREAMS {
            for group in GROUPS {
                self.ask(&format!("XGROUP CREATE s{stream} {group} $ MKSTREAM"))?;
            }
        }
        for _ in 0..PATIENCE {
            self.produce();
            self.meddle();
            (0..READERS).for_each(|reader| self.read(reader));
            (0..self.takers.len()).for_each(|taker| self.take(taker));
            self.sim.step();
            self.receive()?;
            if self.added >= ENTRIES && self.outstanding.iter().sum::<usize>() == 0 {
                return self.close();
            }
        }
        Err("the producers do not finish".to_owned())
    }

    /// Asks the meddler's connection.
    fn ask(&mut self, line: &str) -> Result<Value, String> {
        self.sim.send(MEDDLER, format!("{line}\r\n").as_bytes());
        for _ in 0..PATIENCE {
            self.sim.step();
            if let Some(reply) = value::take(self.sim.inbox(MEDDLER)) {
                return Ok(reply);
            }
        }
        Err(format!("{line} is not answered"))
    }

    fn produce(&mut self) {
        for client in 0..2 {
            if self.added >= ENTRIES || self.outstanding[client] > 4 || !self.prng.chance(5) {
                continue;
            }
            let mut add = || {
                self.added += 1;
                format!("XADD s{} * e {}", below(&mut self.prng, STREAMS), self.added)
            };
            let lines = match (add(), add()) {
                (one, other) if self.prng.chance(40) => {
                    vec!["MULTI".to_owned(), one, "SET side x".to_owned(), other, "EXEC".to_owned()]
                }
                (one, other) => vec![one, other],
            };
            self.outstanding[client] += lines.len();
            self.sim.send(client, (lines.join("\r\n") + "\r\n").as_bytes());
        }
    }

    /// Ends a taker's waiting.
    fn meddle(&mut self) {
        let is_over = self.added >= ENTRIES;
        if is_over || self.outstanding[MEDDLER] > 0 || !self.prng.chance(3) {
            return;
        }
        let taker = below(&mut self.prng, self.takers.len());
        let Some(id) = self.takers[taker].id else { return };
        let verb = if self.prng.chance(70) { "UNBLOCK" } else { "KILL ID" };
        self.outstanding[MEDDLER] += 1;
        self.sim.send(MEDDLER, format!("CLIENT {verb} {id}\r\n").as_bytes());
    }

    fn read(&mut self, reader: usize) {
        let client = FIRST_READER + reader;
        if self.sim.is_closed(client) {
            self.sim.reconnect(client);
            self.readers[reader].outstanding = false;
        }
        if self.readers[reader].outstanding {
            if self.added < ENTRIES && self.prng.below(600) == 0 {
                self.sim.reset(client);
            }
            return;
        }
        let timeout = [0, 0, 3][below(&mut self.prng, 3)];
        let streams: Vec<_> = (0..STREAMS).map(|at| format!("s{at}")).collect();
        let seen = self.readers[reader].last.iter();
        let seen: Vec<_> = seen.map(|id| id.as_deref().unwrap_or("0")).collect();
        let (verb, streams, seen) = (self.verbs[1], streams.join(" "), seen.join(" "));
        let line = format!("{verb} COUNT 3 BLOCK {timeout} STREAMS {streams} {seen}\r\n");
        self.sim.send(client, line.as_bytes());
        self.readers[reader].outstanding = true;
    }

    fn take(&mut self, taker: usize) {
        let client = FIRST_TAKER + taker;
        if self.sim.is_closed(client) {
            self.sim.reconnect(client);
            self.takers[taker] = Taker::default();
        }
        let Taker { outstanding, id, ends, call } = &mut self.takers[taker];
        if *ends {
            return;
        }
        if id.is_none() {
            if *outstanding == 0 && self.added < ENTRIES {
                *outstanding = 1;
                self.sim.send(client, b"CLIENT ID\r\n");
            }
            return;
        }
        if *outstanding > 0 {
            if self.added < ENTRIES && self.prng.below(600) == 0 {
                *ends = true;
                match self.prng.chance(50) {
                    true => self.sim.reset(client),
                    false => self.sim.end(client),
                }
            }
            return;
        }
        if self.added >= ENTRIES || !self.prng.chance(20) {
            return;
        }
        let group = below(&mut self.prng, GROUPS.len());
        let one = below(&mut self.prng, STREAMS);
        let other = (one + 1) % STREAMS;
        let timeout = [0, 0, 3, 20][below(&mut self.prng, 4)];
        let (verb, name) = (self.verbs[0], GROUPS[group]);
        *outstanding = 1;
        let number = self.calls.len();
        self.calls.push(None);
        *call = Some(Asked { group, streams: [one, other], number });
        let line = format!(
            "{verb} GROUP {name} c{number} COUNT 1 BLOCK {timeout} STREAMS s{one} s{other} > >\r\n"
        );
        self.sim.send(client, line.as_bytes());
    }

    fn receive(&mut self) -> Result<(), String> {
        for client in 0..FIRST_TAKER + self.takers.len() {
            while let Some(reply) = value::take(self.sim.inbox(client)) {
                if client < FIRST_READER {
                    self.outstanding[client] -= 1;
                } else if client < FIRST_TAKER {
                    self.see(client - FIRST_READER, &reply)?;
                } else {
                    self.take_in(client - FIRST_TAKER, &reply)?;
                }
            }
        }
        Ok(())
    }

    /// A reader sees entries: each behind all others of its stream that he has seen.
    fn see(&mut self, reader: usize, reply: &Value) -> Result<(), String> {
        let reader = &mut self.readers[reader];
        reader.outstanding = false;
        for (stream, id, _) in entries(reply)? {
            let last = &mut reader.last[stream];
            if last.as_ref().is_some_and(|last| parts(last) >= parts(&id)) {
                return Err(format!("a reader of s{stream} sees {id} after {last:?}"));
            }
            *last = Some(id);
            reader.got += 1;
        }
        Ok(())
    }

    fn take_in(&mut self, taker: usize, reply: &Value) -> Result<(), String> {
        let taker = &mut self.takers[taker];
        taker.outstanding -= 1;
        if let (None, Value::Int(id)) = (taker.id, reply) {
            taker.id = Some(*id);
            return Ok(());
        }
        let Some(Asked { group, number, .. }) = taker.call.take() else {
            return Err(format!("{reply:?} was not asked for"));
        };
        self.calls[number] = Some(*reply != Value::Null);
        self.count(group, reply)
    }

    fn count(&mut self, group: usize, reply: &Value) -> Result<(), String> {
        for (_, _, number) in entries(reply)? {
            let times = self.taken.entry((group, number)).or_default();
            *times += 1;
            if *times > 1 {
                return Err(format!("group {group} got entry {number} twice"));
            }
        }
        Ok(())
    }

    /// All have been added: readers see all of them, and no consumer waits beside one.
    fn close(mut self) -> Result<(), String> {
        self.until_all_is_seen()?;
        for stream in (0..STREAMS).cycle().take(2 * STREAMS) {
            (0..READERS).for_each(|reader| self.read_on(reader));
            for _ in 0..PATIENCE {
                self.sim.step();
                if self.sim.is_asleep() {
                    break;
                }
            }
            self.added += 1;
            self.ask(&format!("XADD s{stream} * e {}", self.added))?;
            self.until_all_is_seen()?;
        }
        for stream in 0..STREAMS {
            for (group, name) in GROUPS.iter().enumerate() {
                let line = format!("XREADGROUP GROUP {name} last COUNT 1000 STREAMS s{stream} >");
                let left = self.ask(&line)?;
                let waits = self.takers.iter().enumerate().any(|(taker, state)| {
                    let call = state.call.filter(|_| !state.ends);
                    call.is_some_and(|call| call.group == group && call.streams.contains(&stream))
                        && !self.sim.is_closed(FIRST_TAKER + taker)
                });
                if waits && left != Value::Null {
                    return Err(format!("{name} waits for s{stream}, which has {left:?}"));
                }
                self.count(group, &left)?;
                let pending = self.ask(&format!("XPENDING s{stream} {name} - + 1000"))?;
                self.compare(&pending)?;
            }
        }
        let missing = GROUPS.len() * self.added - self.taken.len();
        let lost: u64 = self.sim.cores.iter().map(|core| core.ended_amid_replies()).sum();
        // A reply to a call that need not wait has an entry of each of its two streams.
        let most = 2 * lost;
        if missing as u64 > most {
            return Err(format!("{missing} entries are missing, {most} at most may be"));
        }
        self.sim.check_invariants();
        Ok(())
    }

    /// The consumer of a pending entry got it, or was cut off.
    fn compare(&self, pending: &Value) -> Result<(), String> {
        let Value::Array(rows) = pending else { return Err(format!("{pending:?}")) };
        for row in rows {
            let Value::Array(parts) = row else { return Err(format!("{row:?}")) };
            let Some(Value::Bulk(consumer)) = parts.get(1) else { return Err(format!("{row:?}")) };
            let number = consumer.strip_prefix('c').and_then(|number| number.parse::<usize>().ok());
            if number.is_some_and(|number| self.calls[number] == Some(false)) {
                return Err(format!("{consumer} was told of nothing, and has {row:?}"));
            }
        }
        Ok(())
    }

    /// Readers read until they have seen all entries, and everything rests.
    fn until_all_is_seen(&mut self) -> Result<(), String> {
        for _ in 0..PATIENCE {
            let behind = |reader: &usize| self.readers[*reader].got < self.added;
            let behind: Vec<_> = (0..READERS).filter(behind).collect();
            if behind.is_empty() && self.sim.is_asleep() && self.sim.wakes_ms().is_none() {
                return Ok(());
            }
            behind.into_iter().for_each(|reader| self.read_on(reader));
            self.sim.step();
            self.receive()?;
            if self.is_stuck() {
                break;
            }
        }
        let got = [0, 1].map(|reader: usize| self.readers[reader].got);
        Err(format!("readers have seen {got:?} of {} entries", self.added))
    }

    /// True when a reader waits for ever, and nothing is going to happen.
    fn is_stuck(&self) -> bool {
        let waits = self.readers.iter().any(|reader| reader.outstanding && reader.got < self.added);
        waits && self.sim.is_asleep() && self.sim.wakes_ms().is_none()
    }

    /// [`Run::read`] of who is not being answered.
    fn read_on(&mut self, reader: usize) {
        if !self.readers[reader].outstanding || self.sim.is_closed(FIRST_READER + reader) {
            self.read(reader);
        }
    }
}

/// An ID as two numbers.
fn parts(id: &str) -> (u64, u64) {
    let (ms, seq) = id.split_once('-').unwrap_or((id, "0"));
    (ms.parse().unwrap_or(0), seq.parse().unwrap_or(0))
}

/// The world with each of [`BUGS`].
pub(crate) fn counter_tests() -> impl Iterator<Item = CounterTest> {
    BUGS.iter()
        .map(|&(name, verbs)| CounterTest::new(name, 1_000, move |seed| wait_for(seed, 2, verbs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_receive_each_entry_once_and_readers_receive_all() {
        for cores in [1, 2, 3, 5] {
            for seed in 0..10 {
                let outcome = wait_for(seed, cores, ["XREADGROUP", "XREAD"]);
                assert_eq!(outcome, Ok(()), "seed {seed}, {cores} cores");
            }
        }
    }
}
