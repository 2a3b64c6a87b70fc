//! Connections move to the core of their keys: see `policy` for when.
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
//! A connection leaves between two requests, when it is owed nothing and nobody on another core
//! knows where it is: so there is nothing that could be sent to the wrong core, and nothing to be
//! forwarded. Who subscribes, tracks, watches, waits or is told instead of another stays.
//!
//! Its id stays, and names no core. Others know a connection by its *handle*, which does, and which
//! is new after each move. Who looks for an id asks all cores; who must not miss any connection
//! ([`Core::hold_moves`]) has all of them stay, and waits for those on their way.
//!
//! Not here: when it moves (`policy`), and what it costs (docs/design/0036-connections-move.md).

pub(crate) mod policy;

use super::conn::{Conn, Lane, Session};
use super::core::{Core, Mail};
use super::state::outgoing::Action;
use super::state::receiving::Receiving;
use darter_resp::Parser;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use policy::{Policy, Roamer};
use std::rc::Rc;

/// A connection on its way to another core, without its socket.
pub struct Moving {
    parser: Parser,
    session: Session,
    /// Where it comes from.
    from: CoreId,
    home: CoreId,
    /// When it came there.
    came_ms: u64,
    owed_max: usize,
    reply_peak: (usize, u64),
    bytes_in: u64,
    bytes_out: u64,
}

impl Core {
    /// True if a connection leaves, or begins to: its requests are for the other core.
    #[inline]
    pub(super) fn leaves(&self, conn: &mut Conn) -> bool {
        let lane = &conn.lane;
        lane.leaving.is_some() || (self.may_roam(lane) && self.begins_to_leave(conn))
    }

    /// Whether it may want to: nearly always not.
    #[inline]
    fn may_roam(&self, lane: &Lane) -> bool {
        lane.trail.len() >= self.moves.policy().requests || lane.home != self.id()
    }

    #[cold]
    fn begins_to_leave(&self, conn: &mut Conn) -> bool {
        let lane = &conn.lane;
        let Lane { trail, home, came_ms, .. } = *lane;
        let roamer = Roamer { trail, home, here: self.id(), came_ms };
        let wish = self.moves.policy().wish(roamer, self.now_ms(), |core| self.moves.share(core));
        let Some(wish) = wish else { return false };
        let may_begin = self.moves.may_begin(self.id(), wish, self.tx.cores());
        if !may_begin || self.hot.borrow().loading || !is_free(lane) {
            return false;
        }
        conn.lane.leaving = Some(wish.to);
        self.moves.begin(wish);
        self.act(Action::Release(conn.lane.token));
        true
    }

    /// The socket of a connection that leaves is at hand. Returns where both go; that may be this
    /// core, under a new token. None if it is to be closed, and with it the socket.
    pub fn released(self: &Rc<Self>, token: Token) -> Option<(CoreId, Box<Moving>)> {
        let state = self.with_conn(token, |conn| {
            let lane = &mut conn.lane;
            lane.receiving = Receiving::Open; // Nothing has been received under its new token yet.
            let ends = lane.session.killed || lane.closing;
            (ends, lane.leaving.filter(|_| is_free(lane)))
        });
        let (ends, to) = state?;
        if ends {
            self.closed(token);
            return None;
        }
        let Conn { parser, mut lane } = *self.clients.remove(token)?;
        self.forget_if_last();
        let (from, home) = (self.id(), lane.home);
        let to = to.unwrap_or(from);
        match home == from {
            _ if to == from => {}
            true => self.moves.goes_away(),
            false => self.moves.guest_goes(),
        }
        let session = std::mem::take(&mut lane.session);
        let Lane { came_ms, owed_max, reply_peak, bytes_in, bytes_out, .. } = lane;
        let moving = Moving {
            parser,
            session,
            from,
            home,
            came_ms,
            owed_max,
            reply_peak,
            bytes_in,
            bytes_out,
        };
        Some((to, Box::new(moving)))
    }

    /// A connection has come from another core, or stays after all.
    pub fn arrived(&self, token: Token, moving: Box<Moving>) {
        let Moving { parser, mut session, from, home, owed_max, reply_peak, .. } = *moving;
        session.handle = self.new_handle();
        let lane = Lane::new(token, session, self.tx.cores());
        let mut conn = Box::new(Conn { parser, lane });
        let lane = &mut conn.lane;
        lane.home = home;
        (lane.owed_max, lane.reply_peak) = (owed_max, reply_peak);
        (lane.bytes_in, lane.bytes_out) = (moving.bytes_in, moving.bytes_out);
        lane.look = self.look.get();
        if from == self.id() {
            lane.came_ms = moving.came_ms;
            self.move_ended();
        } else {
            lane.came_ms = self.now_ms();
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

    /// A connection of this core has ended.
    pub(super) fn mover_left(&self, lane: &Lane) {
        if lane.leaving.is_some() {
            self.move_ended();
        }
        if lane.home != self.id() {
            self.moves.guest_goes();
            self.post(lane.home, Mail::Ask(Box::new(|home| home.moves.is_back())));
        }
    }

    /// Connections that this core has accepted: as many as may be, whatever their cores are now.
    pub(super) fn accepted_len(&self) -> usize {
        self.moves.accepted(self.clients.len())
    }

    /// Has all connections stay on their cores, from the moment at which all are on one until the
    /// result is dropped: for those who look at all of them, and must neither miss one nor see one
    /// twice.
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

    /// A connection that left is on one core again, or has ended.
    fn move_ended(&self) {
        for ticket in self.moves.end() {
            self.tx.complete(ticket, Box::new(()));
        }
    }

    /// From now on connections stay: the server stops.
    pub fn end_moves(&self) {
        self.moves.hold();
    }

    /// When connections move from now on: for tests.
    pub fn set_move_policy(&self, policy: Policy) {
        self.moves.set_policy(policy);
    }

    /// How busy this core was in the last span.
    pub(crate) fn busy_percent(&self) -> u16 {
        self.moves.share(self.id()) / 10
    }

    /// The core has nothing to do from now on, by the monotonic clock, until its next turn begins.
    pub fn rests(&self, now_ns: u64) {
        self.moves.rests(now_ns);
    }

    /// Of that time it has polled for so long.
    pub fn polled(&self, ns: u64) {
        self.moves.polled(ns);
    }
}

/// True when a connection is between two requests, and nobody but its core knows of it.
fn is_free(lane: &Lane) -> bool {
    let session = &lane.session;
    let is_idle = lane.is_settled()
        && lane.output_bytes() == 0
        && lane.late_bytes() == 0
        && lane.blocked.is_none()
        && lane.awaited.is_none()
        && session.queued.is_none()
        && lane.queued_commands.is_none();
    let is_open = !(lane.eof || lane.closing || session.killed || session.close_after_reply);
    let is_held = lane.receiving != Receiving::Open || lane.awaits_pause || lane.waits_to_write();
    let is_known = session.monitor
        || session.is_target
        || session.tracking.is_on
        || session.subscribed.id > 0
        || session.watched > 0
        || lane.watched.is_some();
    let is_free = is_idle && is_open && !is_held && !is_known;
    debug_assert!(!is_free || lane.away_bytes == 0, "requests of it are with other cores");
    debug_assert!(!is_free || lane.resting.is_empty(), "a batch of it rests");
    is_free
}

/// All connections stay where they are: see [`Core::hold_moves`].
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
