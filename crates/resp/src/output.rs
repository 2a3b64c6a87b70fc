//! A client's pending output, in order: encoded bytes, and shared pieces of large values.
//!
//! A client that does not read may have hundreds of unsent parts when it is closed, and each takes
//! long to free. So the parts of a dropped output are freed one by one (`lazyfree`).

use darter_base::lazyfree;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Below this, copying a shared piece is cheaper than a part of its own.
const SHARE_MIN_BYTES: usize = 16 * 1024;

/// From this length on, copied bytes become their own part, because appending after them would
/// double their buffer.
const ALONE_MIN_BYTES: usize = 64 * 1024;

/// From this length on, a tail to which pieces are appended becomes a part. Otherwise its buffer
/// would double, and so would those of all clients with as much output.
const GROWN_BYTES: usize = 8 * 1024;

/// A piece of output.
#[derive(Debug)]
pub enum Part {
    /// Encoded bytes.
    Bytes(Vec<u8>),
    /// A piece of a value, sent without a copy.
    Shared(Arc<[u8]>, Range<usize>),
}

/// Output to be sent: finished parts, then an open tail that replies are encoded into.
#[derive(Debug, Default)]
pub struct Output {
    parts: VecDeque<Part>,
    parts_bytes: usize,
    tail: Vec<u8>,
}

impl Output {
    /// An empty output that encodes into `buffer`, whose capacity is reused.
    #[must_use]
    pub fn with_buffer(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { parts: VecDeque::new(), parts_bytes: 0, tail: buffer }
    }

    /// Bytes pending.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts_bytes + self.tail.len()
    }

    /// True when nothing is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of finished parts, and their bytes.
    #[must_use]
    pub fn parts(&self) -> (usize, usize) {
        (self.parts.len(), self.parts_bytes)
    }

    /// Bytes in the open tail, and the capacity of its buffer.
    #[must_use]
    pub fn tail_bytes(&self) -> (usize, usize) {
        (self.tail.len(), self.tail.capacity())
    }

    /// The open tail. Append only.
    #[inline]
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Appends a copy of `bytes`. Long copies take no more memory than their length.
    #[inline]
    pub fn copy(&mut self, bytes: &[u8]) {
        if bytes.len() < ALONE_MIN_BYTES {
            self.tail.extend_from_slice(bytes);
        } else {
            self.copy_alone(bytes);
        }
    }

    /// Appends a copy of `bytes`, one of many pieces that may wait. A full tail becomes a part,
    /// unless it is short; so waiting output takes no more memory than its length, and each step
    /// copies little.
    #[inline]
    pub fn add(&mut self, bytes: &[u8]) {
        let is_full = self.tail.capacity() - self.tail.len() < bytes.len();
        if is_full && self.tail.len() >= GROWN_BYTES {
            self.close_tail();
        }
        self.part_tail();
        self.copy(bytes);
    }

    /// Turns a tail that has grown long into a part.
    #[inline]
    pub fn part_tail(&mut self) {
        if self.tail.len() >= ALONE_MIN_BYTES {
            self.close_tail();
        }
    }

    /// Appends a copy of `bytes` as its own part.
    #[cold]
    fn copy_alone(&mut self, bytes: &[u8]) {
        self.close_tail();
        self.parts_bytes += bytes.len();
        self.parts.push_back(Part::Bytes(bytes.to_vec()));
    }

    /// Appends bytes without a copy: they become their own part.
    pub fn adopt(&mut self, bytes: Vec<u8>) {
        self.close_tail();
        self.tail = bytes;
        self.close_tail();
    }

    /// Appends a piece of a value: shared if it is large, copied if it is small.
    pub fn share(&mut self, piece: &Arc<[u8]>, range: Range<usize>) {
        if range.len() < SHARE_MIN_BYTES {
            self.tail.extend_from_slice(&piece[range]);
            return;
        }
        self.close_tail();
        self.parts_bytes += range.len();
        self.parts.push_back(Part::Shared(Arc::clone(piece), range));
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
        self.tail = std::mem::take(&mut other.tail);
    }

    /// Takes everything out, and leaves an empty output.
    #[must_use]
    pub fn take(&mut self) -> Vec<Part> {
        self.close_tail();
        self.parts_bytes = 0;
        std::mem::take(&mut self.parts).into()
    }

    /// Takes parts from the front until they have at least `bytes` bytes, or all. Cost: O(parts
    /// taken).
    #[must_use]
    pub fn take_some(&mut self, bytes: usize) -> Vec<Part> {
        self.close_tail();
        let (mut some, mut taken) = (Vec::new(), 0);
        while taken < bytes
            && let Some(part) = self.parts.pop_front()
        {
            taken += part.len();
            some.push(part);
        }
        self.parts_bytes -= taken;
        some
    }

    /// If the output is a single run of encoded bytes, takes it, and leaves `spare` as the new
    /// buffer.
    pub fn take_flat(&mut self, spare: Vec<u8>) -> Option<Vec<u8>> {
        self.parts.is_empty().then(|| std::mem::replace(&mut self.tail, spare))
    }

    /// The position of the next byte: pass it to [`Output::truncate`] to undo a reply.
    #[must_use]
    pub fn mark(&self) -> usize {
        self.len()
    }

    /// Drops the bytes encoded after `mark`. Has no effect if a part was closed since.
    pub fn truncate(&mut self, mark: usize) {
        if let Some(keep) = mark.checked_sub(self.parts_bytes) {
            self.tail.truncate(keep);
        }
    }

    /// Inserts `bytes` before the byte at `at`, which must be at the end of a part or in the tail.
    /// Cost: O(parts), and O(bytes after `at` in its part).
    pub fn insert(&mut self, at: usize, bytes: &[u8]) {
        if let Some(at) = at.checked_sub(self.parts_bytes) {
            self.tail.splice(at..at, bytes.iter().copied());
            return;
        }
        let (mut index, mut start) = (0, 0);
        while start + self.parts[index].len() <= at {
            start += self.parts[index].len();
            index += 1;
        }
        self.parts_bytes += bytes.len();
        match &mut self.parts[index] {
            Part::Bytes(part) => _ = part.splice(at - start..at - start, bytes.iter().copied()),
            Part::Shared(..) => {
                assert_eq!(start, at, "a shared piece cannot be divided");
                self.parts.insert(index, Part::Bytes(bytes.to_vec()));
            }
        }
    }

    /// All bytes in one piece, for tests and for replies that are stored.
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
            self.parts.push_back(Part::Bytes(std::mem::take(&mut self.tail)));
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.parts.len() > 1 {
            lazyfree::defer_each(std::mem::take(&mut self.parts).into(), Part::own_bytes);
        }
    }
}

impl Part {
    /// The bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Shared(_, range) => range.len(),
        }
    }

    /// Bytes that freeing the part returns: 0 while others hold the value.
    fn own_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.capacity(),
            Self::Shared(value, _) if Arc::strong_count(value) == 1 => value.len(),
            Self::Shared(..) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;
    use darter_base::preempt::Countdown;

    #[test] // Encoding, sharing, appending, undoing, taking.
    fn random_output_operations_agree_with_a_vector() {
        let piece: Arc<[u8]> = Prng::from_seed(1).bytes(40_000..=40_000).into();
        for seed in 0..60 {
            let mut prng = Prng::from_seed(seed);
            let (mut out, mut model) = (Output::with_buffer(b"old".to_vec()), Vec::new());
            for _ in 0..40 {
                match prng.below(6) {
                    0 | 1 => {
                        let bytes = prng.bytes(0..=9);
                        out.tail().extend_from_slice(&bytes);
                        model.extend_from_slice(&bytes);
                    }
                    2 => share(&mut out, &mut model, &piece, *prng.weighted(&RANGES)),
                    3 => {
                        let (mut other, mut bytes) = (Output::default(), Vec::new());
                        share(&mut other, &mut bytes, &piece, *prng.weighted(&RANGES));
                        other.tail().push(7);
                        bytes.push(7);
                        out.append(other);
                        model.extend_from_slice(&bytes);
                    }
                    4 => {
                        // A reply that is undone.
                        let mark = out.mark();
                        out.tail().extend_from_slice(&prng.bytes(0..=9));
                        out.truncate(mark);
                    }
                    _ if prng.chance(30) => {
                        assert_eq!(joined(out.take()), model, "seed {seed}");
                        model.clear();
                    }
                    _ => {}
                }
                assert_eq!((out.len(), out.is_empty()), (model.len(), model.is_empty()), "{seed}");
                assert_eq!(out.mark(), model.len(), "seed {seed}");
                let (closed, open) = (out.parts().1, out.tail_bytes());
                let tail = out.tail();
                assert_eq!(open, (tail.len(), tail.capacity()), "seed {seed}");
                assert_eq!(closed + open.0, model.len(), "seed {seed}");
            }
            assert_eq!(out.flatten(), model, "seed {seed}");
        }
    }

    /// Below, at and above the size from which a piece is shared.
    const RANGES: [(u64, usize); 4] = [(1, 5), (1, 16_383), (1, 16_384), (1, 30_000)];

    fn share(out: &mut Output, model: &mut Vec<u8>, piece: &Arc<[u8]>, len: usize) {
        out.share(piece, 100..100 + len);
        model.extend_from_slice(&piece[100..100 + len]);
    }

    fn joined(parts: Vec<Part>) -> Vec<u8> {
        let mut out = Output::default();
        out.parts = parts.into();
        out.flatten()
    }

    #[test] // Shared parts are not counted.
    fn unsent_output_is_freed_in_portions() {
        let piece: Arc<[u8]> = vec![b'x'; 20_000].into();
        let mut out = Output::default();
        for _ in 0..50 {
            out.share(&piece, 0..20_000);
            out.copy(&[b'y'; ALONE_MIN_BYTES]);
        }
        out.tail().extend_from_slice(b"the tail");
        drop(out);
        assert_eq!(lazyfree::waiting(), (1, 50 * ALONE_MIN_BYTES));
        for left in (0..100_usize).rev() {
            assert_eq!(lazyfree::run(&Countdown::new(0)), left > 0, "{left}");
            assert_eq!(Arc::strong_count(&piece), 1 + left.div_ceil(2), "{left}");
        }
        assert!(lazyfree::is_empty());
        let mut short = Output::default();
        short.share(&piece, 0..20_000);
        drop(short);
        assert!(lazyfree::is_empty() && Arc::strong_count(&piece) == 1);
    }

    #[test]
    fn pieces_of_16_kib_and_more_are_shared_without_copying() {
        let piece: Arc<[u8]> = vec![b'x'; 20_000].into();
        for (len, parts) in [(16_383, 1), (16_384, 2), (20_000, 2)] {
            let mut out = Output::default();
            out.tail().push(b'a');
            out.share(&piece, 0..len);
            let shared = Arc::strong_count(&piece) == 2;
            assert_eq!((shared, out.take().len()), (parts == 2, parts), "{len}");
        }
    }

    #[test]
    fn output_after_long_bytes_does_not_double_their_memory() {
        for len in [9, ALONE_MIN_BYTES - 1, ALONE_MIN_BYTES, 3 * ALONE_MIN_BYTES] {
            let (bytes, mut out) = (vec![b'x'; len], Output::default());
            for _ in 0..3 {
                out.tail().extend_from_slice(b"$9\r\n");
                out.copy(&bytes);
                out.tail().extend_from_slice(b"\r\n");
            }
            let taken =
                |part: &Part| if let Part::Bytes(bytes) = part { bytes.capacity() } else { 0 };
            let (whole, parts) = (out.len(), out.take());
            assert_eq!(whole, 3 * (len + 6), "{len}");
            if len >= ALONE_MIN_BYTES {
                let taken: usize = parts.iter().map(taken).sum();
                assert!(taken < whole + 100, "{taken} for {whole}");
            }
            let wanted = [b"$9\r\n", &*bytes, b"\r\n"].concat().repeat(3);
            assert!(joined(parts) == wanted, "{len}");
        }
    }

    #[test] // No part doubles.
    fn small_pieces_fill_parts_up_to_the_limit() {
        let (mut out, mut model) = (Output::default(), Vec::new());
        for number in 0..5_000_u32 {
            let piece = number.to_le_bytes().repeat(10);
            out.add(&piece);
            model.extend_from_slice(&piece);
        }
        let (parts, tail) = (out.parts().0, out.tail_bytes());
        assert!((out.len() == 200_000) && (19..=24).contains(&parts), "{parts}");
        assert!(tail.1 <= 2 * GROWN_BYTES, "{tail:?}");
        let capacity = |part: &Part| match part {
            Part::Bytes(bytes) => bytes.capacity(),
            Part::Shared(..) => 0,
        };
        let taken: usize = out.parts.iter().map(capacity).sum();
        assert!(taken + tail.0 < 201_000, "{taken} and {tail:?}");
        assert_eq!(out.flatten(), model);
    }

    #[test]
    fn undo_stops_at_closed_parts() {
        let piece: Arc<[u8]> = vec![b'x'; 20_000].into();
        let mut out = Output::default();
        out.tail().extend_from_slice(b"ab");
        let mark = out.mark();
        out.tail().push(b'c');
        out.share(&piece, 0..20_000);
        out.tail().push(b'd');
        out.truncate(mark);
        assert_eq!(out.len(), 3 + 20_000 + 1);
    }

    #[test] // Takes at least one part; the rest keeps its order.
    fn parts_are_taken_from_the_front() {
        let piece: Arc<[u8]> = vec![b'p'; SHARE_MIN_BYTES].into();
        let mut out = Output::default();
        out.copy(b"head");
        for _ in 0..5 {
            out.share(&piece, 0..SHARE_MIN_BYTES);
        }
        out.copy(b"tail");
        let (all, mut got) = (out.len(), Vec::new());
        let mut takes = 0;
        while !out.is_empty() {
            let before = out.len();
            let some: usize = out.take_some(SHARE_MIN_BYTES + 1).iter().map(Part::len).sum();
            assert!(some > 0 && out.len() == before - some);
            got.push(some);
            takes += 1;
        }
        assert_eq!((got.iter().sum::<usize>(), takes), (all, 4), "{got:?}");
        assert!(out.take_some(1).is_empty());
    }

    #[test]
    fn output_in_one_piece_is_taken_whole() {
        let piece: Arc<[u8]> = vec![b'x'; 20_000].into();
        let mut out = Output::default();
        out.tail().extend_from_slice(b"ab");
        assert_eq!(out.take_flat(Vec::with_capacity(77)), Some(b"ab".to_vec()));
        assert_eq!((out.len(), out.tail().capacity()), (0, 77));
        out.tail().extend_from_slice(b"cd");
        let mut more = Output::default();
        more.tail().extend_from_slice(b"ef");
        out.append(more);
        assert_eq!(out.take_flat(Vec::new()), Some(b"cdef".to_vec()), "one run still");
        out.share(&piece, 0..20_000);
        assert_eq!(out.take_flat(Vec::new()), None);
        assert_eq!(out.len(), 20_000);
    }
}
