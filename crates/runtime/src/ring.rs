//! A bounded queue of one producer and one consumer, on different threads.
//!
//! Messages between cores go through these: no lock, no compare-and-swap, one store per
//! item on either side. Each side keeps a stale copy of the other's position and looks at the
//! real one only when the copy says "full" or "empty", so that a busy pair seldom shares a line.
//!
//! ```text
//!          head (consumer)        tail (producer)
//! slots: | free | item | item | item | free | free |     positions grow for ever, the place is
//!                                                        position & (capacity - 1)
//! ```
//! Invariants:
//! - I1: `head <= tail <= head + capacity`, as wrapping differences.
//! - I2: slots at positions `head..tail` hold items, and only the consumer touches them; all
//!   others are empty, and only the producer touches them.
//!
//! Not here: sleeping and waking. See [`crate::mailbox`].

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A value on lines of its own: 128 bytes, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

struct Shared<T> {
    /// The next position to take: written by the consumer.
    head: Padded<AtomicUsize>,
    /// The next position to fill: written by the producer.
    tail: Padded<AtomicUsize>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: by I2 a slot is touched by one side at a time, and the positions hand it over with
// Release and Acquire. Items change threads, hence `T: Send`.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// True when the slot at `position` is empty (I2), for the side that may touch it.
    fn is_free(&self, position: usize) -> bool {
        let head = self.head.0.load(Ordering::Relaxed);
        let tail = self.tail.0.load(Ordering::Relaxed);
        let is_held = position.wrapping_sub(head) < tail.wrapping_sub(head);
        !is_held && position.wrapping_sub(head) < self.slots.len()
    }

    /// Fills the slot at `position`.
    ///
    /// # Safety
    /// The caller is the producer, and `position` is in `tail..head + capacity`.
    unsafe fn put(&self, position: usize, item: T) {
        debug_assert!(self.is_free(position), "I2: position {position} is not the producer's");
        let slot = self.slots[position & (self.slots.len() - 1)].get();
        // SAFETY: by the caller's promise the slot is empty and ours (I2): no one else holds a
        // reference to it, and nothing is overwritten that ought to be dropped.
        unsafe { (*slot).write(item) };
    }

    /// The value in the slot at `position`.
    ///
    /// # Safety
    /// The caller is the consumer, `position` is in `head..tail`, and no one takes it while the
    /// reference lives.
    unsafe fn look_at(&self, position: usize) -> &T {
        let slot = self.slots[position & (self.slots.len() - 1)].get();
        // SAFETY: by the caller's promise the slot is ours (I2): the producer holds no reference.
        let slot = unsafe { &*slot };
        // SAFETY: it holds an item, written before the Release that our Acquire saw.
        unsafe { slot.assume_init_ref() }
    }

    /// Empties the slot at `position`.
    ///
    /// # Safety
    /// The caller is the consumer, or the only one left, and `position` is in `head..tail`; it
    /// counts the position as taken before anyone looks at it again.
    unsafe fn take(&self, position: usize) -> T {
        debug_assert!(!self.is_free(position), "I2: position {position} is not the consumer's");
        let slot = self.slots[position & (self.slots.len() - 1)].get();
        // SAFETY: by the caller's promise the slot is ours (I2): the producer holds no reference.
        let slot = unsafe { &*slot };
        // SAFETY: it holds an item, written before the Release that our Acquire saw, and by the
        // caller's promise it is read once.
        unsafe { slot.assume_init_read() }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let (mut head, tail) = (*self.head.0.get_mut(), *self.tail.0.get_mut());
        while head != tail {
            // SAFETY: both sides are gone, and `head` moves on past every position in `head..tail`.
            drop(unsafe { self.take(head) });
            head = head.wrapping_add(1);
        }
    }
}

/// The producer's side of a ring.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// The consumer's position as last read; the real one may be further on.
    head_seen: usize,
}

/// The consumer's side of a ring.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// The producer's position as last read; the real one may be further on.
    tail_seen: usize,
}

/// A ring for `capacity` items, rounded up to a power of two.
#[must_use]
pub fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity > 0 && capacity <= 1 << 30, "capacity={capacity}");
    let slots = (0..capacity.next_power_of_two()).map(|_| UnsafeCell::new(MaybeUninit::uninit()));
    let (head, tail) = Default::default();
    let shared = Arc::new(Shared { head, tail, slots: slots.collect() });
    let producer = Producer { shared: Arc::clone(&shared), tail: 0, head_seen: 0 };
    (producer, Consumer { shared, head: 0, tail_seen: 0 })
}

impl<T: Send> Producer<T> {
    /// Appends one item, or returns it if the ring is full.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if !self.has_room() {
            return Err(item);
        }
        // SAFETY: we are the producer, and there is room at `tail`.
        unsafe { self.shared.put(self.tail, item) };
        self.tail = self.tail.wrapping_add(1);
        let used = self.tail.wrapping_sub(self.head_seen);
        debug_assert!(used <= self.shared.slots.len(), "I1: {used} are shown");
        // Release: the item before the position.
        self.shared.tail.0.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// True when one more item fits.
    pub fn has_room(&mut self) -> bool {
        let capacity = self.shared.slots.len();
        if self.tail.wrapping_sub(self.head_seen) == capacity {
            // Acquire: the consumer has read the items it took before it moved on.
            self.head_seen = self.shared.head.0.load(Ordering::Acquire);
        }
        let used = self.tail.wrapping_sub(self.head_seen);
        debug_assert!(used <= capacity, "used={used} capacity={capacity}");
        used < capacity
    }
}

impl<T: Send> Consumer<T> {
    /// Takes one item, if there is one.
    pub fn pop(&mut self) -> Option<T> {
        if self.waiting() == 0 {
            return None;
        }
        // SAFETY: we are the consumer, `head` is before the producer's position; it moves on now.
        let item = unsafe { self.shared.take(self.head) };
        self.head = self.head.wrapping_add(1);
        self.release();
        Some(item)
    }

    /// The item that is taken next, if there is one.
    pub fn front(&mut self) -> Option<&T> {
        if self.waiting() == 0 {
            return None;
        }
        // SAFETY: we are the consumer, `head` is before the producer's position; a holder of `&mut
        // self` takes nothing in between.
        Some(unsafe { self.shared.look_at(self.head) })
    }

    /// Takes all items that are there now, at most the ring's capacity, and frees their slots at
    /// once. Returns their number. If `each` panics, its item counts as taken.
    pub fn pop_all(&mut self, mut each: impl FnMut(T)) -> usize {
        /// Frees the taken slots, on return and on panic alike.
        struct Release<'a, T: Send>(&'a mut Consumer<T>);
        impl<T: Send> Drop for Release<'_, T> {
            fn drop(&mut self) {
                self.0.release();
            }
        }
        self.tail_seen = self.head; // Read the real position, to take all.
        let count = self.waiting();
        let taking = Release(self);
        for _ in 0..count {
            // SAFETY: we are the consumer, `head` is before the producer's position; it moves on
            // before `each` can panic.
            let item = unsafe { taking.0.shared.take(taking.0.head) };
            taking.0.head = taking.0.head.wrapping_add(1);
            each(item);
        }
        count
    }

    /// True if no item waits: reads the producer's real position.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.shared.tail.0.load(Ordering::Acquire)
    }

    /// The number of waiting items: a lower bound, but exact if 0.
    fn waiting(&mut self) -> usize {
        if self.tail_seen == self.head {
            // Acquire: the items before the position.
            self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
        }
        let waiting = self.tail_seen.wrapping_sub(self.head);
        debug_assert!(waiting <= self.shared.slots.len(), "I1: {waiting} wait");
        waiting
    }

    fn release(&mut self) {
        // Release: our reads are over before the producer writes there again.
        self.shared.head.0.store(self.head, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;
    use std::collections::VecDeque;
    use std::sync::atomic::AtomicBool;

    #[test] // Full and empty rings included.
    fn random_ring_operations_agree_with_a_vecdeque() {
        for seed in 0..50 {
            let mut prng = Prng::from_seed(seed);
            let capacity = 1 << prng.below(6);
            let (mut producer, mut consumer) = ring::<Box<u64>>(capacity);
            let (mut model, mut next) = (VecDeque::new(), 0_u64);
            for step in 0..2_000 {
                assert_eq!(
                    consumer.front().map(|item| **item),
                    model.front().copied(),
                    "{seed} {step}"
                );
                assert_eq!(producer.has_room(), model.len() < capacity, "{seed} {step}");
                match prng.below(5) {
                    2.. => match producer.push(Box::new(next)) {
                        Ok(()) => {
                            assert!(model.len() < capacity, "{seed} {step}");
                            model.push_back(next);
                            next += 1;
                        }
                        Err(item) => assert_eq!((*item, model.len()), (next, capacity)),
                    },
                    1 => assert_eq!(consumer.pop().map(|item| *item), model.pop_front()),
                    0 => {
                        let mut all = VecDeque::new();
                        assert_eq!(consumer.pop_all(|item| all.push_back(*item)), model.len());
                        assert_eq!(all, model, "{seed} {step}");
                        model.clear();
                    }
                }
                assert_eq!(consumer.is_empty(), model.is_empty(), "{seed} {step}");
            }
        }
    }

    #[test]
    fn nothing_is_lost_or_reordered_between_two_threads() {
        let count: u64 = if cfg!(miri) { 500 } else { 300_000 };
        for capacity in [1, 2, 64] {
            let (mut producer, mut consumer) = ring::<Box<u64>>(capacity);
            let filling = std::thread::spawn(move || {
                for next in 0..count {
                    let mut item = Box::new(next);
                    while let Err(back) = producer.push(item) {
                        item = back;
                        std::thread::yield_now();
                    }
                }
            });
            let (mut prng, mut expected) = (Prng::from_seed(99), 0);
            while expected < count {
                let mut check = |item: Box<u64>| {
                    assert_eq!(*item, expected);
                    expected += 1;
                };
                let taken = if prng.chance(50) {
                    consumer.pop().map(check).is_some()
                } else {
                    consumer.pop_all(&mut check) > 0
                };
                if !taken {
                    std::thread::yield_now();
                }
            }
            filling.join().unwrap();
            assert!(consumer.is_empty());
        }
    }

    // Values left in a ring are dropped with it, once; a panic loses only those it was given.
    #[test]
    fn dropping_a_ring_drops_its_unread_items() {
        let dropped = Arc::new(AtomicUsize::new(0));
        struct Item(Arc<AtomicUsize>);
        impl Drop for Item {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (mut producer, mut consumer) = ring(8);
        for _ in 0..6 {
            assert!(producer.push(Item(Arc::clone(&dropped))).is_ok());
        }
        let armed = AtomicBool::new(false);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            consumer.pop_all(|_item| assert!(!armed.swap(true, Ordering::Relaxed), "on purpose"));
        }));
        assert!(panicked.is_err());
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
        drop(consumer.pop());
        drop((producer, consumer));
        assert_eq!(dropped.load(Ordering::Relaxed), 6);
    }
}
