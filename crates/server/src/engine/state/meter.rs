//! What the running slice takes, and on what: read from two clocks, as `slices` says.
//!
//! - M1: the CPU clock's reading is never later than the slice's begin, so that what a slice took may
//!   be overstated, by [`FRESH_NS`] at most, and is never understated.
//! - M2: the time since the last reading of the clock is that of the calls counted since.

use super::super::slices::{Blame, Cause};
use std::cell::Cell;

/// How old a reading of the CPU clock, a system call, may be.
const FRESH_NS: u64 = 50_000;
/// Wall time up to which a slice is simply believed.
const BELIEVED_NS: u64 = 60_000;

/// Quick calls between two readings: a few microseconds, mostly.
const UNTIMED_MAX: usize = darter_resp::LOOKAHEAD_MAX;

/// See the module.
#[derive(Default)]
pub(crate) struct Meter {
    begin: Cell<Begin>,
    blame: Cell<Blame>,
    /// The monotonic time as of the last reading: the end of one command is the start of the next.
    now_ns: Cell<u64>,
    /// The number of calls since then that share the time, and their rows.
    untimed: Cell<usize>,
    rows: [Cell<u16>; UNTIMED_MAX],
}

/// When the running slice began, by both clocks.
#[derive(Clone, Copy, Default)]
struct Begin {
    wall_ns: u64,
    /// By the CPU clock, as of `read_ns`.
    cpu_ns: u64,
    read_ns: u64,
}

impl Meter {
    /// A slice begins. `cpu_ns` reads the CPU clock.
    pub(crate) fn begin(&self, wall_ns: u64, cpu_ns: impl FnOnce() -> u64) {
        let before = self.begin.get();
        let is_fresh = wall_ns.saturating_sub(before.read_ns) < FRESH_NS;
        self.begin.set(if is_fresh {
            Begin { wall_ns, ..before }
        } else {
            Begin { wall_ns, cpu_ns: cpu_ns(), read_ns: wall_ns }
        });
        self.now_ns.set(wall_ns);
        self.untimed.set(0);
        self.blame.set(Blame::default());
    }

    /// The slice ends: how long it took, and on what. `cpu_ns` reads the CPU clock.
    pub(crate) fn end(&self, wall_ns: u64, cpu_ns: impl FnOnce() -> u64) -> (u64, Cause) {
        let begin = self.begin.get();
        let mut ns = wall_ns.saturating_sub(begin.wall_ns);
        if ns > BELIEVED_NS {
            let cpu_ns = cpu_ns();
            ns = ns.min(cpu_ns.saturating_sub(begin.cpu_ns));
            self.begin.set(Begin { cpu_ns, read_ns: wall_ns, ..begin });
        }
        (ns, self.blame.get().cause())
    }

    /// The monotonic time as of the last reading.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// The clock was read.
    #[inline]
    pub(crate) fn read(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }

    /// The number of calls since the last reading that share the time.
    #[inline]
    pub(crate) fn untimed(&self) -> usize {
        self.untimed.get()
    }

    /// A call of this row ran, for which the clock is not read. True when it is to be read now.
    #[inline]
    pub(crate) fn is_full_with(&self, row: usize) -> bool {
        let count = self.untimed.get();
        self.rows[count].set(row as u16); // The table has some hundreds.
        self.untimed.set(count + 1);
        count + 1 == UNTIMED_MAX
    }

    /// Calls `share` with the rows of the calls that share the time since the last reading.
    pub(crate) fn take_untimed(&self, share: impl FnOnce(&[u16])) {
        let count = self.untimed.take();
        let rows: [u16; UNTIMED_MAX] = std::array::from_fn(|at| self.rows[at].get());
        share(&rows[..count]);
    }

    /// The slice spends its time on `cause` from here on.
    #[inline]
    pub(crate) fn blame(&self, cause: Cause) {
        self.blame.set(self.blame.get().on(cause));
    }

    /// The current cause has taken `ns`.
    #[inline]
    pub(crate) fn took(&self, ns: u64) {
        self.blame.set(self.blame.get().took(ns));
    }

    /// The slice receives bytes; what takes longer gets the blame.
    pub(crate) fn blame_receiving(&self) {
        if self.blame.get().cause() == Cause::Idle {
            self.blame(Cause::Receive);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // M1: a reading some microseconds old serves the next slice, an older one does not.
    fn the_cpu_clock_is_read_when_it_must_be() {
        let meter = Meter::default();
        let never = || panic!("a reading is at hand");
        meter.begin(1_000_000, || 500);
        meter.blame(Cause::Task);
        assert_eq!(meter.end(1_050_000, never), (50_000, Cause::Task), "short slices are believed");
        meter.begin(1_049_999, never);
        assert_eq!(meter.end(2_000_000, || 90_500), (90_000, Cause::Idle), "by the CPU clock");
        meter.begin(2_040_000, never);
        assert_eq!(meter.end(2_200_000, || 400_500).0, 160_000, "never more than passed");
        meter.begin(3_000_000, || 600_000);
        assert_eq!(meter.end(3_100_000, || 680_000).0, 80_000);
    }

    #[test] // M2, and bytes are blamed for nothing but themselves.
    fn calls_are_counted_until_the_clock_is_read() {
        let meter = Meter::default();
        meter.begin(100, || 0);
        assert_eq!((meter.now_ns(), meter.untimed()), (100, 0));
        (1..4).for_each(|row| assert!(!meter.is_full_with(row)));
        meter.read(400);
        meter.take_untimed(|rows| assert_eq!(rows, [1, 2, 3]));
        assert_eq!((meter.now_ns(), meter.untimed()), (400, 0));
        let full: Vec<bool> = (0..UNTIMED_MAX).map(|row| meter.is_full_with(row)).collect();
        assert!(full[UNTIMED_MAX - 1] && !full[UNTIMED_MAX - 2]);
        meter.take_untimed(|rows| assert_eq!(rows.len(), UNTIMED_MAX));
        meter.blame_receiving();
        meter.blame(Cause::Command(7));
        meter.took(300);
        meter.blame_receiving();
        assert_eq!(meter.end(500, || 0).1, Cause::Command(7));
    }
}
