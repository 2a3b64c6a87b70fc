//! The directory: from the first bits of a hash to a segment, over two levels that are copied
//! piecewise.
//!
//! One flat array would be enough for lookups. But the first write after a cut would copy all of
//! it, touching every segment's count. Here a write copies the top and one leaf: a hundred counts
//! each, at any size.
//!
//! ```text
//! hash: | top.bits | leaf.bits | ...        leaf.skip = depth of its run in the top
//!
//! top    fan of leaves     | A A | B | C |        a run of equal slots is one leaf
//! leaf   fan of segments   | s s s s | t t | u | v |    at most 2^LEAF_BITS slots
//! ```
//! Both levels are extendible directories: 2^bits slots, where a child of depth d (it knows d bits
//! of its fan) fills an aligned run of 2^(bits-d). A full child splits its run in two; if the run
//! is one slot, the fan doubles. A leaf that would double beyond [`LEAF_BITS`] splits instead.
//!
//! Invariants (`check`):
//! - D1: runs are aligned, and only the first slot of a run owns its handle.
//! - D2: the `earliest` of a segment's run is at most its earliest deadline; that of a leaf's run
//!   is the least `earliest` in the leaf.
//! - D3: a leaf's `skip` is its depth in the top; no leaf has more than [`LEAF_BITS`] bits.
//!
//! Not here: when to split and merge. See `rebuild`.

use super::segment::Seg;
use super::value::OutOfLine;
use crate::owner::Owner;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Most bits that one leaf knows: 128 slots, 3 KiB.
pub(super) const LEAF_BITS: u8 = 7;
/// Two leaves are merged if the result has at most this many bits.
const LEAF_BITS_MERGE: u8 = LEAF_BITS - 2;
/// The deepest segment, in bits of the hash: the most that a scan's cursor can express. With
/// uniform hashes, a table reaches this depth at 38 G entries.
pub(super) const DEPTH_MAX: u8 = 26;
/// `earliest` of entries without a deadline.
pub(super) const NEVER: u64 = u64::MAX;

/// A slot of a fan.
struct Slot<P> {
    handle: ManuallyDrop<P>,
    earliest: u64,
    depth: u8,
}

/// One level of the directory; see the module's documentation.
pub(super) struct Fan<P> {
    bits: u8,
    slots: Vec<Slot<P>>,
}

impl<P: Clone> Clone for Fan<P> {
    fn clone(&self) -> Self {
        let mut copy = Self { bits: self.bits, slots: Vec::with_capacity(self.slots.len()) };
        for first in self.firsts() {
            let slot = &self.slots[first];
            let handle = P::clone(&slot.handle);
            copy.push_run(handle, slot.earliest, slot.depth);
        }
        copy
    }
}

impl<P> Drop for Fan<P> {
    fn drop(&mut self) {
        while self.pop_run().is_some() {}
    }
}

impl<P> Fan<P> {
    /// A fan of one child.
    pub(super) fn one(handle: P, earliest: u64) -> Self {
        let slot = Slot { handle: ManuallyDrop::new(handle), earliest, depth: 0 };
        Self { bits: 0, slots: vec![slot] }
    }

    pub(super) fn bits(&self) -> u8 {
        self.bits
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<P>>()
    }

    /// The slot for a hash; the fan's own bits come first in it.
    #[inline]
    pub(super) fn index(&self, hash: u64) -> usize {
        // Shifts in two steps: a shift by 64 would overflow.
        let index = (hash >> 1 >> (63 - self.bits)) as usize;
        debug_assert!(index < self.slots.len(), "{index} of {} slots", self.slots.len());
        index
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> &P {
        &self.slots[index].handle
    }

    /// The handle, for changes of its target; to replace the handle, see [`Fan::replace`].
    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> &mut P {
        &mut self.slots[index].handle
    }

    pub(super) fn depth(&self, index: usize) -> u8 {
        self.slots[index].depth
    }

    /// The slots of the child in `index`.
    #[inline]
    pub(super) fn run(&self, index: usize) -> Range<usize> {
        let depth = self.slots[index].depth;
        debug_assert!(depth <= self.bits, "D1: depth={depth} bits={}", self.bits);
        let len = 1 << (self.bits - depth);
        let first = index & !(len - 1);
        first..first + len
    }

    /// The first slot of each run.
    pub(super) fn firsts(&self) -> impl Iterator<Item = usize> {
        let mut next = 0;
        std::iter::from_fn(move || {
            (next < self.slots.len()).then(|| {
                let first = next;
                next = self.run(first).end;
                first
            })
        })
    }

    /// The earliest deadline of the child in `index`, or a lower bound.
    pub(super) fn earliest(&self, index: usize) -> u64 {
        self.slots[self.run(index).start].earliest
    }

    pub(super) fn set_earliest(&mut self, index: usize, earliest: u64) {
        let first = self.run(index).start;
        self.slots[first].earliest = earliest;
    }

    #[inline]
    pub(super) fn lower_earliest(&mut self, index: usize, earliest: u64) {
        let first = self.run(index).start;
        self.slots[first].earliest = self.slots[first].earliest.min(earliest);
    }

    /// The least `earliest` of all children.
    pub(super) fn earliest_of_all(&self) -> u64 {
        self.firsts().map(|first| self.slots[first].earliest).min().unwrap_or(NEVER)
    }

    /// The first child from slot `from` on whose `earliest` is at most `now`.
    pub(super) fn next_expired(&self, from: usize, now: u64) -> Option<usize> {
        let mut at = from;
        while at < self.slots.len() {
            if self.slots[at].earliest <= now {
                return Some(at);
            }
            at = self.run(at).end;
        }
        None
    }

    fn push_run(&mut self, handle: P, earliest: u64, depth: u8) {
        assert!(depth <= self.bits, "D1: depth={depth} bits={}", self.bits);
        let handle = ManuallyDrop::new(handle);
        for _ in 0..1_usize << (self.bits - depth) {
            // SAFETY: a copy that is never dropped: only the first slot of a run is (D1).
            let handle = unsafe { ptr::read(&raw const handle) };
            self.slots.push(Slot { handle, earliest, depth });
        }
    }

    fn set_run(&mut self, run: Range<usize>, handle: P, earliest: u64) {
        debug_assert!(
            run.len().is_power_of_two() && run.start.is_multiple_of(run.len()),
            "{run:?}"
        );
        let handle = ManuallyDrop::new(handle);
        let depth = self.bits - run.len().trailing_zeros() as u8;
        for slot in &mut self.slots[run] {
            // SAFETY: a copy that is never dropped: only the first slot of a run is (D1).
            let handle = unsafe { ptr::read(&raw const handle) };
            *slot = Slot { handle, earliest, depth };
        }
    }

    fn take(&mut self, index: usize) -> P {
        let first = self.run(index).start;
        // SAFETY: the callers overwrite or remove the run at once, without dropping it.
        unsafe { ManuallyDrop::take(&mut self.slots[first].handle) }
    }

    /// Replaces a child; returns the old one.
    pub(super) fn replace(&mut self, index: usize, handle: P) -> P {
        let (run, earliest) = (self.run(index), self.earliest(index));
        let old = self.take(index);
        self.set_run(run, handle, earliest);
        old
    }

    /// Replaces a child by two; returns the old one.
    pub(super) fn split(&mut self, index: usize, left: (P, u64), right: (P, u64)) -> P {
        let mut index = index;
        if self.depth(index) == self.bits {
            self.double();
            index *= 2;
        }
        let run = self.run(index);
        // Otherwise one child would be lost.
        assert!(run.len() >= 2, "a run of {} slots has no halves", run.len());
        let middle = run.start + run.len() / 2;
        let old = self.take(index);
        self.set_run(run.start..middle, left.0, left.1);
        self.set_run(middle..run.end, right.0, right.1);
        old
    }

    /// The run that, together with the run of `index`, makes up the next larger one.
    pub(super) fn sibling(&self, index: usize) -> Option<usize> {
        let run = self.run(index);
        if run.len() == self.slots.len() {
            return None;
        }
        let first = run.start ^ run.len();
        (self.depth(first) == self.depth(index)).then_some(first)
    }

    /// Replaces two siblings by one child; returns them, the one in `index` first.
    pub(super) fn merge(&mut self, index: usize, handle: P, earliest: u64) -> (P, P) {
        let run = self.run(index);
        let sibling = run.start ^ run.len();
        // Otherwise one of the handles would not be where it is taken from.
        assert_eq!(self.depth(sibling), self.depth(index), "D1: {sibling} beside {index}");
        let old = (self.take(index), self.take(sibling));
        let first = run.start.min(sibling);
        self.set_run(first..first + run.len() * 2, handle, earliest);
        self.halve();
        old
    }

    fn double(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots.reserve_exact(old.len() * 2);
        for Slot { handle, earliest, depth } in old {
            // SAFETY: a copy that is never dropped: it is not the first of its run (D1).
            let copy = unsafe { ptr::read(&raw const handle) };
            self.slots.push(Slot { handle, earliest, depth });
            self.slots.push(Slot { handle: copy, earliest, depth });
        }
        self.bits += 1;
        assert_eq!(self.slots.len(), 1 << self.bits, "twice as many slots");
    }

    /// Halves the fan as long as every run has at least two slots.
    fn halve(&mut self) {
        while self.bits > 0 && self.slots.iter().all(|slot| slot.depth < self.bits) {
            let mut keep = false;
            self.slots.retain(|_| {
                // The first slot of each pair stays, so the first slot of each run does.
                keep = !keep;
                keep
            });
            self.slots.shrink_to_fit();
            self.bits -= 1;
        }
        assert_eq!(self.slots.len(), 1 << self.bits, "half as many slots");
    }

    /// Splits a fan in two by its first bit, which all children know.
    fn halves(mut self) -> (Self, Self) {
        assert!(self.bits > 0, "one slot has no halves");
        let bits = self.bits - 1;
        let mut left = Self { bits, slots: Vec::with_capacity(1 << bits) };
        let mut right = Self { bits, slots: Vec::with_capacity(1 << bits) };
        for (at, mut slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            assert!(slot.depth > 0, "the child in slot {at} lies in both halves");
            slot.depth -= 1;
            if at < 1 << bits { &mut left } else { &mut right }.slots.push(slot);
        }
        left.halve();
        right.halve();
        (left, right)
    }

    /// Reverses [`Fan::halves`].
    fn joined(mut left: Self, mut right: Self) -> Self {
        while left.bits < right.bits {
            left.double();
        }
        while right.bits < left.bits {
            right.double();
        }
        assert_eq!(left.bits, right.bits, "halves are of one size");
        let mut slots = std::mem::take(&mut left.slots);
        slots.reserve_exact(right.slots.len());
        slots.append(&mut right.slots);
        slots.iter_mut().for_each(|slot| slot.depth += 1);
        Self { bits: left.bits + 1, slots }
    }

    /// Removes the last child. The fan must only be taken apart further after that.
    pub(super) fn pop_run(&mut self) -> Option<P> {
        let last = self.slots.len().checked_sub(1)?;
        let first = self.run(last).start;
        let handle = self.take(last);
        self.slots.truncate(first);
        Some(handle)
    }

    fn check(&self) {
        assert_eq!(self.slots.len(), 1 << self.bits);
        for first in self.firsts() {
            let depth = self.depth(first);
            assert!(self.run(first).all(|at| self.depth(at) == depth), "D1: depth of a run");
            assert_eq!(self.run(first).start, first, "D1: runs are aligned");
        }
    }
}

/// The lower level.
#[derive(Clone)]
pub(super) struct Leaf<X: OutOfLine> {
    skip: u8,
    pub(super) fan: Fan<Seg<X>>,
}

/// The upper level.
#[derive(Clone)]
pub(super) struct Directory<X: OutOfLine> {
    pub(super) top: Fan<Arc<Leaf<X>>>,
    leaf_bytes: usize,
    /// The table's owner handle, or a reader's: see [`Table::reader`](super::Table::reader).
    pub(super) owner: Owner,
}

/// The place of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) top: usize,
    pub(super) leaf: usize,
}

/// The target for changes, if it is not shared. Cheaper than `Arc::get_mut`, which must allow for
/// weak references.
#[inline]
pub(crate) fn get_mut<T: ?Sized>(arc: &mut Arc<T>) -> Option<&mut T> {
    if Arc::strong_count(arc) != 1 {
        return None;
    }
    fence(Ordering::Acquire);
    debug_assert_eq!(Arc::weak_count(arc), 0);
    // SAFETY: the only reference, borrowed mutably; the fence orders us after the last other one.
    Some(unsafe { &mut *Arc::as_ptr(arc).cast_mut() })
}

impl<X: OutOfLine> Leaf<X> {
    #[inline]
    fn index(&self, hash: u64) -> usize {
        self.fan.index(hash << self.skip)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + 2 * size_of::<usize>() + self.fan.bytes()
    }

    /// The number of hash bits that the segment in `index` knows.
    pub(super) fn depth(&self, index: usize) -> u8 {
        self.skip + self.fan.depth(index)
    }
}

impl<X: OutOfLine> Directory<X> {
    /// A directory of one segment.
    pub(super) fn one(segment: Seg<X>, earliest: u64) -> Self {
        let leaf = Leaf { skip: 0, fan: Fan::one(segment, earliest) };
        let leaf_bytes = leaf.bytes();
        Self { top: Fan::one(Arc::new(leaf), earliest), leaf_bytes, owner: Owner::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.leaf_bytes + self.top.bytes()
    }

    #[inline]
    pub(super) fn path(&self, hash: u64) -> Path {
        let top = self.top.index(hash);
        Path { top, leaf: self.top.get(top).index(hash) }
    }

    #[inline]
    pub(super) fn segment(&self, hash: u64) -> &Seg<X> {
        let leaf = self.top.get(self.top.index(hash));
        leaf.fan.get(leaf.index(hash))
    }

    #[inline]
    pub(super) fn segment_at(&self, path: Path) -> &Seg<X> {
        self.top.get(path.top).fan.get(path.leaf)
    }

    /// True if neither the segment nor its leaf is shared.
    #[inline]
    pub(super) fn is_own(&mut self, path: Path) -> bool {
        get_mut(self.top.get_mut(path.top)).is_some_and(|leaf| leaf.fan.get(path.leaf).is_unique())
    }

    /// The leaf, copied first if it is shared.
    #[inline]
    pub(super) fn leaf_mut(&mut self, top: usize) -> &mut Leaf<X> {
        if get_mut(self.top.get_mut(top)).is_none() {
            self.copy_leaf(top);
        }
        get_mut(self.top.get_mut(top)).expect("just copied, if it was shared")
    }

    #[cold]
    fn copy_leaf(&mut self, top: usize) {
        let before = self.top.get(top).bytes();
        let copy = Leaf::clone(self.top.get(top));
        assert_eq!(copy.fan.len(), self.top.get(top).fan.len(), "a copy has all slots");
        self.resize_leaves(before, copy.bytes());
        self.top.replace(top, Arc::new(copy));
    }

    /// The segment; it and its leaf are copied first if they are shared.
    #[inline]
    pub(super) fn segment_mut(&mut self, path: Path) -> &mut Seg<X> {
        if !self.leaf_mut(path.top).fan.get(path.leaf).is_unique() {
            self.copy_segment(path);
        }
        self.leaf_mut(path.top).fan.get_mut(path.leaf)
    }

    #[cold]
    fn copy_segment(&mut self, path: Path) {
        let fan = &mut self.leaf_mut(path.top).fan;
        let (copy, bytes) = (fan.get(path.leaf).deep_clone(), fan.get(path.leaf).bytes());
        assert_eq!(copy.len(), fan.get(path.leaf).len(), "a copy has all entries");
        assert_eq!(copy.bytes(), bytes, "a copy takes as much"); // The table's sum stays.
        fan.replace(path.leaf, copy);
        self.owner.note_copied(bytes);
    }

    pub(super) fn earliest(&self, path: Path) -> u64 {
        self.top.get(path.top).fan.earliest(path.leaf)
    }

    /// Lowers the bounds along `path` to a deadline.
    #[inline]
    pub(super) fn lower_earliest(&mut self, path: Path, earliest: u64) {
        self.leaf_mut(path.top).fan.lower_earliest(path.leaf, earliest);
        self.top.lower_earliest(path.top, earliest);
    }

    /// Raises the `earliest` of a leaf after that of one of its segments was raised.
    pub(super) fn settle_earliest(&mut self, top: usize) {
        let earliest = self.top.get(top).fan.earliest_of_all();
        let before = self.top.earliest(top);
        // Otherwise the leaf's bound was wrong.
        assert!(earliest >= before, "D2: {earliest} below a leaf of {before}");
        self.top.set_earliest(top, earliest);
    }

    /// The common first bits, left-aligned, of the hashes in the segment at `path`, and their
    /// number.
    pub(super) fn prefix(&self, path: Path) -> (u64, u8) {
        let leaf = self.top.get(path.top);
        let shift = |index: usize, bits: u8| (index as u64) << 1 << (63 - bits);
        let top = shift(self.top.run(path.top).start, self.top.bits());
        let low = shift(leaf.fan.run(path.leaf).start, leaf.fan.bits()) >> leaf.skip;
        (top | low, leaf.depth(path.leaf))
    }

    /// Accounts for leaves whose size changes from `before` to `after` bytes.
    fn resize_leaves(&mut self, before: usize, after: usize) {
        assert!(self.leaf_bytes >= before, "{before} of {} bytes", self.leaf_bytes);
        self.leaf_bytes = self.leaf_bytes - before + after;
    }

    /// Replaces a segment by one with the same entries; returns the old one.
    pub(super) fn replace(&mut self, path: Path, new: Seg<X>) -> Seg<X> {
        let old = self.leaf_mut(path.top).fan.replace(path.leaf, new);
        let new = self.segment_at(path);
        assert!(old.len() == 0 || old.len() == new.len(), "{} of {}", new.len(), old.len());
        old
    }

    /// Replaces a segment by its two halves; returns the old one.
    pub(super) fn split(
        &mut self,
        path: Path,
        left: (Seg<X>, u64),
        right: (Seg<X>, u64),
    ) -> Seg<X> {
        let hash = self.prefix(path).0;
        let fan = &self.top.get(path.top).fan;
        if fan.bits() == LEAF_BITS && fan.depth(path.leaf) == LEAF_BITS {
            self.split_leaf(path.top);
        }
        let path = self.path(hash);
        let leaf = self.leaf_mut(path.top);
        let before = leaf.bytes();
        let old = leaf.fan.split(path.leaf, left, right);
        let (after, earliest) = (leaf.bytes(), leaf.fan.earliest_of_all());
        self.resize_leaves(before, after);
        self.top.set_earliest(path.top, earliest);
        old
    }

    fn split_leaf(&mut self, top: usize) {
        let leaf = Leaf::clone(self.leaf_mut(top));
        let skip = leaf.skip + 1;
        assert!(skip <= DEPTH_MAX, "out of hash bits: skip={skip}");
        let (left, right) = leaf.fan.halves();
        let with_earliest = |fan: Fan<Seg<X>>| {
            let earliest = fan.earliest_of_all();
            (Arc::new(Leaf { skip, fan }), earliest)
        };
        let (left, right) = (with_earliest(left), with_earliest(right));
        let added = left.0.bytes() + right.0.bytes();
        let old = self.top.split(top, left, right);
        self.resize_leaves(old.bytes(), added);
    }

    /// Replaces a segment and its sibling by one; returns both.
    pub(super) fn merge(&mut self, path: Path, new: Seg<X>, earliest: u64) -> (Seg<X>, Seg<X>) {
        let leaf = self.leaf_mut(path.top);
        let before = leaf.bytes();
        let old = leaf.fan.merge(path.leaf, new, earliest);
        let (after, earliest) = (leaf.bytes(), leaf.fan.earliest_of_all());
        self.resize_leaves(before, after);
        self.top.set_earliest(path.top, earliest);
        self.merge_leaves(path.top);
        old
    }

    fn merge_leaves(&mut self, top: usize) {
        let mut top = top;
        while let Some(sibling) = self.top.sibling(top) {
            let first = self.top.run(top).start.min(sibling);
            let second = self.top.run(top).start.max(sibling);
            let bits = |at: usize| self.top.get(at).fan.bits();
            if bits(first).max(bits(second)) > LEAF_BITS_MERGE {
                return;
            }
            let (left, right) = (self.top.get(first), self.top.get(second));
            assert_eq!(left.skip, right.skip, "D3: siblings know as many bits");
            let gone = left.bytes() + right.bytes();
            let fan = Fan::joined(left.fan.clone(), right.fan.clone());
            let leaf = Leaf { skip: left.skip - 1, fan };
            let earliest = leaf.fan.earliest_of_all();
            self.resize_leaves(gone, leaf.bytes());
            let hash = (first as u64) << 1 << (63 - self.top.bits());
            self.top.merge(first, Arc::new(leaf), earliest);
            top = self.top.index(hash);
        }
    }

    /// The paths of all segments, in the order of prefixes.
    pub(super) fn paths(&self) -> impl Iterator<Item = Path> {
        let tops = self.top.firsts();
        tops.flat_map(|top| self.top.get(top).fan.firsts().map(move |leaf| Path { top, leaf }))
    }

    /// The path after `path`, in the order of prefixes.
    pub(super) fn path_after(&self, path: Path) -> Option<Path> {
        let fan = &self.top.get(path.top).fan;
        let leaf = fan.run(path.leaf).end;
        if leaf < fan.len() {
            return Some(Path { top: path.top, leaf });
        }
        let top = self.top.run(path.top).end;
        (top < self.top.len()).then_some(Path { top, leaf: 0 })
    }

    /// Checks D1 to D3 for a leaf. Returns its bytes.
    pub(super) fn check_leaf(&self, top: usize) -> usize {
        let leaf = self.top.get(top);
        leaf.fan.check();
        assert_eq!(leaf.skip, self.top.depth(top), "D3: skip");
        assert!(leaf.fan.bits() <= LEAF_BITS, "D3: bits");
        assert_eq!(self.top.earliest(top), leaf.fan.earliest_of_all(), "D2: earliest of a leaf");
        leaf.bytes()
    }

    /// Checks D1 for the upper level, and the total bytes of all leaves.
    pub(super) fn check_top(&self, leaf_bytes: usize) {
        self.top.check();
        assert_eq!(leaf_bytes, self.leaf_bytes, "bytes of leaves");
    }
}
