//! One core's sockets, behind an interface shaped like completions.
//!
//! One [`Net`] per core, used by its thread alone. A turn of the loop is:
//!
//! ```text
//! net.poll(wait, |event| note what happened);   // queued sends leave, completions come
//! ... work, in slices; net.flush_submissions() before a long one ...
//! net.send(conn, buffer);                       // queued: leaves with the next poll or flush
//! ```
//! A handler cannot call the net that calls it: it takes notes, and the turn acts afterwards. That
//! costs nothing, since everything that a turn produces for a connection should leave in one send.
//!
//! Measured by `examples/echo` (50 connections, two busy cores, server's CPU per operation, epoll
//! against io_uring): 1.3 to 1.2 µs unpipelined, 88 to 78 ns at pipelines of 16, 2.7 to 2.1 µs for
//! replies of 16 KiB, 8.6 to 7.0 µs for 64 KiB. Large sends, reported elsewhere to be slower on
//! io_uring, were not here, so both backends treat them alike.
//!
//! Not here: admission of connections, timeouts, buffers kept for a client. See `server`.

mod buffer;
mod epoll;
mod event;
mod listen;
mod pending;
mod slab;
mod uring;
mod waker;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

pub use buffer::{IOVECS_MAX, Part, SendBuffer};
pub use epoll::Epoll;
pub use event::{Address, Event, Parcel, Peer, Token, Wait};
pub use uring::Uring;
pub use waker::Waker;

/// About how many received bytes one poll hands over: copying them into fresh memory takes longest.
/// The next poll hands over the rest, in order, so that a flooding client does not starve others.
const RECEIVED_MAX: usize = 128 * 1024;

/// The network backend to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// Use io_uring where the system allows it, otherwise epoll.
    Auto,
    /// Use io_uring, or fail.
    Uring,
    /// Use epoll.
    Epoll,
}

/// The sockets of one core.
pub enum Net {
    /// On io_uring.
    Uring(Box<Uring>),
    /// On epoll.
    Epoll(Box<Epoll>),
}

/// Calls a method of the backend in use.
macro_rules! backend {
    ($net:expr, $backend:ident => $call:expr) => {
        match $net {
            Net::Uring($backend) => $call,
            Net::Epoll($backend) => $call,
        }
    };
}

impl Net {
    /// Opens the sockets of the calling thread's core; `waker` will wake it. Also returns, where
    /// [`BackendChoice::Auto`] had to fall back on epoll, the reason, for the log.
    ///
    /// Errors: the system's refusal; for [`BackendChoice::Uring`] the whole probe counts.
    pub fn open(choice: BackendChoice, waker: &Waker) -> io::Result<(Self, Option<String>)> {
        let reason = match choice {
            BackendChoice::Epoll => None,
            BackendChoice::Auto | BackendChoice::Uring => match Uring::open(waker.clone()) {
                Ok(uring) => return Ok((Self::Uring(Box::new(uring)), None)),
                Err(error) if choice == BackendChoice::Uring => return Err(error),
                Err(error) => Some(error.to_string()),
            },
        };
        Ok((Self::Epoll(Box::new(Epoll::open(waker.clone())?)), reason))
    }

    /// The backend's name, for the log and INFO.
    #[must_use]
    pub fn back_name(&self) -> &'static str {
        match self {
            Self::Uring(_) => "io_uring",
            Self::Epoll(_) => "epoll",
        }
    }

    /// Listens on a TCP address, port 0 for any; `backlog` connections may wait to be accepted.
    /// Clients are probed after `keepalive_s` seconds of silence, or never when it is 0. Returns
    /// the listener's number.
    ///
    /// Errors: the address is taken or not ours; no file descriptor left.
    pub fn listen_tcp(
        &mut self,
        address: SocketAddr,
        backlog: i32,
        keepalive_s: u32,
    ) -> io::Result<usize> {
        let listener = listen::tcp(address, backlog, keepalive_s, listen::PATIENCE)?;
        backend!(self, backend => backend.add_listener(listener))
    }

    /// [`Net::listen_tcp`] for a running server: it does not wait for a predecessor to release the
    /// address.
    ///
    /// Errors: those of [`Net::listen_tcp`].
    pub fn listen_tcp_at_once(
        &mut self,
        address: SocketAddr,
        backlog: i32,
        keepalive_s: u32,
    ) -> io::Result<usize> {
        let listener = listen::tcp(address, backlog, keepalive_s, Duration::ZERO)?;
        backend!(self, backend => backend.add_listener(listener))
    }

    /// Listens on a unix socket at `path`, replacing an existing one. `mode` sets the file's
    /// permissions. The file is removed with the listener. Returns the listener's number.
    ///
    /// Errors: the path is too long, not writable, or something else is there.
    pub fn listen_unix(
        &mut self,
        path: &Path,
        backlog: i32,
        mode: Option<u32>,
    ) -> io::Result<usize> {
        let listener = listen::unix(path, backlog, mode)?;
        backend!(self, backend => backend.add_listener(listener))
    }

    /// The address of a listener, including a port chosen by the system. `None` after it has been
    /// stopped.
    #[must_use]
    pub fn listener_address(&self, listener: usize) -> Option<Address> {
        backend!(self, backend => backend.listener(listener).map(|listener| listener.address.clone()))
    }

    /// Clients that a listener accepts from now on are probed after `keepalive_s` seconds of
    /// silence, or never when it is 0.
    ///
    /// Errors: the system's refusal; none for a stopped listener.
    pub fn set_keepalive(&self, listener: usize, keepalive_s: u32) -> io::Result<()> {
        let listener = backend!(self, backend => backend.listener(listener));
        listener.map_or(Ok(()), |listener| listener.set_keepalive(keepalive_s))
    }

    /// Closes a listener: its address is free at once. Connections stay, except that those not
    /// accepted yet are reset.
    pub fn stop_listener(&mut self, listener: usize) {
        backend!(self, backend => backend.stop_listener(listener));
    }

    /// Closes all listeners; connections stay.
    pub fn stop_listening(&mut self) {
        backend!(self, backend => backend.stop_listening());
    }

    /// Submits queued sends, waits as `wait` says until something happens, and hands over
    /// everything that did. May return early with nothing; the caller loops.
    ///
    /// Errors: the backend itself is broken. No client causes them.
    pub fn poll(&mut self, wait: Wait, handler: &mut dyn FnMut(Event<'_>)) -> io::Result<()> {
        backend!(self, backend => backend.poll(wait, handler))
    }

    /// Whether the next poll will hand something over. This call sends nothing: flush before it.
    ///
    /// Cost: a few reads of shared memory on io_uring, a system call on epoll. Errors: those of
    /// [`Net::poll`].
    pub fn has_news(&mut self) -> io::Result<bool> {
        backend!(self, backend => backend.has_news())
    }

    /// Notes the events of the next poll, for [`Net::has_newer`]: usually completions of immediate
    /// sends.
    pub fn note_news(&mut self) {
        backend!(self, backend => backend.note_news());
    }

    /// [`Net::has_news`], without the events noted since the last poll.
    ///
    /// Errors: those of [`Net::poll`].
    pub fn has_newer(&mut self) -> io::Result<bool> {
        backend!(self, backend => backend.has_newer())
    }

    /// Submits queued operations without collecting completions: before a slice of work, so that
    /// replies do not wait for its end.
    ///
    /// Errors: those of [`Net::poll`].
    pub fn flush_submissions(&mut self) -> io::Result<()> {
        backend!(self, backend => backend.flush())
    }

    /// Queues `buffer` for `conn`; it leaves with the next poll or flush, whole, in however many
    /// pieces, and is returned in [`Event::Sent`].
    ///
    /// Errors: the connection is gone or going; the buffer is returned. Panics on a second send
    /// before the first is over, and on one after [`Net::shutdown_send`].
    pub fn send(&mut self, conn: Token, buffer: SendBuffer) -> Result<(), SendBuffer> {
        backend!(self, backend => backend.send(conn, buffer))
    }

    /// Stops receiving from `conn`: at most the bytes under way still arrive, on io_uring those in
    /// the ring of buffers (512 KiB for all connections). A reset is noticed even so and ends the
    /// connection; an orderly end is reported once receiving resumes.
    pub fn pause_receive(&mut self, conn: Token) {
        backend!(self, backend => backend.pause_receive(conn));
    }

    /// Receives from `conn` again.
    pub fn resume_receive(&mut self, conn: Token) {
        backend!(self, backend => backend.resume_receive(conn));
    }

    /// Ends the sending direction of `conn` after the send in flight. If the client has ended its
    /// own direction too, the connection is closed.
    pub fn shutdown_send(&mut self, conn: Token) {
        backend!(self, backend => backend.shutdown_send(conn));
    }

    /// Closes `conn` now; a send in flight is abandoned. [`Event::Closed`] follows.
    pub fn close(&mut self, conn: Token) {
        backend!(self, backend => backend.close(conn));
    }

    /// Gives away a connection that was accepted or adopted since the last poll; its token becomes
    /// invalid and no `Closed` follows. `None` when it is too late, or the connection is gone.
    pub fn hand_over(&mut self, conn: Token) -> Option<Parcel> {
        backend!(self, backend => backend.hand_over(conn))
    }

    /// Takes a connection that another core accepted. No `Accepted` follows.
    pub fn adopt(&mut self, parcel: Parcel) -> Token {
        backend!(self, backend => backend.adopt(parcel))
    }

    /// Gives away a connection that is in use and has nothing to send. Receiving stops. When the
    /// kernel holds nothing of it, [`Event::Released`] returns its socket, after all received
    /// bytes. An end of input during the release is not reported, because the next owner of the
    /// socket sees it again. A connection that breaks is closed like any other. Nothing happens if
    /// it is gone or closing.
    ///
    /// Panics with a send in flight, or after [`Net::shutdown_send`].
    pub fn release(&mut self, conn: Token) {
        backend!(self, backend => backend.release(conn));
    }

    /// Takes a connection in use that another core has released. No `Accepted` follows.
    pub fn take_over(&mut self, socket: OwnedFd) -> Token {
        backend!(self, backend => backend.take_over(socket))
    }

    /// Wakes this net from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        backend!(self, backend => backend.waker().clone())
    }

    /// The number of open connections, including those being closed.
    #[must_use]
    pub fn connections(&self) -> usize {
        backend!(self, backend => backend.connections())
    }

    /// The tokens of all open connections, in no order. O(n), for shutdown.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        backend!(self, backend => backend.tokens())
    }
}
