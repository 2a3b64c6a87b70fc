//! Replies that wait for those that follow them in a pipeline.
//!
//! A command over several keys that takes a task is the only one of its connection that runs: of a
//! pipeline of sixteen, each would be answered by a send of its own, and a send costs as much as the
//! command. So what is ready waits while the next one runs, but not long: until the second tick of
//! the millisecond clock.
//!
//! Not here: which replies wait. See `turn`.

use darter_runtime::net::Token;
use std::cell::RefCell;
use std::collections::VecDeque;

/// Ticks of the millisecond clock that a reply waits, at most.
const TICKS: u64 = 2;

/// True when a wait is over: also when the clock was set back since it began.
pub(crate) fn is_over(until_ms: u64, now_ms: u64) -> bool {
    until_ms <= now_ms || until_ms > now_ms + TICKS
}

/// See the module.
#[derive(Default)]
pub(crate) struct Corked {
    /// Connections, and when the wait of each is over, in Unix milliseconds: in order, unless the
    /// clock was set back. Of one that has sent meanwhile, an entry may be left.
    queue: RefCell<VecDeque<(u64, Token)>>,
}

impl Corked {
    /// The replies of a connection wait from now on. Returns until when.
    pub(crate) fn add(&self, token: Token, now_ms: u64) -> u64 {
        let until_ms = now_ms + TICKS;
        self.queue.borrow_mut().push_back((until_ms, token));
        until_ms
    }

    /// When the first of them has waited long enough, in Unix milliseconds.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.queue.borrow().front().map(|(until_ms, _)| *until_ms)
    }

    /// The next whose wait is over, and when that was.
    pub(crate) fn take_due(&self, now_ms: u64) -> Option<(u64, Token)> {
        let mut queue = self.queue.borrow_mut();
        let is_due = queue.front().is_some_and(|(until_ms, _)| is_over(*until_ms, now_ms));
        if is_due { queue.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // In order, until the second tick; at once when the clock was set back.
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
