//! The pages of a segment: where entries' bytes go, and how gaps are reclaimed.
//!
//! Space is taken at the end of the last page only; that page starts at 512 bytes and doubles, so
//! that a segment wastes a few hundred bytes after its last entry, not a thousand. Gaps are reused
//! first (`gaps`). When unused gaps make up an eighth of the segment, all entries are rewritten in
//! the order of the index. Walks over all entries read the pages front to back.
//!
//! Not here: the index. See `segment`.

use super::gaps::NO_GAP;
use super::{DEAD_MIN, Loc, PAGE, PAGE_FIRST, PagePos, Seg, allocate, free};
use crate::table::entry::{self, END, PAD, Raw, Stands, pad_before};
use crate::table::group::ones;
use crate::table::value::OutOfLine;
use std::ptr::{self, NonNull};

impl<X: OutOfLine> Seg<X> {
    /// Copies `entry` into a gap, or after the last one, in a new page if needed.
    pub(super) fn place(&mut self, entry: Raw<X>, len: usize) -> Option<u16> {
        if let Some(offset) = self.fill_gap(entry, len) {
            return Some(offset);
        }
        loop {
            let head = self.head();
            if head.page_count > 0 {
                let (tail, cap) = (usize::from(head.tail), usize::from(head.tail_cap));
                let page = self.page(self.page_count() - 1);
                let pad = pad_before(page.as_ptr().addr() + tail, entry, len);
                if tail + pad + len <= cap {
                    return Some(self.place_at(page, tail, pad, entry, len));
                }
                if cap < PAGE {
                    self.grow_page();
                    continue;
                }
            }
            if self.page_count() == self.shape().pages {
                return None;
            }
            self.add_page(len);
        }
    }

    fn place_at(
        &mut self,
        page: NonNull<u8>,
        tail: usize,
        pad: usize,
        entry: Raw<X>,
        len: usize,
    ) -> u16 {
        // SAFETY: `tail` is inside the page, or at its end with `pad` and `len` 0.
        let free = unsafe { page.add(tail) };
        // SAFETY: the caller checked that `pad` and `len` bytes are free.
        unsafe { free.write_bytes(PAD, pad) };
        // SAFETY: as above.
        let to = unsafe { free.add(pad) };
        // SAFETY: as above; the entry is elsewhere, and as long as it says.
        unsafe { ptr::copy_nonoverlapping(entry.ptr().as_ptr(), to.as_ptr(), len) };
        debug_assert!(
            tail + pad + len <= usize::from(self.head().tail_cap),
            "tail={tail} len={len}"
        );
        self.head_mut().tail = (tail + pad + len) as u16;
        ((self.page_count() - 1) * PAGE + tail + pad) as u16
    }

    fn add_page(&mut self, len: usize) {
        let count = self.page_count();
        assert!(count < self.shape().pages && len < PAGE, "page {count}, len={len}");
        if count > 0 {
            self.end_page();
        }
        let cap = PAGE_FIRST.max((len + 8).next_power_of_two());
        // SAFETY: the caller checked that the class has room for one more.
        let at = unsafe { self.page_ptrs().add(count) };
        // SAFETY: as above.
        unsafe { at.write(allocate(cap)) };
        let head = self.head_mut();
        (head.page_count, head.tail, head.tail_cap) = (head.page_count + 1, 0, cap as u16);
    }

    /// Marks the end of the last page, unless it is completely full.
    fn end_page(&mut self) {
        let tail = usize::from(self.head().tail);
        if tail < PAGE {
            // SAFETY: `tail` is inside the page.
            let at = unsafe { self.page(self.page_count() - 1).add(tail) };
            // SAFETY: as above.
            unsafe { at.write(END) };
        }
    }

    /// Doubles the last page.
    fn grow_page(&mut self) {
        let last = self.page_count() - 1;
        let (old, cap) = (self.page(last), usize::from(self.head().tail_cap));
        assert!(cap < PAGE && cap.is_power_of_two(), "cap={cap}");
        let new = allocate(cap * 2);
        // SAFETY: the new page is twice as long as the old one.
        unsafe { ptr::copy_nonoverlapping(old.as_ptr(), new.as_ptr(), cap) };
        // SAFETY: the last page exists.
        let at = unsafe { self.page_ptrs().add(last) };
        // SAFETY: as above.
        unsafe { at.write(new) };
        free(old, cap);
        self.head_mut().tail_cap *= 2;
    }

    /// Rewrites the pages if gaps make up an eighth of them. Returns true if it did, or tried;
    /// after a failed try, the same amount of gaps must be added before the next.
    #[inline]
    pub(in super::super) fn tidy(&mut self) -> bool {
        let is_untidy = self.is_untidy();
        if is_untidy {
            self.repack();
        }
        is_untidy
    }

    /// True if gaps make up an eighth of the pages.
    #[inline]
    pub(in super::super) fn is_untidy(&self) -> bool {
        let least = DEAD_MIN * usize::from(self.head().limits.gaps).max(1);
        self.head().dead as usize >= least.max(self.used_bytes() / 8)
    }

    /// True if a repack would reclaim gaps.
    pub(in super::super) fn has_gaps(&self) -> bool {
        self.head().dead as usize >= PAGE
    }

    /// Rewrites all entries into new pages without gaps. Returns false, without a change, if in
    /// their new order they would need more pages than the class has. Cost: O(entries).
    pub(in super::super) fn repack(&mut self) -> bool {
        let (old, last) = self.take_pages();
        let mut offsets = Vec::with_capacity(self.len());
        for group in 0..self.shape().groups {
            for slot in ones(self.groups()[group].used()) {
                let offset = usize::from(self.groups()[group].offset(slot));
                // SAFETY: offsets in used slots lead into pages.
                let at = unsafe { old.pages[offset / PAGE].add(offset % PAGE) };
                // SAFETY: an entry is there (S1); its page is freed below only.
                let raw = unsafe { Raw::new(at) };
                let Some(offset) = self.place(raw, raw.len()) else {
                    self.take_pages().0.free();
                    self.put_pages(&old, last);
                    let gaps = self.head().dead as usize + self.used_bytes() / 8;
                    self.head_mut().limits.gaps = gaps.div_ceil(DEAD_MIN) as u8; // Below 256.
                    return false;
                };
                offsets.push((Loc::new(group, slot), offset));
            }
        }
        assert_eq!(offsets.len(), self.len(), "all entries have moved");
        self.head_mut().limits.gaps = 0;
        for (loc, offset) in offsets {
            self.groups_mut()[usize::from(loc.group)].set_offset(usize::from(loc.slot), offset);
        }
        old.free();
        true
    }

    /// Takes the pages out of the segment, with the tail and the gaps.
    pub(super) fn take_pages(&mut self) -> (Pages, (u16, u16, u32)) {
        let pages = (0..self.page_count()).map(|page| self.page(page)).collect();
        let head = self.head_mut();
        let taken = (Pages { pages, last_cap: head.tail_cap }, (head.tail, head.gap, head.dead));
        head.gap = NO_GAP;
        (head.page_count, head.tail, head.tail_cap, head.dead) = (0, 0, 0, 0);
        taken
    }

    /// Reverses [`Seg::take_pages`].
    fn put_pages(&mut self, old: &Pages, (tail, gap, dead): (u16, u16, u32)) {
        for (page, &block) in old.pages.iter().enumerate() {
            // SAFETY: this many pages were there before.
            let at = unsafe { self.page_ptrs().add(page) };
            // SAFETY: as above.
            unsafe { at.write(block) };
        }
        let head = self.head_mut();
        (head.page_count, head.tail_cap) = (old.pages.len() as u8, old.last_cap);
        (head.tail, head.gap, head.dead) = (tail, gap, dead);
    }

    /// Moves all pages, and the counts of their entries, to a segment without pages.
    pub(super) fn move_pages(&mut self, to: &mut Self) {
        assert!(to.page_count() == 0 && self.page_count() <= to.shape().pages, "no room for pages");
        let count = self.page_count();
        let (from, into) = (self.page_ptrs(), to.page_ptrs());
        // SAFETY: the first `count` pointers were written, the other class has room for as many,
        // and the blocks are different.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_ptr(), count) };
        let (old, new) = (self.head_mut(), to.head_mut());
        (new.page_count, new.tail, new.tail_cap) = (old.page_count, old.tail, old.tail_cap);
        (new.dead, new.timed, new.owners) = (old.dead, old.timed, old.owners);
        new.gap = old.gap;
        (old.page_count, old.owners) = (0, 0);
    }

    /// A copy of the segment: index and pages bytewise; then what entries own is cloned. Cost:
    /// O(bytes).
    pub(in super::super) fn deep_clone(&self) -> Self {
        let head = self.head();
        let mut copy = Self::new(self.class(), head.limits);
        let (from, to) = (self.groups(), copy.groups_mut());
        // SAFETY: both have the class's number of groups, in different blocks.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), from.len()) };
        for page in 0..self.page_count() {
            let is_last = page + 1 == self.page_count();
            let cap = if is_last { usize::from(head.tail_cap) } else { PAGE };
            let new = allocate(cap);
            let used = if is_last { usize::from(head.tail) } else { PAGE };
            // SAFETY: both pages are `cap` long, and `used <= cap`.
            unsafe { ptr::copy_nonoverlapping(self.page(page).as_ptr(), new.as_ptr(), used) };
            // SAFETY: the copy has the same class, so as many pointers.
            let at = unsafe { copy.page_ptrs().add(page) };
            // SAFETY: as above.
            unsafe { at.write(new) };
            copy.head_mut().page_count += 1;
        }
        let new = copy.head_mut();
        (new.dead, new.len, new.timed) = (head.dead, head.len, head.timed);
        (new.owners, new.tail, new.tail_cap) = (head.owners, head.tail, head.tail_cap);
        (new.next, new.next_len, new.horizon) = (head.next, head.next_len, head.horizon);
        new.gap = head.gap;
        copy.own();
        debug_assert_eq!(copy.used_bytes(), self.used_bytes(), "a copy has all bytes");
        copy
    }

    /// Clones what the copied entries own, because the segments they were copied from remain.
    fn own(&mut self) {
        if self.head().owners == 0 {
            return;
        }
        let mut at = PagePos::default();
        while let Some(raw) = self.next_entry(&mut at) {
            if raw.is_owner() {
                // SAFETY: a bitwise copy without a reader yet.
                unsafe { raw.own() };
            }
        }
    }

    /// The next entry in memory order.
    #[inline]
    pub(in super::super) fn next_entry(&self, pos: &mut PagePos) -> Option<Raw<X>> {
        self.next_placed(pos).map(|(raw, _)| raw)
    }

    /// [`Seg::next_entry`] with its offset.
    #[inline]
    pub(super) fn next_placed(&self, pos: &mut PagePos) -> Option<(Raw<X>, u16)> {
        loop {
            if let (Stands::Entry(raw), offset) = self.next_standing(pos)? {
                return Some((raw, offset));
            }
        }
    }

    /// The next entry or gap in memory order, and its offset.
    #[inline]
    fn next_standing(&self, pos: &mut PagePos) -> Option<(Stands<X>, u16)> {
        let head = self.head();
        loop {
            let is_last = pos.page + 1 == usize::from(head.page_count);
            if pos.page >= usize::from(head.page_count) {
                return None;
            }
            if pos.at >= if is_last { usize::from(head.tail) } else { PAGE } {
                *pos = PagePos { page: pos.page + 1, at: 0 };
                continue;
            }
            // SAFETY: inside the page.
            let at = unsafe { self.page(pos.page).add(pos.at) };
            let offset = (pos.page * PAGE + pos.at) as u16;
            // SAFETY: pages are gapless up to their end (S2).
            let standing = unsafe { entry::stands(at) };
            match &standing {
                Stands::Entry(raw) => pos.at += raw.len(),
                Stands::Gap(len) => pos.at += len,
                Stands::End => pos.at = PAGE,
            }
            return Some((standing, offset));
        }
    }

    /// Frees index and pages, but nothing that entries own.
    pub(super) fn free_shell(&mut self) {
        let head = self.head();
        let last = usize::from(head.tail_cap);
        for page in 0..self.page_count() {
            free(self.page(page), if page + 1 == self.page_count() { last } else { PAGE });
        }
        free(self.block(), self.shape().bytes());
    }

    pub(super) fn check_pages(&self, mut indexed: Vec<NonNull<u8>>) {
        let (mut held, mut gaps) = (Vec::new(), Vec::new());
        let mut at = PagePos::default();
        while let Some((standing, offset)) = self.next_standing(&mut at) {
            match standing {
                Stands::Entry(raw) => held.push(raw.ptr()),
                Stands::Gap(len) if len > 1 => gaps.push((offset, len)), // One byte is padding.
                Stands::Gap(_) | Stands::End => {}
            }
        }
        held.sort_unstable();
        indexed.sort_unstable();
        assert_eq!(held, indexed, "S2: entries in pages and in the index");
        assert!(usize::from(self.head().tail) <= usize::from(self.head().tail_cap));
        let dead: usize = gaps.iter().map(|&(_, len)| len).sum();
        assert_eq!(self.head().dead as usize, dead, "S2: dead");
        self.check_gaps(&gaps);
    }
}

#[cfg(test)]
impl<X: OutOfLine> Seg<X> {
    /// The addresses of the pages, for tests.
    pub(in super::super) fn page_addresses(&self) -> Vec<*const u8> {
        (0..self.page_count()).map(|page| self.page(page).as_ptr().cast_const()).collect()
    }
}

/// Pages taken out of their segment.
pub(super) struct Pages {
    pages: Vec<NonNull<u8>>,
    last_cap: u16,
}

impl Pages {
    pub(super) fn free(self) {
        let count = self.pages.len();
        for (at, page) in self.pages.into_iter().enumerate() {
            free(page, if at + 1 == count { usize::from(self.last_cap) } else { PAGE });
        }
    }
}
