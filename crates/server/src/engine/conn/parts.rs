//! The types of which a [`Lane`](super::Lane) consists.

use super::super::moving::policy::Trail;
use super::super::state::batches::Batch;
use super::super::state::receiving::Receiving;
use super::super::transaction::queued::{Queued, Watched};
use darter_tx::CoreId;
use std::rc::Rc;

/// The core that accepted a connection, and its moves between cores.
#[derive(Default)]
pub(crate) struct Location {
    /// The core that accepted the connection.
    pub(crate) home: CoreId,
    /// The time of the last move, in Unix milliseconds; 0 if the connection has not moved.
    pub(crate) came_ms: u64,
    /// The cores to which the last requests went.
    pub(crate) trail: Trail,
    /// The core to which the connection is about to move. No request is parsed until it has moved.
    pub(crate) leaving: Option<CoreId>,
}

/// The send in progress, and the reasons to delay the next one.
#[derive(Default)]
pub(crate) struct Sending {
    /// Bytes of the send in progress; 0 if there is none.
    pub(crate) in_flight: usize,
    /// True if the output, or a reply that is pending, may show changes that are not safe yet.
    pub(crate) gated: bool,
    /// True if the output queued behind the send in progress contains a reply.
    pub(crate) reply_waits: bool,
    /// The time until which the output waits for the next reply, to be sent with it (see `corked`).
    /// It may be in the past.
    pub(crate) corked_until: Option<u64>,
    /// The largest recent send, at most the reply buffer's size, and its time. CLIENT LIST shows
    /// the size as `rbp`.
    pub(crate) peak: (usize, u64),
    /// The time since which the output has exceeded the soft limit, in Unix milliseconds.
    pub(crate) soft_since_ms: Option<u64>,
    /// Bytes sent since the connection was accepted.
    pub(crate) bytes: u64,
}

/// The state of receiving and parsing.
#[derive(Default)]
pub(crate) struct Input {
    /// The number of the poll that received the last bytes: see `queue`.
    pub(crate) look: u64,
    /// True if only a part of the next request has arrived.
    pub(crate) is_partial: bool,
    /// True if the peer has half-closed.
    pub(crate) eof: bool,
    /// The time that the stream of the reply has worked since the half-close without producing
    /// output.
    pub(crate) silent_ns: u64,
    /// Whether bytes are received, and how far ahead of the replies.
    pub(crate) receiving: Receiving,
    /// Bytes received since the connection was accepted.
    pub(crate) bytes: u64,
}

/// The state of MULTI and WATCH.
#[derive(Default)]
pub(crate) struct OpenTransaction {
    /// The commands queued by MULTI.
    pub(crate) queued: Option<Box<Queued>>,
    /// The watched keys. A running EXEC shares them.
    pub(crate) watched: Option<Rc<Watched>>,
}

/// The requests of a connection on other cores.
pub(crate) struct Away {
    /// By core: the batch that is being gathered, if any.
    pub(crate) batches: Vec<Option<Box<Batch>>>,
    /// Bytes of requests that are on other cores or will be sent there: see `Batch::request_bytes`.
    pub(crate) bytes: usize,
    /// The part of `bytes` that was added in the current turn.
    pub(crate) turn_bytes: usize,
    /// Cores on which a batch of this connection rests until its next reply is needed.
    pub(crate) resting: Vec<CoreId>,
    /// The core that runs the last script with undeclared keys, while its reply is pending. Such a
    /// script may touch keys of other cores.
    pub(crate) script_at: Option<CoreId>,
    /// The home of the channel of the last PUBLISH, if that is another core.
    pub(crate) published_at: Option<CoreId>,
}

impl Away {
    /// The initial state, with `cores` cores.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            batches: (0..cores).map(|_| None).collect(),
            bytes: 0,
            turn_bytes: 0,
            resting: Vec::new(),
            script_at: None,
            published_at: None,
        }
    }
}

/// The core's lists that contain a connection, at most once each.
#[derive(Default)]
pub(crate) struct Lists {
    /// In the list of connections with requests to run.
    pub(crate) ready: bool,
    /// In the list of connections whose reply continues as a stream.
    pub(crate) streaming: bool,
    /// In the list of connections with output to send.
    pub(crate) dirty: bool,
    /// In the list of connections with pushes to send.
    pub(crate) pushed: bool,
}
