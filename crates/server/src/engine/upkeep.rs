//! The checks that run in every turn: used memory, unsaved changes, idle connections, and the
//! memory of clients (see `census`).

use super::census;
use super::conn::{Lane, Session};
use super::core::Core;
use super::monitor;
use super::saving::{self, rewriting};
use darter_keyspace::lazyfree;
use std::rc::Rc;

impl Core {
    /// Runs a portion of all checks.
    pub(super) fn tick(&self) {
        self.look_at_events();
        let (data, changes) = {
            let shard = &self.tx.home().shard;
            (shard.memory_bytes(), shard.lasting_changes())
        };
        let shared = &self.admin.shared;
        shared.report_memory(self.id(), data, lazyfree::waiting().1);
        shared.reports[self.id()].report_unsaved(self.saving.unsaved(changes));
        saving::handle_news(self);
        rewriting::handle_news(self);
        let timeout_ms = self.hot.borrow().timeout_ms;
        if timeout_ms > 0 {
            self.close_idle(timeout_ms);
        }
        if self.counts_clients() {
            census::step(self);
        }
    }

    /// Applies changed settings to the checks.
    pub(crate) fn limits_changed(&self) {
        if self.hot.borrow().client_limits.all == 0 {
            census::forget(self);
        }
        self.idle_check.restart(); // The new timeout may be shorter.
    }

    /// True if any limit of clients' memory is set.
    fn counts_clients(&self) -> bool {
        self.hot.borrow().client_limits.are_set() || self.census.borrow().is_soft()
    }

    /// The time at which the census continues, in Unix milliseconds.
    pub(super) fn next_census(&self) -> Option<u64> {
        let may_find = self.counts_clients() && self.conns_len() > 0;
        may_find.then(|| self.census.borrow().due_ms())
    }

    /// The time of the next check for idle connections, in Unix milliseconds.
    pub(super) fn next_idle_check(&self) -> Option<u64> {
        let may_find = self.hot.borrow().timeout_ms > 0 && self.conns_len() > 0;
        may_find.then(|| self.idle_check.next_ms())
    }

    fn close_idle(&self, timeout_ms: u64) {
        let kill = |lane: &mut Lane| self.kill(lane);
        self.idle_check.look(&self.clients, self.now_ms(), timeout_ms, kill);
    }

    /// Ends the scans when the last connection has closed, and clears their reports.
    pub(super) fn forget_if_last(&self) {
        if self.conns_len() == 0 {
            census::forget(self);
        }
    }

    /// Removes the state that a closed connection has left in the core.
    pub(super) fn connection_left(self: &Rc<Self>, session: &Session) {
        self.forget_if_last();
        if session.monitor {
            monitor::end(self, session.handle);
        }
        if session.subscribed.id > 0 {
            self.subscriber_left(session.subscribed.id);
        }
        self.stop_tracking(session.handle, session.tracking);
    }
}
