//! Changes a tree by index: full chunks are halved, nearly empty ones merged.

use super::{Subtree, join, join_some, pop, split};
use crate::chunk::{Chunk, Coding, Encoded, End, Handle, MARK, ROOM_MAX, can_merge, own, trim};
use std::ops::Range;

/// Room in a new chunk at an end: a fraction of the tree's size, so that small trees do not pay for
/// a whole block.
const NEW_ROOM_MIN: usize = 512;
const NEW_ROOM_SHARE: usize = 8;

/// Adds an item before the one at this index, or at the end. Cost: O(log n).
#[inline]
pub(crate) fn insert<C: Coding>(tree: &mut Option<Subtree<C>>, index: usize, code: &C::Code<'_>) {
    if !tree.as_mut().is_some_and(|tree| try_insert(tree, index, code)) {
        insert_far(tree, index, code);
    }
}

/// False if the chunk has no room, and a larger block would not help.
#[inline]
fn try_insert<C: Coding>(tree: &mut Subtree<C>, index: usize, code: &C::Code<'_>) -> bool {
    debug_assert!(index <= tree.len, "index={index} len={}", tree.len);
    let past = usize::from(index == tree.len);
    let end = if index == 0 { End::Front } else { End::Back };
    tree.edit(index - past, &mut |chunk, at| {
        own(chunk).insert(at + past, code)
            || chunk.grown(end, code.len()).is_some_and(|grown| {
                *chunk = grown;
                own(chunk).insert(at + past, code)
            })
    })
}

/// [`insert`] if the chunk has no room: into a new chunk at an end, otherwise into one half of the
/// chunk.
#[cold]
fn insert_far<C: Coding>(tree: &mut Option<Subtree<C>>, index: usize, code: &C::Code<'_>) {
    /// A half has room for any item's bytes. But the number of long items is bounded, too, and all
    /// may be in one half, even after several halvings.
    const TRIES_MAX: usize = 8;
    for _ in 0..TRIES_MAX {
        *tree = match tree.take() {
            None => Some(Subtree::of(chunk_of(0, End::Back, code))),
            Some(old) if index == 0 => {
                Some(join(Subtree::of(chunk_of(old.bytes, End::Front, code)), trimmed(old, 0)))
            }
            Some(old) if index == old.len => {
                let chunk = Subtree::of(chunk_of(old.bytes, End::Back, code));
                Some(join(trimmed(old, index - 1), chunk))
            }
            Some(old) => {
                let (chunk, first) = old.find(index);
                let middle = first + chunk.middle();
                let (left, right) = split(old, middle);
                let mut halved = join_some(left, right);
                if !halved.as_mut().is_some_and(|tree| try_insert(tree, index, code)) {
                    *tree = halved;
                    continue;
                }
                halved
            }
        };
        return;
    }
    unreachable!("no part of a chunk has room");
}

/// A chunk with one item and further room at `end`, for a tree of `tree_bytes` bytes.
fn chunk_of<C: Coding>(tree_bytes: usize, end: End, code: &C::Code<'_>) -> Handle<C> {
    let room = (tree_bytes / NEW_ROOM_SHARE).clamp(NEW_ROOM_MIN.max(code.len() + MARK), ROOM_MAX);
    let mut chunk = Chunk::empty(room, end);
    let is_pushed = own(&mut chunk).push(end, code);
    assert!(is_pushed, "an empty chunk has room for {} bytes", code.len());
    chunk
}

/// Moves the chunk at this index to a block that fits it. Returns the tree.
fn trimmed<C: Coding>(mut tree: Subtree<C>, index: usize) -> Subtree<C> {
    tree.edit(index, &mut |chunk, _| trim(chunk));
    tree
}

/// Removes and returns the items at these indexes. Cost: O(log n).
pub(crate) fn remove_range<C: Coding>(
    tree: &mut Option<Subtree<C>>,
    indexes: Range<usize>,
) -> Option<Subtree<C>> {
    let (left, rest) = split(tree.take()?, indexes.start);
    let (gone, right) = match rest {
        Some(rest) => split(rest, indexes.len()),
        None => (None, None),
    };
    *tree = join_seam(left, right);
    debug_assert!(gone.as_ref().is_none_or(|gone| gone.len <= indexes.len()), "{indexes:?}");
    gone
}

/// Merges the chunk at this index, or the last chunk, with a neighbour if both fit in one. Returns
/// true if they do.
#[cold]
pub(super) fn merge_near<C: Coding>(tree: &mut Option<Subtree<C>>, index: usize) -> bool {
    let Some(old) = tree else { return false };
    let (chunk, first) = old.find(index.min(old.len - 1));
    let end = first + chunk.len();
    let worth = |at: usize| can_merge(chunk, old.find(at).0);
    let seam = if end < old.len && worth(end) {
        end
    } else if first > 0 && worth(first - 1) {
        first
    } else {
        return false;
    };
    let (left, right) = tree.take().map_or((None, None), |tree| split(tree, seam));
    *tree = join_seam(left, right);
    true
}

/// Joins two trees; the two adjacent chunks are merged if they fit in one.
pub(crate) fn join_seam<C: Coding>(
    left: Option<Subtree<C>>,
    right: Option<Subtree<C>>,
) -> Option<Subtree<C>> {
    let (left, right) = match (left, right) {
        (Some(left), Some(right)) => (left, right),
        (left, right) => return left.or(right),
    };
    if !can_merge(left.peek(End::Back), right.peek(End::Front)) {
        return Some(join(left, right));
    }
    let (last, left) = pop(left, End::Back);
    let (first, right) = pop(right, End::Front);
    join_some(join_some(left, Some(Subtree::of(last.merged(&first)))), right)
}
