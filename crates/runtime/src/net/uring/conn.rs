//! A connection, and the parts of it that must not move while the kernel uses them.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use crate::net::buffer::{IOVECS_MAX, Sending};
use crate::net::event::Peer;

/// The receive operation that the kernel holds for a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Receive {
    /// The kernel holds no receive.
    Idle,
    /// The kernel holds a multishot receive.
    Armed,
    /// The kernel holds a receive of one buffer, because the client's end is near.
    ArmedOnce,
    /// A receive is in progress, and a cancel follows it.
    Stopping,
}

/// The state of the client's end as the watch has reported it. Earlier bytes may still be unread.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Far {
    Open,
    /// The client sends no more.
    Shut,
    /// The client does not receive any more, either.
    Gone,
    /// The connection is broken: a reset, or the peer is unreachable.
    Broken,
}

/// How far the sending side is shut down.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shut {
    Open,
    /// The sending side is shut down when the current send is over.
    AfterSend,
    Done,
}

/// A message of several pieces, at an address that the kernel may keep.
pub(super) struct Message {
    pub(super) header: libc::msghdr,
    pieces: [libc::iovec; IOVECS_MAX],
}

/// A connection. It stays in the table until the kernel holds nothing of it (I1).
pub(super) struct Conn {
    pub(super) socket: OwnedFd,
    /// The kernel has no operation of the connection yet, so it may move to another core.
    pub(super) fresh: Option<Box<(usize, Peer)>>,
    pub(super) receive: Receive,
    pub(super) paused: bool,
    /// The client has ended its sending side, and all that it sent has been received.
    pub(super) eof: bool,
    /// The known state of the client's end; `paused` and `eof` decide the consequences.
    pub(super) far: Far,
    /// The kernel holds a poll for the client's end.
    pub(super) watched: bool,
    pub(super) shut: Shut,
    pub(super) sending: Option<Sending>,
    /// The kernel holds the send, and the addresses of `sending` and `message`.
    pub(super) with_kernel: bool,
    pub(super) message: Option<Box<Message>>,
    /// The connection is being released: bytes that still arrive are reported, but the client's end
    /// is not.
    pub(super) releasing: bool,
    /// The connection is being closed: bytes that still arrive are not reported.
    pub(super) closing: bool,
    pub(super) error: Option<io::Error>,
}

impl Conn {
    pub(super) fn new(socket: OwnedFd, fresh: Option<Box<(usize, Peer)>>) -> Self {
        Self {
            socket,
            fresh,
            receive: Receive::Idle,
            paused: false,
            eof: false,
            far: Far::Open,
            watched: false,
            shut: Shut::Open,
            sending: None,
            with_kernel: false,
            message: None,
            releasing: false,
            closing: false,
            error: None,
        }
    }
}

impl Conn {
    /// Whether the kernel holds nothing of the connection (I1).
    pub(super) fn is_free(&self) -> bool {
        self.receive == Receive::Idle && !self.watched && !self.with_kernel
    }

    /// Whether nothing can be received or sent any more. A reset ends a paused connection too, and
    /// drops the bytes not received. An orderly end does not.
    pub(super) fn is_over(&self) -> bool {
        (self.eof && self.far.is_over()) || (self.paused && self.far == Far::Broken)
    }
}

impl Receive {
    /// Whether the kernel holds a receive that is not cancelled.
    pub(super) fn is_armed(self) -> bool {
        matches!(self, Self::Armed | Self::ArmedOnce)
    }
}

impl Far {
    /// Whether there is nothing more to report about the connection.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Gone | Self::Broken)
    }
}

impl Message {
    pub(super) fn empty() -> Box<Self> {
        const NOTHING: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: all zeroes is a header without name, control data and pieces.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Self { header, pieces: [NOTHING; IOVECS_MAX] })
    }

    pub(super) fn point_to(&mut self, sending: &Sending) {
        let mut slices = [IoSlice::new(&[]); IOVECS_MAX];
        let count = sending.fill(&mut slices);
        for (piece, slice) in self.pieces.iter_mut().zip(&slices[..count]) {
            // The kernel only reads the sent bytes.
            piece.iov_base = slice.as_ptr().cast_mut().cast();
            piece.iov_len = slice.len();
        }
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = count;
    }
}
