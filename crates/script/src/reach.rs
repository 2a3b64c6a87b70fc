//! The keys that the runs of a script have touched: only those that its command named, or others too.
//!
//! Redis asks clients to name all keys, and nearly all do. But a script cannot be trusted before it
//! has run. It is trusted after [`PROVEN_RUNS`] runs within its named keys, and never again once a
//! run touches another key. All cores share this record.

use std::sync::atomic::{AtomicU32, Ordering};

/// Runs within the named keys after which a script is trusted.
pub const PROVEN_RUNS: u32 = 100;
/// A run has touched a key that was not named.
const BEYOND: u32 = u32::MAX;

/// See the module: the number of runs within the named keys, or [`BEYOND`].
#[derive(Debug, Default)]
pub struct Reach(AtomicU32);

impl Reach {
    /// True if the next run will very likely touch named keys only.
    #[must_use]
    pub fn is_named_keys(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PROVEN_RUNS
    }

    /// Records a run that has touched named keys only.
    pub fn note_within(&self) {
        let runs = self.0.load(Ordering::Relaxed);
        if runs < PROVEN_RUNS {
            // If another core writes in between, this run is not counted.
            let _ = self.0.compare_exchange(runs, runs + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Records that a run has touched, or is about to touch, a key that was not named.
    pub fn note_beyond(&self) {
        if self.0.load(Ordering::Relaxed) != BEYOND {
            self.0.store(BEYOND, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_leaves_its_keys_once_is_never_trusted_again() {
        let reach = Reach::default();
        for _ in 0..PROVEN_RUNS {
            assert!(!reach.is_named_keys());
            reach.note_within();
        }
        reach.note_within();
        assert!(reach.is_named_keys());
        reach.note_beyond();
        (0..2 * PROVEN_RUNS).for_each(|_| reach.note_within());
        assert!(!reach.is_named_keys());
    }
}
