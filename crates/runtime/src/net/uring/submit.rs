//! Towards the kernel: operations are queued, and enter together.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{opcode, squeue};

use super::conn::{Message, Receive};
use super::word::{self, Kind};
use super::{Uring, buffers};
use crate::net::event::{Token, Wait};

/// One send's largest piece: the kernel's own limit is just below 2 GiB.
const PIECE_MAX: usize = 1 << 30;

impl Uring {
    /// Turns what was asked for into operations in the submission queue.
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

    /// Enters the kernel with what is queued, and waits for one completion at most.
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
    pub(super) unsafe fn submit_entry(&mut self, entry: &squeue::Entry) -> io::Result<()> {
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
    pub(super) fn cancel(&mut self, word: u64) {
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
}
