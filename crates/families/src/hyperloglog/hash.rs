//! Maps an element to its register and its rank.
//!
//! Source: Austin Appleby's MurmurHash2 for 64-bit platforms (`MurmurHash64A`, public domain), with
//! Redis's seed. The lowest 14 bits select the register; the rank is the number of zeros below the
//! lowest 1 in the rest, plus one.

use super::format::REGISTERS;

const SEED: u64 = 0xadc8_3b19;
const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;
/// Bits that select the register.
const INDEX_BITS: u32 = REGISTERS.trailing_zeros();
/// The highest rank.
pub(super) const RANK_MAX: u8 = 64 - 14 + 1;

const _: () = assert!(RANK_MAX as u32 == u64::BITS - INDEX_BITS + 1);

/// A register, and the minimum rank that an element gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) register: usize,
    pub(super) rank: u8,
}

impl Place {
    /// The register and rank of a short element.
    pub(super) fn of(element: &[u8]) -> Self {
        let mut hash = Portions::new(element.len());
        hash.add(element);
        hash.finish()
    }

    fn of_hash(hash: u64) -> Self {
        let rest = hash >> INDEX_BITS | 1 << (u64::BITS - INDEX_BITS);
        let rank = u8::try_from(rest.trailing_zeros() + 1).unwrap_or(RANK_MAX);
        Self { register: hash as usize % REGISTERS, rank }
    }
}

/// The hash of an element that arrives in portions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portions(u64);

impl Portions {
    /// Starts the hash of an element of `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        Self(SEED ^ (len as u64).wrapping_mul(FACTOR))
    }

    /// Adds bytes. The length of all portions but the last must be a multiple of 8. Cost: O(bytes).
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
            let word = (word ^ word >> SHIFT).wrapping_mul(FACTOR);
            self.0 = (self.0 ^ word).wrapping_mul(FACTOR);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.0 = (self.0 ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR);
        }
    }

    /// The register and rank of the element.
    pub(super) fn finish(self) -> Place {
        let hash = (self.0 ^ self.0 >> SHIFT).wrapping_mul(FACTOR);
        Place::of_hash(hash ^ hash >> SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::limits::CHUNK_BYTES;

    #[test]
    fn elements_in_portions_have_the_same_hash() {
        let bytes = darter_base::Prng::from_seed(3).bytes(3 * CHUNK_BYTES..=3 * CHUNK_BYTES);
        for len in [0, 1, 7, 8, 9, CHUNK_BYTES, CHUNK_BYTES + 5, bytes.len()] {
            let mut portions = Portions::new(len);
            bytes[..len].chunks(CHUNK_BYTES).for_each(|portion| portions.add(portion));
            assert_eq!(portions.finish(), Place::of(&bytes[..len]), "{len}");
        }
    }

    #[test]
    fn a_hash_of_zeros_gives_the_highest_rank() {
        assert_eq!(Place::of_hash(0), Place { register: 0, rank: RANK_MAX });
        assert_eq!(Place::of_hash(u64::MAX), Place { register: REGISTERS - 1, rank: 1 });
    }
}
