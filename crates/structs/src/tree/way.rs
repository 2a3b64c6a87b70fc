//! Ways: the path found by a search by content, so that the change after it need not search again.
//!
//! A change by index sums lengths at every level to find its chunk, and then walks to the item. If
//! a search has just found the item, its way is reused instead.

use super::{Link, Subtree, TreeNode, insert, merge_near, own_node, remove_range};
use crate::chunk::{Chunk, Coding, Encoded, End, Handle, own};
use crate::table::prefetch;
use std::ptr;
use std::sync::Arc;

/// Levels of the highest possible tree: with eight children a node it has more chunks than there
/// are addresses.
const LEVELS_MAX: usize = 16;

/// Searches that are prefetched together, at most.
pub(crate) const PREFETCHED_MAX: usize = 16;

/// The path to a chunk: the index of the child at each level, from the root.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Way {
    children: [u8; LEVELS_MAX],
    len: usize,
}

impl Way {
    fn push(&mut self, child: usize) {
        self.children[self.len] = child as u8;
        self.len += 1;
    }
}

/// A place in a tree: the way to a chunk, and an item in it or its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreeSpot {
    pub(crate) way: Way,
    /// The item's index in its chunk, and its offset there.
    pub(crate) index: usize,
    pub(crate) offset: usize,
}

/// The chunk that a search has reached.
pub(crate) struct Reached<'a, C: Coding> {
    pub(crate) chunk: &'a Chunk<C>,
    pub(crate) way: Way,
    /// The number of items, known without reading the chunk.
    pub(crate) len: usize,
    /// The search key of its first item, and that of the next chunk, if there is one.
    pub(crate) first: C::First,
    pub(crate) next: Option<C::First>,
}

/// A search by the keys that nodes store for the first items of their children.
pub(crate) struct TreeSearch<L, E, B> {
    /// True if the child begins before the target.
    pub(crate) is_less: L,
    /// True if the child itself must be read: then [`TreeSearch::is_before`] decides.
    pub(crate) is_equal: E,
    pub(crate) is_before: B,
}

impl<C: Coding> TreeNode<C> {
    /// Prefetches the memory that a search reads.
    #[inline]
    fn prefetch(&self) {
        const LINE: usize = 64;
        let firsts = self.firsts.as_ptr().cast::<u8>();
        let lines = size_of_val(&self.firsts).div_ceil(LINE);
        (0..=lines).for_each(|line| prefetch(firsts.wrapping_add(line * LINE)));
        prefetch(ptr::from_ref(&self.children).cast());
    }

    /// The last child that begins before the target; the first child if there is none.
    #[inline]
    pub(super) fn search<L, E, B>(&self, search: &TreeSearch<L, E, B>) -> usize
    where
        L: Fn(C::First) -> bool,
        E: Fn(C::First) -> bool,
        B: Fn(&Subtree<C>) -> bool,
    {
        let firsts = &self.firsts[..self.children.len()];
        let mut low = count_first(firsts, &search.is_less);
        let mut high = low;
        while high < firsts.len() && (search.is_equal)(firsts[high]) {
            high += 1;
        }
        while low < high {
            let middle = usize::midpoint(low, high);
            if (search.is_before)(&self.children[middle]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }
}

/// The number of leading keys for which `is_less` holds. Branches would be as random as the target,
/// so the last key of each group is compared, and then all keys of one group.
#[inline(always)] // This is most of the work of a search.
fn count_first<F: Copy>(firsts: &[F], is_less: impl Fn(F) -> bool) -> usize {
    const GROUP: usize = 8;
    // Counted in integers as short as hashes, so that more fit into a vector register.
    let count = |some: &[F]| some.iter().map(|first| u32::from(is_less(*first))).sum::<u32>();
    let groups = firsts.as_chunks::<GROUP>().0.iter();
    let before: usize = groups.map(|group| usize::from(is_less(group[GROUP - 1]))).sum();
    let rest = &firsts[before * GROUP..];
    let among = match rest.first_chunk::<GROUP>() {
        Some(group) => count(group),
        None => count(rest),
    };
    before * GROUP + among as usize
}

impl<C: Coding> Subtree<C> {
    /// The last chunk that begins before the target, and the way to it; the first chunk if there is
    /// none.
    #[inline]
    pub(crate) fn search<L, E, B>(&self, search: &TreeSearch<L, E, B>) -> Reached<'_, C>
    where
        L: Fn(C::First) -> bool,
        E: Fn(C::First) -> bool,
        B: Fn(&Self) -> bool,
    {
        let (mut at, mut way, mut next) = (self, Way::default(), None);
        loop {
            match &at.link {
                Link::Chunk(chunk) => {
                    return Reached { chunk, way, len: at.len, first: at.first, next };
                }
                Link::TreeNode(node) => {
                    let child = node.search(search);
                    way.push(child);
                    at = &node.children[child];
                    next = node.firsts[..node.children.len()].get(child + 1).copied().or(next);
                }
            }
        }
    }

    /// The last chunk for which `is_before` holds, and the index of its first item; the first chunk
    /// if there is none. `is_before` must hold for all children up to some point, and for none
    /// after it.
    pub(crate) fn seek(&self, is_before: impl Fn(C::First, &Self) -> bool) -> (&Chunk<C>, usize) {
        let is_before = |child: &Self| is_before(child.first, child);
        let search = TreeSearch { is_less: |_| false, is_equal: |_| true, is_before };
        let Reached { chunk, way, .. } = self.search(&search);
        (chunk, self.index_of(&TreeSpot { way, ..TreeSpot::default() }))
    }

    /// Prefetches the chunks of several searches level by level, so that their cache misses
    /// overlap. Each node is awaited twice (its keys, then the child), each chunk once (its head).
    /// `part` is a relative position between the first items of its chunk and of the next.
    #[inline]
    pub(crate) fn prefetch_all<T: Copy, L, E, B>(
        &self,
        wanted: &[T],
        search: impl Fn(T) -> TreeSearch<L, E, B>,
        part: impl Fn(T, C::First, C::First) -> f64,
        prefetch_items: fn(&Chunk<C>, f64),
    ) where
        L: Fn(C::First) -> bool,
        E: Fn(C::First) -> bool,
        B: Fn(&Self) -> bool,
    {
        let Some(first) = wanted.first() else { return };
        let mut ways = [(*first, self, None); PREFETCHED_MAX];
        let ways = &mut ways[..wanted.len().min(PREFETCHED_MAX)];
        ways.iter_mut().zip(wanted).for_each(|(way, wanted)| way.0 = *wanted);
        while let Link::TreeNode(_) = &ways[0].1.link {
            for (wanted, at, next) in &mut *ways {
                let Link::TreeNode(node) = &at.link else {
                    unreachable!("N2: all are of one level")
                };
                let child = node.search(&search(*wanted));
                *next = node.firsts[..node.children.len()].get(child + 1).copied().or(*next);
                *at = &node.children[child];
                prefetch(ptr::from_ref(*at).cast());
            }
            for (_, at, _) in &*ways {
                match &at.link {
                    Link::TreeNode(node) => node.prefetch(),
                    Link::Chunk(chunk) => Chunk::prefetch_head(chunk),
                }
            }
        }
        for (wanted, at, next) in &*ways {
            if let Link::Chunk(chunk) = &at.link {
                let share = next.map_or(0.5, |next| part(*wanted, at.first, next));
                prefetch_items(chunk, share.clamp(0.0, 1.0));
            }
        }
    }

    /// The index of the item at a spot.
    #[inline]
    pub(crate) fn index_of(&self, spot: &TreeSpot) -> usize {
        let (mut at, mut before) = (self, 0);
        for child in &spot.way.children[..spot.way.len] {
            let Link::TreeNode(node) = &at.link else { unreachable!("a way leads through nodes") };
            before += node.lens[..usize::from(*child)].iter().sum::<usize>();
            at = &node.children[usize::from(*child)];
        }
        before + spot.index
    }

    /// The spot of the item at this index.
    pub(crate) fn spot_of(&self, index: usize) -> TreeSpot {
        let (mut at, mut way, mut rest) = (self, Way::default(), index);
        loop {
            match &at.link {
                Link::Chunk(chunk) => {
                    return TreeSpot { way, index: rest, offset: chunk.offset(rest) };
                }
                Link::TreeNode(node) => {
                    let (child, before) = node.locate(rest, at.len);
                    rest -= before;
                    way.push(child);
                    at = &node.children[child];
                }
            }
        }
    }

    /// True if a change at the end of a way would copy anything.
    pub(crate) fn is_shared_at(&self, way: &Way) -> bool {
        let mut at = self;
        for child in &way.children[..way.len] {
            let Link::TreeNode(node) = &at.link else { unreachable!("a way leads through nodes") };
            if Arc::strong_count(node) > 1 {
                return true;
            }
            at = &node.children[usize::from(*child)];
        }
        matches!(&at.link, Link::Chunk(chunk) if Arc::strong_count(chunk) > 1)
    }

    /// Calls `f` with the chunk at the end of a way, for changes. Copies the nodes on the way if
    /// cuts share them.
    #[inline]
    pub(crate) fn edit_at<R>(&mut self, way: &Way, f: &mut dyn FnMut(&mut Handle<C>) -> R) -> R {
        self.edit_below(&way.children[..way.len], f)
    }

    fn edit_below<R>(&mut self, way: &[u8], f: &mut dyn FnMut(&mut Handle<C>) -> R) -> R {
        match (&mut self.link, way) {
            (Link::TreeNode(node), [at, rest @ ..]) => {
                let (node, at) = (own_node(node), usize::from(*at));
                let child = &mut node.children[at];
                let (len, bytes) = (child.len, child.bytes);
                let result = child.edit_below(rest, f);
                self.len = self.len - len + child.len;
                self.bytes = self.bytes - bytes + child.bytes;
                (node.lens[at], node.firsts[at]) = (child.len, child.first);
                self.first = node.firsts[0];
                result
            }
            (Link::Chunk(chunk), []) => {
                let result = f(chunk);
                (self.len, self.bytes) = (chunk.len(), chunk.memory_bytes());
                self.first = C::first(chunk.items());
                result
            }
            _ => unreachable!("a way leads through nodes to a chunk"),
        }
    }
}

/// Adds an item at a spot. Cost: O(log n).
#[inline]
pub(crate) fn insert_at<C: Coding>(
    tree: &mut Option<Subtree<C>>,
    spot: &TreeSpot,
    code: &C::Code<'_>,
) {
    let Some(root) = tree else { return insert(tree, 0, code) };
    let is_first = spot.index == 0 && spot.way.children == Way::default().children;
    let end = if is_first { End::Front } else { End::Back };
    let (index, offset) = (spot.index, spot.offset);
    let is_added = root.edit_at(&spot.way, &mut |chunk| {
        own(chunk).insert_at(index, offset, code)
            || chunk.grown(end, code.len()).is_some_and(|grown| {
                *chunk = grown;
                own(chunk).insert_at(index, offset, code)
            })
    });
    if !is_added {
        let index = root.index_of(spot);
        insert(tree, index, code);
    }
}

/// Removes the item at this index. Cost: O(log n).
pub(crate) fn remove<C: Coding>(tree: &mut Option<Subtree<C>>, index: usize) {
    let spot = tree.as_ref().expect("the item is there").spot_of(index);
    remove_at(tree, &spot);
}

/// Removes the item at a spot. Returns true if its chunk was removed, too, or merged with a
/// neighbour.
/// Cost: O(log n).
#[inline]
pub(crate) fn remove_at<C: Coding>(tree: &mut Option<Subtree<C>>, spot: &TreeSpot) -> bool {
    let root = tree.as_mut().expect("the item is there");
    // `None` if it is the only item of its chunk.
    let is_sparse = root.edit_at(&spot.way, &mut |chunk| {
        (chunk.len() > 1).then(|| {
            let chunk = own(chunk);
            chunk.remove_at(spot.index, spot.offset);
            chunk.is_sparse()
        })
    });
    if is_sparse == Some(false) {
        return false;
    }
    let index = root.index_of(spot);
    if is_sparse.is_some() {
        return merge_near(tree, index);
    }
    drop(remove_range(tree, index..index + 1));
    true
}
