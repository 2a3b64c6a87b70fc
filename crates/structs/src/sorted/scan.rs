//! Iterating with a cursor while the set changes between calls.
//!
//! A rank cannot be a cursor: an entry whose score changes moves, and might never be returned. A
//! member's hash does not change, so a scan goes through the index in the order of hashes. The
//! index gives scores; the scan returns the entries with these scores whose hashes are between the
//! two cursors.
//!
//! So all entries with equal scores are visited. The entries found by a call, and its position
//! among them, are stored in a [`Scan`]: however many they are, its steps are short.

use super::big::{Big, hash_of};
use super::index::Hash;
use super::place::{Place, SortedEntry};
use super::{Root, Sorted};
use std::collections::BTreeMap;
use std::ops::Range;

/// The most entries that a scan visits for each that it returns. If there are very many entries per
/// score, it returns more than requested.
const LOOKS_AN_ENTRY: usize = 100;
/// The work of one step, in visited entries.
const STEP: usize = 1_024;
/// The cost of other work, in visited entries: an index item, a score found in the tree of entries,
/// a returned entry.
const ITEM: usize = 4;
const SCORE: usize = 32;
const RETURNED: usize = 16;

/// The entries between two cursors, found in steps.
///
/// A client that starts with cursor 0, continues with [`Scan::cursor`], and ends when that is 0,
/// gets every entry that existed throughout at least once, whatever else was changed.
pub struct Scan {
    start: Hash,
    /// The first hash after the wanted range, if there is one.
    end: Option<Hash>,
    /// The number of requested index items, and of those found.
    most: usize,
    items: usize,
    /// The rank of the first item, once found, and the hash of the last one.
    first: Option<usize>,
    last: Hash,
    /// All items are found.
    is_complete: bool,
    /// The ranks of entries with these scores that are still to be visited, and their initial
    /// number.
    ties: BTreeMap<i64, Range<usize>>,
    looks: usize,
}

impl Scan {
    /// Starts at a cursor. `most` is only a target: small sets are returned whole, and of a set
    /// with very many equal scores, up to a hundredth at once.
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

    /// Calls `f` with the next entries of `set`, which must be the same in all steps. Returns true
    /// while some are left. Cost: a portion, besides `f`; a small set is read at once.
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

    /// The cursor for the next call, once nothing is left; 0 at the end.
    #[must_use]
    pub fn cursor(&self) -> u64 {
        debug_assert!(self.end.is_none_or(|end| end > self.start), "a scan goes on");
        self.end.map_or(0, |end| u64::from(end.0))
    }

    /// Finds the next items in the index (those with equal hashes together) and the ranks of
    /// entries with their scores.
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

/// A number in the order of scores, equal for equal scores.
pub(super) fn ordered(score: f64) -> i64 {
    let bits = (score + 0.0).to_bits().cast_signed(); // -0 becomes 0.
    if bits < 0 { bits ^ i64::MAX } else { bits }
}

impl Sorted {
    /// The ranks of the entries with this score.
    fn ties(&self, score: f64) -> Range<usize> {
        self.rank_of(Place::BeforeScore(score))..self.rank_of(Place::AfterScore(score))
    }
}
