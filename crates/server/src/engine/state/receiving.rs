//! Whether connections are received from, and those that are not because too much of what they
//! sent is not parsed yet.
//!
//! Usually that ends by itself: the core catches up. But the client may be waiting, too: one that
//! writes a whole pipeline before it reads a reply blocks in its write, and the core cannot make
//! its next replies before the client has read some. So a connection that has made no progress for
//! [`STALL_MS`] is received from again, up to `client-query-buffer-limit`.
//!
//! Not here: what is done with a stalled connection. See `conn::receive`.

use darter_runtime::net::Token;
use std::cell::RefCell;
use std::collections::VecDeque;

/// Time without progress after which a connection counts as stalled.
const STALL_MS: u64 = 20;

/// Whether a connection is received from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// As its bytes come.
    #[default]
    Open,
    /// Not until most of what it has sent is parsed.
    Paused,
    /// Ahead of its replies, up to the limit.
    Ahead,
}

/// A connection whose receiving was paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    /// The connection; it may have gone.
    pub(crate) token: Token,
    /// Bytes that it had sent and that were not parsed when its receiving was paused.
    pub(crate) pending: usize,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Stalls {
    /// With the time of the look at each, in Unix milliseconds: in order, unless the clock was set
    /// back. At most one entry for each pause of the last [`STALL_MS`].
    queue: RefCell<VecDeque<(u64, Stall)>>,
}

impl Stalls {
    /// Receiving was paused, or is still paused after a look.
    pub(crate) fn add(&self, stall: Stall, now_ms: u64) {
        self.queue.borrow_mut().push_back((now_ms + STALL_MS, stall));
    }

    /// The time of the next look, in Unix milliseconds.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.queue.borrow().front().map(|(due_ms, _)| *due_ms)
    }

    /// The next connection to look at; at once if the clock was set back.
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
    fn stalls_are_due_in_order_or_when_the_clock_is_set_back() {
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
