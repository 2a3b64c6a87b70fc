//! What is recorded of calls: how many, how long they took, how they ended; and the slow ones.

use super::conn::{Peer, Session};
use super::core::Core;
use super::entry::Entry;
use super::slices::Cause;
use super::state::slowlog::SlowCall;
use darter_command::{Flags, Refusal};
use darter_resp::{self as resp, Args};
use darter_tx::CoreId;
use std::rc::Rc;

/// Whose command it was.
#[derive(Clone, Copy)]
pub(super) enum Caller<'a> {
    /// A connection of this core, being served.
    Served(&'a Session),
    /// A connection by its core and id: that of a task, or of a batch from another core.
    Client(CoreId, u64),
    /// A script of a connection of this core.
    Script,
}

/// A call that has begun.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    /// When, by the monotonic clock.
    pub(super) ns: u64,
    /// It has few arguments, and none is long.
    pub(super) small: bool,
}

impl Core {
    /// A command took longer than `slowlog-log-slower-than`. Kept on the core of its connection, where
    /// its address and its name are known.
    #[cold]
    pub(super) fn slow_command(
        self: &Rc<Self>,
        ns: u64,
        entry: &Entry,
        args: Args<'_>,
        caller: Caller<'_>,
    ) {
        let call = SlowCall::new(self.clock.unix_us(), ns, &entry.row, args);
        match caller {
            Caller::Served(session) => self.keep_slow(call, Some(session)),
            Caller::Script => {
                let peer = Peer { remote: "?:0".into(), ..Peer::default() }; // Redis says so.
                self.keep_slow(call, Some(&Session { peer, ..Session::default() }));
            }
            Caller::Client(home, client) => self.tell(home, move |there| {
                let session = there.with_client(client, |conn| conn.lane.session.clone());
                there.keep_slow(call, session.as_ref());
            }),
        }
    }

    /// Records a slow call, without address and name when its connection has gone.
    fn keep_slow(&self, call: SlowCall, session: Option<&Session>) {
        let most = self.admin.settings().size("slowlog-max-len");
        let mut log = self.admin.slowlog.borrow_mut();
        log.keep(call, session, most, |number| self.unique(number));
    }

    /// Counts a command that runs within another.
    pub(super) fn count_inner(&self, entry: &Entry, ns: u64, refusal: Option<&Refusal>) {
        let mut stats = self.stats.borrow_mut();
        stats.commands += 1;
        stats.by_command[entry.index].count(refusal.is_some());
        stats.by_command[entry.index].time(ns, 1);
        if let Some(refusal) = refusal {
            stats.count_refusal(refusal);
        }
    }

    /// Counts a command that a script may not call.
    pub(super) fn count_refused(&self, entry: Option<&Entry>, line: &[u8]) {
        let mut stats = self.stats.borrow_mut();
        stats.count_error(line);
        if let Some(entry) = entry {
            stats.by_command[entry.index].rejected += 1;
        }
    }

    /// Adds to a call that its reply has an error in it.
    pub(super) fn count_failed(&self, row: usize) {
        self.stats.borrow_mut().by_command[row].failed += 1;
    }

    pub(super) fn begun(&self, args: Args<'_>) -> Begun {
        /// An HSET of a hundred fields is not quick, whatever its row says.
        const SMALL_ARGS: usize = 8;
        let small = args.len() <= SMALL_ARGS && !args.is_owned();
        Begun { ns: self.meter.now_ns(), small }
    }

    /// Counts a call. Returns its time in nanoseconds, when SLOWLOG wants it.
    ///
    /// Reading the clock costs as much as a fifth of a GET, so it is read once for several commands
    /// that are quick by nature; their time goes to the last of them, in equal parts.
    #[inline(always)]
    pub(super) fn account(
        &self,
        entry: &Entry,
        begun: Begun,
        refusal: Option<&Refusal>,
    ) -> Option<u64> {
        /// Quick commands between two readings: a few microseconds, mostly.
        const UNTIMED_MAX: u32 = resp::LOOKAHEAD_MAX as u32 - 1;
        /// Below this threshold SLOWLOG wants each one timed.
        const SLOW_MIN_NS: u64 = 500_000;
        let mut stats = self.stats.borrow_mut();
        stats.commands += 1;
        stats.by_command[entry.index].count(refusal.is_some());
        if let Some(refusal) = refusal {
            stats.count_refusal(refusal);
        }
        let untimed = self.meter.untimed();
        if untimed < UNTIMED_MAX
            && begun.small
            && entry.quick
            && !self.saving.is_here() // It may have copied a segment: 40 us.
            && self.hot.borrow().slow_ns.is_none_or(|limit| limit > SLOW_MIN_NS)
        {
            self.meter.count_untimed();
            return None;
        }
        drop(stats);
        self.time(entry, begun)
    }

    /// Reads the clock for a call, and for the untimed ones before it.
    #[inline(never)]
    fn time(&self, entry: &Entry, begun: Begun) -> Option<u64> {
        let ended = self.clock.monotonic_ns();
        self.meter.read(ended);
        let ns = ended.saturating_sub(begun.ns);
        let calls = self.meter.take_untimed() + 1;
        self.stats.borrow_mut().by_command[entry.index].time(ns, calls);
        self.meter.blame(Cause::Command(entry.index));
        self.meter.took(ns);
        self.is_slow(entry, ns).then_some(ns)
    }

    /// Counts a point call, and records it in SLOWLOG when it was slow.
    #[inline(always)]
    pub(super) fn account_call(
        self: &Rc<Self>,
        entry: &Entry,
        begun: Begun,
        refusal: Option<&Refusal>,
        args: Args<'_>,
        caller: Caller<'_>,
    ) {
        if let Some(ns) = self.account(entry, begun, refusal) {
            self.slow_command(ns, entry, args, caller);
        }
    }

    /// Adds to a call, counted when it began, what its job took and how it ended.
    pub(super) fn account_job(&self, entry: &Entry, ns: u64, refusal: Option<&Refusal>) {
        let mut stats = self.stats.borrow_mut();
        let counted = &mut stats.by_command[entry.index];
        counted.ns += ns;
        counted.failed += u64::from(refusal.is_some());
        if let Some(refusal) = refusal {
            stats.count_refusal(refusal);
        }
    }

    /// Adds to a call, counted when it began, that its reply was an error in the end.
    pub(super) fn account_stream(&self, row: usize, refusal: &Refusal) {
        let mut stats = self.stats.borrow_mut();
        stats.by_command[row].failed += 1;
        stats.count_refusal(refusal);
    }

    pub(super) fn is_slow(&self, entry: &Entry, ns: u64) -> bool {
        self.hot.borrow().slow_ns.is_some_and(|limit| ns >= limit)
            && !entry.row.flags.has(Flags::SKIP_SLOWLOG)
    }
}
