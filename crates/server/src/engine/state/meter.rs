//! Measures the running slice and its cause with two clocks; `slices` explains why.
//!
//! - M1: the CPU clock was read when the slice began or before that. So the measured CPU time of
//!   a slice may be too long, by at most [`FRESH_NS`], but never too short.
//! - M2: the time since the clock was last read belongs to the calls that were counted since.

use super::super::slices::{Blame, Cause};
use std::cell::Cell;

/// A reading of the CPU clock may be reused for this time, because reading it is a system call.
const FRESH_NS: u64 = 50_000;
/// For a slice that is shorter than this in wall time, the CPU clock is not read.
const BELIEVED_NS: u64 = 60_000;

/// The maximal number of quick calls between two readings of the clock: usually a few microseconds.
const UNTIMED_MAX: usize = darter_resp::LOOKAHEAD_MAX;

/// The measurement of the running slice.
#[derive(Default)]
pub(crate) struct Meter {
    begin: Cell<Begin>,
    blame: Cell<Blame>,
    /// The monotonic time when the clock was last read. The end of one command is the start of the
    /// next.
    now_ns: Cell<u64>,
    /// The number of calls since then that share the time, and the rows of their commands.
    untimed: Cell<usize>,
    rows: [Cell<u16>; UNTIMED_MAX],
}

/// The beginning of the running slice, by both clocks.
#[derive(Clone, Copy, Default)]
struct Begin {
    wall_ns: u64,
    /// The CPU time when the monotonic clock showed `read_ns`.
    cpu_ns: u64,
    read_ns: u64,
}

impl Meter {
    /// Begins a slice. `cpu_ns` reads the CPU clock.
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

    /// Ends the slice. Returns its length and its cause. `cpu_ns` reads the CPU clock.
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

    /// The monotonic time when the clock was last read.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    /// Records that the clock was read and showed `now_ns`.
    #[inline]
    pub(crate) fn read(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }

    /// The number of calls that share the time since the clock was last read.
    #[inline]
    pub(crate) fn untimed(&self) -> usize {
        self.untimed.get()
    }

    /// Counts a call of the command `row` without reading the clock. Returns true if the clock must
    /// be read now.
    #[inline]
    pub(crate) fn is_full_with(&self, row: usize) -> bool {
        let count = self.untimed.get();
        // A row's index fits, because the table has a few hundred rows.
        self.rows[count].set(row as u16);
        self.untimed.set(count + 1);
        count + 1 == UNTIMED_MAX
    }

    /// Calls `share` with the rows of the calls that share the time since the clock was last read,
    /// and forgets the calls.
    pub(crate) fn take_untimed(&self, share: impl FnOnce(&[u16])) {
        let count = self.untimed.take();
        let rows: [u16; UNTIMED_MAX] = std::array::from_fn(|at| self.rows[at].get());
        share(&rows[..count]);
    }

    /// Attributes the time from now on to `cause`.
    #[inline]
    pub(crate) fn blame(&self, cause: Cause) {
        self.blame.set(self.blame.get().on(cause));
    }

    /// Adds `ns` nanoseconds to the current cause.
    #[inline]
    pub(crate) fn took(&self, ns: u64) {
        self.blame.set(self.blame.get().took(ns));
    }

    /// Attributes the time from now on to receiving bytes, unless the slice already has another
    /// cause.
    pub(crate) fn blame_receiving(&self) {
        if self.blame.get().cause() == Cause::Idle {
            self.blame(Cause::Receive);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // M1. A recent reading of the CPU clock also serves the next slice.
    fn the_cpu_clock_is_read_only_for_long_slices() {
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

    #[test] // M2. Only the time of receiving itself is attributed to receiving.
    fn calls_share_the_time_between_two_clock_readings() {
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
