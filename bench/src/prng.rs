//! A small seeded generator (splitmix64), so that two runs build the same data and the same load.
//!
//! Not for secrets. It was chosen because it has five lines, passes the usual tests, and works with
//! any seed.

/// A seeded stream of 64-bit numbers.
#[derive(Clone, Debug)]
pub(crate) struct Prng(u64);

impl Prng {
    /// Starts the stream of `seed`.
    pub(crate) fn from_seed(seed: u64) -> Prng {
        Prng(seed)
    }

    /// Returns the next number, uniform over all of `u64`.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound` (which is not 0), by Lemire's multiplication.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "bound=0");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// The text of the UUID v4 number `index` of the series `seed`: random access, so that a client
/// can ask for fields of a hash that another process generated.
pub(crate) fn uuid(seed: u64, index: u64) -> [u8; 36] {
    let mut prng = Prng::from_seed(seed ^ index.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let mut bits = (u128::from(prng.next()) << 64) | u128::from(prng.next());
    bits = bits & !(0xf << 76) | (0x4 << 76); // Version 4.
    bits = bits & !(0x3 << 62) | (0x2 << 62); // Variant 1.
    let mut text = [b'-'; 36];
    let mut shift = 128;
    for (position, byte) in text.iter_mut().enumerate() {
        if matches!(position, 8 | 13 | 18 | 23) {
            continue;
        }
        shift -= 4;
        *byte = b"0123456789abcdef"[(bits >> shift) as usize & 0xf];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // The text has the shape of a UUID v4, and neighbours differ.
    fn uuids_are_version_4() {
        for index in 0..1_000 {
            let text = uuid(7, index);
            assert_eq!(text[14], b'4', "index={index}");
            assert!(b"89ab".contains(&text[19]), "index={index}");
            assert_ne!(text, uuid(7, index + 1), "index={index}");
            assert_eq!(text.iter().filter(|byte| **byte == b'-').count(), 4, "index={index}");
        }
    }

    #[test]
    fn below_returns_numbers_under_the_bound() {
        let mut prng = Prng::from_seed(1);
        let mut seen = [false; 10];
        for _ in 0..1_000 {
            seen[prng.below(10) as usize] = true;
        }
        assert_eq!(seen, [true; 10]);
    }
}
