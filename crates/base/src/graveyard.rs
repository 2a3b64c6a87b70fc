//! Where large values go when the last reference to them is dropped.
//!
//! Freeing ten million entries takes milliseconds to seconds, and the last reference may be let go
//! anywhere: by DEL, by the end of a reader's cut, inside a segment of another table. So dropping
//! a large value never frees it: the drop buries it here, in O(1), and the core frees what is
//! buried portion by portion, in slices.
//!
//! A grave belongs to the thread that dropped the value: no lock, and the memory goes back from
//! where the allocator can take it. That is hidden state (there is one other, in `long`), since a
//! parameter could not reach into `Drop`.
//!
//! The graves are a stack. What a value lets go of while it is dismantled is buried above it and
//! freed before it goes on; so the graves are as many as values are nested, not as many as they are.

use crate::Preempt;
use std::cell::{Cell, RefCell};

/// A value that can be freed in portions.
pub trait Dismantle {
    /// Frees about 10 us worth of the value. Returns true while something is left.
    fn dismantle(&mut self) -> bool;

    /// Bytes that freeing the rest of it gives back, at most: what others share stays, and what it
    /// lets go of may come here in turn. Cost: O(1).
    fn bytes(&self) -> usize;
}

/// A value, and its bytes as they are in [`BYTES`].
struct Grave {
    value: Box<dyn Dismantle>,
    bytes: usize,
}

impl Grave {
    fn new(value: Box<dyn Dismantle>) -> Self {
        let mut grave = Self { value, bytes: 0 };
        grave.count(grave.value.bytes());
        grave
    }

    /// It holds so many bytes now.
    fn count(&mut self, bytes: usize) {
        let all = BYTES.get() + bytes - self.bytes;
        BYTES.set(all);
        self.bytes = bytes;
    }

    /// True while something is left.
    fn dismantle(&mut self) -> bool {
        let more = self.value.dismantle();
        self.count(if more { self.value.bytes() } else { 0 });
        more
    }
}

thread_local! {
    static GRAVES: RefCell<Vec<Grave>> = const { RefCell::new(Vec::new()) };
    /// The sum over all graves.
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Takes over a value whose last reference was dropped. Cost: O(1).
pub fn bury(value: Box<dyn Dismantle>) {
    // After the thread's locals are gone (process exit) the value is simply dropped.
    let _ = GRAVES.try_with(|graves| match graves.try_borrow_mut() {
        Ok(mut graves) => graves.push(Grave::new(value)),
        Err(_) => drop(value),
    });
}

/// True when nothing waits on this thread.
#[must_use]
pub fn is_empty() -> bool {
    GRAVES.with(|graves| graves.borrow().is_empty())
}

/// Values that wait on this thread, and the bytes that they give back, at most.
#[must_use]
pub fn waiting() -> (usize, usize) {
    (GRAVES.with(|graves| graves.borrow().len()), BYTES.get())
}

/// Frees until the slice is over or nothing is left. Returns true while something is left.
pub fn dig(preempt: &dyn Preempt) -> bool {
    loop {
        // Taken out while it is worked on: what it holds may be buried in turn.
        let Some(mut grave) = GRAVES.with(|graves| graves.borrow_mut().pop()) else {
            return false;
        };
        let below = GRAVES.with(|graves| graves.borrow().len());
        if grave.dismantle() {
            GRAVES.with(|graves| graves.borrow_mut().insert(below, grave));
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

    /// Lets go of a heap with each portion.
    struct Nest(usize, Rc<Cell<usize>>);

    impl Dismantle for Nest {
        fn dismantle(&mut self) -> bool {
            self.0 -= 1;
            bury(Box::new(Heap(2, Rc::clone(&self.1))));
            self.0 > 0
        }

        fn bytes(&self) -> usize {
            self.0 * 7
        }
    }

    #[test] // However many values a large one lets go of, few wait.
    fn what_is_let_go_of_is_freed_first() {
        let freed = Rc::new(Cell::new(0));
        bury(Box::new(Nest(100, Rc::clone(&freed))));
        assert_eq!(waiting(), (1, 700));
        let mut portions = 0;
        while dig(&Countdown::new(0)) {
            portions += 1;
            let waiting = GRAVES.with(|graves| graves.borrow().len());
            assert!(waiting <= 2, "{waiting} after {portions} portions");
        }
        assert_eq!((portions, freed.get()), (299, 200));
        assert_eq!(waiting(), (0, 0));
    }

    #[test]
    fn graves_are_dug_in_slices() {
        let freed = Rc::new(Cell::new(0));
        bury(Box::new(Heap(5, Rc::clone(&freed))));
        bury(Box::new(Heap(2, Rc::clone(&freed))));
        assert!(dig(&Countdown::new(2)), "more is left after three portions");
        assert_eq!(freed.get(), 3);
        assert_eq!(waiting(), (1, 40), "one of the five is freed, and both of the two");
        assert!(!dig(&Never));
        assert_eq!(freed.get(), 7);
        assert!(is_empty());
    }
}
