//! What all cores share: facts of the process, what each tells of its memory, and the face of the
//! machine.

use crate::absent::Absent;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Facts of the process that all cores show, and the few words that they share.
pub struct Shared {
    /// 40 hexadecimal digits, new at every start.
    pub run_id: String,
    /// When the process began, in Unix milliseconds.
    pub started_ms: u64,
    /// The back of the event loop.
    pub io: OnceLock<&'static str>,
    /// What the process takes without data and clients.
    pub empty: Empty,
    /// What each core tells of its memory, once a turn.
    pub told: Vec<Told>,
    /// The most that was used.
    pub used_peak: AtomicUsize,
    /// What is lost with the process, told by the cores at their end: changes, and keys.
    pub lost: [AtomicU64; 2],
    /// Somebody wants the process to stop in order.
    pub stop: AtomicBool,
    /// Loading: bytes read and in all, keys, and when it began; 0 in all when none runs.
    pub load: Arc<[AtomicU64; 4]>,
    /// Wakes the thread that waits for the end.
    pub stopper: Box<dyn Fn() + Send + Sync>,
    /// Commands that are not there yet.
    pub(crate) absent: Absent,
    /// Facts of the machine and the process that only the runtime can tell.
    pub machine: Box<dyn Machine>,
}

/// What the process took before its cores began to run.
#[derive(Debug, Default)]
pub struct Empty {
    /// Resident bytes: its code, and what of its own structures was touched.
    resident_bytes: AtomicUsize,
    /// Bytes that its allocator had given out: beyond these it counts.
    held_bytes: AtomicUsize,
}

impl Empty {
    /// The cores are made; none has begun, and no file is being loaded.
    pub fn measure(&self, machine: &dyn Machine) {
        machine.tell_held();
        self.resident_bytes.store(machine.resident_bytes().0, Ordering::Relaxed);
        self.held_bytes.store(machine.held_bytes().unwrap_or(0), Ordering::Relaxed);
    }

    /// Bytes that are used while there are no data and no clients.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.resident_bytes.load(Ordering::Relaxed)
    }
}

/// What a core tells of its memory. A line of its own, as it is written at every turn.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Told {
    /// Bytes of data.
    pub data: AtomicUsize,
    /// Bytes that wait to be freed, at most.
    pub freeing: AtomicUsize,
    /// Bytes of its clients, while `maxmemory-clients` is set.
    pub clients: AtomicUsize,
    /// Those of the largest that may be closed for it.
    pub client_max: AtomicUsize,
}

impl Told {
    /// Nobody is there, or nobody looks any more.
    pub(crate) fn forget_clients(&self) {
        self.clients.store(0, Ordering::Relaxed);
        self.client_max.store(0, Ordering::Relaxed);
    }
}

impl Shared {
    /// What cores share that run on no machine, as in the simulation: it tells nothing, and nothing
    /// stops it.
    #[must_use]
    pub fn nowhere(cores: usize, started_ms: u64) -> Arc<Self> {
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
            absent: Absent::default(),
            machine: Box::new(Nowhere),
        })
    }

    /// A core tells what it holds, in bytes: its data, and what waits to be freed.
    pub fn tell(&self, core: usize, data: usize, freeing: usize) {
        let told = &self.told[core];
        told.data.store(data, Ordering::Relaxed);
        told.freeing.store(freeing, Ordering::Relaxed);
        let used = self.used_memory();
        if used > self.used_peak.load(Ordering::Relaxed) {
            self.used_peak.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// Bytes that the process takes: what it took empty, and all that its allocator has given out
    /// since. Without a counting allocator: the data.
    #[must_use]
    pub fn used_memory(&self) -> usize {
        let before = self.empty.held_bytes.load(Ordering::Relaxed);
        let held = self.machine.held_bytes().map(|held| held.saturating_sub(before));
        self.empty.bytes() + held.unwrap_or_else(|| self.data_bytes())
    }

    /// Bytes of data, those that several values share counted for each.
    fn data_bytes(&self) -> usize {
        self.told.iter().map(|told| told.data.load(Ordering::Relaxed)).sum()
    }

    /// [`Shared::used_memory`] without what is being freed, as Redis waits for its own lazy freeing
    /// before it refuses a write: what `maxmemory` is compared with. What is freed may share what it
    /// holds with values that stay: so it is the data at least, as far as there is so much.
    #[must_use]
    pub fn lasting_memory(&self) -> usize {
        let freeing = self.told.iter().map(|told| told.freeing.load(Ordering::Relaxed)).sum();
        let used = self.used_memory();
        let stays = self.empty.bytes() + self.data_bytes();
        used.saturating_sub(freeing).max(stays.min(used))
    }
}

/// What the system tells about the process.
pub trait Machine: Send + Sync {
    /// The operating system as `uname -srm` names it: INFO's `os`.
    fn system(&self) -> String {
        std::env::consts::OS.to_owned()
    }
    /// Resident bytes now, and at their most.
    fn resident_bytes(&self) -> (usize, usize);
    /// Microseconds of user and of system CPU time.
    fn cpu_us(&self) -> (u64, u64);
    /// Bytes of memory of the machine.
    fn total_bytes(&self) -> usize;
    /// Bytes that the allocator has given out, as far as threads have told; none when nobody counts.
    fn held_bytes(&self) -> Option<usize> {
        None
    }
    /// Tells what this thread has not told yet.
    fn tell_held(&self) {}
    /// Asks the allocator to give freed memory back to the system.
    fn purge(&self);
    /// Lets the process open `wanted` files, or as many as the system allows. Returns how many it may
    /// open now.
    fn raise_open_files(&self, wanted: u64) -> u64;
}

/// No machine: for cores whose time and neighbours are made up.
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
