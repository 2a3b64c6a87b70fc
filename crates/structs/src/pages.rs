//! Bytes of a fixed number that begin as zeros, changed in places all over: the bits of filters.
//!
//! A blob is for what is written in order: its chunks are of 64 KiB, and a change at random would copy
//! one for each bit. Here a page is of 4 KiB, and one of zeros takes no memory: so an array of gigabytes
//! begins as nothing, and is as large as what was written to it.
//!
//! ```text
//! Short:  |exact bytes|                               up to a page
//! Tree:   roots: * . *       up to 32 branches a root, 32 leaves a branch... of 32 pages each
//!                | | +-> |leaf|....|leaf| -> |page|....|page|
//!                | +---> nothing: zeros
//! ```
//! Invariants (`check_invariants`):
//! - I1: `Short` holds at most [`PAGE_BYTES`]; a tree has more.
//! - I2: no branch and no leaf is empty, and `memory_bytes` counts what there is.
//!
//! Cloning is a cut: O(roots), of which each has 4 MB. A write after it copies a page and the 32
//! pointers of two levels, some microseconds. Dropping a tree defers it.

use crate::lazyfree::{self, Dismantle};
use crate::owner::Owner;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a page: with the two counts in front of it, a size class of the allocator.
pub const PAGE_BYTES: usize = 4096 - 2 * size_of::<usize>();
/// Pages of a leaf, leaves of a branch.
const FAN: usize = 32;
/// Pages of a branch.
const BRANCH_PAGES: usize = FAN * FAN;
const PAGE_MEMORY: usize = PAGE_BYTES + COUNTS;
const NODE_MEMORY: usize = FAN * size_of::<usize>() + COUNTS;
const COUNTS: usize = 2 * size_of::<usize>();

type Page = [u8; PAGE_BYTES];
type Leaf = [Option<Arc<Page>>; FAN];
type Branch = [Option<Arc<Leaf>>; FAN];

/// See the module.
#[derive(Clone, Debug)]
pub struct Pages(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Short(Arc<[u8]>),
    Tree(Box<Tree>),
}

#[derive(Clone, Debug)]
struct Tree {
    roots: Vec<Option<Arc<Branch>>>,
    len: usize,
    /// Bytes of pages, leaves and branches.
    held: usize,
    owner: Owner,
}

impl Pages {
    /// So many zeros. Cost: O(len / 4 MB), a pointer each.
    #[must_use]
    pub fn zeros(len: usize) -> Self {
        if len <= PAGE_BYTES {
            return Self(Repr::Short(Arc::from(vec![0; len])));
        }
        let roots = vec![None; len.div_ceil(PAGE_BYTES).div_ceil(BRANCH_PAGES)];
        Self(Repr::Tree(Box::new(Tree { roots, len, held: 0, owner: Owner::new() })))
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Short(bytes) => bytes.len(),
            Repr::Tree(tree) => tree.len,
        }
    }

    /// True when there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many pages they are.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.len().div_ceil(PAGE_BYTES)
    }

    /// Where the bytes of a page are: all but the last are full.
    fn bounds(&self, page: usize) -> Range<usize> {
        let start = page * PAGE_BYTES;
        start..self.len().min(start + PAGE_BYTES)
    }

    /// Bytes of memory, shared with cuts or not. Cost: O(1).
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Repr::Short(bytes) => bytes.len() + COUNTS,
            Repr::Tree(tree) => {
                tree.held + tree.roots.len() * size_of::<usize>() + size_of::<Tree>()
            }
        }
    }

    /// The bytes of a page; `None`: zeros.
    ///
    /// # Panics
    /// Unless `page` is below [`Pages::pages`].
    #[must_use]
    pub fn page(&self, page: usize) -> Option<&[u8]> {
        match &self.0 {
            Repr::Short(bytes) => {
                assert_eq!(page, 0, "there is one page");
                Some(bytes)
            }
            Repr::Tree(tree) => {
                let branch = tree.roots[page / BRANCH_PAGES].as_ref()?;
                let leaf = branch[page / FAN % FAN].as_ref()?;
                let bytes = leaf[page % FAN].as_ref()?;
                Some(&bytes[..self.bounds(page).len()])
            }
        }
    }

    /// The bytes of a page, to be changed: its own, if a cut shares them. Panics as [`Pages::page`].
    pub fn page_mut(&mut self, page: usize) -> &mut [u8] {
        let len = self.bounds(page).len();
        match &mut self.0 {
            Repr::Short(bytes) => {
                assert_eq!(page, 0, "there is one page");
                Arc::make_mut(bytes)
            }
            Repr::Tree(tree) => {
                let Tree { roots, held, .. } = &mut **tree;
                let branch = own(&mut roots[page / BRANCH_PAGES], held, NODE_MEMORY, new_branch);
                let leaf = own(&mut branch[page / FAN % FAN], held, NODE_MEMORY, new_leaf);
                let bytes = own(&mut leaf[page % FAN], held, PAGE_MEMORY, || [0; PAGE_BYTES]);
                &mut bytes[..len]
            }
        }
    }

    /// Overwrites a page; zeros over zeros take no memory. False where there is none, or of another
    /// length.
    #[must_use]
    pub fn load(&mut self, page: usize, bytes: &[u8]) -> bool {
        let fits = page < self.pages() && bytes.len() == self.bounds(page).len();
        if fits && (self.page(page).is_some() || bytes.iter().any(|byte| *byte != 0)) {
            self.page_mut(page).copy_from_slice(bytes);
        }
        fits
    }

    /// The first page from this one on that is not nothing but zeros for want of memory. Cost: O(1) for
    /// each 4 MB that have none.
    #[must_use]
    pub fn next_held(&self, from: usize) -> Option<usize> {
        let Repr::Tree(tree) = &self.0 else { return (from < self.pages()).then_some(from) };
        let mut page = from;
        while page < self.pages() {
            let Some(branch) = &tree.roots[page / BRANCH_PAGES] else {
                page = (page / BRANCH_PAGES + 1) * BRANCH_PAGES;
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
        assert_eq!(tree.roots.len(), self.pages().div_ceil(BRANCH_PAGES), "I1: roots");
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

/// What is in a place, to be changed; something new if there was nothing, which takes memory.
fn own<'a, T: Clone>(
    place: &'a mut Option<Arc<T>>,
    held: &mut usize,
    memory: usize,
    new: fn() -> T,
) -> &'a mut T {
    Arc::make_mut(place.get_or_insert_with(|| {
        *held += memory;
        Arc::new(new())
    }))
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Repr::Tree(tree) = &mut self.0 {
            let roots = std::mem::take(&mut tree.roots);
            let rest = Rest { roots, left: tree.held, owner: tree.owner.retire() };
            lazyfree::defer(Box::new(rest));
        }
    }
}

/// What is left of a dropped tree.
struct Rest {
    roots: Vec<Option<Arc<Branch>>>,
    /// Bytes of it, shared or not.
    left: usize,
    owner: Owner,
}

impl Dismantle for Rest {
    fn dismantle(&mut self) -> bool {
        while self.roots.pop_if(|root| root.is_none()).is_some() {}
        let Some(root) = self.roots.last_mut() else { return false };
        // What is shared is for its other owner to free.
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
        // The shared part stays, which may be all.
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

    #[test] // Changes at random, to a value and to its cuts, agree with plain vectors.
    fn pages_match_vectors() {
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

    #[test] // An array of gigabytes is nothing until it is written to, and is freed whole.
    fn zeros_take_no_memory() {
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
