//! The engine's interfaces to time and the end of slices. The thread implements them with the
//! machine's clocks, the simulator with its own.

use darter_base::Preempt;
use std::rc::Rc;

/// The engine's clock.
pub trait Clock {
    /// Nanoseconds since an arbitrary moment; monotonic. Must be cheap: read for every command.
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

/// The end of the running slice, for tasks and loops.
pub trait SliceClock: Preempt {
    /// Begins a slice at `now_ns`.
    fn begin(&self, now_ns: u64);
    /// Lets the slice run at least until `until_ns`, without checks for knocks.
    fn extend(&self, until_ns: u64);
    /// Gives the rest of the slice, from `now_ns` on, to background work: at least `least_ns`.
    /// After that a knock may end it.
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

/// The world of a core: time, slices and randomness.
pub struct World {
    /// Time.
    pub clock: Rc<dyn Clock>,
    /// The end of slices.
    pub slice: Rc<dyn SliceClock>,
    /// The seed of this core's randomness.
    pub seed: u64,
}
