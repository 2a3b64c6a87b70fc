//! The files of the system.

use super::{File, FileSystem, Mode};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

/// The system's calls. Interrupted ones are repeated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

/// A folder's path in the form that the system takes: an empty one is the working directory.
fn folder_path(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

impl FileSystem for Kernel {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != Mode::Read);
        match mode {
            Mode::Read | Mode::Write => {}
            Mode::Create => _ = options.create(true).truncate(true),
            Mode::CreateNew => _ = options.create_new(true),
        }
        Ok(Box::new(KernelFile(options.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(folder_path(folder))?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)
    }

    /// As in Redis, it is no error if the file system cannot sync folders.
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        const CANNOT: [Errno; 3] = [Errno::BADF, Errno::INVAL, Errno::OPNOTSUPP];
        let folder = fs::File::open(folder_path(folder))?;
        match rustix::io::retry_on_intr(|| rustix::fs::fsync(&folder)) {
            Err(error) if CANNOT.contains(&error) => Ok(()),
            synced => Ok(synced?),
        }
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(folder_path(folder))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

struct KernelFile(fs::File);

impl File for KernelFile {
    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(space, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::pwritev(&self.0, parts, offset))?)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn try_lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            locked => Ok(locked.map(|()| true)?),
        }
    }

    fn set_direct(&self, is_direct: bool) -> io::Result<()> {
        let mut flags = rustix::fs::fcntl_getfl(&self.0)?;
        flags.set(OFlags::DIRECT, is_direct);
        Ok(rustix::fs::fcntl_setfl(&self.0, flags)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_synced_is_no_error() {
        assert!(Kernel.sync_folder(Path::new("/proc")).is_ok(), "it cannot be synced");
        assert!(Kernel.sync_folder(Path::new("/nonexistent")).is_err());
    }
}
