//! A stack for millions of items that grows and shrinks without a long step.
//!
//! A vector of a million items moves as a whole whenever it grows, and is freed as a whole, which
//! takes milliseconds each time. Here the items are in runs of fixed size: a step moves one run at
//! most.
//!
//! Invariants (`check_invariants`):
//! - I1: all runs but the last have [`RUN`] items.
//! - I2: no run is empty.

/// Items in a run. With items of a few words that is some kilobytes, which move in a microsecond.
pub const RUN: usize = 1_024;

/// A stack in runs; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Runs<T>(Vec<Vec<T>>);

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Runs<T> {
    /// Adds an item at the end.
    pub fn push(&mut self, item: T) {
        match self.0.last_mut() {
            Some(run) if run.len() < RUN => run.push(item), // I1.
            _ => self.0.push(vec![item]),
        }
    }

    /// Removes the last item.
    pub fn pop(&mut self) -> Option<T> {
        let run = self.0.last_mut()?;
        let item = run.pop();
        if run.is_empty() {
            self.0.pop(); // I2.
        }
        debug_assert!(item.is_some(), "I2: an empty run");
        item
    }

    /// The number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * RUN + last.len()) // I1.
    }

    /// True when the stack is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All items, in insertion order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    #[cfg(test)]
    fn check_invariants(&self) {
        let before = self.0.split_last().map_or(&[][..], |(_, before)| before);
        assert!(before.iter().all(|run| run.len() == RUN), "I1");
        assert!(self.0.iter().all(|run| !run.is_empty()), "I2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;

    #[test] // Mostly pushes first, then mostly pops.
    fn random_pushes_and_pops_agree_with_a_vector() {
        for seed in 0..20 {
            let mut prng = Prng::from_seed(seed);
            let (mut runs, mut model) = (Runs::default(), Vec::new());
            for step in 0..8 * RUN {
                let is_growing = step < 4 * RUN;
                if (prng.below(4) == 0) == is_growing {
                    assert_eq!(runs.pop(), model.pop(), "{seed} {step}");
                } else {
                    runs.push(step);
                    model.push(step);
                }
                assert_eq!((runs.len(), runs.is_empty()), (model.len(), model.is_empty()));
            }
            runs.check_invariants();
            assert!(runs.iter().eq(&model), "{seed}");
            while let Some(item) = runs.pop() {
                assert_eq!(Some(item), model.pop(), "{seed}");
            }
            assert!(runs.is_empty() && model.is_empty(), "{seed}");
        }
    }

    #[test]
    fn items_do_not_move_while_the_stack_grows() {
        let mut runs = Runs::default();
        (0..RUN).for_each(|item| runs.push(item));
        let first = std::ptr::from_ref(runs.iter().next().expect("it is there"));
        (0..100 * RUN).for_each(|item| runs.push(item));
        assert_eq!(runs.iter().next().map(std::ptr::from_ref), Some(first));
        assert_eq!(runs.len(), 101 * RUN);
    }
}
