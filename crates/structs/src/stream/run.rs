//! Reading a stream in place: single entries, and ranges in either direction.

use super::item::{self, Coded, Form};
use super::shapes::Shapes;
use super::{Chunk, Entries};
use crate::chunk::Coding;
use crate::list::item as element;
use crate::list::{self, Element, List};
use crate::runs::{self, Runs};
use darter_base::StreamId as Id;
use std::ops::Range;

/// An entry of a stream, borrowed in place.
#[derive(Clone, Copy)]
pub struct StreamEntry<'a> {
    id: Id,
    body: Body<'a>,
}

/// The fields of an entry.
#[derive(Clone, Copy)]
enum Body<'a> {
    /// The names of its shape with their number, and its values.
    Shaped(&'a [u8], usize, &'a [u8]),
    /// The names and values.
    Own(&'a [u8]),
    /// Names and values, stored out of line.
    Long(&'a List),
}

impl<'a> StreamEntry<'a> {
    /// The entry at this offset in a chunk.
    #[inline]
    pub(super) fn at(chunk: &'a Chunk, offset: usize, base: u64, shapes: &'a Shapes) -> Self {
        let parts = item::parts(&chunk.items()[offset..]);
        let id = Id::new(parts.id.ms + base, parts.id.seq);
        let body = match parts.form {
            Form::Shape(number) => {
                let shape = shapes.get(number);
                Body::Shaped(shape.names(), shape.len(), parts.fields)
            }
            Form::Own => Body::Own(parts.fields),
            Form::Outside(number) => Body::Long(chunk.long(number)),
        };
        Self { id, body }
    }

    /// The ID.
    #[must_use]
    pub fn id(&self) -> Id {
        self.id
    }

    /// The number of names and values together. Cost: O(1), or a walk over the fields if the entry
    /// stores its own names.
    #[must_use]
    pub fn pairs(&self) -> usize {
        match self.body {
            Body::Shaped(_, names, _) => names,
            Body::Own(_) => self.fields().count() / 2,
            Body::Long(list) => list.len() / 2,
        }
    }

    /// The names and values: name, value, name, value ...
    #[inline]
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        Fields(match self.body {
            Body::Shaped(names, _, values) => FieldsLeft::Packed(names, values),
            Body::Own(fields) => FieldsLeft::Own(fields),
            Body::Long(list) => FieldsLeft::Long(list.range(0..list.len())),
        })
    }

    /// The names and values as a list, if they are long; a cut of it can be read in slices.
    #[must_use]
    pub fn long(&self) -> Option<&'a List> {
        if let Body::Long(list) = self.body { Some(list) } else { None }
    }
}

/// Names and values of an entry: see [`StreamEntry::fields`].
pub struct Fields<'a>(FieldsLeft<'a>);

/// The remaining names and values.
enum FieldsLeft<'a> {
    /// The next element is in the first run, the one after it in the second, and so on.
    Packed(&'a [u8], &'a [u8]),
    Own(&'a [u8]),
    Long(list::ListForward<'a>),
}

impl<'a> Fields<'a> {
    /// Encoded elements, one after another.
    pub(super) fn of(run: &'a [u8]) -> Self {
        Self(FieldsLeft::Own(run))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        match &mut self.0 {
            FieldsLeft::Packed(one, other) => {
                let element = first(one);
                std::mem::swap(one, other);
                element
            }
            FieldsLeft::Own(fields) => first(fields),
            FieldsLeft::Long(list) => list.next(),
        }
    }
}

/// Takes the element at the front.
#[inline]
fn first<'a>(run: &mut &'a [u8]) -> Option<Element<'a>> {
    if run.is_empty() {
        return None;
    }
    let (one, rest) = run.split_at(element::len(run));
    *run = rest;
    Some(Element::Text(element::text(one)))
}

/// The entries of a chunk.
#[derive(Clone, Copy)]
pub struct StreamRun<'a> {
    entries: &'a Entries,
    chunk: &'a Chunk,
}

impl<'a> runs::Run<'a> for StreamRun<'a> {
    type Item = StreamEntry<'a>;

    #[inline]
    fn len(&self) -> usize {
        self.chunk.len()
    }

    #[inline]
    fn items(&self) -> &'a [u8] {
        self.chunk.items()
    }

    #[inline]
    fn offset(&self, index: usize) -> usize {
        self.chunk.offset(index)
    }

    #[inline]
    fn read(&self, _: &'a [u8], offset: usize) -> StreamEntry<'a> {
        self.entries.entry(self.chunk, offset)
    }

    #[inline]
    fn item_len(bytes: &[u8]) -> usize {
        Coded::len(bytes)
    }
}

impl Runs for Entries {
    type Run<'a> = StreamRun<'a>;

    fn items_len(&self) -> usize {
        self.len()
    }

    fn run_at(&self, rank: usize) -> (StreamRun<'_>, usize) {
        let (chunk, first) = self.chunk_at(rank);
        (StreamRun { entries: self, chunk }, first)
    }
}

/// Entries in order: see [`Entries::range`].
pub type StreamForward<'a> = runs::Forward<'a, Entries>;

/// Entries in reverse: see [`Entries::range_back`].
pub type StreamBackward<'a> = runs::Backward<'a, Entries>;

impl Entries {
    /// The entries at these ranks, as far as they exist, in order.
    ///
    /// Cost: O(log n) for each chunk, and some nanoseconds for each entry.
    #[must_use]
    pub fn range(&self, ranks: Range<usize>) -> StreamForward<'_> {
        StreamForward::new(self, ranks)
    }

    /// The entries at these ranks, as far as they exist, in reverse.
    #[must_use]
    pub fn range_back(&self, ranks: Range<usize>) -> StreamBackward<'_> {
        StreamBackward::new(self, ranks)
    }
}
