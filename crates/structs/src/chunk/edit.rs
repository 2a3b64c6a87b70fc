//! Changing a chunk in place: at its ends, and in the middle.
//!
//! An addition that finds no room is refused and changes nothing; the chunk's owner then gives it a
//! larger block, or halves it (`remake`).

use super::outside::OUTSIDE_MAX;
use super::{Chunk, Coding, Encoded, End, MARK};

/// A push moves the elements away from its end only if one part in this many of the block remains
/// free: else the next pushes would soon move them again.
const SLACK_SHARE: usize = 8;

impl<C: Coding> Chunk<C> {
    /// Adds an element at one end. False if there is no room.
    #[inline]
    pub(crate) fn push(&mut self, end: End, code: &C::Code<'_>) -> bool {
        self.push_with(end, code, self.room.len() / SLACK_SHARE)
    }

    /// [`Chunk::push`]; moves elements only if that leaves `slack` bytes free.
    #[inline]
    fn push_with(&mut self, end: End, code: &C::Code<'_>, slack: usize) -> bool {
        let need = code.len();
        let opens = self.opens_group(end);
        let mark = if opens { MARK } else { 0 };
        if !self.has_room(end, need, mark, slack) || !self.can_name(code) {
            return false;
        }
        match end {
            End::Front => self.begin -= need as u16,
            End::Back => self.end += need as u16,
        }
        let place = match end {
            End::Front => usize::from(self.begin),
            End::Back => usize::from(self.end) - need,
        };
        self.write(place, code);
        match (end, opens) {
            (End::Front, true) => self.open_front(place + need),
            (End::Front, false) => (self.head, self.len) = (self.head + 1, self.len + 1),
            (End::Back, _) => self.count_back(opens, place),
        }
        true
    }

    /// Adds items at the back as long as there is room for any: `code` has the bytes of one at the front
    /// of a word, and their number. Returns how many were added.
    pub(crate) fn push_words<T: Copy, const WORD: usize>(
        &mut self,
        items: &[T],
        code: impl Fn(T) -> ([u8; WORD], usize),
    ) -> usize {
        for (at, item) in items.iter().enumerate() {
            if self.back_room() < WORD + MARK {
                return at;
            }
            let (opens, place) = (self.opens_group(End::Back), usize::from(self.end));
            let (word, len) = code(*item);
            debug_assert!(C::outside(&word).is_none(), "it has no number of its own");
            // All of the word is written, as that takes no loop: the bytes after the item are free
            // room.
            self.room[place..place + WORD].copy_from_slice(&word);
            self.end += len as u16;
            self.count_back(opens, place);
        }
        items.len()
    }

    /// Counts an item that was added at the back, at `place`.
    #[inline]
    fn count_back(&mut self, opens: bool, place: usize) {
        if opens {
            self.len += 1;
            self.set_mark(self.marks(), place);
        } else {
            self.head += u16::from(self.head == self.len);
            self.len += 1;
        }
    }

    /// True when a push at this end begins a group that needs a mark.
    #[inline]
    fn opens_group(&self, end: End) -> bool {
        let (len, head) = (usize::from(self.len), usize::from(self.head));
        match end {
            End::Front => head == C::GROUP,
            End::Back if len == head => len == C::GROUP,
            End::Back => (len - head).is_multiple_of(C::GROUP),
        }
    }

    /// Adds an element in front of group 0, which began at `place` and is now group 1.
    fn open_front(&mut self, place: usize) {
        debug_assert_eq!(usize::from(self.head), C::GROUP, "only a full group is marked");
        (self.head, self.len) = (1, self.len + 1);
        let (first, size) = (self.marks(), self.room.len());
        self.room.copy_within(size - (first - 1) * MARK.., size - first * MARK);
        self.set_mark(1, place);
    }

    /// True when there is room at this end for an element and a mark, if need be after moving room
    /// from the other end.
    #[inline]
    fn has_room(&mut self, end: End, need: usize, mark: usize, slack: usize) -> bool {
        let (front, back) = (self.front_room(), self.back_room());
        let fits = match end {
            End::Front => front >= need && back >= mark,
            End::Back => back >= need + mark,
        };
        fits || self.slide(end, need, mark, slack)
    }

    /// Moves the elements away from this end; the room left over is halved between both.
    #[cold]
    fn slide(&mut self, end: End, need: usize, mark: usize, slack: usize) -> bool {
        let free = self.front_room() + self.back_room();
        if free < need + mark + slack {
            return false;
        }
        let half = (free - need - mark) / 2;
        self.move_to(if end == End::Front { need + half } else { half });
        true
    }

    /// Moves the elements so that they begin at `begin`.
    pub(super) fn move_to(&mut self, begin: usize) {
        let old = usize::from(self.begin);
        self.room.copy_within(old..usize::from(self.end), begin);
        self.move_marks(1..self.marks() + 1, begin.cast_signed() - old.cast_signed());
        self.end = (usize::from(self.end) + begin - old) as u16;
        self.begin = begin as u16;
    }

    /// False for a long item beyond the limit.
    fn can_name(&self, code: &C::Code<'_>) -> bool {
        code.long().is_none() || self.longs() < OUTSIDE_MAX
    }

    #[inline]
    fn write(&mut self, place: usize, code: &C::Code<'_>) {
        code.write_to(&mut self.room[place..place + code.len()]);
        if let Some(long) = code.long() {
            let number = self.outside.get_or_insert_default().add(long.clone());
            C::write_outside(&mut self.room[place..], number);
        }
    }

    /// Releases the part that the item at `place` keeps outside, if any.
    #[inline]
    pub(super) fn release(&mut self, place: usize) {
        if let Some(outside) = &mut self.outside
            && let Some(number) = C::outside(&self.room[place..])
        {
            outside.remove(number);
            if outside.len() == 0 {
                self.outside = None;
            }
        }
    }

    /// [`Chunk::release`] of all elements between two places.
    fn release_all(&mut self, mut from: usize, to: usize) {
        while from < to && self.outside.is_some() {
            self.release(from);
            from += C::len(&self.room[from..]);
        }
    }

    /// Removes `count` elements at one end, which must exist.
    #[inline]
    pub(crate) fn cut(&mut self, end: End, count: usize) {
        match end {
            End::Front => self.cut_front(count),
            End::Back => self.cut_back(self.len() - count),
        }
    }

    fn cut_back(&mut self, len: usize) {
        let place = self.place(len);
        self.release_all(place, usize::from(self.end));
        self.end = place as u16;
        self.len = len as u16;
        self.head = self.head.min(self.len);
    }

    fn cut_front(&mut self, count: usize) {
        let place = self.place(count);
        self.release_all(usize::from(self.begin), place);
        let marks = self.marks();
        let (gone, head) = match count.checked_sub(usize::from(self.head)) {
            None => (0, usize::from(self.head) - count),
            Some(past) => (past / C::GROUP + 1, C::GROUP - past % C::GROUP),
        };
        let gone = gone.min(marks);
        let size = self.room.len();
        self.room
            .copy_within(size - marks * MARK..size - gone * MARK, size - (marks - gone) * MARK);
        self.begin = place as u16;
        self.len -= count as u16;
        self.head = (head as u16).min(self.len);
    }

    /// Adds an element before the one with this index. False if there is no room at either side.
    pub(crate) fn insert(&mut self, index: usize, code: &C::Code<'_>) -> bool {
        self.insert_at(index, self.offset(index), code)
    }

    /// [`Chunk::insert`] before the element that begins at this offset in [`Chunk::items`].
    pub(crate) fn insert_at(&mut self, index: usize, offset: usize, code: &C::Code<'_>) -> bool {
        debug_assert!(index <= self.len(), "index={index} len={}", self.len);
        debug_assert_eq!(offset, self.offset(index), "index={index}");
        if index == 0 {
            return self.push_with(End::Front, code, 0);
        }
        if index == self.len() {
            return self.push_with(End::Back, code, 0);
        }
        let (need, mark) = (code.len(), if usize::from(self.head) == C::GROUP { MARK } else { 0 });
        if self.front_room() + self.back_room() < need + mark || !self.can_name(code) {
            return false;
        }
        let group = self.group(index - 1);
        let place = self.open_gap(usize::from(self.begin) + offset, group, need, mark);
        self.write(place, code);
        // Each group up to here passes one element to the group before it.
        self.step_marks(1..group + 1);
        if mark > 0 {
            let first = usize::from(self.begin);
            self.open_front(first + C::len(&self.room[first..]));
        } else {
            (self.head, self.len) = (self.head + 1, self.len + 1);
        }
        true
    }

    /// Makes room for `need` bytes before `place`, in or at the end of `group`, and for a mark.
    /// Returns where the room is.
    fn open_gap(&mut self, place: usize, group: usize, need: usize, mark: usize) -> usize {
        let (front, back) = (self.front_room(), self.back_room());
        let is_front_shorter = place - usize::from(self.begin) < usize::from(self.end) - place;
        if front >= need && back >= mark && (is_front_shorter || back < need + mark) {
            let begin = usize::from(self.begin);
            self.room.copy_within(begin..place, begin - need);
            self.move_marks(1..group + 1, -need.cast_signed());
            self.begin -= need as u16;
            return place - need;
        }
        let mut place = place;
        if back < need + mark {
            place -= front;
            self.move_to(0);
        }
        self.room.copy_within(place..usize::from(self.end), place + need);
        self.move_marks(group + 1..self.marks() + 1, need.cast_signed());
        self.end += need as u16;
        place
    }

    /// Removes the element with this index.
    pub(crate) fn remove(&mut self, index: usize) {
        self.remove_at(index, self.offset(index));
    }

    /// [`Chunk::remove`] of the element that begins at this offset in [`Chunk::items`].
    pub(crate) fn remove_at(&mut self, index: usize, offset: usize) {
        debug_assert!(index < self.len(), "index={index} len={}", self.len);
        debug_assert_eq!(offset, self.offset(index), "index={index}");
        if index == 0 {
            return self.cut_front(1);
        }
        let (place, group) = (usize::from(self.begin) + offset, self.group(index));
        let bytes = C::len(&self.room[place..]);
        self.release(place);
        // Each later group passes its first element to the group before it.
        self.step_marks(group + 1..self.marks() + 1);
        self.close_gap(place, group, bytes);
        self.len -= 1;
        self.head = self.head.min(self.len);
    }

    /// Closes a gap of `bytes` at `place`, in `group`. Returns the new end of what precedes it.
    fn close_gap(&mut self, place: usize, group: usize, bytes: usize) -> usize {
        let (begin, end) = (usize::from(self.begin), usize::from(self.end));
        if place - begin < end - place {
            self.room.copy_within(begin..place, begin + bytes);
            self.move_marks(1..group + 1, bytes.cast_signed());
            self.begin += bytes as u16;
            return place + bytes;
        }
        self.room.copy_within(place + bytes..end, place);
        self.move_marks(group + 1..self.marks() + 1, -bytes.cast_signed());
        self.end -= bytes as u16;
        place
    }

    /// Replaces the element with this index. False if there is no room.
    pub(crate) fn set(&mut self, index: usize, code: &C::Code<'_>) -> bool {
        debug_assert!(index < self.len(), "index={index} len={}", self.len);
        let (place, group) = (self.place(index), self.group(index));
        let (old, new) = (C::len(&self.room[place..]), code.len());
        if self.front_room() + self.back_room() + old < new || !self.can_name(code) {
            return false;
        }
        self.release(place);
        // The mark of this element, if any, follows its first byte.
        let place = match new.checked_sub(old) {
            Some(0) => place,
            Some(more) => self.open_gap(place + old, group, more, 0) + more - new,
            None => self.close_gap(place + new, group, old - new) - new,
        };
        self.write(place, code);
        true
    }
}
