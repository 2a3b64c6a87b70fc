//! Deadlines: finding expired entries without sampling.
//!
//! Every segment, leaf and table stores a lower bound of the deadlines below it (removing an entry
//! does not raise the bound). Reaping, the removal of expired entries, follows the bounds that have
//! passed. So a table in which nothing expires costs one comparison.
//!
//! If expired entries are scattered, as under constant SETs with a TTL, searching a segment for
//! each would be most of the work. So a segment lists its next entries to expire
//! (`segment/next.rs`). They are removed and counted without a search; one search is needed for
//! every fifteen. Segments whose bounds have passed are reaped side by side, so that their cache
//! misses overlap. For figures, see docs/design/0005-next-deaths.md.
//!
//! Not here: when to reap, and notifications. See `keyspace`.

#[cfg(test)]
mod tests;

use super::directory::Path;
use super::edit::{big_mut, unshare};
use super::entry::{Buf, Raw};
use super::segment::Seg;
use super::small::Small;
use super::text::Text;
use super::value::{Old, OutOfLine};
use super::{Big, Root, Table};
use darter_base::UnixMillis;

/// Deadlines that can be read in the time of one removal.
const LOOKS_PER_REMOVAL: usize = 8;

/// Removals that cost as much as copying a segment and its leaf for a cut, merging it, or repacking
/// it. With long values and new memory those take long, so a portion ends after the first.
const REMOVALS_PER_COPY: usize = 64;

/// Segments with listed expired entries that can be counted in the time of one search.
pub(super) const COUNTS_PER_LOOK: usize = 8;

/// Segments reaped side by side.
const BATCH: usize = 32;

/// The outcome of [`Table::reap`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// The number of removed entries.
    pub removed: usize,
    /// True if more expired entries may be left: call again.
    pub more: bool,
}

/// Receives each expired entry: its key, and its last state.
type Tell<'a, X> = dyn FnMut(Text<'_>, Old<X>) + 'a;

/// The cost of counting the expired entries of a segment; a search costs [`COUNTS_PER_LOOK`].
pub(super) fn count_cost<X: OutOfLine>(segment: &Seg<X>, now: UnixMillis) -> usize {
    if segment.needs_look(now) { COUNTS_PER_LOOK } else { 1 }
}

fn is_dead<X: OutOfLine>(raw: Raw<X>, now: UnixMillis) -> bool {
    raw.deadline().is_some_and(|deadline| deadline <= now)
}

fn earliest_of<X: OutOfLine>(small: &Small<X>) -> Option<UnixMillis> {
    if small.timed() == 0 {
        return None;
    }
    let mut at = 0;
    let raws = std::iter::from_fn(|| small.next(&mut at));
    raws.filter_map(|(_, raw)| raw.deadline()).min()
}

impl<X: OutOfLine> Table<X> {
    /// The earliest deadline, or a lower bound; `None` if there are no deadlines. Cost: O(1).
    #[inline]
    #[must_use]
    pub fn earliest_deadline(&self) -> Option<UnixMillis> {
        match &self.0 {
            Root::Empty | Root::Pack(_) | Root::Ruin(_) => None,
            Root::Small(small) => earliest_of(small),
            Root::Big(big) => big.earliest(),
        }
    }

    /// The number of entries live at `now`; `None` if more than `max_segments` segments would have
    /// to be searched. Then count a cut with [`super::LiveCount`].
    #[must_use]
    pub fn live_len(&self, now: UnixMillis, max_segments: usize) -> Option<usize> {
        if self.earliest_deadline().is_none_or(|earliest| earliest > now) {
            return Some(self.len());
        }
        match &self.0 {
            Root::Empty | Root::Pack(_) | Root::Ruin(_) => Some(self.len()),
            Root::Small(small) => {
                let mut at = 0;
                let raws = std::iter::from_fn(|| small.next(&mut at));
                Some(raws.filter(|&(_, raw)| !is_dead(raw, now)).count())
            }
            Root::Big(big) => big.live_len(now, max_segments),
        }
    }

    /// False if nothing in the table is live at `now`. Stops at the first segment with a live
    /// entry, and after searching `max_segments`; the rest then counts as live.
    #[must_use]
    pub fn has_living(&self, now: UnixMillis, max_segments: usize) -> bool {
        if self.earliest_deadline().is_none_or(|earliest| earliest > now) {
            return !self.is_empty();
        }
        match &self.0 {
            Root::Empty | Root::Pack(_) | Root::Ruin(_) => !self.is_empty(),
            Root::Small(small) => {
                let mut at = 0;
                let mut raws = std::iter::from_fn(|| small.next(&mut at));
                raws.any(|(_, raw)| !is_dead(raw, now))
            }
            Root::Big(big) => big.has_living(now, max_segments),
        }
    }

    /// Removes entries that have expired at `now`, and passes each to `dead`.
    ///
    /// `max_entries` bounds the work: a removal counts as one, and so does reading eight deadlines.
    /// But one segment is always searched to its end. Cost: O(removals), less for each if many
    /// expire together, and a search of some segments.
    pub fn reap(
        &mut self,
        now: UnixMillis,
        max_entries: usize,
        dead: &mut dyn FnMut(Text<'_>, Old<X>),
    ) -> Reaped {
        if self.earliest_deadline().is_none_or(|earliest| earliest > now) {
            return Reaped::default();
        }
        let removed = match &mut self.0 {
            Root::Empty | Root::Pack(_) | Root::Ruin(_) => 0,
            Root::Small(_) => self.reap_small(now, max_entries, dead),
            Root::Big(big) => big_mut(big).reap(now, max_entries, dead),
        };
        self.shrink_now();
        Reaped { removed, more: self.earliest_deadline().is_some_and(|earliest| earliest <= now) }
    }

    fn reap_small(&mut self, now: UnixMillis, max_entries: usize, dead: &mut Tell<'_, X>) -> usize {
        let Root::Small(small) = &mut self.0 else { return 0 };
        unshare(small);
        let (mut at, mut removed) = (0, 0);
        while removed < max_entries
            && let Some((offset, raw)) = small.next(&mut at)
        {
            if is_dead(raw, now) {
                assert!(small.len() > 0, "a dead one that is not counted");
                reap_entry(raw, |_| small.detach(offset), dead);
                (at, removed) = (offset, removed + 1);
            }
        }
        removed
    }
}

/// Takes what the entry owns, detaches the entry, and only then reports it: whatever `dead` does,
/// the table stays valid.
fn reap_entry<X: OutOfLine>(raw: Raw<X>, detach: impl FnOnce(Raw<X>), dead: &mut Tell<'_, X>) {
    let mut buf = Buf::new();
    buf.copy_key_from(raw);
    // SAFETY: the value is read where it is aligned; the key is the buffer's.
    let old = unsafe { raw.take_value() };
    detach(raw);
    // SAFETY: the buffer stays during the call.
    dead(unsafe { buf.raw::<X>().key() }, old);
    // SAFETY: the buffer owns the key, and is not used again.
    unsafe { buf.raw::<X>().release_key() };
}

impl<X: OutOfLine> Big<X> {
    fn live_len(&self, now: UnixMillis, max_segments: usize) -> Option<usize> {
        let (mut dead, mut budget) = (0, max_segments.saturating_mul(COUNTS_PER_LOOK));
        let top = &self.directory.top;
        for leaf in top.firsts().filter(|&leaf| top.earliest(leaf) <= now) {
            let fan = &top.get(leaf).fan;
            for segment in fan.firsts().filter(|&segment| fan.earliest(segment) <= now) {
                let segment = fan.get(segment);
                budget = budget.checked_sub(count_cost(segment, now))?;
                dead += segment.dead_len(now);
            }
        }
        assert!(dead <= self.len, "{dead} of {} entries are dead", self.len);
        Some(self.len - dead)
    }

    fn has_living(&self, now: UnixMillis, max_segments: usize) -> bool {
        let mut budget = max_segments.saturating_mul(COUNTS_PER_LOOK);
        self.directory.paths().map(|path| self.directory.segment_at(path)).any(|segment| {
            let left = budget.checked_sub(count_cost(segment, now));
            budget = left.unwrap_or(0);
            left.is_none() || segment.has_living(now)
        })
    }

    fn reap(&mut self, now: UnixMillis, max_entries: usize, dead: &mut Tell<'_, X>) -> usize {
        let (before, mut budget) = (self.len, max_entries.max(1));
        while budget > 0 {
            let expired = self.expired_paths(now, budget.min(BATCH));
            if expired.is_empty() {
                break;
            }
            self.prefetch_dead(&expired);
            let mut sparse = Vec::new();
            for &path in &expired {
                let len = self.directory.segment_at(path).len();
                let is_own = self.directory.is_own(path);
                let mut cost = self.reap_segment(path, now, budget, dead);
                let segment = self.directory.segment_at(path);
                if self.is_worth_merging(path, len) || (is_own && segment.is_untidy()) {
                    sparse.push((self.directory.prefix(path).0, is_own));
                    cost += REMOVALS_PER_COPY;
                } else if !is_own {
                    cost += REMOVALS_PER_COPY; // The segment was copied for a cut.
                }
                budget = budget.saturating_sub(cost);
                if budget == 0 {
                    break;
                }
            }
            expired
                .chunk_by(|one, other| one.top == other.top)
                .for_each(|leaf| self.directory.settle_earliest(leaf[0].top));
            // Only now, because merges move later segments.
            for (hash, is_own) in sparse {
                let path = self.directory.path(hash);
                let is_merged = self.merge_up(path);
                // Merging has reclaimed the gaps; and a fresh copy can wait.
                if !is_merged && is_own && self.directory.segment_at(path).is_untidy() {
                    self.tidy(path);
                }
            }
        }
        self.earliest = self.directory.top.earliest_of_all();
        assert!(budget == 0 || self.earliest > now, "{} is left behind", self.earliest);
        before - self.len
    }

    /// Up to `most` segments whose earliest deadlines have passed.
    fn expired_paths(&self, now: UnixMillis, most: usize) -> Vec<Path> {
        let (mut expired, mut from) = (Vec::with_capacity(most), 0);
        let tops = &self.directory.top;
        while let Some(top) = tops.next_expired(from, now) {
            from = tops.run(top).end;
            let (fan, mut at) = (&tops.get(top).fan, 0);
            while let Some(leaf) = fan.next_expired(at, now) {
                if expired.len() == most {
                    return expired;
                }
                debug_assert!(expired.last() != Some(&Path { top, leaf }), "twice the same");
                at = fan.run(leaf).end;
                expired.push(Path { top, leaf });
            }
        }
        expired
    }

    /// Prefetches what removing the next expired entry of each of these segments will touch. One
    /// after another, they would take five cache misses each.
    fn prefetch_dead(&self, expired: &[Path]) {
        let segments = || expired.iter().map(|&path| self.directory.segment_at(path));
        segments().for_each(Seg::prefetch_head);
        segments().for_each(Seg::prefetch_next_groups);
        segments().for_each(Seg::prefetch_next_entries);
    }

    /// Removes up to `most` expired entries, the listed ones first. Returns the cost.
    fn reap_segment(
        &mut self,
        path: Path,
        now: UnixMillis,
        most: usize,
        dead: &mut Tell<'_, X>,
    ) -> usize {
        let mut cost = 1;
        if self.directory.segment_at(path).earliest() <= now {
            let segment = self.directory.segment_mut(path);
            let before = segment.bytes();
            let (len, outside_bytes) = (&mut self.len, &mut self.outside_bytes);
            let mut reap_entry = |segment: &mut Seg<X>, loc| {
                let (raw, bytes) = (segment.entry(loc), segment.entry(loc).outside_bytes());
                assert!(is_dead(raw, now), "{:?} is not over at {now}", raw.deadline());
                assert!(*len > 0 && *outside_bytes >= bytes, "{len} entries, {bytes} bytes");
                *outside_bytes -= bytes;
                *len -= 1;
                reap_entry(raw, |raw| segment.detach(raw.hash(), loc), dead);
            };
            while cost <= most
                && let Some(loc) = segment.next_dead(now)
            {
                reap_entry(segment, loc);
                cost += 1;
            }
            if cost <= most && segment.needs_look(now) {
                let looked = segment.len() / LOOKS_PER_REMOVAL;
                let found = segment.look(now, most + 1 - cost);
                cost += found.len().max(looked);
                found.into_iter().for_each(|loc| reap_entry(segment, loc));
            }
            if segment.len() == 0 {
                segment.clear();
            }
            let after = segment.bytes();
            self.resize(before, after);
        }
        let earliest = self.directory.segment_at(path).earliest();
        self.directory.leaf_mut(path.top).fan.set_earliest(path.leaf, earliest);
        cost
    }
}
