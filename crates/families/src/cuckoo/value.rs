//! The cuckoo filter type: its row, its values, its editor.

use super::items::{self, Building, outline};
use crate::filter_dump::{OUTLINE, place_of};
use darter_keyspace::commands::{self, Commands};
use darter_keyspace::{
    Change, Collection, Db, Event, Fresh, Key, NewItem, Object, Recorder, StrPieces, Type, Typed,
    Value, WrongType,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Items, Kind, Layout, Origin};
use darter_structs::filter::{Cuckoo, CuckooPlan, Moving, Probe, Put};
use darter_structs::pages::PAGE_BYTES;

static TYPE: &Type = &Type {
    name: "MBbloomCF",
    number: 8,
    rdb: &Kind {
        encodings: &[Encoding::of(Origin::Darter, PARTS, Layout::Singles)],
        packed: Bounds::DEFAULT,
        plan: |survey| survey.plain(PARTS),
    },
    empty: || Object::new(CuckooFilter::default()),
    bounds: &[],
    is_ordered: true,
};

/// The file format of a filter: its parts. RedisBloom's format belongs to a module, and places the
/// bytes differently.
const PARTS: u8 = PRIVATE + 9;

/// The shape of a filter that CF.ADD creates: room for 1 024 items.
pub(super) const DEFAULT: CuckooPlan = CuckooPlan { buckets: 512, width: 2, kicks: 20, growth: 1 };

/// A cuckoo filter. Cloning it is a cut.
#[derive(Clone, Default)]
pub struct CuckooFilter {
    cuckoo: Cuckoo,
    /// Items read from a file and not yet installed.
    building: Building,
}

impl CuckooFilter {
    /// The filter.
    #[must_use]
    pub fn cuckoo(&self) -> &Cuckoo {
        &self.cuckoo
    }
}

impl Value for CuckooFilter {
    fn content_bytes(&self) -> usize {
        self.cuckoo.memory_bytes()
    }

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn items(&self, _: u64) -> Items {
        Box::new(items::Parts::of(self.cuckoo.clone()))
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let NewItem::Pair { name, .. } = item else {
            return self.building.take(&mut self.cuckoo, item.name());
        };
        if self.cuckoo.is_empty() {
            self.cuckoo = Cuckoo::new(DEFAULT).expect("it is small");
        }
        let put = self.cuckoo.add(Probe::of(name));
        matches!(finished(&mut self.cuckoo, put), Put::Done)
    }

    fn is_empty(&self) -> bool {
        self.cuckoo.is_empty()
    }

    fn check_invariants(&self) {
        self.cuckoo.check_invariants();
    }
}

/// Continues moving items until each has a place.
fn finished(cuckoo: &mut Cuckoo, put: Put) -> Put {
    let Put::Moving(mut moving) = put else { return put };
    loop {
        if let Some(put) = cuckoo.go_on(&mut moving, usize::from(u16::MAX)) {
            return put;
        }
    }
}

impl Typed for CuckooFilter {
    const TYPE: &'static Type = TYPE;
}

impl Collection for CuckooFilter {
    type Edit<'a> = CuckooEdit<'a>;

    fn edit<'a>(&'a mut self, _: u64, recorder: Recorder<'a>) -> CuckooEdit<'a> {
        CuckooEdit { cuckoo: &mut self.cuckoo, recorder }
    }
}

/// A change of a filter, as recorded in the log. Replaying it moves the same items, because moves
/// depend only on the content.
#[derive(Debug)]
pub enum CuckooChange {
    /// Replaces the filter by this one, which has no items: as created, or as described by a dump.
    Assign(Cuckoo),
    /// Adds the item with this hash once.
    Add(Probe, StrPieces),
    /// Removes the item with this hash once.
    Remove(Probe, StrPieces),
    /// Loads the piece with this number of a dump.
    Load(i64, Vec<u8>),
}

const REPLAYED: &Event = &Event::new("cf.add", b'd');

impl Change for CuckooChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        match self {
            Self::Assign(cuckoo) => cuckoo.memory_bytes(),
            Self::Add(_, item) | Self::Remove(_, item) => item.fresh().len(),
            Self::Load(_, bytes) => bytes.len(),
        }
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        let apply =
            |edit: &mut CuckooEdit<'_>| changes.iter().for_each(|change| edit.apply(change));
        db.edit::<CuckooFilter, _>(key, true, apply)?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        let are_items =
            |one: &Self, other: &Self| matches!((one, other), (Self::Add(..), Self::Add(..)));
        commands::runs(changes, are_items, |run| match &run[0] {
            Self::Assign(cuckoo) => load(key, OUTLINE, &outline(cuckoo), to),
            Self::Load(piece, bytes) => load(key, *piece, bytes, to),
            Self::Add(..) => {
                to.begin(4 + run.len());
                [b"CF.INSERT", key, b"NOCREATE", b"ITEMS"].iter().for_each(|word| to.word(word));
                run.iter().for_each(|change| {
                    if let Self::Add(_, item) = change {
                        to.pieces(item);
                    }
                });
            }
            Self::Remove(_, item) => {
                to.begin(3);
                to.word(b"CF.DEL");
                to.word(key);
                to.pieces(item);
            }
        });
    }
}

/// Writes the command that loads a piece of a dump.
fn load(key: &[u8], piece: i64, bytes: &[u8], to: &mut Commands) {
    to.begin(4);
    to.word(b"CF.LOADCHUNK");
    to.word(key);
    to.number(piece);
    to.word(bytes);
}

/// Changes a filter, and records the effects.
pub struct CuckooEdit<'a> {
    cuckoo: &'a mut Cuckoo,
    recorder: Recorder<'a>,
}

impl CuckooEdit<'_> {
    /// The current state of the filter.
    #[must_use]
    pub fn cuckoo(&self) -> &Cuckoo {
        self.cuckoo
    }

    /// Replaces the filter by an empty one.
    pub fn assign(&mut self, event: &'static Event, cuckoo: Cuckoo) {
        *self.cuckoo = cuckoo;
        self.recorder.record(&[event], || CuckooChange::Assign(self.cuckoo.clone()));
    }

    /// Adds an item, if there is room without moving others.
    pub fn add(&mut self, event: &'static Event, (probe, item): (Probe, Fresh<'_>)) -> Put {
        let put = self.cuckoo.add(probe);
        if let Put::Done = put {
            self.recorder.record(&[event], || CuckooChange::Add(probe, item.to_pieces()));
        }
        put
    }

    /// Moves other items to make room for an item, up to the limit: see [`Cuckoo::go_on`].
    pub fn go_on(
        &mut self,
        event: &'static Event,
        (probe, item): (Probe, Fresh<'_>),
        moving: &mut Moving,
        most: usize,
    ) -> Option<Put> {
        let put = self.cuckoo.go_on(moving, most);
        if let Some(Put::Done) = put {
            self.recorder.record(&[event], || CuckooChange::Add(probe, item.to_pieces()));
        }
        put
    }

    /// Removes an item once. Returns false if it is absent.
    pub fn remove(&mut self, event: &'static Event, (probe, item): (Probe, Fresh<'_>)) -> bool {
        let is_removed = self.cuckoo.remove(probe);
        if is_removed {
            self.recorder.record(&[event], || CuckooChange::Remove(probe, item.to_pieces()));
        }
        is_removed
    }

    /// Loads the piece with this number of a dump: see `filter_dump`. Returns false if the filter
    /// has no piece of this number and length.
    pub fn load(&mut self, event: &'static Event, piece: i64, bytes: &[u8]) -> bool {
        let layers = self.cuckoo.layers().iter();
        let Some((layer, first)) = place_of(layers, (piece, bytes.len())) else { return false };
        let mut pages = bytes.chunks(PAGE_BYTES).enumerate();
        let cuckoo = &mut *self.cuckoo;
        let is_loaded = pages.all(|(at, page)| cuckoo.load_page(layer, first + at, page));
        if is_loaded {
            self.recorder.record(&[event], || CuckooChange::Load(piece, bytes.to_vec()));
        }
        is_loaded
    }

    fn apply(&mut self, change: &CuckooChange) {
        match change {
            CuckooChange::Assign(cuckoo) => self.assign(REPLAYED, cuckoo.clone()),
            CuckooChange::Add(probe, item) => {
                let item = (*probe, item.fresh());
                if let Put::Moving(mut moving) = self.add(REPLAYED, item) {
                    let most = usize::from(u16::MAX);
                    while self.go_on(REPLAYED, item, &mut moving, most).is_none() {}
                }
            }
            CuckooChange::Remove(probe, item) => {
                self.remove(REPLAYED, (*probe, item.fresh()));
            }
            CuckooChange::Load(piece, bytes) => _ = self.load(REPLAYED, *piece, bytes),
        }
    }
}
