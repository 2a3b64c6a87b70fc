//! The bytes of a big argument in one piece, with their hash.
//!
//! A value is kept in the chunks in which it came. A name (a key, a field, a member) is compared and
//! hashed as a whole, and 200 MB of it take a tenth of a second to copy into new memory. So whoever
//! runs requests has the names gathered first, portion by portion ([`super::Args::gather`]). What
//! nobody has gathered is gathered when it is asked for, at once.

use darter_base::hash::Portions;
use darter_base::limits::CHUNK_BYTES;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Chunks that are gathered at once: copied into new memory and hashed, about 100 us.
const CHUNKS: usize = 4;

/// See the module. The chunks are those of one argument, always the same.
#[derive(Debug, Default)]
pub struct Whole {
    done: OnceLock<(Vec<u8>, u64)>,
    draft: Mutex<Option<Box<Draft>>>,
}

/// The first chunks.
struct Draft {
    bytes: Vec<u8>,
    hash: Portions,
}

impl Whole {
    /// The bytes. Cost: O(1), or a copy of what is not gathered yet.
    pub(crate) fn bytes(&self, chunks: &[Arc<[u8]>]) -> &[u8] {
        &self.all(chunks).0
    }

    /// Their hash. Cost: as of `bytes`.
    pub(crate) fn hash(&self, chunks: &[Arc<[u8]>]) -> u64 {
        self.all(chunks).1
    }

    /// Gathers a portion. True while something is left.
    pub(crate) fn gather(&self, chunks: &[Arc<[u8]>]) -> bool {
        if self.done.get().is_some() {
            return false;
        }
        let mut slot = self.draft.lock().unwrap_or_else(PoisonError::into_inner);
        let draft = slot.get_or_insert_with(|| Draft::new(chunks));
        let rest = draft.rest(chunks);
        draft.take_in(&rest[..rest.len().min(CHUNKS)]);
        if rest.len() > CHUNKS {
            return true;
        }
        if let Some(draft) = slot.take() {
            _ = self.done.set(draft.finish()); // Whoever was quicker has the same.
        }
        false
    }

    /// True when more than a portion is left.
    pub(crate) fn is_ungathered(&self, chunks: &[Arc<[u8]>]) -> bool {
        chunks.len() > CHUNKS && self.done.get().is_none()
    }

    fn all(&self, chunks: &[Arc<[u8]>]) -> &(Vec<u8>, u64) {
        self.done.get_or_init(|| {
            let mut slot = self.draft.lock().unwrap_or_else(PoisonError::into_inner);
            let mut draft = slot.take().unwrap_or_else(|| Draft::new(chunks));
            draft.take_in(draft.rest(chunks));
            draft.finish()
        })
    }
}

impl Draft {
    fn new(chunks: &[Arc<[u8]>]) -> Box<Self> {
        let len = chunks.iter().map(|chunk| chunk.len()).sum();
        Box::new(Self { bytes: Vec::with_capacity(len), hash: Portions::new() })
    }

    /// The chunks that are still to be taken in: all but the last are full.
    fn rest<'a>(&self, chunks: &'a [Arc<[u8]>]) -> &'a [Arc<[u8]>] {
        &chunks[self.bytes.len().div_ceil(CHUNK_BYTES)..]
    }

    fn take_in(&mut self, chunks: &[Arc<[u8]>]) {
        for chunk in chunks {
            self.bytes.extend_from_slice(chunk);
            self.hash.update(chunk);
        }
    }

    fn finish(self) -> (Vec<u8>, u64) {
        let hash = self.hash.finish();
        (self.bytes, hash)
    }
}

impl std::fmt::Debug for Draft {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} bytes", self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::{Prng, hash};

    fn chunked(bytes: &[u8]) -> Vec<Arc<[u8]>> {
        bytes.chunks(CHUNK_BYTES).map(Arc::from).collect()
    }

    #[test] // Gathered to the end, in part or not at all: the same bytes and the same hash.
    fn portions_come_to_the_whole() {
        let bytes = Prng::from_seed(4).bytes(10 * CHUNK_BYTES + 7..=10 * CHUNK_BYTES + 7);
        let chunks = chunked(&bytes);
        for portions in 0..=4 {
            let whole = Whole::default();
            assert!(whole.is_ungathered(&chunks));
            for portion in 1..=portions {
                assert_eq!(whole.gather(&chunks), portion < 3, "portion {portion} of {portions}");
                let left = whole.draft.lock().unwrap().as_ref().map(|draft| draft.bytes.len());
                assert_eq!(left, (portion < 3).then_some(portion * CHUNKS * CHUNK_BYTES));
            }
            assert_eq!(whole.is_ungathered(&chunks), portions < 3);
            assert_eq!(whole.hash(&chunks), hash::of(&bytes));
            assert!(whole.bytes(&chunks) == bytes);
            assert!(!whole.is_ungathered(&chunks) && !whole.gather(&chunks));
        }
    }

    #[test] // What one portion gathers is not worth a turn of its own.
    fn short_ones_are_gathered_at_once() {
        for (count, is_long) in [(1, false), (CHUNKS, false), (CHUNKS + 1, true)] {
            let chunks = chunked(&vec![7; count * CHUNK_BYTES]);
            let whole = Whole::default();
            assert_eq!(whole.is_ungathered(&chunks), is_long, "{count} chunks");
            assert_eq!(whole.gather(&chunks), is_long, "{count} chunks");
        }
    }
}
