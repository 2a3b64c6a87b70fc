//! String values in and out, piece by piece.
//!
//! A string may be 512 MiB long. So nothing here copies one as a whole: what is read is shared with
//! the socket chunk by chunk, what is written goes in chunk by chunk.

use crate::lookup::find;
use crate::tally::Tally;
use darter_base::limits::CHUNK_BYTES;
use darter_command::{Flow, Stream};
use darter_keyspace::{Db, Fresh, Key, ShardStats, Str, StrPieces, WrongType};
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::table::Scratch;
use std::ops::Range;

/// Bytes that a command moves, compares or hashes in one go: about 20 us. Above that it works in
/// slices.
pub(super) const BYTES_AT_ONCE: usize = 2 * CHUNK_BYTES;

/// The string at `key`, for a command that reads it.
#[inline]
pub(super) fn find_text<'d>(
    db: &'d mut Db,
    stats: &mut ShardStats,
    key: &Key<'_>,
) -> Result<Option<Str<'d>>, WrongType> {
    find(db, stats, key).map(|found| found.text()).transpose()
}

/// The `index`-th piece of a value, of at most [`CHUNK_BYTES`]; all but the last are that long.
pub(super) fn piece(value: Fresh<'_>, index: usize) -> Option<&[u8]> {
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
pub(super) fn pieces(value: Fresh<'_>) -> impl Iterator<Item = &[u8]> {
    (0..).map_while(move |index| piece(value, index))
}

/// A string as a blob: shared when it is one, copied when it is short.
pub(super) fn to_blob(text: &Str<'_>) -> Blob {
    match text {
        Str::Inline(text) => Blob::from(text.bytes(&mut Scratch::default())),
        Str::Blob(blob) => (*blob).clone(),
    }
}

/// Encodes `range` of a string as a bulk reply: at once when it is short, as a stream when not.
///
/// Panics when the range is not within the string.
pub(super) fn reply_range(reply: &mut Reply<'_>, text: &Str<'_>, range: Range<usize>) -> Flow {
    reply.bulk_header(range.len());
    match text {
        Str::Inline(text) => {
            reply.out.tail().extend_from_slice(&text.bytes(&mut Scratch::default())[range]);
        }
        Str::Blob(blob) if range.len() > BYTES_AT_ONCE => {
            return Flow::Stream(Box::new(RangeStream { blob: blob.reader(), range }));
        }
        Str::Blob(blob) => share_range(reply, blob, range),
    }
    reply.crlf();
    Flow::Done
}

/// Puts `range` of a blob into the output: shared where that is large.
fn share_range(reply: &mut Reply<'_>, blob: &Blob, mut range: Range<usize>) {
    while !range.is_empty() {
        range.start += share_piece(reply, blob, range.clone());
    }
}

/// Puts the first piece of `range` into the output. Returns its length.
fn share_piece(reply: &mut Reply<'_>, blob: &Blob, range: Range<usize>) -> usize {
    let index = range.start / CHUNK_BYTES;
    let (piece, within) = blob.piece(index);
    let from = range.start - index * CHUNK_BYTES;
    let to = (range.end - index * CHUNK_BYTES).min(within.end);
    assert!(from < to, "range={range:?} len={}", blob.len());
    reply.out.share(piece, from..to);
    to - from
}

/// Sends a part of a long string.
struct RangeStream {
    blob: Blob,
    range: Range<usize>,
}

impl Stream for RangeStream {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        self.range.start += share_piece(reply, &self.blob, self.range.clone());
        let more = !self.range.is_empty();
        if !more {
            reply.crlf();
        }
        more
    }

    fn pinned_bytes(&self) -> usize {
        self.blob.pinned_bytes()
    }
}

/// Sends values, null for those that are `None`: the elements of an array whose header is sent.
pub(super) struct Values {
    values: Tally<Option<StrPieces>>,
    /// Bytes of the next value that are already sent.
    sent: usize,
}

impl Values {
    /// A stream of `values`, in order: readers' cuts.
    pub(super) fn new(values: Vec<Option<StrPieces>>) -> Self {
        Self { values: Tally::new(values), sent: 0 }
    }

    /// Encodes the next value, or a piece of it. Returns about how many bytes that was.
    fn step(&mut self, reply: &mut Reply<'_>) -> usize {
        match self.values.front() {
            None | Some(None) => reply.null(),
            Some(Some(StrPieces::Bytes(bytes))) => reply.bulk(bytes),
            Some(Some(StrPieces::Blob(blob))) => {
                if self.sent == 0 {
                    reply.bulk_header(blob.len());
                }
                self.sent += share_piece(reply, blob, self.sent..blob.len());
                if self.sent < blob.len() {
                    return CHUNK_BYTES;
                }
                reply.crlf();
            }
        }
        self.values.pop_front(); // Freed one by one, not all at the end.
        std::mem::take(&mut self.sent)
    }
}

impl Stream for Values {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        const VALUES_AT_ONCE: usize = 128;
        let mut bytes = 0;
        for _ in 0..VALUES_AT_ONCE {
            if self.values.len() == 0 || bytes >= CHUNK_BYTES {
                break;
            }
            bytes += self.step(reply);
        }
        self.values.len() > 0
    }

    fn pinned_bytes(&self) -> usize {
        self.values.pinned_bytes()
    }
}
