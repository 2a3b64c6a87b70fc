//! Files whose calls fail where a test wants it.

use super::{File, FileSystem, Mapped, Mode};
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The calls of [`FileSystem`] and [`File`].
#[expect(missing_docs, reason = "they have the names of the methods")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Open,
    Rename,
    Remove,
    List,
    CreateFolder,
    SyncFolder,
    FreeBytes,
    Read,
    Write,
    Length,
    SetLength,
    Sync,
    Lock,
    SetDirect,
    Map,
}

/// A fault of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call has no effect, and returns this error of the system.
    Error(i32),
    /// A read or write has this many bytes at most.
    Short(usize),
    /// The call takes this much longer.
    Delay(Duration),
    /// This call and all later ones have no effect, as if the process had been killed.
    Crash,
}

/// The faults to come, shared by all who use one file system.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Plan>);

#[derive(Debug, Default)]
struct Plan {
    /// The number of calls so far.
    calls: u64,
    /// The kind of call (`None` for any), the calls of this kind until the fault, and the fault.
    planned: Vec<(Option<Call>, u64, Fault)>,
    has_crashed: bool,
}

impl Faults {
    /// Plans a fault for the `nth` call of this kind from now on, counted from 1; `None` counts
    /// calls of any kind.
    pub fn plan(&self, call: Option<Call>, nth: u64, fault: Fault) {
        self.0.lock().expect("no holder panics").planned.push((call, nth, fault));
    }

    /// The number of calls so far: a script of n calls has n places to crash at.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.lock().expect("no holder panics").calls
    }

    /// True from a [`Fault::Crash`] until [`Faults::restart`].
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.0.lock().expect("no holder panics").has_crashed
    }

    /// Ends a crash, and forgets the faults to come: a new process begins.
    pub fn restart(&self) {
        let mut plan = self.0.lock().expect("no holder panics");
        plan.has_crashed = false;
        plan.planned.clear();
    }

    /// Counts a call, and waits for as long as its fault says. Returns the number of bytes that it
    /// may read or write.
    pub(super) fn next(&self, call: Call) -> io::Result<usize> {
        let (mut most, mut delay, mut error) = (usize::MAX, Duration::ZERO, None);
        let mut plan = self.0.lock().expect("no holder panics");
        plan.calls += 1;
        let Plan { planned, has_crashed, .. } = &mut *plan;
        planned.retain_mut(|(of, left, fault)| {
            if of.is_some_and(|of| of != call) {
                return true;
            }
            *left = left.saturating_sub(1);
            if *left > 0 {
                return true;
            }
            match *fault {
                Fault::Error(number) => error = Some(number),
                Fault::Short(bytes) => most = most.min(bytes),
                Fault::Delay(time) => delay += time,
                Fault::Crash => *has_crashed = true,
            }
            false
        });
        let has_crashed = plan.has_crashed;
        drop(plan);
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        match error {
            _ if has_crashed => Err(io::Error::from_raw_os_error(libc::EIO)),
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => Ok(most),
        }
    }
}

/// Another file system, with faults.
#[derive(Debug, Default)]
pub struct Faulty<F> {
    inner: F,
    faults: Arc<Faults>,
}

impl<F> Faulty<F> {
    /// Wraps `inner`.
    pub fn new(inner: F, faults: Arc<Faults>) -> Self {
        Self { inner, faults }
    }
}

impl<F: FileSystem> FileSystem for Faulty<F> {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Box<dyn File>> {
        self.faults.next(Call::Open)?;
        let inner = self.inner.open(path, mode)?;
        Ok(Box::new(FaultyFile { inner, faults: Arc::clone(&self.faults) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.next(Call::Rename)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.next(Call::Remove)?;
        self.inner.remove(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<OsString>> {
        self.faults.next(Call::List)?;
        self.inner.list(folder)
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.faults.next(Call::CreateFolder)?;
        self.inner.create_folder(folder)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.faults.next(Call::SyncFolder)?;
        self.inner.sync_folder(folder)
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        self.faults.next(Call::FreeBytes)?;
        self.inner.free_bytes(folder)
    }

    fn map(&self, path: &Path, words: usize) -> io::Result<Arc<dyn Mapped>> {
        self.faults.next(Call::Map)?;
        self.inner.map(path, words)
    }
}

struct FaultyFile {
    inner: Box<dyn File>,
    faults: Arc<Faults>,
}

/// The first `most` bytes of `parts`.
pub(super) fn first_bytes<'a>(parts: &'a [IoSlice<'_>], most: usize) -> Vec<IoSlice<'a>> {
    let mut left = most;
    let cut = parts.iter().map(|part| {
        let count = part.len().min(left);
        left -= count;
        IoSlice::new(&part[..count])
    });
    cut.filter(|part| !part.is_empty()).collect()
}

impl File for FaultyFile {
    fn read_at(&self, space: &mut [u8], offset: u64) -> io::Result<usize> {
        let most = self.faults.next(Call::Read)?.min(space.len());
        self.inner.read_at(&mut space[..most], offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let most = self.faults.next(Call::Write)?;
        self.inner.write_at(&first_bytes(parts, most), offset)
    }

    fn length(&self) -> io::Result<u64> {
        self.faults.next(Call::Length)?;
        self.inner.length()
    }

    fn set_length(&self, bytes: u64) -> io::Result<()> {
        self.faults.next(Call::SetLength)?;
        self.inner.set_length(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.next(Call::Sync)?;
        self.inner.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.faults.next(Call::Lock)?;
        self.inner.try_lock()
    }

    fn set_direct(&self, is_direct: bool) -> io::Result<()> {
        self.faults.next(Call::SetDirect)?;
        self.inner.set_direct(is_direct)
    }
}
