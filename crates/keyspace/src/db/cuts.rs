//! The copies that changes make because a snapshot shares the memory: made in advance, predicted,
//! and counted.

use super::{Db, Key, living};
use crate::named::Touch;
use crate::object::{Object, Type, memory_bytes};
use darter_base::Preempt;
use darter_structs::kept;

impl Db {
    /// Whether a change of this key may copy memory that a snapshot holds: the key's segment, a
    /// whole value, or a part of a value that is not small.
    pub fn is_cut(&mut self, key: &Key<'_>) -> bool {
        /// Up to this many bytes a value counts as small: its parts need not be checked.
        const SMALL: usize = 64 * 1024;
        let may_copy = |object: &Object| object.count() > 1 || memory_bytes(object) > SMALL;
        let entry = self.keys.get(key.hash, key.bytes);
        entry.and_then(|entry| entry.out()).is_some_and(may_copy) || !self.keys.is_own(key.hash)
    }

    /// Copies the places of the fields or members that a change will touch, until the slice is
    /// over, so that the value no longer shares them. The change itself then copies nothing,
    /// whatever snapshots are being read. It has no visible effect. Returns `None` when all are
    /// done, otherwise how many names were processed.
    pub fn unshare(
        &mut self,
        key: &Key<'_>,
        (kind, touch): (&'static Type, Touch),
        names: &[&[u8]],
        preempt: &dyn Preempt,
    ) -> Option<usize> {
        self.keep(key); // Otherwise the change would copy the whole value at once.
        let mut entry = living(&mut self.keys, key, self.now.get())?;
        let object = entry.out_mut().filter(|object| object.row() == kind)?;
        object.named()?; // Nothing is copied for other values.

        let before = object.content_bytes();
        let value = object.face_mut();
        let last = value.named_mut()?.unshare(names, touch, preempt);
        debug_assert!(last.is_none_or(|last| last < names.len()), "{last:?} of {}", names.len());
        self.usage.resize(kind, before, value.content_bytes());
        last.map(|last| last + 1)
    }
}

/// Records that a value of `bytes` replaces `old`: counts the memory held twice, if a snapshot
/// holds the old value.
pub(super) fn note_replaced(old: Option<&Object>, bytes: usize) {
    if let Some(old) = old.filter(|old| old.count() > 1) {
        kept::note_whole(bytes.min(memory_bytes(old)));
    }
}
