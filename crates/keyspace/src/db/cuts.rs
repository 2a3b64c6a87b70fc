//! Copies that changes make for cuts: made in advance, asked for, and counted.

use super::{Db, Key, living};
use crate::named::Touch;
use crate::object::{Object, Type, memory_bytes};
use darter_base::Preempt;
use darter_structs::kept;

impl Db {
    /// True when a change of this key may copy memory that a cut holds: the key's segment, a whole value,
    /// or a part of a value that is not small.
    pub fn is_cut(&mut self, key: &Key<'_>) -> bool {
        /// Bytes of a value whose parts a cut may hold, though not the value.
        const SMALL: usize = 64 * 1024;
        let may_copy = |object: &Object| object.count() > 1 || memory_bytes(object) > SMALL;
        let entry = self.keys.get(key.hash, key.bytes);
        entry.and_then(|entry| entry.out()).is_some_and(may_copy) || !self.keys.is_own(key.hash)
    }

    /// Makes the places of the fields or members that a change will touch the value's own, until
    /// the slice is over: then the change copies nothing, whatever cuts are being read. It has no
    /// visible effect. `None`: all of them are; otherwise how many names were processed.
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

/// Notes that a value of `bytes` replaces `old`: counts the memory held twice, if a cut holds that.
pub(super) fn note_replaced(old: Option<&Object>, bytes: usize) {
    if let Some(old) = old.filter(|old| old.count() > 1) {
        kept::note_whole(bytes.min(memory_bytes(old)));
    }
}
