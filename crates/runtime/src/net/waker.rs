//! Wakes a core from another thread by an eventfd, for which both backends can wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// Wakes one core. Clones wake the same core.
#[derive(Clone, Debug)]
pub struct Waker {
    counter: Arc<OwnedFd>,
}

impl Waker {
    /// Makes a waker for the [`super::Net`] that is opened with it.
    ///
    /// Errors: no file descriptor left.
    pub fn new() -> io::Result<Self> {
        // Blocking, because io_uring refuses to wait for a non-blocking descriptor. Only the core
        // reads it, and on epoll only when it is readable.
        let counter = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self { counter: Arc::new(counter) })
    }

    /// Wakes the core, or prevents its next sleep. One system call: check first whether it sleeps
    /// (see [`crate::mailbox`]).
    pub fn wake(&self) {
        // This blocks only after 2^64 wakes without a read.
        let _ = rustix::io::write(&self.counter, &1_u64.to_ne_bytes());
    }

    /// Takes all wakes so far. Call it only if there are some, because otherwise it blocks.
    pub(super) fn clear(&self) {
        // Only a signal can interrupt it, and then the next poll reports it again.
        let _ = rustix::io::read(&self.counter, &mut [0_u8; 8]);
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}
