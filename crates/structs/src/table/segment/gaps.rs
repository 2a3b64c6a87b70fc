//! The gaps of a segment: left by removed entries, and reused first by new ones.
//!
//! If values of one size are added and removed, as in a cache whose keys expire, a new entry fits
//! exactly into the gap of an old one. Without reuse, every removal would cost an eighth of a
//! repack, half of that for new pages.
//!
//! ```text
//! head.gap --> | DEAD | length | offset of the next gap: 2 | ... | --> ... --> NO_GAP
//! ```
//! Only the first few gaps are tried. An entry that fits none goes after the last entry, and the
//! next repack reclaims the gaps.
//!
//! Invariant S4 (`check_gaps`): the chain visits each marked gap of at least [`GAP_MIN`] bytes
//! exactly once.
//!
//! Not here: placing after the last entry, repacking. See `pages`.

use super::{PAGE, Seg};
use crate::table::entry::{self, Raw, Stands, mark_dead, pad_before};
use crate::table::value::OutOfLine;
use std::collections::BTreeSet;
use std::ptr::{self, NonNull};

/// Marks the end of the chain; no entry has this offset.
pub(super) const NO_GAP: u16 = u16::MAX;
/// Shorter gaps are not chained. A mark takes at most three bytes, the link two.
const GAP_MIN: usize = 8;
const _: () = assert!(LINK_AT + LINK <= GAP_MIN);
/// Gaps that are tried for an entry, each perhaps a cache miss.
const LOOKS: usize = 3;
/// The bytes of a link.
const LINK: usize = 2;
/// The place of the link: after the longest mark, usually in the same cache line.
const LINK_AT: usize = 3;

impl<X: OutOfLine> Seg<X> {
    fn at(&self, offset: u16) -> NonNull<u8> {
        // SAFETY: inside the page.
        unsafe { self.page(usize::from(offset) / PAGE).add(usize::from(offset) % PAGE) }
    }

    /// The length of the chained gap at `offset`, and the place of its link.
    fn gap_at(&self, offset: u16) -> (usize, NonNull<[u8; LINK]>) {
        // SAFETY: the chain leads over marks (S4).
        let Stands::Gap(len) = (unsafe { entry::stands::<X>(self.at(offset)) }) else {
            unreachable!("S4: no gap");
        };
        // SAFETY: a chained gap has room for the link after its mark.
        (len, unsafe { self.at(offset).add(LINK_AT) }.cast())
    }

    fn gap_behind(&self, link: NonNull<[u8; LINK]>) -> u16 {
        // SAFETY: links of chained gaps were written.
        u16::from_le_bytes(unsafe { link.read() })
    }

    /// Marks `len` bytes as a gap, and chains it for reuse. The caller has taken over what they
    /// owned.
    pub(super) fn leave_gap(&mut self, offset: u16, len: usize) {
        // SAFETY: the bytes were those of an entry or a gap, which is gone.
        unsafe { mark_dead(self.at(offset), len) };
        if len >= GAP_MIN {
            let (_, link) = self.gap_at(offset);
            // SAFETY: inside the gap, and the segment is not shared.
            unsafe { link.write(self.head().gap.to_le_bytes()) };
            self.head_mut().gap = offset;
        }
    }

    /// Copies `entry` into one of the first gaps, if it fits one.
    pub(super) fn fill_gap(&mut self, entry: Raw<X>, len: usize) -> Option<u16> {
        let (mut offset, mut before) = (self.head().gap, None);
        for _ in 0..LOOKS {
            if offset == NO_GAP {
                return None;
            }
            let (gap, link) = self.gap_at(offset);
            let address = self.at(offset).as_ptr().addr();
            // Padding is not allowed, because it is not counted; nor is a gap of one byte.
            let fits = gap == len || gap >= len + 2;
            let next = self.gap_behind(link);
            if fits && pad_before(address, entry, len) == 0 {
                self.unchain(before, next);
                self.take_gap(offset, gap, entry, len);
                return Some(offset);
            }
            (offset, before) = (next, Some(link));
        }
        None
    }

    fn unchain(&mut self, before: Option<NonNull<[u8; LINK]>>, next: u16) {
        match before {
            // SAFETY: the link of a chained gap; the segment is not shared.
            Some(link) => unsafe { link.write(next.to_le_bytes()) },
            None => self.head_mut().gap = next,
        }
    }

    fn take_gap(&mut self, offset: u16, gap: usize, entry: Raw<X>, len: usize) {
        // SAFETY: the gap has `len` bytes or more, and the entry is elsewhere.
        unsafe { ptr::copy_nonoverlapping(entry.ptr().as_ptr(), self.at(offset).as_ptr(), len) };
        if gap > len {
            self.leave_gap(offset + len as u16, gap - len);
        }
        self.head_mut().dead -= len as u32;
    }

    /// Checks S4. `marked` are the places and lengths of gaps.
    pub(super) fn check_gaps(&self, marked: &[(u16, usize)]) {
        let (mut offset, mut chained) = (self.head().gap, BTreeSet::new());
        while offset != NO_GAP {
            assert!(chained.insert(offset), "S4: a ring of gaps");
            let (_, link) = self.gap_at(offset);
            offset = self.gap_behind(link);
        }
        let long = marked.iter().filter(|&&(_, len)| len >= GAP_MIN);
        assert_eq!(chained, long.map(|&(offset, _)| offset).collect(), "S4: the chain");
    }
}
