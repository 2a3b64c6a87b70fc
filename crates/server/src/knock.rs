//! The end of a slice: its time is used up, or there is a knock.
//!
//! A *knock* is something that arrives at a core during background work: bytes on a socket, or a
//! message from another core. It ends the slice, so that a client waits for one portion of the long
//! commands of others, and not for a whole slice. In the first part of a slice, which serves
//! earlier arrivals, there are no checks for knocks.
//!
//! Background work keeps its share of the time, however frequent the knocks are:
//! - The quarter of a slice that [`SliceClock::begin_background`] guarantees is never cut short. So
//!   where clients use up their part of the slices, knocks change nothing.
//! - The turn after a knock delays background work. [`PRICE`] times that delay is paid from a
//!   budget, and the budget grows with the time that background work gets. While the budget is
//!   empty, there are no checks for knocks. So knocks delay background work by at most a tenth.
//!
//! ```text
//! look | clients | quarter | portion | portion | knock      | look | clients | quarter | ...
//!                |<--- adds to the budget ---->|            |<- costs 10 x ->|
//! ```
//! Not here: how an arrival is detected. See `arrivals`. Reasons and measurements:
//! docs/design/0013-knock.md.

use crate::engine::{Clock, SliceClock};
use darter_base::Preempt;
use darter_base::limits::SLICE_AIM_NS;
use std::cell::Cell;
use std::rc::Rc;

/// The time of background work that pays for one nanosecond of delay, in nanoseconds.
const PRICE: u64 = 10;
/// The time of a turn apart from the clients' requests: polling, the system calls of sends, and
/// measuring.
const TURN_NS: u64 = 5_000;
/// The longest delay that is paid for. A longer one is usually caused by the machine.
const WAIT_MAX_NS: u64 = SLICE_AIM_NS;
/// The largest budget: enough for about a dozen knocks.
const SAVED_MAX_NS: i64 = 1_000_000;

/// Detects whether something has arrived.
pub(crate) trait Knocker {
    /// The minimal time between two checks, in nanoseconds.
    fn every_ns(&self) -> u64;
    /// True if something has arrived since the core last polled.
    fn has_knocked(&self, now_ns: u64) -> bool;
}

/// Decides when a slice ends.
pub(crate) struct SliceTimer<C> {
    clock: Rc<C>,
    knocker: Rc<dyn Knocker>,
    begun_ns: Cell<u64>,
    end_ns: Cell<u64>,
    /// True while background work runs and a knock may end the slice.
    is_listening: Cell<bool>,
    /// True if a knock has ended the slice and was not paid for yet.
    is_knocked: Cell<bool>,
    /// The earliest time of the next check for knocks.
    ask_ns: Cell<u64>,
    /// The time until which background work was added to the budget.
    saved_until_ns: Cell<u64>,
    /// The budget. It is negative after a long turn.
    saved_ns: Cell<i64>,
}

impl<C: Clock> SliceTimer<C> {
    pub(crate) fn new(clock: Rc<C>, knocker: Rc<dyn Knocker>) -> Self {
        Self {
            clock,
            knocker,
            begun_ns: Cell::default(),
            end_ns: Cell::default(),
            is_listening: Cell::default(),
            is_knocked: Cell::default(),
            ask_ns: Cell::default(),
            saved_until_ns: Cell::default(),
            saved_ns: Cell::default(),
        }
    }

    /// True if background work must end. It stays true until the next turn.
    fn is_background_over(&self, now_ns: u64) -> bool {
        let had_ns = now_ns.saturating_sub(self.saved_until_ns.replace(now_ns));
        let saved_ns = self.saved_ns.get().saturating_add_unsigned(had_ns).min(SAVED_MAX_NS);
        self.saved_ns.set(saved_ns);
        let is_over = now_ns >= self.end_ns.get();
        if !is_over && saved_ns > 0 && now_ns >= self.ask_ns.get() {
            self.ask_ns.set(now_ns + self.knocker.every_ns());
            self.is_knocked.set(self.knocker.has_knocked(now_ns));
        }
        if is_over || self.is_knocked.get() {
            self.is_listening.set(false);
            self.end_ns.set(self.end_ns.get().min(now_ns));
            return true;
        }
        false
    }

    /// Pays for the turn that a knock has caused.
    fn pay(&self, now_ns: u64) {
        let waited_ns = TURN_NS + now_ns.saturating_sub(self.begun_ns.get());
        let price_ns = PRICE * waited_ns.min(WAIT_MAX_NS);
        self.saved_ns.set(self.saved_ns.get().saturating_sub_unsigned(price_ns));
    }
}

impl<C: Clock> Preempt for SliceTimer<C> {
    fn must_yield(&self) -> bool {
        self.is_over(self.clock.monotonic_ns())
    }
}

impl<C: Clock> SliceClock for SliceTimer<C> {
    fn begin(&self, now_ns: u64) {
        self.is_listening.set(false);
        self.begun_ns.set(now_ns);
        self.end_ns.set(now_ns + SLICE_AIM_NS);
    }

    fn extend(&self, until_ns: u64) {
        self.is_listening.set(false);
        self.end_ns.set(self.end_ns.get().max(until_ns));
    }

    fn begin_background(&self, now_ns: u64, least_ns: u64) {
        let until_ns = now_ns + least_ns;
        self.extend(until_ns);
        if self.is_knocked.take() {
            self.pay(now_ns);
        }
        self.saved_until_ns.set(now_ns);
        self.ask_ns.set(until_ns);
        self.is_listening.set(true);
    }

    fn is_knocked(&self) -> bool {
        self.is_knocked.get()
    }

    fn is_over(&self, now_ns: u64) -> bool {
        if self.is_listening.get() {
            return self.is_background_over(now_ns);
        }
        now_ns >= self.end_ns.get()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The length of a portion of background work.
    const PORTION_NS: u64 = 10_000;
    const QUARTER_NS: u64 = SLICE_AIM_NS / 4;

    /// A clock that each reading advances by one portion.
    #[derive(Default)]
    pub(crate) struct Portions(Cell<u64>);

    impl Portions {
        pub(crate) fn now_ns(&self) -> u64 {
            self.0.get()
        }

        fn pass(&self, ns: u64) {
            self.0.set(self.0.get() + ns);
        }
    }

    impl Clock for Portions {
        fn monotonic_ns(&self) -> u64 {
            self.pass(PORTION_NS);
            self.now_ns()
        }

        fn unix_ms(&self) -> u64 {
            self.now_ns() / 1_000_000
        }

        fn cpu_ns(&self) -> u64 {
            self.now_ns()
        }
    }

    /// A knocker that tests control, and that counts the checks.
    #[derive(Default)]
    pub(crate) struct TestKnocker {
        pub(crate) knocks: Cell<bool>,
        every_ns: Cell<u64>,
        checks: Cell<usize>,
    }

    impl Knocker for TestKnocker {
        fn every_ns(&self) -> u64 {
            self.every_ns.get()
        }

        fn has_knocked(&self, _now_ns: u64) -> bool {
            self.checks.set(self.checks.get() + 1);
            self.knocks.get()
        }
    }

    struct Bench {
        clock: Rc<Portions>,
        knocker: Rc<TestKnocker>,
        timer: SliceTimer<Portions>,
    }

    impl Bench {
        fn new(knocks: bool) -> Self {
            let (clock, knocker) = (Rc::new(Portions::default()), Rc::new(TestKnocker::default()));
            knocker.knocks.set(knocks);
            let timer = SliceTimer::new(Rc::clone(&clock), Rc::clone(&knocker) as Rc<dyn Knocker>);
            Self { clock, knocker, timer }
        }

        /// Runs a turn in which the clients take `clients_ns`. Returns the number of portions of
        /// background work.
        fn turn(&self, clients_ns: u64) -> u64 {
            self.clock.pass(TURN_NS);
            self.timer.begin(self.clock.now_ns());
            self.clock.pass(clients_ns);
            self.timer.begin_background(self.clock.now_ns(), QUARTER_NS);
            let portions = (1..).find(|_| self.timer.must_yield()).unwrap();
            let now_ns = self.clock.now_ns();
            assert!(self.timer.must_yield(), "it goes on again");
            self.clock.0.set(now_ns); // The check did not take the time of a portion.
            portions
        }

        /// The percentage of the time that background work gets, over many turns.
        fn share(&self, clients_ns: u64) -> u64 {
            let begun_ns = self.clock.now_ns();
            let portions: u64 = (0..1_000).map(|_| self.turn(clients_ns)).sum();
            portions * PORTION_NS * 100 / (self.clock.now_ns() - begun_ns)
        }
    }

    #[test] // The portion that is running is the last one.
    fn a_knock_ends_background_work_after_its_guaranteed_share() {
        let bench = Bench::new(false);
        assert_eq!(bench.turn(0), 10, "nobody knocks");
        bench.knocker.knocks.set(true);
        assert_eq!(bench.turn(0), 3);
        assert!(bench.timer.is_knocked());
        bench.knocker.knocks.set(false);
        assert_eq!(bench.turn(0), 10, "nobody knocks any more");
        assert!(!bench.timer.is_knocked());
    }

    #[test] // The clients' part of a slice and the loader make no checks.
    fn knocks_are_checked_only_during_background_work() {
        let bench = Bench::new(true);
        bench.timer.begin(bench.clock.now_ns());
        assert_eq!((1..).find(|_| bench.timer.must_yield()), Some(10));
        bench.timer.begin_background(bench.clock.now_ns(), QUARTER_NS);
        bench.timer.extend(bench.clock.now_ns() + SLICE_AIM_NS);
        assert_eq!((1..).find(|_| bench.timer.must_yield()), Some(10));
        assert_eq!(bench.knocker.checks.get(), 0);
    }

    #[test] // Cheap checks are made after each portion.
    fn expensive_checks_for_knocks_are_rarer() {
        let bench = Bench::new(false);
        for (every_ns, checks) in [(0, 7), (PORTION_NS, 7), (2 * PORTION_NS, 4), (SLICE_AIM_NS, 1)]
        {
            bench.knocker.every_ns.set(every_ns);
            bench.knocker.checks.set(0);
            assert_eq!(bench.turn(0), 10);
            assert_eq!(bench.knocker.checks.get(), checks, "every {every_ns} ns");
        }
    }

    #[test]
    fn background_work_keeps_nine_tenths_of_its_share_under_constant_knocks() {
        for clients_us in [0, 2, 8, 20, 30, 50, 75, 100, 150] {
            let [quiet, knocked] =
                [false, true].map(|knocks| Bench::new(knocks).share(clients_us * 1_000));
            assert!(knocked * 10 >= quiet * 9, "{clients_us} us: {knocked} % of {quiet} %");
            assert!(knocked <= quiet, "{clients_us} us: {knocked} % of {quiet} %");
        }
    }

    #[test] // Long times without knocks, and long turns, have a limited effect.
    fn the_budget_for_knocks_is_bounded_in_both_directions() {
        const CLIENTS_NS: u64 = 8_000;
        let bench = Bench::new(false);
        bench.share(CLIENTS_NS);
        bench.knocker.knocks.set(true);
        let turns_until = |is_knocked: bool| {
            let turn = |_: &usize| {
                bench.turn(CLIENTS_NS);
                bench.timer.is_knocked() == is_knocked
            };
            (1..100).find(turn).unwrap()
        };
        assert!((5..=20).contains(&turns_until(false)), "savings end");
        turns_until(true);
        bench.turn(3_600_000_000_000);
        assert!((5..=20).contains(&turns_until(true)), "debts end");
    }
}
