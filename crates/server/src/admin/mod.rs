//! Commands of connections and of the server.
//!
//! A command about one connection runs at once ([`Runner::Session`]). A command that asks other
//! cores runs as a task ([`Runner::Task`]). Not here: commands on data.

mod client;
mod client_list;
mod cluster;
mod command;
mod command_docs;
mod command_keys;
mod config;
mod connection;
mod databases;
mod debug;
mod functions;
mod info;
mod latency;
mod long_text;
mod memory;
mod persistence;
mod pubsub;
mod scripting;
mod server;
mod slowlog;
mod tracking;
mod transactions;

pub use crate::engine::Local;
pub use config::apply as apply_settings;

use crate::engine::{Runner, ServerCall, ServerFuture, SessionCx};
use darter_command::{Args, Command, Flags, Group, Keys, Refusal, Run, Secret};

type SessionFn = fn(&mut SessionCx<'_>, Args<'_>) -> Result<(), Refusal>;
type TaskFn = fn(ServerCall) -> ServerFuture;

const fn row(
    name: &'static str,
    since: &'static str,
    arity: i32,
    flags: Flags,
    group: Group,
) -> Command {
    Command::new(name, since, arity, flags, Keys::NONE, group, Run::Server)
}

const fn now(
    name: &'static str,
    since: &'static str,
    arity: i32,
    flags: Flags,
    group: Group,
    run: SessionFn,
    doc: (&'static str, &'static str),
) -> (Command, Runner) {
    (row(name, since, arity, flags, group).doc(doc.0, doc.1), Runner::Session(run))
}

const fn task(
    name: &'static str,
    since: &'static str,
    arity: i32,
    flags: Flags,
    group: Group,
    run: TaskFn,
    doc: (&'static str, &'static str),
) -> (Command, Runner) {
    (row(name, since, arity, flags, group).doc(doc.0, doc.1), Runner::Task(run))
}

const fn container(
    name: &'static str,
    since: &'static str,
    flags: Flags,
    group: Group,
    doc: &'static str,
) -> (Command, Runner) {
    (row(name, since, -2, flags, group).doc(doc, "Depends on subcommand."), Runner::Container)
}

/// Adds the arguments, in the notation of [`darter_command::syntax`], to a row.
const fn syntax(row: (Command, Runner), syntax: &'static str) -> (Command, Runner) {
    (row.0.syntax(syntax), row.1)
}

/// Adds the version in which a command appeared, and its later changes, to a row.
const fn history(
    row: (Command, Runner),
    history: &'static [(&'static str, &'static str)],
) -> (Command, Runner) {
    (row.0.history(history), row.1)
}

/// Adds the tips that COMMAND INFO shows to a row.
const fn tips(row: (Command, Runner), tips: &'static [&'static str]) -> (Command, Runner) {
    (row.0.tips(tips), row.1)
}

/// Marks a row as a command for debugging.
const fn system(row: (Command, Runner)) -> (Command, Runner) {
    (row.0.system(), row.1)
}

/// Adds ACL categories to a row, beyond those that follow from its flags and group.
const fn categories(
    row: (Command, Runner),
    categories: &'static [&'static str],
) -> (Command, Runner) {
    (row.0.categories(categories), row.1)
}

/// Adds to a row which of its arguments MONITOR and SLOWLOG must hide.
const fn secret(row: (Command, Runner), secret: Secret) -> (Command, Runner) {
    (row.0.secret(secret), row.1)
}

/// The error for arguments that fit no form of a subcommand.
fn wrong_subcommand(args: Args<'_>) -> Refusal {
    /// The number of bytes of the subcommand that the error shows, as in Redis.
    const SHOWN: usize = 128;
    let words = args.all();
    let parent = String::from_utf8_lossy(words.head(0)).to_ascii_uppercase();
    let word = words.head(1);
    Refusal::quoting(
        "ERR unknown subcommand or wrong number of arguments for '",
        &word[..word.len().min(SHOWN)],
        &format!("'. Try {parent} HELP."),
    )
}

/// The rows of this crate, with their functions.
pub const TABLES: &[&[(Command, Runner)]] = &[
    connection::TABLE,
    client::TABLE,
    cluster::TABLE,
    config::TABLE,
    command::TABLE,
    server::TABLE,
    persistence::TABLE,
    info::TABLE,
    slowlog::TABLE,
    latency::TABLE,
    memory::TABLE,
    debug::TABLE,
    transactions::TABLE,
    pubsub::TABLE,
    scripting::TABLE,
    functions::TABLE,
];

/// Replies with the lines of a HELP subcommand.
fn help(cx: &mut SessionCx<'_>, command: &str, lines: &[&str]) {
    cx.reply.array(lines.len() + 3);
    let title = format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    cx.reply.simple(&title);
    lines.iter().for_each(|line| cx.reply.simple(line));
    cx.reply.simple("HELP");
    cx.reply.simple("    Prints this help.");
}
