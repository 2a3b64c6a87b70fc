//! Reading a whole table in slices, and releasing the part that has been read.
//!
//! A cut keeps every segment shared, so writers would copy each segment they change for as long as
//! the cut lives. [`Reader`] takes the cut apart instead: it holds leaves, and the segments of the
//! current leaf, and drops each once it has read it. After that, a writer owns the segment alone
//! again and copies nothing.
//!
//! On request, a reader first reads the segments that writers have copied
//! ([`Reader::copied_first`]): only the reader holds these, and reading them frees their memory.
//!
//! This stream also frees tables ([`Ruin`]) and counts live entries ([`LiveCount`]).

use super::directory::{Leaf, get_mut};
use super::entry::Entry;
use super::expire::{COUNTS_PER_LOOK, count_cost};
use super::segment::{PagePos, Seg};
use super::value::OutOfLine;
use super::{Big, Root, Ruined, Table};
use crate::owner::Owner;
use darter_base::UnixMillis;
use darter_base::lazyfree::{self, Dismantle};
use std::ops::Range;
use std::sync::Arc;

/// Leaves and then segments, each returned once. Both are stacks; the next one is on top.
struct SegmentStack<X: OutOfLine> {
    leaves: Vec<Arc<Leaf<X>>>,
    /// Segments, each with its `earliest` deadline.
    segments: Vec<(Seg<X>, UnixMillis)>,
    /// The segments, and the leaves, that [`SegmentStack::next_copied`] has not yet visited in this
    /// round.
    unseen: Range<usize>,
    unseen_leaves: usize,
    /// The number of completed rounds.
    rounds: u32,
    /// Memory of the unread rest, shared or not.
    bytes: usize,
    /// The owner of the table that the rest belongs to.
    owner: Owner,
}

/// The unread rest of a stream, which is freed in slices when it is dropped.
struct Stream<X: OutOfLine>(SegmentStack<X>);

/// Segments and leaves visited in one search for a copied segment.
const LOOKS: usize = 128;

/// Smaller leaves are freed directly when dropped.
const DEFERRED_SLOTS_MIN: usize = 8;

impl<X: OutOfLine> Drop for Stream<X> {
    fn drop(&mut self) {
        let rest = &mut self.0;
        let is_large = rest.leaves.len() + rest.segments.len() > 1
            || rest.leaves.iter().any(|leaf| leaf.fan.len() >= DEFERRED_SLOTS_MIN);
        if is_large {
            let rest = SegmentStack {
                leaves: std::mem::take(&mut rest.leaves),
                segments: std::mem::take(&mut rest.segments),
                ..SegmentStack::new(rest.bytes, rest.owner.retire())
            };
            lazyfree::defer(Box::new(rest));
        }
    }
}

impl<X: OutOfLine> Dismantle for SegmentStack<X> {
    fn dismantle(&mut self) -> bool {
        drop(self.next());
        !self.is_done()
    }

    /// An upper bound: shared parts are not freed.
    fn bytes(&self) -> usize {
        if self.owner.is_shared() { 0 } else { self.bytes }
    }
}

impl<X: OutOfLine> Drop for Big<X> {
    /// The last reference to a large table is dropped: its segments are freed in slices.
    fn drop(&mut self) {
        drop(Stream::take(self));
    }
}

impl<X: OutOfLine> Stream<X> {
    fn empty() -> Self {
        Self(SegmentStack::new(0, Owner::default()))
    }

    /// Takes over the table of a cut, or shares it if it has other references: a second reference
    /// would keep alive everything that the stream releases.
    ///
    /// Cost: one count for each leaf, of which ten million entries have 128.
    fn of(mut big: Arc<Big<X>>) -> Self {
        if let Some(big) = get_mut(&mut big) {
            return Self::take(big);
        }
        let top = &big.directory.top;
        let mut leaves: Vec<_> = top.firsts().map(|at| Arc::clone(top.get(at))).collect();
        leaves.reverse();
        Self(SegmentStack {
            leaves,
            ..SegmentStack::new(big.entry_bytes(), big.directory.owner.cut_reader())
        })
    }

    /// Takes the leaves out of a table that is being consumed.
    fn take(big: &mut Big<X>) -> Self {
        // From the last to the first, so that the first is on top.
        let leaves = std::iter::from_fn(|| big.directory.top.pop_run()).collect();
        Self(SegmentStack {
            leaves,
            ..SegmentStack::new(big.entry_bytes(), big.directory.owner.retire())
        })
    }

    /// True if only readers hold the rest.
    fn is_pinned(&self) -> bool {
        self.0.owner.is_gone()
    }

    fn next(&mut self) -> Option<(Seg<X>, UnixMillis)> {
        self.0.next()
    }

    fn is_done(&self) -> bool {
        self.0.is_done()
    }
}

impl<X: OutOfLine> SegmentStack<X> {
    fn new(bytes: usize, owner: Owner) -> Self {
        let (leaves, segments) = (Vec::new(), Vec::new());
        Self { leaves, segments, unseen: 0..0, unseen_leaves: 0, rounds: 0, bytes, owner }
    }

    /// The next segment. Cost: at every hundredth segment, a count for each segment of a leaf.
    fn next(&mut self) -> Option<(Seg<X>, UnixMillis)> {
        while self.segments.is_empty() {
            let leaf = self.leaves.pop()?;
            self.open(&leaf);
        }
        let next = self.segments.pop();
        let bytes = next.as_ref().map_or(self.bytes, |(segment, _)| segment.bytes());
        // Long keys are counted with the last segment.
        self.bytes = self.bytes.saturating_sub(bytes);
        next
    }

    /// Adds the segments of a leaf.
    fn open(&mut self, leaf: &Leaf<X>) {
        let (fan, before) = (&leaf.fan, self.segments.len());
        self.segments.extend(fan.firsts().map(|at| (fan.get(at).clone(), fan.earliest(at))));
        self.segments[before..].reverse();
        self.unseen = before..self.segments.len();
    }

    /// A segment that only this stream holds, because writers have replaced it; `None` if none was
    /// found in [`LOOKS`] visits. Each round visits all segments and takes those found.
    fn next_copied(&mut self) -> Option<(Seg<X>, UnixMillis)> {
        // Some have been read in order since.
        self.unseen.end = self.unseen.end.min(self.segments.len());
        self.unseen_leaves = self.unseen_leaves.min(self.leaves.len());
        for _ in 0..LOOKS {
            if let Some(at) = self.unseen.next_back() {
                if self.segments[at].0.is_unique() {
                    let next = self.segments.swap_remove(at);
                    self.bytes = self.bytes.saturating_sub(next.0.bytes());
                    return Some(next);
                }
            } else if let Some(at) = self.unseen_leaves.checked_sub(1) {
                self.unseen_leaves = at;
                // If a leaf is shared with writers, all its segments are.
                if Arc::strong_count(&self.leaves[at]) == 1 {
                    let leaf = self.leaves.swap_remove(at);
                    self.open(&leaf);
                }
            } else {
                self.rounds = self.rounds.wrapping_add(1);
                (self.unseen, self.unseen_leaves) = (0..self.segments.len(), self.leaves.len());
                return None;
            }
        }
        None
    }

    fn is_done(&self) -> bool {
        self.leaves.is_empty() && self.segments.is_empty()
    }
}

/// Reads a cut in slices, in memory order, and releases the entries that it has read.
pub struct Reader<X: OutOfLine> {
    stream: Stream<X>,
    current: Option<(Seg<X>, PagePos)>,
    /// A small cut, which is read through its table.
    small: Option<Table<X>>,
    small_at: usize,
    left: usize,
    /// The number of entries of the cut, and their bytes.
    len: usize,
    bytes: usize,
    copied: Option<Copied>,
    /// The number of segments read or started.
    segments: usize,
}

/// Statistics about segments that writers have copied since the cut.
#[derive(Clone, Copy, Default)]
struct Copied {
    /// KiB of copied segments that were read, and thus freed.
    released_kib: u32,
    /// KiB copied by writers when the current round started.
    round_kib: u32,
    rounds: u32,
}

impl<X: OutOfLine> Reader<X> {
    /// Takes over a cut.
    #[must_use]
    pub fn new(cut: Table<X>) -> Self {
        let (left, bytes) = (cut.len(), cut.memory_bytes());
        let (stream, small) = match cut.0 {
            Root::Big(big) => (Stream::of(big), None),
            Root::Pack(_) | Root::Small(_) => (Stream::empty(), Some(cut)),
            Root::Empty | Root::Ruin(_) => (Stream::empty(), None),
        };
        Self {
            stream,
            current: None,
            small,
            small_at: 0,
            left,
            len: left,
            bytes,
            copied: None,
            segments: 0,
        }
    }

    /// Reads the segments copied by writers first, if there are many. Entries are then in no
    /// particular order, but each is still read once.
    #[must_use]
    pub fn copied_first(self) -> Self {
        Self { copied: Some(Copied::default()), ..self }
    }

    /// Declares that the cut belongs to this thread's last snapshot: segments copied since that
    /// snapshot started count as held.
    #[must_use]
    pub fn since_snapshot(mut self) -> Self {
        self.stream.0.owner.count_since_snapshot();
        self
    }

    /// KiB of its segments that writers have copied since the cut.
    #[must_use]
    pub fn copied_kib(&self) -> u32 {
        self.stream.0.owner.copied_kib()
    }

    /// An upper bound of the KiB of segments that only this reader holds, because writers have
    /// copied them (other cuts may hold some of them). For a reader in the order of
    /// [`Reader::copied_first`].
    #[must_use]
    pub fn held_kib(&self) -> u32 {
        let Some(copied) = &self.copied else { return 0 };
        self.stream.0.owner.copied_kib().saturating_sub(copied.released_kib)
    }

    /// The number of completed searches for copied segments: everything copied before such a search
    /// started has been read.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.stream.0.rounds
    }

    /// The number of segments started; all but the last have been released.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments
    }

    fn next_segment(&mut self) -> Option<(Seg<X>, PagePos)> {
        self.segments += 1;
        let mut next = None;
        if self.held_kib() > 0
            && let Some(copied) = &mut self.copied
        {
            let rest = &mut self.stream.0;
            next = rest.next_copied();
            if copied.rounds != rest.rounds {
                // Segments copied before the round have been read during it.
                copied.released_kib = copied.released_kib.max(copied.round_kib);
                (copied.round_kib, copied.rounds) = (rest.owner.copied_kib(), rest.rounds);
            }
        }
        next.or_else(|| self.stream.next()).map(|(segment, _)| (segment, PagePos::default()))
    }

    /// Releases the current segment, which has been read.
    fn release(&mut self) {
        if let (Some((segment, _)), Some(copied)) = (self.current.take(), &mut self.copied)
            && segment.is_unique()
        {
            copied.released_kib += u32::try_from(segment.bytes().div_ceil(1024)).unwrap_or(0);
        }
    }

    /// Takes over the cut of a value of `bytes`, including what its entries own.
    #[must_use]
    pub fn of_value(cut: Table<X>, bytes: usize) -> Self {
        Self { bytes, ..Self::new(cut) }
    }

    /// Bytes still to be read that only readers hold, estimated from the number of entries. 0 while
    /// the table exists, however it has changed: see [`Table::is_pinned`].
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        let is_gone = match &self.small {
            Some(small) => small.is_pinned(),
            None => self.stream.is_pinned(),
        };
        if is_gone { self.bytes.saturating_mul(self.left) / self.len.max(1) } else { 0 }
    }

    /// The number of entries still to be read.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Calls `f` for at most `max_entries` of the next entries. Returns true while some are left.
    ///
    /// Cost: O(entries), besides `f`.
    pub fn next_slice(&mut self, max_entries: usize, f: &mut dyn FnMut(Entry<'_, X>)) -> bool {
        let mut budget = max_entries;
        if self.small.is_some() {
            self.small_slice(&mut budget, f);
        }
        while budget > 0 && self.left > 0 {
            let Some((segment, at)) = &mut self.current else {
                self.current = self.next_segment();
                assert!(self.current.is_some(), "the segments hold `len` entries");
                continue;
            };
            while budget > 0 {
                let Some(raw) = segment.next_entry(at) else {
                    self.release();
                    break;
                };
                assert!(self.left > 0, "the segments hold more than {} entries", self.len);
                // SAFETY: the segment is held by `self` during the call.
                f(unsafe { Entry::new(raw) });
                (budget, self.left) = (budget - 1, self.left - 1);
            }
        }
        if self.left == 0 {
            (self.current, self.small) = (None, None);
        }
        debug_assert!(self.left <= self.len, "{} of {}", self.left, self.len);
        self.left > 0
    }

    fn small_slice(&mut self, budget: &mut usize, f: &mut dyn FnMut(Entry<'_, X>)) {
        if let Some(Table(Root::Pack(pack))) = &self.small {
            while *budget > 0
                && let Some(item) = pack.view().next(&mut self.small_at)
            {
                f(Entry::packed(item));
                (*budget, self.left) = (*budget - 1, self.left - 1);
            }
        }
        let Some(Table(Root::Small(small))) = &self.small else { return };
        while *budget > 0
            && let Some((_, raw)) = small.next(&mut self.small_at)
        {
            // SAFETY: the table is held by `self` during the call.
            f(unsafe { Entry::new(raw) });
            (*budget, self.left) = (*budget - 1, self.left - 1);
        }
    }
}

/// Counts the entries of a cut that are live at a given time, in slices.
pub struct LiveCount<X: OutOfLine> {
    stream: Stream<X>,
    now: UnixMillis,
    count: usize,
}

impl<X: OutOfLine> LiveCount<X> {
    /// Takes over a cut.
    #[must_use]
    pub fn new(cut: Table<X>, now: UnixMillis) -> Self {
        match cut.0 {
            Root::Big(big) => Self { stream: Stream::of(big), now, count: 0 },
            _ => {
                let count = cut.live_len(now, 0).expect("a small table is counted at once");
                Self { stream: Stream::empty(), now, count }
            }
        }
    }

    /// Continues counting, for the time of searching `max_segments` segments. Returns true while
    /// some are left.
    pub fn next_slice(&mut self, max_segments: usize) -> bool {
        let mut budget = max_segments * COUNTS_PER_LOOK;
        while budget > 0 {
            let Some((segment, earliest)) = self.stream.next() else { return false };
            let (mut dead, mut cost) = (0, 1);
            if earliest <= self.now {
                (dead, cost) = (segment.dead_len(self.now), count_cost(&segment, self.now));
            }
            assert!(dead <= segment.len(), "{dead} of {} entries are dead", segment.len());
            self.count += segment.len() - dead;
            if segment.is_unique() {
                // The segment is freed here if a writer has copied it since.
                cost += COUNTS_PER_LOOK * 2;
            }
            budget = budget.saturating_sub(cost);
        }
        !self.stream.is_done()
    }

    /// The number of live entries counted so far; complete once [`LiveCount::next_slice`] has
    /// returned false.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }
}

/// The rest of a table that is being freed.
pub(super) struct Ruin<X: OutOfLine> {
    stream: Stream<X>,
}

impl<X: OutOfLine> Ruin<X> {
    pub(super) fn bytes(&self) -> usize {
        self.stream.0.bytes
    }
}

impl<X: OutOfLine> Table<X> {
    /// Frees up to `max_segments` segments, and drops their values. Returns true while some are
    /// left. To others, the table is empty at once.
    pub fn dismantle(&mut self, max_segments: usize) -> bool {
        if matches!(self.0, Root::Big(_))
            && let Root::Big(big) = std::mem::replace(&mut self.0, Root::Empty)
        {
            let ruin = Ruin { stream: Stream::of(big) };
            self.0 = Root::Ruin(Ruined(Some(Box::new(ruin))));
        }
        if let Root::Ruin(Ruined(Some(ruin))) = &mut self.0 {
            for _ in 0..max_segments {
                if ruin.stream.next().is_none() {
                    break;
                }
            }
            if !ruin.stream.is_done() {
                return true;
            }
        }
        self.0 = Root::Empty;
        false
    }
}

#[cfg(test)]
mod tests;
