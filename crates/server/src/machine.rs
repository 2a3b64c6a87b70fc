//! Facts about the machine and the process, read through the runtime.

use crate::shared::Machine;
use darter_runtime::{clock, heap, limits};

/// The machine on which the process runs. Facts that do not change are read once at start, so that
/// no core has to wait for them.
pub(crate) struct System {
    name: String,
    total_bytes: usize,
}

impl System {
    pub(crate) fn read() -> Self {
        Self { name: name(), total_bytes: total_bytes() }
    }
}

fn name() -> String {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
        text.unwrap_or_default().trim().to_owned()
    };
    format!("{} {} {}", read("ostype"), read("osrelease"), std::env::consts::ARCH)
}

/// A number that is the same for all processes until the system is booted again.
pub(crate) fn boot() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    darter_base::hash::digest(&id)
}

fn total_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or("");
    let kib = line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap_or(0);
    kib * 1_024
}

impl Machine for System {
    fn system(&self) -> String {
        self.name.clone()
    }

    fn resident_bytes(&self) -> (usize, usize) {
        let bytes = |reading: std::io::Result<u64>| {
            reading.ok().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0)
        };
        (bytes(clock::resident_bytes()), bytes(clock::resident_peak_bytes()))
    }

    fn cpu_us(&self) -> (u64, u64) {
        let times = clock::process_cpu_times();
        (times.user_us, times.system_us)
    }

    fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    fn held_bytes(&self) -> Option<usize> {
        Some(heap::held_bytes()).filter(|&bytes| bytes > 0)
    }

    fn report_held(&self) {
        heap::report();
    }

    fn purge(&self) {
        heap::collect();
    }

    fn raise_open_files(&self, wanted: u64) -> u64 {
        limits::raise_open_files(wanted)
    }
}
