//! Buffers that were sent: one is reused, and the others are freed in portions.
//!
//! A long reply has many parts of up to 512 KiB, and returning the pages of one part to the system
//! takes about 40 us. Freeing 100 MB in one step would take 9 ms.

use darter_base::lazyfree;
use darter_runtime::net::{Part, SendBuffer};
use std::sync::Arc;

/// At most this many parts are freed in one step.
const FEW: usize = 4;

/// Clears one buffer and returns it for reuse, and frees the others. Cost: O(parts), and freeing a
/// few of them.
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

/// Bytes that are returned when a part is freed: none if its value is still shared.
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

    #[test] // Few parts are freed at once, and many one by one. Shared parts do not count.
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
