//! What a core looks after in every turn: how much memory is used, connections that have been idle for
//! too long, and what clients hold (see `census`).

use super::census;
use super::conn::Session;
use super::core::Core;
use darter_keyspace::lazyfree;

/// The look for connections that have been idle too long.
#[derive(Clone, Copy, Default)]
pub(super) struct IdleCheck {
    /// The connection at which the next look begins.
    from: usize,
    /// When that is, in Unix milliseconds.
    due: u64,
    /// The first moment at which one that was looked at may have been idle too long.
    earliest: u64,
}

impl Core {
    /// A portion of all of it.
    pub(super) fn tick(&self) {
        let data = self.tx.home().shard.memory_bytes();
        self.admin.shared.tell(self.id(), data, lazyfree::waiting().1);
        let timeout_ms = self.hot.borrow().timeout_ms;
        if timeout_ms > 0 {
            self.close_idle(timeout_ms);
        }
        if self.counts_clients() {
            census::step(self);
        }
    }

    /// Settings in `hot` have changed, on which this depends.
    pub(crate) fn limits_changed(&self) {
        if self.hot.borrow().client_limits.all == 0 {
            census::forget(self);
        }
        self.idle_check.take(); // The timeout may be shorter now.
    }

    /// Some limit of what clients hold is set.
    fn counts_clients(&self) -> bool {
        self.hot.borrow().client_limits.are_set()
    }

    /// When what clients hold is next looked at, in Unix milliseconds.
    pub(super) fn next_census(&self) -> Option<u64> {
        let may_find = self.counts_clients() && self.conns_len() > 0;
        may_find.then(|| self.census.borrow().due_ms())
    }

    /// When connections are next looked at for idleness, in Unix milliseconds.
    pub(super) fn next_idle_check(&self) -> Option<u64> {
        let may_find = self.hot.borrow().timeout_ms > 0 && self.conns_len() > 0;
        may_find.then(|| self.idle_check.get().due)
    }

    /// Looks at some connections a turn, until all were looked at; then again when the first of them
    /// may have been idle too long.
    fn close_idle(&self, timeout_ms: u64) {
        /// Between two looks at all, at least.
        const EVERY_MS: u64 = 500;
        /// A few microseconds.
        const AT_ONCE: usize = 64;
        let (now, mut check) = (self.now_ms(), self.idle_check.get());
        if now < check.due {
            check.due = check.due.min(now + timeout_ms.max(EVERY_MS)); // The clock may be set back.
            self.idle_check.set(check);
            return;
        }
        if check.from == 0 {
            check.earliest = now + timeout_ms; // Whoever comes later, or does something.
        }
        check.from = self.some_conns(check.from, AT_ONCE, |conn| {
            let lane = &mut conn.lane;
            let is_idle = !lane.is_working() && !lane.session.monitor;
            if is_idle && now.saturating_sub(lane.session.active_ms) > timeout_ms {
                self.kill(lane);
            } else if is_idle {
                check.earliest = check.earliest.min(lane.session.active_ms + timeout_ms);
            }
        });
        check.due = if check.from == 0 { (check.earliest + 1).max(now + EVERY_MS) } else { now };
        self.idle_check.set(check);
    }

    /// A connection of this core is gone. With the last one the looks at them end, and so does what
    /// they have told.
    pub(super) fn connection_left(&self, session: &Session) {
        if self.conns_len() == 0 {
            census::forget(self);
        }
        if session.monitor {
            self.monitor_left(session.id);
        }
    }
}
