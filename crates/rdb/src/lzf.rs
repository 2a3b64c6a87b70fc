//! LZF, which RDB files use for strings: decompression here, compression in [`Packer`].
//!
//! The `lzf` crate unpacks a whole string into a fresh vector. Here a string of 512 MiB must pass
//! in chunks, and ten million small ones of a hash must not allocate each, so this decoder appends
//! to the caller's vector, stops when the caller has enough, and continues later. The tests pack
//! with the crate and compare.
//!
//! ```text
//! 000nnnnn  n+1 bytes                     copy the n+1 bytes that follow
//! nnnooooo  oooooooo                      copy n+2 bytes from o+1 back     (n = 1..=6)
//! 111ooooo  nnnnnnnn  oooooooo            copy n+9 bytes from o+1 back
//! ```
//! Not here: which strings are packed. See `encode`.

mod pack;

pub use pack::Packer;

/// How far back a copy may reach: what must stay in the vector between calls.
pub const WINDOW_BYTES: usize = 1 << 13;

/// The most that one operation of 3 bytes can produce: the bound of every compression ratio.
pub const RUN_BYTES_MAX: usize = 264;

/// Why packed bytes cannot be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corrupt {
    /// A copy reaches before the first byte.
    ReachesBack,
    /// The last operation lacks bytes.
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

/// True if `packed` bytes could never become `len` bytes.
#[must_use]
pub fn absurd(packed: u64, len: u64) -> bool {
    packed == 0 || len == 0 || len.div_ceil(RUN_BYTES_MAX as u64 / 3) > packed
}

/// Unpacks whole operations from the head of `packed` onto `out`, until `out` holds `want` bytes or
/// the next operation is incomplete. Returns the bytes used.
///
/// `out` grows past `want` by less than [`RUN_BYTES_MAX`]. Copies reach into what `out` holds.
///
/// # Errors
/// [`Corrupt::ReachesBack`], with the place of the operation.
pub fn unpack(packed: &[u8], out: &mut Vec<u8>, want: usize) -> Result<usize, (usize, Corrupt)> {
    let mut at = 0;
    while out.len() < want {
        let rest = &packed[at..];
        match *rest {
            [control @ 0..=0x1f, ref literal @ ..] => {
                let len = usize::from(control) + 1;
                let Some(literal) = literal.get(..len) else { break };
                out.extend_from_slice(literal);
                at += 1 + len;
            }
            [control @ 0xe0..=0xff, more, low, ..] => {
                copy_back(out, distance(control, low), usize::from(more) + 9)
                    .map_err(|fault| (at, fault))?;
                at += 3;
            }
            [control @ 0x20..=0xdf, low, ..] => {
                copy_back(out, distance(control, low), usize::from(control >> 5) + 2)
                    .map_err(|fault| (at, fault))?;
                at += 2;
            }
            _ => break,
        }
    }
    Ok(at)
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

/// Checks the end of unpacking: how many packed bytes are left, and how many bytes came out, where `len`
/// were announced.
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

/// Appends `len` bytes from `distance` back; the run may overlap itself.
fn copy_back(out: &mut Vec<u8>, distance: usize, len: usize) -> Result<(), Corrupt> {
    let from = out.len().checked_sub(distance).ok_or(Corrupt::ReachesBack)?;
    let mut left = len;
    while left > 0 {
        let step = left.min(out.len() - from);
        out.extend_from_within(from..from + step);
        left -= step;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    /// Bytes with repetitions near and far.
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
    fn what_the_crate_packs_unpacks_whole_and_in_steps() {
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
        // More comes out than announced, and more is left.
        assert_eq!(unpack_all(&[0x01, b'a', b'b', 0x00, b'c'], 1, &mut out), Err(Corrupt::Length));
        assert_eq!(unpack_all(&[0x00, b'a', 0x00, b'b'], 1, &mut out), Err(Corrupt::Length));
        assert_eq!(unpack_all(&[0x00, b'a', 0xe0, 0xff], 265, &mut out), Err(Corrupt::Cut));
        unpack_all(&[0x00, b'a', 0xe0, 0xff, 0x00], 265, &mut out).unwrap();
        assert_eq!(out, vec![b'a'; 265]);
        assert!(absurd(10, 891) && !absurd(10, 880) && absurd(0, 1) && absurd(1, 0));
    }
}
