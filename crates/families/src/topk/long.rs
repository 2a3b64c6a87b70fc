//! Items of some megabytes: held after their entry is removed, and written piece by piece.

use darter_base::limits::CHUNK_BYTES;
use darter_keyspace::is_long;
use darter_structs::sorted::SortedEntry;
use darter_structs::table::HeldKey;

/// The bytes of a piece, which is hashed at once.
const PIECE_BYTES: usize = CHUNK_BYTES / 4;

/// A long item, and how much of it has been written.
pub struct LongItem {
    held: HeldKey,
    next: usize,
}

impl LongItem {
    /// The name of an entry, unless it is short enough to be copied at once.
    pub(super) fn of(entry: &SortedEntry<'_>) -> Option<Self> {
        let held = is_long(entry.member().len()).then(|| entry.hold_member()).flatten()?;
        Some(Self { held, next: 0 })
    }

    /// The bytes of the whole item.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.held.bytes()
    }

    pub(super) fn is_done(&self) -> bool {
        self.next == self.bytes().len()
    }

    /// The next piece. Empty after the last.
    pub(super) fn piece(&mut self) -> &[u8] {
        let from = self.next;
        self.next = self.bytes().len().min(from + PIECE_BYTES);
        &self.held.bytes()[from..self.next]
    }
}
