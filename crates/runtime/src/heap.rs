//! How the allocator treats the system's memory.
//!
//! Three of its habits stall a core. It asks for huge pages, and the first touch of one zeroes 2 MiB:
//! 2 ms here, twenty times a slice; with small pages (the crate's feature `no_thp`) the same zeroing
//! is spread. And it gives freed memory back late and in bulk; told to do so at once, each page goes
//! back as it empties, within the slice that freed it, and an idle server holds what it needs.
//! Measured with DEBUG POPULATE of ten million keys and FLUSHALL: longest slice 2.3 ms and 0.1 ms
//! before, 0.6 ms and 0.2 ms after; resident two seconds later 351 MB before, 6 MB after.
//! Third, once in 10 000 requests that a free list cannot serve it looks through all pages of the
//! heap: 1 ms for a hash of ten million, in the middle of whatever slice it happens in. It finds
//! what it would find anyway when it needs it, so it is told to do that as rarely as it can be.

/// The option's place in the allocator's list of options, which is part of its interface.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// The same, for how many requests lie between two looks through the heap.
const GENERIC_COLLECT: libmimalloc_sys::mi_option_t = 34;
/// The most that it takes.
const GENERIC_COLLECT_MAX: std::ffi::c_long = 1_000_000;

/// To be called once, before data is allocated.
pub fn prepare() {
    // SAFETY: options may be set at any time from any thread; the number names an existing one.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) };
    // SAFETY: as above.
    unsafe { libmimalloc_sys::mi_option_set(GENERIC_COLLECT, GENERIC_COLLECT_MAX) };
}

/// Gives back what the calling thread's heap holds and does not need. Cost: milliseconds on a large
/// heap: for MEMORY PURGE.
pub fn collect() {
    // SAFETY: the call concerns the calling thread's own heap, and may be made at any time.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(which: libmimalloc_sys::mi_option_t) -> std::ffi::c_long {
        // SAFETY: reads an option of this number.
        unsafe { libmimalloc_sys::mi_option_get(which) }
    }

    #[test] // Their defaults tell them from their neighbours.
    fn the_options_are_the_ones_meant() {
        assert_eq!(option(GENERIC_COLLECT), 10_000);
        prepare();
        assert_eq!((option(PURGE_DELAY), option(GENERIC_COLLECT)), (0, GENERIC_COLLECT_MAX));
        collect();
    }
}
