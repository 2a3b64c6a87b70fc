//! A sorted set in two trees: the entries in their order, and the index by member.
//!
//! Removing half of ten million entries from their tree is two splits and a join; from the index,
//! five million removals. So the index is updated later: until then removed entries are in `stale`
//! ([`Stale::settle`]), and lookups ignore index items without an entry.
//!
//! Invariants:
//! - B1: the items of the index are those of all entries, and of the stale ones.
//! - B2: there are entries.

use super::index::{Hash, Index, Items};
use super::item::{self, Entries, New};
use super::place::{Place, SortedEntry, order};
use super::stale::{Stale, each};
use crate::chunk::{Coding, End, own};
use crate::lazyfree::{self, Dismantle};
use crate::owner::Owner;
use crate::tree::{
    self, PREFETCHED_MAX, Reached, Subtree, TreeRest, TreeSearch, TreeSpot, is_worth_deferring,
};
use darter_base::hash;
use std::ops::Range;

type Chunk = crate::chunk::Chunk<Entries>;

/// While there are stale entries, each change also removes the index items of this many, so that
/// stale entries are removed faster than new ones are added.
const SETTLED_BESIDE: usize = 4;
/// Up to this many removed entries, the index items are removed at once.
const SETTLED_AT_ONCE: usize = 64;

/// A large sorted set; see the module's documentation.
#[derive(Clone)]
pub(super) struct Big {
    entries: Option<Subtree<Entries>>,
    index: Index,
    stale: Stale,
    /// The owner of the set.
    owner: Owner,
}

impl Drop for Big {
    fn drop(&mut self) {
        let trees = [self.entries.take(), self.stale.take()];
        let mut entries = TreeRest::of(trees, Owner::default());
        let mut index = TreeRest::of([self.index.0.take()], Owner::default());
        entries.release_shared();
        index.release_shared();
        let remains = FreedSorted { entries, index, owner: self.owner.retire() };
        if is_worth_deferring(remains.entries.bytes() + remains.index.bytes()) {
            lazyfree::defer(Box::new(remains));
        }
    }
}

/// Both trees of a dropped set, waiting to be freed. Freed together, because they count as one
/// holder of the set.
struct FreedSorted {
    entries: TreeRest<Entries>,
    index: TreeRest<Items>,
    owner: Owner,
}

impl Dismantle for FreedSorted {
    fn dismantle(&mut self) -> bool {
        self.entries.dismantle() || self.index.dismantle()
    }

    fn bytes(&self) -> usize {
        if self.owner.is_shared() { 0 } else { self.entries.bytes() + self.index.bytes() }
    }
}

/// The place of a member.
#[derive(Clone, Copy)]
struct Found {
    /// The places of its index item and of its entry.
    item: TreeSpot,
    entry: TreeSpot,
    score: f64,
}

impl Big {
    /// The entries with these items, in order.
    pub(super) fn of_items<'a>(entries: impl Iterator<Item = SortedEntry<'a>>) -> Self {
        let owner = Owner::new();
        let mut big =
            Self { entries: None, index: Index::default(), stale: Stale::default(), owner };
        for entry in entries {
            let mut scratch = crate::table::Scratch::new();
            let member = entry.member.bytes(&mut scratch);
            let hash = hash::of(member);
            let rank = big.len();
            tree::insert(&mut big.entries, rank, &New::of(entry.score, hash, member));
            big.index.add(Hash::of(hash), entry.score);
        }
        big
    }

    /// A set with these entries and their index items.
    pub(super) fn of_trees(
        entries: Option<Subtree<Entries>>,
        index: Option<Subtree<Items>>,
    ) -> Self {
        let big =
            Self { entries, index: Index(index), stale: Stale::default(), owner: Owner::new() };
        big.assert_counts();
        big
    }

    fn tree(&self) -> &Subtree<Entries> {
        self.entries.as_ref().expect("B2: there are entries")
    }

    /// All entries, and their owner.
    pub(super) fn into_parts(mut self) -> (Option<Subtree<Entries>>, Owner) {
        let owner = std::mem::take(&mut self.owner);
        self.owner = owner.of_part();
        (self.entries.take(), owner)
    }

    pub(super) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// A cut for a long read. It does not count as a version of the set.
    pub(super) fn reader(&self) -> Self {
        let (entries, index) = (self.entries.clone(), self.index.clone());
        Self { entries, index, stale: self.stale.clone(), owner: self.owner.reader() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.as_ref().map_or(0, |tree| tree.len)
    }

    /// Asserts that there are as many items as entries: a change that misses one of the trees would
    /// break that.
    #[inline]
    fn assert_counts(&self) {
        assert_eq!(self.index.len(), self.len() + self.stale.len(), "B1");
    }

    /// Bytes of memory, shared or not. Cost: O(1).
    pub(super) fn memory_bytes(&self) -> usize {
        /// The owner's block: three counts.
        const OWNER_BYTES: usize = 3 * size_of::<usize>();
        let entries = self.entries.as_ref().map_or(0, |tree| tree.bytes);
        let trees = entries + self.stale.memory_bytes() + self.index.memory_bytes();
        size_of::<Self>() + OWNER_BYTES + trees
    }

    /// The chunk that contains the entry at this rank, and the rank of its first entry.
    #[inline]
    pub(super) fn find(&self, rank: usize) -> (&Chunk, usize) {
        self.tree().find(rank)
    }

    /// The number of entries before a place.
    #[inline]
    pub(super) fn rank_of(&self, place: &Place<'_>) -> usize {
        self.entries.as_ref().map_or(0, |tree| tree.index_of(&spot(tree, place).0))
    }

    /// The chunk of a place, the rank of its first entry, and the index and offset of the first
    /// entry after the place.
    #[inline]
    pub(super) fn find_place(&self, place: &Place<'_>) -> (&Chunk, usize, usize, usize) {
        let (spot, chunk) = spot(self.tree(), place);
        (chunk, self.tree().index_of(&spot) - spot.index, spot.index, spot.offset)
    }

    /// The entry of a member; if it is absent, the spot where its index item can be added.
    #[inline]
    fn look(&self, hash: u64, member: &[u8]) -> Result<Found, TreeSpot> {
        let found = self.index.find(Hash::of(hash), |score| {
            let tree = self.entries.as_ref()?;
            // The last chunk that does not begin after the member; it may begin with it.
            let reached = tree.search(&TreeSearch {
                is_less: |first| first < score,
                is_equal: |first| first == score,
                is_before: |child: &Subtree<_>| order(&first(child).member, member).is_le(),
            });
            let (spot, chunk) = lower_bound(&reached, &Place::SortedEntry(score, member));
            let items = &chunk.items()[spot.offset..];
            let entry = (!items.is_empty()).then(|| item::entry(items, Some(chunk)))?;
            (entry.score == score && order(&entry.member, member).is_eq())
                .then_some((spot, entry.score))
        });
        found.map(|(item, (entry, score))| Found { item, entry, score })
    }

    /// The score of a member.
    #[inline]
    pub(super) fn score(&self, hash: u64, member: &[u8]) -> Option<f64> {
        self.look(hash, member).ok().map(|found| found.score)
    }

    /// The rank of a member, and its score.
    #[inline]
    pub(super) fn rank(&self, hash: u64, member: &[u8]) -> Option<(usize, f64)> {
        let found = self.look(hash, member).ok()?;
        Some((self.tree().index_of(&found.entry), found.score))
    }

    /// Prefetches the index items of a hash.
    pub(super) fn prefetch(&self, hash: u64) {
        self.index.prefetch(Hash::of(hash));
    }

    /// Prefetches the entries of the first items of these hashes; the items must have been
    /// prefetched.
    pub(super) fn prefetch_entries(&self, hashes: &[u64]) {
        let Some(tree) = &self.entries else { return };
        for hashes in hashes.chunks(PREFETCHED_MAX) {
            let (scores, len) = self.scores_of(hashes);
            tree.prefetch_all(&scores[..len], by_score, share, Chunk::prefetch_near);
        }
    }

    /// Prefetches the index items, entries and target places of at most this many members.
    pub(super) fn prefetch_all(&self, wanted: &[(f64, u64)]) {
        let Some(tree) = &self.entries else { return };
        for wanted in wanted.chunks(PREFETCHED_MAX) {
            let (mut scores, mut hashes) = ([0.0; PREFETCHED_MAX], [0; PREFETCHED_MAX]);
            for (at, (score, hash)) in wanted.iter().enumerate() {
                (scores[at], hashes[at]) = (*score, *hash);
            }
            let hashes = &hashes[..wanted.len()];
            self.index.prefetch_all(hashes);
            let scores = &scores[..wanted.len()];
            tree.prefetch_all(scores, by_score, share, Chunk::prefetch_items);
            let (scores, len) = self.scores_of(hashes);
            tree.prefetch_all(&scores[..len], by_score, share, Chunk::prefetch_items);
        }
    }

    /// The scores of the first items of some hashes, and their number.
    fn scores_of(&self, hashes: &[u64]) -> ([f64; PREFETCHED_MAX], usize) {
        let (mut scores, mut len) = ([0.0; PREFETCHED_MAX], 0);
        let found = |hash: &u64| Some(self.index.find(Hash::of(*hash), Some).ok()?.1);
        for score in hashes.iter().filter_map(found) {
            scores[len] = score;
            len += 1;
        }
        (scores, len)
    }

    /// See [`super::Sorted::update`].
    pub(super) fn update(
        &mut self,
        hash: u64,
        member: &[u8],
        f: impl FnOnce(Option<f64>) -> Option<f64>,
    ) -> Option<f64> {
        let old = self.look(hash, member);
        let score = old.as_ref().ok().map(|found| found.score);
        let Some(new) = f(score).filter(|new| score != Some(*new)) else { return score };
        assert!(!new.is_nan(), "a score is a number");
        match &old {
            Err(item) => self.index.insert(item, Hash::of(hash), new),
            Ok(found) => {
                tree::remove_at(&mut self.entries, &found.entry);
                self.index.set(&found.item, Hash::of(hash), new);
            }
        }
        let place = Place::SortedEntry(new, member);
        let spot =
            self.entries.as_ref().map_or_else(TreeSpot::default, |tree| spot(tree, &place).0);
        tree::insert_at(&mut self.entries, &spot, &New::of(new, hash, member));
        self.settle(SETTLED_BESIDE);
        self.assert_counts();
        score
    }

    /// Removes a member. Returns the score that it had.
    pub(super) fn remove(&mut self, hash: u64, member: &[u8]) -> Option<f64> {
        let found = self.look(hash, member).ok()?;
        tree::remove_at(&mut self.entries, &found.entry);
        self.index.remove(&found.item);
        self.settle(SETTLED_BESIDE);
        self.assert_counts();
        Some(found.score)
    }

    /// Removes the entries with these ranks.
    pub(super) fn remove_range(&mut self, ranks: Range<usize>) {
        assert!(ranks.end <= self.len(), "{ranks:?} len={}", self.len());
        let wanted = ranks.len();
        let gone = tree::remove_range(&mut self.entries, ranks);
        let count = gone.as_ref().map_or(0, |gone| gone.len);
        assert_eq!(count, wanted, "all of them are gone");
        self.stale.add(gone);
        self.settle(if count <= SETTLED_AT_ONCE { count.max(SETTLED_BESIDE) } else { 0 });
    }

    /// See [`Stale::settle`].
    pub(super) fn settle(&mut self, most: usize) -> bool {
        self.stale.settle(&mut self.index, most)
    }

    /// True while there are stale entries.
    #[inline]
    pub(super) fn is_unsettled(&self) -> bool {
        !self.stale.is_empty()
    }

    /// See [`super::Sorted::unshare`].
    pub(super) fn unshare(&mut self, hash: u64, member: &[u8], score: Option<f64>) -> bool {
        if !self.owner.is_shared() {
            return false; // No cut holds anything, so three searches are saved.
        }
        let item = self.index.rank_of(Hash::of(hash));
        let mut is_copied = unshare(&mut self.index.0, item);
        if let Ok(found) = self.look(hash, member) {
            let rank = self.tree().index_of(&found.entry);
            is_copied |= unshare(&mut self.entries, rank);
        }
        if let Some(score) = score {
            let rank = self.rank_of(&Place::SortedEntry(score, member));
            is_copied |= unshare(&mut self.entries, rank);
        }
        is_copied
    }

    /// [`super::Sorted::unshare_rank`].
    pub(super) fn unshare_rank(&mut self, rank: usize) -> bool {
        unshare(&mut self.entries, rank)
    }

    /// The index, for a scan.
    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    /// The only chunk of entries, if there is just one.
    pub(super) fn only(&self) -> Option<&Chunk> {
        let tree = self.entries.as_ref()?;
        (!tree.is_node()).then(|| tree.find(0).0)
    }

    /// Panics when an invariant does not hold.
    pub(super) fn check(&self) {
        self.tree().check(true);
        self.index.check();
        let key = |hash: Hash, score: f64| (hash, (score + 0.0).to_bits());
        let mut wanted = Vec::new();
        let mut want = |entry: SortedEntry<'_>| {
            wanted.push(key(Hash::of(hash::of(&entry.member.to_vec())), entry.score));
        };
        each(self.tree(), 0, &mut want);
        self.stale.each(&mut want);
        let mut items: Vec<_> = self.index.iter(0).map(|(hash, score)| key(hash, score)).collect();
        wanted.sort_unstable();
        items.sort_unstable();
        assert!(items == wanted, "B1");
        self.assert_counts();
    }
}

/// The hash of an entry's member.
pub(super) fn hash_of(entry: &SortedEntry<'_>) -> u64 {
    entry.long.map_or_else(|| entry.member.hash(), |long| long.hash())
}

/// The spot of a place in a tree: in the last chunk that begins before the place.
#[inline]
fn spot<'a>(tree: &'a Subtree<Entries>, place: &Place<'_>) -> (TreeSpot, &'a Chunk) {
    let is_before =
        |child: &Subtree<_>| place.is_behind(child.first, |name| order(&first(child).member, name));
    let reached = match *place {
        // All children look equal by their scores.
        Place::Start | Place::End | Place::BeforeMember(_) | Place::AfterMember(_) => {
            tree.search(&TreeSearch { is_less: |_| false, is_equal: |_| true, is_before })
        }
        Place::BeforeScore(score) => tree.search(&TreeSearch {
            is_less: |first| first < score,
            is_equal: |_| false,
            is_before,
        }),
        Place::AfterScore(score) => tree.search(&TreeSearch {
            is_less: |first| first <= score,
            is_equal: |_| false,
            is_before,
        }),
        Place::SortedEntry(score, _) => tree.search(&TreeSearch {
            is_less: |first| first < score,
            is_equal: |first| first == score,
            is_before,
        }),
    };
    lower_bound(&reached, place)
}

/// A search for entries by score; a prefetch needs only the approximate place.
fn by_score(score: f64) -> TreeSearch<impl Fn(f64) -> bool, impl Fn(f64) -> bool, Never> {
    TreeSearch { is_less: move |first| first < score, is_equal: |_| false, is_before: |_| false }
}

/// A function that is not called.
type Never = fn(&Subtree<Entries>) -> bool;

/// [`part_between`] for a prefetch, which may be inexact.
fn share(score: f64, low: f64, high: f64) -> f64 {
    part_between(low, Some(high), score).unwrap_or(0.5)
}

/// The relative position of a score between the first scores of two chunks; `None` if these do not
/// tell.
#[inline]
fn part_between(low: f64, high: Option<f64>, score: f64) -> Option<f64> {
    let part = (score - low) / (high? - low);
    part.is_finite().then(|| part.clamp(0.0, 1.0))
}

/// The first entry below a node.
fn first(tree: &Subtree<Entries>) -> SortedEntry<'_> {
    let chunk = tree.peek(End::Front);
    item::entry(chunk.items(), Some(chunk))
}

/// Copies the place of this index, or of the last one, if it is shared. Returns true if it was.
fn unshare<C: Coding>(tree: &mut Option<Subtree<C>>, index: usize) -> bool {
    let Some(tree) = tree else { return false };
    let index = index.min(tree.len - 1);
    let is_shared = tree.is_shared(index);
    if is_shared {
        tree.edit(index, &mut |chunk, _| _ = own(chunk));
    }
    is_shared
}

/// The first entry of a chunk that is not before a place.
#[inline]
fn lower_bound<'a>(reached: &Reached<'a, Entries>, place: &Place<'_>) -> (TreeSpot, &'a Chunk) {
    let Reached { chunk, way, first, next, .. } = *reached;
    let part = match *place {
        Place::SortedEntry(score, _) => part_between(first, next, score),
        _ => None,
    };
    let (index, offset) = offset_of(chunk, place, part);
    (TreeSpot { way, index, offset }, chunk)
}

/// The number of entries of a chunk before a place, and the offset of the first other entry. `part`
/// is the expected relative position in the chunk.
#[inline]
fn offset_of(chunk: &Chunk, place: &Place<'_>, part: Option<f64>) -> (usize, usize) {
    let items = chunk.items();
    // Scores decide for most entries, so members are rarely read.
    match *place {
        Place::BeforeScore(bound) => partition(chunk, part, |at| item::score(&items[at..]) < bound),
        Place::AfterScore(bound) => partition(chunk, part, |at| item::score(&items[at..]) <= bound),
        Place::SortedEntry(bound, name) => partition(chunk, part, |at| {
            let score = item::score(&items[at..]);
            score < bound || score == bound && is_before(&items[at..], chunk, name)
        }),
        _ => partition(chunk, part, |at| {
            let entry = item::entry(&items[at..], Some(chunk));
            place.is_behind(entry.score, |name| order(&entry.member, name))
        }),
    }
}

/// True if the member of the entry at the front of `bytes` comes before a name.
#[inline(never)] // Rarely called.
fn is_before(bytes: &[u8], chunk: &Chunk, name: &[u8]) -> bool {
    order(&item::entry(bytes, Some(chunk)).member, name).is_lt()
}

/// The number of leading entries, given by their offsets, for which `is_behind` holds, and the
/// offset of the next entry.
#[inline(always)] // Inlined, because a search consists of calls of this function.
fn partition(
    chunk: &Chunk,
    part: Option<f64>,
    is_behind: impl Fn(usize) -> bool,
) -> (usize, usize) {
    let items = chunk.items();
    let (mut index, mut offset) = match part {
        Some(part) => chunk.last_mark_near(part, &is_behind),
        None => chunk.last_mark(&is_behind),
    };
    while offset < items.len() && is_behind(offset) {
        offset += Entries::len(&items[offset..]);
        index += 1;
    }
    debug_assert!(index <= chunk.len() && offset <= items.len(), "C1: {index} {offset}");
    (index, offset)
}
