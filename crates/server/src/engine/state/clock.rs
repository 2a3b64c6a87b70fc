//! Time, the end of slices and randomness, as given to the engine: the thread reads the machine's
//! clocks, the simulator makes them up.

use darter_base::Preempt;
use std::rc::Rc;

/// The engine's clock.
pub trait Clock {
    /// Nanoseconds since some moment; monotonic. Cheap: read for every command.
    fn monotonic_ns(&self) -> u64;
    /// Unix milliseconds.
    fn unix_ms(&self) -> u64;
    /// Unix microseconds, for people to read.
    fn unix_us(&self) -> u64 {
        self.unix_ms() * 1_000
    }
    /// Nanoseconds of CPU time that this thread has used. A system call.
    fn cpu_ns(&self) -> u64;
}

/// Tells tasks and loops when the running slice is over.
pub trait SliceClock: Preempt {
    /// A slice begins at `now_ns`.
    fn begin(&self, now_ns: u64);
    /// The slice may run until `until_ns` at least, whatever knocks.
    fn extend(&self, until_ns: u64);
    /// Background work has the rest of the slice, from `now_ns` on: `least_ns` at least. After that
    /// a
    /// knock may end it.
    fn begin_background(&self, now_ns: u64, least_ns: u64) {
        self.extend(now_ns + least_ns);
    }
    /// True when a knock has ended the slice.
    fn is_knocked(&self) -> bool {
        false
    }
    /// [`Preempt::must_yield`] for a caller that has just read the clock.
    fn is_over(&self, _now_ns: u64) -> bool {
        self.must_yield()
    }
}

/// What the engine is built from, as its maker chooses.
pub struct World {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// The end of slices.
    pub slice: Rc<dyn SliceClock>,
    /// Seed of this core's randomness.
    pub seed: u64,
}
