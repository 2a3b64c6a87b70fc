//! Throttles writers that outrun a snapshot or the delivery of keyspace events.
//!
//! A write to a segment of the cut that was not encoded yet copies the segment first, and encoding
//! takes ten times as long as copying. So writers at full speed would copy the whole cut. If the
//! copies that a core's part of the snapshot holds exceed a bound (`Saving::is_behind`), the part
//! is *behind*. Requests that write there then wait in their connections, before they have any
//! effect, so that no request visibly overtakes another. The wait ends when the part is not behind
//! any more, and at the latest after [`HOLD_MS`]; then the write copies its segment. So a slow disk
//! costs memory, not time, and at most the memory of the cut, as with fork.
//!
//! A write that copies nothing of the cut does not wait: the segment of its key was encoded or
//! copied before, and its value is small. (Only keys of this core are checked, because the cuts of
//! other cores are unknown here.) The amount copied in one turn is bounded, too, because a reader
//! may wait for that turn.
//!
//! ```text
//! turn:  one held writer | arrivals | more held writers | the snapshot, and other background work
//!        until COPIED_IN_TURN_KIB are copied, or the bound is reached
//! ```
//! Each core publishes whether its part is behind ([`Core::report_behind_writers`]). When it has
//! caught up, it wakes the cores with connections that wait for it. Requests that are in flight to
//! a core run there on arrival.
//!
//! Commands that cause keyspace events wait, too, while too many events are in flight to the core
//! that publishes them (`Listeners::are_behind`). That wait has no time limit.
//!
//! Not here: measuring the memory that a snapshot holds, and the order in which the cut is encoded.
//! See `snapshot` in persist.

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

/// The limit of memory that writers may copy in one turn, in KiB: about five segments, 50 us.
const COPIED_IN_TURN_KIB: u32 = 256;

impl Core {
    /// Holds a request that writes, if it must wait. Returns whether it was held.
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
            // A command that is only queued by MULTI does not wait, but EXEC may have to.
            Some(_) if lane.is_queueing(entry) => None,
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

    /// The cause for which a request must wait, if any. A read waits only for events, because a
    /// miss causes an event.
    fn awaited_by(&self, db: usize, entry: &Entry, args: Args<'_>) -> Option<WriteWait> {
        let is_write = entry.row.is_write();
        let may_tell = is_write || entry.row.keys.positions(args).next().is_some();
        if may_tell && self.events_are_behind() {
            return Some(WriteWait::Events);
        }
        let part = if is_write { self.part_awaited_by(db, entry, args) } else { None };
        part.map(WriteWait::Part)
    }

    /// A core that is behind and owns a key of this request, if any. Commands without keys do not
    /// wait, because they free memory rather than copy it.
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

    /// True if changing this key of this core may copy a segment of the cut.
    fn is_cut(&self, db: usize, key: &[u8]) -> bool {
        self.tx.home().shard.db_mut(db).is_cut(&Key::new(key))
    }

    /// True if writes to keys of that core may run now.
    fn takes_writers(&self, core: CoreId) -> bool {
        self.has_caught_up(core)
            && (core != self.id() || self.saving.copied_in_turn_kib() < COPIED_IN_TURN_KIB)
    }

    fn has_caught_up(&self, core: CoreId) -> bool {
        if core == self.id() {
            return !self.saving.is_behind(&self.admin.shared.saves);
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

    /// Queues a connection whose wait is over. One per turn is enough for waiting connections to
    /// continue under any load.
    pub(super) fn release_writer(&self) {
        if let Some(token) = self.next_writer() {
            self.with_conn(token, |conn| self.mark_ready(&mut conn.lane));
        }
    }

    /// True if the next turn would release a connection.
    pub(super) fn may_release_writers(&self) -> bool {
        self.writers.are_held() && self.writers.has_next(|at, since| self.releases(at, since))
    }

    /// True if a wait that began at `since` is over, also if the clock was set back.
    fn releases(&self, awaited: WriteWait, since: UnixMillis) -> bool {
        match awaited {
            WriteWait::Events => !self.events_are_behind(),
            WriteWait::Part(core) => {
                self.has_caught_up(core) || self.now_ms().abs_diff(since) >= HOLD_MS
            }
        }
    }

    /// Publishes, at the end of the turn, whether this core's part of the snapshot is behind.
    pub(super) fn report_behind_writers(self: &Rc<Self>) {
        if self.tx.cores() == 1 {
            return;
        }
        self.set_has_waiting();
        let is_behind = self.saving.is_behind(&self.admin.shared.saves);
        if self.admin.shared.reports[self.id()].report_behind(is_behind) && !is_behind {
            self.wake_waiting();
        }
    }

    /// Asks the other cores to wake this one, if connections here wait for them.
    fn set_has_waiting(&self) {
        let waits = self.writers.wait_elsewhere(self.id()) || self.pubsub.has_recorded();
        self.admin.shared.reports[self.id()].set_has_waiting(waits);
    }

    /// Wakes the other cores that have connections waiting for this one.
    pub(super) fn wake_waiting(self: &Rc<Self>) {
        let reports = self.admin.shared.reports.iter().enumerate();
        let waiting = reports.filter(|(id, reports)| *id != self.id() && reports.has_waiting());
        waiting.for_each(|(id, _)| self.tell(id, |_| {}));
    }

    /// True if writers must wait because too many events are in flight.
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
