//! Another process as Linux shows it: memory, CPU time, threads, open files.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// One `/proc` entry.
#[derive(Clone, Copy, Debug)]
pub struct Process(pub u32);

impl Process {
    fn status_kib(self, name: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
    }

    /// Resident memory now, in bytes; 0 when the process is gone.
    #[must_use]
    pub fn resident_bytes(self) -> u64 {
        self.status_kib("VmRSS:") * 1024
    }

    /// The largest resident memory so far, in bytes.
    #[must_use]
    pub fn peak_bytes(self) -> u64 {
        self.status_kib("VmHWM:") * 1024
    }

    /// CPU time of all its threads so far.
    #[must_use]
    pub fn cpu_time(self) -> Duration {
        self.scheduled(1)
    }

    /// Time that its threads have been running or runnable so far; otherwise they slept.
    #[must_use]
    pub fn active_time(self) -> Duration {
        self.scheduled(2)
    }

    fn scheduled(self, fields: usize) -> Duration {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.0)) else {
            return Duration::ZERO;
        };
        tasks.flatten().map(|task| scheduled(&task.path().join("schedstat"), fields)).sum()
    }

    /// Whether the process still exists and is no zombie.
    #[must_use]
    pub fn is_alive(self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z'))
            && !stat.is_empty()
    }

    /// Open file descriptors.
    #[must_use]
    pub fn files_open(self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.0)).map_or(0, Iterator::count)
    }

    /// The number of files that the process may open; 0 when it is gone.
    #[must_use]
    pub fn files_allowed(self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/limits", self.0)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
        let soft = line.and_then(|line| line.split_ascii_whitespace().next());
        soft.and_then(|soft| soft.parse().ok()).unwrap_or(0)
    }
}

/// Time that the calling thread has run, or been runnable, so far.
#[must_use]
pub fn own_thread_active_time() -> Duration {
    scheduled(Path::new("/proc/thread-self/schedstat"), 2)
}

/// The first fields of a thread's `schedstat`: nanoseconds on a processor, then waiting for one.
fn scheduled(path: &Path, fields: usize) -> Duration {
    let text = fs::read_to_string(path).unwrap_or_default();
    let nanos = text.split_ascii_whitespace().take(fields);
    Duration::from_nanos(nanos.filter_map(|word| word.parse::<u64>().ok()).sum())
}
