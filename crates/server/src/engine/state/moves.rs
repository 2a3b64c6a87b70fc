//! Connections that move between cores: the number in flight, holds that stop all moves, and the
//! load of each core.

use super::super::moving::policy::{self, Policy, Share, Wish};
use crate::shared::CoreReport;
use darter_tx::CoreId;
use std::cell::{Cell, RefCell};

/// See the module.
#[derive(Default)]
pub(crate) struct Moves {
    policy: Cell<Policy>,
    /// Connections that are leaving this core, until the other core has them.
    leaving: Cell<usize>,
    /// The number of holds: no connection leaves while there is one.
    held: Cell<usize>,
    /// Tickets that are completed when no connection is leaving.
    awaited: RefCell<Vec<u64>>,
    /// Connections that this core accepted and that are on another core, or in flight.
    away: Cell<usize>,
    /// Connections on this core that another core accepted.
    guests: Cell<usize>,
    /// The current span, and the weight of the connections moved away in it.
    span: Cell<u64>,
    given: Cell<u32>,
    /// Start of the current idle time, by the monotonic clock; 0 while the core works.
    idle_since_ns: Cell<u64>,
    /// The measures of the current span.
    measured: Cell<Measured>,
    /// The load of each core at the beginning of the span.
    shares: RefCell<Vec<Share>>,
}

/// The beginning of a span, and its measures so far.
#[derive(Clone, Copy, Default)]
struct Measured {
    begun_ns: u64,
    cpu_ns: u64,
    /// Idle time, polling or asleep.
    idle_ns: u64,
    /// The part of the idle time spent polling, which takes CPU time.
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

    /// Whether a connection may leave now.
    pub(crate) fn may_begin(&self, from: CoreId, wish: Wish, cores: usize) -> bool {
        self.held.get() == 0
            && Policy::may_give(self.given.get(), wish.weight)
            && Policy::is_turn(from, wish.to, cores, self.span.get())
    }

    /// Counts a connection that leaves.
    pub(crate) fn begin(&self, wish: Wish) {
        self.given.set(self.given.get() + wish.weight);
        self.leaving.set(self.leaving.get() + 1);
    }

    /// Counts a connection that has arrived, returned or closed. Returns the waiting tickets if
    /// none is leaving any more.
    pub(crate) fn end(&self) -> Vec<u64> {
        self.leaving.set(self.leaving.get() - 1);
        if self.are_under_way() { Vec::new() } else { self.awaited.take() }
    }

    /// Adds a ticket to complete when no connection is leaving.
    pub(crate) fn await_end(&self, ticket: u64) {
        debug_assert!(self.are_under_way(), "there is nothing to wait for");
        self.awaited.borrow_mut().push(ticket);
    }

    /// Whether any connection is leaving, or in flight.
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

    /// The number of connections that this core accepted; `here` are on it, with guests.
    pub(crate) fn accepted(&self, here: usize) -> usize {
        here - self.guests.get() + self.away.get()
    }

    /// Counts a guest that arrives.
    pub(crate) fn guest_comes(&self) {
        self.guests.set(self.guests.get() + 1);
    }

    /// Counts a guest that moves on, returns or closes.
    pub(crate) fn guest_goes(&self) {
        self.guests.set(self.guests.get() - 1);
    }

    /// Counts an own connection that leaves.
    pub(crate) fn goes_away(&self) {
        self.away.set(self.away.get() + 1);
    }

    /// Counts an own connection that returns or closes.
    pub(crate) fn is_back(&self) {
        self.away.set(self.away.get() - 1);
    }

    // ---- load of cores ----

    /// Begins idle time.
    pub(crate) fn rests(&self, now_ns: u64) {
        if self.idle_since_ns.get() == 0 {
            self.idle_since_ns.set(now_ns);
        }
    }

    /// Adds polling to the idle time.
    pub(crate) fn polled(&self, ns: u64) {
        let measured = self.measured.get();
        self.measured.set(Measured { polled_ns: measured.polled_ns + ns, ..measured });
    }

    /// Ends idle time.
    #[inline]
    pub(crate) fn works(&self, now_ns: u64) {
        let since_ns = self.idle_since_ns.take();
        if since_ns > 0 {
            let measured = self.measured.get();
            let idle_ns = measured.idle_ns + now_ns.saturating_sub(since_ns);
            self.measured.set(Measured { idle_ns, ..measured });
        }
    }

    /// At the beginning of a span: reports the load of core `here`, and reads those of the others.
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

    /// The load of a core at the beginning of the span.
    pub(crate) fn share(&self, core: CoreId) -> Share {
        self.shares.borrow().get(core).copied().unwrap_or_default()
    }
}
