//! Sorts integers, the usual elements: a radix sort, in portions.
//!
//! An integer needs only its value: 8 bytes, no text, and no comparisons, which mispredict. A pass
//! orders the keys by up to eight of their bits, the low bits first. It first counts the keys for
//! each value of these bits, which gives the place of the first key of each. Then it moves each key
//! behind the earlier ones with the same bits, so the order of earlier passes is preserved. Bits
//! that all keys share need no pass: a million consecutive numbers take three passes, and sorted
//! input takes none.
//!
//! ```text
//! number --xor--> key, unsigned      pages: | 4 096 keys | 4 096 keys | ..   --pass-->   spare: | ..
//! ```
//! Not here: integers that Redis does not order by their values ([`is_ordered`]), and other
//! numbers. See `sorter`.

use super::order::EXACT_MAX;
use crate::chunks::Chunks;

/// Keys in a page, and in one portion of a pass.
const PAGE: usize = 4_096;
/// Up to this many keys are sorted at once, by comparisons.
const SORTED_AT_ONCE: usize = 1_024;
/// Bits of a pass, and the number of their values.
const WIDTH: u32 = 8;
const KINDS: usize = 1 << WIDTH;

const SIGN: u64 = 1 << 63;

/// True if Redis orders this number by its value. Redis compares as doubles, and equal doubles as
/// texts. Beyond 2^53 that is a different order for negative numbers, and around powers of ten,
/// where the lengths of texts differ.
pub(super) fn is_ordered(number: i64) -> bool {
    /// Up to `i64::MAX`, two integers that differ by more than this are never the same double.
    const APART_MAX: u64 = 1 << (63 - f64::MANTISSA_DIGITS);
    const POWERS: [i64; 3] =
        [10_000_000_000_000_000, 100_000_000_000_000_000, 1_000_000_000_000_000_000];
    number.unsigned_abs() <= EXACT_MAX
        || number > 0 && POWERS.iter().all(|power| number.abs_diff(*power) > APART_MAX)
}

/// The next step of the sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortStage {
    /// Finds the bits in which the keys differ.
    Survey,
    /// Counts the keys for each value of the pass's bits.
    Count,
    /// Moves the keys.
    Move,
    /// The keys are in order.
    Sorted,
}

/// The integer sorter; see the module's documentation.
pub(super) struct Numbers {
    /// The numbers are returned in descending order.
    is_descending: bool,
    pages: Chunks<u64, PAGE>,
    /// The pages that a pass moves the keys to.
    spare: Chunks<u64, PAGE>,
    stage: SortStage,
    /// The next page to process in this stage.
    page: usize,
    /// The bits in which keys differ, the last key surveyed, and whether all keys so far were in
    /// order.
    differing: u64,
    last: u64,
    is_sorted: bool,
    /// The bits of this pass: the lowest one, and how many.
    shift: u32,
    width: u32,
    /// For each value of the bits: the number of keys, then the place of the next key.
    places: Box<[usize; KINDS]>,
    /// Keys already taken from the first page (when reading from the front), and keys left.
    taken: usize,
    len: usize,
}

impl Numbers {
    /// A sorter without numbers.
    pub(super) fn new(is_descending: bool) -> Self {
        Self {
            is_descending,
            pages: Chunks::default(),
            spare: Chunks::default(),
            stage: SortStage::Survey,
            page: 0,
            differing: 0,
            last: 0,
            is_sorted: true,
            shift: 0,
            width: 0,
            places: Box::new([0; KINDS]),
            taken: 0,
            len: 0,
        }
    }

    /// Adds a number, before the first step.
    #[inline]
    pub(super) fn push(&mut self, number: i64) {
        debug_assert!(is_ordered(number), "{number}");
        self.pages.tail(1).push(number.cast_unsigned() ^ SIGN);
        self.len += 1;
    }

    /// The number of numbers left.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.pages.memory_bytes() + self.spare.memory_bytes()
    }

    /// Does the next portion of sorting. Returns true while there is more to do.
    pub(super) fn step(&mut self) -> bool {
        if self.page < self.pages.chunks().len() {
            match self.stage {
                SortStage::Survey => self.survey(),
                SortStage::Count => self.count(),
                SortStage::Move => self.move_page(),
                SortStage::Sorted => return false,
            }
            self.page += 1;
        } else {
            self.advance();
        }
        self.stage != SortStage::Sorted
    }

    /// Moves to the next stage.
    fn advance(&mut self) {
        self.page = 0;
        match self.stage {
            SortStage::Survey if self.is_sorted => self.stage = SortStage::Sorted,
            SortStage::Survey => self.begin(0),
            SortStage::Count => {
                let mut end = 0;
                for place in self.places.iter_mut() {
                    (*place, end) = (end, end + *place);
                }
                debug_assert_eq!(end, self.len, "every key is of one kind");
                self.stage = SortStage::Move;
            }
            SortStage::Move => {
                std::mem::swap(&mut self.pages, &mut self.spare);
                self.begin(self.shift + self.width);
            }
            SortStage::Sorted => {}
        }
    }

    /// Starts the next pass at bit `shift` or above, if keys differ in any of these bits.
    fn begin(&mut self, shift: u32) {
        let left = self.differing.checked_shr(shift).unwrap_or(0);
        if left == 0 {
            (self.stage, self.spare) = (SortStage::Sorted, Chunks::default());
            return;
        }
        // As few passes as possible, with about the same number of bits each, because fewer values
        // are moved faster.
        let bits = u64::BITS - left.leading_zeros() - left.trailing_zeros();
        self.shift = shift + left.trailing_zeros();
        self.width = bits.div_ceil(bits.div_ceil(WIDTH));
        self.places.fill(0);
        self.stage = SortStage::Count;
    }

    fn survey(&mut self) {
        let is_all = self.len <= SORTED_AT_ONCE;
        let Some(page) = self.pages.slice_mut().get_mut(self.page) else { return };
        if is_all {
            page.sort_unstable();
        }
        let Some((&first, &last)) = page.first().zip(page.last()) else { return };
        if self.page == 0 {
            self.last = first;
        }
        // A bit that is equal in each pair of neighbouring keys is equal in all.
        let before = self.last;
        self.differing |= page.iter().fold(before ^ first, |bits, key| bits | (key ^ first));
        self.is_sorted = self.is_sorted && before <= first && page.is_sorted();
        self.last = last;
    }

    fn count(&mut self) {
        let (shift, kinds) = self.kinds();
        let Some(page) = self.pages.chunks().get(self.page) else { return };
        for key in page {
            self.places[usize::from((key >> shift) as u8) & kinds] += 1;
        }
        if self.spare.chunks().len() <= self.page {
            self.spare.tail(page.len()).resize(page.len(), 0);
        }
    }

    fn move_page(&mut self) {
        let (shift, kinds) = self.kinds();
        let Some(page) = self.pages.chunks().get(self.page) else { return };
        let to = self.spare.slice_mut();
        for &key in page {
            let place = &mut self.places[usize::from((key >> shift) as u8) & kinds];
            to[*place / PAGE][*place % PAGE] = key;
            *place += 1;
        }
    }

    /// The shift and the mask that select the bits of this pass.
    fn kinds(&self) -> (u32, usize) {
        debug_assert!((1..=WIDTH).contains(&self.width), "{} bits", self.width);
        (self.shift, (KINDS - 1) >> (WIDTH - self.width))
    }

    /// Removes at most `most` of the next numbers, all from one page, and appends them to `out`.
    pub(super) fn take(&mut self, most: usize, out: &mut Vec<i64>) {
        let count = self.near(most);
        let number = |key: &u64| (key ^ SIGN).cast_signed();
        let pages = self.pages.chunks();
        match (self.is_descending, pages.front(), pages.back()) {
            (false, Some(page), _) => {
                out.extend(page[self.taken..self.taken + count].iter().map(number));
            }
            (true, _, Some(page)) => out.extend(page.iter().rev().take(count).map(number)),
            _ => {}
        }
        self.skip(count);
    }

    /// Drops some of the next `left` numbers, and subtracts them from `left`. Returns true while
    /// more must be dropped.
    pub(super) fn drop_front(&mut self, left: &mut usize) -> bool {
        let count = self.near(*left);
        self.skip(count);
        *left -= count;
        *left > 0 && self.len > 0
    }

    /// Drops all but the next `len` numbers.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// How many of the next `most` numbers are in one page.
    fn near(&self, most: usize) -> usize {
        let pages = self.pages.chunks();
        let page = if self.is_descending { pages.back() } else { pages.front() };
        most.min(self.len).min(page.map_or(0, Vec::len) - self.taken)
    }

    /// Removes the next `count` numbers, which must be in one page.
    fn skip(&mut self, count: usize) {
        self.len -= count;
        if self.is_descending {
            return self.pages.cut_tail(count);
        }
        self.taken += count;
        if self.pages.chunks().front().is_some_and(|page| page.len() == self.taken) {
            self.pages.pop_front();
            self.taken = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;
    use darter_base::lazyfree;
    use darter_base::preempt::Never;

    /// Sorts numbers step by step; stops at the first step that reports that they are in order.
    fn sorted(numbers: &[i64], is_descending: bool) -> Numbers {
        let mut sorter = Numbers::new(is_descending);
        numbers.iter().for_each(|number| sorter.push(*number));
        while sorter.step() {}
        assert!(!sorter.step(), "it is done");
        assert_eq!(sorter.len(), numbers.len());
        sorter
    }

    fn all(mut numbers: Numbers) -> Vec<i64> {
        let mut out = Vec::new();
        while numbers.len() > 0 {
            let before = out.len();
            numbers.take(500, &mut out);
            assert!((1..=500).contains(&(out.len() - before)), "{} at once", out.len() - before);
        }
        out
    }

    #[test] // Any number of them, with any bits.
    fn integers_are_sorted_as_by_the_standard_library() {
        let mut prng = Prng::from_seed(5);
        for round in 0..300 {
            let count = prng.below(if round % 10 == 0 { 30_000 } else { 3_000 });
            let (bits, shift) = (1 + prng.below(53), prng.below(12));
            let mask = (1_u64 << bits) - 1;
            let mut numbers: Vec<i64> = (0..count)
                .map(|_| {
                    ((prng.next_u64() & mask).cast_signed() - (mask / 3).cast_signed()) >> shift
                })
                .collect();
            if round % 7 == 0 {
                numbers.sort_unstable();
            }
            let mut expected = numbers.clone();
            expected.sort_unstable();
            assert!(all(sorted(&numbers, false)) == expected, "round {round}");
            expected.reverse();
            assert!(all(sorted(&numbers, true)) == expected, "round {round}, descending");
        }
        while lazyfree::run(&Never) {}
    }

    #[test] // The first ones are dropped page by page, the last ones truncated.
    fn any_range_of_the_sorted_integers_is_returned() {
        let numbers: Vec<i64> = (0..50_000).map(|at| at * 7_919 % 50_021).collect();
        let mut expected = numbers.clone();
        expected.sort_unstable();
        for is_descending in [false, true] {
            for (start, len) in [(0, 10), (4_096, 4_096), (5_000, 40_000), (49_999, 9), (50_000, 1)]
            {
                let mut numbers = sorted(&numbers, is_descending);
                let (mut left, mut portions) = (start, 1);
                while numbers.drop_front(&mut left) {
                    portions += 1;
                }
                assert!(portions <= start / PAGE + 2, "{portions} portions");
                numbers.truncate(len);
                let end = 50_000.min(start + len);
                assert!(all(numbers) == expected[start..end], "{start} {len} {is_descending}");
            }
            expected.reverse();
        }
        while lazyfree::run(&Never) {}
    }

    #[test]
    fn pages_are_freed_after_sorting_and_after_reading() {
        let numbers: Vec<i64> = (0..100_000).rev().collect();
        let mut sorter = Numbers::new(false);
        numbers.iter().for_each(|number| sorter.push(*number));
        let mut most = 0;
        while sorter.step() {
            most = most.max(sorter.memory_bytes());
        }
        assert!((1_600_000..1_700_000).contains(&most), "{most}");
        assert!((800_000..850_000).contains(&sorter.memory_bytes()), "{}", sorter.memory_bytes());
        let mut left = 90_000;
        while sorter.drop_front(&mut left) {}
        assert!((80_000..150_000).contains(&sorter.memory_bytes()), "{}", sorter.memory_bytes());
        while lazyfree::run(&Never) {}
    }

    #[test] // Redis compares doubles, and then texts.
    fn integers_are_sorted_by_value_only_if_redis_does_so() {
        let mut near = Vec::new();
        for center in (53..63).map(|bit| 1_i64 << bit).chain([
            10_000_000_000_000_000,
            100_000_000_000_000_000,
            1_000_000_000_000_000_000,
            4_999_999_999_999_999_999,
        ]) {
            near.extend((-1_100..=1_100).map(|by| center + by));
        }
        near.extend([i64::MAX, i64::MAX - 1, i64::MAX - 511, i64::MAX - 512, 0, 1, 10, 9]);
        near.extend(near.clone().iter().map(|number| -number));
        near.push(i64::MIN);
        near.sort_unstable();
        let mut as_redis: Vec<(i64, String)> =
            near.iter().map(|number| (*number, number.to_string())).collect();
        as_redis.sort_by(|(one, text), (other, other_text)| {
            (*one as f64).total_cmp(&(*other as f64)).then_with(|| text.cmp(other_text))
        });
        let kept = |number: &i64| is_ordered(*number);
        let expected: Vec<i64> = as_redis.iter().map(|(number, _)| *number).filter(kept).collect();
        near.retain(kept);
        assert!(near == expected);
        assert!(near.contains(&i64::MAX) && near.contains(&-9_007_199_254_740_992));
        assert!(!is_ordered(i64::MIN) && !is_ordered(-9_007_199_254_740_993));
        assert!(!is_ordered(9_999_999_999_999_999) && !is_ordered(10_000_000_000_000_000));
    }
}
