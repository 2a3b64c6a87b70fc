//! Reads RDB files, append-only files and folders, and passes their keys and commands on.
//!
//! Memory is one element of one collection, or one command, however large the values are. An
//! append-only folder is read in the order in which a server loads it.

use super::progress::Progress;
use crate::files::{self, Folder, is_manifest, is_rdb, named};
use darter_families::TYPES;
use darter_persist::aof::reader::{Item as AofItem, Reader as AofReader};
use darter_rdb::{Event, Limits, Product, Reader};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// The number of bytes read at a time.
const BLOCK_BYTES: usize = 256 * 1024;

/// The bytes of a key in a file, with its deadline and its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The file.
    pub(crate) file: &'a InputFile,
    /// The offset of the first byte.
    pub(crate) begin: u64,
    /// The offset after the last byte.
    pub(crate) end: u64,
}

/// A file that is being read.
#[derive(Debug)]
pub(crate) struct InputFile {
    handle: File,
    /// The product of an RDB file.
    pub(crate) product: Product,
    /// The version of an RDB file.
    pub(crate) version: u16,
}

/// Receives the contents of files.
pub(crate) trait Visitor {
    /// Receives an event of an RDB file, except the end of a key. An error is a sentence.
    fn event(&mut self, event: &Event<'_>) -> Result<(), String>;

    /// Receives the end of a key.
    fn end_of_key(&mut self, place: Place<'_>) -> Result<(), String>;

    /// Receives a command of an append-only file, as RESP.
    fn command(&mut self, bytes: &[u8]) -> Result<(), String>;
}

/// The files that `path` names, in the order in which a server loads them.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, String> {
    let is_folder = path.metadata().map_err(|error| named(path, error))?.is_dir();
    if is_folder || is_manifest(path) {
        return Ok(Folder::find(path)?.loaded());
    }
    Ok(vec![path.to_owned()])
}

/// Reads everything that `path` names.
///
/// Errors: a sentence with the file and, if its bytes are damaged, the offset.
pub(crate) fn read(path: &Path, visitor: &mut dyn Visitor) -> Result<(), String> {
    let files = files_of(path)?;
    let mut bytes = 0;
    for file in &files {
        bytes += files::length(file)?;
    }
    let mut progress = Progress::new(bytes);
    for file in &files {
        read_file(file, visitor, &mut progress).map_err(|error| named(file, error))?;
    }
    progress.end();
    Ok(())
}

fn read_file(
    path: &Path,
    visitor: &mut dyn Visitor,
    progress: &mut Progress,
) -> Result<(), String> {
    let mut handle = File::open(path).map_err(text)?;
    let mut offset = 0;
    if is_rdb(path)? {
        let copy = handle.try_clone().map_err(text)?;
        let mut file = InputFile { handle: copy, product: Product::Redis, version: 0 };
        offset = read_rdb(&mut handle, &mut file, visitor, progress)?;
    }
    read_commands(&mut handle, offset, visitor, progress)
}

/// Reads an RDB file. Returns the offset of its end: commands may follow.
fn read_rdb(
    handle: &mut File,
    file: &mut InputFile,
    visitor: &mut dyn Visitor,
    progress: &mut Progress,
) -> Result<u64, String> {
    let size = handle.metadata().map_err(text)?.len();
    let mut reader = Reader::new(TYPES.kinds(), Limits::default()).with_size(size);
    let mut begin = 0;
    loop {
        let block = reader.space(BLOCK_BYTES);
        let count = handle.read(&mut block[..BLOCK_BYTES]).map_err(text)?;
        reader.filled(count);
        if count == 0 {
            reader.finish();
        }
        progress.add(count as u64);
        while let Some(event) = reader.next().map_err(text)? {
            match event {
                Event::EndOfKey => {
                    let end = reader.offset();
                    progress.key();
                    visitor.end_of_key(Place { file, begin, end })?;
                    begin = end;
                    continue;
                }
                Event::Eof { .. } => return Ok(reader.offset()),
                Event::Start { product, version } => {
                    (file.product, file.version) = (product, version);
                    visitor.event(&event)?;
                }
                Event::Key { .. } | Event::Item(_) | Event::Unpacked(_) => {
                    visitor.event(&event)?;
                    continue;
                }
                _ => visitor.event(&event)?,
            }
            begin = reader.offset();
        }
    }
}

/// Reads the commands of an append-only file from `offset` on. A clean file may end with zeros,
/// which a server writes ahead of time.
fn read_commands(
    handle: &mut File,
    offset: u64,
    visitor: &mut dyn Visitor,
    progress: &mut Progress,
) -> Result<(), String> {
    handle.seek(SeekFrom::Start(offset)).map_err(text)?;
    let mut reader = AofReader::new(offset);
    let (mut block, mut command) = (vec![0; BLOCK_BYTES], Vec::new());
    loop {
        let count = handle.read(&mut block).map_err(text)?;
        progress.add(count as u64);
        if count == 0 {
            break;
        }
        let mut bytes = &block[..count];
        while !bytes.is_empty() {
            if reader.is_between() && bytes[0] == 0 {
                return zeros_until_end(handle, bytes, reader.offset());
            }
            let (taken, item) = reader
                .next(bytes)
                .map_err(|fault| format!("{fault} at offset {}", reader.offset()))?;
            command.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if item == Some(AofItem::Command) {
                progress.key();
                visitor.command(&command)?;
            }
            if item.is_some() {
                command.clear();
            }
        }
    }
    if !reader.is_between() {
        return Err(format!("the file ends within a command at offset {}", reader.start()));
    }
    Ok(())
}

fn zeros_until_end(handle: &mut File, bytes: &[u8], offset: u64) -> Result<(), String> {
    let mut rest = bytes.to_vec();
    loop {
        if rest.iter().any(|byte| *byte != 0) {
            return Err(format!("bytes after zeros at offset {offset}"));
        }
        rest.resize(BLOCK_BYTES, 0);
        let count = handle.read(&mut rest).map_err(text)?;
        rest.truncate(count);
        if count == 0 {
            return Ok(());
        }
    }
}

impl Place<'_> {
    /// The number of bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.end - self.begin
    }

    /// Passes the bytes from the file offset `from` on, in pieces.
    pub(crate) fn copy_from(
        &self,
        from: u64,
        take: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut block = [0; 16 * 1024];
        let mut at = from;
        while at < self.end {
            let count = usize::try_from(self.end - at).map_or(block.len(), |n| n.min(block.len()));
            self.file.handle.read_exact_at(&mut block[..count], at).map_err(text)?;
            take(&block[..count])?;
            at += count as u64;
        }
        Ok(())
    }

    /// Reads the key again, and passes its events.
    pub(crate) fn replay(
        &self,
        take: &mut dyn FnMut(&Event<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let magic = match self.file.product {
            Product::Redis => format!("REDIS{:04}", self.file.version),
            Product::Valkey => format!("VALKEY{:03}", self.file.version),
        };
        let mut reader = Reader::new(TYPES.kinds(), Limits::default());
        reader.push(magic.as_bytes());
        self.copy_from(self.begin, &mut |bytes| {
            reader.push(bytes);
            while let Some(event) = reader.next().map_err(text)? {
                if !matches!(event, Event::Start { .. }) {
                    take(&event)?;
                }
            }
            Ok(())
        })
    }

    /// The type number, and the offset of the first byte of the value. The bytes were read before,
    /// so they are valid.
    pub(crate) fn value(&self) -> Result<(u8, u64), String> {
        let mut head = [0; 9];
        let mut at = self.begin;
        loop {
            let count = usize::try_from(self.end - at).map_or(head.len(), |n| n.min(head.len()));
            self.file.handle.read_exact_at(&mut head[..count], at).map_err(text)?;
            match head[0] {
                darter_rdb::types::OP_EXPIRE_MS => at += 9,
                darter_rdb::types::OP_EXPIRE_S => at += 5,
                darter_rdb::types::OP_FREQ => at += 2,
                darter_rdb::types::OP_IDLE => at += 1 + length(&head[1..]).1,
                number => {
                    at += 1;
                    self.file.handle.read_exact_at(&mut head[..1], at).map_err(text)?;
                    let rest = usize::try_from(self.end - at).map_or(9, |n| n.min(9));
                    self.file.handle.read_exact_at(&mut head[..rest], at).map_err(text)?;
                    let skipped = match head[0] {
                        0xc0 => 2,
                        0xc1 => 3,
                        0xc2 => 5,
                        0xc3 => {
                            let (packed, used) = length(&head[1..]);
                            let at = at + 1 + used;
                            let rest = usize::try_from(self.end - at).map_or(9, |n| n.min(9));
                            self.file.handle.read_exact_at(&mut head[..rest], at).map_err(text)?;
                            1 + used + length(&head).1 + packed
                        }
                        _ => {
                            let (len, used) = length(&head);
                            len + used
                        }
                    };
                    return Ok((number, at + skipped));
                }
            }
        }
    }
}

/// A length of the format, and the number of its bytes.
fn length(bytes: &[u8]) -> (u64, u64) {
    let wide = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    match bytes[0] {
        first @ 0..=0x3f => (first.into(), 1),
        first @ 0x40..=0x7f => (u64::from(first & 0x3f) << 8 | u64::from(bytes[1]), 2),
        0x80 => (wide(&bytes[1..5]), 5),
        _ => (wide(&bytes[1..9]), 9),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
