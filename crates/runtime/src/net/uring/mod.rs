//! The back for kernels that allow io_uring: fewer system calls, one per turn where it goes well.
//!
//! Accepts and receives are multishot, received bytes lie in a ring of buffers that belongs to the
//! core, sends are queued and enter the kernel together. Needs Linux 6.1 (DEFER_TASKRUN); what is
//! older falls back on epoll.
//!
//! Invariants:
//! - I1: a connection stays in the table, its socket and its buffers alive, until the kernel holds
//!   no operation of it: `receive` is `Idle` and `with_kernel` is false. Only then it is closed.
//! - I2: `operations` counts what will come back: receives, sends, accepts, the wake. Cancels are
//!   not counted, they hold no memory.
//! - I3: a fresh connection has no operation.
//!
//! Not here: which connection may send how much. See `server`.

mod buffers;
mod word;

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue, types::CancelBuilder};
use rustix::io::Errno;
use rustix::net::Shutdown;

use self::buffers::Buffers;
use self::word::Kind;
use super::RECEIVED_MAX;
use super::buffer::{IOVECS_MAX, SendBuffer, Sending};
use super::event::{Event, Parcel, Peer, Token, Wait};
use super::listen::{self, Listener};
use super::pending::Pending;
use super::slab::Slab;
use super::waker::Waker;

/// Operations that enter the kernel at once; more go in several rounds.
const SUBMISSIONS: u32 = 1024;
/// Room for what comes back: 4 times as much paid off. The kernel keeps what exceeds it.
const COMPLETIONS: u32 = 4 * SUBMISSIONS;
/// One send's largest piece: the kernel's own limit is just below 2 GiB.
const PIECE_MAX: usize = 1 << 30;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receive {
    /// No operation.
    Idle,
    /// A multishot receive is with the kernel.
    Armed,
    /// So it is, and a cancel follows it.
    Stopping,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shut {
    Open,
    AfterSend,
    Done,
}

/// A message of several pieces, at an address that the kernel may keep.
struct Message {
    header: libc::msghdr,
    pieces: [libc::iovec; IOVECS_MAX],
}

struct Conn {
    socket: OwnedFd,
    fresh: Option<Box<(usize, Peer)>>,
    receive: Receive,
    paused: bool,
    eof: bool,
    shut: Shut,
    sending: Option<Sending>,
    /// The send is with the kernel, and so are the addresses of `sending` and `message`.
    with_kernel: bool,
    message: Option<Box<Message>>,
    closing: bool,
    error: Option<io::Error>,
}

impl Conn {
    fn new(socket: OwnedFd, listener: usize, peer: Peer) -> Self {
        Self {
            socket,
            fresh: Some(Box::new((listener, peer))),
            receive: Receive::Idle,
            paused: false,
            eof: false,
            shut: Shut::Open,
            sending: None,
            with_kernel: false,
            message: None,
            closing: false,
            error: None,
        }
    }
}

/// What the kernel may still read or write: outlives the ring, see [`Uring`]'s `Drop`.
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
    /// Connections that may want to receive: fresh, resumed, or with a receive that ended.
    arming: Vec<Token>,
    queued: Vec<Token>,
    pending: Vec<Pending>,
    /// Completions (word, result, flags) that are still to be looked into: more than one turn's.
    completions: VecDeque<(u64, i32, u32)>,
    /// Bytes handed over by this poll.
    received_bytes: usize,
}

impl Uring {
    /// Sets up a ring and its buffers: this is the probe, too. The ring belongs to the calling
    /// thread.
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
        })
    }

    pub(super) fn add_listener(&mut self, listener: Listener) -> io::Result<usize> {
        // The kernel waits in our stead; for a non-blocking socket it would not.
        rustix::io::ioctl_fionbio(&listener.socket, false)?;
        let id = self.listeners.len();
        self.listeners.push(Some(listener));
        self.arm_listener(id)?;
        Ok(id)
    }

    pub(super) fn listener(&self, id: usize) -> Option<&Listener> {
        self.listeners.get(id)?.as_ref()
    }

    pub(super) fn stop_listening(&mut self) {
        for id in 0..self.listeners.len() {
            if self.listeners[id].take().is_some() {
                self.cancel(word::listener(id));
            }
        }
        self.resting = false;
        // At once: the kernel listens until it has seen the cancel. If it cannot be entered now,
        // the next poll will enter it, and report why not.
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

    /// Takes what the kernel has completed: as much as its queue holds.
    fn reap(&mut self) {
        let arrived = self.ring.completion();
        let parts = arrived.map(|entry| (entry.user_data(), entry.result(), entry.flags()));
        self.completions.extend(parts);
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
        if conn.receive == Receive::Armed {
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
        let conn = self.lent.conns.remove(token)?;
        Some(Parcel { socket: conn.socket, listener, peer })
    }

    pub(super) fn adopt(&mut self, parcel: Parcel) -> Token {
        // Whichever back accepted it. This cannot fail for a socket; if it did, the first receive
        // would report "would block", and is armed again.
        let _ = rustix::io::ioctl_fionbio(&parcel.socket, false);
        self.insert(Conn::new(parcel.socket, parcel.listener, parcel.peer))
    }

    fn insert(&mut self, conn: Conn) -> Token {
        let token = self.lent.conns.insert(conn);
        self.arming.push(token);
        token
    }

    fn deliver(&mut self, handler: &mut dyn FnMut(Event<'_>)) {
        for pending in self.pending.drain(..) {
            handler(pending.into_event());
        }
    }

    // --- towards the kernel ---

    /// Turns what was asked for into operations in the submission queue.
    fn queue_operations(&mut self) -> io::Result<()> {
        if !self.wake_armed {
            self.arm_waker()?;
        }
        let mut arming = std::mem::take(&mut self.arming);
        for token in arming.drain(..) {
            self.arm(token)?;
        }
        self.arming = arming;
        let mut queued = std::mem::take(&mut self.queued);
        for token in queued.drain(..) {
            self.start_send(token)?;
        }
        self.queued = queued;
        Ok(())
    }

    /// Enters the kernel with what is queued, and waits for one completion at most.
    fn enter(&mut self, wait: Wait) -> io::Result<()> {
        let entered = match wait {
            Wait::Nothing if self.nothing_to_enter() => return Ok(()),
            Wait::Nothing => self.ring.submit(),
            Wait::Forever => self.ring.submit_and_wait(1),
            Wait::Until(nanos) => {
                let span =
                    Timespec::new().sec(nanos / 1_000_000_000).nsec((nanos % 1_000_000_000) as u32);
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&span))
            }
        };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            // The time is over, a signal came, or completions must be taken before more can enter.
            Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    /// With deferred task work, what arrived is seen by entering only, and a flag says so.
    fn nothing_to_enter(&mut self) -> bool {
        let submissions = self.ring.submission();
        submissions.is_empty() && !submissions.taskrun() && !submissions.cq_overflow()
    }

    /// Queues an operation that will come back.
    ///
    /// # Safety
    /// Whatever `entry` points to stays where it is until its completion.
    unsafe fn start(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: by the caller's promise.
        unsafe { self.submit_entry(entry) }?;
        self.operations += 1;
        Ok(())
    }

    /// # Safety
    /// As for [`Uring::start`].
    unsafe fn submit_entry(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            let mut submissions = self.ring.submission();
            // SAFETY: by the caller's promise.
            if unsafe { submissions.push(entry) }.is_ok() {
                return Ok(());
            }
            drop(submissions);
            // Full: entering makes room. It takes all, or as much as memory allows.
            self.ring.submit()?;
        }
    }

    /// Asks the kernel to end the operations that carry `word`.
    fn cancel(&mut self, word: u64) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(word).all())
            .build()
            .user_data(word::of(Kind::Cancel, Token { index: 0, generation: 0 }));
        // SAFETY: a cancel points to nothing. If the queue cannot be entered, the next poll says
        // so, and the core is lost with all that it holds.
        let _ = unsafe { self.submit_entry(&entry) };
    }

    fn arm_waker(&mut self) -> io::Result<()> {
        let fd = Fd(rustix::fd::AsRawFd::as_raw_fd(&self.waker.fd()));
        let wakes: *mut u64 = &raw mut *self.lent.wakes;
        let entry = opcode::Read::new(fd, wakes.cast(), 8)
            .build()
            .user_data(word::of(Kind::Wake, Token { index: 0, generation: 0 }));
        // SAFETY: the 8 bytes are boxed in `lent`, which outlives the operation (`Drop`).
        unsafe { self.start(&entry) }?;
        self.wake_armed = true;
        Ok(())
    }

    fn arm_listener(&mut self, id: usize) -> io::Result<()> {
        let Some(Some(listener)) = self.listeners.get(id) else { return Ok(()) };
        let entry = opcode::AcceptMulti::new(Fd(listener.socket.as_raw_fd()))
            .flags(libc::SOCK_CLOEXEC)
            .build()
            .user_data(word::listener(id));
        // SAFETY: an accept without address points to nothing.
        unsafe { self.start(&entry) }
    }

    fn arm(&mut self, token: Token) -> io::Result<()> {
        let Some(conn) = self.lent.conns.get_mut(token) else { return Ok(()) };
        conn.fresh = None;
        if conn.receive != Receive::Idle || conn.paused || conn.eof || conn.closing {
            return Ok(());
        }
        conn.receive = Receive::Armed;
        let entry = opcode::RecvMulti::new(Fd(conn.socket.as_raw_fd()), buffers::GROUP)
            .build()
            .user_data(word::of(Kind::Receive, token));
        // SAFETY: it points to nothing; the buffers it picks are in `lent` and outlive it (`Drop`).
        unsafe { self.start(&entry) }
    }

    fn start_send(&mut self, token: Token) -> io::Result<()> {
        let Some(conn) = self.lent.conns.get_mut(token) else { return Ok(()) };
        let Some(sending) = &conn.sending else { return Ok(()) };
        if sending.is_done() {
            self.sent(token);
            return Ok(());
        }
        let fd = Fd(conn.socket.as_raw_fd());
        // Whole, or until it fails: the kernel goes on by itself when the socket has room again.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let entry = if let Some(bytes) = sending.flat() {
            let len = bytes.len().min(PIECE_MAX) as u32;
            opcode::Send::new(fd, bytes.as_ptr(), len).flags(flags).build()
        } else {
            let message = conn.message.get_or_insert_with(Message::empty);
            message.point_to(sending);
            opcode::SendMsg::new(fd, &raw const message.header).flags(flags as u32).build()
        };
        conn.with_kernel = true;
        // SAFETY: the bytes are on the heap, owned by `sending`, or by `Arc`s that it owns; the
        // header and its pieces are boxed. Both are untouched until the completion (I1), the
        // connection's place may move, they do not.
        unsafe { self.start(&entry.user_data(word::of(Kind::Send, token))) }
    }

    // --- from the kernel ---

    fn on_completion(
        &mut self,
        word: u64,
        result: i32,
        flags: u32,
        handler: &mut dyn FnMut(Event<'_>),
    ) {
        self.count_back(word, flags);
        match word::kind(word) {
            Kind::Cancel => {}
            Kind::Receive => self.on_receive(word, result, flags, handler),
            Kind::Send => self.on_send(word, result),
            Kind::Accept => self.on_accept(word::index(word) as usize, result, flags, handler),
            Kind::Wake => {
                self.wake_armed = false;
                handler(Event::Woken);
            }
        }
    }

    /// Counts an operation as over when this was the last of it (I2).
    fn count_back(&mut self, word: u64, flags: u32) {
        if word::kind(word) != Kind::Cancel && !cqueue::more(flags) {
            self.operations -= 1;
        }
    }

    /// Takes a completion back that nobody is told of any more.
    fn forget_operation(&mut self, word: u64, result: i32, flags: u32) {
        self.count_back(word, flags);
        if word::kind(word) == Kind::Accept && result >= 0 {
            // SAFETY: the kernel made this descriptor for this completion; no one else has it.
            drop(unsafe { OwnedFd::from_raw_fd(result) });
        }
    }

    fn on_receive(
        &mut self,
        word: u64,
        result: i32,
        flags: u32,
        handler: &mut dyn FnMut(Event<'_>),
    ) {
        let token = self.token_of(word);
        let Some(conn) = self.lent.conns.get_mut(token) else {
            unreachable!("I1: {token:?} is alive while it receives");
        };
        let silent = conn.closing || conn.eof;
        if let Some(id) = cqueue::buffer_select(flags) {
            if result > 0 && !silent {
                self.received_bytes += result as usize;
                // SAFETY: the buffer and its length are from this completion, and it is put back
                // below.
                let bytes = unsafe { self.lent.buffers.bytes(id, result as usize) };
                handler(Event::Received { conn: token, bytes });
            }
            self.lent.buffers.put_back(id);
        }
        if result == 0 && !silent {
            handler(Event::Eof { conn: token });
        }
        if !cqueue::more(flags) {
            self.receive_ended(token, result);
        }
    }

    /// The multishot receive is over: for good, or to be armed again.
    fn receive_ended(&mut self, token: Token, result: i32) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        conn.receive = Receive::Idle;
        if conn.closing {
            return self.close_if_free(token);
        }
        match result {
            0 => {
                conn.eof = true;
                if conn.shut == Shut::Done {
                    self.finish(token, None);
                }
            }
            // Buffers ran out (they are back by now), we paused, or the kernel wants a new one.
            1.. => self.arming.push(token),
            _ => match -result {
                libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN => {
                    self.arming.push(token);
                }
                errno => self.finish(token, Some(io::Error::from_raw_os_error(errno))),
            },
        }
    }

    fn on_send(&mut self, word: u64, result: i32) {
        let token = self.token_of(word);
        let Some(conn) = self.lent.conns.get_mut(token) else {
            unreachable!("I1: {token:?} is alive while it sends");
        };
        conn.with_kernel = false;
        if conn.closing {
            return self.close_if_free(token);
        }
        let Some(sending) = &mut conn.sending else {
            unreachable!("a send of {token:?} came back, and none was out");
        };
        match result {
            0.. => sending.advance(result as usize),
            _ if matches!(-result, libc::EAGAIN | libc::EINTR) => {}
            _ => return self.finish(token, Some(io::Error::from_raw_os_error(-result))),
        }
        if sending.is_done() { self.sent(token) } else { self.queued.push(token) }
    }

    fn on_accept(
        &mut self,
        id: usize,
        result: i32,
        flags: u32,
        handler: &mut dyn FnMut(Event<'_>),
    ) {
        if result >= 0 {
            // SAFETY: the kernel made this descriptor for this completion; no one else has it.
            let socket = unsafe { OwnedFd::from_raw_fd(result) };
            self.accepted(id, socket, handler);
        }
        let Some(Some(listener)) = self.listeners.get_mut(id) else { return };
        if cqueue::more(flags) {
            return;
        }
        if result >= 0 || listen::concerns_one_client(Errno::from_raw_os_error(-result)) {
            // A queue that cannot be entered is reported by the next poll.
            let _ = self.arm_listener(id);
            return;
        }
        listener.rests_until = Some(Instant::now() + listen::REST);
        self.resting = true;
    }

    fn accepted(&mut self, id: usize, socket: OwnedFd, handler: &mut dyn FnMut(Event<'_>)) {
        // Dropped, when we have stopped listening or the client has gone.
        let Some(Some(listener)) = self.listeners.get(id) else { return };
        let Ok(peer) = listen::peer_of(&socket, &listener.address) else { return };
        let conn = self.insert(Conn::new(socket, id, peer.clone()));
        handler(Event::Accepted { listener: id, conn, peer });
    }

    fn rouse(&mut self, wait: Wait) -> io::Result<Wait> {
        let roused = listen::rouse(&mut self.listeners, wait);
        self.resting = roused.others_rest;
        for id in roused.ids {
            self.arm_listener(id)?;
        }
        Ok(roused.wait)
    }

    /// The connection's token of today: by I1 the place has had no other tenant meanwhile.
    fn token_of(&self, word: u64) -> Token {
        self.lent.conns.tenant(word::index(word))
    }

    // --- ends ---

    fn sent(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if let Some(sending) = conn.sending.take() {
            self.pending.push(Pending::Sent(token, sending.into_buffer(), None));
        }
        self.shut_if_sent(token);
    }

    fn shut_if_sent(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if conn.shut != Shut::AfterSend || conn.sending.is_some() || conn.closing {
            return;
        }
        conn.shut = Shut::Done;
        // A client that has gone already refuses, and then there is nothing to shut.
        let _ = rustix::net::shutdown(&conn.socket, Shutdown::Write);
        if conn.eof {
            self.finish(token, None);
        }
    }

    /// Begins the end of a connection: the kernel gives up what it holds of it.
    fn finish(&mut self, token: Token, error: Option<io::Error>) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if conn.closing {
            return;
        }
        conn.closing = true;
        conn.error = error;
        let (receiving, sending) = (conn.receive == Receive::Armed, conn.with_kernel);
        if receiving {
            self.cancel(word::of(Kind::Receive, token));
        }
        if sending {
            self.cancel(word::of(Kind::Send, token));
        }
        self.close_if_free(token);
    }

    /// Ends it when the kernel holds nothing more of it (I1).
    fn close_if_free(&mut self, token: Token) {
        let Some(conn) = self.lent.conns.get_mut(token) else { return };
        if conn.receive != Receive::Idle || conn.with_kernel {
            return;
        }
        let Some(conn) = self.lent.conns.remove(token) else { return };
        if let Some(sending) = conn.sending {
            let reason = conn.error.as_ref().map(io::Error::kind);
            let reason = reason.unwrap_or(io::ErrorKind::ConnectionAborted);
            self.pending.push(Pending::Sent(token, sending.into_buffer(), Some(reason)));
        }
        self.pending.push(Pending::Closed(token, conn.error));
    }
}

impl Drop for Uring {
    /// Takes back what the kernel holds, then the ring, then the memory. Should the kernel not let
    /// go within a second, the memory is left to it: a leak at the end is harmless, a write into
    /// freed memory is not.
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

impl Message {
    fn empty() -> Box<Self> {
        const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all zeroes is a header without name, control data and pieces.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Self { header, pieces: [NOTHING; IOVECS_MAX] })
    }

    fn point_to(&mut self, sending: &Sending) {
        let mut slices = [IoSlice::new(&[]); IOVECS_MAX];
        let count = sending.fill(&mut slices);
        for (piece, slice) in self.pieces.iter_mut().zip(&slices[..count]) {
            // The kernel only reads what is sent.
            piece.iov_base = slice.as_ptr().cast_mut().cast();
            piece.iov_len = slice.len();
        }
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = count;
    }
}

fn named(call: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call}: {error}"))
}
