//! A sequence of chunks in a counted tree, which is split and joined in O(log n). Used for the
//! middle of a list, and for all of a sorted set.
//!
//! ```text
//! Child -> node: level 2 | len, bytes, -> | len, bytes, -> | ...             8 to 32 children
//!                             node: level 1 | len, bytes, -> | ...
//!                                                  chunk
//! ```
//! A tree is a [`Subtree`]: a link to a node or to a single chunk, with the sums below it. Two
//! operations change its shape: [`split`] at an index, and [`join`] of two trees of any heights.
//! Nodes are shared between a value and its cuts, and copied before they are changed.
//!
//! Invariants:
//! - N1: `len` and `bytes` of a child are the sums over all below it, its own node included;
//!   `first` is that of its first item.
//! - N2: all children of a node of level n are of level n - 1; chunks are of level 0.
//! - N3: a node has [`CHILDREN_MAX`] children at most, two or more if it is the root, and
//!   [`CHILDREN_MIN`] or more if it is not.

mod append;
mod change;
mod rest;
mod way;

pub(crate) use append::Appender;
use change::merge_near;
pub(crate) use change::{insert, join_seam, remove_range};
pub(crate) use rest::{TreeRest, Unread, defer, is_worth_deferring};
pub(crate) use way::{PREFETCHED_MAX, Reached, TreeSearch, TreeSpot, insert_at, remove, remove_at};

use crate::chunk::{Chunk, Coding, End, Handle};
use crate::kept;
use crate::table::get_mut;
use std::cmp::Ordering;
use std::sync::Arc;

/// The most children of a node. With more, copying a node would take longer: the count of each
/// child is incremented, at a cache miss.
pub(crate) const CHILDREN_MAX: usize = 32;
/// The fewest children of a node that is not the root. Far below half, so that nodes filled from
/// one end stay nearly full.
const CHILDREN_MIN: usize = 8;
/// Memory of a node.
const fn node_bytes<C: Coding>() -> usize {
    2 * size_of::<usize>() + size_of::<TreeNode<C>>() + CHILDREN_MAX * size_of::<Subtree<C>>()
}

/// A tree, or a part of one.
#[derive(Clone)]
pub(crate) struct Subtree<C: Coding> {
    /// The number of elements.
    pub(crate) len: usize,
    /// Memory of chunks and nodes, shared or not.
    pub(crate) bytes: usize,
    /// The search key of the first item.
    pub(crate) first: C::First,
    link: Link<C>,
}

#[derive(Clone)]
enum Link<C: Coding> {
    Chunk(Handle<C>),
    TreeNode(Arc<TreeNode<C>>),
}

/// An inner node.
pub(crate) struct TreeNode<C: Coding> {
    level: u8,
    /// The lengths and search keys of the children, stored contiguously: a search reads a few cache
    /// lines of them, and one child.
    lens: [usize; CHILDREN_MAX],
    firsts: [C::First; CHILDREN_MAX],
    children: Vec<Subtree<C>>,
}

impl<C: Coding> Clone for TreeNode<C> {
    fn clone(&self) -> Self {
        let mut children = Vec::with_capacity(CHILDREN_MAX);
        children.extend_from_slice(&self.children);
        Self { children, ..*self }
    }
}

impl<C: Coding> TreeNode<C> {
    /// Updates the lengths and search keys of the children.
    fn learn(&mut self) {
        for (at, child) in self.children.iter().enumerate() {
            (self.lens[at], self.firsts[at]) = (child.len, child.first);
        }
    }

    /// The child that contains the element at this index, and the number of elements before the
    /// child. There are `len` elements. Counts from the nearer end, where most changes are.
    #[inline]
    fn locate(&self, index: usize, len: usize) -> (usize, usize) {
        let lens = self.lens[..self.children.len()].iter().enumerate();
        if index < len / 2 {
            let mut before = 0;
            for (at, len) in lens {
                if index - before < *len {
                    return (at, before);
                }
                before += len;
            }
        } else {
            let mut before = len;
            for (at, len) in lens.rev() {
                before -= len;
                if index >= before {
                    return (at, before);
                }
            }
        }
        unreachable!("index={index} of {len}");
    }
}

/// The node for changes; copied first if a cut shares it.
#[inline]
fn own_node<C: Coding>(node: &mut Arc<TreeNode<C>>) -> &mut TreeNode<C> {
    if Arc::strong_count(node) != 1 {
        kept::note_part(size_of::<TreeNode<C>>() + CHILDREN_MAX * size_of::<Subtree<C>>());
        *node = Arc::new((**node).clone());
    }
    get_mut(node).expect("ours alone")
}

/// The parts of a child.
pub(crate) enum TreePart<C: Coding> {
    Chunk(Handle<C>),
    /// The children of a node.
    TreeNode(Vec<Subtree<C>>),
}

impl<C: Coding> Subtree<C> {
    /// A tree of one chunk.
    pub(crate) fn of(chunk: Handle<C>) -> Self {
        let (len, bytes, first) = (chunk.len(), chunk.memory_bytes(), C::first(chunk.items()));
        Self { len, bytes, first, link: Link::Chunk(chunk) }
    }

    /// A tree over these children: empty, a single child as it is, or a node.
    fn over(level: u8, mut children: Vec<Self>) -> Option<Self> {
        if children.len() <= 1 {
            return children.pop();
        }
        let first = children[0].first;
        let (lens, firsts) = ([0; CHILDREN_MAX], [first; CHILDREN_MAX]);
        let link = Link::TreeNode(Arc::new(TreeNode { level, lens, firsts, children }));
        let mut child = Self { len: 0, bytes: 0, first, link };
        child.sum();
        Some(child)
    }

    fn level(&self) -> u8 {
        match &self.link {
            Link::Chunk(_) => 0,
            Link::TreeNode(node) => node.level,
        }
    }

    fn children(&self) -> &[Self] {
        match &self.link {
            Link::Chunk(_) => &[],
            Link::TreeNode(node) => &node.children,
        }
    }

    /// The children of a node, for changes; copied first if a cut shares them. The caller must call
    /// [`Subtree::sum`] afterwards.
    fn children_mut(&mut self) -> &mut Vec<Self> {
        match &mut self.link {
            Link::Chunk(_) => unreachable!("a chunk has no children"),
            Link::TreeNode(node) => &mut own_node(node).children,
        }
    }

    /// Takes the tree apart; the counts of children that a cut shares are incremented.
    pub(crate) fn open(self) -> TreePart<C> {
        match self.link {
            Link::Chunk(chunk) => TreePart::Chunk(chunk),
            Link::TreeNode(node) => TreePart::TreeNode(Arc::unwrap_or_clone(node).children),
        }
    }

    /// Takes the tree apart to free it; `None` if a cut shares it, which will free it.
    pub(crate) fn into_inner(self) -> Option<TreePart<C>> {
        match self.link {
            Link::Chunk(chunk) => Some(TreePart::Chunk(chunk)),
            Link::TreeNode(node) => Some(TreePart::TreeNode(Arc::into_inner(node)?.children)),
        }
    }

    /// True for a node, false for a chunk.
    pub(crate) fn is_node(&self) -> bool {
        matches!(self.link, Link::TreeNode(_))
    }

    fn into_children(self) -> Vec<Self> {
        match self.open() {
            TreePart::Chunk(_) => unreachable!("a chunk has no children"),
            TreePart::TreeNode(children) => children,
        }
    }

    /// Recomputes the sums from the children.
    fn sum(&mut self) {
        if let Link::TreeNode(node) = &mut self.link {
            Arc::make_mut(node).learn();
        }
        let children = self.children();
        let len = children.iter().map(|child| child.len).sum();
        let first = children[0].first;
        self.bytes = node_bytes::<C>() + children.iter().map(|child| child.bytes).sum::<usize>();
        (self.len, self.first) = (len, first);
    }

    /// The chunk that contains the element at this index, and the index of the chunk's first
    /// element.
    pub(crate) fn find(&self, index: usize) -> (&Chunk<C>, usize) {
        debug_assert!(index < self.len, "index={index} len={}", self.len);
        let (mut at, mut first) = (self, 0);
        loop {
            match &at.link {
                Link::Chunk(chunk) => return (chunk, first),
                Link::TreeNode(node) => {
                    let (child, before) = node.locate(index - first, at.len);
                    first += before;
                    at = &node.children[child];
                }
            }
        }
    }

    /// Calls `f` with the chunk that contains the element at this index, for changes, and with the
    /// element's index in it. Copies the nodes on the way if cuts share them.
    pub(crate) fn edit<R>(
        &mut self,
        index: usize,
        f: &mut dyn FnMut(&mut Handle<C>, usize) -> R,
    ) -> R {
        match &mut self.link {
            Link::Chunk(chunk) => {
                let result = f(chunk, index);
                (self.len, self.bytes) = (chunk.len(), chunk.memory_bytes());
                self.first = C::first(chunk.items());
                result
            }
            Link::TreeNode(node) => {
                let node = own_node(node);
                let (at, before) = node.locate(index, self.len);
                let child = &mut node.children[at];
                let (len, bytes) = (child.len, child.bytes);
                let result = child.edit(index - before, f);
                self.len = self.len - len + child.len;
                self.bytes = self.bytes - bytes + child.bytes;
                (node.lens[at], node.firsts[at]) = (child.len, child.first);
                self.first = node.firsts[0];
                result
            }
        }
    }

    /// True if a change at this index would copy anything.
    pub(crate) fn is_shared(&self, index: usize) -> bool {
        match &self.link {
            Link::Chunk(chunk) => Arc::strong_count(chunk) > 1,
            Link::TreeNode(node) => {
                let (at, before) = node.locate(index, self.len);
                Arc::strong_count(node) > 1 || node.children[at].is_shared(index - before)
            }
        }
    }

    /// The chunk at one end.
    pub(crate) fn peek(&self, end: End) -> &Chunk<C> {
        self.find(if end == End::Front { 0 } else { self.len - 1 }).0
    }

    /// Checks the invariants, and panics if one is violated. Returns the number of chunks.
    pub(crate) fn check(&self, is_root: bool) -> usize {
        let children = self.children();
        match &self.link {
            Link::Chunk(chunk) => {
                chunk.check();
                assert!(chunk.len() > 0, "L2: an empty chunk");
                assert_eq!((self.len, self.bytes), (chunk.len(), chunk.memory_bytes()), "N1");
                assert_eq!(self.first, C::first(chunk.items()), "N1");
                return 1;
            }
            Link::TreeNode(node) => {
                assert!(children.iter().all(|child| child.level() + 1 == node.level), "N2");
                for (at, child) in children.iter().enumerate() {
                    assert_eq!((node.lens[at], node.firsts[at]), (child.len, child.first), "N1");
                }
            }
        }
        let least = if is_root { 2 } else { CHILDREN_MIN };
        let count = children.len();
        assert!((least..=CHILDREN_MAX).contains(&count), "N3: {count} children");
        let mut sums = self.clone();
        sums.sum();
        assert_eq!((self.len, self.bytes), (sums.len, sums.bytes), "N1");
        assert_eq!(self.first, children[0].first, "N1");
        children.iter().map(|child| child.check(false)).sum()
    }
}

/// Joins two trees, the elements of `left` before those of `right`. Cost: O(log n).
pub(crate) fn join<C: Coding>(mut left: Subtree<C>, mut right: Subtree<C>) -> Subtree<C> {
    let len = left.len + right.len;
    let level = left.level().max(right.level());
    let (first, second) = match left.level().cmp(&right.level()) {
        Ordering::Equal => balance(left, right),
        Ordering::Greater => {
            let more = attach(&mut left, right, End::Back);
            (left, more)
        }
        Ordering::Less => {
            let more = attach(&mut right, left, End::Front);
            match more {
                Some(more) => (more, Some(right)),
                None => (right, None),
            }
        }
    };
    let tree = match second {
        None => first,
        Some(second) => Subtree::over(level + 1, with_room([first, second])).expect("of two"),
    };
    debug_assert_eq!(tree.len, len, "N1");
    tree
}

/// [`join`] for trees that may be absent.
pub(crate) fn join_some<C: Coding>(
    left: Option<Subtree<C>>,
    right: Option<Subtree<C>>,
) -> Option<Subtree<C>> {
    match (left, right) {
        (Some(left), Some(right)) => Some(join(left, right)),
        (left, right) => left.or(right),
    }
}

fn with_room<C: Coding>(children: impl IntoIterator<Item = Subtree<C>>) -> Vec<Subtree<C>> {
    let mut all = Vec::with_capacity(CHILDREN_MAX);
    all.extend(children);
    all
}

/// Attaches a lower tree at one end of a higher one. If it does not fit, returns the part that must
/// become its neighbour.
fn attach<C: Coding>(node: &mut Subtree<C>, other: Subtree<C>, end: End) -> Option<Subtree<C>> {
    let level = node.level();
    debug_assert!(level > other.level(), "N2: {level} {}", other.level());
    let children = node.children_mut();
    let last = if end == End::Front { 0 } else { children.len() - 1 };
    let more = if children[last].level() > other.level() {
        attach(&mut children[last], other, end)
    } else {
        let child = children.remove(last);
        // `near` is towards the middle of the node, `far` towards its end.
        let (near, far) = match end {
            End::Back => balance(child, other),
            End::Front => match balance(other, child) {
                (far, Some(near)) => (near, Some(far)),
                one => one,
            },
        };
        children.insert(last, near);
        far
    };
    let over = more.and_then(|more| hang(children, more, end));
    node.sum();
    over.and_then(|children| Subtree::over(level, children))
}

/// Adds a child at one end. A full node splits off some children, which are returned with the new
/// child for a new node.
fn hang<C: Coding>(
    children: &mut Vec<Subtree<C>>,
    child: Subtree<C>,
    end: End,
) -> Option<Vec<Subtree<C>>> {
    let is_full = children.len() == CHILDREN_MAX;
    debug_assert!(children.len() <= CHILDREN_MAX, "N3: {} children", children.len());
    match (end, is_full) {
        (End::Front, false) => children.insert(0, child),
        (End::Back, false) => children.push(child),
        (End::Front, true) => {
            let company = children.drain(..CHILDREN_MIN - 1);
            return Some(with_room(std::iter::once(child).chain(company)));
        }
        (End::Back, true) => {
            let company = children.drain(CHILDREN_MAX - (CHILDREN_MIN - 1)..);
            return Some(with_room(company.chain(std::iter::once(child))));
        }
    }
    None
}

/// Balances two neighbours of one level of which either may have too few children: they are merged,
/// or share their children.
fn balance<C: Coding>(
    mut left: Subtree<C>,
    mut right: Subtree<C>,
) -> (Subtree<C>, Option<Subtree<C>>) {
    debug_assert_eq!(left.level(), right.level(), "N2");
    if left.level() == 0 {
        return (left, Some(right));
    }
    let (lefts, rights) = (left.children().len(), right.children().len());
    if lefts + rights <= CHILDREN_MAX {
        left.children_mut().extend(right.into_children());
        left.sum();
        return (left, None);
    }
    if rights < CHILDREN_MIN {
        let moved = left.children_mut().drain(lefts - (CHILDREN_MIN - rights)..);
        right.children_mut().splice(0..0, moved);
    } else if lefts < CHILDREN_MIN {
        let moved = right.children_mut().drain(..CHILDREN_MIN - lefts);
        left.children_mut().extend(moved);
    } else {
        return (left, Some(right));
    }
    left.sum();
    right.sum();
    (left, Some(right))
}

/// Splits a tree into the elements before an index and those from there on. Cost: O(log n); the
/// chunk that contains the index is split.
pub(crate) fn split<C: Coding>(
    tree: Subtree<C>,
    index: usize,
) -> (Option<Subtree<C>>, Option<Subtree<C>>) {
    if index == 0 {
        return (None, Some(tree));
    }
    if index >= tree.len {
        return (Some(tree), None);
    }
    let level = tree.level();
    let mut lefts = match tree.open() {
        TreePart::Chunk(chunk) => {
            let (left, right) = chunk.split(index);
            return (Some(Subtree::of(left)), Some(Subtree::of(right)));
        }
        TreePart::TreeNode(children) => children,
    };
    let (mut at, mut before) = (0, 0);
    while index - before >= lefts[at].len {
        before += lefts[at].len;
        at += 1;
    }
    let rights = with_room(lefts.drain(at + 1..));
    let middle = lefts.pop().expect("the child that was found");
    let (left, right) = split(middle, index - before);
    let left = join_some(Subtree::over(level, lefts), left);
    debug_assert_eq!(left.as_ref().map(|left| left.len), Some(index), "N1");
    (left, join_some(right, Subtree::over(level, rights)))
}

/// Removes the chunk at one end. Cost: O(log n).
pub(crate) fn pop<C: Coding>(tree: Subtree<C>, end: End) -> (Handle<C>, Option<Subtree<C>>) {
    let chunk = tree.peek(end).len();
    let (one, rest) = match end {
        End::Front => split(tree, chunk),
        End::Back => {
            let len = tree.len;
            let (rest, one) = split(tree, len - chunk);
            (one, rest)
        }
    };
    match one.expect("a chunk has elements").open() {
        TreePart::Chunk(chunk) => (chunk, rest),
        TreePart::TreeNode(_) => unreachable!("cut between two chunks"),
    }
}
