//! The type: its row, its values, how they are changed.

use super::long::LongItem;
use super::parts::Parts;
use crate::page_items::Pieces;
use crate::sketches::cells;
use darter_base::{Prng, hash};
use darter_keyspace::commands::{self, Commands};
use darter_keyspace::{
    Change, Collection, Db, Event, Key, Name, NewItem, Object, Recorder, Type, Typed, Value,
    WrongType,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Items, Kind, Layout, Origin, Plan, Survey};
use darter_structs::pages::Pages;
use darter_structs::sorted::{End, Sorted, SortedEntry};
use darter_structs::table::Scratch;

static TYPE: &Type = &Type {
    name: "TopK-TYPE",
    number: 10,
    rdb: &Kind { encodings: ENCODINGS, packed: Bounds::DEFAULT, plan },
    empty: || Object::new(TopK::default()),
    bounds: &[],
    is_ordered: true,
};

/// How a sketch is laid out in a file: its head, its buckets, its list.
const SKETCH: u8 = PRIVATE + 11;

const ENCODINGS: &[Encoding] = &[Encoding::of(Origin::Darter, SKETCH, Layout::Singles)];

fn plan(survey: &Survey) -> Plan {
    survey.plain(SKETCH)
}

const BUCKET_BYTES: u64 = 8;
/// A chance that is as good as none: it would come once in a century of attempts.
const CHANCE_MIN: f64 = 1e-18;

const RESERVE: &Event = &Event::new("topk.reserve", b'd');
const ADD: &Event = &Event::new("topk.add", b'd');
/// The keyspace event of TOPK.INCRBY.
pub(super) const INCRBY: &Event = &Event::new("topk.incrby", b'd');

/// The parameters of a sketch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TopKShape {
    /// Items in the list.
    pub k: u32,
    /// Buckets in a row.
    pub width: u32,
    /// Rows.
    pub depth: u32,
    /// The chance that an item decays a bucket of another with the count 1; that power of it, for
    /// higher counts.
    pub decay: f64,
}

impl TopKShape {
    /// The parameters of a TOPK.RESERVE with only `k`.
    #[must_use]
    pub const fn usual(k: u32) -> Self {
        Self { k, width: 8, depth: 7, decay: 0.9 }
    }

    /// Writes the command that makes an empty sketch.
    fn encode(&self, key: &[u8], to: &mut Commands) {
        to.begin(6);
        to.word(b"TOPK.RESERVE");
        to.word(key);
        [self.k, self.width, self.depth].iter().for_each(|size| to.natural(u64::from(*size)));
        to.score(self.decay);
    }

    fn is_one(&self) -> bool {
        self.k > 0 && self.decay > 0.0 && self.decay <= 1.0
    }
}

/// The items that come most often, by HeavyKeeper (Gong and others: "HeavyKeeper: an accurate
/// algorithm for finding top-k elephant flows", 2018). Cloning it is a cut.
///
/// A bucket has the fingerprint of one item and its count; others decay it, the less likely the
/// higher the count, and take it over when nothing is left. An item's count is the highest of those
/// that bear its fingerprint, so it is hardly ever too high.
#[derive(Clone, Default)]
pub struct TopK {
    shape: TopKShape,
    /// Row by row: fingerprint, count.
    buckets: Pages,
    /// At most `k` items, with their counts.
    list: Sorted,
    /// While a value is built from pieces: the pieces of the buckets that may come next.
    taken: Pieces,
    /// While it is built from pieces: the count of the list's next item, which comes alone as it is
    /// long.
    told: Option<u32>,
}

/// An item that has left the list.
pub enum Expelled {
    /// A copy.
    Short(Vec<u8>),
    /// A long one.
    Long(LongItem),
}

impl Expelled {
    fn of(entry: &SortedEntry<'_>) -> Self {
        let copy = || entry.member().bytes(&mut Scratch::new()).to_vec();
        LongItem::of(entry).map_or_else(|| Self::Short(copy()), Self::Long)
    }

    /// The item.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(long) => long.bytes(),
        }
    }
}

/// A bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    print: u32,
    count: u32,
}

impl Bucket {
    fn of(bytes: [u8; 8]) -> Self {
        let both = u64::from_le_bytes(bytes);
        Self { print: both as u32, count: (both >> 32) as u32 }
    }

    fn bytes(self) -> [u8; 8] {
        (u64::from(self.count) << 32 | u64::from(self.print)).to_le_bytes()
    }

    /// An item with this fingerprint came `times` more.
    fn meet(&mut self, print: u32, times: u32, decay: f64, prng: &mut Prng) {
        let mut left = times;
        while self.count > 0 && self.print != print {
            let attempts = attempts(decay.powf(f64::from(self.count)), prng);
            if attempts > u64::from(left) {
                return;
            }
            left -= attempts as u32;
            self.count -= 1;
            if self.count == 0 {
                left += 1; // The attempt that took the last one counts for the new owner.
            }
        }
        if left > 0 {
            *self = Self { print, count: self.count.saturating_add(left) };
        }
    }
}

/// How many attempts it takes until one with this chance succeeds, as drawn.
fn attempts(chance: f64, prng: &mut Prng) -> u64 {
    if chance >= 1.0 {
        return 1;
    }
    if chance < CHANCE_MIN {
        return u64::MAX;
    }
    let drawn = ((prng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    waited(drawn, chance)
}

/// The attempts that a number from 0 to 1 stands for.
fn waited(drawn: f64, chance: f64) -> u64 {
    ((drawn.ln() / (-chance).ln_1p()) as u64).saturating_add(1)
}

impl TopK {
    /// An empty sketch; `None` if it would be too large, or of no size.
    #[must_use]
    pub fn new(shape: TopKShape) -> Option<Self> {
        let buckets = cells::zeros(shape.width.into(), shape.depth.into(), BUCKET_BYTES)?;
        shape.is_one().then(|| Self { shape, buckets, ..Self::default() })
    }

    /// The parameters.
    #[must_use]
    pub fn shape(&self) -> TopKShape {
        self.shape
    }

    /// Whether the recorded change is one of this sketch, once its list is `list`. Makes the change
    /// to that list.
    pub(super) fn fits(&self, change: &TopKChange, list: &mut Sorted) -> bool {
        let TopKShape { k, width, depth, .. } = self.shape;
        match change {
            TopKChange::Create { .. } => false,
            TopKChange::Bucket { at, .. } => *at < u64::from(width) * u64::from(depth),
            TopKChange::List { item, count } => {
                let hash = hash::of(item);
                let has_room = list.len() < k as usize || list.score(hash, item).is_some();
                list.insert(hash, item, f64::from(*count));
                *count > 0 && has_room
            }
            TopKChange::Expel => list.pop(End::Front, |_| ()).is_some(),
        }
    }

    /// The items that come most often, with their counts.
    #[must_use]
    pub fn list(&self) -> &Sorted {
        &self.list
    }

    /// True if a few more items may displace this number of bytes of the list.
    pub(super) fn may_expel(&self, items: usize, bytes: usize) -> bool {
        if self.list.len() + items <= self.shape.k as usize {
            return false;
        }
        let lens = (0..items).map_while(|rank| self.list.get(rank)).map(|one| one.member().len());
        lens.sum::<usize>() > bytes
    }

    pub(super) fn buckets(&self) -> &Pages {
        &self.buckets
    }

    /// A cut for a long-lived reader.
    pub(super) fn reader(&self) -> Self {
        Self { buckets: self.buckets.reader(), list: self.list.reader(), ..*self }
    }

    /// Bytes of a deleted sketch that a reader holds.
    pub(super) fn pinned_bytes(&self) -> usize {
        let list = if self.list.is_pinned() { self.list.memory_bytes() } else { 0 };
        self.buckets.pinned_bytes() + list
    }

    /// How often an item came, if it is in the list.
    #[must_use]
    pub fn listed(&self, item: &[u8]) -> Option<u32> {
        self.list.score(hash::of(item), item).map(|count| count as u32)
    }

    /// How often the item with this fixed hash came, by its bucket in a row.
    #[must_use]
    pub fn count_in(&self, hash: u64, row: u32) -> u32 {
        let bucket = Bucket::of(cells::get(&self.buckets, self.place(hash, row)));
        if bucket.print == hash as u32 { bucket.count } else { 0 }
    }

    fn place(&self, hash: u64, row: u32) -> u64 {
        cells::place(hash, row.into(), self.shape.width.into())
    }

    /// How many pages are copied when the item with this hash is counted.
    pub(super) fn copies(&self, hash: u64) -> usize {
        let is_shared = |row: &u32| cells::is_shared::<8>(&self.buckets, self.place(hash, *row));
        (0..self.shape.depth).filter(is_shared).count()
    }

    /// The head in a file.
    pub(super) fn head(&self) -> [u8; 20] {
        let TopKShape { k, width, depth, decay } = self.shape;
        let mut head = [0; 20];
        for (place, number) in head.as_chunks_mut().0.iter_mut().zip([k, width, depth]) {
            *place = number.to_le_bytes();
        }
        head[12..].copy_from_slice(&decay.to_le_bytes());
        head
    }

    /// Becomes the empty sketch that a head describes. False if there is none.
    fn take_head(&mut self, head: &[u8]) -> bool {
        let Some((numbers, decay)) = head.split_first_chunk::<12>() else { return false };
        let Ok(decay) = <[u8; 8]>::try_from(decay) else { return false };
        let &[k, width, depth] = numbers.as_chunks().0 else { return false };
        let [k, width, depth] = [k, width, depth].map(u32::from_le_bytes);
        let new = Self::new(TopKShape { k, width, depth, decay: f64::from_le_bytes(decay) });
        *self = new.unwrap_or_default();
        !self.is_empty()
    }

    /// Puts an item of a file into the list. False if there is no place for it.
    fn take_listed(&mut self, count: u32, item: &[u8]) -> bool {
        let has_place = self.list.len() < self.shape.k as usize && count > 0;
        has_place && self.list.insert(hash::of(item), item, count.into()).is_none()
    }
}

impl Value for TopK {
    fn content_bytes(&self) -> usize {
        self.buckets.memory_bytes() + self.list.memory_bytes()
    }

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn items(&self, _: u64) -> Items {
        Box::new(Parts::new(self.reader()))
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        if let NewItem::Pair { name, .. } = item {
            if self.is_empty() {
                *self = Self::new(TopKShape::usual(50)).expect("it is small");
            }
            self.edit(0, Recorder::none()).add(name, 1, &mut Prng::from_seed(hash::digest(name)));
            return true;
        }
        if let Some(count) = self.told.take() {
            return self.take_listed(count, item.name());
        }
        match item.name().split_first() {
            Some((b'h', head)) if self.is_empty() => self.take_head(head),
            Some((b'b', piece)) if !self.is_empty() => {
                let piece = self.taken.take(piece);
                piece.is_some_and(|(at, bytes)| self.buckets.load(at, bytes))
            }
            Some((b'i' | b'l', listed)) => {
                let Some((count, name)) = listed.split_first_chunk() else { return false };
                let count = u32::from_le_bytes(*count);
                if item.name()[0] == b'i' {
                    return self.take_listed(count, name);
                }
                self.told = Some(count);
                name.is_empty()
            }
            _ => false,
        }
    }

    fn is_complete(&self) -> bool {
        self.told.is_none()
    }

    fn is_empty(&self) -> bool {
        self.shape.k == 0
    }

    fn check_invariants(&self) {
        self.list.check_invariants();
        assert!(self.list.len() <= self.shape.k as usize, "a list of {}", self.list.len());
    }

    fn earliest_deadline(&self) -> Option<u64> {
        self.list.is_unsettled().then_some(0)
    }

    fn reap(&mut self, _now: u64, most: usize, _: &mut Recorder<'_>) -> bool {
        self.list.settle(most)
    }
}

impl Typed for TopK {
    const TYPE: &'static Type = TYPE;
}

impl Collection for TopK {
    type Edit<'a> = TopKEdit<'a>;

    fn edit<'a>(&'a mut self, _: u64, recorder: Recorder<'a>) -> TopKEdit<'a> {
        TopKEdit { sketch: self, recorder }
    }
}

/// A recorded change to a sketch: the outcome of its random choices.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum TopKChange {
    /// A new sketch.
    Create { shape: TopKShape },
    /// A bucket has these bytes.
    Bucket { at: u64, bytes: [u8; 8] },
    /// The item is in the list, with this count.
    List { item: Name, count: u32 },
    /// The item at the end of the list has left it.
    Expel,
}

impl Change for TopKChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        if let Self::List { item, .. } = self { item.len() } else { 0 }
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<TopK, _>(key, true, |edit| changes.iter().for_each(|change| edit.apply(change)))?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        let is_new = |change: &Self| matches!(change, Self::Create { .. });
        let are_alike = |one: &Self, other: &Self| !is_new(one) && !is_new(other);
        commands::runs(changes, are_alike, |run| {
            if let Self::Create { shape } = &run[0] {
                shape.encode(key, to);
            } else {
                to.begin(2 + run.iter().map(Self::words).sum::<usize>());
                to.word(b"TOPK.REPLAY");
                to.word(key);
                run.iter().for_each(|change| change.encode_one(to));
            }
        });
    }
}

impl TopKChange {
    /// The number of words in TOPK.REPLAY.
    fn words(&self) -> usize {
        match self {
            Self::Bucket { .. } | Self::List { .. } => 3,
            Self::Create { .. } | Self::Expel => 1,
        }
    }

    fn encode_one(&self, to: &mut Commands) {
        match self {
            Self::Bucket { at, bytes } => {
                to.word(b"BUCKET");
                to.natural(*at);
                to.natural(u64::from_le_bytes(*bytes));
            }
            Self::List { item, count } => {
                to.word(b"LIST");
                to.word(item);
                to.natural(u64::from(*count));
            }
            Self::Create { .. } | Self::Expel => to.word(b"EXPEL"),
        }
    }
}

/// Changes a sketch, and records the effects.
pub struct TopKEdit<'a> {
    sketch: &'a mut TopK,
    recorder: Recorder<'a>,
}

impl TopKEdit<'_> {
    /// Reports the changes that follow as `event`.
    pub fn tell_as(&mut self, event: &'static Event) {
        self.recorder.tell_as(event);
    }

    /// The sketch as it is now.
    #[must_use]
    pub fn sketch(&self) -> &TopK {
        self.sketch
    }

    /// Makes a new one. False if it would be too large, or nothing.
    pub fn create(&mut self, shape: TopKShape) -> bool {
        let Some(new) = TopK::new(shape) else { return false };
        *self.sketch = new;
        self.recorder.record(&[RESERVE], || TopKChange::Create { shape });
        true
    }

    /// The item came `times` more. Returns the one that has left the list for it.
    pub fn add(&mut self, item: &[u8], times: u32, prng: &mut Prng) -> Option<Expelled> {
        let (hash, rows) = (hash::digest(item), 0..self.sketch.shape.depth);
        let count = rows.map(|row| self.count(hash, row, times, prng)).max();
        self.list(item, count.unwrap_or(0))
    }

    /// The item with this fixed hash came `times` more, in one row. Returns its count there. When all
    /// rows are done, [`TopKEdit::list`] puts it into the list.
    pub fn count(&mut self, hash: u64, row: u32, times: u32, prng: &mut Prng) -> u32 {
        let at = self.sketch.place(hash, row);
        let before = Bucket::of(cells::get(&self.sketch.buckets, at));
        let mut bucket = before;
        bucket.meet(hash as u32, times, self.sketch.shape.decay, prng);
        if bucket != before {
            let bytes = bucket.bytes();
            cells::set(&mut self.sketch.buckets, at, bytes);
            // The item counts as the change.
            self.recorder.record_death(&[ADD], || TopKChange::Bucket { at, bytes });
        }
        if bucket.print == hash as u32 { bucket.count } else { 0 }
    }

    /// All rows of the item are done, and this is the highest of its counts: it joins the list if it
    /// has a place there, or came as often as the last item. Returns that one, if it had to leave.
    pub fn list(&mut self, item: &[u8], count: u32) -> Option<Expelled> {
        let Self { sketch, recorder } = self;
        let (hash, is_full) = (hash::of(item), sketch.list.len() >= sketch.shape.k as usize);
        let old = sketch.list.score(hash, item);
        let least = sketch.list.get(0).map_or(0.0, |last| last.score());
        let count = old.unwrap_or(0.0).max(f64::from(count));
        let joins = count > 0.0 && (old.is_some() || !is_full || count >= least);
        recorder.count_more(1);
        if !joins || old == Some(count) {
            return None;
        }
        let expelled = (is_full && old.is_none())
            .then(|| {
                recorder.record_death(&[ADD], || TopKChange::Expel);
                sketch.list.pop(End::Front, |last| Expelled::of(&last))
            })
            .flatten();
        sketch.list.insert(hash, item, count);
        let count = count as u32;
        recorder.record_death(&[ADD], || TopKChange::List { item: Name::from(item), count });
        expelled
    }

    /// Repeats a recorded change, which must fit: see [`TopK::fits`].
    pub(super) fn apply(&mut self, change: &TopKChange) {
        let Self { sketch, recorder } = self;
        match change {
            TopKChange::Create { shape } => _ = self.create(*shape),
            &TopKChange::Bucket { at, bytes } => {
                cells::set(&mut sketch.buckets, at, bytes);
                recorder.record_death(&[ADD], || TopKChange::Bucket { at, bytes });
            }
            &TopKChange::List { ref item, count } => {
                sketch.list.insert(hash::of(item), item, f64::from(count));
                let item = || item.clone();
                recorder.record_death(&[ADD], || TopKChange::List { item: item(), count });
            }
            TopKChange::Expel => {
                sketch.list.pop(End::Front, |_| ());
                recorder.record_death(&[ADD], || TopKChange::Expel);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // The rarest of chances and the smallest of numbers are more attempts than can be counted.
    fn attempts_have_an_end() {
        assert_eq!(waited(f64::EPSILON / 2.0, CHANCE_MIN), u64::MAX);
        assert_eq!((waited(1.0, 0.5), waited(0.5, 0.5), waited(0.3, 0.5)), (1, 2, 2));
    }
}
