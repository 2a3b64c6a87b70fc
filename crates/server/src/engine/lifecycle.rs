//! The start and the end of connections: accepted, half-closed, closed.

use super::conn::outbound;
use super::conn::{Conn, Lane, Peer, Session};
use super::core::{Core, Mail};
use super::presence::{Awaited, Gone};
use super::state::waits::{Blocked, Stage};
use darter_runtime::net::Token;
use std::rc::Rc;

impl Core {
    /// Adds a connection that was accepted. If a limit is exceeded, the connection is refused and
    /// closed.
    pub fn accepted(&self, token: Token, peer: Peer) {
        let hot = self.hot.borrow();
        let refusal = if self.moves.accepted(self.clients.len()) >= hot.clients_max {
            Some("-ERR max number of clients reached\r\n")
        } else if hot.protected && hot.password.is_none() && !peer.is_local {
            Some(PROTECTED)
        } else {
            None
        };
        let handle = self.new_handle();
        let mut session = Session {
            id: handle,
            handle,
            peer,
            authenticated: hot.password.is_none(),
            created_ms: self.now_ms(),
            active_ms: self.now_ms(),
            ..Session::default()
        };
        let mut stats = self.stats.borrow_mut();
        match refusal {
            Some(_) => stats.rejected_connections += 1,
            None => stats.connections += 1,
        }
        if refusal.is_some() {
            session.close_after_reply();
        }
        let mut conn = Box::new(Conn::new(token, session, hot.bulk_max, self.tx.cores()));
        conn.lane.location.home = self.id();
        conn.lane.out.tail().extend_from_slice(refusal.unwrap_or("").as_bytes());
        self.mark_dirty(&mut conn.lane);
        self.clients.add(conn);
    }

    /// Handles a half-close: the peer sends no more, but may still read.
    pub fn ended(&self, token: Token) {
        self.with_conn(token, |conn| {
            conn.lane.input.eof = true;
            // As in Redis, a half-close ends the wait of a blocked client, unless the blocking
            // command is in flight or was served.
            let ends = |blocked: &Blocked| {
                blocked.call.fate.end_if_waiting() && blocked.stage == Stage::Waits
            };
            if conn.lane.blocked.as_deref().is_some_and(ends) {
                self.waits_no_more(&mut conn.lane);
            }
            if let Some(awaited) = &conn.lane.awaited {
                awaited.presence.set(Gone::Ended);
            }
            if let Some(core) = conn.lane.away.script_at {
                let client = conn.lane.session.handle;
                let end = move |there: &Rc<Self>| there.batches.borrow_mut().note_ended(client);
                self.post(core, Mail::Ask(Box::new(end)));
            }
            self.mark_ready(&mut conn.lane);
        });
    }

    /// Handles a connection that has closed.
    pub fn closed(self: &Rc<Self>, token: Token) {
        if let Some(mut conn) = self.clients.remove(token) {
            outbound::wake_all(self, &mut conn.lane);
            self.stop_work(&conn.lane);
            self.unwatch_all(&mut conn.lane);
            self.stop_waiting(&mut conn.lane);
            self.mover_left(&conn.lane);
            self.connection_left(&conn.lane.session);
        }
    }

    /// Stops the tasks of a closed connection that can stop without losing a change.
    fn stop_work(&self, lane: &Lane) {
        self.stats.borrow_mut().stopped += u64::from(lane.stream.is_some());
        if let Some(Awaited { task, presence }) = &lane.awaited {
            presence.set(Gone::Closed);
            self.tx.wake(*task);
        }
        let client = lane.session.handle;
        for core in lane.owing() {
            let stop = move |there: &Rc<Self>| there.stop_batch(client);
            self.post(core, Mail::Ask(Box::new(stop)));
        }
    }

    fn stop_batch(&self, client: u64) {
        if let Some(Awaited { task, presence }) = self.batches.borrow_mut().note_closed(client) {
            presence.set(Gone::Closed);
            self.tx.wake(*task);
        }
    }

    /// Updates the counts of moved connections after a connection of this core has closed.
    fn mover_left(&self, lane: &Lane) {
        if lane.location.leaving.is_some() {
            self.move_ended();
        }
        if lane.location.home != self.id() {
            self.moves.guest_goes();
            self.post(lane.location.home, Mail::Ask(Box::new(|home| home.moves.is_back())));
        }
    }

    /// Records that a moving connection has arrived or has closed.
    pub(super) fn move_ended(&self) {
        for ticket in self.moves.end() {
            self.tx.complete(ticket, Box::new(()));
        }
    }
}

const PROTECTED: &str = "-DENIED Darter is running in protected mode because protected mode is \
enabled and no password is set for the default user. In this mode connections are only accepted \
from the loopback interface. To let other computers connect, set a password with 'requirepass', \
or turn protection off with 'protected-mode no'.\r\n";
