//! The next entries of a segment to expire, listed so that the others need not be searched.
//!
//! Under constant SETs with a TTL the entries of a segment expire one by one. Reading all deadlines
//! to find the next one would take hundreds of cache misses for one removal. So a search lists the
//! next [`NEXT_MAX`] entries in the head's cache line, and the next search is due when the list is
//! used up. Counting expired entries reads this list, too.
//!
//! ```text
//! deadlines of the segment, sorted:   | listed, up to 15 | horizon | all others ... |
//! ```
//! Invariant S3 (`check_next`): the listed entries have deadlines, are sorted by them, and expire
//! no later than the horizon. All other entries with a deadline expire at the horizon or later. A
//! new or cleared segment has no horizon ([`NEVER`]): all deadlines are listed. A segment emptied
//! entry by entry keeps its horizon, which is still a valid bound, until the next search.
//!
//! Not here: the choice of the segment to reap. See `directory` and `expire`.

use super::{LINE, Loc, PagePos, Seg, prefetch};
use crate::table::directory::NEVER;
use crate::table::entry::Raw;
use crate::table::group::ones;
use crate::table::value::OutOfLine;
use darter_base::UnixMillis;

/// The most listed entries: they fit in the cache line of the head.
pub(super) const NEXT_MAX: usize = 15;

/// The earliest deadlines found so far during a search of a segment.
struct Nearest {
    /// The earliest ones, unsorted; all others seen so far are at `bound` or later.
    found: Vec<(UnixMillis, Loc)>,
    bound: UnixMillis,
}

impl Nearest {
    /// Entries collected before the later ones are dropped, which happens a few times for a
    /// segment.
    const ROOM: usize = NEXT_MAX * 4;

    fn new() -> Self {
        Self { found: Vec::with_capacity(Self::ROOM), bound: NEVER }
    }

    #[inline]
    fn push(&mut self, deadline: UnixMillis, loc: Loc) {
        if deadline >= self.bound {
            return;
        }
        self.found.push((deadline, loc));
        if self.found.len() == Self::ROOM {
            self.cut();
        }
    }

    /// Keeps the earliest [`NEXT_MAX`]; the bound is the earliest of the others.
    fn cut(&mut self) {
        if self.found.len() > NEXT_MAX {
            self.found.select_nth_unstable_by_key(NEXT_MAX, |&(deadline, _)| deadline);
            self.bound = self.found[NEXT_MAX].0;
            self.found.truncate(NEXT_MAX);
        }
    }

    /// The earliest deadlines in order, and the horizon.
    fn finish(mut self) -> (Vec<(UnixMillis, Loc)>, UnixMillis) {
        self.cut();
        self.found.sort_unstable_by_key(|&(deadline, _)| deadline);
        (self.found, self.bound)
    }
}

impl<X: OutOfLine> Seg<X> {
    #[inline]
    fn listed(&self) -> &[Loc] {
        let head = self.head();
        &head.next[..usize::from(head.next_len)]
    }

    #[inline]
    fn deadline_at(&self, loc: Loc) -> UnixMillis {
        self.entry(loc).deadline().unwrap_or(NEVER)
    }

    /// The earliest deadline: exact while an entry is listed, otherwise a lower bound.
    #[inline]
    pub(in super::super) fn earliest(&self) -> UnixMillis {
        self.listed().first().map_or(self.head().horizon, |&loc| self.deadline_at(loc))
    }

    /// The next entry to expire, if it is listed and has expired at `now`.
    #[inline]
    pub(in super::super) fn next_dead(&self, now: UnixMillis) -> Option<Loc> {
        self.listed().first().copied().filter(|&loc| self.deadline_at(loc) <= now)
    }

    /// Prefetches the head. Then, after some time, the caller prefetches the index lines of the
    /// listed entries, and then the entries themselves: the first, and the one that follows.
    #[inline]
    pub(in super::super) fn prefetch_head(&self) {
        prefetch(self.block().as_ptr());
    }

    /// The second step of [`Seg::prefetch_head`].
    #[inline]
    pub(in super::super) fn prefetch_next_groups(&self) {
        let block = self.block().as_ptr();
        (1..4).for_each(|line| prefetch(block.wrapping_add(LINE * line))); // The page pointers.
        for loc in self.listed().iter().take(2) {
            prefetch((&raw const self.groups()[usize::from(loc.group)]).cast());
        }
    }

    /// The third step of [`Seg::prefetch_head`].
    #[inline]
    pub(in super::super) fn prefetch_next_entries(&self) {
        for &loc in self.listed().iter().take(2) {
            prefetch(self.entry(loc).ptr().as_ptr());
        }
    }

    /// True if unlisted entries may have expired at `now`.
    #[inline]
    pub(in super::super) fn needs_look(&self, now: UnixMillis) -> bool {
        self.head().horizon <= now
    }

    /// The number of entries that have expired at `now`. Cost: O(1), or O(entries) if the segment
    /// must be searched.
    pub(in super::super) fn dead_len(&self, now: UnixMillis) -> usize {
        if !self.needs_look(now) {
            return self.listed().iter().take_while(|&&loc| self.deadline_at(loc) <= now).count();
        }
        let mut count = 0;
        self.for_each_loc(|_, raw| {
            count += usize::from(raw.deadline().is_some_and(|at| at <= now))
        });
        count
    }

    /// True if an entry is live at `now`. Cost: at most that of counting the expired ones.
    pub(in super::super) fn has_living(&self, now: UnixMillis) -> bool {
        if !self.needs_look(now) {
            return self.len() > self.dead_len(now);
        }
        let is_alive = |raw: Raw<X>| raw.deadline().is_none_or(|at| at > now);
        let mut at = PagePos::default();
        std::iter::from_fn(|| self.next_entry(&mut at)).any(is_alive)
    }

    /// [`Seg::for_each_loc`], called two groups after prefetching the entries.
    fn for_each_loc_soon(&self, mut f: impl FnMut(Loc, Raw<X>)) {
        const DISTANCE: usize = 2;
        let groups = self.groups();
        for at in 0..groups.len() + DISTANCE {
            if let Some(group) = groups.get(at) {
                ones(group.used())
                    .for_each(|slot| prefetch(self.entry_at(group.offset(slot)).ptr().as_ptr()));
            }
            let Some(at) = at.checked_sub(DISTANCE) else { continue };
            for slot in ones(groups[at].used()) {
                f(Loc::new(at, slot), self.entry_at(groups[at].offset(slot)));
            }
        }
    }

    /// Searches all deadlines. Returns up to `most` entries that have expired at `now`, and lists
    /// the next ones. The caller must remove the returned entries.
    pub(in super::super) fn look(&mut self, now: UnixMillis, most: usize) -> Vec<Loc> {
        let (mut dead, mut nearest) = (Vec::new(), Nearest::new());
        self.for_each_loc_soon(|loc, raw| {
            let Some(deadline) = raw.deadline() else { return };
            if deadline <= now && dead.len() < most {
                dead.push(loc);
            } else {
                nearest.push(deadline, loc);
            }
        });
        let (next, horizon) = nearest.finish();
        let head = self.head_mut();
        (head.horizon, head.next_len) = (horizon, next.len() as u8);
        head.next.iter_mut().zip(next).for_each(|(place, (_, loc))| *place = loc);
        dead
    }

    /// Lists the entry at `loc`, which is new or has a new deadline, if it expires before the
    /// horizon. `entry` is another copy of it that can be read quickly: reading back what was just
    /// written to a page may wait for memory.
    #[inline]
    pub(super) fn enlist(&mut self, loc: Loc, entry: Raw<X>) {
        let Some(deadline) = entry.deadline() else { return };
        if deadline < self.head().horizon {
            self.enlist_at(loc, deadline);
        }
    }

    fn enlist_at(&mut self, loc: Loc, deadline: UnixMillis) {
        let listed = self.listed();
        // Falling deadlines, each before all others, need no comparison with the whole list.
        let is_first = listed.first().is_some_and(|&first| self.deadline_at(first) > deadline);
        let mut at = if is_first { 0 } else { listed.len() };
        while at > 0 && self.deadline_at(listed[at - 1]) > deadline {
            at -= 1;
        }
        if at == NEXT_MAX {
            self.head_mut().horizon = deadline;
            return;
        }
        let last = (listed.len() == NEXT_MAX).then(|| self.deadline_at(listed[NEXT_MAX - 1]));
        let head = self.head_mut();
        let len = usize::from(head.next_len).min(NEXT_MAX - 1);
        head.next.copy_within(at..len, at + 1);
        head.next[at] = loc;
        head.next_len = len as u8 + 1;
        head.horizon = last.unwrap_or(head.horizon);
    }

    /// Removes the entry at `loc` from the list, because it is removed or gets a new deadline.
    #[inline]
    pub(super) fn delist(&mut self, loc: Loc) {
        if let Some(at) = self.listed().iter().position(|&listed| listed == loc) {
            let head = self.head_mut();
            head.next.copy_within(at + 1..usize::from(head.next_len), at);
            head.next_len -= 1;
        }
    }

    /// Checks S3.
    pub(super) fn check_next(&self) {
        let deadlines = self.listed().iter().map(|&loc| self.deadline_at(loc));
        let deadlines: Vec<_> = deadlines.chain([self.head().horizon]).collect();
        assert!(deadlines.is_sorted(), "S3: {deadlines:?}");
        self.for_each_loc(|loc, raw| {
            let is_listed = self.listed().contains(&loc);
            let is_known = is_listed || raw.deadline().is_none_or(|at| at >= self.head().horizon);
            assert!(is_known, "S3: {loc:?} is missing");
            assert!(raw.is_timed() || !is_listed, "S3: {loc:?} lives for ever");
        });
        assert!(self.listed().iter().all(|loc| self.is_used(*loc)), "S3: one is gone");
    }

    fn is_used(&self, loc: Loc) -> bool {
        self.groups()[usize::from(loc.group)].used() & 1 << loc.slot != 0
    }
}
