//! The thread of the journal: it takes the blocks of all cores, and writes them as batches.
//!
//! ```text
//! pass:  orders ─► take blocks ─► order them ─► one batch: its line, then its commands
//!        ─► sync (`always`) ─► safe time, which wakes the cores whose replies wait
//! ```
//! While a batch is written and synced, further blocks arrive, and make up the next batch. So under
//! load many clients share a sync, and a single client waits for one.
//!
//! A rewrite, step by step; core 0 orders it (`engine::saving::rewriting`):
//!
//! 1. [`JournalOrder::Prepare`]: a new increment is created, synced, and named in the manifest.
//! 2. All keys are locked, and each core hands over a cut with its last block. When all cuts have
//!    come, everything before them is in the old increment, which is synced and closed; what
//!    follows goes to the new one.
//! 3. The cores write the snapshot, the new base.
//! 4. [`JournalOrder::Commit`]: a manifest with the new base replaces the old one. Then the old files are
//!    removed.
//!
//! Wherever this ends, the files that the manifest names make up the data.
//!
//! While changes lie in the ring, no reply waits for this thread, and it pauses between batches.
//!
//! Invariants:
//! - C1: the safe time never exceeds the time up to which everything is written, and with `always`
//!   synced.
//! - C2: a file is named in the manifest before anything is written to it, unless there is no base
//!   yet.
//! - C3: a failed file is neither written nor synced again.

use super::Piece;
use super::merge::{Advanced, Merger, Ordered};
use super::ring::Ring;
use super::writer::{Increment, Stream};
use super::{AWAKE, PAUSES, SLEEPS};
use super::{BasePlace, Found, Journal, JournalOutcome, JournalState, Sync};
use darter_base::preempt::Never;
use darter_persist::aof::manifest::{self, Listed, Manifest};
use darter_resp::Part;
use darter_runtime::clock;
use darter_runtime::fs::{self, FileSystem};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The pause between two batches while nobody waits for them.
const PAUSE: Duration = Duration::from_millis(5);
/// The time between two syncs with `everysec`.
const SYNC_NS: u64 = 1_000_000_000;

/// An order of core 0 to the thread.
#[derive(Debug)]
pub(crate) enum JournalOrder {
    /// Create the increment that follows the cut with this number.
    Prepare(u64),
    /// Make this file, which is complete, the base. It has what precedes the cut with this number.
    Commit(Listed, u64),
    /// The base of the last cut was not made.
    GiveUp,
    /// Write and sync what was handed over, and close the file.
    Stop,
}

/// The folder of the journal, and what it contains.
pub(crate) struct Folder {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) path: PathBuf,
    /// `appendfilename`.
    pub(crate) name: String,
    pub(crate) manifest: Manifest,
    /// The number of the last base that was begun; 0 if there is none.
    pub(crate) last_base: i64,
    /// A number of the system's boot.
    pub(crate) boot: u64,
}

impl Folder {
    fn path_of(&self, file: &Listed) -> PathBuf {
        self.path.join(OsStr::from_bytes(&file.name))
    }

    /// Makes the folder, unless it is there.
    fn prepare(&self) -> io::Result<()> {
        match self.fs.create_folder(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => self.fs.sync_folder(self.path.parent().unwrap_or(&self.path)),
        }
    }

    /// The bytes of all files of the manifest, and of its base. Zeros ahead do not count.
    fn sizes(&self) -> io::Result<(u64, u64)> {
        let bytes = |file: &Listed| self.fs.open(&self.path_of(file), fs::Mode::Read)?.length();
        let base = self.manifest.base.as_ref().map_or(Ok(0), bytes)?;
        let closed = self.manifest.increments.split_last().map_or(&[][..], |(_, closed)| closed);
        closed.iter().try_fold((base, base), |(all, base), file| Ok((all + bytes(file)?, base)))
    }

    /// Reads the manifest that an earlier journal has left, whose files the next base replaces.
    fn read_manifest(&mut self) -> io::Result<()> {
        match fs::read(&*self.fs, &self.path.join(manifest::name(&self.name))) {
            Ok(bytes) => {
                self.manifest = Manifest::parse(&bytes)
                    .map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad.to_string()))?;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Replaces the manifest file.
    fn write_manifest(&self) -> io::Result<()> {
        let temporary = self.path.join(manifest::temporary_name(&self.name));
        fs::write(&*self.fs, &temporary, &self.manifest.to_bytes())?;
        self.fs.open(&temporary, fs::Mode::Write)?.sync()?;
        self.fs.rename(&temporary, &self.path.join(manifest::name(&self.name)))?;
        self.fs.sync_folder(&self.path)
    }

    /// The name of a base that no manifest ever had.
    fn next_base(&mut self) -> Listed {
        let known = self.manifest.base.as_ref().map_or(0, |base| base.sequence);
        self.last_base = self.last_base.max(known) + 1;
        let name = format!("{}.{}.base.rdb", self.name, self.last_base).into_bytes();
        Listed { name, sequence: self.last_base }
    }

    /// Creates the increment after the last one.
    fn create_increment(&mut self) -> io::Result<Increment> {
        let listed = self.manifest.next_increment(&self.name);
        let file = Increment::create(&*self.fs, &self.path_of(&listed), listed.sequence)?;
        self.fs.sync_folder(&self.path)?;
        self.manifest.increments.push(listed);
        Ok(file)
    }

    /// Removes the files of the manifest's history, except those of the last `kept` bases.
    fn remove_history(&mut self, kept: usize) -> io::Result<()> {
        let old = self.manifest.take_old(kept);
        if old.is_empty() {
            return Ok(());
        }
        for file in old {
            match self.fs.remove(&self.path_of(&file)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.write_manifest()
    }
}

/// The state of the thread.
pub(crate) struct Collector {
    journal: Arc<Journal>,
    folder: Folder,
    merger: Merger,
    stream: Stream,
    /// The file to which batches are appended. There is none before the first cut, and after a
    /// failure.
    file: Option<Increment>,
    /// The number of files before this one.
    files: u64,
    /// The file that follows the cut with this number, and the increments that the cut completes.
    next: Option<(u64, Increment, i64)>,
    /// The increments that the last cut has completed.
    covered: i64,
    /// Orders that are not carried out yet.
    orders: Vec<(JournalOrder, u64)>,
    /// The batches up to this time are written, and not synced yet.
    unsynced: Option<u64>,
    last_sync_ns: u64,
    /// The time of the last line of time, in Unix seconds.
    timestamp_s: u64,
    syncer: Option<Syncer>,
    is_to_end: Arc<AtomicBool>,
}

impl Collector {
    /// A collector that is off, for a folder without an open increment. `run` is a random number.
    pub(crate) fn new(journal: Arc<Journal>, folder: Folder, run: u64) -> Self {
        let cores = journal.lanes.len();
        let stream = Stream { run, batch: 0, offset: 0, synced: 0, previous: 0, unix_ms: 0 };
        Self {
            journal,
            folder,
            merger: Merger::new(cores),
            stream,
            file: None,
            files: 0,
            next: None,
            covered: 0,
            orders: Vec::new(),
            unsynced: None,
            last_sync_ns: 0,
            timestamp_s: 0,
            syncer: None,
            is_to_end: Arc::default(),
        }
    }

    /// Opens a new increment, and turns the journal on. The data is what these files make up.
    ///
    /// # Errors
    /// Errors: a file could not be made.
    pub(crate) fn turn_on(&mut self, found: &Found) -> io::Result<()> {
        self.folder.manifest = found.manifest.clone();
        if let Some(last) = &found.last_batch {
            let stream = &mut self.stream;
            (stream.offset, stream.synced) = (last.end(), last.end());
            stream.unix_ms = last.head.unix_ms;
        }
        self.folder.prepare()?;
        let mut file = self.folder.create_increment()?;
        self.stream.begin(&mut file, clock::unix_millis())?;
        self.file = Some(file);
        self.folder.write_manifest()?;
        let (bytes, base_bytes) = self.folder.sizes()?;
        self.journal.bytes.store(bytes, Ordering::Relaxed);
        self.journal.base_bytes.store(base_bytes, Ordering::Relaxed);
        self.be_on();
        Ok(())
    }

    /// Turns the journal on, now that its files make up the data.
    fn be_on(&mut self) {
        let (folder, journal) = (&self.folder, &self.journal);
        if journal.ring.get().is_none() {
            let cores = journal.lanes.len();
            match Ring::create(&*folder.fs, &folder.path, &folder.name, cores, folder.boot) {
                Ok(ring) => _ = journal.ring.set(ring),
                Err(error) => tracing::info!("replies wait for the append-only file: {error}"),
            }
        }
        if let (Some(ring), Some(file)) = (journal.ring.get(), &self.file) {
            let written = ring.written();
            ring.free(&written);
            ring.intend(file.point(&self.stream), &written);
            self.merger.set_ring_ends(written);
        }
        journal.set_state(JournalState::On);
    }

    /// Runs a step that appends a batch to the file, and notes its place in the ring before.
    fn append(
        &mut self,
        step: impl FnOnce(&mut Stream, &mut Increment) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let is_on = self.journal.state() == JournalState::On;
        let ring = self.journal.ring.get().filter(|_| is_on);
        if let Some(ring) = ring {
            ring.intend(file.point(&self.stream), self.merger.ring_ends());
        }
        step(&mut self.stream, file)?;
        if let Some(ring) = ring {
            ring.free(self.merger.ring_ends());
        }
        Ok(())
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// Errors: a thread could not be started.
    pub(crate) fn start(mut self) -> io::Result<RunningJournal> {
        self.syncer = Some(Syncer::start(Arc::clone(&self.journal))?);
        let (journal, is_to_end) = (Arc::clone(&self.journal), Arc::clone(&self.is_to_end));
        let builder = std::thread::Builder::new().name("journal".into());
        let thread = builder.spawn(move || self.run())?;
        let _ = journal.thread.set(thread.thread().clone());
        Ok(RunningJournal { thread, journal, is_to_end })
    }

    fn run(mut self) {
        loop {
            let is_to_end = self.is_to_end.load(Ordering::SeqCst);
            let has_written = self.pass(clock::monotonic_nanos(), clock::unix_millis());
            if is_to_end && !has_written {
                return self.end();
            }
            self.rest(has_written);
        }
    }

    /// Waits for work: for a moment after a batch, then for as long as there is none.
    fn rest(&self, has_written: bool) {
        let journal = &*self.journal;
        journal.sleep.store(if has_written { PAUSES } else { SLEEPS }, Ordering::SeqCst);
        if self.has_work() || (!has_written && journal.has_blocks()) {
            journal.sleep.store(AWAKE, Ordering::SeqCst);
        } else if has_written {
            std::thread::park_timeout(PAUSE);
        } else {
            match self.sync_in(clock::monotonic_nanos()) {
                Some(time) => std::thread::park_timeout(time),
                None => std::thread::park(),
            }
        }
        journal.sleep.store(AWAKE, Ordering::SeqCst);
    }

    /// True if somebody waits for this thread.
    fn has_work(&self) -> bool {
        let journal = &*self.journal;
        self.is_to_end.load(Ordering::SeqCst)
            || !super::lock(&journal.orders).is_empty()
            || (journal.some_wait() && !journal.all_is_safe() && !self.merger.is_blocked())
    }

    /// Does what there is to do. Both times must have been read just before. Returns true if
    /// something was written.
    pub(crate) fn pass(&mut self, now_ns: u64, unix_ms: u64) -> bool {
        let orders = self.journal.take_orders(); // Before the blocks: a base comes after its cut.
        self.orders.extend(orders);
        self.note_syncs();
        for core in 0..self.journal.lanes.len() {
            let blocks = std::mem::take(&mut *self.journal.blocks(core));
            self.merger.take_in(core, blocks);
        }
        let mut has_written = false;
        loop {
            let mut batch = Ordered::default();
            let advanced = self.merger.advance(now_ns, &mut batch);
            has_written |= !batch.pieces.is_empty();
            self.add_timestamp(&mut batch, unix_ms);
            let up_to = match advanced {
                Advanced::To(stamp) => stamp,
                Advanced::Cut(_) => self.journal.safe_ns(),
            };
            self.or_fail(|collector| collector.write(&batch, up_to, unix_ms));
            match advanced {
                Advanced::To(_) => break,
                Advanced::Cut(number) => self.or_fail(|collector| collector.pass_cut(number)),
            }
        }
        for (order, ticket) in std::mem::take(&mut self.orders) {
            if self.is_early(&order) {
                self.orders.push((order, ticket));
            } else {
                let outcome = self.carry_out(order);
                self.journal.tell(ticket, outcome);
            }
        }
        self.or_fail(|collector| collector.sync_if_due(now_ns));
        if self.unsynced.is_none() && self.journal.state() == JournalState::On {
            // The last hand-over, such as a cut, may have had nothing to write.
            self.journal.set_synced(self.journal.safe_ns());
        }
        // Without zeros ahead, syncs take longer; nothing else fails.
        self.file.iter_mut().for_each(Increment::fill);
        // The last reference to a large value may have been this thread's.
        while darter_keyspace::lazyfree::run(&Never) {}
        has_written
    }

    /// Runs a step; if it fails, the journal has failed.
    fn or_fail(&mut self, step: impl FnOnce(&mut Self) -> io::Result<()>) {
        if let Err(error) = step(self) {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        tracing::error!(
            "the append-only file has failed: {error}; writes are refused until a new base is made"
        );
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        text.clone_into(&mut super::lock(&self.journal.failure));
        (self.file, self.next, self.unsynced) = (None, None, None);
        self.files += 1;
        self.journal.set_state(JournalState::Failed);
        self.journal.set_safe(self.journal.safe_ns()); // Wakes those who wait in vain.
    }

    /// Begins a batch with Redis's line for the time, unless this second has one.
    fn add_timestamp(&mut self, batch: &mut Ordered, unix_ms: u64) {
        let seconds = unix_ms / 1_000;
        let is_wanted = self.journal.has_timestamps.load(Ordering::Relaxed);
        if is_wanted && !batch.pieces.is_empty() && seconds > self.timestamp_s {
            self.timestamp_s = seconds;
            let line = format!("#TS:{seconds}\r\n").into_bytes();
            batch.bytes += line.len();
            batch.pieces.insert(0, Piece::Plain(Part::Bytes(line)));
        }
    }

    /// Writes a batch. Together with those before, it has all that was handed over before `up_to`.
    fn write(&mut self, batch: &Ordered, up_to: u64, unix_ms: u64) -> io::Result<()> {
        if self.file.is_none() {
            return Ok(()); // Before the first cut.
        }
        if !batch.pieces.is_empty() {
            let mut appended = 0;
            self.append(|stream, file| {
                let before = file.bytes();
                stream.append(file, batch, unix_ms)?;
                appended = file.bytes() - before;
                Ok(())
            })?;
            self.journal.bytes.fetch_add(appended, Ordering::Relaxed);
            self.unsynced = Some(up_to);
        }
        if let Some(file) = &self.file
            && self.journal.sync() == Sync::Always
            && self.unsynced.is_some()
        {
            file.sync()?;
            self.note_synced(up_to, self.stream.offset);
        }
        if self.journal.safe_ns() < up_to {
            self.journal.set_safe(up_to);
        }
        Ok(())
    }

    fn note_synced(&mut self, up_to: u64, offset: u64) {
        self.stream.synced = self.stream.synced.max(offset);
        self.journal.set_synced(up_to);
        self.unsynced.take_if(|last| *last <= up_to);
    }

    // ---- syncs once a second ----

    /// The time until the next sync that no hand-over or reply causes.
    fn sync_in(&self, now_ns: u64) -> Option<Duration> {
        let is_wanted = self.unsynced.is_some() && self.journal.sync() == Sync::EverySecond;
        let due_ns = self.last_sync_ns + SYNC_NS;
        is_wanted.then(|| Duration::from_nanos(due_ns.saturating_sub(now_ns).max(SYNC_NS / 100)))
    }

    fn sync_if_due(&mut self, now_ns: u64) -> io::Result<()> {
        let (Some(file), Some(up_to)) = (&self.file, self.unsynced) else {
            return Ok(());
        };
        let is_due = now_ns.saturating_sub(self.last_sync_ns) >= SYNC_NS;
        if self.journal.sync() != Sync::EverySecond || !is_due {
            return Ok(());
        }
        match &mut self.syncer {
            Some(syncer) if syncer.is_busy => return Ok(()),
            Some(syncer) => {
                syncer.sync((file.to_sync(), self.files, up_to, self.stream.offset));
            }
            None => {
                file.sync()?;
                self.note_synced(up_to, self.stream.offset);
            }
        }
        self.last_sync_ns = now_ns;
        Ok(())
    }

    /// Notes the syncs that have ended.
    fn note_syncs(&mut self) {
        let Some(syncer) = &mut self.syncer else { return };
        let Ok(Synced { file, up_to, offset, result }) = syncer.results.try_recv() else { return };
        syncer.is_busy = false;
        if file != self.files {
            return; // It was closed, or has failed since.
        }
        match result {
            Ok(()) => self.note_synced(up_to, offset),
            Err(error) => self.fail(&error),
        }
    }

    // ---- rewrites ----

    /// True for a base whose cut has not come yet.
    fn is_early(&self, order: &JournalOrder) -> bool {
        let JournalOrder::Commit(_, number) = order else { return false };
        self.next.as_ref().is_some_and(|(cut, ..)| cut == number)
    }

    fn carry_out(&mut self, order: JournalOrder) -> JournalOutcome {
        let done = match order {
            JournalOrder::Prepare(cut) => self.prepare(cut).map(Some),
            JournalOrder::Commit(base, _) => self.commit(base).map(|()| None),
            // A file that is named behind the current one must not stay empty.
            JournalOrder::GiveUp => match self.next.take() {
                Some((_, next, _)) if self.journal.state() == JournalState::On => {
                    self.go_on_with(next).map(|()| None)
                }
                _ => Ok(None),
            },
            JournalOrder::Stop => self.stop().map(|()| None),
        };
        done.map_err(|error| error.to_string())
    }

    fn prepare(&mut self, cut: u64) -> io::Result<BasePlace> {
        self.folder.prepare()?;
        let state = self.journal.state();
        let is_first = matches!(state, JournalState::Starting | JournalState::Off);
        if is_first && self.folder.manifest == Manifest::default() {
            self.folder.read_manifest()?;
        }
        let covered = self.folder.manifest.increments.last().map_or(0, |last| last.sequence);
        if state == JournalState::Off {
            // A base without increments.
            self.covered = covered;
            let file = self.folder.next_base();
            return Ok(BasePlace { folder: self.folder.path.clone(), file });
        }
        let file = self.folder.create_increment()?;
        if self.journal.state() == JournalState::On {
            self.folder.write_manifest()?;
        }
        self.next = Some((cut, file, covered));
        let file = self.folder.next_base();
        Ok(BasePlace { folder: self.folder.path.clone(), file })
    }

    /// Goes on with the next file.
    fn pass_cut(&mut self, number: u64) -> io::Result<()> {
        let Some((_, next, covered)) = self.next.take_if(|(cut, ..)| *cut == number) else {
            return Ok(()); // Given up.
        };
        self.covered = covered;
        self.go_on_with(next)
    }

    fn go_on_with(&mut self, next: Increment) -> io::Result<()> {
        if let Some(old) = self.file.take() {
            old.close()?;
        }
        self.stream.synced = self.stream.offset;
        if let Some(up_to) = self.unsynced.take() {
            self.journal.set_synced(up_to);
        }
        self.file = Some(next);
        self.files += 1;
        let unix_ms = self.stream.unix_ms;
        self.append(|stream, file| stream.begin(file, unix_ms))?;
        self.merger.begin_file();
        Ok(())
    }

    fn commit(&mut self, base: Listed) -> io::Result<()> {
        let is_off = self.journal.state() == JournalState::Off;
        if self.file.is_none() && !is_off {
            return Err(io::Error::other("the append-only file has failed meanwhile"));
        }
        let before = self.folder.manifest.clone();
        self.folder.manifest.replace_base(base, self.covered);
        if let Err(error) = self.folder.write_manifest() {
            // Which manifest is on the disk is unknown. Both make up the data, and all their files
            // are kept.
            self.folder.manifest = before;
            return Err(error);
        }
        if let Ok((bytes, _)) = self.folder.sizes() {
            self.journal.bytes.store(bytes, Ordering::Relaxed);
            self.journal.base_bytes.store(bytes, Ordering::Relaxed);
        }
        if self.journal.state() != JournalState::On && !is_off {
            tracing::info!("the append-only file is good: it has a new base");
            self.be_on();
        }
        let kept = self.journal.kept.load(Ordering::Relaxed);
        if let Err(error) = self.folder.remove_history(kept) {
            tracing::warn!("old append-only files could not be removed: {error}");
        }
        Ok(())
    }

    /// Turns the journal off. All cores have handed over what is to be written.
    fn stop(&mut self) -> io::Result<()> {
        self.pass(clock::monotonic_nanos(), clock::unix_millis());
        self.merger = Merger::new(self.journal.lanes.len());
        self.next = None;
        self.files += 1;
        self.journal.set_state(JournalState::Off);
        self.journal.set_safe(u64::MAX);
        self.journal.wake_for_disk(); // They wait in vain.
        self.journal.ring.get().into_iter().for_each(Ring::forget);
        self.file.take().map_or(Ok(()), Increment::close)
    }

    /// Syncs and closes the file.
    fn end(mut self) {
        let Some(file) = self.file.take() else { return };
        match file.close() {
            Ok(()) => self.journal.ring.get().into_iter().for_each(Ring::forget),
            Err(error) => tracing::error!("the append-only file could not be closed: {error}"),
        }
    }
}

/// The running thread.
pub(crate) struct RunningJournal {
    thread: JoinHandle<()>,
    journal: Arc<Journal>,
    is_to_end: Arc<AtomicBool>,
}

impl RunningJournal {
    /// Ends the thread, after everything that was handed over is on the disk. No core runs any more.
    pub(crate) fn finish(self) {
        self.is_to_end.store(true, Ordering::SeqCst);
        self.journal.sleep.store(SLEEPS, Ordering::SeqCst);
        self.journal.wake();
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A thread that syncs while the collector writes on.
struct Syncer {
    requests: Sender<SyncRequest>,
    results: Receiver<Synced>,
    is_busy: bool,
}

/// The file, its number, and what its sync covers: what was handed over before a time, up to an
/// offset of the stream.
type SyncRequest = (Arc<dyn fs::File>, u64, u64, u64);

/// The result of a sync.
struct Synced {
    file: u64,
    up_to: u64,
    offset: u64,
    result: io::Result<()>,
}

impl Syncer {
    fn start(journal: Arc<Journal>) -> io::Result<Self> {
        let (requests, asked) = channel::<SyncRequest>();
        let (told, results) = channel();
        std::thread::Builder::new().name("journal-sync".into()).spawn(move || {
            for (file, number, up_to, offset) in asked {
                let synced = Synced { file: number, up_to, offset, result: file.sync() };
                if told.send(synced).is_err() {
                    return;
                }
                journal.wake();
            }
        })?;
        Ok(Self { requests, results, is_busy: false })
    }

    fn sync(&mut self, request: SyncRequest) {
        // The thread ends only with this value.
        self.is_busy = self.requests.send(request).is_ok();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Block, Body, Encoded};
    use super::*;
    use darter_base::Prng;
    use darter_persist::aof::annotation::Annotation;
    use darter_persist::aof::check::{Checker, Verdict};
    use darter_runtime::fs::{Fault, Faults, Simulated};
    use std::path::Path;
    use std::sync::atomic::AtomicU64;

    const FOLDER: &str = "appendonlydir";
    const CORES: usize = 2;

    /// A block whose only command is a number.
    fn block(stamp: u64, number: u64) -> Block {
        let number = number.to_string();
        let bytes = format!("*2\r\n$1\r\nN\r\n${}\r\n{number}\r\n", number.len()).into_bytes();
        let (count, len) = (1, bytes.len());
        let pieces = vec![Piece::Plain(Part::Bytes(bytes))];
        Block::new(stamp, Body::Alone(Encoded { databases: None, count, bytes: len, pieces }))
    }

    /// The machine on which processes follow each other.
    struct World {
        disk: Simulated,
        faults: Arc<Faults>,
        /// The number of losses of power.
        boot: u64,
    }

    /// A process with a journal, whose cores hand over the numbers from `next` on, in order.
    struct Process {
        prng: Prng,
        disk: Simulated,
        faults: Arc<Faults>,
        journal: Arc<Journal>,
        collector: Collector,
        now: u64,
        next: u64,
        /// For each hand-over: its time, and the numbers handed over so far.
        handed: Vec<(u64, u64)>,
        /// The numbers that replies have shown.
        acknowledged: u64,
        cuts: u64,
    }

    impl Process {
        /// Starts on a disk whose journal has the numbers below `next`.
        fn start(seed: u64, world: &World, sync: Sync, next: u64) -> io::Result<Self> {
            let World { disk, faults, boot } = world;
            let journal = Arc::new(Journal::new(CORES, Vec::new()));
            journal.set_sync(sync);
            let manifest = read_manifest(disk)?;
            let fs: Arc<dyn FileSystem> = Arc::new(disk.clone());
            let (path, name) = (PathBuf::from(FOLDER), "a".to_owned());
            let (manifest_before, last_base, boot) = (Manifest::default(), 0, *boot);
            let folder = Folder { fs, path, name, manifest: manifest_before, last_base, boot };
            let mut collector = Collector::new(Arc::clone(&journal), folder, seed + 1);
            collector.turn_on(&Found { manifest, ..Found::default() })?;
            Ok(Self {
                prng: Prng::from_seed(seed),
                disk: disk.clone(),
                faults: Arc::clone(faults),
                journal,
                collector,
                now: 1,
                next,
                handed: Vec::new(),
                acknowledged: next,
                cuts: 0,
            })
        }

        fn tick(&mut self) -> u64 {
            self.now += 1 + self.prng.below(300_000_000);
            self.now
        }

        fn turn(&mut self) {
            let (stamp, core) = (self.tick(), self.prng.below(CORES as u64) as usize);
            let mut blocks: Vec<Block> = (0..1 + self.prng.below(3))
                .map(|_| {
                    self.next += 1;
                    block(stamp, self.next - 1)
                })
                .collect();
            let handed = self.journal.hand_over(core, &mut blocks);
            let at = self.tick();
            self.journal.handed_at(handed, at);
            self.handed.push((at, self.next));
            self.acknowledge();
        }

        fn pass(&mut self) {
            let now = self.tick();
            self.collector.pass(now, now);
            self.acknowledge();
        }

        /// Lets all replies leave that may.
        fn acknowledge(&mut self) {
            if self.faults.has_crashed() || self.journal.state() != JournalState::On {
                return;
            }
            if self.journal.all_is_safe() {
                self.acknowledged = self.next;
                return;
            }
            let safe = self.journal.safe_ns();
            let shown = self.handed.iter().take_while(|(at, _)| *at <= safe).last();
            self.acknowledged = self.acknowledged.max(shown.map_or(0, |(_, next)| *next));
        }

        fn order(&mut self, order: JournalOrder) -> JournalOutcome {
            self.journal.order(order, 7);
            self.pass();
            let [(7, outcome)] = &self.journal.take_news()[..] else { panic!("no outcome") };
            outcome.clone()
        }

        /// A rewrite, up to a random step.
        fn rewrite(&mut self) {
            self.cuts += 1;
            let Ok(Some(place)) = self.order(JournalOrder::Prepare(self.cuts)) else { return };
            if self.prng.chance(50) {
                self.turn();
            }
            let base = self.next;
            for core in 0..CORES {
                let stamp = self.tick();
                let mut cut = vec![Block::new(stamp, Body::Cut(self.cuts))];
                let handed = self.journal.hand_over(core, &mut cut);
                let at = self.tick();
                self.journal.handed_at(handed, at);
                if self.prng.chance(50) {
                    self.pass();
                }
            }
            if self.prng.chance(70) {
                self.turn();
                self.pass();
            }
            if self.prng.chance(10) || self.make_base(&place, base).is_err() {
                let _ = self.order(JournalOrder::GiveUp);
                return;
            }
            let _ = self.order(JournalOrder::Commit(place.file, self.cuts));
        }

        /// Writes a base as snapshots are written. It is only the number of the next command.
        fn make_base(&self, place: &BasePlace, next: u64) -> io::Result<()> {
            let path = place.file.path_in(&place.folder);
            fs::write(&self.disk, &path, next.to_string().as_bytes())?;
            self.disk.open(&path, fs::Mode::Write)?.sync()?;
            self.disk.sync_folder(&place.folder)
        }
    }

    fn read_manifest(disk: &Simulated) -> io::Result<Manifest> {
        match fs::read(disk, &Path::new(FOLDER).join(manifest::name("a"))) {
            Ok(bytes) => Ok(Manifest::parse(&bytes).unwrap()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Manifest::default()),
            Err(error) => Err(error),
        }
    }

    /// Loads the folder as a start does. Returns the number after the last command.
    fn load(disk: &Simulated) -> u64 {
        let (manifest, folder) = (read_manifest(disk).unwrap(), Path::new(FOLDER));
        let read = |file: &Listed| fs::read(disk, &file.path_in(folder)).unwrap();
        let mut next = manifest.base.as_ref().map_or(0, |base| {
            String::from_utf8(read(base)).unwrap().parse().expect("the base is whole")
        });
        let mut before: Option<Annotation> = None;
        let mut files = manifest.increments.iter().peekable();
        while let Some(file) = files.next() {
            let bytes = read(file);
            let mut checker = Checker::new(0, before);
            checker.feed(&bytes);
            let checked = checker.finish();
            let is_torn = match checked.fault {
                None => false,
                Some((_, _, Verdict::Torn)) => true,
                Some((fault, at, Verdict::Damaged)) => panic!("damage at {at}: {fault}"),
                Some((fault, at, Verdict::Depends(mut search))) => {
                    search.feed(&bytes[checked.good as usize..]);
                    assert!(!search.is_damage(), "damage at {at}: {fault}");
                    true
                }
            };
            let rest = files.len();
            let later = files.clone().map(read).filter(|bytes| bytes.iter().any(|byte| *byte > 0));
            assert!(!is_torn || later.count() == 0, "{rest} files follow a torn one");
            before = checked.last;
            let text = String::from_utf8_lossy(&bytes[..checked.good as usize]);
            for command in text.split("$1\r\nN\r\n").skip(1) {
                let number: u64 = command.split("\r\n").nth(1).unwrap().parse().unwrap();
                assert_eq!(number, next, "in {} of {manifest:?}", file.name.escape_ascii());
                next += 1;
            }
            // A start cuts the torn end.
            let file = disk.open(&file.path_in(folder), fs::Mode::Write).unwrap();
            file.set_length(checked.good).unwrap();
            file.sync().unwrap();
        }
        next
    }

    /// Completes the journal from the ring, in a process that may be killed meanwhile, and loads it.
    fn recover_and_load(prng: &mut Prng, world: &World) -> u64 {
        let World { disk, faults, boot } = world;
        if prng.chance(30) {
            faults.plan(None, 1 + prng.below(20), Fault::Crash);
            let _ = super::super::recover(disk, Path::new(FOLDER), "a", *boot);
            disk.kill();
        }
        let recovered = super::super::recover(disk, Path::new(FOLDER), "a", *boot);
        RECOVERED.fetch_add(recovered.expect("no fault is planned"), Ordering::Relaxed);
        load(disk)
    }

    /// The bytes that rings have added.
    static RECOVERED: AtomicU64 = AtomicU64::new(0);

    /// Lets processes follow each other on one disk, each killed at a random place.
    fn live(seed: u64, sync: Sync, loses_power: bool) {
        let faults = Arc::new(Faults::default());
        let disk = Simulated::new(seed, 64 << 20, Arc::clone(&faults));
        let mut world = World { disk, faults, boot: 1 };
        let mut prng = Prng::from_seed(seed);
        let mut least = 0;
        for run in 0..3 {
            let next = recover_and_load(&mut prng, &world);
            let World { disk, faults, .. } = &world;
            assert!(next >= least, "seed {seed}: {next} of {least} acknowledged");
            match prng.below(3) {
                0 => faults.plan(None, 1 + prng.below(120), Fault::Crash),
                1 => faults.plan(None, 1 + prng.below(120), Fault::Error(5)),
                _ => {}
            }
            least = next;
            if let Ok(mut process) = Process::start(seed * 10 + run, &world, sync, next) {
                for _ in 0..prng.below(40) {
                    match prng.below(8) {
                        0 => process.rewrite(),
                        1..=4 => process.turn(),
                        _ => process.pass(),
                    }
                    if faults.has_crashed() {
                        break;
                    }
                }
                least = process.acknowledged;
            }
            if loses_power {
                disk.lose_power()
            } else {
                disk.kill()
            }
            world.boot += u64::from(loses_power);
        }
        let next = recover_and_load(&mut prng, &world);
        assert!(next >= least, "seed {seed}: {next} of {least} acknowledged");
    }

    #[test]
    fn nothing_acknowledged_is_lost_by_a_kill() {
        for seed in 0..400 {
            for sync in [Sync::Always, Sync::EverySecond, Sync::Never] {
                live(seed, sync, false);
            }
        }
        assert!(RECOVERED.load(Ordering::Relaxed) > 0, "no ring was of use");
    }

    #[test]
    fn a_damaged_ring_ends_no_process() {
        let mut prng = Prng::from_seed(7);
        for seed in 0..2_000 {
            let faults = Arc::new(Faults::default());
            let disk = Simulated::new(seed, 64 << 20, Arc::clone(&faults));
            let world = World { disk, faults, boot: 1 };
            let mut process = Process::start(seed, &world, Sync::EverySecond, 0).unwrap();
            process.turn();
            process.pass();
            process.turn();
            world.disk.kill();
            let ring = Path::new(FOLDER).join(manifest::ring_name("a"));
            let mut bytes = fs::read(&world.disk, &ring).unwrap();
            for _ in 0..1 + prng.below(4) {
                let at = prng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << prng.below(8);
            }
            if prng.chance(20) {
                bytes.truncate(prng.below(bytes.len() as u64) as usize);
            }
            fs::write(&world.disk, &ring, &bytes).unwrap();
            // The ring is completed, is not used, or is refused.
            let _ = super::super::recover(&world.disk, Path::new(FOLDER), "a", world.boot);
        }
        for len in 0..64 {
            let disk = Simulated::new(1, 1 << 20, Arc::default());
            disk.create_folder(Path::new(FOLDER)).unwrap();
            let in_folder = |name: String| Path::new(FOLDER).join(name);
            fs::write(&disk, &in_folder(manifest::ring_name("a")), &vec![b' '; len]).unwrap();
            fs::write(&disk, &in_folder(manifest::name("a")), b"file a.1.incr.aof seq 1 type i\n")
                .unwrap();
            let recovered = super::super::recover(&disk, Path::new(FOLDER), "a", 1);
            assert_eq!(recovered.unwrap(), 0, "a ring of {len} bytes");
        }
    }

    #[test]
    fn nothing_acknowledged_with_always_is_lost_with_the_power() {
        (0..1_000).for_each(|seed| live(seed, Sync::Always, true));
    }
}
