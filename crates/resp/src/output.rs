//! What is to be sent to one client, in order: encoded bytes, and shared pieces of large values.

use std::ops::Range;
use std::sync::Arc;

/// Below this, copying a shared piece is cheaper than a part of its own.
const SHARE_MIN_BYTES: usize = 16 * 1024;

/// A piece of what is to be sent.
#[derive(Debug)]
pub enum Part {
    /// Encoded bytes.
    Bytes(Vec<u8>),
    /// A piece of a value, sent without a copy.
    Shared(Arc<[u8]>, Range<usize>),
}

/// Bytes to be sent: finished parts, then an open tail that replies are encoded into.
#[derive(Debug, Default)]
pub struct Output {
    parts: Vec<Part>,
    parts_bytes: usize,
    tail: Vec<u8>,
}

impl Output {
    /// Nothing yet; encodes into `buffer`, whose capacity is reused.
    #[must_use]
    pub fn with_buffer(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { tail: buffer, ..Self::default() }
    }

    /// Bytes waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts_bytes + self.tail.len()
    }

    /// True when nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The open tail. Only appended to.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Appends a piece of a value: shared when it is large, copied when it is small.
    pub fn share(&mut self, piece: &Arc<[u8]>, range: Range<usize>) {
        if range.len() < SHARE_MIN_BYTES {
            self.tail.extend_from_slice(&piece[range]);
            return;
        }
        self.close_tail();
        self.parts_bytes += range.len();
        self.parts.push(Part::Shared(Arc::clone(piece), range));
    }

    /// Appends all of `other`.
    pub fn append(&mut self, mut other: Self) {
        if other.parts.is_empty() && !self.tail.is_empty() {
            self.tail.extend_from_slice(&other.tail);
            return;
        }
        self.close_tail();
        self.parts.append(&mut other.parts);
        self.parts_bytes += other.parts_bytes;
        self.tail = other.tail;
    }

    /// Takes everything, leaving an empty output.
    #[must_use]
    pub fn take(&mut self) -> Vec<Part> {
        self.close_tail();
        self.parts_bytes = 0;
        std::mem::take(&mut self.parts)
    }

    /// When everything is one run of encoded bytes, takes that, leaving `spare` to encode into.
    pub fn take_flat(&mut self, spare: Vec<u8>) -> Option<Vec<u8>> {
        self.parts.is_empty().then(|| std::mem::replace(&mut self.tail, spare))
    }

    /// Where the next byte would stand: hand it to [`Output::truncate`] to undo a reply.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.len()
    }

    /// Drops what was encoded after `mark`, when no part was closed since; else nothing.
    pub fn truncate(&mut self, mark: usize) {
        if let Some(keep) = mark.checked_sub(self.parts_bytes) {
            self.tail.truncate(keep);
        }
    }

    /// All bytes in one piece: for tests and for replies kept aside.
    #[must_use]
    pub fn flatten(mut self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        for part in self.take() {
            match part {
                Part::Bytes(bytes) => all.extend_from_slice(&bytes),
                Part::Shared(piece, range) => all.extend_from_slice(&piece[range]),
            }
        }
        all
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.parts_bytes += self.tail.len();
            self.parts.push(Part::Bytes(std::mem::take(&mut self.tail)));
        }
    }
}
