//! The Bloom filter type: its row, its values, its editor.

use super::items::{self, Building, outline};
use crate::filter_dump::{OUTLINE, place_of};
use darter_keyspace::commands::{self, Commands};
use darter_keyspace::{
    Change, Collection, Db, Event, Fresh, Key, NewItem, Object, Recorder, StrPieces, Type, Typed,
    Value, WrongType,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Items, Kind, Layout, Origin};
use darter_structs::filter::{Added, Bloom, Layer, Plan, Probe};
use darter_structs::pages::PAGE_BYTES;

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
    Add(Probe, StrPieces),
    /// Loads the piece with this number of a dump.
    Load(i64, Vec<u8>),
}

const REPLAYED: &Event = &Event::new("bf.add", b'd');

impl Change for BloomChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        match self {
            Self::Assign(chain) => chain.memory_bytes(),
            Self::Add(_, item) => item.fresh().len(),
            Self::Load(_, bytes) => bytes.len(),
        }
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        let apply = |edit: &mut BloomEdit<'_>| changes.iter().for_each(|change| edit.apply(change));
        db.edit::<BloomFilter, _>(key, true, apply)?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        let are_items =
            |one: &Self, other: &Self| matches!((one, other), (Self::Add(..), Self::Add(..)));
        commands::runs(changes, are_items, |run| match &run[0] {
            Self::Assign(chain) => load(key, OUTLINE, &outline(chain), to),
            Self::Load(piece, bytes) => load(key, *piece, bytes, to),
            Self::Add(..) => {
                to.begin(4 + run.len());
                [b"BF.INSERT", key, b"NOCREATE", b"ITEMS"].iter().for_each(|word| to.word(word));
                run.iter().for_each(|change| {
                    if let Self::Add(_, item) = change {
                        to.pieces(item);
                    }
                });
            }
        });
    }
}

/// Writes the command that loads a piece of a dump.
fn load(key: &[u8], piece: i64, bytes: &[u8], to: &mut Commands) {
    to.begin(4);
    to.word(b"BF.LOADCHUNK");
    to.word(key);
    to.number(piece);
    to.word(bytes);
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

    /// Adds an item, which has this hash.
    pub fn add(&mut self, event: &'static Event, probe: Probe, item: Fresh<'_>) -> Added {
        let added = self.chain.add(probe);
        if added == Added::New {
            self.recorder.record(&[event], || BloomChange::Add(probe, item.to_pieces()));
        }
        added
    }

    /// Loads the piece with this number of a dump: see `filter_dump`. Returns false if the filter
    /// has no piece of this number and length.
    pub fn load(&mut self, event: &'static Event, piece: i64, bytes: &[u8]) -> bool {
        let layers = self.chain.layers().iter().map(Layer::bits);
        let Some((layer, first)) = place_of(layers, (piece, bytes.len())) else { return false };
        let mut pages = bytes.chunks(PAGE_BYTES).enumerate();
        let chain = &mut *self.chain;
        let is_loaded = pages.all(|(at, page)| chain.load_page(layer, first + at, page));
        if is_loaded {
            self.recorder.record(&[event], || BloomChange::Load(piece, bytes.to_vec()));
        }
        is_loaded
    }

    fn apply(&mut self, change: &BloomChange) {
        match change {
            BloomChange::Assign(chain) => self.assign(REPLAYED, chain.clone()),
            BloomChange::Add(probe, item) => _ = self.add(REPLAYED, *probe, item.fresh()),
            BloomChange::Load(piece, bytes) => _ = self.load(REPLAYED, *piece, bytes),
        }
    }
}
