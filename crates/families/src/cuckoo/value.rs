//! The cuckoo filter type: its row, its values, its editor.

use super::items::{self, Building};
use darter_keyspace::{
    Change, Collection, Db, Event, Key, NewItem, Object, Recorder, Type, Typed, Value, WrongType,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Items, Kind, Layout, Origin};
use darter_structs::filter::{Cuckoo, CuckooPlan, Moving, Probe, Put};

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
    Add(Probe),
    /// Removes the item with this hash once.
    Remove(Probe),
    /// Sets the bytes of a page of a layer.
    Page(usize, usize, Vec<u8>),
}

const REPLAYED: &Event = &Event::new("cf.add", b'd');

impl Change for CuckooChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        match self {
            Self::Assign(cuckoo) => cuckoo.memory_bytes(),
            Self::Add(_) | Self::Remove(_) => 0,
            Self::Page(_, _, bytes) => bytes.len(),
        }
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        let apply =
            |edit: &mut CuckooEdit<'_>| changes.iter().for_each(|change| edit.apply(change));
        db.edit::<CuckooFilter, _>(key, true, apply)?;
        Ok(())
    }
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
    pub fn add(&mut self, event: &'static Event, probe: Probe) -> Put {
        let put = self.cuckoo.add(probe);
        if let Put::Done = put {
            self.recorder.record(&[event], || CuckooChange::Add(probe));
        }
        put
    }

    /// Moves other items to make room for an item, up to the limit: see [`Cuckoo::go_on`].
    pub fn go_on(
        &mut self,
        event: &'static Event,
        (probe, moving): (Probe, &mut Moving),
        most: usize,
    ) -> Option<Put> {
        let put = self.cuckoo.go_on(moving, most);
        if let Some(Put::Done) = put {
            self.recorder.record(&[event], || CuckooChange::Add(probe));
        }
        put
    }

    /// Removes an item once. Returns false if it is absent.
    pub fn remove(&mut self, event: &'static Event, probe: Probe) -> bool {
        let is_removed = self.cuckoo.remove(probe);
        if is_removed {
            self.recorder.record(&[event], || CuckooChange::Remove(probe));
        }
        is_removed
    }

    /// Overwrites a page of a layer. Returns false if there is no such page, or if its length
    /// differs.
    pub fn load(
        &mut self,
        event: &'static Event,
        (layer, page): (usize, usize),
        bytes: &[u8],
    ) -> bool {
        let is_there = self.cuckoo.load_page(layer, page, bytes);
        if is_there {
            self.recorder.record(&[event], || CuckooChange::Page(layer, page, bytes.to_vec()));
        }
        is_there
    }

    fn apply(&mut self, change: &CuckooChange) {
        match change {
            CuckooChange::Assign(cuckoo) => self.assign(REPLAYED, cuckoo.clone()),
            CuckooChange::Add(probe) => {
                if let Put::Moving(mut moving) = self.add(REPLAYED, *probe) {
                    let most = usize::from(u16::MAX);
                    while self.go_on(REPLAYED, (*probe, &mut moving), most).is_none() {}
                }
            }
            CuckooChange::Remove(probe) => _ = self.remove(REPLAYED, *probe),
            CuckooChange::Page(layer, page, bytes) => {
                self.load(REPLAYED, (*layer, *page), bytes);
            }
        }
    }
}
