//! What a core checks in every turn: how much memory is used, how much is not saved, connections that have been idle for
//! too long, and what clients hold (see `census`).

use super::census;
use super::conn::{Lane, Session};
use super::core::Core;
use darter_keyspace::lazyfree;
use std::rc::Rc;

impl Core {
    /// A portion of all of it.
    pub(super) fn tick(&self) {
        self.look_at_events();
        let (data, changes) = {
            let shard = &self.tx.home().shard;
            (shard.memory_bytes(), shard.lasting_changes())
        };
        let shared = &self.admin.shared;
        shared.report_memory(self.id(), data, lazyfree::waiting().1);
        shared.reports[self.id()].report_unsaved(self.saving.unsaved(changes));
        self.hear_of_saves();
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
        self.idle_check.restart(); // The timeout may be shorter now.
    }

    /// Some limit of what clients hold is set.
    fn counts_clients(&self) -> bool {
        self.hot.borrow().client_limits.are_set() || self.census.borrow().is_soft()
    }

    /// When what clients hold is next looked at, in Unix milliseconds.
    pub(super) fn next_census(&self) -> Option<u64> {
        let may_find = self.counts_clients() && self.conns_len() > 0;
        may_find.then(|| self.census.borrow().due_ms())
    }

    /// When connections are next looked at for idleness, in Unix milliseconds.
    pub(super) fn next_idle_check(&self) -> Option<u64> {
        let may_find = self.hot.borrow().timeout_ms > 0 && self.conns_len() > 0;
        may_find.then(|| self.idle_check.next_ms())
    }

    fn close_idle(&self, timeout_ms: u64) {
        let kill = |lane: &mut Lane| self.kill(lane);
        self.idle_check.look(&self.clients, self.now_ms(), timeout_ms, kill);
    }

    /// With the last connection the scans end, and what they published is reset.
    pub(super) fn forget_if_last(&self) {
        if self.conns_len() == 0 {
            census::forget(self);
        }
    }

    /// A connection of this core is gone.
    pub(super) fn connection_left(self: &Rc<Self>, session: &Session) {
        self.forget_if_last();
        if session.monitor {
            self.monitor_left(session.handle);
        }
        if session.subscribed.id > 0 {
            self.subscriber_left(session.subscribed.id);
        }
        self.stop_tracking(session.handle, session.tracking);
    }
}
