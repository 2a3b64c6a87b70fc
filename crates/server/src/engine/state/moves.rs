//! Connections that move to other cores: how many are on their way, who has them all stay, and how
//! busy each core is.

use super::super::moving::policy::{self, Policy, Share, Wish};
use crate::shared::CoreReport;
use darter_tx::CoreId;
use std::cell::{Cell, RefCell};

/// See the module.
#[derive(Default)]
pub(crate) struct Moves {
    policy: Cell<Policy>,
    /// Connections that leave this core, until the other one has them.
    leaving: Cell<usize>,
    /// How many want all connections to stay where they are.
    held: Cell<usize>,
    /// Tickets of those who wait until none leaves.
    awaited: RefCell<Vec<u64>>,
    /// Connections that this core has accepted and that are at another, or on their way.
    away: Cell<usize>,
    /// Connections here that another core has accepted.
    guests: Cell<usize>,
    /// The current span, and the weight of what it has given away in that.
    span: Cell<u64>,
    given: Cell<u32>,
    /// The core has had nothing to do since then, by the monotonic clock; 0: it works.
    idle_since_ns: Cell<u64>,
    /// What this span has had so far.
    measured: Cell<Measured>,
    /// Each core's share, as of the beginning of the span.
    shares: RefCell<Vec<Share>>,
}

/// The beginning of a measure, and what has passed since.
#[derive(Clone, Copy, Default)]
struct Measured {
    begun_ns: u64,
    cpu_ns: u64,
    /// Without anything to do, polling or asleep.
    idle_ns: u64,
    /// The part of that in which it polled: that takes processor time.
    polled_ns: u64,
}

impl Moves {
    pub(crate) fn policy(&self) -> Policy {
        self.policy.get()
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.set(policy);
    }

    // ---- who leaves ----

    /// Whether one may leave now.
    pub(crate) fn may_begin(&self, from: CoreId, wish: Wish, cores: usize) -> bool {
        self.held.get() == 0
            && Policy::may_give(self.given.get(), wish.weight)
            && Policy::is_turn(from, wish.to, cores, self.span.get())
    }

    /// One leaves.
    pub(crate) fn begin(&self, wish: Wish) {
        self.given.set(self.given.get() + wish.weight);
        self.leaving.set(self.leaving.get() + 1);
    }

    /// It has come to another core, or back, or has ended. Returns the tickets of those who wait for
    /// that, if none leaves any more.
    pub(crate) fn end(&self) -> Vec<u64> {
        self.leaving.set(self.leaving.get() - 1);
        if self.are_under_way() { Vec::new() } else { self.awaited.take() }
    }

    /// The ticket is due when none leaves any more.
    pub(crate) fn await_end(&self, ticket: u64) {
        debug_assert!(self.are_under_way(), "there is nothing to wait for");
        self.awaited.borrow_mut().push(ticket);
    }

    /// Whether any leaves, or is on its way.
    pub(crate) fn are_under_way(&self) -> bool {
        self.leaving.get() > 0
    }

    /// All are to stay, until [`Moves::let_go`].
    pub(crate) fn hold(&self) {
        self.held.set(self.held.get() + 1);
    }

    pub(crate) fn let_go(&self) {
        self.held.set(self.held.get() - 1);
    }

    // ---- whose they are ----

    /// How many connections this core has accepted, of which `here` are on it, with guests.
    pub(crate) fn accepted(&self, here: usize) -> usize {
        here - self.guests.get() + self.away.get()
    }

    /// A guest comes.
    pub(crate) fn guest_comes(&self) {
        self.guests.set(self.guests.get() + 1);
    }

    /// A guest goes on, or home, or has ended.
    pub(crate) fn guest_goes(&self) {
        self.guests.set(self.guests.get() - 1);
    }

    /// One of its own goes to another core.
    pub(crate) fn goes_away(&self) {
        self.away.set(self.away.get() + 1);
    }

    /// It has come back, or has ended.
    pub(crate) fn is_back(&self) {
        self.away.set(self.away.get() - 1);
    }

    // ---- how busy cores are ----

    /// The core has nothing to do from now on.
    pub(crate) fn rests(&self, now_ns: u64) {
        if self.idle_since_ns.get() == 0 {
            self.idle_since_ns.set(now_ns);
        }
    }

    /// It has polled for so long meanwhile.
    pub(crate) fn polled(&self, ns: u64) {
        let measured = self.measured.get();
        self.measured.set(Measured { polled_ns: measured.polled_ns + ns, ..measured });
    }

    /// It works again.
    #[inline]
    pub(crate) fn works(&self, now_ns: u64) {
        let since_ns = self.idle_since_ns.take();
        if since_ns > 0 {
            let measured = self.measured.get();
            let idle_ns = measured.idle_ns + now_ns.saturating_sub(since_ns);
            self.measured.set(Measured { idle_ns, ..measured });
        }
    }

    /// Reports how busy core `here` was, and looks at the others, if a span has begun.
    pub(crate) fn look(
        &self,
        here: CoreId,
        told: &[CoreReport],
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
        told[here].report_share(policy::word(span, share));
        *self.shares.borrow_mut() =
            told.iter().map(|told| policy::share_in(told.share(), span)).collect();
        self.span.set(span);
        self.given.set(0);
    }

    /// A core's share, as of the last look.
    pub(crate) fn share(&self, core: CoreId) -> Share {
        self.shares.borrow().get(core).copied().unwrap_or_default()
    }
}
