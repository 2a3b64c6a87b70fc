//! The journal: every change, in one order, as Redis commands in files.
//!
//! ```text
//! core 0: log ─► commands ─► blocks ─┐                       ┌─► increments and their manifest
//! core 1: log ─► commands ─► blocks ─┼─► thread "journal": ──┤
//! core n:  …  (engine::journal)      ┘   one order (merge),  └─► time up to which all is safe
//!                                        batches (writer)          │
//!          replies leave once what they show is safe  ◄──────────────┘
//! ```
//! A core hands its blocks over before anything of its turn is published: messages to other cores,
//! replies. So a change that was made with the knowledge of another one is handed over later, and
//! has a higher stamp. The thread takes all blocks with stamps up to a time that it has read before
//! it looks; whatever they follow from is there as well. So every batch ends at a state that the
//! server was in.
//!
//! The *safe time* is the time up to which everything that was handed over is in the file
//! (`appendfsync everysec` and `no`) or on the disk (`always`). A reply that may show a change waits
//! until the safe time has reached the time at which its turn's blocks were handed over. Except with
//! `always`, a core copies its blocks into a ring that outlives the process; then nothing waits.
//!
//! - `merge`: the order of the blocks of all cores.
//! - `writer`: batches, and the files to which they are appended.
//! - `ring`: changes that are in no file yet, for the start after a kill.
//! - `collector`: the thread, the manifest, and the steps of a rewrite.
//!
//! Not here: the commands that an effect becomes (`keyspace`, `families`), reading the files
//! (`load`), their formats (`persist::aof`).

mod collector;
mod found;
mod merge;
mod ring;
mod writer;

pub(crate) use collector::{Collector, Folder, JournalOrder, RunningJournal};
pub use found::Found;
pub(crate) use ring::recover;

use darter_keyspace::commands::Encoder;
use darter_keyspace::{Commands, Effect, Name, Part};
use darter_persist::aof::manifest::Listed;
use darter_runtime::net::Waker;
use ring::Ring;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60_000;

/// Commands of one core, to be written together.
#[derive(Debug)]
pub(crate) struct Block {
    /// The stamp of the turn in which the changes were made.
    pub(crate) stamp: u64,
    pub(crate) body: Body,
    /// The position in the ring after this block; 0 if it is not there.
    ring_end: u64,
}

impl Block {
    pub(crate) fn new(stamp: u64, body: Body) -> Self {
        Self { stamp, body, ring_end: 0 }
    }
}

/// The contents of a [`Block`].
#[derive(Debug)]
pub(crate) enum Body {
    /// Commands that need no others: each is a unit, or is wrapped with the rest of its unit.
    Alone(Encoded),
    /// Commands of a transaction.
    Of(Part, Encoded),
    /// An act of all cores within a transaction. The first core's block has its command.
    ActOfAll(Part, Encoded),
    /// This core's part of a transaction has ended.
    End(Part),
    /// The cut of the snapshot with this number: what precedes it on all cores is in the snapshot.
    Cut(u64),
}

/// Encoded commands.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    /// The databases of the first and the last command. There are none if no command needs one.
    pub(crate) databases: Option<(usize, usize)>,
    /// The number of commands. A value that is encoded later counts as none.
    pub(crate) count: usize,
    pub(crate) bytes: usize,
    pub(crate) pieces: Vec<Piece>,
}

/// A piece of encoded commands.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes, copied or shared with a value.
    Plain(darter_resp::Part),
    /// A large value that is installed at a key. The journal's thread encodes it; its bytes do not
    /// count.
    Value(Box<(Name, Effect)>),
}

impl Piece {
    /// The bytes of a plain piece.
    fn plain(&self) -> Option<&[u8]> {
        match self {
            Self::Plain(darter_resp::Part::Bytes(bytes)) => Some(bytes),
            Self::Plain(darter_resp::Part::Shared(piece, range)) => Some(&piece[range.clone()]),
            Self::Value(_) => None,
        }
    }

    /// The bytes of a value's commands. Cost: O(bytes).
    fn value_bytes(&self) -> u64 {
        if let Self::Plain(_) = self {
            return 0;
        }
        let mut bytes = 0;
        let counted = self.each_part(&mut |part: &[u8]| {
            bytes += part.len() as u64;
            Ok::<_, std::convert::Infallible>(())
        });
        counted.map_or_else(|never| match never {}, |()| bytes)
    }

    /// Passes all bytes to `write`, in order. A value is encoded in portions.
    ///
    /// Errors: the first of `write`.
    fn each_part<E>(&self, write: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let value = match self {
            Self::Plain(_) => return self.plain().map_or(Ok(()), write),
            Self::Value(value) => value,
        };
        let (mut encoder, mut commands) = (Encoder::default(), Commands::default());
        loop {
            let has_more = encoder.step_key(&value.0, &value.1, &mut commands);
            let parts = commands.take().take().into_iter().map(Self::Plain);
            for part in parts {
                write(part.plain().unwrap_or_default())?;
            }
            if !has_more {
                return Ok(());
            }
        }
    }
}

/// The way in which blocks were handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Handed {
    /// They are in the ring.
    InRing {
        /// The ring is to be emptied soon.
        is_filling: bool,
    },
    /// Only the journal's thread has them.
    Outside,
}

/// `appendfsync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Before each reply.
    Always = 0,
    /// Once a second.
    #[default]
    EverySecond = 1,
    /// When the system likes.
    Never = 2,
}

impl Sync {
    /// Reads the setting.
    pub(crate) fn read(setting: &str) -> Self {
        match setting {
            "always" => Self::Always,
            "no" => Self::Never,
            _ => Self::EverySecond,
        }
    }

    fn of(number: u8) -> Self {
        [Self::Always, Self::EverySecond, Self::Never][usize::from(number)]
    }
}

/// The state of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum JournalState {
    /// Nothing: `appendonly no`.
    #[default]
    Off = 0,
    /// Its first base is being made. Changes after the base's cut are written, but nothing counts
    /// as safe, and no reply waits.
    Starting = 1,
    /// Changes are written.
    On = 2,
    /// A write or a sync has failed. Nothing is written until a new base is complete.
    Failed = 3,
}

/// The thread works, or is about to look for work.
const AWAKE: u8 = 0;
/// It pauses for a moment, so that what lies in the ring makes up a longer batch.
const PAUSES: u8 = 1;
/// It sleeps until there is something to do.
const SLEEPS: u8 = 2;

/// The state of the journal that all threads share.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// By core: blocks that were handed over and not taken yet.
    lanes: Vec<Lane>,
    /// By core. None in a simulation.
    wakers: Vec<Waker>,
    state: AtomicU8,
    /// The error of the last failure.
    failure: Mutex<String>,
    sync: AtomicU8,
    growth: Mutex<Growth>,
    has_timestamps: AtomicBool,
    /// The number of earlier bases that rewrites keep, with their increments.
    kept: AtomicUsize,
    /// The time of the last hand-over, in nanoseconds of the monotonic clock.
    handed_ns: AtomicU64,
    /// The safe time, and the time up to which everything is on the disk.
    safe_ns: AtomicU64,
    synced_ns: AtomicU64,
    ring: OnceLock<Ring>,
    /// The time of the last hand-over that is not in the ring.
    outside_ns: AtomicU64,
    /// The journal's thread.
    thread: OnceLock<std::thread::Thread>,
    /// The sleep of the thread: one of [`AWAKE`], [`PAUSES`], [`SLEEPS`].
    sleep: AtomicU8,
    rewrites: Mutex<Rewrites>,
    /// A rewrite begins when nothing is in its way.
    is_rewrite_scheduled: AtomicBool,
    /// Bytes of all files of the manifest.
    bytes: AtomicU64,
    /// Bytes of the base, or after a rewrite of all files: growth is measured against it.
    base_bytes: AtomicU64,
    orders: Mutex<Vec<(JournalOrder, u64)>>,
    news: Mutex<Vec<(u64, JournalOutcome)>>,
    has_news: AtomicBool,
}

/// The growth at which the journal is rewritten: `auto-aof-rewrite-percentage` and `-min-size`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Growth {
    /// 0 for never.
    pub(crate) percent: u64,
    pub(crate) least_bytes: u64,
}

/// The rewrites of the journal, for INFO, and for the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rewrites {
    /// A rewrite has begun, and has not ended.
    pub(crate) is_begun: bool,
    /// The start of the current or last one, in Unix milliseconds.
    pub(crate) began_ms: u64,
    /// How long the last one took, in seconds; -1 if there is none.
    pub(crate) took_s: i64,
    pub(crate) count: u64,
    /// How many have failed since the last that was successful.
    pub(crate) failures: u32,
    /// The end of the last one, in Unix milliseconds.
    ended_ms: u64,
}

impl Rewrites {
    /// The time at which the next one may begin by itself, if the pause doubles with each failure
    /// from the given one on, up to 60 times.
    fn next_ms(&self, pause_ms: u64, from: u32) -> u64 {
        let Some(doublings) = self.failures.checked_sub(from) else { return 0 };
        self.ended_ms + pause_ms * (1 << doublings.min(6)).min(60)
    }
}

impl Default for Rewrites {
    fn default() -> Self {
        Self { is_begun: false, began_ms: 0, took_s: -1, count: 0, failures: 0, ended_ms: 0 }
    }
}

/// The outcome of an order: a reason if it has failed.
pub(crate) type JournalOutcome = Result<Option<BasePlace>, String>;

/// The place of a base that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BasePlace {
    pub(crate) folder: PathBuf,
    pub(crate) file: Listed,
}

/// The part of the state that one core and the journal's thread share.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Lane {
    blocks: Mutex<Vec<Block>>,
    /// True while replies of the core wait for the safe time.
    waits: AtomicBool,
    /// True while calls of the core wait for the disk.
    awaits_disk: AtomicBool,
}

impl Journal {
    /// The journal of a server with so many cores. It is off.
    #[must_use]
    pub(crate) fn new(cores: usize, wakers: Vec<Waker>) -> Self {
        let lanes = (0..cores).map(|_| Lane::default()).collect();
        Self { lanes, wakers, ..Self::default() }
    }

    /// The current state.
    #[inline]
    pub(crate) fn state(&self) -> JournalState {
        let states =
            [JournalState::Off, JournalState::Starting, JournalState::On, JournalState::Failed];
        states[usize::from(self.state.load(Ordering::SeqCst))]
    }

    /// The error for which writes are refused, if the journal has failed.
    #[inline]
    pub(crate) fn failure(&self) -> Option<String> {
        (self.state() == JournalState::Failed).then(|| lock(&self.failure).clone())
    }

    fn set_state(&self, state: JournalState) {
        self.state.store(state as u8, Ordering::SeqCst);
    }

    /// When files are synced.
    pub(crate) fn sync(&self) -> Sync {
        Sync::of(self.sync.load(Ordering::Relaxed))
    }

    pub(crate) fn set_sync(&self, sync: Sync) {
        self.sync.store(sync as u8, Ordering::SeqCst);
        self.wake();
    }

    // ---- the cores' side ----

    /// Hands over blocks of a core. Call it before anything that depends on them is published, and
    /// [`Journal::handed_at`] after it.
    pub(crate) fn hand_over(&self, core: usize, blocks: &mut Vec<Block>) -> Handed {
        let ring = self.usable_ring();
        let in_ring = ring.is_some_and(|ring| ring.put(core, blocks));
        self.blocks(core).append(blocks);
        match ring {
            Some(ring) if in_ring => Handed::InRing { is_filling: ring.is_filling(core) },
            _ => Handed::Outside,
        }
    }

    /// Publishes that a core has handed blocks over before this time, which was read afterwards.
    pub(crate) fn handed_at(&self, handed: Handed, now_ns: u64) {
        self.handed_ns.fetch_max(now_ns, Ordering::SeqCst);
        match handed {
            Handed::InRing { is_filling: false } => {
                if self.sleep.load(Ordering::SeqCst) == SLEEPS {
                    self.wake();
                }
            }
            Handed::InRing { is_filling: true } => self.wake(),
            Handed::Outside => {
                self.outside_ns.fetch_max(now_ns, Ordering::SeqCst);
                self.wake();
            }
        }
    }

    /// The ring, if changes that are in it count as safe.
    fn usable_ring(&self) -> Option<&Ring> {
        let ring = self.ring.get()?;
        let is_usable = self.sync() != Sync::Always && self.state() == JournalState::On;
        (is_usable && self.outside_ns.load(Ordering::SeqCst) <= self.safe_ns()).then_some(ring)
    }

    /// The time of the last hand-over of any core.
    pub(crate) fn handed_ns(&self) -> u64 {
        self.handed_ns.load(Ordering::SeqCst)
    }

    /// True if everything handed over by any core is as safe as it will be.
    pub(crate) fn all_is_safe(&self) -> bool {
        self.state() != JournalState::On
            || self.usable_ring().is_some()
            || self.handed_ns.load(Ordering::SeqCst) <= self.safe_ns()
    }

    /// Everything that was handed over before this time is safe.
    pub(crate) fn safe_ns(&self) -> u64 {
        self.safe_ns.load(Ordering::SeqCst)
    }

    /// Says whether replies of a core wait for the safe time. Look at [`Journal::safe_ns`] again
    /// after it.
    pub(crate) fn set_waits(&self, core: usize, waits: bool) {
        let known = &self.lanes[core].waits;
        if known.load(Ordering::Relaxed) != waits {
            known.store(waits, Ordering::SeqCst);
        }
        if waits {
            self.wake();
        }
    }

    /// Everything that was handed over before this time is on the disk.
    pub(crate) fn synced_ns(&self) -> u64 {
        self.synced_ns.load(Ordering::SeqCst)
    }

    /// Says whether calls of a core wait for the disk. Look at [`Journal::synced_ns`] again after it.
    pub(crate) fn set_awaits_disk(&self, core: usize, awaits: bool) {
        self.lanes[core].awaits_disk.store(awaits, Ordering::SeqCst);
    }

    // ---- rewrites ----

    /// The rewrites so far.
    pub(crate) fn rewrites(&self) -> Rewrites {
        *lock(&self.rewrites)
    }

    /// The bytes of all files of the manifest, and those of the base.
    pub(crate) fn sizes(&self) -> [u64; 2] {
        [&self.bytes, &self.base_bytes].map(|bytes| bytes.load(Ordering::Relaxed))
    }

    /// Schedules a rewrite, or takes that back.
    pub(crate) fn schedule_rewrite(&self, is_scheduled: bool) {
        self.is_rewrite_scheduled.store(is_scheduled, Ordering::SeqCst);
    }

    /// True if a rewrite is scheduled.
    pub(crate) fn is_rewrite_scheduled(&self) -> bool {
        self.is_rewrite_scheduled.load(Ordering::SeqCst)
    }

    /// Sets `aof-timestamp-enabled`.
    pub(crate) fn set_timestamps(&self, is_on: bool) {
        self.has_timestamps.store(is_on, Ordering::Relaxed);
    }

    /// Sets `snapshot-keep`.
    pub(crate) fn set_kept(&self, bases: usize) {
        self.kept.store(bases, Ordering::Relaxed);
    }

    /// Sets the growth at which the journal is rewritten.
    pub(crate) fn set_growth(&self, growth: Growth) {
        *lock(&self.growth) = growth;
    }

    /// Schedules a rewrite if one is due: the files have grown, or the journal has failed. Returns
    /// true if core 0 is to be woken.
    pub(crate) fn look(&self, now_ms: u64) -> bool {
        let rewrites = self.rewrites();
        let is_wanted = match self.state() {
            JournalState::On => self.has_grown() && now_ms >= rewrites.next_ms(MINUTE_MS, 3),
            JournalState::Failed => now_ms >= rewrites.next_ms(SECOND_MS, 1),
            // The first base has failed.
            JournalState::Starting => {
                rewrites.failures > 0 && now_ms >= rewrites.next_ms(SECOND_MS, 1)
            }
            JournalState::Off => false,
        };
        let begins = is_wanted && !rewrites.is_begun && !self.is_rewrite_scheduled();
        if begins {
            self.schedule_rewrite(true);
        }
        begins
    }

    fn has_grown(&self) -> bool {
        let (Growth { percent, least_bytes }, [bytes, base]) = (*lock(&self.growth), self.sizes());
        let grown = (bytes.saturating_mul(100) / base.max(1)).saturating_sub(100);
        let is_due = percent > 0 && bytes > least_bytes && grown >= percent;
        if is_due && !self.is_rewrite_scheduled() && !self.rewrites().is_begun {
            tracing::info!("Starting automatic rewriting of AOF on {grown}% growth");
        }
        is_due
    }

    /// Begins a rewrite. Returns the number of its cut.
    pub(crate) fn begin_rewrite(&self, now_ms: u64) -> u64 {
        let mut rewrites = lock(&self.rewrites);
        (rewrites.is_begun, rewrites.began_ms) = (true, now_ms);
        rewrites.count += 1;
        rewrites.count
    }

    /// Ends a rewrite.
    pub(crate) fn end_rewrite(&self, is_done: bool, now_ms: u64) {
        let mut rewrites = lock(&self.rewrites);
        (rewrites.is_begun, rewrites.ended_ms) = (false, now_ms);
        rewrites.failures = if is_done { 0 } else { rewrites.failures.saturating_add(1) };
        let took_s = now_ms.saturating_sub(rewrites.began_ms) / 1_000;
        rewrites.took_s = i64::try_from(took_s).unwrap_or(i64::MAX);
    }

    /// The journal is to be turned on by a first base.
    pub(crate) fn start(&self) {
        self.safe_ns.store(0, Ordering::SeqCst);
        self.set_state(JournalState::Starting);
    }

    /// The journal could not be turned on.
    pub(crate) fn stop(&self) {
        self.set_state(JournalState::Off);
    }

    // ---- orders ----

    /// Gives the thread an order. Its outcome comes with the ticket, to core 0.
    pub(crate) fn order(&self, order: JournalOrder, ticket: u64) {
        lock(&self.orders).push((order, ticket));
        self.wake();
    }

    /// True if [`Journal::take_news`] returns something.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::SeqCst)
    }

    /// The tickets of the orders that were carried out, and their outcomes.
    pub(crate) fn take_news(&self) -> Vec<(u64, JournalOutcome)> {
        let mut news = lock(&self.news);
        self.has_news.store(false, Ordering::SeqCst);
        std::mem::take(&mut news)
    }

    // ---- the thread's side ----

    fn take_orders(&self) -> Vec<(JournalOrder, u64)> {
        std::mem::take(&mut lock(&self.orders))
    }

    fn tell(&self, ticket: u64, outcome: JournalOutcome) {
        lock(&self.news).push((ticket, outcome));
        self.has_news.store(true, Ordering::SeqCst);
        self.wake_core(0);
    }

    fn blocks(&self, core: usize) -> MutexGuard<'_, Vec<Block>> {
        lock(&self.lanes[core].blocks)
    }

    /// Raises the safe time, and wakes the cores with replies that wait for it.
    fn set_safe(&self, time_ns: u64) {
        self.safe_ns.store(time_ns, Ordering::SeqCst);
        for (core, lane) in self.lanes.iter().enumerate() {
            if lane.waits.load(Ordering::SeqCst) {
                self.wake_core(core);
            }
        }
    }

    /// Raises the time up to which everything is on the disk, and wakes the cores with calls that
    /// wait for it.
    fn set_synced(&self, time_ns: u64) {
        self.synced_ns.fetch_max(time_ns, Ordering::SeqCst);
        self.wake_for_disk();
    }

    /// Wakes the cores with calls that wait for the disk.
    fn wake_for_disk(&self) {
        for (core, lane) in self.lanes.iter().enumerate() {
            if lane.awaits_disk.load(Ordering::SeqCst) {
                self.wake_core(core);
            }
        }
    }

    fn wake_core(&self, core: usize) {
        if let Some(waker) = self.wakers.get(core) {
            waker.wake();
        }
    }

    fn has_blocks(&self) -> bool {
        (0..self.lanes.len()).any(|core| !self.blocks(core).is_empty())
    }

    fn some_wait(&self) -> bool {
        self.lanes.iter().any(|lane| lane.waits.load(Ordering::SeqCst))
    }

    fn wake(&self) {
        if self.sleep.swap(AWAKE, Ordering::SeqCst) != AWAKE
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
