//! Commands of connections and of the server, and what they keep on a core.
//!
//! Those that concern one connection run at once ([`Runner::Session`]); those that ask other cores
//! are tasks ([`Runner::Task`]). Not here: commands over data.

pub(crate) mod absent;
mod census;
mod client;
mod client_list;
mod command;
mod command_docs;
mod command_keys;
mod config;
mod connection;
mod databases;
mod debug;
mod info;
mod latency;
mod long_text;
mod memory;
mod server;
mod slowlog;

pub(crate) use census::over_query_limit;
pub use config::apply as apply_settings;
pub(crate) use latency::observe as observe_slice;
pub use slowlog::{Caller, slow_command};

use crate::engine::{Core, Runner, ServerCall, ServerFuture, Session, SessionCx};
use crate::settings::Settings;
use crate::shared::Shared;
use darter_base::limits::SPARE_BYTES;
use darter_command::{Args, Command, Flags, Group, Keys, Refusal, Run, Secret};
use darter_keyspace::lazyfree;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// What the commands of administration keep on one core.
pub struct Local {
    /// Facts of the process.
    pub shared: Arc<Shared>,
    pub(crate) settings: RefCell<Arc<Settings>>,
    /// Changes of the settings, until they are decided. Core 0 only.
    changes: RefCell<config::Changes>,
    buffer: RefCell<Vec<u8>>,
    slowlog: RefCell<slowlog::Slowlog>,
    latency: RefCell<latency::Events>,
    complaints: RefCell<latency::Complaints>,
    pace: RefCell<info::Pace>,
    idle_check: Cell<IdleCheck>,
    census: RefCell<census::Census>,
    /// Some limit of what clients hold is set.
    census_runs: Cell<bool>,
}

impl Local {
    /// Nothing yet.
    #[must_use]
    pub fn new(shared: Arc<Shared>, settings: Arc<Settings>) -> Self {
        Self {
            shared,
            settings: RefCell::new(settings),
            changes: RefCell::default(),
            buffer: RefCell::default(),
            slowlog: RefCell::default(),
            latency: RefCell::default(),
            complaints: RefCell::default(),
            pace: RefCell::default(),
            census: RefCell::default(),
            census_runs: Cell::default(),
            idle_check: Cell::default(),
        }
    }

    /// A buffer for replies that are copied on: see [`Admin::keep_buffer`].
    pub fn take_buffer(&self) -> Vec<u8> {
        self.buffer.take()
    }

    /// Keeps it for its capacity, unless a long reply was in it.
    pub fn keep_buffer(&self, buffer: Vec<u8>) {
        if buffer.capacity() <= SPARE_BYTES {
            self.buffer.replace(buffer);
        }
    }

    /// The settings of this core.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }
}

/// Chores of a turn: tells how much is used, and closes connections that have been idle too long.
pub fn tick(core: &Core) {
    let data = core.tx.home().shard.memory_bytes();
    core.admin.shared.tell(core.id(), data, lazyfree::waiting().1);
    let timeout_ms = core.hot.borrow().timeout_ms;
    if timeout_ms > 0 {
        close_idle(core, timeout_ms);
    }
    if core.admin.census_runs.get() {
        census::step(core);
    }
}

/// The look for connections that have been idle too long.
#[derive(Clone, Copy, Default)]
struct IdleCheck {
    /// The connection at which the next look begins.
    from: usize,
    /// When that is, in Unix milliseconds.
    due: u64,
    /// The first moment at which one that was looked at may have been idle too long.
    earliest: u64,
}

/// When what clients hold is next looked at, in Unix milliseconds.
pub(crate) fn next_census(core: &Core) -> Option<u64> {
    let may_find = core.admin.census_runs.get() && core.conns_len() > 0;
    may_find.then(|| core.admin.census.borrow().due_ms())
}

/// When connections are next looked at for idleness, in Unix milliseconds.
pub(crate) fn next_idle_check(core: &Core) -> Option<u64> {
    let may_find = core.hot.borrow().timeout_ms > 0 && core.conns_len() > 0;
    may_find.then(|| core.admin.idle_check.get().due)
}

/// Looks at some connections a turn, until all were looked at; then again when the first of them may
/// have been idle too long.
fn close_idle(core: &Core, timeout_ms: u64) {
    /// Between two looks at all, at least.
    const EVERY_MS: u64 = 500;
    /// A few microseconds.
    const AT_ONCE: usize = 64;
    let (now, mut check) = (core.now_ms(), core.admin.idle_check.get());
    if now < check.due {
        check.due = check.due.min(now + timeout_ms.max(EVERY_MS)); // The clock may be set back.
        core.admin.idle_check.set(check);
        return;
    }
    if check.from == 0 {
        check.earliest = now + timeout_ms; // Whoever comes later, or does something.
    }
    check.from = core.some_conns(check.from, AT_ONCE, |conn| {
        let lane = &mut conn.lane;
        let is_idle = !lane.is_working() && !lane.session.monitor;
        if is_idle && now.saturating_sub(lane.session.active_ms) > timeout_ms {
            core.kill(lane);
        } else if is_idle {
            check.earliest = check.earliest.min(lane.session.active_ms + timeout_ms);
        }
    });
    check.due = if check.from == 0 { (check.earliest + 1).max(now + EVERY_MS) } else { now };
    core.admin.idle_check.set(check);
}

/// A connection of this core is gone. With the last one the looks at them end, and so does what they
/// have told.
pub fn connection_closed(core: &Core, session: &Session) {
    if core.conns_len() == 0 {
        census::forget(core);
    }
    if session.monitor {
        server::monitor_left(core, session.id);
    }
}

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

/// The row with its arguments, in the notation of [`darter_command::syntax`].
const fn syntax(row: (Command, Runner), syntax: &'static str) -> (Command, Runner) {
    (row.0.syntax(syntax), row.1)
}

/// The row with versions, and what each changed.
const fn history(
    row: (Command, Runner),
    history: &'static [(&'static str, &'static str)],
) -> (Command, Runner) {
    (row.0.history(history), row.1)
}

/// The row with tips, as COMMAND INFO shows them.
const fn tips(row: (Command, Runner), tips: &'static [&'static str]) -> (Command, Runner) {
    (row.0.tips(tips), row.1)
}

/// The row of a command that is for people who look inside.
const fn system(row: (Command, Runner)) -> (Command, Runner) {
    (row.0.system(), row.1)
}

/// The row with categories of ACL beyond those of its flags and group.
const fn categories(
    row: (Command, Runner),
    categories: &'static [&'static str],
) -> (Command, Runner) {
    (row.0.categories(categories), row.1)
}

/// The row with what MONITOR and SLOWLOG hide of its arguments.
const fn secret(row: (Command, Runner), secret: Secret) -> (Command, Runner) {
    (row.0.secret(secret), row.1)
}

/// The refusal of arguments that no form of a subcommand takes.
fn wrong_subcommand(args: Args<'_>) -> Refusal {
    /// Bytes shown of the subcommand, as in Redis.
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
    config::TABLE,
    command::TABLE,
    server::TABLE,
    info::TABLE,
    slowlog::TABLE,
    latency::TABLE,
    memory::TABLE,
    debug::TABLE,
];

/// The lines of a HELP subcommand.
fn help(cx: &mut SessionCx<'_>, command: &str, lines: &[&str]) {
    cx.reply.array(lines.len() + 3);
    let title = format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    cx.reply.simple(&title);
    lines.iter().for_each(|line| cx.reply.simple(line));
    cx.reply.simple("HELP");
    cx.reply.simple("    Prints this help.");
}
