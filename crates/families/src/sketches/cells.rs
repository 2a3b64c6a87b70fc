//! Arrays of fixed-size cells in rows, stored in pages: the counters of sketches.

use darter_structs::pages::{PAGE_BYTES, Pages};

/// The largest array in bytes; laying out its roots takes a microsecond.
pub(crate) const BYTES_MAX: u64 = 4 << 30;

const _: () = assert!(PAGE_BYTES.is_multiple_of(8), "a cell lies within a page");

/// A zeroed array with cells of `cell_bytes`; `None` if it would be empty or too large.
pub(crate) fn zeros(width: u64, depth: u64, cell_bytes: u64) -> Option<Pages> {
    let bytes = width.checked_mul(depth)?.checked_mul(cell_bytes)?;
    (1..=BYTES_MAX).contains(&bytes).then(|| Pages::zeros(bytes as usize))
}

/// The cell at `index`, of N bytes.
pub(crate) fn get<const N: usize>(cells: &Pages, index: u64) -> [u8; N] {
    let offset = index as usize * N;
    let Some(page) = cells.page(offset / PAGE_BYTES) else { return [0; N] };
    *page[offset % PAGE_BYTES..].first_chunk().expect("a cell lies within a page")
}

/// Writes the N-byte cell at `index`. A page shared with other holders is copied.
pub(crate) fn set<const N: usize>(cells: &mut Pages, index: u64, cell: [u8; N]) {
    let offset = index as usize * N;
    let page = &mut cells.page_mut(offset / PAGE_BYTES)[offset % PAGE_BYTES..];
    page[..N].copy_from_slice(&cell);
}

/// True if writing the N-byte cell at `index` would copy a page.
pub(crate) fn is_shared<const N: usize>(cells: &Pages, index: u64) -> bool {
    cells.is_shared(index as usize * N / PAGE_BYTES)
}

/// The cell of an item in a row; each row has its own hash.
pub(crate) fn place(hash: u64, row: u64, width: u64) -> u64 {
    // The steps of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
    // generators", 2014).
    let mut mixed = hash.wrapping_add((row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    let column = (u128::from(mixed) * u128::from(width)) >> 64;
    row * width + column as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_as_written() {
        let mut cells = zeros(50_000, 2, 4).unwrap();
        let written = [0, 1, 1_019, 1_020, 1_021, 99_999];
        for index in written {
            set(&mut cells, index, (index as u32 + 7).to_le_bytes());
        }
        for index in 0..100_000 {
            let cell = u32::from_le_bytes(get(&cells, index));
            assert_eq!(cell, if written.contains(&index) { index as u32 + 7 } else { 0 });
        }
    }

    #[test]
    fn empty_and_too_large_arrays_are_refused() {
        for (width, depth, fits) in [
            (0, 1, false),
            (1, 0, false),
            (1, 1, true),
            (1 << 29, 2, true),
            (1 << 29, 3, false),
            (u64::MAX, 2, false),
            (u64::MAX, u64::MAX, false),
        ] {
            assert_eq!(zeros(width, depth, 4).is_some(), fits, "{width} {depth}");
        }
    }

    #[test]
    fn items_are_spread_evenly_over_the_cells_of_each_row() {
        let mut counts = vec![0; 3 * 64];
        for item in 0_u64..64_000 {
            let hash = darter_base::hash::digest(&item.to_le_bytes());
            (0..3).for_each(|row| counts[place(hash, row, 64) as usize] += 1);
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }
}
