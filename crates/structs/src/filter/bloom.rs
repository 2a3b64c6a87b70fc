//! A chain of Bloom filters, each larger and stricter than the one before: so it has room for any
//! number of items, and the sum of their errors stays below the one that was asked for.
//!
//! Invariants (`check_invariants`):
//! - I1: each layer has the bytes of its shape, and at most as many items as it has room for.
//! - I2: all but the last are full.
//! - I3: `len`, `bytes` and `memory` are sums over the layers.

use super::probe::Probe;
use super::shape::{BYTES_MAX, SHARE_MIN, Shape};
use crate::pages::{PAGE_BYTES, Pages};

/// Each layer's error is so much of that of the one before: all sum up to twice the first.
const TIGHTENING: f64 = 0.5;
/// The most layers: a query reads all of them.
pub const LAYERS_MAX: usize = 500;
/// The number from which an item's block is drawn; its bits have the ones from 0 on.
const BLOCK: u64 = u64::MAX;

/// The parameters of an empty chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// How often it may be wrong.
    pub error: f64,
    /// Items that its first layer has room for.
    pub capacity: u64,
    /// How much larger each layer is than the one before; `None`: there is only one.
    pub growth: Option<u32>,
}

/// The outcome for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The item was added.
    New,
    /// The item was there, or seemed to be.
    There,
    /// There is no room, and there may be no other layer.
    Full,
    /// There is no room, and another layer would be too large, or one too many.
    Stuck,
}

/// See the module. Cloning it is a cut: O(layers).
#[derive(Clone, Debug, Default)]
pub struct Bloom {
    layers: Vec<Layer>,
    growth: Option<u32>,
    len: u64,
    /// Bytes of all bits, and of their memory.
    bytes: u64,
    memory: usize,
}

/// One filter of a chain.
#[derive(Clone, Debug)]
pub struct Layer {
    bits: Pages,
    shape: Shape,
    error: f64,
    capacity: u64,
    len: u64,
}

impl Layer {
    /// A filter of this shape, without bits. It has room for `capacity` items, and already has
    /// `len`.
    #[must_use]
    pub fn new(shape: Shape, (capacity, len): (u64, u64), error: f64) -> Option<Self> {
        let is_error = error > 0.0 && error < 1.0;
        (shape.is_sound() && len <= capacity && capacity > 0 && is_error).then(|| {
            let bits = Pages::zeros(shape.bytes() as usize);
            Self { bits, shape, error, capacity, len }
        })
    }

    fn empty(capacity: u64, error: f64) -> Option<Self> {
        Self::new(Shape::of(capacity, error)?, (capacity, 0), error)
    }

    /// The layer after it.
    fn next(&self, growth: u32) -> Option<Self> {
        let error = (self.error * TIGHTENING).max(SHARE_MIN);
        Self::empty(self.capacity.checked_mul(u64::from(growth))?, error)
    }

    /// How it is laid out.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The share of the errors.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.error
    }

    /// Items that it has room for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Items that were added to it.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bits.
    #[must_use]
    pub fn bits(&self) -> &Pages {
        &self.bits
    }

    fn is_full(&self) -> bool {
        self.len >= self.capacity
    }

    /// The bits of an item: where in the filter their bytes are, and their masks.
    #[inline]
    fn places(shape: Shape, probe: Probe) -> impl Iterator<Item = (usize, u8)> {
        let start = probe.number(BLOCK, shape.blocks) * shape.block_bytes;
        let bits = shape.block_bytes * 8;
        (0..u64::from(shape.hashes)).map(move |index| {
            let bit = probe.number(index, bits);
            ((start + bit / 8) as usize, 1 << (bit % 8))
        })
    }

    fn contains(&self, probe: Probe) -> bool {
        let mut last = (usize::MAX, None);
        Self::places(self.shape, probe).all(|(at, mask)| {
            if last.0 != at / PAGE_BYTES {
                last = (at / PAGE_BYTES, self.bits.page(at / PAGE_BYTES));
            }
            last.1.is_some_and(|page| page[at % PAGE_BYTES] & mask != 0)
        })
    }

    /// Sets the bits of an item that is not there.
    fn add(&mut self, probe: Probe) {
        for (at, mask) in Self::places(self.shape, probe) {
            self.bits.page_mut(at / PAGE_BYTES)[at % PAGE_BYTES] |= mask;
        }
        self.len += 1;
    }

    fn memory(&self) -> usize {
        self.bits.memory_bytes() + size_of::<Self>()
    }
}

impl Bloom {
    /// An empty chain. `None` if its filter would be too large, or too strict for numbers.
    #[must_use]
    pub fn new(plan: Plan) -> Option<Self> {
        let tightening = if plan.growth.is_some() { TIGHTENING } else { 1.0 };
        let mut bloom = Self { growth: plan.growth, ..Self::default() };
        bloom.push(Layer::empty(plan.capacity, plan.error * tightening)?).then_some(bloom)
    }

    /// A chain without any layer, as in a file; the layers are to be [pushed](Self::push).
    #[must_use]
    pub fn bare(growth: Option<u32>) -> Self {
        Self { growth, ..Self::default() }
    }

    /// Adds a layer. False if that would be too much.
    #[must_use]
    pub fn push(&mut self, layer: Layer) -> bool {
        let bytes = self.bytes + layer.shape.bytes();
        let len = self.len.checked_add(layer.len).filter(|len| i64::try_from(*len).is_ok());
        let (true, Some(len)) = (self.layers.len() < LAYERS_MAX && bytes <= BYTES_MAX, len) else {
            return false;
        };
        (self.len, self.bytes, self.memory) = (len, bytes, self.memory + layer.memory());
        self.layers.push(layer);
        true
    }

    /// Bytes of its bits, of which some may take no memory yet. Cost: O(1).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The layers, from the first on.
    #[must_use]
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// How much larger each layer is than the one before, if there may be several.
    #[must_use]
    pub fn growth(&self) -> Option<u32> {
        self.growth
    }

    /// Bits that an item sets in all layers: the most that a query reads. Cost: O(layers).
    #[must_use]
    pub fn hashes(&self) -> usize {
        self.layers.iter().map(|layer| layer.shape.hashes as usize).sum()
    }

    /// Items that were added.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the chain has no layer, and so cannot be used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Items that its layers have room for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.layers.iter().fold(0, |sum, layer| sum.saturating_add(layer.capacity))
    }

    /// Bytes of memory. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory
    }

    /// True when the item is there, or seems to be. Cost: O(layers * bits of an item).
    #[must_use]
    pub fn contains(&self, probe: Probe) -> bool {
        self.layers.iter().rev().any(|layer| layer.contains(probe))
    }

    /// Adds an item, which may take another layer.
    pub fn add(&mut self, probe: Probe) -> Added {
        if self.contains(probe) {
            return Added::There;
        }
        if self.layers.last().is_none_or(Layer::is_full) {
            let (Some(growth), Some(last)) = (self.growth, self.layers.last()) else {
                return Added::Full;
            };
            let next = last.next(growth);
            if !next.is_some_and(|layer| self.push(layer)) {
                return Added::Stuck;
            }
        }
        if let Some(last) = self.layers.last_mut() {
            let before = last.memory();
            last.add(probe);
            self.memory += last.memory() - before;
        }
        self.len += 1;
        Added::New
    }

    /// Overwrites a page of a layer. False where there is none, or of another length.
    pub fn load_page(&mut self, layer: usize, page: usize, bytes: &[u8]) -> bool {
        let Some(layer) = self.layers.get_mut(layer) else { return false };
        let before = layer.bits.memory_bytes();
        let is_there = layer.bits.load(page, bytes);
        self.memory += layer.bits.memory_bytes() - before;
        is_there
    }

    /// Panics when an invariant does not hold. Cost: O(bytes).
    pub fn check_invariants(&self) {
        for layer in &self.layers {
            assert_eq!(layer.bits.len() as u64, layer.shape.bytes(), "I1: bytes");
            assert!(layer.len <= layer.capacity, "I1: {} of {}", layer.len, layer.capacity);
            layer.bits.check_invariants();
        }
        let (_, full) = self.layers.split_last().unzip();
        assert!(full.is_none_or(|full| full.iter().all(Layer::is_full)), "I2: a layer with room");
        assert_eq!(self.len, self.layers.iter().map(|layer| layer.len).sum::<u64>(), "I3: items");
        let bytes = self.layers.iter().map(|layer| layer.shape.bytes()).sum::<u64>();
        assert_eq!(self.bytes, bytes, "I3: bytes");
        assert_eq!(self.memory, self.layers.iter().map(Layer::memory).sum::<usize>(), "I3: memory");
    }
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss, reason = "shares of some thousand")]
mod tests {
    use super::*;

    fn probe(number: u64) -> Probe {
        Probe::of(&number.to_le_bytes())
    }

    /// The share of `looks` absent items that are reported present after `items` additions.
    fn wrong(plan: Plan, items: u64, looks: u64) -> f64 {
        let mut bloom = Bloom::new(plan).expect("it is small");
        let new = (0..items).filter(|number| bloom.add(probe(*number)) == Added::New).count();
        assert_eq!(new as u64, bloom.len(), "{plan:?}");
        assert!((0..items).all(|number| bloom.contains(probe(number))), "{plan:?}");
        bloom.check_invariants();
        let wrong = (items..items + looks).filter(|number| bloom.contains(probe(*number)));
        wrong.count() as f64 / looks as f64
    }

    #[test] // All added items are found.
    fn false_positives_stay_below_the_requested_rate() {
        for error in [0.1, 0.01, 0.001] {
            for growth in [None, Some(1), Some(2), Some(4)] {
                // Both sides of a page, and chains of very many layers.
                for first in [100, 5_000] {
                    let capacity = if growth.is_some() { first } else { 20_000 };
                    let share = wrong(Plan { error, capacity, growth }, 20_000, 100_000);
                    let noise = 3.0 * (error / 100_000.0).sqrt();
                    assert!(share <= error + noise, "{error} {growth:?} {first}: {share}");
                }
            }
        }
    }

    #[test] // Each block has a page.
    fn filters_of_many_blocks_keep_the_error_rate() {
        let (error, looks) = (0.0001, 1_000_000);
        let share = wrong(Plan { error, capacity: 200_000, growth: None }, 200_000, looks);
        assert!((0.5 * error..1.3 * error).contains(&share), "{share}");
    }

    #[test]
    fn a_filter_without_growth_is_full_at_its_capacity() {
        let plan = Plan { error: 0.001, capacity: 10, growth: None };
        let mut bloom = Bloom::new(plan).expect("it is small");
        let results: Vec<_> = (0..12).map(|number| bloom.add(probe(number))).collect();
        assert_eq!(results.iter().filter(|one| **one == Added::New).count(), 10);
        assert_eq!(results.last(), Some(&Added::Full));
        assert_eq!(bloom.add(probe(1)), Added::There, "what is there is no matter of room");
        assert!(Bloom::new(Plan { capacity: u64::MAX, ..plan }).is_none());
        assert!(Bloom::new(Plan { error: 5e-324, ..plan }).is_none());
    }

    #[test]
    fn a_chain_with_all_its_layers_reports_that_it_is_full() {
        let mut bloom = Bloom::new(Plan { error: 0.5, capacity: 1, growth: Some(1) }).unwrap();
        let mut results = (0..2 * LAYERS_MAX as u64).map(|number| bloom.add(probe(number)));
        assert!(results.any(|one| one == Added::Stuck));
        assert_eq!(bloom.layers().len(), LAYERS_MAX);
        let huge = Plan { error: 0.5, capacity: 1, growth: Some(u32::MAX) };
        let mut bloom = Bloom::new(huge).unwrap();
        let mut last = Added::New;
        for number in 0..10 {
            last = bloom.add(probe(number));
        }
        assert_eq!((last, bloom.layers().len()), (Added::New, 2), "four billion in 1 GB of zeros");
        assert!(bloom.memory_bytes() < 1 << 20, "{}", bloom.memory_bytes());
    }

    #[test]
    fn additions_do_not_change_a_cut() {
        let plan = Plan { error: 0.01, capacity: 30_000, growth: Some(2) };
        let mut bloom = Bloom::new(plan).unwrap();
        (0..10_000).for_each(|number| _ = bloom.add(probe(number)));
        let cut = bloom.clone();
        (10_000..50_000).for_each(|number| _ = bloom.add(probe(number)));
        let later = (10_000..50_000).filter(|number| cut.contains(probe(*number))).count();
        assert!(later < 100, "{later}");
        assert!((0..50_000).all(|number| bloom.contains(probe(number))));
        assert!(cut.len() <= 10_000 && cut.layers().len() == 1);
        cut.check_invariants();
    }
}
