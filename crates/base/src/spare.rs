//! Releases the capacity that a vector or a queue kept from a burst.

use crate::limits::SPARE_BYTES;
use std::collections::VecDeque;

/// Frees the capacity of an empty vector if it exceeds the usual need.
pub fn release<T>(vec: &mut Vec<T>) {
    if vec.is_empty() && is_large::<T>(vec.capacity()) {
        *vec = Vec::new();
    }
}

/// [`release`] for a queue.
pub fn release_queue<T>(queue: &mut VecDeque<T>) {
    if queue.is_empty() && is_large::<T>(queue.capacity()) {
        *queue = VecDeque::new();
    }
}

fn is_large<T>(capacity: usize) -> bool {
    capacity.saturating_mul(size_of::<T>()) > SPARE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Small ones keep their capacity.
    fn large_empty_collections_are_released() {
        for (len, is_kept) in [(SPARE_BYTES, true), (SPARE_BYTES + 1, false)] {
            let mut vec = vec![0_u8; len];
            let mut queue = VecDeque::from(vec![0_u8; len]);
            release(&mut vec);
            release_queue(&mut queue);
            assert_eq!((vec.len(), queue.len()), (len, len));
            vec.clear();
            queue.clear();
            release(&mut vec);
            release_queue(&mut queue);
            assert_eq!((vec.capacity() > 0, queue.capacity() > 0), (is_kept, is_kept), "{len}");
        }
    }
}
