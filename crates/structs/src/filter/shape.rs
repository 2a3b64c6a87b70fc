//! How large one Bloom filter is, and how many bits an item sets.
//!
//! An item's bits are all in one block. A block gets more items than its share, or fewer, and errs more
//! or less often, on average more. So it is large enough for that to be made up for by a hundredth more
//! bits, at most: a page for usual rates, more for one in a billion.

use crate::pages::PAGE_BYTES;

const PAGE_BITS: f64 = (PAGE_BYTES * 8) as f64;
/// The largest filter, and the largest sum of a chain. A snapshot of it increments 4 096 reference
/// counts.
pub const BYTES_MAX: u64 = 16 << 30;
/// The lowest error rate that may be asked for.
pub const ERROR_MIN: f64 = 1e-9;
/// The lowest error rate of a layer, which has a share of the whole rate. Later layers are no
/// stricter.
pub(super) const SHARE_MIN: f64 = 1e-12;
/// The most bits that an item may set, and the most pages of a block that they need.
const HASHES_MAX: u32 = 40;
const BLOCK_PAGES_MAX: u64 = 3;

/// The shape of a Bloom filter: see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of bits that an item sets.
    pub hashes: u32,
    /// The number of blocks.
    pub blocks: u64,
    /// The bytes of a block: whole pages, unless there is only one block of less than a page.
    pub block_bytes: u64,
}

impl Shape {
    /// The shape of a filter with this error rate at `items` items; `None` if it is too large.
    ///
    /// Source: Bloom, "Space/time trade-offs in hash coding with allowable errors" (1970): of `m` bits,
    /// `1 - exp(-k * n / m)` are set by `n` items, and all `k` of an item with that to the power of `k`.
    #[must_use]
    pub fn of(capacity: u64, error: f64) -> Option<Self> {
        debug_assert!(error > 0.0 && error < 1.0, "error={error}");
        let hashes = (-error.log2()).ceil().max(1.0);
        let width = -hashes / (1.0 - error.powf(hashes.recip())).ln();
        // How much an item's share must grow for blocks of a page, in parts of it: the items in a block
        // are Poisson's, and the error grows about as the 0.7 k-th power of their number.
        let excess = 0.35 * hashes * width / PAGE_BITS;
        let pages = (excess * 100.0).ceil().max(1.0);
        let bits = capacity as f64 * width * (1.0 + excess / pages);
        if !bits.is_finite() || bits / 8.0 > BYTES_MAX as f64 {
            return None;
        }
        let bytes = (bits / 8.0).ceil().max(1.0) as u64;
        let block = pages as u64 * PAGE_BYTES as u64;
        let (blocks, block_bytes) = match bytes {
            short if short <= PAGE_BYTES as u64 => (1, short.next_multiple_of(8)),
            few if few <= block => (1, few.next_multiple_of(PAGE_BYTES as u64)),
            _ => (bytes.div_ceil(block), block),
        };
        Some(Self { hashes: hashes as u32, blocks, block_bytes }).filter(Self::is_sound)
    }

    /// Bytes of all blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks * self.block_bytes
    }

    /// False for a shape that no filter can have: a file may be wrong.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let bytes = self.blocks.checked_mul(self.block_bytes);
        let is_whole = self.block_bytes.is_multiple_of(PAGE_BYTES as u64);
        (1..=HASHES_MAX).contains(&self.hashes)
            && bytes.is_some_and(|bytes| bytes > 0 && bytes <= BYTES_MAX)
            && self.block_bytes <= BLOCK_PAGES_MAX * PAGE_BYTES as u64
            && (is_whole || self.blocks == 1 && self.block_bytes < PAGE_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // At a cost of at most a hundredth.
    fn usual_error_rates_get_blocks_of_one_page() {
        let of = |capacity, error| Shape::of(capacity, error).expect("it is small");
        let bits = |capacity, error| (of(capacity, error).bytes() * 8) as f64 / capacity as f64;
        assert_eq!(of(100, 0.01), Shape { hashes: 7, blocks: 1, block_bytes: 120 });
        for (error, hashes, bits_max, pages) in
            [(0.01, 7, 9.7, 1), (0.001, 10, 14.6, 1), (1e-6, 20, 29.1, 1), (1e-9, 30, 43.6, 2)]
        {
            let shape = of(10_000_000, error);
            assert_eq!(shape.hashes, hashes, "{error}");
            assert_eq!(shape.block_bytes, pages * PAGE_BYTES as u64, "{error}");
            assert!(bits(10_000_000, error) < bits_max, "{error}: {}", bits(10_000_000, error));
        }
        assert_eq!(of(1, 0.99).block_bytes, 8);
        let strictest = of(10_000_000, SHARE_MIN);
        assert_eq!((strictest.hashes, strictest.block_bytes), (HASHES_MAX, 3 * PAGE_BYTES as u64));
        assert_eq!(Shape::of(1_000_000, 1e-300), None);
        assert_eq!(Shape::of(u64::MAX, 0.01), None);
    }
}
