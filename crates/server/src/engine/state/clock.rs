//! The engine's interfaces to time and to the end of slices. The thread implements them with the
//! clocks of the machine, and the simulator with its own clock.

use darter_base::Preempt;
use std::rc::Rc;

/// The source of time for the engine.
pub trait Clock {
    /// Nanoseconds since an arbitrary moment; monotonic. Must be cheap, because it is read for
    /// every command.
    fn monotonic_ns(&self) -> u64;
    /// Unix milliseconds.
    fn unix_ms(&self) -> u64;
    /// Unix microseconds, for times that people read.
    fn unix_us(&self) -> u64 {
        self.unix_ms() * 1_000
    }
    /// Nanoseconds of CPU time that this thread has used. Costs a system call.
    fn cpu_ns(&self) -> u64;
}

/// Says when the running slice ends. Tasks and loops ask it.
pub trait SliceClock: Preempt {
    /// Begins a slice at `now_ns`.
    fn begin(&self, now_ns: u64);
    /// Makes the slice last at least until `until_ns`. Until then a knock cannot end it.
    fn extend(&self, until_ns: u64);
    /// Begins the background part of the slice at `now_ns`. It lasts at least `least_ns`; after
    /// that a knock may end it.
    fn begin_background(&self, now_ns: u64, least_ns: u64) {
        self.extend(now_ns + least_ns);
    }
    /// True if a knock has ended the slice.
    fn is_knocked(&self) -> bool {
        false
    }
    /// Like [`Preempt::must_yield`], for a caller that has just read the clock.
    fn is_over(&self, _now_ns: u64) -> bool {
        self.must_yield()
    }
}

/// The environment of a core: time, ends of slices, and randomness.
pub struct World {
    /// The source of time.
    pub clock: Rc<dyn Clock>,
    /// Says when a slice ends.
    pub slice: Rc<dyn SliceClock>,
    /// The seed of the core's random numbers.
    pub seed: u64,
}
