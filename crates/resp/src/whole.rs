//! The bytes of a big argument in one piece, with their hash and their slot.
//!
//! A value stays in the chunks in which it arrived. A name (a key, a field, a member) is compared
//! and hashed as a whole, so it is copied into one block on first use. The engine bounds the length
//! of names (`name-max-bytes`).

use darter_base::hash;
use darter_base::long::Long;
use darter_base::slot;
use std::sync::{Arc, OnceLock};

/// A cache of the joined bytes; see the module's documentation. The chunks passed must always be
/// those of one argument.
#[derive(Default)]
pub struct Whole {
    name: OnceLock<Long>,
    slot: OnceLock<u16>,
}

impl Whole {
    /// The joined bytes. Cost: O(1), with a copy at the first call.
    pub(crate) fn bytes(&self, chunks: &[Arc<[u8]>]) -> &[u8] {
        self.all(chunks)
    }

    /// The hash of the bytes. Cost: that of `bytes`.
    pub(crate) fn hash(&self, chunks: &[Arc<[u8]>]) -> u64 {
        self.all(chunks).hash()
    }

    /// The slot of the bytes. Cost: that of `bytes`, with a CRC of all bytes at the first call.
    pub(crate) fn slot(&self, chunks: &[Arc<[u8]>]) -> u16 {
        *self.slot.get_or_init(|| slot::of(self.all(chunks)))
    }

    /// Bytes of memory of the copy.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.name.get().map_or(0, |long| Long::bytes_for(long.len()))
    }

    fn all(&self, chunks: &[Arc<[u8]>]) -> &Long {
        self.name.get_or_init(|| Long::join(chunks.iter().map(|chunk| &chunk[..]), hash::of))
    }
}

impl std::fmt::Debug for Whole {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} bytes copied", self.memory_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;
    use darter_base::limits::CHUNK_BYTES;

    #[test]
    fn an_argument_in_chunks_is_joined_only_once() {
        let bytes = Prng::from_seed(4).bytes(2 * CHUNK_BYTES + 7..=2 * CHUNK_BYTES + 7);
        let chunks: Vec<Arc<[u8]>> = bytes.chunks(CHUNK_BYTES).map(Arc::from).collect();
        let whole = Whole::default();
        assert_eq!(whole.memory_bytes(), 0);
        assert_eq!(whole.hash(&chunks), hash::of(&bytes));
        assert_eq!(
            (whole.slot(&chunks), whole.slot(&chunks)),
            (slot::of(&bytes), slot::of(&bytes))
        );
        let first = whole.bytes(&chunks);
        assert!(first == bytes && std::ptr::eq(first, whole.bytes(&chunks)));
        assert_eq!(whole.memory_bytes(), Long::bytes_for(bytes.len()));
    }
}
