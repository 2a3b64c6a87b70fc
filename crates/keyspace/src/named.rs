//! Operations of table-like values on entries by their names.

use crate::db::is_dead;
use crate::object::{Ahead, Named};
use darter_base::{Preempt, hash};
use darter_structs::table::{OutOfLine, Table};

impl<X: OutOfLine> Ahead for Table<X> {
    fn entries(&self) -> usize {
        self.len()
    }

    fn prefetch(&self, hash: u64) {
        self.prefetch(hash);
    }

    fn prefetch_entries(&self, hashes: &[u64]) {
        hashes.iter().for_each(|hash| self.prefetch_entry(*hash));
    }
}

impl<X: OutOfLine> Named for Table<X> {
    fn deadline_of(&self, name: &[u8], now: u64) -> Option<Option<u64>> {
        let deadline = self.get(hash::of(name), name)?.deadline();
        (!is_dead(deadline, now)).then_some(deadline)
    }

    fn unshare(&mut self, names: &[&[u8]], touch: Touch, preempt: &dyn Preempt) -> Option<usize> {
        unshare(self, names, touch, preempt)
    }
}

/// Names that are looked up together.
const BATCH: usize = 16;

/// Which of the named entries a change will affect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// All of them.
    All,
    /// The existing entries: the command removes them, or changes their deadlines.
    Present,
    /// The absent entries: the command adds them. (An expired one counts as existing: the change
    /// itself copies its place.)
    Absent,
}

impl Touch {
    fn wants(self, is_present: bool) -> bool {
        match self {
            Self::All => true,
            Self::Present => is_present,
            Self::Absent => !is_present,
        }
    }
}

/// Copies the places of the affected `names` that a cut shares. Returns the index of the first
/// unprocessed name if the slice ended.
fn unshare<X: OutOfLine>(
    table: &mut Table<X>,
    names: &[&[u8]],
    touch: Touch,
    preempt: &dyn Preempt,
) -> Option<usize> {
    for (batch, names) in names.chunks(BATCH).enumerate() {
        let mut hashes = [0; BATCH];
        for (hash, name) in hashes.iter_mut().zip(names) {
            *hash = hash::of(name);
        }
        let hashes = &hashes[..names.len()];
        hashes.iter().for_each(|hash| table.prefetch(*hash));
        hashes.iter().for_each(|hash| table.prefetch_entry(*hash));
        for (at, (hash, name)) in hashes.iter().zip(names).enumerate() {
            let wanted = touch == Touch::All || touch.wants(table.contains(*hash, name));
            let len = table.len();
            let is_copied = wanted && table.unshare(*hash);
            debug_assert_eq!(table.len(), len, "a copy has all entries");
            if is_copied && preempt.must_yield() {
                return Some(batch * BATCH + at);
            }
        }
    }
    None
}
