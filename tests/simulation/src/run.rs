//! One run: clients send commands, one by one or up to three ahead, or a single one sends long ones in
//! pipelines of up to twelve; the world turns, the history is checked. Replies belong to the requests
//! in their order.

use crate::check::{EVENTS_MAX, Event, first_unexplained, is_linearisable};
use crate::ops::Op;
use crate::value;
use crate::world::Sim;
use darter_base::Prng;
use darter_command::Command;
use darter_server::engine::Table;
use std::collections::VecDeque;

/// What a run consists of.
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) cores: usize,
    pub(crate) clients: usize,
    pub(crate) commands: usize,
    pub(crate) trace: bool,
    /// Rows beside the server's own: commands with seeded bugs.
    pub(crate) extra: &'static [Command],
    /// Commands in place of the usual mix.
    pub(crate) draw: fn(&mut Prng) -> Op,
    /// A seeded bug: see [`Sim::oversleeps`].
    pub(crate) oversleeps: bool,
}

impl Plan {
    /// The plan that a seed draws.
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
            draw: if is_long { Op::draw_long } else { Op::draw },
            oversleeps: false,
        }
    }
}

/// What a client waits for.
struct Pending {
    op: Op,
    called: u64,
}

/// Runs a plan. The error tells what does not hold.
pub(crate) fn simulate(plan: &Plan) -> Result<(), String> {
    assert!(plan.commands <= EVENTS_MAX, "too many commands for one check");
    let mut families = darter_families::TABLES.to_vec();
    families.push(darter_persist::commands::TABLE);
    families.push(plan.extra);
    let table = Table::new(&families, darter_server::admin::TABLES);
    let mut sim = Sim::new(plan.seed, plan.cores, plan.clients, table);
    sim.oversleeps = plan.oversleeps;
    let history = drive(plan, &mut sim)?;
    sim.check_rest();
    sim.check_invariants();
    if is_linearisable(&history) { Ok(()) } else { Err(explain(&history)) }
}

fn drive(plan: &Plan, sim: &mut Sim) -> Result<Vec<Event>, String> {
    /// Steps without a reply after which somebody hangs.
    const PATIENCE: u64 = 400_000;
    let mut prng = Prng::from_seed(plan.seed.wrapping_mul(31).wrapping_add(7));
    let (depth, at_once) = draw_depth(plan, &mut prng);
    let mut waiting: Vec<VecDeque<Pending>> = (0..plan.clients).map(|_| VecDeque::new()).collect();
    let (mut history, mut sent, mut now, mut last) = (Vec::new(), 0, 0_u64, 0_u64);
    while history.len() < plan.commands {
        now += 1;
        if now - last > PATIENCE {
            return Err(format!("no reply for {PATIENCE} steps; waiting: {}", stuck(&waiting)));
        }
        // No command of the mix waits for time to pass.
        if sim.is_asleep() && waiting.iter().any(|slot| !slot.is_empty()) {
            return Err(format!("all cores sleep; waiting: {}", stuck(&waiting)));
        }
        for (client, slot) in waiting.iter_mut().enumerate() {
            let has_room = if at_once { slot.is_empty() } else { slot.len() < depth };
            if !has_room || !prng.chance(30) {
                continue;
            }
            let room = if at_once { depth } else { 1 };
            for _ in 0..room.min(plan.commands - sent) {
                let op = (plan.draw)(&mut prng);
                sim.send(client, &op.encode());
                sent += 1;
                slot.push_back(Pending { op, called: now });
            }
        }
        sim.step();
        for (client, slot) in waiting.iter_mut().enumerate() {
            if slot.is_empty() {
                continue;
            }
            let Some(reply) = value::take(sim.inbox(client)) else { continue };
            let Some(Pending { op, called }) = slot.pop_front() else { continue };
            let reply = op.normal(reply);
            if plan.trace {
                println!(
                    "{called:>7}-{now:<7} client {client} {}",
                    shorten(&format!("{:?} -> {reply:?}", op.words()))
                );
            }
            last = now;
            history.push(Event { client, op, called, returned: now, reply });
        }
    }
    Ok(history)
}

/// How many commands a client has sent ahead at most, and whether it sends them all at once. Of few
/// clients only: what is concurrent decides how long the check takes.
fn draw_depth(plan: &Plan, prng: &mut Prng) -> (usize, bool) {
    let most = match plan.clients {
        1 => 12,
        2..=3 => 3,
        _ => 1,
    };
    (usize::try_from(1 + prng.below(most)).unwrap_or(1), plan.clients == 1)
}

fn stuck(waiting: &[VecDeque<Pending>]) -> String {
    let words =
        waiting.iter().flatten().map(|pending| shorten(&format!("{:?}", pending.op.words())));
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

    #[test] // One seed is one run: the same replies at the same steps.
    fn runs_repeat() {
        for seed in [3, 4, 5] {
            let run = || {
                let plan = Plan::of_seed(seed, None, false);
                let mut families = darter_families::TABLES.to_vec();
                families.push(darter_persist::commands::TABLE);
                let table = Table::new(&families, darter_server::admin::TABLES);
                let mut sim = Sim::new(plan.seed, plan.cores, plan.clients, table);
                let history = drive(&plan, &mut sim).unwrap();
                history.iter().map(|event| format!("{event:?}")).collect::<Vec<_>>()
            };
            assert_eq!(run(), run(), "seed {seed}");
        }
    }

    #[test] // Long commands in a pipeline of one client: each waits for a task, and the rest behind it.
    fn nobody_oversleeps() {
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
