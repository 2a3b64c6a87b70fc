//! Keys and values owned by the entries of a freed block, until they are freed in slices.
//!
//! A segment has a thousand entries, and each may own a key or a value of 64 KiB: freeing a segment
//! with all of them would take many slices. So freeing a block only moves them out, and `lazyfree`
//! frees them in portions.

use super::value::{Old, OutOfLine};
use darter_base::lazyfree::{self, Dismantle};
use darter_base::long::Long;

/// Keys or values that are freed in one step.
const FREED_AT_ONCE: usize = 4;

/// Long keys and out-of-line values, waiting to be freed.
pub(super) struct FreedEntries<X: OutOfLine> {
    keys: Vec<Long>,
    values: Vec<X>,
}

impl<X: OutOfLine> FreedEntries<X> {
    /// An empty collection, which allocates nothing.
    pub(super) fn new() -> Self {
        Self { keys: Vec::new(), values: Vec::new() }
    }

    /// Takes over the memory that an entry owned.
    pub(super) fn add(&mut self, key: Option<Long>, old: Old<X>) {
        self.keys.extend(key);
        self.values.extend(old.out);
    }

    /// Frees everything: a few at once, more in slices.
    pub(super) fn free(self) {
        if self.keys.len() + self.values.len() > FREED_AT_ONCE {
            lazyfree::defer(Box::new(self));
        }
    }
}

impl<X: OutOfLine> Dismantle for FreedEntries<X> {
    fn dismantle(&mut self) -> bool {
        if self.keys.is_empty() {
            self.values.truncate(self.values.len().saturating_sub(FREED_AT_ONCE));
        } else {
            self.keys.truncate(self.keys.len().saturating_sub(FREED_AT_ONCE));
        }
        !(self.keys.is_empty() && self.values.is_empty())
    }

    /// Only the pointers' own bytes: their targets are not read before their turn.
    fn bytes(&self) -> usize {
        size_of_val(&*self.keys) + size_of_val(&*self.values)
    }
}
