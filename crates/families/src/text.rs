//! Access to strings piece by piece, for the families that work on them.
//!
//! A string may have 512 MiB. So no function here copies a whole string: reads share chunks, and
//! writes add chunks.

use crate::multi_input::{Hold, Input};
use darter_base::limits::CHUNK_BYTES;
use darter_keyspace::{Db, Deadline, Event, Found, Fresh, Key, Str, WrongType};
use darter_structs::blob::Blob;
use darter_structs::table::Scratch;
use std::ops::Range;

/// A string of up to this length is changed in a copy, which may be stored in its key's entry.
const COPIED_MAX_BYTES: usize = 4 * 1024;

/// The bytes that a command moves, compares or hashes at once. A command of more bytes works in
/// slices.
pub(crate) const BYTES_AT_ONCE: usize = 2 * CHUNK_BYTES;

/// The `index`-th piece of a value, of at most [`CHUNK_BYTES`]; all but the last are that long.
pub(crate) fn piece(value: Fresh<'_>, index: usize) -> Option<&[u8]> {
    match value {
        Fresh::Bytes(bytes) => bytes.chunks(CHUNK_BYTES).nth(index),
        Fresh::Chunks(chunks) => chunks.get(index).map(|chunk| &chunk[..]),
        Fresh::Blob(blob) if index < blob.pieces() => {
            let (piece, range) = blob.piece(index);
            Some(&piece[range])
        }
        Fresh::Blob(_) => None,
    }
}

/// The pieces of a value, in order.
pub(crate) fn pieces(value: Fresh<'_>) -> impl Iterator<Item = &[u8]> {
    (0..).map_while(move |index| piece(value, index))
}

/// A string as a blob: shared if it is one, copied if it is short.
pub(crate) fn to_blob(text: &Str<'_>) -> Blob {
    match text {
        Str::Inline(text) => Blob::from(text.bytes(&mut Scratch::default())),
        Str::Blob(blob) => (*blob).clone(),
    }
}

impl Input for Blob {
    fn cut(found: &Found<'_>, hold: Hold) -> Result<Self, WrongType> {
        let text = found.text()?;
        Ok(match (text, hold) {
            (Str::Blob(blob), Hold::Reader) => blob.reader(),
            (text, _) => to_blob(&text),
        })
    }
}

/// Writes `value` into the string at `key` from `offset` on, in each of its encodings; bytes
/// between its end and `offset` become zeros. An absent key begins empty; the deadline stays.
/// Returns the length. Cost: O(bytes of the value).
pub(crate) fn write(
    db: &mut Db,
    key: &Key<'_>,
    (offset, value): (usize, Fresh<'_>),
    event: &'static Event,
) -> Result<usize, WrongType> {
    if let Some(len) = db.write_text(key, offset, value, event) {
        return Ok(len);
    }
    let old = db.read_text(key)?;
    let end = offset + value.len();
    if end > COPIED_MAX_BYTES {
        let mut blob = old.as_ref().map_or_else(Blob::default, to_blob);
        write_pieces(&mut blob, offset, value);
        db.set_text_raw(key, Fresh::Blob(&blob), Deadline::Keep, &[event]);
        return Ok(blob.len());
    }
    let mut bytes = old.map_or_else(Vec::new, |text| text.to_vec());
    bytes.resize(bytes.len().max(end), 0);
    pieces(value).fold(offset, |at, piece| {
        bytes[at..at + piece.len()].copy_from_slice(piece);
        at + piece.len()
    });
    db.set_text_raw(key, Fresh::Bytes(&bytes), Deadline::Keep, &[event]);
    Ok(bytes.len())
}

fn write_pieces(blob: &mut Blob, mut offset: usize, value: Fresh<'_>) {
    for piece in pieces(value) {
        blob.write_at(offset, piece);
        offset += piece.len();
    }
}

/// Calls `look` with the pieces of a string that hold `range`, in order, each with its place, until
/// it finds something.
pub(crate) fn find_piece<R>(
    text: &Str<'_>,
    range: Range<usize>,
    mut look: impl FnMut(usize, &[u8]) -> Option<R>,
) -> Option<R> {
    match text {
        Str::Inline(text) => {
            let mut scratch = Scratch::default();
            let bytes = &text.bytes(&mut scratch)[range.clone()];
            look(range.start, bytes)
        }
        Str::Blob(blob) => {
            let mut at = range.start;
            blob.slices(range).find_map(|piece| {
                at += piece.len();
                look(at - piece.len(), piece)
            })
        }
    }
}
