//! A position in a file that a server may be writing. Only whole batches are read, or whole commands
//! outside of transactions: the bytes after them may be incomplete.

use crate::commands::{Entry, Splitter};
use crate::files::named;
use crate::time;
use darter_persist::aof::annotation::{Annotation, Checksum, LINE_MAX_BYTES, TAG};
use darter_persist::aof::reader::Reader;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The number of bytes read at a time. A batch or a command may need more.
const BLOCK_BYTES: usize = 1 << 20;
/// The bytes of a command that are printed.
const KEPT_MAX: usize = 64 << 10;

/// The relation of the current file to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// The current file may still grow.
    NotYet,
    /// The later file is the next one.
    Directly,
    /// There were files between them.
    WithGap,
}

/// A position in a file.
#[derive(Debug)]
pub(super) struct Cursor {
    path: PathBuf,
    file: File,
    sequence: i64,
    offset: u64,
    /// The last batch.
    last: Option<Annotation>,
    unix_ms: Option<u64>,
}

impl Cursor {
    /// Opens a file at an offset, where a batch or a command begins.
    pub(super) fn open(path: &Path, sequence: i64, offset: u64) -> Result<Self, String> {
        let file = File::open(path).map_err(|error| named(path, error))?;
        Ok(Self { path: path.to_owned(), file, sequence, offset, last: None, unix_ms: None })
    }

    /// This position, with the time and the last batch of the cursor before.
    pub(super) fn after(self, before: &Self) -> Self {
        Self { unix_ms: before.unix_ms, last: before.last, ..self }
    }

    pub(super) fn sequence(&self) -> i64 {
        self.sequence
    }

    /// Passes complete commands to `take` as lines, until it returns false. Returns false if there
    /// are none yet.
    ///
    /// Errors: the file cannot be read, or its bytes are no append-only file; a sentence.
    pub(super) fn read(&mut self, take: &mut dyn FnMut(String) -> bool) -> Result<bool, String> {
        let mut block = self.block(BLOCK_BYTES)?;
        loop {
            let is_batch = block.starts_with(TAG);
            let end = if is_batch { self.batch_end(&block) } else { self.commands_end(&block)? };
            match end {
                Some(0) => return Ok(false),
                Some(end) => return self.print(&block[..end], take).map(|()| true),
                None => {
                    let before = block.len();
                    block = self.block(before * 2)?;
                    if block.len() == before {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Compares the position with the begin of a later file.
    pub(super) fn follows(&self, later: &Self) -> Result<Follows, String> {
        let begin = later.block(LINE_MAX_BYTES)?;
        let first = memchr::memchr(b'\n', &begin).map(|end| Annotation::parse(&begin[..=end]));
        let next = self.sequence.checked_add(1) == Some(later.sequence);
        let otherwise = if next { Follows::Directly } else { Follows::WithGap };
        Ok(match (&self.last, first) {
            // A server writes to a file only after it has ended the one before.
            (Some(_), None) => Follows::NotYet,
            (Some(last), Some(Ok(first))) if last.head.run == first.head.run => {
                let is_next = last.precedes(&first);
                match (is_next, next) {
                    (true, _) => Follows::Directly,
                    (false, true) => Follows::NotYet,
                    (false, false) => Follows::WithGap,
                }
            }
            _ => otherwise,
        })
    }

    /// At most `len` bytes from the position on.
    fn block(&self, len: usize) -> Result<Vec<u8>, String> {
        let (mut block, mut filled) = (vec![0; len], 0);
        while filled < len {
            let read = self.file.read_at(&mut block[filled..], self.offset + filled as u64);
            match read.map_err(|error| named(&self.path, error))? {
                0 => break,
                count => filled += count,
            }
        }
        block.truncate(filled);
        Ok(block)
    }

    /// The end of the batches that are complete. `None` if more bytes of the first are needed.
    fn batch_end(&mut self, block: &[u8]) -> Option<usize> {
        let mut end = 0;
        while let Some(line) = line(&block[end..]) {
            let Ok(annotation) = Annotation::parse(line) else { break };
            let bytes = usize::try_from(annotation.head.bytes).unwrap_or(usize::MAX);
            let begin = end + line.len();
            let Some(body) = block[begin..].get(..bytes) else {
                return if end == 0 { None } else { Some(end) };
            };
            let mut sum = Checksum::new(&annotation.head);
            sum.update(body);
            if sum.value() != annotation.sum {
                break; // A part of it was written, or it is torn.
            }
            self.last = Some(annotation);
            end = begin + bytes;
        }
        Some(end)
    }

    /// The end of the commands that are complete. `None` if more bytes of the first are needed.
    fn commands_end(&self, block: &[u8]) -> Result<Option<usize>, String> {
        if matches!(block.first(), None | Some(0)) {
            return Ok(Some(0));
        }
        let (mut reader, mut at) = (Reader::new(self.offset), 0);
        while at < block.len() && !(reader.is_between() && block[at] == 0) {
            let (taken, _) = reader.next(&block[at..]).map_err(|error| {
                named(&self.path, format!("{error} at offset {}", reader.offset()))
            })?;
            at += taken;
        }
        let end = usize::try_from(reader.good() - self.offset).unwrap_or(usize::MAX);
        Ok((end > 0).then_some(end))
    }

    /// Prints complete items, and moves the position after them.
    fn print(&mut self, bytes: &[u8], take: &mut dyn FnMut(String) -> bool) -> Result<(), String> {
        let (sequence, mut goes_on) = (self.sequence, true);
        let unix_ms = &mut self.unix_ms;
        let fed = Splitter::new(self.offset, KEPT_MAX).feed(bytes, &mut |entry| match entry {
            Entry::Batch(annotation, _) => *unix_ms = Some(annotation.head.unix_ms),
            Entry::Time(time, _) => *unix_ms = Some(time),
            Entry::Command(command) if goes_on => {
                let time = unix_ms.map_or_else(|| "-".into(), time::show);
                let offset = command.offset;
                goes_on = take(format!("{time} {sequence}:{offset} {}", command.show()));
            }
            Entry::Command(_) => {}
        });
        self.offset += bytes.len() as u64;
        fed.map_err(|error| named(&self.path, error))
    }
}

/// The first line, with its line feed.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let most = &bytes[..bytes.len().min(LINE_MAX_BYTES)];
    memchr::memchr(b'\n', most).map(|end| &bytes[..=end])
}
