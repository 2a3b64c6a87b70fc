//! State that all cores share: facts of the process, the memory report of each core, and the
//! interface to the machine.

use crate::absent::Absent;
use crate::engine::scripts::registry::Registry;
use crate::libraries::Libraries;
use crate::listeners::Listeners;
use crate::saving::{NoFiles, Saves, Store};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Facts of the process that every core can show, and a few shared atomics.
pub struct Shared {
    /// 40 hexadecimal digits, new at every start.
    pub run_id: String,
    /// Start of the process, in Unix milliseconds.
    pub started_ms: u64,
    /// The backend of the event loop.
    pub io: OnceLock<&'static str>,
    /// Memory of the process without data and clients.
    pub empty: Empty,
    /// The report of each core, updated once a turn.
    pub reports: Vec<CoreReport>,
    /// The peak of used memory.
    pub used_peak: AtomicUsize,
    /// Unsaved changes, and keys in memory, when the cores stopped.
    pub lost: [AtomicU64; 2],
    /// An orderly stop was requested.
    pub stop: AtomicBool,
    /// Progress of loading: bytes read, bytes in total, keys loaded, keys expired, when it began (in
    /// Unix seconds), memory in use when the file was written. A total of 0 means that no file is
    /// loaded.
    pub load: Arc<[AtomicU64; 6]>,
    /// Wakes the main thread, which waits for the stop.
    pub stopper: Box<dyn Fn() + Send + Sync>,
    /// Snapshots.
    pub saves: Arc<Saves>,
    /// The script cache.
    pub(crate) scripts: Registry,
    /// Unsupported commands that were already logged.
    pub(crate) absent: Absent,
    /// The function libraries.
    pub(crate) libraries: Arc<Libraries>,
    /// Subscriptions to keyspace events.
    pub(crate) listeners: Listeners,
    /// Facts about the machine and the process that only the runtime can read.
    pub machine: Box<dyn Machine>,
}

/// Memory of the process before its cores began to run.
#[derive(Debug, Default)]
pub struct Empty {
    /// Resident bytes: code, and the touched parts of fixed structures.
    resident_bytes: AtomicUsize,
    /// Bytes that the allocator had handed out. Only bytes beyond these count as used.
    held_bytes: AtomicUsize,
}

impl Empty {
    /// Measures. Call it when the cores are created, but neither they nor the loader run.
    pub fn measure(&self, machine: &dyn Machine) {
        machine.report_held();
        self.resident_bytes.store(machine.resident_bytes().0, Ordering::Relaxed);
        self.held_bytes.store(machine.held_bytes().unwrap_or(0), Ordering::Relaxed);
    }

    /// Bytes used without data and clients.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.resident_bytes.load(Ordering::Relaxed)
    }
}

/// The report of one core. It has its own cache line, because it is written at every turn.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CoreReport {
    /// Bytes of data.
    pub data: AtomicUsize,
    /// An upper bound of the bytes waiting to be freed.
    pub freeing: AtomicUsize,
    /// Bytes of the core's clients, while `maxmemory-clients` is set.
    pub clients: AtomicUsize,
    /// Bytes of the largest client that `maxmemory-clients` may close.
    pub client_max: AtomicUsize,
    /// Changes since the last snapshot.
    unsaved: AtomicU64,
    /// Keys written to the current or the last snapshot.
    saved: AtomicU64,
    /// Writers outrun the core's part of the current snapshot.
    is_behind: AtomicBool,
    /// Some of the core's connections wait until the snapshot of another core has caught up.
    has_waiting: AtomicBool,
    /// The load of the core: a word of `moving::policy`.
    share: AtomicU64,
}

impl CoreReport {
    /// Reports the number of changes since the last snapshot.
    pub(crate) fn report_unsaved(&self, changes: u64) {
        self.unsaved.store(changes, Ordering::Relaxed);
    }

    /// Counts keys that were written to the current snapshot.
    pub(crate) fn count_saved(&self, keys: u64) {
        self.saved.fetch_add(keys, Ordering::Relaxed);
    }

    /// Resets the count of written keys: a snapshot begins.
    pub(crate) fn restart_saving(&self) {
        self.saved.store(0, Ordering::Relaxed);
    }

    /// Reports whether writers outrun the core's part of the snapshot. True if that has changed.
    pub(crate) fn report_behind(&self, is_behind: bool) -> bool {
        // Sequentially consistent, as in `set_has_waiting`: the waiting core sees this flag, or
        // this core sees the other's.
        self.is_behind.swap(is_behind, Ordering::SeqCst) != is_behind
    }

    /// The last report of [`CoreReport::report_behind`].
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::SeqCst)
    }

    /// Reports whether connections of this core wait for the snapshot of another core.
    pub(crate) fn set_has_waiting(&self, has_waiting: bool) {
        if self.has_waiting.load(Ordering::Relaxed) != has_waiting {
            self.has_waiting.store(has_waiting, Ordering::SeqCst);
        }
    }

    /// Whether the core must be woken when another core's part has caught up.
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_waiting.load(Ordering::SeqCst)
    }

    /// Reports the load of the core: a word of `moving::policy`.
    pub(crate) fn report_share(&self, word: u64) {
        self.share.store(word, Ordering::Relaxed);
    }

    /// The last report of [`CoreReport::report_share`].
    pub(crate) fn share(&self) -> u64 {
        self.share.load(Ordering::Relaxed)
    }

    /// Clears the clients' sizes: there are no clients, or the limit was removed.
    pub(crate) fn forget_clients(&self) {
        self.clients.store(0, Ordering::Relaxed);
        self.client_max.store(0, Ordering::Relaxed);
    }
}

impl Shared {
    /// Shared state without a machine, for the simulator: it reports nothing, and nothing stops it.
    #[must_use]
    pub fn nowhere(cores: usize, started_ms: u64) -> Arc<Self> {
        Self::with_store(cores, started_ms, Box::new(NoFiles))
    }

    /// [`Shared::nowhere`], with snapshots that go to `store`.
    #[must_use]
    pub fn with_store(cores: usize, started_ms: u64, store: Box<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            run_id: "0".repeat(40),
            started_ms,
            io: OnceLock::new(),
            empty: Empty::default(),
            reports: (0..cores).map(|_| CoreReport::default()).collect(),
            used_peak: AtomicUsize::new(0),
            lost: Default::default(),
            stop: AtomicBool::new(false),
            load: Arc::default(),
            stopper: Box::new(|| {}),
            saves: Arc::new(Saves::new(store, started_ms)),
            scripts: Registry::default(),
            absent: Absent::default(),
            libraries: Arc::default(),
            listeners: Listeners::default(),
            machine: Box::new(Nowhere),
        })
    }

    /// Reports the bytes of a core: its data, and the memory that waits to be freed.
    pub fn report_memory(&self, core: usize, data: usize, freeing: usize) {
        let report = &self.reports[core];
        report.data.store(data, Ordering::Relaxed);
        report.freeing.store(freeing, Ordering::Relaxed);
        let used = self.used_memory();
        if used > self.used_peak.load(Ordering::Relaxed) {
            self.used_peak.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// Bytes that the process uses: those of the empty process, and all that the allocator has
    /// handed out since. Without a counting allocator: the data.
    #[must_use]
    pub fn used_memory(&self) -> usize {
        let before = self.empty.held_bytes.load(Ordering::Relaxed);
        let held = self.machine.held_bytes().map(|held| held.saturating_sub(before));
        self.empty.bytes() + held.unwrap_or_else(|| self.data_bytes())
    }

    /// Bytes of data; those shared by several values count for each.
    fn data_bytes(&self) -> usize {
        self.reports.iter().map(|report| report.data.load(Ordering::Relaxed)).sum()
    }

    /// Changes since the last snapshot, and keys written to the current one, on all cores.
    #[must_use]
    pub fn unsaved_and_saved(&self) -> (u64, u64) {
        let sum = |of: fn(&CoreReport) -> &AtomicU64| {
            self.reports.iter().map(|report| of(report).load(Ordering::Relaxed)).sum()
        };
        (sum(|report| &report.unsaved), sum(|report| &report.saved))
    }

    /// Memory to compare with `maxmemory`: [`Shared::used_memory`] without the memory that waits to
    /// be freed. (Redis, too, waits for its lazy freeing before it refuses a write.) Freed values
    /// may share parts with living ones, so the result is never below the size of the data.
    #[must_use]
    pub fn lasting_memory(&self) -> usize {
        let freeing =
            self.reports.iter().map(|report| report.freeing.load(Ordering::Relaxed)).sum();
        let used = self.used_memory();
        let stays = self.empty.bytes() + self.data_bytes();
        used.saturating_sub(freeing).max(stays.min(used))
    }
}

/// The system's view of the process.
pub trait Machine: Send + Sync {
    /// The operating system as `uname -srm` names it: INFO's `os`.
    fn system(&self) -> String {
        std::env::consts::OS.to_owned()
    }
    /// Resident bytes now, and their peak.
    fn resident_bytes(&self) -> (usize, usize);
    /// Microseconds of user and of system CPU time.
    fn cpu_us(&self) -> (u64, u64);
    /// Bytes of memory of the machine.
    fn total_bytes(&self) -> usize;
    /// Bytes that the allocator has handed out, as last reported by each thread; `None` without
    /// counting.
    fn held_bytes(&self) -> Option<usize> {
        None
    }
    /// Reports the allocations of this thread that are not reported yet.
    fn report_held(&self) {}
    /// Asks the allocator to return freed memory to the system.
    fn purge(&self);
    /// Raises the limit of open files to `wanted`, or as far as the system allows. Returns the
    /// limit.
    fn raise_open_files(&self, wanted: u64) -> u64;
}

/// No machine: for cores whose time and neighbours are simulated.
pub(crate) struct Nowhere;

impl Machine for Nowhere {
    fn resident_bytes(&self) -> (usize, usize) {
        (0, 0)
    }

    fn cpu_us(&self) -> (u64, u64) {
        (0, 0)
    }

    fn total_bytes(&self) -> usize {
        0
    }

    fn purge(&self) {}

    fn raise_open_files(&self, wanted: u64) -> u64 {
        wanted
    }
}
