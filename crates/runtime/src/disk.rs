//! A file that is written once, from start to end, bypassing the page cache.
//!
//! Writes through the page cache are copied page by page and written back by kernel threads, which
//! compete for processors. That took 1.8 to 3.3 s of processor time for a GiB (ext4, synced every 8
//! MiB). With `O_DIRECT`, in blocks of [`BLOCK_BYTES`], it took 0.07 s (0.14 s with blocks of half
//! the size, 0.36 s with an eighth). It also evicts nothing from the cache.
//!
//! ```text
//! write_all ──copies──► block of BLOCK_BYTES, aligned ──when full──► file, at a multiple of it
//! finish    ──the rest of the last block, through the page cache; then all is synced
//! ```
//! Some file systems refuse `O_DIRECT`, on opening or at the first write. And a write must be a
//! multiple of the disk's blocks, which it is not after a short write at a size limit. Then writing
//! continues through the page cache, and [`Disk::is_direct`] reports it. Some file systems (tmpfs,
//! some with checksums) accept `O_DIRECT` but use the page cache anyway.
//!
//! Not here: names, places, when to sync on the way. See `server`.

use crate::fs::{File, FileSystem, Mode};
use std::io::{self, IoSlice};
use std::path::Path;

/// The bytes of one write.
const BLOCK_BYTES: usize = 1 << 20;
/// Alignment of the block, in memory and in the file: no disk has larger blocks.
const ALIGNMENT: usize = 4096;

const _: () = assert!(BLOCK_BYTES.is_multiple_of(ALIGNMENT), "a block is whole blocks of the disk");

/// A file being written; see the module's documentation.
pub struct Disk {
    file: Box<dyn File>,
    /// The length of the file so far.
    written: u64,
    /// The memory of the block, which begins at `start`.
    memory: Vec<u8>,
    start: usize,
    /// Bytes of the block that are waiting to be written.
    filled: usize,
    is_direct: bool,
}

impl Disk {
    /// Creates the file, or truncates it.
    ///
    /// Errors: those of creating a file.
    pub fn create(fs: &dyn FileSystem, path: &Path) -> io::Result<Self> {
        let file = fs.open(path, Mode::Create)?;
        let is_direct = match file.set_direct(true) {
            Ok(()) => true,
            Err(error) if is_refusal(&error) => false,
            Err(error) => return Err(error),
        };
        let memory = vec![0; BLOCK_BYTES + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        assert!(start < ALIGNMENT, "start={start}");
        Ok(Self { file, written: 0, memory, start, filled: 0, is_direct })
    }

    /// True if writes have bypassed the page cache so far.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Writes all of `bytes`; the last part may wait in memory for more.
    ///
    /// Errors: those of writing a file, whose contents are then unknown.
    pub fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.filled));
            let at = self.start + self.filled;
            self.memory[at..at + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == BLOCK_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Syncs the written bytes to the disk: all of them, or, bypassing the page cache, all complete
    /// blocks.
    ///
    /// Errors: those of writing and syncing a file.
    pub fn sync(&mut self) -> io::Result<()> {
        if !self.is_direct {
            self.flush()?;
        }
        self.file.sync()
    }

    /// Writes the rest, and waits until everything is on the disk.
    ///
    /// Errors: those of writing and syncing a file.
    pub fn finish(mut self) -> io::Result<()> {
        self.leave_direct()?;
        self.flush()?;
        self.file.sync()
    }

    /// Writes the block.
    fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        while written < self.filled {
            let rest = &self.memory[self.start + written..self.start + self.filled];
            match self.file.write_at(&[IoSlice::new(rest)], self.written) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    written += count;
                    self.written += count as u64;
                }
                Err(error) if self.is_direct && is_refusal(&error) => self.leave_direct()?,
                Err(error) => return Err(error),
            }
        }
        self.filled = 0;
        Ok(())
    }

    /// Continues through the page cache.
    fn leave_direct(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_direct) {
            self.file.set_direct(false)?;
        }
        Ok(())
    }
}

/// True if the file system, or the length of the write, does not allow `O_DIRECT`.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::Kernel;
    use std::path::PathBuf;

    /// A temporary file that is removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new(folder: &Path, name: &str) -> Self {
            Self(folder.join(format!("darter-disk-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// Bytes that encode their offset.
    fn bytes(from: usize, count: usize) -> Vec<u8> {
        (from..from + count).map(|at| (at * 31 + at / 251 + at / 65_537) as u8).collect()
    }

    /// Writes `total` bytes in pieces of `piece`, and compares. Returns whether the last complete
    /// block bypassed the page cache.
    fn write(folder: &Path, total: usize, piece: usize, syncs: bool) -> bool {
        let place = Place::new(folder, &format!("{total}-{piece}-{syncs}"));
        let mut disk = Disk::create(&Kernel, &place.0).unwrap();
        let all = bytes(0, total);
        for piece in all.chunks(piece) {
            disk.write_all(piece).unwrap();
            if syncs {
                disk.sync().unwrap();
            }
        }
        let was_direct = disk.is_direct();
        disk.finish().unwrap();
        assert!(std::fs::read(&place.0).unwrap() == all, "{total} in pieces of {piece}");
        was_direct
    }

    #[test] // Pieces of many sizes around a block's end, synced or not.
    fn written_pieces_arrive_in_order() {
        let folder = std::env::temp_dir();
        for total in [0, 1, 4_096, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3_500_000] {
            for piece in [997, 4_096, 131_072, 2 * BLOCK_BYTES + 7] {
                write(&folder, total, piece, piece > 100_000);
            }
        }
    }

    #[test] // It refuses O_DIRECT, or since Linux 6.6 ignores it.
    fn files_on_tmpfs_are_written() {
        let folder = Path::new("/dev/shm");
        if folder.is_dir() {
            write(folder, 3_000_000, 131_072, true);
        }
    }

    #[test] // As after an incomplete write.
    fn unaligned_writes_go_through_the_page_cache() {
        let place = Place::new(&std::env::temp_dir(), "unaligned");
        let mut disk = Disk::create(&Kernel, &place.0).unwrap();
        disk.write_all(&bytes(0, BLOCK_BYTES)).unwrap();
        disk.filled = 1_000; // Bytes that were already in the block.
        disk.flush().unwrap();
        disk.write_all(&bytes(7, 2 * BLOCK_BYTES)).unwrap();
        disk.finish().unwrap();
        let all = [bytes(0, BLOCK_BYTES), bytes(0, 1_000), bytes(7, 2 * BLOCK_BYTES)].concat();
        assert!(std::fs::read(&place.0).unwrap() == all);
    }

    #[test]
    fn failed_creations_and_writes_are_errors() {
        assert!(Disk::create(&Kernel, Path::new("/nonexistent/file")).is_err());
        let mut disk = Disk::create(&Kernel, Path::new("/dev/full")).unwrap();
        let error = disk.write_all(&bytes(0, BLOCK_BYTES)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "{error}");
        let mut disk = Disk::create(&Kernel, Path::new("/dev/full")).unwrap();
        disk.write_all(b"short").unwrap();
        assert!(disk.finish().is_err());
    }
}
