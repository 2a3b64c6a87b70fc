//! EVAL, EVALSHA, their read-only variants, and SCRIPT: the rows of all, and the functions of
//! SCRIPT.
//!
//! Not here: running scripts (`engine::scripts`).

use super::{container, history, now, syntax, task, tips};
use crate::engine::scripts::command::{self, Form};
use crate::engine::scripts::kill;
use crate::engine::scripts::machines::Kind;
use crate::engine::{Runner, Scripted, ServerCall, SessionCx};
use darter_command::{
    Answer, Args, Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Refusal, Run,
};

const BOTH: Flags = Flags::NOSCRIPT
    .and(Flags::STALE)
    .and(Flags::SKIP_MONITOR)
    .and(Flags::NO_MANDATORY_KEYS)
    .and(Flags::MOVABLEKEYS);
pub(super) const WRITES: Flags = BOTH.and(Flags::MAY_REPLICATE);
pub(super) const READS: Flags = BOTH.and(Flags::READONLY);
const INNER: Flags = Flags::NOSCRIPT;
const S: Group = Group::Scripting;

const fn counted(flags: KeyFlags) -> KeySpec {
    KeySpec::new(Place::Counted { count: 2 }, flags)
}
const RW: KeySpec = counted(KeyFlags::RW_ACCESS_UPDATE);
const RO: KeySpec = counted(KeyFlags::RO_ACCESS);
pub(super) const EVAL: Keys = Keys(&[
    RW.notes("We cannot tell how the keys will be used so we assume the worst, RW and UPDATE")
]);
const EVALSHA: Keys = Keys(&[RW]);
pub(super) const EVAL_RO: Keys = Keys(&[
    RO.notes("We cannot tell how the keys will be used so we assume the worst, RO and ACCESS")
]);
const EVALSHA_RO: Keys = Keys(&[RO]);

const fn script(
    name: &'static str,
    since: &'static str,
    (flags, keys): (Flags, Keys),
    run: Scripted,
    summary: &'static str,
) -> (Command, Runner) {
    let row = Command::new(name, since, -3, flags, keys, S, Run::Server);
    (row.doc(summary, "Depends on the script that is executed."), Runner::Script(run))
}

const fn text(is_read: bool) -> Form {
    Form { by_name: false, is_read }
}
const fn named(is_read: bool) -> Form {
    Form { by_name: true, is_read }
}

#[rustfmt::skip] // Tables.
const RUNS: [Scripted; 4] = [
    Scripted { run: |call| Box::pin(command::eval(call, text(false))),  declared: |core, args| command::declared(core, args, text(false)),  find: |core, args| command::find(core, args, text(false)) },
    Scripted { run: |call| Box::pin(command::eval(call, text(true))),   declared: |core, args| command::declared(core, args, text(true)),   find: |core, args| command::find(core, args, text(true)) },
    Scripted { run: |call| Box::pin(command::eval(call, named(false))), declared: |core, args| command::declared(core, args, named(false)), find: |core, args| command::find(core, args, named(false)) },
    Scripted { run: |call| Box::pin(command::eval(call, named(true))),  declared: |core, args| command::declared(core, args, named(true)),  find: |core, args| command::find(core, args, named(true)) },
];

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    syntax(script("eval", "2.6.0", (WRITES, EVAL), RUNS[0], "Execute a Lua script server side"), "script numkeys:integer [key...] [arg...]"),
    syntax(script("eval_ro", "7.0.0", (READS, EVAL_RO), RUNS[1], "Execute a read-only Lua script server side"), "script numkeys:integer [key...] [arg...]"),
    syntax(script("evalsha", "2.6.0", (WRITES, EVALSHA), RUNS[2], "Execute a Lua script server side"), "sha1 numkeys:integer [key...] [arg...]"),
    syntax(script("evalsha_ro", "7.0.0", (READS, EVALSHA_RO), RUNS[3], "Execute a read-only Lua script server side"), "sha1 numkeys:integer [key...] [arg...]"),
    container("script", "2.6.0", Flags::NONE, S, "A container for Lua scripts management commands"),
    syntax(now("script|debug", "3.2.0", 3, INNER, S, debug, ("Set the debug mode for executed scripts.", "O(1)")), "(mode: YES | SYNC | NO)"),
    tips(syntax(now("script|exists", "2.6.0", -3, INNER, S, exists, ("Check existence of scripts in the script cache.", "O(N) with N being the number of scripts to check (so checking a single script is an O(1) operation).")), "sha1..."), &["request_policy:all_shards", "response_policy:agg_logical_and"]),
    history(tips(syntax(now("script|flush", "2.6.0", -2, INNER, S, flush, ("Remove all the scripts from the script cache.", "O(N) with N being the number of scripts in cache")), "[async: ASYNC | SYNC]@6.2.0"), &["request_policy:all_nodes", "response_policy:all_succeeded"]), &[("6.2.0", "Added the `ASYNC` and `SYNC` flushing mode modifiers.")]),
    now("script|help", "5.0.0", 2, Flags::LOADING.and(Flags::STALE), S, help, ("Show helpful text about the different subcommands", "O(1)")),
    tips(task("script|kill", "2.6.0", 2, INNER.and(Flags::ALLOW_BUSY), S, |call| Box::pin(kill_script(call)), ("Kill the script currently in execution.", "O(1)")), &["request_policy:all_shards", "response_policy:one_succeeded"]),
    tips(syntax(task("script|load", "2.6.0", 3, INNER.and(Flags::STALE), S, |call| Box::pin(load(call)), ("Load the specified Lua script into the script cache.", "O(N) with N being the length in bytes of the script body.")), "script"), &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    syntax(now("script|show", "8.0.0", 3, INNER.and(Flags::STALE), S, show, ("Show server-side the script in the script cache.", "O(1).")), "sha1"),
];

/// `SCRIPT DEBUG YES|SYNC|NO`: has no effect, because there is no debugger. In Redis, the next EVAL
/// would be debugged.
fn debug(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    if args.option("YES") || args.option("SYNC") {
        return Err(Refusal::line("ERR SCRIPT DEBUG is not supported: there is no debugger"));
    }
    if !args.option("NO") {
        return Err(Refusal::line("ERR Use SCRIPT DEBUG YES/SYNC/NO"));
    }
    cx.reply.ok();
    Ok(())
}

/// `SCRIPT EXISTS sha1 [sha1 ...]`.
fn exists(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    cx.reply.array(args.left());
    while let Ok(name) = args.word() {
        let is_known = cx.core.admin.shared.scripts.find(name).is_some();
        cx.reply.count(usize::from(is_known));
    }
    Ok(())
}

/// `SCRIPT FLUSH [ASYNC|SYNC]`: in both modes the scripts are freed in portions.
fn flush(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    let is_known = args.left() == 0 || args.option("ASYNC") || args.option("SYNC");
    if !is_known || args.left() > 0 {
        return Err(Refusal::line("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    cx.core.admin.shared.scripts.clear();
    cx.reply.ok();
    Ok(())
}

/// `SCRIPT KILL`: kills the running script and undoes its writes. Unlike in Redis, a script that
/// has written can be killed, too.
async fn kill_script(call: ServerCall) -> Result<Answer, Refusal> {
    kill::kill(&call.core, Kind::Script).await?;
    Ok(call.answer(|reply| reply.ok()))
}

/// `SCRIPT LOAD script`.
async fn load(call: ServerCall) -> Result<Answer, Refusal> {
    let name = command::load(&call.core, &call.request, call.first).await?;
    Ok(call.answer(|reply| reply.bulk(name.as_bytes())))
}

/// `SCRIPT SHOW sha1`: replies with the text of a script.
fn show(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    let script = cx.core.admin.shared.scripts.find(args.word()?);
    let script = script.ok_or_else(|| Refusal::line(command::NOSCRIPT))?;
    cx.reply.bulk(&script.text);
    Ok(())
}

fn help(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    super::help(
        cx,
        "SCRIPT",
        &[
            "DEBUG (YES|SYNC|NO)",
            "    Set the debug mode for subsequent scripts executed.",
            "EXISTS <sha1> [<sha1> ...]",
            "    Return information about the existence of the scripts in the script cache.",
            "FLUSH [ASYNC|SYNC]",
            "    Flush the Lua scripts cache. Very dangerous on replicas.",
            "    When called without the optional mode argument, the behavior is determined by the",
            "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
            "    * ASYNC: Asynchronously flush the scripts cache.",
            "    * SYNC: Synchronously flush the scripts cache.",
            "KILL",
            "    Kill the currently executing Lua script.",
            "LOAD <script>",
            "    Load a script into the scripts cache without executing it.",
        ],
    );
    Ok(())
}
