//! Reading a stream in place: single entries, and ranges in either direction.

use super::item::{self, Coded, Form};
use super::shapes::Shapes;
use super::{Chunk, Entries};
use crate::chunk::Coding;
use crate::list::item as element;
use crate::list::{self, Element, List};
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
    Long(list::Forward<'a>),
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

impl Entries {
    /// The entries at these ranks, as far as they exist, in order.
    ///
    /// Cost: O(log n) for each chunk, and some nanoseconds for each entry.
    #[must_use]
    pub fn range(&self, ranks: Range<usize>) -> StreamForward<'_> {
        let end = ranks.end.min(self.len());
        StreamForward {
            entries: self,
            chunk: None,
            offset: 0,
            next: ranks.start,
            chunk_end: 0,
            end,
        }
    }

    /// The entries at these ranks, as far as they exist, in reverse.
    #[must_use]
    pub fn range_back(&self, ranks: Range<usize>) -> StreamBackward<'_> {
        let next = ranks.end.min(self.len());
        let offsets = [0; BATCH];
        StreamBackward { entries: self, chunk: None, offsets, ready: 0, next, start: ranks.start }
    }
}

/// Entries in order: see [`Entries::range`].
pub struct StreamForward<'a> {
    entries: &'a Entries,
    /// The current chunk, and the offset of the next entry in it.
    chunk: Option<&'a Chunk>,
    offset: usize,
    /// The rank of the next entry; the rank after its chunk; the end of the wanted ranks.
    next: usize,
    chunk_end: usize,
    end: usize,
}

impl<'a> Iterator for StreamForward<'a> {
    type Item = StreamEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'a>> {
        if self.next >= self.end {
            return None;
        }
        if self.next >= self.chunk_end {
            let (chunk, first) = self.entries.chunk_at(self.next);
            self.offset = chunk.offset(self.next - first);
            (self.chunk, self.chunk_end) = (Some(chunk), first + chunk.len());
        }
        let chunk = self.chunk?;
        let entry = self.entries.entry(chunk, self.offset);
        self.offset += Coded::len(&chunk.items()[self.offset..]);
        self.next += 1;
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for StreamForward<'_> {}

/// Entries that [`StreamBackward`] finds in one walk.
const BATCH: usize = 16;

/// Entries in reverse: see [`Entries::range_back`].
pub struct StreamBackward<'a> {
    entries: &'a Entries,
    chunk: Option<&'a Chunk>,
    /// Offsets of entries in the chunk, in order; the first `ready` of them are unread.
    offsets: [u16; BATCH],
    ready: usize,
    /// The rank after the next entry, and the lowest wanted rank.
    next: usize,
    start: usize,
}

impl StreamBackward<'_> {
    /// Finds the next batch of offsets.
    fn fill(&mut self) {
        let (chunk, first) = self.entries.chunk_at(self.next - 1);
        let end = self.next - first;
        debug_assert!(0 < end && end <= chunk.len(), "end={end} len={}", chunk.len());
        let begin = end.saturating_sub(BATCH);
        let mut offset = chunk.offset(begin);
        for slot in &mut self.offsets[..end - begin] {
            *slot = offset as u16;
            offset += Coded::len(&chunk.items()[offset..]);
        }
        (self.chunk, self.ready) = (Some(chunk), end - begin);
    }
}

impl<'a> Iterator for StreamBackward<'a> {
    type Item = StreamEntry<'a>;

    #[inline]
    fn next(&mut self) -> Option<StreamEntry<'a>> {
        if self.next <= self.start {
            return None;
        }
        if self.ready == 0 {
            self.fill();
        }
        self.ready -= 1;
        self.next -= 1;
        Some(self.entries.entry(self.chunk?, usize::from(self.offsets[self.ready])))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.next.saturating_sub(self.start);
        (left, Some(left))
    }
}

impl ExactSizeIterator for StreamBackward<'_> {}
