//! Time, and resources used by the process.
//!
//! All readings are the system's own. A monotonic one costs 21 ns here, without entering the
//! kernel. Our own clock over the processor's counter, calibrated against the system's, cost 16 ns
//! (the counter alone is 12) and had to be kept in step, which was not worth it. A thread's CPU
//! time takes a system call, 170 ns (`cargo test --release -p darter-runtime clocks_do_not_go_back
//! -- --nocapture`).
//!
//! Not here: users of the time. The engine never reads a clock.

use std::io;

use darter_base::UnixMillis;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The system's monotonic clock, in nanoseconds since some origin. Never goes back.
#[must_use]
pub fn monotonic_nanos() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Milliseconds since the epoch.
#[must_use]
pub fn unix_millis() -> UnixMillis {
    nanos(clock_gettime(ClockId::Realtime)) / 1_000_000
}

/// Microseconds since the epoch.
#[must_use]
pub fn unix_micros() -> u64 {
    nanos(clock_gettime(ClockId::Realtime)) / 1_000
}

/// CPU time of the calling thread, in nanoseconds. A system call.
#[must_use]
pub fn thread_cpu_nanos() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time of the whole process, in nanoseconds. A system call.
#[must_use]
pub fn process_cpu_nanos() -> u64 {
    nanos(clock_gettime(ClockId::ProcessCPUTime))
}

fn nanos(time: Timespec) -> u64 {
    // Clocks do not precede their origin; the range ends in the year 2554.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// CPU time by mode, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// CPU time in the process's own code.
    pub user_us: u64,
    /// CPU time in the kernel, for the process.
    pub system_us: u64,
}

/// CPU time of the whole process, by mode.
#[must_use]
pub fn process_cpu_times() -> CpuTimes {
    cpu_times(libc::RUSAGE_SELF)
}

/// CPU time of the calling thread, by mode.
#[must_use]
pub fn thread_cpu_times() -> CpuTimes {
    cpu_times(libc::RUSAGE_THREAD)
}

fn cpu_times(who: libc::c_int) -> CpuTimes {
    // SAFETY: all zeroes is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is an `rusage` that the call may write.
    if unsafe { libc::getrusage(who, &mut usage) } != 0 {
        return CpuTimes::default();
    }
    let micros = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    CpuTimes { user_us: micros(usage.ru_utime), system_us: micros(usage.ru_stime) }
}

/// Resident memory of the process, in bytes.
///
/// Errors: there is no `/proc`.
pub fn resident_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|field| field.parse::<u64>().ok());
    let pages = pages.ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// The process's peak resident memory, in bytes.
///
/// Errors: there is no `/proc`.
pub fn resident_peak_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.ok_or(io::ErrorKind::InvalidData)? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Also prints the cost of a reading.
    fn clocks_do_not_go_back() {
        const READS: u64 = 200_000;
        let each = |name: &str, read: &dyn Fn() -> u64| {
            let start = monotonic_nanos();
            let first = read();
            let last = (1..READS).fold(first, |last, _| {
                let now = read();
                assert!(now >= last, "{name} went back");
                now
            });
            eprintln!("{name}: {} ns", (monotonic_nanos() - start) / READS);
            assert!(last > first, "{name}");
        };
        each("monotonic_nanos", &monotonic_nanos);
        each("thread_cpu_nanos", &thread_cpu_nanos);
    }

    #[test] // Both the thread's and the process's.
    fn busy_work_increases_cpu_time() {
        let (thread, process) = (thread_cpu_nanos(), process_cpu_nanos());
        while thread_cpu_nanos() - thread < 2_000_000 {}
        let (thread, process) = (thread_cpu_nanos() - thread, process_cpu_nanos() - process);
        assert!(process >= thread / 2, "thread={thread} process={process}");
        // The split is an estimate by the system, and fluctuates; the sum grows.
        let sum_us = |times: CpuTimes| times.user_us + times.system_us;
        let (ours, all) = (sum_us(thread_cpu_times()), sum_us(process_cpu_times()));
        assert!(ours >= 2_000 && all >= ours / 2, "ours={ours} all={all}");
    }

    #[test] // Also in the peak.
    fn touched_memory_counts_as_resident() {
        let before = resident_bytes().unwrap();
        let block = std::hint::black_box(vec![1_u8; 32 << 20]);
        let during = resident_bytes().unwrap();
        assert!(during >= before + (30 << 20), "before={before} during={during}");
        drop(block);
        assert!(resident_peak_bytes().unwrap() + (1 << 20) >= during);
    }

    #[test] // The two realtime readings agree, and are of this century.
    fn realtime_clocks_agree() {
        let (millis, micros) = (unix_millis(), unix_micros());
        assert!(micros / 1_000 >= millis && micros / 1_000 < millis + 10_000);
        assert!(millis > 1_700_000_000_000);
    }
}
