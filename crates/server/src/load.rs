//! Loads an RDB file at start.
//!
//! A separate thread reads and parses the file, because parsing cannot be divided into slices and
//! the cores must answer clients with LOADING meanwhile. The cores insert the keys, because only
//! the core that owns a shard may change it. The thread sends *portions* of about 128 KiB of packed
//! records. At most a few are in transit to each core, so the memory is bounded, and the thread
//! waits for the slowest core.
//!
//! ```text
//! file -> Reader -> Sorter -> portions -> Inbox of core 0 -> its shard
//!         (thread "loader")            -> Inbox of core 1 -> its shard     results ---> Handle
//! ```
//! A file is loaded completely, or the process ends. The last portion of each core is marked, and
//! is sent only after the checksum was verified. Until then no [`Inbox`] is finished, and no client
//! is served.
//!
//! - `sorter`: sorts the events of the file into portions, by the core that owns the key.
//! - `portion`: the packed records that the loader sends to a core.
//! - `inbox`: inserts the records of portions on a core, in slices.
//! - `journal`: finds, verifies and cuts the files of an append-only folder.
//! - `dealer`: deals their commands to the cores that own the keys.
//! - `commands`: these commands, on their way to the cores.
//! - `functions`: the function libraries, which this thread runs once and all cores share.
//! - `meter`: logs the progress.
//!
//! Not here: the file format (`persist`), and the core during loading (`thread`).

mod commands;
mod dealer;
mod functions;
mod inbox;
mod journal;
mod meter;
mod portion;
mod sorter;
#[cfg(test)]
mod tests;

pub(crate) use commands::{
    CommandPlace, Deliverer, FatalReply, PlaceOf, ReplayDelivery, ReplayErrors,
};
pub(crate) use inbox::Inbox;
pub(crate) use journal::{JournalFiles, Names, plan};

use crate::journal::Found;
use crate::libraries::Libraries;
use commands::Deliveries;
use darter_base::number;
use darter_families::TYPES;
use darter_keyspace::Types;
use darter_rdb::{Error, Event, Limits, Reader};
use darter_runtime::clock;
use darter_runtime::fs::{File, FileSystem};
use darter_runtime::net::Waker;
use functions::Loading;
use journal::{RdbFile, ReplayContext};
use meter::LoadMeter;
use portion::LoadPortion;
use sorter::Sorter;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

/// The progress of loading, for INFO. The constants below are the indexes.
pub(crate) type Progress = [AtomicU64; 6];
/// The number of bytes read from the file.
const READ: usize = 0;
/// The size of the file in bytes.
const TOTAL: usize = 1;
/// The number of keys loaded.
const KEYS: usize = 2;
/// The number of keys skipped because they had expired.
const EXPIRED: usize = 3;
/// The time at which loading began, in Unix seconds.
const BEGUN: usize = 4;
/// The `used_memory` of the server that wrote the file, as recorded in the file.
const USED: usize = 5;

/// The number of bytes read at a time: many for the disk, but few enough for the cache.
const BLOCK_BYTES: usize = 1 << 20;
/// A time before every deadline.
const NOTHING_IS_DEAD: u64 = 0;
/// The maximal number of portions in transit to one core.
const PORTIONS_MAX: usize = 8;

/// Counts the cores that have not loaded their part of the file yet.
pub(crate) struct Loaded {
    left: AtomicUsize,
    wakers: Vec<Waker>,
}

impl Loaded {
    /// Counts `cores` cores. At the end of loading, `wakers` are woken.
    pub(crate) fn new(cores: usize, wakers: Vec<Waker>) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(cores), wakers })
    }

    /// Counts a core as done. The last one wakes all cores.
    pub(crate) fn one_is_done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wakers.iter().for_each(Waker::wake);
        }
    }

    pub(crate) fn all_are_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }
}

/// A failure to load a file.
#[derive(Debug)]
pub(crate) struct LoadError {
    path: PathBuf,
    cause: Cause,
}

/// The causes of a [`LoadError`].
#[derive(Debug)]
enum Cause {
    /// The file could not be read at this offset.
    Io { offset: u64, error: io::Error },
    /// The bytes are not an RDB file, or not a complete one.
    Format(Error),
    /// A database number in the file exceeds the setting `databases`.
    Database { database: u32, databases: usize, offset: u64 },
    /// The file has a key twice.
    DuplicateKey { key: Vec<u8>, database: usize, offset: u64 },
    /// A value has a field or member twice, or an invalid one.
    BadItem { key: Vec<u8>, database: usize, offset: u64 },
    /// A function library was refused.
    Library { why: String, offset: u64 },
    /// An append-only file is damaged, or cannot be read. The text names the file.
    Aof(String),
    /// A command of an append-only file was refused.
    Reply(FatalReply),
    /// The server stopped before the file was loaded.
    Stopped,
}

impl Cause {
    /// Adds the name of the append-only file to a refused command.
    fn in_file(self, name: &str) -> Self {
        let Self::Reply(FatalReply(offset, text)) = self else { return self };
        let unknown = text.strip_prefix("ERR unknown command '");
        let text = match unknown.and_then(|rest| rest.split_once("', with args")) {
            Some((command, _)) => {
                format!("Unknown command '{command}' reading the append only file {name}")
            }
            None => format!("a command in the append only file {name} failed: {text}"),
        };
        Self::Aof(format!("{text} (at offset {offset})"))
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            Cause::Aof(text) => write!(f, "cannot load the append-only folder {path}: {text}"),
            cause => write!(f, "cannot load {path}: {cause}"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { offset, error } => write!(f, "{error} at offset {offset}"),
            Self::Format(error) => error.fmt(f),
            Self::Database { database, databases, offset } => write!(
                f,
                "database {database} exceeds the setting 'databases' ({databases}) at \
                 offset {offset}"
            ),
            Self::DuplicateKey { key, database, offset } => write!(
                f,
                "duplicate key '{}' in database {database} at offset {offset}",
                key.escape_ascii()
            ),
            Self::BadItem { key, database, offset } => write!(
                f,
                "duplicate or damaged field or member in key '{}' of database {database} \
                 at offset {offset}",
                key.escape_ascii()
            ),
            Self::Library { why, offset } => {
                write!(f, "invalid function library at offset {offset}: {why}")
            }
            Self::Aof(text) => f.write_str(text),
            Self::Reply(FatalReply(offset, text)) => write!(f, "{text} at offset {offset}"),
            Self::Stopped => write!(f, "the server was stopped while loading"),
        }
    }
}

/// The data to load.
pub(crate) enum Data {
    /// A snapshot.
    Rdb(PathBuf),
    /// An append-only folder. It has a file.
    Journal {
        /// Its files.
        files: JournalFiles,
        /// Its path.
        folder: PathBuf,
        /// Finds the places of commands.
        place_of: PlaceOf,
    },
}

/// The figures of a file that was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The number of keys loaded.
    keys: u64,
    /// The number of strings, fields, members and elements in the keys.
    entries: u64,
    /// The number of keys skipped because they had expired.
    expired: u64,
    /// The number of collections without entries, which Redis skips as well.
    empty: u64,
    /// The size of the file in bytes.
    bytes: u64,
    /// The duration of loading, in milliseconds.
    millis: u64,
}

impl fmt::Display for Summary {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { keys, entries, expired, empty, .. } = self;
        let (mb, seconds) = (self.bytes as f64 / 1e6, self.millis as f64 / 1e3);
        write!(
            f,
            "loaded {keys} keys with {entries} entries from {mb:.1} MB in {seconds:.3} s; skipped \
             {expired} expired and {empty} empty keys"
        )
    }
}

/// Continues a journal that was loaded. No client is served before it returns.
pub(crate) type Then = Box<dyn FnOnce(&Found) -> io::Result<()> + Send>;

/// The thread that loads the file.
pub(crate) struct Handle {
    thread: JoinHandle<Result<(Summary, Option<Found>), Cause>>,
    path: PathBuf,
    cancelled: Arc<AtomicBool>,
}

impl Handle {
    /// True if [`Handle::join`] would return at once.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Asks the thread to stop. [`Handle::join`] then reports that the server stopped. The cores
    /// must continue to call `step`, or drop their inboxes.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Waits until all cores have loaded their parts of the file. Also returns the append-only
    /// folder, if one was loaded.
    ///
    /// # Errors
    /// Errors: the file could not be read, is damaged or not supported, or the cores have stopped.
    /// The shards may contain a part of it, which must not be served.
    pub(crate) fn join(self) -> Result<(Summary, Option<Found>), LoadError> {
        let result = match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        result.map_err(|cause| LoadError { path: self.path, cause })
    }
}

/// A file that was opened, but not read yet.
pub(crate) struct Opened {
    loader: Loader,
    path: PathBuf,
}

impl Opened {
    /// Starts the thread that loads the file. After an append-only folder was loaded, `then` is
    /// called.
    ///
    /// # Errors
    /// Errors: the thread could not be started.
    pub(crate) fn begin(self, then: Option<Then>) -> io::Result<Handle> {
        let Self { mut loader, path } = self;
        loader.then = then;
        let cancelled = Arc::clone(&loader.cancelled);
        let builder = std::thread::Builder::new().name("loader".into());
        Ok(Handle { thread: builder.spawn(move || loader.run())?, path, cancelled })
    }
}

/// The server into which a file is loaded.
pub(crate) struct Onto {
    pub(crate) fs: Arc<dyn FileSystem>,
    /// The number of databases of each core.
    pub(crate) databases: usize,
    /// True if the checksum is verified: `rdbchecksum`.
    pub(crate) verifies: bool,
    /// The progress of loading, for INFO.
    pub(crate) progress: Arc<Progress>,
    /// The function libraries. They are empty before loading.
    pub(crate) libraries: Arc<Libraries>,
}

/// The cores' ends of loading.
pub(crate) struct Inboxes {
    /// An inbox for each core, in order.
    pub(crate) cores: Vec<Inbox>,
    /// The cores' ends of the commands of append-only files; empty without such files.
    pub(crate) commands: Vec<Deliverer>,
}

/// Opens `data`, to be loaded by the cores that `wakers` wake. Returns the file and the cores' ends.
///
/// # Errors
/// Errors: a file could not be opened.
pub(crate) fn open(data: Data, wakers: Vec<Waker>, onto: Onto) -> io::Result<(Inboxes, Opened)> {
    let Onto { fs, databases, verifies, progress, libraries } = onto;
    let cores = wakers.len();
    let (inboxes, lanes) = lanes(TYPES, wakers.clone());
    let (mut journal, mut commands) = (None, Vec::new());
    let (rdb, path, total, now) = match data {
        Data::Rdb(path) => {
            let rdb = RdbFile::open(&*fs, path.clone())?;
            let bytes = rdb.bytes;
            (Some(rdb), path, bytes, clock::unix_millis())
        }
        Data::Journal { files, folder, place_of } => {
            let (rdb, bytes) = (files.rdb()?, files.bytes());
            let (deliveries, deliverers) = commands::deliveries(wakers);
            let replay = JournalReplay { files, deliveries, place_of, databases };
            (journal, commands) = (Some(replay), deliverers);
            let path = rdb.as_ref().map_or(folder, |rdb| rdb.path.clone());
            // An expired key of a base may be changed by a later command.
            (rdb, path, bytes, NOTHING_IS_DEAD)
        }
    };
    progress[TOTAL].store(total, Ordering::Relaxed);
    progress[BEGUN].store(clock::unix_millis() / 1_000, Ordering::Relaxed);
    let size = rdb.as_ref().map_or(0, |rdb| rdb.bytes);
    let loader = Loader {
        file: rdb.map(|rdb| rdb.file),
        read: 0,
        reader: Reader::new(TYPES.kinds(), Limits::default())
            .with_size(size)
            .verifying(verifies)
            .with_blocks(),
        sorter: Sorter::new(cores, databases, now),
        lanes,
        journal,
        then: None,
        progress,
        libraries,
        cancelled: Arc::new(AtomicBool::new(false)),
    };
    Ok((Inboxes { cores: inboxes, commands }, Opened { loader, path }))
}

/// The result that a core reports at the end.
type Outcome = Result<(), Cause>;

/// The channels between the thread and the cores.
struct Lanes {
    cores: Vec<(SyncSender<LoadPortion>, Waker)>,
    outcomes: Receiver<Outcome>,
    spares: Receiver<LoadPortion>,
}

fn lanes(types: Types, wakers: Vec<Waker>) -> (Vec<Inbox>, Lanes) {
    let (reports, outcomes) = channel();
    let (returns, spares) = channel();
    let (mut inboxes, mut cores) = (Vec::new(), Vec::new());
    for waker in wakers {
        let (sender, portions) = sync_channel(PORTIONS_MAX);
        inboxes.push(Inbox::new(types, portions, reports.clone(), returns.clone()));
        cores.push((sender, waker));
    }
    (inboxes, Lanes { cores, outcomes, spares })
}

impl Lanes {
    /// Sends a portion to a core, and returns an empty one to fill. Waits while enough portions are
    /// in transit to that core.
    fn send(&self, core: usize, portion: LoadPortion) -> Result<LoadPortion, Cause> {
        let (sender, waker) = &self.cores[core];
        if sender.send(portion).is_err() {
            // The core has dropped its inbox: either it has failed and reported why, or it was
            // stopped.
            let why = self.outcomes.try_iter().find_map(Result::err);
            return Err(why.unwrap_or(Cause::Stopped));
        }
        waker.wake();
        Ok(self.spares.try_recv().unwrap_or_default())
    }

    /// Waits until every core has reported that it has loaded its part.
    fn wait(&self) -> Result<(), Cause> {
        for _ in &self.cores {
            self.outcomes.recv().unwrap_or(Err(Cause::Stopped))?;
        }
        Ok(())
    }
}

/// An append-only folder, and the way of its commands to the cores.
struct JournalReplay {
    files: JournalFiles,
    deliveries: Deliveries,
    place_of: PlaceOf,
    databases: usize,
}

/// The state of the thread that loads the file.
struct Loader {
    /// The RDB file. An append-only folder may have none.
    file: Option<Box<dyn File>>,
    /// The number of bytes read from the file.
    read: u64,
    reader: Reader,
    sorter: Sorter,
    lanes: Lanes,
    /// An append-only folder, which is replayed after its base.
    journal: Option<JournalReplay>,
    then: Option<Then>,
    progress: Arc<Progress>,
    libraries: Arc<Libraries>,
    cancelled: Arc<AtomicBool>,
}

impl Loader {
    fn run(mut self) -> Result<(Summary, Option<Found>), Cause> {
        let begun_ns = clock::monotonic_nanos();
        let mut meter = LoadMeter::start(begun_ns, self.progress[TOTAL].load(Ordering::Relaxed));
        let mut functions = Loading::default();
        if self.file.is_some() {
            let parsed = self.parse(&mut meter, &mut functions);
            meter.end();
            parsed?;
        }
        functions.finish(&self.libraries);
        self.sorter.finish(&mut |core, portion| self.lanes.send(core, portion))?;
        self.lanes.wait()?;
        self.report_progress();
        let found = self.replay(&mut meter)?;
        let millis = (clock::monotonic_nanos() - begun_ns) / 1_000_000;
        let bytes = found.as_ref().map_or(self.reader.offset(), |found| found.loaded_bytes);
        Ok((Summary { bytes, millis, ..self.sorter.summary() }, found))
    }

    /// Replays the commands of the append-only folder, if one is loaded.
    fn replay(&mut self, meter: &mut LoadMeter) -> Result<Option<Found>, Cause> {
        let Some(journal) = self.journal.take() else { return Ok(None) };
        let JournalReplay { mut files, deliveries, place_of, databases } = journal;
        if self.file.is_some() {
            files.set_rdb_end(self.reader.offset());
        }
        let summary = self.sorter.summary();
        let replayed = files.replay(&mut ReplayContext {
            deliveries: &deliveries,
            place_of: &place_of,
            databases,
            progress: &self.progress,
            cancelled: &self.cancelled,
            read_before: 0,
            then: self.then.take(),
            tick: &mut |bytes| meter.tick(clock::monotonic_nanos(), bytes, &summary),
        });
        meter.end();
        replayed.map(Some)
    }

    /// Reads the file to its end, where the checksum was verified.
    fn parse(&mut self, meter: &mut LoadMeter, functions: &mut Loading) -> Result<(), Cause> {
        while !self.reader.is_done() {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(Cause::Stopped);
            }
            self.fill()?;
            self.sort(functions)?;
            self.report_progress();
            meter.tick(clock::monotonic_nanos(), self.reader.offset(), &self.sorter.summary());
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<(), Cause> {
        let offset = self.reader.offset();
        let space = self.reader.space(BLOCK_BYTES);
        let file = self.file.as_ref().expect("an RDB file is parsed");
        let read = file.read_at(space, self.read);
        let len = read.map_err(|error| Cause::Io { offset, error })?;
        self.read += len as u64;
        if len == 0 {
            self.reader.finish();
        }
        self.reader.filled(len);
        Ok(())
    }

    fn sort(&mut self, functions: &mut Loading) -> Result<(), Cause> {
        let Self { reader, sorter, lanes, cancelled, progress, .. } = self;
        loop {
            let offset = reader.offset();
            match reader.next().map_err(Cause::Format)? {
                Some(Event::Function { code }) => functions.take_in(code, offset, cancelled)?,
                Some(event) => {
                    if let Event::Aux { key: b"used-mem", value } = event {
                        let bytes = number::parse_i64(value).unwrap_or(0);
                        progress[USED].store(bytes.unsigned_abs(), Ordering::Relaxed);
                    }
                    sorter
                        .take_in(event, offset, &mut |core, portion| lanes.send(core, portion))?;
                }
                None => return Ok(()),
            }
        }
    }

    fn report_progress(&self) {
        let summary = self.sorter.summary();
        self.progress[READ].store(self.reader.offset(), Ordering::Relaxed);
        self.progress[KEYS].store(summary.keys, Ordering::Relaxed);
        self.progress[EXPIRED].store(summary.expired, Ordering::Relaxed);
    }
}
