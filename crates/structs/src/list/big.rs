//! A list of chunks: one at each end, where nearly all changes happen, and a tree of all others.
//!
//! ```text
//! Big: front chunk | tree of chunks | back chunk         a single chunk is the front
//! ```
//! A push or a pop changes only the chunk at its end. A change in the middle descends the tree to
//! its chunk. Cutting or joining the list at an index first moves the end chunks into the tree
//! ([`Big::close`]), and takes them out again afterwards ([`Big::open`]): some microseconds, once
//! in some hundred changes.
//!
//! Invariants:
//! - L1: without a back chunk there is no tree.
//! - L2: no chunk is empty.

use super::item::{Code, INLINE_MAX};
use super::{Child, Chunk, End, Handle};
use crate::chunk::{Encoded, ROOM_MAX, own, remove_all, trim};
use crate::owner::Owner;
use crate::table::pack::item;
use crate::tree::{defer, join, join_some, pop};
use std::sync::Arc;

/// Room of a new chunk at an end: a fraction of the list's size, so that short lists do not pay for
/// a whole block.
const NEW_ROOM_MIN: usize = 512;
const NEW_ROOM_SHARE: usize = 8;

/// A list of chunks, open for changes.
#[derive(Clone)]
pub(super) struct Big {
    front: Handle,
    middle: Middle,
    back: Option<Handle>,
}

/// The tree, freed in portions.
#[derive(Clone)]
struct Middle {
    tree: Option<Child>,
    /// The list's owner.
    owner: Owner,
}

impl Drop for Middle {
    fn drop(&mut self) {
        defer(self.tree.take(), self.owner.retire());
    }
}

impl Big {
    /// A list of one chunk.
    pub(super) fn of(chunk: Handle) -> Self {
        Self { front: chunk, middle: Middle { tree: None, owner: Owner::new() }, back: None }
    }

    /// A list of all chunks of a tree.
    pub(super) fn open(tree: Child, owner: Owner) -> Self {
        let (front, rest) = pop(tree, End::Front);
        let (back, tree) = match rest {
            None => (None, None),
            Some(rest) => {
                let (back, tree) = pop(rest, End::Back);
                (Some(back), tree)
            }
        };
        let big = Self { front, middle: Middle { tree, owner }, back };
        debug_assert!(big.back.is_some() || big.middle.tree.is_none(), "L1");
        big
    }

    /// The front, the tree and the back, where present.
    pub(super) fn into_parts(mut self) -> ([Option<Child>; 3], Owner) {
        let (middle, owner) = (self.middle.tree.take(), std::mem::take(&mut self.middle.owner));
        ([Some(Child::of(self.front)), middle, self.back.map(Child::of)], owner)
    }

    /// All chunks as one tree.
    pub(super) fn close(self) -> (Child, Owner) {
        let ([front, middle, back], owner) = self.into_parts();
        let front = front.expect("there is always a front");
        let rest = join_some(middle, back);
        let tree = match rest {
            Some(rest) => join(front, rest),
            None => front,
        };
        (tree, owner)
    }

    pub(super) fn owner(&self) -> &Owner {
        &self.middle.owner
    }

    /// A cut for a long read. It does not count as a version of the list.
    pub(super) fn reader(&self) -> Self {
        let middle = Middle { tree: self.middle.tree.clone(), owner: self.middle.owner.reader() };
        Self { front: Arc::clone(&self.front), middle, back: self.back.clone() }
    }

    fn middle_len(&self) -> usize {
        self.middle.tree.as_ref().map_or(0, |tree| tree.len)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.front.len() + self.middle_len() + self.back.as_ref().map_or(0, |back| back.len())
    }

    /// Bytes of memory, shared or not. Cost: O(1).
    pub(super) fn memory_bytes(&self) -> usize {
        /// The owner's block: three counts.
        const OWNER_BYTES: usize = 3 * size_of::<usize>();
        let middle = self.middle.tree.as_ref().map_or(0, |tree| tree.bytes);
        let ends =
            self.front.memory_bytes() + self.back.as_ref().map_or(0, |back| back.memory_bytes());
        size_of::<Self>() + OWNER_BYTES + middle + ends
    }

    /// The chunk that contains the element at this index, and the index of the chunk's first
    /// element.
    #[inline]
    pub(super) fn find(&self, index: usize) -> (&Chunk, usize) {
        let Some(past) = index.checked_sub(self.front.len()) else { return (&self.front, 0) };
        match (&self.middle.tree, &self.back) {
            (Some(tree), _) if past < tree.len => {
                let (chunk, first) = tree.find(past);
                (chunk, self.front.len() + first)
            }
            (_, Some(back)) => (back, self.front.len() + self.middle_len()),
            (_, None) => unreachable!("index={index} len={}", self.len()),
        }
    }

    /// Calls `f` with the chunk that contains the element at this index, for changes, and with the
    /// element's index in it.
    fn edit<R>(&mut self, index: usize, f: &mut dyn FnMut(&mut Handle, usize) -> R) -> R {
        let middle_len = self.middle_len();
        let Some(past) = index.checked_sub(self.front.len()) else {
            return f(&mut self.front, index);
        };
        match (&mut self.middle.tree, &mut self.back) {
            (Some(tree), _) if past < tree.len => tree.edit(past, f),
            (_, Some(back)) => f(back, past - middle_len),
            (_, None) => unreachable!("index={index} is behind the only chunk"),
        }
    }

    /// Copies the parts that a change at this index would have to copy. Returns whether anything
    /// was copied.
    pub(super) fn unshare(&mut self, index: usize) -> bool {
        let is_shared = match (&self.middle.tree, index.checked_sub(self.front.len())) {
            (_, None) => Arc::strong_count(&self.front) > 1,
            (Some(tree), Some(past)) if past < tree.len => tree.is_shared(past),
            _ => self.back.as_ref().is_some_and(|back| Arc::strong_count(back) > 1),
        };
        if is_shared {
            self.edit(index, &mut |chunk, _| _ = own(chunk));
        }
        is_shared
    }

    /// The chunk at one end.
    #[inline]
    pub(super) fn peek(&self, end: End) -> &Chunk {
        match (end, &self.back) {
            (End::Back, Some(back)) => back,
            _ => &self.front,
        }
    }

    #[inline]
    fn peek_mut(&mut self, end: End) -> &mut Handle {
        match (end, &mut self.back) {
            (End::Back, Some(back)) => back,
            _ => &mut self.front,
        }
    }

    /// Adds an element at one end.
    #[inline]
    pub(super) fn push(&mut self, end: End, code: &Code<'_>) {
        if !own(self.peek_mut(end)).push(end, code) {
            self.push_far(end, code);
        }
    }

    /// Adds numbers at the back while the chunk there has room. Returns how many.
    pub(super) fn push_numbers(&mut self, numbers: &[i64]) -> usize {
        own(self.peek_mut(End::Back)).push_words(numbers, item::int)
    }

    /// Adds texts at the back while they are short enough and the chunk there has room. Returns how
    /// many.
    pub(super) fn push_texts(&mut self, texts: &[&[u8]]) -> usize {
        let chunk = own(self.peek_mut(End::Back));
        let fits =
            |text: &&&[u8]| text.len() <= INLINE_MAX && chunk.push(End::Back, &Code::text(text));
        texts.iter().take_while(fits).count()
    }

    /// [`Big::push`] if the chunk has no room: it moves to a larger block, or a new chunk is added.
    #[cold]
    fn push_far(&mut self, end: End, code: &Code<'_>) {
        let (room, len) = (self.memory_bytes() / NEW_ROOM_SHARE, self.len());
        let chunk = self.peek_mut(end);
        if let Some(grown) = chunk.grown(end, code.len()) {
            *chunk = grown;
            if own(chunk).push(end, code) {
                return;
            }
        }
        let mut new = Chunk::empty(room.clamp(NEW_ROOM_MIN.max(code.len()), ROOM_MAX), end);
        let is_pushed = own(&mut new).push(end, code);
        assert!(is_pushed, "an empty chunk has room for {} bytes", code.len());
        self.extend(end, new);
        debug_assert_eq!(self.len(), len + 1, "L2");
    }

    /// Adds a chunk at one end.
    pub(super) fn extend(&mut self, end: End, new: Handle) {
        let mut old = match end {
            End::Front => {
                let old = std::mem::replace(&mut self.front, new);
                if self.back.is_none() {
                    self.back = Some(old);
                    return;
                }
                old
            }
            End::Back => match self.back.replace(new) {
                None => return,
                Some(old) => old,
            },
        };
        trim(&mut old);
        let (old, tree) = (Child::of(old), self.middle.tree.take());
        self.middle.tree = match (end, tree) {
            (_, None) => Some(old),
            (End::Front, Some(tree)) => Some(join(old, tree)),
            (End::Back, Some(tree)) => Some(join(tree, old)),
        };
    }

    /// Removes elements at one end, at most those of the chunk there, and never the whole list.
    #[inline]
    pub(super) fn cut(&mut self, end: End, count: usize) {
        let chunk = self.peek_mut(end);
        debug_assert!(count <= chunk.len(), "count={count} len={}", chunk.len());
        if count == chunk.len() {
            self.replace(end);
        } else {
            own(chunk).cut(end, count);
        }
    }

    /// Drops the chunk at one end (of at least two), and puts its neighbour in its place.
    #[cold]
    fn replace(&mut self, end: End) {
        let next = match self.middle.tree.take() {
            None => None,
            Some(tree) => {
                let (chunk, rest) = pop(tree, end);
                self.middle.tree = rest;
                Some(chunk)
            }
        };
        match (end, next) {
            (End::Back, next) if self.back.is_some() => self.back = next,
            (_, Some(next)) => self.front = next,
            (_, None) => self.front = self.back.take().expect("not all of the list"),
        }
    }

    /// Adds an element before the one at this index, which is not an end. Returns false if its
    /// chunk has no room, and a larger block would not help.
    pub(super) fn insert(&mut self, index: usize, code: &Code<'_>) -> bool {
        self.edit(index, &mut |chunk, at| {
            own(chunk).insert(at, code)
                || chunk.grown(End::Back, code.len()).is_some_and(|grown| {
                    *chunk = grown;
                    own(chunk).insert(at, code)
                })
        })
    }

    /// Replaces an element. Returns false if its chunk has no room, and a larger block would not
    /// help.
    pub(super) fn set(&mut self, index: usize, code: &Code<'_>) -> bool {
        self.edit(index, &mut |chunk, at| {
            own(chunk).set(at, code)
                || chunk.grown(End::Back, code.len()).is_some_and(|grown| {
                    *chunk = grown;
                    own(chunk).set(at, code)
                })
        })
    }

    /// Removes the element at this index, which must not be the only one in its chunk. Returns true
    /// if the chunk may now be worth merging.
    pub(super) fn remove(&mut self, index: usize) -> bool {
        self.edit(index, &mut |chunk, at| {
            own(chunk).remove(at);
            chunk.is_sparse()
        })
    }

    /// Removes elements of one chunk, but not all: `hits` are their indexes in the chunk that
    /// contains `index`. Returns true if the chunk may now be worth merging.
    pub(super) fn remove_all(&mut self, index: usize, hits: &[u16]) -> bool {
        self.edit(index, &mut |chunk, _| {
            remove_all(chunk, hits);
            chunk.is_sparse()
        })
    }

    /// The only chunk of the list, if it has just one.
    pub(super) fn only(&self) -> Option<&Chunk> {
        self.back.is_none().then_some(&*self.front)
    }

    /// Panics when an invariant does not hold.
    pub(super) fn check(&self) {
        for end in [Some(&self.front), self.back.as_ref()].into_iter().flatten() {
            end.check();
            assert!(end.len() > 0, "L2: an empty chunk at an end");
        }
        assert!(self.back.is_some() || self.middle.tree.is_none(), "L1");
        if let Some(tree) = &self.middle.tree {
            tree.check(true);
        }
    }
}
