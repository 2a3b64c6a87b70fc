//! A key too long for a page: a reference-counted block, behind one thin pointer.
//!
//! An `Arc<[u8]>` is two words wide, and an entry has room for one: so the block keeps its length,
//! and its hash, in front of the bytes (`darter_base::long`). A key that is already in such a block
//! shares it; any other is copied.

use darter_base::long::Long;
use std::ptr::NonNull;

/// A long key held beyond its entry, to be read in slices. Cloning it counts a reference.
#[derive(Clone)]
pub struct HeldKey(Long);

impl HeldKey {
    /// A block that was counted for it.
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

    /// The hash, which the block knows.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.0.hash()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::super::entry::{Buf, Needle, encode};
    use super::super::value::{Never, New};
    use darter_base::hash;
    use darter_base::long::{Draft, KNOWN_MIN};

    #[test] // Whatever moves or looks up entries, a long key is hashed by its caller only, and once.
    fn long_keys_keep_their_hash() {
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

    #[test] // The table's entry is one more owner of the block that a name came in.
    fn a_name_in_a_block_is_not_copied() {
        let bytes = vec![b'k'; KNOWN_MIN + 1];
        let mut draft = Draft::new(bytes.len());
        draft.push(&bytes);
        let (name, mut table) = (draft.finish(), Table::<Never>::new());
        table.insert(name.hash(), &name, New::Bytes(b""), None, 0);
        let held = |table: &Table<Never>, key: &[u8]| {
            table.get(hash::of(key), key).and_then(|entry| entry.hold_key()).map(|held| held.0)
        };
        let kept = held(&table, &name).unwrap();
        assert_eq!(kept.as_ptr(), name.as_ptr());
        drop((name, kept));
        assert!(
            held(&table, &bytes).is_some_and(|kept| *kept == *bytes),
            "it outlives who made it"
        );
        assert!(table.remove(hash::of(&bytes), &bytes).is_some() && table.is_empty());
    }
}
