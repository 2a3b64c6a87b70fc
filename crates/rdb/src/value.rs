//! Writing a value: it is surveyed first, then written item by item.
//!
//! The length of a `DUMP` is in the reply's header, before its first byte, and a value of ten
//! million fields must not be held twice. So the items are visited twice: [`Survey`] sums sizes,
//! and the type chooses the encoding that Redis 7.0 would have chosen for the same items;
//! [`Encoder`] writes. Both take one item at a time, so the caller can end a slice anywhere. A cut
//! of the value guarantees that the items are the same both times; the encoder asserts it.
//!
//! ```text
//! items -> Survey -> Plan (number, size) -> Encoder <- items again
//! ```
//! Only small collections (intset, listpack) are collected before they are written: at most
//! [`Bounds`](crate::Bounds), 64 KiB by default.
//!
//! Redis has no layout of singles with deadlines. They are written as pairs with empty values.

use crate::encode;
use crate::entries::{self, EntryEncoder, Surveyor};
use crate::items::Item;
use crate::kind::Kind;
use crate::lzf::Packer;
use crate::nodes::{NodeEncoder, NodeSizes};
use crate::types;
use darter_base::UnixMillis;
use darter_base::number::parse_i64;
use darter_base::score;
use std::ops::Range;

/// Bytes of a score.
const SCORE_BYTES: u64 = size_of::<f64>() as u64;

/// The first pass over a value's items.
#[derive(Clone, Debug)]
pub struct Survey {
    kind: &'static Kind,
    count: u64,
    /// The number of items that are names alone.
    singles: u64,
    /// Bytes of a string.
    string_bytes: u64,
    /// The first bytes, enough to recognize an integer.
    head: Vec<u8>,
    /// Bytes of all names and values, encoded as strings.
    plain_bytes: u64,
    /// Bytes of only the values.
    value_bytes: u64,
    /// Bytes of all entries of a listpack, without deadlines.
    packed_bytes: u64,
    /// All texts are short enough for a listpack.
    short: bool,
    /// The smallest and the largest integer (including 0), if all singles are integers.
    integers: Option<(i64, i64)>,
    deadlines: u64,
    deadline_bytes: u64,
    deadline_span: Option<(UnixMillis, UnixMillis)>,
    /// The sizes of nodes, for a type that is written in nodes.
    nodes: Option<NodeSizes>,
    /// The first pass over a stream.
    log: Option<Box<Surveyor>>,
}

/// The encoding of a value, and its length.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The type number.
    pub encoding: u8,
    /// Bytes after the type number; `None` if the items were not surveyed.
    pub body_bytes: Option<u64>,
    count: u64,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// A string of this many bytes.
    Raw(u64),
    /// A string that is stored as an integer.
    Integer,
    /// Items as strings.
    Plain,
    /// Names as strings, values as numbers.
    Scores,
    /// Pairs with deadlines relative to `origin_ms`, in 9 bytes or in 5.
    Deadlines { origin_ms: UnixMillis, wide: bool },
    /// Integers of this many bytes each.
    Intset { width: usize },
    /// A listpack of this many bytes, without deadlines, or with them (the earliest is given).
    Listpack { bytes: u64, deadlines: Option<UnixMillis> },
    /// This many nodes of a list.
    Nodes(u64),
    /// A stream.
    Entries(entries::EntrySizes),
}

impl Survey {
    /// A survey of a value of type `kind`, before any item.
    #[must_use]
    pub fn new(kind: &'static Kind) -> Self {
        Self {
            kind,
            count: 0,
            singles: 0,
            string_bytes: 0,
            head: Vec::new(),
            plain_bytes: 0,
            value_bytes: 0,
            packed_bytes: 0,
            short: true,
            integers: Some((0, 0)),
            deadlines: 0,
            deadline_bytes: 0,
            deadline_span: None,
            nodes: kind.has_nodes().then(NodeSizes::default),
            log: kind.has_entries().then(Box::default),
        }
    }

    /// The plan for `items` items without deadlines, before they are seen, and without its size.
    /// `None` if the plan depends on more than the number of items.
    #[must_use]
    pub fn plan_of_many(kind: &'static Kind, count: u64) -> Option<Plan> {
        let is_counted = !kind.is_text() && !kind.has_nodes() && !kind.has_entries();
        let survey = Self { count, short: false, ..Self::new(kind) };
        let plan = || Plan { body_bytes: None, ..survey.plan() };
        (is_counted && !survey.is_few()).then(plan)
    }

    /// Adds the next item. Cost: O(bytes) for what looks like an integer, O(1) otherwise.
    pub fn item(&mut self, item: Item<'_>) {
        self.count += u64::from(!item.is_continued());
        if let Some(log) = &mut self.log {
            return log.item(item);
        }
        match item {
            Item::Part(_) | Item::Piece(_) => {}
            Item::Chunk(bytes) => {
                if self.string_bytes <= 20 {
                    self.head.extend_from_slice(&bytes[..bytes.len().min(21)]);
                }
                self.string_bytes += bytes.len() as u64;
            }
            Item::Single { name, deadline_ms } => {
                self.singles += 1;
                self.integers = self.integers.and_then(|(low, high)| {
                    parse_i64(name).map(|value| (low.min(value), high.max(value)))
                });
                if let Some(nodes) = &mut self.nodes {
                    nodes.add(name.len(), encode::listpack_text_size(name));
                }
                self.add_text(name);
                self.add_deadline(deadline_ms);
            }
            Item::Pair { name, value, deadline_ms } => {
                self.add_text(name);
                self.add_value(value);
                self.add_deadline(deadline_ms);
            }
            Item::Scored { name, score } => {
                self.add_text(name);
                self.add_value(score::Text::new(score).as_bytes());
            }
            Item::LongValued { name, value_len, deadline_ms } => {
                self.add_text(name);
                self.add_long(value_len);
                self.add_deadline(deadline_ms);
            }
            Item::LongNamed { name_len, deadline_ms } => {
                self.add_long(name_len);
                self.add_deadline(deadline_ms);
            }
            Item::Value(value) => self.add_value(value),
            Item::LongValue(len) => self.add_long(len),
            Item::LongSingle { len, deadline_ms } => {
                self.singles += 1;
                self.integers = None;
                if let Some(nodes) = &mut self.nodes {
                    nodes.add_long(len);
                }
                self.add_long(len);
                self.add_deadline(deadline_ms);
            }
        }
    }

    fn add_long(&mut self, len: u64) {
        self.short = false;
        self.plain_bytes += encode::length_size(len) + len;
    }

    fn add_text(&mut self, bytes: &[u8]) {
        self.plain_bytes += encode::text_size(bytes);
        self.short &= bytes.len() <= self.kind.packed.item_bytes_max;
        if self.short && self.is_few() {
            self.packed_bytes += encode::listpack_text_size(bytes);
        }
    }

    fn add_value(&mut self, bytes: &[u8]) {
        let before = self.plain_bytes;
        self.add_text(bytes);
        self.value_bytes += self.plain_bytes - before;
    }

    fn add_deadline(&mut self, deadline_ms: Option<UnixMillis>) {
        let shown = deadline_ms.map_or(0, deadline_number);
        self.deadline_bytes += encode::listpack_integer_size(shown);
        if let Some(at) = deadline_ms.map(clamp) {
            self.deadlines += 1;
            let (low, high) = self.deadline_span.unwrap_or((at, at));
            self.deadline_span = Some((low.min(at), high.max(at)));
        }
    }

    fn is_few(&self) -> bool {
        self.count <= self.kind.packed.items_max
    }

    /// The plan for all items so far: the type's choice among the layouts below.
    #[must_use]
    pub fn plan(&self) -> Plan {
        (self.kind.plan)(self)
    }

    /// True for a string, which may be empty.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.kind.is_text()
    }

    /// True if an item has a deadline.
    #[must_use]
    pub fn has_deadlines(&self) -> bool {
        self.deadlines > 0
    }

    /// The plan for a string, stored as an integer if possible.
    #[must_use]
    pub fn text(&self, encoding: u8) -> Plan {
        let len = self.string_bytes;
        if len == self.head.len() as u64 && encode::short_integer(&self.head).is_some() {
            return self.with(encoding, Form::Integer, encode::text_size(&self.head));
        }
        self.with(encoding, Form::Raw(len), encode::length_size(len) + len)
    }

    /// The plan with a count and items, without deadlines.
    #[must_use]
    pub fn plain(&self, encoding: u8) -> Plan {
        let bytes = encode::length_size(self.count) + self.plain_bytes;
        self.with(encoding, Form::Plain, bytes)
    }

    /// The plan with a count, and pairs whose values are scores.
    #[must_use]
    pub fn scores(&self, encoding: u8) -> Plan {
        let names = encode::length_size(self.count) + self.plain_bytes - self.value_bytes;
        self.with(encoding, Form::Scores, names + self.count * SCORE_BYTES)
    }

    /// The plan with pairs whose deadlines are relative to the earliest; at least one has a
    /// deadline.
    #[must_use]
    pub fn with_deadlines(&self, encoding: u8) -> Plan {
        let (low, high) = self.deadline_span.unwrap_or_default();
        let wide = high - low >= u64::from(u32::MAX);
        let each = if wide { 9 } else { 5 };
        let deadlines = self.deadlines * each + (self.count - self.deadlines);
        let values = self.singles * encode::text_size(b"");
        let bytes = 8 + encode::length_size(self.count) + self.plain_bytes + values + deadlines;
        self.with(encoding, Form::Deadlines { origin_ms: low, wide }, bytes)
    }

    /// The plan with a sorted block of integers, if all items are integers, and few.
    #[must_use]
    pub fn intset(&self, encoding: u8) -> Option<Plan> {
        let (low, high) = self.integers.filter(|_| self.is_few())?;
        let width = match (i32::try_from(low), i32::try_from(high)) {
            (Ok(-32_768..), Ok(..=32_767)) => 2,
            (Ok(_), Ok(_)) => 4,
            _ => 8,
        };
        let bytes = 8 + self.count * width as u64;
        let size = encode::length_size(bytes) + bytes;
        Some(self.with(encoding, Form::Intset { width }, size))
    }

    /// The plan with a listpack without deadlines, if the items are few and short.
    #[must_use]
    pub fn listpack(&self, encoding: u8) -> Option<Plan> {
        let bytes = self.listpack_bytes()?;
        let size = encode::length_size(bytes) + bytes;
        Some(self.with(encoding, Form::Listpack { bytes, deadlines: None }, size))
    }

    /// The plan with a listpack of pairs and relative deadlines, if the items are few and short.
    #[must_use]
    pub fn listpack_with_deadlines(&self, encoding: u8) -> Option<Plan> {
        let values = self.singles * encode::listpack_text_size(b"");
        let bytes = self.listpack_bytes()? + values + self.deadline_bytes;
        let deadlines = Some(self.deadline_span.unwrap_or_default().0);
        let size = 8 + encode::length_size(bytes) + bytes;
        Some(self.with(encoding, Form::Listpack { bytes, deadlines }, size))
    }

    /// The plan with nodes of a list, of the same sizes as in Redis.
    #[must_use]
    pub fn nodes(&self, encoding: u8) -> Plan {
        let nodes = self.nodes.clone().unwrap_or_default();
        let (count, bytes) = nodes.total();
        self.with(encoding, Form::Nodes(count), encode::length_size(count) + bytes)
    }

    /// The plan with blocks of entries, of the same sizes as in Redis, a state and groups.
    #[must_use]
    pub fn entries(&self, encoding: u8) -> Plan {
        let sizes = self.log.as_ref().map(|log| log.sizes()).unwrap_or_default();
        let bytes = sizes.total();
        self.with(encoding, Form::Entries(sizes), bytes)
    }

    fn listpack_bytes(&self) -> Option<u64> {
        let fits = self.short && self.is_few();
        fits.then_some(encode::LISTPACK_FRAME_BYTES + self.packed_bytes)
    }

    fn with(&self, encoding: u8, form: Form, body_bytes: u64) -> Plan {
        Plan { encoding, body_bytes: Some(body_bytes), count: self.count, form }
    }
}

impl Plan {
    /// The first RDB version with the encoding: 10 (Redis 7.0's), or a later one.
    #[must_use]
    pub fn version(&self) -> u16 {
        types::version_of(self.encoding)
    }

    /// True for an encoding of Darter's own.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.encoding >= types::PRIVATE
    }

    /// The number of items; a string has one, or none if it is empty.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.count
    }
}

/// The second pass: writes according to a [`Plan`]. [`head`](Self::head), then each
/// [`item`](Self::item), then [`end`](Self::end).
#[derive(Clone, Debug)]
pub struct Encoder {
    plan: Plan,
    count: u64,
    /// The number of bytes written.
    written: u64,
    /// After a long single with a deadline: its empty value must be written after its parts.
    owes_value: bool,
    /// Compresses strings that are not long.
    packer: Option<Packer>,
    integers: Vec<i64>,
    /// The entries of a listpack, and their number.
    entries: Vec<u8>,
    entries_len: usize,
    /// Items of a listpack: the deadline (the latest possible for none) and the entries.
    packed: Vec<(UnixMillis, Range<usize>)>,
    nodes: NodeEncoder,
    /// The encoder of a stream.
    log: Option<Box<EntryEncoder>>,
}

impl Encoder {
    /// An encoder that follows `plan`.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let log = match &plan.form {
            Form::Entries(sizes) => Some(Box::new(EntryEncoder::new(sizes))),
            _ => None,
        };
        Self {
            plan,
            log,
            count: 0,
            written: 0,
            owes_value: false,
            packer: None,
            integers: Vec::new(),
            entries: Vec::new(),
            entries_len: 0,
            packed: Vec::new(),
            nodes: NodeEncoder::default(),
        }
    }

    /// An encoder that also compresses strings if that makes them shorter; the plan's size is then
    /// an upper bound.
    #[must_use]
    pub fn with_packer(self, packer: Option<Packer>) -> Self {
        Self { packer, ..self }
    }

    /// Takes the packer back, for the next value.
    #[must_use]
    pub fn into_packer(self) -> Option<Packer> {
        self.packer
    }

    /// The plan that it follows.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The written part of the value in thousandths, for a source that frees what it has returned.
    /// 0 if unknown, and for strings, which are freed at once.
    #[must_use]
    pub fn written_per_mille(&self) -> u64 {
        match (self.plan.body_bytes, &self.plan.form) {
            (_, Form::Raw(_)) | (None | Some(0), _) => 0,
            (Some(all), _) => (self.written.saturating_mul(1_000) / all).min(1_000),
        }
    }

    /// Appends the header of the value.
    pub fn head(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        match self.plan.form {
            Form::Entries(ref sizes) => EntryEncoder::head(sizes, out),
            Form::Raw(_) if self.gathers_text() => {}
            Form::Raw(len) => encode::length(out, len),
            Form::Plain | Form::Scores => encode::length(out, self.plan.count),
            Form::Nodes(count) => encode::length(out, count),
            Form::Deadlines { origin_ms, .. } => {
                out.extend_from_slice(&origin_ms.to_le_bytes());
                encode::length(out, self.plan.count);
            }
            Form::Listpack { deadlines: Some(origin_ms), .. } => {
                out.extend_from_slice(&origin_ms.to_le_bytes());
            }
            Form::Integer | Form::Intset { .. } | Form::Listpack { .. } => {}
        }
        self.written += (out.len() - start) as u64;
    }

    /// Appends an item, or collects it if the collection is packed.
    ///
    /// Panics when the item does not match the survey's.
    pub fn item(&mut self, item: Item<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        if !item.is_continued() {
            self.count += 1;
            self.pay_value(out);
        }
        if let Some(log) = &mut self.log {
            log.item(item, out, &mut self.packer);
            self.written += (out.len() - start) as u64;
            return;
        }
        match self.plan.form {
            Form::Raw(_) if self.gathers_text() => self.gather(item),
            Form::Raw(_) => write_text(item, out),
            Form::Plain => self.plain(item, out),
            Form::Nodes(_) => self.nodes.item(item, out),
            Form::Scores => self.scored(item, out),
            Form::Deadlines { origin_ms, wide } => {
                if !item.is_continued() {
                    write_deadline(out, item.deadline_ms(), origin_ms, wide);
                }
                self.owes_value |= matches!(item, Item::Single { .. } | Item::LongSingle { .. });
                self.plain(item, out);
            }
            Form::Integer | Form::Intset { .. } | Form::Listpack { .. } => self.gather(item),
            Form::Entries(_) => unreachable!("a stream has its own encoder"),
        }
        self.written += (out.len() - start) as u64;
    }

    /// Appends the empty value of a single that was written as a pair.
    fn pay_value(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.owes_value) {
            encode::text(out, b"");
        }
    }

    fn gather(&mut self, item: Item<'_>) {
        match (&self.plan.form, item) {
            (Form::Integer | Form::Raw(_), Item::Chunk(bytes)) => {
                self.entries.extend_from_slice(bytes)
            }
            (Form::Intset { .. }, Item::Single { name, .. }) => {
                self.integers.push(parse_i64(name).expect("the survey saw integers only"));
            }
            (Form::Listpack { .. }, Item::Single { name, deadline_ms }) => {
                self.pack(name, None, deadline_ms);
            }
            (Form::Listpack { .. }, Item::Pair { name, value, deadline_ms }) => {
                self.pack(name, Some(value), deadline_ms);
            }
            (Form::Listpack { .. }, Item::Scored { name, score }) => {
                self.pack(name, Some(score::Text::new(score).as_bytes()), None);
            }
            (form, item) => unreachable!("{item:?} in {form:?}"),
        }
    }

    fn pack(&mut self, name: &[u8], value: Option<&[u8]>, deadline_ms: Option<UnixMillis>) {
        let has_deadlines = matches!(self.plan.form, Form::Listpack { deadlines: Some(_), .. });
        let start = self.entries.len();
        encode::listpack_text(&mut self.entries, name);
        self.entries_len += 1;
        if let Some(value) = value.or(has_deadlines.then_some(&b""[..])) {
            encode::listpack_text(&mut self.entries, value);
            self.entries_len += 1;
        }
        if has_deadlines {
            encode::listpack_integer(&mut self.entries, deadline_ms.map_or(0, deadline_number));
            self.entries_len += 1;
        }
        let order = deadline_ms.map_or(UnixMillis::MAX, clamp);
        self.packed.push((order, start..self.entries.len()));
    }

    /// Appends the collected items.
    ///
    /// Panics when the items were not those of the survey: the announced length would be wrong.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        match self.plan.form {
            Form::Integer => encode::text(out, &self.entries),
            Form::Raw(_) if self.gathers_text() => {
                let text = std::mem::take(&mut self.entries);
                self.blob(&text, out);
            }
            Form::Intset { width } => self.intset(width, out),
            Form::Listpack { bytes, .. } => self.listpack(bytes, out),
            Form::Nodes(_) => self.nodes.end(out),
            Form::Entries(_) => {}
            Form::Raw(_) | Form::Plain | Form::Scores | Form::Deadlines { .. } => {
                self.pay_value(out)
            }
        }
        self.written += (out.len() - start) as u64;
        assert_eq!(self.count, self.plan.count, "the value changed under its encoder");
        if self.packer.is_none() {
            let wanted = self.plan.body_bytes.unwrap_or(self.written);
            assert_eq!(self.written, wanted, "the value changed under its encoder");
        }
    }

    /// True for a string that may be compressed, which is possible only as a whole.
    fn gathers_text(&self) -> bool {
        let fits = |len| len <= encode::PACKED_MAX as u64;
        self.packer.is_some() && matches!(self.plan.form, Form::Raw(len) if fits(len))
    }

    /// Appends a string.
    fn text(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match &mut self.packer {
            Some(packer) => encode::packed_text(out, bytes, packer),
            None => encode::text(out, bytes),
        }
    }

    /// Appends a string that is not an integer.
    fn blob(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if let Some(packer) = &mut self.packer {
            return encode::packed_blob(out, bytes, packer);
        }
        encode::length(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }

    /// Appends an item, without its deadline, as strings.
    fn plain(&mut self, item: Item<'_>, out: &mut Vec<u8>) {
        match item {
            Item::Single { name, .. } => self.text(name, out),
            Item::Pair { name, value, .. } => {
                self.text(name, out);
                self.text(value, out);
            }
            Item::LongValued { name, value_len, .. } => {
                self.text(name, out);
                encode::length(out, value_len);
            }
            Item::LongNamed { name_len: len, .. }
            | Item::LongSingle { len, .. }
            | Item::LongValue(len) => encode::length(out, len),
            Item::Value(value) => self.text(value, out),
            Item::Part(bytes) => out.extend_from_slice(bytes),
            Item::Chunk(_) | Item::Piece(_) | Item::Scored { .. } => {
                unreachable!("{item:?} in a collection of texts")
            }
        }
    }

    /// Appends an item whose value is a score.
    fn scored(&mut self, item: Item<'_>, out: &mut Vec<u8>) {
        let score = match item {
            Item::Scored { name, score } => {
                self.text(name, out);
                Some(score)
            }
            Item::Pair { name, value, .. } => {
                self.text(name, out);
                score::parse(value)
            }
            Item::Value(value) => score::parse(value),
            other => return self.plain(other, out),
        };
        let score = score.expect("the value of a scored item is a score");
        out.extend_from_slice(&score.to_le_bytes());
    }

    fn intset(&mut self, width: usize, out: &mut Vec<u8>) {
        self.integers.sort_unstable();
        let mut blob = Vec::with_capacity(8 + self.integers.len() * width);
        blob.extend_from_slice(&(width as u32).to_le_bytes());
        blob.extend_from_slice(&(self.integers.len() as u32).to_le_bytes());
        for value in &self.integers {
            blob.extend_from_slice(&value.to_le_bytes()[..width]);
        }
        self.blob(&blob, out);
    }

    fn listpack(&mut self, bytes: u64, out: &mut Vec<u8>) {
        let mut blob = Vec::with_capacity(bytes as usize);
        blob.extend_from_slice(&(bytes as u32).to_le_bytes());
        // Too many for 16 bits: Redis's mark for an unknown count.
        blob.extend_from_slice(&u16::try_from(self.entries_len).unwrap_or(u16::MAX).to_le_bytes());
        // Redis expects the next field to expire first, so items are sorted by deadline. The sort
        // is stable, so items without deadlines keep their order.
        self.packed.sort_by_key(|item| item.0);
        for (_, range) in &self.packed {
            blob.extend_from_slice(&self.entries[range.clone()]);
        }
        blob.push(0xff);
        self.blob(&blob, out);
    }
}

/// Appends a piece of a string.
fn write_text(item: Item<'_>, out: &mut Vec<u8>) {
    let Item::Chunk(bytes) = item else { unreachable!("{item:?} in a string") };
    out.extend_from_slice(bytes);
}

/// Appends the deadline of an item, relative to `origin_ms`: 0 means "none".
fn write_deadline(
    out: &mut Vec<u8>,
    deadline_ms: Option<UnixMillis>,
    origin_ms: UnixMillis,
    wide: bool,
) {
    match deadline_ms.map_or(0, |at| clamp(at) - origin_ms + 1) {
        0 => encode::length(out, 0),
        number if wide => encode::length_64(out, number),
        number => encode::length_32(out, number),
    }
}

/// Limits a deadline to what the format can express: 0 would mean "none".
fn clamp(deadline_ms: UnixMillis) -> UnixMillis {
    deadline_ms.clamp(1, types::DEADLINE_MAX_MS)
}

fn deadline_number(deadline_ms: UnixMillis) -> i64 {
    i64::try_from(clamp(deadline_ms)).unwrap_or(i64::MAX)
}
