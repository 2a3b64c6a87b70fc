//! Several string values on their way out, none of them copied as a whole.

use crate::pinned_values::PinnedValues;
use darter_base::limits::CHUNK_BYTES;
use darter_command::{BlobStream, Stream};
use darter_keyspace::StrPieces;
use darter_resp::Reply;

/// Sends values, null for those that are `None`: the elements of an array whose header is out.
pub(super) struct Values {
    values: PinnedValues<Option<StrPieces>>,
    /// The rest of a long string.
    rest: Option<BlobStream>,
}

impl Values {
    /// A stream of `values`, in order: readers' cuts.
    pub(super) fn new(values: Vec<Option<StrPieces>>) -> Self {
        Self { values: PinnedValues::new(values), rest: None }
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
