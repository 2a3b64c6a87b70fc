//! Iterating with a cursor, while the set changes between the calls.
//!
//! A rank is no cursor: an entry whose score changes moves, and may never be met. A member's hash does
//! not change, so a scan goes through the index in the order of hashes. What it finds there are scores;
//! the entries are those of these scores whose hashes lie between the cursor and the next.

use super::index::Hash;
use super::place::{Entry, Place};
use super::{Root, Sorted};

/// Of entries with equal scores all are looked at: so many of them for one that is returned, at most.
const LOOKS_AN_ENTRY: usize = 100;

impl Sorted {
    /// Calls `f` with some entries, and returns the cursor for the next ones: 0 after the last. Who
    /// begins with 0 and ends with 0 has met every entry that was there all the time at least once,
    /// whatever was changed meanwhile. `most` is a wish: small sets are returned whole, and of a set
    /// with very many equal scores up to a hundredth at once.
    pub fn scan(&self, cursor: u64, most: usize, f: &mut dyn FnMut(Entry<'_>)) -> u64 {
        let Root::Trees(big) = &self.0 else {
            self.range(0..self.len()).for_each(f);
            return 0;
        };
        let start = Hash(u32::try_from(cursor).unwrap_or(u32::MAX));
        let (mut scores, mut end) = self.scores_from(start, most);
        let looks: usize = scores.iter().map(|score| self.ties(*score).len()).sum();
        if looks / LOOKS_AN_ENTRY > scores.len().max(most) {
            (scores, end) = self.scores_from(start, looks / LOOKS_AN_ENTRY);
        }
        for score in scores {
            for entry in self.range(self.ties(score)) {
                let hash = Hash::of(super::big::hash_of(&entry));
                if hash >= start && end.is_none_or(|end| hash < end) {
                    f(entry);
                }
            }
        }
        debug_assert!(end.is_none_or(|end| end > start), "a scan goes on");
        debug_assert!(big.index().len() >= self.len(), "B1");
        end.map_or(0, |end| u64::from(end.0))
    }

    /// The different scores of the next `most` items of the index, those of equal hashes together, and
    /// the hash of the next one.
    fn scores_from(&self, start: Hash, most: usize) -> (Vec<f64>, Option<Hash>) {
        let Root::Trees(big) = &self.0 else { return (Vec::new(), None) };
        let index = big.index();
        let (mut scores, mut last) = (Vec::new(), start);
        let mut next = None;
        for (hash, score) in index.iter(index.rank_of(start)) {
            if scores.len() >= most.max(1) && hash != last {
                next = Some(hash);
                break;
            }
            scores.push(score);
            last = hash;
        }
        scores.sort_unstable_by(f64::total_cmp);
        scores.dedup();
        (scores, next)
    }

    /// The ranks of the entries with this score.
    fn ties(&self, score: f64) -> std::ops::Range<usize> {
        self.rank_of(Place::BeforeScore(score))..self.rank_of(Place::AfterScore(score))
    }
}
