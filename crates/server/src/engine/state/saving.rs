//! The state of snapshots on one core: its part of the current snapshot, and the number of changes
//! that the last one contains.

use crate::saving::{Outlet, Room, Saves};
use darter_persist::snapshot::{Chunk, Snapshot, Step};
use darter_tx::{Locked, Tx};
use std::cell::{Cell, RefCell};

/// Writers wait while a snapshot holds more memory than this in addition to the data, in
/// thousandths of the cut's size.
const HELD_PER_MILLE: u64 = 31;
/// A snapshot that holds more memory than this in addition to the data is logged, in thousandths of
/// the cut's size.
const LOGGED_PER_MILLE: u64 = 250;

/// The state of snapshots on one core.
#[derive(Default)]
pub(crate) struct Saving {
    work: RefCell<Option<Work>>,
    /// True while this core has an unfinished part (`work`).
    is_here: Cell<bool>,
    /// The memory of the cut that writers had copied when the turn began, in KiB.
    copied_before_kib: Cell<u32>,
    /// Memory that the current snapshot holds in addition to the data, and the peak of the current
    /// or last snapshot, in KiB.
    held_kib: Cell<u64>,
    held_peak_kib: Cell<u64>,
    /// The number of changes of this core, since its start, that the last snapshot contains.
    saved_changes: Cell<u64>,
    /// On core 0: the ticket of the task that waits for the outcome of the snapshot.
    ticket: Cell<Option<u64>>,
    /// On core 0: tickets to complete when no snapshot is being made.
    waiting: RefCell<Vec<u64>>,
    /// On core 0: tickets that wait for the outcome of the final snapshot, if others have requested
    /// it, too.
    waiting_for_last: RefCell<Vec<u64>>,
    /// On core 0: a snapshot begins when none is being made.
    is_scheduled: Cell<bool>,
    /// On core 0: the locks of all keys after the final snapshot, so that no data changes any more.
    frozen: RefCell<Option<Locked>>,
}

/// The part of the current snapshot on this core.
struct Work {
    snapshot: Snapshot,
    outlet: Box<dyn Outlet>,
    /// An encoded chunk that the file had no room for.
    held: Option<Chunk>,
    /// True if the memory that this snapshot holds was logged.
    is_logged: bool,
}

impl Saving {
    /// Begins this core's part of a snapshot. If the core has slept since an earlier snapshot was
    /// aborted, the part of that one is replaced.
    pub(crate) fn start(&self, snapshot: Snapshot, outlet: Box<dyn Outlet>) {
        let before =
            self.work.replace(Some(Work { snapshot, outlet, held: None, is_logged: false }));
        self.is_here.set(true);
        self.held_peak_kib.set(0);
        let is_over = |work: &Work| work.outlet.room() == Room::Gone;
        debug_assert!(before.as_ref().is_none_or(is_over), "one snapshot at a time");
    }

    /// True if [`Saving::step`] can do something.
    pub(crate) fn can_go_on(&self, saves: &Saves) -> bool {
        let work = self.work.borrow();
        work.as_ref().is_some_and(|work| {
            work.held.is_none() || work.outlet.room() != Room::Later || saves.is_cancelled()
        })
    }

    /// True while this core's part of a snapshot is unfinished. Until then, a write may have to
    /// copy a segment.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.is_here.get()
    }

    /// True if writers copy faster than the copies are encoded.
    pub(crate) fn is_behind(&self, saves: &Saves) -> bool {
        let is_behind = |work: &Work| work.snapshot.holds_more_than(HELD_PER_MILLE);
        self.is_here()
            && !saves.is_cancelled()
            && self.work.borrow().as_ref().is_some_and(is_behind)
    }

    /// Begins a turn.
    pub(crate) fn begin_turn(&self) {
        if self.is_here() {
            self.copied_before_kib.set(self.copied_kib());
            self.note_held();
        }
    }

    /// Memory that the current snapshot holds in addition to the data, and the peak of the current
    /// or last snapshot, in bytes.
    pub(crate) fn held_bytes(&self) -> [u64; 2] {
        [&self.held_kib, &self.held_peak_kib].map(|kib| kib.get() * 1_024)
    }

    fn note_held(&self) {
        let mut place = self.work.borrow_mut();
        let held = place.as_ref().map_or(0, |work| work.snapshot.held_kib());
        self.held_kib.set(held);
        self.held_peak_kib.set(held.max(self.held_peak_kib.get()));
        let Some(work) = place.as_mut().filter(|work| !work.is_logged) else { return };
        if work.snapshot.holds_more_than(LOGGED_PER_MILLE) {
            work.is_logged = true;
            let (held_mib, most_mib) = (held / 1_024, work.snapshot.whole_bytes() >> 20);
            let cause =
                if work.held.is_some() { "its disk is slow" } else { "there are many writes" };
            tracing::warn!(
                "the snapshot holds {held_mib} MiB beside the data, as {cause}; at most {most_mib} MiB"
            );
        }
    }

    /// Memory that writers have copied in this turn, in KiB. If a new snapshot has begun in this
    /// turn, its count starts at 0.
    pub(crate) fn copied_in_turn_kib(&self) -> u32 {
        self.copied_kib().saturating_sub(self.copied_before_kib.get())
    }

    fn copied_kib(&self) -> u32 {
        self.work.borrow().as_ref().map_or(0, |work| work.snapshot.copied_kib())
    }

    /// Encodes a portion, or sends the held chunk. Returns the number of keys that were sent.
    pub(crate) fn step(&self, saves: &Saves) -> u64 {
        let keys = self.go_on(saves);
        self.is_here.set(self.work.borrow().is_some());
        if !self.is_here() {
            self.held_kib.set(0);
        }
        keys
    }

    fn go_on(&self, saves: &Saves) -> u64 {
        let mut place = self.work.borrow_mut();
        let Some(work) = place.as_mut() else { return 0 };
        let is_over = saves.is_cancelled() || work.outlet.room() == Room::Gone;
        if is_over {
            *place = None;
            return 0;
        }
        let step = work.held.take().map_or_else(|| work.snapshot.step(), Step::Chunk);
        match step {
            Step::More => 0,
            Step::Chunk(chunk) if work.outlet.room() == Room::Some => {
                let keys = chunk.keys;
                work.outlet.send(chunk);
                keys
            }
            Step::Chunk(chunk) => {
                work.held = Some(chunk);
                0
            }
            Step::Done => {
                if let Some(work) = place.take() {
                    work.outlet.end();
                }
                0
            }
        }
    }

    /// Sets the number of this core's changes that the last snapshot contains.
    pub(crate) fn set_saved_changes(&self, changes: u64) {
        self.saved_changes.set(changes);
    }

    /// The number of this core's changes that no snapshot contains, if it has made `changes`.
    pub(crate) fn unsaved(&self, changes: u64) -> u64 {
        changes.saturating_sub(self.saved_changes.get())
    }

    /// Adds the ticket of the task that waits for the outcome.
    pub(crate) fn await_outcome(&self, ticket: u64) {
        let before = self.ticket.replace(Some(ticket));
        assert!(before.is_none(), "one snapshot at a time");
    }

    /// Takes the ticket of the task that waits for the outcome.
    pub(crate) fn take_ticket(&self) -> Option<u64> {
        self.ticket.take()
    }

    /// Adds a ticket to complete when no snapshot is being made.
    pub(crate) fn await_end(&self, ticket: u64) {
        self.waiting.borrow_mut().push(ticket);
    }

    /// Completes the tickets that wait until no snapshot is being made.
    pub(crate) fn complete_ended(&self, tx: &Tx) {
        self.waiting.take().into_iter().for_each(|ticket| tx.complete(ticket, Box::new(())));
    }

    /// Adds a ticket that waits for the outcome of the final snapshot.
    pub(crate) fn await_last(&self, ticket: u64) {
        self.waiting_for_last.borrow_mut().push(ticket);
    }

    /// Takes the tickets that wait for the outcome of the final snapshot.
    pub(crate) fn take_waiting_for_last(&self) -> Vec<u64> {
        self.waiting_for_last.take()
    }

    /// Schedules a snapshot, to begin when none is being made.
    pub(crate) fn schedule(&self) {
        self.is_scheduled.set(true);
    }

    /// True if a scheduled snapshot can begin.
    pub(crate) fn is_due(&self, saves: &Saves) -> bool {
        self.is_scheduled.get() && !saves.is_under_way()
    }

    /// Like [`Saving::is_due`]; then it is not scheduled any more.
    pub(crate) fn take_scheduled(&self, saves: &Saves) -> bool {
        self.is_due(saves) && self.is_scheduled.replace(false)
    }

    /// True if the final snapshot was made, so that no data may change.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.borrow().is_some()
    }

    /// Keeps these locks until the process ends.
    pub(crate) fn freeze(&self, locked: Option<Locked>) {
        *self.frozen.borrow_mut() = locked;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_persist::snapshot::Style;

    /// The outlet of an aborted snapshot: it takes nothing.
    struct Gone;

    impl Outlet for Gone {
        fn room(&self) -> Room {
            Room::Gone
        }

        fn send(&mut self, _: Chunk) {}

        fn end(self: Box<Self>) {}
    }

    #[test] // The core has slept since the first snapshot was aborted.
    fn a_new_snapshot_replaces_the_part_of_an_aborted_one() {
        let saving = Saving::default();
        for _ in 0..2 {
            saving.start(Snapshot::new(Vec::new(), Style::default()), Box::new(Gone));
        }
    }
}
