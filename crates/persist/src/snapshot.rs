//! One core's part of a snapshot: cuts of its databases in, bytes of keys out.
//!
//! ```text
//! Part (cut of a database) -> Snapshot::step, 20 us each -> Chunk -> .. -> the file
//!                              survey, then encode, each value
//! ```
//! A [`Chunk`] holds whole keys of one database, unless it is *open*: then the next chunk of the
//! same core continues its last value, and no other core's chunk may come between. Otherwise the
//! chunks of several cores make one file in any order.
//!
//! The cut is freed while it is read, so writers copy nothing of the part already read. Segments
//! that writers have copied are read first, so that little is held twice. A value is surveyed
//! before it is written, because its encoding precedes it; both passes read one cut. If the number
//! of items alone decides the encoding, the value is read once, after the segment of its key, which
//! also holds it, has been released.
//!
//! - `held`: memory that writers have left to the snapshot.
//!
//! Not here: what precedes and follows the keys, files, and when to save. See `server`.

mod held;

use darter_base::UnixMillis;
use darter_keyspace::{Found, Object, Str};
use darter_rdb::lzf::Packer;
use darter_rdb::{Encoder, Items, Kind, Plan, Source, Survey, write_key, write_text};
use darter_structs::table::{HeldKey, Reader, Scratch, Table};
use held::Kept;
use std::collections::VecDeque;

/// The bytes of a chunk: long enough for the disk, short enough for several to be in memory.
pub const CHUNK_BYTES: usize = 128 * 1024;

/// The most entries (keys or items) in one step.
const ENTRIES_AT_ONCE: usize = 64;
/// The most bytes read or written in one step, except for the last item.
const BYTES_AT_ONCE: usize = 12 * 1024;
/// An item counts as another entry for each of this many bytes.
const BYTES_A_LOOK: usize = BYTES_AT_ONCE / ENTRIES_AT_ONCE;
/// The number of items from which much of a value may be copied while a segment is read: some
/// megabytes.
const HUGE: u64 = 1 << 16;
/// The number of large waiting values whose copies are counted.
const HUGE_COUNTED: usize = 16;
/// The bytes of a long key that are written in one step.
const KEY_BYTES_AT_ONCE: usize = 64 * 1024;

/// A snapshot of the keys of one database of one core.
pub struct Part {
    /// The number of the database.
    pub database: u32,
    /// The keys.
    pub keys: Table<Object>,
    /// The time of the snapshot. Entries that had expired by then are left out.
    pub now: UnixMillis,
    /// The memory of the database.
    pub bytes: usize,
}

/// The options for writing values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Whether strings are compressed: `rdbcompression`.
    pub packs: bool,
    /// Whether idle times are written, as Redis does under an LRU policy.
    pub tells_idle: bool,
}

/// The sizes of portions. Smaller portions let a test with little data take the paths of much data.
#[derive(Clone, Copy, Debug)]
pub struct Portions {
    /// The bytes of a chunk.
    pub chunk_bytes: usize,
    /// The most bytes read or written in one step, except for the last item.
    pub step_bytes: usize,
    /// The memory that writers may always leave to the snapshot, in KiB.
    pub held_min_kib: u64,
}

impl Default for Portions {
    fn default() -> Self {
        Self { chunk_bytes: CHUNK_BYTES, step_bytes: BYTES_AT_ONCE, held_min_kib: 128 }
    }
}

/// Bytes for the file.
#[derive(Debug, Default)]
pub struct Chunk {
    /// The database of the keys.
    pub database: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The number of keys that end in the chunk.
    pub keys: u64,
    /// Whether the last value continues in the next chunk.
    pub is_open: bool,
    /// Whether the chunk has a value in an encoding of Darter's own.
    pub is_private: bool,
}

/// The outcome of a step.
#[derive(Debug)]
pub enum Step {
    /// There is nothing to send yet.
    More,
    /// The next chunk of the file.
    Chunk(Chunk),
    /// All keys were in the previous chunks.
    Done,
}

/// A snapshot that is being written: see the module.
pub struct Snapshot {
    parts: VecDeque<Part>,
    reader: Option<Reader<Object>>,
    now: UnixMillis,
    style: Style,
    portions: Portions,
    packer: Option<Packer>,
    value: Option<Value>,
    /// The values that are written after the segments of their keys have been read. Each has the
    /// number of that segment.
    large: VecDeque<(usize, Value)>,
    chunk: Chunk,
    /// Whether the previous chunk is open.
    is_open: bool,
    /// Bytes that writers copied of values, and bytes of values that they replaced.
    parts_kept: Kept,
    wholes_kept: Kept,
    /// The memory of all parts.
    whole_bytes: usize,
    has_begun: bool,
}

/// The deadline of a key, and its idle time in seconds.
type Facts = (Option<UnixMillis>, Option<u64>);

/// A value that is being written.
struct Value {
    facts: Facts,
    key: Name,
    items: Items,
    stage: SnapshotStage,
    /// Whether the value has at least [`HUGE`] items.
    is_huge: bool,
}

enum SnapshotStage {
    Survey(Survey),
    /// The key is being written; the number is that of its bytes written so far.
    Key(Plan, usize),
    Items(Encoder),
}

/// The name of a key, kept after its entry is released: long names are shared, not copied.
enum Name {
    Short(Vec<u8>),
    Long(HeldKey),
}

impl Name {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(held) => held.bytes(),
        }
    }
}

impl Snapshot {
    /// Begins a snapshot of these parts.
    #[must_use]
    pub fn new(parts: Vec<Part>, style: Style) -> Self {
        Self::in_portions(parts, style, Portions::default())
    }

    /// Begins a snapshot with other sizes of portions.
    #[must_use]
    pub fn in_portions(parts: Vec<Part>, style: Style, portions: Portions) -> Self {
        darter_structs::kept::begin_snapshot();
        Self {
            whole_bytes: parts.iter().map(|part| part.bytes).sum(),
            parts: parts.into(),
            reader: None,
            now: 0,
            style,
            portions,
            packer: style.packs.then(Packer::default),
            value: None,
            large: VecDeque::new(),
            chunk: Chunk::default(),
            is_open: false,
            parts_kept: Kept::of_parts(),
            wholes_kept: Kept::of_wholes(),
            has_begun: false,
        }
    }

    /// Does the next step.
    pub fn step(&mut self) -> Step {
        let end = self.chunk.bytes.len() + self.portions.step_bytes;
        let mut looks = ENTRIES_AT_ONCE;
        while looks > 0 && self.chunk.bytes.len() < end {
            if self.value.is_some() {
                self.go_on(&mut looks, end);
            } else if self.has_released_large() {
                self.begin_large();
            } else if self.reader.as_ref().is_some_and(|reader| reader.left() > 0) {
                looks -= 1;
                self.next_key();
            } else if !self.chunk.bytes.is_empty() || self.is_open {
                // The next part belongs to another database. If the last chunk was full when its
                // value ended, an empty chunk ends it.
                return Step::Chunk(self.take_chunk());
            } else if !self.next_part() {
                return Step::Done;
            }
        }
        let is_full = self.chunk.bytes.len() >= self.portions.chunk_bytes;
        if is_full { Step::Chunk(self.take_chunk()) } else { Step::More }
    }

    /// Whether the snapshot keeps more than `per_mille` thousandths of its data from being freed,
    /// because writers have copied or replaced that much.
    #[must_use]
    pub fn holds_more_than(&self, per_mille: u64) -> bool {
        let most = self.whole_bytes as u64 / 1_024 * per_mille / 1_000;
        self.held_kib() > most.max(self.portions.held_min_kib)
    }

    /// The memory that only the snapshot keeps from being freed, in KiB.
    #[must_use]
    pub fn held_kib(&self) -> u64 {
        let Some(reader) = &self.reader else { return 0 };
        let waiting = self.large.iter().take(HUGE_COUNTED).map(|(_, value)| value);
        let values = self.value.iter().chain(waiting.filter(|value| value.is_huge));
        let in_values: u32 = values.map(|value| value.items.held_kib()).sum();
        let written = self.value.as_ref().map_or(0, Value::written_per_mille);
        let kept = self.parts_kept.bytes(written) + self.wholes_kept.bytes(0);
        u64::from(reader.held_kib()) + u64::from(in_values) + kept / 1_024
    }

    /// The memory of all parts, the most that a snapshot can keep.
    #[must_use]
    pub fn whole_bytes(&self) -> usize {
        self.whole_bytes
    }

    /// The memory, in KiB, that writers have copied of the current value since its reading began,
    /// and that they have copied or replaced otherwise.
    #[must_use]
    pub fn copied_kib(&self) -> u32 {
        let keys = self.reader.as_ref().map_or(0, Reader::copied_kib);
        let value = self.value.as_ref().map_or(0, |value| value.items.copied_kib());
        let kept = self.parts_kept.all_bytes() + self.wholes_kept.all_bytes();
        let kept = u32::try_from(kept / 1_024).unwrap_or(u32::MAX);
        keys.saturating_add(value).saturating_add(kept)
    }

    /// Whether the segment of the first value in `large` has been released.
    fn has_released_large(&self) -> bool {
        let reader = self.reader.as_ref();
        let is_released =
            |segment| reader.is_none_or(|reader| reader.left() == 0 || reader.segments() > segment);
        self.large.front().is_some_and(|(segment, _)| is_released(*segment))
    }

    fn next_part(&mut self) -> bool {
        self.reader = None;
        let Some(Part { database, keys, now, .. }) = self.parts.pop_front() else { return false };
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        self.parts_kept.begin_part(is_first);
        self.wholes_kept.begin_part(is_first);
        self.reader = Some(Reader::new(keys).copied_first());
        self.now = now;
        self.chunk.database = database;
        true
    }

    fn take_chunk(&mut self) -> Chunk {
        let began = |value: &Value| {
            !matches!(value.stage, SnapshotStage::Survey(_) | SnapshotStage::Key(_, 0))
        };
        let next = Chunk { database: self.chunk.database, ..Chunk::default() };
        let mut chunk = std::mem::replace(&mut self.chunk, next);
        chunk.is_open = self.value.as_ref().is_some_and(began);
        self.is_open = chunk.is_open;
        chunk
    }

    fn begin_large(&mut self) {
        if let Some((_, mut value)) = self.large.pop_front() {
            value.items.read_once();
            self.begin(value);
        }
    }

    fn begin(&mut self, value: Value) {
        self.parts_kept.begin_value();
        self.value = Some(value);
    }

    /// Writes the next key, if it has a short string. Begins any other value.
    fn next_key(&mut self) {
        let Self { reader, now, style, packer, large, chunk, parts_kept, wholes_kept, .. } = self;
        let Some(reader) = reader else { return };
        let mut begun = None;
        reader.next_slice(1, &mut |entry| {
            let Some(found) = Found::alive(entry, *now) else { return };
            let facts = (found.deadline(), style.tells_idle.then(|| found.idle_seconds(*now)));
            let long_key = entry.hold_key();
            let mut scratch = Scratch::default();
            let key = entry.key();
            if let (Ok(Str::Inline(text)), None) = (found.text(), &long_key) {
                let (key, number) = (key.bytes(&mut scratch), found.kind().rdb.number());
                write_key(&mut chunk.bytes, facts, number, (key, key.len()));
                write_text(&mut chunk.bytes, text.bytes(&mut Scratch::default()), packer.as_mut());
                chunk.keys += 1;
                return;
            }
            let name = long_key.map_or_else(|| Name::Short(key.to_vec()), Name::Long);
            begun = Some(Value::new(facts, name, found.items(*now), found.kind().rdb));
        });
        parts_kept.note_rounds(reader.rounds());
        wholes_kept.note_rounds(reader.rounds());
        match begun {
            Some(begun) if begun.is_large() => large.push_back((reader.segments(), begun)),
            Some(begun) => self.begin(begun),
            None => {}
        }
    }

    /// Continues with the value until it ends or the bounds are reached.
    fn go_on(&mut self, looks: &mut usize, bytes_end: usize) {
        let Some(mut value) = self.value.take() else { return };
        let more = match value.stage {
            SnapshotStage::Survey(_) => value.survey(looks),
            SnapshotStage::Key(..) => {
                self.chunk.is_private |= value.is_private();
                value.write_key(&mut self.chunk.bytes, &mut self.packer)
            }
            SnapshotStage::Items(_) => value.write_items(looks, &mut self.chunk.bytes, bytes_end),
        };
        if more {
            self.value = Some(value);
            return;
        }
        self.parts_kept.end_value();
        if let SnapshotStage::Items(encoder) = value.stage {
            self.packer = encoder.into_packer();
            self.chunk.keys += 1;
        }
    }
}

impl Value {
    fn new(facts: Facts, key: Name, items: Items, kind: &'static Kind) -> Self {
        let count = items.plain_count();
        let plan = count.and_then(|count| Survey::plan_of_many(kind, count));
        let is_huge = count.is_some_and(|count| count >= HUGE);
        let survey = || SnapshotStage::Survey(Survey::new(kind));
        let stage = plan.map_or_else(survey, |plan| SnapshotStage::Key(plan, 0));
        Self { facts, key, items, stage, is_huge }
    }

    /// Whether the value needs no survey.
    fn is_large(&self) -> bool {
        matches!(self.stage, SnapshotStage::Key(..))
    }

    /// Surveys some items. Returns false for a collection whose items have all expired.
    fn survey(&mut self, looks: &mut usize) -> bool {
        let SnapshotStage::Survey(survey) = &mut self.stage else { unreachable!("it is surveyed") };
        let mut bytes = 0;
        while *looks > 0 && bytes < BYTES_AT_ONCE && self.items.find(looks) {
            *looks = looks.saturating_sub(1);
            let Some(item) = self.items.next() else {
                let plan = survey.plan();
                let is_hollow = plan.items() == 0 && !survey.is_text();
                self.items.rewind();
                self.stage = SnapshotStage::Key(plan, 0);
                return !is_hollow;
            };
            bytes += item.text_bytes();
            survey.item(item);
        }
        if bytes >= BYTES_AT_ONCE {
            *looks = 0;
        }
        true
    }

    /// The part of the value that has been written and released, in thousandths.
    fn written_per_mille(&self) -> u64 {
        match &self.stage {
            SnapshotStage::Items(encoder) => encoder.written_per_mille(),
            SnapshotStage::Survey(_) | SnapshotStage::Key(..) => 0,
        }
    }

    fn is_private(&self) -> bool {
        matches!(&self.stage, SnapshotStage::Key(plan, _) if plan.is_private())
    }

    /// Writes a part of the key, and after its end the head of the value.
    fn write_key(&mut self, out: &mut Vec<u8>, packer: &mut Option<Packer>) -> bool {
        let SnapshotStage::Key(plan, written) = &mut self.stage else {
            unreachable!("the key is next")
        };
        let key = self.key.bytes();
        let part = &key[*written..key.len().min(*written + KEY_BYTES_AT_ONCE)];
        if *written == 0 {
            write_key(out, self.facts, plan.encoding, (part, key.len()));
        } else {
            out.extend_from_slice(part);
        }
        *written += part.len();
        if *written == key.len() {
            let mut encoder = Encoder::new(plan.clone()).with_packer(packer.take());
            encoder.head(out);
            self.stage = SnapshotStage::Items(encoder);
        }
        true
    }

    /// Writes items up to about `bytes_end` bytes of `out`. Returns false after the last item.
    fn write_items(&mut self, looks: &mut usize, out: &mut Vec<u8>, bytes_end: usize) -> bool {
        let SnapshotStage::Items(encoder) = &mut self.stage else { unreachable!("items are next") };
        while *looks > 0 && out.len() < bytes_end && self.items.find(looks) {
            *looks = looks.saturating_sub(1);
            let Some(item) = self.items.next() else {
                encoder.end(out);
                return false;
            };
            // Well compressed data takes many reads for few written bytes.
            *looks = looks.saturating_sub(item.text_bytes() / BYTES_A_LOOK);
            encoder.item(item, out);
        }
        true
    }
}
