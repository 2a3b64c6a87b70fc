//! Loads an append-only folder: finds its files, verifies them, deals their commands to the cores,
//! and cuts a torn end.
//!
//! ```text
//! folder ──plan──► JournalFiles ──► base: Loader (RDB), or commands ──► increment ──► increment
//!                  (opened)            check and deal, block by block; cut; wait for the cores
//! ```
//! A batch is verified before its first command is dealt, and so is a transaction: so a torn end
//! leaves nothing behind. If a file turns out to be damaged, or a command is refused, the commands
//! before it have run; but the process ends, and nothing was served. Files are synced before they
//! are read, so that nothing is loaded that a loss of power would take back.
//!
//! Not here: the formats (`persist::aof`), and running the commands (`replay`).

use super::Then;
use super::commands::{Deliveries, PlaceOf, ReplayDelivery};
use super::dealer::{DealError, Dealer};
use super::{Cause, Progress, READ, TOTAL};
use crate::journal::Found;
use darter_persist::aof::annotation::Annotation;
use darter_persist::aof::check::{Checked, Checker, Fault, Search, Verdict};
use darter_persist::aof::manifest::{self, Listed, Manifest};
use darter_runtime::clock;
use darter_runtime::fs::{self, File, FileSystem, Mode};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of bytes read at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// The names of the folder and of its files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    /// `appenddirname`.
    pub(crate) folder: &'a str,
    /// `appendfilename`.
    pub(crate) file: &'a str,
}

/// A file of the journal.
struct JournalFile {
    name: Vec<u8>,
    file: Box<dyn File>,
    bytes: u64,
    /// The offset at which commands begin, after an RDB file.
    commands_from: u64,
}

impl JournalFile {
    fn shown(&self) -> String {
        self.name.escape_ascii().to_string()
    }
}

/// An RDB file, opened.
pub(super) struct RdbFile {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn File>,
    pub(super) bytes: u64,
}

impl RdbFile {
    pub(super) fn open(fs: &dyn FileSystem, path: PathBuf) -> io::Result<Self> {
        let file = fs.open(&path, Mode::Read)?;
        let bytes = file.length()?;
        Ok(Self { path, file, bytes })
    }
}

/// The files of an append-only folder, opened.
pub(crate) struct JournalFiles {
    fs: Arc<dyn FileSystem>,
    folder: PathBuf,
    manifest: Manifest,
    /// The base, if there is one, then the increments.
    files: Vec<JournalFile>,
    has_base: bool,
    /// The setting `aof-load-truncated`.
    cuts: bool,
}

/// The sentence that ends the start.
type Refused = String;

/// Finds the files of an append-only folder. Moves a single file of Redis 6 into the folder, as
/// Redis 7 does. Returns no files if there is no journal.
///
/// Errors: the folder or a file cannot be read, a file is missing, or the manifest is.
pub(crate) fn plan(
    fs: &Arc<dyn FileSystem>,
    names: Names<'_>,
    cuts: bool,
) -> Result<JournalFiles, Refused> {
    let folder = PathBuf::from(names.folder);
    let listed = match fs.list(&folder) {
        Ok(listed) => Some(listed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(format!(
                "Can't open or create append-only dir {}: {}",
                names.folder,
                text_of(&error)
            ));
        }
    };
    let in_folder: Vec<Vec<u8>> =
        listed.iter().flatten().map(|name| name.as_encoded_bytes().to_vec()).collect();
    let manifest_name = manifest::name(names.file);
    let has_manifest = in_folder.iter().any(|name| *name == manifest_name.as_bytes());
    let mut manifest = Manifest::default();
    if has_manifest {
        let path = folder.join(&manifest_name);
        let bytes = fs::read(&**fs, &path)
            .map_err(|error| format!("cannot read {}: {}", path.display(), text_of(&error)))?;
        manifest = Manifest::parse(&bytes).map_err(|error| {
            format!("*** FATAL AOF MANIFEST FILE ERROR *** {}: {error}", path.display())
        })?;
    } else if let Some(name) = in_folder.iter().find(|name| {
        is_of_journal(name, names.file)
            && !is_begun_only(&**fs, &folder.join(OsStr::from_bytes(name)))
    }) {
        return Err(format!(
            "the folder {} has append-only files ({}), but no manifest: restore {manifest_name}, \
             or move the files away to start without them",
            names.folder,
            name.escape_ascii()
        ));
    }
    if is_single_file(&**fs, names, &manifest, &in_folder)? {
        manifest = upgrade(&**fs, names, &folder, listed.is_some())?;
    }
    let mut files = JournalFiles {
        fs: Arc::clone(fs),
        folder,
        manifest,
        files: Vec::new(),
        has_base: false,
        cuts,
    };
    files.open()?;
    Ok(files)
}

/// True for a name that a base or an increment may have.
fn is_of_journal(name: &[u8], filename: &str) -> bool {
    let Some(rest) = name.strip_prefix(filename.as_bytes()) else { return false };
    rest.is_empty()
        || [&b".base.rdb"[..], b".base.aof", b".incr.aof"].iter().any(|end| rest.ends_with(end))
}

/// True for an increment without commands, which a server leaves that is killed during its first
/// start: zeros, perhaps after the line of an empty batch. An error reads as false.
fn is_begun_only(fs: &dyn FileSystem, path: &Path) -> bool {
    const MOST_BYTES: u64 = 16 << 20; // More zeros are never written ahead.
    let is_short = fs
        .open(path, Mode::Read)
        .and_then(|file| file.length())
        .is_ok_and(|bytes| bytes <= MOST_BYTES);
    let Some(bytes) = is_short.then(|| fs::read(fs, path).ok()).flatten() else { return false };
    let line = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let is_empty_batch = Annotation::parse(&bytes[..line]).is_ok_and(|batch| batch.head.bytes == 0);
    (line == 0 || is_empty_batch) && bytes[line..].iter().all(|byte| *byte == 0)
}

/// True if a single append-only file, as Redis 6 writes it, must be moved into the folder.
fn is_single_file(
    fs: &dyn FileSystem,
    names: Names<'_>,
    manifest: &Manifest,
    in_folder: &[Vec<u8>],
) -> Result<bool, Refused> {
    match fs.open(Path::new(names.file), Mode::Read) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(format!("cannot open {}: {}", names.file, text_of(&error))),
    }
    let is_the_file = |base: &Listed| base.name == names.file.as_bytes();
    let is_moved = in_folder.iter().any(|name| name == names.file.as_bytes());
    Ok(manifest.increments.is_empty()
        && match &manifest.base {
            None => true,
            Some(base) => is_the_file(base) && !is_moved, // A start was interrupted before the move.
        })
}

/// Makes the single file the base of the folder.
fn upgrade(
    fs: &dyn FileSystem,
    names: Names<'_>,
    folder: &Path,
    has_folder: bool,
) -> Result<Manifest, Refused> {
    let base = Listed { name: names.file.into(), sequence: 1 };
    let manifest = Manifest { base: Some(base), ..Manifest::default() };
    let result = || -> io::Result<()> {
        if !has_folder {
            fs.create_folder(folder)?;
            fs.sync_folder(Path::new(""))?;
        }
        let temporary = folder.join(manifest::temporary_name(names.file));
        let file = fs.open(&temporary, Mode::Create)?;
        fs::write_all_at(&*file, &manifest.to_bytes(), 0)?;
        file.sync()?;
        fs.rename(&temporary, &folder.join(manifest::name(names.file)))?;
        fs.sync_folder(folder)?;
        fs.rename(Path::new(names.file), &folder.join(names.file))?;
        fs.sync_folder(folder)?;
        fs.sync_folder(Path::new(""))
    };
    result().map_err(|error| {
        format!("cannot move {} into the folder {}: {}", names.file, names.folder, text_of(&error))
    })?;
    tracing::info!(
        "Successfully migrated an old-style AOF configuration ({}) into the AOF directory ({}).",
        names.file,
        names.folder
    );
    Ok(manifest)
}

/// The system's text, without the number.
fn text_of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl JournalFiles {
    fn open(&mut self) -> Result<(), Refused> {
        let Manifest { base, increments, .. } = &self.manifest;
        self.has_base = base.is_some();
        for listed in base.iter().chain(increments) {
            let name = listed.name.escape_ascii();
            let wrong = |error: io::Error| {
                let text = text_of(&error);
                format!("Unable to obtain the AOF file {name} length. stat: {text}")
            };
            let file = self.fs.open(&listed.path_in(&self.folder), Mode::Write).map_err(wrong)?;
            let bytes = file.length().map_err(wrong)?;
            // Bytes that only the page cache has could be lost after they were served.
            file.sync().map_err(wrong)?;
            let name = listed.name.clone();
            self.files.push(JournalFile { name, file, bytes, commands_from: 0 });
        }
        if !self.files.is_empty() {
            self.fs.sync_folder(&self.folder).map_err(|error| {
                format!("cannot sync the folder {}: {}", self.folder.display(), text_of(&error))
            })?;
        }
        Ok(())
    }

    /// True if there is no file.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The size of all files in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Opens the base again, if it begins with an RDB file.
    pub(super) fn rdb(&self) -> io::Result<Option<RdbFile>> {
        let Some(base) = self.manifest.base.as_ref().filter(|_| self.has_base) else {
            return Ok(None);
        };
        if !is_rdb(&*self.files[0].file)? {
            return Ok(None);
        }
        let path = base.path_in(&self.folder);
        Ok(Some(RdbFile::open(&*self.fs, path)?))
    }

    /// Sets the end of the RDB file in the base. The rest of the base is commands.
    pub(super) fn set_rdb_end(&mut self, offset: u64) {
        self.files[0].commands_from = offset;
    }

    /// The folder, if nothing has to be loaded.
    pub(crate) fn nothing_to_load(&self) -> Found {
        self.found(0, None, None)
    }

    fn found(&self, loaded: u64, last: Option<usize>, batch: Option<Annotation>) -> Found {
        let bases = usize::from(self.has_base);
        Found {
            folder: self.folder.clone(),
            manifest: self.manifest.clone(),
            base_bytes: if self.has_base { self.files[0].bytes } else { 0 },
            loaded_bytes: loaded,
            last_increment: last.and_then(|last| last.checked_sub(bases)),
            last_length: last.map_or(0, |last| self.files[last].bytes),
            last_batch: batch,
        }
    }

    /// Delivers the commands of all files to core 0, and waits until they have run.
    pub(super) fn replay(mut self, context: &mut ReplayContext<'_>) -> Result<Found, Cause> {
        let (mut batch, mut loaded, mut last) = (None, 0, None);
        for index in 0..self.files.len() {
            let begun_ns = clock::monotonic_nanos();
            let JournalFile { bytes, commands_from, .. } = self.files[index];
            let mut dealt = Dealt::new(commands_from);
            let checked = self.check(index, batch, &mut dealt, context)?;
            batch = checked.last;
            let (good, has_batches) = (checked.good, checked.has_batches);
            self.judge(index, checked)?;
            dealt.deal(&self.files[index], good, has_batches, context)?;
            dealt.end(&self.files[index])?;
            self.log_loaded(index, begun_ns);
            (loaded, last) = (loaded + good, Some(index));
            context.read_before += bytes;
        }
        let found = self.found(loaded, last, batch);
        if let Some(continued) = context.then.take() {
            let why = "the append-only files cannot be continued";
            continued(&found).map_err(|error| Cause::Aof(format!("{why}: {error}")))?;
        }
        for core in 0..context.deliveries.cores() {
            context.deliveries.send(core, ReplayDelivery::Finish)?;
        }
        Ok(found)
    }

    fn log_loaded(&self, index: usize, begun_ns: u64) {
        let seconds = (clock::monotonic_nanos() - begun_ns) as f64 / 1e9;
        let name = self.files[index].shown();
        let kind = if self.has_base && index == 0 { "base" } else { "incr" };
        tracing::info!("DB loaded from {kind} file {name}: {seconds:.3} seconds");
    }

    /// Verifies a file, and deals the commands that are good.
    fn check<'a>(
        &self,
        index: usize,
        before: Option<Annotation>,
        dealt: &mut Dealt<'a>,
        context: &mut ReplayContext<'a>,
    ) -> Result<Checked, Cause> {
        let from = self.files[index].commands_from;
        let mut checker = Checker::new(from, before);
        if index > 0
            && is_rdb(&*self.files[index].file).map_err(|error| self.io(index, 0, error))?
        {
            return Err(self.bad(index, "an increment must not be an RDB file"));
        }
        let (mut read, mut result) = (from, Ok(()));
        self.read(index, from, &mut |bytes| {
            checker.feed(bytes);
            read += bytes.len() as u64;
            let (good, has_batches) = (checker.good(), checker.has_batches());
            if good > dealt.until {
                result = dealt.deal(&self.files[index], good, has_batches, context);
            }
            context.report(read);
            result.is_ok() && !checker.is_done() && !context.is_cancelled()
        })?;
        result?;
        if context.is_cancelled() {
            return Err(Cause::Stopped);
        }
        Ok(checker.finish())
    }

    /// Cuts the file at its good length, or refuses it.
    fn judge(&mut self, index: usize, checked: Checked) -> Result<(), Cause> {
        let (good, bytes) = (checked.good, self.files[index].bytes);
        let name = self.files[index].shown();
        let Some((fault, offset, verdict)) = checked.fault else {
            if good < bytes {
                self.cut(index, good)?; // Zeros, which are space for later batches.
            }
            return Ok(());
        };
        let is_last = index + 1 == self.files.len();
        let is_torn = match verdict {
            Verdict::Torn => true,
            Verdict::Damaged => false,
            Verdict::Depends(search) => {
                if self.is_damaged(index, good, search)? {
                    let text = format!(
                        "{name} is damaged at offset {offset}: {fault}; a later batch says that \
                         these bytes were durable. {good} bytes before it are good"
                    );
                    return Err(Cause::Aof(text));
                }
                true
            }
        };
        if !is_torn {
            return Err(Cause::Aof(format!(
                "Bad file format reading the append only file {name}: make a backup of your AOF \
                 file, then use ./redis-check-aof --fix <filename.manifest> ({fault} at offset \
                 {offset})"
            )));
        }
        if !self.cuts {
            return Err(Cause::Aof(format!(
                "Unexpected end of file reading the append only file {name}. You can: 1) Make a \
                 backup of your AOF file, then use ./redis-check-aof --fix <filename.manifest>. 2) \
                 Alternatively you can set the 'aof-load-truncated' configuration option to yes \
                 and restart the server ({fault} at offset {offset})"
            )));
        }
        if !is_last && !checked.has_batches {
            return Err(Cause::Aof(format!(
                "Fatal error: the truncated file is not the last file: {name} ({fault} at offset \
                 {offset})"
            )));
        }
        self.log_cut(&name, (fault, offset), good, bytes);
        self.cut(index, good)?;
        for later in index + 1..self.files.len() {
            let shown = self.files[later].shown();
            tracing::warn!(
                "{shown} continues the torn file: cut from {} bytes to 0",
                self.files[later].bytes
            );
            self.cut(later, 0)?;
        }
        Ok(())
    }

    fn log_cut(&self, name: &str, (fault, offset): (Fault, u64), good: u64, bytes: u64) {
        if fault == Fault::OpenMulti {
            tracing::warn!("Revert incomplete MULTI/EXEC transaction in AOF file {name}");
        }
        tracing::warn!("!!! Warning: short read while loading the AOF file {name}!!!");
        tracing::warn!(
            "!!! Truncating the AOF {name} at offset {good} !!! ({fault} at offset {offset}; \
             {} of {bytes} bytes are cut)",
            bytes - good
        );
        tracing::warn!("AOF {name} loaded anyway because aof-load-truncated is enabled");
    }

    /// Cuts a file, and makes that durable before anything else is written.
    fn cut(&mut self, index: usize, bytes: u64) -> Result<(), Cause> {
        let file = &self.files[index].file;
        let done = file.set_length(bytes).and_then(|()| file.sync());
        done.map_err(|error| self.io(index, bytes, error))?;
        self.files[index].bytes = bytes;
        Ok(())
    }

    /// Searches the rest of a file, and all later files, for a batch that proves damage.
    fn is_damaged(&self, index: usize, good: u64, mut search: Search) -> Result<bool, Cause> {
        for at in index..self.files.len() {
            let from = if at == index { good } else { 0 };
            if at > index {
                search.next_file();
            }
            self.read(at, from, &mut |bytes| {
                search.feed(bytes);
                !search.is_damage()
            })?;
            if search.is_damage() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads a file from `offset` on, until `take` returns false.
    fn read(
        &self,
        index: usize,
        offset: u64,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Cause> {
        let (mut block, mut offset) = (vec![0; BLOCK_BYTES], offset);
        loop {
            let read = self.files[index].file.read_at(&mut block, offset);
            let len = read.map_err(|error| self.io(index, offset, error))?;
            if len == 0 || !take(&block[..len]) {
                return Ok(());
            }
            offset += len as u64;
        }
    }

    fn io(&self, index: usize, offset: u64, error: io::Error) -> Cause {
        self.bad(index, &format!("{} at offset {offset}", text_of(&error)))
    }

    fn bad(&self, index: usize, why: &str) -> Cause {
        Cause::Aof(format!("{}: {why}", self.files[index].shown()))
    }
}

/// True for a file that begins with an RDB file.
fn is_rdb(file: &dyn File) -> io::Result<bool> {
    let mut head = [0; 6];
    let filled = fs::read_up_to(file, &mut head, 0)?;
    Ok(darter_rdb::begins_file(&head[..filled]))
}

/// The parts of the loader that replaying needs.
pub(super) struct ReplayContext<'a> {
    pub(super) deliveries: &'a Deliveries,
    pub(super) place_of: &'a PlaceOf,
    /// The number of databases.
    pub(super) databases: usize,
    pub(super) progress: &'a Progress,
    pub(super) cancelled: &'a AtomicBool,
    /// The sum of the files before the current one, in bytes.
    pub(super) read_before: u64,
    /// Called before clients are served.
    pub(super) then: Option<Then>,
    /// Shows the progress: the number of bytes read from all files.
    pub(super) tick: &'a mut dyn FnMut(u64),
}

impl ReplayContext<'_> {
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn report(&mut self, offset: u64) {
        let read = self.read_before + offset;
        self.progress[READ]
            .store(read.min(self.progress[TOTAL].load(Ordering::Relaxed)), Ordering::Relaxed);
        (self.tick)(read);
    }
}

/// The part of a file whose commands were dealt to the cores.
struct Dealt<'a> {
    /// `None` until the first command.
    dealer: Option<Dealer<'a>>,
    /// The file offset up to which commands were dealt.
    until: u64,
    block: Vec<u8>,
}

impl<'a> Dealt<'a> {
    /// Nothing of a file, whose commands begin at `from`.
    fn new(from: u64) -> Self {
        Self { dealer: None, until: from, block: Vec::new() }
    }

    /// Deals the commands up to the file offset `end`, which were verified. They are read again:
    /// they were read a moment ago, so the system has them in memory.
    fn deal(
        &mut self,
        file: &JournalFile,
        end: u64,
        is_strict: bool,
        context: &ReplayContext<'a>,
    ) -> Result<(), Cause> {
        let dealer = match &mut self.dealer {
            Some(dealer) => dealer,
            place => {
                let ReplayContext { deliveries, place_of, databases, .. } = *context;
                place.insert(Dealer::begin(deliveries, place_of, databases, is_strict)?)
            }
        };
        let (mut filled, mut offset) = (0, self.until); // The block ends at the offset.
        while offset < end {
            if context.is_cancelled() {
                return Err(Cause::Stopped);
            }
            let wrong =
                |why: &str, at: u64| Cause::Aof(format!("{}: {why} at offset {at}", file.shown()));
            self.block.resize(BLOCK_BYTES, 0);
            let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
            let most = (BLOCK_BYTES - filled).min(left);
            let read = file.file.read_at(&mut self.block[filled..filled + most], offset);
            let len = read.map_err(|error| wrong(&text_of(&error), offset))?;
            if len == 0 {
                return Err(wrong("the file became shorter", offset));
            }
            let start = offset - filled as u64;
            (filled, offset) = (filled + len, offset + len as u64);
            let taken = dealer.take_in(&self.block[..filled], start, offset == end);
            let taken = taken.map_err(|error| match error {
                DealError::Malformed(error, at) => wrong(&error.to_string(), at),
                DealError::Other(cause) => cause.in_file(&file.shown()),
            })?;
            self.block.copy_within(taken..filled, 0);
            filled -= taken;
        }
        self.until = end;
        Ok(())
    }

    /// Waits until all commands have run.
    fn end(self, file: &JournalFile) -> Result<(), Cause> {
        let Some(dealer) = self.dealer else { return Ok(()) };
        let errors = dealer.end().map_err(|cause| cause.in_file(&file.shown()))?;
        if let Some((offset, text)) = errors.first {
            tracing::warn!(
                "{}: {} commands failed; the first, at offset {offset}: {text}",
                file.shown(),
                errors.count
            );
        }
        Ok(())
    }
}
