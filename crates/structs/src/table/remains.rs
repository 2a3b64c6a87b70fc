//! The property of a freed block's entries, until it is freed in slices.
//!
//! A segment holds a thousand entries, and each may own a key or a value of 64 KiB: freeing a
//! segment with all it owns would take many slices. So freeing a block only moves those out, and
//! `lazyfree` frees them in portions.

use super::value::{Old, OutOfLine};
use darter_base::lazyfree::{self, Dismantle};
use darter_base::long::Long;

/// Keys or values freed at once.
const FREED_AT_ONCE: usize = 4;

/// Long keys and out-of-line values to be freed.
pub(super) struct FreedEntries<X: OutOfLine> {
    keys: Vec<Long>,
    values: Vec<X>,
}

impl<X: OutOfLine> FreedEntries<X> {
    /// None yet; nothing is allocated before there are some.
    pub(super) fn new() -> Self {
        Self { keys: Vec::new(), values: Vec::new() }
    }

    /// Takes over the memory that an entry owned.
    pub(super) fn add(&mut self, key: Option<Long>, old: Old<X>) {
        self.keys.extend(key);
        self.values.extend(old.out);
    }

    /// Frees all of it: a little at once, more in slices.
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

    /// The pointers only: their targets are not read before their turn.
    fn bytes(&self) -> usize {
        size_of_val(&*self.keys) + size_of_val(&*self.values)
    }
}
