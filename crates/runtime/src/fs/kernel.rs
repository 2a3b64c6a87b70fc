//! The files of the system.

use super::{File, FileSystem, Mapped, Mode};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

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

    fn map(&self, path: &Path, words: usize) -> io::Result<Arc<dyn Mapped>> {
        // A process that has mapped the replaced file keeps it: its words must not end.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let kind = rustix::fs::fstatfs(&file)?.f_type;
        if !IN_PLACE.contains(&kind) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let zeros = vec![0; words * size_of::<u64>()];
        file.write_all_at(&zeros, 0)?;
        file.sync_all()?; // Its space is allocated now, and not at a store.
        Ok(Arc::new(KernelMap::new(&file, words)?))
    }
}

/// File systems on which a store to a mapped file that was written and synced needs no new space:
/// ext2 to ext4, XFS, tmpfs. Elsewhere a full disk would end the process.
const IN_PLACE: [rustix::fs::FsWord; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

struct KernelMap {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the memory belongs to no thread, and is used through atomics only.
unsafe impl Send for KernelMap {}
// SAFETY: as above.
unsafe impl Sync for KernelMap {}

impl KernelMap {
    /// Maps the first words of a file that has them.
    fn new(file: &fs::File, words: usize) -> io::Result<Self> {
        let bytes = words * size_of::<u64>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses the address, so no memory in use is replaced.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)
        }?;
        // SAFETY: this is the mapping that was just made. If it must not be locked, a store may
        // have to read a page again.
        let _ = unsafe { rustix::mm::mlock(start, bytes) };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { start, words })
    }
}

impl Mapped for KernelMap {
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words, at an address that is aligned to pages, as long
        // as this value lives. Everybody, also another process, changes them by atomic stores; a
        // word may have any value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for KernelMap {
    fn drop(&mut self) {
        let bytes = self.words * size_of::<u64>();
        // SAFETY: this is the mapping of `new`, and no reference into it outlives this value.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), bytes) };
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

    #[test]
    fn reads_of_a_mapped_file_see_its_words() {
        let folder = std::env::temp_dir().join(format!("darter-map-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("words");
        let mapped = Kernel.map(&path, 1_000);
        if mapped.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported) {
            return fs::remove_dir_all(&folder).unwrap(); // Such as overlayfs.
        }
        let mapped = mapped.unwrap();
        mapped.words()[999].store(0x0102, std::sync::atomic::Ordering::Relaxed);
        let bytes = fs::read(&path).unwrap();
        assert_eq!((bytes.len(), &bytes[7_992..]), (8_000, &0x0102_u64.to_ne_bytes()[..]));
        let replacing = Kernel.map(&path, 10).unwrap();
        mapped.words()[999].store(3, std::sync::atomic::Ordering::Relaxed);
        assert_eq!((fs::read(&path).unwrap().len(), replacing.words().len()), (80, 10));
        fs::remove_dir_all(&folder).unwrap();
    }
}
