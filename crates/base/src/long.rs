//! A long name (a key, field or member) in one reference-counted block, with cached facts about it.
//!
//! Any work on 200 MB takes longer than a slice: copying, the slot, hashing, comparing, freeing. So
//! a long name is assembled in portions ([`Draft`]), which compute its hash, its
//! [digest](crate::digest) and its slot on the way. From then on the block is shared by reference
//! count, with the table's entry as one more owner. It is freed in portions (`lazyfree`).
//!
//! ```text
//! | count: 8 | length: 8 | hash: 8 | bytes ... |
//! ```
//! Blocks longer than [`KNOWN_MIN`] are listed by the address of their bytes: code that has only a
//! `&[u8]` ([`crate::hash::of`], [`crate::slot::of`], a table lookup) checks the list first, so no
//! code between the parser and the table treats long names apart. One list serves all cores,
//! because a name is assembled on one, looked up on another and freed on a third. Its lock is held
//! for a look-up, and taken only for names of 64 KiB or more, which took their core much longer to
//! receive.
//!
//! A list, and not a type for names: a type would have to pass through every signature from the
//! arguments to the table, for the one request in a million that has such a name.

use crate::digest::Digest;
use crate::lazyfree::{self, Dismantle};
use crate::limits::CHUNK_BYTES;
use crate::{hash, slot};
use std::alloc::{self, Layout};
use std::cmp;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Longer blocks are in the list.
pub const KNOWN_MIN: usize = CHUNK_BYTES;

/// Bytes freed at once; twice this number at the end.
const FREED_AT_ONCE: usize = 256 * 1024;

#[repr(C)]
struct Head {
    count: AtomicUsize,
    len: usize,
    hash: u64,
}

/// The facts about a block.
struct Known {
    block: NonNull<u8>,
    len: usize,
    digest: u128,
    slot: Option<u16>,
}

// SAFETY: the block's bytes never change, and its count is atomic.
unsafe impl Send for Known {}

/// The list, by the address of the bytes.
///
/// Invariant: a block is listed from before its first owner until after its last, and its memory
/// lives as long.
static KNOWN: Mutex<BTreeMap<usize, Known>> = Mutex::new(BTreeMap::new());

fn list() -> MutexGuard<'static, BTreeMap<usize, Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the facts about `bytes`, if they are those of a listed block.
fn known<R>(bytes: &[u8], read: impl FnOnce(&Known) -> R) -> Option<R> {
    if bytes.len() <= KNOWN_MIN {
        return None;
    }
    list().get(&bytes.as_ptr().addr()).filter(|known| known.len == bytes.len()).map(read)
}

/// The hash of `bytes`, if they are those of a listed block. Cost: O(1).
#[must_use]
pub fn known_hash(bytes: &[u8]) -> Option<u64> {
    // SAFETY: listed blocks live.
    known(bytes, |known| unsafe { Long::hash_of(known.block) })
}

/// The slot of `bytes`, if they are those of a listed block whose slot was computed. Cost: O(1).
#[must_use]
pub fn known_slot(bytes: &[u8]) -> Option<u16> {
    known(bytes, |known| known.slot).flatten()
}

/// True when two names are equal. Cost: O(1) when both are in listed blocks, whatever their
/// lengths; otherwise a comparison of the bytes.
#[must_use]
pub fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() || one.len() <= KNOWN_MIN {
        return one == other;
    }
    match (summary(one), summary(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// The hash and the digest of a listed block, which stand for its bytes together with their length.
fn summary(bytes: &[u8]) -> Option<(u64, u128)> {
    // SAFETY: listed blocks live.
    known(bytes, |known| (unsafe { Long::hash_of(known.block) }, known.digest))
}

/// A name in a reference-counted block. Cloning it counts a reference.
pub struct Long(NonNull<u8>);

// SAFETY: the bytes never change, and their count is atomic.
unsafe impl Send for Long {}
// SAFETY: as above.
unsafe impl Sync for Long {}

impl Long {
    /// The block that `name` is in, or a copy, whose hash is known.
    #[must_use]
    pub fn new(name: &[u8], hash: u64) -> Self {
        let counted = known(name, |known| {
            // SAFETY: listed blocks live; as its bytes are borrowed, it has an owner.
            unsafe { Self::retain(known.block) };
            Self(known.block)
        });
        counted.unwrap_or_else(|| Self::copy(name, hash))
    }

    fn copy(name: &[u8], hash: u64) -> Self {
        let mut memory = Memory::new(name.len());
        // SAFETY: the memory is fresh, and has room for these bytes.
        unsafe { memory.write(0, name) };
        let mut digest = Digest::new();
        if name.len() > KNOWN_MIN {
            digest.update(name);
        }
        // SAFETY: all bytes were written.
        unsafe { Self::of(memory, hash, digest.finish(), None) }
    }

    /// # Safety
    /// The memory's bytes are written.
    unsafe fn of(memory: Memory, hash: u64, digest: u128, slot: Option<u16>) -> Self {
        let (len, block) = (memory.len(), memory.into_raw());
        let head = Head { count: AtomicUsize::new(1), len, hash };
        // SAFETY: the block has room for the head, is aligned for it, and no other reference to it
        // exists.
        unsafe { block.cast::<Head>().write(head) };
        let long = Self(block);
        if len > KNOWN_MIN {
            list().insert(long.as_ptr().addr(), Known { block, len, digest, slot });
        }
        long
    }

    /// The raw pointer, which owns one count.
    #[must_use]
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).0
    }

    /// # Safety
    /// `raw` came from [`Long::into_raw`], and its count passes to the result.
    #[must_use]
    pub unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw)
    }

    /// Memory of a block of `len` bytes.
    #[must_use]
    pub fn bytes_for(len: usize) -> usize {
        size_of::<Head>() + len
    }

    /// The bytes.
    ///
    /// # Safety
    /// `raw` came from [`Long::into_raw`], and a count is held during `'a`.
    #[must_use]
    pub unsafe fn borrow<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the head was written by `of`, and lives.
        let len = unsafe { raw.cast::<Head>().as_ref() }.len;
        // SAFETY: the bytes follow the head.
        let bytes = unsafe { raw.add(size_of::<Head>()) };
        // SAFETY: `len` bytes were written, and no writer is left.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr(), len) }
    }

    /// The hash of the name.
    ///
    /// # Safety
    /// `raw` came from [`Long::into_raw`], and its memory lives.
    #[must_use]
    pub unsafe fn hash_of(raw: NonNull<u8>) -> u64 {
        // SAFETY: the head was written by `of`, and lives.
        unsafe { raw.cast::<Head>().as_ref() }.hash
    }

    /// Counts one more owner.
    ///
    /// # Safety
    /// As for [`Long::borrow`].
    pub unsafe fn retain(raw: NonNull<u8>) {
        // SAFETY: the head lives, as a count is held.
        unsafe { raw.cast::<Head>().as_ref() }.count.fetch_add(1, Ordering::Relaxed);
    }

    /// True when it has another owner.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        // SAFETY: the head lives, as `self` holds a count.
        unsafe { self.0.cast::<Head>().as_ref() }.count.load(Ordering::Relaxed) > 1
    }

    /// The hash of the name.
    #[must_use]
    pub fn hash(&self) -> u64 {
        // SAFETY: `self` holds a count.
        unsafe { Self::hash_of(self.0) }
    }
}

impl Deref for Long {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `self` holds a count.
        unsafe { Self::borrow(self.0) }
    }
}

impl Ord for Long {
    /// An order of its own, not that of the bytes: by length, then by what represents the bytes;
    /// only where nothing does, by the bytes. Cost: O(1).
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        let shape = |name: &Self| (name.len(), name.hash());
        let by_shape = shape(self).cmp(&shape(other));
        by_shape.then_with(|| match (summary(self), summary(other)) {
            (Some(one), Some(other)) => one.cmp(&other),
            _ => (**self).cmp(&**other),
        })
    }
}

impl PartialOrd for Long {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Long {}

impl PartialEq for Long {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Clone for Long {
    fn clone(&self) -> Self {
        // SAFETY: `self` holds a count.
        unsafe { Self::retain(self.0) };
        Self(self.0)
    }
}

impl Drop for Long {
    /// Drops one count. With the last the block is freed, in portions when it is long.
    fn drop(&mut self) {
        // SAFETY: the head lives, as `self` holds a count.
        let head = unsafe { self.0.cast::<Head>().as_ref() };
        let len = head.len;
        if head.count.fetch_sub(1, Ordering::Release) > 1 {
            return;
        }
        fence(Ordering::Acquire);
        if len > KNOWN_MIN {
            let address = self.0.addr().get() + size_of::<Head>();
            list().remove(&address);
        }
        // SAFETY: allocated with this size; no other count is held, and the list has no entry for
        // it.
        unsafe { Memory::from_raw(self.0, Self::bytes_for(len)) }.release();
    }
}

impl std::fmt::Debug for Long {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} bytes", self.len())
    }
}

/// A name being assembled.
pub struct Draft {
    memory: Memory,
    /// Bytes written.
    len: usize,
    hash: hash::HashPortions,
    digest: Digest,
    slot: Option<slot::SlotPortions>,
}

impl Draft {
    /// Room for a name of `len` bytes. None of it is touched.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let (hash, digest) = (hash::HashPortions::new(), Digest::new());
        Self { memory: Memory::new(len), len: 0, hash, digest, slot: None }
    }

    /// [`Draft::new`] for a key, whose slot is computed too.
    #[must_use]
    pub fn with_slot(len: usize) -> Self {
        Self { slot: Some(slot::SlotPortions::new()), ..Self::new(len) }
    }

    /// Bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True before the first byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory reserved; pages not written yet take none.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory.size
    }

    /// Appends bytes. Cost: O(bytes). Panics beyond the announced length.
    pub fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        assert!(end <= self.memory.len(), "{end} bytes of {}", self.memory.len());
        // SAFETY: there is room for them, as just asserted.
        unsafe { self.memory.write(self.len, bytes) };
        self.len = end;
        self.hash.update(bytes);
        self.digest.update(bytes);
        if let Some(slot) = &mut self.slot {
            slot.update(bytes);
        }
    }

    /// The name. Panics when bytes are missing.
    #[must_use]
    pub fn finish(self) -> Long {
        assert_eq!(self.len, self.memory.len(), "bytes are missing");
        let slot = self.slot.map(slot::SlotPortions::finish);
        // SAFETY: all bytes were written, as just asserted.
        unsafe { Long::of(self.memory, self.hash.finish(), self.digest.finish(), slot) }
    }

    /// Frees all of it, in portions.
    pub fn release(self) {
        self.memory.release();
    }
}

/// A block of memory, owned.
struct Memory {
    at: NonNull<u8>,
    size: usize,
}

// SAFETY: it has no other owner.
unsafe impl Send for Memory {}

impl Memory {
    /// Memory for a head and `len` bytes.
    fn new(len: usize) -> Self {
        let size = Long::bytes_for(len);
        let layout = Self::layout(size);
        // SAFETY: the layout is never empty: it has the head.
        let Some(at) = NonNull::new(unsafe { alloc::alloc(layout) }) else {
            alloc::handle_alloc_error(layout)
        };
        Self { at, size }
    }

    fn layout(size: usize) -> Layout {
        let layout = Layout::from_size_align(size, align_of::<Head>());
        layout.expect("a name is shorter than the address space")
    }

    /// Room for bytes, after the head.
    fn len(&self) -> usize {
        self.size - size_of::<Head>()
    }

    /// Writes bytes.
    ///
    /// # Safety
    /// `at + bytes.len() <= self.len()`.
    unsafe fn write(&mut self, at: usize, bytes: &[u8]) {
        debug_assert!(at + bytes.len() <= self.len());
        // SAFETY: inside the block, by the caller's promise.
        let to = unsafe { self.at.add(size_of::<Head>() + at) };
        // SAFETY: as above; the block has no other owner, so they do not overlap.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).at
    }

    /// # Safety
    /// `at` came from [`Memory::into_raw`] of a memory of this size, and is not used again.
    unsafe fn from_raw(at: NonNull<u8>, size: usize) -> Self {
        Self { at, size }
    }

    fn release(self) {
        if self.size > 2 * FREED_AT_ONCE {
            lazyfree::defer(Box::new(self));
        }
    }
}

impl Dismantle for Memory {
    /// Frees the end of the block, down to a multiple of the portion, so that no page is split. The
    /// server's allocator does so in place (`darter_runtime::heap`).
    fn dismantle(&mut self) -> bool {
        let start = self.at.addr().get();
        let size = ((start + self.size - 1) / FREED_AT_ONCE * FREED_AT_ONCE).saturating_sub(start);
        if size < FREED_AT_ONCE {
            return false;
        }
        let layout = Self::layout(self.size);
        // SAFETY: allocated with this layout, and the new size is not 0.
        let Some(at) = NonNull::new(unsafe { alloc::realloc(self.at.as_ptr(), layout, size) })
        else {
            return false; // Then all at once.
        };
        (self.at, self.size) = (at, size);
        true
    }

    fn bytes(&self) -> usize {
        self.size
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, with no other owner.
        unsafe { alloc::dealloc(self.at.as_ptr(), Self::layout(self.size)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prng;
    use crate::preempt::{Countdown, Never};

    /// A name that is listed.
    fn name(seed: u64) -> Vec<u8> {
        Prng::from_seed(seed).bytes(KNOWN_MIN + 10..=KNOWN_MIN + 10)
    }

    fn drafted(name: &[u8]) -> Long {
        let mut draft = Draft::with_slot(name.len());
        name.chunks(10_000).for_each(|bytes| draft.push(bytes));
        draft.finish()
    }

    #[test] // A lookup by the bytes finds the computed facts, and only for these very bytes.
    fn facts_about_names_are_kept() {
        let mut name = name(1);
        name.push(b'1'); // No other test uses this length.
        assert_eq!((known_hash(&name), known_slot(&name)), (None, None), "not in a block");
        let long = drafted(&name);
        assert!(*long == *name);
        assert_eq!((long.hash(), known_hash(&long)), (hash::of(&name), Some(hash::of(&name))));
        assert_eq!(known_slot(&long), Some(slot::of(&name)));
        assert_eq!(known_hash(&long[..KNOWN_MIN + 1]), None, "a part of it is not");
        assert_eq!(known_hash(&long[1..]), None, "nor is its end");
        let copy = Long::new(&name, hash::of(&name));
        assert_eq!((known_hash(&copy), known_slot(&copy)), (Some(hash::of(&name)), None));
        let (address, len) = (long.as_ptr().addr(), long.len());
        drop(long);
        let is_left = list().get(&address).is_some_and(|known| known.len == len);
        assert!(!is_left, "it went with its last owner");
    }

    #[test] // The block itself is passed on, and lives as long as any owner.
    fn a_known_name_is_not_copied() {
        let long = drafted(&name(2));
        let (other, third) = (Long::new(&long, long.hash()), long.clone());
        assert_eq!(long.as_ptr(), other.as_ptr());
        drop((long, third));
        assert!(*other == *name(2));
        assert_ne!(other.as_ptr(), Long::new(&name(2), other.hash()).as_ptr(), "copied");
        let short = Long::new(b"short", 7);
        assert_ne!(short.as_ptr(), Long::new(&short, 7).as_ptr(), "not in the list");
    }

    #[test]
    fn names_are_compared_by_their_facts() {
        let (one, mut other) = (name(3), name(3));
        let (block, twin) = (drafted(&one), drafted(&one));
        assert!(same(&block, &twin) && same(&block, &one) && same(&one, &other));
        other[KNOWN_MIN] ^= 1;
        let different = drafted(&other);
        assert!(!same(&block, &different) && !same(&block, &other) && !same(&one, &different));
        assert!(!same(&block, &one[1..]) && same(b"a", b"a") && !same(b"a", b"b"));
    }

    #[test] // Two long names with a common beginning are told apart without reading them.
    fn names_have_an_order_of_their_own() {
        let ending = |last: u8| [name(3), vec![last]].concat();
        for last in 1..20 {
            let (one, other) = (drafted(&ending(0)), drafted(&ending(last)));
            assert_eq!(one.cmp(&other), one.hash().cmp(&other.hash()), "0 and {last}");
            assert_eq!(one.cmp(&drafted(&ending(0))), cmp::Ordering::Equal);
        }
        let (short, twin) = (Long::new(b"a", 7), Long::new(b"b", 7));
        assert!(short < twin && short == Long::new(b"a", 7), "by their bytes");
        assert!(twin < drafted(&name(3)), "the shorter one first");
    }

    #[test] // Complete, or abandoned halfway.
    fn long_blocks_are_freed_in_portions() {
        let len = 8 * FREED_AT_ONCE;
        let mut draft = Draft::new(len);
        draft.push(&vec![1; len]);
        drop(draft.finish());
        for portion in 1..6 {
            assert!(lazyfree::run(&Countdown::new(0)), "more is left after {portion}");
            let left = lazyfree::waiting().1;
            assert!(left <= len - (portion - 1) * FREED_AT_ONCE, "{left} after {portion}");
        }
        lazyfree::run(&Never);
        assert_eq!(lazyfree::waiting(), (0, 0));
        Draft::new(len).release();
        assert_eq!(lazyfree::waiting(), (1, Long::bytes_for(len)));
        lazyfree::run(&Never);
        drop(drafted(&name(4)));
        assert_eq!(lazyfree::waiting(), (0, 0), "a shorter one is freed at once");
    }
}
