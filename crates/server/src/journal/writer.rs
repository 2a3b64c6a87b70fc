//! The files of the journal: batches are appended to an increment.
//!
//! A file is filled with zeros ahead of its end, because a write over them changes no metadata: its
//! sync is one flush, and no write waits for a sync that is running. The zeros are cut off when the
//! file is closed; a reader takes them for the end.
//!
//! A file that failed is not used again: after a failed sync nobody knows what it contains.

use super::Piece;
use super::merge::Ordered;
use super::ring::Point;
use darter_persist::aof::annotation::{Annotation, Checksum, Head, LINE_MAX_BYTES};
use darter_runtime::fs::{self, File, FileSystem, Mode};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

/// Zeros are written while fewer than this many bytes of them are ahead.
const ZEROS_AHEAD: u64 = if cfg!(test) { 4 << 10 } else { 4 << 20 };
/// The zeros that are written at a time.
const ZEROS_AT_ONCE: usize = if cfg!(test) { 512 } else { 256 << 10 };

/// The most pieces that are written by one call.
const PIECES_AT_ONCE: usize = 512;

/// A file to which batches are appended.
pub(super) struct Increment {
    file: Box<dyn File>,
    /// Opened before the first write, for syncs that run beside writes: the system tells an error
    /// once to each open file.
    synced: Arc<dyn File>,
    /// The end of the last batch.
    at: u64,
    /// The end of the zeros.
    zeros_to: u64,
    zeros: Box<[u8]>,
    /// Its number in the manifest.
    pub(super) sequence: i64,
}

impl Increment {
    /// Creates a file. One of this name that the manifest does not have is left from an earlier
    /// process, and is replaced.
    pub(super) fn create(fs: &dyn FileSystem, path: &Path, sequence: i64) -> io::Result<Self> {
        let file = fs.open(path, Mode::Create)?;
        let synced = Arc::from(fs.open(path, Mode::Write)?);
        file.sync()?;
        let zeros = vec![0; ZEROS_AT_ONCE].into();
        Ok(Self { file, synced, at: 0, zeros_to: 0, zeros, sequence })
    }

    /// Opens the file of a process that was killed, to append one batch at `at`.
    pub(super) fn reopen(
        fs: &dyn FileSystem,
        path: &Path,
        sequence: i64,
        at: u64,
    ) -> io::Result<Self> {
        let file = fs.open(path, Mode::Write)?;
        let synced = Arc::from(fs.open(path, Mode::Write)?);
        Ok(Self { file, synced, at, zeros_to: u64::MAX, zeros: Box::default(), sequence })
    }

    /// Writes a portion of zeros ahead of the end, if there are too few. If that fails, no more are
    /// written.
    pub(super) fn fill(&mut self) {
        self.zeros_to = self.zeros_to.max(self.at);
        if self.zeros_to - self.at >= ZEROS_AHEAD {
            return;
        }
        let zeros = fs::write_all_at(&*self.file, &self.zeros, self.zeros_to);
        self.zeros_to = match zeros {
            Ok(()) => self.zeros_to + ZEROS_AT_ONCE as u64,
            Err(_) => u64::MAX,
        };
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// The place of the next batch, and the state of the stream there.
    pub(super) fn point(&self, stream: &Stream) -> Point {
        Point { stream: *stream, file: self.sequence, at: self.at }
    }

    /// The second open file.
    pub(super) fn to_sync(&self) -> Arc<dyn File> {
        Arc::clone(&self.synced)
    }

    /// The bytes of the file without zeros.
    pub(super) fn bytes(&self) -> u64 {
        self.at
    }

    /// Cuts the zeros off, and syncs.
    pub(super) fn close(self) -> io::Result<()> {
        self.file.set_length(self.at)?;
        self.file.sync()
    }

    fn append(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.at = write_all(&*self.file, slices, self.at)?;
        Ok(())
    }
}

/// Writes all slices from `at` on. Returns the position after them.
fn write_all(file: &dyn File, mut slices: &mut [IoSlice<'_>], mut at: u64) -> io::Result<u64> {
    IoSlice::advance_slices(&mut slices, 0); // Skips those that are empty.
    while !slices.is_empty() {
        let most = slices.len().min(PIECES_AT_ONCE);
        match file.write_at(&slices[..most], at)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                at += written as u64;
                IoSlice::advance_slices(&mut slices, written);
            }
        }
    }
    Ok(at)
}

/// The numbers that the lines of batches continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) run: u64,
    /// The number of the last batch.
    pub(super) batch: u64,
    /// Bytes of all batches.
    pub(super) offset: u64,
    /// The offset up to which the batches are on the disk.
    pub(super) synced: u64,
    pub(super) previous: u32,
    pub(super) unix_ms: u64,
}

impl Stream {
    /// The state after a batch that follows this state.
    pub(super) fn after(self, batch: &Annotation) -> Self {
        let Head { batch: number, unix_ms, .. } = batch.head;
        Self { batch: number, offset: batch.end(), previous: batch.link(), unix_ms, ..self }
    }

    /// Begins a file with an empty batch, and syncs it. So a file whose first commands are torn is
    /// known as one with batches (docs/formats/aof.md).
    pub(super) fn begin(&mut self, file: &mut Increment, unix_ms: u64) -> io::Result<()> {
        self.append(file, &Ordered::default(), unix_ms)?;
        file.sync()
    }

    /// Appends a batch to a file.
    pub(super) fn append(
        &mut self,
        to: &mut Increment,
        batch: &Ordered,
        unix_ms: u64,
    ) -> io::Result<()> {
        self.batch += 1;
        self.unix_ms = self.unix_ms.max(unix_ms);
        let values: u64 = batch.pieces.iter().map(Piece::value_bytes).sum();
        let head = Head {
            run: self.run,
            batch: self.batch,
            offset: self.offset,
            bytes: batch.bytes as u64 + values,
            stable: self.synced,
            unix_ms: self.unix_ms,
            previous: self.previous,
        };
        let write = if values == 0 { write_at_once } else { write_long };
        let link = write(to, batch, head)?;
        self.previous = link;
        self.offset += head.bytes;
        Ok(())
    }
}

/// Writes a batch without values by one call.
fn write_at_once(to: &mut Increment, batch: &Ordered, head: Head) -> io::Result<u32> {
    let parts = || batch.pieces.iter().filter_map(Piece::plain);
    let annotation = head.seal(parts());
    let mut line = Vec::with_capacity(LINE_MAX_BYTES);
    annotation.write(&mut line);
    let mut slices: Vec<IoSlice<'_>> =
        std::iter::once(&line[..]).chain(parts()).map(IoSlice::new).collect();
    to.append(&mut slices)?;
    Ok(annotation.link())
}

/// Writes a batch with values, which are encoded in portions; its line comes last.
fn write_long(to: &mut Increment, batch: &Ordered, head: Head) -> io::Result<u32> {
    let line_at = to.at;
    let mut line = Vec::with_capacity(LINE_MAX_BYTES);
    Annotation { head, sum: 0 }.write(&mut line);
    to.at += line.len() as u64;
    let mut sum = Checksum::new(&head);
    for piece in &batch.pieces {
        piece.each_part(&mut |part| {
            sum.update(part);
            to.append(&mut [IoSlice::new(part)])
        })?;
    }
    let annotation = Annotation { head, sum: sum.value() };
    line.clear();
    annotation.write(&mut line);
    write_all(&*to.file, &mut [IoSlice::new(&line)], line_at)?;
    Ok(annotation.link())
}
