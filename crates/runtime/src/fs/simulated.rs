//! Files in memory that can lose what was not synced.
//!
//! Each file has the contents that reads return (the page cache), the contents of the disk, and the
//! changes in between. A loss of power keeps any part of those changes, in sectors; a sync applies
//! all of them. Names are the same, by folder, but in order. This is what ext4, XFS and a disk with
//! a write cache were seen to do.
//!
//! Faults come from [`Faults`]. A failed sync drops the file's changes: they can still be read, but
//! no later sync makes them durable.
//!
//! Not simulated: folders are durable at once, files have no holes, and a file is not moved between
//! folders.

use super::faulty::first_bytes;
use super::{Call, Faults, File, FileSystem, Mapped, Mode};
use darter_base::Prng;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The bytes that a disk writes as a whole, unless power fails meanwhile.
const SECTOR_BYTES: usize = 512;

/// A disk in memory. Clones share it.
#[derive(Clone)]
pub struct Simulated {
    disk: Arc<Mutex<Disk>>,
    faults: Arc<Faults>,
}

struct Disk {
    prng: Prng,
    capacity: u64,
    /// All files, also removed ones. The names contain indexes.
    files: Vec<Contents>,
    folders: BTreeMap<PathBuf, Folder>,
    /// The number of kills and losses of power so far. Files opened before the last do not work.
    boots: u64,
}

#[derive(Default)]
struct Contents {
    cache: Vec<u8>,
    disk: Vec<u8>,
    unsynced: Vec<Change>,
    /// The lock's holder; see [`Opened`].
    lock: Option<u64>,
    /// The words of a mapped file, in place of the cache, until the process ends.
    mapped: Option<Arc<Words>>,
}

struct Words(Box<[AtomicU64]>);

impl Mapped for Words {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

enum Change {
    Bytes { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Default)]
struct Folder {
    cache: BTreeMap<OsString, usize>,
    disk: BTreeMap<OsString, usize>,
    unsynced: Vec<NameChange>,
}

#[derive(Clone)]
enum NameChange {
    Set(OsString, usize),
    Remove(OsString),
    Rename(OsString, OsString),
}

impl NameChange {
    fn apply(self, names: &mut BTreeMap<OsString, usize>) {
        match self {
            Self::Set(name, file) => _ = names.insert(name, file),
            Self::Remove(name) => _ = names.remove(&name),
            Self::Rename(from, to) => {
                if let Some(file) = names.remove(&from) {
                    names.insert(to, file);
                }
            }
        }
    }
}

impl Folder {
    fn change(&mut self, change: NameChange) {
        change.clone().apply(&mut self.cache);
        self.unsynced.push(change);
    }
}

impl Contents {
    /// Writes to the contents of the disk, and extends them with zeros up to `offset`.
    fn put(contents: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if contents.len() < end {
            contents.resize(end, 0);
        }
        contents[offset..end].copy_from_slice(bytes);
    }

    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            match change {
                Change::Bytes { offset, bytes } => Self::put(&mut self.disk, offset, &bytes),
                Change::Length(bytes) => self.disk.resize(bytes, 0),
            }
        }
    }

    /// Drops the changes, but not their effect on the length: the lost bytes are zeros.
    fn fail_sync(&mut self) {
        self.unsynced.clear();
        self.unsynced.push(Change::Length(self.cache.len()));
    }

    /// Ends the mapping of the file.
    fn unmap(&mut self) {
        if let Some(mapped) = self.mapped.take() {
            let words = mapped.0.iter().map(|word| word.load(Ordering::SeqCst));
            self.cache = words.flat_map(u64::to_ne_bytes).collect();
            self.unsynced.push(Change::Bytes { offset: 0, bytes: self.cache.clone() });
        }
    }

    /// Keeps a random part of the unsynced changes.
    fn lose_power(&mut self, prng: &mut Prng) {
        for change in std::mem::take(&mut self.unsynced) {
            match change {
                Change::Length(bytes) => {
                    if prng.chance(50) {
                        self.disk.resize(bytes, 0);
                    }
                }
                Change::Bytes { mut offset, bytes } => {
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        let in_sector = SECTOR_BYTES - offset % SECTOR_BYTES;
                        let (sector, later) = rest.split_at(in_sector.min(rest.len()));
                        let is_torn = prng.chance(5);
                        let kept = if is_torn { below(prng, sector.len()) } else { sector.len() };
                        if prng.chance(50) {
                            Self::put(&mut self.disk, offset, &sector[..kept]);
                        }
                        (offset, rest) = (offset + sector.len(), later);
                    }
                }
            }
        }
        if self.disk.len() < self.cache.len() && prng.chance(30) {
            self.disk.resize(self.cache.len(), 0); // The length was written, the contents were not.
        }
        self.cache.clone_from(&self.disk);
    }
}

fn below(prng: &mut Prng, bound: usize) -> usize {
    usize::try_from(prng.below(bound as u64)).unwrap_or(0)
}

impl Disk {
    fn folder(&mut self, path: &Path) -> io::Result<(&mut Folder, OsString)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        Ok((self.folder_at(path.parent().unwrap_or(Path::new("")))?, name))
    }

    fn folder_at(&mut self, path: &Path) -> io::Result<&mut Folder> {
        self.folders.get_mut(path).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn free_bytes(&self) -> u64 {
        let used = self.files.iter().map(|file| file.cache.len() as u64).sum();
        self.capacity.saturating_sub(used)
    }

    /// Forgets files without a name, and the open files of the process that has ended.
    fn reboot(&mut self) {
        self.boots += 1;
        for file in &mut self.files {
            file.lock = None;
            file.unmap();
        }
        let named = self.folders.values().flat_map(|folder| {
            let unsynced = folder.unsynced.iter().filter_map(|change| match change {
                NameChange::Set(_, file) => Some(file),
                _ => None,
            });
            folder.cache.values().chain(folder.disk.values()).chain(unsynced)
        });
        let named: std::collections::BTreeSet<usize> = named.copied().collect();
        for (at, file) in self.files.iter_mut().enumerate() {
            if !named.contains(&at) {
                *file = Contents::default();
            }
        }
    }
}

impl Simulated {
    /// An empty disk of `capacity` bytes, with the working directory (the empty path) as its only
    /// folder. Equal seeds lose the same changes.
    #[must_use]
    pub fn new(seed: u64, capacity: u64, faults: Arc<Faults>) -> Self {
        let folders = BTreeMap::from([(PathBuf::new(), Folder::default())]);
        let prng = Prng::from_seed(seed);
        let disk = Disk { prng, capacity, files: Vec::new(), folders, boots: 0 };
        Self { disk: Arc::new(Mutex::new(disk)), faults }
    }

    /// Ends the process that uses the files: open files do not work any more, locks are released.
    pub fn kill(&self) {
        self.lock().reboot();
        self.faults.restart();
    }

    /// Ends the process, and loses a random part of what was not synced.
    pub fn lose_power(&self) {
        let mut disk = self.lock();
        let Disk { prng, files, folders, .. } = &mut *disk;
        for file in files {
            file.unmap();
            file.lose_power(prng);
        }
        for folder in folders.values_mut() {
            let kept = below(prng, folder.unsynced.len() + 1);
            for change in std::mem::take(&mut folder.unsynced).into_iter().take(kept) {
                change.apply(&mut folder.disk);
            }
            folder.cache.clone_from(&folder.disk);
        }
        disk.reboot();
        drop(disk);
        self.faults.restart();
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("no holder panics")
    }

    /// [`Faults::next`]. At a crash, mappings end: later stores have no effect.
    fn next(&self, call: Call) -> io::Result<usize> {
        let next = self.faults.next(call);
        if next.is_err() && self.faults.has_crashed() {
            self.lock().files.iter_mut().for_each(Contents::unmap);
        }
        next
    }
}

impl FileSystem for Simulated {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn File>> {
        self.next(Call::Open)?;
        let mut disk = self.lock();
        let (next, boot) = (disk.files.len(), disk.boots);
        let (folder, name) = disk.folder(path)?;
        let found = folder.cache.get(&name).copied();
        let at = match (found, mode) {
            (Some(_), Mode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(at), _) => at,
            (None, Mode::Read | Mode::Write) => return Err(io::ErrorKind::NotFound.into()),
            (None, Mode::Create | Mode::CreateNew) => {
                folder.change(NameChange::Set(name, next));
                disk.files.push(Contents::default());
                next
            }
        };
        if mode == Mode::Create {
            let file = &mut disk.files[at];
            file.cache.clear();
            file.unsynced.push(Change::Length(0));
        }
        drop(disk);
        let simulated = self.clone();
        Ok(Box::new(Opened { simulated, at, boot, is_writable: mode != Mode::Read }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.next(Call::Rename)?;
        if from.parent() != to.parent() {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        let mut disk = self.lock();
        let to = to.file_name().map(OsStr::to_owned).ok_or(io::ErrorKind::InvalidInput)?;
        let (folder, from) = disk.folder(from)?;
        if !folder.cache.contains_key(&from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        folder.change(NameChange::Rename(from, to));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.next(Call::Remove)?;
        let mut disk = self.lock();
        let (folder, name) = disk.folder(path)?;
        if !folder.cache.contains_key(&name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        folder.change(NameChange::Remove(name));
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        self.next(Call::List)?;
        Ok(self.lock().folder_at(folder)?.cache.keys().cloned().collect())
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.next(Call::CreateFolder)?;
        let mut disk = self.lock();
        disk.folder_at(folder.parent().unwrap_or(Path::new("")))?;
        if disk.folders.contains_key(folder) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        disk.folders.insert(folder.to_owned(), Folder::default());
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.next(Call::SyncFolder)?;
        let mut disk = self.lock();
        let Folder { disk: names, unsynced, .. } = disk.folder_at(folder)?;
        unsynced.drain(..).for_each(|change| change.apply(names));
        Ok(())
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        self.next(Call::FreeBytes)?;
        let mut disk = self.lock();
        disk.folder_at(folder)?;
        Ok(disk.free_bytes())
    }

    fn map(&self, path: &Path, words: usize) -> io::Result<Arc<dyn Mapped>> {
        let file = self.open(path, Mode::Create)?;
        super::write_all_at(&*file, &vec![0; words * size_of::<u64>()], 0)?;
        file.sync()?;
        self.next(Call::Map)?;
        let mapped = Arc::new(Words((0..words).map(|_| AtomicU64::new(0)).collect()));
        let mut disk = self.lock();
        let (folder, name) = disk.folder(path)?;
        let at = folder.cache.get(&name).copied().ok_or(io::ErrorKind::NotFound)?;
        disk.files[at].mapped = Some(Arc::<Words>::clone(&mapped));
        drop(disk);
        Ok(mapped)
    }
}

/// An open file.
struct Opened {
    simulated: Simulated,
    at: usize,
    /// The number of restarts when it was opened.
    boot: u64,
    is_writable: bool,
}

impl Opened {
    /// The disk, unless the process that opened the file has ended.
    fn disk(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.simulated.lock();
        if disk.boots == self.boot {
            Ok(disk)
        } else {
            Err(io::Error::from_raw_os_error(libc::EIO))
        }
    }

    /// The disk, to change an open file.
    fn disk_to_write(&self) -> io::Result<MutexGuard<'_, Disk>> {
        if self.is_writable { self.disk() } else { Err(io::Error::from_raw_os_error(libc::EBADF)) }
    }

    /// A number that differs from that of every other open file.
    fn holder(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let holder = self.holder();
        if let Ok(mut disk) = self.disk() {
            let lock = &mut disk.files[self.at].lock;
            *lock = lock.filter(|at| *at != holder);
        }
    }
}

impl File for Opened {
    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = self.simulated.next(Call::Read)?;
        let disk = self.disk()?;
        let cache = &disk.files[self.at].cache;
        let rest = usize::try_from(offset).ok().and_then(|offset| cache.get(offset..));
        let rest = rest.unwrap_or_default();
        let count = rest.len().min(space.len()).min(most);
        space[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let most = self.simulated.next(Call::Write)?;
        let mut disk = self.disk_to_write()?;
        let free = disk.free_bytes();
        let file = &mut disk.files[self.at];
        let room = (file.cache.len() as u64 + free).saturating_sub(offset);
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let most = most.min(usize::try_from(room).unwrap_or(usize::MAX));
        let bytes =
            first_bytes(parts, most).iter().flat_map(|part| part.to_vec()).collect::<Vec<_>>();
        Contents::put(&mut file.cache, offset, &bytes);
        let count = bytes.len();
        file.unsynced.push(Change::Bytes { offset, bytes });
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        self.simulated.next(Call::Length)?;
        Ok(self.disk()?.files[self.at].cache.len() as u64)
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.simulated.next(Call::SetLength)?;
        let mut disk = self.disk_to_write()?;
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let file = &mut disk.files[self.at];
        file.cache.resize(bytes, 0);
        file.unsynced.push(Change::Length(bytes));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let synced = self.simulated.next(Call::Sync);
        let mut disk = self.disk()?;
        let file = &mut disk.files[self.at];
        match synced {
            Ok(_) => file.sync(),
            Err(_) if self.simulated.faults.has_crashed() => {}
            Err(_) => file.fail_sync(),
        }
        drop(disk);
        synced.map(|_| ())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.simulated.next(Call::Lock)?;
        let holder = self.holder();
        let mut disk = self.disk()?;
        Ok(*disk.files[self.at].lock.get_or_insert(holder) == holder)
    }

    fn set_direct(&self, _: bool) -> io::Result<()> {
        self.simulated.next(Call::SetDirect)?;
        Ok(())
    }
}
