//! Limits that more than one crate must know, each with its reason.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Default number of databases, as in Redis.
pub const DATABASES_DEFAULT: usize = 16;
/// Bytes in one chunk of a large string. Strings are appended, overwritten and sent chunk by chunk,
/// so a string of 512 MiB never needs a longer copy. With its two counts a chunk fills one size
/// class of the allocator; 64 KiB of data alone would need a class of 80 KiB.
pub const CHUNK_BYTES: usize = 64 * 1024 - 2 * size_of::<usize>();
/// Reply bytes that may be buffered for one client (DESIGN.md, P4).
pub const REPLY_BUFFER_BYTES: usize = 1024 * 1024;
/// Largest capacity of a buffer that is kept for the next reply; larger ones are freed.
pub const SPARE_BYTES: usize = 128 * 1024;
/// Target length of a slice, in nanoseconds of the core's time (P1).
pub const SLICE_AIM_NS: u64 = 100_000;
/// Maximum length of a slice (P1).
pub const SLICE_MAX_NS: u64 = 500_000;
/// Entries that a command handles in one step, about half a slice. More entries are handled in
/// slices.
pub const ENTRIES_AT_ONCE: usize = 256;

/// Longest string in bytes, whatever `proto-max-bulk-len` is. A gap of this length, which SETRANGE
/// may create, has 65 536 chunks, and laying them out takes a slice.
pub const STRING_BOUND: usize = 4 << 30;

static STRING_MAX: AtomicUsize = AtomicUsize::new(512 << 20);

/// Longest string in bytes, on all cores: `proto-max-bulk-len`.
#[must_use]
pub fn string_max_bytes() -> usize {
    STRING_MAX.load(Ordering::Relaxed)
}

/// Sets [`string_max_bytes`], to [`STRING_BOUND`] at most.
pub fn set_string_max(bytes: usize) {
    STRING_MAX.store(bytes.min(STRING_BOUND), Ordering::Relaxed);
}

/// Longest name that may be configured.
pub const NAME_BOUND: usize = 512 << 20;

static NAME_MAX: AtomicUsize = AtomicUsize::new(16 << 20);

/// Longest name (key, field or member) in bytes, on all cores: `name-max-bytes`. Names are copied,
/// hashed and compared in one step.
#[must_use]
pub fn name_max_bytes() -> usize {
    NAME_MAX.load(Ordering::Relaxed)
}

/// Sets [`name_max_bytes`], to [`NAME_BOUND`] at most.
pub fn set_name_max(bytes: usize) {
    NAME_MAX.store(bytes.min(NAME_BOUND), Ordering::Relaxed);
}

const _: () = assert!(SLICE_AIM_NS * 4 < SLICE_MAX_NS);
