//! LZF, which RDB files use for strings: decompression here, compression in [`Packer`].
//!
//! The `lzf` crate unpacks a whole string into a fresh vector. Here a string of 512 MiB must pass
//! in chunks, and each of ten million small strings of a hash must not allocate. So this decoder
//! appends to the caller's vector, stops when the caller has enough, and continues later. The tests
//! compress with the crate and compare.
//!
//! ```text
//! 000nnnnn  n+1 bytes                     copy the n+1 bytes that follow
//! nnnooooo  oooooooo                      copy n+2 bytes from o+1 back     (n = 1..=6)
//! 111ooooo  nnnnnnnn  oooooooo            copy n+9 bytes from o+1 back
//! ```
//! Not here: the choice of strings to compress. See `encode`.

mod pack;

pub use pack::Packer;

use std::ops::Range;

/// The largest distance of a copy; this many bytes must stay in the vector between calls.
pub const WINDOW_BYTES: usize = 1 << 13;

/// The most bytes that one operation of 3 bytes can produce; bounds every compression ratio.
pub const RUN_BYTES_MAX: usize = 264;

/// Bytes written by a short operation, even if it produces fewer.
const WIDE: usize = 16;

/// The memory that [`unpack`] needs besides its result while it runs.
pub const SPARE_BYTES: usize = RUN_BYTES_MAX + WIDE;

/// The reason why packed bytes cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrupt {
    /// A copy reaches before the first byte.
    ReachesBack,
    /// The last operation is incomplete.
    Cut,
    /// The result is longer or shorter than announced.
    Length,
}

impl Corrupt {
    /// The cause in words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::ReachesBack => "a copy reaches before the first byte",
            Self::Cut => "the last operation is cut off",
            Self::Length => "the announced length is wrong",
        }
    }
}

/// True if this many packed bytes can never become `len` bytes.
#[must_use]
pub fn absurd(packed: u64, len: u64) -> bool {
    packed == 0 || len == 0 || len.div_ceil(RUN_BYTES_MAX as u64 / 3) > packed
}

/// Unpacks whole operations from the head of `packed` onto `out`, until `out` holds `want` bytes or
/// the next operation is incomplete. Returns the bytes used.
///
/// `out` grows past `want` by less than [`RUN_BYTES_MAX`], and by slightly more while it runs
/// ([`SPARE_BYTES`]). Copies may refer to bytes already in `out`.
///
/// # Errors
/// [`Corrupt::ReachesBack`], with the place of the operation.
pub fn unpack(packed: &[u8], out: &mut Vec<u8>, want: usize) -> Result<usize, (usize, Corrupt)> {
    let mut used = 0;
    while out.len() < want {
        // In parts, because the room is written twice, first with zeros; and no more room than can
        // be filled.
        let most = (packed.len() - used).saturating_mul(RUN_BYTES_MAX / 3).min(WINDOW_BYTES);
        let (from, to) = (out.len(), want.min(out.len() + most));
        out.resize(to + SPARE_BYTES, 0);
        let (more, end) = fill(&packed[used..], out, from..to).map_err(|(behind, fault)| {
            out.truncate(from);
            (used + behind, fault)
        })?;
        out.truncate(end);
        used += more;
        if end < to || used == packed.len() {
            break;
        }
    }
    Ok(used)
}

/// Unpacks whole operations onto `range` of `out`, which has [`SPARE_BYTES`] behind it. Returns the
/// bytes used, and the end of the output.
///
/// The next operation is unpredictable, and a misprediction takes longer than a copy. So short
/// operations (nearly all) are handled without a branch: 16 bytes are read from both possible
/// sources, and the right ones are written; excess bytes are overwritten later.
fn fill(
    packed: &[u8],
    out: &mut [u8],
    range: Range<usize>,
) -> Result<(usize, usize), (usize, Corrupt)> {
    let (mut at, mut to) = (0, range.start);
    while to < range.end {
        if let Some((used, len)) = short(&packed[at..], out, to) {
            (at, to) = (at + used, to + len);
            continue;
        }
        match operation(&packed[at..], out, to) {
            Ok(Some((used, len))) => (at, to) = (at + used, to + len),
            Ok(None) => break,
            Err(fault) => return Err((at, fault)),
        }
    }
    Ok((at, to))
}

/// Handles an operation that produces at most [`WIDE`] bytes, does not overlap its source, and is
/// not at either end. Returns its length and the number of bytes it produces; `None` for any other
/// operation.
#[inline]
fn short(packed: &[u8], out: &mut [u8], to: usize) -> Option<(usize, usize)> {
    let [control, next @ ..] = packed.first_chunk::<{ 1 + WIDE }>()?;
    let control = *control;
    let is_literal = control < 0x20;
    let distance = if is_literal { WIDE } else { distance(control, next[0]) };
    let used = if is_literal { 2 + usize::from(control) } else { 2 };
    let len = if is_literal { 1 + usize::from(control) } else { 2 + usize::from(control >> 5) };
    if control >= 0xe0 || len > WIDE || distance < WIDE {
        return None;
    }
    let earlier: [u8; WIDE] = *out.get(to.checked_sub(distance)?..)?.first_chunk()?;
    let all = u128::from(is_literal).wrapping_neg();
    let word = u128::from_le_bytes(*next) & all | u128::from_le_bytes(earlier) & !all;
    *out.get_mut(to..)?.first_chunk_mut()? = word.to_le_bytes();
    Some((used, len))
}

/// Handles any operation. Returns its length and the number of bytes it produces; `None` if it is
/// incomplete.
fn operation(packed: &[u8], out: &mut [u8], to: usize) -> Result<Option<(usize, usize)>, Corrupt> {
    match *packed {
        [control @ 0..=0x1f, ref literal @ ..] => {
            let len = usize::from(control) + 1;
            let Some(literal) = literal.get(..len) else { return Ok(None) };
            out[to..to + len].copy_from_slice(literal);
            Ok(Some((1 + len, len)))
        }
        [control @ 0xe0..=0xff, more, low, ..] => {
            let len = usize::from(more) + 9;
            copy_back(out, to, distance(control, low), len)?;
            Ok(Some((3, len)))
        }
        [control @ 0x20..=0xdf, low, ..] => {
            let len = usize::from(control >> 5) + 2;
            copy_back(out, to, distance(control, low), len)?;
            Ok(Some((2, len)))
        }
        _ => Ok(None),
    }
}

/// Unpacks all of `packed` into `out`, which is cleared first; exactly `len` bytes must result.
///
/// Memory grows with the actual result, never with `len`.
///
/// # Errors
/// Any [`Corrupt`].
pub fn unpack_all(packed: &[u8], len: usize, out: &mut Vec<u8>) -> Result<(), Corrupt> {
    out.clear();
    let used = unpack(packed, out, len).map_err(|(_, fault)| fault)?;
    check(packed.len() - used, out.len(), len)
}

/// Checks the end of unpacking: `left` packed bytes are unused, and `unpacked` bytes were produced,
/// where `len` were announced.
///
/// # Errors
/// [`Corrupt::Cut`] and [`Corrupt::Length`].
pub fn check(left: usize, unpacked: usize, len: usize) -> Result<(), Corrupt> {
    match (left == 0, unpacked == len) {
        (true, true) => Ok(()),
        (false, false) if unpacked < len => Err(Corrupt::Cut),
        _ => Err(Corrupt::Length),
    }
}

fn distance(control: u8, low: u8) -> usize {
    (usize::from(control & 0x1f) << 8) + usize::from(low) + 1
}

/// Writes `len` bytes from `distance` back; source and target may overlap.
fn copy_back(out: &mut [u8], mut to: usize, distance: usize, len: usize) -> Result<(), Corrupt> {
    let from = to.checked_sub(distance).ok_or(Corrupt::ReachesBack)?;
    let end = to + len;
    while to < end {
        let step = (end - to).min(to - from);
        out.copy_within(from..from + step, to);
        to += step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    /// Bytes with near and far repetitions.
    pub(super) fn text(prng: &mut Prng, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while out.len() < len {
            if out.len() > 4 && prng.chance(60) {
                let from = prng.below(out.len() as u64) as usize;
                let run = (prng.below(300) as usize).min(out.len() - from);
                out.extend_from_within(from..from + run);
            } else {
                out.extend(prng.bytes(1..=20));
            }
        }
        out.truncate(len);
        out
    }

    #[test]
    fn bytes_packed_by_the_crate_unpack_whole_and_in_steps() {
        let mut packed_count = 0;
        for seed in 0..200 {
            let mut prng = Prng::from_seed(seed);
            let len = 30 + prng.below(40_000) as usize;
            let plain = text(&mut prng, len);
            let Ok(packed) = lzf::compress(&plain) else { continue };
            packed_count += 1;
            let mut out = Vec::new();
            unpack_all(&packed, len, &mut out).unwrap();
            assert!(out == plain, "seed {seed}");
            assert!(!absurd(packed.len() as u64, len as u64), "seed {seed}");

            let (mut out, mut at) = (Vec::new(), 0);
            while out.len() < len {
                let end = (at + 40).min(packed.len());
                let want = (out.len() + 1 + prng.below(500) as usize).min(len);
                at += unpack(&packed[at..end], &mut out, want).unwrap();
            }
            assert!(out == plain, "seed {seed}, in steps");
        }
        assert!(packed_count > 100, "{packed_count}");
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let mut out = Vec::new();
        assert_eq!(unpack_all(&[0x20, 0x00], 3, &mut out), Err(Corrupt::ReachesBack));
        assert_eq!(unpack_all(&[0x02, b'a', b'b'], 3, &mut out), Err(Corrupt::Cut));
        assert_eq!(unpack_all(&[0x01, b'a', b'b'], 1, &mut out), Err(Corrupt::Length));
        assert_eq!(unpack_all(&[0x01, b'a', b'b'], 3, &mut out), Err(Corrupt::Length));
        // More bytes are produced than announced, and packed bytes are left.
        assert_eq!(unpack_all(&[0x01, b'a', b'b', 0x00, b'c'], 1, &mut out), Err(Corrupt::Length));
        assert_eq!(unpack_all(&[0x00, b'a', 0x00, b'b'], 1, &mut out), Err(Corrupt::Length));
        assert_eq!(unpack_all(&[0x00, b'a', 0xe0, 0xff], 265, &mut out), Err(Corrupt::Cut));
        unpack_all(&[0x00, b'a', 0xe0, 0xff, 0x00], 265, &mut out).unwrap();
        assert_eq!(out, vec![b'a'; 265]);
        assert!(absurd(10, 891) && !absurd(10, 880) && absurd(0, 1) && absurd(1, 0));
    }
}
