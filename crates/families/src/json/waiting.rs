//! Values whose texts have not been sent yet: popped elements, or documents of JSON.MGET.

use crate::chunks::Chunks;
use darter_structs::json::Value;
use std::vec::IntoIter;

/// Values in one chunk.
const CHUNK: usize = 256;

/// Values in order; `None` stands for a missing value.
#[derive(Default)]
pub(super) struct Waiting {
    chunks: Chunks<Option<Value>, CHUNK>,
    /// The first chunk, once reading it has started.
    front: IntoIter<Option<Value>>,
    len: usize,
    /// The place of the last value.
    last: Option<(usize, usize)>,
    /// Bytes of the values that are accounted for nowhere else.
    bytes: usize,
}

impl Waiting {
    /// Adds a value that is accounted for nowhere else.
    pub(super) fn push_own(&mut self, value: Option<Value>) {
        self.bytes += value.as_ref().map_or(0, Value::memory_bytes);
        self.push(value);
    }

    /// Adds a value that belongs to the keyspace.
    pub(super) fn push(&mut self, value: Option<Value>) {
        let is_value = value.is_some();
        self.chunks.tail(1).push(value);
        self.len += 1;
        if is_value {
            let (chunk, len) = self.chunks.end();
            self.last = Some((chunk, len - 1));
        }
    }

    /// The number of values.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Removes the first value.
    pub(super) fn pop_front(&mut self) -> Option<Option<Value>> {
        if self.front.len() == 0 {
            self.front = self.chunks.pop_front()?.into_iter();
        }
        // Subtracts an average, because the size of each value was not recorded.
        self.bytes -= self.bytes / self.len.max(1);
        self.len -= 1;
        self.front.next()
    }

    /// Keeps only the last real value. None may have been removed before.
    pub(super) fn into_last(self) -> Self {
        let mut last = Self::default();
        let value = self.last.and_then(|(chunk, at)| self.chunks.chunks()[chunk][at].clone());
        last.push_own(value);
        last
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks.memory_bytes() + self.front.len() * size_of::<Option<Value>>() + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_structs::json::JsonText;

    #[test]
    fn removed_values_are_subtracted_from_the_memory() {
        let mut waiting = Waiting::default();
        let text = "x".repeat(100);
        let value = Value::text(JsonText::Bytes(text.as_bytes()));
        (0..CHUNK).for_each(|_| waiting.push_own(Some(value.clone())));
        let all = waiting.memory_bytes();
        assert!(all > 100 * CHUNK, "{all}");
        for left in (0..CHUNK).rev() {
            assert!(waiting.pop_front().is_some());
            assert!(waiting.memory_bytes() >= 100 * left, "{} for {left}", waiting.memory_bytes());
        }
        assert_eq!((waiting.bytes, waiting.len()), (0, 0));
    }
}
