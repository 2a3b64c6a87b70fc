//! Lists: a small one is one run of bytes, a large one a counted tree of packed chunks.
//!
//! A linked list of listpacks, as in Redis, must be walked to reach an index, and is freed node by
//! node in one step. Here an index, an insertion and a cut anywhere are O(log n), a clone is a cut,
//! and no step grows with the list. Numbers and what we rejected: docs/design/0015-lists.md.
//!
//! ```text
//! List --+-- Pack      one run of bytes, up to 2 KiB: | len | prefix | element | element | ...
//!        +-- Chunks    front chunk | tree of chunks | back chunk
//!                                        |
//!                                   nodes of 8 to 32 children, with the sums of what hangs there
//!
//! chunk: | head | .. room .. | element | element | ... | .. room .. | marks: every 16th |   to 4 KiB
//! ```
//! | file      | holds                                                               |
//! |-----------|---------------------------------------------------------------------|
//! | `item`    | the bytes of one element, finding them among others                 |
//! | `pack`    | small lists as bytes                                                |
//! | `big`     | the two ends and the tree                                           |
//! | `run`     | reading in place, both ways                                         |
//! | `reader`  | reading a cut in slices, freeing                                    |
//! | `search`  | finding and removing a value, in slices                             |
//!
//! One block of elements is a chunk (`crate::chunk`), chunks by index are a tree (`crate::tree`).
//!
//! Cuts: `clone` counts three references, or copies a pack. A writer copies the chunk that it
//! changes and the nodes above it, if a cut shares them.
//!
//! Invariants (`check_invariants`; those of chunks, nodes and packs are in their files):
//! - An empty list is a pack without bytes.
//!
//! Not here: the meaning of an element, and permissions. See `keyspace`.

mod big;
pub(crate) mod item;
mod pack;
mod reader;
mod run;
pub(crate) mod search;
#[cfg(test)]
mod tests;

pub use crate::chunk::End;
pub use item::{Element, INLINE_MAX, NewElement};
pub use pack::ListPackRef;
pub use reader::ListReader;
pub use run::{ListBackward, ListForward};
pub use search::{Needle, Progress, Removal, Search};

use crate::chunk::{Encoded, can_merge};
use crate::owner::{Owner, Watch};
use crate::runs::{Run as _, Runs as _};
use crate::tree::{defer, join_seam, join_some, split};
use big::Big;
use item::Elements;
use pack::Pack;
use std::fmt;
use std::ops::Range;

type Chunk = crate::chunk::Chunk<Elements>;
type Handle = crate::chunk::Handle<Elements>;
type Child = crate::tree::Subtree<Elements>;

/// A single chunk becomes a pack again at half the limits of a pack.
const PACK_AGAIN_BYTES: usize = pack::PACK_BYTES_MAX / 2;
const PACK_AGAIN_LEN: usize = pack::PACK_LEN_MAX / 2;

/// A list of byte strings. Cloning it is a cut; see the module's documentation.
#[derive(Clone)]
pub struct List(Root);

/// The form of a list.
#[derive(Clone)]
enum Root {
    Pack(Pack),
    Chunks(Box<Big>),
}

const _: () = assert!(size_of::<List>() == 24);

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for List {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a list of {} elements", self.len())
    }
}

impl List {
    /// An empty list. Allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self(Root::Pack(Pack::new()))
    }

    /// The bytes of a list that is a pack. They are its complete state, and can be stored anywhere.
    #[must_use]
    pub fn packed(&self) -> Option<&[u8]> {
        if let Root::Pack(pack) = &self.0 { Some(pack.bytes()) } else { None }
    }

    /// The list with these bytes, which are copied.
    #[must_use]
    pub fn of_packed(bytes: &[u8]) -> Self {
        Self(Root::Pack(Pack::copy(bytes)))
    }

    /// The number of elements. Cost: O(1).
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Root::Pack(pack) => pack.view().len(),
            Root::Chunks(big) => big.len(),
        }
    }

    /// True when there are no elements.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory, including long elements; parts shared with cuts count in full. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Root::Pack(pack) => pack.memory_bytes(),
            Root::Chunks(big) => big.memory_bytes(),
        }
    }

    /// A cut for a long read. It does not count as a version of the list, and must not become a
    /// value.
    #[must_use]
    pub fn reader(&self) -> Self {
        Self(match &self.0 {
            Root::Pack(pack) => Root::Pack(pack.clone()),
            Root::Chunks(big) => Root::Chunks(Box::new(big.reader())),
        })
    }

    /// True if only readers still hold the memory of this [`List::reader`]; false while any version
    /// of the list exists. Readers of a pack have copies, which are too small to be reported.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        match &self.0 {
            Root::Pack(_) => false,
            Root::Chunks(big) => big.owner().is_gone(),
        }
    }

    /// A watch over the list. It reports nothing for a pack.
    #[must_use]
    pub fn watch(&self) -> Watch {
        match &self.0 {
            Root::Pack(_) => Watch::default(),
            Root::Chunks(big) => Watch::new(big.owner(), big.memory_bytes()),
        }
    }

    /// Copies in advance the parts that a change at this index would have to copy because a cut
    /// shares them. The content stays the same. Returns true if something was copied, which takes a
    /// few microseconds.
    ///
    /// Panics if there is no such element.
    pub fn unshare(&mut self, index: usize) -> bool {
        assert!(index < self.len(), "index={index} len={}", self.len());
        match &mut self.0 {
            Root::Pack(_) => false,
            Root::Chunks(big) => big.unshare(index),
        }
    }

    /// Adds an element at one end. Cost: O(1).
    #[inline]
    pub fn push<'a>(&mut self, end: End, value: impl Into<NewElement<'a>>) {
        value.into().coded(|code| match &mut self.0 {
            Root::Chunks(big) => big.push(end, code),
            Root::Pack(pack) => {
                let index = if end == End::Front { 0 } else { pack.view().len() };
                if !pack.insert(index, code) {
                    self.unpack(end, code.len()).push(end, code);
                }
            }
        });
    }

    /// Adds the decimal texts of these numbers at the back, as [`List::push`] for each. Cost:
    /// O(numbers).
    pub fn push_numbers(&mut self, numbers: &[i64]) {
        self.push_all(numbers, Big::push_numbers, |number| NewElement::Number(*number));
    }

    /// Adds these texts at the back, as [`List::push`] for each. Cost: O(texts).
    pub fn push_texts(&mut self, texts: &[&[u8]]) {
        self.push_all(texts, Big::push_texts, |text| NewElement::Bytes(text));
    }

    /// Adds these items at the back: as many at once as `push_many` can add, the others singly.
    #[inline]
    fn push_all<T>(
        &mut self,
        items: &[T],
        push_many: impl Fn(&mut Big, &[T]) -> usize,
        new: impl Fn(&T) -> NewElement<'_>,
    ) {
        let mut left = items;
        while let [first, rest @ ..] = left {
            let added = match &mut self.0 {
                Root::Chunks(big) => push_many(big, left),
                Root::Pack(_) => 0,
            };
            if added > 0 {
                left = &left[added..];
            } else {
                self.push(End::Back, new(first));
                left = rest;
            }
        }
    }

    /// Removes the element at one end after calling `f` with it. `None` for an empty list.
    #[inline]
    pub fn pop<R>(&mut self, end: End, f: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        let result = match &self.0 {
            Root::Chunks(big) => f(big.peek(end).peek(end)),
            Root::Pack(pack) => {
                let last = pack.view().len().checked_sub(1)?;
                f(pack.view().get(if end == End::Front { 0 } else { last })?)
            }
        };
        self.cut(end, 1);
        Some(result)
    }

    /// Removes `count` elements at one end, or all if there are fewer. Cost: O(log n); large parts
    /// are freed later.
    pub fn cut(&mut self, end: End, count: usize) {
        let len = self.len();
        let count = count.min(len);
        if let Root::Chunks(big) = &mut self.0
            && count <= big.peek(end).len()
            && count < len
        {
            big.cut(end, count);
            self.shrink();
            return;
        }
        match end {
            End::Front => self.remove_range(0..count),
            End::Back => self.remove_range(len - count..len),
        }
    }

    /// Replaces the element at this index. Cost: O(log n).
    ///
    /// Panics if there is no such element.
    pub fn set<'a>(&mut self, index: usize, value: impl Into<NewElement<'a>>) {
        assert!(index < self.len(), "index={index} len={}", self.len());
        value.into().coded(|code| {
            let is_set = match &mut self.0 {
                Root::Pack(pack) => pack.set(index, code),
                Root::Chunks(big) => big.set(index, code),
            };
            if !is_set {
                self.make_room(index, &mut |big| big.set(index, code));
            }
        });
    }

    /// Adds an element before the one at this index, or at the end. Cost: O(log n).
    ///
    /// Panics if `index` is above [`List::len`].
    pub fn insert<'a>(&mut self, index: usize, value: impl Into<NewElement<'a>>) {
        let len = self.len();
        assert!(index <= len, "index={index} len={len}");
        if index == 0 || index == len {
            return self.push(if index == 0 { End::Front } else { End::Back }, value);
        }
        value.into().coded(|code| {
            let is_in = match &mut self.0 {
                Root::Pack(pack) => pack.insert(index, code),
                Root::Chunks(big) => big.insert(index, code),
            };
            if !is_in {
                self.make_room(index, &mut |big| big.insert(index, code));
            }
        });
    }

    /// Removes the element at this index. Cost: O(log n).
    ///
    /// Panics if there is no such element.
    pub fn remove(&mut self, index: usize) {
        assert!(index < self.len(), "index={index} len={}", self.len());
        match &mut self.0 {
            Root::Chunks(big) if big.find(index).0.len() > 1 => {
                if big.remove(index) {
                    self.merge_near(index);
                    self.shrink();
                }
            }
            _ => self.remove_range(index..index + 1),
        }
    }

    /// Removes the elements at these indexes, as far as they exist. Cost: O(log n); large parts are
    /// freed later.
    pub fn remove_range(&mut self, indexes: Range<usize>) {
        let indexes = indexes.start..indexes.end.min(self.len());
        if indexes.is_empty() {
            return;
        }
        if let Root::Pack(pack) = &mut self.0 {
            return pack.remove(indexes);
        }
        self.rebuild(|tree, owner| {
            let (left, rest) = split(tree, indexes.start);
            let (gone, right) = split(rest.expect("the range is not empty"), indexes.len());
            defer(gone, owner.reader());
            join_seam(left, right)
        });
        self.shrink();
    }

    /// Removes and returns the elements from an index on. Cost: O(log n).
    ///
    /// Panics if `index` is above [`List::len`].
    #[must_use]
    pub fn split_off(&mut self, index: usize) -> Self {
        let len = self.len();
        assert!(index <= len, "index={index} len={len}");
        let mut rest = Self::new();
        if let Root::Pack(pack) = &mut self.0 {
            let view = pack.view();
            if index < len {
                rest = Self(Root::Pack(view.part(index)));
                pack.remove(index..len);
            }
            return rest;
        }
        self.rebuild(|tree, _| {
            let (left, right) = split(tree, index);
            if let Some(right) = right {
                rest = Self(Root::Chunks(Box::new(Big::open(right, Owner::new()))));
            }
            left
        });
        self.shrink();
        rest.shrink();
        rest
    }

    /// Appends all elements of another list. Cost: O(log n), or a push for each element of a pack.
    pub fn append(&mut self, mut other: Self) {
        match (&self.0, &other.0) {
            (_, Root::Pack(pack)) => {
                pack.view().iter().for_each(|element| self.push_copy(End::Back, element));
            }
            (Root::Pack(_), Root::Chunks(_)) => {
                let front = std::mem::replace(self, std::mem::take(&mut other));
                front.range_back(0..front.len()).for_each(|one| self.push_copy(End::Front, one));
            }
            (Root::Chunks(_), Root::Chunks(_)) => {
                let Root::Chunks(back) = std::mem::take(&mut other).0 else { return };
                self.rebuild(|tree, _| join_seam(Some(tree), Some(back.close().0)));
            }
        }
    }

    fn push_copy(&mut self, end: End, element: Element<'_>) {
        match element {
            Element::Text(text) => self.push(end, &*text.to_vec()),
            Element::Blob(blob) => self.push(end, NewElement::Blob(blob.clone())),
        }
    }

    /// Removes elements of one run: `hits` are their indexes, ascending.
    fn remove_hits(&mut self, hits: &[usize]) {
        let Some(&index) = hits.first() else { return };
        let (run, first) = self.run_at(index);
        let run = first..first + run.len();
        if run.len() == hits.len() {
            return self.remove_range(run);
        }
        assert!(hits.iter().all(|hit| run.contains(hit)), "hits of one run: {run:?}");
        let hits: Vec<u16> = hits.iter().map(|hit| (hit - first) as u16).collect();
        match &mut self.0 {
            Root::Pack(pack) => pack.remove_all(&hits),
            Root::Chunks(big) => {
                if big.remove_all(index, &hits) {
                    self.merge_near(first);
                    self.shrink();
                }
            }
        }
    }

    /// Panics if an invariant is violated. Cost: O(n): for tests.
    pub fn check_invariants(&self) {
        match &self.0 {
            Root::Pack(pack) => pack.view().check_invariants(),
            Root::Chunks(big) => big.check(),
        }
    }

    /// Turns a pack into one chunk, with room for `need` more bytes at `end`; or into several, if
    /// the prefix makes its elements that long.
    #[cold]
    fn unpack(&mut self, end: End, need: usize) -> &mut Big {
        if let Root::Pack(pack) = &self.0 {
            let items = pack.view().whole_items();
            let mut runs = item::runs(&items, pack::PACK_BYTES_MAX);
            let (first, len) = runs.next().unwrap_or_default();
            let mut big = Big::of(Chunk::of_items(first, len, need, end));
            runs.for_each(|(more, len)| {
                big.extend(End::Back, Chunk::of_items(more, len, need, end))
            });
            self.0 = Root::Chunks(Box::new(big));
        }
        let Root::Chunks(big) = &mut self.0 else { unreachable!("just made") };
        big
    }

    /// Retries a change that was refused for lack of room: in a chunk instead of a pack, or in one
    /// half of the chunk that contains this index.
    #[cold]
    fn make_room(&mut self, index: usize, act: &mut dyn FnMut(&mut Big) -> bool) {
        /// Half a chunk has room for any element's bytes, and a pack first becomes a chunk. But the
        /// number of blobs in a chunk is bounded, too, and they take only a tenth of its bytes. So
        /// all may be in one half, even after several halvings.
        const TRIES_MAX: usize = 8;
        for _ in 0..TRIES_MAX {
            if let Root::Chunks(big) = &self.0 {
                let (chunk, first) = big.find(index);
                let middle = first + chunk.middle();
                self.rebuild(|tree, _| {
                    let (left, right) = split(tree, middle);
                    join_some(left, right)
                });
            }
            if act(self.unpack(End::Back, item::ITEM_BYTES_MAX)) {
                return;
            }
        }
        unreachable!("no part of a chunk has room");
    }

    /// Merges the chunk that contains this index, or the last chunk, with a neighbour if both fit
    /// in one.
    fn merge_near(&mut self, index: usize) {
        let len = self.len();
        let Root::Chunks(big) = &mut self.0 else { return };
        let (chunk, first) = big.find(index.min(len - 1));
        let end = first + chunk.len();
        let worth = |at: usize| can_merge(chunk, big.find(at).0);
        let start = if end < len && worth(end) {
            first
        } else if first > 0 && worth(first - 1) {
            big.find(first - 1).1
        } else {
            return;
        };
        let seam = if start == first { end } else { first };
        self.rebuild(|tree, _| {
            let (left, right) = split(tree, seam);
            join_seam(left, right)
        });
    }

    /// Replaces the list's tree by the result of `f`.
    fn rebuild(&mut self, f: impl FnOnce(Child, &Owner) -> Option<Child>) {
        let Root::Chunks(big) = std::mem::replace(&mut self.0, Root::Pack(Pack::new())) else {
            unreachable!("a pack has no tree")
        };
        let (tree, owner) = big.close();
        if let Some(tree) = f(tree, &owner) {
            self.0 = Root::Chunks(Box::new(Big::open(tree, owner)));
        }
    }

    /// Turns a chunk with few elements into a pack.
    #[inline]
    fn shrink(&mut self) {
        let Root::Chunks(big) = &self.0 else { return };
        let Some(chunk) = big.only() else { return };
        let (items, len) = (chunk.items(), chunk.len());
        if items.len() <= PACK_AGAIN_BYTES && len <= PACK_AGAIN_LEN && chunk.longs() == 0 {
            self.0 = Root::Pack(Pack::of_items(items, len));
        }
    }
}
