//! Decides whether a core sleeps, and for how long.
//!
//! A core without work sleeps until a message, a socket or its next deadline wakes it. There is no
//! periodic timer. So the decision is made last, after all outputs of the turn, and from the state
//! of every queue. It does not rely on what chores have reported: later work in the same turn may
//! have given them more.
//!
//! No work can be lost that is in a queue. But a connection that could continue might be in no
//! queue, so debug builds search for such a connection before every sleep.
//!
//! Not here: putting the thread to sleep and waking it. See `thread`, and `mailbox` in the runtime.

use super::conn::outbound::wanted;
use super::conn::{Conn, Lane};
use super::core::Core;
use super::journal;
use super::saving::has_news;
use super::turn::STREAM_BUFFER_BYTES;

/// The time at which the next turn must begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// At once, because there is work.
    Nothing,
    /// At the next event, or after this number of milliseconds.
    Millis(u64),
    /// At the next event.
    Forever,
}

/// The longest sleep before a deadline. The clock may be set during the sleep, so it is bounded.
const SLEEP_MAX_MS: u64 = 3_600_000;

impl Core {
    /// Returns how long the core may sleep. Call it last in a turn, and sleep at once.
    #[must_use]
    pub fn wait(&self) -> Wait {
        if self.at_hand().is_some() {
            return Wait::Nothing;
        }
        if cfg!(debug_assertions) {
            self.assert_nothing_is_lost();
        }
        let now = self.now_ms();
        match self.next_deadline() {
            Some(at) => Wait::Millis(at.saturating_sub(now).clamp(1, SLEEP_MAX_MS)),
            None => Wait::Forever,
        }
    }

    /// Names the work that can continue now, if there is any. This is the only function that knows
    /// all queues.
    #[must_use]
    pub fn at_hand(&self) -> Option<&'static str> {
        #[rustfmt::skip] // A table.
        let queues: [(&str, &dyn Fn() -> bool); 23] = [
            ("what has come",      &|| !self.queue.borrow().is_empty()),
            ("a batch",            &|| self.batches.borrow().has_next()),
            ("a task",             &|| self.tx.has_ready()),
            ("a stream",           &|| self.clients.are_streaming()),
            ("a message",          &|| self.has_messages()),
            ("an invalidation",    &|| !self.tracking.is_quiet()),
            ("output",             &|| self.clients.are_dirty()),
            ("mail",               &|| self.outgoing.has_mail() || self.tx.has_mail()),
            ("an action",          &|| self.outgoing.has_actions()),
            ("a deferred free",    &|| !darter_keyspace::lazyfree::is_empty()),
            ("the dead",           &|| self.is_due(self.next_reap()) && !self.events_are_behind()),
            ("a shrunk table",     &|| self.is_due(self.tx.home().shard.next_compaction())),
            ("a held send",        &|| journal::may_release_held(self)),
            ("what is on disk",    &|| journal::may_end_wait_for_disk(self)),
            ("a snapshot",         &|| self.saving.can_go_on(&self.admin.shared.saves)),
            ("news of a snapshot", &|| has_news(self)),
            ("news of a rewrite",  &|| super::saving::rewriting::has_news(self)),
            ("the end of a pause", &|| self.is_due(self.pause_ends())),
            ("a served key",       &|| self.tx.has_serving()),
            ("a left queue",       &|| self.waits.borrow().has_left()),
            ("the end of a wait",  &|| self.is_due(self.next_timeout())),
            ("a held writer",      &|| self.may_release_writers()),
            ("a watched key",      &|| self.has_watch_work()),
        ];
        queues.into_iter().find_map(|(name, holds)| holds().then_some(name))
    }

    /// The next deadline, in Unix milliseconds.
    fn next_deadline(&self) -> Option<u64> {
        let timers = [
            self.next_reap(),
            self.tx.home().shard.next_compaction(),
            self.pause_ends(),
            self.next_timeout(),
            self.release.next_ms(),
            self.corked.next_ms(),
            self.stalls.next_ms(),
            self.next_idle_check(),
            self.next_census(),
            self.writers.next_end(),
            self.tx.next_alarm(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Asserts that every connection that could continue without an event is in a queue.
    fn assert_nothing_is_lost(&self) {
        /// The number of connections checked: all of them, except in tests with very many.
        const MOST: usize = 256;
        let conns = self.clients.places();
        let open = conns
            .iter()
            .take(MOST)
            .flatten()
            .filter(|conn| !conn.lane.closing && conn.lane.location.leaving.is_none());
        for conn in open {
            let lost = lost(conn);
            assert!(lost.is_none(), "core {}: {lost:?} is in no queue", self.id());
        }
    }
}

/// Names the work of a connection that could continue, although it is in no queue; `None` if there
/// is none.
fn lost(conn: &Conn) -> Option<&'static str> {
    let lane = &conn.lane;
    let is_next = lane.owed.is_empty() && lane.stream.is_none();
    let states = [
        (lane.session.is_killed(), "one that was killed"),
        (
            lane.may_parse() && conn.parser.pending_bytes() > 0 && !lane.input.is_partial,
            "a request",
        ),
        (
            lane.held().is_some() && is_next && !lane.awaits_pause && !lane.waits_to_write(),
            "a held request",
        ),
        (lane.stream.is_some() && lane.output_bytes() < STREAM_BUFFER_BYTES, "a stream"),
        (
            !lane.out.is_empty()
                && lane.sending.in_flight == 0
                && lane.sending.corked_until.is_none(),
            "output",
        ),
        (lane.input.eof && lane.is_settled() && lane.may_parse(), "its end"),
        (is_answered(lane) && lane.session.closes_after_reply(), "one to be closed"),
        (wanted(lane).is_some(), "the end of a rest"),
    ];
    states.into_iter().find_map(|(holds, name)| holds.then_some(name))
}

fn is_answered(lane: &Lane) -> bool {
    lane.is_settled() && lane.output_bytes() == 0
}
