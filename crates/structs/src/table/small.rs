//! A small table: one reference-counted block of entries, searched from front to back.
//!
//! Most hashes and sets are small, and for them an index would be larger than the content. Skipping
//! an entry costs little, so a search of up to [`LEN_MAX`] entries is cheaper than the cache misses
//! of an index. There are no fingerprints: at one byte an entry, they would save at most a tenth of
//! a command.
//!
//! ```text
//! | count, sizes: 16 | entry | entry | entry | ... | free |
//! ```
//! The only gaps are the padding before out-of-line values: removal moves the rest down. The block
//! grows through the allocator's size classes, by a quarter at a time.
//!
//! Not here: what happens beyond [`LEN_MAX`] and [`BYTES_MAX`]. See `Table::grow_big`.

use super::entry::{self, Needle, PAD, Raw, Stands, pad_before};
use super::remains::FreedEntries;
use super::value::OutOfLine;
use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// The most entries in a small table.
pub(super) const LEN_MAX: usize = 96;
/// Bytes of the largest block.
pub(super) const BYTES_MAX: usize = 2048;
const HEAD: usize = 16;

#[repr(C, align(8))]
struct Head {
    count: AtomicU32,
    /// Capacity of the block after the head, and the bytes in use.
    cap: u16,
    used: u16,
    len: u16,
    timed: u16,
    owners: u16,
}

const _: () = assert!(size_of::<Head>() == HEAD);

/// A reference-counted block. Cloning shares it.
pub(super) struct Small<X: OutOfLine>(NonNull<u8>, PhantomData<X>);

// SAFETY: a counted pointer with an atomic count to data that changes only while the count is one;
// what entries own is Send and Sync itself.
unsafe impl<X: OutOfLine> Send for Small<X> {}
// SAFETY: as above.
unsafe impl<X: OutOfLine> Sync for Small<X> {}

impl<X: OutOfLine> Clone for Small<X> {
    fn clone(&self) -> Self {
        self.head().count.fetch_add(1, Ordering::Relaxed);
        Self(self.0, PhantomData)
    }
}

impl<X: OutOfLine> Drop for Small<X> {
    fn drop(&mut self) {
        if self.head().count.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let mut remains = FreedEntries::new();
        let mut at = 0;
        while let Some((_, raw)) = self.next(&mut at) {
            // SAFETY: the last owner of the block takes its entries, each once.
            let key = unsafe { raw.take_key() };
            // SAFETY: as above; the value does not need the key.
            remains.add(key, unsafe { raw.take_value() });
        }
        remains.free();
        free(self.0, self.bytes());
    }
}

impl<X: OutOfLine> Small<X> {
    /// An empty block with room for `room` bytes.
    pub(super) fn with_room(room: usize) -> Self {
        let bytes = block_bytes(room);
        let block = allocate(bytes);
        let head = Head {
            count: AtomicU32::new(1),
            cap: (bytes - HEAD) as u16,
            used: 0,
            len: 0,
            timed: 0,
            owners: 0,
        };
        // SAFETY: the block is fresh, aligned, and at least as long as the head.
        unsafe { block.cast::<Head>().write(head) };
        Self(block, PhantomData)
    }

    fn head(&self) -> &Head {
        // SAFETY: `with_room` wrote the head; a writer holds the only handle, mutably.
        unsafe { self.0.cast().as_ref() }
    }

    fn head_mut(&mut self) -> &mut Head {
        debug_assert!(self.is_unique());
        // SAFETY: the only handle is borrowed mutably.
        unsafe { self.0.cast().as_mut() }
    }

    pub(super) fn is_unique(&self) -> bool {
        self.head().count.load(Ordering::Acquire) == 1
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.head().len)
    }

    /// The number of entries with a deadline.
    pub(super) fn timed(&self) -> usize {
        usize::from(self.head().timed)
    }

    /// Memory of the block.
    pub(super) fn bytes(&self) -> usize {
        HEAD + usize::from(self.head().cap)
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= usize::from(self.head().cap));
        // SAFETY: inside the block, or at its end.
        unsafe { self.0.add(HEAD + offset) }
    }

    /// The entry at `offset`, which came from [`Small::find`] or [`Small::next`].
    pub(super) fn entry(&self, offset: usize) -> Raw<X> {
        // SAFETY: the caller got the offset from this block, which has not changed since.
        unsafe { Raw::new(self.at(offset)) }
    }

    /// The next entry and its offset.
    #[inline]
    pub(super) fn next(&self, at: &mut usize) -> Option<(usize, Raw<X>)> {
        let used = usize::from(self.head().used);
        while *at < used {
            // SAFETY: entries and padding follow each other without gaps.
            match unsafe { entry::stands(self.at(*at)) } {
                Stands::Entry(raw) => {
                    let offset = *at;
                    *at += raw.len();
                    return Some((offset, raw));
                }
                Stands::Gap(len) => *at += len,
                Stands::End => unreachable!("a small table has no page ends"),
            }
        }
        None
    }

    /// Looks a key up.
    pub(super) fn find(&self, needle: &Needle<'_>) -> Option<usize> {
        let mut at = 0;
        while let Some((offset, raw)) = self.next(&mut at) {
            if raw.is(needle) {
                return Some(offset);
            }
        }
        None
    }

    /// Memory of long keys.
    pub(super) fn outside_bytes(&self) -> usize {
        let (mut sum, mut at) = (0, 0);
        while self.head().owners > 0
            && let Some((_, raw)) = self.next(&mut at)
        {
            sum += raw.outside_bytes();
        }
        sum
    }

    /// Appends a bitwise copy of `entry`, and takes ownership of what it owns. Returns its place;
    /// `None`, without a change, if the block would get too large.
    pub(super) fn push(&mut self, entry: Raw<X>, len: usize) -> Option<usize> {
        if self.len() >= LEN_MAX {
            return None;
        }
        let used = usize::from(self.head().used);
        // Blocks are aligned to a pointer, so padding is the same in a larger block.
        let pad = pad_before(used + HEAD, entry, len);
        let need = used + pad + len;
        if need > usize::from(self.head().cap) {
            if HEAD + need > BYTES_MAX {
                return None;
            }
            self.resize(need);
        }
        self.write(used, pad, entry, len);
        let head = self.head_mut();
        head.used = need as u16;
        head.len += 1;
        head.timed += u16::from(entry.is_timed());
        head.owners += u16::from(entry.is_owner());
        Some(used + pad)
    }

    fn write(&mut self, at: usize, pad: usize, entry: Raw<X>, len: usize) {
        debug_assert!(self.is_unique() && at + pad + len <= usize::from(self.head().cap));
        // The entry is moved first: padding could overwrite it if it moves down within the block.
        // SAFETY: inside the block; an untyped move, source and target may overlap.
        unsafe { ptr::copy(entry.ptr().as_ptr(), self.at(at + pad).as_ptr(), len) };
        // SAFETY: inside the block.
        unsafe { self.at(at).write_bytes(PAD, pad) };
    }

    /// Moves the entries to a block with room for `room` bytes.
    fn resize(&mut self, room: usize) {
        let bytes = block_bytes(room);
        let block = allocate(bytes);
        let (old, old_bytes) = (self.0, self.bytes());
        let used = HEAD + usize::from(self.head().used);
        debug_assert!(used <= bytes && self.is_unique());
        // SAFETY: both blocks hold `used` bytes.
        unsafe { ptr::copy_nonoverlapping(old.as_ptr(), block.as_ptr(), used) };
        self.0 = block;
        self.head_mut().cap = (bytes - HEAD) as u16;
        free(old, old_bytes);
    }

    /// Removes the entry at `offset`. The caller has taken over what it owned.
    pub(super) fn detach(&mut self, offset: usize) {
        let raw = self.entry(offset);
        let (timed, owner) = (raw.is_timed(), raw.is_owner());
        let mut from = offset + raw.len();
        let mut end = offset;
        while let Some((_, raw)) = self.next(&mut from) {
            let len = raw.len();
            let pad = pad_before(end + HEAD, raw, len);
            self.write(end, pad, raw, len);
            end += pad + len;
        }
        let head = self.head_mut();
        head.used = end as u16;
        head.len -= 1;
        head.timed -= u16::from(timed);
        head.owners -= u16::from(owner);
        if block_bytes(end) * 2 <= self.bytes() {
            self.resize(end);
        }
    }

    /// Overwrites the entry at `offset` if the new one fits its place exactly.
    pub(super) fn overwrite(&mut self, offset: usize, entry: Raw<X>, len: usize) -> bool {
        let old = self.entry(offset);
        if old.len() != len || pad_before(offset + HEAD, entry, len) != 0 {
            return false;
        }
        let (timed, owner) = (old.is_timed(), old.is_owner());
        self.write(offset, 0, entry, len);
        let head = self.head_mut();
        head.timed = head.timed + u16::from(entry.is_timed()) - u16::from(timed);
        head.owners = head.owners + u16::from(entry.is_owner()) - u16::from(owner);
        true
    }

    /// A copy that shares nothing with the original.
    pub(super) fn deep_clone(&self) -> Self {
        let used = usize::from(self.head().used);
        let mut copy = Self::with_room(used);
        let from = self.at(0);
        // SAFETY: both blocks have room for `used` bytes after the head.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), copy.at(0).as_ptr(), used) };
        let head = copy.head_mut();
        (head.used, head.len) = (self.head().used, self.head().len);
        (head.timed, head.owners) = (self.head().timed, self.head().owners);
        let mut at = 0;
        while let Some((_, raw)) = copy.next(&mut at) {
            // SAFETY: a bitwise copy without a reader yet.
            unsafe { raw.own() };
        }
        copy
    }

    /// Drops the handle, which must be the only one, without dropping what entries own: that has
    /// been moved elsewhere.
    pub(super) fn discard(self) {
        let shell = std::mem::ManuallyDrop::new(self);
        debug_assert!(shell.is_unique());
        free(shell.0, shell.bytes());
    }

    /// Checks that the counts agree with the entries. Returns the bytes of long keys.
    pub(super) fn check(&self) -> usize {
        let (mut len, mut timed, mut owners, mut outside, mut at) = (0, 0, 0, 0, 0);
        while let Some((_, raw)) = self.next(&mut at) {
            len += 1;
            timed += u16::from(raw.is_timed());
            owners += u16::from(raw.is_owner());
            outside += raw.outside_bytes();
        }
        let head = self.head();
        assert_eq!((len, timed, owners), (head.len, head.timed, head.owners), "counts");
        assert!(at == usize::from(head.used) && head.used <= head.cap, "at={at}");
        outside
    }
}

/// The size of a block with `room` bytes, rounded up to the allocator's size classes (four per
/// doubling).
fn block_bytes(room: usize) -> usize {
    let bytes = (HEAD + room).max(32);
    let step = (bytes.next_power_of_two() / 8).max(16);
    bytes.next_multiple_of(step).min(BYTES_MAX)
}

fn allocate(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: the layout is not empty: it has room for a head.
    let block = unsafe { alloc::alloc_zeroed(layout) };
    NonNull::new(block).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

fn free(block: NonNull<u8>, bytes: usize) {
    // SAFETY: private to this file: every block is freed once, with the size it was asked with.
    unsafe { alloc::dealloc(block.as_ptr(), layout(bytes)) };
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, align_of::<Head>()).expect("at most BYTES_MAX, aligned to 8")
}
