//! A chunk: a run of items in one block of up to 4 KiB, with room at its ends. Lists and sorted
//! sets are made of them.
//!
//! Redis's listpack spends a byte an element on a length for walking backwards, moves all bytes
//! when its head is pushed or popped, and walks half of them to find an index. Here items are in
//! the middle of the block, so that both ends grow and shrink in place, and every sixteenth is
//! *marked*: an index, or the last element, is found by walking past at most fifteen, for an eighth
//! of a byte an element.
//!
//! ```text
//! | counts: 16 | begin, end, len, head: 16 | .. room .. | elements | .. room .. | mark 2 | mark 1 |
//! group 0: the first `head` elements, 1 to 16; group n: those from mark n on, 16 each but the last
//! ```
//! A push to the front makes group 0 longer, without changing a mark; when it has sixteen, it
//! becomes group 1, and the marks move up by one place. An insertion in the middle pushes one
//! element out of each group before it, towards the front: each of those marks steps over one
//! element.
//!
//! Chunks are shared between the list and its cuts, and copied before they are changed.
//!
//! Invariants:
//! - C1: `begin..end` holds `len` elements, without gaps.
//! - C2: mark n is the start of the element with index `head + 16 * (n - 1)`; there are as many
//!   marks as needed. `head` is 0 only in an empty chunk, and `len` in one without marks.
//! - C3: the elements end before the last mark.
//! - C4: the numbers of long items among the elements are exactly those in `outside`, each once.
//!
//! Not here: which chunk an index is in. See `tree`.

mod edit;
mod outside;
mod remake;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use outside::OUTSIDE_MAX;
pub(crate) use remake::{can_merge, compact, remove_all, trim};

use crate::kept;
use crate::table::{get_mut, prefetch};
use outside::Outside;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// The items that a kind of chunk holds.
pub(crate) trait Coding: Copy + Send + Sync + 'static {
    /// Items of a group. Items of one length need no marks, and are one group.
    const GROUP: usize = 16;
    /// The outside part of an item that is too long to be kept among the others.
    type Long: Held;
    /// An item to be added to a chunk.
    type Code<'a>: Encoded<Self::Long>;
    /// The key by which the nodes of a tree search: a part of the first item of each child.
    type First: Copy + PartialEq + fmt::Debug + Send + Sync;

    /// Bytes of the item at the front of `bytes`.
    fn len(bytes: &[u8]) -> usize;

    /// The start of the item `count` after the one at `at`.
    #[inline]
    fn skip(items: &[u8], at: usize, count: usize) -> usize {
        (0..count).fold(at, |at, _| at + Self::len(&items[at..]))
    }

    /// The search key of the item at the front of `bytes`.
    fn first(bytes: &[u8]) -> Self::First;

    /// The number of the part that the item at the front of `bytes` keeps outside, if any.
    fn outside(_bytes: &[u8]) -> Option<u16> {
        None
    }

    /// Writes that number to the item at the front of `bytes`. Kinds with parts outside have their own.
    fn write_outside(_bytes: &mut [u8], number: u16) {
        unreachable!("{number} would lie outside");
    }
}

/// An item in its stored form.
pub(crate) trait Encoded<L> {
    /// Bytes that it takes in a chunk.
    fn len(&self) -> usize;

    /// The part that it keeps outside.
    fn long(&self) -> Option<&L>;

    /// Writes the item over as many bytes, except for the number of its outside part.
    fn write_to(&self, out: &mut [u8]);
}

/// A part that can be kept outside: a reference to something shared.
pub(crate) trait Held: Clone + fmt::Debug + Send + Sync + 'static {
    /// Bytes of memory of its target.
    fn memory_bytes(&self) -> usize;
}

/// Bytes of a mark.
pub(crate) const MARK: usize = size_of::<u16>();
/// The bytes before the room of a block: two counts, and the chunk's own fields.
const HEAD_BYTES: usize = 32;
/// Bytes of the largest block. Larger ones would make a copy for a cut, and a change in the middle,
/// cost more; smaller ones, a larger tree.
const BLOCK_MAX: usize = 4096;
/// Room of the largest block.
pub(crate) const ROOM_MAX: usize = BLOCK_MAX - HEAD_BYTES;

const _: () = assert!(BLOCK_MAX <= u16::MAX as usize);

/// A chunk, shared.
pub(crate) type Handle<C> = Arc<Chunk<C>>;

/// A chunk: its fields, and in the same block its elements and marks.
pub(crate) struct Chunk<C: Coding, B: ?Sized = [u8]> {
    /// The long elements.
    outside: Option<Box<Outside<C::Long>>>,
    coding: PhantomData<C>,
    /// Start and end of the elements in `room`.
    begin: u16,
    end: u16,
    /// Number of elements.
    len: u16,
    /// Elements of group 0.
    head: u16,
    /// Elements and marks.
    room: B,
}

/// One of the two ends of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end with index 0.
    Front,
    /// The end with the largest index.
    Back,
}

/// An empty chunk whose block has at least this much room for elements and marks: the allocator's
/// size classes, four a doubling.
fn blank<C: Coding>(room: usize) -> Handle<C> {
    const { assert!(2 * size_of::<usize>() + size_of::<Chunk<C, [u8; 0]>>() == HEAD_BYTES) };
    macro_rules! block {
        ($($block:literal)*) => {
            match room + HEAD_BYTES {
                $(..=$block => Arc::new(Chunk {
                    outside: None, coding: PhantomData, begin: 0, end: 0, len: 0, head: 0,
                    room: [0; $block - HEAD_BYTES],
                }),)*
                bytes => unreachable!("a block of {bytes} bytes"),
            }
        };
    }
    block!(256 320 384 448 512 640 768 896 1024 1280 1536 1792 2048 2560 3072 3584 4096)
}

/// The chunk, for changing; copied first if a cut shares it.
#[inline]
pub(crate) fn own<C: Coding>(handle: &mut Handle<C>) -> &mut Chunk<C> {
    if Arc::strong_count(handle) != 1 {
        kept::note_part(size_of_val(&**handle));
        *handle = handle.copy();
    }
    get_mut(handle).expect("ours alone")
}

impl<C: Coding> Chunk<C> {
    /// Elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Bytes of memory, long elements included, shared or not.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        let outside = self.outside.as_ref().map_or(0, |outside| outside.memory_bytes());
        HEAD_BYTES + self.room.len() + outside
    }

    /// Bytes of elements and marks.
    pub(crate) fn used_bytes(&self) -> usize {
        self.items().len() + self.marks() * MARK
    }

    /// Number of long items.
    pub(crate) fn longs(&self) -> usize {
        self.outside.as_ref().map_or(0, |outside| outside.len())
    }

    /// The elements' bytes.
    #[inline]
    pub(crate) fn items(&self) -> &[u8] {
        &self.room[usize::from(self.begin)..usize::from(self.end)]
    }

    /// The long item with this number.
    pub(crate) fn long(&self, number: u16) -> &C::Long {
        self.outside.as_ref().expect("it names one").get(number)
    }

    /// The same, for changing; not its bytes of memory, which are counted.
    pub(crate) fn long_mut(&mut self, number: u16) -> &mut C::Long {
        self.outside.as_mut().expect("it names one").get_mut(number)
    }

    /// The offset in [`Chunk::items`] of the element with this index; of the end, if it is `len`.
    /// Cost: a walk past at most fifteen elements.
    #[inline]
    pub(crate) fn offset(&self, index: usize) -> usize {
        self.place(index) - usize::from(self.begin)
    }

    /// [`Chunk::offset`] in `room`.
    #[inline]
    fn place(&self, index: usize) -> usize {
        debug_assert!(index <= self.len(), "index={index} len={}", self.len);
        if index == self.len() {
            return usize::from(self.end);
        }
        let (start, steps) = match index.checked_sub(usize::from(self.head)) {
            None => (usize::from(self.begin), index),
            Some(past) => (self.mark(past / C::GROUP + 1), past % C::GROUP),
        };
        C::skip(&self.room, start, steps)
    }

    /// The group of the element with this index.
    #[inline]
    fn group(&self, index: usize) -> usize {
        index.checked_sub(usize::from(self.head)).map_or(0, |past| past / C::GROUP + 1)
    }

    /// How many marks there are.
    #[inline]
    fn marks(&self) -> usize {
        usize::from(self.len - self.head).div_ceil(C::GROUP)
    }

    #[inline]
    fn mark(&self, number: usize) -> usize {
        let at = self.room.len() - number * MARK;
        usize::from(u16::from_le_bytes([self.room[at], self.room[at + 1]]))
    }

    #[inline]
    fn set_mark(&mut self, number: usize, place: usize) {
        let at = self.room.len() - number * MARK;
        self.room[at..at + MARK].copy_from_slice(&(place as u16).to_le_bytes());
    }

    /// Moves these marks along with the elements that they mark.
    #[inline]
    fn move_marks(&mut self, numbers: Range<usize>, by: isize) {
        for number in numbers {
            self.set_mark(number, self.mark(number).wrapping_add_signed(by));
        }
    }

    /// Moves these marks by one element towards the end.
    fn step_marks(&mut self, numbers: Range<usize>) {
        for number in numbers {
            let place = self.mark(number);
            self.set_mark(number, place + C::len(&self.room[place..]));
        }
    }

    /// Room before the elements.
    fn front_room(&self) -> usize {
        usize::from(self.begin)
    }

    /// Room between the elements and the marks.
    fn back_room(&self) -> usize {
        self.room.len() - self.marks() * MARK - usize::from(self.end)
    }

    /// The index and the offset of the item at a mark; of the first item for 0.
    fn marked(&self, number: usize) -> (usize, usize) {
        match number {
            0 => (0, 0),
            _ => {
                let index = usize::from(self.head) + (number - 1) * C::GROUP;
                (index, self.mark(number) - usize::from(self.begin))
            }
        }
    }

    /// The index and the offset of the last marked item for which `before` holds, given its offset;
    /// of the first item if there is none. A search in sorted items starts there.
    #[inline]
    pub(crate) fn last_mark(&self, before: impl Fn(usize) -> bool) -> (usize, usize) {
        self.last_between(0..self.marks() + 1, before)
    }

    /// [`Chunk::last_mark`] among these: it holds for the first of them.
    #[inline]
    fn last_between(&self, marks: Range<usize>, before: impl Fn(usize) -> bool) -> (usize, usize) {
        let Range { start: mut low, end: mut high } = marks;
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if before(self.marked(middle).1) {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.marked(low)
    }

    /// [`Chunk::last_mark`], which may be about `part` of the way through the items: if so, nothing is
    /// read that lies far from there.
    #[inline]
    pub(crate) fn last_mark_near(
        &self,
        part: f64,
        before: impl Fn(usize) -> bool,
    ) -> (usize, usize) {
        let guess = ((part * self.len() as f64) as usize).min(self.len() - 1);
        let (at, end) = (self.group(guess), self.marks() + 1);
        let is_before = |number: usize| number == 0 || before(self.marked(number).1);
        // Away from there in steps that double, until it is between two marks.
        let (mut low, mut high, mut step) = (at, at + 1, 1);
        if is_before(at) {
            while high < end && is_before(high) {
                (low, high, step) = (high, end.min(high + step), 2 * step);
            }
        } else {
            (low, high) = (at - 1, at);
            while !is_before(low) {
                (low, high, step) = (low.saturating_sub(step), low, 2 * step);
            }
        }
        self.last_between(low..high, before)
    }

    /// Prefetches the head, and what lies `offset` bytes behind the beginning of the items, if
    /// those begin where the room does. Reads nothing of it.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        const LINE: usize = 64;
        let room = self.room.as_ptr();
        let near = room.wrapping_add(offset.saturating_sub(LINE * 3 / 2));
        prefetch(room.wrapping_sub(1));
        (0..4).for_each(|line| prefetch(near.wrapping_add(line * LINE)));
    }

    /// Prefetches the first reads of a search, in a chunk that was not touched.
    #[inline]
    pub(crate) fn prefetch_head(handle: &Handle<C>) {
        let size = size_of_val(&**handle);
        let start = Arc::as_ptr(handle).cast::<u8>();
        [start, start.wrapping_add(size - 1)].into_iter().for_each(prefetch);
    }

    /// Prefetches the bytes about `part` of the way through the items, and those that a change
    /// there moves, of a chunk whose head was prefetched.
    #[inline]
    pub(crate) fn prefetch_items(&self, part: f64) {
        const LINE: usize = 64;
        /// Lines to either side that a search reads.
        const NEAR: usize = 2;
        let (begin, end) = (usize::from(self.begin), usize::from(self.end));
        let place = begin + (part * (end - begin) as f64) as usize;
        let lines = if place - begin < end - place {
            begin / LINE..(place / LINE + NEAR + 1)
        } else {
            (place / LINE).saturating_sub(NEAR)..end.div_ceil(LINE)
        };
        lines.for_each(|line| prefetch(self.room.as_ptr().wrapping_add(line * LINE)));
    }

    /// Prefetches the reads of a search that begins about `part` of the way through the items, of a
    /// chunk whose head was prefetched: the group there, and the marked items before and after it.
    #[inline]
    pub(crate) fn prefetch_near(&self, part: f64) {
        const LINE: usize = 64;
        /// Lines of a group of which each item fills half a line.
        const LINES_MAX: usize = 9;
        let group = self.group((part * self.len() as f64) as usize);
        let line_of = |group: usize| match group {
            0 => usize::from(self.begin) / LINE,
            _ if group > self.marks() => usize::from(self.end) / LINE,
            _ => self.mark(group) / LINE,
        };
        let lines = (line_of(group)..=line_of(group + 1)).take(LINES_MAX);
        let before = line_of(group.saturating_sub(1));
        let line = |line: usize| self.room.as_ptr().wrapping_add(line * LINE);
        std::iter::once(before).chain(lines).for_each(|at| prefetch(line(at)));
    }

    /// Panics when an invariant does not hold.
    pub(crate) fn check(&self) {
        let (mut at, mut index, mut longs) = (usize::from(self.begin), 0, 0);
        let head = usize::from(self.head);
        while at < usize::from(self.end) {
            if index >= head && (index - head).is_multiple_of(C::GROUP) {
                assert_eq!(self.mark((index - head) / C::GROUP + 1), at, "C2: index {index}");
            }
            if let Some(number) = C::outside(&self.room[at..]) {
                let long = self.long(number);
                assert!(long.memory_bytes() > C::len(&self.room[at..]), "C4: {long:?}");
                longs += 1;
            }
            at += C::len(&self.room[at..]);
            index += 1;
        }
        assert_eq!((at, index), (usize::from(self.end), self.len()), "C1");
        assert_eq!(longs, self.longs(), "C4");
        assert!(
            head <= C::GROUP && (head > 0 || self.len == 0),
            "C2: head={head} len={}",
            self.len
        );
        assert!(self.marks() > 0 || self.head == self.len, "C2: head={head} len={}", self.len);
        let first_mark = self.room.len() - self.marks() * MARK;
        assert!(usize::from(self.end) <= first_mark, "C3: end={} {first_mark}", self.end);
        assert!(self.outside.as_ref().is_none_or(|outside| outside.len() > 0), "C4: none is left");
        self.outside.iter().for_each(|outside| outside.check());
    }
}
