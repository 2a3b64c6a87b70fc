//! Snapshots: their state, their rules, and the store that takes them.
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
//! docs/design/0017-saving.md says why. The engine sees a file as a [`Store`]; the simulator has
//! one in memory.
//!
//! - `points`: the save points.
//! - `file`: the file and the thread that writes it.
//!
//! Not here: the bytes of keys (`persist`), commands (`admin`).

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

/// A place for snapshots.
pub trait Store: Send + Sync {
    /// Begins a snapshot: returns the outlet of each core, in order. The store reports the outcome
    /// to [`Saves::end`].
    ///
    /// # Errors
    /// The snapshot cannot begin; a sentence.
    fn begin(
        &self,
        order: SnapshotOrder,
        saves: &Arc<Saves>,
    ) -> Result<Vec<Box<dyn Outlet>>, String>;

    /// Waits until the current file is complete or removed. Call it when no core sends any more.
    fn finish(&self) {}

    /// The sizes of portions and chunks.
    fn portions(&self) -> Portions {
        Portions::default()
    }
}

/// Takes the chunks of one core. Dropping it before [`Outlet::end`] aborts the snapshot.
pub trait Outlet: Send {
    /// Whether there is room for a chunk.
    fn room(&self) -> Room;
    /// Sends a chunk. Call it only if there is room.
    fn send(&mut self, chunk: Chunk);
    /// Ends the core's part: the last chunk was sent.
    fn end(self: Box<Self>);
}

/// Whether an outlet takes a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There is room.
    Some,
    /// There is none yet; the core is woken when there is.
    Later,
    /// The snapshot was aborted: no chunk is taken any more.
    Gone,
}

/// The facts about a snapshot, apart from its keys.
#[derive(Clone, Debug)]
pub struct SnapshotOrder {
    /// The folder.
    pub folder: PathBuf,
    /// The name of the file in it.
    pub name: String,
    /// The version of the format.
    pub version: u16,
    /// The libraries of functions.
    pub libraries: Arc<Registry>,
    /// Whether their texts are compressed.
    pub packs: bool,
    /// Keys and deadlines of each database in use.
    pub sizes: BTreeMap<u32, (u64, u64)>,
    /// The instant of the cut, in Unix milliseconds.
    pub cut_ms: u64,
    /// Used memory at the cut, in bytes.
    pub used_bytes: usize,
    /// Whether a checksum is written.
    pub sums: bool,
    /// Bytes between two syncs while the file is written; `None` syncs at the end only.
    pub sync_bytes: Option<u64>,
}

/// How a snapshot ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file is on the disk under its final name.
    Saved {
        /// Bytes of the file.
        bytes: u64,
    },
    /// Saving failed; the previous file is kept.
    Failed(String),
    /// The snapshot was cancelled.
    Cancelled,
}

/// A request of the main thread to core 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveRequest {
    /// No request.
    Nothing = 0,
    /// A snapshot, because a save point was reached.
    Snapshot = 1,
    /// The last snapshot, before the end: nothing may change after it.
    Last = 2,
}

/// The settings that decide when to save, and the effect of a failure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// `save`.
    pub(crate) points: Vec<Point>,
    /// `stop-writes-on-bgsave-error`.
    pub(crate) stops_writes: bool,
    /// `shutdown-on-sigterm`.
    pub(crate) on_term: Words,
    /// `shutdown-on-sigint`.
    pub(crate) on_int: Words,
}

/// How the server ends: the words of SHUTDOWN.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Words {
    /// Save, also without save points.
    pub(crate) save: bool,
    /// Do not save, even with save points.
    pub(crate) nosave: bool,
    /// End even if saving fails.
    pub(crate) force: bool,
}

impl Words {
    /// Reads the words of a setting.
    pub(crate) fn read(setting: &str) -> Self {
        let has = |word: &str| setting.split(' ').any(|other| other == word);
        Self { save: has("save"), nosave: has("nosave"), force: has("force") }
    }
}

/// The state of snapshots, shared by all threads. Core 0 coordinates them.
pub struct Saves {
    store: Box<dyn Store>,
    rules: Mutex<Rules>,
    /// Writes are refused, because the last snapshot failed and the rules say so.
    refuses_writes: AtomicBool,
    /// Start of the current snapshot, in Unix milliseconds; 0 for none.
    began_ms: AtomicU64,
    /// Keys of the current snapshot.
    keys: AtomicU64,
    /// The current snapshot must stop.
    cancelled: AtomicBool,
    /// The outcome, until core 0 takes it.
    outcome: Mutex<Option<Outcome>>,
    has_outcome: AtomicBool,
    request: AtomicU8,
    /// The snapshot before the end is being made, or was made.
    is_last: AtomicBool,
    /// The snapshot before the end was cancelled, perhaps before it began.
    is_aborted: AtomicBool,
    /// The outcome of the snapshot before the end: 0 none yet, 1 saved, 2 failed.
    last_of_all: AtomicU8,
    // ---- history ----
    /// Unix seconds of the last success, or of the start of the process.
    saved_s: AtomicU64,
    /// Unix seconds of the last cancelled snapshot; 0 for none.
    cancelled_s: AtomicU64,
    /// Unix milliseconds of the last attempt.
    tried_ms: AtomicU64,
    has_failed: AtomicBool,
    /// The last attempt was given up, because a script held its keys.
    is_held: AtomicBool,
    /// Seconds that the last background snapshot took; -1 for none yet.
    took_s: AtomicI64,
    /// Snapshots begun.
    count: AtomicU64,
}

/// A reason to make no snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// Another snapshot is being made.
    Saving,
    /// A slow script holds keys; the refusal's text.
    Script(&'static str),
}

impl Saves {
    /// No snapshot yet, in a process that began at `started_ms`.
    #[must_use]
    pub fn new(store: Box<dyn Store>, started_ms: u64) -> Self {
        Self {
            store,
            rules: Mutex::default(),
            refuses_writes: AtomicBool::new(false),
            began_ms: AtomicU64::new(0),
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

    /// Begins to write the current snapshot: returns the outlets of all cores.
    pub(crate) fn begin_file(
        self: &Arc<Self>,
        order: SnapshotOrder,
    ) -> Result<Vec<Box<dyn Outlet>>, String> {
        self.store.begin(order, self)
    }

    /// See [`Store::portions`].
    pub(crate) fn portions(&self) -> Portions {
        self.store.portions()
    }

    /// See [`Store::finish`].
    pub(crate) fn finish(&self) {
        self.store.finish();
    }

    // ---- one snapshot ----

    /// Begins a snapshot at `now_ms`, unless another is being made. Core 0 only.
    pub(crate) fn begin(&self, now_ms: u64) -> Result<(), Busy> {
        if self.is_under_way() {
            return Err(Busy::Saving);
        }
        self.is_held.store(false, Ordering::Relaxed);
        self.began_ms.store(now_ms.max(1), Ordering::Relaxed);
        self.tried_ms.store(now_ms, Ordering::Relaxed);
        self.keys.store(0, Ordering::Relaxed);
        self.cancelled.store(false, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the new snapshot up, because a script holds its keys.
    pub(crate) fn give_up(&self) {
        self.is_held.store(true, Ordering::Relaxed);
        self.began_ms.store(0, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets the number of keys of the current snapshot.
    pub(crate) fn set_keys(&self, keys: u64) {
        self.keys.store(keys, Ordering::Relaxed);
    }

    /// Reports the outcome. The store calls it once, and wakes core 0 afterwards.
    pub fn end(&self, outcome: Outcome) {
        *self.outcome.lock().expect("no holder panics") = Some(outcome);
        self.has_outcome.store(true, Ordering::Release);
    }

    /// Takes the outcome, if there is one. Core 0 only.
    pub(crate) fn take_outcome(&self) -> Option<Outcome> {
        let has_outcome = self.has_outcome.swap(false, Ordering::Acquire);
        has_outcome.then(|| self.outcome.lock().expect("no holder panics").take()).flatten()
    }

    /// Records the outcome at `now_ms`. With `is_in_background` INFO shows it as the status.
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

    /// Asks the current snapshot to stop. False if there is none.
    pub(crate) fn cancel(&self) -> bool {
        let is_under_way = self.is_under_way();
        if is_under_way {
            self.cancelled.store(true, Ordering::Relaxed);
        }
        is_under_way
    }

    /// Whether the current snapshot must stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether a snapshot is being made.
    pub(crate) fn is_under_way(&self) -> bool {
        self.began_ms.load(Ordering::Relaxed) > 0
    }

    // ---- the main thread and core 0 ----

    /// Leaves a request for core 0. Wake it afterwards.
    pub(crate) fn request(&self, request: SaveRequest) {
        self.last_of_all.store(0, Ordering::Relaxed);
        self.request.store(request as u8, Ordering::Release);
    }

    /// Takes the request.
    pub(crate) fn take_request(&self) -> SaveRequest {
        match self.request.swap(SaveRequest::Nothing as u8, Ordering::Acquire) {
            1 => SaveRequest::Snapshot,
            2 => SaveRequest::Last,
            _ => SaveRequest::Nothing,
        }
    }

    /// Whether a request waits for core 0.
    pub(crate) fn is_requested(&self) -> bool {
        self.request.load(Ordering::Acquire) > 0
    }

    /// Whether a request or an outcome waits for core 0.
    pub(crate) fn has_news(&self) -> bool {
        self.has_outcome.load(Ordering::Acquire) || self.is_requested()
    }

    /// Sets whether the snapshot before the end is being made, or was made.
    pub(crate) fn set_last(&self, is_last: bool) {
        self.is_aborted.store(false, Ordering::Relaxed);
        self.is_last.store(is_last, Ordering::Relaxed);
    }

    /// Cancels the snapshot before the end, which may still wait for another snapshot.
    pub(crate) fn abort_last(&self) {
        self.is_aborted.store(true, Ordering::Relaxed);
    }

    /// See [`Saves::abort_last`].
    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    /// See [`Saves::set_last`].
    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Relaxed)
    }

    /// Records whether the snapshot before the end was saved.
    pub(crate) fn set_last_outcome(&self, is_saved: bool) {
        self.last_of_all.store(if is_saved { 1 } else { 2 }, Ordering::Release);
    }

    /// Whether the snapshot before the end was saved; `None` while it is being made.
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

    /// Whether write commands are refused.
    #[inline]
    pub(crate) fn refuses_writes(&self) -> bool {
        self.refuses_writes.load(Ordering::Relaxed)
    }

    /// How a signal ends the server.
    pub(crate) fn words(&self, signal: Signal) -> Words {
        let rules = self.rules.lock().expect("no holder panics");
        match signal {
            Signal::Term => rules.on_term,
            Signal::Int => rules.on_int,
        }
    }

    /// Whether an end with these words saves. Without SAVE and NOSAVE the save points decide.
    pub(crate) fn saves_at_end(&self, words: Words) -> bool {
        let has_points = || !self.rules.lock().expect("no holder panics").points.is_empty();
        !words.nosave && (words.save || has_points())
    }

    /// The save point that is reached at `now_ms`, with this number of changes since the last
    /// snapshot. After a failure, or a refusal by a script, no point is reached for [`RETRY_MS`].
    /// After a cancelled snapshot the seconds count from the cancellation.
    pub(crate) fn reached(&self, changes: u64, now_ms: u64) -> Option<Point> {
        /// As in Redis.
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

    /// Unix seconds of the last success, or of the start of the process.
    pub(crate) fn saved_s(&self) -> u64 {
        self.saved_s.load(Ordering::Relaxed)
    }

    /// The status of the last background snapshot, for INFO.
    pub(crate) fn status(&self) -> &'static str {
        if self.has_failed.load(Ordering::Relaxed) { "err" } else { "ok" }
    }

    /// Seconds that the last background snapshot took; -1 for none yet.
    pub(crate) fn took_s(&self) -> i64 {
        self.took_s.load(Ordering::Relaxed)
    }

    /// Seconds since the current snapshot began, if there is one.
    pub(crate) fn current_s(&self, now_ms: u64) -> Option<u64> {
        let began_ms = Some(self.began_ms.load(Ordering::Relaxed)).filter(|at| *at > 0)?;
        Some(now_ms.saturating_sub(began_ms) / 1_000)
    }

    /// Keys of the current snapshot, or of the last.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Snapshots begun since the start.
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
        saves.begin(minute_later).expect("none is under way");
        assert!(saves.cancel());
        saves.note(&Outcome::Cancelled, true, minute_later + 500);
        assert_eq!(saves.reached(1, minute_later + 50_000), None);
        assert!(saves.reached(1, minute_later + 61_000).is_some());
        assert_eq!(saves.saved_s(), NOW_MS / 1_000);
    }
}
