//! Connections whose next request must wait until a snapshot has caught up with those who write, or
//! until the events that they cause have: by what they wait for, in the order in which they came.
//!
//! Invariants:
//! - W1: a connection is listed at most once; its lane knows that it is (`waits_to_write`).
//! - W2: `len` is the number of those listed, whether they still exist or not.

use super::super::conn::Lane;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// What a connection that writes waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// That fewer keyspace events are under way.
    Events,
    /// A core's part of a snapshot.
    Part(CoreId),
}

impl Awaited {
    /// The place of its queue.
    fn at(self) -> usize {
        match self {
            Self::Events => 0,
            Self::Part(core) => 1 + core,
        }
    }

    /// What the queue at this place waits for.
    fn of(at: usize) -> Self {
        at.checked_sub(1).map_or(Self::Events, Self::Part)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Writers {
    queues: RefCell<Vec<VecDeque<Token>>>,
    len: Cell<usize>,
}

impl Writers {
    /// The connection waits for that, behind all that do.
    pub(crate) fn hold(&self, awaited: Awaited, lane: &mut Lane) {
        if std::mem::replace(&mut lane.waits_to_write, true) {
            return;
        }
        let mut queues = self.queues.borrow_mut();
        if queues.len() <= awaited.at() {
            queues.resize_with(awaited.at() + 1, VecDeque::new);
        }
        queues[awaited.at()].push_back(lane.token);
        self.len.set(self.len.get() + 1);
    }

    /// Whether any waits.
    #[inline]
    pub(crate) fn are_held(&self) -> bool {
        self.len.get() > 0
    }

    /// The first one that waits for something for which `may_go_on` holds. Its lane still counts as
    /// listed.
    pub(crate) fn next(&self, mut may_go_on: impl FnMut(Awaited) -> bool) -> Option<Token> {
        let mut queues = self.queues.borrow_mut();
        let mut waiting = queues.iter_mut().enumerate().filter(|(_, queue)| !queue.is_empty());
        let (_, queue) = waiting.find(|(at, _)| may_go_on(Awaited::of(*at)))?;
        let next = queue.pop_front();
        self.len.set(self.len.get() - usize::from(next.is_some()));
        next
    }

    /// Whether [`Writers::next`] would return one.
    pub(crate) fn has_next(&self, mut may_go_on: impl FnMut(Awaited) -> bool) -> bool {
        let queues = self.queues.borrow();
        queues.iter().enumerate().any(|(at, queue)| !queue.is_empty() && may_go_on(Awaited::of(at)))
    }

    /// Whether any waits for more than this core's part.
    pub(crate) fn wait_elsewhere(&self, home: CoreId) -> bool {
        self.are_held() && self.has_next(|awaited| awaited != Awaited::Part(home))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Conn, Session};

    #[test] // W1, W2: in their order, those of one core past those of another.
    fn who_came_first_goes_on_first() {
        let writers = Writers::default();
        let conn = |index| {
            let token = Token { index, generation: 1 };
            Conn::new(token, Session::default(), 1 << 20, 2)
        };
        let mut conns = [0, 1, 2].map(conn);
        for (conn, core) in conns.iter_mut().zip([1, 0, 1]) {
            writers.hold(Awaited::Part(core), &mut conn.lane);
            writers.hold(Awaited::Part(core), &mut conn.lane);
        }
        assert!(writers.are_held() && writers.wait_elsewhere(0) && writers.wait_elsewhere(1));
        assert!(!writers.has_next(|_| false) && writers.next(|_| false).is_none());
        let next = |awaited| writers.next(|at| at == awaited).map(|token| token.index);
        let [here, there] = [0, 1].map(Awaited::Part);
        assert_eq!([next(there), next(there), next(there)], [Some(0), Some(2), None]);
        assert!(writers.are_held() && !writers.wait_elsewhere(0));
        assert_eq!((next(here), writers.are_held()), (Some(1), false));
        conns[1].lane.waits_to_write = false;
        writers.hold(Awaited::Events, &mut conns[1].lane);
        assert!(writers.wait_elsewhere(0), "events are of all cores");
        assert_eq!([next(here), next(Awaited::Events)], [None, Some(1)]);
    }
}
