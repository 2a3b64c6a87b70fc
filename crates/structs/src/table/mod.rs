//! The hash table used for the keyspace, for hashes and for sets. Segment-packed extendible
//! hashing.
//!
//! A chained dict takes 60 to 90 bytes of pointers, headers and slack for each entry, doubles all
//! at once, and is freed entry by entry: ten million fields take 1.1 GB of memory, and seconds to
//! delete. Here entries are packed in pages of 2 KiB, about 1 150 entries in a segment of 37 KB,
//! and found through one cache line of fingerprints. The segment is the unit of everything: the
//! table grows by splitting one, a copy counts a reference to it (a *cut*), and it is freed as
//! twenty pages. The idea is that of Dash (Lu et al., arXiv 2003.07302), with the entries moved
//! inside. Numbers and what we rejected: docs/design/0001-segment-table.md.
//!
//! ```text
//! Table --+-- Empty                                    nothing allocated
//!         +-- Pack    one run of bytes, up to 4 KiB    plain names and values only
//!         +-- Small   one block of up to 96 entries    32 bytes to 2 KiB, searched linearly
//!         +-- Big     directory: two levels, by the first bits of the hash
//!                       +-> segment: index block (groups of 21 fingerprints and offsets)
//!                                      +-> pages of entries
//!
//! hash    | 26 bits: directory, from the top | 21 bits: unused | 16: home group | low 8: fingerprint
//! ```
//! | file        | holds                                                        |
//! |-------------|--------------------------------------------------------------|
//! | `text`      | packing of integers and UUIDs, varints                       |
//! | `value`     | the values of entries, for callers                           |
//! | `entry`     | the bytes of one entry; `long`: keys too long for a page     |
//! | `pack`      | small collections as bytes; `packed`: tables that are packs   |
//! | `small`     | the small form of tables that cannot be packs                |
//! | `group`     | one cache line of the index, SIMD                            |
//! | `segment`   | index and pages, insertion and removal inside of a segment   |
//! | `directory` | the two levels from hash to segment                          |
//! | `rebuild`   | growing, splitting, merging, small to big and back           |
//! | `edit`      | changing an entry                                            |
//! | `bulk`      | building a table of very many entries together               |
//! | `scan`      | cursors, random entries                                      |
//! | `remains`   | values of freed blocks, until they are freed, too            |
//! | `stream`    | reading, counting and freeing a cut segment by segment       |
//! | `expire`    | deadlines                                                    |
//!
//! Cuts: `clone` counts one reference. Writers copy the shared parts of their path (top, leaf,
//! segment: most for the first write) before they change anything. The reader of a cut releases
//! each segment as soon as it has read it ([`Reader`]). After that, writers copy nothing there.
//!
//! Invariants (`check_invariants`; those of segments and directory are in their files):
//! - T1: an entry is in the segment that the first bits of its key's hash lead to.
//! - T2: `len` and the counts of bytes are the sums over all segments.
//! - T3: a table without entries is `Empty`.
//!
//! Not here: the meaning of a value, the time of reaping, permissions. See `keyspace`.

mod bulk;
mod check;
mod directory;
mod edit;
mod entry;
mod expire;
mod group;
mod long;
pub(crate) mod pack;
mod packed;
mod rebuild;
mod remains;
mod scan;
mod segment;
mod small;
mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod value;

pub use bulk::{Builder, Twice};
pub use check::{Checker, Fill, Filling};
pub use edit::EntryMut;
pub use entry::{Entry, INLINE_MAX, PACKED_MAX, STAMP_END};
pub use expire::Reaped;
pub use long::HeldKey;
pub use pack::Item;
pub use packed::PackRef;
pub use scan::CURSOR_BITS;
pub use stream::{LiveCount, Reader};
pub use text::{Scratch, Text};
pub use value::{
    AnyItem, Never, New, Old, OutOfLine, PackedValue, Packing, Target, Unpacked, ValueRef,
};

use crate::owner::Watch;
use darter_base::UnixMillis;
pub(crate) use directory::get_mut;
use directory::{Directory, NEVER};
use entry::{Needle, Raw};
use pack::Pack;
pub(crate) use segment::prefetch;
use small::Small;
use std::fmt;
use std::sync::Arc;
use stream::Ruin;

/// A hash table from byte strings to small values and out-of-line ones. Cloning it is a cut.
///
/// Every method that takes a `hash` wants `darter_base::hash::of(key)`: splits compute it again.
pub struct Table<X: OutOfLine>(Root<X>);

/// The form of a table.
#[derive(Clone)]
enum Root<X: OutOfLine> {
    Empty,
    Pack(Pack),
    Small(Small<X>),
    Big(Arc<Big<X>>),
    /// A table being freed by [`Table::dismantle`]; empty to everyone else.
    Ruin(Ruined<X>),
}

/// The rest of a table being freed. It belongs to one table: a clone is empty.
struct Ruined<X: OutOfLine>(Option<Box<Ruin<X>>>);

impl<X: OutOfLine> Clone for Ruined<X> {
    fn clone(&self) -> Self {
        Self(None)
    }
}

const _: () = assert!(size_of::<Table<Never>>() == 24);

/// A table of segments.
#[derive(Clone)]
struct Big<X: OutOfLine> {
    directory: Directory<X>,
    len: usize,
    /// Memory of all segments.
    segment_bytes: usize,
    /// The highest value of `segment_bytes` since the last compaction.
    segment_bytes_most: usize,
    /// Memory of long keys.
    outside_bytes: usize,
    /// A lower bound of the earliest deadline.
    earliest: UnixMillis,
    /// The largest class that any segment ever had.
    class_max: u8,
    /// Additions until a segment over its target size, but not full, may be split.
    pause: u8,
    /// Removals until two segments that both have entries may be merged.
    rest: u8,
    /// Changes until gaps may be reclaimed again, after a segment was repacked.
    tidied: u8,
}

impl<X: OutOfLine> Clone for Table<X> {
    /// A cut: O(1); a pack is copied.
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<X: OutOfLine> Default for Table<X> {
    fn default() -> Self {
        Self::new()
    }
}

impl<X: OutOfLine> fmt::Debug for Table<X> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a table of {} entries", self.len())
    }
}

impl<X: OutOfLine> Table<X> {
    /// An empty table. Allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(Root::Empty)
    }

    /// A cut for a long-lived reader. It does not count as an owner of the table, and must not
    /// become a value.
    ///
    /// Cost: an allocation, and a count for each leaf: 128 for ten million entries.
    #[must_use]
    pub fn reader(&self) -> Self {
        match &self.0 {
            Root::Big(big) => {
                let mut cut = Big::clone(big);
                cut.directory.owner = big.directory.owner.reader();
                Self(Root::Big(Arc::new(cut)))
            }
            other => Self(other.clone()),
        }
    }

    /// KiB copied by writers since this thread's last snapshot started, because others held the
    /// memory.
    #[must_use]
    pub fn copied_since_snapshot_kib(&self) -> u32 {
        match &self.0 {
            Root::Big(big) => big.directory.owner.copied_since_snapshot_kib(),
            Root::Empty | Root::Pack(_) | Root::Small(_) | Root::Ruin(_) => 0,
        }
    }

    /// True if a [`Table::reader`] holds memory that only readers still hold; never while the table
    /// exists, however it has changed. A small table is held by its last reader only. Each reader
    /// of a pack has a copy, which is too small to be counted.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        match &self.0 {
            Root::Empty | Root::Pack(_) | Root::Ruin(_) => false,
            Root::Small(small) => small.is_unique(),
            Root::Big(big) => big.directory.owner.is_gone(),
        }
    }

    /// A watch over the table. A small one is not worth watching: its watch reports nothing.
    #[must_use]
    pub fn watch(&self) -> Watch {
        match &self.0 {
            Root::Big(big) => Watch::new(&big.directory.owner, self.memory_bytes()),
            Root::Empty | Root::Pack(_) | Root::Small(_) | Root::Ruin(_) => Watch::default(),
        }
    }

    /// The number of entries, including expired ones that have not been removed.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Root::Empty | Root::Ruin(_) => 0,
            Root::Pack(pack) => pack.view().len(),
            Root::Small(small) => small.len(),
            Root::Big(big) => big.len,
        }
    }

    /// True when there are no entries.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory: index blocks, pages, directory, long keys; shared ones count in full. The
    /// memory of out-of-line values is not included. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Root::Empty => 0,
            Root::Pack(pack) => pack.memory_bytes(),
            Root::Small(small) => small.bytes() + small.outside_bytes(),
            Root::Big(big) => big.memory_bytes(),
            Root::Ruin(ruin) => ruin.0.as_ref().map_or(0, |ruin| ruin.bytes()),
        }
    }

    /// Bytes by which the segments have shrunk since [`Table::compact`] last visited all of them.
    /// Cost: O(1).
    #[must_use]
    pub fn shrunk_bytes(&self) -> usize {
        match &self.0 {
            Root::Big(big) => big.segment_bytes_most.saturating_sub(big.segment_bytes),
            Root::Empty | Root::Pack(_) | Root::Small(_) | Root::Ruin(_) => 0,
        }
    }

    /// The entry of `key`.
    ///
    /// Cost: three cache misses in a large table (index, page pointer, page), the first two in
    /// parallel; see [`Table::prefetch`].
    #[inline]
    #[must_use]
    pub fn get(&self, hash: u64, key: &[u8]) -> Option<Entry<'_, X>> {
        if let Root::Pack(pack) = &self.0 {
            return pack.find(hash, key);
        }
        let raw = self.find(hash, &Needle::of(hash, key))?;
        // SAFETY: the entry is in this table, which is borrowed as long as the result.
        Some(unsafe { Entry::new(raw) })
    }

    /// True when `key` has an entry.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: u64, key: &[u8]) -> bool {
        self.get(hash, key).is_some()
    }

    #[inline(always)] // Passing a needle costs as much as a comparison.
    fn find(&self, hash: u64, needle: &Needle<'_>) -> Option<Raw<X>> {
        match &self.0 {
            Root::Empty | Root::Pack(_) | Root::Ruin(_) => None,
            Root::Small(small) => small.find(needle).map(|offset| small.entry(offset)),
            Root::Big(big) => big.directory.segment(hash).find(hash, needle).map(|(_, raw)| raw),
        }
    }

    /// Prefetches the index line of a key; for batches, a few keys in advance.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        match &self.0 {
            Root::Big(big) => big.directory.segment(hash).prefetch(hash),
            Root::Pack(pack) => pack.view().prefetch(),
            _ => {}
        }
    }

    /// Prefetches the entry of a key whose index line has been prefetched.
    #[inline]
    pub fn prefetch_entry(&self, hash: u64) {
        match &self.0 {
            Root::Big(big) => big.directory.segment(hash).prefetch_entry(hash),
            Root::Pack(pack) => pack.view().prefetch_entry(hash),
            _ => {}
        }
    }
}

impl<X: OutOfLine> Big<X> {
    fn memory_bytes(&self) -> usize {
        let head = size_of::<Self>() + 4 * size_of::<usize>(); // With two pairs of counts.
        head + self.directory.bytes() + self.segment_bytes + self.outside_bytes
    }

    /// Memory of the segments, and of long keys.
    fn entry_bytes(&self) -> usize {
        self.segment_bytes + self.outside_bytes
    }

    fn earliest(&self) -> Option<UnixMillis> {
        (self.earliest != NEVER).then_some(self.earliest)
    }
}
