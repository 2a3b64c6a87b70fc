//! Replies that are delayed, to be sent together with the next replies of their pipeline.
//!
//! A command that runs as a task is the only one of its connection that runs. In a pipeline of
//! sixteen such commands, each reply would need a send of its own, and a send costs as much as a
//! command. So a reply that is ready waits while the next command runs, at most until the
//! millisecond clock has ticked twice.
//!
//! Not here: the decision which replies wait. See `turn`.

use darter_runtime::net::Token;
use std::cell::RefCell;
use std::collections::VecDeque;

/// The longest delay of a reply, in ticks of the millisecond clock.
const TICKS: u64 = 2;

/// True if a delay until `until_ms` is over, or the clock was set back since it began.
pub(crate) fn is_over(until_ms: u64, now_ms: u64) -> bool {
    until_ms <= now_ms || until_ms > now_ms + TICKS
}

/// The connections whose replies are delayed.
#[derive(Default)]
pub(crate) struct Corked {
    /// Connections and the ends of their delays, in Unix milliseconds. In order, unless the clock
    /// was set back. An entry is out of date if its connection has sent since.
    queue: RefCell<VecDeque<(u64, Token)>>,
}

impl Corked {
    /// Begins to delay the replies of a connection. Returns the end of the delay.
    pub(crate) fn add(&self, token: Token, now_ms: u64) -> u64 {
        let until_ms = now_ms + TICKS;
        self.queue.borrow_mut().push_back((until_ms, token));
        until_ms
    }

    /// The end of the first delay, in Unix milliseconds.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.queue.borrow().front().map(|(until_ms, _)| *until_ms)
    }

    /// Takes the next connection whose delay is over, and the end of that delay.
    pub(crate) fn take_due(&self, now_ms: u64) -> Option<(u64, Token)> {
        let mut queue = self.queue.borrow_mut();
        let is_due = queue.front().is_some_and(|(until_ms, _)| is_over(*until_ms, now_ms));
        if is_due { queue.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // If the clock is set back, the delay ends at once.
    fn a_delayed_reply_is_due_after_two_ticks() {
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
