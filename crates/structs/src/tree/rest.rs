//! Parts of a value whose chunks are returned one by one, to be read or freed.

use super::{Subtree, TreePart};
use crate::chunk::{Coding, End, Handle};
use crate::lazyfree::{self, Dismantle};
use crate::owner::Owner;

/// Chunks freed in one step.
const FREED_AT_ONCE: usize = 32;
/// Smaller parts are freed directly when dropped.
const DEFERRED_BYTES_MIN: usize = 64 * 1024;

/// True if this many bytes are worth freeing later.
pub(crate) fn is_worth_deferring(bytes: usize) -> bool {
    bytes >= DEFERRED_BYTES_MIN
}

/// Trees whose chunks are returned one by one: a stack with the next one on top.
pub(crate) struct TreeRest<C: Coding> {
    trees: Vec<Subtree<C>>,
    /// The end from which chunks are taken.
    from: End,
    /// Memory of the rest, shared or not.
    bytes: usize,
    /// The owner of the value that the parts belonged to.
    pub(crate) owner: Owner,
}

/// Frees a part of a value: later, if it is large.
pub(crate) fn defer<C: Coding>(tree: Option<Subtree<C>>, owner: Owner) {
    TreeRest::of([tree], owner).defer();
}

impl<C: Coding> TreeRest<C> {
    /// An empty rest of a value, whose chunks will be taken from one end.
    pub(crate) fn new(from: End, owner: Owner) -> Self {
        Self { trees: Vec::new(), from, bytes: 0, owner }
    }

    /// These trees, to be freed.
    pub(crate) fn of(trees: impl IntoIterator<Item = Option<Subtree<C>>>, owner: Owner) -> Self {
        let mut rest = Self::new(End::Front, owner);
        trees.into_iter().flatten().for_each(|tree| rest.push(tree));
        rest
    }

    /// Releases the parts shared with others, which a writer would otherwise have to copy.
    ///
    /// Cost: O(1), a few reference counts.
    pub(crate) fn release_shared(&mut self) {
        for tree in std::mem::take(&mut self.trees) {
            let bytes = tree.bytes;
            match tree.into_inner() {
                Some(TreePart::TreeNode(children)) => self.trees.extend(children),
                Some(TreePart::Chunk(_)) | None => self.bytes = self.bytes.saturating_sub(bytes),
            }
        }
    }

    fn defer(mut self) {
        self.release_shared();
        if is_worth_deferring(self.bytes) {
            lazyfree::defer(Box::new(self));
        }
    }

    /// The next chunk, for reading. Opening a shared node increments the counts of up to 32
    /// children at once.
    pub(crate) fn next(&mut self) -> Option<Handle<C>> {
        loop {
            match self.pop()?.open() {
                TreePart::Chunk(chunk) => return Some(chunk),
                TreePart::TreeNode(children) => self.extend(children),
            }
        }
    }

    /// Drops the chunks of the next `count` items. Returns the number of items still to be skipped
    /// in the next chunk.
    pub(crate) fn skip(&mut self, mut count: usize) -> usize {
        let mut gone = Vec::new();
        while let Some(tree) = self.trees.pop() {
            if tree.len <= count {
                count -= tree.len;
                self.bytes = self.bytes.saturating_sub(tree.bytes);
                gone.push(tree);
                continue;
            }
            if !tree.is_node() {
                self.trees.push(tree);
                break;
            }
            if let TreePart::TreeNode(children) = tree.open() {
                self.extend(children);
            }
        }
        Self::of(gone.into_iter().map(Some), self.owner.of_part()).defer();
        count
    }

    /// Replaces a node by its children, whose bytes are already counted.
    fn extend(&mut self, children: Vec<Subtree<C>>) {
        match self.from {
            End::Front => self.trees.extend(children.into_iter().rev()),
            End::Back => self.trees.extend(children),
        }
    }

    /// Pushes a tree in front of the others.
    pub(crate) fn push(&mut self, tree: Subtree<C>) {
        self.bytes += tree.bytes;
        self.trees.push(tree);
    }

    fn pop(&mut self) -> Option<Subtree<C>> {
        let tree = self.trees.pop()?;
        // Most of a node's bytes are its children's, which are subtracted when these are taken.
        self.bytes = self.bytes.saturating_sub(if tree.is_node() { 0 } else { tree.bytes });
        Some(tree)
    }
}

impl<C: Coding> Dismantle for TreeRest<C> {
    fn dismantle(&mut self) -> bool {
        for _ in 0..FREED_AT_ONCE {
            // A part that a cut shares will be freed with the cut.
            match self.pop().map(Subtree::into_inner) {
                Some(Some(TreePart::TreeNode(children))) => self.trees.extend(children),
                Some(_) => {}
                None => return false,
            }
        }
        !self.trees.is_empty()
    }

    /// An upper bound: parts that cuts share are not freed.
    fn bytes(&self) -> usize {
        if self.owner.is_shared() || self.trees.is_empty() { 0 } else { self.bytes }
    }
}

/// The unread rest, freed in slices when it is dropped.
pub(crate) struct Unread<C: Coding>(pub(crate) TreeRest<C>);

impl<C: Coding> Drop for Unread<C> {
    fn drop(&mut self) {
        let rest = &mut self.0;
        let (trees, owner) = (std::mem::take(&mut rest.trees), rest.owner.retire());
        TreeRest { trees, from: rest.from, bytes: rest.bytes, owner }.defer();
    }
}
