//! Deadlines: finding the dead without sampling.
//!
//! Every segment, leaf and table keeps a due: the earliest deadline below it, or a bound before it
//! (removing the entry that set it does not raise it). Whoever asks for the dead walks down the
//! dues that have come, so a table in which nobody dies costs one comparison, and one in which
//! everybody does is reaped at the speed of memory. Looking through a segment in vain raises its
//! due to the exact value, so that happens once.
//!
//! Not here: when to reap and whom to tell. See `keyspace`.

use super::directory::{NEVER, Path};
use super::edit::{big_mut, unshare};
use super::entry::{Buf, Old, OutOfLine, Raw};
use super::segment::{Loc, PagePos, Seg};
use super::text::Text;
use super::{Big, Root, Table};
use darter_base::UnixMillis;

/// Entries whose deadline can be read in the time that removing one takes.
const LOOKS_PER_REMOVAL: usize = 8;

/// What [`Table::reap`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Entries removed.
    pub removed: usize,
    /// True when there may be more dead: call again.
    pub more: bool,
}

/// Who is told of the dead: the key, and what the entry was.
type Tell<'a, X> = dyn FnMut(Text<'_>, Old<X>) + 'a;

fn is_dead(raw: Raw, now: UnixMillis) -> bool {
    raw.deadline().is_some_and(|deadline| deadline <= now)
}

impl<X: OutOfLine> Table<X> {
    /// The earliest deadline, or a bound before it; `None` when nothing has one. Cost: O(1).
    #[must_use]
    pub fn earliest_deadline(&self) -> Option<UnixMillis> {
        match &self.0 {
            Root::Empty | Root::Ruin(_) => None,
            Root::Small(small) if small.timed() == 0 => None,
            Root::Small(small) => {
                let mut at = 0;
                let raws = std::iter::from_fn(|| small.next(&mut at));
                raws.filter_map(|(_, raw)| raw.deadline()).min()
            }
            Root::Big(big) => big.earliest(),
        }
    }

    /// Entries without those that are dead at `now`; `None` when more than `max_segments` segments
    /// would have to be looked through (2 to 5 us each): then count a cut with
    /// [`super::LiveCount`].
    #[must_use]
    pub fn live_len(&self, now: UnixMillis, max_segments: usize) -> Option<usize> {
        if self.earliest_deadline().is_none_or(|due| due > now) {
            return Some(self.len());
        }
        match &self.0 {
            Root::Empty | Root::Ruin(_) => Some(0),
            Root::Small(small) => {
                let mut at = 0;
                let raws = std::iter::from_fn(|| small.next(&mut at));
                Some(raws.filter(|&(_, raw)| !is_dead(raw, now)).count())
            }
            Root::Big(big) => big.live_len(now, max_segments),
        }
    }

    /// Removes entries that are dead at `now`, and tells `dead` about each.
    ///
    /// `max_entries` bounds the work: a removal counts one, as does looking at eight entries; but
    /// one segment is always looked through. Cost: about 50 ns a removal, 5 us a segment.
    pub fn reap(
        &mut self,
        now: UnixMillis,
        max_entries: usize,
        dead: &mut dyn FnMut(Text<'_>, Old<X>),
    ) -> Reaped {
        if self.earliest_deadline().is_none_or(|due| due > now) {
            return Reaped::default();
        }
        let removed = match &mut self.0 {
            Root::Empty | Root::Ruin(_) => 0,
            Root::Small(_) => self.reap_small(now, max_entries, dead),
            Root::Big(big) => big_mut(big).reap(now, max_entries, dead),
        };
        self.shrink_now();
        Reaped { removed, more: self.earliest_deadline().is_some_and(|due| due <= now) }
    }

    fn reap_small(&mut self, now: UnixMillis, max_entries: usize, dead: &mut Tell<'_, X>) -> usize {
        let Root::Small(small) = &mut self.0 else { return 0 };
        unshare(small);
        let (mut at, mut removed) = (0, 0);
        while removed < max_entries
            && let Some((offset, raw)) = small.next(&mut at)
        {
            if is_dead(raw, now) {
                bury(raw, |_| small.detach(offset), dead);
                (at, removed) = (offset, removed + 1);
            }
        }
        removed
    }
}

/// Takes the entry's possessions, has it detached, and only then tells: whatever `dead` does, the
/// table is sound.
fn bury<X: OutOfLine>(raw: Raw, detach: impl FnOnce(Raw), dead: &mut Tell<'_, X>) {
    let mut buf = Buf::new();
    buf.copy_from(raw);
    // SAFETY: the value is read where it is aligned; the key is the buffer's.
    let old = unsafe { raw.take_value::<X>() };
    detach(raw);
    // SAFETY: the buffer stays during the call.
    dead(unsafe { buf.raw().key() }, old);
    // SAFETY: the buffer owns the key, and is not used again.
    unsafe { buf.raw().release_key() };
}

impl<X: OutOfLine> Seg<X> {
    /// Entries that are dead at `now`.
    pub(super) fn dead_len(&self, now: UnixMillis) -> usize {
        let mut at = PagePos::default();
        let raws = std::iter::from_fn(|| self.next_entry(&mut at));
        raws.filter(|&raw| is_dead(raw, now)).count()
    }
}

impl<X: OutOfLine> Big<X> {
    fn live_len(&self, now: UnixMillis, max_segments: usize) -> Option<usize> {
        let (mut dead, mut looked) = (0, 0);
        let top = &self.directory.top;
        for leaf in top.firsts().filter(|&leaf| top.due(leaf) <= now) {
            let fan = &top.get(leaf).fan;
            for segment in fan.firsts().filter(|&segment| fan.due(segment) <= now) {
                if looked == max_segments {
                    return None;
                }
                looked += 1;
                dead += fan.get(segment).dead_len(now);
            }
        }
        Some(self.len - dead)
    }

    fn reap(&mut self, now: UnixMillis, max_entries: usize, dead: &mut Tell<'_, X>) -> usize {
        let (mut removed, mut budget) = (0, max_entries.max(1));
        while let Some(path) = self.first_due(now)
            && budget > 0
        {
            let looks = self.directory.segment_at(path).len() / LOOKS_PER_REMOVAL + 1;
            let count = self.reap_segment(path, now, budget, dead);
            removed += count;
            budget = budget.saturating_sub(looks.max(count));
        }
        self.due = self.directory.top.due_min();
        removed
    }

    /// A segment whose due has come.
    fn first_due(&self, now: UnixMillis) -> Option<Path> {
        let top = self.directory.top.first_due(now)?;
        let leaf = self.directory.top.get(top).fan.first_due(now);
        Some(Path { top, leaf: leaf.expect("a leaf's due is exact when its segments' are") })
    }

    fn reap_segment(
        &mut self,
        path: Path,
        now: UnixMillis,
        most: usize,
        dead: &mut Tell<'_, X>,
    ) -> usize {
        let segment = self.directory.segment_mut(path);
        let (mut found, mut due): (Vec<Loc>, u64) = (Vec::new(), NEVER);
        segment.for_each_loc(|loc, raw| {
            let deadline = raw.deadline().unwrap_or(NEVER);
            if deadline <= now && found.len() < most {
                found.push(loc);
            } else {
                due = due.min(deadline);
            }
        });
        let before = segment.bytes();
        for &loc in &found {
            let raw = segment.entry(loc);
            self.outside_bytes -= raw.outside_bytes();
            self.len -= 1;
            bury(raw, |raw| segment.detach(raw.hash(), loc), dead);
        }
        if segment.len() == 0 {
            segment.clear();
        }
        segment.tidy();
        self.segment_bytes = self.segment_bytes + segment.bytes() - before;
        self.directory.set_due(path, due);
        if !found.is_empty() {
            self.merge_up(path);
        }
        found.len()
    }
}
