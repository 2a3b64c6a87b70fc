//! Buckets: entries gathered by their hashes, to be sorted bucket by bucket. See `bulk`.
//!
//! All buckets of a builder fill alike. If each were one vector, all would move to a larger block
//! within a few thousand entries of each other: a millisecond for a portion of 128. So each is a list
//! of blocks, none of which ever moves.

use std::mem::take;

/// Entries that a bucket has, about.
pub(super) const BUCKET: usize = 512;
/// Entries of a block: 1.5 KiB.
const BLOCK: usize = 64;
/// The most entries of a bucket that are sorted in one step, and as many are parted in one: some 30 us.
const SORTED_MAX: usize = 1_024;
/// Parts of a bucket that is too large, at most.
const PARTS_MAX: usize = 64;

/// An entry in its bucket.
#[derive(Clone, Copy)]
pub(super) struct Hashed {
    pub(super) hash: u64,
    pub(super) score: f64,
    /// Which it was.
    pub(super) number: u64,
}

/// Entries in blocks, all but the last of which are full.
#[derive(Default)]
pub(super) struct Blocks(Vec<Vec<Hashed>>);

impl Blocks {
    pub(super) fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * BLOCK + last.len())
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Hashed) {
        match self.0.last_mut().filter(|last| last.len() < BLOCK) {
            Some(last) => last.push(entry),
            None => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(entry);
                self.0.push(block);
            }
        }
    }

    /// All of them in a row, sorted.
    fn sorted(self) -> Vec<Hashed> {
        let mut all = Vec::with_capacity(self.len());
        self.0.iter().for_each(|block| all.extend_from_slice(block));
        all.sort_unstable_by_key(|one| (one.hash, one.number));
        all
    }

    /// Frees a block. False when there is none.
    pub(super) fn free_one(&mut self) -> bool {
        self.0.pop().is_some()
    }
}

/// A bucket, and the bits of the hashes that tell its entries apart.
pub(super) struct Bucket {
    entries: Blocks,
    bits: u32,
}

/// What becomes of a bucket that is opened.
pub(super) enum Opened {
    Sorted(Vec<Hashed>),
    Parting(Parting),
}

impl Bucket {
    pub(super) fn new(entries: Blocks, bits: u32) -> Self {
        Self { entries, bits }
    }

    /// Sorts its entries, unless they are too many: then it is to be parted.
    pub(super) fn open(self) -> Opened {
        if self.entries.len() > SORTED_MAX && self.bits > 0 {
            Opened::Parting(Parting::of(self))
        } else {
            Opened::Sorted(self.entries.sorted())
        }
    }

    /// Its blocks, to be freed.
    pub(super) fn into_blocks(self) -> Blocks {
        self.entries
    }
}

/// A bucket that is being parted, and its parts.
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

    /// Bits of the hashes that tell the entries of a part apart.
    fn bits(&self) -> u32 {
        self.bucket.bits - self.parts.len().ilog2()
    }

    /// Moves some entries to their parts. True while some are left.
    pub(super) fn step(&mut self) -> bool {
        let bits = self.bits();
        for _ in 0..SORTED_MAX / BLOCK {
            let Some(block) = self.bucket.entries.0.pop() else { return false };
            for one in block {
                let part = one.hash.checked_shr(bits).unwrap_or(0) as usize % self.parts.len();
                self.parts[part].push(one);
            }
        }
        true
    }

    /// The parts, the last first.
    pub(super) fn finish(mut self) -> impl Iterator<Item = Bucket> {
        let bits = self.bits();
        take(&mut self.parts).into_iter().rev().map(move |part| Bucket::new(part, bits))
    }

    /// All blocks, to be freed.
    pub(super) fn into_blocks(self) -> impl Iterator<Item = Blocks> {
        self.parts.into_iter().chain([self.bucket.entries])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // However many they become, none is moved: that of one bucket may be that of all.
    fn entries_stay_where_they_are() {
        let mut blocks = Blocks::default();
        let mut places = Vec::new();
        for number in 0..5_000 {
            blocks.push(Hashed { hash: number % 7, score: 0.5, number });
            let last = blocks.0.last().and_then(|block| block.last());
            places.push(std::ptr::from_ref(last.expect("just pushed")));
        }
        assert_eq!(blocks.len(), 5_000);
        assert!(blocks.0.iter().flatten().map(std::ptr::from_ref).eq(places));
        let sorted = blocks.sorted();
        assert!(sorted.is_sorted_by_key(|one| (one.hash, one.number)) && sorted.len() == 5_000);
    }
}
