//! The scan that closes idle connections. It visits a few per turn until all were checked. The next
//! scan begins when the first connection may have reached the timeout.

use super::clients::Clients;
use crate::engine::Lane;
use std::cell::Cell;

/// The minimal time between two scans.
const EVERY_MS: u64 = 500;
/// Connections checked per turn: a few microseconds.
const AT_ONCE: usize = 64;

/// The state of the scan.
#[derive(Default)]
pub(crate) struct IdleCheck(Cell<Scan>);

#[derive(Clone, Copy, Default)]
struct Scan {
    /// The index of the first connection that the next step visits.
    from: usize,
    /// The time of the next step, in Unix milliseconds.
    due: u64,
    /// The earliest time at which one of the connections visited so far may reach the timeout.
    earliest: u64,
}

impl IdleCheck {
    /// The time of the next step, in Unix milliseconds.
    pub(crate) fn next_ms(&self) -> u64 {
        self.0.get().due
    }

    /// Restarts the scan now.
    pub(crate) fn restart(&self) {
        self.0.take();
    }

    /// If the next step is due, visits a few connections, and calls `close` for those that have
    /// been idle for `timeout_ms`.
    pub(crate) fn look(
        &self,
        clients: &Clients,
        now: u64,
        timeout_ms: u64,
        close: impl Fn(&mut Lane),
    ) {
        let mut look = self.0.get();
        if now < look.due {
            // The clock may have been set back.
            look.due = look.due.min(now + timeout_ms.max(EVERY_MS));
            self.0.set(look);
            return;
        }
        if look.from == 0 {
            // New or newly active connections cannot time out before this.
            look.earliest = now + timeout_ms;
        }
        look.from = clients.visit_some(look.from, AT_ONCE, |conn| {
            let lane = &mut conn.lane;
            let is_idle = !lane.is_working() && !lane.session.monitor;
            if is_idle && now.saturating_sub(lane.session.active_ms) > timeout_ms {
                close(lane);
            } else if is_idle {
                look.earliest = look.earliest.min(lane.session.active_ms + timeout_ms);
            }
        });
        look.due = if look.from == 0 { (look.earliest + 1).max(now + EVERY_MS) } else { now };
        self.0.set(look);
    }
}
