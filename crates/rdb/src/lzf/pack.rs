//! Compression: a sequence of operations, whose copies are found by a hash of three bytes.
//!
//! The `lzf` crate allocates and clears a table for every string, which takes longer than
//! compressing a short string. A [`Packer`] keeps its table. Positions are counted across strings,
//! so entries of older strings are recognized by their numbers.

use super::{RUN_BYTES_MAX, WINDOW_BYTES};

/// Places in the table, by hash: 32 KiB, which stay in the processor's first cache.
const PLACES: usize = 1 << 13;
/// Literal bytes that one operation copies.
const LITERALS_MAX: usize = 32;
/// The length of the shortest copy.
const COPY_MIN: usize = 3;

/// Compresses one string after another.
#[derive(Clone, Debug)]
pub struct Packer {
    /// The last position of three bytes, by their hash.
    places: Box<[u32; PLACES]>,
    /// The position of the next string's first byte.
    next: u32,
    /// The last result.
    packed: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Self {
        Self { places: Box::new([0; PLACES]), next: 1, packed: Vec::new() }
    }
}

impl Packer {
    /// Compresses `plain`; `None` if the result would exceed `most` bytes.
    ///
    /// Cost: O(bytes).
    pub fn pack(&mut self, plain: &[u8], most: usize) -> Option<&[u8]> {
        let begin = self.begin(plain.len());
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        let (mut at, mut literal) = (0, 0);
        while at + COPY_MIN <= plain.len() && packed.len() <= most {
            let Some(from) = self.seen_before(plain, at, begin) else {
                at += 1;
                continue;
            };
            let len = run(plain, from, at);
            write_literals(&plain[literal..at], &mut packed);
            write_copy(at - from, len, &mut packed);
            at += len;
            literal = at;
        }
        write_literals(&plain[literal..], &mut packed);
        self.packed = packed;
        (self.packed.len() <= most).then_some(&self.packed[..])
    }

    /// The position of the first byte of a string of `len` bytes.
    fn begin(&mut self, len: usize) -> u32 {
        let len = u32::try_from(len).expect("strings that are packed are short");
        let begin = if self.next > u32::MAX - len {
            self.places.fill(0);
            1
        } else {
            self.next
        };
        self.next = begin + len;
        begin
    }

    /// The last position within reach of the three bytes at `at`; records their new position.
    #[inline]
    fn seen_before(&mut self, plain: &[u8], at: usize, begin: u32) -> Option<usize> {
        let three = &plain[at..at + COPY_MIN];
        let place = &mut self.places[hash(three)];
        let before = std::mem::replace(place, begin + at as u32);
        let from = before.checked_sub(begin)? as usize;
        (at - from <= WINDOW_BYTES && plain[from..from + COPY_MIN] == *three).then_some(from)
    }
}

#[inline]
fn hash(three: &[u8]) -> usize {
    let word = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
    (word.wrapping_mul(0x9e37_79b1) >> (32 - PLACES.ilog2())) as usize
}

/// The number of bytes at `at` that equal those at `from`: at least [`COPY_MIN`].
fn run(plain: &[u8], from: usize, at: usize) -> usize {
    let most = RUN_BYTES_MAX.min(plain.len() - at);
    let equal = plain[from..].iter().zip(&plain[at..at + most]);
    equal.take_while(|(one, other)| one == other).count()
}

fn write_literals(literals: &[u8], out: &mut Vec<u8>) {
    for some in literals.chunks(LITERALS_MAX) {
        out.push((some.len() - 1) as u8);
        out.extend_from_slice(some);
    }
}

/// Appends "copy `len` bytes from `distance` back".
fn write_copy(distance: usize, len: usize, out: &mut Vec<u8>) {
    debug_assert!((1..=WINDOW_BYTES).contains(&distance), "distance={distance}");
    debug_assert!((COPY_MIN..=RUN_BYTES_MAX).contains(&len), "len={len}");
    let [high, low] = u16::try_from(distance - 1).expect("within the window").to_be_bytes();
    match len - 2 {
        short @ 1..=6 => out.extend_from_slice(&[(short as u8) << 5 | high, low]),
        long => out.extend_from_slice(&[7 << 5 | high, (long - 7) as u8, low]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::text;
    use super::super::unpack_all;
    use super::*;
    use darter_base::Prng;

    #[test] // One packer for all strings.
    fn compressed_bytes_are_restored_by_both_decoders() {
        let (mut packer, mut out) = (Packer::default(), Vec::new());
        let mut packed_count = 0;
        for seed in 0..300 {
            let mut prng = Prng::from_seed(seed);
            let len = prng.below(20_000) as usize;
            let plain = text(&mut prng, len);
            let most = plain.len().saturating_sub(4);
            let Some(packed) = packer.pack(&plain, most) else { continue };
            packed_count += 1;
            unpack_all(packed, len, &mut out).unwrap();
            assert!(out == plain, "seed {seed}");
            assert!(lzf::decompress(packed, len).unwrap() == plain, "seed {seed}");
        }
        assert!(packed_count > 200, "{packed_count}");
    }

    #[test]
    fn longest_runs_and_farthest_copies_are_restored() {
        let mut out = Vec::new();
        let far = |gap: usize| {
            let noise = Prng::from_seed(gap as u64).bytes(gap..=gap);
            [&b"abcdefgh"[..], &noise, b"abcdefgh"].concat()
        };
        let mut plains: Vec<Vec<u8>> = (0..600).map(|len| vec![b'x'; len]).collect();
        plains.extend((WINDOW_BYTES - 10..WINDOW_BYTES + 2).map(far));
        for plain in plains {
            let mut packer = Packer::default();
            let packed = packer.pack(&plain, usize::MAX).unwrap();
            unpack_all(packed, plain.len(), &mut out).unwrap();
            assert!(out == plain, "{}", plain.len());
        }
    }

    #[test]
    fn position_numbers_restart_before_they_overflow() {
        let mut packer = Packer { next: u32::MAX - 100, ..Packer::default() };
        let (plain, mut out) = (b"abcabcabcabcabcabcabc".repeat(4), Vec::new());
        for _ in 0..3 {
            let packed = packer.pack(&plain, plain.len()).unwrap();
            unpack_all(packed, plain.len(), &mut out).unwrap();
            assert_eq!(out, plain);
        }
        assert!(packer.next < 1_000);
    }
}
