//! A small list as one run of bytes, without a pointer: it can be stored in its key's entry.
//!
//! ```text
//! | len: 2 | element | element | ...        at most 2 KiB; an empty list has no bytes at all
//! ```
//! The elements have the bytes they would have in a chunk; there are no marks, and every change
//! moves what follows it. A blob, or more bytes, turn it into a list of chunks.

use super::item::{self, Code, Element, Elements};
use super::search::Needle;
use crate::chunk::{Coding, compact};
use crate::table::pack::class;

/// Bytes of the largest pack. Beyond that, moving what follows a change, and walking to an index,
/// outweigh the bytes that are saved over a chunk.
pub(super) const PACK_BYTES_MAX: usize = 2_048;
/// The most elements in a pack: they are walked past one by one.
pub(super) const PACK_LEN_MAX: usize = 512;
/// Bytes of the count.
const HEAD: usize = 2;

/// A packed list, read in place.
#[derive(Clone, Copy)]
pub struct PackRef<'a>(&'a [u8]);

impl<'a> PackRef<'a> {
    /// `bytes` are those that [`super::List::packed`] returned.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Elements.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        self.0.first_chunk().map_or(0, |count| usize::from(u16::from_le_bytes(*count)))
    }

    /// True when there are no elements.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The element with this index. Cost: O(index), some nanoseconds each.
    #[inline]
    #[must_use]
    pub fn get(self, index: usize) -> Option<Element<'a>> {
        (index < self.len()).then(|| self.element(self.offset(index)))
    }

    /// All elements, in order.
    pub fn iter(self) -> impl Iterator<Item = Element<'a>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let items = &self.items()[at..];
            (!items.is_empty()).then(|| {
                at += item::len(items);
                Element::Text(item::text(items))
            })
        })
    }

    /// The elements' bytes.
    #[inline]
    pub(super) fn items(self) -> &'a [u8] {
        self.0.get(HEAD..).unwrap_or_default()
    }

    /// The offset in [`PackRef::items`] of the element with this index; of the end, if it is `len`.
    pub(super) fn offset(self, index: usize) -> usize {
        if index == self.len() {
            return self.items().len();
        }
        Elements::skip(self.items(), 0, index)
    }

    /// The element at this offset in [`PackRef::items`].
    #[inline]
    pub(super) fn element(self, offset: usize) -> Element<'a> {
        Element::Text(item::text(&self.items()[offset..]))
    }

    /// Appends the indexes of the elements that match the needle.
    pub(super) fn find(self, needle: &Needle, hits: &mut Vec<u16>) {
        if needle.blob().is_none() {
            item::find(self.items(), needle, |_| (0, 0), hits);
        }
    }

    /// Panics when the bytes are not those of a pack.
    pub fn check_invariants(self) {
        let (items, mut at, mut len) = (self.items(), 0, 0);
        while at < items.len() {
            assert!(item::outside(&items[at..]).is_none(), "P1: a blob in a pack");
            at += item::len(&items[at..]);
            len += 1;
        }
        assert_eq!((at, len), (items.len(), self.len()), "P1");
        assert!(len <= PACK_LEN_MAX && self.0.len() <= PACK_BYTES_MAX, "P2: {len} elements");
        assert!(len > 0 || self.0.is_empty(), "P1: an empty pack with bytes");
    }
}

/// A packed list in memory of its own.
#[derive(Clone, Default)]
pub(super) struct Pack(Vec<u8>);

impl Pack {
    /// An empty one; allocates nothing.
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// A copy of a pack's bytes, with some room.
    pub(super) fn copy(bytes: &[u8]) -> Self {
        const GROWTH: usize = 16;
        let mut copy = Vec::with_capacity(class(bytes.len() + GROWTH));
        copy.extend_from_slice(bytes);
        Self(copy)
    }

    /// A pack of these elements, none of which is a blob.
    pub(super) fn of_items(items: &[u8], len: usize) -> Self {
        let mut bytes = Vec::with_capacity(class(HEAD + items.len()));
        bytes.extend_from_slice(&(len as u16).to_le_bytes());
        bytes.extend_from_slice(items);
        Self(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    pub(super) fn view(&self) -> PackRef<'_> {
        PackRef(&self.0)
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.capacity()
    }

    /// Adds an element before the one with this index. False if it does not fit a pack.
    pub(super) fn insert(&mut self, index: usize, code: &Code<'_>) -> bool {
        let len = self.view().len();
        assert!(index <= len, "index={index} len={len}");
        let offset = self.view().offset(index);
        len < PACK_LEN_MAX && self.splice(offset..offset, Some(code), len + 1)
    }

    /// Replaces an element. False if the new one does not fit a pack.
    pub(super) fn set(&mut self, index: usize, code: &Code<'_>) -> bool {
        let len = self.view().len();
        assert!(index < len, "index={index} len={len}");
        let offset = self.view().offset(index);
        let old = item::len(&self.view().items()[offset..]);
        self.splice(offset..offset + old, Some(code), len)
    }

    /// Removes the elements with these indexes.
    pub(super) fn remove(&mut self, indexes: std::ops::Range<usize>) {
        let view = self.view();
        assert!(indexes.end <= view.len(), "{indexes:?} len={}", view.len());
        let from = view.offset(indexes.start);
        let to = match indexes.end == view.len() {
            true => view.items().len(),
            false => from + Elements::skip(&view.items()[from..], 0, indexes.len()),
        };
        self.splice(from..to, None, view.len() - indexes.len());
    }

    /// Removes the elements with these indexes, ascending.
    pub(super) fn remove_all(&mut self, hits: &[u16]) {
        let len = self.view().len() - hits.len();
        let items = compact::<Elements>(&mut self.0[HEAD..], hits);
        self.0.truncate(HEAD + items);
        self.finish(len);
    }

    /// Replaces some bytes by an element, or by nothing. `len` is the number of elements
    /// afterwards.
    fn splice(&mut self, old: std::ops::Range<usize>, code: Option<&Code<'_>>, len: usize) -> bool {
        let new = match code {
            None => 0,
            Some(Code::Text(text)) => text.len(),
            Some(Code::Blob(_)) => return false,
        };
        if self.0.is_empty() {
            self.0.extend_from_slice(&[0; HEAD]);
        }
        let size = self.0.len();
        debug_assert!(HEAD + old.end <= size, "{old:?} of {size}");
        let after = size - old.len() + new;
        if after > PACK_BYTES_MAX {
            return false;
        }
        let (from, to) = (HEAD + old.start, HEAD + old.end);
        if after > size {
            if after > self.0.capacity() {
                self.0.reserve_exact(class(after) - size);
            }
            self.0.resize(after, 0);
        }
        self.0.copy_within(to..size, from + new);
        self.0.truncate(after);
        if let Some(Code::Text(text)) = code {
            text.write_to(&mut self.0[from..from + new]);
        }
        self.finish(len);
        true
    }

    /// Sets the number of elements, and moves to a smaller block when that is worth it: the
    /// allocator leaves a block that shrinks to half its size in place.
    fn finish(&mut self, len: usize) {
        if len == 0 {
            self.0 = Vec::new();
            return;
        }
        self.0[..HEAD].copy_from_slice(&(len as u16).to_le_bytes());
        let fitting = class(self.0.len());
        if class(fitting + 1) < self.0.capacity() {
            let mut smaller = Vec::with_capacity(fitting);
            smaller.extend_from_slice(&self.0);
            self.0 = smaller;
        }
    }
}
