//! A value on its way out: surveyed first, then written item by item.
//!
//! The length of a `DUMP` stands in the reply's header, before its first byte, and a value of ten
//! million fields must not be held twice. So the items pass twice: [`Survey`] sums sizes and
//! chooses the encoding that Redis 7.0 would have chosen for the same items, [`Encoder`] writes.
//! Both take one item at a time, so the caller cuts slices where it likes. A cut of the value
//! guarantees that the items are the same both times; the encoder asserts it.
//!
//! ```text
//! items -> Survey -> Plan (type, size) -> Encoder <- items again
//! ```
//! Only small collections (intset, listpack) are gathered before they are written: at most
//! [`Packing`]'s bounds, 64 KiB by default.

use crate::encode;
use crate::event::Kind;
use crate::types;
use darter_base::UnixMillis;
use darter_base::number::parse_i64;
use std::ops::Range;

/// A piece of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// The next bytes of a string, at least one.
    Chunk(&'a [u8]),
    /// A field of a hash.
    Field {
        /// Its name.
        field: &'a [u8],
        /// Its value.
        value: &'a [u8],
        /// Its deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// A field of a hash whose value is too long for a listpack, and follows in [`Item::Part`]s.
    Long {
        /// Its name.
        field: &'a [u8],
        /// Bytes of its value.
        value_len: u64,
        /// Its deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// A field of a hash that is too long for a listpack itself, and follows in [`Item::Part`]s;
    /// behind them comes its [`Item::Value`] or [`Item::LongValue`].
    LongField {
        /// Bytes of its name.
        field_len: u64,
        /// Its deadline, below 2^48 - 1.
        deadline_ms: Option<UnixMillis>,
    },
    /// The value of such a field.
    Value(&'a [u8]),
    /// Its bytes, when it is long too, and follows in [`Item::Part`]s.
    LongValue(u64),
    /// A member of a set, too long to be an integer, that follows in [`Item::Part`]s: its bytes.
    LongMember(u64),
    /// The next bytes of what is long.
    Part(&'a [u8]),
    /// A member of a set.
    Member(&'a [u8]),
}

/// Up to where collections are packed: Redis's settings and their defaults.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// `hash-max-listpack-entries`.
    pub hash_fields_max: u64,
    /// `hash-max-listpack-value`, in bytes of a field or value.
    pub hash_item_bytes_max: usize,
    /// `set-max-intset-entries`.
    pub set_integers_max: u64,
}

impl Item<'_> {
    /// True when it goes on with the field or member before it.
    fn is_continued(&self) -> bool {
        matches!(self, Item::Part(_) | Item::Value(_) | Item::LongValue(_))
    }
}

impl Default for Packing {
    fn default() -> Self {
        Self { hash_fields_max: 512, hash_item_bytes_max: 64, set_integers_max: 512 }
    }
}

/// The first pass over a value's items.
#[derive(Clone, Debug)]
pub struct Survey {
    kind: Kind,
    packing: Packing,
    count: u64,
    /// Bytes of a string.
    string_bytes: u64,
    /// Its first bytes: enough to tell an integer.
    head: Vec<u8>,
    /// Bytes of all fields, values or members as strings.
    plain_bytes: u64,
    /// Bytes of all entries in a listpack, deadlines apart.
    packed_bytes: u64,
    /// Nothing is too long for a listpack.
    short: bool,
    /// All members are integers, the smallest and the largest of them, 0 among them.
    integers: Option<(i64, i64)>,
    deadlines: u64,
    deadline_bytes: u64,
    deadline_span: Option<(UnixMillis, UnixMillis)>,
}

/// How a value will be written, and how long that will be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The type number, see [`types`].
    pub encoding: u8,
    /// Bytes behind the type number.
    pub body_bytes: u64,
    count: u64,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    /// A string of so many bytes.
    Raw(u64),
    /// A string that is an integer.
    Integer,
    /// Items as strings.
    Plain,
    /// The same with deadlines behind `origin_ms`, in 9 bytes or in 5.
    Deadlines { origin_ms: UnixMillis, wide: bool },
    /// Integers of so many bytes.
    Intset { width: usize },
    /// A listpack of so many bytes, with deadlines (the earliest given) or without.
    Listpack { bytes: u64, deadlines: Option<UnixMillis> },
}

impl Survey {
    /// A survey of a value of type `kind` without items.
    #[must_use]
    pub fn new(kind: Kind, packing: Packing) -> Self {
        Self {
            kind,
            packing,
            count: 0,
            string_bytes: 0,
            head: Vec::new(),
            plain_bytes: 0,
            packed_bytes: 0,
            short: true,
            integers: Some((0, 0)),
            deadlines: 0,
            deadline_bytes: 0,
            deadline_span: None,
        }
    }

    /// Takes in the next item. Cost: O(bytes) for what looks like an integer, O(1) otherwise.
    pub fn item(&mut self, item: Item<'_>) {
        self.count += u64::from(!item.is_continued());
        match item {
            Item::Part(_) => {}
            Item::Chunk(bytes) => {
                if self.string_bytes <= 20 {
                    self.head.extend_from_slice(&bytes[..bytes.len().min(21)]);
                }
                self.string_bytes += bytes.len() as u64;
            }
            Item::Member(member) => {
                self.plain_bytes += encode::text_size(member);
                self.integers = match (self.integers, parse_i64(member)) {
                    (Some((low, high)), Some(value)) => Some((low.min(value), high.max(value))),
                    _ => None,
                };
            }
            Item::Field { field, value, deadline_ms } => {
                self.text(field);
                self.text(value);
                self.deadline(deadline_ms);
            }
            Item::Long { field, value_len, deadline_ms } => {
                self.short = false;
                self.text(field);
                self.long(value_len);
                self.deadline(deadline_ms);
            }
            Item::LongField { field_len, deadline_ms } => {
                self.short = false;
                self.long(field_len);
                self.deadline(deadline_ms);
            }
            Item::Value(value) => self.text(value),
            Item::LongValue(len) => self.long(len),
            Item::LongMember(len) => {
                self.integers = None;
                self.long(len);
            }
        }
    }

    fn long(&mut self, len: u64) {
        self.plain_bytes += encode::length_size(len) + len;
    }

    fn text(&mut self, bytes: &[u8]) {
        self.plain_bytes += encode::text_size(bytes);
        self.short &= bytes.len() <= self.packing.hash_item_bytes_max;
        if self.short && self.count <= self.packing.hash_fields_max {
            self.packed_bytes += encode::listpack_text_size(bytes);
        }
    }

    fn deadline(&mut self, deadline_ms: Option<UnixMillis>) {
        let shown = deadline_ms.map_or(0, deadline_number);
        self.deadline_bytes += encode::listpack_integer_size(shown);
        if let Some(at) = deadline_ms.map(clamp) {
            self.deadlines += 1;
            let (low, high) = self.deadline_span.unwrap_or((at, at));
            self.deadline_span = Some((low.min(at), high.max(at)));
        }
    }

    /// The plan for all items so far.
    #[must_use]
    pub fn plan(&self) -> Plan {
        let (encoding, form, body_bytes) = match self.kind {
            Kind::String => self.plan_string(),
            Kind::Hash => self.plan_hash(),
            Kind::Set => self.plan_set(),
        };
        Plan { encoding, body_bytes, count: self.count, form }
    }

    fn plan_string(&self) -> (u8, Form, u64) {
        let len = self.string_bytes;
        if len == self.head.len() as u64 && encode::short_integer(&self.head).is_some() {
            return (types::STRING, Form::Integer, encode::text_size(&self.head));
        }
        (types::STRING, Form::Raw(len), encode::length_size(len) + len)
    }

    fn plan_set(&self) -> (u8, Form, u64) {
        let bounds = self.integers.filter(|_| self.count <= self.packing.set_integers_max);
        let Some((low, high)) = bounds else {
            let bytes = encode::length_size(self.count) + self.plain_bytes;
            return (types::SET, Form::Plain, bytes);
        };
        let width = match (i32::try_from(low), i32::try_from(high)) {
            (Ok(-32_768..), Ok(..=32_767)) => 2,
            (Ok(_), Ok(_)) => 4,
            _ => 8,
        };
        let bytes = 8 + self.count * width as u64;
        (types::SET_INTSET, Form::Intset { width }, encode::length_size(bytes) + bytes)
    }

    fn plan_hash(&self) -> (u8, Form, u64) {
        let origin_ms = self.deadline_span.map(|(low, _)| low);
        if self.short && self.count <= self.packing.hash_fields_max {
            let mut bytes = encode::LISTPACK_FRAME_BYTES + self.packed_bytes;
            if origin_ms.is_some() {
                bytes += self.deadline_bytes;
            }
            let form = Form::Listpack { bytes, deadlines: origin_ms };
            let size = encode::length_size(bytes) + bytes;
            return match origin_ms {
                None => (types::HASH_LISTPACK, form, size),
                Some(_) => (types::HASH_LISTPACK_EX, form, 8 + size),
            };
        }
        let bytes = encode::length_size(self.count) + self.plain_bytes;
        let Some((low, high)) = self.deadline_span else {
            return (types::HASH, Form::Plain, bytes);
        };
        let wide = high - low >= u64::from(u32::MAX);
        let each = if wide { 9 } else { 5 };
        let bytes = 8 + bytes + self.deadlines * each + (self.count - self.deadlines);
        (types::HASH_METADATA, Form::Deadlines { origin_ms: low, wide }, bytes)
    }
}

impl Plan {
    /// The RDB version that knows the encoding: 10, what Redis 7.0 writes, or 12 with deadlines.
    #[must_use]
    pub fn version(&self) -> u16 {
        if self.encoding > types::HASH_LISTPACK { 12 } else { types::VERSION_WRITTEN }
    }
}

/// The second pass: writes what a [`Plan`] says. [`head`](Self::head), then each
/// [`item`](Self::item), then [`end`](Self::end).
#[derive(Clone, Debug)]
pub struct Encoder {
    plan: Plan,
    count: u64,
    /// Bytes appended.
    written: u64,
    integers: Vec<i64>,
    /// Entries of a listpack.
    entries: Vec<u8>,
    /// Triples of a listpack: deadline (the latest of all for none) and entries.
    triples: Vec<(UnixMillis, Range<usize>)>,
}

impl Encoder {
    /// An encoder that follows `plan`.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let (integers, entries, triples) = (Vec::new(), Vec::new(), Vec::new());
        Self { plan, count: 0, written: 0, integers, entries, triples }
    }

    /// Appends what stands before the items.
    pub fn head(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        match self.plan.form {
            Form::Raw(len) => encode::length(out, len),
            Form::Plain => encode::length(out, self.plan.count),
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

    /// Appends an item, or gathers it where the collection is packed.
    ///
    /// Panics when the item is of another type than the survey's.
    pub fn item(&mut self, item: Item<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        self.count += u64::from(!item.is_continued());
        match (&self.plan.form, item) {
            (Form::Raw(_), Item::Chunk(bytes)) | (_, Item::Part(bytes)) => {
                out.extend_from_slice(bytes)
            }
            (Form::Integer, Item::Chunk(bytes)) => self.entries.extend_from_slice(bytes),
            (Form::Plain, Item::Member(member)) => encode::text(out, member),
            (Form::Intset { .. }, Item::Member(member)) => {
                self.integers.push(parse_i64(member).expect("the survey saw integers only"));
            }
            (Form::Plain, Item::Field { field, value, .. }) => {
                encode::text(out, field);
                encode::text(out, value);
            }
            (Form::Plain, Item::Long { field, value_len, .. }) => {
                encode::text(out, field);
                encode::length(out, value_len);
            }
            (&Form::Deadlines { origin_ms, wide }, Item::Field { field, value, deadline_ms }) => {
                write_deadline(out, deadline_ms, origin_ms, wide);
                encode::text(out, field);
                encode::text(out, value);
            }
            (
                &Form::Deadlines { origin_ms, wide },
                Item::Long { field, value_len, deadline_ms },
            ) => {
                write_deadline(out, deadline_ms, origin_ms, wide);
                encode::text(out, field);
                encode::length(out, value_len);
            }
            (Form::Plain, Item::LongField { field_len, .. }) => encode::length(out, field_len),
            (&Form::Deadlines { origin_ms, wide }, Item::LongField { field_len, deadline_ms }) => {
                write_deadline(out, deadline_ms, origin_ms, wide);
                encode::length(out, field_len);
            }
            (Form::Plain | Form::Deadlines { .. }, Item::Value(value)) => encode::text(out, value),
            (Form::Plain | Form::Deadlines { .. }, Item::LongValue(len))
            | (Form::Plain, Item::LongMember(len)) => encode::length(out, len),
            (Form::Listpack { .. }, Item::Field { field, value, deadline_ms }) => {
                self.gather(field, value, deadline_ms);
            }
            (form, item) => unreachable!("{item:?} in {form:?}"),
        }
        self.written += (out.len() - start) as u64;
    }

    fn gather(&mut self, field: &[u8], value: &[u8], deadline_ms: Option<UnixMillis>) {
        let start = self.entries.len();
        encode::listpack_text(&mut self.entries, field);
        encode::listpack_text(&mut self.entries, value);
        if let Form::Listpack { deadlines: Some(_), .. } = self.plan.form {
            encode::listpack_integer(&mut self.entries, deadline_ms.map_or(0, deadline_number));
        }
        let order = deadline_ms.map_or(UnixMillis::MAX, clamp);
        self.triples.push((order, start..self.entries.len()));
    }

    /// Appends what was gathered.
    ///
    /// Panics when the items were not those of the survey: the length told would be wrong.
    pub fn end(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        match self.plan.form {
            Form::Integer => encode::text(out, &self.entries),
            Form::Intset { width } => self.intset(width, out),
            Form::Listpack { bytes, .. } => self.listpack(bytes, out),
            Form::Raw(_) | Form::Plain | Form::Deadlines { .. } => {}
        }
        self.written += (out.len() - start) as u64;
        assert_eq!(self.count, self.plan.count, "the value changed under its encoder");
        assert_eq!(self.written, self.plan.body_bytes, "the value changed under its encoder");
    }

    fn intset(&mut self, width: usize, out: &mut Vec<u8>) {
        self.integers.sort_unstable();
        encode::length(out, 8 + (self.integers.len() * width) as u64);
        out.extend_from_slice(&(width as u32).to_le_bytes());
        out.extend_from_slice(&(self.integers.len() as u32).to_le_bytes());
        for value in &self.integers {
            out.extend_from_slice(&value.to_le_bytes()[..width]);
        }
    }

    fn listpack(&mut self, bytes: u64, out: &mut Vec<u8>) {
        let per_field = if self.plan.encoding == types::HASH_LISTPACK_EX { 3 } else { 2 };
        let entries = self.triples.len() * per_field;
        encode::length(out, bytes);
        out.extend_from_slice(&(bytes as u32).to_le_bytes());
        // Too many for 16 bits: Redis's mark for "count them yourself".
        out.extend_from_slice(&u16::try_from(entries).unwrap_or(u16::MAX).to_le_bytes());
        // Redis finds the next field to expire at the head, so triples are sorted; stable, so
        // that a hash without deadlines keeps its order.
        self.triples.sort_by_key(|triple| triple.0);
        for (_, range) in &self.triples {
            out.extend_from_slice(&self.entries[range.clone()]);
        }
        out.push(0xff);
    }
}

/// Appends the deadline of a field, counted from `origin_ms`: 0 means "none".
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

/// A deadline that the format can say: 0 would mean "none".
fn clamp(deadline_ms: UnixMillis) -> UnixMillis {
    deadline_ms.clamp(1, types::DEADLINE_MAX_MS)
}

fn deadline_number(deadline_ms: UnixMillis) -> i64 {
    i64::try_from(clamp(deadline_ms)).unwrap_or(i64::MAX)
}
