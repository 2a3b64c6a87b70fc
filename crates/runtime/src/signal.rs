//! Termination signals, turned into a flag and a wake.
//!
//! The signals are blocked in every thread and awaited by one, so nothing runs inside a signal
//! handler, where hardly anything is allowed.
//!
//! Not here: orderly shutdown. See `server`.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::net::Waker;

/// The process's exit code after a second signal.
pub const IMPATIENT_EXIT: i32 = 1;

/// Whether the process was asked to stop.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// True once a signal came, or [`StopFlag::raise`] was called.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Asks to stop, as a signal does. Wake the cores afterwards.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Watches for SIGTERM and SIGINT: the first raises the flag and wakes everyone in `wakers`, the
/// second ends the process at once. From now on SIGPIPE and SIGHUP are ignored.
///
/// Call it in the main thread before there are others: they inherit the blocked set.
///
/// Errors: the thread cannot be started.
pub fn watch(wakers: Vec<Waker>) -> io::Result<StopFlag> {
    for ignored in [libc::SIGPIPE, libc::SIGHUP] {
        // SAFETY: ignoring installs no code of ours, and any thread may do it.
        unsafe { libc::signal(ignored, libc::SIG_IGN) };
    }
    let signals = stop_signals();
    // SAFETY: `signals` is a set made by `stop_signals`; the old mask is not requested.
    let refused = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signals, std::ptr::null_mut()) };
    if refused != 0 {
        return Err(io::Error::from_raw_os_error(refused));
    }
    let flag = StopFlag::default();
    let theirs = flag.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        wait_for(&signals);
        theirs.raise();
        wakers.iter().for_each(Waker::wake);
        wait_for(&signals);
        // SAFETY: ends the process at once, running none of its code: the user asked twice.
        unsafe { libc::_exit(IMPATIENT_EXIT) };
    })?;
    Ok(flag)
}

fn stop_signals() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `set` is a signal set that the call may write.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: `set` was made a set, and these are signals.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: `sigemptyset` has written all of it.
    unsafe { set.assume_init() }
}

fn wait_for(signals: &libc::sigset_t) {
    let mut came = 0;
    // SAFETY: both live for the call; the set's signals are blocked in every thread.
    while unsafe { libc::sigwait(signals, &mut came) } != 0 {}
}
