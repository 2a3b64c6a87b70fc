//! The items of values: read from a cut, and added to a value being built.
//!
//! Code that reads the items of any value (DUMP, digests, files) or builds values from them
//! (RESTORE, the loader) uses these, and depends on no type.

use crate::db::is_dead;
use crate::text::{Fresh, StrPieces};
use darter_base::limits::CHUNK_BYTES;
use darter_rdb::{Item, Items, Piece, Source};
use darter_structs::blob::Blob;
use darter_structs::table::{Entry, HeldKey, OutOfLine, Reader, Scratch, Table};
use std::sync::Arc;

/// Bytes in one part of a long text; a part is hashed in one step.
const PART_BYTES: usize = CHUNK_BYTES / 4;
/// Entries copied from the table at a time, and approximately their bytes.
const BATCH: usize = 32;
const BATCH_BYTES: usize = 32 * 1024;
/// Names and values of at least this many bytes are not copied.
const LONG_BYTES: usize = 4 * 1024;

/// An item to add to a value being built.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum NewItem<'a> {
    /// A name alone.
    Single { name: &'a [u8], deadline: Option<u64> },
    /// A name and its value. A type without values uses the name only.
    Pair { name: &'a [u8], value: Fresh<'a>, deadline: Option<u64> },
    /// A name and its score, which is a number.
    Scored { name: &'a [u8], score: f64 },
    /// A list element that is already out of line.
    Element(&'a Blob),
    /// A piece of a stream.
    Piece(Piece<'a>),
}

impl<'a> NewItem<'a> {
    /// An item that was read.
    #[inline]
    #[must_use]
    pub fn of(item: Item<'a>) -> Option<Self> {
        match item {
            Item::Single { name, deadline_ms } => {
                Some(Self::Single { name, deadline: deadline_ms })
            }
            Item::Pair { name, value, deadline_ms } => {
                Some(Self::Pair { name, value: Fresh::Bytes(value), deadline: deadline_ms })
            }
            Item::Scored { name, score } => Some(Self::Scored { name, score }),
            Item::Piece(piece) => Some(Self::Piece(piece)),
            _ => None,
        }
    }

    /// The name and its value, if the value is inline and there is no deadline. A name alone has an
    /// empty value.
    #[inline]
    #[must_use]
    pub fn plain(&self) -> Option<(&'a [u8], &'a [u8])> {
        match *self {
            Self::Single { name, deadline: None } => Some((name, &[])),
            Self::Pair { name, value: value @ Fresh::Bytes(bytes), deadline: None } => {
                value.inline().map(|_| (name, bytes))
            }
            _ => None,
        }
    }

    /// The name; empty if it has none.
    #[inline]
    #[must_use]
    pub fn name(&self) -> &'a [u8] {
        match self {
            Self::Single { name, .. } | Self::Pair { name, .. } | Self::Scored { name, .. } => name,
            Self::Piece(Piece::Group { name, .. } | Piece::Consumer { name, .. }) => name,
            Self::Element(_) | Self::Piece(_) => &[],
        }
    }
}

/// The pieces of a string.
pub(crate) fn of_text(text: StrPieces) -> Items {
    Box::new(Pieces { text, next: 0 })
}

/// Reads a string piece by piece.
struct Pieces {
    text: StrPieces,
    next: usize,
}

impl Source for Pieces {
    fn next(&mut self) -> Option<Item<'_>> {
        let piece = match &self.text {
            StrPieces::Bytes(bytes) => (self.next == 0 && !bytes.is_empty()).then_some(&bytes[..]),
            StrPieces::Blob(blob) => {
                let from = self.next * PART_BYTES;
                blob.slices(from..from + PART_BYTES).next()
            }
        }?;
        self.next += 1;
        Some(Item::Chunk(piece))
    }

    fn rewind(&mut self) {
        self.next = 0;
    }
}

/// Appends the value of an entry to the buffer, or returns it if it has at least [`LONG_BYTES`].
pub type WriteValue<X> = fn(&Entry<'_, X>, &mut Vec<u8>) -> Option<Arc<Blob>>;

/// The entries of a table that are live at `now`: pairs of names and the results of `value`, or
/// names alone.
#[must_use]
pub fn of_table<X: OutOfLine>(cut: Table<X>, now: u64, value: Option<WriteValue<X>>) -> Items {
    Box::new(Entries {
        reader: None,
        cut: Some(cut),
        now,
        value,
        bytes: Vec::new(),
        copied: Vec::new(),
        next: 0,
        long: None,
    })
}

/// True if a value of this many bytes is returned in parts.
#[must_use]
pub fn is_long(bytes: usize) -> bool {
    bytes >= LONG_BYTES
}

/// The live entries of a cut. They are copied from the table in small batches, except for long
/// names and values, which are returned in parts.
struct Entries<X: OutOfLine> {
    /// The cut, for the second pass, which frees what it has read.
    cut: Option<Table<X>>,
    /// `None` before the first item: a caller that reads only once needs no second reader.
    reader: Option<Reader<X>>,
    now: u64,
    /// `None` if there are no values.
    value: Option<WriteValue<X>>,
    bytes: Vec<u8>,
    /// The copied entries; those before `next` have been returned.
    copied: Vec<Copied>,
    next: usize,
    /// The long name or value being returned, and the number of its bytes already returned.
    long: Option<(Long, usize)>,
}

/// A live entry that was copied from the table.
struct Copied {
    /// The ends of its name and its value in the bytes.
    name_end: usize,
    end: usize,
    deadline_ms: Option<u64>,
    /// The name, if it is long and therefore not copied.
    long_name: Option<HeldKey>,
    /// The value, if it is long.
    long: Option<Arc<Blob>>,
}

/// A text that is returned in parts.
enum Long {
    /// A name; its value follows, if there are values.
    Name(HeldKey),
    Value(Arc<Blob>),
}

impl Long {
    fn len(&self) -> usize {
        match self {
            Self::Name(name) => name.bytes().len(),
            Self::Value(blob) => blob.len(),
        }
    }

    /// Some of the bytes, starting at `from`.
    fn part(&self, from: usize) -> &[u8] {
        let to = self.len().min(from + PART_BYTES);
        match self {
            Self::Name(name) => &name.bytes()[from..to],
            Self::Value(blob) => blob.slices(from..to).next().unwrap_or_default(),
        }
    }
}

impl<X: OutOfLine> Entries<X> {
    /// Copies the next live entries, if there are any.
    fn refill(&mut self, looks: &mut usize) {
        let Self { cut, reader, now, value, bytes, copied, .. } = self;
        let cut = || cut.clone().expect("the first pass begins before the second");
        let reader = reader.get_or_insert_with(|| Reader::new(cut()));
        bytes.clear();
        copied.clear();
        while reader.left() > 0 && *looks > 0 && copied.len() < BATCH && bytes.len() < BATCH_BYTES {
            reader.next_slice(1, &mut |entry| {
                if is_dead(entry.deadline(), *now) {
                    *looks -= 1;
                    return;
                }
                let is_long = is_long(entry.key().len());
                let long_name = is_long.then(|| entry.hold_key()).flatten();
                if long_name.is_none() {
                    bytes.extend_from_slice(entry.key().bytes(&mut Scratch::default()));
                }
                let name_end = bytes.len();
                let long = value.and_then(|value| value(&entry, bytes));
                let (end, deadline_ms) = (bytes.len(), entry.deadline());
                copied.push(Copied { name_end, end, deadline_ms, long_name, long });
            });
        }
        self.next = 0;
    }

    /// The next part of a long text.
    fn part(&mut self) -> Option<Item<'_>> {
        let (long, given) = self.long.as_mut()?;
        let part = long.part(*given);
        *given += part.len();
        assert!(!part.is_empty() && *given <= long.len(), "{given} of {} bytes", long.len());
        Some(Item::Part(part))
    }

    /// The item after the last part of a long name.
    fn value_of_long_name(&mut self) -> Option<Item<'_>> {
        assert!(self.next > 0 && self.value.is_some(), "a value without a name");
        let &mut Copied { name_end, end, ref mut long, .. } = &mut self.copied[self.next - 1];
        let blob = long.take();
        let len = blob.as_ref().map(|blob| blob.len() as u64);
        self.long = blob.map(|blob| (Long::Value(blob), 0));
        Some(len.map_or(Item::Value(&self.bytes[name_end..end]), Item::LongValue))
    }

    /// The next entry: whole, or the item before its parts.
    fn entry(&mut self) -> Option<Item<'_>> {
        let start = self.next.checked_sub(1).map_or(0, |before| self.copied[before].end);
        let is_single = self.value.is_none();
        let &mut Copied { name_end, end, deadline_ms, ref mut long_name, ref mut long } =
            self.copied.get_mut(self.next)?;
        self.next += 1;
        let is_in_order = start <= name_end && name_end <= end && end <= self.bytes.len();
        assert!(is_in_order, "{start}, {name_end}, {end} of {} bytes", self.bytes.len());
        if let Some(name) = long_name.take() {
            let len = name.bytes().len() as u64;
            self.long = Some((Long::Name(name), 0));
            return Some(if is_single {
                Item::LongSingle { len, deadline_ms }
            } else {
                Item::LongNamed { name_len: len, deadline_ms }
            });
        }
        let name = &self.bytes[start..name_end];
        if is_single {
            return Some(Item::Single { name, deadline_ms });
        }
        if let Some(blob) = long.take() {
            let value_len = blob.len() as u64;
            self.long = Some((Long::Value(blob), 0));
            return Some(Item::LongValued { name, value_len, deadline_ms });
        }
        Some(Item::Pair { name, value: &self.bytes[name_end..end], deadline_ms })
    }
}

impl<X: OutOfLine> Source for Entries<X> {
    fn plain_count(&self) -> Option<u64> {
        let cut = self.cut.as_ref().filter(|cut| cut.earliest_deadline().is_none())?;
        Some(cut.len() as u64)
    }

    fn read_once(&mut self) {
        let cut = self.cut.take().expect("it is the only pass");
        self.reader = Some(Reader::new(cut).copied_first().since_snapshot());
    }

    fn held_kib(&self) -> u32 {
        match (&self.reader, &self.cut) {
            (Some(reader), _) => reader.held_kib(),
            (None, Some(cut)) => cut.copied_since_snapshot_kib(),
            (None, None) => 0,
        }
    }

    fn copied_kib(&self) -> u32 {
        self.reader.as_ref().map_or(0, Reader::copied_kib)
    }

    fn find(&mut self, looks: &mut usize) -> bool {
        let is_single = self.value.is_none();
        self.long.take_if(|(long, given)| {
            *given == long.len() && (is_single || matches!(long, Long::Value(_)))
        });
        if self.long.is_none() && self.next == self.copied.len() {
            self.refill(looks);
        }
        let is_over = || self.reader.as_ref().is_some_and(|reader| reader.left() == 0);
        self.long.is_some() || self.next < self.copied.len() || is_over()
    }

    fn next(&mut self) -> Option<Item<'_>> {
        self.find(&mut { usize::MAX });
        match &self.long {
            Some((long, given)) if *given < long.len() => self.part(),
            Some(_) => self.value_of_long_name(),
            None => self.entry(),
        }
    }

    fn rewind(&mut self) {
        let cut = self.cut.take().expect("the second pass is the last");
        self.reader = Some(Reader::new(cut));
        self.copied.clear();
        assert!(self.long.is_none(), "the first pass is not over");
        self.next = 0;
    }
}
