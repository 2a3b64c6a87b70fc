//! The checks before a command runs, in Redis's order and with its error texts: for requests of
//! clients, MULTI, EXEC and scripts.
//!
//! A client's request is checked by [`State::admit`]. The commands of a transaction are checked
//! when they are queued; EXEC is checked once more, with the flags of all its commands. A command
//! of a script is checked by [`ScriptGate::admit`]. A blocking command is checked when it arrives,
//! and not again when it is served. The checks use the flags of commands, never their names.

use super::super::conn::Lane;
use super::super::core::Core;
use super::super::entry::{Entry, Runner};
use super::super::scripts::evaluation::Evaluation;
use super::super::state::hot::Hot;
use super::super::transaction::queued::Verb;
use crate::shared::Shared;
use darter_base::limits::name_max_bytes;
use darter_base::number::parse_i64;
use darter_command::{Command, Flags, Refusal};
use darter_resp::Args;
use darter_script::Flags as Said;
use std::cell::Cell;

const NOAUTH: &str = "NOAUTH Authentication required.";
pub(crate) const LOADING: &str = "LOADING Redis is loading the dataset in memory";
pub(crate) const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const MISCONF: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently \
    unable to persist to disk. Commands that may modify the data set are disabled, because this \
    instance is configured to report errors during writes if RDB snapshotting fails \
    (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB \
    error.";

const WRITES: &str = "ERR Can not execute a script with write flag using *_ro command.";
const FULL: &str =
    "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
const UNKNOWN: &str = "ERR Unknown Redis command called from script";
const ARITY: &str = "ERR Wrong number of args calling Redis command from script";
const NOT_HERE: &str = "ERR This Redis command is not allowed from script";
const READ_ONLY: &str = "ERR Write commands are not allowed from read-only scripts.";

/// The state of the server on which the checks depend.
#[derive(Clone, Copy)]
pub(crate) struct State<'a> {
    pub(crate) hot: &'a Hot,
    pub(crate) shared: &'a Shared,
}

impl State<'_> {
    /// Checks whether a client's request may run.
    #[inline]
    pub(crate) fn admit(
        self,
        lane: &Lane,
        entry: &Entry,
        flags: Flags,
        args: Args<'_>,
    ) -> Result<(), Refusal> {
        let row = &entry.row;
        if !row.accepts(args.len()) {
            return Err(Refusal::Arity(row.name.into()));
        }
        if lane.session.is_replay {
            return admit_replayed(entry, flags);
        }
        if !lane.session.authenticated && !flags.has(Flags::NO_AUTH) {
            return Err(Refusal::line(NOAUTH));
        }
        refuse_long_names(row, args)?;
        self.check_memory(flags, || self.is_full())?;
        self.check_disk(flags, Flags::WRITE | Flags::TELLS_OF_DISK)?;
        let is_free = lane.session.resp3 || row.flags.has(Flags::WHILE_SUBSCRIBED);
        if lane.session.subscribed.is_any() && !is_free {
            return Err(Refusal::line(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                row.name
            )));
        }
        if self.hot.loading && !flags.has(Flags::LOADING) {
            return Err(Refusal::line(LOADING));
        }
        Ok(())
    }

    #[inline]
    fn check_memory(self, flags: Flags, is_full: impl FnOnce() -> bool) -> Result<(), Refusal> {
        if flags.has(Flags::DENYOOM) && is_full() {
            return Err(Refusal::line(OOM));
        }
        Ok(())
    }

    #[inline]
    fn check_disk(self, flags: Flags, concerned: Flags) -> Result<(), Refusal> {
        if flags.both(concerned) == Flags::NONE {
            return Ok(());
        }
        if self.shared.saves.refuses_writes() {
            return Err(Refusal::line(MISCONF));
        }
        match self.shared.journal.failure() {
            Some(why) => {
                Err(Refusal::line(format!("MISCONF Errors writing to the AOF file: {why}")))
            }
            None => Ok(()),
        }
    }

    /// True if used memory has reached `maxmemory`.
    pub(crate) fn is_full(self) -> bool {
        self.hot.maxmemory > 0 && self.shared.lasting_memory() > self.hot.maxmemory
    }

    /// True if CLIENT PAUSE holds a command with these flags.
    #[inline]
    pub(crate) fn is_paused(self, flags: Flags, now_ms: u64) -> bool {
        match self.hot.pause {
            Some((until, reads)) if until > now_ms => {
                reads || flags.has(Flags::WRITE) || flags.has(Flags::MAY_REPLICATE)
            }
            _ => false,
        }
    }
}

/// Checks whether a command of an append-only file may run. The state of the server does not
/// matter, but the command must not concern connections or the process.
fn admit_replayed(entry: &Entry, flags: Flags) -> Result<(), Refusal> {
    let concerns_session = matches!(entry.run, Runner::Session(_)) && !flags.has(Flags::SELECTS);
    let others = [Flags::ADMIN, Flags::BLOCKING, Flags::PUBSUB];
    if concerns_session || others.iter().any(|other| entry.row.flags.has(*other)) {
        let name = entry.row.name;
        return Err(Refusal::line(format!("ERR '{name}' is not allowed in append-only files")));
    }
    Ok(())
}

/// Refuses a request with a key, field, member or channel that is longer than `name-max-bytes`.
fn refuse_long_names(row: &Command, args: Args<'_>) -> Result<(), Refusal> {
    let max = name_max_bytes();
    let mut long = args.longer_than(max).peekable();
    if long.peek().is_none() {
        // The usual case. Finding the names in a request takes a search in the texts of its row.
        return Ok(());
    }
    let is_name = row.names(args);
    match long.find(|(at, _)| is_name(*at)) {
        None => Ok(()),
        Some((_, len)) => Err(Refusal::line(format!(
            "ERR a key, field, member or channel of {len} bytes is longer than name-max-bytes ({max})"
        ))),
    }
}

/// The flags with which a request is checked; `own` are those of its row. After MULTI, EXEC has the
/// flags of its commands as well, and every queued command needs memory.
pub(crate) fn flags_in(lane: &Lane, entry: &Entry, own: Flags) -> Flags {
    let Some(queued) = &lane.transaction.queued else { return own };
    match entry.run {
        Runner::Transaction(Verb::Exec) => queued.flags_of_exec(own),
        Runner::Transaction(Verb::Multi | Verb::Watch) => own | Flags::DENYOOM,
        _ if own.has(Flags::AT_ONCE) => own,
        _ => own | Flags::DENYOOM,
    }
}

/// True if memory is full, so that commands which need more are refused.
pub(crate) fn is_full(core: &Core) -> bool {
    State { hot: &core.hot.borrow(), shared: &core.admin.shared }.is_full()
}

/// True if CLIENT PAUSE holds a command with these flags.
pub(crate) fn is_paused(core: &Core, flags: Flags) -> bool {
    let state = State { hot: &core.hot.borrow(), shared: &core.admin.shared };
    state.is_paused(flags, core.now_ms())
}

/// The permissions of a running script or function.
pub(crate) struct ScriptGate {
    /// True if the script may only read.
    is_read: bool,
    /// True if the script may run while memory is full.
    allows_oom: bool,
    /// True if memory was full when the script began.
    is_full: bool,
    /// True if the script has written. Then it may continue to write while memory is full.
    pub(crate) has_written: Cell<bool>,
}

impl ScriptGate {
    /// The permissions of a script or function that is about to run.
    ///
    /// # Errors
    /// Errors: the script must not run now.
    pub(crate) fn of(evaluation: &Evaluation, is_full: bool) -> Result<Self, Refusal> {
        let flags = evaluation.flags;
        let allows_oom = flags.has(Said::ALLOW_OOM);
        if !flags.has(Said::COMPATIBLE) {
            let writes = !flags.has(Said::NO_WRITES);
            if writes && evaluation.is_read {
                return Err(Refusal::line(WRITES));
            }
            if writes && is_full && !allows_oom {
                return Err(Refusal::line(FULL));
            }
        }
        let (is_read, has_written) = (evaluation.only_reads(), Cell::new(false));
        Ok(Self { is_read, allows_oom, is_full, has_written })
    }

    /// The permissions for running the script again.
    pub(crate) fn again(&self) -> Self {
        let Self { is_read, allows_oom, is_full, .. } = *self;
        Self { is_read, allows_oom, is_full, has_written: Cell::new(false) }
    }

    /// The row of a command, if the script may call it now.
    ///
    /// # Errors
    /// Errors: the command is refused. The error has the row of the command, if there is one.
    pub(crate) fn admit<'e>(
        &self,
        core: &'e Core,
        args: Args<'_>,
    ) -> Result<&'e Entry, (Option<&'e Entry>, Refusal)> {
        let likely = &core.machines.last_row;
        let entry = core.table.resolve_likely(args, likely.get());
        let entry = entry.map_err(|_| (None, Refusal::line(UNKNOWN)))?;
        likely.set(entry.index);
        let hot = core.hot.borrow();
        let state = State { hot: &hot, shared: &core.admin.shared };
        self.check(state, entry, args).map_err(|refusal| (Some(entry), refusal))?;
        self.has_written.set(self.has_written.get() || entry.row.is_write());
        Ok(entry)
    }

    fn check(&self, state: State<'_>, entry: &Entry, args: Args<'_>) -> Result<(), Refusal> {
        let flags = entry.row.flags;
        if !entry.row.accepts(args.len()) {
            return Err(Refusal::line(ARITY));
        }
        refuse_long_names(&entry.row, args)?;
        if flags.has(Flags::NOSCRIPT) && state.hot.noscript {
            return Err(Refusal::line(NOT_HERE));
        }
        if self.is_read && (flags.has(Flags::WRITE) || flags.has(Flags::MAY_REPLICATE)) {
            return Err(Refusal::line(READ_ONLY));
        }
        if !self.has_written.get() {
            state.check_disk(flags, Flags::WRITE)?;
            state.check_memory(flags, || self.is_full && !self.allows_oom)?;
        }
        if entry.may_block && asks_to_wait(args) {
            let text = " command is not allowed with BLOCK option from scripts";
            return Err(Refusal::quoting("ERR ", args.head(0), text));
        }
        Ok(())
    }
}

/// True if a stream command has the option BLOCK, which is refused in scripts, unless an earlier
/// argument is invalid. Other blocking commands do not block in scripts.
fn asks_to_wait(args: Args<'_>) -> bool {
    let is_group = args.head(0).eq_ignore_ascii_case(b"XREADGROUP");
    let mut at = 1;
    while at < args.len() {
        let (option, behind) = (args.head(at), args.len() - at - 1);
        let is = |word: &str| option.eq_ignore_ascii_case(word.as_bytes());
        if behind > 0 && is("BLOCK") {
            return true;
        }
        at += match () {
            () if behind > 0 && is("COUNT") && parse_i64(args.head(at + 1)).is_some() => 2,
            () if is_group && behind > 0 && is("CLAIM") => 2,
            () if is_group && behind > 1 && is("GROUP") => 3,
            () if is_group && is("NOACK") => 1,
            () => return false, // The word STREAMS, or an invalid option.
        };
    }
    false
}
