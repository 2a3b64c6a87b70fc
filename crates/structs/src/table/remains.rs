//! Values that outlive the block they were in, until somebody has time to free them.
//!
//! A segment holds a thousand entries, and each may own a value of 64 KiB, which takes the allocator
//! up to 10 us to give back: freeing a segment with all it owns would take 10 ms. So whoever frees a
//! block takes the values out of it, 10 ns each, and the graveyard frees them in portions.

use super::entry::{Old, OutOfLine};
use darter_base::graveyard::{self, Dismantle};

/// Values that are freed at once.
const VALUES_FREED_AT_ONCE: usize = 4;

/// See the module.
pub(super) struct Remains<X: OutOfLine>(Vec<X>);

impl<X: OutOfLine> Remains<X> {
    /// None yet; nothing is allocated before there are some.
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Takes over what an entry owned.
    pub(super) fn add(&mut self, old: Old<X>) {
        self.0.extend(old.out);
    }

    /// Frees the values, the more the later.
    pub(super) fn bury(self) {
        if self.0.len() > VALUES_FREED_AT_ONCE {
            graveyard::bury(Box::new(self));
        }
    }
}

impl<X: OutOfLine> Dismantle for Remains<X> {
    fn dismantle(&mut self) -> bool {
        self.0.truncate(self.0.len().saturating_sub(VALUES_FREED_AT_ONCE));
        !self.0.is_empty()
    }
}
