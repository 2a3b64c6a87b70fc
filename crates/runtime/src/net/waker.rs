//! How another thread ends a core's sleep: an eventfd, which both backends can wait for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Wakes one core. Clones wake the same one.
#[derive(Clone, Debug)]
pub struct Waker {
    counter: Arc<OwnedFd>,
}

impl Waker {
    /// A waker for the [`super::Net`] that is opened with it.
    ///
    /// Errors: no file descriptor left.
    pub fn new() -> io::Result<Self> {
        // Blocking: io_uring refuses to wait for a descriptor that is not. Only the core reads it,
        // and epoll only when it is readable.
        let counter = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { counter: Arc::new(counter) })
    }

    /// Wakes the core, or prevents its next sleep. One system call: check first whether it sleeps
    /// (see [`crate::mailbox`]).
    pub fn wake(&self) {
        // Blocks only after 2^64 wakes without a read.
        let _ = rustix::io::write(&self.counter, &1_u64.to_ne_bytes());
    }

    /// Takes all wakes so far. Call it only when there are some: it blocks otherwise.
    pub(super) fn clear(&self) {
        // Only a signal can interrupt it, and then the next poll reports it again.
        let _ = rustix::io::read(&self.counter, &mut [0_u8; 8]);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}
