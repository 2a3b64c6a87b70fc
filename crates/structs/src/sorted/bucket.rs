//! Buckets: entries collected by their hashes, and sorted bucket by bucket. See `bulk`.
//!
//! All buckets of a builder fill evenly. If each were one vector, all would move to larger blocks
//! within a few thousand entries of each other: a millisecond for a portion of 128. So each bucket
//! is a list of blocks, which never move.
//!
//! A builder has few buckets, so that the ends of all of them stay in the nearest caches, and
//! adding an entry causes no cache miss. If a bucket has more entries than one step can sort, it is
//! first split into parts.

use std::mem::{replace, take};

/// Approximate number of entries in a bucket.
pub(super) const BUCKET: usize = 512;
/// Entries in a bucket's first block (1.5 KiB). Each further block has twice as many, up to
/// `BLOCK_MAX`.
const BLOCK_MIN: usize = 64;
const BLOCK_MAX: usize = 1_024;
/// The most entries of a bucket that are sorted in one step. A step that splits a bucket moves
/// twice as many.
const SORTED_MAX: usize = 1_024;
/// The most parts that a large bucket is split into.
const PARTS_MAX: usize = 64;

/// An entry in its bucket.
#[derive(Clone, Copy)]
pub(super) struct Hashed {
    pub(super) hash: u64,
    pub(super) score: f64,
    /// The number of the entry in order of arrival.
    pub(super) number: u64,
}

/// Entries in blocks.
#[derive(Default)]
pub(super) struct Blocks {
    full: Vec<Vec<Hashed>>,
    /// The number of entries in the full blocks.
    full_len: usize,
    /// The last block.
    open: Vec<Hashed>,
}

impl Blocks {
    pub(super) fn len(&self) -> usize {
        self.full_len + self.open.len()
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Hashed) {
        if self.open.len() == self.open.capacity() {
            self.begin();
        }
        self.open.push(entry);
    }

    /// Begins a block.
    #[cold]
    fn begin(&mut self) {
        let len = (2 * self.open.len()).clamp(BLOCK_MIN, BLOCK_MAX);
        let full = replace(&mut self.open, Vec::with_capacity(len));
        if !full.is_empty() {
            self.full_len += full.len();
            self.full.push(full);
        }
    }

    /// Takes out the last block. `None` if there is none.
    fn pop(&mut self) -> Option<Vec<Hashed>> {
        if self.open.capacity() > 0 {
            return Some(take(&mut self.open));
        }
        let block = self.full.pop()?;
        self.full_len -= block.len();
        Some(block)
    }

    /// All entries in one vector, sorted.
    fn sorted(self) -> Vec<Hashed> {
        let mut all = Vec::with_capacity(self.len());
        self.full.iter().chain([&self.open]).for_each(|block| all.extend_from_slice(block));
        all.sort_unstable_by_key(|one| (one.hash, one.number));
        all
    }

    /// Frees a block. Returns false if there is none.
    pub(super) fn free_one(&mut self) -> bool {
        self.pop().is_some()
    }
}

/// A bucket, and the bits of the hashes that distinguish its entries.
pub(super) struct Bucket {
    entries: Blocks,
    bits: u32,
}

/// A bucket that has been opened.
pub(super) enum Opened {
    Sorted(Vec<Hashed>),
    Parting(Parting),
}

impl Bucket {
    pub(super) fn new(entries: Blocks, bits: u32) -> Self {
        Self { entries, bits }
    }

    /// Sorts the entries, unless they are too many and must first be split.
    pub(super) fn open(self) -> Opened {
        if self.entries.len() > SORTED_MAX && self.bits > 0 {
            Opened::Parting(Parting::of(self))
        } else {
            Opened::Sorted(self.entries.sorted())
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The blocks, for freeing.
    pub(super) fn into_blocks(self) -> Blocks {
        self.entries
    }
}

/// A bucket being split, and its parts.
pub(super) struct Parting {
    bucket: Bucket,
    parts: Vec<Blocks>,
}

impl Parting {
    fn of(bucket: Bucket) -> Self {
        assert!((1..64).contains(&bucket.bits), "{} bits tell its entries apart", bucket.bits);
        let wanted = (bucket.entries.len() / BUCKET).next_power_of_two().clamp(2, PARTS_MAX);
        let parts = wanted.min(1 << bucket.bits.min(PARTS_MAX.ilog2()));
        Self { bucket, parts: (0..parts).map(|_| Blocks::default()).collect() }
    }

    /// The number of hash bits that distinguish the entries of a part.
    fn bits(&self) -> u32 {
        self.bucket.bits - self.parts.len().ilog2()
    }

    /// Moves some entries to their parts. Returns true while some are left.
    pub(super) fn step(&mut self) -> bool {
        let (bits, mut moved) = (self.bits(), 0);
        while moved < SORTED_MAX {
            let Some(block) = self.bucket.entries.pop() else { return false };
            moved += block.len();
            for one in block {
                let part = one.hash.checked_shr(bits).unwrap_or(0) as usize % self.parts.len();
                self.parts[part].push(one);
            }
        }
        true
    }

    /// The average number of entries in a part.
    pub(super) fn mean(&self) -> usize {
        self.parts.iter().map(Blocks::len).sum::<usize>() / self.parts.len()
    }

    /// The parts, the last first.
    pub(super) fn finish(mut self) -> impl Iterator<Item = Bucket> {
        let bits = self.bits();
        take(&mut self.parts).into_iter().rev().map(move |part| Bucket::new(part, bits))
    }

    /// All blocks, for freeing.
    pub(super) fn into_blocks(self) -> impl Iterator<Item = Blocks> {
        self.parts.into_iter().chain([self.bucket.entries])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Even if one bucket has all members.
    fn growing_a_bucket_never_moves_its_members() {
        let mut blocks = Blocks::default();
        let mut places = Vec::new();
        for number in 0..5_000 {
            blocks.push(Hashed { hash: number % 7, score: 0.5, number });
            places.push(std::ptr::from_ref(blocks.open.last().expect("just pushed")));
        }
        assert_eq!(blocks.len(), 5_000);
        let all = blocks.full.iter().chain([&blocks.open]).flatten();
        assert!(all.map(std::ptr::from_ref).eq(places));
        let sorted = blocks.sorted();
        assert!(sorted.is_sorted_by_key(|one| (one.hash, one.number)) && sorted.len() == 5_000);
    }
}
