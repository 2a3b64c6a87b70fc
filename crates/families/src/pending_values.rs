//! Names, values and elements of any length that are being sent.
//!
//! A value stored in a page is copied into the reply. An out-of-line value is shared chunk by
//! chunk, and a value of 512 MB has 8 192 chunks. So it is queued here, together with everything
//! after it, and sent in portions. Replies of short values never use the queue.

use darter_base::number;
use darter_command::{BlobStream, Flow, Stream, reply_str};
use darter_keyspace::Str;
use darter_resp::{Output, Reply};
use darter_structs::blob::Blob;
use darter_structs::table::{Entry, HeldKey, OutOfLine, Reader, Scratch, Table, Text};
use std::collections::VecDeque;

/// The target size of one portion of a reply, in bytes.
pub(crate) const PORTION_BYTES: usize = 32 * 1024;
/// Names up to this length are copied as they are read: [`ENTRIES`] of them come to 128 KiB.
const NAME_AT_ONCE: usize = 4 * 1024;
/// Entries that are read in one step: 32 KiB with the longest names and values that fit a page.
const ENTRIES: usize = 32;
/// Entries of one portion.
const PORTION_ENTRIES: usize = 384;

/// The queue of values being sent; see the module's documentation.
#[derive(Default)]
pub(crate) struct PendingValues {
    waiting: VecDeque<Piece>,
}

/// A queued piece of the reply.
enum Piece {
    /// Encoded bytes.
    Bytes(Vec<u8>),
    /// A long value, whose header has been sent.
    Blob(BlobStream),
    /// A long name whose header has been sent, and the number of its bytes already sent.
    Name(HeldKey, usize),
}

impl PendingValues {
    /// True if the queue is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Appends the key of an entry, in portions if it is long. Returns the bytes to charge to this
    /// portion.
    #[inline]
    pub(crate) fn key<X: OutOfLine>(
        &mut self,
        reply: &mut Reply<'_>,
        entry: &Entry<'_, X>,
    ) -> usize {
        let key = entry.key();
        self.held_or_text(reply, &key, || entry.hold_key())
    }

    /// Appends a name; `hold` returns a reference to it if it is long. Returns the bytes to charge
    /// to this portion.
    #[inline]
    pub(crate) fn held_or_text(
        &mut self,
        reply: &mut Reply<'_>,
        name: &Text<'_>,
        hold: impl FnOnce() -> Option<HeldKey>,
    ) -> usize {
        if name.len() > NAME_AT_ONCE
            && let Some(held) = hold()
        {
            self.name(reply, &held);
            return PORTION_BYTES;
        }
        self.text(reply, name)
    }

    /// Appends a short string. Returns its length.
    #[inline]
    pub(crate) fn text(&mut self, reply: &mut Reply<'_>, text: &Text<'_>) -> usize {
        let mut scratch = Scratch::new();
        let bytes = text.bytes(&mut scratch);
        if self.waiting.is_empty() {
            reply.bulk(bytes);
        } else {
            self.queue(bytes);
        }
        bytes.len()
    }

    /// Appends a short string after a long value.
    #[cold]
    fn queue(&mut self, bytes: &[u8]) {
        let tail = self.tail();
        header(tail, b'$', bytes.len());
        tail.extend_from_slice(bytes);
        tail.extend_from_slice(b"\r\n");
    }

    /// Appends a value. Returns the bytes to charge to this portion.
    #[inline]
    pub(crate) fn value(&mut self, reply: &mut Reply<'_>, value: &Str<'_>) -> usize {
        match value {
            Str::Inline(text) => self.text(reply, text),
            Str::Blob(blob) => self.blob(reply, blob),
        }
    }

    fn blob(&mut self, reply: &mut Reply<'_>, blob: &Blob) -> usize {
        if self.waiting.is_empty() && blob.pieces() <= 1 {
            let flow = reply_str(reply, &Str::Blob(blob));
            debug_assert!(matches!(flow, Flow::Done), "one piece is sent at once");
            return blob.len();
        }
        if self.waiting.is_empty() {
            reply.bulk_header(blob.len());
        } else {
            header(self.tail(), b'$', blob.len());
        }
        self.waiting.push_back(Piece::Blob(BlobStream::new(blob, 0..blob.len())));
        PORTION_BYTES
    }

    /// Appends a name, in portions if it is long.
    pub(crate) fn name(&mut self, reply: &mut Reply<'_>, name: &HeldKey) {
        let bytes = name.bytes();
        if bytes.len() <= NAME_AT_ONCE {
            self.text(reply, &Text::raw(bytes));
            return;
        }
        if self.waiting.is_empty() {
            reply.bulk_header(bytes.len());
        } else {
            header(self.tail(), b'$', bytes.len());
        }
        self.waiting.push_back(Piece::Name(name.clone(), 0));
    }

    /// Appends null.
    pub(crate) fn null(&mut self, reply: &mut Reply<'_>) {
        self.encoded(reply, |reply| reply.null());
    }

    /// Appends the header of an array.
    pub(crate) fn array(&mut self, reply: &mut Reply<'_>, len: usize) {
        self.encoded(reply, |reply| reply.array(len));
    }

    /// Appends the short output of `encode`.
    #[inline]
    pub(crate) fn encoded(&mut self, reply: &mut Reply<'_>, encode: impl FnOnce(&mut Reply<'_>)) {
        if self.waiting.is_empty() {
            return encode(reply);
        }
        let mut out = Output::default();
        encode(&mut Reply::new(&mut out, reply.is_resp3()));
        self.tail().extend_from_slice(&out.flatten());
    }

    /// The rest of a completely encoded reply.
    pub(crate) fn into_flow(self) -> Flow {
        if self.waiting.is_empty() { Flow::Done } else { Flow::Stream(Box::new(self)) }
    }

    /// The buffer of encoded bytes at the end of the queue.
    fn tail(&mut self) -> &mut Vec<u8> {
        if !matches!(self.waiting.back(), Some(Piece::Bytes(_))) {
            self.waiting.push_back(Piece::Bytes(Vec::new()));
        }
        match self.waiting.back_mut() {
            Some(Piece::Bytes(bytes)) => bytes,
            _ => unreachable!("pushed above"),
        }
    }
}

fn header(out: &mut Vec<u8>, kind: u8, len: usize) {
    out.push(kind);
    number::write_i64(out, i64::try_from(len).unwrap_or(i64::MAX));
    out.extend_from_slice(b"\r\n");
}

impl Stream for PendingValues {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let before = reply.out.len();
        while !self.is_empty() && reply.out.len() - before < PORTION_BYTES {
            self.send(reply);
        }
        !self.is_empty()
    }

    /// Bytes pinned by the values of one portion.
    fn pinned_bytes(&self) -> usize {
        let bytes = self.waiting.iter().map(|piece| match piece {
            Piece::Bytes(bytes) => bytes.capacity(),
            Piece::Blob(stream) => stream.pinned_bytes(),
            Piece::Name(..) => 0,
        });
        bytes.sum()
    }
}

impl PendingValues {
    /// Sends one chunk of a value, a part of a name, or one run of encoded bytes.
    fn send(&mut self, reply: &mut Reply<'_>) {
        let is_sent = match self.waiting.front_mut() {
            Some(Piece::Blob(stream)) => !stream.pump(reply),
            Some(Piece::Name(name, sent)) => {
                let part = &name.bytes()[*sent..];
                let part = &part[..part.len().min(PORTION_BYTES)];
                reply.out.tail().extend_from_slice(part);
                *sent += part.len();
                let is_sent = *sent == name.bytes().len();
                if is_sent {
                    reply.crlf();
                }
                is_sent
            }
            Some(Piece::Bytes(bytes)) => {
                reply.out.tail().extend_from_slice(bytes);
                true
            }
            None => false,
        };
        if is_sent {
            self.waiting.pop_front();
        }
    }
}

/// Iterates over a cut, and frees the entries that it has read.
pub(crate) struct CutWalk<X: OutOfLine> {
    reader: Reader<X>,
    unsent: PendingValues,
}

/// Encodes an entry, or skips it. Returns the bytes to charge to the portion.
pub(crate) type Encode<'a, X> =
    dyn FnMut(&mut Reply<'_>, &mut PendingValues, &Entry<'_, X>) -> usize + 'a;

impl<X: OutOfLine> CutWalk<X> {
    /// Takes over the cut of `reader`.
    pub(crate) fn new(reader: Reader<X>) -> Self {
        Self { reader, unsent: PendingValues::default() }
    }

    /// Bytes that only readers keep alive.
    pub(crate) fn pinned_bytes(&self) -> usize {
        self.reader.pinned_bytes() + self.unsent.pinned_bytes()
    }

    /// Entries that have not been read.
    pub(crate) fn left(&self) -> usize {
        self.reader.left()
    }

    /// Reads a portion, or sends queued pieces. Returns true while more is left.
    pub(crate) fn portion(&mut self, reply: &mut Reply<'_>, encode: &mut Encode<'_, X>) -> bool {
        let Self { reader, unsent } = self;
        if !unsent.is_empty() {
            return unsent.pump(reply) || reader.left() > 0;
        }
        let (mut entries, mut bytes) = (0, 0);
        while entries < PORTION_ENTRIES && bytes < PORTION_BYTES && unsent.is_empty() {
            entries += ENTRIES;
            if !reader.next_slice(ENTRIES, &mut |entry| bytes += encode(reply, unsent, &entry)) {
                break;
            }
        }
        !unsent.is_empty() || reader.left() > 0
    }

    /// Frees the rest of the cut. Returns true while anything is queued.
    pub(crate) fn finish(&mut self) -> bool {
        self.reader = Reader::new(Table::new());
        !self.unsent.is_empty()
    }
}

/// Sends the first portion at once; the rest becomes a stream.
pub(crate) fn flow(reply: &mut Reply<'_>, mut stream: impl Stream + 'static) -> Flow {
    if stream.pump(reply) { Flow::Stream(Box::new(stream)) } else { Flow::Done }
}
