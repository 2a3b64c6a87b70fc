//! Operations for the kernel: they are queued, and submitted together.
//!
//! Each connection is *watched*: in addition to its receive, a poll for its end is with the kernel,
//! for two reasons. A connection that is paused, or has ended its own side, has no receive that
//! would notice a reset. And a multishot receive can miss the end: when bytes and the end wake it
//! together, it takes the bytes, finds no more, and sleeps, with nothing left that would wake it
//! (<https://github.com/axboe/liburing/issues/1549> has it for unix sockets; a reset does the same
//! to TCP). So when the watch has reported the end, the receive is restarted, and from then on
//! receives take one buffer each: a new receive looks at the socket first and does not wait for a
//! wake-up.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{opcode, squeue};

use super::conn::{Far, Message, Receive};
use super::word::{self, Kind};
use super::{Uring, buffers};
use crate::net::event::{Token, Wait};

/// The poll flag for a client that sends no more. [`FAR_OVER`] is always reported with it.
const FAR_SHUT: u32 = libc::POLLRDHUP as u32;
/// The poll flags for a connection whose two sides have ended, or that is broken.
const FAR_OVER: u32 = (libc::POLLHUP | libc::POLLERR) as u32;

/// The largest piece of one send. The kernel's own limit is just below 2 GiB.
const PIECE_MAX: usize = 1 << 30;

impl Uring {
    /// Turns requests into operations in the submission queue.
    pub(super) fn queue_operations(&mut self) -> io::Result<()> {
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

    /// Submits the queued operations, and waits for at most one completion.
    pub(super) fn enter(&mut self, wait: Wait) -> io::Result<()> {
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
            // The time is over, a signal arrived, or completions must be taken before more can be
            // submitted.
            Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    /// Whether there is no reason to enter the kernel. With deferred task work, arrivals are seen
    /// only by entering; a flag is set if there are any.
    fn nothing_to_enter(&mut self) -> bool {
        let submissions = self.ring.submission();
        submissions.is_empty() && !submissions.taskrun() && !submissions.cq_overflow()
    }

    /// Queues an operation that will complete.
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
    pub(super) unsafe fn submit_entry(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            let mut submissions = self.ring.submission();
            // SAFETY: by the caller's promise.
            if unsafe { submissions.push(entry) }.is_ok() {
                return Ok(());
            }
            drop(submissions);
            // The queue is full: submitting makes room. The kernel takes all operations, or as many
            // as memory allows.
            self.ring.submit()?;
        }
    }

    /// Asks the kernel to cancel the operations that carry `word`.
    pub(super) fn cancel(&mut self, word: u64) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(word).all())
            .build()
            .user_data(word::of(Kind::Cancel, Token { index: 0, generation: 0 }));
        // SAFETY: a cancel points to nothing. If the queue cannot be entered, the next poll says
        // so, and the core is lost with all that it holds.
        let _ = unsafe { self.submit_entry(&entry) };
    }

    fn arm_waker(&mut self) -> io::Result<()> {
        assert!(!self.wake_armed, "two reads into the same bytes");
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

    pub(super) fn arm_listener(&mut self, id: usize) -> io::Result<()> {
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
        if conn.closing || conn.releasing {
            return Ok(());
        }
        self.watch(token)?;
        self.receive(token)
    }

    /// Asks for a report of the client's end: first that it sends no more, then that the connection
    /// is over.
    fn watch(&mut self, token: Token) -> io::Result<()> {
        let Some(conn) = self.lent.conns.get_mut(token) else { return Ok(()) };
        if conn.watched || conn.far.is_over() {
            return Ok(());
        }
        conn.watched = true;
        let wanted = if conn.far == Far::Open { FAR_SHUT } else { FAR_OVER };
        let entry = opcode::PollAdd::new(Fd(conn.socket.as_raw_fd()), wanted).build();
        // SAFETY: a poll points to nothing.
        unsafe { self.start(&entry.user_data(word::of(Kind::Watch, token))) }
    }

    fn receive(&mut self, token: Token) -> io::Result<()> {
        let Some(conn) = self.lent.conns.get_mut(token) else { return Ok(()) };
        debug_assert!(!conn.closing, "{token:?} is closing"); // The watch would keep the socket.
        if conn.paused || conn.eof {
            return Ok(());
        }
        let fd = Fd(conn.socket.as_raw_fd());
        let entry = match (conn.receive, conn.far) {
            (Receive::Idle, Far::Open) => {
                conn.receive = Receive::Armed;
                opcode::RecvMulti::new(fd, buffers::GROUP).build()
            }
            (Receive::Idle, _) => {
                conn.receive = Receive::ArmedOnce;
                let entry = opcode::Recv::new(fd, std::ptr::null_mut(), buffers::BYTES as u32);
                entry.buf_group(buffers::GROUP).build().flags(squeue::Flags::BUFFER_SELECT)
            }
            (Receive::Armed, Far::Shut | Far::Gone | Far::Broken) => {
                // The receive may have missed the end: see the module.
                conn.receive = Receive::Stopping;
                self.cancel(word::of(Kind::Receive, token));
                return Ok(());
            }
            _ => return Ok(()),
        };
        let entry = entry.user_data(word::of(Kind::Receive, token));
        // SAFETY: it points to nothing; the buffers it picks are in `lent` and outlive it (`Drop`).
        unsafe { self.start(&entry) }
    }

    fn start_send(&mut self, token: Token) -> io::Result<()> {
        let Some(conn) = self.lent.conns.get_mut(token) else { return Ok(()) };
        let Some(sending) = &conn.sending else { return Ok(()) };
        assert!(!conn.with_kernel, "two sends of {token:?} would mix their bytes");
        if sending.is_done() {
            self.sent(token);
            return Ok(());
        }
        let fd = Fd(conn.socket.as_raw_fd());
        // The send ends when everything is sent or it fails: the kernel continues by itself when
        // the socket has room again.
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
}
