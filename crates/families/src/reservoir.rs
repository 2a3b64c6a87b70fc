//! A random choice among entries during a walk.

use darter_base::Prng;

/// Chooses some of the entries of a walk, every subset with the same probability: each entry with
/// the chance "still to be chosen out of still to come" (Knuth, vol. 2, algorithm S).
pub(crate) struct Reservoir {
    wanted: usize,
    left: usize,
    prng: Prng,
}

impl Reservoir {
    /// To choose `wanted` of `entries`.
    pub(crate) fn new(wanted: usize, entries: usize, seed: u64) -> Self {
        Self { wanted, left: entries, prng: Prng::from_seed(seed) }
    }

    /// Is the next entry chosen?
    pub(crate) fn next(&mut self) -> bool {
        let chosen = self.prng.below(self.left as u64) < self.wanted as u64;
        self.left -= 1;
        self.wanted -= usize::from(chosen);
        chosen
    }

    /// True when all wanted entries were chosen.
    pub(crate) fn is_done(&self) -> bool {
        self.wanted == 0
    }
}
