//! Byte arrays of fixed length that start as zeros and are changed at random places: the bits of
//! filters, the counters of sketches.
//!
//! Blobs are made for bytes written in order: their chunks have 64 KiB, and each random change
//! would copy one. Here a page has 4 KiB, and a page of zeros takes no memory. So an array of
//! gigabytes initially takes no memory, and later only for its written parts.
//!
//! ```text
//! Short:  |exact bytes|, or nothing: zeros            up to a page
//! Tree:   roots: * . *       up to 32 branches a root, 32 leaves a branch... of 32 pages each
//!                | | +-> |leaf|....|leaf| -> |page|....|page|
//!                | +---> nothing: zeros
//! ```
//! Invariants (`check_invariants`):
//! - I1: `Short` holds at most [`PAGE_BYTES`]; a tree has more.
//! - I2: no branch and no leaf is empty, and `memory_bytes` counts what there is.
//!
//! Cloning is a cut: O(roots), with 4 MB each. The first write after it copies a page and the 32
//! pointers of two levels, which takes some microseconds. Dropping a tree defers it.

use crate::kept;
use crate::lazyfree::{self, Dismantle};
use crate::owner::Owner;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a page: with the two counts in front of it, a size class of the allocator.
pub const PAGE_BYTES: usize = 4096 - 2 * size_of::<usize>();
/// Pages of a leaf, leaves of a branch.
const FAN: usize = 32;
/// Pages of a branch: the unit of [`Pages::join`].
pub const ROOT_PAGES: usize = FAN * FAN;
const PAGE_MEMORY: usize = PAGE_BYTES + COUNTS;
const NODE_MEMORY: usize = FAN * size_of::<usize>() + COUNTS;
const COUNTS: usize = 2 * size_of::<usize>();

type Page = [u8; PAGE_BYTES];
type Leaf = [Option<Arc<Page>>; FAN];
type Branch = [Option<Arc<Leaf>>; FAN];

/// A byte array in pages; see the module's documentation.
#[derive(Clone, Debug)]
pub struct Pages(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Short(Short),
    Tree(Box<Tree>),
}

#[derive(Clone, Debug)]
struct Short {
    bytes: Option<Arc<[u8]>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Tree {
    roots: Vec<Option<Arc<Branch>>>,
    len: usize,
    /// Bytes of pages, leaves and branches.
    held: usize,
    owner: Owner,
}

impl Default for Pages {
    fn default() -> Self {
        Self::zeros(0)
    }
}

impl Pages {
    /// A zeroed array. Cost: O(len / 4 MB), one pointer each.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        if len <= PAGE_BYTES {
            return Self(Repr::Short(Short { bytes: None, len }));
        }
        let roots = vec![None; len.div_ceil(PAGE_BYTES).div_ceil(ROOT_PAGES)];
        Self(Repr::Tree(Box::new(Tree { roots, len, held: 0, owner: Owner::new() })))
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Short(short) => short.len,
            Repr::Tree(tree) => tree.len,
        }
    }

    /// True if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of pages.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.len().div_ceil(PAGE_BYTES)
    }

    /// The byte range of a page; all pages but the last are full.
    fn bounds(&self, page: usize) -> Range<usize> {
        let start = page * PAGE_BYTES;
        start..self.len().min(start + PAGE_BYTES)
    }

    /// Bytes of memory, shared with cuts or not. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Repr::Short(Short { bytes, len }) => bytes.as_ref().map_or(0, |_| len + COUNTS),
            Repr::Tree(tree) => {
                tree.held + tree.roots.len() * size_of::<usize>() + size_of::<Tree>()
            }
        }
    }

    /// The bytes of a page; `None` stands for zeros.
    ///
    /// # Panics
    /// Unless `page` is below [`Pages::pages`].
    #[must_use]
    pub fn page(&self, page: usize) -> Option<&[u8]> {
        match &self.0 {
            Repr::Short(short) => {
                assert_eq!(page, 0, "there is one page");
                short.bytes.as_deref()
            }
            Repr::Tree(tree) => {
                let branch = tree.roots[page / ROOT_PAGES].as_ref()?;
                let leaf = branch[page / FAN % FAN].as_ref()?;
                let bytes = leaf[page % FAN].as_ref()?;
                Some(&bytes[..self.bounds(page).len()])
            }
        }
    }

    /// The bytes of a page for changes; copied first if a cut shares them. Panics as
    /// [`Pages::page`].
    pub fn page_mut(&mut self, page: usize) -> &mut [u8] {
        let len = self.bounds(page).len();
        match &mut self.0 {
            Repr::Short(short) => {
                assert_eq!(page, 0, "there is one page");
                Arc::make_mut(short.bytes.get_or_insert_with(|| Arc::from(vec![0; len])))
            }
            Repr::Tree(tree) => {
                let Tree { roots, held, .. } = &mut **tree;
                let branch = own(&mut roots[page / ROOT_PAGES], held, NODE_MEMORY, new_branch);
                let leaf = own(&mut branch[page / FAN % FAN], held, NODE_MEMORY, new_leaf);
                let bytes = own(&mut leaf[page % FAN], held, PAGE_MEMORY, || [0; PAGE_BYTES]);
                &mut bytes[..len]
            }
        }
    }

    /// True if others hold the page, too, so that changing it copies it. Panics as [`Pages::page`].
    #[must_use]
    pub fn is_shared(&self, page: usize) -> bool {
        match &self.0 {
            Repr::Short(short) => short.bytes.as_ref().is_some_and(is_held_twice),
            Repr::Tree(tree) => {
                let branch = tree.roots[page / ROOT_PAGES].as_ref();
                let leaf = branch.and_then(|branch| branch[page / FAN % FAN].as_ref());
                let bytes = leaf.and_then(|leaf| leaf[page % FAN].as_ref());
                branch.is_some_and(is_held_twice)
                    || leaf.is_some_and(is_held_twice)
                    || bytes.is_some_and(is_held_twice)
            }
        }
    }

    /// A cut for a long-lived reader. It does not count as an owner of the value.
    #[must_use]
    pub fn reader(&self) -> Self {
        let mut cut = self.clone();
        if let Repr::Tree(tree) = &mut cut.0 {
            tree.owner = tree.owner.reader();
        }
        cut
    }

    /// Bytes that a [`Pages::reader`] keeps alive after the value is gone; 0 while the value
    /// exists. A single page counts for its last reader only.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        let is_gone = match &self.0 {
            Repr::Short(short) => !short.bytes.as_ref().is_some_and(is_held_twice),
            Repr::Tree(tree) => tree.owner.is_gone(),
        };
        if is_gone { self.memory_bytes() } else { 0 }
    }

    /// Takes over the runs of [`ROOT_PAGES`] from another array of the same length, so that parts
    /// built separately become one array. Cost: O(len / 4 MB), no page is touched.
    ///
    /// # Panics
    /// When both have pages of one run, or their lengths differ.
    pub fn join(&mut self, mut other: Self) {
        assert_eq!(self.len(), other.len(), "parts of one array");
        match (&mut self.0, &mut other.0) {
            (Repr::Tree(tree), Repr::Tree(other)) => {
                tree.held += std::mem::take(&mut other.held);
                for (root, other) in tree.roots.iter_mut().zip(&mut other.roots) {
                    assert!(root.is_none() || other.is_none(), "a run of both");
                    *root = root.take().or_else(|| other.take());
                }
            }
            (Repr::Short(short), Repr::Short(other)) => {
                assert!(short.bytes.is_none() || other.bytes.is_none(), "a run of both");
                short.bytes = short.bytes.take().or_else(|| other.bytes.take());
            }
            _ => unreachable!("equal lengths have one shape"),
        }
    }

    /// Overwrites a page; zeros over zeros take no memory. Returns false if there is no such page,
    /// or if the lengths differ.
    #[must_use]
    pub fn load(&mut self, page: usize, bytes: &[u8]) -> bool {
        let fits = page < self.pages() && bytes.len() == self.bounds(page).len();
        if fits && (self.page(page).is_some() || bytes.iter().any(|byte| *byte != 0)) {
            self.page_mut(page).copy_from_slice(bytes);
        }
        fits
    }

    /// The first page from this one on that takes memory. Cost: O(1) for each 4 MB without memory.
    #[must_use]
    pub fn next_held(&self, from: usize) -> Option<usize> {
        let tree = match &self.0 {
            Repr::Tree(tree) => tree,
            Repr::Short(short) => return short.bytes.as_ref().filter(|_| from == 0).map(|_| 0),
        };
        let mut page = from;
        while page < self.pages() {
            let Some(branch) = &tree.roots[page / ROOT_PAGES] else {
                page = (page / ROOT_PAGES + 1) * ROOT_PAGES;
                continue;
            };
            let Some(leaf) = &branch[page / FAN % FAN] else {
                page = (page / FAN + 1) * FAN;
                continue;
            };
            if leaf[page % FAN].is_some() {
                return Some(page);
            }
            page += 1;
        }
        None
    }

    /// Panics when an invariant does not hold. Cost: O(pages).
    pub fn check_invariants(&self) {
        let Repr::Tree(tree) = &self.0 else {
            assert!(self.len() <= PAGE_BYTES, "I1: {} bytes in one page", self.len());
            return;
        };
        assert!(tree.len > PAGE_BYTES, "I1: a tree of {} bytes", tree.len);
        assert_eq!(tree.roots.len(), self.pages().div_ceil(ROOT_PAGES), "I1: roots");
        let mut held = 0;
        for branch in tree.roots.iter().flatten() {
            held += NODE_MEMORY;
            assert!(branch.iter().flatten().count() > 0, "I2: an empty branch");
            for leaf in branch.iter().flatten() {
                let pages = leaf.iter().flatten().count();
                assert!(pages > 0, "I2: an empty leaf");
                held += NODE_MEMORY + pages * PAGE_MEMORY;
            }
        }
        assert_eq!(held, tree.held, "I2: bytes held");
    }
}

fn new_leaf() -> Leaf {
    [const { None }; FAN]
}

fn new_branch() -> Branch {
    [const { None }; FAN]
}

/// The value at a place for changes; a new one, which takes memory, if there was none.
fn own<'a, T: Clone>(
    place: &'a mut Option<Arc<T>>,
    held: &mut usize,
    memory: usize,
    new: fn() -> T,
) -> &'a mut T {
    if place.as_ref().is_some_and(is_held_twice) {
        kept::note_part(memory);
    }
    Arc::make_mut(place.get_or_insert_with(|| {
        *held += memory;
        Arc::new(new())
    }))
}

fn is_held_twice<T: ?Sized>(place: &Arc<T>) -> bool {
    Arc::strong_count(place) > 1
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Repr::Tree(tree) = &mut self.0 {
            let roots = std::mem::take(&mut tree.roots);
            let rest = FreedPages { roots, left: tree.held, owner: tree.owner.retire() };
            lazyfree::defer(Box::new(rest));
        }
    }
}

/// The rest of a dropped tree.
struct FreedPages {
    roots: Vec<Option<Arc<Branch>>>,
    /// Bytes of the rest, shared or not.
    left: usize,
    owner: Owner,
}

impl Dismantle for FreedPages {
    fn dismantle(&mut self) -> bool {
        while self.roots.pop_if(|root| root.is_none()).is_some() {}
        let Some(root) = self.roots.last_mut() else { return false };
        // A shared branch is freed by its other owner.
        let branch = root.as_mut().and_then(Arc::get_mut);
        match branch.and_then(|branch| branch.iter_mut().rev().find_map(Option::take)) {
            Some(leaf) => {
                let pages = leaf.iter().flatten().count();
                self.left = self.left.saturating_sub(NODE_MEMORY + pages * PAGE_MEMORY);
            }
            None => *root = None,
        }
        true
    }

    fn bytes(&self) -> usize {
        // An upper bound of what is freed: shared parts stay.
        if self.owner.is_shared() { 0 } else { self.left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;
    use darter_base::preempt::Never;

    fn bytes_of(pages: &Pages) -> Vec<u8> {
        let page =
            |at| pages.page(at).map_or_else(|| vec![0; pages.bounds(at).len()], <[u8]>::to_vec);
        (0..pages.pages()).flat_map(page).collect()
    }

    #[test] // Cuts do not change.
    fn random_changes_of_pages_agree_with_vectors() {
        for seed in 0..20 {
            let mut prng = Prng::from_seed(seed);
            let most = [5_000, 300_000, 5_000_000][seed as usize % 3];
            let len = 1 + prng.below(most) as usize;
            let mut all = vec![(Pages::zeros(len), vec![0; len])];
            for _ in 0..200 {
                let which = prng.below(all.len() as u64) as usize;
                if prng.below(20) == 0 {
                    let cut = all[which].clone();
                    all.push(cut);
                } else if prng.below(25) == 0 && all.len() > 1 {
                    all.swap_remove(which);
                } else {
                    let (at, byte) = (prng.below(len as u64) as usize, prng.below(256) as u8);
                    let (pages, model) = &mut all[which];
                    pages.page_mut(at / PAGE_BYTES)[at % PAGE_BYTES] = byte;
                    model[at] = byte;
                }
            }
            for (pages, model) in &all {
                pages.check_invariants();
                assert!(bytes_of(pages) == *model, "seed {seed}");
                let held = (0..pages.pages()).filter(|page| pages.page(*page).is_some());
                let next = |page: &usize| pages.next_held(*page + 1);
                let found = std::iter::successors(pages.next_held(0), next);
                assert!(held.eq(found), "seed {seed}");
            }
        }
        while lazyfree::run(&Never) {}
    }

    #[test] // Also with readers and other holders of a page.
    fn joined_parts_equal_the_whole_array() {
        for len in [3_000, 9_000_000] {
            let (mut whole, mut model) = (Pages::zeros(len), vec![0; len]);
            for run in 0..len.div_ceil(ROOT_PAGES * PAGE_BYTES) {
                let mut part = Pages::zeros(len);
                for page in [0, 7, 40].map(|page| run * ROOT_PAGES + page) {
                    if page < part.pages() {
                        part.page_mut(page)[5] = 1;
                        model[page * PAGE_BYTES + 5] = 1;
                    }
                }
                whole.join(part);
                whole.check_invariants();
            }
            assert!(bytes_of(&whole) == model);
            assert!(!whole.is_shared(0));
            let reader = whole.reader();
            assert!(whole.is_shared(0) && reader.pinned_bytes() == 0);
            whole.page_mut(0)[6] = 2;
            assert!(!whole.is_shared(0), "a copy");
            drop(whole);
            assert_eq!(reader.pinned_bytes(), reader.memory_bytes());
            assert!(bytes_of(&reader) == model);
        }
        while lazyfree::run(&Never) {}
    }

    #[test] // Until it is written to.
    fn an_array_of_zeros_takes_no_memory() {
        assert_eq!(Pages::zeros(PAGE_BYTES).memory_bytes(), 0);
        let mut pages = Pages::zeros(64 << 30);
        assert!(pages.memory_bytes() < 200_000, "{}", pages.memory_bytes());
        let before = pages.memory_bytes();
        pages.page_mut(12_345_678)[7] = 1;
        assert_eq!(pages.memory_bytes() - before, PAGE_MEMORY + 2 * NODE_MEMORY);
        let cut = pages.clone();
        drop(pages);
        assert_eq!(lazyfree::waiting().1, 0, "the cut has it all");
        while lazyfree::run(&Never) {}
        drop(cut);
        assert_eq!(lazyfree::waiting().1, PAGE_MEMORY + 2 * NODE_MEMORY);
        while lazyfree::run(&Never) {}
        assert_eq!(lazyfree::waiting(), (0, 0));
    }
}
