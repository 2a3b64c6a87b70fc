//! Send buffers: bytes of their own and shared parts of values, in order, with a cursor over them.
//!
//! Most buffers are one flat vector, which has no overhead. The parts of other buffers are sent
//! with one `sendmsg` of at most [`IOVECS_MAX`] pieces at a time.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// The largest number of pieces in one system call. Linux allows 1024, but 64 pieces of the usual
/// 16 KiB fill the 1 MiB that a client may have in flight.
pub const IOVECS_MAX: usize = 64;

/// One part of a send buffer.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes that the buffer owns.
    Bytes(Vec<u8>),
    /// A range of a value that others may be reading.
    Shared(Arc<[u8]>, Range<usize>),
}

impl Part {
    /// The bytes of the part.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Shared(bytes, range) => &bytes[range.clone()],
        }
    }
}

/// Bytes to be sent, in order. The buffer is returned in [`super::Event::Sent`].
#[derive(Clone, Debug)]
pub enum SendBuffer {
    /// One vector of bytes.
    Flat(Vec<u8>),
    /// Several pieces.
    Parts(Vec<Part>),
}

impl SendBuffer {
    /// The number of bytes in all parts.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Flat(bytes) => bytes.len(),
            Self::Parts(parts) => parts.iter().map(|part| part.as_slice().len()).sum(),
        }
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the memory that is worth reusing: the flat vector, or the largest part that the buffer
    /// owns, cleared.
    #[must_use]
    pub fn into_spare(self) -> Vec<u8> {
        let mut spare = match self {
            Self::Flat(bytes) => bytes,
            Self::Parts(parts) => parts
                .into_iter()
                .filter_map(|part| match part {
                    Part::Bytes(bytes) => Some(bytes),
                    Part::Shared(..) => None,
                })
                .max_by_key(Vec::capacity)
                .unwrap_or_default(),
        };
        spare.clear();
        spare
    }
}

impl From<Vec<u8>> for SendBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Flat(bytes)
    }
}

/// A buffer, and how much of it has been sent.
///
/// Invariant: `offset` is within part `part`, and that part has bytes left, unless everything has
/// been sent.
#[derive(Debug)]
pub(super) struct Sending {
    buffer: SendBuffer,
    part: usize,
    offset: usize,
}

impl Sending {
    pub(super) fn new(buffer: SendBuffer) -> Self {
        let mut sending = Self { buffer, part: 0, offset: 0 };
        sending.skip_empty();
        sending
    }

    pub(super) fn is_done(&self) -> bool {
        self.part >= self.parts()
    }

    pub(super) fn into_buffer(self) -> SendBuffer {
        self.buffer
    }

    /// The unsent bytes, if they are in one piece.
    pub(super) fn flat(&self) -> Option<&[u8]> {
        (self.part + 1 == self.parts()).then(|| &self.piece(self.part)[self.offset..])
    }

    /// Fills `slices` with the unsent bytes, as many as they hold. Returns how many slices were
    /// filled.
    pub(super) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let (mut filled, mut offset) = (0, self.offset);
        for index in self.part..self.parts() {
            if filled == slices.len() {
                break;
            }
            let piece = &self.piece(index)[offset..];
            offset = 0;
            if !piece.is_empty() {
                slices[filled] = IoSlice::new(piece);
                filled += 1;
            }
        }
        debug_assert!(filled > 0 || slices.is_empty() || self.is_done(), "nothing of the rest");
        filled
    }

    /// Advances by `sent` bytes. Panics if fewer are left.
    pub(super) fn advance(&mut self, mut sent: usize) {
        while sent > 0 {
            assert!(!self.is_done(), "sent={sent} beyond the end");
            let len = self.piece(self.part).len();
            assert!(self.offset <= len, "offset={} of {len}", self.offset);
            let left = len - self.offset;
            if sent < left {
                self.offset += sent;
                return;
            }
            sent -= left;
            self.part += 1;
            self.offset = 0;
        }
        self.skip_empty();
    }

    fn skip_empty(&mut self) {
        while !self.is_done() && self.offset == self.piece(self.part).len() {
            self.part += 1;
            self.offset = 0;
        }
    }

    fn parts(&self) -> usize {
        match &self.buffer {
            SendBuffer::Flat(_) => 1,
            SendBuffer::Parts(parts) => parts.len(),
        }
    }

    fn piece(&self, index: usize) -> &[u8] {
        match &self.buffer {
            SendBuffer::Flat(bytes) => bytes,
            SendBuffer::Parts(parts) => parts[index].as_slice(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    fn random_buffer(prng: &mut Prng) -> SendBuffer {
        if prng.chance(20) {
            return SendBuffer::Flat(prng.bytes(0..=300));
        }
        let parts = (0..prng.below(100)).map(|_| {
            let bytes = prng.bytes(0..=30);
            if prng.chance(50) {
                return Part::Bytes(bytes);
            }
            let (whole, end) = (Arc::<[u8]>::from(bytes.as_slice()), bytes.len());
            Part::Shared(whole, end / 3..end)
        });
        SendBuffer::Parts(parts.collect())
    }

    fn flatten(buffer: &SendBuffer) -> Vec<u8> {
        match buffer {
            SendBuffer::Flat(bytes) => bytes.clone(),
            SendBuffer::Parts(parts) => {
                parts.iter().flat_map(|part| part.as_slice().to_vec()).collect()
            }
        }
    }

    #[test]
    fn partial_sends_cover_the_output_in_order() {
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let buffer = random_buffer(&mut prng);
            let whole = flatten(&buffer);
            assert_eq!(buffer.len(), whole.len(), "{seed}");
            let (mut sending, mut out) = (Sending::new(buffer), Vec::new());
            while !sending.is_done() {
                let mut slices = [IoSlice::new(&[]); 7];
                let filled = sending.fill(&mut slices);
                let rest: Vec<u8> = slices[..filled].iter().flat_map(|s| s.to_vec()).collect();
                assert!(!rest.is_empty(), "{seed}");
                if let Some(flat) = sending.flat() {
                    assert_eq!(flat, rest, "{seed}");
                }
                let take = 1 + usize::try_from(prng.below(rest.len() as u64)).unwrap();
                out.extend_from_slice(&rest[..take]);
                sending.advance(take);
            }
            assert_eq!(out, whole, "{seed}");
        }
    }
}
