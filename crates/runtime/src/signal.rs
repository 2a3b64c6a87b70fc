//! Termination signals, turned into a flag and a wake.
//!
//! The signals are blocked in every thread and awaited by one, so nothing runs inside a signal
//! handler, where hardly anything is allowed.
//!
//! Not here: orderly shutdown. See `server`.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::net::Waker;

/// The process's exit code after a second signal.
pub const IMPATIENT_EXIT: i32 = 1;

/// A signal that asks to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: from a supervisor.
    Term,
    /// SIGINT: from a terminal.
    Int,
}

impl std::fmt::Display for Signal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Term => "SIGTERM",
            Self::Int => "SIGINT",
        })
    }
}

/// Whether the process was asked to stop, and by which signal: its number, or 0.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicI32>);

impl StopFlag {
    /// The signal that came, if one has.
    #[must_use]
    pub fn raised(&self) -> Option<Signal> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            libc::SIGINT => Some(Signal::Int),
            _ => Some(Signal::Term),
        }
    }

    /// The process does not stop: the next signal asks again.
    pub fn lower(&self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Watches for SIGTERM and SIGINT: one raises the flag and wakes everyone in `wakers`, another ends
/// the process at once, while the flag is raised. From now on SIGPIPE, SIGHUP and SIGXFSZ are
/// ignored: a file that may not grow is an error of the write.
///
/// Call it in the main thread before there are others: they inherit the blocked set.
///
/// Errors: the thread cannot be started.
pub fn watch(wakers: Vec<Waker>) -> io::Result<StopFlag> {
    for ignored in [libc::SIGPIPE, libc::SIGHUP, libc::SIGXFSZ] {
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
        loop {
            let came = wait_for(&signals);
            if theirs.0.swap(came, Ordering::AcqRel) != 0 {
                // SAFETY: ends the process at once, running none of its code: the user asked twice.
                unsafe { libc::_exit(IMPATIENT_EXIT) };
            }
            wakers.iter().for_each(Waker::wake);
        }
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

/// The next of these signals.
fn wait_for(signals: &libc::sigset_t) -> i32 {
    let mut came = 0;
    // SAFETY: both live for the call; the set's signals are blocked in every thread.
    while unsafe { libc::sigwait(signals, &mut came) } != 0 {}
    came
}
