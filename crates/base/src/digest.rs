//! 127-bit digests of long byte strings, computed in portions. Different strings have different
//! digests.
//!
//! Two names of 200 MB are equal when their lengths, hashes and digests are: comparing their bytes
//! would take longer than a slice. That asks for more than a good hash. The digest reads the bytes
//! as the coefficients of a polynomial and evaluates it at a secret point of the field of 2^127 - 1
//! elements. Two different polynomials of n coefficients agree at n points at most, so without
//! knowing the point, the chance of finding two names of 200 MB with one digest is below 2^-103.
//! (Carter and Wegman: "New hash functions and their use in authentication and set equality",
//! 1981.) The point is set at start from 128 bits of the system's randomness, used for nothing
//! else; the simulator keeps the default. Nothing that depends on a digest is persisted.

use std::sync::atomic::{AtomicU64, Ordering};

/// The upper and lower halves of the point.
static POINT: [AtomicU64; 2] =
    [AtomicU64::new(0x1f83_d9ab_fb41_bd6b), AtomicU64::new(0x5be0_cd19_137e_2179)];

/// Sets the point, from 128 random bits. Call it before the first digest, and never after.
pub fn set_point(halves: [u64; 2]) {
    POINT.iter().zip(halves).for_each(|(place, half)| place.store(half, Ordering::Relaxed));
}

fn point() -> u128 {
    let [high, low] = [0, 1].map(|half: usize| u128::from(POINT[half].load(Ordering::Relaxed)));
    reduce(high << 64 | low)
}

/// Bytes of a coefficient: below the modulus, whatever they are.
const WORD: usize = 15;
/// The modulus: a prime.
const PRIME: u128 = (1 << 127) - 1;

/// The digest of the bytes so far. Lengths are not part of it: compare digests of strings of equal
/// length only.
#[derive(Clone)]
pub struct Digest {
    point: u128,
    sum: u128,
    /// The start of the next coefficient.
    held: [u8; 16],
    held_len: usize,
}

impl Digest {
    /// The digest of no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self { point: point(), sum: 0, held: [0; 16], held_len: 0 }
    }

    /// Adds bytes. Cost: O(bytes).
    pub fn update(&mut self, mut bytes: &[u8]) {
        if self.held_len > 0 {
            let (head, rest) = bytes.split_at(bytes.len().min(WORD - self.held_len));
            self.hold(head);
            bytes = rest;
            if self.held_len == WORD {
                self.take_held();
            }
        }
        let (words, rest) = bytes.as_chunks::<WORD>();
        for word in words {
            let mut wide = [0; 16];
            wide[..WORD].copy_from_slice(word);
            self.add(u128::from_le_bytes(wide));
        }
        self.hold(rest);
    }

    /// The digest.
    #[must_use]
    pub fn finish(mut self) -> u128 {
        self.take_held();
        self.sum
    }

    fn hold(&mut self, bytes: &[u8]) {
        let end = self.held_len + bytes.len();
        self.held[self.held_len..end].copy_from_slice(bytes);
        self.held_len = end;
    }

    fn take_held(&mut self) {
        let word = u128::from_le_bytes(self.held);
        (self.held, self.held_len) = ([0; 16], 0);
        self.add(word);
    }

    #[inline]
    fn add(&mut self, word: u128) {
        self.sum = multiply(reduce(self.sum + word), self.point);
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

/// `wide` modulo [`PRIME`].
#[inline]
fn reduce(wide: u128) -> u128 {
    let once = fold(wide);
    if once >= PRIME { once - PRIME } else { once }
}

/// A number congruent to `wide`, at most one above the modulus: 2^127 counts as 1.
#[inline]
fn fold(wide: u128) -> u128 {
    (wide & PRIME) + (wide >> 127)
}

/// The product of two reduced numbers, reduced.
#[inline]
fn multiply(one: u128, other: u128) -> u128 {
    const LOW_63: u128 = (1 << 63) - 1;
    let (one_low, one_high) = (one & u128::from(u64::MAX), one >> 64);
    let (other_low, other_high) = (other & u128::from(u64::MAX), other >> 64);
    let middle = one_high * other_low + one_low * other_high;
    // 2^128 counts as 2, and the upper bits of `middle` stand for multiples of 2^127.
    let upper = 2 * (one_high * other_high) + (middle >> 63) + ((middle & LOW_63) << 64);
    reduce(fold(upper) + fold(one_low * other_low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    /// The product by doubling and adding.
    fn slow_product(one: u128, other: u128) -> u128 {
        (0..127).rev().fold(0, |sum, bit| {
            let double = reduce(sum + sum);
            if other >> bit & 1 == 1 { reduce(double + one) } else { double }
        })
    }

    #[test] // Also at the edges, where a carry too many would show.
    fn products_are_those_of_the_field() {
        let mut prng = Prng::from_seed(11);
        let edges = [0, 1, 2, u128::from(u64::MAX), 1 << 64, 1 << 126, PRIME - 2, PRIME - 1];
        let mut number = || reduce(u128::from(prng.next_u64()) << 64 | u128::from(prng.next_u64()));
        let numbers: Vec<u128> = edges.into_iter().chain((0..40).map(|_| number())).collect();
        for &one in &numbers {
            for &other in &numbers {
                assert_eq!(multiply(one, other), slow_product(one, other), "{one} * {other}");
            }
        }
    }

    fn of(bytes: &[u8], portion: usize) -> u128 {
        let mut digest = Digest::new();
        bytes.chunks(portion).for_each(|bytes| digest.update(bytes));
        digest.finish()
    }

    #[test] // However they are split, the same bytes have the same digest.
    fn portions_add_up() {
        let bytes = Prng::from_seed(5).bytes(1_000..=1_000);
        for len in [1, 14, 15, 16, 29, 30, 31, 999, 1_000] {
            let whole = of(&bytes[..len], len);
            for portion in [1, 7, 15, 16, 64] {
                assert_eq!(of(&bytes[..len], portion), whole, "{len} bytes by {portion}");
            }
        }
    }

    #[test] // Whichever bit differs, and whichever two words trade places.
    fn different_bytes_have_different_digests() {
        let bytes = Prng::from_seed(6).bytes(90..=90);
        let whole = of(&bytes, 90);
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of(&other, 90), whole, "bit {bit}");
        }
        for word in 1..6 {
            let mut other = bytes.clone();
            let (head, rest) = other.split_at_mut(word * WORD);
            head[..WORD].swap_with_slice(&mut rest[..WORD]);
            assert_ne!(of(&other, 90), whole, "words 0 and {word}");
        }
    }
}
