//! Sorts in portions: runs of up to a thousand items are sorted when they are full, and then merged
//! in pairs. If texts must be compared, their bytes count, too: runs of long texts have few items,
//! down to one, and a merge may pause within a comparison.
//!
//! A merge reads its runs chunk by chunk, and frees the items read; so apart from a few chunks,
//! items are in memory once. Two runs are merged as soon as both have gone through the same number
//! of merges. So each item is merged log2(runs) times, and short runs are merged while they are in
//! the caches. The order is stable: of two equal items the earlier one stays first. If a part of
//! one run comes before all remaining items of the other, it is copied at once: so sorted input
//! costs next to nothing.
//!
//! With LIMIT, no run is longer than the wanted number of items. Once a run has that length, items
//! after its last one are not wanted, and most are rejected on arrival.

use super::order::{By, Item, LOOK, Order};
use super::texts::Texts;
use crate::chunks::Chunks;
use std::cmp::Ordering;

/// Items in a chunk; a chunk is sorted in one step, by rank.
const CHUNK: usize = 1_024;
/// The highest cost of comparing a chunk's texts, in bytes: each text is compared about eight
/// times.
const SORTED_BYTES: usize = 256 * LOOK;
/// Items merged in one portion, and bytes of their texts, which may each be a cache miss.
const MERGED: usize = 1_024;
const MERGED_BYTES: usize = 256 * LOOK;
/// Bytes compared at most to decide whether an item may be wanted.
const BOUND_BYTES: usize = 4 * 1024;
/// Chunks freed in one portion.
const CHUNKS_AT_ONCE: usize = 16;

/// Items in order.
#[derive(Default)]
pub(super) struct Run {
    chunks: Chunks<Item, CHUNK>,
    /// Items already removed from the first chunk.
    skipped: usize,
    len: usize,
    /// The number of merges that the run has gone through.
    level: u32,
}

impl Run {
    /// Items left.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks.memory_bytes()
    }

    /// Adds an item at the end.
    pub(super) fn push(&mut self, item: Item) {
        self.chunks.tail(1).push(item);
        self.len += 1;
    }

    /// The contiguous items at the front; empty at the end.
    fn front(&self) -> &[Item] {
        let chunk = self.chunks.chunks().front().map_or(&[][..], |chunk| &chunk[self.skipped..]);
        &chunk[..chunk.len().min(self.len)]
    }

    /// Removes the first items, no more than [`Run::front`] has.
    fn skip(&mut self, count: usize) {
        self.skipped += count;
        self.len -= count;
        if self.chunks.chunks().front().is_some_and(|chunk| chunk.len() == self.skipped) {
            self.chunks.pop_front();
            self.skipped = 0;
        }
    }

    /// Removes the first item.
    pub(super) fn pop_front(&mut self) -> Option<Item> {
        let item = self.front().first().copied()?;
        self.skip(1);
        Some(item)
    }

    /// Removes the last item.
    pub(super) fn pop_back(&mut self) -> Option<Item> {
        if self.len == 0 {
            return None;
        }
        self.len -= 1;
        self.chunks.pop()
    }

    /// Drops all but the first `len` items; none may have been taken from the back.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Drops some of the first `left` items, and subtracts them from `left`. Returns true while
    /// more must be dropped.
    pub(super) fn drop_front(&mut self, left: &mut usize) -> bool {
        for _ in 0..CHUNKS_AT_ONCE {
            let count = (*left).min(self.front().len());
            self.skip(count);
            *left -= count;
        }
        *left > 0 && self.len > 0
    }

    fn last(&self) -> Option<Item> {
        self.chunks.chunks().back().and_then(|chunk| chunk.last()).copied()
    }
}

/// A merge of two runs into one.
struct Merge {
    left: Run,
    right: Run,
    into: Run,
    /// Bytes in which the texts of the two first items are known to agree.
    compared: usize,
}

impl Merge {
    fn new(left: Run, right: Run) -> Self {
        let level = left.level.max(right.level) + u32::from(left.level == right.level);
        Self { left, right, into: Run { level, ..Run::default() }, compared: 0 }
    }

    /// Merges the next items. Returns true while more are wanted.
    fn step(&mut self, order: Order, texts: &Texts, keep: usize) -> bool {
        let wanted = keep.saturating_sub(self.into.len).min(self.left.len + self.right.len);
        let (mut left, mut budget) = (MERGED.min(wanted), MERGED_BYTES);
        while left > 0 && budget > 0 {
            left -= self.copy(left, order, texts, &mut budget);
        }
        self.into.len < keep && self.left.len + self.right.len > 0
    }

    /// Moves some items of contiguous parts. Returns their number.
    fn copy(&mut self, most: usize, order: Order, texts: &Texts, budget: &mut usize) -> usize {
        let Self { left: one, right: other, into, compared } = self;
        let (one, other) = (one.front(), other.front());
        let (mut first, mut second) = (0, 0);
        let to = into.chunks.tail(1);
        let most = most.min(CHUNK - to.len());
        // Texts decide between equal ranks.
        let come_first = |one: &[Item], other: &[Item]| match (one.last(), other.first()) {
            (Some(last), Some(first)) => last.rank < first.rank,
            (last, _) => last.is_some(),
        };
        if come_first(one, other) {
            first = most.min(one.len());
            to.extend_from_slice(&one[..first]);
        } else if come_first(other, one) {
            second = most.min(other.len());
            to.extend_from_slice(&other[..second]);
        } else {
            while first + second < most && first < one.len() && second < other.len() {
                let (left, right) = (one[first], other[second]);
                let is_second = if left.rank == right.rank {
                    if *budget == 0 {
                        break;
                    }
                    let order = order.compare((&right, &left), texts, compared, budget);
                    let Some(order) = order else { break };
                    *compared = 0;
                    // The left item is the earlier one, so it stays first if both are equal.
                    order == Ordering::Less
                } else {
                    right.rank < left.rank
                };
                to.push(left.or(right, is_second));
                second += usize::from(is_second);
                first += usize::from(!is_second);
            }
        }
        self.left.skip(first);
        self.right.skip(second);
        self.into.len += first + second;
        first + second
    }
}

/// Sorts items; see the module's documentation.
pub(super) struct Sorter {
    order: Order,
    /// The number of wanted items.
    keep: usize,
    /// Items not sorted yet, and the cost of comparing their texts.
    fresh: Vec<Item>,
    fresh_bytes: usize,
    /// Sorted runs, the longest first.
    runs: Vec<Run>,
    merge: Option<Merge>,
    /// Items after this one are not wanted.
    bound: Option<Item>,
    /// No more items will be added.
    is_closed: bool,
}

impl Sorter {
    /// Sorts the elements by `order`, and keeps the first `keep`.
    pub(super) fn new(order: Order, keep: usize) -> Self {
        let (fresh, runs) = (Vec::new(), Vec::new());
        Self {
            order,
            keep,
            fresh,
            fresh_bytes: 0,
            runs,
            merge: None,
            bound: None,
            is_closed: false,
        }
    }

    /// False if an item of this rank is certainly not wanted.
    pub(super) fn may_want(&self, rank: u64) -> bool {
        self.bound.is_none_or(|bound| rank <= bound.rank)
    }

    /// True while there are no items.
    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.runs.is_empty() && self.merge.is_none()
    }

    /// Adds an item.
    pub(super) fn push(&mut self, item: Item, texts: &Texts) {
        if self.order.by == By::Nothing {
            if self.runs.is_empty() {
                self.runs.push(Run::default());
            }
            self.runs[0].push(item);
            return;
        }
        if self.bound.is_some_and(|bound| self.is_before(&item, &bound, texts) == Some(false)) {
            return;
        }
        self.fresh.push(item);
        self.fresh_bytes += self.order.cost(&item, texts);
        if self.fresh.len() == CHUNK || self.fresh_bytes >= SORTED_BYTES {
            self.sort_fresh(texts);
        }
    }

    /// Whether `one` comes before `other`, if a short comparison can decide.
    fn is_before(&self, one: &Item, other: &Item, texts: &Texts) -> Option<bool> {
        if one.rank != other.rank {
            return Some(one.rank < other.rank);
        }
        let (mut at, mut budget) = (0, BOUND_BYTES);
        let order = self.order.compare((one, other), texts, &mut at, &mut budget)?;
        Some(order == Ordering::Less)
    }

    /// Ends the input.
    pub(super) fn close(&mut self, texts: &Texts) {
        self.sort_fresh(texts);
        self.is_closed = true;
    }

    /// Does the next portion of merging, if any. Returns true while more is left.
    pub(super) fn step(&mut self, texts: &Texts) -> bool {
        let Some(merge) = &mut self.merge else { return self.begin_merge() };
        if !merge.step(self.order, texts, self.keep)
            && let Some(merge) = self.merge.take()
        {
            self.keep_run(merge.into, texts);
        }
        true
    }

    /// The items in order, once no step is left.
    pub(super) fn into_run(mut self) -> Run {
        debug_assert!(self.is_closed && self.runs.len() <= 1, "{} runs are left", self.runs.len());
        self.runs.pop().unwrap_or_default()
    }

    fn sort_fresh(&mut self, texts: &Texts) {
        if self.fresh.is_empty() {
            return;
        }
        // Sorts by rank alone: without texts the comparison has no branch.
        self.fresh.sort_by_key(|item| item.rank);
        for same in self.fresh.chunk_by_mut(|one, other| one.rank == other.rank) {
            if same.len() > 1 {
                same.sort_by(|one, other| self.order.compare_all(one, other, texts));
            }
        }
        self.fresh_bytes = 0;
        self.fresh.truncate(self.keep);
        let mut run = Run::default();
        run.chunks.tail(self.fresh.len()).extend_from_slice(&self.fresh);
        run.len = self.fresh.len();
        self.fresh.clear();
        self.keep_run(run, texts);
    }

    fn keep_run(&mut self, run: Run, texts: &Texts) {
        if let Some(last) = run.last().filter(|_| run.len == self.keep)
            && self.bound.is_none_or(|bound| self.is_before(&last, &bound, texts) == Some(true))
        {
            self.bound = Some(last);
        }
        self.runs.push(run);
    }

    /// Starts merging the last two runs, if it is time to.
    fn begin_merge(&mut self) -> bool {
        let [.., one, other] = &self.runs[..] else { return false };
        // Several runs may have been added since the last merge, so a later one may be of a higher
        // level.
        if !self.is_closed && one.level > other.level {
            return false;
        }
        if let (Some(right), Some(left)) = (self.runs.pop(), self.runs.pop()) {
            self.merge = Some(Merge::new(left, right));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::{Common, End};
    use super::super::texts::TextId;
    use super::*;
    use darter_base::Prng;
    use darter_base::lazyfree;
    use darter_base::preempt::Never;
    use darter_keyspace::Str;
    use darter_structs::table::Text;

    /// Sorts texts. Returns the first `keep`, and the highest number of items in memory.
    fn sort(words: &[Vec<u8>], mut order: Order, keep: usize) -> (Vec<Vec<u8>>, usize) {
        if let By::Texts(end) = order.by {
            let mut common = Common::default();
            for word in words {
                order.skipped = common.add(&Str::Inline(Text::raw(word)), end);
            }
        }
        let (mut sorter, mut texts) = (Sorter::new(order, keep), Texts::default());
        let mut most = 0;
        for word in words {
            let text = Str::Inline(Text::raw(word));
            let rank = order.rank(&text).expect("a number");
            if sorter.may_want(rank) {
                let text = texts.push(&text, || None);
                sorter.push(Item { rank, text }, &texts);
            }
            while sorter.step(&texts) {}
            most = most.max(sorter.fresh.len() + sorter.runs.iter().map(Run::len).sum::<usize>());
        }
        sorter.close(&texts);
        while sorter.step(&texts) {}
        let mut run = sorter.into_run();
        assert_eq!(run.len(), words.len().min(keep));
        let items = std::iter::from_fn(|| run.pop_front());
        let sorted = items.map(|item| texts.with(item.text, |text| text.to_vec())).collect();
        (sorted, most)
    }

    #[test] // Any number of items, with any LIMIT.
    fn texts_are_sorted_as_by_the_standard_library() {
        let mut prng = Prng::from_seed(3);
        for round in 0..200 {
            let count = prng.below(if round % 10 == 0 { 20_000 } else { 700 });
            let bound = 1 + prng.below(2 * count + 1);
            let numbers: Vec<u64> = (0..count).map(|_| prng.below(bound)).collect();
            let words: Vec<_> = numbers.iter().map(|at| at.to_string().into_bytes()).collect();
            let keep = if prng.chance(50) { usize::MAX } else { prng.below(count + 2) as usize };
            for (by, is_descending) in [By::Numbers, By::Texts(End::Nul), By::Texts(End::Whole)]
                .into_iter()
                .flat_map(|by| [(by, false), (by, true)])
            {
                let (sorted, most) = sort(&words, Order { by, is_descending, skipped: 0 }, keep);
                let mut expected = words.clone();
                match by {
                    By::Numbers => {
                        expected
                            .sort_by_key(|word| String::from_utf8_lossy(word).parse::<u64>().ok());
                    }
                    _ => expected.sort(),
                }
                if is_descending {
                    expected.reverse();
                }
                expected.truncate(keep);
                assert!(sorted == expected, "round {round}, {by:?}");
                let runs = 2 + (count.max(1) as usize / 256).max(1).ilog2() as usize;
                assert!(most <= CHUNK + runs * keep.min(words.len()), "{most} of {count}, {keep}");
            }
        }
        while lazyfree::run(&Never) {}
    }

    #[test] // The runs do not overlap.
    fn sorted_and_reversed_input_is_sorted() {
        let up: Vec<Vec<u8>> = (0..20_000).map(|at| format!("{at:05}").into_bytes()).collect();
        let down: Vec<Vec<u8>> = up.iter().rev().cloned().collect();
        let halves: Vec<Vec<u8>> = [&up[10_000..], &up[..10_000]].concat();
        for by in [By::Numbers, By::Texts(End::Whole)] {
            for words in [&up, &down, &halves] {
                for keep in [usize::MAX, 15_000, 1_500] {
                    let kept = keep.min(up.len());
                    let order = Order { by, is_descending: false, skipped: 0 };
                    assert!(sort(words, order, keep).0 == up[..kept], "{by:?} {keep}");
                    let order = Order { by, is_descending: true, skipped: 0 };
                    assert!(
                        sort(words, order, keep).0 == down[..kept],
                        "{by:?} {keep}, descending"
                    );
                }
            }
        }
        while lazyfree::run(&Never) {}
    }

    #[test] // Some end after the prefix, or have a NUL there.
    fn texts_with_a_common_prefix_are_sorted() {
        let mut prng = Prng::from_seed(11);
        for common in [0, 1, 7, 8, 9, 63, 64, 65, 200] {
            let mut words: Vec<Vec<u8>> = (0..2_000)
                .map(|_| [vec![b'x'; common], prng.bytes(0..=9), prng.bytes(0..=2)].concat())
                .collect();
            let (sorted, _) = sort(
                &words,
                Order { by: By::Texts(End::Whole), is_descending: false, skipped: 0 },
                usize::MAX,
            );
            let by = By::Texts(End::Nul);
            let (until_nul, _) = sort(&words, Order { by, is_descending: false, skipped: 0 }, 700);
            words.sort_by(|one, other| {
                darter_command::until_nul(one).cmp(darter_command::until_nul(other))
            });
            assert!(until_nul == words[..700], "{common} in common, to a NUL");
            words.sort();
            assert!(sorted == words, "{common} in common");
        }
        while lazyfree::run(&Never) {}
    }

    #[test]
    fn items_before_the_limits_offset_are_dropped_in_portions() {
        let mut run = Run::default();
        let item = |at: u64| Item { rank: at, text: TextId::NONE };
        (0..100 * CHUNK as u64).for_each(|at| run.push(item(at)));
        let (mut left, mut portions) = (90 * CHUNK + 7, 1);
        while run.drop_front(&mut left) {
            portions += 1;
        }
        assert_eq!(portions, 91_usize.div_ceil(CHUNKS_AT_ONCE));
        assert_eq!(run.pop_front().map(|item| item.rank), Some(90 * CHUNK as u64 + 7));
        left = usize::MAX;
        while run.drop_front(&mut left) {}
        assert_eq!(run.len(), 0);
    }

    #[test]
    fn equal_items_keep_their_order() {
        let order = Order { by: By::Texts(End::Nul), is_descending: true, skipped: 0 };
        let words: Vec<Vec<u8>> =
            (0..10_000_u32).map(|at| [&b"same\0"[..], &at.to_be_bytes()].concat()).collect();
        assert!(sort(&words, order, usize::MAX).0 == words);
        assert!(sort(&words, order, 700).0 == words[..700]);
        while lazyfree::run(&Never) {}
    }
}
