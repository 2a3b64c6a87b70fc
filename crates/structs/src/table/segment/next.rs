//! The next deaths of a segment: which entries die first, known without searching the others.
//!
//! Under constant SETs with a TTL the entries of a segment die one by one. Finding the next one
//! would mean reading all deadlines, hundreds of cache misses for one removal. So a search
//! remembers the [`NEXT_MAX`] that die next, in the head's cache line, and the next search comes
//! when they are used up. Counting the dead reads this list, too.
//!
//! ```text
//! deadlines of the segment, sorted:   | listed, up to 15 | horizon | all others ... |
//! ```
//! Invariant S3 (`check_next`): the listed entries have a deadline, are in its order, and none dies
//! after the horizon; all other entries with a deadline die at the horizon or later. A segment that is
//! new or cleared has no horizon ([`NEVER`]): all deadlines are listed. One that has lost its entries
//! one by one keeps its horizon, a bound like any other, until it is looked through.
//!
//! Not here: the choice of the segment to reap. See `directory` and `expire`.

use super::{LINE, Loc, PagePos, Seg, prefetch};
use crate::table::directory::NEVER;
use crate::table::entry::Raw;
use crate::table::group::ones;
use crate::table::value::OutOfLine;
use darter_base::UnixMillis;

/// The number of listed entries: they fit in the cache line of the head.
pub(super) const NEXT_MAX: usize = 15;

/// The nearest deadlines of a segment while it is looked through.
struct Nearest {
    /// Not sorted; all others seen so far are at `bound` or later.
    found: Vec<(UnixMillis, Loc)>,
    bound: UnixMillis,
}

impl Nearest {
    /// This many are kept before the far ones are dropped: a few times for a segment, whatever its
    /// order.
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

    /// Keeps [`NEXT_MAX`]; the first of the others is the bound.
    fn cut(&mut self) {
        if self.found.len() > NEXT_MAX {
            self.found.select_nth_unstable_by_key(NEXT_MAX, |&(deadline, _)| deadline);
            self.bound = self.found[NEXT_MAX].0;
            self.found.truncate(NEXT_MAX);
        }
    }

    /// The nearest, in order, and the horizon after them.
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

    /// The earliest deadline, exact while an entry is listed; otherwise a bound before it.
    #[inline]
    pub(in super::super) fn earliest(&self) -> UnixMillis {
        self.listed().first().map_or(self.head().horizon, |&loc| self.deadline_at(loc))
    }

    /// The entry that dies next, if it is listed and dead at `now`.
    #[inline]
    pub(in super::super) fn next_dead(&self, now: UnixMillis) -> Option<Loc> {
        self.listed().first().copied().filter(|&loc| self.deadline_at(loc) <= now)
    }

    /// Asks the memory for the head; then, with some time between, for the index lines of those
    /// that die next, and for these themselves: the first, and the one that will be the first.
    #[inline]
    pub(in super::super) fn prefetch_head(&self) {
        prefetch(self.block().as_ptr());
    }

    /// See [`Seg::prefetch_head`].
    #[inline]
    pub(in super::super) fn prefetch_next_groups(&self) {
        let block = self.block().as_ptr();
        (1..4).for_each(|line| prefetch(block.wrapping_add(LINE * line))); // Page pointers.
        for loc in self.listed().iter().take(2) {
            prefetch((&raw const self.groups()[usize::from(loc.group)]).cast());
        }
    }

    /// See [`Seg::prefetch_head`].
    #[inline]
    pub(in super::super) fn prefetch_next_entries(&self) {
        for &loc in self.listed().iter().take(2) {
            prefetch(self.entry(loc).ptr().as_ptr());
        }
    }

    /// True when entries may be dead at `now` that are not listed.
    #[inline]
    pub(in super::super) fn needs_look(&self, now: UnixMillis) -> bool {
        self.head().horizon <= now
    }

    /// Entries that are dead at `now`. Cost: O(1), or O(entries) when it needs a look.
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

    /// True when an entry is alive at `now`. Cost: as counting the dead, or less.
    pub(in super::super) fn has_living(&self, now: UnixMillis) -> bool {
        if !self.needs_look(now) {
            return self.len() > self.dead_len(now);
        }
        let is_alive = |raw: Raw<X>| raw.deadline().is_none_or(|at| at > now);
        let mut at = PagePos::default();
        std::iter::from_fn(|| self.next_entry(&mut at)).any(is_alive)
    }

    /// [`Seg::for_each_loc`], two groups after the memory was asked for their entries.
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

    /// Looks all deadlines through: returns up to `most` entries that are dead at `now`, and lists
    /// the next of the others. The caller must remove the returned entries.
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

    /// Lists the entry at `loc`, which is new or has another deadline, if it dies before the
    /// horizon. `entry` is the same entry, wherever it can be read at once: what was just written
    /// into a page may have missed the caches, and reading it back waits for the memory.
    #[inline]
    pub(super) fn enlist(&mut self, loc: Loc, entry: Raw<X>) {
        let Some(deadline) = entry.deadline() else { return };
        if deadline < self.head().horizon {
            self.enlist_at(loc, deadline);
        }
    }

    fn enlist_at(&mut self, loc: Loc, deadline: UnixMillis) {
        let listed = self.listed();
        // Deadlines that fall, each before all others, are not to be compared with all.
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

    /// Takes the entry at `loc` from the list, if it is there: it goes, or its deadline changes.
    #[inline]
    pub(super) fn delist(&mut self, loc: Loc) {
        if let Some(at) = self.listed().iter().position(|&listed| listed == loc) {
            let head = self.head_mut();
            head.next.copy_within(at + 1..usize::from(head.next_len), at);
            head.next_len -= 1;
        }
    }

    /// S3.
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
