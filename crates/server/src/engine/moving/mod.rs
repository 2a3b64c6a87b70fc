//! Moving connections to the core of their keys. See `policy` for the decision.
//!
//! ```text
//! old core                                       net                        new core
//! serve: it had better be there; nothing is parsed
//!        leaving ──── Release ───────────────►  stops receiving
//!        received: kept, not parsed ◄────────── what had been received
//!        released ◄──────────────────────────── its socket
//!        post: socket, session, parser ──────────────────────────────────►  arrived: it is served
//!        end ◄────────────────────────────────────────────────────────────  it is there
//! ```
//! A connection leaves between two requests, when no reply is pending and no other core knows its
//! place. So no message can reach the wrong core, and nothing is forwarded. Connections with
//! subscriptions, tracking, WATCH, a blocked call or a redirection to them stay.
//!
//! The client's id stays, and names no core. Cores address a connection by its *handle*, which
//! names the core and changes with each move. A search for an id asks all cores. A command that
//! must visit every connection ([`Core::hold_moves`]) stops all moves, and waits for those in
//! flight.
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

/// A connection in flight to another core, without its socket.
pub struct Moving {
    parser: Parser,
    session: Session,
    /// The core that it leaves.
    from: CoreId,
    home: CoreId,
    /// The time of its arrival there, in Unix milliseconds.
    came_ms: u64,
    owed_max: usize,
    reply_peak: (usize, u64),
    bytes_in: u64,
    bytes_out: u64,
}

impl Core {
    /// True if a connection leaves, or begins to leave now. Then the other core serves its
    /// requests.
    #[inline]
    pub(super) fn leaves(&self, conn: &mut Conn) -> bool {
        let lane = &conn.lane;
        lane.location.leaving.is_some() || (self.may_roam(lane) && self.begins_to_leave(conn))
    }

    /// A quick check of whether a connection might leave: nearly always false.
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

    /// Handles the detached socket of a connection that leaves. Returns the destination and the
    /// state; the destination may be this core, with a new token. `None` if the connection must be
    /// closed with its socket.
    pub fn released(self: &Rc<Self>, token: Token) -> Option<(CoreId, Box<Moving>)> {
        let state = self.with_conn(token, |conn| {
            let lane = &mut conn.lane;
            lane.input.receiving = Receiving::Open; // The new token starts with open receiving.
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

    /// Adds a connection that comes from another core, or stays after all.
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

    /// Stops all moves until the result is dropped, and waits for those in flight. For commands
    /// that must visit every connection exactly once.
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

    /// Stops all moves for good, because the server stops.
    pub fn end_moves(&self) {
        self.moves.hold();
    }

    /// Sets the policy, for tests.
    pub fn set_move_policy(&self, policy: Policy) {
        self.moves.set_policy(policy);
    }

    /// The load of this core in the last span, in percent.
    pub(crate) fn busy_percent(&self) -> u16 {
        self.moves.share(self.id()) / 10
    }

    /// Begins idle time, by the monotonic clock. It ends with the next turn.
    pub fn rests(&self, now_ns: u64) {
        self.moves.rests(now_ns);
    }

    /// Adds polling to the idle time.
    pub fn polled(&self, ns: u64) {
        self.moves.polled(ns);
    }
}

/// True if a connection is between two requests, and only its own core knows of it.
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

/// Stops all moves while it lives: see [`Core::hold_moves`].
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
