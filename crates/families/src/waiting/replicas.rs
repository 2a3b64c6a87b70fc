//! WAIT and WAITAOF: until replicas, or the disk, have what the client has written.
//!
//! There are no replicas and there is no journal, so the awaited event never comes: the time
//! passes, and the reply says that no replica has it.

use super::{milliseconds, run_waiting};
use darter_base::number;
use darter_command::{
    Args, Command, Condition, Flags, Flow, Group, Keys, Look, Looking, Patience, Refusal, Run,
    Taking, Wait, Want,
};
use darter_resp::Reply;

/// Copies on replicas; or in journals, here and on replicas.
struct Copies {
    in_journals: bool,
}

impl Want for Copies {
    fn look(&self, _: &Looking<'_>) -> Look {
        Look::Nothing
    }

    fn condition(&self) -> Option<Condition> {
        None
    }

    fn take(&self, _: &mut Taking<'_>, _: usize) -> Result<Flow, Refusal> {
        unreachable!("it waits for no key")
    }

    fn time_out(&self, reply: &mut Reply<'_>) {
        if self.in_journals {
            reply.array(2);
            reply.int(0);
        }
        reply.int(0);
    }
}

/// Waits for `count` copies at most for as long; for none not at all.
fn copies(count: i64, patience: Patience, want: Copies) -> Wait {
    let patience = if count > 0 { patience } else { Patience::None };
    Wait { keys: 0..0, patience, want: Box::new(want) }
}

/// `WAIT numreplicas timeout`: waits until `numreplicas` replicas have this client's writes.
///
/// Reply: integer, how many have: 0, as there are none; at once if none is asked for, otherwise after
/// the timeout, in milliseconds. Refusals: `NotAnInteger`, the timeout's. Cost: O(1).
/// Source: <https://redis.io/commands/wait> (3.0.0).
fn wait(mut args: Args<'_>) -> Result<Wait, Refusal> {
    let count = args.int()?;
    Ok(copies(count, milliseconds(&mut args)?, Copies { in_journals: false }))
}

/// `WAITAOF numlocal numreplicas timeout`: waits until this client's writes are in the journal of
/// this server and in those of `numreplicas` replicas.
///
/// Reply: array of two integers, how many have it: 0 and 0. Refusals: numbers out of range, the
/// timeout's, a `numlocal` of 1. Cost: O(1). Source: <https://redis.io/commands/waitaof> (7.2.0).
fn waitaof(mut args: Args<'_>) -> Result<Wait, Refusal> {
    let local = args.int()?;
    if !(0..=1).contains(&local) {
        let text = "ERR value is out of range, value must between 0 and 1";
        return Err(Refusal::line(text));
    }
    let count = number::parse_i64(args.word()?).filter(|count| *count >= 0);
    let count = count.ok_or(Refusal::line("ERR value is out of range, must be positive"))?;
    let patience = milliseconds(&mut args)?;
    if local > 0 {
        return Err(Refusal::line(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    Ok(copies(count, patience, Copies { in_journals: true }))
}

const WAIT: Run = run_waiting!(wait);
const WAITAOF: Run = run_waiting!(waitaof);

const fn row(
    name: &'static str,
    since: &'static str,
    arity: i32,
    flags: Flags,
    run: Run,
) -> Command {
    // Generic by their group, in Redis, and of a connection by their category.
    let group = Group::Type { name: "generic", category: "@connection" };
    Command::new(name, since, arity, flags, Keys::NONE, group, run)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
}

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub(crate) const TABLE: &[Command] = &[
    row("wait",    "3.0.0", 3, Flags::NOSCRIPT, WAIT).doc("Wait for the synchronous replication of all the write commands sent in the context of the current connection", "O(1)").syntax("numreplicas:integer timeout:integer").waits(wait),
    row("waitaof", "7.2.0", 4, Flags::BLOCKING, WAITAOF).doc("Blocks until all of the preceding write commands sent by the connection are written to the append-only file of the master and/or replicas.", "O(1)").syntax("numlocal:integer numreplicas:integer timeout:integer").waits(waitaof),
];
