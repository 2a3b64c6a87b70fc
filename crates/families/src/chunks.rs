//! A sequence of items in chunks. A single vector of ten million items would move as a whole when
//! it grows, and would be freed in one step.

use darter_base::lazyfree;
use std::collections::VecDeque;

/// Chunks freed in one step; and items, if each may own memory.
const FREED_AT_ONCE: usize = 16;
const ITEMS_FREED_AT_ONCE: usize = 256;

/// A sequence in chunks. All but the last are full with `LEN` items, or ended early because the
/// next item did not fit.
pub(crate) struct Chunks<T: 'static, const LEN: usize>(VecDeque<Vec<T>>);

impl<T, const LEN: usize> Default for Chunks<T, LEN> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T, const LEN: usize> Chunks<T, LEN> {
    /// The chunks, in order.
    pub(crate) fn chunks(&self) -> &VecDeque<Vec<T>> {
        &self.0
    }

    /// The last chunk, with room for `count` more items; adds a chunk if necessary.
    #[inline]
    pub(crate) fn tail(&mut self, count: usize) -> &mut Vec<T> {
        debug_assert!(count <= LEN, "{count} do not fit a chunk of {LEN}");
        match self.0.back() {
            None => self.0.push_back(Vec::new()), // The first chunk grows as vectors do.
            Some(last) if last.len() + count > LEN => self.0.push_back(Vec::with_capacity(LEN)),
            Some(_) => {}
        }
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// The index of the last chunk, and the number of items in it: the place of the next item, if
    /// it fits.
    pub(crate) fn end(&self) -> (usize, usize) {
        (self.0.len().saturating_sub(1), self.0.back().map_or(0, Vec::len))
    }

    /// The item at a place: its chunk, and its index in the chunk.
    pub(crate) fn at(&mut self, (chunk, place): (usize, usize)) -> &mut T {
        &mut self.0[chunk][place]
    }

    /// The chunks, to change items but not their number.
    pub(crate) fn slice_mut(&mut self) -> &mut [Vec<T>] {
        self.0.make_contiguous()
    }

    /// Removes the first chunk.
    pub(crate) fn pop_front(&mut self) -> Option<Vec<T>> {
        self.0.pop_front()
    }

    /// Removes the last item.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let item = self.0.back_mut()?.pop();
        if self.0.back().is_some_and(Vec::is_empty) {
            self.0.pop_back();
        }
        item
    }

    /// Removes the last `count` items; all of them must be in the last chunk.
    pub(crate) fn cut_tail(&mut self, count: usize) {
        let Some(last) = self.0.back_mut() else { return };
        debug_assert!(count <= last.len(), "{count} of {}", last.len());
        last.truncate(last.len() - count);
        if last.is_empty() {
            self.0.pop_back();
        }
    }

    /// Removes all items, but keeps the memory of the first chunk.
    pub(crate) fn clear(&mut self) {
        self.0.truncate(1);
        self.0.iter_mut().for_each(Vec::clear);
    }

    /// Chunks freed in one step.
    const FREED: usize = match ITEMS_FREED_AT_ONCE / LEN {
        few if std::mem::needs_drop::<T>() && few < FREED_AT_ONCE => few + (few == 0) as usize,
        _ => FREED_AT_ONCE,
    };

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let last = self.0.back().map_or(0, Vec::capacity);
        (self.0.len().saturating_sub(1) * LEN + last) * size_of::<T>()
    }
}

impl<T: 'static, const LEN: usize> Drop for Chunks<T, LEN> {
    fn drop(&mut self) {
        lazyfree::defer_long(std::mem::take(&mut self.0), Self::FREED, LEN * size_of::<T>());
    }
}
