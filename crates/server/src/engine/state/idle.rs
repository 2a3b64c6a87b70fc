//! The scan for idle connections: a few per turn until all were checked, and again when the first
//! of them may have reached the timeout.

use super::clients::Clients;
use crate::engine::Lane;
use std::cell::Cell;

/// The shortest time between two scans.
const EVERY_MS: u64 = 500;
/// Connections checked per turn: a few microseconds.
const AT_ONCE: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct IdleCheck(Cell<Scan>);

#[derive(Clone, Copy, Default)]
struct Scan {
    /// The first connection of the next step.
    from: usize,
    /// The time of the next step, in Unix milliseconds.
    due: u64,
    /// The earliest time at which a checked connection may reach the timeout.
    earliest: u64,
}

impl IdleCheck {
    /// The time of the next step, in Unix milliseconds.
    pub(crate) fn next_ms(&self) -> u64 {
        self.0.get().due
    }

    /// Restarts the scan at once.
    pub(crate) fn restart(&self) {
        self.0.take();
    }

    /// Checks a few connections, if the next step is due. Calls `close` for those that have been
    /// idle for `timeout_ms`.
    pub(crate) fn look(
        &self,
        clients: &Clients,
        now: u64,
        timeout_ms: u64,
        close: impl Fn(&mut Lane),
    ) {
        let mut look = self.0.get();
        if now < look.due {
            look.due = look.due.min(now + timeout_ms.max(EVERY_MS)); // The clock may be set back.
            self.0.set(look);
            return;
        }
        if look.from == 0 {
            // For connections that arrive later, or become active.
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
