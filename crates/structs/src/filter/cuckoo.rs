//! Cuckoo filters: a byte of an item's hash in one of its two buckets, so that items can be removed.
//!
//! An item whose buckets are full takes the place of another, which moves to its other bucket, where it
//! may displace a third, and so on: as often as the plan says. If that finds no room, all go back, and
//! the filter gets another layer. It takes any number of calls ([`Cuckoo::go_on`]).
//!
//! Source: Fan, Andersen, Kaminsky, Mitzenmacher, "Cuckoo filter: practically better than Bloom" (2014):
//! the other bucket is found from the bucket and the byte alone.
//!
//! Invariants (`check_invariants`):
//! - I1: each layer has the bytes that the plan gives it, and there are at most [`CUCKOO_LAYERS_MAX`].
//! - I2: `len` bytes are not 0, unless a file says otherwise.
//! - I3: `bytes` and `memory` are sums over the layers.

use super::probe::Probe;
use super::shape::BYTES_MAX;
use crate::pages::{PAGE_BYTES, Pages};

/// The most layers: the first layer, and 32 more.
pub const CUCKOO_LAYERS_MAX: usize = 33;
/// The number from which an item's byte is drawn.
const FINGER: u64 = 0;

/// The parameters of an empty filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CuckooPlan {
    /// The number of buckets of the first layer: a power of two, at least 2.
    pub buckets: u64,
    /// The bytes of a bucket.
    pub width: u8,
    /// How often an item may displace another.
    pub kicks: u16,
    /// How many times larger each layer is than the one before: a power of two, or 0 if there is
    /// only one layer.
    pub growth: u32,
}

/// The outcome of adding an item.
#[derive(Debug)]
pub enum Put {
    /// The item has been added.
    Done,
    /// There is no room, and the plan allows no other layer.
    Full,
    /// There is no room, and another layer would be too large or too many.
    Stuck,
    /// The item is not added yet: other items have to move first.
    Moving(Moving),
}

/// An item to be added, while other items move from bucket to bucket.
#[derive(Debug)]
pub struct Moving {
    probe: Probe,
    /// The fingerprint that has no place yet, and the bucket in which it takes one.
    finger: u8,
    bucket: u64,
    /// The displaced fingerprints and their places, in order.
    path: Vec<(usize, u8)>,
    is_back: bool,
}

/// A cuckoo filter: see the module. Cloning it makes a snapshot. Cost: O(layers).
#[derive(Clone, Debug, Default)]
pub struct Cuckoo {
    plan: CuckooPlan,
    layers: Vec<Pages>,
    len: u64,
    deleted: u64,
    bytes: u64,
    memory: usize,
}

/// The fingerprint of an item: any byte except 0, which marks a free place.
fn finger(probe: Probe) -> u8 {
    1 + probe.number(FINGER, 255) as u8
}

fn byte(bits: &Pages, at: usize) -> u8 {
    bits.page(at / PAGE_BYTES).map_or(0, |page| page[at % PAGE_BYTES])
}

impl CuckooPlan {
    /// The bytes of a layer.
    fn bytes_of(&self, layer: usize) -> Option<u64> {
        let growth = u64::from(self.growth).checked_pow(u32::try_from(layer).ok()?)?;
        self.buckets.checked_mul(growth)?.checked_mul(u64::from(self.width))
    }

    /// The most moves of other items for one item.
    #[must_use]
    pub fn moves(&self) -> usize {
        /// As in the paper. An item without a place after so many moves hardly ever finds one.
        const MOVES_MAX: u16 = 512;
        usize::from(self.kicks.min(MOVES_MAX))
    }

    fn is_sound(&self) -> bool {
        let is_growth = self.growth == 0 || self.growth.is_power_of_two();
        self.buckets >= 2 && self.buckets.is_power_of_two() && self.width > 0 && is_growth
    }
}

impl Cuckoo {
    /// Makes an empty filter. `None` if it would be too large.
    #[must_use]
    pub fn new(plan: CuckooPlan) -> Option<Self> {
        Self::bare(plan, 1, (0, 0))
    }

    /// A filter of `layers` layers without bytes, which are to be [loaded](Self::load_page): its
    /// numbers of items, also of removed ones, are only reported again. There may be more items
    /// than places, when a head was loaded without what belongs to it.
    #[must_use]
    pub fn bare(plan: CuckooPlan, layers: usize, (len, deleted): (u64, u64)) -> Option<Self> {
        /// A bound that keeps the numbers from overflowing.
        const TOLD_MAX: u64 = 1 << 60;
        let (len, deleted) = (len.min(TOLD_MAX), deleted.min(TOLD_MAX));
        let mut cuckoo = Self { plan, len, deleted, ..Self::default() };
        (plan.is_sound() && (0..layers).all(|_| cuckoo.push())).then_some(cuckoo)
    }

    /// Adds a layer. Returns false if the filter would be too large.
    fn push(&mut self) -> bool {
        let bytes = self.plan.bytes_of(self.layers.len());
        let bytes = bytes.filter(|bytes| *bytes > 0 && bytes + self.bytes <= BYTES_MAX);
        let Some(bytes) = bytes.filter(|_| self.layers.len() < CUCKOO_LAYERS_MAX) else {
            return false;
        };
        let bits = Pages::zeros(bytes as usize);
        (self.bytes, self.memory) = (self.bytes + bytes, self.memory + memory(&bits));
        self.layers.push(bits);
        true
    }

    /// The parameters of the filter.
    #[must_use]
    pub fn plan(&self) -> &CuckooPlan {
        &self.plan
    }

    /// The layers, from the first on.
    #[must_use]
    pub fn layers(&self) -> &[Pages] {
        &self.layers
    }

    /// The number of buckets in all layers.
    #[must_use]
    pub fn buckets(&self) -> u64 {
        self.bytes / u64::from(self.plan.width.max(1))
    }

    /// The number of items in the filter.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the filter has no layers, and so cannot be used.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The number of items that were removed.
    #[must_use]
    pub fn deleted(&self) -> u64 {
        self.deleted
    }

    /// The number of places for items. Cost: O(1).
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of memory. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory
    }

    /// The number of buckets of a layer, less one: a mask.
    fn mask(&self, layer: &Pages) -> u64 {
        layer.len() as u64 / u64::from(self.plan.width) - 1
    }

    /// The other bucket of a fingerprint that is in this bucket.
    fn other(&self, layer: &Pages, bucket: u64, finger: u8) -> u64 {
        (bucket ^ Probe::spread(finger)) & self.mask(layer)
    }

    /// The two buckets of an item in a layer.
    fn buckets_of(&self, layer: &Pages, probe: Probe) -> [u64; 2] {
        let first = probe.word() & self.mask(layer);
        [first, self.other(layer, first, finger(probe))]
    }

    /// The place of a fingerprint in a bucket: the first one if it is there more than once.
    fn find(&self, layer: &Pages, bucket: u64, finger: u8) -> Option<usize> {
        self.places(bucket).find(|at| byte(layer, *at) == finger)
    }

    fn places(&self, bucket: u64) -> std::ops::Range<usize> {
        let width = usize::from(self.plan.width);
        let start = bucket as usize * width;
        start..start + width
    }

    /// All places of the item's buckets: the newest layer first.
    fn all_places(&self, probe: Probe) -> impl Iterator<Item = (usize, usize)> {
        self.layers.iter().enumerate().rev().flat_map(move |(at, layer)| {
            let buckets = self.buckets_of(layer, probe).into_iter();
            buckets.flat_map(|bucket| self.places(bucket)).map(move |place| (at, place))
        })
    }

    /// The place of this fingerprint in one of the item's buckets.
    fn find_anywhere(&self, probe: Probe, wanted: u8) -> Option<(usize, usize)> {
        self.all_places(probe).find(|(layer, at)| byte(&self.layers[*layer], *at) == wanted)
    }

    /// Whether the filter contains the item, or seems to. Cost: O(layers * bytes of a bucket).
    #[must_use]
    pub fn contains(&self, probe: Probe) -> bool {
        self.find_anywhere(probe, finger(probe)).is_some()
    }

    /// True when the items, or some of them, can be added one after the other without moving others.
    /// Cost: O(items * (layers * bytes of a bucket + items)).
    #[must_use]
    pub fn have_room(&self, mut probes: impl Iterator<Item = Probe>) -> bool {
        // The places for all: fewer items, in the same order, take no others.
        let mut taken = Vec::new();
        probes.all(|probe| {
            let mut free = self.all_places(probe).filter(|(layer, at)| {
                byte(&self.layers[*layer], *at) == 0 && !taken.contains(&(*layer, *at))
            });
            let place = free.next();
            drop(free);
            taken.extend(place);
            place.is_some()
        })
    }

    /// How often the filter contains the item, or seems to. Cost: as [`Cuckoo::contains`].
    #[must_use]
    pub fn count(&self, probe: Probe) -> u64 {
        let finger = finger(probe);
        let of_bucket = |layer, bucket| {
            self.places(bucket).filter(|at| byte(layer, *at) == finger).count() as u64
        };
        let of_layer = |layer| self.buckets_of(layer, probe).map(|bucket| of_bucket(layer, bucket));
        self.layers.iter().flat_map(of_layer).sum()
    }

    /// Adds an item, even if it is there already. If there is room only after others have moved,
    /// nothing has changed yet: call [`Cuckoo::go_on`] until they have.
    pub fn add(&mut self, probe: Probe) -> Put {
        if let Some((layer, at)) = self.find_anywhere(probe, 0) {
            self.set(layer, at, finger(probe));
            self.len += 1;
            return Put::Done;
        }
        let Some(layer) = self.layers.last() else { return Put::Full };
        let bucket = self.buckets_of(layer, probe)[0];
        Put::Moving(Moving {
            probe,
            finger: finger(probe),
            bucket,
            path: Vec::new(),
            is_back: self.plan.kicks == 0,
        })
    }

    /// Makes at most `most` moves. `None`: there are more to make, and until then the filter must
    /// not be used for anything else.
    pub fn go_on(&mut self, moving: &mut Moving, most: usize) -> Option<Put> {
        let last = self.layers.len() - 1;
        for _ in 0..most {
            if !moving.is_back {
                if self.displace(moving) {
                    self.len += 1;
                    return Some(Put::Done);
                }
                moving.is_back = moving.path.len() >= self.plan.moves();
            } else if let Some((at, byte)) = moving.path.pop() {
                self.set(last, at, byte);
            } else {
                return Some(self.add_above(moving.probe));
            }
        }
        None
    }

    /// Gives the fingerprint without a place that of another fingerprint, or a free one. Returns
    /// true if it was free.
    fn displace(&mut self, moving: &mut Moving) -> bool {
        let last = self.layers.len() - 1;
        // The number depends on the item alone, so that it is the same wherever the change is
        // repeated.
        let turn = FINGER + 1 + moving.path.len() as u64;
        let step = moving.probe.number(turn, u64::from(self.plan.width)) as usize;
        let at = self.places(moving.bucket).start + step;
        let victim = byte(&self.layers[last], at);
        self.set(last, at, moving.finger);
        moving.path.push((at, victim));
        moving.finger = victim;
        let layer = &self.layers[last];
        moving.bucket = self.other(layer, moving.bucket, victim);
        let free = self.find(layer, moving.bucket, 0);
        if let Some(free) = free {
            self.set(last, free, victim);
        }
        free.is_some()
    }

    /// Adds an item to a new layer.
    fn add_above(&mut self, probe: Probe) -> Put {
        if self.plan.growth == 0 {
            return Put::Full;
        }
        if !self.push() {
            return Put::Stuck;
        }
        let last = self.layers.len() - 1;
        let at = self.places(self.buckets_of(&self.layers[last], probe)[0]).start;
        self.set(last, at, finger(probe));
        self.len += 1;
        Put::Done
    }

    /// Removes an item once. Returns false if the filter does not contain it.
    pub fn remove(&mut self, probe: Probe) -> bool {
        let Some((layer, at)) = self.find_anywhere(probe, finger(probe)) else { return false };
        self.set(layer, at, 0);
        // The number from a file may be too low.
        self.len = self.len.saturating_sub(1);
        self.deleted += 1;
        true
    }

    fn set(&mut self, layer: usize, at: usize, byte: u8) {
        let bits = &mut self.layers[layer];
        let before = bits.memory_bytes();
        bits.page_mut(at / PAGE_BYTES)[at % PAGE_BYTES] = byte;
        self.memory += bits.memory_bytes() - before;
    }

    /// Overwrites a page of a layer. Returns false if there is no such page, or its length differs.
    pub fn load_page(&mut self, layer: usize, page: usize, bytes: &[u8]) -> bool {
        let Some(bits) = self.layers.get_mut(layer) else { return false };
        let before = bits.memory_bytes();
        let is_there = bits.load(page, bytes);
        self.memory += bits.memory_bytes() - before;
        is_there
    }

    /// Panics if an invariant does not hold. Cost: O(bytes).
    pub fn check_invariants(&self) {
        assert!(self.layers.len() <= CUCKOO_LAYERS_MAX, "I1: {} layers", self.layers.len());
        for (at, layer) in self.layers.iter().enumerate() {
            assert_eq!(Some(layer.len() as u64), self.plan.bytes_of(at), "I1: bytes");
            layer.check_invariants();
        }
        let bytes = self.layers.iter().map(|layer| layer.len() as u64).sum::<u64>();
        assert_eq!(self.bytes, bytes, "I3: bytes");
        assert_eq!(self.memory, self.layers.iter().map(memory).sum::<usize>(), "I3: memory");
    }
}

fn memory(bits: &Pages) -> usize {
    bits.memory_bytes() + size_of::<Pages>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;
    use std::collections::BTreeMap;

    fn probe(number: u64) -> Probe {
        Probe::of(&number.to_le_bytes())
    }

    /// Adds an item, with some moves in each call.
    fn add(cuckoo: &mut Cuckoo, number: u64, most: usize) -> Put {
        match cuckoo.add(probe(number)) {
            Put::Moving(mut moving) => loop {
                if let Some(put) = cuckoo.go_on(&mut moving, most) {
                    break put;
                }
            },
            put => put,
        }
    }

    fn occupied(cuckoo: &Cuckoo) -> u64 {
        let of = |bits: &Pages| (0..bits.len()).filter(|at| byte(bits, *at) != 0).count() as u64;
        cuckoo.layers.iter().map(of).sum()
    }

    #[test] // Every present item is found, and few others.
    fn random_additions_and_removals_agree_with_a_bag() {
        for seed in 0..24 {
            let mut prng = Prng::from_seed(seed);
            let width = [1, 2, 4, 8][seed as usize % 4];
            let kicks = [20, 0, 500][seed as usize % 3];
            let growth = [1, 2, 4][seed as usize % 3];
            let mut cuckoo = Cuckoo::new(CuckooPlan { buckets: 512, width, kicks, growth })
                .expect("it is small");
            let mut model = BTreeMap::<u64, u64>::new();
            for _ in 0..4_000 {
                let number = prng.below(3_000);
                let there = model.entry(number).or_default();
                if prng.below(3) > 0 {
                    match add(&mut cuckoo, number, 1 + prng.below(50) as usize) {
                        Put::Done => *there += 1,
                        put => assert!(matches!(put, Put::Stuck), "seed {seed}: {put:?}"),
                    }
                } else if *there > 0 {
                    assert!(cuckoo.remove(probe(number)), "seed {seed}: {number}");
                    *there -= 1;
                }
            }
            let all: u64 = model.values().sum();
            assert_eq!((cuckoo.len(), occupied(&cuckoo)), (all, all), "seed {seed}");
            for (number, there) in &model {
                assert!(cuckoo.count(probe(*number)) >= *there, "seed {seed}: {number}");
                assert_eq!(cuckoo.contains(probe(*number)), cuckoo.count(probe(*number)) > 0);
            }
            cuckoo.check_invariants();
            let wrong = (10_000..30_000).filter(|number| cuckoo.contains(probe(*number))).count();
            let most = 2 * usize::from(width) * cuckoo.layers().len() * 20_000 / 255;
            assert!(wrong <= most * 11 / 10, "seed {seed}: {wrong} of {most}");
        }
    }

    #[test]
    fn a_refused_item_leaves_the_filter_unchanged() {
        let plan = CuckooPlan { buckets: 1_024, width: 2, kicks: 300, growth: 0 };
        let mut cuckoo = Cuckoo::new(plan).unwrap();
        let bytes = |cuckoo: &Cuckoo| -> Vec<u8> {
            (0..2_048).map(|at| byte(&cuckoo.layers[0], at)).collect()
        };
        let (mut added, mut refused) = (Vec::new(), 0);
        for number in 0..4_000 {
            let before = bytes(&cuckoo);
            match add(&mut cuckoo, number, 7) {
                Put::Done => added.push(number),
                put => {
                    assert!(matches!(put, Put::Full) && bytes(&cuckoo) == before, "{put:?}");
                    refused += 1;
                }
            }
        }
        assert!(added.len() > 1_720 && refused > 0, "{} of 2 048 places", added.len());
        assert!(added.iter().all(|number| cuckoo.contains(probe(*number))));
        assert_eq!((cuckoo.len(), occupied(&cuckoo)), (added.len() as u64, added.len() as u64));
    }

    #[test] // For buckets of one byte.
    fn false_positives_are_as_rare_as_documented() {
        let plan = CuckooPlan { buckets: 1 << 16, width: 1, kicks: 20, growth: 1 };
        let mut cuckoo = Cuckoo::new(plan).unwrap();
        (0..20_000).for_each(|number| _ = add(&mut cuckoo, number, 20));
        assert_eq!((cuckoo.layers().len(), cuckoo.len()), (1, 20_000));
        let wrong = (100_000..200_000).filter(|number| cuckoo.contains(probe(*number))).count();
        assert!((150..784).contains(&wrong), "{wrong} of 100 000; at most 2/255");
    }

    #[test]
    fn huge_filters_are_refused_and_large_empty_ones_take_no_memory() {
        let plan = CuckooPlan { buckets: 1 << 33, width: 2, kicks: 20, growth: 1 };
        let mut cuckoo = Cuckoo::new(plan).unwrap();
        assert!(cuckoo.memory_bytes() < 400_000, "{}", cuckoo.memory_bytes());
        assert!(matches!(cuckoo.add(probe(1)), Put::Done) && cuckoo.contains(probe(1)));
        assert!(Cuckoo::new(CuckooPlan { buckets: 1 << 40, ..plan }).is_none());
        assert!(Cuckoo::new(CuckooPlan { buckets: 1 << 62, width: 255, ..plan }).is_none());
        assert!(Cuckoo::bare(plan, 2, (0, 0)).is_none(), "32 GiB");
    }
}
