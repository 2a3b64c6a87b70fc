//! Received bytes for which the parser has no room yet, in a queue of blocks.
//!
//! A client may write a whole pipeline before it reads the first reply. The server must receive all
//! of it, though it cannot produce more replies than the socket takes. A single buffer of a
//! gigabyte would move whenever it grows; blocks are filled once and freed one by one.

use darter_base::lazyfree;
use darter_base::limits::CHUNK_BYTES;
use std::collections::VecDeque;

/// The queue of received bytes; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Blocks with a capacity of [`CHUNK_BYTES`]; all but the last are full.
    blocks: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Backlog {
    /// Bytes in all blocks.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.blocks.len() * CHUNK_BYTES + self.blocks.capacity() * size_of::<Vec<u8>>()
    }

    /// Appends received bytes. Cost: O(bytes).
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        self.bytes += bytes.len();
        while !bytes.is_empty() {
            let room = self.blocks.back().map_or(0, |last| CHUNK_BYTES - last.len());
            if room == 0 {
                self.blocks.push_back(Vec::with_capacity(CHUNK_BYTES));
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if let Some(last) = self.blocks.back_mut() {
                last.extend_from_slice(now);
            }
            bytes = later;
        }
    }

    /// Removes the oldest block.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        let block = self.blocks.pop_front()?;
        self.bytes -= block.len();
        if self.blocks.is_empty() {
            self.blocks = VecDeque::new();
        }
        Some(block)
    }
}

impl Drop for Backlog {
    /// A client may disconnect with a gigabyte unparsed: its blocks are freed in slices.
    fn drop(&mut self) {
        if !self.blocks.is_empty() {
            lazyfree::defer_each(Vec::from(std::mem::take(&mut self.blocks)), Vec::capacity);
        }
    }
}
