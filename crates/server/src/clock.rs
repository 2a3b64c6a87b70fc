//! The clocks of a core's thread, as the engine needs them.

use crate::engine::Clock;
use darter_runtime::clock;

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
