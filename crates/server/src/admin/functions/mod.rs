//! FCALL, FCALL_RO and FUNCTION: libraries of functions, which all cores share
//! ([`crate::libraries`]).
//!
//! - `change`: loading a library, and changing the libraries of all cores.
//! - `list`: FUNCTION LIST.
//! - `payload`: FUNCTION DUMP and RESTORE.
//!
//! Not here: the type of a library (`darter_script`), running functions (`engine::scripts`).

mod change;
mod list;
mod payload;

use super::scripting::{EVAL, EVAL_RO, READS, WRITES};
use super::{container, now, syntax, task, tips, wrong_subcommand};
use crate::engine::scripts::functions;
use crate::engine::scripts::kill;
use crate::engine::scripts::machines::Kind;
use crate::engine::state::slowlog;
use crate::engine::{Core, Runner, Scripted, ServerCall, SessionCx};
use change::{Change, change};
use darter_command::{Answer, Args, Command, Flags, Group, Keys, Refusal, Run};
use darter_resp::{self as resp, Reply};
use darter_script::ENGINE;
use std::rc::Rc;
use std::sync::Arc;

const READ: Flags = Flags::NOSCRIPT;
const BUSY: Flags = READ.and(Flags::ALLOW_BUSY);
const WRITE: Flags = Flags::WRITE.and(Flags::NOSCRIPT);
const ADDS: Flags = WRITE.and(Flags::DENYOOM);

const ALL: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];
const ONE: &[&str] = &["request_policy:all_shards", "response_policy:one_succeeded"];
const SPECIAL: &[&str] =
    &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"];

const fn call(
    name: &'static str,
    (flags, keys): (Flags, Keys),
    run: Scripted,
    summary: &'static str,
) -> (Command, Runner) {
    let row = Command::new(name, "7.0.0", -3, flags, keys, Group::Scripting, Run::Server);
    (row.doc(summary, "Depends on the function that is executed."), Runner::Script(run))
}

const FCALL: Scripted = Scripted {
    run: |call| Box::pin(functions::fcall(call, false)),
    declared: functions::declared,
    find: |core, args| functions::find(core, args, false),
};
const FCALL_RO: Scripted = Scripted {
    run: |call| Box::pin(functions::fcall(call, true)),
    declared: functions::declared,
    find: |core, args| functions::find(core, args, true),
};

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    syntax(call("fcall", (WRITES, EVAL), FCALL, "Invoke a function"), "function numkeys:integer [key...] [arg...]"),
    syntax(call("fcall_ro", (READS, EVAL_RO), FCALL_RO, "Invoke a read-only function"), "function numkeys:integer [key...] [arg...]"),
    container("function", "7.0.0", Flags::NONE, Group::Scripting, "A container for function commands"),
    syntax(tips(task("function|load", "7.0.0", -3, ADDS, Group::Scripting, |call| Box::pin(change::load(call)), ("Create a function with the given arguments (name, code, description)", "O(1) (considering compilation time is redundant)")), ALL), "[REPLACE] function-code"),
    syntax(tips(task("function|delete", "7.0.0", 3, WRITE, Group::Scripting, |call| Box::pin(delete(call)), ("Delete a function by name", "O(1)")), ALL), "library-name"),
    syntax(tips(task("function|flush", "7.0.0", -2, WRITE, Group::Scripting, |call| Box::pin(flush(call)), ("Deleting all functions", "O(N) where N is the number of functions deleted")), ALL), "[async: ASYNC | SYNC]"),
    syntax(tips(task("function|list", "7.0.0", -2, READ, Group::Scripting, |call| Box::pin(list::list(call)), ("List information about all the functions", "O(N) where N is the number of functions")), &["nondeterministic_output_order"]), "[LIBRARYNAME library-name-pattern] [WITHCODE]"),
    tips(task("function|stats", "7.0.0", 2, BUSY, Group::Scripting, |call| Box::pin(stats(call)), ("Return information about the function currently running (name, description, duration)", "O(1)")), SPECIAL),
    tips(task("function|kill", "7.0.0", 2, BUSY, Group::Scripting, |call| Box::pin(kill(call)), ("Kill the function currently in execution.", "O(1)")), ONE),
    task("function|dump", "7.0.0", 2, READ, Group::Scripting, |call| Box::pin(payload::dump(call)), ("Dump all functions into a serialized binary payload", "O(N) where N is the number of functions")),
    syntax(tips(task("function|restore", "7.0.0", -3, ADDS, Group::Scripting, |call| Box::pin(payload::restore(call)), ("Restore all the functions on the given payload", "O(N) where N is the number of functions on the payload")), ALL), "serialized-value [policy: FLUSH | APPEND | REPLACE]"),
    now("function|help", "7.0.0", 2, Flags::LOADING.and(Flags::STALE), Group::Scripting, help, ("Show helpful text about the different subcommands", "O(1)")),
];

/// `FUNCTION DELETE library-name`.
///
/// Reply: `OK`. Refusals: there is no library of this name. Source:
/// <https://redis.io/commands/function-delete> (7.0.0).
async fn delete(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let name = String::from_utf8_lossy(args.bytes()?);
    change(&call, |libraries| {
        let library = libraries.library(&name).cloned();
        let library = library.ok_or_else(|| Refusal::line("ERR Library not found"))?;
        Ok(Change { gone: vec![library], ..Change::default() })
    })
    .await?;
    Ok(call.answer(|reply| reply.ok()))
}

/// `FUNCTION FLUSH [ASYNC | SYNC]`: removes all libraries before the reply. In both modes their
/// memory is freed later, in slices.
///
/// Reply: `OK`. Source: <https://redis.io/commands/function-flush> (7.0.0).
async fn flush(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    if args.left() > 1 {
        return Err(wrong_subcommand(args));
    }
    if args.left() == 1 && !args.option("SYNC") && !args.option("ASYNC") {
        return Err(Refusal::line("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    change(&call, |_| Ok(Change { is_flushed: true, ..Change::default() })).await?;
    Ok(call.answer(|reply| reply.ok()))
}

/// `FUNCTION STATS`: reports the running function, and the numbers of libraries and functions. A
/// long command is shortened, as in SLOWLOG.
///
/// Reply: a map.
/// Source: <https://redis.io/commands/function-stats> (7.0.0).
async fn stats(call: ServerCall) -> Result<Answer, Refusal> {
    let libraries = call.core.admin.shared.libraries.current();
    let running = oldest(&call).await;
    Ok(call.answer(|reply| {
        reply.map(2);
        reply.bulk(b"running_script");
        match &running {
            Some(running) => running.write(reply),
            None => reply.null(),
        }
        reply.bulk(b"engines");
        reply.map(1);
        reply.bulk(ENGINE.as_bytes());
        reply.map(2);
        reply.bulk(b"libraries_count");
        reply.count(libraries.len());
        reply.bulk(b"functions_count");
        reply.count(libraries.functions_len());
    }))
}

/// A running function.
struct Running {
    begun_ns: u64,
    name: Arc<str>,
    command: Vec<Vec<u8>>,
    duration_ms: u64,
}

/// The longest-running function on any core.
async fn oldest(call: &ServerCall) -> Option<Running> {
    let oldest = |there: &Rc<Core>| {
        let run = there.machines.oldest(Kind::Function)?;
        let args = resp::Args::owned(&run.request);
        let entry = there.table.resolve(args).ok()?;
        Some(Running {
            begun_ns: run.begun_ns,
            name: Arc::clone(&run.name),
            command: slowlog::shown(&entry.row, args),
            duration_ms: there.clock.monotonic_ns().saturating_sub(run.begun_ns) / 1_000_000,
        })
    };
    let all = call.core.ask_all(|| oldest).await;
    all.into_iter().flatten().min_by_key(|running| running.begun_ns)
}

impl Running {
    fn write(&self, reply: &mut Reply<'_>) {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(self.name.as_bytes());
        reply.bulk(b"command");
        reply.array(self.command.len());
        self.command.iter().for_each(|word| reply.bulk(word));
        reply.bulk(b"duration_ms");
        reply.int(i64::try_from(self.duration_ms).unwrap_or(i64::MAX));
    }
}

/// `FUNCTION KILL`: kills the longest-running function and undoes its writes. Unlike in Redis, a
/// function that has written can be killed, too.
///
/// Reply: `OK`. Refusals: no function runs. Source: <https://redis.io/commands/function-kill>
/// (7.0.0).
async fn kill(call: ServerCall) -> Result<Answer, Refusal> {
    kill::kill(&call.core, Kind::Function).await?;
    Ok(call.answer(|reply| reply.ok()))
}

fn help(cx: &mut SessionCx<'_>, _: Args<'_>) -> Result<(), Refusal> {
    super::help(
        cx,
        "FUNCTION",
        &[
            "LOAD [REPLACE] <FUNCTION CODE>",
            "    Create a new library with the given library name and code.",
            "DELETE <LIBRARY NAME>",
            "    Delete the given library.",
            "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
            "    Return general information on all the libraries:",
            "    * Library name",
            "    * The engine used to run the Library",
            "    * Library description",
            "    * Functions list",
            "    * Library code (if WITHCODE is given)",
            "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
            "STATS",
            "    Return information about the current function running:",
            "    * Function name",
            "    * Command used to run the function",
            "    * Duration in MS that the function is running",
            "    If no function is running, return nil",
            "    In addition, returns a list of available engines.",
            "KILL",
            "    Kill the current running function.",
            "FLUSH [ASYNC|SYNC]",
            "    Delete all the libraries.",
            "    When called without the optional mode argument, the behavior is determined by the",
            "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
            "    * ASYNC: Asynchronously flush the libraries.",
            "    * SYNC: Synchronously flush the libraries.",
            "DUMP",
            "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
            "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
            "    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
            "    control how to handle existing libraries (default APPEND):",
            "    * FLUSH: delete all existing libraries.",
            "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
            "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
            "      libraries with the new libraries (notice that even on this option there is a chance of failure",
            "      in case of functions name collision with another library).",
        ],
    );
    Ok(())
}
