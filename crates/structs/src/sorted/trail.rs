//! Where prefetching has been, so that what it was for need not search again.
//!
//! A change of a pipeline is searched for three times: to prefetch its item, to prefetch its entry, and
//! to make it. Each search notes the chunk that it came to, and the next one begins there. Between them
//! the trees may change: a note is no more than a guess, which one look at the last node confirms
//! (`tree::Child::resume`). So nothing has to be kept up to date, and a note does not say whose it is:
//! one that another member has written over is a guess that fails.
//!
//! ```text
//! trail   | item, entry | item, entry | ...      traces, at a place that the hash says, 64 of them
//! ```

use super::index::Hash;
use crate::tree::Trace;
use std::sync::atomic::{AtomicU32, Ordering};

/// Of sixteen members one in nine loses its notes to another.
const PLACES: usize = 64;

/// A trace. (Atomic, as other threads may read the set: no order is needed, since it is a guess.)
#[derive(Default)]
struct Note(AtomicU32);

impl Note {
    #[inline]
    fn keep(&self, trace: Trace) {
        self.0.store(trace.0, Ordering::Relaxed);
    }

    #[inline]
    fn read(&self) -> Trace {
        Trace(self.0.load(Ordering::Relaxed))
    }
}

/// What is noted of a member: the chunk of its item, and that of its entry.
#[derive(Default)]
struct Place {
    item: Note,
    entry: Note,
}

/// See the module.
pub(super) struct Trail {
    places: [Place; PLACES],
}

impl Default for Trail {
    fn default() -> Self {
        Self { places: std::array::from_fn(|_| Place::default()) }
    }
}

impl Clone for Trail {
    /// A cut has a trail of its own.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Trail {
    #[inline]
    fn place(&self, hash: Hash) -> &Place {
        &self.places[hash.0 as usize % PLACES]
    }

    /// Notes the chunk of the items with this hash.
    #[inline]
    pub(super) fn keep_item(&self, hash: Hash, trace: Trace) {
        self.place(hash).item.keep(trace);
    }

    /// Notes the chunk of the entry of the first of them.
    #[inline]
    pub(super) fn keep_entry(&self, hash: Hash, trace: Trace) {
        self.place(hash).entry.keep(trace);
    }

    /// Where both probably are.
    #[inline]
    pub(super) fn traces(&self, hash: Hash) -> (Trace, Trace) {
        let place = self.place(hash);
        (place.item.read(), place.entry.read())
    }
}
