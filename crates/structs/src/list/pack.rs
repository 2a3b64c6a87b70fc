//! A small list as one run of bytes, without a pointer: it can be stored in its key's entry.
//!
//! ```text
//! | len: 2 | length: 1, prefix | element | element | ...    at most 2 KiB; no bytes at all when empty
//! ```
//! Elements of a list often have a common prefix (`element:1`, `element:2`). The longest common
//! prefix of all texts of at most 240 bytes, except integers and UUIDs, is stored once, in front.
//! The first text of a list is the prefix. Each further text shortens it to the common part, and
//! then the pack is rewritten: at most as often as the prefix is long. Otherwise the elements have
//! the same bytes as in a chunk. There are no marks, and every change moves the bytes after it. A
//! blob, or more bytes, turn the pack into a list of chunks.
//!
//! Invariants (`check_invariants`):
//! - P1: the bytes are a head, a prefix and the number of elements given by the head, none of them
//!   a blob.
//! - P2: there are no more bytes and elements than a pack may have.
//! - P3: no text with the prefix is longer than 240 bytes.

use super::item::{self, Code, Element, Elements};
use super::search::Needle;
use crate::chunk::{Coding, compact};
use crate::table::pack::class;
use crate::table::pack::item::{SHORT_MAX, Tagged, joined, raw_len};
use std::borrow::Cow;
use std::ops::Range;

/// Bytes of the largest pack. Beyond that, moving the bytes after a change, and walking to an
/// index, outweigh the bytes saved over a chunk.
pub(super) const PACK_BYTES_MAX: usize = 2_048;
/// The most elements in a pack, because they are walked one by one.
pub(super) const PACK_LEN_MAX: usize = 512;
/// The offset of the prefix, after the count; its length comes first.
const PREFIX: usize = 2;
/// The offset of the elements if there is no prefix.
const HEAD: usize = PREFIX + 1;

const _: () = assert!(SHORT_MAX <= u8::MAX as usize, "the prefix's length is a byte");

/// A packed list, read in place.
#[derive(Clone, Copy)]
pub struct ListPackRef<'a>(&'a [u8]);

impl<'a> ListPackRef<'a> {
    /// `bytes` must come from [`super::List::packed`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The number of elements.
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

    /// The element at this index. Cost: O(index), some nanoseconds each.
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
                let element = self.element(at);
                at += item::len(items);
                element
            })
        })
    }

    /// The common prefix of all short texts.
    #[inline]
    fn prefix(self) -> &'a [u8] {
        self.0.get(HEAD..self.items_at()).unwrap_or_default()
    }

    /// The place of the elements.
    #[inline]
    fn items_at(self) -> usize {
        HEAD + self.0.get(PREFIX).map_or(0, |len| usize::from(*len))
    }

    /// The elements' bytes, which equal [`ListPackRef::whole_items`] if there is no prefix.
    #[inline]
    pub(super) fn items(self) -> &'a [u8] {
        self.0.get(self.items_at()..).unwrap_or_default()
    }

    /// The elements' bytes in the form of a chunk.
    pub(super) fn whole_items(self) -> Cow<'a, [u8]> {
        let prefix = self.prefix();
        if prefix.is_empty() {
            return Cow::Borrowed(self.items());
        }
        let mut whole = Vec::new();
        for (item, rest) in items(self.items()) {
            match rest {
                Some(rest) => {
                    whole.push((prefix.len() + rest.len()) as u8);
                    whole.extend_from_slice(prefix);
                    whole.extend_from_slice(rest);
                }
                None => whole.extend_from_slice(item),
            }
        }
        Cow::Owned(whole)
    }

    /// The elements from this index on, in a pack of their own.
    pub(super) fn part(self, index: usize) -> Pack {
        let mut bytes = self.0[..self.items_at()].to_vec();
        bytes.extend_from_slice(&self.items()[self.offset(index)..]);
        let mut part = Pack(bytes);
        part.finish(self.len() - index);
        part
    }

    /// The offset in [`ListPackRef::items`] of the element at this index, or of the end if `index`
    /// is `len`.
    pub(super) fn offset(self, index: usize) -> usize {
        if index == self.len() {
            return self.items().len();
        }
        Elements::skip(self.items(), 0, index)
    }

    /// The element at this offset in [`ListPackRef::items`].
    #[inline]
    pub(super) fn element(self, offset: usize) -> Element<'a> {
        let at = self.items_at() + offset;
        Element::Text(match raw_len(self.0[at]) {
            Some(len) if at > HEAD + offset => joined(&self.0[PREFIX..], at + 1 - PREFIX, len),
            _ => item::text(&self.0[at..]),
        })
    }

    /// Appends the indexes of the elements that match the needle.
    pub(super) fn find(self, needle: &Needle, hits: &mut Vec<u16>) {
        if needle.blob().is_some() {
            return;
        }
        match needle.short() {
            Some(text) if !self.prefix().is_empty() => {
                let Some(rest) = text.strip_prefix(self.prefix()) else { return };
                let needle = Needle::of_text(&Tagged::raw(rest));
                item::find(self.items(), &needle, |_| (0, 0), hits);
            }
            _ => item::find(self.items(), needle, |_| (0, 0), hits),
        }
    }

    /// Panics when the bytes are not those of a pack.
    pub fn check_invariants(self) {
        let (items, mut at, mut len) = (self.items(), 0, 0);
        while at < items.len() {
            assert!(item::outside(&items[at..]).is_none(), "P1: a blob in a pack");
            let whole = raw_len(items[at]).map(|rest| rest + self.prefix().len());
            assert!(whole.is_none_or(|whole| whole <= SHORT_MAX), "P3: {whole:?}");
            at += item::len(&items[at..]);
            len += 1;
        }
        assert_eq!((at, len), (items.len(), self.len()), "P1");
        assert!(len <= PACK_LEN_MAX && self.0.len() <= PACK_BYTES_MAX, "P2: {len} elements");
        assert!(len > 0 || self.0.is_empty(), "P1: an empty pack with bytes");
    }
}

/// The bytes of each element, and the text of a short one.
fn items(items: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    item::runs(items, 0).map(|(item, _)| (item, raw_len(item[0]).map(|_| &item[1..])))
}

/// A packed list in its own memory.
#[derive(Clone, Default)]
pub(super) struct Pack(Vec<u8>);

impl Pack {
    /// An empty pack; allocates nothing.
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// A copy of a pack's bytes, with some extra room.
    pub(super) fn copy(bytes: &[u8]) -> Self {
        const GROWTH: usize = 16;
        let mut copy = Vec::with_capacity(class(bytes.len() + GROWTH));
        copy.extend_from_slice(bytes);
        Self(copy)
    }

    /// A pack of these elements; none may be a blob.
    pub(super) fn of_items(whole: &[u8], len: usize) -> Self {
        let texts = || items(whole).filter_map(|(_, text)| text);
        let first = texts().next().unwrap_or_default();
        let prefix = &first[..texts().map(|text| common(first, text)).min().unwrap_or_default()];
        let mut bytes = Vec::with_capacity(class(HEAD + prefix.len() + whole.len()));
        bytes.extend_from_slice(&[0, 0, prefix.len() as u8]);
        bytes.extend_from_slice(prefix);
        for (item, text) in items(whole) {
            match text {
                Some(text) => {
                    bytes.push((text.len() - prefix.len()) as u8);
                    bytes.extend_from_slice(&text[prefix.len()..]);
                }
                None => bytes.extend_from_slice(item),
            }
        }
        let mut pack = Self(bytes);
        pack.finish(len);
        pack
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    #[inline]
    pub(super) fn view(&self) -> ListPackRef<'_> {
        ListPackRef(&self.0)
    }

    /// Bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.capacity()
    }

    /// Adds an element before the one at this index. Returns false if it does not fit the pack.
    pub(super) fn insert(&mut self, index: usize, code: &Code<'_>) -> bool {
        let len = self.view().len();
        assert!(index <= len, "index={index} len={len}");
        len < PACK_LEN_MAX && self.put(index..index, code)
    }

    /// Replaces an element. Returns false if the new one does not fit the pack.
    pub(super) fn set(&mut self, index: usize, code: &Code<'_>) -> bool {
        let len = self.view().len();
        assert!(index < len, "index={index} len={len}");
        self.put(index..index + 1, code)
    }

    /// Removes the elements with these indexes.
    pub(super) fn remove(&mut self, indexes: Range<usize>) {
        let len = self.view().len();
        assert!(indexes.end <= len, "{indexes:?} len={len}");
        self.splice(&indexes, 0);
        self.finish(len - indexes.len());
    }

    /// Removes the elements with these indexes, ascending.
    pub(super) fn remove_all(&mut self, hits: &[u16]) {
        let (len, at) = (self.view().len() - hits.len(), self.view().items_at());
        let items = compact::<Elements>(&mut self.0[at..], hits);
        self.0.truncate(at + items);
        self.finish(len);
    }

    /// Replaces elements by another. Returns false if it does not fit the pack.
    fn put(&mut self, indexes: Range<usize>, code: &Code<'_>) -> bool {
        let Code::Text(text) = code else { return false };
        let Some(short) = text.short() else { return self.put_text(indexes, text) };
        if !self.fit_prefix(short) {
            return false;
        }
        let rest = &short[self.view().prefix().len()..];
        self.put_text(indexes, &Tagged::raw(rest))
    }

    /// [`Pack::put`] for an element in its stored form.
    fn put_text(&mut self, indexes: Range<usize>, text: &Tagged<'_>) -> bool {
        if self.0.is_empty() {
            self.0.extend_from_slice(&[0; HEAD]);
        }
        let len = self.view().len() + 1 - indexes.len();
        let Some(place) = self.splice(&indexes, text.len()) else { return false };
        text.write_to(&mut self.0[place]);
        self.finish(len);
        true
    }

    /// Replaces elements by `new` bytes, and returns the place of these; `None`, without a change,
    /// if that is too much for a pack.
    fn splice(&mut self, indexes: &Range<usize>, new: usize) -> Option<Range<usize>> {
        let (view, size) = (self.view(), self.0.len());
        let (from, at) = (view.offset(indexes.start), view.items_at());
        let to = match indexes.end == view.len() {
            true => view.items().len(),
            false => from + Elements::skip(&view.items()[from..], 0, indexes.len()),
        };
        let (from, to) = (at + from, at + to);
        let after = size - (to - from) + new;
        if after > PACK_BYTES_MAX {
            return None;
        }
        if after > size {
            self.reserve(after);
            self.0.resize(after, 0);
        }
        self.0.copy_within(to..size, from + new);
        self.0.truncate(after);
        Some(from..from + new)
    }

    /// Gets memory for this many bytes.
    fn reserve(&mut self, bytes: usize) {
        if bytes > self.0.capacity() {
            self.0.reserve_exact(class(bytes) - self.0.len());
        }
    }

    /// Shortens the prefix so that `text` has it, too. Returns false, without a change, if that
    /// takes too much room. The first text of a list becomes its prefix.
    fn fit_prefix(&mut self, text: &[u8]) -> bool {
        if self.0.is_empty() {
            self.reserve(HEAD + text.len() + 1);
            self.0.extend_from_slice(&[0, 0, text.len() as u8]);
            self.0.extend_from_slice(text);
        }
        let prefix = self.view().prefix();
        let kept = common(prefix, text);
        kept == prefix.len() || self.cut_prefix(kept)
    }

    /// Shortens the prefix to `kept` bytes; the rest moves into the texts.
    #[cold]
    fn cut_prefix(&mut self, kept: usize) -> bool {
        let view = self.view();
        let (front, lost) = view.prefix().split_at(kept);
        let texts = items(view.items()).filter(|(_, text)| text.is_some()).count();
        let after = self.0.len() - lost.len() + texts * lost.len();
        if after > PACK_BYTES_MAX {
            return false;
        }
        let mut bytes = Vec::with_capacity(class(after));
        bytes.extend_from_slice(&self.0[..PREFIX]);
        bytes.push(kept as u8);
        bytes.extend_from_slice(front);
        for (item, rest) in items(view.items()) {
            match rest {
                Some(rest) => {
                    bytes.push((lost.len() + rest.len()) as u8);
                    bytes.extend_from_slice(lost);
                    bytes.extend_from_slice(rest);
                }
                None => bytes.extend_from_slice(item),
            }
        }
        self.0 = bytes;
        true
    }

    /// Sets the number of elements, and moves to a smaller block if that is worthwhile: the
    /// allocator shrinks a block to half its size in place.
    fn finish(&mut self, len: usize) {
        if len == 0 {
            self.0 = Vec::new();
            return;
        }
        self.0[..PREFIX].copy_from_slice(&(len as u16).to_le_bytes());
        let fitting = class(self.0.len());
        if class(fitting + 1) < self.0.capacity() {
            let mut smaller = Vec::with_capacity(fitting);
            smaller.extend_from_slice(&self.0);
            self.0 = smaller;
        }
    }
}

/// The length of the common prefix of both.
#[inline]
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}
