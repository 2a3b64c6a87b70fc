//! The bytes of a HyperLogLog: a string, as Redis writes it.
//!
//! ```text
//! | HYLL | encoding | 0 0 0 | cardinality: 8 | registers ...                  numbers: low byte first
//!
//! dense  (0): 16 384 registers of 6 bits, the first in the lowest bits: always 12 288 bytes
//! sparse (1): runs of equal registers      00llllll             l + 1 zeros
//!                                          01llllll llllllll    l + 1 zeros
//!                                          1vvvvvll             v + 1, l + 1 times
//! ```
//! The cardinality is the last result of PFCOUNT; its highest bit marks it as stale.
//!
//! Clients can write any bytes with SET, so nothing here trusts them: faults are refused.

use darter_command::Refusal;
use darter_keyspace::Str;
use darter_structs::table::Scratch;

/// The number of registers.
pub(super) const REGISTERS: usize = 1 << 14;
/// Bytes in front of the registers.
pub(super) const HEADER_BYTES: usize = 16;
/// Bytes of the dense registers.
pub(super) const DENSE_BYTES: usize = REGISTERS * 6 / 8;
/// The place of the cardinality.
pub(super) const CARDINALITY: std::ops::Range<usize> = 8..HEADER_BYTES;
/// The byte with the bit that marks the cardinality as stale.
pub(super) const STALE_BYTE: usize = HEADER_BYTES - 1;
/// The bit of a stale cardinality.
pub(super) const STALE: u8 = 0x80;

const MAGIC: &[u8; 4] = b"HYLL";
const ENCODING: usize = 4;

/// The encoding of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Dense,
    Sparse,
}

/// The refusal of a string that is not a HyperLogLog.
fn invalid() -> Refusal {
    Refusal::line("WRONGTYPE Key is not a valid HyperLogLog string value.")
}

/// The refusal of a HyperLogLog with invalid registers.
pub(super) fn corrupt() -> Refusal {
    Refusal::line("INVALIDOBJ Corrupted HLL object detected")
}

/// The encoding given by the header of a string of `len` bytes.
fn check(head: &[u8], len: usize) -> Result<Encoding, Refusal> {
    if len < HEADER_BYTES || !head.starts_with(MAGIC) {
        return Err(invalid());
    }
    match head[ENCODING] {
        0 if len == HEADER_BYTES + DENSE_BYTES => Ok(Encoding::Dense),
        1 => Ok(Encoding::Sparse),
        _ => Err(invalid()),
    }
}

/// The bytes of a string, if it is a HyperLogLog, and its encoding.
///
/// Errors: not a HyperLogLog, or so long that its registers must be corrupt (even two bytes for
/// each register would fit one piece).
pub(super) fn read<'t>(
    text: &'t Str<'_>,
    scratch: &'t mut Scratch,
) -> Result<(&'t [u8], Encoding), Refusal> {
    match text {
        Str::Inline(text) => {
            let bytes = text.bytes(scratch);
            Ok((bytes, check(bytes, bytes.len())?))
        }
        Str::Blob(blob) => {
            let encoding = check(&blob.piece(0).0[..], blob.len())?;
            Ok((blob.as_slice().ok_or_else(corrupt)?, encoding))
        }
    }
}

/// The header of an empty HyperLogLog.
pub(super) fn new_header(encoding: Encoding) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    set_encoding(&mut header, encoding);
    header
}

/// Writes the encoding into a header.
pub(super) fn set_encoding(header: &mut [u8], encoding: Encoding) {
    header[ENCODING] = match encoding {
        Encoding::Dense => 0,
        Encoding::Sparse => 1,
    };
}

/// The cardinality in the header, if it is up to date.
pub(super) fn cardinality(bytes: &[u8]) -> Option<u64> {
    let is_stale = bytes[STALE_BYTE] & STALE != 0;
    let known = bytes[CARDINALITY].try_into().map(u64::from_le_bytes);
    known.ok().filter(|_| !is_stale)
}
