//! Items in the order of their keys, IDs mostly: a counted tree, searched by key and by rank.

use super::item::{Code, Nothing};
use crate::chunk::{Chunk, Coding, own};
use crate::owner::Owner;
use crate::tree::{self, Subtree, defer};
use std::ops::Range;

/// The items of such a tree begin with their keys.
pub(super) trait Keyed: for<'a> Coding<First: Ord, Long = Nothing, Code<'a> = Code> {}

impl<C> Keyed for C where C: for<'a> Coding<First: Ord, Long = Nothing, Code<'a> = Code> {}

/// See the module. Cloning it is a cut.
#[derive(Clone)]
pub(super) struct Ordered<C: Keyed> {
    tree: Option<Subtree<C>>,
    owner: Owner,
}

impl<C: Keyed> Default for Ordered<C> {
    fn default() -> Self {
        Self { tree: None, owner: Owner::default() }
    }
}

impl<C: Keyed> Drop for Ordered<C> {
    fn drop(&mut self) {
        if let Some(tree) = self.tree.take() {
            defer(Some(tree), self.owner.retire());
        }
    }
}

impl<C: Keyed> Ordered<C> {
    pub(super) fn len(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.len)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.bytes)
    }

    /// How many items have a smaller key.
    #[inline]
    pub(super) fn rank_of(&self, key: C::First) -> usize {
        let Some(tree) = &self.tree else { return 0 };
        let (chunk, first) = tree.seek(|first, _| first < key);
        first + lower_bound(chunk, key).0
    }

    /// The rank of the item with this key, or the rank that it would have.
    #[inline]
    fn place(&self, key: C::First) -> Result<usize, usize> {
        let Some(tree) = &self.tree else { return Err(0) };
        let (chunk, first) = tree.seek(|first, _| first <= key);
        let (index, offset) = lower_bound(chunk, key);
        let is_there = offset < chunk.items().len() && C::first(&chunk.items()[offset..]) == key;
        if is_there { Ok(first + index) } else { Err(first + index) }
    }

    /// The bytes of the item with this key, at their front.
    #[inline]
    pub(super) fn get(&self, key: C::First) -> Option<&[u8]> {
        let (chunk, _) = self.tree.as_ref()?.seek(|first, _| first <= key);
        let items = &chunk.items()[lower_bound(chunk, key).1..];
        (!items.is_empty() && C::first(items) == key).then_some(items)
    }

    /// Adds an item, or replaces the one with its key. Returns whether it was there.
    #[inline]
    pub(super) fn put(&mut self, key: C::First, code: &Code) -> bool {
        let (place, len) = (self.place(key), self.len());
        debug_assert!(place.is_err() || len > 0, "found among none");
        match (place, &mut self.tree) {
            (Ok(rank), Some(tree)) => {
                if !tree.edit(rank, &mut |chunk, at| own(chunk).set(at, code)) {
                    tree::remove(&mut self.tree, rank);
                    tree::insert(&mut self.tree, rank, code);
                }
                true
            }
            (Ok(_), None) => unreachable!("found in no tree"),
            (Err(rank), tree) => {
                if tree.is_none() {
                    self.owner = Owner::new();
                }
                tree::insert(tree, rank, code);
                assert_eq!(self.len(), len + 1, "{key:?} was added");
                false
            }
        }
    }

    /// Removes the item with this key. Returns whether it was there.
    #[inline]
    pub(super) fn remove(&mut self, key: C::First) -> bool {
        let Ok(rank) = self.place(key) else { return false };
        let len = self.len();
        tree::remove(&mut self.tree, rank);
        assert_eq!(self.len() + 1, len, "{key:?} was removed");
        true
    }

    /// The bytes of the items with these ranks, as far as there are some: each at the front of its own.
    ///
    /// Cost: O(log n) for each chunk, and some nanoseconds each.
    pub(super) fn range(&self, ranks: Range<usize>) -> Walk<'_, C> {
        let end = ranks.end.min(self.len());
        Walk { of: self, items: &[], next: ranks.start, end }
    }

    /// Panics when an invariant does not hold.
    pub(super) fn check(&self) {
        if let Some(tree) = &self.tree {
            tree.check(true);
        }
        let keys: Vec<_> = self.range(0..self.len()).map(C::first).collect();
        assert!(keys.is_sorted_by(|one, other| one < other), "in the order of keys");
        assert_eq!(keys.len(), self.len());
    }
}

/// Items, ascending: see [`Ordered::range`].
pub(super) struct Walk<'a, C: Keyed> {
    of: &'a Ordered<C>,
    /// From the next item to the end of its chunk; empty before the first of a chunk.
    items: &'a [u8],
    next: usize,
    end: usize,
}

impl<'a, C: Keyed> Iterator for Walk<'a, C> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.next >= self.end {
            return None;
        }
        if self.items.is_empty() {
            let (chunk, first) = self.of.tree.as_ref()?.find(self.next);
            self.items = &chunk.items()[chunk.offset(self.next - first)..];
        }
        let item = self.items;
        self.items = &item[C::len(item)..];
        self.next += 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end.saturating_sub(self.next);
        (left, Some(left))
    }
}

/// How many items of a chunk have a smaller key, and the offset of the first that has not.
#[inline]
fn lower_bound<C: Keyed>(chunk: &Chunk<C>, key: C::First) -> (usize, usize) {
    let items = chunk.items();
    let is_before = |offset: usize| C::first(&items[offset..]) < key;
    let (mut index, mut offset) = chunk.last_mark(is_before);
    while offset < items.len() && is_before(offset) {
        offset += C::len(&items[offset..]);
        index += 1;
    }
    (index, offset)
}
