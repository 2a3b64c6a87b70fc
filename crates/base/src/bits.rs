//! Runs of bytes as bits: how many are set, and where the first one is; and a few bytes as a number.
//!
//! One loop over words serves all machines. It is compiled twice: for any processor, and for those
//! with AVX2, which count the bits of 32 bytes in a few instructions (four times as fast); the
//! processor is asked once, at run time.

/// The number in the `len` bytes at the front, eight at most, lowest first. Reads eight bytes at
/// once if there are eight: cheaper than a copy of variable length.
#[inline]
#[must_use]
pub fn short_word(bytes: &[u8], len: usize) -> u64 {
    match (bytes.first_chunk(), len) {
        (_, 0) => 0,
        (Some(eight), _) => {
            u64::from_le_bytes(*eight) & (u64::MAX >> (u64::BITS as usize - 8 * len))
        }
        (None, _) => bytes[..len].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

/// How many bits of `bytes` are set. Cost: O(bytes), much less than a nanosecond each.
#[must_use]
pub fn count_ones(bytes: &[u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= SHORT_BYTES && has_avx2() {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { count_ones_avx2(bytes) };
    }
    count_words(bytes)
}

/// The index of the first byte that is not `byte`. Cost: O(bytes), much less than a nanosecond
/// each.
#[must_use]
pub fn first_other(bytes: &[u8], byte: u8) -> Option<usize> {
    const BLOCK: usize = 64;
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let differs =
        |block: &[u8; BLOCK]| block.iter().fold(0, |bits, other| bits | (other ^ byte)) != 0;
    let from = blocks.iter().take_while(|block| !differs(block)).count() * BLOCK;
    bytes[from..].iter().position(|other| *other != byte).map(|at| from + at)
}

/// Below this, asking for the processor costs more than it saves.
#[cfg(target_arch = "x86_64")]
const SHORT_BYTES: usize = 64;

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn count_ones_avx2(bytes: &[u8]) -> usize {
    count_words(bytes)
}

#[inline(always)]
fn count_words(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    let ones: u64 =
        words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
    let rest: u32 = rest.iter().map(|byte| byte.count_ones()).sum();
    ones as usize + rest as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test] // With fewer bytes than a word after it, exactly a word, and more.
    fn short_words_have_the_lowest_byte_first() {
        let bytes = Prng::from_seed(2).bytes(16..=16);
        for room in 0..=bytes.len() {
            for len in 0..=room.min(8) {
                let mut word = [0; 8];
                word[..len].copy_from_slice(&bytes[..len]);
                assert_eq!(
                    short_word(&bytes[..room], len),
                    u64::from_le_bytes(word),
                    "{len} {room}"
                );
            }
        }
    }

    #[test] // At every length and offset around the sizes of words and blocks.
    fn counts_equal_those_of_single_bytes() {
        let bytes = Prng::from_seed(1).bytes(300..=300);
        for from in 0..70 {
            for to in from..bytes.len() {
                let part = &bytes[from..to];
                let slow: u32 = part.iter().map(|byte| byte.count_ones()).sum();
                assert_eq!(count_ones(part), slow as usize, "{from}..{to}");
            }
        }
        assert_eq!(count_ones(&[0xff; 100_000]), 800_000);
    }

    #[test]
    fn the_first_different_byte_is_found() {
        for len in [0, 1, 63, 64, 65, 200] {
            for byte in [0, 0xff] {
                let mut bytes = vec![byte; len];
                assert_eq!(first_other(&bytes, byte), None);
                for at in (0..len).rev() {
                    bytes[at] = byte ^ 4;
                    assert_eq!(first_other(&bytes, byte), Some(at), "{at} of {len}");
                }
            }
        }
    }
}
