//! The control: how long a loop that does nothing is delayed on the server's processor.
//!
//! A server measures its slices in CPU time, so that a neighbour on its processor does not count.
//! But where the machine is itself a guest, time stolen by the host counts as CPU time, and so do
//! interrupts: milliseconds that no program could have saved. So the server's longest slice is
//! shown next to the longest of many loops of 10 µs, by the same clock, on the same processor, in
//! the same run. A slice above the control is the server's own; one below it may be either's.
//!
//! The longest alone says little of a tail. A host that takes the processor away on a grid (each
//! 100 ms, say) does so to a server's slices as well, and as often in each second that it runs. So
//! the control counts its own [stalls](STALL_NS) and its CPU time, and computes [how
//! many](Delays::expected) of a server's slices above 512 µs the host alone would cause.
//!
//! The control must not disturb what it judges. Its threads are of the idle class (`chrt --idle`;
//! where that is missing, normal ones), and only [`Pace::Steady`] runs without a pause: before the
//! streams begin, and after they have ended for as long as the server was busy. While they run it
//! makes one loop in [`PAUSE`], 0.5 % of the processor, and sees as little of the stolen time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::process;

/// How long an undisturbed loop lasts.
const LOOP_NS: u64 = 10_000;
/// A slice of the intended length (100 µs) with a delay of this much counts as one above 512 µs.
const STALL_NS: u64 = 412_000;
/// The interval between loops at [`Pace::Sparse`].
const PAUSE: Duration = Duration::from_millis(2);

/// How much of the processor the control takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Pace {
    /// All the time that the processor is idle: loop after loop.
    Steady,
    /// One loop in [`PAUSE`].
    Sparse,
    /// The control ends.
    End,
}

/// The delays on all of the server's processors, in CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delays {
    /// The longest loop.
    pub(crate) longest_ns: u64,
    /// Loops that were delayed by [`STALL_NS`] or more.
    stalls: u64,
    /// The sum of all loops.
    ran_ns: u64,
}

impl Delays {
    fn add(&mut self, loop_ns: u64) {
        self.longest_ns = self.longest_ns.max(loop_ns);
        self.stalls += u64::from(loop_ns >= LOOP_NS + STALL_NS);
        self.ran_ns += loop_ns;
    }

    fn join(self, other: Self) -> Self {
        Self {
            longest_ns: self.longest_ns.max(other.longest_ns),
            stalls: self.stalls + other.stalls,
            ran_ns: self.ran_ns + other.ran_ns,
        }
    }

    /// How many slices above 512 µs the host alone should have caused in this much CPU time.
    pub(crate) fn expected(&self, busy: Duration) -> f64 {
        if self.ran_ns == 0 {
            return 0.0;
        }
        self.stalls as f64 * busy.as_nanos() as f64 / self.ran_ns as f64
    }
}

/// A thread on each of the server's processors.
#[derive(Debug)]
pub(crate) struct Control {
    pace: Arc<AtomicU8>,
    threads: Vec<JoinHandle<Delays>>,
}

impl Control {
    /// Starts on these processors. Returns after `span` at [`Pace::Steady`], and then continues at
    /// [`Pace::Sparse`].
    pub(crate) fn start(processors: &[usize], span: Duration) -> Control {
        let pace = Arc::new(AtomicU8::new(Pace::Steady as u8));
        let spawn = |processor: &usize| {
            let (pace, processor) = (Arc::clone(&pace), *processor);
            std::thread::spawn(move || run(processor, &pace))
        };
        let control = Control { threads: processors.iter().map(spawn).collect(), pace };
        std::thread::sleep(span);
        control.go_on(Pace::Sparse);
        control
    }

    /// Ends after another `span` at [`Pace::Steady`]. Returns the delays on all processors.
    pub(crate) fn end(mut self, span: Duration) -> Delays {
        self.go_on(Pace::Steady);
        std::thread::sleep(span);
        self.go_on(Pace::End);
        let seen = self.threads.drain(..).filter_map(|thread| thread.join().ok());
        seen.fold(Delays::default(), Delays::join)
    }

    fn go_on(&self, pace: Pace) {
        self.pace.store(pace as u8, Ordering::Relaxed);
    }
}

impl Drop for Control {
    /// If the experiment breaks off, the threads must not run into the next one.
    fn drop(&mut self) {
        self.go_on(Pace::End);
    }
}

fn run(processor: usize, pace: &AtomicU8) -> Delays {
    let mut delays = Delays::default();
    if process::pin(&[processor]).is_err() {
        return delays; // A control elsewhere would measure another processor.
    }
    process::run_last();
    loop {
        delays.add(loop_ns());
        match pace.load(Ordering::Relaxed) {
            end if end == Pace::End as u8 => return delays,
            sparse if sparse == Pace::Sparse as u8 => std::thread::sleep(PAUSE),
            _ => {}
        }
    }
}

/// Runs for [`LOOP_NS`] of CPU time. Returns how long it really took.
fn loop_ns() -> u64 {
    let started_ns = cpu_ns();
    loop {
        let taken_ns = cpu_ns() - started_ns;
        if taken_ns >= LOOP_NS {
            return taken_ns;
        }
    }
}

/// CPU time of this thread, by the clock that measures Darter's slices.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Processors;

    #[test] // At either pace.
    fn control_loops_take_their_time_and_end_on_request() {
        let processors = Processors::allowed().unwrap();
        let span = Duration::from_millis(20);
        let control = Control::start(processors.server(1), span);
        std::thread::sleep(span);
        let delays = control.end(span);
        assert!((LOOP_NS..1_000_000_000).contains(&delays.longest_ns), "{delays:?}");
        assert!(delays.ran_ns >= LOOP_NS, "{delays:?}");
    }

    #[test]
    fn expected_stalls_are_proportional_to_the_hosts_rate() {
        let mut one = Delays::default();
        for at in 0..1_000 {
            one.add(if at % 100 == 0 { LOOP_NS + STALL_NS } else { LOOP_NS });
        }
        let expected = one.expected(Duration::from_nanos(one.ran_ns * 3));
        assert!((expected - 30.0).abs() < 1e-6, "{expected}");
        let both = one.join(one);
        assert_eq!(both.longest_ns, LOOP_NS + STALL_NS);
        let expected = both.expected(Duration::from_nanos(one.ran_ns));
        assert!((expected - 10.0).abs() < 1e-6, "of one processor: {expected}");
        assert!(Delays::default().expected(Duration::from_secs(1)) < f64::EPSILON);
    }
}
