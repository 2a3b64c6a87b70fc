//! Seeded bugs, to check that the simulator catches them.
//!
//! They exist in this crate only: broken commands beside the server's own, built from the same
//! parts, and flawed worlds, in which cores sleep too long or miss notifications.

use crate::CounterTest;
use crate::faults::Faults;
use crate::model::Algebra;
use crate::ops::Op;
use crate::run::{Plan, simulate};
use crate::transaction::Transaction;
use crate::world::Flaw;
use darter_base::Prng;
use darter_command::{Answer, Call, Command, Flags, Group, MultiFuture, Refusal, Run, specs};
use darter_families::hash::{Hash, value_of};
use darter_families::set::Set;
use darter_keyspace::{Deadline, Key};
use darter_structs::table::Scratch;
use darter_tx::{Access, Home, lock_key};

/// A seeded bug: its name, its commands, and the mix that exposes it.
pub(crate) struct Bug {
    name: &'static str,
    rows: &'static [Command],
    draw: fn(&mut Prng) -> Op,
    /// The faults that are needed to expose the bug.
    faults: Faults,
    /// The bug, if it is one of the world and not of a command.
    flaw: Flaw,
}

const NO_FAULTS: Faults = Faults {
    leaves: false,
    pauses: false,
    timeout_s: 0,
    output_max: 0,
    query_limit: false,
    all_limit: false,
    databases: false,
};
const LEAVES: Faults = Faults { leaves: true, ..NO_FAULTS };
const PAUSES: Faults = Faults { pauses: true, ..NO_FAULTS };

/// A bug of the world.
const fn flawed(name: &'static str, faults: Faults, flaw: Flaw) -> Bug {
    Bug { name, rows: &[], draw: Op::draw, faults, flaw }
}

const fn broken(run: fn(Call) -> MultiFuture) -> Command {
    let run = Run::Multi { here: None, anywhere: run };
    Command::new("broken", "0.0.0", 2, Flags::READONLY, specs::ONE_RO_ACCESS, Group::Generic, run)
}

const fn of_two(run: fn(Call) -> MultiFuture) -> Command {
    let run = Run::Multi { here: None, anywhere: run };
    Command::new("broken", "0.0.0", 3, Flags::WRITE, specs::ALL_RM_DELETE, Group::Generic, run)
}

const fn unlocked(run: fn(Call) -> MultiFuture) -> Command {
    let run = Run::Multi { here: None, anywhere: run };
    Command::new("broken", "0.0.0", 2, Flags::WRITE, specs::ONE_RW_UPDATE, Group::Generic, run)
}

const fn storing(run: fn(Call) -> MultiFuture) -> Command {
    let run = Run::Multi { here: None, anywhere: run };
    let (flags, keys) = (Flags::WRITE, specs::ALL_RM_DELETE);
    Command::new("sunionstore", "1.0.0", -3, flags, keys, Group::Generic, run)
}

/// All bugs that histories catch.
const BUGS: &[Bug] = &[
    Bug {
        name: "a scan that reads live data",
        rows: &[broken(|call| Box::pin(scan_live(call)))],
        draw: draw_scans,
        faults: NO_FAULTS,
        flaw: Flaw::None,
    },
    Bug {
        name: "a lock released early",
        rows: &[unlocked(|call| Box::pin(release_early(call)))],
        draw: draw_writes,
        faults: NO_FAULTS,
        flaw: Flaw::None,
    },
    Bug {
        name: "an EXEC whose locks are released between its commands",
        rows: &[of_two(|call| Box::pin(exec_in_parts(call)))],
        draw: draw_pairs,
        faults: NO_FAULTS,
        flaw: Flaw::None,
    },
    Bug {
        name: "a script on another core that goes on without locks",
        rows: &[of_two(|call| Box::pin(script_unlocked(call)))],
        draw: draw_twice,
        faults: NO_FAULTS,
        flaw: Flaw::None,
    },
    Bug {
        name: "a WATCH that misses",
        rows: &[broken(|call| Box::pin(watch_nothing(call)))],
        draw: draw_watches,
        faults: NO_FAULTS,
        flaw: Flaw::None,
    },
    Bug {
        name: "a build that does not watch its source",
        rows: &[storing(|call| Box::pin(build_unwatched(call)))],
        draw: draw_builds,
        faults: NO_FAULTS,
        flaw: Flaw::None,
    },
    flawed("a sleep with work at hand", NO_FAULTS, Flaw::Oversleeps),
    flawed("a sleep beyond the end of a pause", PAUSES, Flaw::ForgetsDeadlines),
    flawed("a core that a pause does not reach", PAUSES, Flaw::MissesPauses),
    flawed("a half-closed client that is closed at once", LEAVES, Flaw::ClosesHalfClosed),
];

/// A counter-test for each of [`BUGS`].
pub(crate) fn counter_tests() -> impl Iterator<Item = CounterTest> {
    BUGS.iter().map(|bug| {
        CounterTest::new(bug.name, 200, |seed| {
            simulate(&Plan {
                seed,
                cores: 2,
                clients: 4,
                commands: 40,
                trace: false,
                extra: bug.rows,
                draw: bug.draw,
                faults: bug.faults,
                flaw: bug.flaw,
            })
        })
    })
}

fn draw_scans(prng: &mut Prng) -> Op {
    let value = format!("v{}", prng.below(1_000));
    let pairs = (0..40).map(|field| (format!("e{field}"), value.clone())).collect();
    if prng.chance(50) { Op::Hset("k1".into(), pairs) } else { Op::Broken("k1".into()) }
}

fn draw_writes(prng: &mut Prng) -> Op {
    if prng.chance(50) { Op::Incr("k1".into()) } else { Op::Hgetall("k2".into()) }.or_broken(prng)
}

fn draw_pairs(prng: &mut Prng) -> Op {
    let key = |number: u64| format!("k{number}");
    match prng.below(4) {
        0 => Op::Incr(key(prng.below(2))),
        1 => Op::Mget(vec![key(0), key(1)]),
        _ => Op::BrokenExec(key(0), key(1)),
    }
}

fn draw_twice(prng: &mut Prng) -> Op {
    if prng.chance(50) { Op::Incr("k1".into()) } else { Op::BrokenExec("k1".into(), "k1".into()) }
}

fn draw_watches(prng: &mut Prng) -> Op {
    let set = Op::Set("k1".into(), prng.below(1_000).to_string());
    if prng.chance(50) {
        return set;
    }
    Op::Transaction(Box::new(Transaction::broken("k1", vec![set, Op::Get("k1".into())])))
}

fn draw_builds(prng: &mut Prng) -> Op {
    let key = |number: u64| format!("k{number}");
    match prng.below(6) {
        0 | 1 => Op::Sadd(key(1), vec!["e".into()]),
        2 => Op::Del(vec![key(prng.below(2))]),
        3 => Op::Dbsize,
        _ => {
            let (kind, store) = (Algebra::Union, Some(key(0)));
            Op::Algebra { kind, store, keys: vec![key(1)] }
        }
    }
}

/// A broken SUNIONSTORE of one source that does not watch it: the snapshot may follow a change of
/// the source.
async fn build_unwatched(call: Call) -> Result<Answer, Refusal> {
    let (target, source) = (call.arg(1).to_vec(), call.arg(2).to_vec());
    let (to, from, db) = (call.tx.core_of(&target), call.tx.core_of(&source), call.db);
    let mut locked = call.lock_keys([(1, Access::Exclusive), (2, Access::Shared)]).await;
    let read = move |home: &mut Home| {
        let set = home.shard.db(db).value::<Set>(&Key::new(&source)).ok().flatten();
        set.map(|set| set.contains(b"e", home.shard.now()))
    };
    let has_member = call.tx.on(from, read).await == Some(true);
    locked.keep_build(to, lock_key(db, Key::new(&target).hash));
    for _ in 0..8 {
        call.tx.yield_now().await;
    }
    let install = move |home: &mut Home| {
        let (db, key) = (home.shard.db_mut(db), Key::new(&target));
        db.remove(&key);
        if has_member {
            let _ = db.edit::<Set, _>(&key, true, |edit| edit.add(b"e", Deadline::Clear));
        }
    };
    call.tx.on(to, install).await;
    drop(locked);
    Ok(call.answer(|reply| reply.count(usize::from(has_member))))
}

/// A broken EXEC that increments each key under the lock of that key alone.
async fn exec_in_parts(call: Call) -> Result<Answer, Refusal> {
    let mut values = Vec::new();
    for at in [1, 2] {
        let (key, core, db) = (call.arg(at).to_vec(), call.owner(at), call.db);
        let locked = call.lock_keys([(at, darter_tx::Access::Exclusive)]).await;
        values.push(call.tx.on(core, increment(db, key)).await);
        drop(locked);
        call.tx.yield_now().await;
    }
    Ok(call.answer(|reply| {
        reply.array(values.len());
        values.iter().for_each(|value| reply.int(*value));
    }))
}

/// A broken script of two calls of INCR. Each call is a step of its own where the key is, so that
/// other commands come between.
async fn script_unlocked(call: Call) -> Result<Answer, Refusal> {
    let mut values = Vec::new();
    for at in [1, 2] {
        let (key, core, db) = (call.arg(at).to_vec(), call.owner(at), call.db);
        values.push(call.tx.on(core, increment(db, key)).await);
        call.tx.yield_now().await;
    }
    Ok(call.answer(|reply| {
        reply.array(values.len());
        values.iter().for_each(|value| reply.int(*value));
    }))
}

/// Increments one key, like INCR.
fn increment(db: usize, key: Vec<u8>) -> impl FnOnce(&mut darter_tx::Home) -> i64 + Send {
    move |home| {
        let (db, key) = (home.shard.db_mut(db), Key::new(&key));
        let before = db.text(&key).ok().flatten().and_then(|text| text.as_int()).unwrap_or(0);
        let after = (before + 1).to_string();
        let value = darter_keyspace::Fresh::Bytes(after.as_bytes());
        db.set_text(&key, value, darter_keyspace::Deadline::Keep);
        before + 1
    }
}

/// A broken WATCH that watches nothing.
async fn watch_nothing(call: Call) -> Result<Answer, Refusal> {
    Ok(call.answer(|reply| reply.ok()))
}

impl Op {
    /// Replaces half of the commands by the broken one.
    fn or_broken(self, prng: &mut Prng) -> Self {
        if prng.chance(50) { Self::Broken("k2".into()) } else { self }
    }
}

/// A broken HGETALL that reads the hash field by field, with a message for each, and without a
/// snapshot.
async fn scan_live(call: Call) -> Result<Answer, Refusal> {
    let key = call.arg(1).to_vec();
    let core = call.owner(1);
    let db = call.db;
    let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut cursor = 0;
    loop {
        let key = key.clone();
        let (next, found) = call
            .tx
            .on(core, move |home| {
                let mut found = Vec::new();
                let Ok(Some(hash)) = home.shard.db(db).value::<Hash>(&Key::new(&key)) else {
                    return (0, found);
                };
                let mut at = 0;
                hash.fields().for_each(&mut |entry| {
                    if at == cursor {
                        let name = entry.key().bytes(&mut Scratch::default()).to_vec();
                        found.push((name, value_of(&entry).to_vec()));
                    }
                    at += 1;
                });
                (if cursor + 1 < at { cursor + 1 } else { 0 }, found)
            })
            .await;
        pairs.extend(found);
        if next == 0 {
            break;
        }
        cursor = next;
        call.tx.yield_now().await;
    }
    Ok(call.answer(|reply| {
        reply.map(pairs.len());
        for (field, value) in &pairs {
            reply.bulk(field);
            reply.bulk(value);
        }
    }))
}

/// A broken HGETALL that writes the hash in two halves and releases the lock in between. It exposes
/// a state that an atomic command would never expose.
async fn release_early(call: Call) -> Result<Answer, Refusal> {
    let key = call.arg(1).to_vec();
    let core = call.owner(1);
    let db = call.db;
    for half in ["a", "b"] {
        let locked = call.lock_keys([(1, darter_tx::Access::Exclusive)]).await;
        let key = key.clone();
        call.tx
            .on(core, move |home| {
                let _ = home.shard.db_mut(db).edit::<Hash, _>(&Key::new(&key), true, |edit| {
                    let value = darter_keyspace::Fresh::Bytes(half.as_bytes());
                    edit.set(half.as_bytes(), value, darter_keyspace::Deadline::Clear);
                });
            })
            .await;
        drop(locked);
        call.tx.yield_now().await;
    }
    let undo = key.clone();
    call.tx
        .on(core, move |home| {
            home.shard.db_mut(db).remove(&Key::new(&undo));
        })
        .await;
    Ok(call.answer(|reply| reply.map(0)))
}
