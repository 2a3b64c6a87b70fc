//! Makes and reclaims room: moves a segment's pages under another index, or its entries into new
//! segments.
//!
//! An index grows and shrinks on its own, over the pages as they are. Everything else is one
//! operation: entries are copied bitwise from their sources into drafts, routed by a bit of their
//! hash. If all find room, the drafts are installed and the sources freed without looking at their
//! entries, which have moved; the sources were unshared before. If any entry finds no room, the
//! drafts are discarded and nothing has changed.
//!
//! | act    | when                                                    | from | to | pages |
//! |--------|---------------------------------------------------------|------|----|-------|
//! | repack | no page left, and a page's worth of gaps                | 1    | 1  | fresh |
//! | grow   | the index is full and not of the largest class          | 1    | 1  | stay  |
//! | split  | the largest index is full, or 64 KiB of pages are       | 1    | 2  | fresh |
//! | merge  | two siblings together fill less than half of one        | 2    | 1  | fresh |
//! | shrink | the only segment is nearly empty: a smaller class       | 1    | 1  | stay  |
//! |        | or a small table, or a pack                             | 1    | 1  |       |
//!
//! Hashing is uniform, so segments grow in step: all would split within the same percent of the
//! table's growth, which would show in the latency. So the target size of a segment is jittered by
//! its prefix. After a split or growth, other segments may also exceed their targets for a hundred
//! additions. So a command with a hundred additions pays for one split, where chance alone would
//! sometimes give six or seven. Segments also empty in step, and their gaps reach the threshold in
//! step. So merges, and repacks, are separated by rests.
//!
//! Not here: the reasons why an insertion fails, see `segment`.

#[cfg(test)]
pub(super) mod tests;

use super::directory::{DEPTH_MAX, Directory, NEVER, Path};
use super::edit::{big_mut, unshare};
use super::entry::Raw;
use super::segment::{CLASS_MAX, CLASSES, Full, Limits, PAGE, PagePos, Seg};
use super::small::Small;
use super::value::OutOfLine;
use super::{Big, Root, Table};
use std::sync::Arc;

/// After a split or growth, the next segment waits, if possible, for one addition per this many of
/// its entries. All segments of a table become due within a tenth of its growth: one in about 115
/// additions, if each holds 1 100 entries. So few have to wait, and these take few more entries.
const ENTRIES_PER_PAUSE: usize = 11;
/// After a merge, the next one waits for one removal per this many entries, so a command with a
/// hundred removals pays for three or four merges. If a sibling is empty, nothing moves, so nothing
/// waits. After a repack that reclaimed gaps, the next one waits as long. An eighth of a segment
/// must be removed before it is due, so all get their turn.
const ENTRIES_PER_REST: usize = 16;
/// Two siblings are merged if together they fill at most this many percent of one.
const MERGE_PERCENT: usize = 45;
/// Removals between checks whether a segment should shrink.
const SHRINK_STEP: usize = 16;
/// The size at which a big table becomes small again, well below the limit of small tables.
const SMALL_AGAIN_LEN: usize = 32;
const SMALL_AGAIN_BYTES: usize = 768;

/// A segment being filled.
struct Draft<X: OutOfLine> {
    segment: Seg<X>,
    earliest: u64,
}

impl<X: OutOfLine> Draft<X> {
    fn new(class: u8, prefix: u64, depth: u8) -> Self {
        Self { segment: Seg::new(class, limits(class, prefix, depth)), earliest: NEVER }
    }

    #[inline]
    fn push(&mut self, hash: u64, raw: Raw<X>) -> bool {
        let len = raw.len();
        let pushed = self.segment.insert(hash, raw, len);
        // Entries are far from home only if a split was uneven, or the entry's neighbourhood is
        // full.
        if pushed.is_err() && self.segment.insert_anywhere(hash, raw, len).is_err() {
            return false;
        }
        if let Some(deadline) = raw.deadline() {
            self.earliest = self.earliest.min(deadline);
        }
        true
    }
}

/// The size at which a segment of this class and prefix counts as full, jittered by the prefix: at
/// 84 to 93 percent of the largest index, at 90 to 97 percent of the next smaller one (which only
/// grows), and when one to four pages are left. Segments of the smallest classes, which are rare in
/// large tables, fill completely.
fn limits(class: u8, prefix: u64, depth: u8) -> Limits {
    debug_assert!(depth <= DEPTH_MAX, "depth={depth}");
    let shape = &CLASSES[usize::from(class)];
    let mixed = (prefix ^ u64::from(depth)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let below = |bound: usize| (mixed >> 32) as usize % bound;
    let entries = match CLASS_MAX - class {
        0 => shape.slots() * 93 / 100 - below(shape.slots() * 9 / 100),
        1 => shape.slots() * 97 / 100 - below(shape.slots() * 7 / 100),
        _ => shape.slots(),
    };
    let pages = if class == 0 { shape.pages } else { shape.pages - 1 - below(4) };
    Limits::new(entries, pages)
}

/// The number of entries up to which one or two segments are moved into one of this class.
fn merge_len(class: u8) -> usize {
    CLASSES[usize::from(class)].slots() * MERGE_PERCENT / 100
}

/// Copies all entries of `source` bitwise into the drafts. If there are two, bit `63 - depth` of
/// the hash chooses. Returns false if an entry found no room.
fn pour<X: OutOfLine>(source: &Seg<X>, depth: u8, drafts: &mut [Draft<X>]) -> bool {
    let mut at = PagePos::default();
    while let Some(raw) = source.next_entry(&mut at) {
        let hash = raw.hash();
        let target = if drafts.len() == 1 { 0 } else { (hash << depth >> 63) as usize };
        if !drafts[target].push(hash, raw) {
            return false;
        }
    }
    true
}

/// The class for a half of `source`: large enough for as many entries of this size as its pages can
/// hold, so that it never grows again. If entries are so short that the index takes as much memory
/// as they do, only large enough for the half: that saves 1.5 KiB of about 9, and costs time when
/// the index grows. (For figures, see docs/design/0001-segment-table.md.)
fn class_for_half<X: OutOfLine>(source: &Seg<X>) -> u8 {
    let entry_bytes = source.live_bytes() / source.len().max(1);
    class_for(source.len() * 53 / 100, entry_bytes) // Splits are uneven by some percent.
}

/// The class for a segment with `len` entries of this size, by the rule of [`class_for_half`].
fn class_for(len: usize, entry_bytes: usize) -> u8 {
    /// An integer of six digits takes 4 bytes.
    const SHORT_BYTES: usize = 8;
    let wanted = if entry_bytes < SHORT_BYTES {
        len
    } else {
        CLASSES[usize::from(CLASS_MAX)].pages * PAGE / entry_bytes
    };
    let fits = |class: &u8| CLASSES[usize::from(*class)].slots() * 85 / 100 >= wanted;
    (1..CLASS_MAX).find(fits).unwrap_or(CLASS_MAX)
}

/// The segments that the entries of one prefix will fill: the number of hash bits that each knows,
/// and the class.
#[derive(Clone, Copy)]
pub(super) struct Foreseen {
    depth: u8,
    class: u8,
}

impl Foreseen {
    /// The segments for `len` entries of `bytes` bytes whose hashes share the first `depth` bits:
    /// as many as single insertions would create. If chance decides whether the last ones are
    /// split, it still does. `None` if one segment may hold all.
    pub(super) fn of(len: usize, bytes: usize, depth: u8) -> Option<Self> {
        let shape = &CLASSES[usize::from(CLASS_MAX)];
        let (mut left, mut left_bytes, mut depth_each) = (len, bytes, depth);
        let is_too_much = |len: usize, bytes: usize| {
            len > shape.slots() * 95 / 100 || bytes > (shape.pages - 2) * PAGE
        };
        while is_too_much(left, left_bytes) && depth_each < DEPTH_MAX {
            (left, left_bytes, depth_each) = (left / 2, left_bytes / 2, depth_each + 1);
        }
        // Slightly smaller: if a class might be just too small, segments grow one by one.
        let class = class_for(left * 87 / 100, bytes / len.max(1));
        (depth_each > depth).then_some(Self { depth: depth_each, class })
    }
}

/// The side to which bit `63 - depth` of the hash sends all entries of `source`, if they are all on
/// one side.
fn only_side<X: OutOfLine>(source: &Seg<X>, depth: u8) -> Option<usize> {
    let mut at = PagePos::default();
    let mut sides = std::iter::from_fn(|| source.next_entry(&mut at))
        .map(|raw| (raw.hash() << depth >> 63) as usize);
    let first = sides.next()?;
    sides.all(|side| side == first).then_some(first)
}

impl<X: OutOfLine> Big<X> {
    /// A table of one segment without entries.
    fn empty() -> Self {
        Self::of_one(Draft::new(0, 0, 0), 0)
    }

    /// A table of one segment with the entries of a small one, which is consumed.
    fn from_small(small: Small<X>) -> Self {
        let mut draft = Draft::new(0, 0, 0);
        let (mut at, len) = (0, small.len());
        while let Some((_, raw)) = small.next(&mut at) {
            assert!(draft.push(raw.hash(), raw), "a small table fits the smallest segment");
        }
        assert_eq!(draft.segment.len(), len, "all entries have moved");
        let outside_bytes = small.outside_bytes();
        small.discard();
        Self::of_one(draft, outside_bytes)
    }

    /// A table of one segment, whose long keys take `outside_bytes`.
    fn of_one(draft: Draft<X>, outside_bytes: usize) -> Self {
        let len = draft.segment.len();
        let segment_bytes = draft.segment.bytes();
        let directory = Directory::one(draft.segment, draft.earliest);
        Self {
            directory,
            len,
            segment_bytes,
            segment_bytes_most: segment_bytes,
            outside_bytes,
            earliest: draft.earliest,
            class_max: 0,
            pause: 0,
            rest: 0,
            tidied: 0,
        }
    }

    /// Makes room in the segment at `path`, or splits it.
    pub(super) fn make_room(&mut self, path: Path, full: Full) {
        let segment = self.directory.segment_mut(path);
        let before = segment.bytes();
        if full == Full::Pages && segment.has_gaps() && segment.repack() {
            let after = segment.bytes();
            self.resize(before, after);
            return;
        }
        self.pause = (segment.len() / ENTRIES_PER_PAUSE) as u8;
        let class = segment.class();
        let can_grow = class < CLASS_MAX && (full == Full::Index || class == 0);
        if !(can_grow && self.reclass(path, class + 1)) {
            self.split(path);
        }
    }

    /// Gives the segment at `path` an index of another class. Returns false if that is too small.
    pub(super) fn reclass(&mut self, path: Path, class: u8) -> bool {
        let (prefix, depth) = self.directory.prefix(path);
        let segment = self.directory.segment_mut(path);
        let (before, segment_len) = (segment.bytes(), segment.len());
        let Some(new) = segment.reindexed(class, limits(class, prefix, depth)) else {
            return false;
        };
        assert_eq!(new.len(), segment_len, "all entries are indexed again");
        self.resize(before, new.bytes());
        self.class_max = self.class_max.max(class);
        self.directory.replace(path, new).discard();
        true
    }

    fn split(&mut self, path: Path) {
        let (prefix, depth) = self.directory.prefix(path);
        assert!(depth < DEPTH_MAX, "out of hash bits: depth={depth}");
        let right_prefix = prefix | 1 << (63 - depth);
        if let Some(side) = only_side(self.directory.segment_at(path), depth) {
            let empty = if side == 0 { right_prefix } else { prefix };
            return self.give_sibling(path, side, Draft::new(0, empty, depth + 1));
        }
        let mut class = class_for_half(self.directory.segment_at(path));
        let [left, right] = loop {
            let mut drafts =
                [Draft::new(class, prefix, depth + 1), Draft::new(class, right_prefix, depth + 1)];
            if pour(self.directory.segment_at(path), depth, &mut drafts) {
                break drafts;
            }
            drafts.into_iter().for_each(|draft| draft.segment.discard());
            assert!(class < CLASS_MAX, "a half needs more room than the whole");
            class += 1;
        };
        let whole = self.directory.segment_at(path).len();
        assert_eq!(left.segment.len() + right.segment.len(), whole, "each entry is in one half");
        self.class_max = self.class_max.max(class);
        self.segment_bytes += left.segment.bytes() + right.segment.bytes();
        let (left, right) = ((left.segment, left.earliest), (right.segment, right.earliest));
        let old = self.directory.split(path, left, right);
        self.retire(old);
    }

    /// If the segment of `hash` is empty and knows fewer bits than foreseen, replaces it by two
    /// empty ones.
    pub(super) fn prepare(&mut self, hash: u64, foreseen: Foreseen) {
        loop {
            let path = self.directory.path(hash);
            let (prefix, depth) = self.directory.prefix(path);
            if depth >= foreseen.depth || self.directory.segment_at(path).len() > 0 {
                return;
            }
            let class = if depth + 1 == foreseen.depth { foreseen.class } else { 0 };
            let right_prefix = prefix | 1 << (63 - depth);
            let [left, right] = [prefix, right_prefix]
                .map(|prefix| (Draft::new(class, prefix, depth + 1).segment, NEVER));
            self.class_max = self.class_max.max(class);
            self.segment_bytes += left.0.bytes() + right.0.bytes();
            let old = self.directory.split(path, left, right);
            self.retire(old);
        }
    }

    /// Splits a segment whose entries are all on one side: it stays whole, next to an empty
    /// sibling. When a table is filled in the hash order of another one, its first segments are
    /// split this way ten times in a row.
    fn give_sibling(&mut self, path: Path, side: usize, empty: Draft<X>) {
        let full = self.directory.segment_at(path).clone();
        let full = (full, self.directory.earliest(path));
        self.segment_bytes += empty.segment.bytes();
        let empty = (empty.segment, empty.earliest);
        let (left, right) = if side == 0 { (full, empty) } else { (empty, full) };
        // The new handle counts a reference to the entries, too.
        drop(self.directory.split(path, left, right));
    }

    /// Frees a segment whose entries have been moved.
    fn retire(&mut self, old: Seg<X>) {
        self.resize(old.bytes(), 0);
        old.discard();
    }

    /// After a change in the segment at `path`: reclaims its gaps if there are many, unless repacks
    /// are resting.
    #[inline]
    pub(super) fn tidy_in_turn(&mut self, path: Path) {
        self.tidied = self.tidied.saturating_sub(1);
        let segment = self.directory.segment_at(path);
        let is_empty = segment.len() == 0; // Nothing moves.
        if is_empty || (self.tidied == 0 && segment.is_untidy()) {
            self.tidied = self.tidied.max(segment.len().div_ceil(ENTRIES_PER_REST) as u8);
            self.tidy(path);
        }
    }

    /// After a removal from the segment at `path`: checks from time to time whether to merge.
    #[inline]
    pub(super) fn shrink(&mut self, path: Path) {
        self.rest = self.rest.saturating_sub(1);
        let segment = self.directory.segment_at(path);
        if segment.len().is_multiple_of(SHRINK_STEP) && segment.len() <= merge_len(segment.class())
        {
            let hash = self.directory.prefix(path).0;
            while self.merge(self.directory.path(hash)) {}
        }
    }

    /// True if a check for merging the segment at `path`, which had `before` entries, is due, as
    /// after that many single removals.
    pub(super) fn is_worth_merging(&self, path: Path, before: usize) -> bool {
        let segment = self.directory.segment_at(path);
        let has_stepped = segment.len() / SHRINK_STEP < before / SHRINK_STEP;
        (has_stepped || segment.len() == 0) && segment.len() <= merge_len(segment.class())
    }

    /// Merges the segment at `path` with its sibling while both are nearly empty, without a rest,
    /// for callers that bound the number of merges otherwise. Returns false if nothing was merged.
    pub(super) fn merge_up(&mut self, path: Path) -> bool {
        let (hash, mut is_merged) = (self.directory.prefix(path).0, false);
        loop {
            self.rest = 0;
            // Terminates: each merge takes one from the segment's depth.
            if !self.merge(self.directory.path(hash)) {
                return is_merged;
            }
            is_merged = true;
        }
    }

    /// Merges the segment at `path` with its sibling if both are nearly empty, unless merges are
    /// resting.
    fn merge(&mut self, path: Path) -> bool {
        let fan = &self.directory.leaf_mut(path.top).fan;
        let Some(sibling) = fan.sibling(path.leaf) else { return false };
        let (one, other) = (fan.get(path.leaf), fan.get(sibling));
        let class = one.class().max(other.class());
        let shape = &CLASSES[usize::from(class)];
        let bytes = one.live_bytes() + other.live_bytes();
        if one.len() + other.len() > merge_len(class)
            || bytes > shape.pages * PAGE * MERGE_PERCENT / 100
        {
            return false;
        }
        let (alone, sibling) = (one.len() == 0 || other.len() == 0, Path { leaf: sibling, ..path });
        if alone {
            self.absorb(path, sibling);
            return true;
        }
        if self.rest > 0 {
            return false;
        }
        self.rest = (one.len() + other.len()).div_ceil(ENTRIES_PER_REST) as u8;
        self.directory.segment_mut(sibling);
        self.directory.segment_mut(path);
        let (prefix, depth) = self.directory.prefix(path);
        let prefix = prefix & !(1 << (64 - depth));
        let mut drafts = [Draft::new(class, prefix, depth - 1)];
        let poured = [path, sibling]
            .iter()
            .all(|&path| pour(self.directory.segment_at(path), depth - 1, &mut drafts));
        let [Draft { segment, earliest }] = drafts;
        if !poured {
            segment.discard();
            return false;
        }
        let parts = [path, sibling].map(|path| self.directory.segment_at(path).len());
        assert_eq!(segment.len(), parts[0] + parts[1], "all entries of both have moved");
        self.segment_bytes += segment.bytes();
        let (one, other) = self.directory.merge(path, segment, earliest);
        self.retire(one);
        self.retire(other);
        true
    }

    /// Merges two siblings of which one is empty: the other is kept as it is. A table drained in
    /// scan order merges a few entries with nothing ten times in a row.
    fn absorb(&mut self, path: Path, sibling: Path) {
        let kept = if self.directory.segment_at(path).len() == 0 { sibling } else { path };
        let (segment, earliest) =
            (self.directory.segment_at(kept).clone(), self.directory.earliest(kept));
        let (one, other) = self.directory.merge(path, segment, earliest);
        let empty = if one.len() == 0 { one } else { other };
        assert_eq!(empty.len(), 0, "entries are lost");
        self.resize(empty.bytes(), 0); // The other handle leads to the kept pages.
    }

    /// The only segment, if there is only one.
    pub(super) fn only(&self) -> Option<Path> {
        let path = Path { top: 0, leaf: 0 };
        let top = &self.directory.top;
        (top.len() == 1 && top.get(0).fan.len() == 1).then_some(path)
    }
}

impl<X: OutOfLine> Table<X> {
    /// Turns any form into a table of segments, even without entries.
    pub(super) fn become_big(&mut self) -> &mut Big<X> {
        self.unpack();
        match self.0 {
            Root::Small(_) => self.grow_big(),
            Root::Empty | Root::Ruin(_) => self.0 = Root::Big(Arc::new(Big::empty())),
            Root::Pack(_) | Root::Big(_) => {}
        }
        let Root::Big(big) = &mut self.0 else { unreachable!("it is one now") };
        big_mut(big)
    }

    /// Turns a small table into one of segments.
    pub(super) fn grow_big(&mut self) {
        if let Root::Small(mut small) = std::mem::replace(&mut self.0, Root::Empty) {
            unshare(&mut small);
            self.0 = Root::Big(Arc::new(Big::from_small(small)));
        }
    }

    /// After a removal: an empty table frees everything; from time to time, a smaller form is
    /// considered.
    #[inline]
    pub(super) fn shrink(&mut self) {
        if self.len().is_multiple_of(SHRINK_STEP) {
            self.shrink_now();
        }
    }

    /// Takes the smallest form for its few entries.
    pub(super) fn shrink_now(&mut self) {
        if self.is_empty() {
            self.0 = Root::Empty;
            return;
        }
        if self.become_pack() {
            return;
        }
        let Root::Big(big) = &mut self.0 else { return };
        let Some(path) = big.only() else { return };
        // Unshared only if there is something to do.
        let segment = big.directory.segment_at(path);
        let (len, class) = (segment.len(), segment.class());
        if len <= SMALL_AGAIN_LEN && segment.live_bytes() <= SMALL_AGAIN_BYTES {
            self.become_small();
        } else if class > 0 && len <= merge_len(class - 1) {
            big_mut(big).reclass(path, class - 1);
        }
    }

    fn become_small(&mut self) {
        let Root::Big(big) = &mut self.0 else { return };
        let path = Path { top: 0, leaf: 0 };
        let segment = big_mut(big).directory.segment_mut(path);
        let mut small = Small::with_room(segment.live_bytes());
        let mut at = PagePos::default();
        while let Some(raw) = segment.next_entry(&mut at) {
            if small.push(raw, raw.len()).is_none() {
                return small.discard();
            }
        }
        assert_eq!(small.len(), segment.len(), "all entries have moved");
        // The entries have been moved, so the segment is emptied without reading them.
        segment.clear();
        self.0 = Root::Small(small);
    }
}
