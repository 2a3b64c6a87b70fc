//! A chunk: a run of elements in one block of up to 4 KiB, with room at its ends.
//!
//! Redis's listpack spends a byte an element on its length from behind, moves all of it when its
//! head is pushed or popped, and walks half of it to find an index. Here elements lie in the middle
//! of the block, so that both ends grow and shrink in place, and every sixteenth is *marked*: an
//! index, or the last element, is found by walking past fifteen at most, for an eighth of a byte an
//! element.
//!
//! ```text
//! | counts: 16 | begin, end, len, head: 16 | .. room .. | elements | .. room .. | mark 2 | mark 1 |
//! group 0: the first `head` elements, 1 to 16; group n: those from mark n on, 16 each but the last
//! ```
//! A push to the front makes group 0 longer, and none of the marks changes; when it has sixteen, it
//! becomes group 1, and the marks move up by one place. An element that comes in the middle pushes
//! one out of each group before it, towards the front: each of those marks steps over one element.
//!
//! Chunks are shared between the list and its cuts, and copied before they are changed.
//!
//! Invariants:
//! - C1: `begin..end` holds `len` elements, one behind the other.
//! - C2: mark n is where the element with index `head + 16 * (n - 1)` begins; there are as many marks
//!   as are needed. `head` is 0 only in an empty chunk, and `len` in one without marks.
//! - C3: the elements' end is not beyond the last mark.
//! - C4: the numbers of blobs among the elements are those that `outside` has, each once.
//!
//! Not here: which chunk an index is in. See `tree`.

mod edit;
mod remake;
#[cfg(test)]
mod tests;

pub(super) use remake::{can_merge, remove_all, trim};

use super::item::{self, Element};
use super::outside::Outside;
use super::search::Needle;
use crate::blob::Blob;
use crate::table::get_mut;
use std::ops::Range;
use std::sync::Arc;

/// Elements of a group.
const GROUP: usize = 16;
/// Bytes of a mark.
const MARK: usize = size_of::<u16>();
/// What stands before the room of a block: two counts, and the chunk's own fields.
const HEAD_BYTES: usize = 2 * size_of::<usize>() + size_of::<Chunk<[u8; 0]>>();
/// Bytes of the largest block. More would make a copy for a cut, and a change in the middle, dearer;
/// fewer, the tree larger.
const BLOCK_MAX: usize = 4096;
/// Room of the largest block.
pub(super) const ROOM_MAX: usize = BLOCK_MAX - HEAD_BYTES;

const _: () = assert!(HEAD_BYTES == 32);
const _: () = assert!(BLOCK_MAX <= u16::MAX as usize);
const _: () = assert!(4 * item::ITEM_BYTES_MAX <= ROOM_MAX, "four of the longest to a chunk");

/// A chunk, shared.
pub(super) type Handle = Arc<Chunk>;

/// See the module.
pub(super) struct Chunk<B: ?Sized = [u8]> {
    /// The long elements.
    outside: Option<Box<Outside>>,
    /// Where the elements begin and end in `room`.
    begin: u16,
    end: u16,
    /// Elements.
    len: u16,
    /// Elements of group 0.
    head: u16,
    /// Elements and marks.
    room: B,
}

/// One of the two ends of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where index 0 is.
    Front,
    /// Where the largest index is.
    Back,
}

/// An empty chunk whose block has room for so many bytes of elements and marks: the allocator's
/// size classes, four a doubling.
fn blank(room: usize) -> Handle {
    macro_rules! block {
        ($($block:literal)*) => {
            match room + HEAD_BYTES {
                $(..=$block => Arc::new(Chunk {
                    outside: None, begin: 0, end: 0, len: 0, head: 0,
                    room: [0; $block - HEAD_BYTES],
                }),)*
                bytes => unreachable!("a block of {bytes} bytes"),
            }
        };
    }
    block!(256 320 384 448 512 640 768 896 1024 1280 1536 1792 2048 2560 3072 3584 4096)
}

/// The chunk, to be changed; copied first if a cut shares it.
#[inline]
pub(super) fn own(handle: &mut Handle) -> &mut Chunk {
    if Arc::strong_count(handle) != 1 {
        *handle = handle.copy();
    }
    get_mut(handle).expect("ours alone")
}

impl Chunk {
    /// Elements.
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Bytes of memory, with the long elements, shared or not.
    #[inline]
    pub(super) fn memory_bytes(&self) -> usize {
        let outside = self.outside.as_ref().map_or(0, |outside| outside.memory_bytes());
        HEAD_BYTES + self.room.len() + outside
    }

    /// Bytes of elements and marks.
    pub(super) fn used_bytes(&self) -> usize {
        self.items().len() + self.marks() * MARK
    }

    /// Long elements.
    pub(super) fn blobs(&self) -> usize {
        self.outside.as_ref().map_or(0, |outside| outside.len())
    }

    /// The elements' bytes.
    #[inline]
    pub(super) fn items(&self) -> &[u8] {
        &self.room[usize::from(self.begin)..usize::from(self.end)]
    }

    /// The element at this offset in [`Chunk::items`].
    #[inline]
    pub(super) fn element(&self, offset: usize) -> Element<'_> {
        let bytes = &self.items()[offset..];
        match item::outside(bytes) {
            Some(number) => Element::Blob(self.blob(number)),
            None => Element::Text(item::text(bytes)),
        }
    }

    /// The long element with this number.
    pub(super) fn blob(&self, number: u16) -> &Blob {
        self.outside.as_ref().expect("it names a blob").get(number)
    }

    /// Where in [`Chunk::items`] the element with this index begins; the end, if it is `len`.
    /// Cost: a walk past fifteen elements at most.
    #[inline]
    pub(super) fn offset(&self, index: usize) -> usize {
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
            Some(past) => (self.mark(past / GROUP + 1), past % GROUP),
        };
        item::skip(&self.room, start, steps)
    }

    /// The group that the element with this index is in.
    #[inline]
    fn group(&self, index: usize) -> usize {
        index.checked_sub(usize::from(self.head)).map_or(0, |past| past / GROUP + 1)
    }

    /// How many marks there are.
    #[inline]
    fn marks(&self) -> usize {
        usize::from(self.len - self.head).div_ceil(GROUP)
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

    /// Moves these marks, as what they mark has moved.
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
            self.set_mark(number, place + item::len(&self.room[place..]));
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

    /// Appends the indexes of the elements that look like the needle. Those of blobs are all that are
    /// as long as the needle, whatever is in them.
    pub(super) fn find(&self, needle: &Needle, hits: &mut Vec<u16>) {
        let (begin, marks) = (usize::from(self.begin), self.marks());
        let before = hits.len();
        let jump = |offset: usize| {
            let (mut low, mut high) = (0, marks + 1);
            while high - low > 1 {
                let middle = usize::midpoint(low, high);
                if self.mark(middle) - begin <= offset {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            match low {
                0 => (0, 0),
                _ => (usize::from(self.head) + (low - 1) * GROUP, self.mark(low) - begin),
            }
        };
        item::find(self.items(), needle, jump, hits);
        if let Some(blob) = needle.blob() {
            let mut at = before;
            while at < hits.len() {
                let element = self.element(self.offset(usize::from(hits[at])));
                if element.len() == blob.len() {
                    at += 1;
                } else {
                    hits.remove(at);
                }
            }
        }
    }

    /// Panics when an invariant does not hold.
    pub(super) fn check(&self) {
        let (mut at, mut index, mut blobs) = (usize::from(self.begin), 0, 0);
        let head = usize::from(self.head);
        while at < usize::from(self.end) {
            if index >= head && (index - head).is_multiple_of(GROUP) {
                assert_eq!(self.mark((index - head) / GROUP + 1), at, "C2: index {index}");
            }
            if let Some(number) = item::outside(&self.room[at..]) {
                let len = self.blob(number).len();
                assert!(len > item::INLINE_MAX, "C4: {len} bytes outside");
                blobs += 1;
            }
            at += item::len(&self.room[at..]);
            index += 1;
        }
        assert_eq!((at, index), (usize::from(self.end), self.len()), "C1");
        assert_eq!(blobs, self.blobs(), "C4");
        assert!(head <= GROUP && (head > 0 || self.len == 0), "C2: head={head} len={}", self.len);
        assert!(self.marks() > 0 || self.head == self.len, "C2: head={head} len={}", self.len);
        let first_mark = self.room.len() - self.marks() * MARK;
        assert!(usize::from(self.end) <= first_mark, "C3: end={} {first_mark}", self.end);
        assert!(self.outside.as_ref().is_none_or(|outside| outside.len() > 0), "C4: none is left");
        self.outside.iter().for_each(|outside| outside.check());
    }
}
