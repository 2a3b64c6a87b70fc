//! Deferred freeing: large values are reclaimed in slices after their last reference is dropped.
//!
//! Freeing ten million entries takes milliseconds to seconds, and the last reference may be dropped
//! anywhere: by DEL, by the end of a reader's cut, inside a segment of another table. So dropping a
//! large value never frees it: `Drop` defers it to this queue in O(1), and the core frees the
//! pending values portion by portion, in slices.
//!
//! The queue belongs to the thread that dropped the value: no lock, and memory returns to the
//! allocator's arena that it came from. It is hidden state, because a parameter could not reach
//! into `Drop`.
//!
//! The queue is in fact a stack. While a value is dismantled, its dropped parts are pushed above it
//! and freed first. So the stack is only as deep as values nest.

use crate::Preempt;
use std::cell::{Cell, RefCell};

/// A value that can be freed in portions.
pub trait Dismantle {
    /// Frees about 10 us worth of the value. Returns true while some of it is left.
    fn dismantle(&mut self) -> bool;

    /// An upper bound of the bytes still to be freed: shared parts stay, and some parts may be
    /// deferred in turn. Cost: O(1).
    fn bytes(&self) -> usize;
}

/// A value waiting to be freed, and its share of [`BYTES`].
struct Pending {
    value: Box<dyn Dismantle>,
    bytes: usize,
}

impl Pending {
    fn new(value: Box<dyn Dismantle>) -> Self {
        let mut pending = Self { value, bytes: 0 };
        pending.count(pending.value.bytes());
        pending
    }

    /// Updates the total: the value now holds `bytes`.
    fn count(&mut self, bytes: usize) {
        let all = BYTES.get() + bytes - self.bytes;
        BYTES.set(all);
        self.bytes = bytes;
    }

    /// Frees one portion. Returns true while something is left.
    fn dismantle(&mut self) -> bool {
        let more = self.value.dismantle();
        self.count(if more { self.value.bytes() } else { 0 });
        more
    }
}

thread_local! {
    static PENDING: RefCell<Vec<Pending>> = const { RefCell::new(Vec::new()) };
    /// The total bytes of all pending values.
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Takes over a value whose last reference was dropped, to free it later. Cost: O(1).
pub fn defer(value: Box<dyn Dismantle>) {
    // After the thread's locals are gone (process exit) the value is simply dropped.
    let _ = PENDING.try_with(|all| match all.try_borrow_mut() {
        Ok(mut all) => all.push(Pending::new(value)),
        Err(_) => drop(value),
    });
}

/// Defers the freeing of items that each take some microseconds, as [`defer`] does: one by one, the
/// last first. `bytes_of` returns the bytes that freeing one item returns. Cost: O(items).
pub fn defer_each<T: 'static>(items: Vec<T>, bytes_of: fn(&T) -> usize) {
    let bytes = items.iter().map(bytes_of).sum();
    defer(Box::new(Each { items, bytes, bytes_of }));
}

/// The items of [`defer_each`].
struct Each<T> {
    items: Vec<T>,
    bytes: usize,
    bytes_of: fn(&T) -> usize,
}

impl<T> Dismantle for Each<T> {
    fn dismantle(&mut self) -> bool {
        let freed = self.items.pop().as_ref().map_or(0, self.bytes_of);
        // An item that was shared when it was counted may have lost its other owners.
        self.bytes = self.bytes.saturating_sub(freed);
        !self.items.is_empty()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Takes over a sequence that is no longer used. If it has more than `portion` items, they are freed
/// later, from the first on, this many at a time: which should take about 10 us. `item_bytes` is an
/// upper bound of the bytes that freeing one gives back. Cost: O(`portion`).
pub fn defer_long<S>(items: S, portion: usize, item_bytes: usize)
where
    S: IntoIterator<IntoIter: ExactSizeIterator + 'static>,
{
    let items = items.into_iter();
    if items.len() > portion {
        defer(Box::new(Long { items, portion, item_bytes }));
    }
}

/// See [`defer_long`].
struct Long<I> {
    items: I,
    portion: usize,
    item_bytes: usize,
}

impl<I: ExactSizeIterator> Dismantle for Long<I> {
    fn dismantle(&mut self) -> bool {
        self.items.by_ref().take(self.portion).for_each(drop);
        self.items.len() > 0
    }

    fn bytes(&self) -> usize {
        self.items.len() * self.item_bytes
    }
}

/// True when nothing is pending on this thread.
#[must_use]
pub fn is_empty() -> bool {
    PENDING.with(|all| all.borrow().is_empty())
}

/// The values pending on this thread, and an upper bound of the bytes they will give back.
#[must_use]
pub fn waiting() -> (usize, usize) {
    (PENDING.with(|all| all.borrow().len()), BYTES.get())
}

/// Frees until the slice is over or nothing is left. Returns true while something is left.
pub fn run(preempt: &dyn Preempt) -> bool {
    loop {
        // Popped while it is dismantled, because its parts may be pushed in turn.
        let Some(mut pending) = PENDING.with(|all| all.borrow_mut().pop()) else {
            return false;
        };
        let below = PENDING.with(|all| all.borrow().len());
        if pending.dismantle() {
            PENDING.with(|all| all.borrow_mut().insert(below, pending));
        }
        if preempt.must_yield() {
            return !is_empty();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preempt::{Countdown, Never};
    use std::cell::Cell;
    use std::rc::Rc;

    struct Heap(usize, Rc<Cell<usize>>);

    impl Dismantle for Heap {
        fn dismantle(&mut self) -> bool {
            self.0 -= 1;
            self.1.set(self.1.get() + 1);
            self.0 > 0
        }

        fn bytes(&self) -> usize {
            self.0 * 10
        }
    }

    /// Drops a heap with each portion.
    struct Nest(usize, Rc<Cell<usize>>);

    impl Dismantle for Nest {
        fn dismantle(&mut self) -> bool {
            self.0 -= 1;
            defer(Box::new(Heap(2, Rc::clone(&self.1))));
            self.0 > 0
        }

        fn bytes(&self) -> usize {
            self.0 * 7
        }
    }

    #[test] // A value that drops many others keeps only few of them pending.
    fn dropped_parts_are_freed_before_their_owner() {
        let freed = Rc::new(Cell::new(0));
        defer(Box::new(Nest(100, Rc::clone(&freed))));
        assert_eq!(waiting(), (1, 700));
        let mut portions = 0;
        while run(&Countdown::new(0)) {
            portions += 1;
            let waiting = PENDING.with(|all| all.borrow().len());
            assert!(waiting <= 2, "{waiting} after {portions} portions");
        }
        assert_eq!((portions, freed.get()), (299, 200));
        assert_eq!(waiting(), (0, 0));
    }

    #[test] // The pending bytes never exceed the bytes that are left.
    fn deferred_items_are_freed_one_by_one() {
        let shared = Rc::new(());
        let items: Vec<Rc<()>> = (0..5).map(|_| Rc::clone(&shared)).collect();
        defer_each(items, |item| 100 / Rc::strong_count(item));
        assert_eq!(waiting(), (1, 80), "sixteen each");
        for (left, bytes) in [(4, 64), (3, 44), (2, 19), (1, 0), (0, 0)] {
            assert_eq!(run(&Countdown::new(0)), left > 0);
            assert_eq!((Rc::strong_count(&shared), waiting().1), (left + 1, bytes));
        }
        assert!(is_empty());
    }

    #[test] // A portion at a time; a sequence no longer than a portion at once.
    fn long_sequences_are_freed_in_portions() {
        let shared = Rc::new(());
        defer_long(vec![Rc::clone(&shared); 2], 2, 8);
        assert!(is_empty() && Rc::strong_count(&shared) == 1);
        defer_long(vec![Rc::clone(&shared); 5], 2, 8);
        for (left, bytes) in [(3, 24), (1, 8), (0, 0)] {
            assert_eq!(run(&Countdown::new(0)), left > 0);
            assert_eq!((Rc::strong_count(&shared), waiting().1), (left + 1, bytes));
        }
    }

    #[test]
    fn pending_values_are_freed_in_slices() {
        let freed = Rc::new(Cell::new(0));
        defer(Box::new(Heap(5, Rc::clone(&freed))));
        defer(Box::new(Heap(2, Rc::clone(&freed))));
        assert!(run(&Countdown::new(2)), "more is left after three portions");
        assert_eq!(freed.get(), 3);
        assert_eq!(waiting(), (1, 40), "one of the five is freed, and both of the two");
        assert!(!run(&Never));
        assert_eq!(freed.get(), 7);
        assert!(is_empty());
    }
}
