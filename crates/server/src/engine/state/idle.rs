//! The scan for connections that have been idle for too long: some per turn, until all were looked
//! at; then again when the first of them may have been idle for too long.

use super::clients::Clients;
use crate::engine::Lane;
use std::cell::Cell;

/// Between two scans, at least.
const EVERY_MS: u64 = 500;
/// Connections per turn: a few microseconds.
const AT_ONCE: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct IdleCheck(Cell<Look>);

#[derive(Clone, Copy, Default)]
struct Look {
    /// The connection at which the next look begins.
    from: usize,
    /// When that is, in Unix milliseconds.
    due: u64,
    /// The first moment at which one already looked at may have been idle for too long.
    earliest: u64,
}

impl IdleCheck {
    /// When it continues, in Unix milliseconds.
    pub(crate) fn next_ms(&self) -> u64 {
        self.0.get().due
    }

    /// Starts over with all of them, at once.
    pub(crate) fn begin_anew(&self) {
        self.0.take();
    }

    /// Looks at some connections, if it is time to. Those that have been idle for longer than
    /// `timeout_ms` go to `close`.
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
            look.earliest = now + timeout_ms; // For connections that come later, or do something.
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
