//! The network events of a core, and the types that name connections and their addresses.

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
    /// The position in the table of connections: small and dense, so that the caller can index a
    /// table of its own with it.
    pub index: u32,
    /// How often that position has been reused.
    pub generation: u32,
}

/// The address of one end of a connection, printed as Redis does (`ip:port`, `[v6]:port`,
/// `path:0`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An internet address.
    Tcp(SocketAddr),
    /// The path of a unix socket. Empty for a socket without a name.
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
    /// The client's end. For a unix socket the path that the client connected to.
    pub remote: Address,
    /// The server's end.
    pub local: Address,
}

/// A connection that is being moved to another core: see [`super::Net::hand_over`].
#[derive(Debug)]
pub struct Parcel {
    /// The socket, non-blocking, not registered with any backend.
    pub socket: OwnedFd,
    /// The listener that accepted it.
    pub listener: usize,
    /// The addresses of its two ends.
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
        /// The addresses of its two ends.
        peer: Peer,
    },
    /// Bytes arrived. They are in the backend's own buffer: copy the part needed later.
    Received {
        /// The connection.
        conn: Token,
        /// The received bytes, never empty.
        bytes: &'a [u8],
    },
    /// The client has shut down its sending side: it sends no more, but still receives.
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
        /// Whether the send succeeded.
        result: io::Result<()>,
    },
    /// The connection is gone, and its socket is closed.
    Closed {
        /// The connection.
        conn: Token,
        /// The reason, unless the server closed the connection or both directions had ended.
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
    /// Another thread woke this core. Several wakes since the last event are reported as one.
    Woken,
}

/// How long a poll may sleep when there are no events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Do not sleep.
    Nothing,
    /// Sleep for at most this many nanoseconds. Backends may round up to a millisecond.
    Until(u64),
    /// Sleep until something happens.
    Forever,
}
