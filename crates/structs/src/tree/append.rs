//! Builds a tree from front to back, or from back to front.

use super::{Subtree, join_some};
use crate::chunk::{Chunk, Coding, Encoded, End, Handle, ROOM_MAX, own, trim};

/// A tree that is extended at one end.
pub(crate) struct Appender<C: Coding> {
    end: End,
    tree: Option<Subtree<C>>,
    /// The chunk being filled at that end.
    chunk: Option<Handle<C>>,
}

impl<C: Coding> Default for Appender<C> {
    fn default() -> Self {
        Self::at(End::Back)
    }
}

impl<C: Coding> Appender<C> {
    /// An appender at this end of a new tree.
    pub(crate) fn at(end: End) -> Self {
        Self { end, tree: None, chunk: None }
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tree = self.tree.as_ref().map_or(0, |tree| tree.bytes);
        tree + self.chunk.as_ref().map_or(0, |chunk| chunk.memory_bytes())
    }

    /// Adds an item. Cost: O(1); O(log n) for about one in a hundred.
    #[inline]
    pub(crate) fn push(&mut self, code: &C::Code<'_>) {
        let fits = |chunk: &mut Handle<C>| own(chunk).push(self.end, code);
        if !self.chunk.as_mut().is_some_and(fits) {
            self.begin();
            let chunk = self.chunk.as_mut().expect("begun");
            let is_pushed = own(chunk).push(self.end, code);
            assert!(is_pushed, "an empty chunk has room for {} bytes", code.len());
        }
    }

    /// Adds items at the back, none of which refers to memory elsewhere. `code` returns an item's
    /// bytes at the front of a word, and their number. Cost: O(words).
    pub(crate) fn push_words<T: Copy, const WORD: usize>(
        &mut self,
        items: &[T],
        code: impl Fn(T) -> ([u8; WORD], usize),
    ) {
        assert!(self.end == End::Back, "words are added at the back");
        let mut left = items;
        while !left.is_empty() {
            let chunk = self.chunk.as_mut();
            let added = chunk.map_or(0, |chunk| own(chunk).push_words(left, &code));
            left = &left[added..];
            if !left.is_empty() {
                self.begin();
            }
        }
    }

    /// Starts a chunk.
    #[cold]
    fn begin(&mut self) {
        self.attach();
        self.chunk = Some(Chunk::empty(ROOM_MAX, self.end));
    }

    fn attach(&mut self) {
        if let Some(mut chunk) = self.chunk.take() {
            trim(&mut chunk);
            let (tree, new) = (self.tree.take(), Some(Subtree::of(chunk)));
            self.tree = match self.end {
                End::Back => join_some(tree, new),
                End::Front => join_some(new, tree),
            };
        }
    }

    /// Returns the tree.
    pub(crate) fn finish(mut self) -> Option<Subtree<C>> {
        self.attach();
        self.tree
    }
}
