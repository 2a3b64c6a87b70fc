//! String values in and out, piece by piece.
//!
//! A string may be 512 MiB long. So nothing here copies one as a whole: what is read is shared with
//! the socket chunk by chunk, what is written goes in chunk by chunk.

use crate::tally::Tally;
use darter_base::limits::CHUNK_BYTES;
use darter_command::{BlobStream, Stream};
use darter_keyspace::{Fresh, Str, StrPieces};
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::table::Scratch;

/// Bytes that a command moves, compares or hashes in one go: about 20 us. Above that it works in
/// slices.
pub(super) const BYTES_AT_ONCE: usize = 2 * CHUNK_BYTES;

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

/// Sends values, null for those that are `None`: the elements of an array whose header is out.
pub(super) struct Values {
    values: Tally<Option<StrPieces>>,
    /// What is left of a long one.
    rest: Option<BlobStream>,
}

impl Values {
    /// A stream of `values`, in order: readers' cuts.
    pub(super) fn new(values: Vec<Option<StrPieces>>) -> Self {
        Self { values: Tally::new(values), rest: None }
    }

    /// Encodes the next value, or a piece of it. Returns about how many bytes that was.
    fn step(&mut self, reply: &mut Reply<'_>) -> usize {
        if let Some(mut rest) = self.rest.take() {
            self.rest = rest.pump(reply).then_some(rest);
            return CHUNK_BYTES;
        }
        let mut bytes = 0;
        match self.values.front() {
            None | Some(None) => reply.null(),
            Some(Some(StrPieces::Bytes(text))) => {
                reply.bulk(text);
                bytes = text.len();
            }
            Some(Some(StrPieces::Blob(blob))) => {
                reply.bulk_header(blob.len());
                self.rest = Some(BlobStream::new(blob, 0..blob.len()));
            }
        }
        self.values.pop_front(); // Freed one by one, not all at the end.
        bytes
    }

    fn is_empty(&self) -> bool {
        self.rest.is_none() && self.values.len() == 0
    }
}

impl Stream for Values {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        const VALUES_AT_ONCE: usize = 128;
        let mut bytes = 0;
        for _ in 0..VALUES_AT_ONCE {
            if self.is_empty() || bytes >= CHUNK_BYTES {
                break;
            }
            bytes += self.step(reply);
        }
        !self.is_empty()
    }

    fn pinned_bytes(&self) -> usize {
        self.values.pinned_bytes() + self.rest.as_ref().map_or(0, Stream::pinned_bytes)
    }
}
