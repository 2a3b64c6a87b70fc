//! The entries of a stream: a counted tree of packed chunks, by ID.
//!
//! Redis stores a radix tree of listpacks with a hundred entries each. It scans a listpack for a
//! step backwards or an ID in the middle, removes ranges entry by entry, and frees a stream in one
//! step. Here an ID or a rank is found in O(log n), a range is removed at the same cost, a clone is
//! a cut, and no step grows with the stream. Numbers and what we rejected:
//! docs/design/0018-streams.md.
//!
//! ```text
//! Entries | base | shapes | tree of chunks: nodes of 8 to 32 children, with their sums and first IDs
//! chunk   | .. room .. | entry | entry | ... | .. room .. | marks: every 16th |        to 4 KiB
//! entry   | size | head | ms - base | seq | value | value | ...      the names are those of a shape
//! ```
//! | file      | holds                                                               |
//! |-----------|---------------------------------------------------------------------|
//! | `item`    | the bytes of one entry                                              |
//! | `gathered` | an entry that arrives value by value                               |
//! | `shapes`  | the names of fields that entries have in common                     |
//! | `run`     | reading in place, both ways                                         |
//! | `reader`  | reading a cut in slices                                             |
//!
//! One block of entries is a chunk (`crate::chunk`), chunks by rank are a tree (`crate::tree`).
//!
//! Cuts: `clone` counts the tree and the shapes. A writer copies the chunk that it changes and the
//! nodes above it, if a cut shares them.
//!
//! Invariants (`check_invariants`; those of chunks, nodes and shapes are in their files):
//! - S1: IDs ascend.
//! - S2: no ID is before `base`, and every entry with a shape has one that exists.
//! - S3: the owner exists if entries do.
//!
//! Not here: the last ID, which outlives its entry, and groups. See `families/stream`.

mod gathered;
mod item;
mod reader;
mod run;
mod shapes;
#[cfg(test)]
mod tests;

pub use crate::chunk::End;
pub use crate::list::{Element, List, NewElement};
pub use darter_base::StreamId;
pub use gathered::Gathered;
pub use reader::StreamReader;
pub use run::{Fields, StreamBackward, StreamEntry, StreamForward};

use crate::chunk::{Coding, own};
use crate::list::item as element;
use crate::owner::{Owner, Watch};
use crate::tree::{self, defer};
use arrayvec::ArrayVec;
use item::{Code, Coded, FIELDS_MAX, Form};
use shapes::Shapes;
use std::fmt;
use std::ops::Range;

type Chunk = crate::chunk::Chunk<Coded>;
type Handle = crate::chunk::Handle<Coded>;
type Child = crate::tree::Subtree<Coded>;

/// The entries of a stream. Cloning them is a cut. See the module.
#[derive(Clone, Default)]
pub struct Entries {
    tree: Option<Child>,
    shapes: Shapes,
    /// The base of the encoded IDs: the milliseconds of the first ID ever added.
    base: u64,
    owner: Owner,
}

impl Drop for Entries {
    fn drop(&mut self) {
        defer(self.tree.take(), self.owner.retire());
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} entries", self.len())
    }
}

/// The encoded fields of a new entry.
#[derive(Default)]
struct Encoding {
    /// Names and values in separate runs.
    names: Run,
    values: Run,
    pairs: usize,
}

/// The run is on the stack: two allocations would be as much work as all the rest of a short entry.
type Run = ArrayVec<u8, FIELDS_MAX>;

/// Appends a name or a value. Returns false if it is too long to be stored among the entries, alone
/// or with the earlier ones.
#[inline]
fn push_coded(run: &mut Run, field: NewElement<'_>) -> bool {
    field.coded(|code| match code {
        element::Code::Text(text) if text.len() <= run.remaining_capacity() => {
            for piece in text.pieces() {
                run.try_extend_from_slice(piece).expect("there is room");
            }
            true
        }
        _ => false,
    })
}

impl Encoding {
    /// Encodes all fields of an entry. Returns false if they are too long to be stored among the
    /// entries.
    fn fill<'a>(&mut self, fields: impl Iterator<Item = NewElement<'a>>) -> bool {
        let mut is_name = true;
        for field in fields {
            let run = if is_name { &mut self.names } else { &mut self.values };
            if !push_coded(run, field) {
                return false;
            }
            self.pairs += usize::from(is_name);
            is_name = !is_name;
        }
        assert!(is_name && self.pairs > 0, "pairs of names and values");
        true
    }

    /// Alternating names and values. `None` if they are too long to be stored among the entries.
    fn mixed(&self) -> Option<Vec<u8>> {
        if self.names.len() + self.values.len() > FIELDS_MAX {
            return None;
        }
        let mut mixed = Vec::with_capacity(self.names.len() + self.values.len());
        let (mut names, mut values) = (&*self.names, &*self.values);
        while !names.is_empty() {
            for run in [&mut names, &mut values] {
                let (one, rest) = run.split_at(element::len(run));
                mixed.extend_from_slice(one);
                *run = rest;
            }
        }
        Some(mixed)
    }
}

impl Entries {
    /// An empty stream. Allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of entries. Cost: O(1).
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.len)
    }

    /// True when there are no entries.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tree.is_none()
    }

    /// Bytes of memory, this struct excluded, long entries included; what cuts share counts in full.
    /// Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        /// The owner's block: three counts.
        const OWNER_BYTES: usize = 3 * size_of::<usize>();
        let tree = self.tree.as_ref().map_or(0, |tree| tree.bytes + OWNER_BYTES);
        tree + self.shapes.memory_bytes()
    }

    /// A cut for a long read: it does not count as a version of the stream, and must not become a
    /// value.
    #[must_use]
    pub fn reader(&self) -> Self {
        let (tree, shapes) = (self.tree.clone(), self.shapes.clone());
        Self { tree, shapes, base: self.base, owner: self.owner.reader() }
    }

    /// True if only readers still hold the memory of this [`Entries::reader`]; false while any
    /// version of the stream exists.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.owner.is_gone()
    }

    /// A watch over the stream.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch::new(&self.owner, self.memory_bytes())
    }

    /// The ID of the first entry. Cost: O(log n).
    #[must_use]
    pub fn first(&self) -> Option<StreamId> {
        self.tree.as_ref().map(|tree| self.absolute(tree.first))
    }

    /// The ID of the last entry. Cost: O(log n).
    #[must_use]
    pub fn last(&self) -> Option<StreamId> {
        let chunk = self.tree.as_ref()?.peek(End::Back);
        let offset = chunk.offset(chunk.len() - 1);
        Some(self.absolute(item::id(&chunk.items()[offset..])))
    }

    /// The entry with this ID. Cost: O(log n).
    #[must_use]
    pub fn get(&self, id: StreamId) -> Option<StreamEntry<'_>> {
        let (chunk, _, offset) = self.find(id)?;
        Some(self.entry(chunk, offset))
    }

    /// True when there is an entry with this ID. Cost: O(log n).
    #[must_use]
    pub fn contains(&self, id: StreamId) -> bool {
        self.find(id).is_some()
    }

    /// The number of entries before `id`. Cost: O(log n).
    #[must_use]
    pub fn rank_of(&self, id: StreamId) -> usize {
        let Some((tree, id)) = self.tree.as_ref().zip(self.relative(id)) else { return 0 };
        let (chunk, first) = tree.seek(|other, _| other < id);
        first + lower_bound(chunk, id).0
    }

    /// The entry with this ID: its chunk, its rank and its offset.
    fn find(&self, id: StreamId) -> Option<(&Chunk, usize, usize)> {
        let (tree, id) = self.tree.as_ref().zip(self.relative(id))?;
        // The last chunk that begins at or before the ID.
        let (chunk, first) = tree.seek(|other, _| other <= id);
        let (index, offset) = lower_bound(chunk, id);
        let items = &chunk.items()[offset..];
        (!items.is_empty() && item::id(items) == id).then_some((chunk, first + index, offset))
    }

    /// The stored form of an ID. `None` if it is before all entries.
    #[inline]
    fn relative(&self, id: StreamId) -> Option<StreamId> {
        Some(StreamId { ms: id.ms.checked_sub(self.base)?, ..id })
    }

    #[inline]
    fn absolute(&self, id: StreamId) -> StreamId {
        StreamId { ms: id.ms + self.base, ..id }
    }

    /// The entry at this offset in a chunk.
    #[inline]
    fn entry<'a>(&'a self, chunk: &'a Chunk, offset: usize) -> StreamEntry<'a> {
        StreamEntry::at(chunk, offset, self.base, &self.shapes)
    }

    /// The chunk that holds the entry with this rank, and the rank of the chunk's first entry.
    fn chunk_at(&self, rank: usize) -> (&Chunk, usize) {
        self.tree.as_ref().expect("the rank is one of an entry").find(rank)
    }

    /// Appends an entry with these fields: name, value, name, value ...
    /// Cost: O(log n + bytes).
    ///
    /// Panics without fields. Debug builds panic if the ID is not above the last one.
    pub fn append<'a>(
        &mut self,
        id: StreamId,
        fields: impl Iterator<Item = NewElement<'a>> + Clone,
    ) {
        if !self.append_short(id, fields.clone()) {
            let mut list = List::new();
            fields.for_each(|field| list.push(End::Back, field));
            self.append_long(id, list);
        }
    }

    /// [`Entries::append`] with names and values in a list. Cost: O(log n), and a copy if they are
    /// short. Names that the list shares with others are not copied for this entry.
    pub fn append_list(&mut self, id: StreamId, fields: List) {
        let all = || fields.range(0..fields.len());
        if fields.memory_bytes() <= 4 * FIELDS_MAX {
            let texts: Vec<_> = all().map(|field| field.to_vec()).collect();
            let mut encoding = Encoding::default();
            let is_shared = all().any(|field| matches!(field, Element::Blob(_)));
            if encoding.fill(texts.iter().map(|field| NewElement::Bytes(field)))
                && (self.append_shaped(id, &encoding)
                    || !is_shared && self.append_own(id, &encoding))
            {
                return;
            }
        }
        self.append_long(id, fields);
    }

    /// Returns false if the fields are too long to be stored among the entries.
    fn append_short<'a>(
        &mut self,
        id: StreamId,
        fields: impl Iterator<Item = NewElement<'a>>,
    ) -> bool {
        let mut encoding = Encoding::default();
        encoding.fill(fields)
            && (self.append_shaped(id, &encoding) || self.append_own(id, &encoding))
    }

    /// Returns false if the names cannot be a shape.
    fn append_shaped(&mut self, id: StreamId, encoding: &Encoding) -> bool {
        let Encoding { names, values, pairs } = encoding;
        let first = self.first().unwrap_or(id);
        let Some(shape) = self.shapes.take(names, *pairs, id, first) else { return false };
        self.push(id, |id| Code::of(id, Form::Shape(shape), values));
        true
    }

    /// Returns false if names and values together are too long.
    fn append_own(&mut self, id: StreamId, encoding: &Encoding) -> bool {
        let Some(mixed) = encoding.mixed() else { return false };
        self.push(id, |id| Code::of(id, Form::Own, &mixed));
        true
    }

    fn append_long(&mut self, id: StreamId, fields: List) {
        assert!(!fields.is_empty() && fields.len().is_multiple_of(2), "names and values");
        self.push(id, |id| Code::outside(id, fields));
    }

    /// Adds the entry that `code` encodes for the stored form of the ID.
    fn push<'c>(&mut self, id: StreamId, code: impl FnOnce(StreamId) -> Code<'c>) {
        debug_assert!(self.last() < Some(id), "S1: {id}");
        if self.tree.is_none() {
            self.base = id.ms;
        }
        if !self.owner.exists() {
            self.owner = Owner::new();
        }
        let code = code(self.relative(id).expect("S1: it is behind all others"));
        let len = self.len();
        tree::insert(&mut self.tree, len, &code);
        assert_eq!(self.len(), len + 1, "N1");
    }

    /// Removes an entry. Returns false if there is none with this ID. Cost: O(log n).
    pub fn remove(&mut self, id: StreamId) -> bool {
        let Some((_, rank, _)) = self.find(id) else { return false };
        let len = self.len();
        tree::remove(&mut self.tree, rank);
        assert_eq!(self.len() + 1, len, "N1");
        true
    }

    /// Removes the entries at these ranks, as far as they exist. Cost: O(log n); large parts are
    /// freed later.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        let ranks = ranks.start..ranks.end.min(self.len());
        let (len, count) = (self.len(), ranks.len());
        let Some(tree) = self.tree.as_mut().filter(|_| !ranks.is_empty()) else { return };
        // Streams of bounded length lose an entry with each addition.
        if ranks.start == 0 && ranks.end < tree.peek(End::Front).len() {
            tree.edit(0, &mut |chunk, _| own(chunk).cut(End::Front, ranks.end));
            return;
        }
        defer(tree::remove_range(&mut self.tree, ranks), self.owner.reader());
        assert_eq!(self.len() + count, len, "N1");
    }

    /// Copies in advance the parts that a change of the entry at this rank would have to copy
    /// because a cut shares them. Returns true if something was copied, which takes a few
    /// microseconds.
    ///
    /// Panics if there is no such entry.
    pub fn unshare(&mut self, rank: usize) -> bool {
        assert!(rank < self.len(), "rank={rank} len={}", self.len());
        let Some(tree) = &mut self.tree else { return false };
        let is_shared = tree.is_shared(rank);
        if is_shared {
            tree.edit(rank, &mut |chunk, _| _ = own(chunk));
        }
        is_shared
    }

    /// Panics when an invariant does not hold. Cost: O(n): for tests.
    pub fn check_invariants(&self) {
        self.shapes.check();
        let Some(tree) = &self.tree else { return };
        tree.check(true);
        assert!(self.owner.exists(), "S3");
        let (mut rank, mut last) = (0, None);
        while rank < tree.len {
            let (chunk, mut offset) = (tree.find(rank).0, 0);
            while offset < chunk.items().len() {
                let parts = item::parts(&chunk.items()[offset..]);
                assert!(last < Some(parts.id), "S1: {last:?} {}", parts.id);
                last = Some(parts.id);
                if let Form::Shape(number) = parts.form {
                    self.shapes.check_entry(number, self.absolute(parts.id));
                }
                offset += Coded::len(&chunk.items()[offset..]);
            }
            rank += chunk.len();
        }
    }
}

/// The number of entries of a chunk before an ID, and the offset of the first other entry.
fn lower_bound(chunk: &Chunk, id: StreamId) -> (usize, usize) {
    let items = chunk.items();
    let is_before = |offset: usize| item::id(&items[offset..]) < id;
    let (mut index, mut offset) = chunk.last_mark(is_before);
    while offset < items.len() && is_before(offset) {
        offset += Coded::len(&items[offset..]);
        index += 1;
    }
    debug_assert!(index <= chunk.len() && offset <= items.len(), "C1: {index} {offset}");
    (index, offset)
}
