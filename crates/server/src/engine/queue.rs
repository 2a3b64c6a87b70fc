//! The queue of a core: arrived messages from other cores, and connections with requests.
//!
//! The entries run in the order of arrival, so that a client which sees an effect of a pipeline
//! also sees all earlier effects of that pipeline. A *look* polls the sockets first, and takes the
//! messages after that. So if received bytes depend on a message, the message arrives in the same
//! look or an earlier one. Each entry has the number of its look:
//!
//! ```text
//! messages 7 | connections 7 | messages 8 | connections 8 | ...
//! ```
//! Entries that the slice has no time for run first in the next slice. A connection may run later
//! than its position says, but never earlier: if it receives more bytes while it waits, it is
//! queued again behind the messages of that look. No entry starves, because the first entry always
//! runs and new entries are added at the end. While another core accepts no mail from this one,
//! only messages run, because requests would make more mail.
//!
//! Not here: the order of messages between two cores. See `mailbox` in the runtime, and
//! docs/design/0011-pipeline-order.md for the proof.

use darter_base::spare;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use std::collections::VecDeque;

/// The arrived messages, of type `M`, and the connections with requests.
pub(super) struct Queue<M> {
    mail: VecDeque<(u64, CoreId, M)>,
    ready: VecDeque<(u64, Token)>,
    /// True while connections must wait, and only messages run.
    holds: bool,
}

/// The kind of the next entry in the queue.
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
    /// Adds a message from core `from` that arrived in look `look`.
    pub(super) fn take_in(&mut self, look: u64, from: CoreId, mail: M) {
        self.mail.push_back((look, from, mail));
    }

    /// Adds a connection that has had work since look `look`.
    pub(super) fn mark_ready(&mut self, look: u64, token: Token) {
        self.ready.push_back((look, token));
    }

    /// Makes connections wait, or ends their wait.
    pub(super) fn hold_ready(&mut self, holds: bool) {
        self.holds = holds;
    }

    /// The kind of the first entry that may run, among those of look `look` or earlier.
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

    /// Takes the first message out of the queue.
    pub(super) fn next_mail(&mut self) -> Option<(CoreId, M)> {
        let (_, from, mail) = self.mail.pop_front()?;
        spare::release_queue(&mut self.mail);
        Some((from, mail))
    }

    /// Takes the first connection out of the queue.
    pub(super) fn next_ready(&mut self) -> Option<Token> {
        let (_, token) = self.ready.pop_front()?;
        spare::release_queue(&mut self.ready);
        Some(token)
    }

    /// Moves a connection that received bytes in look `look` behind the messages up to that look.
    /// Returns false if no such message waits.
    pub(super) fn requeue_after_mail(&mut self, look: u64, token: Token) -> bool {
        let has_earlier = self.mail.front().is_some_and(|(came, ..)| *came <= look);
        if has_earlier {
            self.ready.push_back((look, token));
        }
        has_earlier
    }

    /// The queued connections, in order.
    pub(super) fn ready(&self) -> impl ExactSizeIterator<Item = &Token> {
        self.ready.iter().map(|(_, token)| token)
    }

    /// True if a connection of an earlier look may run now.
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
