//! The Count-Min sketch type: its row, its values, its editor.

use crate::page_items::Pieces;
use crate::sketches::cells;
use darter_keyspace::commands::{self, Commands};
use darter_keyspace::{
    Change, Collection, Db, Event, Fresh, Key, NewItem, Object, Recorder, StrPieces, Type, Typed,
    Value, WrongType,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Item, Items, Kind, Layout, Origin, Plan, Source, Survey};
use darter_structs::pages::Pages;
use std::ops::Range;

static TYPE: &Type = &Type {
    name: "CMSk-TYPE",
    number: 9,
    rdb: &Kind { encodings: ENCODINGS, packed: Bounds::DEFAULT, plan },
    empty: || Object::new(Cms::default()),
    bounds: &[],
    is_ordered: true,
};

/// The file format of a sketch: its head, then its counters.
const SKETCH: u8 = PRIVATE + 10;

const ENCODINGS: &[Encoding] = &[Encoding::of(Origin::Darter, SKETCH, Layout::Singles)];

fn plan(survey: &Survey) -> Plan {
    survey.plain(SKETCH)
}

/// The highest count.
const COUNT_MAX: u32 = u32::MAX;
const CELL_BYTES: u64 = size_of::<u32>() as u64;

/// The shape that DEBUG POPULATE creates: an error of 0.1 %.
const USUAL: CmsShape = CmsShape { width: 2_000, depth: 7 };

pub(super) const INITBYDIM: &Event = &Event::new("cms.initbydim", b'd');
pub(super) const INITBYPROB: &Event = &Event::new("cms.initbyprob", b'd');
const INCRBY: &Event = &Event::new("cms.incrby", b'd');

/// The dimensions of a sketch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CmsShape {
    /// Counters in a row.
    pub width: u64,
    /// Number of rows.
    pub depth: u64,
}

/// A Count-Min sketch (Cormode and Muthukrishnan: "An improved data stream summary: the count-min
/// sketch and its applications", 2005). Cloning it is a cut.
#[derive(Clone, Default)]
pub struct Cms {
    shape: CmsShape,
    /// The sum of all increments; it wraps.
    count: i64,
    /// The counters, row by row.
    cells: Pages,
    /// While the sketch is being loaded: the pieces that may follow.
    taken: Pieces,
}

impl Cms {
    /// An empty sketch; `None` if it would have no counters, or too many.
    #[must_use]
    pub fn new(shape: CmsShape) -> Option<Self> {
        Self::of(shape, 0, cells::zeros(shape.width, shape.depth, CELL_BYTES)?)
    }

    /// A sketch with these counters; `None` if their number does not match `shape`.
    pub(super) fn of(shape: CmsShape, count: i64, cells: Pages) -> Option<Self> {
        let bytes = shape.width.checked_mul(shape.depth)?.checked_mul(CELL_BYTES)?;
        (cells.len() as u64 == bytes).then_some(Self {
            shape,
            count,
            cells,
            taken: Pieces::default(),
        })
    }

    /// The dimensions.
    #[must_use]
    pub fn shape(&self) -> CmsShape {
        self.shape
    }

    /// The sum of all increments.
    #[must_use]
    pub fn count(&self) -> i64 {
        self.count
    }

    /// The counters, four little-endian bytes each.
    pub(super) fn cells(&self) -> &Pages {
        &self.cells
    }

    /// A cut for a long-lived reader.
    pub(super) fn reader(&self) -> Self {
        Self { cells: self.cells.reader(), ..self.clone() }
    }

    /// The smallest counter in `rows` of the item with this hash.
    #[must_use]
    pub fn least(&self, hash: u64, rows: Range<u64>) -> u32 {
        let cell = |row| cells::get(&self.cells, cells::place(hash, row, self.shape.width));
        rows.map(|row| u32::from_le_bytes(cell(row))).min().unwrap_or(COUNT_MAX)
    }

    /// The number of pages that counting the item with this hash would copy.
    pub(super) fn copies(&self, hash: u64) -> usize {
        let cell = |row: &u64| cells::place(hash, *row, self.shape.width);
        (0..self.shape.depth).filter(|row| cells::is_shared::<4>(&self.cells, cell(row))).count()
    }

    fn head(&self) -> [u8; 24] {
        let CmsShape { width, depth } = self.shape;
        let mut head = [0; 24];
        let numbers = [width, depth, self.count.cast_unsigned()];
        for (place, number) in head.as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        head
    }

    /// Becomes the empty sketch described by `head`. Returns false if `head` is invalid.
    fn take_head(&mut self, head: &[u8]) -> bool {
        let (numbers, []) = head.as_chunks() else { return false };
        let &[width, depth, count] = numbers else { return false };
        let [width, depth, count] = [width, depth, count].map(u64::from_le_bytes);
        let Some(new) = Self::new(CmsShape { width, depth }) else { return false };
        *self = Self { count: count.cast_signed(), ..new };
        true
    }
}

impl Value for Cms {
    fn content_bytes(&self) -> usize {
        self.cells.memory_bytes()
    }

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn items(&self, _: u64) -> Items {
        let (sketch, item) = (self.reader(), Vec::new());
        Box::new(Parts { sketch, has_head: false, pieces: Pieces::default(), item })
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        if let NewItem::Pair { name, .. } = item {
            if self.is_empty() {
                *self = Self::new(USUAL).expect("it is small");
            }
            self.edit(0, Recorder::none()).add(
                Fresh::Bytes(name),
                darter_base::hash::digest(name),
                1,
            );
            return true;
        }
        if self.is_empty() {
            return self.take_head(item.name());
        }
        let piece = self.taken.take(item.name());
        piece.is_some_and(|(at, bytes)| self.cells.load(at, bytes))
    }

    fn is_empty(&self) -> bool {
        self.shape == CmsShape::default()
    }
}

impl Typed for Cms {
    const TYPE: &'static Type = TYPE;
}

impl Collection for Cms {
    type Edit<'a> = CmsEdit<'a>;

    fn edit<'a>(&'a mut self, _: u64, recorder: Recorder<'a>) -> CmsEdit<'a> {
        CmsEdit { sketch: self, recorder }
    }
}

/// The parts of a cut for a file: its head, then pieces of its counters.
struct Parts {
    sketch: Cms,
    has_head: bool,
    pieces: Pieces,
    item: Vec<u8>,
}

impl Source for Parts {
    fn find(&mut self, looks: &mut usize) -> bool {
        !self.has_head || self.pieces.find(&self.sketch.cells, looks)
    }

    fn next(&mut self) -> Option<Item<'_>> {
        self.item.clear();
        if !std::mem::replace(&mut self.has_head, true) {
            self.item.extend_from_slice(&self.sketch.head());
        } else if !self.pieces.next(&self.sketch.cells, &mut self.item) {
            return None;
        }
        Some(Item::Single { name: &self.item, deadline_ms: None })
    }

    fn rewind(&mut self) {
        (self.has_head, self.pieces) = (false, Pieces::default());
    }
}

/// A change of a sketch, as recorded in the log.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum CmsChange {
    /// Creates a sketch with these dimensions.
    Create { shape: CmsShape },
    /// Adds `by` to the count of the item, which has this hash.
    Add { item: StrPieces, hash: u64, by: i64 },
}

impl Change for CmsChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        if let Self::Add { item, .. } = self { item.fresh().len() } else { 0 }
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<Cms, _>(key, true, |edit| {
            for change in changes {
                match change {
                    Self::Create { shape } => _ = edit.create(INITBYDIM, *shape),
                    Self::Add { item, hash, by } => _ = edit.add(item.fresh(), *hash, *by),
                }
            }
        })?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        let are_added =
            |one: &Self, other: &Self| matches!((one, other), (Self::Add { .. }, Self::Add { .. }));
        commands::runs(changes, are_added, |run| match &run[0] {
            Self::Create { shape } => {
                to.begin(4);
                to.word(b"CMS.INITBYDIM");
                to.word(key);
                to.natural(shape.width);
                to.natural(shape.depth);
            }
            Self::Add { .. } => {
                to.begin(2 + 2 * run.len());
                to.word(b"CMS.INCRBY");
                to.word(key);
                run.iter().for_each(|change| {
                    if let Self::Add { item, by, .. } = change {
                        to.pieces(item);
                        to.number(*by);
                    }
                });
            }
        });
    }
}

/// Changes a sketch, and records the effects.
pub struct CmsEdit<'a> {
    sketch: &'a mut Cms,
    recorder: Recorder<'a>,
}

impl CmsEdit<'_> {
    /// Creates the sketch with these dimensions. Returns false if it would be too large.
    pub fn create(&mut self, event: &'static Event, shape: CmsShape) -> bool {
        let Some(new) = Cms::new(shape) else { return false };
        *self.sketch = new;
        self.recorder.record(&[event], || CmsChange::Create { shape });
        true
    }

    /// Adds to all counters of the item with this hash; see [`CmsEdit::add_in`]. Returns the
    /// smallest.
    pub fn add(&mut self, item: Fresh<'_>, hash: u64, by: i64) -> u32 {
        let least = self.add_in(hash, by, 0..self.sketch.shape.depth);
        self.end_add(item, hash, by);
        least
    }

    /// Adds to the counters in `rows` of the item with this hash; they stop at their maximum.
    /// Returns the smallest. After all rows, [`CmsEdit::end_add`] records the change.
    pub fn add_in(&mut self, hash: u64, by: i64, rows: Range<u64>) -> u32 {
        let Cms { shape, cells, .. } = &mut *self.sketch;
        let by = u32::try_from(by).unwrap_or(COUNT_MAX);
        let mut least = COUNT_MAX;
        for row in rows {
            let at = cells::place(hash, row, shape.width);
            let before = u32::from_le_bytes(cells::get(cells, at));
            let count = before.saturating_add(by);
            if count != before {
                cells::set(cells, at, count.to_le_bytes());
            }
            least = least.min(count);
        }
        least
    }

    /// Records an addition, after all rows are done.
    pub fn end_add(&mut self, item: Fresh<'_>, hash: u64, by: i64) {
        self.sketch.count = self.sketch.count.saturating_add(by);
        let item = || item.to_pieces();
        self.recorder.record(&[INCRBY], || CmsChange::Add { item: item(), hash, by });
    }
}
