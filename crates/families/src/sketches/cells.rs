//! Arrays of cells of a fixed size, in rows: the counters of sketches.
//!
//! They are a blob: cut in a few microseconds, freed in portions, and where nothing was written yet
//! all chunks are one chunk of zeros. In a file they are pieces with their places; those of zeros
//! are left out.

use darter_base::limits::CHUNK_BYTES;
use darter_structs::blob::Blob;

/// The most bytes of an array: laying them out, and counting the holders of a cut, takes 20 us.
pub(crate) const BYTES_MAX: u64 = 4 << 30;
/// Bytes of a piece in a file: a divisor of a chunk, and with its place no long item.
const PIECE_BYTES: usize = CHUNK_BYTES / 20;

const _: () = assert!(PIECE_BYTES * 20 == CHUNK_BYTES && CHUNK_BYTES.is_multiple_of(8));

/// As many cells of `cell_bytes`, all zeros; `None` if they would be none, or too many.
pub(crate) fn zeros(width: u64, depth: u64, cell_bytes: u64) -> Option<Blob> {
    let bytes = width.checked_mul(depth)?.checked_mul(cell_bytes)?;
    let last = usize::try_from(bytes.checked_sub(1)?).ok()?;
    (bytes <= BYTES_MAX).then(|| {
        let mut blob = Blob::default();
        blob.write_at(last, &[0]);
        blob
    })
}

/// The cell at `index`, of N bytes.
pub(crate) fn get<const N: usize>(cells: &Blob, index: u64) -> [u8; N] {
    let offset = index as usize * N;
    let (chunk, _) = cells.piece(offset / CHUNK_BYTES);
    let cell = chunk[offset % CHUNK_BYTES..].first_chunk();
    *cell.expect("a cell lies within a chunk")
}

/// Writes the cell at `index`, of N bytes. A chunk that others hold as well is copied: 6 us.
pub(crate) fn set<const N: usize>(cells: &mut Blob, index: u64, cell: [u8; N]) {
    cells.write_at(index as usize * N, &cell);
}

/// True when writing to the cell at `index`, of N bytes, copies a chunk.
pub(crate) fn is_shared<const N: usize>(cells: &Blob, index: u64) -> bool {
    cells.is_shared(index as usize * N / CHUNK_BYTES)
}

/// The cell of an item in a row: a hash of its own for each row.
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

/// The pieces of an array that are not all zeros, for a file.
#[derive(Default)]
pub(crate) struct Pieces {
    next: usize,
}

impl Pieces {
    /// Looks for the next piece; subtracts those of zeros from `looks`. False when these are used up
    /// before it was found, or the end.
    pub(crate) fn find(&mut self, cells: &Blob, looks: &mut usize) -> bool {
        while *looks > 0 {
            match bytes_of(cells, self.next) {
                Some(bytes) if is_zeros(bytes) => (self.next, *looks) = (self.next + 1, *looks - 1),
                _ => return true,
            }
        }
        false
    }

    /// Puts the next piece behind its place into `item`. False when there is none.
    pub(crate) fn next(&mut self, cells: &Blob, item: &mut Vec<u8>) -> bool {
        self.find(cells, &mut { usize::MAX });
        let Some(bytes) = bytes_of(cells, self.next) else { return false };
        item.extend_from_slice(&(self.next as u64).to_le_bytes());
        item.extend_from_slice(bytes);
        self.next += 1;
        true
    }
}

/// Writes a piece of a file. False if it is none of this array's, not behind those before, or all zeros:
/// these are left out, and would take a chunk of memory.
pub(crate) fn take_piece(cells: &mut Blob, next: &mut usize, item: &[u8]) -> bool {
    let Some((place, bytes)) = item.split_first_chunk() else { return false };
    let Ok(at) = usize::try_from(u64::from_le_bytes(*place)) else { return false };
    let len = bytes_of(cells, at).map(<[u8]>::len);
    if at < *next || len != Some(bytes.len()) || is_zeros(bytes) {
        return false;
    }
    cells.write_at(at * PIECE_BYTES, bytes);
    *next = at + 1;
    true
}

/// The bytes of a piece, if there is one.
fn bytes_of(cells: &Blob, at: usize) -> Option<&[u8]> {
    let from = at.checked_mul(PIECE_BYTES).filter(|from| *from < cells.len())?;
    cells.slices(from..from + PIECE_BYTES).next()
}

fn is_zeros(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // What is written can be read; pieces of zeros are left out, and all others come back.
    fn cells_are_as_they_were_written() {
        let mut cells = zeros(50_000, 2, 4).unwrap();
        let written = [0, 1, 16_379, 16_380, 16_381, 99_999];
        for index in written {
            set(&mut cells, index, (index as u32 + 7).to_le_bytes());
        }
        for index in 0..100_000 {
            let cell = u32::from_le_bytes(get(&cells, index));
            assert_eq!(cell, if written.contains(&index) { index as u32 + 7 } else { 0 });
        }
        let (mut pieces, mut item, mut count) = (Pieces::default(), Vec::new(), 0);
        let (mut copy, mut next) = (zeros(50_000, 2, 4).unwrap(), 0);
        while pieces.next(&cells, &mut item) {
            assert!(take_piece(&mut copy, &mut next, &item), "{count}");
            assert!(!take_piece(&mut copy, &mut next, &item), "it came before");
            item.clear();
            count += 1;
        }
        assert_eq!((count, copy.to_vec()), (4, cells.to_vec()));
        let mut looks = 10;
        assert!(!Pieces { next: 1 }.find(&zeros(50_000, 2, 4).unwrap(), &mut looks) && looks == 0);
    }

    #[test]
    fn there_are_limits() {
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

    #[test] // In each row an item has a cell of that row, and all cells are about as likely.
    fn places_are_spread() {
        let mut counts = vec![0; 3 * 64];
        for item in 0_u64..64_000 {
            let hash = darter_base::hash::digest(&item.to_le_bytes());
            (0..3).for_each(|row| counts[place(hash, row, 64) as usize] += 1);
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }
}
