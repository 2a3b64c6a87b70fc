//! A key too long for a page: counted, immutable, one thin pointer.
//!
//! An `Arc<[u8]>` is two words wide, and an entry has room for one: the length stands in front of
//! the bytes instead.
//!
//! ```text
//! | count: 8 | length: 8 | hash: 8 | bytes ... |
//! ```
//! The hash is kept, as whoever moves entries to another place asks for it: of 200 MB it takes 20 ms.
//! It also tells two keys apart that begin alike.

use std::alloc::{self, Layout};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering, fence};

#[repr(C)]
struct Head {
    count: AtomicUsize,
    len: usize,
    hash: u64,
}

/// A long key, owned.
pub(super) struct LongKey(NonNull<u8>);

impl LongKey {
    /// Copies `key`, whose hash is known.
    pub(super) fn new(key: &[u8], hash: u64) -> Self {
        let layout = Self::layout(key.len());
        // SAFETY: the layout is never empty: it has the head.
        let Some(block) = NonNull::new(unsafe { alloc::alloc(layout) }) else {
            alloc::handle_alloc_error(layout)
        };
        let head = Head { count: AtomicUsize::new(1), len: key.len(), hash };
        // SAFETY: the block is fresh, large enough and aligned for the head.
        unsafe { block.cast::<Head>().write(head) };
        // SAFETY: the layout has room for the bytes behind the head.
        let bytes = unsafe { block.add(size_of::<Head>()) };
        // SAFETY: as above; a fresh block does not overlap `key`.
        unsafe { ptr::copy_nonoverlapping(key.as_ptr(), bytes.as_ptr(), key.len()) };
        Self(block)
    }

    /// The pointer; whoever has it owns one count.
    pub(super) fn into_raw(self) -> NonNull<u8> {
        self.0
    }

    /// Memory of a key of `len` bytes.
    pub(super) fn bytes_for(len: usize) -> usize {
        size_of::<Head>() + len
    }

    fn layout(len: usize) -> Layout {
        let layout = Layout::array::<u8>(size_of::<Head>() + len);
        let layout = layout.and_then(|layout| layout.align_to(align_of::<Head>()));
        layout.expect("a key is shorter than the address space")
    }

    /// The bytes.
    ///
    /// # Safety
    /// `raw` came from [`LongKey::into_raw`], and somebody holds a count during `'a`.
    pub(super) unsafe fn borrow<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the head was written by `new`, and lives.
        let len = unsafe { raw.cast::<Head>().as_ref() }.len;
        // SAFETY: the bytes stand behind the head.
        let bytes = unsafe { raw.add(size_of::<Head>()) };
        // SAFETY: `new` wrote `len` bytes, and nobody changes them.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr(), len) }
    }

    /// The hash of the key.
    ///
    /// # Safety
    /// As for [`LongKey::borrow`].
    pub(super) unsafe fn hash(raw: NonNull<u8>) -> u64 {
        // SAFETY: the head was written by `new`, and lives.
        unsafe { raw.cast::<Head>().as_ref() }.hash
    }

    /// Counts one more owner.
    ///
    /// # Safety
    /// As for [`LongKey::borrow`].
    pub(super) unsafe fn retain(raw: NonNull<u8>) {
        // SAFETY: the head lives, as somebody holds a count.
        unsafe { raw.cast::<Head>().as_ref() }.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one owner less, and frees the key after the last.
    ///
    /// # Safety
    /// The caller holds a count, and gives it up.
    pub(super) unsafe fn release(raw: NonNull<u8>) {
        // SAFETY: the head lives, as the caller holds a count.
        let head = unsafe { raw.cast::<Head>().as_ref() };
        let layout = Self::layout(head.len);
        if head.count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: allocated by `new` with this layout; nobody else holds a count.
            unsafe { alloc::dealloc(raw.as_ptr(), layout) };
        }
    }
}

/// A long key that nobody reads any more: it is let go of when this is dropped.
pub(super) struct Spent(NonNull<u8>);

impl Spent {
    /// # Safety
    /// The caller holds a count of `raw`, and gives it up.
    pub(super) unsafe fn new(raw: NonNull<u8>) -> Self {
        Self(raw)
    }
}

/// A long key that is held beyond its entry: for who reads it in slices.
pub struct HeldKey(Spent);

impl HeldKey {
    /// # Safety
    /// As for [`LongKey::borrow`].
    pub(super) unsafe fn new(raw: NonNull<u8>) -> Self {
        // SAFETY: the promise of this function.
        unsafe { LongKey::retain(raw) };
        // SAFETY: the count that was just added is given to it.
        Self(unsafe { Spent::new(raw) })
    }

    /// The key.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a count is held as long as `self` is.
        unsafe { LongKey::borrow(self.0.0) }
    }
}

// SAFETY: the bytes never change, and their count is atomic.
unsafe impl Send for HeldKey {}

impl Drop for Spent {
    fn drop(&mut self) {
        // SAFETY: `new` was given a count, which is given up here, once.
        unsafe { LongKey::release(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Buf, Needle, Never, New, encode};
    use super::*;

    #[test] // A key is what it was made of, and its hash is what was told.
    fn a_long_key_is_what_it_was_made_of() {
        let long = LongKey::new(b"name", 77).into_raw();
        // SAFETY: counted once, and released at the end.
        assert_eq!(unsafe { LongKey::hash(long) }, 77);
        // SAFETY: as above.
        assert_eq!(unsafe { LongKey::borrow(long) }, b"name");
        // SAFETY: as above.
        drop(unsafe { Spent::new(long) });
    }

    #[test] // Whatever moves or looks for entries, a long key is hashed by its caller only, and once.
    fn long_keys_keep_their_hash() {
        let (key, mut buf) = (vec![b'k'; 300], Buf::new());
        encode::<Never>(&mut buf, &Needle::of(77, &key), New::Bytes(b""), None, 0, 0);
        let raw = buf.raw::<Never>();
        assert_eq!(raw.hash(), 77, "as it was told, not computed anew");
        assert!(raw.is(&Needle::of(77, &key)));
        assert!(!raw.is(&Needle::of(78, &key)), "of another hash: the bytes are not looked at");
        let other = vec![b'x'; 300];
        assert!(!raw.is(&Needle::of(77, &other)), "of the same hash: the bytes decide");
        // SAFETY: nobody uses the buffer again.
        unsafe { raw.release_key() };
    }
}
