//! The ring of buffers that the kernel receives into.
//!
//! The kernel picks a buffer only when bytes have arrived, so ten thousand idle connections need no
//! more memory than the busy ones use. Taken buffers are put back one by one and announced once per
//! turn.
//!
//! ```text
//! entries: | addr len id | addr len id | ..     COUNT of them, a page-aligned ring; its tail
//! bytes:   | 2 KiB | 2 KiB | ..                 lies in the spare word of the first entry
//! ```
//! Invariant: a buffer is either in the ring (the kernel's) or between its completion and its
//! `put_back` (ours).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// The number of buffers in the ring, a power of two.
pub(super) const COUNT: u16 = 256;
/// The bytes of a buffer. If a socket has enough bytes, the kernel fills all buffers for it before
/// it serves another socket. With buffers of 16 KiB (4 MiB in all) other clients waited 4 ms beside
/// a request of 20 MB, with these half a millisecond. Small requests cost the same.
pub(super) const BYTES: usize = 2 * 1024;
/// The id of the buffer group.
pub(super) const GROUP: u16 = 0;

const PAGE: usize = 4096;
const ENTRIES_LAYOUT: Layout =
    match Layout::from_size_align(COUNT as usize * size_of::<BufRingEntry>(), PAGE) {
        Ok(layout) => layout,
        Err(_) => panic!("a multiple of the page"),
    };
const BYTES_LAYOUT: Layout = match Layout::from_size_align(COUNT as usize * BYTES, PAGE) {
    Ok(layout) => layout,
    Err(_) => panic!("a multiple of the page"),
};

const _: () = assert!(COUNT.is_power_of_two());

/// Memory for receiving. Must outlive the kernel's use of it: see [`super::Uring`]'s `Drop`.
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    bytes: NonNull<u8>,
    /// The number of buffers that were ever put into the ring, modulo 2^16.
    tail: u16,
}

impl Buffers {
    /// Allocates the buffers and registers them with `ring`.
    pub(super) fn register(ring: &IoUring) -> io::Result<Self> {
        let entries = allocate(ENTRIES_LAYOUT).cast();
        let bytes = allocate(BYTES_LAYOUT);
        let mut buffers = Self { entries, bytes, tail: 0 };
        for id in 0..COUNT {
            buffers.put_back(id);
        }
        let address = buffers.entries.as_ptr() as u64;
        let submitter = ring.submitter();
        // SAFETY: `entries` is page-aligned memory for COUNT entries; it is freed by `drop` only,
        // and `Uring` drops the ring first.
        unsafe { submitter.register_buf_ring_with_flags(address, COUNT, GROUP, 0) }?;
        buffers.announce();
        Ok(buffers)
    }

    /// The first `len` bytes of buffer `id`.
    ///
    /// # Safety
    /// `id` and `len` are from a completion, and the buffer has not been put back since.
    pub(super) unsafe fn bytes(&self, id: u16, len: usize) -> &[u8] {
        assert!(id < COUNT && len <= BYTES, "id={id} len={len}");
        // SAFETY: `id < COUNT`, so that the offset stays within the allocation.
        let start = unsafe { self.bytes.add(usize::from(id) * BYTES) };
        // SAFETY: `len` bytes from there are in the allocation, zeroed at birth; by the caller's
        // promise the kernel does not write to them before `put_back`, which takes `&mut self`.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// Puts buffer `id` back into the ring. [`Buffers::announce`] shows it to the kernel.
    pub(super) fn put_back(&mut self, id: u16) {
        assert!(id < COUNT, "id={id}");
        // SAFETY: `id < COUNT`, so that the offset stays within the allocation.
        let start = unsafe { self.bytes.add(usize::from(id) * BYTES) };
        let place = usize::from(self.tail & (COUNT - 1));
        // SAFETY: `place < COUNT`, so that the offset stays within the allocation.
        let mut entry = unsafe { self.entries.add(place) };
        // SAFETY: zeroed at birth, hence a valid entry. The kernel does not look at it: at most
        // COUNT - 1 others are in the ring, this one is not, so `place` is beyond its tail. The
        // reference covers the tail's word in the first entry, which only we write.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(start.as_ptr() as u64);
        entry.set_len(BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Announces to the kernel all buffers that were put back.
    pub(super) fn announce(&mut self) {
        // SAFETY: `entries` is the address of the ring's first entry, zeroed at birth.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: aligned and alive as long as `self`; the kernel only reads it, atomically.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: the kernel sees the entries before the tail.
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, by `register`.
        unsafe { dealloc(self.entries.as_ptr().cast(), ENTRIES_LAYOUT) };
        // SAFETY: allocated with this layout, by `register`.
        unsafe { dealloc(self.bytes.as_ptr(), BYTES_LAYOUT) };
    }
}

fn allocate(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0);
    // SAFETY: the size is not zero.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}
