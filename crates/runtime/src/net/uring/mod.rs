//! The backend for kernels that allow io_uring: fewer system calls, one per turn at best.
//!
//! Accepts and receives are multishot, received bytes are in a ring of buffers that belongs to the
//! core, sends are queued and submitted together. Needs Linux 6.1 (DEFER_TASKRUN); older kernels
//! fall back on epoll.
//!
//! ```text
//! caller ── face (here) ── submit ──► kernel ──► complete ── events ──► caller
//!                            ▲                      │
//!                            └── end: cancels ◄─────┘    conn: what the kernel may point to
//! ```
//! Invariants:
//! - I1: a connection stays in the table, its socket and its buffers alive, until the kernel holds
//!   no operation of it: `receive` is `Idle`, `with_kernel` and `watched` are false. Only then it
//!   is closed, or given away.
//! - I2: `operations` counts outstanding completions: receives, sends, watches, accepts, the wake.
//!   Cancels are not counted, they hold no memory.
//! - I3: a fresh connection has no operation.
//!
//! Not here: which connection may send how much. See `server`.

mod buffers;
mod complete;
mod conn;
mod end;
mod submit;
mod word;

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;

use io_uring::types::CancelBuilder;
use io_uring::{IoUring, opcode};

use self::buffers::Buffers;
use self::conn::{Conn, Receive, Shut};
use self::word::Kind;
use super::RECEIVED_MAX;
use super::buffer::{SendBuffer, Sending};
use super::event::{Event, Parcel, Token, Wait};
use super::listen::Listener;
use super::pending::Pending;
use super::slab::Slab;
use super::waker::Waker;

/// The number of operations submitted at once. More are submitted in several rounds.
const SUBMISSIONS: u32 = 1024;
/// The room for completions: measurements favoured 4 times as much. The kernel keeps the
/// completions that do not fit.
const COMPLETIONS: u32 = 4 * SUBMISSIONS;

/// The memory that the kernel may still read or write: outlives the ring, see [`Uring`]'s `Drop`.
struct Lent {
    buffers: Buffers,
    conns: Slab<Conn>,
    wakes: Box<u64>,
}

/// A [`super::Net`] on io_uring.
pub struct Uring {
    ring: ManuallyDrop<IoUring>,
    lent: ManuallyDrop<Lent>,
    listeners: Vec<Option<Listener>>,
    resting: bool,
    waker: Waker,
    operations: usize,
    wake_armed: bool,
    /// Connections that may lack a receive or a watch, because they are fresh or resumed, or
    /// because one of these has ended.
    arming: Vec<Token>,
    queued: Vec<Token>,
    pending: Vec<Pending>,
    /// Completions (word, result, flags) that are not handled yet, because they are more than one
    /// turn handles.
    completions: VecDeque<(u64, i32, u32)>,
    /// The bytes that this poll has handed over.
    received_bytes: usize,
    /// See [`super::Net::note_news`].
    noted: usize,
}

impl Uring {
    /// Sets up a ring and its buffers; if that fails, io_uring cannot be used. The ring belongs to
    /// the calling thread.
    pub(super) fn open(waker: Waker) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_cqsize(COMPLETIONS)
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(SUBMISSIONS)
            .map_err(|error| named("io_uring_setup", &error))?;
        let buffers = Buffers::register(&ring)
            .map_err(|error| named("io_uring_register (buffer ring)", &error))?;
        let lent = Lent { buffers, conns: Slab::new(), wakes: Box::new(0) };
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            lent: ManuallyDrop::new(lent),
            listeners: Vec::new(),
            resting: false,
            waker,
            operations: 0,
            wake_armed: false,
            arming: Vec::new(),
            queued: Vec::new(),
            pending: Vec::new(),
            completions: VecDeque::with_capacity(COMPLETIONS as usize),
            received_bytes: 0,
            noted: 0,
        })
    }

    pub(super) fn add_listener(&mut self, listener: Listener) -> io::Result<usize> {
        // The kernel waits on behalf of this core. For a non-blocking socket it would not.
        rustix::io::ioctl_fionbio(&listener.socket, false)?;
        let id = self.listeners.len();
        self.listeners.push(Some(listener));
        self.arm_listener(id)?;
        Ok(id)
    }

    pub(super) fn listener(&self, id: usize) -> Option<&Listener> {
        self.listeners.get(id)?.as_ref()
    }

    /// Listener numbers are not reused: the last completion of an old accept would be taken for a
    /// new one's.
    pub(super) fn stop_listener(&mut self, id: usize) {
        if let Some(listener) = self.listeners[id].take() {
            listener.silence();
            self.cancel(word::listener(id));
        }
    }

    pub(super) fn stop_listening(&mut self) {
        (0..self.listeners.len()).for_each(|id| self.stop_listener(id));
        self.resting = false;
        // Submitted at once, because the kernel listens until it has seen the cancellation. If this
        // fails, the next poll reports why.
        let _ = self.enter(Wait::Nothing);
    }

    pub(super) fn connections(&self) -> usize {
        self.lent.conns.len()
    }

    pub(super) fn tokens(&self) -> Vec<Token> {
        self.lent.conns.tokens()
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(super) fn poll(
        &mut self,
        wait: Wait,
        handler: &mut dyn FnMut(Event<'_>),
    ) -> io::Result<()> {
        self.noted = 0;
        self.queue_operations()?;
        let had_pending = !self.pending.is_empty();
        self.deliver(handler);
        let wait = if self.resting { self.rouse(wait)? } else { wait };
        let at_hand = had_pending || !self.completions.is_empty();
        let at_hand = at_hand || !self.ring.completion().is_empty();
        self.enter(if at_hand { Wait::Nothing } else { wait })?;
        self.reap();
        self.received_bytes = 0;
        while self.received_bytes < RECEIVED_MAX
            && let Some((word, result, flags)) = self.completions.pop_front()
        {
            self.on_completion(word, result, flags, handler);
        }
        self.lent.buffers.announce();
        self.deliver(handler);
        Ok(())
    }

    pub(super) fn has_news(&mut self) -> io::Result<bool> {
        let is_waiting = !self.pending.is_empty() || !self.completions.is_empty();
        let has_completions = is_waiting || !self.ring.completion().is_empty();
        Ok(has_completions || self.ring.submission().taskrun())
    }

    pub(super) fn note_news(&mut self) {
        self.noted = self.news();
    }

    pub(super) fn has_newer(&mut self) -> io::Result<bool> {
        Ok(self.news() > self.noted || self.ring.submission().taskrun())
    }

    /// The number of completions that wait to be handed over.
    fn news(&mut self) -> usize {
        self.pending.len() + self.completions.len() + self.ring.completion().len()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.queue_operations()?;
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        self.enter(Wait::Nothing)
    }

    pub(super) fn send(&mut self, token: Token, buffer: SendBuffer) -> Result<(), SendBuffer> {
        let Some(conn) = self.lent.conns.get_mut(token) else { return Err(buffer) };
        if conn.closing {
            return Err(buffer);
        }
        assert!(conn.sending.is_none(), "a second send for {token:?}");
        assert!(conn.shut == Shut::Open, "a send after shutdown_send for {token:?}");
        conn.sending = Some(Sending::new(buffer));
        self.queued.push(token);
        Ok(())
    }

    pub(super) fn pause_receive(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        conn.paused = true;
        if conn.is_over() {
            return self.finish_broken(token);
        }
        if conn.receive.is_armed() {
            conn.receive = Receive::Stopping;
            self.cancel(word::of(Kind::Receive, token));
        }
    }

    pub(super) fn resume_receive(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        conn.paused = false;
        if conn.receive == Receive::Idle && conn.fresh.is_none() {
            self.arming.push(token);
        }
    }

    pub(super) fn shutdown_send(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if conn.shut == Shut::Open {
            conn.shut = Shut::AfterSend;
            self.shut_if_sent(token);
        }
    }

    pub(super) fn close(&mut self, token: Token) {
        self.finish(token, None);
    }

    pub(super) fn hand_over(&mut self, token: Token) -> Option<Parcel> {
        let conn = self.lent.conns.get_mut(token)?;
        assert!(conn.sending.is_none(), "handed over with a send in flight: {token:?}");
        let (listener, peer) = *conn.fresh.take()?;
        assert!(conn.is_free(), "I1: handed over while the kernel holds it: {token:?}");
        let conn = self.lent.conns.remove(token)?;
        Some(Parcel { socket: conn.socket, listener, peer })
    }

    pub(super) fn adopt(&mut self, parcel: Parcel) -> Token {
        // Either backend may have accepted it. This cannot fail for a socket; if it did, the first
        // receive would report "would block", and is armed again.
        let _ = rustix::io::ioctl_fionbio(&parcel.socket, false);
        let fresh = Box::new((parcel.listener, parcel.peer));
        self.insert(Conn::new(parcel.socket, Some(fresh)))
    }

    pub(super) fn release(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if conn.closing {
            return;
        }
        let is_idle = conn.sending.is_none() && conn.shut == Shut::Open;
        assert!(is_idle, "given away while it sends: {token:?}");
        conn.releasing = true;
        self.take_back(token);
        self.release_if_free(token);
    }

    pub(super) fn take_over(&mut self, socket: OwnedFd) -> Token {
        let _ = rustix::io::ioctl_fionbio(&socket, false); // As in `adopt`.
        self.insert(Conn::new(socket, None))
    }

    fn insert(&mut self, conn: Conn) -> Token {
        let token = self.lent.conns.insert(conn);
        self.arming.push(token);
        token
    }

    fn deliver(&mut self, handler: &mut dyn FnMut(Event<'_>)) {
        for pending in self.pending.drain(..) {
            let ended = pending.ended();
            handler(pending.into_event());
            if let Some(token) = ended {
                self.lent.conns.vacate(token);
            }
        }
    }
}

impl Drop for Uring {
    /// Takes back the memory that the kernel holds, then frees the ring, then the memory. If the
    /// kernel does not release it within a second, the memory is leaked: that is harmless at the
    /// end, a write into freed memory is not.
    fn drop(&mut self) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
        // SAFETY: a cancel points to nothing.
        let mut entered = unsafe { self.submit_entry(&entry) }.is_ok();
        for _ in 0..10 {
            self.reap();
            while let Some((word, result, flags)) = self.completions.pop_front() {
                self.forget_operation(word, result, flags);
            }
            if self.operations == 0 || !entered {
                break;
            }
            entered = self.enter(Wait::Until(100_000_000)).is_ok();
        }
        // SAFETY: not used after this.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        if self.operations == 0 {
            // SAFETY: not used after this; the kernel holds no operation that points into it.
            unsafe { ManuallyDrop::drop(&mut self.lent) };
        }
    }
}

fn named(call: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call}: {error}"))
}
