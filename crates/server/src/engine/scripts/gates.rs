//! What a command must pass that a script calls, in Redis's order and with its texts.

use super::super::core::Core;
use super::super::entry::Entry;
use super::super::serve::MISCONF;
use super::evaluation::Evaluation;
use darter_base::number::parse_i64;
use darter_command::{Flags, Refusal};
use darter_resp::Args;
use darter_script::Flags as Said;
use std::cell::Cell;

const WRITES: &str = "ERR Can not execute a script with write flag using *_ro command.";
const FULL: &str =
    "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'";
const UNKNOWN: &str = "ERR Unknown Redis command called from script";
const ARITY: &str = "ERR Wrong number of args calling Redis command from script";
const NOT_HERE: &str = "ERR This Redis command is not allowed from script";
const READ_ONLY: &str = "ERR Write commands are not allowed from read-only scripts.";
/// Also what any client gets.
pub(super) const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// What a run may do.
pub(super) struct Gate {
    /// It only reads.
    pub(super) is_read: bool,
    /// It may run when memory is full.
    pub(super) allows_oom: bool,
    /// Memory was full when it began.
    pub(super) is_full: bool,
    /// It has called a command that writes: from then on it may go on.
    pub(super) has_written: Cell<bool>,
}

impl Gate {
    /// What the commands must pass that a script or a function calls.
    ///
    /// # Errors
    /// It may not run now.
    pub(super) fn of(evaluation: &Evaluation, is_full: bool) -> Result<Self, Refusal> {
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

    /// That of another run of the same.
    pub(super) fn again(&self) -> Self {
        let Self { is_read, allows_oom, is_full, .. } = *self;
        Self { is_read, allows_oom, is_full, has_written: Cell::new(false) }
    }

    /// The row of a command that a script may call now.
    ///
    /// # Errors
    /// It may not. With it comes the row, if there is one.
    pub(super) fn admit<'e>(
        &self,
        core: &'e Core,
        args: Args<'_>,
    ) -> Result<&'e Entry, (Option<&'e Entry>, Refusal)> {
        let likely = &core.machines.last_row;
        let entry = core.table.resolve_likely(args, likely.get());
        let entry = entry.map_err(|_| (None, Refusal::line(UNKNOWN)))?;
        likely.set(entry.index);
        match self.refuse(core, entry, args) {
            Some(refusal) => Err((Some(entry), refusal)),
            None => {
                self.has_written.set(self.has_written.get() || entry.row.is_write());
                Ok(entry)
            }
        }
    }

    fn refuse(&self, core: &Core, entry: &Entry, args: Args<'_>) -> Option<Refusal> {
        let flags = entry.row.flags;
        if !entry.row.accepts(args.len()) {
            return Some(Refusal::line(ARITY));
        }
        if flags.has(Flags::NOSCRIPT) {
            return Some(Refusal::line(NOT_HERE));
        }
        let writes = flags.has(Flags::WRITE);
        if self.is_read && (writes || flags.has(Flags::MAY_REPLICATE)) {
            return Some(Refusal::line(READ_ONLY));
        }
        if !self.has_written.get() {
            if writes && core.admin.shared.saves.refuses_writes() {
                return Some(Refusal::line(MISCONF));
            }
            if self.is_full && !self.allows_oom && flags.has(Flags::DENYOOM) {
                return Some(Refusal::line(OOM));
            }
        }
        (entry.may_block && asks_to_wait(args)).then(|| {
            let text = " command is not allowed with BLOCK option from scripts";
            Refusal::quoting("ERR ", args.head(0), text)
        })
    }
}

/// Whether a command of streams is to wait: BLOCK is refused where it is read, unless something before it
/// is wrong. What else waits where it finds nothing does not here.
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
            () => return false, // STREAMS, or what is refused.
        };
    }
    false
}
