//! The result of loading an append-only folder, for the journal that continues it.

use darter_persist::aof::annotation::Annotation;
use darter_persist::aof::manifest::Manifest;
use std::fmt;
use std::path::PathBuf;

/// The append-only folder as it was found at start, and as far as it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The folder, relative to the working directory. It may not exist yet.
    pub folder: PathBuf,
    /// The files of the folder. Empty if there was no journal.
    pub manifest: Manifest,
    /// The size of the base in bytes, and the sum of the loaded bytes of all files.
    pub base_bytes: u64,
    /// The bytes of all files that were loaded. Torn ends do not count.
    pub loaded_bytes: u64,
    /// The index of the last increment that was loaded, in the manifest. Later ones are empty.
    pub last_increment: Option<usize>,
    /// The length of that increment. The file was cut to it, and synced.
    pub last_length: u64,
    /// The last batch of the journal. It has the run, the number, the offset and the time.
    pub last_batch: Option<Annotation>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { folder, manifest, base_bytes, loaded_bytes, .. } = self;
        let increments = manifest.increments.len();
        write!(
            f,
            "append-only folder {}: {increments} increments, {loaded_bytes} bytes, of these \
             {base_bytes} in the base",
            folder.display()
        )?;
        if let Some(last) = self.last_increment {
            let name = manifest.increments[last].name.escape_ascii();
            write!(f, "; the last increment {name} has {} bytes", self.last_length)?;
        }
        if let Some(batch) = self.last_batch {
            let head = batch.head;
            write!(
                f,
                "; the last batch is number {} of run {:016x}, up to offset {}, of Unix time {} ms",
                head.batch,
                head.run,
                batch.end(),
                head.unix_ms
            )?;
        }
        Ok(())
    }
}
