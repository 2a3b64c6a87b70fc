//! WAIT and WAITAOF: until replicas, or the disk, have what the client has written.
//!
//! There are no replicas, so what is awaited of them never comes: the time passes, and the reply
//! says that no replica has the changes.

use super::{milliseconds, run_waiting};
use darter_base::number;
use darter_command::{
    Args, Command, Condition, Flags, Flow, Group, Keys, Look, Looking, Patience, Refusal, Run,
    Taking, Wait, Want,
};
use darter_resp::Reply;

const NO_JOURNAL: &str =
    "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";

/// The awaited copies.
enum Copies {
    /// In the memory of replicas.
    Replicas,
    /// On the disks of replicas.
    DisksOfReplicas,
    /// On the disk of this server.
    Disk,
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
        if let Self::DisksOfReplicas | Self::Disk = self {
            reply.array(2);
            reply.int(0);
        }
        reply.int(0);
    }

    fn waits_for_disk(&self) -> bool {
        matches!(self, Self::Disk)
    }

    fn end_at_disk(&self, is_there: bool, reply: &mut Reply<'_>) -> Result<(), Refusal> {
        if !is_there {
            return Err(Refusal::line(NO_JOURNAL));
        }
        reply.array(2);
        reply.int(1);
        reply.int(0);
        Ok(())
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
    Ok(copies(count, milliseconds(&mut args)?, Copies::Replicas))
}

/// `WAITAOF numlocal numreplicas timeout`: waits until this client's writes are on the disk of this
/// server, and on those of `numreplicas` replicas.
///
/// Reply: array of two integers, how many have it: 1 and 0 as soon as this server has it and no
/// replica is asked for, otherwise after the timeout. Refusals: numbers out of range, the timeout's,
/// a `numlocal` of 1 without a journal or where nothing may wait. Cost: O(1). Source:
/// <https://redis.io/commands/waitaof> (7.2.0).
fn waitaof(mut args: Args<'_>) -> Result<Wait, Refusal> {
    let local = args.int()?;
    if !(0..=1).contains(&local) {
        let text = "ERR value is out of range, value must between 0 and 1";
        return Err(Refusal::line(text));
    }
    let count = number::parse_i64(args.word()?).filter(|count| *count >= 0);
    let count = count.ok_or(Refusal::line("ERR value is out of range, must be positive"))?;
    let patience = milliseconds(&mut args)?;
    let want = if local > 0 && count == 0 { Copies::Disk } else { Copies::DisksOfReplicas };
    Ok(copies(local + count, patience, want))
}

/// [`waitaof`] without a journal, or where nothing may wait.
fn waitaof_at_once(args: Args<'_>) -> Result<Wait, Refusal> {
    let wait = waitaof(args)?;
    if args.all().get(1) == b"1" { Err(Refusal::line(NO_JOURNAL)) } else { Ok(wait) }
}

const WAIT: Run = run_waiting!(wait);
const WAITAOF: Run = run_waiting!(waitaof_at_once);

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
