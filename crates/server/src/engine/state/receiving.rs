//! Whether bytes are received from a connection, and the connections from which receiving is paused
//! because too many of their bytes are not parsed yet.
//!
//! Usually a pause ends when the core has parsed enough. But a client that writes a whole pipeline
//! before it reads a reply is blocked in its write, and the core produces no more replies before
//! the client reads. So receiving continues if the connection has made no progress for
//! [`STALL_MS`], up to `client-query-buffer-limit`.
//!
//! Not here: receiving from a stalled connection. See `conn::receive`.

use darter_runtime::net::Token;
use std::cell::RefCell;
use std::collections::VecDeque;

/// A paused connection counts as stalled after this time without progress.
const STALL_MS: u64 = 20;

/// Whether bytes are received from a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// Bytes are received as they arrive.
    #[default]
    Open,
    /// Nothing is received until most of the received bytes are parsed.
    Paused,
    /// Bytes are received ahead of the replies, up to `client-query-buffer-limit`.
    Ahead,
}

/// A connection from which receiving is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// The token of the connection, which may have gone.
    pub(crate) token: Token,
    /// The number of unparsed bytes when the pause began.
    pub(crate) pending: usize,
}

/// The connections from which receiving is paused.
#[derive(Default)]
pub(crate) struct Stalls {
    /// Paused connections with the time of their next check, in Unix milliseconds. In order, unless
    /// the clock was set back. There is at most one entry for each pause of the last [`STALL_MS`].
    queue: RefCell<VecDeque<(u64, Stall)>>,
}

impl Stalls {
    /// Adds a connection from which receiving was paused, or is still paused after a check.
    pub(crate) fn add(&self, stall: Stall, now_ms: u64) {
        self.queue.borrow_mut().push_back((now_ms + STALL_MS, stall));
    }

    /// The time of the next check, in Unix milliseconds.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.queue.borrow().front().map(|(due_ms, _)| *due_ms)
    }

    /// Takes the next connection whose check is due. If the clock was set back, checks are due at
    /// once.
    pub(crate) fn take_due(&self, now_ms: u64) -> Option<Stall> {
        let mut queue = self.queue.borrow_mut();
        let is_due = |due_ms: u64| due_ms <= now_ms || due_ms > now_ms + STALL_MS;
        let due = queue.front().is_some_and(|(due_ms, _)| is_due(*due_ms));
        if due { queue.pop_front().map(|(_, stall)| stall) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paused_connections_are_checked_in_order_or_when_the_clock_is_set_back() {
        let stalls = Stalls::default();
        let [one, other] =
            [1, 2].map(|index| Stall { token: Token { index, generation: 1 }, pending: 300_000 });
        stalls.add(one, 1_000);
        stalls.add(other, 1_001);
        assert_eq!((stalls.next_ms(), stalls.take_due(1_019)), (Some(1_020), None));
        assert_eq!((stalls.take_due(1_020), stalls.take_due(1_020)), (Some(one), None));
        assert_eq!((stalls.take_due(900), stalls.next_ms()), (Some(other), None));
    }
}
