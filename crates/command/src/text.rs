//! Encodes string replies that may be long.
//!
//! A short string is copied into the reply. A long string is shared with the socket chunk by chunk,
//! and beyond [`STREAM_MIN_BYTES`] it is streamed.

use crate::{Flow, Stream};
use darter_base::limits::CHUNK_BYTES;
use darter_keyspace::Str;
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::table::Scratch;
use std::ops::Range;

/// Longer strings are streamed to the client instead of being encoded at once.
const STREAM_MIN_BYTES: usize = 2 * CHUNK_BYTES;

/// Encodes a string as a bulk reply: at once if it is short, as a stream if it is long.
pub fn reply_str(reply: &mut Reply<'_>, value: &Str<'_>) -> Flow {
    match value {
        Str::Inline(text) => {
            reply.bulk(text.bytes(&mut Scratch::default()));
            Flow::Done
        }
        Str::Blob(blob) => reply_blob(reply, blob, 0..blob.len()),
    }
}

/// [`reply_str`] for a part of a string. Panics when the range is not within the string.
pub fn reply_range(reply: &mut Reply<'_>, value: &Str<'_>, range: Range<usize>) -> Flow {
    match value {
        Str::Inline(text) => {
            reply.bulk(&text.bytes(&mut Scratch::default())[range]);
            Flow::Done
        }
        Str::Blob(blob) => reply_blob(reply, blob, range),
    }
}

fn reply_blob(reply: &mut Reply<'_>, blob: &Blob, range: Range<usize>) -> Flow {
    reply.bulk_header(range.len());
    send(reply, blob, range)
}

/// Encodes a text with its format, as [`Reply::verbatim`] does; a long text is streamed.
pub fn reply_text(reply: &mut Reply<'_>, format: [u8; 3], text: &Blob) -> Flow {
    reply.verbatim_header(format, text.len());
    send(reply, text, 0..text.len())
}

/// Sends the bytes after the header.
fn send(reply: &mut Reply<'_>, blob: &Blob, range: Range<usize>) -> Flow {
    let is_long = range.len() > STREAM_MIN_BYTES;
    let mut stream = BlobStream::new(blob, range);
    if is_long {
        return Flow::Stream(Box::new(stream));
    }
    while stream.pump(reply) {}
    Flow::Done
}

/// Sends a part of a long string and the final CRLF, chunk by chunk, without copying. The header
/// has been sent.
pub struct BlobStream {
    blob: Blob,
    range: Range<usize>,
}

impl BlobStream {
    /// A cut of `blob`, of which `range` is sent.
    #[must_use]
    pub fn new(blob: &Blob, range: Range<usize>) -> Self {
        assert!(range.end <= blob.len(), "range={range:?} len={}", blob.len());
        Self { blob: blob.reader(), range }
    }

    /// Adds the next chunk to the output. Returns its length.
    fn share_next(&mut self, reply: &mut Reply<'_>) -> usize {
        let index = self.range.start / CHUNK_BYTES;
        let (piece, within) = self.blob.piece(index);
        let from = self.range.start - index * CHUNK_BYTES;
        let to = (self.range.end - index * CHUNK_BYTES).min(within.end);
        assert!(from < to, "range={:?} len={}", self.range, self.blob.len());
        reply.out.share(piece, from..to);
        to - from
    }
}

impl Stream for BlobStream {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if !self.range.is_empty() {
            self.range.start += self.share_next(reply);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use darter_resp::Output;

    fn sent(blob: &Blob, range: Range<usize>) -> (Vec<u8>, bool) {
        let mut out = Output::default();
        let mut reply = Reply::new(&mut out, false);
        let flow = reply_range(&mut reply, &Str::Blob(blob), range);
        let is_stream = matches!(flow, Flow::Stream(_));
        if let Flow::Stream(mut stream) = flow {
            while stream.pump(&mut reply) {}
        }
        let mut bytes = Vec::new();
        for part in out.take() {
            match part {
                darter_resp::Part::Bytes(part) => bytes.extend(part),
                darter_resp::Part::Shared(piece, range) => bytes.extend_from_slice(&piece[range]),
            }
        }
        (bytes, is_stream)
    }

    #[test] // At once up to two chunks.
    fn ranges_within_and_across_chunks_are_sent_completely() {
        let text: Vec<u8> = (0..3 * CHUNK_BYTES + 5).map(|at| (at % 251) as u8).collect();
        let blob = Blob::from(&text[..]);
        let chunk = CHUNK_BYTES;
        let ranges = [
            0..0,
            3..3,
            0..1,
            chunk - 1..chunk,
            chunk - 1..chunk + 1,
            chunk..2 * chunk,
            1..2 * chunk + 1,
            0..2 * chunk,
            0..2 * chunk + 1,
            7..text.len(),
            0..text.len(),
            text.len()..text.len(),
        ];
        for range in ranges {
            let header = format!("${}\r\n", range.len());
            let expected = [header.as_bytes(), &text[range.clone()], b"\r\n"].concat();
            let is_long = range.len() > 2 * chunk;
            assert!(sent(&blob, range.clone()) == (expected, is_long), "{range:?}");
        }
    }
}
