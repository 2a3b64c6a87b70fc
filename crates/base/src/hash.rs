//! The 64-bit hash of keys, fields and members.
//!
//! All tables use one seeded function, so that a hash computed once serves the lock table, the
//! keyspace and the routing to another core alike. The seed is set once at start from the system's
//! randomness, so a client cannot aim at one bucket. The simulator keeps the default or sets its
//! own, so that runs repeat.

use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

static SEED: AtomicU64 = AtomicU64::new(0x5bd1_e995_9e37_79b9);

/// Sets the seed. Call it before the first table exists, and never after.
pub fn set_seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

fn seed() -> u64 {
    SEED.load(Ordering::Relaxed)
}

/// The hash of `bytes`: XXH3, seeded. Cost: a few nanoseconds below 64 bytes.
#[inline]
#[must_use]
pub fn of(bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, seed())
}

/// [`of`] for bytes that arrive in portions.
#[derive(Clone)]
pub struct HashPortions(xxhash_rust::xxh3::Xxh3);

impl HashPortions {
    /// The hash of no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self(xxhash_rust::xxh3::Xxh3::with_seed(seed()))
    }

    /// Adds bytes. Cost: O(bytes).
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

impl Default for HashPortions {
    fn default() -> Self {
        Self::new()
    }
}

/// The unseeded XXH3 of `bytes`, as the command DIGEST shows it.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// [`digest`] for bytes that arrive in portions.
#[derive(Clone, Default)]
pub struct XxhDigest(xxhash_rust::xxh3::Xxh3Default);

impl XxhDigest {
    /// Adds bytes. Cost: O(bytes).
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

/// The unseeded 128-bit XXH3 of bytes that arrive in portions. Filters store this hash of each
/// item, so it is part of their file format.
#[derive(Clone, Default)]
pub struct Wide(xxhash_rust::xxh3::Xxh3Default);

impl Wide {
    /// The hash of bytes in one piece.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u128 {
        xxhash_rust::xxh3::xxh3_128(bytes)
    }

    /// Adds bytes. Cost: O(bytes).
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> u128 {
        self.0.digest128()
    }
}

/// A hasher for keys that are already hashes, or dense numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity(u64);

impl std::hash::Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = of(bytes);
    }

    fn write_u64(&mut self, value: u64) {
        // Multiplied, so that dense numbers differ in their high bits too.
        self.0 = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A map keyed by a hash or a dense number.
pub type IdentityMap<V> =
    std::collections::HashMap<u64, V, std::hash::BuildHasherDefault<Identity>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_portions_have_the_same_hash() {
        let bytes = crate::Prng::from_seed(3).bytes(10_000..=10_000);
        for len in [0, 1, 16, 240, 241, 1_024, 9_999, 10_000] {
            for portion in [1, 63, 64, 1_000, 10_000] {
                let mut portions = HashPortions::new();
                bytes[..len].chunks(portion).for_each(|bytes| portions.update(bytes));
                assert_eq!(portions.finish(), of(&bytes[..len]), "{len} bytes by {portion}");
                let mut wide = Wide::default();
                bytes[..len].chunks(portion).for_each(|bytes| wide.update(bytes));
                assert_eq!(wide.finish(), Wide::of(&bytes[..len]), "{len} bytes by {portion}");
            }
        }
    }
}
