//! What is too long to lie in a chunk, by number.
//!
//! When a shared chunk is copied, each of them is counted, at a cache miss each: so a chunk has at most
//! [`OUTSIDE_MAX`].

use super::Held;
use crate::lazyfree::{self, Dismantle};

/// Long ones of a chunk: counting as many takes some 10 us.
pub(crate) const OUTSIDE_MAX: usize = 128;
/// Long ones that are freed at once.
const FREED_AT_ONCE: usize = 8;

/// See the module. Numbers of those that are gone are given again.
#[derive(Clone)]
pub(super) struct Outside<L: Held> {
    longs: Vec<Option<L>>,
    free: Vec<u16>,
    /// Memory of them.
    bytes: usize,
}

impl<L: Held> Default for Outside<L> {
    fn default() -> Self {
        Self { longs: Vec::new(), free: Vec::new(), bytes: 0 }
    }
}

impl<L: Held> Outside<L> {
    /// Those that are there.
    pub(super) fn len(&self) -> usize {
        self.longs.len() - self.free.len()
    }

    /// Takes over one, and returns its number.
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

    /// The one with this number.
    pub(super) fn get(&self, number: u16) -> &L {
        self.longs[usize::from(number)].as_ref().expect("one for every item that names it")
    }

    /// Lets go of one.
    pub(super) fn remove(&mut self, number: u16) {
        let long = self.longs[usize::from(number)].take();
        self.bytes -= long.expect("one for every item that names it").memory_bytes();
        self.free.push(number);
    }

    /// Bytes of memory, from the numbers that were given, whatever is allocated for them.
    pub(super) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.longs.len() * size_of::<Option<L>>() + self.bytes
    }

    /// Panics when the sums are not those of them.
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
            lazyfree::defer(Box::new(Remains(std::mem::take(&mut self.longs), self.bytes)));
        }
    }
}

/// The long ones of a chunk that is gone, and their bytes.
struct Remains<L>(Vec<Option<L>>, usize);

impl<L: Held> Dismantle for Remains<L> {
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
