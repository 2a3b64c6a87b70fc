//! Values that wait to be read, and how much of them only the reader still holds.
//!
//! A reply of sixteen thousand values cannot check each of them, whenever the total is asked for,
//! for still being in use: that is a cache miss each. So a check looks at some, the next one
//! continues from there, and findings are kept: a freed value never comes back. The sum of a long
//! reply lags by the checks that it takes, and is never too large.

use darter_keyspace::StrPieces;
use darter_structs::Watch;
use std::cell::Cell;
use std::collections::VecDeque;

/// Values looked at in one check.
const ASKED_AT_ONCE: usize = 128;

/// A value that may be deleted while it is read.
pub(crate) trait Pinned {
    /// Bytes of it that only readers hold.
    fn pinned_bytes(&self) -> usize;
}

impl Pinned for Option<StrPieces> {
    /// A short one is a copy: only its reader has it.
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

/// See the module.
pub(crate) struct PinnedValues<T> {
    values: VecDeque<(T, Cell<usize>)>,
    /// The sum of the findings.
    found: Cell<usize>,
    /// The start of the next check.
    next: Cell<usize>,
}

impl<T: Pinned> PinnedValues<T> {
    /// The values, in the order in which they leave.
    pub(crate) fn new(values: impl IntoIterator<Item = T>) -> Self {
        let values = values.into_iter().map(|value| (value, Cell::new(0))).collect();
        Self { values, found: Cell::new(0), next: Cell::new(0) }
    }

    /// Adds a value, which leaves last.
    pub(crate) fn push(&mut self, value: T) {
        self.values.push_back((value, Cell::new(0)));
    }

    /// Values that have not left.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The next to leave.
    pub(crate) fn front(&self) -> Option<&T> {
        self.values.front().map(|(value, _)| value)
    }

    /// The next leaves.
    pub(crate) fn pop_front(&mut self) {
        if let Some((_, found)) = self.values.pop_front() {
            self.found.set(self.found.get() - found.get());
            self.next.set(self.next.get().saturating_sub(1));
        }
    }

    /// Bytes that only readers hold, as far as it is known. Cost: a look at some of the values.
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

    #[test] // Each deleted value counts once, until it leaves, however far the checks have come.
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
