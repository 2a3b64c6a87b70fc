//! Snapshots: what is known of them, and where they go.
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
//! docs/design/0017-saving.md says why. What the engine needs of a file is [`Store`]; the
//! simulator has one in memory.
//!
//! - `points`: when to save by itself. - `file`: the file and its thread.
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

/// Where snapshots go.
pub trait Store: Send + Sync {
    /// Begins one: returns for each core where its chunks go, in order. At the end its outcome is
    /// told to [`Saves::end`].
    ///
    /// # Errors
    /// It cannot begin; a sentence.
    fn begin(&self, order: Order, saves: &Arc<Saves>) -> Result<Vec<Box<dyn Outlet>>, String>;

    /// The server ends, and no core sends any more: waits until what is under way has been written
    /// or removed.
    fn finish(&self) {}

    /// How much it takes at a time.
    fn portions(&self) -> Portions {
        Portions::default()
    }
}

/// Where the chunks of one core go. Dropping it before the end gives the snapshot up.
pub trait Outlet: Send {
    /// Whether there is room for a chunk.
    fn room(&self) -> Room;
    /// Sends one. Call it only where there is room.
    fn send(&mut self, chunk: Chunk);
    /// That was the last.
    fn end(self: Box<Self>);
}

/// Whether an outlet takes a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Now.
    Some,
    /// Later: the core is woken.
    Later,
    /// Never again: the snapshot has been given up.
    Gone,
}

/// What a snapshot is made from, apart from its keys.
#[derive(Clone, Debug)]
pub struct Order {
    /// The folder.
    pub folder: PathBuf,
    /// The name of the file in it.
    pub name: String,
    /// The version of the format.
    pub version: u16,
    /// The libraries of functions.
    pub libraries: Arc<Registry>,
    /// Their texts are packed.
    pub packs: bool,
    /// Keys and deadlines of each database in use.
    pub sizes: BTreeMap<u32, (u64, u64)>,
    /// When it was cut, in Unix milliseconds.
    pub cut_ms: u64,
    /// Bytes in use then.
    pub used_bytes: usize,
    /// A checksum is written.
    pub sums: bool,
    /// Bytes after which the file is synced while it is written; none for only at the end.
    pub sync_bytes: Option<u64>,
}

/// How a snapshot ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is under its name, on the disk.
    Saved {
        /// Bytes of the file.
        bytes: u64,
    },
    /// It is not; the file before it is whole.
    Failed(String),
    /// Someone stopped it.
    Cancelled,
}

/// What the main thread asks of core 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Nothing.
    Nothing = 0,
    /// A snapshot, since a save point has been reached.
    Snapshot = 1,
    /// The last snapshot: nothing may change any more.
    Last = 2,
}

/// The settings that decide when to save, and what follows from a failure.
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
    /// After a snapshot, also without save points.
    pub(crate) save: bool,
    /// Without one, also with save points.
    pub(crate) nosave: bool,
    /// Also if it fails.
    pub(crate) force: bool,
}

impl Words {
    /// Those of a setting.
    pub(crate) fn read(setting: &str) -> Self {
        let has = |word: &str| setting.split(' ').any(|other| other == word);
        Self { save: has("save"), nosave: has("nosave"), force: has("force") }
    }
}

/// What is known of snapshots, by all threads. Core 0 coordinates them.
pub struct Saves {
    store: Box<dyn Store>,
    rules: Mutex<Rules>,
    /// Writes are refused: the last snapshot failed, and the rules say so.
    refuses_writes: AtomicBool,
    /// When the current one began, in Unix milliseconds; 0 for none.
    began_ms: AtomicU64,
    /// Keys of the current one.
    keys: AtomicU64,
    /// The current one is to stop.
    cancelled: AtomicBool,
    /// The outcome, until core 0 takes it.
    outcome: Mutex<Option<Outcome>>,
    has_outcome: AtomicBool,
    asked: AtomicU8,
    /// The last snapshot of all is under way, or has been made.
    is_last: AtomicBool,
    /// It has been called off, perhaps before it could begin.
    is_aborted: AtomicBool,
    /// How the last snapshot of all ended: 1 saved, 2 not.
    last_of_all: AtomicU8,
    // ---- history ----
    /// Unix seconds of the last success, or of the start.
    saved_s: AtomicU64,
    /// The same of the last one that someone stopped; 0 for none.
    cancelled_s: AtomicU64,
    /// Unix milliseconds of the last attempt in the background; and whether it succeeded.
    tried_ms: AtomicU64,
    has_failed: AtomicBool,
    /// It was not made, as a script held its keys.
    is_held: AtomicBool,
    /// Seconds that it took; -1 for none yet.
    took_s: AtomicI64,
    /// Snapshots begun.
    count: AtomicU64,
}

/// Why no snapshot is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// One is under way already.
    Saving,
    /// A script that takes very long holds keys: this is the refusal.
    Script(&'static str),
}

impl Saves {
    /// None yet, in a process that began at `started_ms`.
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
            asked: AtomicU8::new(Asked::Nothing as u8),
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

    /// Begins to write the one under way: returns the outlets of all cores.
    pub(crate) fn begin_file(
        self: &Arc<Self>,
        order: Order,
    ) -> Result<Vec<Box<dyn Outlet>>, String> {
        self.store.begin(order, self)
    }

    /// See [`Store::portions`].
    pub(crate) fn portions(&self) -> Portions {
        self.store.portions()
    }

    /// The server ends, and no core sends any more. See [`Store::finish`].
    pub(crate) fn finish(&self) {
        self.store.finish();
    }

    // ---- one snapshot ----

    /// One begins at `now_ms`, unless another is under way. Core 0 only.
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

    /// The one that has begun is not made: a script holds its keys.
    pub(crate) fn give_up(&self) {
        self.is_held.store(true, Ordering::Relaxed);
        self.began_ms.store(0, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// It has this many keys.
    pub(crate) fn set_keys(&self, keys: u64) {
        self.keys.store(keys, Ordering::Relaxed);
    }

    /// It has ended: called by the store, once. Wake core 0 afterwards.
    pub fn end(&self, outcome: Outcome) {
        *self.outcome.lock().expect("no holder panics") = Some(outcome);
        self.has_outcome.store(true, Ordering::Release);
    }

    /// The outcome, if it has ended: core 0 takes it.
    pub(crate) fn take_outcome(&self) -> Option<Outcome> {
        let has_outcome = self.has_outcome.swap(false, Ordering::Acquire);
        has_outcome.then(|| self.outcome.lock().expect("no holder panics").take()).flatten()
    }

    /// It is over, at `now_ms`. `is_in_background`: its outcome is the status that INFO shows.
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

    /// Asks the current one to stop. False if there is none.
    pub(crate) fn cancel(&self) -> bool {
        let is_under_way = self.is_under_way();
        if is_under_way {
            self.cancelled.store(true, Ordering::Relaxed);
        }
        is_under_way
    }

    /// Whether the current one is to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Whether one is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.began_ms.load(Ordering::Relaxed) > 0
    }

    // ---- the main thread and core 0 ----

    /// Asks core 0. Wake it afterwards.
    pub(crate) fn ask(&self, asked: Asked) {
        self.last_of_all.store(0, Ordering::Relaxed);
        self.asked.store(asked as u8, Ordering::Release);
    }

    /// What is asked, once.
    pub(crate) fn take_asked(&self) -> Asked {
        match self.asked.swap(Asked::Nothing as u8, Ordering::Acquire) {
            1 => Asked::Snapshot,
            2 => Asked::Last,
            _ => Asked::Nothing,
        }
    }

    /// Whether something is asked that core 0 has not taken.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire) > 0
    }

    /// Whether there is something for core 0.
    pub(crate) fn has_news(&self) -> bool {
        self.has_outcome.load(Ordering::Acquire) || self.is_asked()
    }

    /// Whether the last snapshot of all is under way, or has been made.
    pub(crate) fn set_last(&self, is_last: bool) {
        self.is_aborted.store(false, Ordering::Relaxed);
        self.is_last.store(is_last, Ordering::Relaxed);
    }

    /// Calls off the last snapshot of all, which may still wait for another one to end.
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

    /// The last snapshot of all was saved, or not.
    pub(crate) fn tell_last(&self, is_saved: bool) {
        self.last_of_all.store(if is_saved { 1 } else { 2 }, Ordering::Release);
    }

    /// Whether the last snapshot of all was saved; none while it is under way.
    pub(crate) fn last(&self) -> Option<bool> {
        match self.last_of_all.load(Ordering::Acquire) {
            0 => None,
            told => Some(told == 1),
        }
    }

    // ---- rules ----

    /// The settings have changed.
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

    /// Whether commands that write are refused.
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

    /// Whether an end with these words saves: as they say, or if there are save points.
    pub(crate) fn saves_at_end(&self, words: Words) -> bool {
        let has_points = || !self.rules.lock().expect("no holder panics").points.is_empty();
        !words.nosave && (words.save || has_points())
    }

    /// Whether a save point has been reached at `now_ms`, with so many changes since the last
    /// snapshot. After a failure, or a refusal, there are some seconds of peace; and whoever stops
    /// one does not want it again at once, so the seconds of the points count from there.
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

    /// Unix seconds of the last success, or of the start.
    pub(crate) fn saved_s(&self) -> u64 {
        self.saved_s.load(Ordering::Relaxed)
    }

    /// What INFO shows of the last one in the background.
    pub(crate) fn status(&self) -> &'static str {
        if self.has_failed.load(Ordering::Relaxed) { "err" } else { "ok" }
    }

    /// Seconds that the last one in the background took; -1 for none yet.
    pub(crate) fn took_s(&self) -> i64 {
        self.took_s.load(Ordering::Relaxed)
    }

    /// Seconds that the current one has taken; none when there is none.
    pub(crate) fn current_s(&self, now_ms: u64) -> Option<u64> {
        let began_ms = Some(self.began_ms.load(Ordering::Relaxed)).filter(|at| *at > 0)?;
        Some(now_ms.saturating_sub(began_ms) / 1_000)
    }

    /// Keys of the current one, or of the last.
    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Snapshots begun since the start.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// No files: for cores whose world is simulated.
pub(crate) struct NoFiles;

impl Store for NoFiles {
    fn begin(&self, _: Order, _: &Arc<Saves>) -> Result<Vec<Box<dyn Outlet>>, String> {
        Err("there are no files here".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_whose_snapshot_was_stopped_is_reached_later() {
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
