//! One run: clients send commands one at a time or up to three ahead, or a single client sends long
//! ones in pipelines of up to twelve; then the history is checked. Each connection's replies are
//! matched to its requests in order. Other events on connections are in `faults`.

use crate::check::{EVENTS_MAX, Event, NEVER, first_unexplained, is_linearisable};
use crate::client::{Client, JUST_NOW_MS, Leaves, Pending};
use crate::faults::{self, Faults, Pause};
use crate::ops::Op;
use crate::transaction;
use crate::value::{self, Value};
use crate::world::{Flaw, Sim};
use darter_base::Prng;
use darter_command::Command;
use darter_server::engine::Table;

/// The parameters of a run.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) cores: usize,
    pub(crate) clients: usize,
    pub(crate) commands: usize,
    pub(crate) trace: bool,
    /// Commands beside the server's own, with seeded bugs.
    pub(crate) extra: &'static [Command],
    /// Draws commands, instead of the usual mix.
    pub(crate) draw: fn(&mut Prng) -> Op,
    pub(crate) faults: Faults,
    /// A seeded bug in the world.
    pub(crate) flaw: Flaw,
}

impl Plan {
    /// The plan drawn from a seed.
    pub(crate) fn of_seed(seed: u64, cores: Option<usize>, trace: bool) -> Self {
        let mut prng = Prng::from_seed(seed ^ 0x0005_1b0e);
        let drawn = usize::try_from(1 + prng.below(8)).unwrap_or(1);
        let clients = usize::try_from(2 + prng.below(4)).unwrap_or(2);
        let is_long = prng.chance(20);
        Self {
            seed,
            cores: cores.unwrap_or(drawn),
            clients: if is_long { 1 } else { clients },
            commands: 60,
            trace,
            extra: &[],
            draw: match seed % 3 {
                _ if is_long => Op::draw_long,
                0 => Op::draw_transactions,
                _ => Op::draw,
            },
            faults: Faults::draw(&mut prng),
            flaw: Flaw::None,
        }
    }
}

/// Runs a plan. The error names the violated property.
pub(crate) fn simulate(plan: &Plan) -> Result<(), String> {
    assert!(plan.commands <= EVENTS_MAX, "too many commands for one check");
    let (history, mut sim) = Run::new(plan).play()?;
    sim.check_rest();
    sim.check_invariants();
    let is_open = |client: usize| !sim.is_closed(client);
    if plan.faults.timeout_s > 0 && (0..plan.clients).any(is_open) {
        return Err("an idle client is not closed".to_owned());
    }
    if let Some(event) = transaction::unprovoked(&history) {
        return Err(format!("a transaction did not run, and nobody wrote to its key: {event:?}"));
    }
    if is_linearisable(&history) { Ok(()) } else { Err(explain(&history)) }
}

/// A run in progress.
struct Run<'a> {
    plan: &'a Plan,
    sim: Sim,
    prng: Prng,
    clients: Vec<Client>,
    /// The number of commands that a client may have in flight, and whether it sends them all at
    /// once.
    depth: usize,
    at_once: bool,
    pause: Pause,
    history: Vec<Event>,
    /// When a connection was last closed, in Unix milliseconds.
    closed_ms: u64,
    /// The current step, and that of the last reply.
    now: u64,
    last: u64,
    sent: usize,
    /// Commands that were answered or lost.
    done: usize,
    /// Writes whose outcome is unknown: each doubles the check.
    lost: usize,
}

/// The most writes that a run loses on purpose.
const LOST_MAX: usize = 4;

impl<'a> Run<'a> {
    fn new(plan: &'a Plan) -> Self {
        let is_replaced = |row: &Command| plan.extra.iter().any(|extra| extra.name == row.name);
        let rows = darter_families::TABLES.iter().copied().flatten().copied();
        let rows: Vec<Command> = rows.filter(|row| !is_replaced(row)).collect();
        let families = [&rows[..], darter_persist::commands::TABLE, plan.extra];
        let table = Table::new(&families, darter_server::admin::TABLES);
        let mut sim = Sim::new(plan.seed, plan.cores, plan.clients, table);
        sim.flaw = plan.flaw;
        let mut prng = Prng::from_seed(plan.seed.wrapping_mul(31).wrapping_add(7));
        let (depth, at_once) = draw_depth(plan, &mut prng);
        let clients = (0..plan.clients).map(|_| Client::new(0, sim.now_ms())).collect();
        Self {
            plan,
            sim,
            prng,
            clients,
            depth,
            at_once,
            pause: Pause::default(),
            history: Vec::new(),
            closed_ms: 0,
            now: 0,
            last: 0,
            sent: 0,
            done: 0,
            lost: 0,
        }
    }

    /// Runs the plan to its end.
    fn play(mut self) -> Result<(Vec<Event>, Sim), String> {
        /// Steps without a reply after which the run counts as hung.
        const PATIENCE: u64 = 400_000;
        for op in self.plan.faults.settings() {
            self.send(0, op);
            self.until_done(self.sent, PATIENCE)?;
        }
        self.plan_commands(PATIENCE)?;
        while self.clients.iter().any(Client::hoards) {
            self.go_on(PATIENCE)?;
        }
        (0..self.clients.len()).for_each(|client| self.sim.set_reads(client, true));
        Ok((self.history, self.sim))
    }

    fn plan_commands(&mut self, patience: u64) -> Result<(), String> {
        let first = self.sent;
        while self.done < first + self.plan.commands {
            for client in 0..self.clients.len() {
                self.act(client, first + self.plan.commands);
            }
            self.go_on(patience)?;
        }
        Ok(())
    }

    fn until_done(&mut self, done: usize, patience: u64) -> Result<(), String> {
        while self.done < done {
            self.go_on(patience)?;
        }
        Ok(())
    }

    /// One step, and its consequences.
    fn go_on(&mut self, patience: u64) -> Result<(), String> {
        self.now += 1;
        if self.now - self.last > patience {
            return Err(format!("no reply for {patience} steps; waiting: {}", self.stuck()));
        }
        self.check_sleep()?;
        self.sim.step();
        for client in 0..self.clients.len() {
            self.take_replies(client)?;
            self.look_after(client)?;
        }
        Ok(())
    }

    /// Lets a client act, if it can.
    fn act(&mut self, client: usize, most: usize) {
        let Client { waiting, leaves, stalled_until_ms, .. } = &self.clients[client];
        let waiting = waiting.len();
        let has_room = if self.at_once { waiting == 0 } else { waiting < self.depth };
        if *leaves != Leaves::No || stalled_until_ms.is_some() || !self.prng.chance(30) {
            return;
        }
        if has_room {
            let room = if self.at_once { self.depth } else { 1 };
            for _ in 0..room.min(most - self.sent) {
                let op = self.draw();
                self.send(client, op);
            }
        }
        if self.plan.faults.leaves {
            self.leave(client);
        }
        if self.plan.faults.limits_input() && self.clients[client].leaves == Leaves::No {
            self.hoard(client);
        }
        if self.plan.faults.output_max > 0 && self.may_lose(client) && self.prng.chance(20) {
            self.clients[client].stalled_until_ms =
                Some(self.sim.now_ms() + self.prng.below(1_500));
            self.sim.set_reads(client, false);
        }
    }

    fn draw(&mut self) -> Op {
        let pauses = self.plan.faults.pauses && self.pause.may_ask();
        if pauses && self.prng.chance(10) {
            return Pause::draw(&mut self.prng);
        }
        if self.plan.faults.databases && self.prng.chance(25) {
            return Op::draw_databases(&mut self.prng);
        }
        (self.plan.draw)(&mut self.prng)
    }

    fn send(&mut self, client: usize, op: Op) {
        if op.is_pause() {
            self.pause.ask(client, &op);
        }
        let (bytes, called_ms) = (op.encode(), self.sim.now_ms());
        self.sim.send(client, &bytes);
        self.sent += 1;
        let (called, bytes, db) = (self.now, bytes.len(), self.clients[client].db);
        if let Op::Select(db) = op {
            self.clients[client].db = db;
        }
        let pending = Pending { op, db, called, called_ms, bytes };
        self.clients[client].sends(pending);
    }

    /// A client may send an oversized request.
    fn hoard(&mut self, client: usize) {
        if self.may_lose(client) && self.prng.chance(3) {
            let bytes = faults::hoard();
            self.sim.send(client, &bytes);
            self.clients[client].cut_bytes = bytes.len();
            self.clients[client].leaves = Leaves::Hoards(None);
        }
    }

    /// A client may half-close, at times in the middle of a request, or reset.
    fn leave(&mut self, client: usize) {
        match self.prng.below(100) {
            0..3 if self.may_lose(client) => {
                self.forget_unsent(client);
                self.sim.reset(client);
                self.lose(client);
                self.clients[client].leaves = Leaves::Reset;
            }
            3..15 => {
                if self.prng.chance(30) {
                    let cut = Op::Set("k1".to_owned(), "cut".to_owned()).encode();
                    let len = 1 + self.prng.below(cut.len() as u64 - 1);
                    let cut = &cut[..usize::try_from(len).unwrap_or(1)];
                    self.sim.send(client, cut);
                    self.clients[client].cut_bytes = cut.len();
                }
                self.sim.end(client);
                self.clients[client].leaves = Leaves::HalfClosed;
            }
            _ => {}
        }
    }

    /// True when losing the client's outstanding commands would not make the check too long.
    fn may_lose(&self, client: usize) -> bool {
        let writes = self.clients[client].waiting.iter().filter(|pending| pending.op.is_write());
        self.lost + writes.count() <= LOST_MAX
    }

    /// Not all cores may sleep while a client is owed a reply, unless a pause holds it back.
    fn check_sleep(&mut self) -> Result<(), String> {
        /// Both sides read their clocks in whole milliseconds.
        const SLACK_MS: u64 = 2;
        if !self.sim.is_asleep() {
            return Ok(());
        }
        let (now_ms, wakes_ms) = (self.sim.now_ms(), self.sim.wakes_ms().unwrap_or(u64::MAX));
        if self.clients.iter().any(Client::is_owed) {
            let Some(ends_ms) = self.pause.ends_last_ms(now_ms.saturating_sub(SLACK_MS)) else {
                return Err(format!("all cores sleep; waiting: {}", self.stuck()));
            };
            if wakes_ms > ends_ms + SLACK_MS {
                return Err(format!("all sleep on after a pause; waiting: {}", self.stuck()));
            }
        }
        let stalled = self.clients.iter().filter_map(|client| client.stalled_until_ms).min();
        if let Some(until_ms) = stalled.filter(|until_ms| *until_ms < wakes_ms) {
            self.sim.pass_ms(until_ms.saturating_sub(now_ms));
        }
        Ok(())
    }

    /// Takes a client's replies, if it reads.
    fn take_replies(&mut self, client: usize) -> Result<(), String> {
        if self.clients[client].leaves == Leaves::Reset {
            self.sim.inbox(client).clear();
        }
        while self.clients[client].stalled_until_ms.is_none()
            && let Some(reply) = value::take(self.sim.inbox(client))
        {
            if self.clients[client].awaits_more(&reply) {
                continue;
            }
            let Some(pending) = self.clients[client].receives(self.sim.now_ms()) else {
                return Err(format!("client {client} asked for nothing: {reply:?}"));
            };
            let mut replies = std::mem::take(&mut self.clients[client].partial);
            replies.push(reply);
            let reply = pending.op.join(replies)?;
            self.returned(client, pending, reply)?;
        }
        Ok(())
    }

    fn returned(&mut self, client: usize, pending: Pending, reply: Value) -> Result<(), String> {
        let Pending { op, db, called, called_ms, .. } = pending;
        let (now, now_ms, reply) = (self.now, self.sim.now_ms(), op.normal(reply));
        if self.plan.trace {
            println!(
                "{called:>7}-{now:<7} client {client} {}",
                shorten(&format!("{:?} -> {reply:?}", op.words()))
            );
        }
        if self.pause.holds(&op, called, now_ms) {
            return Err(format!(
                "answered amid a pause: {}",
                shorten(&format!("{:?}", op.words()))
            ));
        }
        if op.is_pause() {
            self.pause.begin(&op, now, called_ms, now_ms);
        }
        self.last = now;
        self.done += 1;
        let connection = self.clients[client].connection;
        let (op, reply) = transaction::unless_run(op, reply);
        self.history.push(Event { client, connection, db, op, called, returned: now, reply });
        Ok(())
    }

    /// A stalled client may read again; a client whose connection was closed reconnects.
    fn look_after(&mut self, client: usize) -> Result<(), String> {
        let now_ms = self.sim.now_ms();
        if self.sim.is_closed(client) {
            self.check_close(client)?;
            self.closed_ms = now_ms;
            self.sim.reconnect(client);
            self.clients[client] = Client::new(self.clients[client].connection + 1, now_ms);
            return Ok(());
        }
        if self.clients[client].stalled_until_ms.is_some() {
            self.check_limit(client)?;
        }
        self.check_hoard(client)?;
        if self.clients[client].stalled_until_ms.is_some_and(|until_ms| until_ms <= now_ms) {
            self.clients[client].reads_on(now_ms);
            self.sim.set_reads(client, true);
        }
        Ok(())
    }

    /// A connection was closed: there must be a reason.
    fn check_close(&mut self, client: usize) -> Result<(), String> {
        self.forget_unsent(client);
        let Client { waiting, leaves, stalled_until_ms, .. } = &self.clients[client];
        let Faults { timeout_s, output_max, .. } = self.plan.faults;
        let idle_ms = self.clients[client].idle_ms(self.sim.now_ms()) + JUST_NOW_MS;
        let is_idle = idle_ms > timeout_s * 1_000 || stalled_until_ms.is_some();
        let is_right = match leaves {
            Leaves::Reset | Leaves::Hoards(_) => true,
            Leaves::HalfClosed if waiting.is_empty() => true,
            _ => (timeout_s > 0 && is_idle) || (output_max > 0 && !waiting.is_empty()),
        };
        if !is_right {
            return Err(format!(
                "client {client} is closed, {leaves:?}, {idle_ms} ms idle, waiting: {}",
                stuck(&self.clients[client..=client])
            ));
        }
        self.lose(client);
        Ok(())
    }

    /// A client over its output limit is closed at the next check.
    fn check_limit(&mut self, client: usize) -> Result<(), String> {
        /// Four checks.
        const PATIENCE_MS: u64 = 200;
        let is_over = self.sim.output_bytes(client) >= self.plan.faults.output_max;
        let now_ms = self.sim.now_ms();
        let over = &mut self.clients[client].over_since_ms;
        *over = is_over.then(|| over.unwrap_or(now_ms));
        match *over {
            Some(since) if now_ms - since > PATIENCE_MS => {
                Err(format!("client {client} has been over its limit since {since}"))
            }
            _ => Ok(()),
        }
    }

    /// A hoarding client is closed soon after all of its bytes have arrived: under its own limit at
    /// once, under the limit of all clients one at a time, largest first.
    fn check_hoard(&mut self, client: usize) -> Result<(), String> {
        /// Several checks on all cores.
        const PATIENCE_MS: u64 = 300;
        let (now_ms, on_their_way) = (self.sim.now_ms(), self.sim.on_their_way(client));
        if let Leaves::Hoards(since) = &mut self.clients[client].leaves
            && on_their_way == 0
        {
            let mut since = *since.get_or_insert(now_ms);
            if !self.plan.faults.query_limit {
                since = since.max(self.closed_ms);
            }
            if now_ms - since > PATIENCE_MS {
                return Err(format!("client {client} has hoarded since {since}"));
            }
        }
        Ok(())
    }

    /// Drops commands that had not completely reached their core: they cannot have taken effect.
    fn forget_unsent(&mut self, client: usize) {
        let before = self.clients[client].waiting.len();
        self.clients[client].forget_unsent(self.sim.on_their_way(client));
        self.done += before - self.clients[client].waiting.len();
    }

    /// Records the client's other outstanding commands as lost: they may have taken effect.
    fn lose(&mut self, client: usize) {
        self.pause.lose(client, self.sim.now_ms());
        let connection = self.clients[client].connection;
        for Pending { op, db, called, .. } in std::mem::take(&mut self.clients[client].waiting) {
            self.done += 1;
            if op.is_write() {
                self.lost += 1;
                let (returned, reply) = (NEVER, Value::Null);
                self.history.push(Event { client, connection, db, op, called, returned, reply });
            }
        }
    }

    fn stuck(&self) -> String {
        stuck(&self.clients)
    }
}

/// How many commands a client may have in flight, and whether it sends them all at once. Only few
/// clients pipeline: concurrency decides how long the check takes.
fn draw_depth(plan: &Plan, prng: &mut Prng) -> (usize, bool) {
    let most = match plan.clients {
        1 => 12,
        2..=3 => 3,
        _ => 1,
    };
    (usize::try_from(1 + prng.below(most)).unwrap_or(1), plan.clients == 1)
}

fn stuck(clients: &[Client]) -> String {
    let pending = clients.iter().flat_map(|client| &client.waiting);
    let words = pending.map(|pending| shorten(&format!("{:?}", pending.op.words())));
    words.collect::<Vec<_>>().join(", ")
}

fn shorten(text: &str) -> String {
    const MOST: usize = 200;
    if text.len() <= MOST { text.to_owned() } else { format!("{}...", &text[..MOST]) }
}

fn explain(history: &[Event]) -> String {
    let until = first_unexplained(history).unwrap_or(u64::MAX);
    let mut text = format!("no order explains the replies up to moment {until}:\n");
    for event in history.iter().filter(|event| event.called <= until) {
        let line = format!("{:?} -> {:?}", event.op.words(), event.reply);
        text.push_str(&format!(
            "  {:>7}-{:<7} client {} {}\n",
            event.called,
            event.returned,
            event.client,
            shorten(&line)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Including every reply and its step.
    fn runs_with_equal_seeds_are_identical() {
        for seed in [3, 4, 5] {
            let run = || {
                let (history, _) = Run::new(&Plan::of_seed(seed, None, false)).play().unwrap();
                history.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>()
            };
            assert_eq!(run(), run(), "seed {seed}");
        }
    }

    #[test] // One client pipelines long commands, which each wait for a task.
    fn sleeping_cores_miss_no_message() {
        for seed in 0..60 {
            let plan = Plan {
                cores: 2,
                clients: 1,
                draw: Op::draw_long,
                ..Plan::of_seed(seed, None, false)
            };
            assert_eq!(simulate(&plan), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn histories_are_linearisable() {
        for seed in 1_000..1_040 {
            let outcome = simulate(&Plan::of_seed(seed, None, false));
            assert_eq!(outcome, Ok(()), "seed {seed}");
        }
    }
}
