//! The long items of one chunk, which are kept outside of it, by number.
//!
//! A copy of a shared chunk counts each of them, at a cache miss each: so a chunk has at most
//! [`OUTSIDE_MAX`].

use super::Held;
use crate::lazyfree::{self, Dismantle};

/// The most long items in a chunk, which are counted in one step.
pub(crate) const OUTSIDE_MAX: usize = 128;
/// Long items freed in one step.
const FREED_AT_ONCE: usize = 8;

/// The long items of a chunk. Numbers of removed ones are reused.
#[derive(Clone)]
pub(super) struct Outside<L: Held> {
    longs: Vec<Option<L>>,
    free: Vec<u16>,
    /// Memory of the long items.
    bytes: usize,
}

impl<L: Held> Default for Outside<L> {
    fn default() -> Self {
        Self { longs: Vec::new(), free: Vec::new(), bytes: 0 }
    }
}

impl<L: Held> Outside<L> {
    /// Long items present.
    pub(super) fn len(&self) -> usize {
        self.longs.len() - self.free.len()
    }

    /// Takes over a long item, and returns its number.
    pub(super) fn add(&mut self, long: L) -> u16 {
        assert!(self.len() < OUTSIDE_MAX, "{} outside", self.len());
        self.bytes += long.memory_bytes();
        if let Some(number) = self.free.pop() {
            let old = self.longs[usize::from(number)].replace(long);
            assert!(old.is_none(), "number {number} is free");
            return number;
        }
        self.longs.push(Some(long));
        (self.longs.len() - 1) as u16
    }

    /// The long item with this number.
    pub(super) fn get(&self, number: u16) -> &L {
        self.longs[usize::from(number)].as_ref().expect("one for every item that names it")
    }

    /// The same, for changing.
    pub(super) fn get_mut(&mut self, number: u16) -> &mut L {
        self.longs[usize::from(number)].as_mut().expect("one for every item that names it")
    }

    /// Releases a long item.
    pub(super) fn remove(&mut self, number: u16) {
        let long = self.longs[usize::from(number)].take();
        self.bytes -= long.expect("one for every item that names it").memory_bytes();
        self.free.push(number);
    }

    /// Bytes of memory, counted by the numbers in use rather than by the allocation.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.longs.len() * size_of::<Option<L>>() + self.bytes
    }

    /// Panics when the sums are not those of the items.
    pub(super) fn check(&self) {
        let there = self.longs.iter().flatten();
        assert_eq!(there.clone().count(), self.len());
        assert_eq!(there.map(L::memory_bytes).sum::<usize>(), self.bytes);
        assert!(self.len() <= OUTSIDE_MAX, "{} outside", self.len());
    }
}

impl<L: Held> Drop for Outside<L> {
    fn drop(&mut self) {
        if self.len() > FREED_AT_ONCE {
            lazyfree::defer(Box::new(FreedOutside(std::mem::take(&mut self.longs), self.bytes)));
        }
    }
}

/// The long items of a dropped chunk, and their bytes.
struct FreedOutside<L>(Vec<Option<L>>, usize);

impl<L: Held> Dismantle for FreedOutside<L> {
    fn dismantle(&mut self) -> bool {
        let left = self.0.len().saturating_sub(FREED_AT_ONCE);
        for long in self.0.drain(left..).flatten() {
            self.1 -= long.memory_bytes();
        }
        left > 0
    }

    fn bytes(&self) -> usize {
        self.1
    }
}
