//! A queue of values that will be read, and the bytes that only the reader keeps alive.
//!
//! Checking each of sixteen thousand values whenever the total is needed would cost a cache miss
//! each. So each check looks at a few values and continues where the previous check stopped.
//! Results are remembered, because a deleted value never comes back. The total of a long reply may
//! therefore lag, but is never too large.

use darter_keyspace::StrPieces;
use darter_structs::Watch;
use std::cell::Cell;
use std::collections::VecDeque;

/// Values that are looked at in one check.
const ASKED_AT_ONCE: usize = 128;

/// A value that may be deleted while it is read.
pub(crate) trait Pinned {
    /// Bytes of the value that only readers keep alive.
    fn pinned_bytes(&self) -> usize;
}

impl Pinned for Option<StrPieces> {
    /// A short value is a copy that only its reader has.
    fn pinned_bytes(&self) -> usize {
        match self {
            None => 0,
            Some(StrPieces::Bytes(bytes)) => bytes.capacity(),
            Some(StrPieces::Blob(blob)) => blob.pinned_bytes(),
        }
    }
}

impl Pinned for Watch {
    fn pinned_bytes(&self) -> usize {
        self.pinned_bytes()
    }
}

/// The queue of values; see the module's documentation.
pub(crate) struct PinnedValues<T> {
    values: VecDeque<(T, Cell<usize>)>,
    /// The sum of the results so far.
    found: Cell<usize>,
    /// The start of the next check.
    next: Cell<usize>,
}

impl<T: Pinned> PinnedValues<T> {
    /// A queue of the values, in the order in which they are read.
    pub(crate) fn new(values: impl IntoIterator<Item = T>) -> Self {
        let values = values.into_iter().map(|value| (value, Cell::new(0))).collect();
        Self { values, found: Cell::new(0), next: Cell::new(0) }
    }

    /// Adds a value at the end.
    pub(crate) fn push(&mut self, value: T) {
        self.values.push_back((value, Cell::new(0)));
    }

    /// The number of values left.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The first value.
    pub(crate) fn front(&self) -> Option<&T> {
        self.values.front().map(|(value, _)| value)
    }

    /// Removes the first value.
    pub(crate) fn pop_front(&mut self) {
        if let Some((_, found)) = self.values.pop_front() {
            self.found.set(self.found.get() - found.get());
            self.next.set(self.next.get().saturating_sub(1));
        }
    }

    /// Bytes that only readers keep alive, as far as known. Cost: a look at some of the values.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let len = self.values.len();
        for _ in 0..len.min(ASKED_AT_ONCE) {
            let at = self.next.get() % len;
            let (value, found) = &self.values[at];
            if found.get() == 0 {
                found.set(value.pinned_bytes());
                self.found.set(self.found.get() + found.get());
            }
            self.next.set(at + 1);
        }
        self.found.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Pinned for std::rc::Weak<()> {
        fn pinned_bytes(&self) -> usize {
            if self.strong_count() == 0 { 10 } else { 0 }
        }
    }

    #[test] // For any number of values checked so far.
    fn deleted_values_count_until_they_are_sent() {
        for count in [1_usize, 100, 1_000] {
            let kept: Vec<_> = (0..count).map(|_| std::rc::Rc::new(())).collect();
            let mut tally = PinnedValues::new(kept.iter().map(std::rc::Rc::downgrade));
            let looks = count.div_ceil(ASKED_AT_ONCE);
            let all = |tally: &PinnedValues<_>| (0..looks).map(|_| tally.pinned_bytes()).last();
            assert_eq!(all(&tally), Some(0), "{count}: all are there");
            drop(kept);
            assert_eq!(tally.pinned_bytes(), count.min(ASKED_AT_ONCE) * 10);
            assert_eq!(all(&tally), Some(count * 10));
            for left in (0..count).rev() {
                tally.pop_front();
                assert_eq!((tally.len(), tally.pinned_bytes()), (left, left * 10));
            }
            assert!(tally.front().is_none());
        }
    }
}
