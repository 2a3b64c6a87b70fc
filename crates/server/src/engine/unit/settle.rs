//! The end of every command: its call and its time are counted, and it may be added to SLOWLOG.
//!
//! ```text
//! call_point ─► settle              the command: counted, timed, recorded if it was slow
//!     …  more commands of an EXEC or a script  …
//! settle_changes (`changes`)        the unit: its changes are final and visible
//! ```
//! Reading the clock takes a fifth of the time of a GET. So it is read once for up to sixteen quick
//! commands, which share the time equally (`Meter`). Every other command is timed alone; before it
//! starts, the time of the quick commands before it is shared among them.

use super::super::conn::{Peer, Session};
use super::super::core::Core;
use super::super::entry::Entry;
use super::super::point::Begun;
use super::super::slices::Cause;
use super::super::state::slowlog::SlowCall;
use super::super::state::waits::WaitingCall;
use darter_command::{Flags, Refusal};
use darter_resp::Args;
use darter_tx::CoreId;
use std::rc::Rc;

/// The client for whom a command runs.
#[derive(Clone, Copy)]
pub(crate) enum Caller<'a> {
    /// A connection of this core that is being served.
    Served(&'a Session),
    /// A connection, by core and handle, for which a task or a batch runs.
    Client(CoreId, u64),
    /// A script that a connection of this core calls.
    Script,
}

impl Core {
    // ---- the command ----

    /// Begins a call that may share its time with others.
    #[inline(always)]
    pub(crate) fn begun(&self, entry: &Entry, args: Args<'_>) -> Begun {
        /// A call with more arguments is not quick, for example an HSET of a hundred fields.
        const SMALL_ARGS: usize = 8;
        /// With a lower threshold of SLOWLOG, every call must be timed alone.
        const SLOW_MIN_NS: u64 = 500_000;
        let shares = entry.quick
            && args.len() <= SMALL_ARGS
            && !args.is_owned()
            // During a snapshot, the call may copy a segment, which takes 40 us.
            && !self.saving.is_here()
            && self.hot.borrow().slow_ns.is_none_or(|limit| limit > SLOW_MIN_NS);
        if !shares && self.meter.untimed() > 0 {
            self.read_clock();
        }
        Begun { ns: self.meter.now_ns(), shares }
    }

    /// Begins a call that is timed alone.
    pub(crate) fn begun_alone(&self) -> Begun {
        Begun::at(self.read_clock())
    }

    /// Counts a command that has run, and its time. Adds the command to SLOWLOG if it was slow.
    #[inline(always)]
    pub(crate) fn settle(
        self: &Rc<Self>,
        entry: &Entry,
        begun: Begun,
        refusal: Option<&Refusal>,
        args: Args<'_>,
        caller: Caller<'_>,
    ) {
        {
            let mut stats = self.stats.borrow_mut();
            stats.commands += 1;
            stats.by_command[entry.index].count(refusal.is_some());
            if let Some(refusal) = refusal {
                stats.count_refusal(refusal);
            }
        }
        if !begun.shares {
            self.time(entry, begun, args, caller);
        } else if self.meter.is_full_with(entry.index) {
            self.read_clock();
        }
    }

    /// Adds the time of a call that was timed alone. Adds the command to SLOWLOG if it was slow.
    #[inline(never)]
    fn time(self: &Rc<Self>, entry: &Entry, begun: Begun, args: Args<'_>, caller: Caller<'_>) {
        let (read, now) = (self.meter.now_ns(), self.read_clock());
        let ns = now.saturating_sub(begun.ns);
        self.stats.borrow_mut().by_command[entry.index].time(ns, 1);
        self.meter.blame(Cause::Command(entry.index));
        self.meter.took(now.saturating_sub(read.max(begun.ns)));
        if self.is_slow(entry, ns) {
            self.slow_command(ns, entry, args, caller);
        }
    }

    /// Reads the clock. The quick calls since the last reading share the time that has passed.
    pub(crate) fn read_clock(&self) -> u64 {
        let now = self.clock.monotonic_ns();
        let since = now.saturating_sub(self.meter.now_ns());
        self.meter.read(now);
        if self.meter.untimed() > 0 {
            self.share_time(since);
        }
        now
    }

    #[inline(never)]
    fn share_time(&self, ns: u64) {
        let mut stats = self.stats.borrow_mut();
        self.meter.take_untimed(|rows| {
            let each = ns / rows.len() as u64;
            for same in rows.chunk_by(|one, other| one == other) {
                let calls = same.len() as u32;
                stats.by_command[usize::from(same[0])].time(each * u64::from(calls), calls);
            }
            self.meter.blame(Cause::Command(usize::from(rows[rows.len() - 1])));
            self.meter.took(ns);
        });
    }

    /// Counts a call that begins to wait, or that continues as a job, with its time so far.
    pub(crate) fn settle_wait(&self, entry: &Entry, begun: Begun) {
        let ns = self.read_clock().saturating_sub(begun.ns);
        let mut stats = self.stats.borrow_mut();
        stats.commands += 1;
        let counted = &mut stats.by_command[entry.index];
        counted.count(false);
        counted.ns += ns;
    }

    /// Adds the time of serving a blocked call, and whether it has failed.
    pub(crate) fn settle_served(
        self: &Rc<Self>,
        call: &WaitingCall,
        begun: Begun,
        refusal: Option<&Refusal>,
    ) {
        let entry = &self.table.entries()[call.entry];
        if let Some(refusal) = refusal {
            self.count_failed(call.entry, Some(refusal));
        }
        let caller = Caller::Client(call.core, call.client);
        self.time(entry, begun, Args::owned(&call.request), caller);
    }

    // ---- refusals, and the slow log ----

    /// Counts a command that was refused before it ran.
    pub(crate) fn count_refused(&self, entry: Option<&Entry>, line: &[u8]) {
        let mut stats = self.stats.borrow_mut();
        stats.count_error(line);
        if let Some(entry) = entry {
            stats.by_command[entry.index].rejected += 1;
        }
    }

    /// Counts the failure of a call that was counted before. The error reply is counted as well,
    /// unless it was counted already.
    pub(crate) fn count_failed(&self, row: usize, refusal: Option<&Refusal>) {
        let mut stats = self.stats.borrow_mut();
        stats.by_command[row].failed += 1;
        if let Some(refusal) = refusal {
            stats.count_refusal(refusal);
        }
    }

    fn is_slow(&self, entry: &Entry, ns: u64) -> bool {
        self.hot.borrow().slow_ns.is_some_and(|limit| ns >= limit)
            && !entry.row.flags.has(Flags::SKIP_SLOWLOG)
    }

    /// Adds a command that took longer than `slowlog-log-slower-than` to SLOWLOG, on the core of
    /// its connection, which knows the address and the name.
    #[cold]
    fn slow_command(self: &Rc<Self>, ns: u64, entry: &Entry, args: Args<'_>, caller: Caller<'_>) {
        let call = SlowCall::new(self.clock.unix_us(), ns, &entry.row, args);
        match caller {
            Caller::Served(session) => self.keep_slow(call, Some(session)),
            Caller::Script => {
                // As in Redis, the address of a client that has gone.
                let peer = Peer { remote: "?:0".into(), ..Peer::default() };
                self.keep_slow(call, Some(&Session { peer, ..Session::default() }));
            }
            Caller::Client(home, client) => self.tell(home, move |there| {
                let session = there.with_client(client, |conn| conn.lane.session.clone());
                there.keep_slow(call, session.as_ref());
            }),
        }
    }

    /// Adds a slow call to SLOWLOG, without address and name if its connection has gone.
    fn keep_slow(&self, call: SlowCall, session: Option<&Session>) {
        let most = self.admin.settings().size("slowlog-max-len");
        let mut log = self.admin.slowlog.borrow_mut();
        log.keep(call, session, most, |number| self.unique(number));
    }
}
