//! Replies that wait for the next replies of their pipeline.
//!
//! A command that takes a task is the only running one of its connection. In a pipeline of sixteen
//! such commands each reply would need its own send, and a send costs as much as the command. So a
//! finished reply waits while the next command runs, at most until the second tick of the
//! millisecond clock.
//!
//! Not here: the choice of replies that wait. See `turn`.

use darter_runtime::net::Token;
use std::cell::RefCell;
use std::collections::VecDeque;

/// The longest wait of a reply, in ticks of the millisecond clock.
const TICKS: u64 = 2;

/// True if a wait is over, or the clock was set back since it began.
pub(crate) fn is_over(until_ms: u64, now_ms: u64) -> bool {
    until_ms <= now_ms || until_ms > now_ms + TICKS
}

/// See the module.
#[derive(Default)]
pub(crate) struct Corked {
    /// Connections with the end of their waits, in Unix milliseconds, in order unless the clock was
    /// set back. An entry may be stale: the connection has sent since.
    queue: RefCell<VecDeque<(u64, Token)>>,
}

impl Corked {
    /// Begins the wait of a connection's replies. Returns its end.
    pub(crate) fn add(&self, token: Token, now_ms: u64) -> u64 {
        let until_ms = now_ms + TICKS;
        self.queue.borrow_mut().push_back((until_ms, token));
        until_ms
    }

    /// The end of the first wait, in Unix milliseconds.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.queue.borrow().front().map(|(until_ms, _)| *until_ms)
    }

    /// Takes the next connection whose wait is over, with the end of the wait.
    pub(crate) fn take_due(&self, now_ms: u64) -> Option<(u64, Token)> {
        let mut queue = self.queue.borrow_mut();
        let is_due = queue.front().is_some_and(|(until_ms, _)| is_over(*until_ms, now_ms));
        if is_due { queue.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Waits end in order at the second tick, or at once if the clock was set back.
    fn replies_wait_for_two_ticks() {
        let corked = Corked::default();
        let [one, other] = [1, 2].map(|index| Token { index, generation: 1 });
        assert_eq!(corked.add(one, 1_000), 1_002);
        assert_eq!(corked.add(other, 1_001), 1_003);
        assert_eq!((corked.next_ms(), corked.take_due(1_001)), (Some(1_002), None));
        assert_eq!(corked.take_due(1_002), Some((1_002, one)));
        assert_eq!(corked.take_due(1_002), None);
        assert_eq!(corked.take_due(900), Some((1_003, other)));
        assert_eq!((corked.next_ms(), corked.take_due(2_000)), (None, None));
    }
}
