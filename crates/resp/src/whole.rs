//! The bytes of a big argument in one piece, with their hash.
//!
//! A value is kept in the chunks in which it arrived. A name (a key, a field, a member) is kept,
//! compared and hashed as a whole, in a block of its own (`darter_base::long`), and copying 200 MB
//! of it into new memory takes a tenth of a second. So the engine has names gathered first, portion
//! by portion ([`super::Args::gather`]). One that was not gathered is gathered at once, on use.

use darter_base::limits::CHUNK_BYTES;
use darter_base::long::{Draft, Long};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Bytes gathered at once.
const PORTION: usize = 16 * 1024;

/// The facts needed about a name before its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// Itself, with its hash.
    Name,
    /// The slot of a key, too, where there are several cores.
    Slot,
}

/// See the module. The chunks are those of one argument, always the same.
#[derive(Default)]
pub struct Whole {
    done: OnceLock<Long>,
    draft: Mutex<Option<Box<Draft>>>,
}

impl Whole {
    /// The bytes. Cost: O(1), or a copy of the part that is not gathered yet.
    pub(crate) fn bytes(&self, chunks: &[Arc<[u8]>]) -> &[u8] {
        self.all(chunks)
    }

    /// Their hash. Cost: that of `bytes`.
    pub(crate) fn hash(&self, chunks: &[Arc<[u8]>]) -> u64 {
        self.all(chunks).hash()
    }

    /// Gathers a portion, [`PORTION`] bytes at most. True while something is left.
    pub(crate) fn gather(&self, chunks: &[Arc<[u8]>], sought: Sought) -> bool {
        if self.done.get().is_some() {
            return false;
        }
        let mut slot = self.draft();
        let draft = slot.get_or_insert_with(|| begin(chunks, sought));
        if let Some(bytes) = next_piece(draft, chunks) {
            draft.push(&bytes[..bytes.len().min(PORTION)]);
            if next_piece(draft, chunks).is_some() {
                return true;
            }
        }
        if let Some(draft) = slot.take() {
            _ = self.done.set(draft.finish()); // If another core was quicker, it has the same.
        }
        false
    }

    /// True when some of it is not gathered yet.
    pub(crate) fn is_ungathered(&self) -> bool {
        self.done.get().is_none()
    }

    /// Bytes of memory gathered and not shared.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self.done.get() {
            Some(long) if long.is_shared() => 0,
            Some(long) => Long::bytes_for(long.len()),
            None => self.draft().as_ref().map_or(0, |draft| draft.len()),
        }
    }

    fn draft(&self) -> MutexGuard<'_, Option<Box<Draft>>> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self, chunks: &[Arc<[u8]>]) -> &Long {
        self.done.get_or_init(|| {
            let draft = self.draft().take();
            let mut draft = draft.unwrap_or_else(|| begin(chunks, Sought::Name));
            while let Some(bytes) = next_piece(&draft, chunks) {
                draft.push(bytes);
            }
            draft.finish()
        })
    }
}

fn begin(chunks: &[Arc<[u8]>], sought: Sought) -> Box<Draft> {
    let len = chunks.iter().map(|chunk| chunk.len()).sum();
    Box::new(match sought {
        Sought::Name => Draft::new(len),
        Sought::Slot => Draft::with_slot(len),
    })
}

/// The next bytes to gather: all chunks but the last are full.
fn next_piece<'a>(draft: &Draft, chunks: &'a [Arc<[u8]>]) -> Option<&'a [u8]> {
    let chunk = chunks.get(draft.len() / CHUNK_BYTES)?;
    Some(&chunk[draft.len() % CHUNK_BYTES..]).filter(|piece| !piece.is_empty())
}

impl Drop for Whole {
    /// A half gathered name is freed in slices.
    fn drop(&mut self) {
        if let Some(draft) = self.draft().take() {
            draft.release();
        }
    }
}

impl std::fmt::Debug for Whole {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} bytes gathered", self.memory_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::long::known_slot;
    use darter_base::{Prng, hash, slot};

    fn chunked(bytes: &[u8]) -> Vec<Arc<[u8]>> {
        bytes.chunks(CHUNK_BYTES).map(Arc::from).collect()
    }

    #[test] // Gathered to the end, in part or not at all: the same bytes and the same hash.
    fn portions_come_to_the_whole() {
        let bytes = Prng::from_seed(4).bytes(2 * CHUNK_BYTES + 7..=2 * CHUNK_BYTES + 7);
        let chunks = chunked(&bytes);
        const PORTIONS: usize = 9; // Four for a chunk.
        for portions in [0, 1, 3, 4, 5, PORTIONS - 1, PORTIONS, PORTIONS + 1] {
            let whole = Whole::default();
            assert!(whole.is_ungathered());
            for portion in 1..=portions {
                let is_left = portion < PORTIONS;
                assert_eq!(whole.gather(&chunks, Sought::Slot), is_left, "portion {portion}");
                let held = whole.memory_bytes();
                assert!(held <= portion * PORTION + 24, "{held} bytes by portion {portion}");
            }
            assert_eq!(whole.is_ungathered(), portions < PORTIONS);
            assert_eq!(whole.hash(&chunks), hash::of(&bytes));
            assert!(whole.bytes(&chunks) == bytes);
            let slot = (portions > 0).then(|| slot::of(&bytes));
            assert_eq!(known_slot(whole.bytes(&chunks)), slot, "as sought by the first portion");
            assert!(!whole.is_ungathered() && !whole.gather(&chunks, Sought::Name));
        }
    }
}
