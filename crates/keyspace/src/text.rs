//! String values: storing and reading them.

use crate::commands::Commands;
use crate::effect::Change;
use crate::items;
use crate::log::Recorder;
use crate::object::{Object, Type, Typed, Value};
use crate::{Bound, Db, Event, Key, Tells, WrongType, event};
use darter_base::limits::CHUNK_BYTES;
use darter_rdb::{Bounds, Encoding, Items, Kind, Layout};
use darter_structs::blob::Blob;
use darter_structs::table::{Scratch, Text};
use std::ops::Range;
use std::sync::Arc;

/// Values up to this length are in the table's page, with their key; longer ones are blobs.
///
/// A quarter of a page: longer ones would waste the rest of it.
pub(crate) const INLINE_VALUE_MAX: usize = 512;

/// Digits and sign of the longest integer: see [`Str::as_int`].
const INT_BYTES_MAX: usize = 20;
const _: () = assert!(INT_BYTES_MAX <= INLINE_VALUE_MAX && INLINE_VALUE_MAX < CHUNK_BYTES);

/// Strings. Short ones are stored in the table's page, and are not objects.
static TYPE: &Type = &Type {
    name: "string",
    number: 0,
    rdb: &Kind {
        encodings: &[Encoding::new(0, Layout::Text)],
        packed: Bounds::DEFAULT,
        plan: |survey| survey.text(0),
    },
    empty: || Object::new(Blob::default()),
    bounds: &[&HLL_SPARSE_MAX_BYTES],
    is_ordered: true,
};

/// The longest sparse HyperLogLog string: `hll-sparse-max-bytes`.
pub static HLL_SPARSE_MAX_BYTES: Bound = Bound::new("hll-sparse-max-bytes", "3000")
    .of_bytes()
    .deciding("Bytes beyond which a HyperLogLog becomes dense.");

impl Value for Blob {
    fn content_bytes(&self) -> usize {
        self.memory_bytes()
    }

    fn encoding(&self) -> &'static str {
        "raw"
    }

    fn items(&self, _: u64) -> Items {
        items::of_text(StrPieces::Blob(self.clone()))
    }
}

impl Typed for Blob {
    const TYPE: &'static Type = TYPE;
}

/// A change of a long string, as recorded in the log.
#[derive(Debug)]
#[expect(missing_docs, reason = "the fields are what the variant says, by their usual names")]
pub enum TextChange {
    /// Writes these bytes from `offset` on; a gap before them is filled with zeros.
    Write { offset: usize, bytes: StrPieces },
}

impl Change for TextChange {
    const TYPE: &'static Type = TYPE;

    fn held_bytes(&self) -> usize {
        let Self::Write { bytes, .. } = self;
        bytes.fresh().len()
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        changes.iter().try_for_each(|Self::Write { offset, bytes }| {
            let written = db.write_text(key, *offset, bytes.fresh(), event::SETRANGE);
            written.map(|_| ()).ok_or(WrongType)
        })
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        for Self::Write { offset, bytes } in changes {
            to.begin(4);
            to.word(b"SETRANGE");
            to.word(key);
            to.size(*offset);
            to.pieces(bytes);
        }
    }
}

impl Db {
    /// Overwrites the long string at `key` from `offset` on; a gap before that is filled with
    /// zeros. Returns the new length; `None` if there is no long string at the key. Cost: O(bytes).
    pub fn write_text(
        &mut self,
        key: &Key<'_>,
        offset: usize,
        bytes: Fresh<'_>,
        event: &'static Event,
    ) -> Option<usize> {
        self.edit_text(key, |edit| {
            edit.write(offset, bytes, &[event]);
            edit.text().len()
        })
    }
}

/// Changes a long string in place, and records the change.
pub struct TextEdit<'a> {
    blob: &'a mut Blob,
    recorder: Recorder<'a>,
    is_written: bool,
}

impl<'a> TextEdit<'a> {
    pub(crate) fn new(blob: &'a mut Blob, recorder: Recorder<'a>) -> Self {
        Self { blob, recorder, is_written: false }
    }

    /// An edit of a string that does not belong to a key yet, so nothing is recorded.
    pub fn aside(blob: &'a mut Blob) -> Self {
        Self::new(blob, Recorder::none())
    }

    /// The current string.
    #[must_use]
    pub fn text(&self) -> &Blob {
        self.blob
    }

    /// True once something was written.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.is_written
    }

    /// [`TextEdit::write`] for a part of a change that has been counted.
    pub fn write_along(&mut self, offset: usize, bytes: Fresh<'_>, tells: Tells<'_>) {
        bytes.write_to(self.blob, offset);
        self.is_written = true;
        self.recorder
            .record_death(tells, || TextChange::Write { offset, bytes: bytes.to_pieces() });
    }

    /// Overwrites the string from `offset` on; a gap before that is filled with zeros. Cost:
    /// O(bytes).
    pub fn write(&mut self, offset: usize, bytes: Fresh<'_>, tells: Tells<'_>) {
        bytes.write_to(self.blob, offset);
        let len = self.blob.len();
        assert!(len >= offset + bytes.len(), "{len} bytes after a write at {offset}");
        self.is_written = true;
        self.recorder.record(tells, || TextChange::Write { offset, bytes: bytes.to_pieces() });
    }
}

/// A value to be stored.
#[derive(Clone, Copy, Debug)]
pub enum Fresh<'a> {
    /// In one piece.
    Bytes(&'a [u8]),
    /// In chunks, as the protocol's parser gathered them; they are shared, not copied.
    Chunks(&'a [Arc<[u8]>]),
    /// A value that is already out of line.
    Blob(&'a Blob),
}

impl Fresh<'_> {
    /// Length in bytes.
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            Fresh::Bytes(bytes) => bytes.len(),
            Fresh::Chunks(chunks) => chunks.iter().map(|chunk| chunk.len()).sum(),
            Fresh::Blob(blob) => blob.len(),
        }
    }

    /// True when there are no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are few enough for a page entry.
    #[inline]
    #[must_use]
    pub fn inline(&self) -> Option<&[u8]> {
        match self {
            Fresh::Bytes(bytes) => Some(*bytes),
            Fresh::Chunks([chunk]) => Some(&chunk[..]),
            Fresh::Chunks(_) => None,
            Fresh::Blob(blob) => blob.as_slice(),
        }
        .filter(|bytes| bytes.len() <= INLINE_VALUE_MAX)
    }

    /// Writes the bytes into `blob`, from `offset` on.
    pub(crate) fn write_to(self, blob: &mut Blob, mut offset: usize) {
        let end = offset + self.len();
        let write = |bytes: &[u8]| {
            blob.write_at(offset, bytes);
            offset += bytes.len();
            debug_assert!(offset <= end, "more is written than {} bytes", self.len());
        };
        match self {
            Fresh::Bytes(bytes) => std::iter::once(bytes).for_each(write),
            Fresh::Chunks(chunks) => chunks.iter().map(|chunk| &chunk[..]).for_each(write),
            Fresh::Blob(from) => from.slices(0..from.len()).for_each(write),
        }
    }

    /// Copies a short value to a blob.
    #[must_use]
    pub fn to_blob(self) -> Blob {
        match self {
            Fresh::Bytes(bytes) => Blob::from(bytes),
            Fresh::Chunks(chunks) => Blob::from_chunks(chunks),
            Fresh::Blob(blob) => blob.clone(),
        }
    }

    /// A copy for the log.
    #[must_use]
    pub fn to_pieces(self) -> StrPieces {
        match self.inline() {
            Some(bytes) => StrPieces::Bytes(bytes.to_vec()),
            None => StrPieces::Blob(self.to_blob()),
        }
    }
}

/// A string value being read.
#[derive(Clone, Copy)]
pub enum Str<'a> {
    /// Stored in a page, perhaps packed.
    Inline(Text<'a>),
    /// Out of line.
    Blob(&'a Blob),
}

impl<'a> Str<'a> {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Str::Inline(text) => text.len(),
            Str::Blob(blob) => blob.len(),
        }
    }

    /// True when there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The byte at `index`, if there is one.
    #[inline]
    #[must_use]
    pub fn byte(&self, index: usize) -> Option<u8> {
        match self {
            Str::Inline(text) => text.bytes(&mut Scratch::default()).get(index).copied(),
            Str::Blob(blob) => blob.byte(index),
        }
    }

    /// The value as an integer, if its text is a canonical one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Str::Inline(text) => text
                .as_int()
                .or_else(|| darter_base::number::parse_i64(text.bytes(&mut Scratch::default()))),
            Str::Blob(_) => None, // Integers always fit a page.
        }
    }

    /// Appends the bytes to `out`. Cost: O(len): bounded callers only.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match self {
            Str::Inline(text) => text.write_to(out),
            Str::Blob(blob) => {
                blob.slices(0..blob.len()).for_each(|piece| out.extend_from_slice(piece));
            }
        }
    }

    /// The bytes in one piece. Cost: O(len): bounded callers only.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.write_to(&mut bytes);
        debug_assert_eq!(bytes.len(), self.len(), "all bytes are read");
        bytes
    }

    /// Appends `range` of the bytes to `out`.
    pub fn write_range(&self, range: Range<usize>, out: &mut Vec<u8>) {
        match self {
            Str::Inline(text) => {
                let mut scratch = Scratch::default();
                let bytes = text.bytes(&mut scratch);
                let end = range.end.min(bytes.len());
                out.extend_from_slice(&bytes[range.start.min(end)..end]);
            }
            Str::Blob(blob) => blob.slices(range).for_each(|piece| out.extend_from_slice(piece)),
        }
    }

    /// A copy that outlives the table: shares a blob, copies an inline value.
    #[must_use]
    pub fn to_pieces(&self) -> StrPieces {
        match self {
            Str::Inline(_) => StrPieces::Bytes(self.to_vec()),
            Str::Blob(blob) => StrPieces::Blob((*blob).clone()),
        }
    }

    /// [`Str::hold`] for a long-lived reader, which does not count as an owner of the value.
    #[must_use]
    pub fn reader(&self) -> StrPieces {
        match self {
            Str::Inline(_) => StrPieces::Bytes(self.to_vec()),
            Str::Blob(blob) => StrPieces::Blob(blob.reader()),
        }
    }
}

/// A string value that outlives the table it was read from.
#[derive(Clone, Debug)]
pub enum StrPieces {
    /// A short value.
    Bytes(Vec<u8>),
    /// A long value, shared.
    Blob(Blob),
}

impl StrPieces {
    /// The value in a form that can be stored again.
    #[must_use]
    pub fn fresh(&self) -> Fresh<'_> {
        match self {
            StrPieces::Bytes(bytes) => Fresh::Bytes(bytes),
            StrPieces::Blob(blob) => Fresh::Blob(blob),
        }
    }
}
