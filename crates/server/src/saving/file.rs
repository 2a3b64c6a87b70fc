//! The file of a snapshot, and the thread that writes it.
//!
//! All cores send chunks to the thread, a few at a time. A core whose chunks were not written yet
//! keeps the rest of its cut until there is room. The thread writes the chunks to `temp-PID.rdb`,
//! syncs and renames the file, and syncs the folder. So the file under the final name is always
//! complete, even after a full disk, a kill or a power failure.

use super::{Outcome, Outlet, Room, Saves, SnapshotOrder, Store};
use darter_persist::snapshot::Chunk;
use darter_rdb::Writer;
use darter_rdb::functions::begin_library;
use darter_rdb::lzf::Packer;
use darter_rdb::types::VERSION_WRITTEN;
use darter_runtime::disk::Disk;
use darter_runtime::fs::FileSystem;
use darter_runtime::net::Waker;
use darter_runtime::topology;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The maximal number of chunks of one core that wait to be written.
const CHUNKS_MAX: usize = 4;

/// If the page cache is bypassed, this many times more bytes are written between two syncs.
const DIRECT_SYNCS: u64 = 8;

/// The field `redis-ver` of the file: the version of Redis whose format it has.
const REDIS_VERSION: &[u8] = b"7.0.15";

/// The store that writes snapshots as files.
pub(crate) struct Files {
    fs: Arc<dyn FileSystem>,
    wakers: Vec<Waker>,
    /// The processors on which the thread may run. The core's thread that starts it is pinned to a
    /// single one.
    processors: Vec<usize>,
    /// The thread of the current or the last file, and a sender that can end it.
    thread: Mutex<Option<(JoinHandle<()>, Sender<Parcel>)>>,
}

impl Files {
    /// Creates a store for the cores that `wakers` wake. Files are written on the processors on
    /// which the calling thread may run.
    pub(crate) fn new(fs: Arc<dyn FileSystem>, wakers: Vec<Waker>) -> Self {
        Self { fs, wakers, processors: topology::processors(), thread: Mutex::default() }
    }
}

impl Store for Files {
    fn begin(
        &self,
        order: SnapshotOrder,
        saves: &Arc<Saves>,
    ) -> Result<Vec<Box<dyn Outlet>>, String> {
        let (sender, parcels) = channel();
        let is_gone = Arc::new(AtomicBool::new(false));
        let in_flight: Vec<Arc<AtomicUsize>> = self.wakers.iter().map(|_| Arc::default()).collect();
        let outlet = |core: usize| {
            let (in_flight, is_gone) = (Arc::clone(&in_flight[core]), Arc::clone(&is_gone));
            let sender = sender.clone();
            Box::new(Lane { core, sender, in_flight, is_gone, has_ended: false }) as Box<dyn Outlet>
        };
        let outlets = (0..self.wakers.len()).map(outlet).collect();
        let saver = Saver {
            fs: Arc::clone(&self.fs),
            parcels,
            aside: self.wakers.iter().map(|_| VecDeque::new()).collect(),
            in_flight: in_flight.clone(),
            wakers: self.wakers.clone(),
            saves: Arc::clone(saves),
            open: None,
            database: None,
            announced: BTreeSet::new(),
            writer: Writer::new(),
            head: Vec::new(),
            facts: Facts::default(),
            unsynced: 0,
            sync_bytes: order.sync_bytes.unwrap_or(u64::MAX),
            order,
        };
        let builder = std::thread::Builder::new().name("saver".into());
        let processors = self.processors.clone();
        let spawned = builder.spawn(move || {
            if let Err(error) = topology::spread_thread(&processors) {
                tracing::warn!(
                    "cannot pin the snapshot thread, so it may share core 0's processor: {error}"
                );
            }
            saver.run(&is_gone);
        });
        let thread = spawned.map_err(|error| format!("cannot start a thread: {error}"))?;
        *self.thread.lock().expect("no holder panics") = Some((thread, sender));
        Ok(outlets)
    }

    fn finish(&self) {
        let Some((thread, sender)) = self.thread.lock().expect("no holder panics").take() else {
            return;
        };
        // Ends the thread explicitly: an outlet inside a message that no core handles is never
        // dropped.
        let _ = sender.send(Parcel::GivenUp); // The thread may have ended already.
        if thread.join().is_err() {
            tracing::error!("the snapshot thread panicked");
        }
    }
}

/// A message from a core to the thread.
enum Parcel {
    Chunk(usize, Chunk),
    /// The core has sent its last chunk.
    End,
    /// The core has aborted its part.
    GivenUp,
}

/// The outlet of one core.
struct Lane {
    core: usize,
    sender: Sender<Parcel>,
    /// The number of the core's chunks that were not written yet.
    in_flight: Arc<AtomicUsize>,
    /// True if the thread has ended.
    is_gone: Arc<AtomicBool>,
    has_ended: bool,
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.sender.send(Parcel::GivenUp);
        }
    }
}

impl Outlet for Lane {
    fn room(&self) -> Room {
        if self.is_gone.load(Ordering::Acquire) {
            return Room::Gone;
        }
        let is_full = self.in_flight.load(Ordering::Acquire) >= CHUNKS_MAX;
        if is_full { Room::Later } else { Room::Some }
    }

    fn send(&mut self, chunk: Chunk) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        // If the thread has ended, `room` says so.
        let _ = self.sender.send(Parcel::Chunk(self.core, chunk));
    }

    fn end(mut self: Box<Self>) {
        self.has_ended = true;
        let _ = self.sender.send(Parcel::End);
    }
}

/// The figures of a file, for the log.
#[derive(Clone, Copy, Default)]
struct Facts {
    bytes: u64,
    keys: u64,
    is_private: bool,
}

/// The reason why a file was not completed.
enum Stop {
    Cancelled,
    Io(io::Error),
    /// The file has its final name, but the folder was not synced.
    Unsynced(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The state of the thread.
struct Saver {
    fs: Arc<dyn FileSystem>,
    parcels: Receiver<Parcel>,
    /// By core: chunks that wait because the value of another core is not complete in the file.
    aside: Vec<VecDeque<Chunk>>,
    in_flight: Vec<Arc<AtomicUsize>>,
    wakers: Vec<Waker>,
    saves: Arc<Saves>,
    order: SnapshotOrder,
    /// The core whose last value continues in its next chunk.
    open: Option<usize>,
    /// The database of the last chunk, and all databases whose sizes were written.
    database: Option<u32>,
    announced: BTreeSet<u32>,
    writer: Writer,
    /// Encoded bytes that must be written before the next chunk.
    head: Vec<u8>,
    facts: Facts,
    /// The number of bytes written since the last sync, and the number at which the next sync is
    /// due.
    unsynced: u64,
    sync_bytes: u64,
}

impl Saver {
    fn run(mut self, is_gone: &AtomicBool) {
        let outcome = self.save();
        if let Outcome::Failed(why) = &outcome {
            tracing::error!("saving failed: {why}");
        }
        is_gone.store(true, Ordering::Release);
        self.saves.end(outcome);
        self.wakers.iter().for_each(Waker::wake);
    }

    fn save(&mut self) -> Outcome {
        let begun = std::time::Instant::now();
        let place = self.order.folder.join(&self.order.name);
        let temp = self.order.folder.join(format!("temp-{}.rdb", std::process::id()));
        let written = self.write(&temp).and_then(|()| self.put_in_place(&temp, &place));
        match written {
            Ok(()) => {
                self.log(begun.elapsed().as_secs_f64(), &place);
                Outcome::Saved { bytes: self.facts.bytes }
            }
            Err(stop) => {
                let _ = self.fs.remove(&temp); // The file may not exist.
                let place = place.display();
                match stop {
                    Stop::Cancelled => Outcome::Cancelled,
                    Stop::Io(error) => {
                        Outcome::Failed(format!("{place}: {error}; the previous file is kept"))
                    }
                    Stop::Unsynced(error) => Outcome::Failed(format!(
                        "{place} is new and complete, but its folder was not synced: {error}; a loss of power may bring the previous file back"
                    )),
                }
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn log(&self, seconds: f64, place: &Path) {
        let Facts { bytes, keys, is_private } = self.facts;
        let mb = bytes as f64 / 1e6;
        tracing::info!("saved {keys} keys in {mb:.1} MB to {} in {seconds:.3} s", place.display());
        if is_private {
            tracing::warn!(
                "the file contains JSON, filters, sketches or deadlines of set members: only Darter can load it"
            );
        } else if self.order.version > VERSION_WRITTEN {
            tracing::warn!(
                "the file contains deadlines of hash fields: Redis 7.4 or later can load it"
            );
        }
    }

    fn write(&mut self, temp: &Path) -> Result<(), Stop> {
        let mut file = Disk::create(&*self.fs, temp)?;
        self.begin(&mut file)?;
        let mut left = self.wakers.len();
        while left > 0 {
            let parcel = self.parcels.recv();
            if self.saves.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            match parcel {
                Ok(Parcel::Chunk(core, chunk)) => self.take_in(core, chunk, &mut file)?,
                Ok(Parcel::End) => left -= 1,
                Ok(Parcel::GivenUp) | Err(_) => {
                    return Err(Stop::Io(io::Error::other("a core aborted the snapshot")));
                }
            }
        }
        if let Some(core) = self.open {
            let why = format!("core {core} ended within a value"); // Only a bug can cause this.
            return Err(Stop::Io(io::Error::other(why)));
        }
        self.end(&mut file)?;
        Ok(file.finish()?)
    }

    /// Renames a synced file to its final name. Readers see either the complete old file or the
    /// complete new one.
    fn put_in_place(&self, temp: &Path, place: &Path) -> Result<(), Stop> {
        self.fs.rename(temp, place)?;
        self.fs.sync_folder(&self.order.folder).map_err(Stop::Unsynced)
    }

    fn begin(&mut self, file: &mut Disk) -> io::Result<()> {
        let Self { writer, head, order, .. } = self;
        let seconds = (order.cut_ms / 1_000).to_string();
        writer.start(order.version, head);
        writer.aux(b"redis-ver", REDIS_VERSION, head);
        writer.aux(b"redis-bits", usize::BITS.to_string().as_bytes(), head);
        writer.aux(b"ctime", seconds.as_bytes(), head);
        writer.aux(b"used-mem", order.used_bytes.to_string().as_bytes(), head);
        writer.aux(b"aof-base", b"0", head);
        self.write_head(file)?;
        self.write_libraries(file)
    }

    /// Writes the function libraries, before all keys, as Redis does.
    fn write_libraries(&mut self, file: &mut Disk) -> io::Result<()> {
        let libraries = Arc::clone(&self.order.libraries);
        let mut packer = self.order.packs.then(Packer::default);
        for library in libraries.libraries() {
            let start = self.head.len();
            let rest = begin_library(&mut self.head, &library.source.text, packer.as_mut());
            self.head.extend_from_slice(rest);
            self.writer.follow(&self.head[start..]);
            self.write_head(file)?;
        }
        Ok(())
    }

    fn end(&mut self, file: &mut Disk) -> io::Result<()> {
        if self.order.sums {
            self.writer.eof(&mut self.head);
        } else {
            self.writer.eof_unsummed(&mut self.head);
        }
        self.write_head(file)
    }

    /// Writes a chunk, or keeps it while the value of another core is not complete.
    fn take_in(&mut self, core: usize, chunk: Chunk, file: &mut Disk) -> io::Result<()> {
        if self.open.is_some_and(|open| open != core) {
            self.aside[core].push_back(chunk);
            return Ok(());
        }
        self.put(core, chunk, file)?;
        while self.open.is_none() {
            let Some(core) = self.aside.iter().position(|chunks| !chunks.is_empty()) else { break };
            while let Some(chunk) = self.aside[core].pop_front() {
                self.put(core, chunk, file)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, core: usize, chunk: Chunk, file: &mut Disk) -> io::Result<()> {
        if self.open.is_none() && self.database != Some(chunk.database) {
            self.name_database(chunk.database, file)?;
        }
        self.open = chunk.is_open.then_some(core);
        self.facts.keys += chunk.keys;
        self.facts.is_private |= chunk.is_private;
        if self.order.sums {
            self.writer.follow(&chunk.bytes);
        }
        file.write_all(&chunk.bytes)?;
        self.note_written(chunk.bytes.len() as u64, file)?;
        if self.in_flight[core].fetch_sub(1, Ordering::AcqRel) == CHUNKS_MAX {
            self.wakers[core].wake();
        }
        Ok(())
    }

    fn name_database(&mut self, database: u32, file: &mut Disk) -> io::Result<()> {
        self.writer.select_db(database, &mut self.head);
        if self.announced.insert(database) {
            let (keys, expires) = self.order.sizes.get(&database).copied().unwrap_or_default();
            self.writer.resize_db(keys, expires, &mut self.head);
        }
        self.database = Some(database);
        self.write_head(file)
    }

    fn write_head(&mut self, file: &mut Disk) -> io::Result<()> {
        file.write_all(&self.head)?;
        let bytes = self.head.len() as u64;
        self.head.clear();
        self.note_written(bytes, file)
    }

    /// Syncs the file when enough was written since the last sync, so that the sync at its end is
    /// short. If the page cache is bypassed, few syncs are needed: for the cache of the disk, and
    /// for file systems that only pretend to bypass the page cache.
    fn note_written(&mut self, bytes: u64, file: &mut Disk) -> io::Result<()> {
        self.facts.bytes += bytes;
        self.unsynced += bytes;
        let seldom = if file.is_direct() { DIRECT_SYNCS } else { 1 };
        if self.unsynced >= self.sync_bytes.saturating_mul(seldom) {
            self.unsynced = 0;
            let begun = std::time::Instant::now();
            file.sync()?;
            let most = self.order.sync_bytes.unwrap_or(u64::MAX);
            self.sync_bytes = sync_bytes(self.sync_bytes, most, begun.elapsed());
        }
        Ok(())
    }
}

/// The number of bytes to write before the next sync, if the last sync, after `bytes`, took the
/// time `took`. During a sync the cores wait for room, and writers may wait for the cores. So a
/// slow disk is synced after fewer bytes.
fn sync_bytes(bytes: u64, most: u64, took: Duration) -> u64 {
    /// The minimal number of bytes.
    const LEAST: u64 = 256 << 10;
    /// A sync that took longer had too many bytes; one that took less than a quarter of this had
    /// too few.
    const LONG: Duration = Duration::from_millis(100);
    if took > LONG {
        (bytes / 2).max(LEAST).min(most)
    } else if took < LONG / 4 {
        bytes.saturating_mul(2).min(most)
    } else {
        bytes
    }
}

/// The folder in which snapshots are written: the working directory.
pub(crate) fn folder() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_runtime::fs::{Call, Fault, Faults, Kernel, Simulated};
    use std::collections::BTreeMap;
    use std::fs;

    /// The processors on which each thread named `saver` may run, read from /proc.
    fn processors_of_savers() -> Vec<String> {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let read = |task: &fs::DirEntry, file: &str| {
            fs::read_to_string(task.path().join(file)).unwrap_or_default()
        };
        let savers = tasks.filter(|task| read(task, "comm").trim() == "saver");
        let allowed = savers.filter_map(|task| {
            let status = read(&task, "status");
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            line.map(|list| list.trim().to_owned())
        });
        allowed.collect()
    }

    fn order(folder: &Path) -> SnapshotOrder {
        SnapshotOrder {
            purpose: crate::saving::Purpose::Dump,
            folder: folder.to_owned(),
            name: "dump.rdb".to_owned(),
            version: 10,
            libraries: Arc::default(),
            packs: true,
            sizes: BTreeMap::new(),
            cut_ms: 0,
            last_records: vec![0],
            used_bytes: 0,
            sums: false,
            sync_bytes: None,
        }
    }

    #[test] // The thread is started by a core's thread, which is pinned.
    fn the_saver_thread_may_use_all_processors_of_the_process() {
        let everywhere = fs::read_to_string("/proc/thread-self/status").unwrap();
        let files = Files::new(Arc::new(Kernel), vec![Waker::new().unwrap()]);
        let saves = Arc::new(Saves::new(Box::new(super::super::NoFiles), 0));
        let folder = std::env::temp_dir().join(format!("darter-saver-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let order = order(&folder);
        topology::pin_thread(files.processors[0]).unwrap();
        let outlets = files.begin(order, &saves).unwrap();
        let is_everywhere =
            |list: &String| everywhere.contains(&format!("Cpus_allowed_list:\t{list}\n"));
        let begun = std::time::Instant::now();
        while !processors_of_savers().iter().any(is_everywhere) {
            assert!(begun.elapsed().as_secs() < 10, "{:?}", processors_of_savers());
            std::thread::yield_now();
        }
        drop(outlets);
        files.finish();
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Saves an empty snapshot over the file `old`; the first call of this kind fails with EIO.
    /// Returns the outcome, and the names and the length of the file afterwards.
    fn save_with_failing(call: Call) -> (Outcome, Vec<std::ffi::OsString>, usize) {
        let faults = Arc::new(Faults::default());
        let disk = Simulated::new(0, 1 << 20, Arc::clone(&faults));
        let (root, place) = (Path::new(""), Path::new("dump.rdb"));
        darter_runtime::fs::write(&disk, place, b"old").unwrap();
        faults.plan(Some(call), 1, Fault::Error(5));
        let files = Files::new(Arc::new(disk.clone()), vec![Waker::new().unwrap()]);
        let saves = Arc::new(Saves::new(Box::new(super::super::NoFiles), 0));
        files.begin(order(root), &saves).unwrap().into_iter().for_each(Outlet::end);
        files.thread.lock().unwrap().take().unwrap().0.join().unwrap();
        let length = darter_runtime::fs::read(&disk, place).unwrap().len();
        (saves.take_outcome().unwrap(), disk.list(root).unwrap(), length)
    }

    #[test]
    fn a_failure_says_which_file_is_in_place() {
        for call in [Call::Open, Call::Write, Call::Sync, Call::Rename] {
            let (outcome, names, length) = save_with_failing(call);
            let Outcome::Failed(why) = outcome else { panic!("{call:?}: {outcome:?}") };
            assert!(why.ends_with("(os error 5); the previous file is kept"), "{call:?}: {why}");
            assert_eq!((names.len(), length), (1, 3), "{call:?}: {names:?}");
        }
        let (outcome, names, length) = save_with_failing(Call::SyncFolder);
        let Outcome::Failed(why) = outcome else { panic!("{outcome:?}") };
        assert!(why.starts_with("dump.rdb is new and complete, but"), "{why}");
        assert!(names.len() == 1 && length > 9, "{names:?}, {length} bytes");
    }

    #[test] // The simulated disk writes 12 MB/s, and then 1 000 MB/s.
    fn a_slow_disk_is_synced_after_fewer_bytes() {
        const MOST: u64 = 8 << 20;
        let after = |bytes, rate: u64, syncs: u32| {
            let took = |bytes: u64| Duration::from_micros(bytes * 1_000_000 / rate);
            (0..syncs).fold(bytes, |bytes, _| sync_bytes(bytes, MOST, took(bytes)))
        };
        assert_eq!(after(MOST, 12_000_000, 10), 1 << 20);
        assert_eq!(after(1 << 20, 1_000_000_000, 10), MOST);
        assert_eq!(after(MOST, 1_000, 10), 256 << 10);
    }
}
