//! Connections whose next request must wait until a snapshot has caught up with those who write: by
//! the core whose part that is, in the order in which they came.
//!
//! Invariants:
//! - W1: a connection is listed at most once; its lane knows that it is (`awaits_snapshot`).
//! - W2: `len` is the number of those listed, whether they still exist or not.

use super::super::conn::Lane;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// See the module.
#[derive(Default)]
pub(crate) struct Writers {
    by_core: RefCell<Vec<VecDeque<Token>>>,
    len: Cell<usize>,
}

impl Writers {
    /// The connection waits for that core's part, behind all that do.
    pub(crate) fn hold(&self, core: CoreId, lane: &mut Lane) {
        if std::mem::replace(&mut lane.awaits_snapshot, true) {
            return;
        }
        let mut by_core = self.by_core.borrow_mut();
        if by_core.len() <= core {
            by_core.resize_with(core + 1, VecDeque::new);
        }
        by_core[core].push_back(lane.token);
        self.len.set(self.len.get() + 1);
    }

    /// Whether any waits.
    #[inline]
    pub(crate) fn are_held(&self) -> bool {
        self.len.get() > 0
    }

    /// The first one that waits for the part of a core for which `may_go_on` holds. Its lane still
    /// counts as listed.
    pub(crate) fn next(&self, mut may_go_on: impl FnMut(CoreId) -> bool) -> Option<Token> {
        let mut by_core = self.by_core.borrow_mut();
        let mut waiting = by_core.iter_mut().enumerate().filter(|(_, queue)| !queue.is_empty());
        let (_, queue) = waiting.find(|(core, _)| may_go_on(*core))?;
        let next = queue.pop_front();
        self.len.set(self.len.get() - usize::from(next.is_some()));
        next
    }

    /// Whether [`Writers::next`] would return one.
    pub(crate) fn has_next(&self, mut may_go_on: impl FnMut(CoreId) -> bool) -> bool {
        let by_core = self.by_core.borrow();
        by_core.iter().enumerate().any(|(core, queue)| !queue.is_empty() && may_go_on(core))
    }

    /// Whether any waits for the part of a core other than `home`.
    pub(crate) fn wait_elsewhere(&self, home: CoreId) -> bool {
        self.are_held() && self.has_next(|core| core != home)
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
            writers.hold(core, &mut conn.lane);
            writers.hold(core, &mut conn.lane);
        }
        assert!(writers.are_held() && writers.wait_elsewhere(0) && writers.wait_elsewhere(1));
        assert!(!writers.has_next(|_| false) && writers.next(|_| false).is_none());
        let next = |core: CoreId| writers.next(|at| at == core).map(|token| token.index);
        assert_eq!([next(1), next(1), next(1)], [Some(0), Some(2), None]);
        assert!(writers.are_held() && !writers.wait_elsewhere(0));
        assert_eq!((next(0), writers.are_held()), (Some(1), false));
    }
}
