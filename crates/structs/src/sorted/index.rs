//! The index by member: from a member's hash to its score.
//!
//! ```text
//! item    | hash: 4 | score: 8 |        in chunks without marks, in a tree in the order of the hashes
//! ```
//! The member's bytes are not stored here: an item gives the score at which to look in the tree of
//! entries, and the entry there is compared. Among ten million members, one in four hundred has
//! another's item before its own. Equal items are interchangeable, so a stale item is harmless and
//! can be removed later.
//!
//! A tree ordered by hash does the work of a hash table, and is only slightly slower. It grows, is
//! cut, copied and freed like all other trees. Because hashes are random, an item in a chunk is
//! found close to its expected position.

use crate::chunk::{Chunk, Coding, Encoded, Held};
use crate::tree::{self, Reached, Subtree, TreeSearch, TreeSpot};

/// Bytes of an item.
pub(super) const ITEM: usize = 12;

/// The stored part of a member's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hash(pub(super) u32);

impl Hash {
    pub(crate) fn of(hash: u64) -> Self {
        Self((hash >> 32) as u32)
    }
}

/// The items of the index's chunks.
#[derive(Clone, Copy)]
pub(crate) struct Items;

/// Items have no out-of-line parts.
#[derive(Clone, Debug)]
pub(crate) enum Nothing {}

impl Held for Nothing {
    fn memory_bytes(&self) -> usize {
        match *self {}
    }
}

impl Encoded<Nothing> for [u8; ITEM] {
    fn len(&self) -> usize {
        ITEM
    }

    fn long(&self) -> Option<&Nothing> {
        None
    }

    fn write_to(&self, out: &mut [u8]) {
        out.copy_from_slice(self);
    }
}

impl Coding for Items {
    const GROUP: usize = usize::MAX;
    type Long = Nothing;
    type Code<'a> = [u8; ITEM];
    type First = Hash;

    #[inline]
    fn len(_: &[u8]) -> usize {
        ITEM
    }

    #[inline]
    fn skip(_: &[u8], at: usize, count: usize) -> usize {
        at + count * ITEM
    }

    #[inline]
    fn first(bytes: &[u8]) -> Hash {
        read(bytes, 0).0
    }
}

/// The item at this index among a chunk's items.
#[inline]
fn read(items: &[u8], index: usize) -> (Hash, f64) {
    let item: &[u8; ITEM] = items[index * ITEM..].first_chunk().expect("an item is complete");
    let (hash, score) = item.split_at(4);
    let hash = u32::from_le_bytes(hash.try_into().expect("four bytes"));
    (Hash(hash), f64::from_le_bytes(score.try_into().expect("eight bytes")))
}

pub(super) fn code(hash: Hash, score: f64) -> [u8; ITEM] {
    let mut item = [0; ITEM];
    item[..4].copy_from_slice(&hash.0.to_le_bytes());
    item[4..].copy_from_slice(&score.to_le_bytes());
    item
}

/// The expected number of items with a smaller hash among the `len` items of a chunk, assuming
/// evenly spaced hashes. `low` and `high` are the first hashes of this chunk and the next one,
/// which the nodes store. So neither end of the chunk is read, which would be a cache miss each.
#[inline]
fn expected(hash: Hash, low: Hash, high: Option<Hash>, len: usize) -> usize {
    let high = high.map_or(u32::MAX, |high| high.0);
    let past = u64::from(hash.0.saturating_sub(low.0));
    let span = u64::from(high.saturating_sub(low.0).max(1));
    ((past * len as u64 / span) as usize).min(len)
}

/// The number of items of a chunk with a smaller hash, expected to be about `at`.
#[inline]
fn lower_bound(chunk: &Chunk<Items>, hash: Hash, mut at: usize) -> usize {
    let (items, len) = (chunk.items(), chunk.len());
    while at > 0 && read(items, at - 1).0 >= hash {
        at -= 1;
    }
    while at < len && read(items, at).0 < hash {
        at += 1;
    }
    at
}

/// The search for a hash.
fn search(hash: Hash) -> TreeSearch<impl Fn(Hash) -> bool, impl Fn(Hash) -> bool, Never> {
    TreeSearch { is_less: move |first| first < hash, is_equal: |_| false, is_before: |_| false }
}

/// Never called, because nodes store everything about hashes.
type Never = fn(&Subtree<Items>) -> bool;

/// The place of the first item without a smaller hash, in the last chunk that begins with a smaller
/// one.
#[inline]
fn spot(tree: &Subtree<Items>, hash: Hash) -> (TreeSpot, &Chunk<Items>) {
    let Reached { chunk, way, len, first, next } = tree.search(&search(hash));
    let index = lower_bound(chunk, hash, expected(hash, first, next, len));
    (TreeSpot { way, index, offset: index * ITEM }, chunk)
}

/// The index by member; see the module's documentation.
#[derive(Clone, Default)]
pub(crate) struct Index(pub(crate) Option<Subtree<Items>>);

impl Index {
    /// The number of items, including those of removed entries.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |tree| tree.len)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |tree| tree.bytes)
    }

    /// The number of items with a smaller hash.
    #[inline]
    pub(crate) fn rank_of(&self, hash: Hash) -> usize {
        let Some(tree) = &self.0 else { return 0 };
        tree.index_of(&spot(tree, hash).0)
    }

    /// The items from a rank on: their hashes and scores.
    #[inline]
    pub(crate) fn iter(&self, rank: usize) -> impl Iterator<Item = (Hash, f64)> {
        let (mut run, mut next, mut first): (Option<&Chunk<Items>>, _, _) = (None, rank, rank);
        std::iter::from_fn(move || {
            if run.is_none_or(|run| next - first == run.len()) {
                let tree = self.0.as_ref().filter(|tree| next < tree.len)?;
                let (chunk, start) = tree.find(next);
                (run, first) = (Some(chunk), start);
            }
            let item = read(run?.items(), next - first);
            next += 1;
            Some(item)
        })
    }

    /// The first item with this hash for which `f` returns a result: its spot, and the result.
    /// Otherwise the spot at which an item with this hash can be added.
    #[inline]
    pub(crate) fn find<R>(
        &self,
        hash: Hash,
        mut f: impl FnMut(f64) -> Option<R>,
    ) -> Result<(TreeSpot, R), TreeSpot> {
        let Some(tree) = &self.0 else { return Err(TreeSpot::default()) };
        let (first, chunk) = spot(tree, hash);
        for index in first.index..chunk.len() {
            let (other, score) = read(chunk.items(), index);
            if other != hash {
                return Err(first);
            }
            if let Some(result) = f(score) {
                return Ok((TreeSpot { index, offset: index * ITEM, ..first }, result));
            }
        }
        // Equal hashes in the next chunk are rare, and are searched by rank.
        let next = tree.index_of(&first) + chunk.len() - first.index;
        let rest = self.iter(next).take_while(|(other, _)| *other == hash);
        let found = rest.enumerate().find_map(|(past, (_, score))| Some((past, f(score)?)));
        match found {
            Some((past, result)) => Ok((tree.spot_of(next + past), result)),
            None => Err(first),
        }
    }

    /// Prefetches the items with this hash.
    #[inline]
    pub(super) fn prefetch(&self, hash: Hash) {
        let Some(tree) = &self.0 else { return };
        let Reached { chunk, len, first, next, .. } = tree.search(&search(hash));
        chunk.prefetch(expected(hash, first, next, len) * ITEM);
    }

    /// Prefetches the items with these hashes.
    pub(super) fn prefetch_all(&self, hashes: &[u64]) {
        let Some(tree) = &self.0 else { return };
        let part = |hash, low: Hash, high: Hash| {
            let hash = Hash::of(hash);
            f64::from(hash.0.saturating_sub(low.0)) / f64::from(high.0.saturating_sub(low.0).max(1))
        };
        tree.prefetch_all(hashes, |hash| search(Hash::of(hash)), part, Chunk::prefetch_items);
    }

    /// Adds an item at a spot that [`Index::find`] returned for its hash.
    #[inline]
    pub(crate) fn insert(&mut self, spot: &TreeSpot, hash: Hash, score: f64) {
        tree::insert_at(&mut self.0, spot, &code(hash, score));
    }

    /// Adds an item.
    #[inline]
    pub(crate) fn add(&mut self, hash: Hash, score: f64) {
        let found = self.find(hash, |_| None::<()>);
        self.insert(&found.expect_err("nothing is looked for"), hash, score);
    }

    /// Sets the score of the item at a spot, which must have this hash.
    #[inline]
    pub(crate) fn set(&mut self, spot: &TreeSpot, hash: Hash, score: f64) {
        let tree = self.0.as_mut().expect("the item is there");
        tree.edit_at(&spot.way, &mut |chunk| {
            debug_assert_eq!(read(chunk.items(), spot.index).0, hash);
            let is_set = crate::chunk::own(chunk).set(spot.index, &code(hash, score));
            assert!(is_set, "an item is as long as any other");
        });
    }

    /// True when a change at a spot would copy parts that a cut holds.
    pub(super) fn is_shared(&self, spot: &TreeSpot) -> bool {
        self.0.as_ref().is_some_and(|tree| tree.is_shared_at(&spot.way))
    }

    /// Removes the item at a spot. Returns true if chunks were merged.
    #[inline]
    pub(crate) fn remove(&mut self, spot: &TreeSpot) -> bool {
        tree::remove_at(&mut self.0, spot)
    }

    /// Panics when an invariant does not hold.
    pub(crate) fn check(&self) {
        if let Some(tree) = &self.0 {
            tree.check(true);
        }
        assert!(self.iter(0).is_sorted_by(|one, other| one.0 <= other.0), "in order of hashes");
    }
}
