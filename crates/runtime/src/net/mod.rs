//! Sockets of one core, behind a face shaped like completions.
//!
//! One [`Net`] per core, used by its thread alone. A turn of the loop is:
//!
//! ```text
//! net.poll(wait, |event| note what happened);   // queued sends leave, completions come
//! ... work, in slices; net.flush_submissions() before a long one ...
//! net.send(conn, buffer);                       // queued: leaves with the next poll or flush
//! ```
//! A handler cannot call the net it is called by: it notes, and the turn acts afterwards. That
//! costs nothing, since everything a turn produced for a connection is to leave in one send.
//!
//! Measured by `examples/echo` (50 connections, two busy cores, server's CPU per operation,
//! epoll against io_uring): 1.3 to 1.2 µs unpipelined, 88 to 78 ns at pipelines of 16, 2.7 to 2.1 µs
//! for replies of 16 KiB, 8.6 to 7.0 µs for 64 KiB. Large sends, said to be slower on io_uring
//! elsewhere, were not here, so both backs take them alike.
//!
//! Not here: who may connect, timeouts, buffers kept for a client. See `server`.

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
use std::path::Path;
use std::time::Duration;

pub use buffer::{IOVECS_MAX, Part, SendBuffer};
pub use epoll::Epoll;
pub use event::{Address, Event, Parcel, Peer, Token, Wait};
pub use uring::Uring;
pub use waker::Waker;

/// Received bytes that one poll hands over, give or take a buffer: copying them takes 20 us, and
/// five times that into memory that was never touched. What else has come is handed over by the next
/// poll, in the same order, so that those who flood do not starve others.
const RECEIVED_MAX: usize = 128 * 1024;

/// Which back to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackChoice {
    /// io_uring where the system allows it, else epoll.
    Auto,
    /// io_uring, or fail.
    Uring,
    /// epoll.
    Epoll,
}

/// The sockets of one core.
pub enum Net {
    /// On io_uring.
    Uring(Box<Uring>),
    /// On epoll.
    Epoll(Box<Epoll>),
}

/// Calls the back, whichever it is.
macro_rules! back {
    ($net:expr, $back:ident => $call:expr) => {
        match $net {
            Net::Uring($back) => $call,
            Net::Epoll($back) => $call,
        }
    };
}

impl Net {
    /// Opens the sockets of the calling thread's core; `waker` will wake it. With the net comes,
    /// where [`BackChoice::Auto`] had to fall back on epoll, the reason, for the log.
    ///
    /// Errors: what the system refused; for [`BackChoice::Uring`] the whole probe counts.
    pub fn open(choice: BackChoice, waker: &Waker) -> io::Result<(Self, Option<String>)> {
        let reason = match choice {
            BackChoice::Epoll => None,
            BackChoice::Auto | BackChoice::Uring => match Uring::open(waker.clone()) {
                Ok(uring) => return Ok((Self::Uring(Box::new(uring)), None)),
                Err(error) if choice == BackChoice::Uring => return Err(error),
                Err(error) => Some(error.to_string()),
            },
        };
        Ok((Self::Epoll(Box::new(Epoll::open(waker.clone())?)), reason))
    }

    /// The back's name, for the log and INFO.
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
    /// Errors: the address is taken or not ours; no descriptor left.
    pub fn listen_tcp(
        &mut self,
        address: SocketAddr,
        backlog: i32,
        keepalive_s: u32,
    ) -> io::Result<usize> {
        let listener = listen::tcp(address, backlog, keepalive_s, listen::PATIENCE)?;
        back!(self, back => back.add_listener(listener))
    }

    /// [`Net::listen_tcp`] of a server that runs: it does not wait for a predecessor to let go of the
    /// address.
    ///
    /// Errors: as [`Net::listen_tcp`].
    pub fn listen_tcp_at_once(
        &mut self,
        address: SocketAddr,
        backlog: i32,
        keepalive_s: u32,
    ) -> io::Result<usize> {
        let listener = listen::tcp(address, backlog, keepalive_s, Duration::ZERO)?;
        back!(self, back => back.add_listener(listener))
    }

    /// Listens on a unix socket at `path`, replacing one that lies there. `mode` sets the file's
    /// permissions. The file goes when the listener does. Returns the listener's number.
    ///
    /// Errors: the path is too long, not ours to write, or holds something else.
    pub fn listen_unix(
        &mut self,
        path: &Path,
        backlog: i32,
        mode: Option<u32>,
    ) -> io::Result<usize> {
        let listener = listen::unix(path, backlog, mode)?;
        back!(self, back => back.add_listener(listener))
    }

    /// Where a listener listens: the port that the system chose, for one. `None` once stopped.
    #[must_use]
    pub fn listener_address(&self, listener: usize) -> Option<Address> {
        back!(self, back => back.listener(listener).map(|listener| listener.address.clone()))
    }

    /// Probes the clients that a listener accepts from now on after `keepalive_s` seconds of silence, or
    /// never when it is 0.
    ///
    /// Errors: what the system refused; of a listener that was stopped, nothing.
    pub fn set_keepalive(&self, listener: usize, keepalive_s: u32) -> io::Result<()> {
        let listener = back!(self, back => back.listener(listener));
        listener.map_or(Ok(()), |listener| listener.set_keepalive(keepalive_s))
    }

    /// Closes a listener: its address is free from now on. Connections stay, but those that were not
    /// accepted yet are reset.
    pub fn stop_listener(&mut self, listener: usize) {
        back!(self, back => back.stop_listener(listener));
    }

    /// Closes all listeners; connections stay.
    pub fn stop_listening(&mut self) {
        back!(self, back => back.stop_listening());
    }

    /// Lets queued sends leave, waits as told until something happens, and hands over all that
    /// did. May return early with nothing; the caller loops.
    ///
    /// Errors: the back itself is broken. No client causes them.
    pub fn poll(&mut self, wait: Wait, handler: &mut dyn FnMut(Event<'_>)) -> io::Result<()> {
        back!(self, back => back.poll(wait, handler))
    }

    /// True when the next poll will hand something over. Nothing is sent: flush before.
    ///
    /// Cost: some reads of shared memory on io_uring, a system call on epoll.
    /// Errors: as [`Net::poll`].
    pub fn has_news(&mut self) -> io::Result<bool> {
        back!(self, back => back.has_news())
    }

    /// Notes what the next poll will hand over, for [`Net::has_newer`]: what was sent at once, mostly.
    pub fn note_news(&mut self) {
        back!(self, back => back.note_news());
    }

    /// [`Net::has_news`], but for what was noted since the last poll.
    ///
    /// Errors: as [`Net::poll`].
    pub fn has_newer(&mut self) -> io::Result<bool> {
        back!(self, back => back.has_newer())
    }

    /// Hands what is queued to the kernel without looking for what it brought: before a slice of
    /// work, so that replies do not wait for its end.
    ///
    /// Errors: as [`Net::poll`].
    pub fn flush_submissions(&mut self) -> io::Result<()> {
        back!(self, back => back.flush())
    }

    /// Queues `buffer` for `conn`; it leaves with the next poll or flush, whole, in however many
    /// pieces, and comes back in [`Event::Sent`].
    ///
    /// Errors: the connection is gone or going; here is the buffer. Panics on a second send before
    /// the first is over, and on one after [`Net::shutdown_send`].
    pub fn send(&mut self, conn: Token, buffer: SendBuffer) -> Result<(), SendBuffer> {
        back!(self, back => back.send(conn, buffer))
    }

    /// Stops receiving from `conn`: at most what is under way still arrives, which on io_uring is
    /// what lies in the ring of buffers (512 KiB for all connections). A reset is noticed meanwhile
    /// and ends the connection; an orderly end is told when it is received from again.
    pub fn pause_receive(&mut self, conn: Token) {
        back!(self, back => back.pause_receive(conn));
    }

    /// Receives from `conn` again.
    pub fn resume_receive(&mut self, conn: Token) {
        back!(self, back => back.resume_receive(conn));
    }

    /// Ends our direction of `conn`, after the send in flight. When theirs has ended too, the
    /// connection is closed.
    pub fn shutdown_send(&mut self, conn: Token) {
        back!(self, back => back.shutdown_send(conn));
    }

    /// Closes `conn` now; a send in flight is given up. [`Event::Closed`] follows.
    pub fn close(&mut self, conn: Token) {
        back!(self, back => back.close(conn));
    }

    /// Gives away a connection that was accepted or adopted since the last poll; its token is dead
    /// and no `Closed` follows. `None` when it is too late, or the connection is gone.
    pub fn hand_over(&mut self, conn: Token) -> Option<Parcel> {
        back!(self, back => back.hand_over(conn))
    }

    /// Takes a connection that another core accepted. No `Accepted` follows.
    pub fn adopt(&mut self, parcel: Parcel) -> Token {
        back!(self, back => back.adopt(parcel))
    }

    /// Wakes this net from another thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        back!(self, back => back.waker().clone())
    }

    /// Open connections, those that are being closed included.
    #[must_use]
    pub fn connections(&self) -> usize {
        back!(self, back => back.connections())
    }

    /// The tokens of all open connections, in no order. O(n), for stopping in order.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        back!(self, back => back.tokens())
    }
}
