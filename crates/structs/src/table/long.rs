//! A key too long for a page: a reference-counted block, behind one thin pointer.
//!
//! An `Arc<[u8]>` is two words wide, but an entry has room for one. So the block stores its length
//! and its hash in front of the bytes (`darter_base::long`).

use darter_base::long::Long;
use std::ptr::NonNull;

/// A reference to a long key that outlives its entry, so that it can be read in slices. Cloning it
/// counts a reference.
#[derive(Clone)]
pub struct HeldKey(Long);

impl HeldKey {
    /// Takes over a counted reference.
    pub(crate) fn of(long: Long) -> Self {
        Self(long)
    }

    /// # Safety
    /// As for [`Long::borrow`].
    pub(super) unsafe fn new(raw: NonNull<u8>) -> Self {
        // SAFETY: the promise of this function.
        unsafe { Long::retain(raw) };
        // SAFETY: the count that was just added is given to it.
        Self(unsafe { Long::from_raw(raw) })
    }

    /// The key.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The hash, stored in the block.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.0.hash()
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Buf, Needle, encode};
    use super::super::value::{Never, New};

    #[test] // Once, whatever moves or looks up entries.
    fn long_keys_are_hashed_only_by_the_caller() {
        let (key, mut buf) = (vec![b'k'; 300], Buf::new());
        encode::<Never>(&mut buf, &Needle::of(77, &key), New::Bytes(b""), None, 0, 0);
        let raw = buf.raw::<Never>();
        assert_eq!(raw.hash(), 77, "as it was told, not computed anew");
        assert!(raw.is(&Needle::of(77, &key)));
        assert!(!raw.is(&Needle::of(78, &key)), "of another hash: the bytes are not looked at");
        let other = vec![b'x'; 300];
        assert!(!raw.is(&Needle::of(77, &other)), "of the same hash: the bytes decide");
        // SAFETY: the buffer is not used again.
        unsafe { raw.release_key() };
    }
}
