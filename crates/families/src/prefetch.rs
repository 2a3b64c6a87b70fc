//! Prefetching the entries that arguments name, before they are looked up.
//!
//! In a table that does not fit the caches, a lookup waits for memory, first for the index line of
//! an entry, then for the entry. Sixteen entries that are prefetched together arrive in the time of
//! one.

use arrayvec::ArrayVec;
use darter_base::hash;
use darter_command::Args;
use darter_keyspace::Ahead;

/// Entries prefetched together. A core has only so many line buffers, so more gain nothing.
pub(crate) const BATCH: usize = 16;
/// Smaller tables are in the caches anyway.
const ENTRIES_MIN: usize = 4_096;

/// Call this before looking up the entry of each `index`: for the first of a batch, it prefetches
/// the whole batch. Each entry takes `width` arguments, and its name is the first. `args` is
/// positioned at the entry of `index`.
pub(crate) fn prefetch<N: Ahead + ?Sized>(
    index: usize,
    ahead: &N,
    mut args: Args<'_>,
    width: usize,
) {
    if !index.is_multiple_of(BATCH) || ahead.entries() < ENTRIES_MIN || args.left() < 2 * width {
        return;
    }
    let mut hashes = ArrayVec::<u64, BATCH>::new();
    for _ in 0..BATCH.min(args.left() / width) {
        hashes.extend(args.next().map(hash::of));
        args.seek(args.position() + width - 1);
    }
    hashes.iter().for_each(|hash| ahead.prefetch(*hash));
    ahead.prefetch_entries(&hashes);
}
