//! The control: how long a loop that does nothing is delayed on the server's processor.
//!
//! A server measures its slices in CPU time, so that a neighbour on its processor does not count.
//! But where the machine is itself a guest, time stolen by the host counts as CPU time, and so do
//! interrupts: milliseconds that no program could have saved. So the server's longest slice is
//! shown next to the longest of many loops of 10 µs, by the same clock, on the same processor, in
//! the same run. A slice above the control is the server's own; one below it may be either's.
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
/// The interval between loops at [`Pace::Sparse`].
const PAUSE: Duration = Duration::from_millis(2);

/// How much of the processor the control takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Pace {
    /// All that is idle: loop after loop.
    Steady,
    /// One loop in [`PAUSE`].
    Sparse,
    /// It ends.
    End,
}

/// A thread on each of the server's processors.
#[derive(Debug)]
pub(crate) struct Control {
    pace: Arc<AtomicU8>,
    /// Each returns its longest loop, in nanoseconds of CPU time.
    threads: Vec<JoinHandle<u64>>,
}

impl Control {
    /// Starts on these processors: returns after `span` at [`Pace::Steady`], and is sparse then.
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

    /// Ends after another `span` at [`Pace::Steady`]. The longest loop on any processor, in
    /// nanoseconds of CPU time.
    pub(crate) fn end(mut self, span: Duration) -> u64 {
        self.go_on(Pace::Steady);
        std::thread::sleep(span);
        self.go_on(Pace::End);
        self.threads.drain(..).filter_map(|thread| thread.join().ok()).max().unwrap_or(0)
    }

    fn go_on(&self, pace: Pace) {
        self.pace.store(pace as u8, Ordering::Relaxed);
    }
}

impl Drop for Control {
    /// If the experiment breaks off: the threads must not run into the next one.
    fn drop(&mut self) {
        self.go_on(Pace::End);
    }
}

fn run(processor: usize, pace: &AtomicU8) -> u64 {
    if process::pin(&[processor]).is_err() {
        return 0; // It would measure another processor.
    }
    process::run_last();
    let mut longest_ns = 0;
    loop {
        longest_ns = longest_ns.max(loop_ns());
        match pace.load(Ordering::Relaxed) {
            end if end == Pace::End as u8 => return longest_ns,
            sparse if sparse == Pace::Sparse as u8 => std::thread::sleep(PAUSE),
            _ => {}
        }
    }
}

/// Runs for [`LOOP_NS`] of CPU time and returns how much it really was.
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

    #[test] // No loop is shorter than its time, at either pace, and the control ends when asked.
    fn loops_last_and_end() {
        let processors = Processors::allowed().unwrap();
        let span = Duration::from_millis(20);
        let control = Control::start(processors.server(1), span);
        std::thread::sleep(span);
        let longest_ns = control.end(span);
        assert!((LOOP_NS..1_000_000_000).contains(&longest_ns), "{longest_ns}");
    }
}
