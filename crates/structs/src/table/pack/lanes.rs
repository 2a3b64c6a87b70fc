//! SIMD on sixteen bytes: comparing fingerprints, and summing lengths.
//!
//! A search byte by byte has an unpredictable branch at each. With SSE2 neither operation branches;
//! the portable code is the reference, and runs on other machines.

use super::item;

/// Bytes processed together.
pub(super) const LANES: usize = 16;

/// A bit for each byte that equals `wanted`; the first byte is the lowest bit.
#[inline]
pub(super) fn matches(held: &[u8; 4 * LANES], wanted: u8) -> u64 {
    held.as_chunks::<LANES>().0.iter().rev().fold(0, |bits, held| {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
        // SAFETY: compiled only where SSE2 is there.
        let found = unsafe { sse2::matches(held, wanted) };
        #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
        let found = matches_portable(held, wanted);
        bits << LANES | u64::from(found)
    })
}

/// The total length of the texts with the first `count` of these tags, without the tags. `None` if
/// one is so long that its tag does not give its length.
#[inline]
pub(super) fn sum(tags: &[u8; LANES], count: usize) -> Option<usize> {
    debug_assert!(count <= LANES, "{count} tags");
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    // SAFETY: compiled only where SSE2 is there.
    return unsafe { sse2::sum(tags, count) };
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    return sum_portable(tags, count);
}

#[cfg_attr(not(test), allow(dead_code, reason = "the reference, run where there is no SSE2"))]
fn matches_portable(held: &[u8; LANES], wanted: u8) -> u32 {
    let held = held.iter().enumerate();
    held.fold(0, |bits, (nth, &held)| bits | u32::from(held == wanted) << nth)
}

#[cfg_attr(not(test), allow(dead_code, reason = "the reference, run where there is no SSE2"))]
fn sum_portable(tags: &[u8; LANES], count: usize) -> Option<usize> {
    let is_long = |tag: &u8| *tag >= item::LONG;
    let tags = &tags[..count];
    (!tags.iter().any(is_long)).then(|| tags.iter().map(|&tag| item::body_len(tag, &[])).sum())
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
mod sse2 {
    use super::{LANES, item};
    use std::arch::x86_64::{
        __m128i, _mm_add_epi8, _mm_and_si128, _mm_cmpeq_epi8, _mm_cvtsi128_si32, _mm_loadu_si128,
        _mm_max_epu8, _mm_movemask_epi8, _mm_sad_epu8, _mm_set1_epi8, _mm_setzero_si128,
        _mm_srli_si128, _mm_sub_epi8,
    };

    /// Ones, then zeros: read from `n` bytes before the middle, they select `n` lanes.
    const MASKS: [u8; 2 * LANES] = {
        let (mut masks, mut at) = ([0; 2 * LANES], 0);
        while at < LANES {
            masks[at] = 0xff;
            at += 1;
        }
        masks
    };

    #[target_feature(enable = "sse2")]
    #[inline]
    fn load(bytes: &[u8; LANES]) -> __m128i {
        // SAFETY: sixteen bytes, wherever they lie.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    fn all(byte: u8) -> __m128i {
        _mm_set1_epi8(byte.cast_signed())
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    pub(super) fn matches(held: &[u8; LANES], wanted: u8) -> u32 {
        _mm_movemask_epi8(_mm_cmpeq_epi8(load(held), all(wanted))).cast_unsigned()
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    pub(super) fn sum(tags: &[u8; LANES], count: usize) -> Option<usize> {
        let mask = MASKS[LANES - count..].first_chunk().expect("no more than there are lanes");
        let tags = _mm_and_si128(load(tags), load(mask));
        let is_from = |tag: u8| _mm_cmpeq_epi8(_mm_max_epu8(tags, all(tag)), tags);
        if _mm_movemask_epi8(is_from(item::LONG)) != 0 {
            return None;
        }
        // A length, or 241 more. A UUID's tag gives 9, but 16 bytes follow.
        let more = _mm_and_si128(_mm_cmpeq_epi8(tags, all(item::UUID)), all(7));
        let folded = _mm_and_si128(is_from(item::INT), all(item::INT));
        let lens = _mm_add_epi8(_mm_sub_epi8(tags, folded), more);
        let sums = _mm_sad_epu8(lens, _mm_setzero_si128());
        let sum = _mm_cvtsi128_si32(sums) + _mm_cvtsi128_si32(_mm_srli_si128::<8>(sums));
        Some(sum.cast_unsigned() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simd_search_agrees_with_the_portable_loop() {
        let mut prng = darter_base::Prng::from_seed(3);
        for _ in 0..200 {
            let held: [u8; 4 * LANES] = std::array::from_fn(|_| prng.below(5) as u8);
            for wanted in 0..5 {
                let plain = held.as_chunks().0.iter().enumerate().fold(0, |bits, (nth, held)| {
                    bits | u64::from(matches_portable(held, wanted)) << (nth * LANES)
                });
                assert_eq!(matches(&held, wanted), plain);
            }
        }
    }

    #[test]
    fn simd_sum_of_lengths_agrees_with_the_portable_loop() {
        let mut prng = darter_base::Prng::from_seed(4);
        for _ in 0..2_000 {
            let long = prng.below(4) == 0;
            let end = if long { u64::from(item::LONG) + 3 } else { u64::from(item::LONG) };
            let from = prng.below(end);
            let tags = std::array::from_fn(|_| (from + prng.below(end - from)) as u8);
            for count in 0..=LANES {
                assert_eq!(sum(&tags, count), sum_portable(&tags, count), "{count} of {tags:?}");
            }
        }
    }
}
