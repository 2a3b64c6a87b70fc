//! Process-independent hashes of arguments, for data in files; and the items of a request, visited
//! row by row.

use crate::text::piece;
use darter_base::hash::{XxhDigest, digest};
use darter_base::limits::CHUNK_BYTES;
use darter_command::Args;
use darter_keyspace::Fresh;
use darter_resp::{self as resp, Request};
use std::ops::Range;
use std::sync::Arc;

/// Bytes whose hashing takes as long as one row.
const BYTES_A_ROW: u64 = 1_024;

/// Hashes an argument that may be long, piece by piece.
#[derive(Default)]
pub(crate) struct Hashing {
    /// The unfinished hash, and the next piece.
    begun: Option<(Box<XxhDigest>, usize)>,
}

impl Hashing {
    /// Hashes the next piece. After the last piece, returns the hash, and is ready for the next
    /// argument.
    pub(crate) fn step(&mut self, value: Fresh<'_>) -> Option<u64> {
        if let (None, Fresh::Bytes(bytes)) = (&self.begun, value)
            && bytes.len() <= CHUNK_BYTES
        {
            return Some(digest(bytes));
        }
        let (digest, next) = self.begun.get_or_insert_default();
        if let Some(bytes) = piece(value, *next) {
            digest.update(bytes);
            *next += 1;
            if piece(value, *next).is_some() {
                return None;
            }
        }
        let hash = digest.finish();
        self.begun = None;
        Some(hash)
    }
}

/// Combines two counters of an item into its count: their minimum or maximum.
pub(crate) type Join = fn(u32, u32) -> u32;

/// The items of a request, one after another, each row by row.
pub(crate) struct Items {
    request: Arc<Request>,
    /// The index of the next item to count, and the progress of hashing the one after it.
    next: usize,
    step: usize,
    hashing: Hashing,
    /// The hash of the item being counted, its next row, and its count so far.
    begun: Option<(u64, u64, u32)>,
    /// The initial count, and the function that combines two counts.
    join: (u32, Join),
}

impl Items {
    /// All remaining arguments, or every second one.
    pub(crate) fn new(args: Args<'_>, step: usize, join: (u32, Join)) -> Self {
        let (request, next) = (args.all().to_request(), args.position());
        Self { request, next, step, hashing: Hashing::default(), begun: None, join }
    }

    /// The request.
    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    pub(crate) fn is_done(&self) -> bool {
        self.next >= self.request.len()
    }

    /// Hashes a piece of the item, or calls `count` for at most `most` of its next rows, with its
    /// hash and its index. Returns the cost in rows, and the item's count after the last row.
    pub(crate) fn step(
        &mut self,
        depth: u64,
        most: u64,
        count: impl FnOnce(u64, Range<u64>, usize) -> u32,
    ) -> (u64, Option<u32>) {
        let (start, join) = self.join;
        let Some((hash, row, before)) = self.begun else {
            let value = Args::new(resp::Args::owned(&self.request), self.next).value();
            let value = value.unwrap_or(Fresh::Bytes(b""));
            self.begun = self.hashing.step(value).map(|hash| (hash, 0, start));
            return (value.len().min(CHUNK_BYTES) as u64 / BYTES_A_ROW + 1, None);
        };
        let end = depth.min(row + most);
        let counted = join(before, count(hash, row..end, self.next));
        if end < depth {
            self.begun = Some((hash, end, counted));
            return (end - row, None);
        }
        self.begun = None;
        self.next += self.step;
        (end - row, Some(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn an_argument_in_chunks_has_the_same_hash() {
        let bytes = darter_base::Prng::from_seed(3).bytes(200_000..=200_000);
        for len in [0, 1, 1_000, CHUNK_BYTES, CHUNK_BYTES + 1, bytes.len()] {
            let bytes = &bytes[..len];
            let chunks: Vec<Arc<[u8]>> = bytes.chunks(CHUNK_BYTES).map(Arc::from).collect();
            let mut hashing = Hashing::default();
            for value in [Fresh::Bytes(bytes), Fresh::Chunks(&chunks)] {
                let mut steps = 1;
                let hash = loop {
                    match hashing.step(value) {
                        Some(hash) => break hash,
                        None => steps += 1,
                    }
                };
                assert_eq!((hash, steps), (digest(bytes), len.div_ceil(CHUNK_BYTES).max(1)));
            }
        }
    }
}
