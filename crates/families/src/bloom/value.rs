//! The Bloom filter type: its row, its values, its editor.

use super::items::{self, Building};
use darter_keyspace::{
    Change, Collection, Db, Event, Key, NewItem, Object, Recorder, Type, Typed, Value, WrongType,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Items, Kind, Layout, Origin};
use darter_structs::filter::{Added, Bloom, Plan, Probe};

static TYPE: &Type = &Type {
    name: "MBbloom--",
    number: 7,
    rdb: &Kind {
        encodings: &[Encoding::of(Origin::Darter, PARTS, Layout::Singles)],
        packed: Bounds::DEFAULT,
        plan: |survey| survey.plain(PARTS),
    },
    empty: || Object::new(BloomFilter::default()),
    bounds: &[],
    is_ordered: true,
};

/// The file format of a filter: its parts. RedisBloom's format belongs to a module, and places the
/// bits differently.
const PARTS: u8 = PRIVATE + 8;

/// The shape of a filter that BF.ADD creates.
pub(super) const DEFAULT: Plan = Plan { error: 0.01, capacity: 100, growth: Some(2) };

/// A chain of filters. Cloning it is a cut.
#[derive(Clone, Default)]
pub struct BloomFilter {
    chain: Bloom,
    /// Items read from a file and not yet installed.
    building: Building,
}

impl BloomFilter {
    /// The filters.
    #[must_use]
    pub fn chain(&self) -> &Bloom {
        &self.chain
    }
}

impl Value for BloomFilter {
    fn content_bytes(&self) -> usize {
        self.chain.memory_bytes()
    }

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn items(&self, _: u64) -> Items {
        Box::new(items::Parts::of(self.chain.clone()))
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let NewItem::Pair { name, .. } = item else {
            return self.building.take(&mut self.chain, item.name());
        };
        if self.chain.is_empty() {
            self.chain = Bloom::new(DEFAULT).expect("it is small");
        }
        matches!(self.chain.add(Probe::of(name)), Added::New | Added::There)
    }

    fn is_complete(&self) -> bool {
        self.building.is_complete()
    }

    fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    fn check_invariants(&self) {
        self.chain.check_invariants();
    }
}

impl Typed for BloomFilter {
    const TYPE: &'static Type = TYPE;
}

impl Collection for BloomFilter {
    type Edit<'a> = BloomEdit<'a>;

    fn edit<'a>(&'a mut self, _: u64, recorder: Recorder<'a>) -> BloomEdit<'a> {
        BloomEdit { chain: &mut self.chain, recorder }
    }
}

/// A change of a filter, as recorded in the log.
#[derive(Debug)]
pub enum BloomChange {
    /// Replaces the filter by this one, which has no bits set: as created, or as described by a
    /// dump.
    Assign(Bloom),
    /// Adds the item with this hash.
    Add(Probe),
    /// Sets the bytes of a page of a layer.
    Page(usize, usize, Vec<u8>),
}

const REPLAYED: &Event = &Event::new("bf.add", b'd');

impl Change for BloomChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        match self {
            Self::Assign(chain) => chain.memory_bytes(),
            Self::Add(_) => 0,
            Self::Page(_, _, bytes) => bytes.len(),
        }
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        let apply = |edit: &mut BloomEdit<'_>| changes.iter().for_each(|change| edit.apply(change));
        db.edit::<BloomFilter, _>(key, true, apply)?;
        Ok(())
    }
}

/// Changes a filter, and records the effects.
pub struct BloomEdit<'a> {
    chain: &'a mut Bloom,
    recorder: Recorder<'a>,
}

impl BloomEdit<'_> {
    /// The current state of the filter.
    #[must_use]
    pub fn chain(&self) -> &Bloom {
        self.chain
    }

    /// Replaces the filter by an empty one.
    pub fn assign(&mut self, event: &'static Event, chain: Bloom) {
        *self.chain = chain;
        self.recorder.record(&[event], || BloomChange::Assign(self.chain.clone()));
    }

    /// Adds an item.
    pub fn add(&mut self, event: &'static Event, probe: Probe) -> Added {
        let added = self.chain.add(probe);
        if added == Added::New {
            self.recorder.record(&[event], || BloomChange::Add(probe));
        }
        added
    }

    /// Overwrites a page of a layer. Returns false if there is no such page, or if its length
    /// differs.
    pub fn load(
        &mut self,
        event: &'static Event,
        (layer, page): (usize, usize),
        bytes: &[u8],
    ) -> bool {
        let is_there = self.chain.load_page(layer, page, bytes);
        if is_there {
            self.recorder.record(&[event], || BloomChange::Page(layer, page, bytes.to_vec()));
        }
        is_there
    }

    fn apply(&mut self, change: &BloomChange) {
        match change {
            BloomChange::Assign(chain) => self.assign(REPLAYED, chain.clone()),
            BloomChange::Add(probe) => _ = self.add(REPLAYED, *probe),
            BloomChange::Page(layer, page, bytes) => {
                self.load(REPLAYED, (*layer, *page), bytes);
            }
        }
    }
}
