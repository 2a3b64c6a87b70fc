//! Where large values go when the last reference to them is dropped.
//!
//! Freeing ten million entries takes milliseconds to seconds, and the last reference may be let go
//! anywhere: by DEL, by the end of a reader's cut, inside a segment of another table. So dropping
//! a large value never frees it: the drop buries it here, in O(1), and the core frees what is
//! buried portion by portion, in slices.
//!
//! A grave belongs to the thread that dropped the value: no lock, and the memory goes back from
//! where the allocator can take it. That is the one hidden state of these crates; a parameter could
//! not reach into `Drop`.
//!
//! The graves are a stack. What a value lets go of while it is dismantled is buried above it and
//! freed before it goes on; so the graves are as many as values are nested, not as many as they are.

use crate::Preempt;
use std::cell::RefCell;

/// A value that can be freed in portions.
pub trait Dismantle {
    /// Frees about 10 us worth of the value. Returns true while something is left.
    fn dismantle(&mut self) -> bool;
}

thread_local! {
    static GRAVES: RefCell<Vec<Box<dyn Dismantle>>> = const { RefCell::new(Vec::new()) };
}

/// Takes over a value whose last reference was dropped. Cost: O(1).
pub fn bury(value: Box<dyn Dismantle>) {
    // After the thread's locals are gone (process exit) the value is simply dropped.
    let _ = GRAVES.try_with(|graves| match graves.try_borrow_mut() {
        Ok(mut graves) => graves.push(value),
        Err(_) => drop(value),
    });
}

/// True when nothing waits on this thread.
#[must_use]
pub fn is_empty() -> bool {
    GRAVES.with(|graves| graves.borrow().is_empty())
}

/// Frees until the slice is over or nothing is left. Returns true while something is left.
pub fn dig(preempt: &dyn Preempt) -> bool {
    loop {
        // Taken out while it is worked on: what it holds may be buried in turn.
        let Some(mut value) = GRAVES.with(|graves| graves.borrow_mut().pop()) else {
            return false;
        };
        let below = GRAVES.with(|graves| graves.borrow().len());
        if value.dismantle() {
            GRAVES.with(|graves| graves.borrow_mut().insert(below, value));
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
    }

    /// Lets go of a heap with each portion.
    struct Nest(usize, Rc<Cell<usize>>);

    impl Dismantle for Nest {
        fn dismantle(&mut self) -> bool {
            self.0 -= 1;
            bury(Box::new(Heap(2, Rc::clone(&self.1))));
            self.0 > 0
        }
    }

    #[test] // However many values a large one lets go of, few wait.
    fn what_is_let_go_of_is_freed_first() {
        let freed = Rc::new(Cell::new(0));
        bury(Box::new(Nest(100, Rc::clone(&freed))));
        let mut portions = 0;
        while dig(&Countdown::new(0)) {
            portions += 1;
            let waiting = GRAVES.with(|graves| graves.borrow().len());
            assert!(waiting <= 2, "{waiting} after {portions} portions");
        }
        assert_eq!((portions, freed.get()), (299, 200));
    }

    #[test]
    fn graves_are_dug_in_slices() {
        let freed = Rc::new(Cell::new(0));
        bury(Box::new(Heap(5, Rc::clone(&freed))));
        bury(Box::new(Heap(2, Rc::clone(&freed))));
        assert!(dig(&Countdown::new(2)), "more is left after three portions");
        assert_eq!(freed.get(), 3);
        assert!(!dig(&Never));
        assert_eq!(freed.get(), 7);
        assert!(is_empty());
    }
}
