//! Moves connections to the core that owns their keys. The decision is made in `policy`.
//!
//! ```text
//! old core                                       net                        new core
//! serve: the move is decided; nothing more is parsed
//!        leaving ──── Release ───────────────►  stops receiving
//!        received: kept, not parsed ◄────────── bytes received before
//!        released ◄──────────────────────────── the detached socket
//!        post: socket, session, parser ──────────────────────────────────►  arrived: serves it
//!        end ◄────────────────────────────────────────────────────────────  confirms the arrival
//! ```
//! A connection moves between two requests, when no reply is pending and no other core knows its
//! handle. So no message can reach the wrong core, and none is ever forwarded. A connection stays
//! where it is while it has subscriptions, tracking, WATCH or a blocked call, or is the target of a
//! redirection.
//!
//! A move does not change the client's id, and the id does not say on which core the client is.
//! Cores address a connection by its *handle*, which contains the core's number and changes with
//! each move. A lookup by id asks all cores. A command that must visit every connection
//! ([`Core::hold_moves`]) stops all moves, and waits for those in progress.
//!
//! Not here: the decision (`policy`), and the costs (docs/design/0036-connections-move.md).

pub(crate) mod policy;

use super::conn::parts::Location;
use super::conn::{Conn, Lane, Session};
use super::core::{Core, Mail};
use super::state::outgoing::Action;
use super::state::receiving::Receiving;
use darter_resp::Parser;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use policy::{Policy, Roamer};
use std::rc::Rc;

/// The state of a connection that moves to another core. Its socket travels beside it.
pub struct Moving {
    parser: Parser,
    session: Session,
    /// The core that the connection leaves.
    from: CoreId,
    home: CoreId,
    /// The time of arrival on the new core, in Unix milliseconds.
    came_ms: u64,
    owed_max: usize,
    reply_peak: (usize, u64),
    bytes_in: u64,
    bytes_out: u64,
}

impl Core {
    /// Decides whether the connection moves. True if it is leaving already, or begins to leave now;
    /// then the other core runs its requests.
    #[inline]
    pub(super) fn leaves(&self, conn: &mut Conn) -> bool {
        let lane = &conn.lane;
        lane.location.leaving.is_some() || (self.may_roam(lane) && self.begins_to_leave(conn))
    }

    /// A cheap test before the decision. It is false for nearly all connections.
    #[inline]
    fn may_roam(&self, lane: &Lane) -> bool {
        lane.location.trail.len() >= self.moves.policy().requests || lane.location.home != self.id()
    }

    #[cold]
    fn begins_to_leave(&self, conn: &mut Conn) -> bool {
        let lane = &conn.lane;
        let Location { trail, home, came_ms, .. } = lane.location;
        let roamer = Roamer { trail, home, here: self.id(), came_ms };
        let wish = self.moves.policy().wish(roamer, self.now_ms(), |core| self.moves.share(core));
        let Some(wish) = wish else { return false };
        let may_begin = self.moves.may_begin(self.id(), wish, self.tx.cores());
        if !may_begin || self.hot.borrow().loading || !is_free(lane) {
            return false;
        }
        conn.lane.location.leaving = Some(wish.to);
        self.moves.begin(wish);
        self.act(Action::Release(conn.lane.token));
        true
    }

    /// Handles the socket of a leaving connection, which the thread has detached. Returns the
    /// destination and the connection's state. If the move was cancelled, the destination is this
    /// core. Returns `None` if the connection and its socket must be closed.
    pub fn released(self: &Rc<Self>, token: Token) -> Option<(CoreId, Box<Moving>)> {
        let state = self.with_conn(token, |conn| {
            let lane = &mut conn.lane;
            lane.input.receiving = Receiving::Open; // On the new core, receiving starts unpaused.
            let ends = lane.session.is_killed() || lane.closing;
            (ends, lane.location.leaving.filter(|_| is_free(lane)))
        });
        let (ends, to) = state?;
        if ends {
            self.closed(token);
            return None;
        }
        let Conn { parser, mut lane } = *self.clients.remove(token)?;
        self.forget_if_last();
        let (from, home) = (self.id(), lane.location.home);
        let to = to.unwrap_or(from);
        match home == from {
            _ if to == from => {}
            true => self.moves.goes_away(),
            false => self.moves.guest_goes(),
        }
        let session = std::mem::take(&mut lane.session);
        let Lane { location, owed_max, sending, input, .. } = &lane;
        let moving = Moving {
            parser,
            session,
            from,
            home,
            came_ms: location.came_ms,
            owed_max: *owed_max,
            reply_peak: sending.peak,
            bytes_in: input.bytes,
            bytes_out: sending.bytes,
        };
        Some((to, Box::new(moving)))
    }

    /// Adds a connection that arrives from another core, or whose move was cancelled.
    pub fn arrived(&self, token: Token, moving: Box<Moving>) {
        let Moving { parser, mut session, from, home, owed_max, reply_peak, .. } = *moving;
        session.handle = self.new_handle();
        let lane = Lane::new(token, session, self.tx.cores());
        let mut conn = Box::new(Conn { parser, lane });
        let lane = &mut conn.lane;
        lane.location.home = home;
        (lane.owed_max, lane.sending.peak) = (owed_max, reply_peak);
        (lane.input.bytes, lane.sending.bytes) = (moving.bytes_in, moving.bytes_out);
        lane.input.look = self.look.get();
        if from == self.id() {
            lane.location.came_ms = moving.came_ms;
            self.move_ended();
        } else {
            lane.location.came_ms = self.now_ms();
            self.stats.borrow_mut().moves += 1;
            self.post(from, Mail::Ask(Box::new(|there| there.move_ended())));
            match home == self.id() {
                true => self.moves.is_back(),
                false => self.moves.guest_comes(),
            }
        }
        self.release.will_release(self.now_ms());
        self.mark_ready(lane);
        self.mark_dirty(lane);
        self.clients.add(conn);
    }

    /// Stops all moves until the returned value is dropped, and waits for moves in progress. For
    /// commands that must visit every connection exactly once.
    pub(crate) async fn hold_moves(self: &Rc<Self>) -> Held {
        let held = Held::new(self);
        self.run_on_all(|| |core: Rc<Self>| async move { core.until_none_leaves().await }).await;
        held
    }

    async fn until_none_leaves(&self) {
        while self.moves.are_under_way() {
            let (ticket, none_leaves) = self.tx.ticket::<()>();
            self.moves.await_end(ticket);
            none_leaves.await;
        }
    }

    /// Stops all moves permanently, because the server stops.
    pub fn end_moves(&self) {
        self.moves.hold();
    }

    /// Sets the parameters of the policy, for tests.
    pub fn set_move_policy(&self, policy: Policy) {
        self.moves.set_policy(policy);
    }

    /// The load of this core in the last measured span, in percent.
    pub(crate) fn busy_percent(&self) -> u16 {
        self.moves.share(self.id()) / 10
    }

    /// Records that the core is idle from `now_ns` on (by the monotonic clock), until its next
    /// turn.
    pub fn rests(&self, now_ns: u64) {
        self.moves.rests(now_ns);
    }

    /// Counts `ns` nanoseconds of polling as idle time.
    pub fn polled(&self, ns: u64) {
        self.moves.polled(ns);
    }
}

/// True if the connection is between two requests, and no other core knows its handle.
fn is_free(lane: &Lane) -> bool {
    let session = &lane.session;
    let is_idle = lane.is_settled()
        && lane.output_bytes() == 0
        && lane.late_bytes() == 0
        && lane.blocked.is_none()
        && lane.awaited.is_none()
        && session.queued.is_none()
        && lane.transaction.queued.is_none();
    let is_open =
        !(lane.input.eof || lane.closing || session.is_killed() || session.closes_after_reply());
    let is_held =
        lane.input.receiving != Receiving::Open || lane.awaits_pause || lane.waits_to_write();
    let is_known = session.monitor
        || session.is_target
        || session.tracking.is_on
        || session.subscribed.id > 0
        || session.watching.keys > 0
        || lane.transaction.watched.is_some();
    let is_free = is_idle && is_open && !is_held && !is_known;
    debug_assert!(!is_free || lane.away.bytes == 0, "requests of it are with other cores");
    debug_assert!(!is_free || lane.away.resting.is_empty(), "a batch of it rests");
    is_free
}

/// Prevents all moves while this value exists: see [`Core::hold_moves`].
pub(crate) struct Held(Rc<Core>);

impl Held {
    fn new(core: &Rc<Core>) -> Self {
        for at in 0..core.tx.cores() {
            core.tell(at, |there| there.moves.hold());
        }
        Self(Rc::clone(core))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for at in 0..self.0.tx.cores() {
            self.0.tell(at, |there| there.moves.release());
        }
    }
}
