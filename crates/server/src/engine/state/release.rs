//! Releases the buffers of connections that have been silent for a while.
//!
//! A round visits all connections, a few per turn, and releases the buffers of silent ones. It also
//! finds the earliest time at which another connection may have been silent for long enough; the
//! next round begins then. If no connection holds a buffer, the next round begins only after a
//! connection has received something.

use super::clients::Clients;
use std::cell::Cell;

/// After this time without received bytes, the buffers of a connection are released.
const SILENT_MS: u64 = 2_000;
/// The time between two steps of a round.
const EVERY_MS: u64 = 10;
/// Connections visited per turn.
const AT_ONCE: usize = 16;

/// The progress of the round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// The index of the next connection to visit; 0 if no round is running.
    next: usize,
    /// The time of the next step, in Unix milliseconds; `None` while no connection holds a buffer.
    due: Option<u64>,
    /// The earliest time at which one of the connections visited so far may have been silent for
    /// long enough.
    earliest: Option<u64>,
}

/// The state of the release of buffers.
#[derive(Default)]
pub(crate) struct Release(Cell<Round>);

impl Release {
    /// Records that a connection has received something, and therefore holds a buffer.
    pub(crate) fn will_release(&self, now_ms: u64) {
        let round = self.0.get();
        if round.due.is_some() && round.earliest.is_some() {
            return;
        }
        let due = now_ms + SILENT_MS;
        self.0.set(Round {
            due: round.due.or(Some(due)),
            // The round may have visited the connection already.
            earliest: round.earliest.or(Some(due)),
            ..round
        });
    }

    /// The time of the next step, in Unix milliseconds.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.0.get().due
    }

    /// Visits a few connections, and releases the buffers of at most one, because they may be
    /// megabytes.
    pub(crate) fn look(&self, clients: &Clients, now: u64) {
        let mut round = self.0.get();
        let Some(due) = round.due else { return };
        if now < due {
            round.due = Some(due.min(now + SILENT_MS)); // The clock may have been set back.
            self.0.set(round);
            return;
        }
        let mut conns = clients.places();
        if round.next == 0 {
            round.earliest = None;
        }
        let from = round.next.min(conns.len());
        round.next = from;
        for place in conns[from..].iter_mut().take(AT_ONCE) {
            round.next += 1;
            let Some(conn) = place else { continue };
            let due = conn.lane.session.active_ms + SILENT_MS + 1;
            if due <= now && conn.parser.release() {
                break;
            }
            if conn.parser.has_buffer() {
                // A connection whose request is partly parsed may continue without another received
                // byte.
                let due = if conn.parser.may_release() { due } else { due.max(now + SILENT_MS) };
                round.earliest = Some(round.earliest.map_or(due, |earliest| earliest.min(due)));
            }
        }
        round.due = Some(now + EVERY_MS);
        if round.next >= conns.len() {
            (round.next, round.due) = (0, round.earliest.map(|at| at.max(now + EVERY_MS)));
        }
        self.0.set(round);
    }

    #[cfg(test)]
    pub(crate) fn is_amid(&self) -> bool {
        self.0.get().next > 0
    }
}
