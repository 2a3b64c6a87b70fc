//! The events of the network for a core, and its names for connections and their ends.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use super::buffer::SendBuffer;

/// A connection of one [`super::Net`]. After its [`Event::Closed`] the token is invalid for good:
/// the index is reused, but with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The place in the table of connections: small and dense, fit to index the caller's own table.
    pub index: u32,
    /// How often that place has been reused.
    pub generation: u32,
}

/// One end of a connection, printed as Redis does (`ip:port`, `[v6]:port`, `path:0`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Internet.
    Tcp(SocketAddr),
    /// The path of a unix socket; empty for one without a name.
    Unix(Arc<Path>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{}:0", path.display()),
        }
    }
}

/// The addresses at the two ends of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Their end. For a unix socket the path that they connected to.
    pub remote: Address,
    /// Our end.
    pub local: Address,
}

/// A connection in transit to another core: see [`super::Net::hand_over`].
#[derive(Debug)]
pub struct Parcel {
    /// The socket, non-blocking, not registered with any backend.
    pub socket: OwnedFd,
    /// The listener that accepted it.
    pub listener: usize,
    /// The ends.
    pub peer: Peer,
}

/// An event of the network. For one connection the order is: `Accepted`, any number of `Received`
/// and `Sent`, `Eof` at most once and no `Received` after it, `Closed` or `Released` exactly once
/// and last. No other connection has the index of its token before that.
#[derive(Debug)]
pub enum Event<'a> {
    /// A client connected. Receiving begins with the next poll, so that the connection can be
    /// handed over first.
    Accepted {
        /// The result of `listen_tcp` or `listen_unix`.
        listener: usize,
        /// The new connection.
        conn: Token,
        /// The ends.
        peer: Peer,
    },
    /// Bytes arrived. They are in the backend's own buffer: copy the part needed later.
    Received {
        /// The connection.
        conn: Token,
        /// Never empty.
        bytes: &'a [u8],
    },
    /// The client has half-closed: it sends no more, but may still be sent to.
    Eof {
        /// The connection.
        conn: Token,
    },
    /// A send is over: the kernel has all of it, or it failed and `Closed` follows.
    Sent {
        /// The connection.
        conn: Token,
        /// The sent bytes, returned for their memory.
        buffer: SendBuffer,
        /// How it ended.
        result: io::Result<()>,
    },
    /// The connection is gone, and its socket closed.
    Closed {
        /// The connection.
        conn: Token,
        /// Why, unless we closed it or both directions had ended.
        error: Option<io::Error>,
    },
    /// The connection was given away, and nothing of it is left here: see
    /// [`super::Net::release`].
    Released {
        /// The connection.
        conn: Token,
        /// The socket, for [`super::Net::take_over`] on another core.
        socket: OwnedFd,
    },
    /// Another thread woke us: one event for any number of wakes since the last.
    Woken,
}

/// How long a poll may sleep when there are no events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Nothing,
    /// Sleep for at most this many nanoseconds. Backends may round up to a millisecond.
    Until(u64),
    /// Sleep until something happens.
    Forever,
}
