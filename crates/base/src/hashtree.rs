//! A map by hashes that is grown, read and freed without a long step.
//!
//! A hash table of a million entries moves as a whole when it grows, which takes milliseconds. Here
//! a table that has more than [`LEAF_MAX`] entries becomes sixteen, by the next four bits of the
//! hashes: a step of growth moves one of them. A small map is one table, without extra cost.
//! Removal does not shrink the tree; removing the last entry frees it.
//!
//! ```text
//! hash    | 32 bits: at the leaves | 24: which child, four for each level | 8: at the leaves |
//! ```
//! Invariants (`check_invariants`):
//! - H1: an entry is in the leaf to which its hash leads.
//! - H2: `len` is the sum over all leaves, and `most` at least that.

use crate::hash::IdentityMap;
use crate::lazyfree::{self, Dismantle};

/// A leaf with more entries is split.
const LEAF_MAX: usize = 256;
/// Children of a node.
const CHILDREN: usize = 16;
/// Bits of a hash that choose a child at one level, and the position of the first one.
const BITS: u32 = 4;
const FIRST: u32 = 32;
/// A leaf at this depth is not split.
const DEPTH_MAX: u32 = 6;

const _: () = assert!(1 << BITS == CHILDREN && FIRST + BITS * DEPTH_MAX <= 56);

#[derive(Clone, Debug)]
enum Node<V> {
    Leaf(IdentityMap<V>),
    Inner(Box<[Node<V>; CHILDREN]>),
}

/// A map by hashes; see the module's documentation.
#[derive(Clone, Debug)]
pub struct HashTree<V: 'static> {
    root: Node<V>,
    len: usize,
    /// The highest number of entries so far: the leaves have room for them.
    most: usize,
}

impl<V: 'static> Default for HashTree<V> {
    fn default() -> Self {
        Self { root: Node::Leaf(IdentityMap::default()), len: 0, most: 0 }
    }
}

fn child_at(hash: u64, depth: u32) -> usize {
    (hash >> (FIRST + BITS * depth)) as usize % CHILDREN
}

impl<V: 'static> HashTree<V> {
    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True while the map is a single table.
    #[must_use]
    pub fn is_small(&self) -> bool {
        matches!(self.root, Node::Leaf(_))
    }

    /// The value of a hash.
    #[inline]
    #[must_use]
    pub fn get(&self, hash: u64) -> Option<&V> {
        let (mut node, mut depth) = (&self.root, 0);
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.get(&hash),
                Node::Inner(children) => node = &children[child_at(hash, depth)],
            }
            depth += 1;
        }
    }

    /// The value of a hash, to be changed.
    #[must_use]
    pub fn get_mut(&mut self, hash: u64) -> Option<&mut V> {
        let (Node::Leaf(leaf), _) = self.leaf_of(hash) else { unreachable!("it ends at a leaf") };
        leaf.get_mut(&hash)
    }

    /// The leaf of a hash, and its depth.
    fn leaf_of(&mut self, hash: u64) -> (&mut Node<V>, u32) {
        let (mut node, mut depth) = (&mut self.root, 0);
        while let Node::Inner(children) = node {
            node = &mut children[child_at(hash, depth)];
            depth += 1;
        }
        (node, depth)
    }

    /// Removes a hash, and returns its value.
    pub fn remove(&mut self, hash: u64) -> Option<V> {
        let (Node::Leaf(leaf), _) = self.leaf_of(hash) else { unreachable!("it ends at a leaf") };
        let old = leaf.remove(&hash)?;
        self.len -= 1;
        if self.is_empty() && !self.is_small() {
            *self = Self::default();
        }
        Some(old)
    }

    /// Sets the value of a hash; returns the one before.
    pub fn insert(&mut self, hash: u64, value: V) -> Option<V> {
        let (node, depth) = self.leaf_of(hash);
        let Node::Leaf(leaf) = node else { unreachable!("it ends at a leaf") };
        let old = leaf.insert(hash, value);
        if leaf.len() > LEAF_MAX && depth < DEPTH_MAX {
            split(node, depth);
        }
        self.len += usize::from(old.is_none());
        self.most = self.most.max(self.len);
        old
    }

    /// The entries of a leaf, and the path of the next leaf, if there is one. The first path is 0.
    /// If a leaf has been split since, its children are visited instead.
    #[must_use]
    pub fn leaf(&self, path: u32) -> (&IdentityMap<V>, Option<u32>) {
        let (mut node, mut depth) = (&self.root, 0);
        while let Node::Inner(children) = node {
            let left = BITS * (DEPTH_MAX - 1 - depth);
            node = &children[(path >> left) as usize % CHILDREN];
            depth += 1;
        }
        let Node::Leaf(leaf) = node else { unreachable!("the loop ends at a leaf") };
        let step = BITS * (DEPTH_MAX - depth);
        let next = ((path >> step) + 1) << step;
        (leaf, (next < 1 << (BITS * DEPTH_MAX)).then_some(next))
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        let mut next = Some(0);
        let leaves = std::iter::from_fn(move || {
            let (leaf, after) = self.leaf(next?);
            next = after;
            Some(leaf)
        });
        leaves.flatten().map(|(hash, value)| (*hash, value))
    }

    /// Asserts the invariants. Cost: O(entries): for tests.
    pub fn check_invariants(&self) {
        let (mut next, mut len) = (Some(0), 0);
        while let Some(path) = next {
            let (leaf, after) = self.leaf(path);
            let here = |hash| std::ptr::eq(self.leaf(path_of(hash)).0, leaf);
            assert!(leaf.keys().all(|hash| here(*hash)), "H1: the leaf of {path:x}");
            len += leaf.len();
            next = after;
        }
        assert_eq!(len, self.len, "H2");
        assert!(len <= self.most, "H2: {len} of {}", self.most);
    }
}

/// The path of a hash, down to the deepest level.
fn path_of(hash: u64) -> u32 {
    (0..DEPTH_MAX).fold(0, |path, depth| path << BITS | child_at(hash, depth) as u32)
}

/// Makes a leaf at this depth a node with leaves.
#[cold]
fn split<V>(node: &mut Node<V>, depth: u32) {
    let Node::Leaf(leaf) = node else { unreachable!("a leaf is split") };
    let entries = std::mem::take(leaf);
    let mut leaves: [IdentityMap<V>; CHILDREN] = Default::default();
    for (hash, value) in entries {
        leaves[child_at(hash, depth)].insert(hash, value);
    }
    *node = Node::Inner(Box::new(leaves.map(Node::Leaf)));
}

impl<V: 'static> Drop for HashTree<V> {
    fn drop(&mut self) {
        if !self.is_small() {
            let root = std::mem::replace(&mut self.root, Node::Leaf(IdentityMap::default()));
            lazyfree::defer(Box::new(FreedTree { nodes: vec![root], room: self.most }));
        }
    }
}

/// The nodes of a dropped tree, waiting to be freed.
struct FreedTree<V> {
    nodes: Vec<Node<V>>,
    /// The entries that the nodes have room for.
    room: usize,
}

impl<V: 'static> Dismantle for FreedTree<V> {
    fn dismantle(&mut self) -> bool {
        match self.nodes.pop() {
            Some(Node::Inner(children)) => self.nodes.extend(*children),
            Some(Node::Leaf(leaf)) => self.room = self.room.saturating_sub(leaf.capacity() / 2),
            None => {}
        }
        !self.nodes.is_empty()
    }

    fn bytes(&self) -> usize {
        self.room * size_of::<(u64, V)>() * 2 // A table was half full, at the least.
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preempt::Countdown;

    #[test] // Leaves stay small, and each entry is visited once.
    fn random_insertions_agree_with_a_hash_map() {
        for entries in [0, 10, LEAF_MAX, LEAF_MAX + 1, 100_000] {
            let (mut tree, mut table) = (HashTree::default(), IdentityMap::default());
            for number in 0..entries as u64 {
                let hash = crate::hash::of(&(number / 2).to_le_bytes());
                assert_eq!(tree.insert(hash, number), table.insert(hash, number));
            }
            tree.check_invariants();
            assert_eq!((tree.len(), tree.is_empty()), (table.len(), table.is_empty()));
            assert_eq!(tree.is_small(), table.len() <= LEAF_MAX, "{entries}");
            assert!(table.iter().all(|(hash, number)| tree.get(*hash) == Some(number)));
            assert!((0..1_000).all(|hash| tree.get(hash).is_none()));
            let mut all: Vec<_> = tree.iter().map(|(hash, number)| (hash, *number)).collect();
            all.sort_unstable();
            let mut expected: Vec<_> = table.into_iter().collect();
            expected.sort_unstable();
            assert_eq!(all, expected);
        }
    }

    #[test] // Mostly insertions first, then mostly removals.
    fn random_insertions_and_removals_agree_with_a_hash_map() {
        const HASHES: u64 = 5_000;
        let hash = |number: u64| crate::hash::of(&number.to_le_bytes());
        let mut prng = crate::Prng::from_seed(7);
        let (mut tree, mut table) = (HashTree::default(), IdentityMap::default());
        for step in 0..40_000_u64 {
            let hash = hash(prng.below(HASHES));
            if (prng.below(4) == 0) == (step < 20_000) {
                assert_eq!(tree.remove(hash), table.remove(&hash), "{step}");
            } else {
                assert_eq!(tree.insert(hash, step), table.insert(hash, step), "{step}");
            }
            if let Some(value) = tree.get_mut(hash) {
                *value += 1;
            }
            table.entry(hash).and_modify(|value| *value += 1);
            assert_eq!((tree.get(hash), tree.len()), (table.get(&hash), table.len()), "{step}");
        }
        tree.check_invariants();
        assert!(!tree.is_small() && !tree.is_empty());
        (0..HASHES)
            .for_each(|number| assert_eq!(tree.remove(hash(number)), table.remove(&hash(number))));
        assert!(tree.is_small() && tree.is_empty(), "what it had room for went with the last");
        assert!(lazyfree::waiting().1 > HASHES as usize / 2 * size_of::<(u64, u64)>());
        while lazyfree::run(&Countdown::new(0)) {}
    }

    #[test] // The depth is bounded.
    fn a_leaf_of_equal_hash_bits_is_not_split_forever() {
        let mut tree = HashTree::default();
        (0..10 * LEAF_MAX as u64).for_each(|hash| _ = tree.insert(hash, ()));
        tree.check_invariants();
        assert_eq!(tree.iter().count(), 10 * LEAF_MAX);
    }

    #[test] // One node a portion; a small tree is freed at once.
    fn a_large_tree_is_freed_in_portions() {
        let mut tree = HashTree::default();
        (0..100_000_u64).for_each(|at| _ = tree.insert(crate::hash::of(&at.to_le_bytes()), at));
        drop(tree);
        let (_, bytes) = lazyfree::waiting();
        assert!((100_000 * 16..100_000 * 64).contains(&bytes), "{bytes}");
        let mut portions = 1;
        while lazyfree::run(&Countdown::new(0)) {
            portions += 1;
        }
        assert!(portions > 100_000 / LEAF_MAX, "{portions}");
        drop(HashTree::<u64>::default());
        assert!(lazyfree::is_empty());
    }
}
