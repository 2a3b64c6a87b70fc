//! The SLOWLOG commands: they merge the slow commands that each core has recorded in
//! `engine::state::slowlog`.

use super::{container, history, now, syntax, task, tips};
use crate::engine::state::slowlog::SlowCall;
use crate::engine::{Core, Runner, ServerCall, SessionCx};
use darter_base::number;
use darter_command::{Answer, Args, Command, Flags, Group, Refusal};
use std::rc::Rc;

const ADMIN: Flags = Flags::ADMIN.and(Flags::LOADING).and(Flags::STALE);

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    container("slowlog", "2.2.12", Flags::NONE, Group::Server, "A container for slow log commands"),
    history(syntax(tips(task("slowlog|get", "2.2.12", -2, ADMIN, Group::Server, |call| Box::pin(get(call)), ("Get the slow log's entries", "O(N) where N is the number of entries returned")), &["request_policy:all_nodes", "nondeterministic_output"]), "[count:integer]"), &[("4.0.0", "Added client IP address, port and name to the reply.")]),
    tips(task("slowlog|len", "2.2.12", 2, ADMIN, Group::Server, |call| Box::pin(len(call)), ("Get the slow log's length", "O(1)")), &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
    tips(task("slowlog|reset", "2.2.12", 2, ADMIN, Group::Server, |call| Box::pin(reset(call)), ("Clear all entries from the slow log", "O(N) where N is the number of entries in the slowlog")), &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    now("slowlog|help", "6.2.0", 2, Flags::LOADING.and(Flags::STALE), Group::Server, help, ("Show helpful text about the different subcommands", "O(1)")),
];

/// `SLOWLOG GET [count]`: replies with the newest slow commands of all cores: 10 by default, all
/// with -1.
async fn get(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    if args.left() > 1 {
        return Err(super::wrong_subcommand(args));
    }
    let count = match args.next() {
        None => 10,
        Some(text) => number::parse_i64(text)
            .filter(|&count| count >= -1)
            .ok_or_else(|| Refusal::line("ERR count should be greater than or equal to -1"))?,
    };
    let mut all: Vec<SlowCall> = call
        .core
        .ask_all(|| {
            |core: &Rc<Core>| core.admin.slowlog.borrow().calls().cloned().collect::<Vec<_>>()
        })
        .await
        .concat();
    all.sort_by_key(|call| std::cmp::Reverse((call.unix_us, call.id)));
    // Each core keeps `slowlog-max-len` commands, so all cores together may have more.
    all.truncate(usize::try_from(count).unwrap_or(usize::MAX).min(longest(&call)));
    Ok(call.answer(|reply| {
        reply.array(all.len());
        for call in &all {
            reply.array(6);
            reply.int(i64::try_from(call.id).unwrap_or(i64::MAX));
            reply.int(i64::try_from(call.unix_us / 1_000_000).unwrap_or(i64::MAX));
            reply.int(i64::try_from(call.us).unwrap_or(i64::MAX));
            reply.array(call.args.len());
            call.args.iter().for_each(|arg| reply.bulk(arg));
            reply.bulk(call.peer.as_bytes());
            reply.bulk(&call.name);
        }
    }))
}

/// `SLOWLOG LEN`.
async fn len(call: ServerCall) -> Result<Answer, Refusal> {
    let lens = call.core.ask_all(|| |core: &Rc<Core>| core.admin.slowlog.borrow().calls().len());
    let len: usize = lens.await.into_iter().sum();
    Ok(call.answer(|reply| reply.count(len.min(longest(&call)))))
}

/// The setting `slowlog-max-len`.
fn longest(call: &ServerCall) -> usize {
    call.core.admin.settings().size("slowlog-max-len")
}

/// `SLOWLOG RESET`.
async fn reset(call: ServerCall) -> Result<Answer, Refusal> {
    call.core.ask_all(|| |core: &Rc<Core>| core.admin.slowlog.borrow_mut().clear()).await;
    Ok(call.answer(|reply| reply.ok()))
}

fn help(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    super::help(
        cx,
        "SLOWLOG",
        &[
            "GET [<count>]",
            "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
            "    Entries are made of:",
            "    id, timestamp, time in microseconds, arguments array, client IP and port,",
            "    client name",
            "LEN",
            "    Return the length of the slowlog.",
            "RESET",
            "    Reset the slowlog.",
        ],
    );
    Ok(())
}
