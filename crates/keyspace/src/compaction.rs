//! When a table of keys is compacted by itself.
//!
//! The places that a shrinking table frees are scattered over the allocator's blocks, hardly one of
//! which becomes empty: half of the removed memory stays resident. Writing all places again brings
//! them together ([`Table::compact`]). So it is done when a good part has gone, and the table has
//! stopped shrinking: one from which half of the keys are removed at a stretch is compacted once,
//! after the last of them. Both are seen from counts that the table keeps anyway, so a database
//! that does not shrink costs a comparison, and a core sleeps until the moment comes.
//!
//! Not here: whose turn it is, and for how long. See the engine's `turn`.

use crate::object::Object;
use darter_structs::table::Table;
use std::cell::Cell;

/// Fewer bytes than this are not worth it.
const SHRUNK_MIN: usize = 256 * 1024;
/// Smaller parts of the table do not matter either.
const SHRUNK_PART: usize = 8;
/// How long a table is to stay as it is before it is compacted.
const QUIET_MS: u64 = 1_000;
/// A table that loses a smaller part than this has stayed as it is.
const QUIET_PART: usize = 256;
/// Entries that move early leave holes that later ones do not fill.
const ROUNDS: u8 = 2;

/// See the module.
#[derive(Default)]
pub(crate) struct Compaction {
    /// Since when a table that has shrunk has stayed as it is, and its bytes then.
    quiet: Cell<Option<(u64, usize)>>,
    /// The round, and the place where it continues, while it runs.
    at: Option<(u8, u64)>,
}

impl Compaction {
    /// The moment from which on there is something to do, in Unix milliseconds, as of `now`. Cost:
    /// O(1).
    pub(crate) fn next(&self, keys: &Table<Object>, now: u64) -> Option<u64> {
        if self.at.is_some() && !keys.is_empty() {
            return Some(0);
        }
        let bytes = keys.memory_bytes();
        if keys.shrunk_bytes() < SHRUNK_MIN.max(bytes / SHRUNK_PART) {
            self.quiet.set(None);
            return None;
        }
        let is_quiet = |(since, before): &(u64, usize)| {
            *since <= now && bytes >= before - before / QUIET_PART // The clock may be set back.
        };
        let quiet = self.quiet.get().filter(is_quiet).unwrap_or((now, bytes));
        self.quiet.set(Some(quiet));
        Some(quiet.0 + QUIET_MS)
    }

    /// Compacts one place. Cost: a portion.
    pub(crate) fn step(&mut self, keys: &mut Table<Object>) {
        let (round, place) = self.at.unwrap_or((1, 0));
        self.at = match keys.compact(place) {
            Some(next) => Some((round, next)),
            None => (round < ROUNDS).then_some((round + 1, 0)),
        };
        if self.at.is_none() {
            self.quiet.set(None); // One that a cut holds as a whole has its turn later.
        }
    }
}
