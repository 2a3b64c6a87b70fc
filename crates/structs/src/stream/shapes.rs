//! The shapes of a stream's entries: the names of their fields, in order.
//!
//! Most streams have entries of one shape, or of a few that alternate. Redis keeps the names of each
//! node's first entry, and leaves out those of entries of the same names; here a stream keeps the
//! names of its latest shapes, and an entry says which it has. A shape that no entry has any more
//! gives its number to another.
//!
//! Invariants:
//! - H1: numbers are below [`SHAPES_MAX`], and `bytes` is the sum over the shapes.
//! - H2: a shape stays as long as an entry may have it: `until` is at or behind the last of them, for
//!   all shapes but the one that was used last.

use super::item::FIELDS_MAX;
use darter_base::StreamId as Id;
use std::sync::Arc;

/// The most shapes of a stream. Entries of others hold their names themselves.
pub(super) const SHAPES_MAX: usize = 64;
/// The longest names that are kept as a shape, encoded.
pub(super) const NAMES_MAX: usize = FIELDS_MAX;

/// The names of the fields of some entries.
#[derive(Clone)]
pub(super) struct Shape {
    /// As elements of a list, encoded.
    names: Arc<[u8]>,
    len: usize,
    /// No entry after this ID has the shape, unless it was used last.
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
    /// Number of the one that was used last.
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

    /// The number of the shape of these names, for the entry with this ID, which is added behind all
    /// others. `first` is the ID of the first of those. `None` if there is no number left.
    #[inline]
    pub(super) fn take(&mut self, names: &[u8], len: usize, id: Id, first: Id) -> Option<u8> {
        if self.shapes.get(self.recent).is_some_and(|shape| *shape.names == *names) {
            return Some(self.recent as u8);
        }
        self.switch(names, len, id, first)
    }

    /// [`Shapes::take`] of another than the last one.
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

    /// Panics when an invariant does not hold.
    pub(super) fn check(&self) {
        assert!(self.shapes.len() <= SHAPES_MAX, "H1: {} shapes", self.shapes.len());
        let bytes = self.shapes.iter().map(Shape::memory_bytes).sum::<usize>();
        assert_eq!(self.bytes, bytes, "H1");
        for shape in self.shapes.iter() {
            assert!(shape.len > 0 && shape.names.len() <= NAMES_MAX, "H1: {} names", shape.len);
        }
    }

    /// Panics when the entry with this ID, of a stream whose base is `base`, cannot have the shape
    /// with this number.
    pub(super) fn check_entry(&self, number: u8, id: Id) {
        let shape = self.get(number);
        assert!(usize::from(number) == self.recent || id <= shape.until, "H2: {id} {number}");
    }
}
