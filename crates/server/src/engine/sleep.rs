//! When a core may sleep, and for how long.
//!
//! A core without work sleeps until a message, a socket or its next deadline wakes it; no timer
//! watches it meanwhile. So the decision comes last before the sleep, when everything the turn
//! asked for has been done, and it is made from the state of every queue: what a chore said earlier
//! in the turn may have been outdated since. docs/design/0007-sleeping.md has more.
//!
//! Work cannot be lost in a queue, only with a connection that could continue and is in no queue.
//! Debug builds look for one before every sleep.
//!
//! Not here: how the thread sleeps, and how it is woken. See `thread` and the runtime's `mailbox`.

use super::batch::wanted;
use super::conn::{Conn, Lane};
use super::core::Core;
use super::turn::STREAM_BUFFER_BYTES;

/// When the core wants its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// At once: there is more to do.
    Nothing,
    /// When something happens, or after this many milliseconds.
    Millis(u64),
    /// When something happens.
    Forever,
}

/// The longest sleep before a deadline, however far that is: the clock may be set meanwhile.
const SLEEP_MAX_MS: u64 = 3_600_000;

impl Core {
    /// How long the core may sleep, as things are now: ask last, then sleep at once.
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

    /// What can continue now, if anything: the one place that knows all queues.
    #[must_use]
    pub fn at_hand(&self) -> Option<&'static str> {
        #[rustfmt::skip] // A table.
        let queues: [(&str, &dyn Fn() -> bool); 20] = [
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
            ("a snapshot",         &|| self.can_save()),
            ("news of a snapshot", &|| self.has_save_news()),
            ("the end of a pause", &|| self.is_due(self.pause_ends())),
            ("a served key",       &|| self.tx.has_serving()),
            ("a left queue",       &|| self.waits.borrow().has_left()),
            ("the end of a wait",  &|| self.is_due(self.next_timeout())),
            ("a held writer",      &|| self.may_release_writers()),
            ("a watched key",      &|| self.has_watch_work()),
        ];
        queues.into_iter().find_map(|(name, holds)| holds().then_some(name))
    }

    /// The next moment with something to do, in Unix milliseconds.
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
        ];
        timers.into_iter().flatten().min()
    }

    /// Every connection that could continue without outside events is in the queue of those that
    /// do.
    fn assert_nothing_is_lost(&self) {
        /// Connections checked: all, except in tests about their number.
        const MOST: usize = 256;
        let conns = self.clients.places();
        let open = conns
            .iter()
            .take(MOST)
            .flatten()
            .filter(|conn| !conn.lane.closing && conn.lane.leaving.is_none());
        for conn in open {
            let lost = lost(conn);
            assert!(lost.is_none(), "core {}: {lost:?} is in no queue", self.id());
        }
    }
}

/// What of a connection could continue, given that it is in no queue.
fn lost(conn: &Conn) -> Option<&'static str> {
    let lane = &conn.lane;
    let is_next = lane.owed.is_empty() && lane.stream.is_none();
    let states = [
        (lane.session.killed, "one that was killed"),
        (lane.may_parse() && conn.parser.pending_bytes() > 0 && !lane.wanting, "a request"),
        (
            lane.held().is_some() && is_next && !lane.awaits_pause && !lane.waits_to_write(),
            "a held request",
        ),
        (lane.stream.is_some() && lane.output_bytes() < STREAM_BUFFER_BYTES, "a stream"),
        (!lane.out.is_empty() && lane.in_flight == 0 && lane.corked_until.is_none(), "output"),
        (lane.eof && lane.is_settled() && lane.may_parse(), "its end"),
        (is_answered(lane) && lane.session.close_after_reply, "one to be closed"),
        (wanted(lane).is_some(), "the end of a rest"),
    ];
    states.into_iter().find_map(|(holds, name)| holds.then_some(name))
}

fn is_answered(lane: &Lane) -> bool {
    lane.is_settled() && lane.output_bytes() == 0
}
