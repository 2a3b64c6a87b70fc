//! The queue of arrivals at a core: messages of other cores, and connections with requests.
//!
//! Arrivals run in order, so that no client sees a later effect of a pipeline and misses an earlier
//! one. A *look* polls the sockets first and takes messages after that, so the messages on which
//! received bytes depend came with the same look or an earlier one. Each entry carries the number
//! of its look:
//!
//! ```text
//! messages 7 | connections 7 | messages 8 | connections 8 | ...
//! ```
//! Entries that do not fit into the slice run first in the next one. A connection may run later
//! than its place, never earlier: if it receives more bytes while it waits, it is queued again
//! after the messages of their look. No entry starves: the first always runs, and new ones queue
//! last. While other cores do not accept this core's mail, only messages run: requests would
//! lengthen the queue.
//!
//! Not here: the order of messages. See `mailbox` in the runtime, and
//! docs/design/0011-pipeline-order.md for the proof.

use darter_base::spare;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use std::collections::VecDeque;

/// See the module. `M` is a message.
pub(super) struct Queue<M> {
    mail: VecDeque<(u64, CoreId, M)>,
    ready: VecDeque<(u64, Token)>,
    /// Connections are held.
    holds: bool,
}

/// The kind of the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A message.
    Mail,
    /// A connection.
    Ready,
}

impl<M> Default for Queue<M> {
    fn default() -> Self {
        Self { mail: VecDeque::new(), ready: VecDeque::new(), holds: false }
    }
}

impl<M> Queue<M> {
    /// Adds a message that arrived with this look.
    pub(super) fn take_in(&mut self, look: u64, from: CoreId, mail: M) {
        self.mail.push_back((look, from, mail));
    }

    /// Adds a connection with work since this look.
    pub(super) fn mark_ready(&mut self, look: u64, token: Token) {
        self.ready.push_back((look, token));
    }

    /// Holds connections, or ends the hold.
    pub(super) fn hold_ready(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// The kind of the first entry of the looks up to this one that is not held.
    pub(super) fn next(&self, look: u64) -> Option<Next> {
        let mail = self.mail.front().map_or(u64::MAX, |(look, ..)| *look);
        let ready = self.ready.front().filter(|_| !self.holds);
        let ready = ready.map_or(u64::MAX, |(look, _)| *look);
        match mail <= ready {
            _ if mail.min(ready) > look => None,
            true => Some(Next::Mail),
            false => Some(Next::Ready),
        }
    }

    /// Takes the first message.
    pub(super) fn next_mail(&mut self) -> Option<(CoreId, M)> {
        let (_, from, mail) = self.mail.pop_front()?;
        spare::release_queue(&mut self.mail);
        Some((from, mail))
    }

    /// Takes the first connection.
    pub(super) fn next_ready(&mut self) -> Option<Token> {
        let (_, token) = self.ready.pop_front()?;
        spare::release_queue(&mut self.ready);
        Some(token)
    }

    /// Queues a connection that received bytes with this look again, after the messages up to that
    /// look. False if there are none.
    pub(super) fn requeue_after_mail(&mut self, look: u64, token: Token) -> bool {
        let has_earlier = self.mail.front().is_some_and(|(came, ..)| *came <= look);
        if has_earlier {
            self.ready.push_back((look, token));
        }
        has_earlier
    }

    /// The connections, in order.
    pub(super) fn ready(&self) -> impl ExactSizeIterator<Item = &Token> {
        self.ready.iter().map(|(_, token)| token)
    }

    /// Whether a connection of an earlier look may run at once.
    pub(super) fn may_run_ready(&self) -> bool {
        !self.holds && self.mail.is_empty()
    }

    pub(super) fn has_mail(&self) -> bool {
        !self.mail.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.mail.is_empty() && self.ready.is_empty()
    }
}
