//! The hash of an item, and the places that it leads to.
//!
//! All other hashes are made from two. Adding one to the other again and again would not do: within
//! a block of 32 640 bits there are too few such sequences, so that different items would share
//! one. So each place mixes all 128 bits anew.

use darter_base::hash::Wide;

/// The digest of an item: equal for equal items, on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    high: u64,
    low: u64,
}

/// The probe of an item that is hashed in portions.
#[derive(Clone, Default)]
pub struct Hashing(Wide);

impl Hashing {
    /// Adds bytes. Cost: O(bytes).
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The probe of all bytes added so far.
    #[must_use]
    pub fn finish(&self) -> Probe {
        Probe::from(self.0.finish())
    }
}

impl From<u128> for Probe {
    fn from(hash: u128) -> Self {
        Self { high: (hash >> 64) as u64, low: hash as u64 }
    }
}

impl Probe {
    /// The probe of an item in one piece.
    #[must_use]
    pub fn of(item: &[u8]) -> Self {
        Self::from(Wide::of(item))
    }

    /// Returns 64 bits of the hash.
    pub(super) fn word(self) -> u64 {
        self.low
    }

    /// Returns an odd number for each byte.
    pub(super) fn spread(byte: u8) -> u64 {
        mix(u64::from(byte)) | 1
    }

    /// A number below `bound` for each index. The numbers are independent of each other.
    #[inline]
    pub(super) fn number(self, index: u64, bound: u64) -> u64 {
        scale(mix(self.high.wrapping_add(index.wrapping_mul(self.low | 1))), bound)
    }
}

/// Spreads every bit over all others. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators" (2014), its last step.
#[inline]
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Maps a random word to a number below `bound`.
#[inline]
fn scale(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Files depend on them.
    fn places_of_items_never_change() {
        let probe = Probe::of(b"item");
        let numbers: Vec<u64> = (0..4).map(|index| probe.number(index, 1_000_000)).collect();
        assert_eq!(numbers, PLACES);
        let mut hashing = Hashing::default();
        b"item".iter().for_each(|byte| hashing.update(&[*byte]));
        assert_eq!(hashing.finish(), probe);
    }

    const PLACES: [u64; 4] = [770_823, 121_429, 206_862, 94_003];
}
