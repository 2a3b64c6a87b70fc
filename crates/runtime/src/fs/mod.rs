//! Files and folders, behind one interface.
//!
//! Data that must outlive the process is written through a [`FileSystem`], so that tests can let
//! any call fail, and can lose what was not synced.
//!
//! ```text
//! snapshots, loader, pidfile ──► FileSystem ──┬── Kernel      the system's calls
//!                                             ├── Faulty      the same, but chosen calls fail
//!                                             └── Simulated   memory, with kills and power losses
//! ```
//! All calls block, so a core must not make them. Callers write and sync as for the least that
//! Linux file systems promise: names are durable only after [`FileSystem::sync_folder`], contents
//! after [`File::sync`]. After a failed sync, it is unknown which bytes are durable, and a later
//! sync that succeeds says nothing about them.

mod faulty;
mod kernel;
mod simulated;

pub use faulty::{Call, Fault, Faults, Faulty};
pub use kernel::Kernel;
pub use simulated::Simulated;

use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// An existing file is read.
    Read,
    /// An existing file is read and written.
    Write,
    /// The file is created, or truncated, and read and written.
    Create,
    /// As [`Mode::Create`], but it is an error if the file exists.
    CreateNew,
}

/// Names and files. Errors are those of the system.
pub trait FileSystem: Send + Sync {
    /// Opens a file. To have two syncs in flight, open the file twice: the system reports an error
    /// once to each open file.
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn File>>;

    /// Renames a file within its folder. A file of the new name is replaced, in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes the name of a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder, in any order.
    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>>;

    /// Creates a folder. It is an error if it exists.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Waits until the names in a folder are as durable as the folder's file system allows.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// The bytes that this process may still write to the file system of a folder.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;

    /// Creates or replaces a file of zeros, and maps it: what is stored in its words is in the file
    /// even if the process is killed at once. A loss of power may lose any part of it. Reads of
    /// the file see the words, in the processor's order of bytes.
    ///
    /// Fails also if the file system may need space, or much time, for a store.
    fn map(&self, path: &Path, words: usize) -> io::Result<Arc<dyn Mapped>>;
}

/// A file in memory, of a fixed length.
pub trait Mapped: Send + Sync {
    /// All words of the file.
    fn words(&self) -> &[AtomicU64];
}

/// An open file. Errors are those of the system.
pub trait File: Send + Sync {
    /// Reads from `offset` on; returns the number of bytes, 0 at the end of the file.
    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some or all bytes of `parts`, one after the other, from `offset` on; returns their
    /// number.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// The length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Cuts the file, or extends it with zeros.
    fn set_length(&self, bytes: u64) -> io::Result<()>;

    /// Waits until the contents and the length are durable.
    fn sync(&self) -> io::Result<()>;

    /// Locks the file against other processes until it is closed. False if another one has it.
    fn try_lock(&self) -> io::Result<bool>;

    /// Whether reads and writes bypass the page cache. Then memory, offsets and lengths must be
    /// multiples of the disk's blocks.
    fn set_direct(&self, is_direct: bool) -> io::Result<()>;
}

/// The contents of a small file.
pub fn read(fs: &dyn FileSystem, path: &Path) -> io::Result<Vec<u8>> {
    let file = fs.open(path, Mode::Read)?;
    let mut bytes = vec![0; usize::try_from(file.length()?).map_err(io::Error::other)?];
    if read_up_to(&*file, &mut bytes, 0)? < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// Reads from `offset` on, until the space is full or the file ends. Returns the number of bytes.
pub fn read_up_to(file: &dyn File, space: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < space.len() {
        match file.read_at(&mut space[filled..], offset + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Creates or replaces a file, without a sync.
pub fn write(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = fs.open(path, Mode::Create)?;
    write_all_at(&*file, bytes, 0)
}

/// Writes all bytes from `offset` on.
pub fn write_all_at(file: &dyn File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write_at(&[IoSlice::new(&bytes[written..])], offset + written as u64)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => written += count,
        }
    }
    Ok(())
}
