//! The end of a wait, on the core of the client: the call is served, times out or is unblocked, or
//! the client closes.

use super::super::conn::{Conn, Lane, Next};
use super::super::core::Core;
use super::super::journal;
use super::super::state::waits::{Blocked, Fate, Stage, WaitingCall};
use darter_command::{Answer, Look, Refusal};
use darter_keyspace::Key;
use darter_resp::{self as resp, Reply};
use darter_tx::{CoreId, lock_key};
use std::rc::Rc;

/// Timed-out clients that are answered between two reads of the clock.
pub(super) const TIMED_OUT_AT_ONCE: usize = 16;

const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

impl Core {
    /// Records that the call of this connection is in all its queues, and waits.
    pub(super) fn now_waits(&self, lane: &mut Lane) {
        self.count_blocked(lane);
        let Some(blocked) = &lane.blocked else { return };
        if blocked.call.wait.want.waits_for_disk() {
            journal::await_disk(self, &blocked.call);
        }
        let fate = &blocked.call.fate;
        if lane.input.eof && (fate.end() || !fate.is_taken()) {
            self.waits_no_more(lane);
        }
    }

    /// Ends the wait of a half-closed client, as in Redis: it receives the earlier replies, and is
    /// closed. The state of its call cannot change any more.
    pub(crate) fn waits_no_more(&self, lane: &mut Lane) {
        let Some(blocked) = lane.blocked.take() else { return };
        debug_assert!(!blocked.call.fate.is_taken(), "it has an answer");
        self.count_unblocked(lane.session.handle, &blocked);
        lane.next = Next::Parsed;
        self.leave_queues(blocked.call.number, &blocked.cores);
        lane.session.close_after_reply();
        self.after_settling(lane);
    }

    /// Counts the client as blocked, and sets its deadline.
    pub(super) fn count_blocked(&self, lane: &mut Lane) {
        let client = lane.session.handle;
        let begins = |blocked: &&mut Box<Blocked>| blocked.stage == Stage::Begins;
        if let Some(blocked) = lane.blocked.as_mut().filter(begins) {
            blocked.stage = Stage::Waits;
            self.waits.borrow_mut().block(client, blocked.until_ms);
        }
    }

    /// Ends a call that would have to wait, although its client has half-closed or timed out.
    pub(super) fn end_unserved(&self, client: u64, number: u64) {
        self.with_blocked(client, number, |core, conn| {
            let lane = &mut conn.lane;
            if lane.session.is_killed() {
                return core.kill(lane);
            }
            let Some(blocked) = &lane.blocked else { return };
            if lane.input.eof {
                blocked.call.fate.end();
                return core.waits_no_more(lane);
            }
            let want = |reply: &mut Reply<'_>| blocked.call.wait.want.time_out(reply);
            let answer = Answer::encode(lane.session.resp3, want);
            core.end_waiting(conn, None, Ok(answer));
        });
    }

    /// Records that the task of a call has added it to all queues.
    pub(super) fn has_begun_to_wait(self: &Rc<Self>, call: &WaitingCall) {
        let is_there = self.with_blocked(call.client, call.number, |_, conn| {
            conn.parser.release_request();
            conn.lane.next = Next::Waits;
            conn.lane.awaited = None;
            conn.lane.send_late();
            self.mark_dirty(&mut conn.lane);
            self.now_waits(&mut conn.lane);
        });
        if is_there.is_none() && self.clients.token_of(call.client).is_none() {
            self.leave_queues(call.number, &(0..self.tx.cores()).collect::<Vec<_>>());
        }
    }

    /// Calls `visit` with the connection of a client, if it is blocked in this call.
    pub(super) fn with_blocked<R>(
        &self,
        client: u64,
        number: u64,
        visit: impl FnOnce(&Self, &mut Conn) -> R,
    ) -> Option<R> {
        let is_it = |conn: &mut Conn| {
            let blocked = conn.lane.blocked.as_ref();
            blocked.is_some_and(|blocked| blocked.call.number == number)
        };
        self.with_conn(self.clients.token_of(client)?, |conn| {
            is_it(conn).then(|| visit(self, conn))
        })?
    }

    /// Handles the answer of a blocked call, which core `from` has sent.
    pub(super) fn served(
        self: &Rc<Self>,
        client: u64,
        number: u64,
        from: CoreId,
        answer: Result<Answer, Refusal>,
    ) {
        self.with_blocked(client, number, |core, conn| {
            core.end_waiting(conn, Some(from), answer);
        });
    }

    /// Answers a call that has waited for the disk: the changes are there, or there is no journal
    /// any more.
    pub(crate) fn end_at_disk(&self, client: u64, number: u64, is_there: bool) {
        self.with_blocked(client, number, |core, conn| {
            let Some(blocked) = &conn.lane.blocked else { return };
            let (want, mut ended) = (&blocked.call.wait.want, Ok(()));
            let answer = Answer::encode(conn.lane.session.resp3, |reply| {
                ended = want.end_at_disk(is_there, reply);
            });
            let answer = ended.map(|()| answer);
            blocked.call.fate.end();
            core.end_waiting(conn, None, answer);
        });
    }

    /// Ends the wait of a connection with an answer. Removes the call from all queues, except those
    /// of core `served`, which has done so itself.
    fn end_waiting(
        &self,
        conn: &mut Conn,
        served: Option<CoreId>,
        answer: Result<Answer, Refusal>,
    ) {
        conn.parser.release_request();
        let lane = &mut conn.lane;
        let Some(mut blocked) = lane.blocked.take() else { return };
        self.count_unblocked(lane.session.handle, &blocked);
        debug_assert!(lane.is_blocked(), "a task has it begin to wait");
        lane.next = Next::Parsed;
        blocked.cores.retain(|core| Some(*core) != served);
        self.leave_queues(blocked.call.number, &blocked.cores);
        let (out, stream) = self.encode_answer(answer, lane.session.resp3);
        self.owe(lane, out, stream);
        if conn.parser.pending_bytes() > 0 {
            self.cork(lane);
        }
        self.after_settling(lane);
    }

    /// Ends the wait of a connection that has closed.
    pub(crate) fn stop_waiting(&self, lane: &mut Lane) {
        let mut is_amid = lane.output_bytes() > 0;
        if let Some(blocked) = lane.blocked.take() {
            blocked.call.fate.end();
            is_amid |= blocked.stage == Stage::Begins || blocked.call.fate.is_taken();
            self.count_unblocked(lane.session.handle, &blocked);
            self.leave_queues(blocked.call.number, &blocked.cores);
        }
        if is_amid {
            self.waits.borrow_mut().count_lost();
        }
    }

    pub(super) fn count_unblocked(&self, client: u64, blocked: &Blocked) {
        if blocked.stage == Stage::Waits {
            self.waits.borrow_mut().unblock(client, blocked.until_ms);
            self.journal.end_disk_wait(blocked.call.number);
        }
    }

    /// Removes a call from the queues of these cores.
    pub(super) fn leave_queues(&self, number: u64, cores: &[CoreId]) {
        for core in cores {
            if *core == self.id() {
                self.waits.borrow_mut().remove(number);
            } else {
                self.tell_later(*core, move |there| there.waits.borrow_mut().remove(number));
            }
        }
    }

    /// Answers the clients that have timed out.
    pub(crate) fn end_overdue(&self) {
        for _ in 0..TIMED_OUT_AT_ONCE {
            let overdue = self.waits.borrow().overdue(self.now_ms());
            let Some(client) = overdue else { return };
            self.unblock_now(client, None, Fate::end_if_waiting);
            let next = self.waits.borrow().overdue(self.now_ms());
            assert!(next != Some(client), "client {client} has a deadline, and does not wait");
        }
    }

    /// The time at which the next client times out, or the next key must be checked.
    pub(crate) fn next_timeout(&self) -> Option<u64> {
        self.waits.borrow().next_deadline()
    }

    /// The number of blocked clients, and the number of those with a timeout.
    #[must_use]
    pub fn blocked_counts(&self) -> (usize, usize) {
        self.waits.borrow().counts()
    }

    /// The number of connections that closed while the answers of their served calls were in
    /// flight.
    #[must_use]
    pub fn ended_amid_replies(&self) -> u64 {
        self.waits.borrow().lost()
    }

    /// True if a call waits for this key of this core.
    #[must_use]
    pub fn is_waited_for(&self, db: usize, key: &[u8]) -> bool {
        let name = lock_key(db, Key::new(key).hash);
        let is_it = |call: &WaitingCall, at, _| {
            let is_it = call.view.db == db && resp::Args::owned(&call.request).get(at) == key;
            if is_it { Look::There } else { Look::Nothing }
        };
        matches!(self.waits.borrow().next(name, 0, usize::MAX, is_it), Ok(Some(_)))
    }

    /// `CLIENT UNBLOCK`: ends the wait of a client as if it had timed out, or with an error.
    /// Returns false if the client is not blocked.
    pub fn unblock(&self, id: u64, with_error: bool) -> bool {
        let Some(client) = self.clients.handle_of(id) else { return false };
        self.unblock_now(client, with_error.then(|| Refusal::line(UNBLOCKED)), Fate::end)
    }

    fn unblock_now(&self, client: u64, refusal: Option<Refusal>, end: fn(&Fate) -> bool) -> bool {
        let Some(token) = self.clients.token_of(client) else { return false };
        let ended = self.with_conn(token, |conn| {
            let blocked = conn.lane.blocked.as_mut();
            let Some(blocked) = blocked.filter(|blocked| blocked.stage == Stage::Waits) else {
                return false;
            };
            if !end(&blocked.call.fate) {
                self.count_unblocked(client, blocked);
                blocked.stage = Stage::Ends;
                return false;
            }
            let want = |reply: &mut Reply<'_>| blocked.call.wait.want.time_out(reply);
            let answer = match refusal {
                None => Ok(Answer::encode(conn.lane.session.resp3, want)),
                Some(refusal) => Err(refusal),
            };
            if let Err(refusal) = &answer {
                self.count_failed(blocked.call.entry, Some(refusal));
            }
            self.end_waiting(conn, None, answer);
            true
        });
        ended == Some(true)
    }
}
