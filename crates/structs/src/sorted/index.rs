//! The table by member: which scores the members with some hash have.
//!
//! ```text
//! item    | hash: 4 | score: 8 |        in chunks without marks, in a tree in the order of the hashes
//! ```
//! The member's bytes are not here: an item says where in the tree of entries to look, and the
//! entry there says whether it is the one. Among ten million members one in four hundred has an
//! item of another before its own. Equal items are interchangeable, so a stale item is harmless and
//! can be removed later.
//!
//! A tree in the order of hashes does what a hash table would, and is a little slower: it grows, is
//! cut, copied and freed as all other trees, and the hashes, being random, are found in a chunk at
//! the place where they are to be expected.

use crate::chunk::{Chunk, Coding, Encoded, Held};
use crate::tree::{self, Reached, Subtree, TreeSearch, TreeSpot};

/// Bytes of an item.
pub(super) const ITEM: usize = 12;

/// The part of a member's hash that is kept.
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

/// Nothing lies outside.
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

    fn outside(_: &[u8]) -> Option<u16> {
        None
    }

    fn write_outside(_: &mut [u8], number: u16) {
        unreachable!("{number} would lie outside");
    }
}

/// The item with this index in a chunk's items.
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

/// How many of `len` items of a chunk have a smaller hash, if the hashes are as far from each other
/// as can be; `low` and `high` are the hashes with which it and the next one begin. The nodes know
/// all of that: neither end of the chunk is looked at, each would be a cache miss.
#[inline]
fn expected(hash: Hash, low: Hash, high: Option<Hash>, len: usize) -> usize {
    let high = high.map_or(u32::MAX, |high| high.0);
    let past = u64::from(hash.0.saturating_sub(low.0));
    let span = u64::from(high.saturating_sub(low.0).max(1));
    ((past * len as u64 / span) as usize).min(len)
}

/// How many items of a chunk have a smaller hash, about `at` of them.
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

/// The way to a hash.
fn search(hash: Hash) -> TreeSearch<impl Fn(Hash) -> bool, impl Fn(Hash) -> bool, Never> {
    TreeSearch { is_less: move |first| first < hash, is_equal: |_| false, is_before: |_| false }
}

/// A function that is not called: nodes show all about hashes.
type Never = fn(&Subtree<Items>) -> bool;

/// The place of the first item without a smaller hash, in the last chunk that begins with a smaller
/// one.
#[inline]
fn spot(tree: &Subtree<Items>, hash: Hash) -> (TreeSpot, &Chunk<Items>) {
    let Reached { chunk, way, len, first, next } = tree.search(&search(hash));
    let index = lower_bound(chunk, hash, expected(hash, first, next, len));
    (TreeSpot { way, index, offset: index * ITEM }, chunk)
}

/// The table by member; see the module.
#[derive(Clone, Default)]
pub(crate) struct Index(pub(crate) Option<Subtree<Items>>);

impl Index {
    /// Items, those of entries that are gone included.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |tree| tree.len)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |tree| tree.bytes)
    }

    /// How many items have a smaller hash.
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

    /// The first item with this hash for which `f` holds: where it is, and what `f` returned. Otherwise
    /// where one with this hash can be added.
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
        // Equal hashes in the next chunk: rare, and looked for by rank.
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

    /// Adds an item at a spot that [`Index::find`] gave for its hash.
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

    /// Gives the item at a spot, which has this hash, another score.
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

    /// Removes the item at a spot. True when chunks were merged for it.
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
