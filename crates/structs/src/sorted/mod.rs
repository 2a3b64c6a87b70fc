//! Sorted sets: a small one is one run of bytes, a large one two counted trees.
//!
//! A skip list and a hash table, as in Redis, need a node, a pointer and a string for each member,
//! and are freed one by one. Here entries are packed in chunks, in order. The index by member does
//! not store members: a hash leads to a score, and the score leads to the entry with the member.
//! Numbers and what we rejected: docs/design/0016-sorted-sets.md.
//!
//! ```text
//! Sorted --+-- Pack      one run of bytes, up to 2 KiB: | len | entry | entry | ...
//!          +-- Trees     entries by (score, member)     index by (hash of the member)
//!                          nodes of 8 to 32 children      the same nodes
//!                            chunk: | score, member | ...   chunk: | hash: 4, score: 8 | ...
//! ```
//! | file     | holds                                                                |
//! |----------|----------------------------------------------------------------------|
//! | `item`   | the bytes of one entry, of one score                                 |
//! | `place`  | bounds of ranges; an entry as it is read                             |
//! | `pack`   | small sorted sets as bytes                                           |
//! | `index`  | from a member's hash to its score                                    |
//! | `big`    | both trees                                                           |
//! | `stale`  | index items of removed ranges                                        |
//! | `bulk`   | building very many entries at once                                   |
//! | `bucket` | the entries that `bulk` collects by hash                             |
//! | `straight` | entries that arrive in order                                       |
//! | `run`    | reading in place, both ways                                          |
//! | `reader` | reading a cut in slices, both ways                                   |
//! | `scan`   | cursors                                                              |
//!
//! The chunks are those of lists (`crate::chunk`), and so are the nodes (`crate::tree`), which know the
//! score of each child's first entry: among equal scores, the members decide.
//!
//! Cuts: `clone` counts two references, or copies a pack. Writers copy the chunks that they change and
//! the nodes above them, where a cut shares them: some microseconds. A reader needs the entries only.
//!
//! Invariants (`check_invariants`; those of chunks, nodes and packs are in their files):
//! - S1: entries are in the order of (score, member), and no member is there twice.
//! - S2: a sorted set without entries is a pack without bytes.
//!
//! Not here: reading and printing scores, and permissions. See `families`.

mod big;
mod bucket;
mod bulk;
pub(crate) mod index;
mod item;
mod pack;
mod place;
mod reader;
mod run;
mod scan;
mod stale;
mod straight;
#[cfg(test)]
mod tests;

pub use crate::chunk::End;
pub use bulk::SortedBuilder;
pub use item::INLINE_MAX;
pub use pack::SortedPackRef;
pub use place::{Place, SortedEntry};
pub use reader::SortedReader;
pub use run::{SortedBackward, SortedForward};
pub use scan::Scan;

use crate::owner::Watch;
use big::Big;
use item::New;
use pack::Pack;
use std::fmt;
use std::ops::Range;

/// The size at which a single chunk becomes a pack again: half of a pack's limit.
const PACK_AGAIN_BYTES: usize = pack::PACK_BYTES_MAX / 2;
const PACK_AGAIN_LEN: usize = pack::PACK_LEN_MAX / 2;

/// A sorted set: members, each with a score, in the order of (score, member). Cloning it is a cut.
///
/// Scores are never NaN. -0 and 0 are equal: a set keeps the first one. Every `hash` parameter must
/// be `darter_base::hash::of(member)`. A *rank* is an index from 0, ascending.
#[derive(Clone)]
pub struct Sorted(Root);

/// The form of a sorted set.
#[derive(Clone)]
enum Root {
    Pack(Pack),
    Trees(Box<Big>),
}

const _: () = assert!(size_of::<Sorted>() == 24);

impl Default for Sorted {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Sorted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a sorted set of {} entries", self.len())
    }
}

impl Sorted {
    /// An empty sorted set. Allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(Root::Pack(Pack::new()))
    }

    /// The bytes of a sorted set that is a pack. They are its complete state, and can be stored
    /// anywhere.
    #[must_use]
    pub fn packed(&self) -> Option<&[u8]> {
        if let Root::Pack(pack) = &self.0 { Some(pack.bytes()) } else { None }
    }

    /// The sorted set with these bytes, which are copied.
    #[must_use]
    pub fn of_packed(bytes: &[u8]) -> Self {
        Self(Root::Pack(Pack::copy(bytes)))
    }

    /// A small sorted set of these entries, which are sorted. `None` if they are too many or too
    /// long for a pack, or if two may have the same member; then add them one by one.
    ///
    /// Panics if a score is NaN.
    #[must_use]
    pub fn of_all(entries: &mut [(f64, &[u8])]) -> Option<Self> {
        Some(Self(Root::Pack(Pack::of_all(entries)?)))
    }

    /// The number of entries. Cost: O(1).
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Root::Pack(pack) => pack.view().len(),
            Root::Trees(big) => big.len(),
        }
    }

    /// True when there are no entries.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, including long members; parts shared with cuts count in full. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Root::Pack(pack) => pack.memory_bytes(),
            Root::Trees(big) => big.memory_bytes(),
        }
    }

    /// A cut for a long read. It does not count as a version of the set, and must not become a
    /// value.
    #[must_use]
    pub fn reader(&self) -> Self {
        Self(match &self.0 {
            Root::Pack(pack) => Root::Pack(pack.clone()),
            Root::Trees(big) => Root::Trees(Box::new(big.reader())),
        })
    }

    /// True if only readers still hold the memory of this [`Sorted::reader`]; false while any
    /// version of the set exists. Readers of a pack have copies, which are too small to be
    /// reported.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        match &self.0 {
            Root::Pack(_) => false,
            Root::Trees(big) => big.owner().is_gone(),
        }
    }

    /// A watch over the set. It reports nothing for a pack.
    #[must_use]
    pub fn watch(&self) -> Watch {
        match &self.0 {
            Root::Pack(_) => Watch::default(),
            Root::Trees(big) => Watch::new(big.owner(), big.memory_bytes()),
        }
    }

    /// The score of a member. Cost: O(log n).
    #[inline]
    #[must_use]
    pub fn score(&self, hash: u64, member: &[u8]) -> Option<f64> {
        match &self.0 {
            Root::Pack(pack) => pack.view().rank(member).map(|(_, score)| score),
            Root::Trees(big) => big.score(hash, member),
        }
    }

    /// Prefetches the index items of this hash. If sixteen lookups in large sets are prefetched
    /// together (this for each, then [`Sorted::prefetch_entries`]), they wait for memory only once.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        if let Root::Trees(big) = &self.0 {
            big.prefetch(hash);
        }
    }

    /// Prefetches the entries of members with these hashes; their items must have been prefetched.
    #[inline]
    pub fn prefetch_entries(&self, hashes: &[u64]) {
        if let Root::Trees(big) = &self.0 {
            big.prefetch_entries(hashes);
        }
    }

    /// Prefetches everything that setting these scores for members with these hashes touches.
    #[inline]
    pub fn prefetch_all(&self, wanted: &[(f64, u64)]) {
        if let Root::Trees(big) = &self.0 {
            big.prefetch_all(wanted);
        }
    }

    /// The rank of a member, and its score. Cost: O(log n).
    #[inline]
    #[must_use]
    pub fn rank(&self, hash: u64, member: &[u8]) -> Option<(usize, f64)> {
        match &self.0 {
            Root::Pack(pack) => pack.view().rank(member),
            Root::Trees(big) => big.rank(hash, member),
        }
    }

    /// The number of entries before a place. The entries between two places have the ranks between
    /// both numbers. Cost: O(log n).
    #[must_use]
    pub fn rank_of(&self, place: Place<'_>) -> usize {
        match &self.0 {
            Root::Pack(pack) => pack.view().rank_of(&place),
            Root::Trees(big) => big.rank_of(&place),
        }
    }

    /// Adds a member, or changes its score: `f` gets its current score, if any, and returns the new
    /// one; `None` changes nothing. Returns the previous score.
    ///
    /// ```text
    /// ZADD NX       |old| old.is_none().then_some(score)
    /// ZADD XX GT    |old| old.filter(|old| score > *old).map(|_| score)
    /// ZINCRBY       |old| Some(old.unwrap_or(0.0) + by)          the caller refuses a sum that is NaN
    /// ```
    /// Cost: O(log n), the member is looked up once. Panics when the score is NaN.
    #[inline]
    pub fn update(
        &mut self,
        hash: u64,
        member: &[u8],
        f: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        let pack = match &mut self.0 {
            Root::Trees(big) => return big.update(hash, member, f),
            Root::Pack(pack) => pack,
        };
        let old = pack.view().rank(member);
        let score = old.map(|(_, score)| score);
        let Some(new) = f(score).filter(|new| score != Some(*new)) else { return score };
        assert!(!new.is_nan(), "a score is a number");
        if let Some((rank, _)) = old {
            pack.remove(rank..rank + 1);
        }
        if !pack.insert(&Place::SortedEntry(new, member), &New::of(new, hash, member)) {
            self.unpack().update(hash, member, |_| Some(new));
        }
        score
    }

    /// Adds a member, or changes its score. Returns the previous score. Cost: O(log n).
    ///
    /// Panics if the score is NaN.
    pub fn insert(&mut self, hash: u64, member: &[u8], score: f64) -> Option<f64> {
        self.update(hash, member, |_| Some(score))
    }

    /// Removes a member. Returns its score. Cost: O(log n).
    pub fn remove(&mut self, hash: u64, member: &[u8]) -> Option<f64> {
        let score = match &mut self.0 {
            Root::Trees(big) => big.remove(hash, member)?,
            Root::Pack(pack) => {
                let (rank, score) = pack.view().rank(member)?;
                pack.remove(rank..rank + 1);
                score
            }
        };
        self.shrink();
        Some(score)
    }

    /// Removes the entry with the lowest or the highest rank after calling `f` with it. `None` if
    /// the set is empty. Cost: O(log n).
    pub fn pop<R>(&mut self, end: End, f: impl FnOnce(SortedEntry<'_>) -> R) -> Option<R> {
        let last = self.len().checked_sub(1)?;
        let rank = if end == End::Front { 0 } else { last };
        let result = self.get(rank).map(f);
        self.remove_range(rank..rank + 1);
        result
    }

    /// Removes the entries at these ranks, as far as they exist.
    ///
    /// Cost: O(log n). For more than a few entries, a part of the work is left for later: see
    /// [`Sorted::settle`].
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        let ranks = ranks.start..ranks.end.min(self.len());
        match &mut self.0 {
            _ if ranks.is_empty() => return,
            Root::Pack(pack) => pack.remove(ranks),
            Root::Trees(big) => big.remove_range(ranks),
        }
        self.shrink();
    }

    /// Does a portion of the work that [`Sorted::remove_range`] has left: for at most `most`
    /// entries, or fewer if a cut causes copies. It affects only memory. Returns true while some is
    /// left; then every change also does a little of it.
    pub fn settle(&mut self, most: usize) -> bool {
        match &mut self.0 {
            Root::Pack(_) => false,
            Root::Trees(big) => big.settle(most),
        }
    }

    /// True while [`Sorted::settle`] has work left.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        match &self.0 {
            Root::Pack(_) => false,
            Root::Trees(big) => big.is_unsettled(),
        }
    }

    /// Copies in advance the parts that setting this score for the member (or, without a score,
    /// removing it) would have to copy because a cut shares them. The content stays the same.
    /// Returns true if something was copied, which takes a few microseconds.
    pub fn unshare(&mut self, hash: u64, member: &[u8], score: Option<f64>) -> bool {
        match &mut self.0 {
            Root::Pack(_) => false,
            Root::Trees(big) => big.unshare(hash, member, score),
        }
    }

    /// [`Sorted::unshare`] for removing the entry at this rank. Panics if there is no such entry.
    pub fn unshare_rank(&mut self, rank: usize) -> bool {
        assert!(rank < self.len(), "rank={rank} len={}", self.len());
        match &mut self.0 {
            Root::Pack(_) => false,
            Root::Trees(big) => big.unshare_rank(rank),
        }
    }

    /// Panics when an invariant does not hold. Cost: O(n log n): for tests.
    pub fn check_invariants(&self) {
        match &self.0 {
            Root::Pack(pack) => pack.view().check_invariants(),
            Root::Trees(big) => big.check(),
        }
        let mut before: Option<(f64, Vec<u8>)> = None;
        for entry in self.range(0..self.len()) {
            let (score, member) = (entry.score(), entry.member().to_vec());
            assert!(!score.is_nan(), "S1");
            if let Some((last, name)) = &before {
                assert!(*last < score || *last == score && *name < member, "S1: {member:?}");
            }
            before = Some((score, member));
        }
    }

    /// Turns a pack into trees.
    #[cold]
    fn unpack(&mut self) -> &mut Big {
        if let Root::Pack(pack) = &self.0 {
            self.0 = Root::Trees(Box::new(Big::of_items(pack.view().iter())));
        }
        let Root::Trees(big) = &mut self.0 else { unreachable!("just made") };
        big
    }

    /// Turns a chunk with few entries into a pack.
    #[inline]
    fn shrink(&mut self) {
        let Root::Trees(big) = &self.0 else { return };
        if big.len() == 0 {
            *self = Self::new();
            return;
        }
        let Some(chunk) = big.only() else { return };
        let (items, len) = (chunk.items(), chunk.len());
        if items.len() <= PACK_AGAIN_BYTES && len <= PACK_AGAIN_LEN && chunk.longs() == 0 {
            self.0 = Root::Pack(Pack::of_items(items, len));
        }
    }
}
