//! The allocator's use of system memory, and the number of bytes held.
//!
//! [`Counting`] counts bytes allocated and freed, so that all memory (values, readers' cuts,
//! arriving requests, pending frees) is counted once, from its allocation until it is freed. For
//! rejected designs, see docs/design/0008-reported-memory.md.
//!
//! Four defaults of mimalloc stall a core. First, it requests huge pages, and the first touch of
//! one zeroes 2 MiB: 2 ms here, twenty slices; with small pages (the crate's feature `no_thp`) the
//! zeroing is spread. Second, it returns freed memory late and in bulk. With a purge delay of 0,
//! each page is returned when it becomes empty, within the slice that freed it, and an idle server
//! holds only what it needs. Measured with DEBUG POPULATE of ten million keys and FLUSHALL: longest
//! slice 2.3 ms and 0.1 ms before, 0.6 ms and 0.2 ms after; resident two seconds later 351 MB
//! before, 6 MB after. Third, it scans all pages of the heap once in 10 000 requests that a free
//! list cannot serve: 1 ms for a hash of ten million, in whichever slice it happens. Such pages
//! would be found on demand, so the scan is made as rare as the option allows. Fourth, it frees a
//! block in one step (10 ms for 200 MB), and copies a block that shrinks by much. So here a large
//! block shrinks in place ([`SHRUNK_MIN`]), and its end is returned to the system: large blocks are
//! freed by shrinking them in portions (`darter_base::long`).

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};

/// Bytes that a thread may allocate or free before it reports them: [`held_bytes`] is exact to this
/// much for each thread.
const UNREPORTED_MAX: isize = 16 * 1024;

/// The sum of all threads' reports.
static REPORTED: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    static UNREPORTED: Cell<isize> = const { Cell::new(0) };
}

/// Blocks that shrink to at least this size stay in place.
pub const SHRUNK_MIN: usize = 256 * 1024;

/// Ranges returned to the system begin and end at a multiple of this: one page, or several.
const PAGE: usize = 64 * 1024;

/// Returns the complete pages of a block after its first `size` bytes to the system. The addresses
/// still belong to the block, and read as zeros.
fn give_back(block: *mut u8, layout: Layout, size: usize) {
    debug_assert!(size >= SHRUNK_MIN && size < layout.size());
    let from = block.wrapping_add(size).addr().next_multiple_of(PAGE);
    let to = block.wrapping_add(layout.size()).addr() / PAGE * PAGE;
    if from < to {
        let pages = block.with_addr(from).cast();
        // SAFETY: pages inside the block, whose owner has just given up these bytes.
        _ = unsafe { libc::madvise(pages, to - from, libc::MADV_DONTNEED) };
    }
}

/// mimalloc, with a count of allocated bytes. Cost: about five instructions a call.
pub struct Counting;

#[inline]
fn count(bytes: isize) {
    let unreported = UNREPORTED.get() + bytes;
    UNREPORTED.set(unreported);
    if unreported.unsigned_abs() > UNREPORTED_MAX.unsigned_abs() {
        report();
    }
}

/// Counts a block's bytes if the allocation succeeded.
#[inline]
fn counted(block: *mut u8, bytes: isize) -> *mut u8 {
    if !block.is_null() {
        count(bytes);
    }
    block
}

/// Adds this thread's unreported bytes to the total. Call this before reading a total that must be
/// exact.
#[cold]
pub fn report() {
    REPORTED.fetch_add(UNREPORTED.take(), Ordering::Relaxed);
}

/// Bytes that the process holds, if its allocator is a [`Counting`] one; otherwise 0.
#[must_use]
pub fn held_bytes() -> usize {
    // Frees may be reported before the allocations.
    usize::try_from(REPORTED.load(Ordering::Relaxed)).unwrap_or(0)
}

// SAFETY: every call is passed on to mimalloc unchanged, and so is its result. A block that has
// shrunk in place is freed with a smaller layout than it was allocated with: mimalloc finds the
// size of a block by its address, and ignores that of the layout. So no other allocator may replace
// it.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those of this call.
        counted(unsafe { MiMalloc.alloc(layout) }, layout.size().cast_signed())
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as above.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        counted(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size().cast_signed())
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let more = size.cast_signed() - layout.size().cast_signed();
        if more < 0 && size >= SHRUNK_MIN {
            count(more);
            give_back(block, layout, size);
            return block;
        }
        // SAFETY: as above.
        counted(unsafe { MiMalloc.realloc(block, layout, size) }, more)
    }
}

/// The index of the option in the allocator's list, which is part of its interface.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
/// The index of the option for the number of requests between scans of the heap.
const GENERIC_COLLECT: libmimalloc_sys::mi_option_t = 34;
/// The largest value that it accepts.
const GENERIC_COLLECT_MAX: std::ffi::c_long = 1_000_000;

/// Sets the allocator's options. Call it once, before data is allocated.
pub fn prepare() {
    // SAFETY: options may be set at any time from any thread; the number names an existing one.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) };
    // SAFETY: as above.
    unsafe { libmimalloc_sys::mi_option_set(GENERIC_COLLECT, GENERIC_COLLECT_MAX) };
}

/// Returns unused memory of the calling thread's heap to the system. Cost: milliseconds on a large
/// heap: for MEMORY PURGE.
pub fn collect() {
    // SAFETY: the call concerns the calling thread's own heap, and may be made at any time.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    fn option(which: libmimalloc_sys::mi_option_t) -> std::ffi::c_long {
        // SAFETY: reads an option of this number.
        unsafe { libmimalloc_sys::mi_option_get(which) }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    /// Only one test at a time allocates large blocks, because the count is that of the process.
    static LARGE: Mutex<()> = Mutex::new(());

    #[test] // Also by another thread.
    fn allocated_memory_is_counted_until_it_is_freed() {
        const BYTES: usize = 64 << 20; // Other tests run at the same time.
        let _large = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
        let about = |bytes: usize| {
            report();
            (bytes.saturating_sub(BYTES / 2)..bytes + BYTES / 2).contains(&held_bytes())
        };
        report();
        let before = held_bytes();
        let held: Vec<Vec<u8>> = (0..BYTES / 1_024).map(|_| vec![1; 1_024]).collect();
        assert!(about(before + BYTES), "{before} and {BYTES} are {}", held_bytes());
        let mut grown: Vec<u8> = Vec::with_capacity(10);
        grown.resize(BYTES, 1);
        assert!(about(before + 2 * BYTES), "{before} and twice {BYTES} are {}", held_bytes());
        let elsewhere = std::thread::spawn(move || {
            drop(held);
            report();
        });
        elsewhere.join().unwrap();
        drop(grown);
        assert!(about(before), "{before} became {}", held_bytes());
    }

    #[test] // The pages after its new end are returned to the system.
    fn a_large_block_shrinks_in_place() {
        let _large = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut block = vec![1_u8; 16 << 20];
        let (at, len) = (block.as_ptr(), 2 << 20);
        let mut resident = vec![0_u8; 16 << 8];
        let mut pages = |at: *const u8| {
            let from = at.map_addr(|address| address / 4_096 * 4_096).cast_mut().cast();
            let most = (16 << 20) - 4_096; // The pages that the block may begin and end in.
            // SAFETY: the addresses are mapped, and the list has a place for each page of 4 KiB.
            let failed = unsafe { libc::mincore(from, most, resident.as_mut_ptr()) };
            assert_eq!(failed, 0);
            resident.iter().filter(|page| **page & 1 == 1).count()
        };
        assert!(pages(at) > 4_000);
        block.truncate(len);
        block.shrink_to_fit();
        assert_eq!((block.as_ptr(), block.capacity()), (at, len));
        let left = pages(at);
        assert!((512..512 + 64).contains(&left), "{left} pages of 512");
        assert!(block.iter().all(|byte| *byte == 1));
        block.shrink_to(SHRUNK_MIN - 1);
        block.extend_from_slice(&vec![2; 16 << 20]); // The end of the block can be used again.
        assert_eq!((block[len - 1], block[len]), (1, 2));
    }

    #[test] // So the option numbers are right.
    fn allocator_options_have_the_expected_defaults() {
        assert_eq!(option(GENERIC_COLLECT), 10_000);
        prepare();
        assert_eq!((option(PURGE_DELAY), option(GENERIC_COLLECT)), (0, GENERIC_COLLECT_MAX));
        collect();
    }
}
