//! A sorted set of integers: a base, and offsets of equal width.
//!
//! ```text
//! | kind: 1 | width: 1 | count: 2 | base: 8 | offset | offset | ... |     offsets: `width` bits each
//! ```
//! A hundred numbers below ten thousand take 14 bits each. A width is 0 to 56 bits, or 64, so that
//! an offset can always be read as one word. An insertion shifts the bits after it, a word at a
//! time; a number out of the range of base and width causes all offsets to be rewritten, and the
//! range of the new width extends on that number's side.
//!
//! Invariants: the offsets ascend without repetition, and bits after the last are 0.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

/// Bytes before the offsets.
pub(super) const HEAD: usize = 12;
/// The widest offset that fits one word at any bit position.
const WIDTH_MAX: u32 = 56;
/// Removals between checks for a smaller width.
const NARROW_STEP: usize = 16;

/// The offsets and their base.
#[derive(Clone, Copy)]
pub(super) struct Ints<'a> {
    width: u32,
    count: usize,
    base: i64,
    bits: &'a [u8],
}

impl<'a> Ints<'a> {
    #[inline]
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let (head, bits) = bytes.split_first_chunk::<HEAD>().expect("a head");
        let [_, width, low, high, base @ ..] = *head;
        Self {
            width: u32::from(width),
            count: usize::from(u16::from_le_bytes([low, high])),
            base: i64::from_le_bytes(base),
            bits,
        }
    }

    pub(super) fn count(self) -> usize {
        self.count
    }

    /// The integer at this index.
    #[inline]
    pub(super) fn get(self, index: usize) -> i64 {
        debug_assert!(index < self.count, "index={index} count={}", self.count);
        self.base.wrapping_add_unsigned(self.offset(index))
    }

    #[inline]
    fn offset(self, index: usize) -> u64 {
        let bit = index * self.width as usize;
        (word_at(self.bits, bit / 8) >> (bit % 8)) & mask(self.width)
    }

    /// The index of `value`, or of the first larger integer. The binary search has no branch,
    /// because its outcome is unpredictable.
    pub(super) fn find(self, value: i64) -> Result<usize, usize> {
        let Some(wanted) = distance(self.base, value) else { return Err(0) };
        let (mut low, mut left) = (0, self.count);
        while left > 1 {
            let half = left / 2;
            let is_above = self.offset(low + half) <= wanted;
            low = select_unpredictable(is_above, low + half, low);
            left -= half;
        }
        match (left > 0).then(|| self.offset(low).cmp(&wanted)) {
            Some(Ordering::Equal) => Ok(low),
            Some(Ordering::Less) => Err(low + 1),
            Some(Ordering::Greater) | None => Err(low),
        }
    }

    /// All integers, in order.
    pub(super) fn iter(self) -> impl Iterator<Item = i64> + 'a {
        (0..self.count).map(move |index| self.get(index))
    }

    /// The first and the last integer.
    fn ends(self) -> Option<(i64, i64)> {
        let last = self.count.checked_sub(1)?;
        Some((self.get(0), self.get(last)))
    }

    pub(super) fn check(self) {
        assert!(self.width <= WIDTH_MAX || self.width == u64::BITS, "width={}", self.width);
        assert_eq!(self.bits.len(), bytes_of(self.count, self.width), "as many bits as counted");
        assert!(self.iter().is_sorted_by(|one, other| one < other), "in order, each once");
        let used = self.count * self.width as usize;
        assert!(used.is_multiple_of(8) || self.bits[used / 8] >> (used % 8) == 0, "bits behind");
    }
}

/// Adds `value` at the `index` that [`Ints::find`] returned.
pub(super) fn insert(bytes: &mut Vec<u8>, index: usize, value: i64) {
    let ints = Ints::of(bytes);
    let (width, count) = (ints.width, ints.count);
    let offset = distance(ints.base, value).filter(|&offset| offset <= mask(width));
    let Some(offset) = offset.filter(|_| width > 0) else {
        return widen(bytes, index, value);
    };
    bytes.resize(HEAD + bytes_of(count + 1, width), 0);
    let (first, shift) = (HEAD + index * width as usize / 8, index * width as usize % 8);
    let tail = &mut bytes[first..];
    let kept = tail[0] & low_bits(shift);
    tail[0] &= !low_bits(shift);
    shift_up(tail, width);
    tail[0] |= kept;
    or_word(tail, shift, width, offset);
    set_count(bytes, count + 1);
}

/// Removes the integer at this index.
pub(super) fn remove(bytes: &mut Vec<u8>, index: usize) {
    let ints = Ints::of(bytes);
    let (width, count) = (ints.width, ints.count);
    let (first, shift) = (HEAD + index * width as usize / 8, index * width as usize % 8);
    let tail = &mut bytes[first..];
    if let Some(&head) = tail.first() {
        shift_down(tail, width);
        tail[0] = tail[0] & !low_bits(shift) | head & low_bits(shift);
    }
    bytes.truncate(HEAD + bytes_of(count - 1, width));
    set_count(bytes, count - 1);
    if (count - 1).is_multiple_of(NARROW_STEP) {
        narrow(bytes);
    }
}

/// The size of the pack with `value` added.
pub(super) fn bytes_with(bytes: &[u8], value: i64) -> usize {
    let ints = Ints::of(bytes);
    let reaches = distance(ints.base, value).is_some_and(|offset| offset <= mask(ints.width));
    let width = if reaches { ints.width.max(1) } else { width_with(ints, value) };
    HEAD + bytes_of(ints.count + 1, width)
}

/// Rewrites all integers, including the new `value`.
fn widen(bytes: &mut Vec<u8>, index: usize, value: i64) {
    let ints = Ints::of(bytes);
    let width = width_with(ints, value);
    let mut all: Vec<i64> = ints.iter().collect();
    let is_below = index == 0;
    all.insert(index, value);
    let base = if is_below {
        // The range extends downwards, because descending insertions continue there.
        let last = i128::from(all[all.len() - 1]) - i128::from(mask(width));
        i64::try_from(last).unwrap_or(i64::MIN)
    } else {
        all[0]
    };
    write(bytes, base, width, &all);
}

/// Switches to the smallest possible width, if that is smaller than the current one.
fn narrow(bytes: &mut Vec<u8>) {
    let ints = Ints::of(bytes);
    let Some((first, last)) = ints.ends() else { return };
    let width = width_of(first, last);
    if width < ints.width {
        let all: Vec<i64> = ints.iter().collect();
        write(bytes, first, width, &all);
    }
}

/// Writes the head and `all`, which are in order.
pub(super) fn write(bytes: &mut Vec<u8>, base: i64, width: u32, all: &[i64]) {
    bytes.clear();
    bytes.extend_from_slice(&[super::INTS, width as u8]);
    bytes.extend_from_slice(&(all.len() as u16).to_le_bytes());
    bytes.extend_from_slice(&base.to_le_bytes());
    bytes.resize(HEAD + bytes_of(all.len(), width), 0);
    for (index, &value) in all.iter().enumerate() {
        let bit = index * width as usize;
        let offset = distance(base, value).expect("not below the base");
        or_word(&mut bytes[HEAD + bit / 8..], bit % 8, width, offset);
    }
}

/// The width needed for all integers and `value`.
fn width_with(ints: Ints<'_>, value: i64) -> u32 {
    let (first, last) = ints.ends().unwrap_or((value, value));
    width_of(first.min(value), last.max(value))
}

/// The width for offsets from `first` to `last`.
pub(super) fn width_of(first: i64, last: i64) -> u32 {
    let bits = u64::BITS - last.wrapping_sub(first).cast_unsigned().leading_zeros();
    if bits > WIDTH_MAX { u64::BITS } else { bits }
}

/// The distance from `base` up to `value`; `None` if `value` is below.
fn distance(base: i64, value: i64) -> Option<u64> {
    (value >= base).then(|| value.wrapping_sub(base).cast_unsigned())
}

pub(super) fn bytes_of(count: usize, width: u32) -> usize {
    (count * width as usize).div_ceil(8)
}

fn set_count(bytes: &mut [u8], count: usize) {
    bytes[2..4].copy_from_slice(&(count as u16).to_le_bytes());
}

fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS - width).unwrap_or(0)
}

fn low_bits(count: usize) -> u8 {
    (1 << count) - 1
}

/// The word at `at`; bytes past the end read as 0.
#[inline]
fn word_at(bits: &[u8], at: usize) -> u64 {
    match bits[at.min(bits.len())..].first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let rest = &bits[at.min(bits.len())..];
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(word)
        }
    }
}

/// Sets the bits of `offset`, now 0, at bit `shift`.
fn or_word(bits: &mut [u8], shift: usize, width: u32, offset: u64) {
    let word = (u128::from(offset) << shift).to_le_bytes();
    let len = (shift + width as usize).div_ceil(8);
    bits[..len].iter_mut().zip(word).for_each(|(bits, word)| *bits |= word);
}

/// Shifts all bits up by `width`; those past the end are lost.
fn shift_up(bits: &mut [u8], width: u32) {
    let (bytes, shift) = (width as usize / 8, width % 8);
    let kept = bits.len().saturating_sub(bytes);
    bits.copy_within(..kept, bits.len() - kept);
    let moved = bits.len() - kept;
    bits[..moved].fill(0);
    if shift == 0 {
        return;
    }
    let (mut carry, (words, rest)) = (0, bits.as_chunks_mut::<8>());
    for word in words {
        let value = u64::from_le_bytes(*word);
        *word = (value << shift | carry).to_le_bytes();
        carry = value >> (u64::BITS - shift);
    }
    for byte in rest {
        let value = u64::from(*byte) << shift | carry;
        *byte = value as u8;
        carry = value >> 8;
    }
}

/// Moves all bits down by `width`; 0s enter at the end.
fn shift_down(bits: &mut [u8], width: u32) {
    let (bytes, shift) = (width as usize / 8, width % 8);
    let kept = bits.len().saturating_sub(bytes);
    bits.copy_within(bits.len() - kept.., 0);
    bits[kept..].fill(0);
    if shift == 0 {
        return;
    }
    let (words, rest) = bits.as_chunks_mut::<8>();
    let mut carry = 0;
    for byte in rest.iter_mut().rev() {
        let value = *byte;
        *byte = value >> shift | carry;
        carry = value << (8 - shift);
    }
    let mut carry = u64::from(carry) << (u64::BITS - 8);
    for word in words.iter_mut().rev() {
        let value = u64::from_le_bytes(*word);
        *word = (value >> shift | carry).to_le_bytes();
        carry = value << (u64::BITS - shift);
    }
}
