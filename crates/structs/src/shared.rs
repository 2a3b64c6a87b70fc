//! A reference-counted value of any type of a family, behind one thin pointer.
//!
//! A table's entry has room for one pointer; `Arc<dyn Trait>` is two, and `Arc<Box<dyn Trait>>` a
//! second allocation. So the type's vtable is stored with the count, in front of the value. That
//! costs no more than the weak count of an `Arc`.
//!
//! ```text
//! Shared -> | count | vtable | mark | value ..... |
//!                        +-> row, size, functions to borrow, copy and free it
//! ```
//! Testing for a type compares pointers ([`Shared::get`]); operations of all members of the family
//! are called through a trait object, the face ([`std::ops::Deref`]). The mark is a word for the
//! user of the family, readable without touching the value.
//!
//! Cloning is a cut: it counts a reference, and [`Shared::make_mut`] copies the value if it is
//! shared.
//!
//! Invariants:
//! - I1: `vtable` belongs to the type with which the cell was created; it never changes.
//! - I2: `count` is the number of `Shared` that lead here; the last one frees.

use crate::table::{OutOfLine, Unpacked};
use std::any::TypeId;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// The common parts of the members of a family.
pub trait Family: Sized + 'static {
    /// The operations of each member.
    type Face: ?Sized + 'static;
    /// The facts about each type.
    type Row: Sync + 'static;
    /// The word that precedes each value.
    type Mark: Copy + Default + Send + Sync + 'static;
    /// True if entries with such a value have a stamp: see [`OutOfLine::STAMPED`].
    const STAMPED: bool = false;
}

/// A family that has `V` as a member.
pub trait Holds<V: Clone + Send + Sync + 'static>: Family {
    /// The row of the type.
    const ROW: &'static Self::Row;

    /// The value as a member of the family.
    fn face(value: &V) -> &Self::Face;

    /// The value as a member of the family, for changes.
    fn face_mut(value: &mut V) -> &mut Self::Face;
}

/// A reference-counted value; see the module's documentation.
#[repr(transparent)]
pub struct Shared<F: Family>(NonNull<Head<F>>);

/// The head of every value.
#[repr(C)]
struct Head<F: Family> {
    count: AtomicUsize,
    vtable: &'static Vtable<F>,
    mark: F::Mark,
}

#[repr(C)]
struct Cell<F: Family, V> {
    head: Head<F>,
    value: V,
}

/// The operations on a cell of unknown type.
struct Vtable<F: Family> {
    id: fn() -> TypeId,
    row: &'static F::Row,
    bytes: usize,
    face: unsafe fn(NonNull<Head<F>>) -> NonNull<F::Face>,
    face_mut: unsafe fn(NonNull<Head<F>>) -> NonNull<F::Face>,
    copy: unsafe fn(NonNull<Head<F>>) -> Shared<F>,
    free: unsafe fn(NonNull<Head<F>>),
}

/// The vtable of each type.
trait Known<V>: Family {
    const VTABLE: &'static Vtable<Self>;
}

impl<V: Clone + Send + Sync + 'static, F: Holds<V>> Known<V> for F {
    const VTABLE: &'static Vtable<F> = &Vtable {
        id: TypeId::of::<V>,
        row: F::ROW,
        bytes: size_of::<Cell<F, V>>(),
        face: face::<F, V>,
        face_mut: face_mut::<F, V>,
        copy: copy::<F, V>,
        free: free::<F, V>,
    };
}

/// # Safety
/// `head` is that of a living `Cell<F, V>`, which does not change while the result is used.
unsafe fn face<F: Holds<V>, V: Clone + Send + Sync + 'static>(
    head: NonNull<Head<F>>,
) -> NonNull<F::Face> {
    // SAFETY: the caller's promise; the pointer is that of the whole cell.
    let cell = unsafe { head.cast::<Cell<F, V>>().as_ref() };
    NonNull::from(F::face(&cell.value))
}

/// # Safety
/// `head` is that of a living `Cell<F, V>`, which has no other reader while the result is used.
unsafe fn face_mut<F: Holds<V>, V: Clone + Send + Sync + 'static>(
    head: NonNull<Head<F>>,
) -> NonNull<F::Face> {
    // SAFETY: the caller's promise; the pointer is that of the whole cell.
    let cell = unsafe { head.cast::<Cell<F, V>>().as_mut() };
    NonNull::from(F::face_mut(&mut cell.value))
}

/// # Safety
/// `head` is that of a living `Cell<F, V>`, which does not change during the call.
unsafe fn copy<F: Holds<V>, V: Clone + Send + Sync + 'static>(head: NonNull<Head<F>>) -> Shared<F> {
    // SAFETY: the caller's promise; the pointer is that of the whole cell.
    let cell = unsafe { head.cast::<Cell<F, V>>().as_ref() };
    Shared::marked(cell.value.clone(), cell.head.mark)
}

/// # Safety
/// `head` is that of a living `Cell<F, V>`, which is not used from now on.
unsafe fn free<F: Holds<V>, V: Clone + Send + Sync + 'static>(head: NonNull<Head<F>>) {
    // SAFETY: `marked` made it as a box of this type (I1), and it has no other owner.
    drop(unsafe { Box::from_raw(head.cast::<Cell<F, V>>().as_ptr()) });
}

impl<F: Family> Shared<F> {
    /// A value that is not shared yet.
    #[must_use]
    pub fn new<V>(value: V) -> Self
    where
        F: Holds<V>,
        V: Clone + Send + Sync + 'static,
    {
        Self::marked(value, F::Mark::default())
    }

    fn marked<V>(value: V, mark: F::Mark) -> Self
    where
        F: Holds<V>,
        V: Clone + Send + Sync + 'static,
    {
        let head = Head { count: AtomicUsize::new(1), vtable: <F as Known<V>>::VTABLE, mark };
        Self(NonNull::from(Box::leak(Box::new(Cell { head, value }))).cast())
    }

    #[inline]
    fn head(&self) -> &Head<F> {
        // SAFETY: the cell lives as long as a `Shared` leads to it (I2).
        unsafe { self.0.as_ref() }
    }

    /// The row of its type.
    #[inline]
    #[must_use]
    pub fn row(&self) -> &'static F::Row {
        self.head().vtable.row
    }

    /// The mark.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> F::Mark {
        self.head().mark
    }

    /// Changes the mark of this value only: a shared value is copied first.
    pub fn set_mark(&mut self, mark: F::Mark) {
        self.make_own();
        // SAFETY: the cell lives, and has no other owner.
        unsafe { self.0.as_mut() }.mark = mark;
    }

    /// Bytes of the allocation: the value and its head, without memory that the value owns
    /// elsewhere.
    #[inline]
    #[must_use]
    pub fn cell_bytes(&self) -> usize {
        self.head().vtable.bytes
    }

    /// The number of references.
    #[must_use]
    pub fn count(&self) -> usize {
        self.head().count.load(Ordering::Relaxed)
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> *const u8 {
        self.0.as_ptr().cast_const().cast()
    }

    /// True when it is a `V`.
    #[inline]
    #[must_use]
    pub fn is<V>(&self) -> bool
    where
        F: Holds<V>,
        V: Clone + Send + Sync + 'static,
    {
        let vtable = self.head().vtable;
        // A type may have two vtables, at the compiler's discretion, but a vtable belongs to one
        // type.
        std::ptr::eq(vtable, <F as Known<V>>::VTABLE) || (vtable.id)() == TypeId::of::<V>()
    }

    /// The value, if it is a `V`.
    #[inline]
    #[must_use]
    pub fn get<V>(&self) -> Option<&V>
    where
        F: Holds<V>,
        V: Clone + Send + Sync + 'static,
    {
        if !self.is::<V>() {
            return None;
        }
        // SAFETY: the cell lives (I2), and is a `Cell<F, V>` (I1).
        Some(&unsafe { self.0.cast::<Cell<F, V>>().as_ref() }.value)
    }

    /// The value, if it is a `V`, for changing, and its mark; copied first if it is shared.
    #[inline]
    pub fn make_mut<V>(&mut self) -> Option<(&mut V, &mut F::Mark)>
    where
        F: Holds<V>,
        V: Clone + Send + Sync + 'static,
    {
        if !self.is::<V>() {
            return None;
        }
        self.make_own();
        // SAFETY: the cell lives, is a `Cell<F, V>` (I1), and has no other owner.
        let cell = unsafe { self.0.cast::<Cell<F, V>>().as_mut() };
        Some((&mut cell.value, &mut cell.head.mark))
    }

    /// The face, for changing; copied first if it is shared.
    pub fn face_mut(&mut self) -> &mut F::Face {
        self.make_own();
        let lend = self.head().vtable.face_mut;
        // SAFETY: the cell is of the vtable's type (I1), and has no other owner.
        let mut face = unsafe { lend(self.0) };
        // SAFETY: a part of the cell, which is borrowed as long as the result.
        unsafe { face.as_mut() }
    }

    /// Copies the value if it is shared.
    #[inline]
    fn make_own(&mut self) {
        // Acquire: the previous holders' accesses happen before our writes.
        if self.head().count.load(Ordering::Acquire) != 1 {
            // SAFETY: the cell is of the vtable's type (I1), and holders of a shared value do not
            // change it.
            let copy = unsafe { (self.head().vtable.copy)(self.0) };
            debug_assert!(std::ptr::eq(copy.row(), self.row()), "I1: a copy of another type");
            *self = copy;
            debug_assert_eq!(self.count(), 1, "I2: a copy that is shared");
        }
    }
}

impl<F: Family> Deref for Shared<F> {
    type Target = F::Face;

    fn deref(&self) -> &F::Face {
        // SAFETY: the cell is of the vtable's type (I1), and holders of a shared value do not
        // change it.
        let face = unsafe { (self.head().vtable.face)(self.0) };
        // SAFETY: a part of the cell, which is borrowed as long as the result.
        unsafe { face.as_ref() }
    }
}

impl<F: Family<Row: fmt::Debug>> fmt::Debug for Shared<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} at {:p}", self.row(), self.0)
    }
}

impl<F: Family> Clone for Shared<F> {
    /// A cut: O(1).
    #[inline]
    fn clone(&self) -> Self {
        /// Half the range: that many references cannot exist, and the other half is a margin for
        /// races.
        const COUNT_MAX: usize = usize::MAX / 2;
        // Relaxed: the cloner holds a reference, so it already sees everything.
        let count = self.head().count.fetch_add(1, Ordering::Relaxed);
        assert!(count < COUNT_MAX, "count={count}");
        Self(self.0)
    }
}

impl<F: Family> Drop for Shared<F> {
    #[inline]
    fn drop(&mut self) {
        // Release: our reads happen before the last owner frees it.
        let count = self.head().count.fetch_sub(1, Ordering::Release);
        if count != 1 {
            assert!(count > 0, "I2: it was freed before");
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: the cell is of the vtable's type (I1), and no other `Shared` leads here (I2).
        unsafe { (self.head().vtable.free)(self.0) };
    }
}

// SAFETY: values and marks are `Send` and `Sync`, rows are `Sync`, the count is atomic.
unsafe impl<F: Family> Send for Shared<F> {}
// SAFETY: as above.
unsafe impl<F: Family> Sync for Shared<F> {}

// SAFETY: it is one pointer.
unsafe impl<F: Family> OutOfLine for Shared<F> {
    const STAMPED: bool = F::STAMPED;
    type Packed<'a> = Unpacked;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Things;

    trait Thing {
        fn weight(&self) -> usize;
        fn grow(&mut self);
    }

    impl Family for Things {
        type Face = dyn Thing;
        type Row = &'static str;
        type Mark = u64;
    }

    /// Owns something, so that a leak or a double free is noticed.
    #[derive(Clone)]
    struct Stone(#[expect(dead_code, reason = "held, and counted")] Arc<()>, usize);

    #[derive(Clone, Debug, PartialEq)]
    struct Feather(Vec<u8>);

    macro_rules! member {
        ($type:ty, $row:expr, $self:ident, $weight:expr, $grow:expr) => {
            impl Thing for $type {
                fn weight(&$self) -> usize {
                    $weight
                }
                fn grow(&mut $self) {
                    $grow
                }
            }

            impl Holds<$type> for Things {
                const ROW: &'static &'static str = &$row;
                fn face(value: &$type) -> &(dyn Thing + 'static) {
                    value
                }
                fn face_mut(value: &mut $type) -> &mut (dyn Thing + 'static) {
                    value
                }
            }
        };
    }

    member!(Stone, "stone", self, self.1, self.1 += 1);
    member!(Feather, "feather", self, self.0.len(), self.0.push(0));

    #[test]
    fn a_shared_value_can_be_read_only_as_its_own_type() {
        let one: Shared<Things> = Shared::new(Feather(vec![1, 2]));
        assert_eq!((*one.row(), one.weight(), one.mark(), one.count()), ("feather", 2, 0, 1));
        assert_eq!(one.get::<Feather>(), Some(&Feather(vec![1, 2])));
        assert!(one.get::<Stone>().is_none() && !one.is::<Stone>());
        let expected = size_of::<usize>() * 2 + size_of::<u64>() + size_of::<Vec<u8>>();
        assert_eq!(one.cell_bytes(), expected);
        assert_eq!(size_of::<Option<Shared<Things>>>(), size_of::<usize>());
    }

    #[test] // The cut does not change.
    fn changing_a_shared_value_copies_it_once() {
        let mut one: Shared<Things> = Shared::new(Feather(vec![1]));
        one.set_mark(7);
        let cut = one.clone();
        assert_eq!((cut.count(), cut.address()), (2, one.address()));
        one.face_mut().grow();
        assert_ne!(cut.address(), one.address());
        let place = one.address();
        let (value, mark) = one.make_mut::<Feather>().unwrap();
        value.0.push(9);
        *mark += 1;
        assert_eq!((one.weight(), one.mark(), one.address()), (3, 8, place));
        assert_eq!((cut.weight(), cut.mark(), cut.count()), (1, 7, 1));
        assert!(one.make_mut::<Stone>().is_none());
        let mut marked = cut.clone();
        marked.set_mark(9);
        assert_eq!((cut.mark(), marked.mark()), (7, 9));
    }

    #[test]
    fn a_value_shared_by_threads_is_freed_once() {
        let owned = Arc::new(());
        let one: Shared<Things> = Shared::new(Stone(Arc::clone(&owned), 5));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mut cut = one.clone();
                scope.spawn(move || {
                    for _ in 0..50 {
                        let again = cut.clone();
                        cut.face_mut().grow();
                        assert!(again.weight() < cut.weight());
                    }
                });
            }
        });
        assert_eq!((one.weight(), one.count(), Arc::strong_count(&owned)), (5, 1, 2));
        drop(one);
        assert_eq!(Arc::strong_count(&owned), 1);
    }
}
