//! The parts of a connection's [`Lane`](super::Lane).

use super::super::moving::policy::Trail;
use super::super::state::batches::Batch;
use super::super::state::receiving::Receiving;
use super::super::transaction::queued::{Queued, Watched};
use darter_tx::CoreId;
use std::rc::Rc;

/// The cores that a connection has been on, and goes to.
#[derive(Default)]
pub(crate) struct Location {
    /// The core that accepted it.
    pub(crate) home: CoreId,
    /// The time of its last move, in Unix milliseconds; 0 for none.
    pub(crate) came_ms: u64,
    /// The cores of its last requests.
    pub(crate) trail: Trail,
    /// The core that it is about to move to. Nothing is parsed until then.
    pub(crate) leaving: Option<CoreId>,
}

/// The current send of a connection, and what delays the next one.
#[derive(Default)]
pub(crate) struct Sending {
    /// Bytes of the current send; 0 for none.
    pub(crate) in_flight: usize,
    /// The output queued after the current send contains a reply.
    pub(crate) reply_waits: bool,
    /// The end of the output's wait for the next reply: see `corked`. It may have passed.
    pub(crate) corked_until: Option<u64>,
    /// `rbp`: the largest recent send, up to the reply buffer's size, and its time.
    pub(crate) peak: (usize, u64),
    /// The time since which the output has been above the soft limit, in Unix milliseconds.
    pub(crate) soft_since_ms: Option<u64>,
    /// Bytes sent since the connection was accepted.
    pub(crate) bytes: u64,
}

/// The input of a connection.
#[derive(Default)]
pub(crate) struct Input {
    /// The number of the poll that received its last bytes: see `queue`.
    pub(crate) look: u64,
    /// Only a part of the next request has arrived.
    pub(crate) is_partial: bool,
    /// The peer has half-closed.
    pub(crate) eof: bool,
    /// The time for which its stream has searched since then without output.
    pub(crate) silent_ns: u64,
    /// The state of receiving.
    pub(crate) receiving: Receiving,
    /// Bytes received since the connection was accepted.
    pub(crate) bytes: u64,
}

/// The open transaction of a connection.
#[derive(Default)]
pub(crate) struct OpenTransaction {
    /// The commands queued since MULTI.
    pub(crate) queued: Option<Box<Queued>>,
    /// The watched keys; shared with a running EXEC.
    pub(crate) watched: Option<Rc<Watched>>,
}

/// The requests of a connection on other cores.
pub(crate) struct Away {
    /// Batches to other cores, by core, gathered while parsing.
    pub(crate) batches: Vec<Option<Box<Batch>>>,
    /// Bytes of requests that are on other cores, or about to be sent: see `Batch::request_bytes`.
    pub(crate) bytes: usize,
    /// The part of `bytes` from the current turn.
    pub(crate) turn_bytes: usize,
    /// Cores on which a batch rests until its next reply is needed.
    pub(crate) resting: Vec<CoreId>,
    /// The core of the last script that may touch keys of other cores, while its reply is pending.
    pub(crate) script_at: Option<CoreId>,
    /// The home of the channel of the last PUBLISH, if it is another core.
    pub(crate) published_at: Option<CoreId>,
}

impl Away {
    /// No requests, for `cores` cores.
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

/// The lists of its core that a connection is in: each names it once.
#[derive(Default)]
pub(crate) struct Lists {
    /// Connections with work.
    pub(crate) ready: bool,
    /// Connections with a stream.
    pub(crate) streaming: bool,
    /// Connections with output.
    pub(crate) dirty: bool,
    /// Connections with pushes to send.
    pub(crate) pushed: bool,
}
