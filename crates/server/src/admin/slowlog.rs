//! SLOWLOG: the slowest commands, kept per core and shown together.

use super::{container, history, now, syntax, task, tips};
use crate::engine::{Core, Entry as Row, Runner, ServerCall, Session, SessionCx};
use darter_base::number;
use darter_command::{Answer, Args, Command, Flags, Group, Refusal};
use darter_tx::CoreId;
use std::collections::VecDeque;
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

/// Arguments shown of a command, and bytes shown of an argument, as in Redis.
const ARGS_MAX: usize = 32;
const ARG_BYTES_MAX: usize = 128;

/// One slow command.
#[derive(Clone)]
struct Entry {
    id: u64,
    unix_us: u64,
    us: u64,
    args: Vec<Vec<u8>>,
    peer: String,
    name: Vec<u8>,
}

/// The slow commands of one core, newest first.
#[derive(Default)]
pub(super) struct Slowlog {
    entries: VecDeque<Entry>,
    next: u64,
}

/// Whose command it was.
#[derive(Clone, Copy)]
pub enum Caller<'a> {
    /// A connection of this core that is being served.
    Served(&'a Session),
    /// A connection by its core and its id: that of a task, or of a batch from another core.
    Client(CoreId, u64),
}

/// A command took longer than `slowlog-log-slower-than`. Kept on the core of its connection, where
/// its address and its name are known.
pub fn slow_command(
    core: &Rc<Core>,
    ns: u64,
    row: &Row,
    args: darter_resp::Args<'_>,
    caller: Caller<'_>,
) {
    let entry = Entry {
        id: 0,
        unix_us: core.clock.unix_us(),
        us: ns / 1_000,
        args: shown(row, args),
        peer: String::new(),
        name: Vec::new(),
    };
    match caller {
        Caller::Served(session) => keep(core, entry, Some(session)),
        Caller::Client(home, client) => core.tell(home, move |there| {
            let session = there.with_client(client, |conn| conn.lane.session.clone());
            keep(there, entry, session.as_ref());
        }),
    }
}

/// Keeps an entry, without address and name when its connection has gone.
fn keep(core: &Core, entry: Entry, session: Option<&Session>) {
    let most = core.admin.settings().size("slowlog-max-len");
    let mut log = core.admin.slowlog.borrow_mut();
    let id = log.next * core.tx.cores() as u64 + core.id() as u64;
    log.next += 1;
    log.entries.push_front(Entry {
        id,
        peer: session.map(|session| session.peer.remote.clone()).unwrap_or_default(),
        name: session.map(|session| session.name.clone()).unwrap_or_default(),
        ..entry
    });
    log.entries.truncate(most);
}

fn shown(row: &Row, args: darter_resp::Args<'_>) -> Vec<Vec<u8>> {
    let shown = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let mut texts: Vec<Vec<u8>> = (0..shown).map(|at| shorten(row.row.shown(args, at))).collect();
    if args.len() > ARGS_MAX {
        texts.push(format!("... ({} more arguments)", args.len() - shown).into_bytes());
    }
    texts
}

fn shorten(arg: darter_resp::Arg<'_>) -> Vec<u8> {
    let mut text: Vec<u8> = arg.pieces().flatten().take(ARG_BYTES_MAX).copied().collect();
    if arg.len() > ARG_BYTES_MAX {
        let more = format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX);
        text.extend_from_slice(more.as_bytes());
    }
    text
}

/// `SLOWLOG GET [count]`: the newest, of all cores; 10 by default, -1 for all.
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
    let mut all: Vec<Entry> = call
        .core
        .ask_all(|| |core: &Rc<Core>| Vec::from(core.admin.slowlog.borrow().entries.clone()))
        .await
        .concat();
    all.sort_by_key(|entry| std::cmp::Reverse((entry.unix_us, entry.id)));
    // Each core keeps as many as all of them may show.
    all.truncate(usize::try_from(count).unwrap_or(usize::MAX).min(longest(&call)));
    Ok(call.answer(|reply| {
        reply.array(all.len());
        for entry in &all {
            reply.array(6);
            reply.int(i64::try_from(entry.id).unwrap_or(i64::MAX));
            reply.int(i64::try_from(entry.unix_us / 1_000_000).unwrap_or(i64::MAX));
            reply.int(i64::try_from(entry.us).unwrap_or(i64::MAX));
            reply.array(entry.args.len());
            entry.args.iter().for_each(|arg| reply.bulk(arg));
            reply.bulk(entry.peer.as_bytes());
            reply.bulk(&entry.name);
        }
    }))
}

/// `SLOWLOG LEN`.
async fn len(call: ServerCall) -> Result<Answer, Refusal> {
    let lens = call.core.ask_all(|| |core: &Rc<Core>| core.admin.slowlog.borrow().entries.len());
    let len: usize = lens.await.into_iter().sum();
    Ok(call.answer(|reply| reply.count(len.min(longest(&call)))))
}

/// `slowlog-max-len`.
fn longest(call: &ServerCall) -> usize {
    call.core.admin.settings().size("slowlog-max-len")
}

/// `SLOWLOG RESET`.
async fn reset(call: ServerCall) -> Result<Answer, Refusal> {
    call.core.ask_all(|| |core: &Rc<Core>| core.admin.slowlog.borrow_mut().entries.clear()).await;
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
