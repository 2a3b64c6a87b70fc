//! Buffers after a send: one is reused, and the others are freed in portions.
//!
//! A long reply has many parts of up to 512 KiB, and returning the pages of one to the system takes
//! about 40 us: freeing 100 MB at once would be a slice of 9 ms.

use darter_base::lazyfree;
use darter_runtime::net::{Part, SendBuffer};
use std::sync::Arc;

/// Up to this many parts are freed at once.
const FEW: usize = 4;

/// Returns a cleared buffer for reuse, and frees the others. Cost: O(parts), plus freeing a few.
pub(crate) fn take_back(buffer: SendBuffer) -> Vec<u8> {
    match buffer {
        SendBuffer::Parts(mut parts) if parts.len() > FEW => {
            let spare = SendBuffer::Parts(parts.pop().into_iter().collect());
            lazyfree::defer_each(parts, bytes_of);
            spare.into_spare()
        }
        buffer => buffer.into_spare(),
    }
}

/// Bytes that freeing a part returns: none while others read the value.
fn bytes_of(part: &Part) -> usize {
    match part {
        Part::Bytes(bytes) => bytes.capacity(),
        Part::Shared(value, _) if Arc::strong_count(value) == 1 => value.len(),
        Part::Shared(..) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::preempt::Countdown;

    #[test] // Few parts are freed at once, many one by one; shared ones do not count.
    fn many_parts_of_a_sent_reply_are_freed_one_by_one() {
        let value: Arc<[u8]> = vec![b'x'; 1_000].into();
        let parts = |count: usize| {
            let shared = (1..count).map(|_| Part::Shared(Arc::clone(&value), 0..9));
            SendBuffer::Parts(shared.chain([Part::Bytes(Vec::with_capacity(500))]).collect())
        };
        assert_eq!(take_back(parts(FEW)).capacity(), 500);
        assert!(lazyfree::is_empty());
        assert_eq!(take_back(parts(100)).capacity(), 500);
        assert_eq!(lazyfree::waiting(), (1, 0));
        for left in (0..99).rev() {
            assert_eq!(lazyfree::run(&Countdown::new(0)), left > 0, "{left}");
            assert_eq!(Arc::strong_count(&value), 1 + left);
        }
        assert!(lazyfree::is_empty());
    }
}
