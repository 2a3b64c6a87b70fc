//! Checks that messages reach all subscribers, once and in order.
//!
//! Publishers pipeline numbered messages to a few channels; each first writes the number to its own
//! key. Listeners subscribe to channels, patterns and shard channels, and unsubscribe again; in
//! some runs their connections are reset. These properties must hold:
//!
//! - A message comes between the confirmations of subscribing and of giving up, never outside.
//! - As many receive it as PUBLISH has replied; fewer only where connections were reset.
//! - All listeners see the messages of a channel in one order.
//! - Each connection sees the messages of a publisher in its order, whatever their channels.
//! - A client that has seen a message, and asks for the key then, finds its number or a later one.

use crate::CounterTest;
use crate::value::{self, Value};
use crate::world::{Flaw, Sim};
use darter_base::Prng;
use darter_server::engine::Table;
use std::collections::{BTreeMap, BTreeSet};

/// Messages of each publisher.
const MESSAGES: usize = 60;
/// The most messages in one pipeline. The next constant is the number in flight beyond which a
/// publisher waits.
const PIPELINE: u64 = 6;
const AHEAD: usize = 12;

const CHANNELS: [&str; 4] = ["c0", "c1", "d0", "d1"];
const PATTERNS: [&str; 3] = ["c*", "*1", "?0"];
/// The prefix of a subscription's command, and its names.
const KINDS: [(&str, &[&str]); 3] = [("", &CHANNELS), ("P", &PATTERNS), ("S", &CHANNELS)];

/// Flawed worlds, with the number of cores that exposes each.
const BUGS: &[(&str, Flaw, usize)] =
    &[("messages to subscribers that overtake others", Flaw::Reorders, 3)];

/// The identity of a message: its publisher, and its number, from 1.
type Id = (usize, usize);

#[derive(Default)]
struct Publisher {
    /// The channels of its messages: a name, with `S` before that of a shard channel.
    sent: Vec<String>,
    /// The number of receivers of each message, by PUBLISH's reply.
    counts: Vec<i64>,
    replies: usize,
}

#[derive(Default)]
struct Listener {
    /// The subscriptions: the kind, and the name.
    held: BTreeSet<(usize, String)>,
    /// Whether a confirmation is due.
    awaits: bool,
    /// A read of a publisher's key, and the number that it must find.
    asked: Option<Id>,
    /// The last message of each publisher.
    last: Vec<usize>,
    /// The messages that it saw on each channel since it last subscribed to that: by subscription.
    seen: BTreeMap<(usize, String, String), Vec<Id>>,
    is_reset: bool,
}

struct Run {
    sim: Sim,
    prng: Prng,
    publishers: Vec<Publisher>,
    listeners: Vec<Listener>,
    resets: bool,
    received: BTreeMap<Id, i64>,
    /// For each channel: pairs of messages of which one came directly before the other, somewhere.
    before: BTreeMap<String, BTreeSet<(Id, Id)>>,
}

/// Runs one seed on this many cores.
pub(crate) fn publish(seed: u64, cores: usize, flaw: Flaw) -> Result<(), String> {
    /// Steps after which the run counts as hung.
    const PATIENCE: usize = 400_000;
    let mut run = Run::new(seed, cores, flaw);
    for _ in 0..PATIENCE {
        run.step()?;
        if run.is_done() {
            return run.check();
        }
    }
    Err("the publishers do not finish".to_owned())
}

impl Run {
    fn new(seed: u64, cores: usize, flaw: Flaw) -> Self {
        let mut prng = Prng::from_seed(seed ^ 0x5b5c_5d5e);
        let (publishers, listeners) = (1 + at(&mut prng, 3), 2 + at(&mut prng, 6));
        let resets = prng.chance(40);
        let mut families = darter_families::TABLES.to_vec();
        families.push(darter_persist::commands::TABLE);
        let table = Table::new(&families, darter_server::admin::TABLES);
        let mut sim = Sim::new(seed, cores, publishers + listeners, table);
        sim.flaw = flaw;
        let listener = |_| Listener { last: vec![0; publishers], ..Listener::default() };
        let mut run = Self {
            sim,
            prng,
            publishers: (0..publishers).map(|_| Publisher::default()).collect(),
            listeners: (0..listeners).map(listener).collect(),
            resets,
            received: BTreeMap::new(),
            before: BTreeMap::new(),
        };
        (0..listeners).for_each(|listener| run.greet(listener));
        run
    }

    fn greet(&mut self, listener: usize) {
        self.listeners[listener].awaits = true;
        self.sim.send(self.publishers.len() + listener, b"HELLO 3\r\n");
    }

    fn step(&mut self) -> Result<(), String> {
        for publisher in 0..self.publishers.len() {
            self.write(publisher);
        }
        for listener in 0..self.listeners.len() {
            self.act(listener);
        }
        self.sim.step();
        (0..self.publishers.len()).try_for_each(|publisher| self.take_replies(publisher))?;
        (0..self.listeners.len()).try_for_each(|listener| self.take_pushes(listener))
    }

    /// All has been published, and nothing is on its way.
    fn is_done(&self) -> bool {
        let is_answered = |publisher: &Publisher| publisher.counts.len() >= MESSAGES;
        self.publishers.iter().all(is_answered) && self.sim.is_asleep()
    }

    /// A publisher may send a pipeline: a write before each message.
    fn write(&mut self, at_publisher: usize) {
        let publisher = &mut self.publishers[at_publisher];
        let ahead = publisher.sent.len() - publisher.counts.len();
        if publisher.sent.len() >= MESSAGES || ahead > AHEAD || !self.prng.chance(8) {
            return;
        }
        let mut bytes = String::new();
        for _ in 0..=self.prng.below(PIPELINE) {
            let channel = CHANNELS[at(&mut self.prng, CHANNELS.len())];
            let shard = if self.prng.chance(25) { "S" } else { "" };
            publisher.sent.push(format!("{shard}{channel}"));
            let number = publisher.sent.len();
            bytes += &format!(
                "SET key:{at_publisher} {number}\r\n\
                 {shard}PUBLISH {channel} {at_publisher}:{number}\r\n"
            );
        }
        self.sim.send(at_publisher, bytes.as_bytes());
    }

    /// A listener may change its subscriptions, or be reset.
    fn act(&mut self, at_listener: usize) {
        let client = self.publishers.len() + at_listener;
        let listener = &mut self.listeners[at_listener];
        if listener.is_reset {
            if self.sim.is_closed(client) {
                *listener = Listener { last: vec![0; self.publishers.len()], ..Default::default() };
                self.sim.reconnect(client);
                self.greet(at_listener);
            }
            return;
        }
        if self.resets && self.prng.below(2_000) == 0 {
            listener.is_reset = true;
            self.sim.reset(client);
            return;
        }
        let is_ending = self.publishers.iter().all(|publisher| publisher.sent.len() >= MESSAGES);
        if listener.awaits || listener.asked.is_some() || is_ending || !self.prng.chance(4) {
            return;
        }
        let kind = at(&mut self.prng, KINDS.len());
        let (word, names) = KINDS[kind];
        let name = names[at(&mut self.prng, names.len())];
        let not = if listener.held.contains(&(kind, name.to_owned())) { "UN" } else { "" };
        listener.awaits = true;
        let line = format!("{word}{not}SUBSCRIBE {name}\r\n");
        self.sim.send(client, line.as_bytes());
    }

    fn take_replies(&mut self, client: usize) -> Result<(), String> {
        while let Some(reply) = value::take(self.sim.inbox(client)) {
            let publisher = &mut self.publishers[client];
            publisher.replies += 1;
            match reply {
                Value::Simple(ok) if publisher.replies % 2 == 1 && ok == "OK" => {}
                Value::Int(count) if publisher.replies.is_multiple_of(2) => {
                    publisher.counts.push(count);
                }
                other => return Err(format!("publisher {client}: {other:?}")),
            }
        }
        Ok(())
    }

    fn take_pushes(&mut self, listener: usize) -> Result<(), String> {
        let client = self.publishers.len() + listener;
        if self.listeners[listener].is_reset {
            return Ok(()); // Unread output is lost with its connection.
        }
        while let Some(value) = value::take(self.sim.inbox(client)) {
            let told = match &value {
                Value::Push(items) => self.take_push(listener, items),
                Value::Array(_) => {
                    self.listeners[listener].awaits = false;
                    Some(()) // The greeting.
                }
                other => self.take_read(listener, other),
            };
            told.ok_or_else(|| {
                let held = &self.listeners[listener].held;
                format!("listener {listener}, who holds {held:?}, got {value:?}")
            })?;
        }
        Ok(())
    }

    /// None if it must not come, or not now.
    fn take_push(&mut self, at_listener: usize, items: &[Value]) -> Option<()> {
        let texts: Vec<&str> = items
            .iter()
            .map(|item| if let Value::Bulk(text) = item { text.as_str() } else { "" })
            .collect();
        let listener = &mut self.listeners[at_listener];
        let kind_of = |word: &str| match word.as_bytes()[0] {
            b'p' => 1,
            b's' if word.starts_with("ss") || word.starts_with("sun") || word.starts_with("sm") => {
                2
            }
            _ => 0,
        };
        let (word, kind) = (texts[0], kind_of(texts[0]));
        if word.ends_with("subscribe") {
            let place = (kind, texts[1].to_owned());
            listener.awaits = false;
            listener
                .seen
                .retain(|(kind, name, _), _| (*kind, name.as_str()) != (place.0, &place.1));
            let is_new = match word.contains("un") {
                true => listener.held.remove(&place),
                false => listener.held.insert(place),
            };
            return is_new.then_some(());
        }
        let (name, channel, payload) = match *texts {
            [_, pattern, channel, payload] => (pattern, channel, payload),
            [_, channel, payload] => (channel, channel, payload),
            _ => return None,
        };
        let (publisher, number) = payload.split_once(':')?;
        let id: Id = (publisher.parse().ok()?, number.parse().ok()?);
        let is_held = listener.held.contains(&(kind, name.to_owned()));
        if !is_held || listener.last[id.0] > id.1 {
            return None;
        }
        listener.last[id.0] = id.1;
        *self.received.entry(id).or_default() += 1;
        let shard = if kind == 2 { "S" } else { "" };
        let channel = format!("{shard}{channel}");
        let seen = listener.seen.entry((kind, name.to_owned(), channel.clone())).or_default();
        if let Some(last) = seen.last() {
            self.before.entry(channel).or_default().insert((*last, id));
        }
        seen.push(id);
        self.maybe_ask(at_listener, id);
        Some(())
    }

    fn maybe_ask(&mut self, listener: usize, id: Id) {
        if self.listeners[listener].asked.is_none() && self.prng.chance(30) {
            self.listeners[listener].asked = Some(id);
            let line = format!("GET key:{}\r\n", id.0);
            self.sim.send(self.publishers.len() + listener, line.as_bytes());
        }
    }

    fn take_read(&mut self, listener: usize, value: &Value) -> Option<()> {
        let (_, number) = self.listeners[listener].asked.take()?;
        let Value::Bulk(text) = value else { return None };
        (text.parse::<usize>().ok()? >= number).then_some(())
    }

    /// At the end: the counts, and one order for each channel.
    fn check(&self) -> Result<(), String> {
        for (at, publisher) in self.publishers.iter().enumerate() {
            for (index, count) in publisher.counts.iter().enumerate() {
                let id = (at, index + 1);
                let received = self.received.get(&id).copied().unwrap_or(0);
                if received > *count || (received < *count && !self.resets) {
                    return Err(format!("{id:?} was sent to {count}, and {received} have it"));
                }
            }
        }
        let ordered = |(_, before): &(&String, &BTreeSet<(Id, Id)>)| !is_order(before);
        match self.before.iter().find(ordered) {
            Some((channel, _)) => Err(format!("the messages of {channel} have no one order")),
            None => Ok(()),
        }
    }
}

/// True when nothing comes before itself.
fn is_order(before: &BTreeSet<(Id, Id)>) -> bool {
    let mut left = before.clone();
    loop {
        let later: BTreeSet<Id> = left.iter().map(|(_, later)| *later).collect();
        let len = left.len();
        left.retain(|(earlier, _)| later.contains(earlier));
        if left.is_empty() {
            return true;
        }
        if left.len() == len {
            return false;
        }
    }
}

fn at(prng: &mut Prng, count: usize) -> usize {
    usize::try_from(prng.below(count as u64)).unwrap_or(0)
}

/// The world with each of [`BUGS`].
pub(crate) fn counter_tests() -> impl Iterator<Item = CounterTest> {
    BUGS.iter().map(|&(name, flaw, cores)| {
        CounterTest::new(name, 200, move |seed| publish(seed, cores, flaw))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_once_and_in_order() {
        for cores in [1, 2, 3, 5] {
            for seed in 0..8 {
                assert_eq!(publish(seed, cores, Flaw::None), Ok(()), "seed {seed}, {cores} cores");
            }
        }
    }

    #[test]
    fn cyclic_message_orders_are_detected() {
        let edges = |pairs: &[(usize, usize)]| -> BTreeSet<(Id, Id)> {
            pairs.iter().map(|(one, other)| ((0, *one), (0, *other))).collect()
        };
        assert!(is_order(&edges(&[(1, 2), (2, 3), (1, 3)])));
        assert!(!is_order(&edges(&[(1, 2), (2, 3), (3, 2)])));
    }
}
