//! Connections whose next write waits for a snapshot or for keyspace events. There is a queue for
//! each cause, in order of arrival. A wait for a snapshot ends after [`HOLD_MS`], so a queue is
//! also ordered by the ends of the waits, and only its head needs to be checked.
//!
//! Invariants:
//! - W1: a connection is in at most one queue, and only once; its lane is marked as
//!   [`WriteHold::Listed`].
//! - W2: `len` is the number of queued connections, including those that have closed since.

use super::super::conn::{Lane, WriteHold};
use darter_base::UnixMillis;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// The longest wait of a write for a snapshot. After that, the write copies the segment that it
/// changes. So in this time memory grows by at most one segment per connection.
pub(crate) const HOLD_MS: u64 = 10;

/// The cause for which a write waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteWait {
    /// Too many keyspace events are in flight.
    Events,
    /// The snapshot's part on the given core is behind the writers.
    Part(CoreId),
}

/// A connection, and the time at which its wait began.
type Held = (Token, UnixMillis);

impl WriteWait {
    /// The index of the queue for this cause.
    fn at(self) -> usize {
        match self {
            Self::Events => 0,
            Self::Part(core) => 1 + core,
        }
    }

    /// The cause of the queue with this index.
    fn of(at: usize) -> Self {
        at.checked_sub(1).map_or(Self::Events, Self::Part)
    }
}

/// The queues of waiting connections, one for each cause.
#[derive(Default)]
pub(crate) struct Writers {
    queues: RefCell<Vec<VecDeque<Held>>>,
    len: Cell<usize>,
}

impl Writers {
    /// Adds a connection to the queue of a cause, unless it is in a queue already.
    pub(crate) fn hold(&self, awaited: WriteWait, lane: &mut Lane, now: UnixMillis) {
        if std::mem::replace(&mut lane.write_hold, WriteHold::Listed) == WriteHold::Listed {
            return;
        }
        let mut queues = self.queues.borrow_mut();
        if queues.len() <= awaited.at() {
            queues.resize_with(awaited.at() + 1, VecDeque::new);
        }
        queues[awaited.at()].push_back((lane.token, now));
        self.len.set(self.len.get() + 1);
    }

    /// True if any connection waits.
    #[inline]
    pub(crate) fn are_held(&self) -> bool {
        self.len.get() > 0
    }

    /// Takes the head of a queue for which `may_go_on` is true, given the cause and the beginning
    /// of the wait. The lane of the connection stays marked as listed.
    pub(crate) fn next(&self, may_go_on: impl Fn(WriteWait, UnixMillis) -> bool) -> Option<Token> {
        let mut queues = self.queues.borrow_mut();
        let next = queues.iter_mut().enumerate().find_map(|(at, queue)| {
            let may_go_on =
                queue.front().is_some_and(|(_, since)| may_go_on(WriteWait::of(at), *since));
            if may_go_on { queue.pop_front() } else { None }
        });
        self.len.set(self.len.get() - usize::from(next.is_some()));
        next.map(|(token, _)| token)
    }

    /// True if [`Writers::next`] would return a connection.
    pub(crate) fn has_next(&self, may_go_on: impl Fn(WriteWait, UnixMillis) -> bool) -> bool {
        self.heads(|awaited, since| may_go_on(awaited, since).then_some(())).is_some()
    }

    /// The earliest end of a wait for a snapshot.
    pub(crate) fn next_end(&self) -> Option<UnixMillis> {
        self.heads(|awaited, since| (awaited != WriteWait::Events).then_some(since + HOLD_MS))
    }

    /// Calls `f` for the head of each queue, and returns the least result.
    fn heads<R: Ord>(&self, f: impl Fn(WriteWait, UnixMillis) -> Option<R>) -> Option<R> {
        let queues = self.queues.borrow();
        let heads = queues.iter().enumerate().filter_map(|(at, queue)| Some((at, queue.front()?)));
        heads.filter_map(|(at, (_, since))| f(WriteWait::of(at), *since)).min()
    }

    /// True if any connection waits for something else than the part of core `home`.
    pub(crate) fn wait_elsewhere(&self, home: CoreId) -> bool {
        self.are_held() && self.has_next(|awaited, _| awaited != WriteWait::Part(home))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Conn, Session};

    #[test] // W1, W2. Each cause has a queue of its own.
    fn waiting_writers_resume_in_order_of_arrival() {
        let writers = Writers::default();
        let conn = |index| {
            let token = Token { index, generation: 1 };
            Conn::new(token, Session::default(), 1 << 20, 2)
        };
        let mut conns = [0, 1, 2].map(conn);
        for (conn, core) in conns.iter_mut().zip([1, 0, 1]) {
            writers.hold(WriteWait::Part(core), &mut conn.lane, 5);
            writers.hold(WriteWait::Part(core), &mut conn.lane, 6);
        }
        assert!(writers.are_held() && writers.wait_elsewhere(0) && writers.wait_elsewhere(1));
        assert!(!writers.has_next(|_, _| false) && writers.next(|_, _| false).is_none());
        assert_eq!(writers.next_end(), Some(5 + HOLD_MS));
        let next = |awaited| writers.next(|at, _| at == awaited).map(|token| token.index);
        let [here, there] = [0, 1].map(WriteWait::Part);
        assert_eq!([next(there), next(there), next(there)], [Some(0), Some(2), None]);
        assert!(writers.are_held() && !writers.wait_elsewhere(0));
        assert_eq!((next(here), writers.are_held()), (Some(1), false));
        conns[1].lane.write_hold = WriteHold::Released;
        writers.hold(WriteWait::Events, &mut conns[1].lane, 7);
        assert!(writers.wait_elsewhere(0), "events are of all cores");
        assert_eq!(writers.next_end(), None, "they are waited for however long it takes");
        assert_eq!([next(here), next(WriteWait::Events)], [None, Some(1)]);
    }
}
