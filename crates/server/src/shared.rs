//! What all cores share: facts of the process, what each reports of its memory, and the interface
//! to the machine.

use crate::absent::Absent;
use crate::engine::scripts::registry::Registry;
use crate::libraries::Libraries;
use crate::listeners::Listeners;
use crate::saving::{NoFiles, Saves, Store};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Facts of the process that all cores show, and a few shared words.
pub struct Shared {
    /// 40 hexadecimal digits, new at every start.
    pub run_id: String,
    /// When the process began, in Unix milliseconds.
    pub started_ms: u64,
    /// The backend of the event loop.
    pub io: OnceLock<&'static str>,
    /// What the process takes without data and clients.
    pub empty: Empty,
    /// What each core reports of its memory, once a turn.
    pub told: Vec<Told>,
    /// The peak of used memory.
    pub used_peak: AtomicUsize,
    /// What is lost with the process, reported by the cores at their end: changes, and keys.
    pub lost: [AtomicU64; 2],
    /// An orderly stop was requested.
    pub stop: AtomicBool,
    /// Loading: bytes read and total, keys, and when it began; a total of 0 when none is in
    /// progress.
    pub load: Arc<[AtomicU64; 4]>,
    /// Wakes the thread that waits for the end.
    pub stopper: Box<dyn Fn() + Send + Sync>,
    /// Snapshots.
    pub saves: Arc<Saves>,
    /// The scripts that are known.
    pub(crate) scripts: Registry,
    /// Unsupported commands that clients have sent.
    pub(crate) absent: Absent,
    /// The libraries of functions.
    pub(crate) libraries: Arc<Libraries>,
    /// Who listens to keyspace events.
    pub(crate) listeners: Listeners,
    /// Facts of the machine and the process that only the runtime knows.
    pub machine: Box<dyn Machine>,
}

/// What the process took before its cores began to run.
#[derive(Debug, Default)]
pub struct Empty {
    /// Resident bytes: its code, and the touched parts of its own structures.
    resident_bytes: AtomicUsize,
    /// Bytes that its allocator had handed out: only more than these counts.
    held_bytes: AtomicUsize,
}

impl Empty {
    /// The cores are created; none has begun, and no file is being loaded.
    pub fn measure(&self, machine: &dyn Machine) {
        machine.tell_held();
        self.resident_bytes.store(machine.resident_bytes().0, Ordering::Relaxed);
        self.held_bytes.store(machine.held_bytes().unwrap_or(0), Ordering::Relaxed);
    }

    /// Bytes used without data and clients.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.resident_bytes.load(Ordering::Relaxed)
    }
}

/// What a core reports of its memory. On a cache line of its own, as it is written at every turn.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Told {
    /// Bytes of data.
    pub data: AtomicUsize,
    /// An upper bound of the bytes waiting to be freed.
    pub freeing: AtomicUsize,
    /// Bytes of its clients, while `maxmemory-clients` is set.
    pub clients: AtomicUsize,
    /// Those of the largest client that may be closed for it.
    pub client_max: AtomicUsize,
    /// Changes that no snapshot has.
    unsaved: AtomicU64,
    /// Keys that are in the snapshot under way, or were in the last one.
    saved: AtomicU64,
    /// Its part of the snapshot under way is behind those who write.
    is_behind: AtomicBool,
    /// Connections of it wait for other cores' parts.
    has_waiting: AtomicBool,
    /// How busy it is: a word of `moving::policy`.
    share: AtomicU64,
}

impl Told {
    /// So many changes are in no snapshot.
    pub(crate) fn tell_unsaved(&self, changes: u64) {
        self.unsaved.store(changes, Ordering::Relaxed);
    }

    /// So many more keys are in the snapshot under way.
    pub(crate) fn count_saved(&self, keys: u64) {
        self.saved.fetch_add(keys, Ordering::Relaxed);
    }

    /// A snapshot begins.
    pub(crate) fn restart_saving(&self) {
        self.saved.store(0, Ordering::Relaxed);
    }

    /// Its part of the snapshot under way is behind those who write, or not: true if that is new.
    pub(crate) fn tell_behind(&self, is_behind: bool) -> bool {
        // With `expect_news`: either the waiting core sees this, or this one sees it wait.
        self.is_behind.swap(is_behind, Ordering::SeqCst) != is_behind
    }

    /// What it told last.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::SeqCst)
    }

    /// Connections of it wait for other cores' parts, or none does any more.
    pub(crate) fn expect_news(&self, has_waiting: bool) {
        if self.has_waiting.load(Ordering::Relaxed) != has_waiting {
            self.has_waiting.store(has_waiting, Ordering::SeqCst);
        }
    }

    /// Whether it is to be woken when another core's part has caught up.
    pub(crate) fn expects_news(&self) -> bool {
        self.has_waiting.load(Ordering::SeqCst)
    }

    /// So busy it was: a word of `moving::policy`.
    pub(crate) fn tell_share(&self, word: u64) {
        self.share.store(word, Ordering::Relaxed);
    }

    /// What it told last of that.
    pub(crate) fn share(&self) -> u64 {
        self.share.load(Ordering::Relaxed)
    }

    /// There are no clients, or their sizes are no longer needed.
    pub(crate) fn forget_clients(&self) {
        self.clients.store(0, Ordering::Relaxed);
        self.client_max.store(0, Ordering::Relaxed);
    }
}

impl Shared {
    /// What cores share without a machine, as in the simulation: it reports nothing, and nothing
    /// stops it.
    #[must_use]
    pub fn nowhere(cores: usize, started_ms: u64) -> Arc<Self> {
        Self::with_store(cores, started_ms, Box::new(NoFiles))
    }

    /// The same, with snapshots that go to `store`.
    #[must_use]
    pub fn with_store(cores: usize, started_ms: u64, store: Box<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            run_id: "0".repeat(40),
            started_ms,
            io: OnceLock::new(),
            empty: Empty::default(),
            told: (0..cores).map(|_| Told::default()).collect(),
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

    /// A core reports what it holds, in bytes: its data, and what waits to be freed.
    pub fn tell(&self, core: usize, data: usize, freeing: usize) {
        let told = &self.told[core];
        told.data.store(data, Ordering::Relaxed);
        told.freeing.store(freeing, Ordering::Relaxed);
        let used = self.used_memory();
        if used > self.used_peak.load(Ordering::Relaxed) {
            self.used_peak.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// Bytes that the process takes: what it took empty, and all that its allocator has handed out
    /// since. Without a counting allocator: the data.
    #[must_use]
    pub fn used_memory(&self) -> usize {
        let before = self.empty.held_bytes.load(Ordering::Relaxed);
        let held = self.machine.held_bytes().map(|held| held.saturating_sub(before));
        self.empty.bytes() + held.unwrap_or_else(|| self.data_bytes())
    }

    /// Bytes of data; those shared by several values count for each.
    fn data_bytes(&self) -> usize {
        self.told.iter().map(|told| told.data.load(Ordering::Relaxed)).sum()
    }

    /// Changes that no snapshot has, and keys that are in the one under way, on all cores.
    #[must_use]
    pub fn unsaved_and_saved(&self) -> (u64, u64) {
        let sum = |of: fn(&Told) -> &AtomicU64| {
            self.told.iter().map(|told| of(told).load(Ordering::Relaxed)).sum()
        };
        (sum(|told| &told.unsaved), sum(|told| &told.saved))
    }

    /// [`Shared::used_memory`] without what is being freed, as Redis waits for its own lazy freeing
    /// before it refuses a write: compared with `maxmemory`. What is freed may share parts with
    /// values that stay: so it is at least the data, as far as there is that much.
    #[must_use]
    pub fn lasting_memory(&self) -> usize {
        let freeing = self.told.iter().map(|told| told.freeing.load(Ordering::Relaxed)).sum();
        let used = self.used_memory();
        let stays = self.empty.bytes() + self.data_bytes();
        used.saturating_sub(freeing).max(stays.min(used))
    }
}

/// What the system reports about the process.
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
    /// Bytes that the allocator has handed out, as far as threads have reported; none without
    /// counting.
    fn held_bytes(&self) -> Option<usize> {
        None
    }
    /// Reports what this thread has not reported yet.
    fn tell_held(&self) {}
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
