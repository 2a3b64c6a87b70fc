//! The shapes of a stream's entries: the names of their fields, in order.
//!
//! Most streams have entries of one shape, or of a few that alternate. Redis stores the names of
//! each node's first entry, and omits equal names of others. Here a stream stores the names of its
//! latest shapes, and an entry has the number of its shape. The number of an unused shape is
//! reused.
//!
//! Invariants:
//! - H1: numbers are below [`SHAPES_MAX`], and `bytes` is the sum over the shapes.
//! - H2: a shape stays as long as an entry may use it: no entry after `until` uses the shape,
//!   except for the most recently used one.

use super::item::FIELDS_MAX;
use darter_base::StreamId as Id;
use std::sync::Arc;

/// The most shapes of a stream. Other entries store their own names.
pub(super) const SHAPES_MAX: usize = 64;
/// The longest encoded names that are stored as a shape.
pub(super) const NAMES_MAX: usize = FIELDS_MAX;

/// Field names shared by some entries.
#[derive(Clone)]
pub(super) struct Shape {
    /// As elements of a list, encoded.
    names: Arc<[u8]>,
    len: usize,
    /// No entry after this ID uses the shape, unless it is the most recent one.
    until: Id,
}

impl Shape {
    /// The names, encoded.
    pub(super) fn names(&self) -> &[u8] {
        &self.names
    }

    /// Number of names.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + 2 * size_of::<usize>() + self.names.len()
    }
}

/// The shapes of a stream, shared with its cuts.
#[derive(Clone, Default)]
pub(super) struct Shapes {
    shapes: Arc<Vec<Shape>>,
    /// The number of the most recently used shape.
    recent: usize,
    bytes: usize,
}

impl Shapes {
    /// The shape with this number.
    #[inline]
    pub(super) fn get(&self, number: u8) -> &Shape {
        &self.shapes[usize::from(number)]
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the shape with these names, for an entry appended with this ID. `first` is the
    /// ID of the stream's first entry. `None` if no number is free.
    #[inline]
    pub(super) fn take(&mut self, names: &[u8], len: usize, id: Id, first: Id) -> Option<u8> {
        if self.shapes.get(self.recent).is_some_and(|shape| *shape.names == *names) {
            return Some(self.recent as u8);
        }
        self.switch(names, len, id, first)
    }

    /// [`Shapes::take`] for a shape other than the most recent one.
    fn switch(&mut self, names: &[u8], len: usize, id: Id, first: Id) -> Option<u8> {
        if names.len() > NAMES_MAX {
            return None;
        }
        let known = self.shapes.iter().position(|shape| *shape.names == *names);
        let number = match known {
            Some(number) => number,
            None => self.vacant(first)?,
        };
        debug_assert!(number < SHAPES_MAX && number <= self.shapes.len(), "H1: {number}");
        let shapes = Arc::make_mut(&mut self.shapes);
        if let Some(recent) = shapes.get_mut(self.recent) {
            recent.until = id;
        }
        if known.is_none() {
            let shape = Shape { names: names.into(), len, until: id };
            self.bytes += shape.memory_bytes();
            if number == shapes.len() {
                shapes.push(shape);
            } else {
                self.bytes -= std::mem::replace(&mut shapes[number], shape).memory_bytes();
            }
        }
        self.recent = number;
        Some(number as u8)
    }

    /// A number for a new shape.
    fn vacant(&self, first: Id) -> Option<usize> {
        if self.shapes.len() < SHAPES_MAX {
            return Some(self.shapes.len());
        }
        let is_vacant =
            |(number, shape): &(usize, &Shape)| *number != self.recent && shape.until < first;
        self.shapes.iter().enumerate().find(is_vacant).map(|(number, _)| number)
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        assert!(self.shapes.len() <= SHAPES_MAX, "H1: {} shapes", self.shapes.len());
        let bytes = self.shapes.iter().map(Shape::memory_bytes).sum::<usize>();
        assert_eq!(self.bytes, bytes, "H1");
        for shape in self.shapes.iter() {
            assert!(shape.len > 0 && shape.names.len() <= NAMES_MAX, "H1: {} names", shape.len);
        }
    }

    /// Panics if the entry with this ID, in a stream with this `base`, cannot use the shape with
    /// this number.
    pub(super) fn check_entry(&self, number: u8, id: Id) {
        let shape = self.get(number);
        assert!(usize::from(number) == self.recent || id <= shape.until, "H2: {id} {number}");
    }
}
