//! Replies of several string values, none of which is copied as a whole.

use crate::pinned_values::PinnedValues;
use darter_base::limits::CHUNK_BYTES;
use darter_command::{BlobStream, Stream};
use darter_keyspace::StrPieces;
use darter_resp::Reply;

/// Sends values as elements of an array whose header has been written; `None` is sent as null.
pub(super) struct Values {
    values: PinnedValues<Option<StrPieces>>,
    /// The rest of a long string.
    rest: Option<BlobStream>,
}

impl Values {
    /// A stream of `values` in order; they are cuts.
    pub(super) fn new(values: Vec<Option<StrPieces>>) -> Self {
        Self { values: PinnedValues::new(values), rest: None }
    }

    /// Encodes the next value, or a piece of it. Returns the approximate number of bytes.
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
        self.values.pop_front(); // Values are freed one by one, not all at the end.
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
