//! Passes received bytes to the parsers of connections, and pauses receiving.
//!
//! ```text
//!            more than PENDING_MAX, unparsed          no progress for 20 ms
//!   Open ────────────────────────────────► Paused ──────────────────────────► Ahead
//!    ▲                                      │ ▲   progress, or the limit       │
//!    └────────── less than RESUME_BYTES ────┘ └────────────────────────────────┘
//! ```
//! If a connection sends faster than the core works, receiving is paused, so that the system slows
//! the client down. If a paused connection makes no progress, receiving continues ahead of the
//! replies, up to `client-query-buffer-limit`: such a client may read no reply before it has
//! written all its requests.

use super::super::core::Core;
use super::super::state::outgoing::Action;
use super::super::state::receiving::{Receiving, Stall};
use super::{Conn, Lane};
use darter_runtime::net::Token;

/// With more unparsed bytes than this, receiving is paused.
const PENDING_MAX: usize = 256 * 1024;
/// With fewer unparsed bytes than this, receiving is resumed.
const RESUME_BYTES: usize = 64 * 1024;

impl Core {
    /// Appends received bytes to the connection's input.
    pub fn received(&self, token: Token, bytes: &[u8]) {
        self.meter.blame_receiving();
        self.with_conn(token, |conn| {
            conn.parser.feed(bytes);
            conn.lane.input.is_partial = false;
            conn.lane.input.look = self.look.get();
            self.release.will_release(self.now_ms());
            // Commands queued by MULTI occupy memory until EXEC, so they count as well, as in Redis
            // 7.2.
            let queued = conn.lane.session.queued.map_or(0, |sizes| sizes.held_bytes);
            let query = conn.query_bytes() + queued;
            self.stats.borrow_mut().input_recent.note(query, self.now_ms());
            let is_over = query > self.hot.borrow().client_limits.query;
            self.check_query(conn);
            conn.lane.input.bytes += bytes.len() as u64;
            conn.lane.session.active_ms = self.now_ms();
            self.stats.borrow_mut().bytes_in += bytes.len() as u64;
            let pauses = match conn.lane.input.receiving {
                Receiving::Open => conn.parser.pending_bytes() > PENDING_MAX,
                Receiving::Ahead if is_over => true,
                Receiving::Ahead => {
                    conn.lane.may_parse() && conn.parser.pending_bytes() > PENDING_MAX
                }
                Receiving::Paused => false, // Received before the pause took effect.
            };
            if pauses {
                self.pause_receiving(conn, is_over);
            }
            self.mark_ready(&mut conn.lane);
        });
    }

    /// Closes a client whose incomplete request, together with its queued commands, exceeds
    /// `client-query-buffer-limit`. Complete requests that wait do not count, because the client is
    /// slowed down for them.
    #[inline]
    pub(crate) fn check_query(&self, conn: &mut Conn) {
        let queued = conn.lane.session.queued.map_or(0, |sizes| sizes.held_bytes);
        let incomplete = if conn.parser.has_backlog() { 0 } else { conn.query_bytes() };
        let limit = self.hot.borrow().client_limits.query;
        let session = &conn.lane.session;
        if queued + incomplete > limit && !session.is_killed() && !session.is_replay {
            self.over_query_limit(conn);
        }
    }

    fn pause_receiving(&self, conn: &mut Conn, is_over: bool) {
        conn.lane.input.receiving = Receiving::Paused;
        self.act(Action::Pause(conn.lane.token));
        if !is_over {
            let pending = conn.parser.pending_bytes();
            self.stalls.add(Stall { token: conn.lane.token, pending }, self.now_ms());
        }
    }

    /// Resumes receiving from paused connections that have made no progress for [`STALL_MS`].
    pub(crate) fn end_stalls(&self) {
        while let Some(stall) = self.stalls.take_due(self.now_ms()) {
            self.with_conn(stall.token, |conn| {
                if conn.lane.input.receiving != Receiving::Paused || conn.lane.closing {
                    return;
                }
                let pending = conn.parser.pending_bytes();
                if pending == stall.pending && !conn.lane.may_parse() {
                    conn.lane.input.receiving = Receiving::Ahead;
                    self.act(Action::Resume(conn.lane.token));
                } else {
                    self.stalls.add(Stall { pending, ..stall }, self.now_ms());
                }
            });
        }
    }

    /// Resumes receiving if few bytes are unparsed.
    pub(crate) fn adjust_receiving(&self, conn: &mut Conn) {
        if conn.parser.pending_bytes() < RESUME_BYTES {
            self.resume_receiving(&mut conn.lane);
        }
    }

    pub(crate) fn resume_receiving(&self, lane: &mut Lane) {
        if std::mem::take(&mut lane.input.receiving) == Receiving::Paused {
            self.act(Action::Resume(lane.token));
        }
    }
}
