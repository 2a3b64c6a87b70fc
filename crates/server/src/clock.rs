//! The thread's clocks, as the engine wants them.

use crate::engine::{Clock, SliceClock};
use darter_base::Preempt;
use darter_base::limits::SLICE_AIM_NS;
use darter_runtime::clock;
use std::cell::Cell;
use std::rc::Rc;

/// The machine's time.
pub(crate) struct MachineClock;

impl Clock for MachineClock {
    fn monotonic_ns(&self) -> u64 {
        clock::monotonic_nanos()
    }

    fn unix_ms(&self) -> u64 {
        clock::unix_millis()
    }

    fn unix_us(&self) -> u64 {
        clock::unix_micros()
    }

    fn cpu_ns(&self) -> u64 {
        clock::thread_cpu_nanos()
    }
}

/// Ends slices by the clock.
pub(crate) struct SliceTimer {
    clock: Rc<MachineClock>,
    end_ns: Cell<u64>,
}

impl SliceTimer {
    pub(crate) fn new(clock: Rc<MachineClock>) -> Self {
        Self { clock, end_ns: Cell::new(0) }
    }
}

impl Preempt for SliceTimer {
    fn must_yield(&self) -> bool {
        self.clock.monotonic_ns() >= self.end_ns.get()
    }
}

impl SliceClock for SliceTimer {
    fn begin(&self, now_ns: u64) {
        self.end_ns.set(now_ns + SLICE_AIM_NS);
    }

    fn extend(&self, until_ns: u64) {
        self.end_ns.set(self.end_ns.get().max(until_ns));
    }

    fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.end_ns.get()
    }
}
