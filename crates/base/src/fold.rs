//! Folding the bytes of a CRC-64: carry-less multiplication, 64 bytes a step.
//!
//! A table-driven checksum takes 16 bytes a step and occupies 16 cache lines. But a checksum is the
//! remainder of a polynomial division: bytes that lie n bits before the end may be multiplied by
//! x^n, modulo the polynomial, and added at the end instead. So each step folds 64 bytes into the
//! next 64, in four independent lanes. The last 16 bytes then have the same checksum as the whole
//! input.
//!
//! ```text
//! | 16 | 16 | 16 | 16 |  16 |  16 |  16 |  16 |  ...  | 16 | 16 | 16 | 16 | tail
//!    *x^512 ------------^                                *x^128 -----------^
//! ```
//! Source: Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction"
//! (Intel, 2009), for reflected bits.
//!
//! Not here: the checksum of the 16 bytes and of the tail. See `rdb::crc64`.

/// Bytes folded in one step.
const STEP: usize = 64;
/// Shorter inputs are not folded.
const MIN: usize = 4 * STEP;

/// The polynomial of RDB files (Jones's), the bit of the highest power lowest.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

/// x^n modulo the polynomial.
const fn power(n: u32) -> u64 {
    let (mut value, mut left) = (1 << 63, n);
    while left > 0 {
        value = (value >> 1) ^ (POLYNOMIAL * (value & 1));
        left -= 1;
    }
    value
}

/// The two factors that move the halves of 16 bytes forward by `bits`. The product of two reflected
/// numbers is one power too high, so each factor is one power lower.
const fn factors(bits: u32) -> [u64; 2] {
    [power(bits + 63), power(bits - 1)]
}

/// Folds `bytes` into 16 bytes, and returns them with the unfolded tail. Their checksum, started at
/// 0, equals that of `bytes` started at `sum`. `None` if the input is too short or the processor
/// lacks the instruction.
#[must_use]
pub fn fold(sum: u64, bytes: &[u8]) -> Option<([u8; 16], &[u8])> {
    if bytes.len() < MIN {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has the instruction.
        return Some(unsafe { wide::fold(sum, bytes) });
    }
    None
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::{STEP, factors};
    use std::arch::x86_64::{
        __m128i, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_set_epi64x, _mm_setzero_si128,
        _mm_unpackhi_epi64, _mm_xor_si128,
    };

    const FAR: [u64; 2] = factors(8 * STEP as u32);
    const NEAR: [u64; 2] = factors(128);

    /// [`super::fold`] for at least one step of bytes.
    #[target_feature(enable = "pclmulqdq")]
    pub(super) fn fold(sum: u64, bytes: &[u8]) -> ([u8; 16], &[u8]) {
        let (steps, rest) = bytes.as_chunks::<STEP>();
        let (first, steps) = steps.split_first().expect("one step at least");
        let mut lanes = load(first);
        lanes[0] = _mm_xor_si128(lanes[0], _mm_set_epi64x(0, sum.cast_signed()));
        let far = pair(FAR);
        for step in steps {
            let next = load(step);
            for (lane, next) in lanes.iter_mut().zip(next) {
                *lane = add(*lane, far, next);
            }
        }
        let [mut all, others @ ..] = lanes;
        for next in others {
            all = add(all, pair(NEAR), next);
        }
        (store(all), rest)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn pair([low, high]: [u64; 2]) -> __m128i {
        _mm_set_epi64x(high.cast_signed(), low.cast_signed())
    }

    /// Loads four lanes of 16 bytes.
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn load(step: &[u8; STEP]) -> [__m128i; 4] {
        let (words, _) = step.as_chunks::<8>();
        let mut lanes = [_mm_setzero_si128(); 4];
        for (lane, two) in lanes.iter_mut().zip(words.chunks_exact(2)) {
            *lane = pair([u64::from_le_bytes(two[0]), u64::from_le_bytes(two[1])]);
        }
        lanes
    }

    /// Adds `lane`, multiplied by `factors`, to `next`.
    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn add(lane: __m128i, factors: __m128i, next: __m128i) -> __m128i {
        const LOW: i32 = 0x00;
        const HIGH: i32 = 0x11;
        let low = _mm_clmulepi64_si128::<LOW>(lane, factors);
        let high = _mm_clmulepi64_si128::<HIGH>(lane, factors);
        _mm_xor_si128(_mm_xor_si128(low, high), next)
    }

    #[inline]
    #[target_feature(enable = "pclmulqdq")]
    fn store(all: __m128i) -> [u8; 16] {
        let low = _mm_cvtsi128_si64(all).cast_unsigned();
        let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(all, all)).cast_unsigned();
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    /// The checksum computed bit by bit, started at `sum`.
    fn summed(sum: u64, bytes: &[u8]) -> u64 {
        bytes.iter().fold(sum, |sum, byte| {
            let bit = |sum: u64, _| (sum >> 1) ^ (POLYNOMIAL * (sum & 1));
            (0..8).fold(sum ^ u64::from(*byte), bit)
        })
    }

    #[test] // The folded bytes have the checksum of the input, for any length.
    fn folded_bytes_keep_their_checksum() {
        let mut prng = Prng::from_seed(3);
        for len in [MIN - 1, MIN, MIN + 1, MIN + STEP - 1, 1_000, 5_000] {
            let (sum, bytes) = (prng.next_u64(), prng.bytes(len..=len));
            let Some((folded, rest)) = fold(sum, &bytes) else {
                assert!(len < MIN || cfg!(not(target_arch = "x86_64")) || cfg!(miri), "{len}");
                continue;
            };
            assert_eq!(rest.len(), len % STEP);
            assert_eq!(summed(summed(0, &folded), rest), summed(sum, &bytes), "{len}");
        }
    }
}
