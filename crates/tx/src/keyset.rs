//! A set of very many keys that is built, grown and freed without a long step.
//!
//! A single hash table of a million keys moves as a whole whenever it grows, which takes
//! milliseconds. So the keys are in parts, each a small table: a step of growth moves one part, and
//! parts are freed one by one.
//!
//! Invariants:
//! - I1: the number of parts is a power of two, and never changes.
//! - I2: a key is in the part that a mix of its bits selects.

use darter_base::lazyfree;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;

type KeySetPart = HashSet<u64, BuildHasherDefault<darter_base::hash::Identity>>;

/// Expected keys in a part.
const KEYS_PER_PART: usize = 256;
/// The table of parts is zeroed in one step: 128 KiB.
const PARTS_MAX: usize = 4_096;
/// Parts freed in one step.
const PARTS_FREED_AT_ONCE: usize = 32;

const _: () = assert!(PARTS_MAX.is_power_of_two()); // So the maximum is never exceeded.

/// Keys by their [`lock_key`](crate::lock_key), or other well-mixed numbers.
#[derive(Clone, Debug)]
pub struct KeySet {
    parts: Vec<KeySetPart>,
    len: usize,
}

impl KeySet {
    /// An empty set with parts for about `count` keys. It can hold more, at a growing cost per
    /// step.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        let parts = (count / KEYS_PER_PART).clamp(1, PARTS_MAX).next_power_of_two();
        Self { parts: (0..parts).map(|_| KeySetPart::default()).collect(), len: 0 }
    }

    /// Adds a key. Returns false if it was in the set already.
    pub fn insert(&mut self, key: u64) -> bool {
        let at = self.part_of(key);
        let is_new = self.parts[at].insert(key);
        self.len += usize::from(is_new);
        is_new
    }

    /// True if the key is in the set.
    #[must_use]
    pub fn contains(&self, key: u64) -> bool {
        self.parts[self.part_of(key)].contains(&key)
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All keys, in no order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.parts.iter().flatten().copied()
    }

    /// Asserts I2, and that each key is counted. I1 is asserted by every lookup. Cost: O(keys).
    #[cfg(test)]
    fn check_invariants(&self) {
        for (at, part) in self.parts.iter().enumerate() {
            assert!(part.iter().all(|key| self.part_of(*key) == at), "I2: part {at}");
        }
        assert_eq!(self.len, self.parts.iter().map(KeySetPart::len).sum::<usize>());
    }

    fn part_of(&self, key: u64) -> usize {
        debug_assert!(self.parts.len().is_power_of_two(), "I1: {} parts", self.parts.len());
        /// 2^64 divided by the golden ratio: mixes the bits, because a part's own table uses the
        /// lowest and highest bits unmixed.
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (key.wrapping_mul(MIX) >> 40) as usize;
        mixed & (self.parts.len() - 1) // I1.
    }
}

impl Drop for KeySet {
    fn drop(&mut self) {
        // The parts are even (I2).
        let part = self.parts.last().map_or(0, |part| part.capacity() * size_of::<u64>());
        let part_bytes = part + size_of::<KeySetPart>();
        lazyfree::defer_long(std::mem::take(&mut self.parts), PARTS_FREED_AT_ONCE, part_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Countdown;

    #[test] // Whatever the estimate of their number.
    fn inserted_keys_are_stored_once_in_even_parts() {
        for guess in [0, 1, 100_000, 10_000_000] {
            let mut set = KeySet::with_capacity(guess);
            for key in 0..100_000_u64 {
                assert!(set.insert(key * 3));
                assert!(key % 7 > 0 || !set.insert(key * 3), "a key is in once");
            }
            assert_eq!(set.len(), 100_000);
            assert!((0..300_000).all(|key| set.contains(key) == (key % 3 == 0)));
            let mut keys: Vec<u64> = set.iter().collect();
            keys.sort_unstable();
            assert!(keys.iter().copied().eq((0..100_000).map(|key| key * 3)));
            let most = set.parts.iter().map(KeySetPart::len).max().unwrap_or(0);
            assert!(most <= 4 * (100_000 / set.parts.len()).max(25), "{most} of guess {guess}");
            set.check_invariants();
        }
    }

    #[test] // 32 parts at a time; a small set at once.
    fn a_large_key_set_is_freed_in_portions() {
        for (guess, expected) in [(0, 0), (256 * 32, 0), (256 * 64, 2), (100_000, 16)] {
            let mut set = KeySet::with_capacity(guess);
            assert!((0..guess.max(1) as u64).all(|key| set.insert(key)));
            drop(set);
            let (_, bytes) = lazyfree::waiting();
            let least = if expected == 0 { 0 } else { guess * size_of::<u64>() / 2 };
            assert!((least..=8 * least).contains(&bytes), "{bytes} bytes for {guess} keys");
            let mut portions = 0;
            while !lazyfree::is_empty() {
                lazyfree::run(&Countdown::new(0));
                portions += 1;
            }
            assert_eq!(portions, expected, "{guess}");
        }
    }
}
