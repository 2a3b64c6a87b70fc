//! Checks of connections that move to the core of their keys.
//!
//! Each wanderer has a counter on every core, and sends runs of INCR to one of them, one by one or
//! in pipelines: so it moves from core to core. Its replies must be the numbers in their order. At
//! random it half-closes or resets its connection. Another client sends CLIENT LIST, which must
//! have every connection that exists during the call, exactly once. It kills clients by id, which
//! no existing client may escape, and redirects its invalidations to a client, which must be found.
//!
//! Others' worlds have connections that move, too: see `world`.

use crate::CounterTest;
use crate::value::{self, Value};
use crate::world::{Flaw, Sim};
use darter_base::Prng;
use darter_command::{Answer, Command, Flags, Group, Keys, Refusal, Run as Shape};
use darter_server::engine::{Core, Policy, Runner, ServerCall, Table};
use std::collections::VecDeque;
use std::rc::Rc;

/// Numbers that the wanderers draw in a run, at least.
const NUMBERS: usize = 400;
/// Steps after which a run counts as hung.
const PATIENCE: usize = 400_000;

/// Bugs that must be found: flawed worlds, and a list with a bug.
const BUGS: &[(&str, Flaw, &str)] = &[
    ("a connection whose end is not noticed as it moves", Flaw::ForgetsEnds, LIST),
    ("bytes that come as a connection moves, and are lost", Flaw::ForgetsBytes, LIST),
    ("a list of connections, of which some move meanwhile", Flaw::None, "LISTING"),
];

/// The command that lists all clients.
pub(crate) const LIST: &str = "CLIENT LIST";

/// One that does so while they move.
const LISTING: (Command, Runner) = (
    Command::new("listing", "0.0.0", 1, Flags::ADMIN, Keys(&[]), Group::Connection, Shape::Server),
    Runner::Task(|call| Box::pin(listing(call))),
);

async fn listing(call: ServerCall) -> Result<Answer, Refusal> {
    let ids = || {
        |core: Rc<Core>| async move {
            let mut lines = String::new();
            core.each_conn(|conn| lines.push_str(&format!("id={} \n", conn.lane.session.id))).await;
            lines
        }
    };
    let lines = call.core.run_on_all(ids).await.concat();
    Ok(call.answer(|reply| reply.bulk(lines.as_bytes())))
}

/// A client that goes from core to core.
struct Wanderer {
    /// Connections that it had before this one.
    connection: usize,
    /// The last number of each of its counters.
    counters: Vec<u64>,
    /// The counter that it works with, and how many requests are left of its run.
    at: usize,
    left: u64,
    /// Numbers that it waits for, by their counters; none for its id.
    awaits: VecDeque<Option<(usize, u64)>>,
    id: Option<i64>,
    fate: Fate,
}

/// Whether a wanderer stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stays,
    /// The client has half-closed its connection: it gets its outstanding replies.
    Ends,
    /// The client has reset its connection, or may have been killed: its outstanding replies may be
    /// lost.
    Goes,
}

/// The reply that the observing client waits for.
enum Asked {
    /// A list that must have these ids, unless they close during the call.
    List(Vec<(usize, Option<i64>)>),
    /// The kill of this one.
    Kill(usize),
    /// Redirection to this one, and its id.
    Redirect((usize, Option<i64>)),
    Other,
}

struct Run {
    sim: Sim,
    prng: Prng,
    wanderers: Vec<Wanderer>,
    asked: VecDeque<Asked>,
    drawn: usize,
    list: &'static str,
}

/// Runs one seed on this many cores.
pub(crate) fn wander(
    seed: u64,
    cores: usize,
    flaw: Flaw,
    list: &'static str,
) -> Result<(), String> {
    let mut run = Run::new(seed, cores, flaw, list);
    for _ in 0..PATIENCE {
        run.step()?;
        if run.is_done() {
            run.sim.check_rest();
            run.sim.check_invariants();
            return Ok(());
        }
    }
    Err("the wanderers do not finish".to_owned())
}

impl Run {
    fn new(seed: u64, cores: usize, flaw: Flaw, list: &'static str) -> Self {
        let mut prng = Prng::from_seed(seed ^ 0x00a0_b1e5);
        let count = 2 + below(&mut prng, 5);
        let mut families = darter_families::TABLES.to_vec();
        families.push(darter_persist::commands::TABLE);
        let own = [darter_server::admin::TABLES, &[&[LISTING]]].concat();
        let mut sim = Sim::new(seed, cores, count + 1, Table::new(&families, &own));
        sim.flaw = flaw;
        let requests = 1 + u32::try_from(prng.below(3)).unwrap_or(0);
        let policy = Policy { requests, streak_ms: 0, stay_ms: prng.below(2), span_ms: 1 };
        sim.cores.iter().for_each(|core| core.set_move_policy(policy));
        let wanderers = (0..count).map(|_| Wanderer::new(cores, 0)).collect();
        Self { sim, prng, wanderers, asked: VecDeque::new(), drawn: 0, list }
    }

    fn is_done(&self) -> bool {
        let is_quiet =
            |wanderer: &Wanderer| wanderer.awaits.is_empty() && (wanderer.fate == Fate::Stays);
        self.drawn >= NUMBERS && self.asked.is_empty() && self.wanderers.iter().all(is_quiet)
    }

    fn step(&mut self) -> Result<(), String> {
        for client in 0..self.wanderers.len() {
            self.renew(client)?;
            self.draw(client);
            self.leave(client);
        }
        self.look_at_all();
        self.sim.step();
        for client in 0..self.wanderers.len() {
            self.take_numbers(client)?;
        }
        self.take_answer()
    }

    /// A client whose connection has ended connects again.
    fn renew(&mut self, client: usize) -> Result<(), String> {
        if !self.sim.is_closed(client) {
            return Ok(());
        }
        self.take_numbers(client)?;
        let wanderer = &mut self.wanderers[client];
        match wanderer.fate {
            Fate::Stays => return Err(format!("client {client} is closed for no reason")),
            Fate::Ends if !wanderer.awaits.is_empty() => {
                return Err(format!("client {client} is closed, and owed {:?}", wanderer.awaits));
            }
            _ => {}
        }
        // An unanswered command may have been run: it has other counters from now on.
        *wanderer = Wanderer::new(wanderer.counters.len(), wanderer.connection + 1);
        self.sim.reconnect(client);
        Ok(())
    }

    /// The name of a client's counter on a core.
    fn counter(&self, client: usize, core: usize) -> String {
        let (tx, connection) = (&self.sim.cores[0].tx, self.wanderers[client].connection);
        let mut names = (0..).map(|at| format!("c{client}.{connection}:{at}"));
        names.find(|name| tx.core_of(name.as_bytes()) == core).expect("there are many")
    }

    fn draw(&mut self, client: usize) {
        let wanderer = &mut self.wanderers[client];
        if wanderer.id.is_none() && wanderer.awaits.is_empty() {
            wanderer.awaits.push_back(None);
            return self.sim.send(client, b"CLIENT ID\r\n");
        }
        let may_draw = wanderer.id.is_some()
            && wanderer.fate == Fate::Stays
            && wanderer.awaits.len() < 4
            && self.drawn < NUMBERS;
        if !may_draw || !self.prng.chance(10) {
            return;
        }
        if wanderer.left == 0 {
            wanderer.at = below(&mut self.prng, wanderer.counters.len());
            wanderer.left = 1 + self.prng.below(20);
        }
        let at = wanderer.at;
        let count = (1 + self.prng.below(3)).min(wanderer.left);
        wanderer.left -= count;
        for _ in 0..count {
            wanderer.counters[at] += 1;
            wanderer.awaits.push_back(Some((at, wanderer.counters[at])));
        }
        self.drawn += usize::try_from(count).unwrap_or(0);
        let line = format!("INCR {}\r\n", self.counter(client, at));
        self.sim.send(client, line.repeat(usize::try_from(count).unwrap_or(0)).as_bytes());
    }

    fn leave(&mut self, client: usize) {
        let wanderer = &mut self.wanderers[client];
        if wanderer.fate != Fate::Stays || wanderer.id.is_none() || self.drawn >= NUMBERS {
            return;
        }
        match self.prng.below(10_000) {
            0..4 => {
                wanderer.fate = Fate::Goes;
                self.sim.reset(client);
            }
            4..20 => {
                wanderer.fate = Fate::Ends;
                self.sim.end(client);
            }
            _ => {}
        }
    }

    /// The last client asks for all others, or for one.
    fn look_at_all(&mut self) {
        if !self.asked.is_empty() || self.drawn >= NUMBERS || !self.prng.chance(2) {
            return;
        }
        let is_there = |wanderer: &Wanderer| wanderer.id.is_some() && wanderer.fate == Fate::Stays;
        let there = self.wanderers.iter().enumerate().filter(|(_, one)| is_there(one));
        let there: Vec<(usize, Option<i64>)> = there.map(|(at, one)| (at, one.id)).collect();
        let one = there.get(below(&mut self.prng, there.len().max(1))).copied();
        let line = match (self.prng.below(40), one) {
            (0..2, Some((client, Some(id)))) => {
                self.asked.push_back(Asked::Kill(client));
                self.wanderers[client].fate = Fate::Goes;
                format!("CLIENT KILL ID {id}\r\n")
            }
            (2, Some((client, Some(id)))) => {
                self.asked.extend([Asked::Redirect((client, Some(id))), Asked::Other]);
                format!("CLIENT TRACKING ON REDIRECT {id}\r\nCLIENT TRACKING OFF\r\n")
            }
            _ => {
                self.asked.push_back(Asked::List(there));
                format!("{}\r\n", self.list)
            }
        };
        self.sim.send(self.wanderers.len(), line.as_bytes());
    }

    fn take_numbers(&mut self, client: usize) -> Result<(), String> {
        while let Some(reply) = value::take(self.sim.inbox(client)) {
            let wanderer = &mut self.wanderers[client];
            let awaited = wanderer.awaits.pop_front();
            match (awaited, &reply) {
                (Some(Some((_, number))), Value::Int(got)) if i64::try_from(number) == Ok(*got) => {
                }
                (Some(None), Value::Int(id)) => wanderer.id = Some(*id),
                (awaited, _) => {
                    return Err(format!("client {client} awaits {awaited:?} and gets {reply:?}"));
                }
            }
        }
        Ok(())
    }

    fn take_answer(&mut self) -> Result<(), String> {
        while let Some(reply) = value::take(self.sim.inbox(self.wanderers.len())) {
            let asked = self.asked.pop_front();
            // The client may have gone by itself in between, and come again.
            let is_there = |(client, id): &(usize, Option<i64>)| {
                let one = &self.wanderers[*client];
                one.fate == Fate::Stays && one.id == *id
            };
            match (asked, &reply) {
                (Some(Asked::List(there)), Value::Bulk(text)) => {
                    let must: Vec<_> = there.into_iter().filter(is_there).collect();
                    check_list(&must, text)?;
                }
                (Some(Asked::Kill(client)), Value::Int(0)) if !self.sim.is_closed(client) => {
                    return Err(format!("client {client} is there, and is not killed"));
                }
                (Some(Asked::Redirect(one)), Value::Error(_)) if is_there(&one) => {
                    return Err(format!("{one:?} is there, and is not found"));
                }
                (Some(Asked::List(_)), _) | (None, _) => return Err(format!("{reply:?}")),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Wanderer {
    fn new(cores: usize, connection: usize) -> Self {
        Self {
            connection,
            counters: vec![0; cores],
            at: 0,
            left: 0,
            awaits: VecDeque::new(),
            id: None,
            fate: Fate::Stays,
        }
    }
}

/// Checks that a list has all these clients, and none twice.
fn check_list(must: &[(usize, Option<i64>)], text: &str) -> Result<(), String> {
    let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse::<i64>().ok();
    let ids: Vec<Option<i64>> = text.lines().map(id).collect();
    let times = |one: &Option<i64>| ids.iter().filter(|id| *id == one).count();
    let is_right = must.iter().all(|(_, id)| times(id) == 1) && ids.iter().all(|id| times(id) == 1);
    if is_right { Ok(()) } else { Err(format!("{ids:?} are not these, once: {must:?}")) }
}

fn below(prng: &mut Prng, count: usize) -> usize {
    usize::try_from(prng.below(count as u64)).unwrap_or(0)
}

/// The world with each of [`BUGS`].
pub(crate) fn counter_tests() -> impl Iterator<Item = CounterTest> {
    BUGS.iter().map(|&(name, flaw, list)| {
        CounterTest::new(name, 60, move |seed| wander(seed, 3, flaw, list))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_connections_lose_no_request() {
        let mut moves = 0;
        for cores in [2, 3, 5] {
            for seed in 0..20 {
                let mut run = Run::new(seed, cores, Flaw::None, LIST);
                while !run.is_done() {
                    assert_eq!(run.step(), Ok(()), "seed {seed}, {cores} cores");
                }
                moves += run.sim.cores.iter().map(|core| core.stats.borrow().moves).sum::<u64>();
            }
        }
        assert!(moves > 300, "{moves} moves: little is checked");
    }
}
