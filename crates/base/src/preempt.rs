//! The question that long work asks between portions: must I yield?

use std::cell::Cell;

/// Answers whether the running slice is over.
///
/// Work of unbounded length asks after every portion of a few microseconds, and continues in a
/// later slice if the answer is yes. A server thread answers by its clock and by new arrivals. The
/// simulator answers at random, usually yes, so that every preemption point is exercised.
pub trait Preempt {
    /// True when the slice is over. Cost: a read of the clock, and now and then of some words
    /// shared with the kernel and with other cores.
    fn must_yield(&self) -> bool;
}

/// Never asks for a yield: for tests, and for work that is bounded by nature.
pub struct Never;

impl Preempt for Never {
    fn must_yield(&self) -> bool {
        false
    }
}

/// Asks for a yield after a fixed number of questions: for tests.
pub struct Countdown(Cell<usize>);

impl Countdown {
    /// Answers "no" to the first `questions`.
    #[must_use]
    pub fn new(questions: usize) -> Self {
        Self(Cell::new(questions))
    }
}

impl Preempt for Countdown {
    fn must_yield(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left == 0
    }
}
