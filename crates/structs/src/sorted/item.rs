//! The encoding of one entry of a sorted set: its score, then its member, encoded like a list's
//! element.
//!
//! ```text
//! entry   | score | member |              the member: a tagged text, or the number of an out-of-line text
//! score   tag  0..=8     an integer with `tag` bytes, little endian
//!              9..=16    a negative integer: 1 to 8 bytes of its absolute value
//!              17..=24   another number: the 1 to 8 high bytes of its 64 bits, the others are 0
//! ```
//! Most scores are integers, or have few digits in binary: 3 bytes for 1 000, 5 for a Unix time, 3 for
//! 0.5; a random one takes 9.

use super::place::SortedEntry;
use crate::chunk::{Chunk, Coding, Encoded, Held, ROOM_MAX};
use crate::list::item as element;
use crate::table::Text;
use crate::table::pack::item::Tagged;
use crate::table::text::Packed;
use darter_base::long::Long;

/// Longest member stored among the others; longer ones are stored out of line.
pub const INLINE_MAX: usize = element::INLINE_MAX;

const NEGATIVE: u8 = 9;
const BITS: u8 = 17;
/// Bytes of the longest score.
const SCORE_BYTES_MAX: usize = 9;
/// Bytes of the longest entry.
pub(super) const ENTRY_BYTES_MAX: usize = SCORE_BYTES_MAX + element::ITEM_BYTES_MAX;

const _: () = assert!(3 * ENTRY_BYTES_MAX <= ROOM_MAX, "three of the longest to a chunk");

/// The length of a score by its tag, including the tag.
const SCORE_BYTES: &[u8; 256] = &{
    let mut bytes = [0; 256];
    let mut tag = 0;
    while tag < bytes.len() {
        bytes[tag] = match tag as u8 {
            tag @ ..NEGATIVE => tag + 1,
            tag @ NEGATIVE..BITS => tag - NEGATIVE + 2,
            tag @ BITS.. => (tag - BITS) % 8 + 2, // Up to 24.
        };
        tag += 1;
    }
    bytes
};

/// Bytes of the score that begins with this tag.
#[inline]
fn score_len(tag: u8) -> usize {
    usize::from(SCORE_BYTES[usize::from(tag)])
}

/// The score at the front of `bytes`.
#[inline(always)] // This is most of the work of a search.
pub(super) fn score(bytes: &[u8]) -> f64 {
    let (tag, len) = (bytes[0], score_len(bytes[0]) - 1);
    let word = match bytes[1..].first_chunk() {
        // The low bytes. The shift is made in two steps, because a shift by 64 is undefined.
        Some(eight) => {
            u64::from_le_bytes(*eight) & (1_u64 << (4 * len) << (4 * len)).wrapping_sub(1)
        }
        None => bytes[1..=len].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    // Integers are at most 2^53; signed ones are converted by a single instruction.
    match tag {
        ..NEGATIVE => word.cast_signed() as f64,
        NEGATIVE..BITS => -(word.cast_signed() as f64),
        BITS.. => f64::from_bits(word << (64 - 8 * len)),
    }
}

/// A score in its stored form.
#[derive(Clone, Copy)]
struct Score {
    bytes: [u8; SCORE_BYTES_MAX],
    len: usize,
}

impl Score {
    #[inline]
    fn of(score: f64) -> Self {
        /// Up to this number, all integers are exact.
        const INTEGER_MAX: f64 = (1_u64 << 53) as f64;
        let bits = score.to_bits();
        let used = (64 - bits.trailing_zeros().min(63) as usize).div_ceil(8);
        let (mut tag, mut word, mut len) = (BITS + used as u8 - 1, bits >> (64 - 8 * used), used);
        let amount = score.abs();
        if amount <= INTEGER_MAX && amount.trunc() == amount && bits != (-0.0_f64).to_bits() {
            let integer = amount as u64;
            let bytes = (64 - integer.leading_zeros() as usize).div_ceil(8);
            if bytes <= used {
                let negative = if score < 0.0 { NEGATIVE - 1 } else { 0 };
                (tag, word, len) = (negative + bytes as u8, integer, bytes);
            }
        }
        let mut bytes = [tag; SCORE_BYTES_MAX];
        bytes[1..].copy_from_slice(&word.to_le_bytes());
        Self { bytes, len: 1 + len }
    }
}

/// A member in the form in which it is kept.
enum Member<'a> {
    Text(Tagged<'a>),
    Long(Long),
}

/// An entry in its stored form.
pub(super) struct New<'a> {
    score: Score,
    member: Member<'a>,
}

impl<'a> New<'a> {
    /// A long member shares its existing block, if it has one.
    #[inline]
    pub(super) fn of(score: f64, hash: u64, member: &'a [u8]) -> Self {
        let member = if member.len() <= INLINE_MAX {
            Member::Text(Tagged::of(Packed::of(member)))
        } else {
            Member::Long(Long::new(member, hash))
        };
        Self { score: Score::of(score), member }
    }

    /// An entry with a long member.
    pub(super) fn of_long(score: f64, member: &Long) -> Self {
        Self { score: Score::of(score), member: Member::Long(member.clone()) }
    }
}

impl Encoded<Long> for New<'_> {
    #[inline]
    fn len(&self) -> usize {
        let member = match &self.member {
            Member::Text(text) => text.len(),
            Member::Long(_) => element::OUTSIDE_BYTES,
        };
        self.score.len + member
    }

    #[inline]
    fn long(&self) -> Option<&Long> {
        if let Member::Long(long) = &self.member { Some(long) } else { None }
    }

    #[inline]
    fn write_to(&self, out: &mut [u8]) {
        let (score, member) = out.split_at_mut(self.score.len);
        score.copy_from_slice(&self.score.bytes[..self.score.len]);
        if let Member::Text(text) = &self.member {
            text.write_to(member);
        }
    }
}

impl Held for Long {
    fn memory_bytes(&self) -> usize {
        Self::bytes_for(self.len())
    }
}

/// The items of a sorted set's chunks.
#[derive(Clone, Copy)]
pub(super) struct Entries;

impl Coding for Entries {
    type Long = Long;
    type Code<'a> = New<'a>;
    /// The score.
    type First = f64;

    #[inline(always)] // This is most of the work of a walk.
    fn len(bytes: &[u8]) -> usize {
        let score = score_len(bytes[0]);
        score + element::len(&bytes[score..])
    }

    #[inline]
    fn first(bytes: &[u8]) -> f64 {
        score(bytes)
    }

    #[inline]
    fn outside(bytes: &[u8]) -> Option<u16> {
        element::outside(&bytes[score_len(bytes[0])..])
    }

    fn write_outside(bytes: &mut [u8], number: u16) {
        let score = score_len(bytes[0]);
        element::write_outside(&mut bytes[score..], number);
    }
}

/// The entry at the front of `bytes`, in a chunk or in a pack.
#[inline]
pub(super) fn entry<'a>(bytes: &'a [u8], chunk: Option<&'a Chunk<Entries>>) -> SortedEntry<'a> {
    let member = &bytes[score_len(bytes[0])..];
    match (chunk, element::outside(member)) {
        (Some(chunk), Some(number)) => {
            let long = chunk.long(number);
            SortedEntry { score: score(bytes), member: Text::raw(long), long: Some(long) }
        }
        _ => SortedEntry { score: score(bytes), member: element::text(member), long: None },
    }
}

/// True if the entry at the front of `bytes`, in a pack, has this member.
#[inline]
pub(super) fn is_of(bytes: &[u8], member: &[u8]) -> bool {
    element::text(&bytes[score_len(bytes[0])..]) == *member
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Small integers are short.
    fn encoded_scores_are_read_back() {
        let shifts = (0..64).flat_map(|bit| {
            let power = (1_u64 << bit) as f64;
            [power, power - 1.0, power + 1.0, 1.0 / power, power / 10.0]
        });
        let others = [0.0, f64::INFINITY, f64::MIN_POSITIVE, f64::MAX, f64::EPSILON, 5e-324, 0.1];
        for score in shifts.chain(others).flat_map(|score| [score, -score]) {
            let code = Score::of(score);
            let bytes = &code.bytes[..code.len];
            assert_eq!(score_len(bytes[0]), code.len, "{score}");
            let longer = [bytes, &[0xff; 9]].concat();
            for read in [bytes, &longer] {
                assert_eq!(super::score(read).to_bits(), score.to_bits(), "{score}");
            }
        }
        let lengths = [(0.0, 1), (1_000.0, 3), (1_763_841_600.0, 5), (0.5, 3), (-7.0, 2)];
        for (score, len) in lengths {
            assert_eq!(Score::of(score).len, len, "{score}");
        }
    }
}
