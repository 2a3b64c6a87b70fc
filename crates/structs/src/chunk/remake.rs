//! Chunks made of others: copied, split, merged, given another block.

use super::outside::OUTSIDE_MAX;
use super::{Chunk, Coding, End, Handle, MARK, ROOM_MAX, blank, get_mut, own};
use std::ops::Range;

/// Neighbours are merged when together they fill at most this much of a block.
const MERGED_MAX: usize = ROOM_MAX / 4 * 3;
/// The most long items of two neighbours that are merged.
const MERGED_LONGS_MAX: usize = OUTSIDE_MAX / 4 * 3;
/// A chunk that fills less looks for a neighbour to merge with.
const SPARSE_MAX: usize = ROOM_MAX / 3;
/// A block that grows gets one part in this many of its content as additional room.
const GROWTH_SHARE: usize = 4;
/// Once nothing is pushed to a chunk any more, it may leave one part in this many of it unused: a
/// quarter of a class.
const UNUSED_SHARE: usize = 8;

/// True when two neighbours should be merged.
pub(crate) fn can_merge<C: Coding>(one: &Chunk<C>, other: &Chunk<C>) -> bool {
    one.used_bytes() + other.used_bytes() <= MERGED_MAX
        && one.longs() + other.longs() <= MERGED_LONGS_MAX
        && (one.is_sparse() || other.is_sparse())
}

/// Some elements of a chunk, by their bytes in [`Chunk::items`].
type ChunkSlice<'a, C> = (&'a Chunk<C>, Range<usize>);

/// Bytes of the marks of `count` elements: the first sixteen need none.
fn mark_bytes<C: Coding>(count: usize) -> usize {
    count.saturating_sub(C::GROUP).div_ceil(C::GROUP) * MARK
}

/// A chunk with the contents of the parts in order, and `spare` bytes of room at one end.
fn gather<C: Coding>(
    parts: &[ChunkSlice<'_, C>],
    count: usize,
    spare: usize,
    end: End,
) -> Handle<C> {
    let used = parts.iter().map(|(_, part)| part.len()).sum::<usize>() + mark_bytes::<C>(count);
    let mut handle = blank((used + spare).min(ROOM_MAX));
    let chunk = get_mut(&mut handle).expect("new");
    for (source, part) in parts {
        chunk.append(source, part.clone());
    }
    chunk.mark_all();
    assert_eq!(chunk.len(), count, "the parts hold as many");
    if end == End::Front {
        chunk.move_to(chunk.back_room());
    }
    handle
}

impl<C: Coding> Chunk<C> {
    /// An empty chunk, with room for `room` bytes at `end`.
    pub(crate) fn empty(room: usize, end: End) -> Handle<C> {
        gather(&[], 0, room.min(ROOM_MAX), end)
    }

    /// A chunk of these elements, none of them long, with room for `need` more bytes at `end`.
    pub(crate) fn of_items(items: &[u8], count: usize, need: usize, end: End) -> Handle<C> {
        let spare = (items.len() / GROWTH_SHARE).max(need + MARK);
        let mut handle = blank((items.len() + mark_bytes::<C>(count) + spare).min(ROOM_MAX));
        let chunk = get_mut(&mut handle).expect("new");
        chunk.room[..items.len()].copy_from_slice(items);
        chunk.end = items.len() as u16;
        chunk.mark_all();
        assert_eq!(chunk.len(), count, "the elements are as many");
        if end == End::Front {
            chunk.move_to(chunk.back_room());
        }
        handle
    }

    /// A copy in a block of its own.
    pub(super) fn copy(&self) -> Handle<C> {
        let mut handle = blank(self.room.len());
        let copy = get_mut(&mut handle).expect("new");
        copy.outside.clone_from(&self.outside);
        (copy.begin, copy.end, copy.len, copy.head) = (self.begin, self.end, self.len, self.head);
        copy.room.copy_from_slice(&self.room);
        handle
    }

    /// Appends elements of another chunk, without making marks.
    fn append(&mut self, source: &Self, part: Range<usize>) {
        let (from, items) = (usize::from(self.end), &source.items()[part]);
        self.room[from..from + items.len()].copy_from_slice(items);
        self.end = (from + items.len()) as u16;
        let mut at = from;
        while source.outside.is_some() && at < usize::from(self.end) {
            if let Some(number) = C::outside(&self.room[at..]) {
                let long = source.long(number).clone();
                let number = self.outside.get_or_insert_default().add(long);
                C::write_outside(&mut self.room[at..], number);
            }
            at += C::len(&self.room[at..]);
        }
    }

    /// Counts the elements, and marks every sixteenth; there is room for the marks.
    fn mark_all(&mut self) {
        let (mut at, mut index) = (usize::from(self.begin), 0);
        while at < usize::from(self.end) {
            let next = at + C::len(&self.room[at..]);
            if index > 0 && index % C::GROUP == 0 {
                self.set_mark(index / C::GROUP, at);
            }
            (at, index) = (next, index + 1);
        }
        self.len = index as u16;
        self.head = self.len.min(C::GROUP as u16);
    }

    fn whole(&self) -> ChunkSlice<'_, C> {
        (self, 0..self.items().len())
    }

    /// True when it fills less than a third of a block.
    pub(crate) fn is_sparse(&self) -> bool {
        self.used_bytes() <= SPARSE_MAX
    }

    /// A copy in a larger block, with room for `need` more bytes at `end`. `None` if there is no
    /// larger one, or it would not help.
    pub(crate) fn grown(&self, end: End, need: usize) -> Option<Handle<C>> {
        if self.longs() == OUTSIDE_MAX || self.room.len() == ROOM_MAX {
            return None;
        }
        let spare = (self.used_bytes() / GROWTH_SHARE).max(need + MARK);
        Some(gather(&[self.whole()], self.len(), spare, end))
    }

    /// Both in one, with the room at the back.
    pub(crate) fn merged(&self, other: &Self) -> Handle<C> {
        let parts = [self.whole(), other.whole()];
        gather(&parts, self.len() + other.len(), 0, End::Back)
    }

    /// The elements before an index, and those from there on.
    pub(crate) fn split(&self, index: usize) -> (Handle<C>, Handle<C>) {
        debug_assert!(0 < index && index < self.len(), "index={index} len={}", self.len);
        let (at, end) = (self.offset(index), self.items().len());
        let front = gather(&[(self, 0..at)], index, 0, End::Back);
        (front, gather(&[(self, at..end)], self.len() - index, 0, End::Back))
    }

    /// The index that halves the bytes, about. The chunk has two elements or more.
    pub(crate) fn middle(&self) -> usize {
        let (half, mut index, mut at) = (self.items().len() / 2, 0, 0);
        while at < half {
            at += C::len(&self.items()[at..]);
            index += 1;
        }
        index.clamp(1, self.len() - 1)
    }
}

/// Moves a chunk to which nothing is pushed any more to a block that fits.
pub(crate) fn trim<C: Coding>(handle: &mut Handle<C>) {
    let unused = handle.room.len() - handle.used_bytes();
    if unused > handle.room.len() / UNUSED_SHARE {
        *handle = gather(&[handle.whole()], handle.len(), 0, End::Back);
    }
}

/// Removes the elements with these indexes, ascending.
pub(crate) fn remove_all<C: Coding>(handle: &mut Handle<C>, hits: &[u16]) {
    let chunk = own(handle);
    for &hit in hits {
        if chunk.outside.is_none() {
            break;
        }
        chunk.release(chunk.place(usize::from(hit)));
    }
    let (begin, end) = (usize::from(chunk.begin), usize::from(chunk.end));
    let len = compact::<C>(&mut chunk.room[begin..end], hits);
    chunk.end = (begin + len) as u16;
    chunk.mark_all();
}

/// Removes the items with the indexes in `hits`, ascending, by moving the others together, to the
/// front. Returns where they end.
pub(crate) fn compact<C: Coding>(items: &mut [u8], hits: &[u16]) -> usize {
    let (mut index, mut from, mut to) = (0, 0, 0);
    for &hit in hits {
        let run = from..C::skip(items, from, usize::from(hit) - index);
        items.copy_within(run.clone(), to);
        to += run.len();
        from = run.end + C::len(&items[run.end..]);
        index = usize::from(hit) + 1;
    }
    items.copy_within(from.., to);
    to + items.len() - from
}
