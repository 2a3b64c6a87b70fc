//! Throttles writers that outrun a snapshot or the delivery of keyspace events.
//!
//! A write to an unread segment of the cut copies the segment, and encoding takes ten times as long
//! as copying. So writers at full speed would copy everything. When a core's part holds more than
//! its bound (`Saving::is_behind`), requests that write there wait in their connections, before any
//! effect is visible, so that no request overtakes another visibly. The wait ends when the part is
//! within its bound, and at the latest after [`HOLD_MS`]: then the write takes the memory. So a
//! slow disk costs memory, not time; the cut bounds the memory, as with fork.
//!
//! A write that copies nothing of the cut does not wait: its key's segment was read or copied
//! before, and its value is small. (This is checked only for keys of this core: the cuts of other
//! cores are unknown.) The copies of one turn are bounded, too, because a reader may wait for the
//! turn.
//!
//! ```text
//! turn:  one held writer | what has come | more held writers | the snapshot, and the rest
//!        until COPIED_IN_TURN_KIB are copied, or the bound is reached
//! ```
//! Each core reports whether its part is behind ([`Core::report_behind_writers`]), and wakes the
//! cores whose connections wait for it. Requests in flight to it run on arrival.
//!
//! Commands that cause keyspace events wait, too, without a time limit, while too many events are
//! in flight to the core that publishes them (`Listeners::are_behind`).
//!
//! Not here: the memory held, and the order of reading the cut. See `snapshot` in persist.

use super::conn::{Lane, WriteHold};
use super::core::Core;
use super::entry::Entry;
use super::state::writers::{HOLD_MS, WriteWait};
use darter_base::UnixMillis;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_keyspace::Key;
use darter_resp::Args;
use darter_runtime::net::Token;
use darter_tx::CoreId;
use std::rc::Rc;

/// Memory that writers may copy in a turn, in KiB: about five segments, 50 us.
const COPIED_IN_TURN_KIB: u32 = 256;

impl Core {
    /// Holds a request if it writes and must wait. True if it does.
    #[inline]
    pub(super) fn holds_writer(&self, lane: &mut Lane, entry: &Entry, args: Args<'_>) -> bool {
        (self.admin.shared.saves.is_under_way() || self.events_are_behind())
            && self.hold_writer(lane, entry, args)
    }

    fn hold_writer(&self, lane: &mut Lane, entry: &Entry, args: Args<'_>) -> bool {
        if lane.write_hold == WriteHold::Released {
            lane.write_hold = WriteHold::No;
            return false;
        }
        let db = lane.session.db;
        let awaited = match &lane.transaction.queued {
            None => self.awaited_by(db, entry, args),
            Some(_) if lane.is_queueing(entry) => None, // EXEC may have to wait.
            Some(queued) => queued.first_some(|row, args| {
                let entry = &self.table.entries()[row];
                if entry.row.is_write() { self.awaited_by(db, entry, args) } else { None }
            }),
        };
        // A half-closed client does not wait for a snapshot.
        let Some(awaited) = awaited.filter(|at| *at == WriteWait::Events || !lane.input.eof) else {
            return false;
        };
        self.stats.borrow_mut().writes_held += u64::from(!lane.waits_to_write());
        lane.hold(args.to_request());
        self.writers.hold(awaited, lane, self.now_ms());
        self.set_has_waiting();
        true
    }

    /// The cause for which a request must wait. Reads wait only for events, because a miss is an
    /// event.
    fn awaited_by(&self, db: usize, entry: &Entry, args: Args<'_>) -> Option<WriteWait> {
        let is_write = entry.row.is_write();
        let may_tell = is_write || entry.row.keys.positions(args).next().is_some();
        if may_tell && self.events_are_behind() {
            return Some(WriteWait::Events);
        }
        let part = if is_write { self.part_awaited_by(db, entry, args) } else { None };
        part.map(WriteWait::Part)
    }

    /// A core that is behind and owns a key of this request. Commands without keys do not wait:
    /// they free rather than copy.
    fn part_awaited_by(&self, db: usize, entry: &Entry, args: Args<'_>) -> Option<CoreId> {
        let is_local = |key: &[u8]| self.tx.cores() == 1 || self.tx.core_of(key) == self.id();
        let awaited = |key: &[u8]| {
            let core = if is_local(key) { self.id() } else { self.tx.core_of(key) };
            let waits = !self.takes_writers(core) && (core != self.id() || self.is_cut(db, key));
            waits.then_some(core)
        };
        let places = entry.row.keys.positions(args).take(ENTRIES_AT_ONCE);
        places.map(|at| args.get(at)).find_map(awaited)
    }

    /// Whether changing a key of this core may copy a part of the cut.
    fn is_cut(&self, db: usize, key: &[u8]) -> bool {
        self.tx.home().shard.db_mut(db).is_cut(&Key::new(key))
    }

    /// Whether writes to keys of that core may run now.
    fn takes_writers(&self, core: CoreId) -> bool {
        self.has_caught_up(core)
            && (core != self.id() || self.saving.copied_in_turn_kib() < COPIED_IN_TURN_KIB)
    }

    fn has_caught_up(&self, core: CoreId) -> bool {
        if core == self.id() {
            return !self.is_behind_writers();
        }
        !self.admin.shared.reports[core].is_behind()
    }

    /// Takes the next connection whose wait is over.
    pub(super) fn next_writer(&self) -> Option<Token> {
        if !self.writers.are_held() {
            return None;
        }
        let has_copied_much = self.saving.copied_in_turn_kib() >= COPIED_IN_TURN_KIB;
        let next = self.writers.next(|awaited, since| match awaited {
            WriteWait::Part(core) if core == self.id() && has_copied_much => false,
            _ => self.releases(awaited, since),
        })?;
        self.with_conn(next, |conn| conn.lane.write_hold = WriteHold::Released);
        Some(next)
    }

    /// Queues a connection whose wait is over, so that waiting ones continue under any load.
    pub(super) fn release_writer(&self) {
        if let Some(token) = self.next_writer() {
            self.with_conn(token, |conn| self.mark_ready(&mut conn.lane));
        }
    }

    /// Whether a turn would release a connection.
    pub(super) fn may_release_writers(&self) -> bool {
        self.writers.are_held() && self.writers.has_next(|at, since| self.releases(at, since))
    }

    /// Whether a wait that began at `since` is over. The clock may have been set back.
    fn releases(&self, awaited: WriteWait, since: UnixMillis) -> bool {
        match awaited {
            WriteWait::Events => !self.events_are_behind(),
            WriteWait::Part(core) => {
                self.has_caught_up(core) || self.now_ms().abs_diff(since) >= HOLD_MS
            }
        }
    }

    /// Reports, at the end of the turn, whether this core's part is behind.
    pub(super) fn report_behind_writers(self: &Rc<Self>) {
        if self.tx.cores() == 1 {
            return;
        }
        self.set_has_waiting();
        let is_behind = self.is_behind_writers();
        if self.admin.shared.reports[self.id()].report_behind(is_behind) && !is_behind {
            self.wake_waiting();
        }
    }

    /// Asks other cores to wake this one if a connection here waits for them.
    fn set_has_waiting(&self) {
        let waits = self.writers.wait_elsewhere(self.id()) || self.pubsub.has_recorded();
        self.admin.shared.reports[self.id()].set_has_waiting(waits);
    }

    /// Wakes the cores with waiting connections.
    pub(super) fn wake_waiting(self: &Rc<Self>) {
        let reports = self.admin.shared.reports.iter().enumerate();
        let waiting = reports.filter(|(id, reports)| *id != self.id() && reports.has_waiting());
        waiting.for_each(|(id, _)| self.tell(id, |_| {}));
    }

    /// Whether writers must wait, because too many events are in flight.
    #[inline]
    pub(crate) fn events_are_behind(&self) -> bool {
        self.admin.shared.listeners.are_behind() || self.pubsub.has_recorded()
    }

    /// Waits until fewer events are in flight.
    pub(crate) async fn events_caught_up(&self) {
        while self.events_are_behind() {
            self.tx.pause().await;
        }
    }
}
