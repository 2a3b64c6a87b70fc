//! A long name (a key, field or member) in one reference-counted block, with its hash.
//!
//! An `Arc<[u8]>` is two words wide, but a table entry has room for one. So the block stores its
//! length and its hash in front of the bytes. The table entry and its readers share the block by
//! reference count. A block of megabytes is freed in portions (`lazyfree`).
//!
//! ```text
//! | count: 8 | length: 8 | hash: 8 | bytes ... |
//! ```

use crate::lazyfree::{self, Dismantle};
use std::alloc::{self, Layout};
use std::cmp;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Bytes freed in one step, about 20 us of work. The last step may free twice as many.
const FREED_AT_ONCE: usize = 256 * 1024;

#[repr(C)]
struct Head {
    count: AtomicUsize,
    len: usize,
    hash: u64,
}

/// A name in a reference-counted block. Cloning it counts a reference.
pub struct Long(NonNull<u8>);

// SAFETY: the bytes never change, and their count is atomic.
unsafe impl Send for Long {}
// SAFETY: as above.
unsafe impl Sync for Long {}

impl Long {
    /// A copy of `name`, whose hash is `hash`. Cost: O(bytes).
    #[must_use]
    pub fn new(name: &[u8], hash: u64) -> Self {
        Self::join(std::iter::once(name), |_| hash)
    }

    /// A copy of the pieces one after another, hashed by `hash`. Cost: O(bytes).
    #[must_use]
    pub fn join<'a>(
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
        hash: impl FnOnce(&[u8]) -> u64,
    ) -> Self {
        let len = pieces.clone().map(<[u8]>::len).sum();
        let mut memory = Memory::new(len);
        let mut at = 0;
        for piece in pieces {
            memory.write(at, piece);
            at += piece.len();
        }
        let block = memory.into_raw();
        let head = Head { count: AtomicUsize::new(1), len, hash: 0 };
        // SAFETY: the block has room for the head, is aligned for it, and has no other reference.
        unsafe { block.cast::<Head>().write(head) };
        // SAFETY: the head is written, as are `len` bytes; the count is the result's.
        let hash = hash(unsafe { Self::borrow(block) });
        // SAFETY: as for the head.
        unsafe { block.cast::<Head>().as_mut() }.hash = hash;
        Self(block)
    }

    /// The raw pointer, which owns one count.
    #[must_use]
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// `raw` came from [`Long::into_raw`], and its count passes to the result.
    #[must_use]
    pub unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw)
    }

    /// Memory of a block of `len` bytes.
    #[must_use]
    pub fn bytes_for(len: usize) -> usize {
        size_of::<Head>() + len
    }

    /// The bytes.
    ///
    /// # Safety
    /// `raw` came from [`Long::into_raw`], and a count is held during `'a`.
    #[must_use]
    pub unsafe fn borrow<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the head was written by `of`, and lives.
        let len = unsafe { raw.cast::<Head>().as_ref() }.len;
        // SAFETY: the bytes follow the head.
        let bytes = unsafe { raw.add(size_of::<Head>()) };
        // SAFETY: `len` bytes were written, and are never changed.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr(), len) }
    }

    /// The hash of the name.
    ///
    /// # Safety
    /// `raw` came from [`Long::into_raw`], and its memory lives.
    #[must_use]
    pub unsafe fn hash_of(raw: NonNull<u8>) -> u64 {
        // SAFETY: the head was written by `of`, and lives.
        unsafe { raw.cast::<Head>().as_ref() }.hash
    }

    /// Counts one more owner.
    ///
    /// # Safety
    /// As for [`Long::borrow`].
    pub unsafe fn retain(raw: NonNull<u8>) {
        // SAFETY: the head lives, as a count is held.
        unsafe { raw.cast::<Head>().as_ref() }.count.fetch_add(1, Ordering::Relaxed);
    }

    /// True when the block has another owner.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        // SAFETY: the head lives, as `self` holds a count.
        unsafe { self.0.cast::<Head>().as_ref() }.count.load(Ordering::Relaxed) > 1
    }

    /// The hash of the name.
    #[must_use]
    pub fn hash(&self) -> u64 {
        // SAFETY: `self` holds a count.
        unsafe { Self::hash_of(self.0) }
    }
}

impl Deref for Long {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `self` holds a count.
        unsafe { Self::borrow(self.0) }
    }
}

impl Ord for Long {
    /// Orders names by length, then by hash, and only then by bytes.
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        let shape = |name: &Self| (name.len(), name.hash());
        shape(self).cmp(&shape(other)).then_with(|| (**self).cmp(&**other))
    }
}

impl PartialOrd for Long {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Long {}

impl PartialEq for Long {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Clone for Long {
    fn clone(&self) -> Self {
        // SAFETY: `self` holds a count.
        unsafe { Self::retain(self.0) };
        Self(self.0)
    }
}

impl Drop for Long {
    /// Drops one reference. Dropping the last frees the block, in portions if it is long.
    fn drop(&mut self) {
        // SAFETY: the head lives, as `self` holds a count.
        let head = unsafe { self.0.cast::<Head>().as_ref() };
        let len = head.len;
        if head.count.fetch_sub(1, Ordering::Release) > 1 {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: allocated with this size; no other reference is left.
        unsafe { Memory::from_raw(self.0, Self::bytes_for(len)) }.release();
    }
}

impl std::fmt::Debug for Long {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} bytes", self.len())
    }
}

/// A block of memory, owned.
struct Memory {
    at: NonNull<u8>,
    size: usize,
}

// SAFETY: the memory has no other owner.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory for a head and `len` bytes.
    fn new(len: usize) -> Self {
        let size = Long::bytes_for(len);
        let layout = Self::layout(size);
        // SAFETY: the layout is never empty: it has the head.
        let Some(at) = NonNull::new(unsafe { alloc::alloc(layout) }) else {
            alloc::handle_alloc_error(layout)
        };
        Self { at, size }
    }

    fn layout(size: usize) -> Layout {
        let layout = Layout::from_size_align(size, align_of::<Head>());
        layout.expect("a name is shorter than the address space")
    }

    /// Writes bytes, `at` bytes after the head. Panics if they do not fit.
    fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(size_of::<Head>() + at + bytes.len() <= self.size);
        // SAFETY: inside the block, as asserted.
        let to = unsafe { self.at.add(size_of::<Head>() + at) };
        // SAFETY: as above; the block has no other owner, so they do not overlap.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).at
    }

    /// # Safety
    /// `at` came from [`Memory::into_raw`] of a memory of this size, and is not used again.
    unsafe fn from_raw(at: NonNull<u8>, size: usize) -> Self {
        Self { at, size }
    }

    fn release(self) {
        if self.size > 2 * FREED_AT_ONCE {
            lazyfree::defer(Box::new(self));
        }
    }
}

impl Dismantle for Memory {
    /// Frees the end of the block, down to a multiple of the portion, so that no page is split. The
    /// server's allocator does so in place (`darter_runtime::heap`).
    fn dismantle(&mut self) -> bool {
        let start = self.at.addr().get();
        let size = ((start + self.size - 1) / FREED_AT_ONCE * FREED_AT_ONCE).saturating_sub(start);
        if size < FREED_AT_ONCE {
            return false;
        }
        let layout = Self::layout(self.size);
        // SAFETY: allocated with this layout, and the new size is not 0.
        let Some(at) = NonNull::new(unsafe { alloc::realloc(self.at.as_ptr(), layout, size) })
        else {
            return false; // The rest is freed at once.
        };
        (self.at, self.size) = (at, size);
        true
    }

    fn bytes(&self) -> usize {
        self.size
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, with no other owner.
        unsafe { alloc::dealloc(self.at.as_ptr(), Self::layout(self.size)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preempt::{Countdown, Never};

    #[test]
    fn clones_share_the_block_until_the_last_owner() {
        let long = Long::new(b"a name", 7);
        let (other, third) = (long.clone(), long.clone());
        assert_eq!((long.as_ptr(), other.is_shared(), other.hash()), (other.as_ptr(), true, 7));
        drop((long, third));
        assert!(*other == *b"a name" && !other.is_shared());
    }

    #[test]
    fn names_are_ordered_by_length_then_hash_then_bytes() {
        let [one, twin, other] =
            [(b"a", 7), (b"a", 7), (b"b", 7)].map(|(name, hash)| Long::new(name, hash));
        assert!(one == twin && one < other);
        assert!(other < Long::new(b"a", 8) && Long::new(b"a", 8) < Long::new(b"aa", 0));
    }

    #[test]
    fn long_blocks_are_freed_in_portions() {
        let len = 8 * FREED_AT_ONCE;
        drop(Long::new(&vec![1; len], 7));
        for portion in 1..6 {
            assert!(lazyfree::run(&Countdown::new(0)), "more is left after {portion}");
            let left = lazyfree::waiting().1;
            assert!(left <= len - (portion - 1) * FREED_AT_ONCE, "{left} after {portion}");
        }
        lazyfree::run(&Never);
        assert_eq!(lazyfree::waiting(), (0, 0));
        drop(Long::new(&[1; 100], 7));
        assert_eq!(lazyfree::waiting(), (0, 0), "a shorter one is freed at once");
    }
}
