//! Random choice of entries in one pass.

use darter_base::Prng;

/// Chooses some entries in one pass; every subset is equally likely. An entry's probability is the
/// number still to be chosen, divided by the number still to come (Knuth, vol. 2, algorithm S).
pub(crate) struct Reservoir {
    wanted: usize,
    left: usize,
    prng: Prng,
}

impl Reservoir {
    /// Chooses `wanted` of `entries`.
    pub(crate) fn new(wanted: usize, entries: usize, seed: u64) -> Self {
        Self { wanted, left: entries, prng: Prng::from_seed(seed) }
    }

    /// Decides whether the next entry is chosen.
    pub(crate) fn next(&mut self) -> bool {
        let chosen = self.prng.below(self.left as u64) < self.wanted as u64;
        self.left -= 1;
        self.wanted -= usize::from(chosen);
        chosen
    }

    /// True when all wanted entries have been chosen.
    pub(crate) fn is_done(&self) -> bool {
        self.wanted == 0
    }
}
