//! Snapshots: their state, the rules that trigger them, and the store that receives them.
//!
//! ```text
//! SAVE, BGSAVE, SHUTDOWN ──► core 0: lock all, cut on every core, unlock     (engine::saving)
//! save points, SIGTERM ──┘     │
//!  (the main thread)           ▼ cuts
//!                core 0, core 1, ..: encode, in slices of background work
//!                              │ chunks, a few per core at a time
//!                              ▼
//!                thread "saver": temp-PID.rdb, synced, renamed               (file)
//!                              │ outcome
//!                              ▼ core 0
//! ```
//! docs/design/0017-saving.md explains the design. The engine writes to a [`Store`]: a file in the
//! server, and memory in the simulator.
//!
//! - `points`: the save points.
//! - `file`: the file and the thread that writes it.
//!
//! Not here: the encoding of keys (`persist`), and the commands (`admin`).

mod file;
mod points;

pub(crate) use file::{Files, folder};
pub(crate) use points::Point;

use darter_persist::snapshot::{Chunk, Portions};
use darter_runtime::signal::Signal;
use darter_script::Registry;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A place to which snapshots are written.
pub trait Store: Send + Sync {
    /// Begins a snapshot, and returns the outlet of each core, in order. When the snapshot has
    /// ended, the store passes the outcome to [`Saves::end`].
    ///
    /// # Errors
    /// Errors: the snapshot cannot begin; a sentence says why.
    fn begin(
        &self,
        order: SnapshotOrder,
        saves: &Arc<Saves>,
    ) -> Result<Vec<Box<dyn Outlet>>, String>;

    /// Waits until the current file is complete or removed. Must be called when no core sends
    /// chunks any more.
    fn finish(&self) {}

    /// The sizes of portions of work, and of chunks.
    fn portions(&self) -> Portions {
        Portions::default()
    }
}

/// Receives the chunks of one core. Dropping it before [`Outlet::end`] aborts the snapshot.
pub trait Outlet: Send {
    /// Whether there is room for a chunk.
    fn room(&self) -> Room;
    /// Sends a chunk. May be called only if there is room.
    fn send(&mut self, chunk: Chunk);
    /// Ends the core's part of the snapshot, after its last chunk.
    fn end(self: Box<Self>);
}

/// Whether an outlet accepts a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room for a chunk.
    Some,
    /// There is no room yet. The core is woken when there is.
    Later,
    /// The snapshot was aborted, and accepts no chunk any more.
    Gone,
}

/// The purpose of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// It is the file that a start loads: `dbfilename`.
    #[default]
    Dump,
    /// It is a base of the journal.
    Base,
}

/// The description of a snapshot, without its keys.
#[derive(Clone, Debug)]
pub struct SnapshotOrder {
    /// The purpose of the snapshot.
    pub purpose: Purpose,
    /// The folder of the file.
    pub folder: PathBuf,
    /// The name of the file.
    pub name: String,
    /// The version of the file format.
    pub version: u16,
    /// The function libraries, as of the cut.
    pub libraries: Arc<Registry>,
    /// True if the texts of the libraries are compressed.
    pub packs: bool,
    /// For each database in use: the number of keys, and the number of those with a deadline.
    pub sizes: BTreeMap<u32, (u64, u64)>,
    /// The time of the cut, in Unix milliseconds.
    pub cut_ms: u64,
    /// By core: the number of the last log record in the cut. The cut and all later records
    /// together make up the data.
    pub last_records: Vec<u64>,
    /// The used memory at the time of the cut, in bytes.
    pub used_bytes: usize,
    /// True if a checksum is written.
    pub sums: bool,
    /// The number of bytes between two syncs while the file is written. With `None` it is synced
    /// only at its end.
    pub sync_bytes: Option<u64>,
}

/// The outcome of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file is on the disk under its final name.
    Saved {
        /// The size of the file in bytes.
        bytes: u64,
    },
    /// Saving failed. The text says why, and which file is in place.
    Failed(String),
    /// The snapshot was cancelled.
    Cancelled,
}

/// A request from the main thread to core 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveRequest {
    /// No request.
    Nothing = 0,
    /// Make a snapshot, because a save point was reached.
    Snapshot = 1,
    /// Make the final snapshot, before the server ends; nothing may change after it.
    Last = 2,
}

/// The settings that say when snapshots are made, and what happens if one fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// The save points of the setting `save`.
    pub(crate) points: Vec<Point>,
    /// The setting `stop-writes-on-bgsave-error`.
    pub(crate) stops_writes: bool,
    /// The setting `shutdown-on-sigterm`.
    pub(crate) on_term: Words,
    /// The setting `shutdown-on-sigint`.
    pub(crate) on_int: Words,
}

/// The options of ending the server, as in the arguments of SHUTDOWN.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Words {
    /// Make a snapshot, even without save points.
    pub(crate) save: bool,
    /// Make no snapshot, even with save points.
    pub(crate) nosave: bool,
    /// End the server even if saving fails.
    pub(crate) force: bool,
}

impl Words {
    /// Parses the options from a setting.
    pub(crate) fn read(setting: &str) -> Self {
        let has = |word: &str| setting.split(' ').any(|other| other == word);
        Self { save: has("save"), nosave: has("nosave"), force: has("force") }
    }
}

/// The state of snapshots, shared by all threads. Core 0 coordinates them.
pub struct Saves {
    store: Box<dyn Store>,
    rules: Mutex<Rules>,
    /// True if writes are refused, because the last snapshot failed and the rules require that.
    refuses_writes: AtomicBool,
    /// The start of the current snapshot, in Unix milliseconds; 0 if there is none.
    began_ms: AtomicU64,
    /// True if the current or last snapshot is a base of the journal.
    is_base: AtomicBool,
    /// The number of keys in the current snapshot.
    keys: AtomicU64,
    /// True if the current snapshot must stop.
    cancelled: AtomicBool,
    /// The outcome of a snapshot, until core 0 handles it.
    outcome: Mutex<Option<Outcome>>,
    has_outcome: AtomicBool,
    request: AtomicU8,
    /// True if the final snapshot of the server is being made, or was made.
    is_last: AtomicBool,
    /// True if the final snapshot was cancelled, perhaps before it began.
    is_aborted: AtomicBool,
    /// The outcome of the final snapshot: 0 for none yet, 1 for success, 2 for failure.
    last_of_all: AtomicU8,
    // ---- history ----
    /// The time of the last successful snapshot, or else of the start of the process, in Unix
    /// seconds.
    saved_s: AtomicU64,
    /// The time of the last cancelled snapshot, in Unix seconds; 0 if there is none.
    cancelled_s: AtomicU64,
    /// The time of the last attempt, in Unix milliseconds.
    tried_ms: AtomicU64,
    has_failed: AtomicBool,
    /// True if the last attempt was given up because a script held keys.
    is_held: AtomicBool,
    /// The duration of the last background snapshot, in seconds; -1 if there is none yet.
    took_s: AtomicI64,
    /// The number of snapshots that have begun.
    count: AtomicU64,
}

/// A reason why no snapshot was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// Another snapshot is being made.
    Saving,
    /// A slow script holds keys. The text is the error for the client.
    Script(&'static str),
}

impl Saves {
    /// The state without any snapshot, in a process that began at `started_ms`.
    #[must_use]
    pub fn new(store: Box<dyn Store>, started_ms: u64) -> Self {
        Self {
            store,
            rules: Mutex::default(),
            refuses_writes: AtomicBool::new(false),
            began_ms: AtomicU64::new(0),
            is_base: AtomicBool::new(false),
            keys: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            outcome: Mutex::new(None),
            has_outcome: AtomicBool::new(false),
            request: AtomicU8::new(SaveRequest::Nothing as u8),
            is_last: AtomicBool::new(false),
            is_aborted: AtomicBool::new(false),
            last_of_all: AtomicU8::new(0),
            saved_s: AtomicU64::new(started_ms / 1_000),
            cancelled_s: AtomicU64::new(0),
            tried_ms: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            took_s: AtomicI64::new(-1),
            count: AtomicU64::new(0),
        }
    }

    /// Begins to write the current snapshot, and returns the outlets of all cores.
    pub(crate) fn begin_file(
        self: &Arc<Self>,
        order: SnapshotOrder,
    ) -> Result<Vec<Box<dyn Outlet>>, String> {
        self.store.begin(order, self)
    }

    /// Calls [`Store::portions`].
    pub(crate) fn portions(&self) -> Portions {
        self.store.portions()
    }

    /// Calls [`Store::finish`].
    pub(crate) fn finish(&self) {
        self.store.finish();
    }

    // ---- one snapshot ----

    /// Begins a snapshot at `now_ms`, unless another one is being made. Core 0 only.
    pub(crate) fn begin(&self, now_ms: u64, purpose: Purpose) -> Result<(), Busy> {
        if self.is_under_way() {
            return Err(Busy::Saving);
        }
        self.is_base.store(purpose == Purpose::Base, Ordering::Relaxed);
        self.is_held.store(false, Ordering::Relaxed);
        self.began_ms.store(now_ms.max(1), Ordering::Relaxed);
        self.keys.store(0, Ordering::Relaxed);
        self.cancelled.store(false, Ordering::Relaxed);
        if purpose == Purpose::Dump {
            self.tried_ms.store(now_ms, Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Gives up the snapshot that has just begun, because a script holds keys.
    pub(crate) fn give_up(&self) {
        self.began_ms.store(0, Ordering::Relaxed);
        if self.purpose() == Purpose::Dump {
            self.is_held.store(true, Ordering::Relaxed);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Sets the number of keys in the current snapshot.
    pub(crate) fn set_keys(&self, keys: u64) {
        self.keys.store(keys, Ordering::Relaxed);
    }

    /// Stores the outcome of a snapshot. The store of the snapshot calls this once, and wakes core
    /// 0 afterwards.
    pub fn end(&self, outcome: Outcome) {
        *self.outcome.lock().expect("no holder panics") = Some(outcome);
        self.has_outcome.store(true, Ordering::Release);
    }

    /// Takes the outcome of the snapshot, if it has ended. Core 0 only.
    pub(crate) fn take_outcome(&self) -> Option<Outcome> {
        let has_outcome = self.has_outcome.swap(false, Ordering::Acquire);
        has_outcome.then(|| self.outcome.lock().expect("no holder panics").take()).flatten()
    }

    /// The purpose of the current or last snapshot.
    pub(crate) fn purpose(&self) -> Purpose {
        if self.is_base.load(Ordering::Relaxed) { Purpose::Base } else { Purpose::Dump }
    }

    /// True if a snapshot for this purpose is being made.
    pub(crate) fn is_made_for(&self, purpose: Purpose) -> bool {
        self.is_under_way() && self.purpose() == purpose
    }

    /// Ends a base of the journal. Returns the time that it took, in milliseconds.
    pub(crate) fn end_base(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.began_ms.swap(0, Ordering::Relaxed))
    }

    /// Records the outcome of a snapshot that ended at `now_ms`. With `is_in_background`, INFO
    /// shows it.
    pub(crate) fn note(&self, outcome: &Outcome, is_in_background: bool, now_ms: u64) {
        let began_ms = self.began_ms.swap(0, Ordering::Relaxed);
        match outcome {
            Outcome::Saved { .. } => {
                self.saved_s.store(now_ms / 1_000, Ordering::Relaxed);
                self.has_failed.store(false, Ordering::Relaxed);
            }
            Outcome::Failed(_) if is_in_background => {
                self.has_failed.store(true, Ordering::Relaxed);
            }
            Outcome::Failed(_) => {}
            Outcome::Cancelled => self.cancelled_s.store(now_ms / 1_000, Ordering::Relaxed),
        }
        if is_in_background && *outcome != Outcome::Cancelled {
            let took_s = now_ms.saturating_sub(began_ms) / 1_000;
            self.took_s.store(i64::try_from(took_s).unwrap_or(i64::MAX), Ordering::Relaxed);
        }
        self.decide_about_writes();
    }

    /// Asks the current snapshot to stop. Returns false if there is none.
    pub(crate) fn cancel(&self) -> bool {
        let is_under_way = self.is_under_way();
        if is_under_way {
            self.cancelled.store(true, Ordering::Relaxed);
        }
        is_under_way
    }

    /// True if the current snapshot must stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// True if a snapshot is being made.
    pub(crate) fn is_under_way(&self) -> bool {
        self.began_ms.load(Ordering::Relaxed) > 0
    }

    // ---- the main thread and core 0 ----

    /// Stores a request for core 0. The caller wakes core 0 afterwards.
    pub(crate) fn request(&self, request: SaveRequest) {
        self.last_of_all.store(0, Ordering::Relaxed);
        self.request.store(request as u8, Ordering::Release);
    }

    /// Takes the request, on core 0.
    pub(crate) fn take_request(&self) -> SaveRequest {
        match self.request.swap(SaveRequest::Nothing as u8, Ordering::Acquire) {
            1 => SaveRequest::Snapshot,
            2 => SaveRequest::Last,
            _ => SaveRequest::Nothing,
        }
    }

    /// True if a request waits for core 0.
    pub(crate) fn is_requested(&self) -> bool {
        self.request.load(Ordering::Acquire) > 0
    }

    /// True if a request or an outcome waits for core 0.
    pub(crate) fn has_news(&self) -> bool {
        self.has_outcome.load(Ordering::Acquire) || self.is_requested()
    }

    /// Sets whether the final snapshot of the server is being made, or was made.
    pub(crate) fn set_last(&self, is_last: bool) {
        self.is_aborted.store(false, Ordering::Relaxed);
        self.is_last.store(is_last, Ordering::Relaxed);
    }

    /// Cancels the final snapshot. It may not have begun, because it waits for another snapshot.
    pub(crate) fn abort_last(&self) {
        self.is_aborted.store(true, Ordering::Relaxed);
    }

    /// True after [`Saves::abort_last`].
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    /// The value that [`Saves::set_last`] has set.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Relaxed)
    }

    /// Records whether the final snapshot was successful.
    pub(crate) fn set_last_outcome(&self, is_saved: bool) {
        self.last_of_all.store(if is_saved { 1 } else { 2 }, Ordering::Release);
    }

    /// Whether the final snapshot was successful; `None` while it is being made.
    pub(crate) fn last(&self) -> Option<bool> {
        match self.last_of_all.load(Ordering::Acquire) {
            0 => None,
            told => Some(told == 1),
        }
    }

    // ---- rules ----

    /// Applies changed settings.
    pub(crate) fn set_rules(&self, rules: Rules) {
        *self.rules.lock().expect("no holder panics") = rules;
        self.decide_about_writes();
    }

    fn decide_about_writes(&self) {
        let rules = self.rules.lock().expect("no holder panics");
        let has_failed = self.has_failed.load(Ordering::Relaxed);
        let refuses = has_failed && rules.stops_writes && !rules.points.is_empty();
        self.refuses_writes.store(refuses, Ordering::Relaxed);
    }

    /// True if writes must be refused.
    #[inline]
    pub(crate) fn refuses_writes(&self) -> bool {
        self.refuses_writes.load(Ordering::Relaxed)
    }

    /// The options of ending the server after this signal.
    pub(crate) fn words(&self, signal: Signal) -> Words {
        let rules = self.rules.lock().expect("no holder panics");
        match signal {
            Signal::Term => rules.on_term,
            Signal::Int => rules.on_int,
        }
    }

    /// True if ending the server with these options makes a snapshot. Without SAVE and NOSAVE, it
    /// does if there are save points.
    pub(crate) fn saves_at_end(&self, words: Words) -> bool {
        let has_points = || !self.rules.lock().expect("no holder panics").points.is_empty();
        !words.nosave && (words.save || has_points())
    }

    /// The save point that is reached at `now_ms`, if any, after `changes` changes since the last
    /// snapshot. After a failure, or a refusal because of a script, no save point is reached for
    /// [`RETRY_MS`]. After a cancelled snapshot, the seconds count from the cancellation.
    pub(crate) fn reached(&self, changes: u64, now_ms: u64) -> Option<Point> {
        /// Redis waits as long.
        const RETRY_MS: u64 = 5_000;
        if self.is_under_way() {
            return None;
        }
        let since_try = now_ms.saturating_sub(self.tried_ms.load(Ordering::Relaxed));
        let is_to_wait =
            [&self.has_failed, &self.is_held].iter().any(|is| is.load(Ordering::Relaxed));
        if is_to_wait && since_try <= RETRY_MS {
            return None;
        }
        let [saved_s, cancelled_s] =
            [&self.saved_s, &self.cancelled_s].map(|at| at.load(Ordering::Relaxed));
        let since_s = (now_ms / 1_000).saturating_sub(saved_s.max(cancelled_s));
        let rules = self.rules.lock().expect("no holder panics");
        rules.points.iter().find(|point| point.is_reached(changes, since_s)).copied()
    }

    // ---- for INFO ----

    /// The time of the last successful snapshot, or else of the start of the process, in Unix
    /// seconds.
    pub(crate) fn saved_s(&self) -> u64 {
        self.saved_s.load(Ordering::Relaxed)
    }

    /// The status of the last background snapshot, as INFO shows it.
    pub(crate) fn status(&self) -> &'static str {
        if self.has_failed.load(Ordering::Relaxed) { "err" } else { "ok" }
    }

    /// The duration of the last background snapshot, in seconds; -1 if there is none yet.
    pub(crate) fn took_s(&self) -> i64 {
        self.took_s.load(Ordering::Relaxed)
    }

    /// Seconds since the current snapshot began; `None` if there is none.
    pub(crate) fn current_s(&self, now_ms: u64) -> Option<u64> {
        let began_ms = Some(self.began_ms.load(Ordering::Relaxed)).filter(|at| *at > 0)?;
        Some(now_ms.saturating_sub(began_ms) / 1_000)
    }

    /// The number of keys in the current snapshot, or else in the last.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// The number of snapshots that have begun since the start.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// A store that refuses every snapshot, for simulated cores.
pub(crate) struct NoFiles;

impl Store for NoFiles {
    fn begin(&self, _: SnapshotOrder, _: &Arc<Saves>) -> Result<Vec<Box<dyn Outlet>>, String> {
        Err("there are no files here".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn save_points_restart_after_a_cancelled_snapshot() {
        const NOW_MS: u64 = 1_000_000;
        let saves = Saves::new(Box::new(NoFiles), NOW_MS);
        let points = Point::all("60 1");
        saves.set_rules(Rules { points, ..Rules::default() });
        let minute_later = NOW_MS + 61_000;
        assert!(saves.reached(1, minute_later).is_some());
        saves.begin(minute_later, Purpose::Dump).expect("none is under way");
        assert!(saves.cancel());
        saves.note(&Outcome::Cancelled, true, minute_later + 500);
        assert_eq!(saves.reached(1, minute_later + 50_000), None);
        assert!(saves.reached(1, minute_later + 61_000).is_some());
        assert_eq!(saves.saved_s(), NOW_MS / 1_000);
    }
}
