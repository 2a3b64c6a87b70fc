//! A segment: an index block and the pages that hold its entries. The unit of splitting, copying
//! and freeing.
//!
//! ```text
//! index block, 640 to 4 096 bytes:
//!   | head: 64 | page pointers: 8 each | group | group | ... |       see `group`
//! pages, 2 KiB each (the last one may still be 512 or 1 024):
//!   | entry | entry | dead | entry | ... | free |                    see `entry`
//! offset of an entry, 16 bits: | page: 5 | byte in page: 11 |
//! ```
//! A segment starts with a small index and a small page, and both grow, so that each entry costs
//! the same in a table of two hundred as in one of millions. Contiguous arenas were tried and were
//! worse, because all segments then grow through the allocator's size classes in step (DESIGN.md
//! §2).
//!
//! An entry's home group comes from its hash; if that is full, the next groups are tried. Nothing
//! moves within the index afterwards. Removed entries leave marked gaps, which are reused first by
//! new entries that fit (`gaps`); otherwise space is taken at the end of the last page. When gaps
//! are an eighth of the segment, [`Seg::repack`] rewrites all pages.
//!
//! A segment is reference-counted. It changes only while its count is one. Otherwise the writer
//! first clones it, copying index and pages bytewise; only entries that own something are cloned
//! singly.
//!
//! Invariants (`check`):
//! - S1: every used slot's offset leads to an entry with that fingerprint, in its home group or
//!   after groups that all count it as passed; `len`, `timed`, `owners` count them.
//! - S2: pages are gapless sequences of entries and marks up to their end, or `tail` in the last;
//!   entries there and used slots are one to one; `dead` is the bytes of marked entries.
//!
//! For S3 (the next entries to expire), see `next`; for S4 (gaps), `gaps`.
//!
//! Not here: the bytes in the pages (`pages`), growing and splitting (`rebuild`), where segments
//! hang (`directory`).

mod gaps;
mod next;
mod pages;

use super::directory::NEVER;
use super::entry::{self, Needle, Raw, pad_before};
use super::group::{Group, SLOTS, fingerprint, ones};
use super::remains::FreedEntries;
use super::value::OutOfLine;
use gaps::NO_GAP;
use next::NEXT_MAX;
use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Bytes of a page.
pub(super) const PAGE: usize = 2048;
/// Initial size of a page; it doubles until it is whole. Without this a segment would waste half a
/// page on average: a byte an entry.
const PAGE_FIRST: usize = 512;
const LINE: usize = 64;
/// How many groups after its home group an entry may be stored in.
const SPILL: usize = 7;
/// With fewer bytes of gaps, a repack never pays.
const DEAD_MIN: usize = 512;

/// The shapes of an index block.
pub(super) struct Class {
    pub(super) groups: usize,
    pub(super) pages: usize,
}

impl Class {
    /// The number of slots.
    pub(super) const fn slots(&self) -> usize {
        self.groups * SLOTS
    }

    const fn bytes(&self) -> usize {
        LINE + self.pages * 8 + self.groups * LINE
    }
}

/// The classes, each of a size that the allocator serves without waste.
#[rustfmt::skip] // A table.
pub(super) const CLASSES: [Class; 4] = [
    Class { groups:  8, pages:  8 }, //   640 bytes,   168 slots
    Class { groups: 15, pages: 32 }, // 1 280 bytes,   315 slots: enough for entries of 200 bytes
    Class { groups: 35, pages: 32 }, // 2 560 bytes,   735 slots
    Class { groups: 59, pages: 32 }, // 4 096 bytes, 1 239 slots
];
/// The largest class.
pub(super) const CLASS_MAX: u8 = 3;

const _: () = assert!(CLASSES[0].bytes() == 640 && CLASSES[1].bytes() == 1280);
const _: () = assert!(CLASSES[2].bytes() == 2560 && CLASSES[3].bytes() == 4096);
const _: () = assert!(CLASSES[3].pages * PAGE == 1 << 16, "offsets have 16 bits");
const _: () = assert!(entry::ENTRY_MAX + entry::POINTER <= PAGE);

/// The reason why a segment cannot, or should not, take an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// No slot near the home group, or the target number of entries is reached.
    Index,
    /// No bytes left, and no more pages, or the target number of pages is reached.
    Pages,
}

/// The target size of a segment. Beyond it there is still room, so the caller may either make more
/// room at once or use the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) entries: u16,
    pub(super) pages: u8,
    /// Gaps, in steps of [`DEAD_MIN`], below which no repack is tried, because one failed with
    /// fewer.
    gaps: u8,
}

impl Limits {
    pub(super) fn new(entries: usize, pages: usize) -> Self {
        Self { entries: entries as u16, pages: pages as u8, gaps: 0 }
    }
}

/// The place of an entry in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loc {
    group: u8,
    slot: u8,
}

impl Loc {
    pub(super) fn new(group: usize, slot: usize) -> Self {
        Self { group: group as u8, slot: slot as u8 }
    }
}

/// The position of a reader of pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PagePos {
    page: usize,
    at: usize,
}

#[repr(C, align(64))]
pub(super) struct Head {
    /// Entries not listed in `next` expire at this time or later.
    horizon: u64,
    count: AtomicU32,
    /// Bytes of removed entries.
    dead: u32,
    /// The sizes at which the segment counts as full, though more would fit.
    limits: Limits,
    pub(super) len: u16,
    /// The number of entries with a deadline.
    pub(super) timed: u16,
    /// The number of entries that own memory elsewhere.
    owners: u16,
    /// Bytes used in the last page.
    tail: u16,
    /// The size of the last page; all others have full size.
    tail_cap: u16,
    /// The next gap to use; see `gaps`.
    gap: u16,
    page_count: u8,
    /// The number of entries listed in `next`.
    next_len: u8,
    /// The next entries to expire, in order.
    next: [Loc; NEXT_MAX],
}

const _: () = assert!(size_of::<Head>() == LINE);

/// A reference-counted segment. Cloning shares it.
///
/// The pointer is that of the index block, which is aligned to a cache line, so its free low bits
/// hold the class. So a lookup finds its group without reading the head first, which saves a cache
/// miss.
pub(super) struct Seg<X: OutOfLine>(NonNull<u8>, PhantomData<X>);

const CLASS_BITS: usize = 3;

// SAFETY: a counted pointer with an atomic count to data that changes only while the count is one;
// what entries own is Send and Sync itself.
unsafe impl<X: OutOfLine> Send for Seg<X> {}
// SAFETY: as above.
unsafe impl<X: OutOfLine> Sync for Seg<X> {}

impl<X: OutOfLine> Clone for Seg<X> {
    fn clone(&self) -> Self {
        /// Half of all numbers: references are taken one at a time.
        const COUNT_MAX: u32 = u32::MAX / 2;
        let count = self.head().count.fetch_add(1, Ordering::Relaxed);
        // Otherwise it would be freed while in use.
        assert!(count > 0 && count < COUNT_MAX, "count={count}");
        Self(self.0, PhantomData)
    }
}

impl<X: OutOfLine> Drop for Seg<X> {
    fn drop(&mut self) {
        if self.head().count.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        if self.head().owners > 0 {
            let mut remains = FreedEntries::new();
            let mut at = PagePos::default();
            while let Some(raw) = self.next_entry(&mut at) {
                if raw.is_owner() {
                    // SAFETY: the last owner of the segment takes its entries, each once.
                    let key = unsafe { raw.take_key() };
                    // SAFETY: as above; the value does not need the key.
                    remains.add(key, unsafe { raw.take_value() });
                }
            }
            remains.free();
        }
        debug_assert_eq!(self.head().count.load(Ordering::Relaxed), 0, "shared again");
        self.free_shell();
    }
}

impl<X: OutOfLine> Seg<X> {
    /// An empty segment.
    pub(super) fn new(class: u8, limits: Limits) -> Self {
        let shape = &CLASSES[usize::from(class)];
        let block = allocate_zeroed(shape.bytes());
        let head = Head {
            count: AtomicU32::new(1),
            dead: 0,
            limits,
            len: 0,
            timed: 0,
            owners: 0,
            tail: 0,
            tail_cap: 0,
            page_count: 0,
            gap: NO_GAP,
            next_len: 0,
            horizon: NEVER,
            next: [Loc::new(0, 0); NEXT_MAX],
        };
        // SAFETY: the block is fresh, aligned to a line, and larger than the head.
        unsafe { block.cast::<Head>().write(head) };
        Self(block.map_addr(|address| address | usize::from(class)), PhantomData)
    }

    /// The index block.
    #[inline]
    fn block(&self) -> NonNull<u8> {
        let block = self.0.as_ptr().map_addr(|address| address & !CLASS_BITS);
        // SAFETY: the block is allocated, so not at address 0.
        unsafe { NonNull::new_unchecked(block) }
    }

    #[inline]
    pub(super) fn head(&self) -> &Head {
        // SAFETY: `new` wrote the head; a writer holds the only handle, mutably.
        unsafe { self.block().cast().as_ref() }
    }

    #[inline]
    fn head_mut(&mut self) -> &mut Head {
        debug_assert!(self.is_unique());
        // SAFETY: the only handle is borrowed mutably.
        unsafe { self.block().cast().as_mut() }
    }

    /// True when the segment is not shared.
    #[inline]
    pub(super) fn is_unique(&self) -> bool {
        self.head().count.load(Ordering::Acquire) == 1
    }

    pub(super) fn len(&self) -> usize {
        usize::from(self.head().len)
    }

    #[inline]
    pub(super) fn class(&self) -> u8 {
        (self.0.addr().get() & CLASS_BITS) as u8
    }

    #[inline]
    fn shape(&self) -> &'static Class {
        &CLASSES[usize::from(self.class())]
    }

    /// The number of slots in the index.
    pub(super) fn slots(&self) -> usize {
        self.shape().slots()
    }

    /// The number of pages.
    pub(super) fn page_count(&self) -> usize {
        usize::from(self.head().page_count)
    }

    /// Memory of index and pages, without memory that entries own elsewhere.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        let head = self.head();
        let full = usize::from(head.page_count).saturating_sub(1) * PAGE;
        self.shape().bytes() + full + usize::from(head.tail_cap)
    }

    /// Bytes written to pages, gaps included.
    fn used_bytes(&self) -> usize {
        let head = self.head();
        usize::from(head.page_count).saturating_sub(1) * PAGE + usize::from(head.tail)
    }

    /// Bytes of entries, approximately: the unused ends of full pages count too.
    pub(super) fn live_bytes(&self) -> usize {
        let (used, dead) = (self.used_bytes(), self.head().dead as usize);
        debug_assert!(dead <= used, "{dead} of {used} bytes are dead");
        used - dead
    }

    #[inline]
    fn page_ptrs(&self) -> NonNull<NonNull<u8>> {
        // SAFETY: the page pointers follow the head, in the same block.
        unsafe { self.block().add(LINE) }.cast()
    }

    #[inline]
    fn page(&self, page: usize) -> NonNull<u8> {
        debug_assert!(page < self.page_count(), "page={page}");
        // SAFETY: `page < page_count <= pages` of the class.
        let at = unsafe { self.page_ptrs().add(page) };
        // SAFETY: pointers below the count were written: by `add_page`, or copied from another
        // segment.
        unsafe { at.read() }
    }

    #[inline]
    pub(super) fn groups(&self) -> &[Group] {
        let shape = self.shape();
        // SAFETY: the groups follow the page pointers, in the same block.
        let first = unsafe { self.block().add(LINE + shape.pages * 8) };
        // SAFETY: zeroed by `new`, which is a valid empty group; changed only through `&mut self`.
        unsafe { std::slice::from_raw_parts(first.cast().as_ptr(), shape.groups) }
    }

    #[inline]
    fn groups_mut(&mut self) -> &mut [Group] {
        debug_assert!(self.is_unique());
        let shape = self.shape();
        // SAFETY: the groups follow the page pointers, in the same block.
        let first = unsafe { self.block().add(LINE + shape.pages * 8) };
        // SAFETY: as for `groups`; the only handle is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(first.cast().as_ptr(), shape.groups) }
    }

    #[inline]
    fn entry_at(&self, offset: u16) -> Raw<X> {
        let page = self.page(usize::from(offset) / PAGE);
        // SAFETY: inside the page.
        let at = unsafe { page.add(usize::from(offset) % PAGE) };
        // SAFETY: offsets in used slots lead to entries (S1).
        unsafe { Raw::new(at) }
    }

    /// The entry at `loc`, which must be in use.
    #[inline]
    pub(super) fn entry(&self, loc: Loc) -> Raw<X> {
        let group = &self.groups()[usize::from(loc.group)];
        self.entry_at(group.offset(usize::from(loc.slot)))
    }

    /// The home group of a hash: bits 16 to 31, scaled to the number of groups, so that homes keep
    /// their order when the index grows. Scans rely on it.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        home_of(position(hash), self.shape().groups)
    }

    #[inline]
    fn after(&self, group: usize) -> usize {
        if group + 1 == self.shape().groups { 0 } else { group + 1 }
    }

    /// Looks a key up. Cost: one line of the index, and one of a page, in most cases.
    #[inline]
    pub(super) fn find(&self, hash: u64, needle: &Needle<'_>) -> Option<(Loc, Raw<X>)> {
        // The group shows which page pointer is needed, which is on a line of its own: prefetch all
        // of them now, so that their misses overlap with the group's.
        let block = self.block().as_ptr();
        prefetch(block.wrapping_add(LINE));
        prefetch(block.wrapping_add(LINE * 2));
        prefetch(block.wrapping_add(LINE * 3));
        self.find_by(hash, |raw| raw.is(needle))
    }

    /// The entry with this hash for which `is_wanted` is true.
    #[inline(always)] // As part of `find`, which is the hot path of all look-ups.
    fn find_by(&self, hash: u64, is_wanted: impl Fn(Raw<X>) -> bool) -> Option<(Loc, Raw<X>)> {
        let groups = self.groups();
        let wanted = fingerprint(hash);
        let mut at = self.home(hash);
        for _ in 0..groups.len() {
            for slot in ones(groups[at].matches(wanted)) {
                let raw = self.entry_at(groups[at].offset(slot));
                if is_wanted(raw) {
                    return Some((Loc::new(at, slot), raw));
                }
            }
            if groups[at].passed() == 0 {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    /// True if an entry with the key of `other` is here. `other` must not own anything.
    #[inline]
    pub(super) fn has_key_of(&self, hash: u64, other: Raw<X>) -> bool {
        self.find_by(hash, |raw| raw.has_key_of(other)).is_some()
    }

    /// Prefetches the memory that [`Seg::find`] will touch first.
    pub(super) fn prefetch(&self, hash: u64) {
        let shape = self.shape();
        let block = self.block().as_ptr();
        prefetch(block.wrapping_add(LINE + shape.pages * 8 + self.home(hash) * LINE));
        prefetch(block); // The head, followed by the page pointers.
        prefetch(block.wrapping_add(LINE));
        prefetch(block.wrapping_add(LINE * 2));
        prefetch(block.wrapping_add(LINE * 3));
    }

    /// Prefetches the entries that [`Seg::find`] will compare.
    pub(super) fn prefetch_entry(&self, hash: u64) {
        let group = &self.groups()[self.home(hash)];
        for slot in ones(group.matches(fingerprint(hash))).take(2) {
            let entry = self.entry_at(group.offset(slot)).ptr().as_ptr();
            prefetch(entry);
            prefetch(entry.wrapping_add(LINE / 2)); // Every third short entry spans two lines.
        }
    }

    /// Adds a bitwise copy of `entry`, and takes ownership of its memory.
    pub(super) fn insert(&mut self, hash: u64, entry: Raw<X>, len: usize) -> Result<Loc, Full> {
        let reach = if self.class() + 1 >= CLASS_MAX { SPILL } else { 2 };
        self.insert_within(hash, entry, len, reach)
    }

    /// The limit that the segment has reached, if any.
    #[inline]
    pub(super) fn is_due(&self) -> Option<Full> {
        let head = self.head();
        if head.len >= head.limits.entries {
            return Some(Full::Index);
        }
        (head.page_count > head.limits.pages).then_some(Full::Pages)
    }

    /// [`Seg::insert`] at any distance from the home group. The segment then stays due for a split
    /// until as many entries have been removed.
    pub(super) fn squeeze(&mut self, hash: u64, entry: Raw<X>, len: usize) -> Result<Loc, Full> {
        let loc = self.insert_anywhere(hash, entry, len)?;
        let head = self.head_mut();
        head.limits.entries = head.limits.entries.min(head.len);
        Ok(loc)
    }

    /// [`Seg::insert`], limited only by the free slots.
    pub(super) fn insert_anywhere(
        &mut self,
        hash: u64,
        entry: Raw<X>,
        len: usize,
    ) -> Result<Loc, Full> {
        self.insert_within(hash, entry, len, self.shape().groups - 1)
    }

    fn insert_within(
        &mut self,
        hash: u64,
        entry: Raw<X>,
        len: usize,
        reach: usize,
    ) -> Result<Loc, Full> {
        let (at, slot) = self.free_slot(self.home(hash), reach).ok_or(Full::Index)?;
        let offset = self.place(entry, len).ok_or(Full::Pages)?;
        self.count(entry);
        let loc = self.fill(hash, at, slot, offset);
        self.enlist(loc, entry);
        Ok(loc)
    }

    /// The first free slot in the home group or in one of the `reach` next ones.
    #[inline]
    fn free_slot(&self, home: usize, reach: usize) -> Option<(usize, usize)> {
        let mut at = home;
        for _ in 0..=reach {
            let free = self.groups()[at].matches(0);
            if free != 0 {
                return Some((at, free.trailing_zeros() as usize));
            }
            at = self.after(at);
        }
        None
    }

    /// Indexes an entry in a free slot, and counts it as passing the groups before.
    #[inline]
    fn fill(&mut self, hash: u64, at: usize, slot: usize, offset: u16) -> Loc {
        let mut passed = self.home(hash);
        while passed != at {
            self.groups_mut()[passed].pass();
            passed = self.after(passed);
        }
        debug_assert!(self.len() < self.slots(), "more entries than slots");
        debug_assert_eq!(self.groups()[at].used() >> slot & 1, 0, "slot {slot} of {at} is in use");
        self.groups_mut()[at].set(slot, fingerprint(hash), offset);
        self.head_mut().len += 1;
        Loc::new(at, slot)
    }

    /// Moves the pages unchanged under an index of another class; offsets refer to places in pages,
    /// which do not change. Leaves an empty shell to discard. `None`, without a change, if the
    /// class has too few slots or pages. Cost: O(entries), to hash their keys.
    pub(super) fn reindexed(&mut self, class: u8, limits: Limits) -> Option<Self> {
        let shape = &CLASSES[usize::from(class)];
        if self.len() > shape.slots() || self.page_count() > shape.pages {
            return None;
        }
        let mut new = Self::new(class, limits);
        self.move_pages(&mut new);
        let mut at = PagePos::default();
        while let Some((raw, offset)) = new.next_placed(&mut at) {
            let hash = raw.hash();
            let free = new.free_slot(new.home(hash), shape.groups - 1);
            let (group, slot) = free.expect("as many slots as entries");
            let loc = new.fill(hash, group, slot, offset);
            new.enlist(loc, raw);
        }
        assert_eq!(new.len(), self.len(), "all entries are indexed again");
        Some(new)
    }

    fn count(&mut self, entry: Raw<X>) {
        let head = self.head_mut();
        head.timed += u16::from(entry.is_timed());
        head.owners += u16::from(entry.is_owner());
    }

    fn uncount(&mut self, entry: Raw<X>) {
        let head = self.head_mut();
        debug_assert!(head.timed >= u16::from(entry.is_timed()), "timed={}", head.timed);
        debug_assert!(head.owners >= u16::from(entry.is_owner()), "owners={}", head.owners);
        head.timed -= u16::from(entry.is_timed());
        head.owners -= u16::from(entry.is_owner());
    }

    /// Removes an entry from the index and marks its bytes as a gap. The caller has taken over what
    /// it owned.
    pub(super) fn detach(&mut self, hash: u64, loc: Loc) {
        self.forget_bytes(loc);
        let mut passed = self.home(hash);
        while passed != usize::from(loc.group) {
            self.groups_mut()[passed].unpass();
            passed = self.after(passed);
        }
        self.groups_mut()[usize::from(loc.group)].clear(usize::from(loc.slot));
        assert!(self.len() > 0, "more entries are removed than there are");
        self.head_mut().len -= 1;
    }

    fn forget_bytes(&mut self, loc: Loc) {
        let (raw, offset) = (self.entry(loc), self.offset(loc));
        self.delist(loc);
        self.uncount(raw);
        let (len, last) = (raw.len(), self.page_count() - 1);
        let at = usize::from(offset) % PAGE;
        // The bytes of the last entry are returned directly, unless padding precedes it: padding is
        // not counted, and would accumulate.
        let is_last =
            usize::from(offset) / PAGE == last && at + len == usize::from(self.head().tail);
        if is_last && !raw.has_out() {
            self.head_mut().tail = at as u16;
            return;
        }
        self.leave_gap(offset, len);
        self.head_mut().dead += len as u32;
        debug_assert!(self.head().dead as usize <= self.used_bytes(), "S: more gaps than bytes");
    }

    fn offset(&self, loc: Loc) -> u16 {
        self.groups()[usize::from(loc.group)].offset(usize::from(loc.slot))
    }

    /// Writes `entry` over the one at `loc`, and takes over its key; the caller has taken what the
    /// old entry owned. Fails without a change if there is no room.
    pub(super) fn overwrite(&mut self, loc: Loc, entry: Raw<X>, len: usize) -> Result<(), Full> {
        let old = self.entry(loc);
        let address = old.ptr().as_ptr().addr();
        if old.len() == len && pad_before(address, entry, len) == 0 {
            self.delist(loc);
            self.uncount(old);
            // SAFETY: the old entry's bytes, as many; the new one is in a buffer.
            unsafe { ptr::copy_nonoverlapping(entry.ptr().as_ptr(), old.ptr().as_ptr(), len) };
            self.count(entry);
            self.enlist(loc, entry);
            return Ok(());
        }
        let offset = self.place(entry, len).ok_or(Full::Pages)?;
        self.forget_bytes(loc);
        self.groups_mut()[usize::from(loc.group)].set_offset(usize::from(loc.slot), offset);
        self.count(entry);
        self.enlist(loc, entry);
        Ok(())
    }

    /// Removes all entries, whose possessions the caller has taken, and frees the pages.
    pub(super) fn clear(&mut self) {
        self.take_pages().0.free();
        let groups = self.groups_mut();
        // SAFETY: zeros are valid, empty groups.
        unsafe { ptr::write_bytes(groups.as_mut_ptr(), 0, groups.len()) };
        let head = self.head_mut();
        (head.len, head.timed, head.owners) = (0, 0, 0);
        (head.next_len, head.horizon) = (0, NEVER);
    }

    /// Calls `f` for each used slot.
    pub(super) fn for_each_loc(&self, mut f: impl FnMut(Loc, Raw<X>)) {
        for (at, group) in self.groups().iter().enumerate() {
            for slot in ones(group.used()) {
                f(Loc::new(at, slot), self.entry_at(group.offset(slot)));
            }
        }
    }

    /// The entry in the `nth` of all slots, if the slot is in use.
    pub(super) fn nth_slot(&self, nth: usize) -> Option<Raw<X>> {
        let group = self.groups().get(nth / SLOTS)?;
        let used = group.used() & 1 << (nth % SLOTS) != 0;
        used.then(|| self.entry_at(group.offset(nth % SLOTS)))
    }

    /// Calls `f` for the entries whose home group is at `from`. Returns the position of the next
    /// home group, or `None` after the last.
    pub(super) fn scan(&self, from: u16, f: &mut dyn FnMut(Raw<X>)) -> Option<u16> {
        let groups = self.groups();
        let home = home_of(from, groups.len());
        let before = if home == 0 { groups.len() - 1 } else { home - 1 };
        let mut mixed = groups[before].passed() != 0;
        let mut at = home;
        for _ in 0..groups.len() {
            for slot in ones(groups[at].used()) {
                let raw = self.entry_at(groups[at].offset(slot));
                if !mixed || self.home(raw.hash()) == home {
                    f(raw);
                }
            }
            if groups[at].passed() == 0 {
                break;
            }
            mixed = true;
            at = self.after(at);
        }
        (home + 1 < groups.len()).then(|| first_position(home + 1, groups.len()))
    }

    /// Drops the handle. If it was the only one, the segment is freed without dropping what entries
    /// own, which has been moved elsewhere.
    pub(super) fn discard(self) {
        let mut shell = std::mem::ManuallyDrop::new(self);
        debug_assert!(shell.is_unique());
        shell.free_shell();
    }

    /// Checks S1 and S2. Returns the bytes of long keys.
    pub(super) fn check(&self) -> usize {
        let head = self.head();
        let (mut len, mut timed, mut owners, mut outside) = (0, 0, 0, 0);
        let mut offsets = Vec::new();
        let mut passed = vec![0_usize; self.groups().len()];
        for (at, group) in self.groups().iter().enumerate() {
            for slot in ones(group.used()) {
                let raw = self.entry_at(group.offset(slot));
                let hash = raw.hash();
                assert!(group.matches(fingerprint(hash)) & 1 << slot != 0, "fingerprint");
                let mut home = self.home(hash);
                while home != at {
                    passed[home] += 1;
                    home = self.after(home);
                }
                len += 1;
                timed += usize::from(raw.is_timed());
                owners += usize::from(raw.is_owner());
                outside += raw.outside_bytes();
                offsets.push(raw.ptr());
            }
        }
        for (group, passed) in self.groups().iter().zip(passed) {
            let counted = usize::from(group.passed());
            assert!(counted == passed || counted == 255, "passed: {counted}, found {passed}");
        }
        let heads = (head.len.into(), head.timed.into(), head.owners.into());
        assert_eq!((len, timed, owners), heads, "S1: counts");
        self.check_pages(offsets);
        self.check_next();
        outside
    }
}

/// The part of a hash that orders home groups inside a segment.
#[inline]
pub(super) fn position(hash: u64) -> u16 {
    (hash >> 16) as u16
}

#[inline]
fn home_of(position: u16, groups: usize) -> usize {
    (usize::from(position) * groups) >> 16
}

/// The lowest position whose home is `group`.
fn first_position(group: usize, groups: usize) -> u16 {
    (group << 16).div_ceil(groups) as u16
}

/// Memory for a page, aligned to a cache line. Not initialised: a page is read only where entries
/// and marks were written.
fn allocate(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: the layout is not empty: all sizes are constants above 0.
    let block = unsafe { alloc::alloc(layout) };
    NonNull::new(block).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

/// Allocates zeroed memory for an index block; a zeroed group is empty.
fn allocate_zeroed(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: the layout is not empty: all sizes are constants above 0.
    let block = unsafe { alloc::alloc_zeroed(layout) };
    NonNull::new(block).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

/// Frees a block allocated by [`allocate`].
fn free(block: NonNull<u8>, bytes: usize) {
    // SAFETY: private to this file: every block is freed once, with the size it was asked with.
    unsafe { alloc::dealloc(block.as_ptr(), layout(bytes)) };
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, LINE).expect("sizes are small, the alignment a power of two")
}

#[inline]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch never faults, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    let _ = at;
}
