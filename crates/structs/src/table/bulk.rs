//! Builds a table from very many entries in any order, in steps.
//!
//! Adding a single entry to a table of millions takes four or five cache misses, and with pages of
//! 4 KiB as many TLB misses, which no prefetch hides. Here entries are first encoded and collected
//! in buckets, by the first bits of their hashes. Then they are added bucket by bucket, so that all
//! memory touched stays in the cache. By then their number is known: the segments of a bucket are
//! created in advance, and few are ever split.
//!
//! ```text
//! push   bucket 0: block, block     | hash: 8 | entry | hash: 8 | entry | ..
//!        bucket 1: block, ..
//! step   the last bucket -> its segments, 64 entries at a time; each block is freed behind them
//! ```
//! Blocks are so large that the allocator returns each to the system when it is freed: the
//! collected entries make room for the table, and both together never take much more than the
//! larger one.
//!
//! Invariants:
//! - B1: collected entries own nothing. Entries that own something (a long key, a value out of
//!   line) are added to the table directly.
//!
//! Not here: the contents of a segment, and which are foreseen. See `rebuild`.

#[cfg(test)]
mod tests;

use super::entry::{self, Buf, KEY_INLINE_MAX, Needle, Raw};
use super::rebuild::Foreseen;
use super::value::{New, OutOfLine};
use super::{Big, Table};
use darter_base::UnixMillis;
use darter_base::lazyfree;
use std::ptr::NonNull;

/// Fewer entries fit the processor's caches anyway.
const LEN_MIN: usize = 1 << 17;
/// Entries that a bucket has, at most: with their segments they take 2 to 3 MiB.
const BUCKET: usize = 1 << 16;
/// The most buckets: more write streams at once would gain nothing.
const BUCKETS_MAX: usize = 1 << 11;
/// Bytes of a block. The allocator would place smaller blocks next to those of other buckets.
const BLOCK: usize = 1 << 20;
/// Bytes of a bucket's first block; small because there may be far fewer entries than announced.
const BLOCK_FIRST: usize = 1 << 16;
/// Entries that are added in one step, and their bytes; each may be the first of its segment.
const STEP: usize = 64;
const STEP_BYTES: usize = 16 * 1024;
/// Bytes of a hash.
const HASH: usize = size_of::<u64>();

const _: () = assert!(BLOCK_FIRST > entry::ENTRY_MAX + HASH);

/// The error for a key that was added twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twice;

/// Entries whose hashes begin with the same bits.
#[derive(Default)]
struct Bucket {
    blocks: Vec<Vec<u8>>,
    len: usize,
    /// Bytes of the entries, without their hashes.
    bytes: usize,
}

impl Bucket {
    fn push(&mut self, hash: u64, entry: &[u8]) {
        let need = HASH + entry.len();
        if self.blocks.last().is_none_or(|block| block.capacity() - block.len() < need) {
            let bytes = if self.blocks.is_empty() { BLOCK_FIRST } else { BLOCK };
            self.blocks.push(Vec::with_capacity(bytes));
        }
        let block = self.blocks.last_mut().expect("just made");
        block.extend_from_slice(&hash.to_le_bytes());
        block.extend_from_slice(entry);
        self.len += 1;
        self.bytes += entry.len();
    }
}

/// A bucket whose entries are being added.
struct Open {
    bucket: Bucket,
    /// The read position in its last block.
    at: usize,
    foreseen: Option<Foreseen>,
}

/// Builds a table; see the module's documentation.
pub struct Builder<X: OutOfLine> {
    table: Table<X>,
    /// The buckets that have not been opened yet.
    buckets: Vec<Bucket>,
    open: Option<Open>,
    /// The number of leading hash bits that select a bucket.
    bits: u8,
}

impl<X: OutOfLine> Builder<X> {
    /// A builder for about `len` entries; `None` if they are too few. Memory is allocated as
    /// entries arrive.
    #[must_use]
    pub fn new(len: usize) -> Option<Self> {
        if len < LEN_MIN {
            return None;
        }
        let buckets = (len / BUCKET).clamp(2, BUCKETS_MAX).next_power_of_two();
        Some(Self::with_bits(buckets.trailing_zeros() as u8))
    }

    /// A builder whose buckets are selected by this many bits of a hash.
    fn with_bits(bits: u8) -> Self {
        assert!((1..=BUCKETS_MAX.ilog2()).contains(&u32::from(bits)), "bits={bits}");
        let buckets = (0..1 << bits).map(|_| Bucket::default()).collect();
        Self { table: Table::new(), buckets, open: None, bits }
    }

    /// Adds an entry. Returns false if its key is a detected duplicate; the builder is then
    /// useless. Most duplicates are detected only by [`Builder::step`].
    ///
    /// - Cost: O(1); as [`Table::insert`] for a value that owns something.
    /// - Panics when `value` is inline and longer than `INLINE_MAX`.
    pub fn push(
        &mut self,
        hash: u64,
        key: &[u8],
        value: New<'_, X>,
        deadline: Option<UnixMillis>,
    ) -> bool {
        debug_assert_eq!(hash, darter_base::hash::of(key), "the hash of another key");
        debug_assert!(self.open.is_none(), "all entries were added");
        if key.len() > KEY_INLINE_MAX || matches!(value, New::Out(_)) {
            return self.table.insert(hash, key, value, deadline, 0).is_none();
        }
        let mut buf = Buf::new();
        entry::encode(&mut buf, &Needle::of(hash, key), value, deadline, 0, 0);
        let bucket = (hash >> (u64::BITS - u32::from(self.bits))) as usize;
        self.buckets[bucket].push(hash, buf.bytes());
        true
    }

    /// Does a portion of the work, after all entries have been pushed. Returns true while some is
    /// left. Cost: a portion.
    ///
    /// # Errors
    /// A key was added twice; the builder is then useless.
    pub fn step(&mut self) -> Result<bool, Twice> {
        let Some(open) = &mut self.open else {
            let Some(bucket) = self.buckets.pop() else {
                self.table.shrink_now();
                return Ok(false);
            };
            let foreseen = Foreseen::of(bucket.len, bucket.bytes, self.bits);
            self.open = Some(Open { bucket, at: 0, foreseen });
            return Ok(true);
        };
        let Some(block) = open.bucket.blocks.last() else {
            self.open = None;
            return Ok(true);
        };
        open.at += add_some(self.table.become_big(), &block[open.at..], open.foreseen)?;
        if open.at == block.len() {
            open.bucket.blocks.pop();
            open.at = 0;
        }
        Ok(true)
    }

    /// The table, once no work is left.
    #[must_use]
    pub fn finish(mut self) -> Table<X> {
        debug_assert!(self.buckets.is_empty() && self.open.is_none(), "work is left");
        std::mem::take(&mut self.table)
    }
}

/// Adds the first of the entries in `bytes`. Returns the number of bytes they took.
fn add_some<X: OutOfLine>(
    big: &mut Big<X>,
    bytes: &[u8],
    foreseen: Option<Foreseen>,
) -> Result<usize, Twice> {
    let mut rest = bytes;
    for _ in 0..STEP {
        let Some((hash, entry)) = rest.split_first_chunk() else { break };
        let hash = u64::from_le_bytes(*hash);
        // SAFETY: an entry was written behind its hash, whole, and stays while it is copied. It owns
        // nothing (B1), so the copy in the table is as good as the one here.
        let raw = unsafe { Raw::<X>::new(NonNull::from(entry).cast()) };
        let len = raw.len();
        assert!(len <= entry.len(), "an entry of {len} bytes in {}", entry.len());
        foreseen.inspect(|foreseen| big.prepare(hash, *foreseen));
        if !big.add_new(hash, raw, len) {
            return Err(Twice);
        }
        rest = &entry[len..];
        if bytes.len() - rest.len() >= STEP_BYTES {
            break;
        }
    }
    Ok(bytes.len() - rest.len())
}

impl<X: OutOfLine> Big<X> {
    /// Adds an entry that owns nothing. Returns false, without a change, if its key exists.
    fn add_new(&mut self, hash: u64, raw: Raw<X>, len: usize) -> bool {
        let is_new = !self.directory.segment(hash).has_key_of(hash, raw);
        if is_new {
            self.add(hash, raw, len);
        }
        is_new
    }
}

impl<X: OutOfLine> Drop for Builder<X> {
    fn drop(&mut self) {
        let open = self.open.take().map(|open| open.bucket);
        let buckets = self.buckets.drain(..).chain(open);
        let blocks: Vec<_> = buckets.flat_map(|bucket| bucket.blocks).collect();
        lazyfree::defer_long(blocks, 1, BLOCK);
    }
}
