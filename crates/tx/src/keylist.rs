//! A list of the locks of very many keys. Adding one is a mere append, because the list is rarely
//! searched.
//!
//! A hash table of a million locks would take a cache miss for each, and growth. Here a few bits of
//! each lock select one of many parts with some hundred locks, and a search scans one part. If a
//! part overflows, its keys are probably repeated; the excess goes into a set, which stores each
//! once.
//!
//! Invariants:
//! - I1: the number of parts is a power of two, and never changes.
//! - I2: a lock is in the part that its bits select; or, if that was full when it was added, in
//!   `crowd`; or it is in one of the lists that this one was joined from.

use crate::KeySet;
use crate::locks::Access;
use darter_base::hashtree::HashTree;
use darter_base::lazyfree;
use std::sync::Arc;

/// Expected locks in a part: 2 KiB, which is scanned as a whole.
const LOCKS_PER_PART: usize = 256;
/// The table of parts is allocated in one step: 192 KiB.
const PARTS_MAX: usize = 8_192;
/// The capacity of a part, as a multiple of the expected number.
const CROWDED: usize = 4;
/// Parts freed in one step.
const PARTS_FREED_AT_ONCE: usize = 32;

const _: () = assert!(PARTS_MAX.is_power_of_two()); // So the maximum is never exceeded.

/// The locks of very many keys.
#[derive(Clone, Debug)]
pub struct KeyList {
    parts: Vec<Vec<u64>>,
    /// The capacity of a part, in locks.
    room: usize,
    crowd: Option<KeySet>,
    /// Locks of a transaction that took them one by one.
    late: HashTree<Access>,
    /// Other lists that were joined: few.
    more: Vec<Arc<Self>>,
}

impl KeyList {
    /// An empty list for about `count` locks.
    #[must_use]
    pub fn with_capacity(count: usize) -> Self {
        let parts = (count / LOCKS_PER_PART).clamp(1, PARTS_MAX).next_power_of_two();
        let room = CROWDED * LOCKS_PER_PART.max(count / parts);
        let parts = vec![Vec::new(); parts];
        Self { parts, room, crowd: None, late: HashTree::default(), more: Vec::new() }
    }

    /// A list of the locks that a transaction took one by one.
    pub(crate) fn of(late: HashTree<Access>) -> Self {
        let mut list = Self::with_capacity(0);
        list.late = late;
        list
    }

    /// Adds all locks of another list.
    pub(crate) fn join(&mut self, more: Arc<Self>) {
        /// Each joined list is searched, so there must be few.
        const FEW: usize = 16;
        self.more.push(more);
        debug_assert!(self.more.len() <= FEW, "{} lists in one", self.more.len());
    }

    /// Adds a lock, by its [`lock_key`](crate::lock_key). No step moves more than a part.
    #[inline]
    pub fn push(&mut self, key: u64) {
        let at = self.part_of(key);
        if self.parts[at].len() < self.room {
            self.parts[at].push(key);
        } else {
            self.push_crowded(key);
        }
    }

    #[cold]
    fn push_crowded(&mut self, key: u64) {
        let capacity = self.parts.len() * LOCKS_PER_PART;
        self.crowd.get_or_insert_with(|| KeySet::with_capacity(capacity)).insert(key);
    }

    /// True when the lock is in the list. Cost: a scan of a part.
    #[must_use]
    pub fn contains(&self, key: u64) -> bool {
        self.parts[self.part_of(key)].contains(&key)
            || self.crowd.as_ref().is_some_and(|crowd| crowd.contains(key))
            || self.late.get(key).is_some()
            || self.more.iter().any(|more| more.contains(key))
    }

    fn part_of(&self, key: u64) -> usize {
        debug_assert!(self.parts.len().is_power_of_two(), "I1: {} parts", self.parts.len());
        (key >> 32) as usize & (self.parts.len() - 1) // I1.
    }
}

impl Drop for KeyList {
    fn drop(&mut self) {
        let part = self.parts.last().map_or(0, |part| part.capacity() * size_of::<u64>());
        let part_bytes = part + size_of::<Vec<u64>>();
        lazyfree::defer_long(std::mem::take(&mut self.parts), PARTS_FREED_AT_ONCE, part_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Never;

    /// A number with mixed bits, as locks have.
    fn lock(number: usize) -> u64 {
        darter_base::hash::of(&number.to_le_bytes())
    }

    fn list(guess: usize, locks: impl Iterator<Item = usize>) -> KeyList {
        let mut list = KeyList::with_capacity(guess);
        locks.for_each(|number| list.push(lock(number)));
        list
    }

    #[test] // For any estimate of their number.
    fn a_key_list_contains_exactly_the_added_locks() {
        for guess in [0, 1, 100, 50_000, 10_000_000] {
            let list = list(guess, (0..50_000).map(|number| number * 3));
            assert!((0..150_000).all(|at| list.contains(lock(at)) == (at % 3 == 0)), "{guess}");
        }
    }

    #[test] // Two keys a hundred thousand times; no part is slow to scan or to move.
    fn repeated_keys_are_listed_once() {
        let list = list(100_000, (0..100_000).map(|at| at % 2));
        let longest = list.parts.iter().map(Vec::len).max();
        assert_eq!(longest, Some(CROWDED * LOCKS_PER_PART));
        assert_eq!(list.crowd.as_ref().map(KeySet::len), Some(2));
        assert!(list.contains(lock(0)) && list.contains(lock(1)) && !list.contains(lock(2)));
    }

    #[test] // Pending bytes include the unused room of each part.
    fn a_long_list_of_locks_is_freed_in_portions() {
        const LOCKS: usize = 100_000;
        drop(list(LOCKS, 0..LOCKS));
        let (_, bytes) = lazyfree::waiting();
        let least = LOCKS * size_of::<u64>();
        assert!((least..3 * least).contains(&bytes), "{bytes} bytes for {least}");
        while lazyfree::run(&Never) {}
        drop(list(1_000, 0..1_000));
        assert!(lazyfree::is_empty());
    }
}
