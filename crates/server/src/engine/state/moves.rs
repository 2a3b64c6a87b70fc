//! The state of moving connections on one core: the number in progress, holds that stop all moves,
//! and the load of each core.

use super::super::moving::policy::{self, Policy, Share, Wish};
use crate::shared::CoreReport;
use darter_tx::CoreId;
use std::cell::{Cell, RefCell};

/// The state of moving connections on one core.
#[derive(Default)]
pub(crate) struct Moves {
    policy: Cell<Policy>,
    /// The number of connections that are leaving this core and have not arrived on another one.
    leaving: Cell<usize>,
    /// The number of holds. While there is one, no connection begins to leave.
    held: Cell<usize>,
    /// Tickets to complete when no connection is leaving any more.
    awaited: RefCell<Vec<u64>>,
    /// The number of connections that this core accepted and that are now on another core, or on
    /// the way.
    away: Cell<usize>,
    /// The number of connections on this core that another core accepted.
    guests: Cell<usize>,
    /// The current span, and the total weight of the connections that left in it.
    span: Cell<u64>,
    given: Cell<u32>,
    /// The start of the current idle time, by the monotonic clock; 0 while the core works.
    idle_since_ns: Cell<u64>,
    /// The idle time and CPU time of the current span so far.
    measured: Cell<Measured>,
    /// The load of each core, as read at the beginning of the span.
    shares: RefCell<Vec<Share>>,
}

/// The beginning of a span, and the times measured since.
#[derive(Clone, Copy, Default)]
struct Measured {
    begun_ns: u64,
    cpu_ns: u64,
    /// Idle time: polling or asleep.
    idle_ns: u64,
    /// The part of the idle time in which the core polled, which uses CPU time.
    polled_ns: u64,
}

impl Moves {
    pub(crate) fn policy(&self) -> Policy {
        self.policy.get()
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.set(policy);
    }

    // ---- leaving connections ----

    /// True if a connection may begin to leave now.
    pub(crate) fn may_begin(&self, from: CoreId, wish: Wish, cores: usize) -> bool {
        self.held.get() == 0
            && Policy::may_give(self.given.get(), wish.weight)
            && Policy::is_turn(from, wish.to, cores, self.span.get())
    }

    /// Counts a connection that begins to leave.
    pub(crate) fn begin(&self, wish: Wish) {
        self.given.set(self.given.get() + wish.weight);
        self.leaving.set(self.leaving.get() + 1);
    }

    /// Counts a leaving connection that has arrived, returned or closed. If no other is leaving,
    /// returns the waiting tickets.
    pub(crate) fn end(&self) -> Vec<u64> {
        self.leaving.set(self.leaving.get() - 1);
        if self.are_under_way() { Vec::new() } else { self.awaited.take() }
    }

    /// Adds a ticket to complete when no connection is leaving.
    pub(crate) fn await_end(&self, ticket: u64) {
        debug_assert!(self.are_under_way(), "there is nothing to wait for");
        self.awaited.borrow_mut().push(ticket);
    }

    /// True if any connection is leaving and has not arrived.
    pub(crate) fn are_under_way(&self) -> bool {
        self.leaving.get() > 0
    }

    /// Stops all moves until [`Moves::release`].
    pub(crate) fn hold(&self) {
        self.held.set(self.held.get() + 1);
    }

    pub(crate) fn release(&self) {
        self.held.set(self.held.get() - 1);
    }

    // ---- ownership ----

    /// The number of open connections that this core accepted. `here` connections are on it,
    /// including guests.
    pub(crate) fn accepted(&self, here: usize) -> usize {
        here - self.guests.get() + self.away.get()
    }

    /// Counts a connection that arrives and was accepted by another core.
    pub(crate) fn guest_comes(&self) {
        self.guests.set(self.guests.get() + 1);
    }

    /// Counts a guest that leaves this core or closes.
    pub(crate) fn guest_goes(&self) {
        self.guests.set(self.guests.get() - 1);
    }

    /// Counts a connection that this core accepted and that leaves.
    pub(crate) fn goes_away(&self) {
        self.away.set(self.away.get() + 1);
    }

    /// Counts a connection that this core accepted and that returns, or closes elsewhere.
    pub(crate) fn is_back(&self) {
        self.away.set(self.away.get() - 1);
    }

    // ---- load of cores ----

    /// Begins a period of idle time.
    pub(crate) fn rests(&self, now_ns: u64) {
        if self.idle_since_ns.get() == 0 {
            self.idle_since_ns.set(now_ns);
        }
    }

    /// Counts `ns` nanoseconds of polling as idle time.
    pub(crate) fn polled(&self, ns: u64) {
        let measured = self.measured.get();
        self.measured.set(Measured { polled_ns: measured.polled_ns + ns, ..measured });
    }

    /// Ends the period of idle time.
    #[inline]
    pub(crate) fn works(&self, now_ns: u64) {
        let since_ns = self.idle_since_ns.take();
        if since_ns > 0 {
            let measured = self.measured.get();
            let idle_ns = measured.idle_ns + now_ns.saturating_sub(since_ns);
            self.measured.set(Measured { idle_ns, ..measured });
        }
    }

    /// At the beginning of a span: publishes the load of core `here`, and reads the loads of the
    /// others.
    pub(crate) fn look(
        &self,
        here: CoreId,
        reports: &[CoreReport],
        now_ms: u64,
        now_ns: u64,
        cpu_ns: impl FnOnce() -> u64,
    ) {
        let span = now_ms / self.policy.get().span_ms;
        if span == self.span.get() {
            return;
        }
        let (before, cpu_ns) = (self.measured.get(), cpu_ns());
        let worked_ns = cpu_ns.saturating_sub(before.cpu_ns).saturating_sub(before.polled_ns);
        let passed_ns = now_ns.saturating_sub(before.begun_ns);
        let share = policy::share_of(passed_ns, before.idle_ns, worked_ns);
        self.measured.set(Measured { begun_ns: now_ns, cpu_ns, ..Measured::default() });
        reports[here].report_share(policy::word(span, share));
        *self.shares.borrow_mut() =
            reports.iter().map(|reports| policy::share_in(reports.share(), span)).collect();
        self.span.set(span);
        self.given.set(0);
    }

    /// The load of a core, as read at the beginning of the span.
    pub(crate) fn share(&self, core: CoreId) -> Share {
        self.shares.borrow().get(core).copied().unwrap_or_default()
    }
}
