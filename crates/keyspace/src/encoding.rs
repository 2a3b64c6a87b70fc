//! The bounds by which OBJECT ENCODING names hashes and sets: settings, the same on all cores.
//!
//! The names say nothing about how Darter keeps a value; clients read them to see what Redis would
//! do. A value that has passed a bound keeps the larger name, as in Redis.

use std::sync::atomic::{AtomicUsize, Ordering};

static HASH_ENTRIES: AtomicUsize = AtomicUsize::new(512);
static HASH_ITEM: AtomicUsize = AtomicUsize::new(64);
static SET_ENTRIES: AtomicUsize = AtomicUsize::new(512);

/// Sets `hash-max-listpack-entries`, `hash-max-listpack-value` and `set-max-intset-entries`.
pub fn set_bounds(hash_entries: usize, hash_item: usize, set_entries: usize) {
    HASH_ENTRIES.store(hash_entries, Ordering::Relaxed);
    HASH_ITEM.store(hash_item, Ordering::Relaxed);
    SET_ENTRIES.store(set_entries, Ordering::Relaxed);
}

pub(crate) fn hash_entries() -> usize {
    HASH_ENTRIES.load(Ordering::Relaxed)
}

pub(crate) fn hash_item() -> usize {
    HASH_ITEM.load(Ordering::Relaxed)
}

pub(crate) fn set_entries() -> usize {
    SET_ENTRIES.load(Ordering::Relaxed)
}
