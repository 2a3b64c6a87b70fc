//! Iterating with a cursor, while the set changes between the calls.
//!
//! A rank is no cursor: an entry whose score changes moves, and may never be met. A member's hash
//! does not change, so a scan goes through the index in the order of hashes. It finds scores there;
//! the entries are those of these scores whose hashes lie between the cursor and the next.
//!
//! So of entries with equal scores all are looked at. The entries found by a call, and its place
//! among them, are kept in a [`Scan`]: however many they are, its steps are short.

use super::big::{Big, hash_of};
use super::index::Hash;
use super::place::{Place, SortedEntry};
use super::{Root, Sorted};
use std::collections::BTreeMap;
use std::ops::Range;

/// A scan looks at most at so many entries for one that it returns: where there are very many with
/// each score, it returns more than it was asked for.
const LOOKS_AN_ENTRY: usize = 100;
/// The work of one step, in looks at an entry.
const STEP: usize = 1_024;
/// The cost of other work, in looks: an item of the index, a score found in the tree of entries, an
/// entry that is returned.
const ITEM: usize = 4;
const SCORE: usize = 32;
const RETURNED: usize = 16;

/// The entries between two cursors, which are found in steps.
///
/// A client that begins with the cursor 0, continues with [`Scan::cursor`], and ends when that is
/// 0, has met every entry that was there throughout at least once, whatever other changes were
/// made.
pub struct Scan {
    start: Hash,
    /// The first hash that is not wanted, if there is one.
    end: Option<Hash>,
    /// Items of the index that are asked for, and that were found.
    most: usize,
    items: usize,
    /// Rank of the first item, once it is found; hash of the last one.
    first: Option<usize>,
    last: Hash,
    /// All items are found.
    is_complete: bool,
    /// The ranks of entries with these scores that are still to be looked at, and how many there were.
    ties: BTreeMap<i64, Range<usize>>,
    looks: usize,
}

impl Scan {
    /// Begins at a cursor. `most` is a wish: small sets are returned whole, and of a set with very many
    /// equal scores up to a hundredth at once.
    #[must_use]
    pub fn new(cursor: u64, most: usize) -> Self {
        let start = Hash(u32::try_from(cursor).unwrap_or(u32::MAX));
        Self {
            start,
            end: None,
            most: most.max(1),
            items: 0,
            first: None,
            last: start,
            is_complete: false,
            ties: BTreeMap::new(),
            looks: 0,
        }
    }

    /// Calls `f` with the next entries of `set`, which is the same in all steps. True while some
    /// are left. Cost: a portion, besides `f`; of a small set all at once.
    pub fn step(&mut self, set: &Sorted, f: &mut dyn FnMut(SortedEntry<'_>)) -> bool {
        let Root::Trees(big) = &set.0 else {
            set.range(0..set.len()).for_each(f);
            return false;
        };
        let mut budget = STEP;
        if !self.is_complete {
            self.find(set, big, &mut budget);
        }
        while self.is_complete && budget > 0 {
            let Some(mut first) = self.ties.first_entry() else { return false };
            let ranks = first.get_mut();
            let now = ranks.start..ranks.end.min(ranks.start + budget);
            budget = budget.saturating_sub(now.len() + ITEM);
            ranks.start = now.end;
            if ranks.start == ranks.end {
                first.remove();
            }
            for entry in set.range(now) {
                let hash = Hash::of(hash_of(&entry));
                if hash >= self.start && self.end.is_none_or(|end| hash < end) {
                    f(entry);
                    budget = budget.saturating_sub(RETURNED);
                }
            }
        }
        !self.is_complete || !self.ties.is_empty()
    }

    /// The cursor of the next call, once there is nothing left: 0 at the end.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        debug_assert!(self.end.is_none_or(|end| end > self.start), "a scan goes on");
        self.end.map_or(0, |end| u64::from(end.0))
    }

    /// Finds the next items in the index, those of equal hashes together, and the entries with their
    /// scores.
    fn find(&mut self, set: &Sorted, big: &Big, budget: &mut usize) {
        let index = big.index();
        debug_assert!(index.len() >= set.len(), "B1");
        let first = *self.first.get_or_insert_with(|| index.rank_of(self.start));
        for (hash, score) in index.iter(first + self.items) {
            let is_enough = self.items >= self.most && self.looks <= self.items * LOOKS_AN_ENTRY;
            if is_enough && hash != self.last {
                (self.end, self.is_complete) = (Some(hash), true);
                return;
            }
            if *budget == 0 {
                return;
            }
            *budget = budget.saturating_sub(ITEM);
            (self.items, self.last) = (self.items + 1, hash);
            let looks = &mut self.looks;
            self.ties.entry(ordered(score)).or_insert_with(|| {
                let ranks = set.ties(score);
                *looks += ranks.len();
                *budget = budget.saturating_sub(SCORE);
                ranks
            });
        }
        self.is_complete = true;
    }
}

/// A number in the order of scores, the same for equal ones.
pub(super) fn ordered(score: f64) -> i64 {
    let bits = (score + 0.0).to_bits().cast_signed(); // There is one zero.
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

impl Sorted {
    /// The ranks of the entries with this score.
    fn ties(&self, score: f64) -> Range<usize> {
        self.rank_of(Place::BeforeScore(score))..self.rank_of(Place::AfterScore(score))
    }
}
