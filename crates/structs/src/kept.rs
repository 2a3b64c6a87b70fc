//! Counts the bytes that writers of a thread copied, or replaced, because cuts shared them.
//!
//! Tables count their copies for themselves (`owner`), as their readers read those first. Chunks
//! and nodes of trees, pieces of strings and values that were replaced are counted here, by thread:
//! a tree does not know whose it is where it copies a node, and what one core writes, the snapshot
//! on that core holds. docs/design/0017-saving.md.

use std::cell::Cell;

thread_local! {
    static PARTS: Cell<u64> = const { Cell::new(0) };
    static WHOLES: Cell<u64> = const { Cell::new(0) };
    static SNAPSHOT: Cell<u32> = const { Cell::new(0) };
}

/// A snapshot of this thread's data begins.
pub fn begin_snapshot() {
    SNAPSHOT.with(|number| number.set(number.get().wrapping_add(1)));
}

/// The number of this thread's last snapshot.
pub(crate) fn snapshot() -> u32 {
    SNAPSHOT.with(Cell::get)
}

/// Counts `bytes` copied because the value was shared (copy on write).
#[inline]
pub(crate) fn note_part(bytes: usize) {
    PARTS.with(|sum| sum.set(sum.get() + bytes as u64));
}

/// Counts `bytes` of a shared value that was replaced.
#[inline]
pub fn note_whole(bytes: usize) {
    WHOLES.with(|sum| sum.set(sum.get() + bytes as u64));
}

/// Bytes of parts of values that this thread has copied since it began.
#[must_use]
pub fn parts() -> u64 {
    PARTS.with(Cell::get)
}

/// Bytes that this thread has put in the place of others since it began.
#[must_use]
pub fn wholes() -> u64 {
    WHOLES.with(Cell::get)
}
