//! Seeded randomness: SplitMix64, good enough for sampling and simulation, not for secrets.

/// A pseudo-random generator with 64 bits of state. Equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// A generator starting at `seed`.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits (Steele, Lea, Flood: "Fast splittable pseudorandom number
    /// generators", 2014).
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0. Bias below 2^-32 for bounds below 2^32.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// True with a probability of `percent` in 100.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, by weight. Panics when the weights sum to zero.
    pub fn weighted<'a, T>(&mut self, choices: &'a [(u64, T)]) -> &'a T {
        let total: u64 = choices.iter().map(|(weight, _)| weight).sum();
        assert!(total > 0, "no weight");
        let mut left = self.below(total);
        for (weight, choice) in choices {
            if left < *weight {
                return choice;
            }
            left -= weight;
        }
        unreachable!("left stays below the sum of the weights");
    }

    /// Between `range.start()` and `range.end()` random bytes.
    pub fn bytes(&mut self, range: std::ops::RangeInclusive<usize>) -> Vec<u8> {
        let span = (range.end() - range.start() + 1) as u64;
        let len = range.start() + usize::try_from(self.below(span)).unwrap_or(0);
        (0..len).map(|_| self.next_u64().to_le_bytes()[0]).collect()
    }
}
