//! Writes a folder of append-only files from those of another one.
//!
//! Whole files are hard links: servers never change a file that the manifest names before the last
//! one. The last file is a copy of its good bytes, since a server may cut or continue it. The manifest
//! comes last and everything is synced, so that an incomplete folder has none and is refused.

use crate::files::named;
use darter_persist::aof::manifest::Manifest;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// A file to write.
#[derive(Clone, Debug)]
pub(crate) struct PlacedFile {
    /// The file whose bytes are taken.
    pub(crate) source: PathBuf,
    /// The number of its bytes.
    pub(crate) bytes: u64,
    /// Bytes to write after these.
    pub(crate) tail: Vec<u8>,
}

impl PlacedFile {
    /// The first `bytes` bytes of a file.
    pub(crate) fn new(source: &Path, bytes: u64) -> Self {
        Self { source: source.to_owned(), bytes, tail: Vec::new() }
    }
}

/// Writes the files and the manifest into the folder `target`, which it creates.
///
/// Errors: a sentence.
pub(crate) fn place(
    files: &[PlacedFile],
    target: &Path,
    manifest_name: &str,
    manifest: &Manifest,
) -> Result<(), String> {
    fs::create_dir(target).map_err(|error| named(target, error))?;
    for (index, file) in files.iter().enumerate() {
        let is_last = index + 1 == files.len();
        let to = target.join(file.source.file_name().unwrap_or_default());
        write(file, &to, is_last).map_err(|error| named(&to, error))?;
    }
    let path = target.join(manifest_name);
    let written = write_manifest(&path, manifest).and_then(|()| File::open(target)?.sync_all());
    written.map_err(|error| named(&path, error))
}

fn write(file: &PlacedFile, to: &Path, is_last: bool) -> io::Result<()> {
    let is_whole = file.tail.is_empty() && file.source.metadata()?.len() == file.bytes;
    if is_whole && !is_last && fs::hard_link(&file.source, to).is_ok() {
        return File::open(to)?.sync_all();
    }
    let mut source = File::open(&file.source)?;
    source.seek(SeekFrom::Start(0))?;
    let mut copy = OpenOptions::new().write(true).create_new(true).open(to)?;
    let copied = io::copy(&mut source.take(file.bytes), &mut copy)?;
    if copied != file.bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    copy.write_all(&file.tail)?;
    copy.sync_all()
}

fn write_manifest(path: &Path, manifest: &Manifest) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(&manifest.to_bytes())?;
    file.sync_all()
}
