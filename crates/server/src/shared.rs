//! State that all cores share: facts about the process, reports of each core, and the interface to
//! the machine.

use crate::absent::Absent;
use crate::engine::scripts::registry::Registry;
use crate::journal::Found;
use crate::journal::Journal;
use crate::libraries::Libraries;
use crate::listeners::Listeners;
use crate::saving::{NoFiles, Saves, Store};
use darter_runtime::fs::{FileSystem, Simulated};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The state that all cores share: facts about the process, and a few atomics.
pub struct Shared {
    /// The id of this run: 40 random hexadecimal digits.
    pub run_id: String,
    /// The start of the process, in Unix milliseconds.
    pub started_ms: u64,
    /// The name of the event loop's backend.
    pub io: OnceLock<&'static str>,
    /// The memory of the process without data and clients.
    pub empty: Empty,
    /// The reports of the cores. Each core updates its own once a turn.
    pub reports: Vec<CoreReport>,
    /// The peak of used memory, in bytes.
    pub used_peak: AtomicUsize,
    /// The number of unsaved changes, and the number of keys, at the time when the cores stopped.
    pub lost: [AtomicU64; 2],
    /// True if the server was asked to stop.
    pub stop: AtomicBool,
    /// The progress of loading: bytes read, bytes in total, keys loaded, keys expired, the start
    /// (in Unix seconds), and the used memory when the file was written. A total of 0 means that no
    /// file is being loaded.
    pub load: Arc<[AtomicU64; 6]>,
    /// Wakes the main thread, which waits for the stop.
    pub stopper: Box<dyn Fn() + Send + Sync>,
    /// The state of snapshots.
    pub saves: Arc<Saves>,
    /// The cached scripts.
    pub(crate) scripts: Registry,
    /// The unsupported commands that were already logged.
    pub(crate) absent: Absent,
    /// The function libraries.
    pub(crate) libraries: Arc<Libraries>,
    /// The subscriptions to keyspace events, and the events in flight.
    pub(crate) listeners: Listeners,
    /// The journal.
    pub(crate) journal: Arc<Journal>,
    /// The files of snapshots, and the pidfile.
    pub(crate) fs: Arc<dyn FileSystem>,
    /// The append-only folder as it was found and loaded. Set before clients are served, if
    /// `appendonly` is set.
    pub found: OnceLock<Found>,
    /// Facts about the machine and the process that only the runtime can read.
    pub machine: Box<dyn Machine>,
}

/// The memory of the process before its cores began to run.
#[derive(Debug, Default)]
pub struct Empty {
    /// Resident bytes: code, and the touched pages of fixed structures.
    resident_bytes: AtomicUsize,
    /// The bytes that the allocator had handed out. Only bytes beyond these count as used.
    held_bytes: AtomicUsize,
}

impl Empty {
    /// Measures the memory. Must be called after the cores are created, and before they or the
    /// loading thread run.
    pub fn measure(&self, machine: &dyn Machine) {
        machine.report_held();
        self.resident_bytes.store(machine.resident_bytes().0, Ordering::Relaxed);
        self.held_bytes.store(machine.held_bytes().unwrap_or(0), Ordering::Relaxed);
    }

    /// Bytes that are used without data and clients.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.resident_bytes.load(Ordering::Relaxed)
    }
}

/// The report of one core. It has a cache line of its own, because it is written in every turn.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct CoreReport {
    /// Bytes of keys and values.
    pub data: AtomicUsize,
    /// An upper bound of the bytes that wait to be freed.
    pub freeing: AtomicUsize,
    /// Bytes of the core's clients. Reported only while `maxmemory-clients` is set.
    pub clients: AtomicUsize,
    /// Bytes of the core's largest client that `maxmemory-clients` may close.
    pub client_max: AtomicUsize,
    /// The number of changes since the last snapshot.
    unsaved: AtomicU64,
    /// The number of keys written to the current or the last snapshot.
    saved: AtomicU64,
    /// True if writers outrun the core's part of the current snapshot.
    is_behind: AtomicBool,
    /// True if connections of the core wait for the snapshot of another core.
    has_waiting: AtomicBool,
    /// The load of the core, packed by `moving::policy`.
    share: AtomicU64,
}

impl CoreReport {
    /// Publishes the number of changes since the last snapshot.
    pub(crate) fn report_unsaved(&self, changes: u64) {
        self.unsaved.store(changes, Ordering::Relaxed);
    }

    /// Counts keys that were written to the current snapshot.
    pub(crate) fn count_saved(&self, keys: u64) {
        self.saved.fetch_add(keys, Ordering::Relaxed);
    }

    /// Resets the count of written keys, because a snapshot begins.
    pub(crate) fn restart_saving(&self) {
        self.saved.store(0, Ordering::Relaxed);
    }

    /// Publishes whether writers outrun the core's part of the snapshot. Returns true if that has
    /// changed.
    pub(crate) fn report_behind(&self, is_behind: bool) -> bool {
        // Sequentially consistent, like `set_has_waiting`: either the waiting core sees this flag,
        // or this core sees that it waits.
        self.is_behind.swap(is_behind, Ordering::SeqCst) != is_behind
    }

    /// The value that [`CoreReport::report_behind`] has published.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::SeqCst)
    }

    /// Publishes whether connections of this core wait for the snapshot of another core.
    pub(crate) fn set_has_waiting(&self, has_waiting: bool) {
        if self.has_waiting.load(Ordering::Relaxed) != has_waiting {
            self.has_waiting.store(has_waiting, Ordering::SeqCst);
        }
    }

    /// True if the core must be woken when another core's part of the snapshot has caught up.
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_waiting.load(Ordering::SeqCst)
    }

    /// Publishes the load of the core, packed by `moving::policy`.
    pub(crate) fn report_share(&self, word: u64) {
        self.share.store(word, Ordering::Relaxed);
    }

    /// The value that [`CoreReport::report_share`] has published.
    pub(crate) fn share(&self) -> u64 {
        self.share.load(Ordering::Relaxed)
    }

    /// Clears the sizes of clients, because there are no clients or the limit was removed.
    pub(crate) fn forget_clients(&self) {
        self.clients.store(0, Ordering::Relaxed);
        self.client_max.store(0, Ordering::Relaxed);
    }
}

impl Shared {
    /// Shared state without a machine, for the simulator: all facts are empty, and nothing asks the
    /// server to stop.
    #[must_use]
    pub fn nowhere(cores: usize, started_ms: u64) -> Arc<Self> {
        Self::with_store(cores, started_ms, Box::new(NoFiles))
    }

    /// Like [`Shared::nowhere`]; snapshots are written to `store`.
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
            journal: Arc::new(Journal::new(cores, Vec::new())),
            fs: Arc::new(Simulated::new(0, 0, Arc::default())),
            found: OnceLock::new(),
            machine: Box::new(Nowhere),
        })
    }

    /// Keeps the append-only folder that was found at start, and logs it.
    pub(crate) fn keep_found(&self, found: Found) {
        tracing::info!("{found}");
        assert!(self.found.set(found).is_ok(), "the folder is loaded once");
    }

    /// Publishes the memory of a core: the bytes of its data, and the bytes that wait to be freed.
    pub fn report_memory(&self, core: usize, data: usize, freeing: usize) {
        let report = &self.reports[core];
        report.data.store(data, Ordering::Relaxed);
        report.freeing.store(freeing, Ordering::Relaxed);
        let used = self.used_memory();
        if used > self.used_peak.load(Ordering::Relaxed) {
            self.used_peak.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// The memory that the process uses: that of the empty process, and all that the allocator has
    /// handed out since. If the allocator does not count, only the data.
    #[must_use]
    pub fn used_memory(&self) -> usize {
        let before = self.empty.held_bytes.load(Ordering::Relaxed);
        let held = self.machine.held_bytes().map(|held| held.saturating_sub(before));
        self.empty.bytes() + held.unwrap_or_else(|| self.data_bytes())
    }

    /// Bytes of keys and values. Bytes that several values share count for each of them.
    fn data_bytes(&self) -> usize {
        self.reports.iter().map(|report| report.data.load(Ordering::Relaxed)).sum()
    }

    /// The number of changes since the last snapshot, and the number of keys written to the current
    /// one, over all cores.
    #[must_use]
    pub fn unsaved_and_saved(&self) -> (u64, u64) {
        let sum = |of: fn(&CoreReport) -> &AtomicU64| {
            self.reports.iter().map(|report| of(report).load(Ordering::Relaxed)).sum()
        };
        (sum(|report| &report.unsaved), sum(|report| &report.saved))
    }

    /// The memory that is compared with `maxmemory`: [`Shared::used_memory`] without the memory
    /// that waits to be freed. (Redis, too, waits for lazy freeing before it refuses a write.)
    /// Values being freed may share parts with living ones, so the result is never smaller than the
    /// data.
    #[must_use]
    pub fn lasting_memory(&self) -> usize {
        let freeing =
            self.reports.iter().map(|report| report.freeing.load(Ordering::Relaxed)).sum();
        let used = self.used_memory();
        let stays = self.empty.bytes() + self.data_bytes();
        used.saturating_sub(freeing).max(stays.min(used))
    }
}

/// Facts about the machine and the process, as the system reports them.
pub trait Machine: Send + Sync {
    /// The operating system as `uname -srm` prints it, for the field `os` of INFO.
    fn system(&self) -> String {
        std::env::consts::OS.to_owned()
    }
    /// Resident bytes of the process now, and their peak.
    fn resident_bytes(&self) -> (usize, usize);
    /// User CPU time and system CPU time of the process, in microseconds.
    fn cpu_us(&self) -> (u64, u64);
    /// The memory of the machine in bytes.
    fn total_bytes(&self) -> usize;
    /// The bytes that the allocator has handed out, as each thread has last reported them. `None`
    /// if the allocator does not count.
    fn held_bytes(&self) -> Option<usize> {
        None
    }
    /// Reports the allocations of the calling thread since its last report.
    fn report_held(&self) {}
    /// Asks the allocator to return freed memory to the system.
    fn purge(&self);
    /// Raises the limit of open files to `wanted`, or as far as the system allows. Returns the new
    /// limit.
    fn raise_open_files(&self, wanted: u64) -> u64;
}

/// A machine without facts, for simulated cores.
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
