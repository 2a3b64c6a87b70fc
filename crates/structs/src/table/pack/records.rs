//! Names, or names and values, one after the other.
//!
//! ```text
//! | kind: 1 | count: 1 | prefix: length, bytes | fingerprints | offsets | record | record | ... |
//! record  | name | value |                     the value in packs of pairs only
//! name    | tag | bytes of the name after the prefix, or a whole integer or UUID |
//! ```
//! Names of one collection tend to begin alike (`field:1`, `field:2`): what all that are kept as text
//! begin with stands once, in front. It is as long as it can be for those that ever came.
//!
//! Up to [`GROUP`] records are searched from front to back. Beyond that there is a byte of hash for
//! each, in groups of [`GROUP`], and for each [`STEP`] records where the first stands: a lookup compares
//! sixteen bytes at once, and then walks to the record that it found. 0 is no fingerprint: it fills
//! the last group up. Records stand in the order in which they came.
//!
//! Invariants: fingerprints and offsets are those of the records, and no name is twice there.

use super::super::entry::KEY_INLINE_MAX;
use super::super::group::fingerprint;
use super::super::text::Packed;
use super::item::{self, Lead, Tagged};
use super::{BYTES_MAX, Record};
use std::ops::Range;

/// Records of a group.
const GROUP: usize = 16;
/// The place of each record with a multiple of this number is kept: walking past records takes longer
/// than comparing fingerprints does.
const STEP: usize = GROUP / 2;
/// Bytes of an offset.
const OFFSET: usize = 2;
/// Bytes of the offsets of a group.
const OFFSETS: usize = GROUP / STEP * OFFSET;
/// Where the prefix stands.
const PREFIX: usize = 2;
/// Records that the count can tell.
pub(super) const COUNT_MAX: usize = 255;

/// What the head says.
#[derive(Clone, Copy)]
struct Shape {
    has_values: bool,
    count: usize,
    prefix_len: usize,
}

impl Shape {
    #[inline]
    fn of(bytes: &[u8]) -> Self {
        Self {
            has_values: bytes[0] == super::PAIRS,
            count: usize::from(bytes[1]),
            prefix_len: usize::from(bytes[PREFIX]),
        }
    }

    fn index_at(self) -> usize {
        PREFIX + 1 + self.prefix_len
    }

    #[inline]
    fn body_at(self) -> usize {
        self.index_at() + index_len(self.count)
    }

    fn offset_at(self, step: usize) -> usize {
        self.index_at() + groups(self.count) * GROUP + step * OFFSET
    }

    /// Steps that have a record.
    fn steps(self) -> usize {
        if self.count > GROUP { self.count.div_ceil(STEP) } else { 0 }
    }
}

/// Groups of so many records; none where they are walked.
#[inline]
fn groups(count: usize) -> usize {
    if count > GROUP { count.div_ceil(GROUP) } else { 0 }
}

fn index_len(count: usize) -> usize {
    groups(count) * (GROUP + OFFSETS)
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// How many stand before it.
    pub(super) index: usize,
    /// Its first byte in the pack.
    pub(super) at: usize,
}

/// The records of a pack.
#[derive(Clone, Copy)]
pub(super) struct Records<'a> {
    shape: Shape,
    bytes: &'a [u8],
}

impl<'a> Records<'a> {
    #[inline]
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { shape: Shape::of(bytes), bytes }
    }

    pub(super) fn count(self) -> usize {
        self.shape.count
    }

    fn prefix(self) -> &'a [u8] {
        &self.bytes[PREFIX + 1..self.shape.index_at()]
    }

    /// The record at `at`.
    #[inline]
    pub(super) fn record(self, at: usize) -> Record<'a> {
        let prefix = Lead::of(&self.bytes[PREFIX..]);
        Record::new(prefix, &self.bytes[at..], self.shape.has_values)
    }

    /// The end of the record at `at`.
    #[inline]
    fn end(self, at: usize) -> usize {
        let value_at = at + item::len(&self.bytes[at..]);
        if self.shape.has_values { value_at + item::len(&self.bytes[value_at..]) } else { value_at }
    }

    /// The record behind the one that `at` was given for, and moves on; 0 begins.
    pub(super) fn next(self, at: &mut usize) -> Option<Record<'a>> {
        let here = (*at).max(self.shape.body_at());
        (here < self.bytes.len()).then(|| {
            *at = self.end(here);
            self.record(here)
        })
    }

    /// The record with this index.
    pub(super) fn nth(self, index: usize) -> Spot {
        let at = if groups(self.shape.count) == 0 {
            self.walk(self.shape.body_at(), index)
        } else {
            self.walk(self.first_of(index / STEP), index % STEP)
        };
        Spot { index, at }
    }

    /// Where the first record of a step stands.
    fn first_of(self, step: usize) -> usize {
        let at = self.shape.offset_at(step);
        let offset = [self.bytes[at], self.bytes[at + 1]];
        self.shape.body_at() + usize::from(u16::from_le_bytes(offset))
    }

    /// So many records behind the one at `at`.
    #[inline]
    fn walk(self, at: usize, records: usize) -> usize {
        (0..records).fold(at, |at, _| self.end(at))
    }

    /// Looks a name up.
    #[inline]
    pub(super) fn find(self, hash: u64, name: &[u8]) -> Option<Spot> {
        let name = self.wanted(name)?;
        let groups = groups(self.shape.count);
        if groups == 0 {
            return self.search(&name);
        }
        let fingerprint = fingerprint(hash);
        let index = &self.bytes[self.shape.index_at()..][..groups * GROUP];
        for (group, fingerprints) in index.as_chunks::<GROUP>().0.iter().enumerate() {
            let mut hits = matches(fingerprints, fingerprint);
            while hits != 0 {
                let index = group * GROUP + hits.trailing_zeros() as usize;
                let at = self.walk(self.first_of(index / STEP), index % STEP);
                if name.stands_at(&self.bytes[at..]) {
                    return Some(Spot { index, at });
                }
                hits &= hits - 1;
            }
        }
        None
    }

    /// The bytes to be read for a name with this hash: from the first of a group that has its
    /// fingerprint to about where that stands.
    pub(super) fn likely(self, hash: u64) -> Option<Range<usize>> {
        let (groups, fingerprint) = (groups(self.shape.count), fingerprint(hash));
        let index = self.bytes.get(self.shape.index_at()..)?.get(..groups * GROUP)?;
        let index = index.as_chunks::<GROUP>().0.iter().enumerate().find_map(|at| {
            let hits = matches(at.1, fingerprint);
            (hits != 0).then(|| at.0 * GROUP + hits.trailing_zeros() as usize)
        })?;
        let step = index / STEP;
        let first = self.first_of(step);
        let is_last = step + 1 == self.shape.steps();
        let end = if is_last { self.bytes.len() } else { self.first_of(step + 1) };
        let end_of_record = first + (end - first) * (index % STEP + 1) / STEP;
        Some(first..(end_of_record + super::LINE).min(self.bytes.len()))
    }

    /// Looks a name up from front to back.
    fn search(self, name: &Tagged<'_>) -> Option<Spot> {
        let mut at = self.shape.body_at();
        for index in 0..self.shape.count {
            if name.stands_at(&self.bytes[at..]) {
                return Some(Spot { index, at });
            }
            at = self.end(at);
        }
        None
    }

    /// `name` as a record would have it; `None` if none can.
    #[inline]
    fn wanted<'n>(self, name: &'n [u8]) -> Option<Tagged<'n>> {
        match Packed::of(name) {
            Packed::Raw(name) if name.len() > KEY_INLINE_MAX => None,
            Packed::Raw(name) => Some(Tagged::raw(name.strip_prefix(self.prefix())?)),
            packed => Some(Tagged::of(packed)),
        }
    }

    pub(super) fn check(self) {
        let mut at = self.shape.body_at();
        let mut names = std::collections::BTreeSet::new();
        for index in 0..self.shape.count {
            let (spot, name) = (Spot { index, at }, self.record(at).key().to_vec());
            let hash = darter_base::hash::of(&name);
            assert_eq!(self.nth(index), spot, "an offset");
            assert_eq!(self.find(hash, &name), Some(spot), "a fingerprint, or a name twice");
            assert!(names.insert(name), "a name twice");
            at = self.end(at);
        }
        assert_eq!(at, self.bytes.len(), "as many records as counted");
    }
}

/// A bit for each of these that is `wanted`.
#[inline]
fn matches(fingerprints: &[u8; GROUP], wanted: u8) -> u32 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    // SAFETY: compiled only where SSE2 is there.
    return unsafe { matches_sse2(fingerprints, wanted) };
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    return matches_portable(fingerprints, wanted);
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[target_feature(enable = "sse2")]
#[inline]
fn matches_sse2(fingerprints: &[u8; GROUP], wanted: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    // SAFETY: sixteen bytes, wherever they lie.
    let held = unsafe { _mm_loadu_si128(fingerprints.as_ptr().cast()) };
    let equal = _mm_cmpeq_epi8(held, _mm_set1_epi8(wanted.cast_signed()));
    _mm_movemask_epi8(equal).cast_unsigned()
}

#[cfg_attr(not(test), allow(dead_code, reason = "the reference, run where there is no SSE2"))]
fn matches_portable(fingerprints: &[u8; GROUP], wanted: u8) -> u32 {
    let held = fingerprints.iter().enumerate();
    held.fold(0, |bits, (nth, &held)| bits | u32::from(held == wanted) << nth)
}

/// A pack without records, whose prefix is to be `name` if that is text.
pub(super) fn begin(bytes: &mut Vec<u8>, kind: u8, name: &[u8]) {
    let prefix = match Packed::of(name) {
        Packed::Raw(name) => name,
        _ => &[],
    };
    assert!(prefix.len() <= KEY_INLINE_MAX, "a name that no pack can hold");
    bytes.clear();
    bytes.extend_from_slice(&[kind, 0, prefix.len() as u8]);
    bytes.extend_from_slice(prefix);
}

/// Appends a record whose name is not there. False, and nothing changed, when it would get too large.
pub(super) fn push(
    bytes: &mut Vec<u8>,
    hash: u64,
    name: &[u8],
    value: Option<&Tagged<'_>>,
) -> bool {
    if Shape::of(bytes).count == COUNT_MAX || !fit_prefix(bytes, name) {
        return false;
    }
    let records = Records::of(bytes);
    let name = records.wanted(name).expect("it has the prefix now");
    let shape = records.shape;
    let more = name.len() + value.map_or(0, Tagged::len);
    let index = index_len(shape.count + 1) - index_len(shape.count);
    if bytes.len() + index + more > BYTES_MAX {
        return false;
    }
    super::reserve(bytes, index + more);
    let at = bytes.len() + index;
    bytes[1] += 1;
    if index > 0 {
        grow_index(bytes, shape);
    }
    let shape = Shape::of(bytes);
    if groups(shape.count) > 0 {
        let index = shape.count - 1;
        bytes[shape.index_at() + index] = fingerprint(hash);
        if index.is_multiple_of(STEP) {
            set_first(bytes, index / STEP, at);
        }
    }
    name.write(bytes);
    if let Some(value) = value {
        value.write(bytes);
    }
    true
}

/// Makes room for another group of an index, of which the head tells already: all the index, when
/// there was none.
fn grow_index(bytes: &mut Vec<u8>, before: Shape) {
    let (had, at) = (groups(before.count), before.index_at());
    splice(bytes, at + had * GROUP..at + had * GROUP, GROUP * (groups(before.count + 1) - had));
    bytes[at + had * GROUP..][..GROUP * (groups(before.count + 1) - had)].fill(0);
    let end = at + groups(before.count + 1) * GROUP + had * OFFSETS;
    let more = OFFSETS * (groups(before.count + 1) - had);
    splice(bytes, end..end, more);
    bytes[end..end + more].fill(0);
    if had == 0 {
        write_index(bytes, before.count);
    }
}

/// Writes fingerprints and offsets of the first records; there is room.
fn write_index(bytes: &mut [u8], records: usize) {
    let shape = Shape::of(bytes);
    let mut at = shape.body_at();
    for index in 0..records {
        let here = Records { shape, bytes };
        let (hash, end) = (here.record(at).key().hash(), here.end(at));
        bytes[shape.index_at() + index] = fingerprint(hash);
        if index.is_multiple_of(STEP) {
            set_first(bytes, index / STEP, at);
        }
        at = end;
    }
}

/// Says where the first record of a step stands.
fn set_first(bytes: &mut [u8], step: usize, at: usize) {
    let shape = Shape::of(bytes);
    let offset = ((at - shape.body_at()) as u16).to_le_bytes();
    bytes[shape.offset_at(step)..][..OFFSET].copy_from_slice(&offset);
}

/// Gives the record at `spot` another value. False, and nothing changed, when it would get too large.
pub(super) fn set_value(bytes: &mut Vec<u8>, spot: Spot, value: &Tagged<'_>) -> bool {
    let at = spot.at + item::len(&bytes[spot.at..]);
    let (before, after) = (item::len(&bytes[at..]), value.len());
    if bytes.len() + after > BYTES_MAX + before {
        return false;
    }
    if before != after {
        super::reserve(bytes, after.saturating_sub(before));
        splice(bytes, at..at + before, after);
        move_steps(bytes, spot.index, after as isize - before as isize);
    }
    value.write_to(&mut bytes[at..at + after]);
    true
}

/// The steps after that of the record with this index begin so many bytes further.
fn move_steps(bytes: &mut [u8], index: usize, by: isize) {
    let shape = Shape::of(bytes);
    for step in index / STEP + 1..shape.steps() {
        let at = Records { shape, bytes }.first_of(step);
        set_first(bytes, step, at.checked_add_signed(by).expect("inside of the pack"));
    }
}

/// Removes the record at `spot`.
pub(super) fn remove(bytes: &mut Vec<u8>, spot: Spot) {
    let records = Records::of(bytes);
    let (shape, end) = (records.shape, records.end(spot.at));
    let len = end - spot.at;
    // The first record of each step after becomes the last of the one before.
    for step in spot.index / STEP + 1..shape.steps() {
        let at = Records { shape, bytes }.first_of(step);
        let next = Records { shape, bytes }.end(at);
        set_first(bytes, step, next - len);
    }
    splice(bytes, spot.at..end, 0);
    let (had, has) = (groups(shape.count), groups(shape.count - 1));
    let at = shape.index_at();
    if had > 0 {
        bytes[at..at + had * GROUP].copy_within(spot.index + 1.., spot.index);
        bytes[at + had * GROUP - 1] = 0;
    }
    if has < had {
        splice(bytes, at + had * GROUP + has * OFFSETS..at + had * (GROUP + OFFSETS), 0);
        splice(bytes, at + has * GROUP..at + had * GROUP, 0);
    }
    bytes[1] -= 1;
}

/// Makes the prefix one that `name` has, too. False, and nothing changed, when that takes too much.
fn fit_prefix(bytes: &mut Vec<u8>, name: &[u8]) -> bool {
    let Packed::Raw(name) = Packed::of(name) else { return true };
    let prefix = Records::of(bytes).prefix();
    let common = prefix.iter().zip(name).take_while(|(one, other)| one == other).count();
    common == prefix.len() || cut_prefix(bytes, common)
}

/// Shortens the prefix to `len`: the names take over what it loses.
fn cut_prefix(bytes: &mut Vec<u8>, len: usize) -> bool {
    let old = std::mem::take(bytes);
    let records = Records::of(&old);
    let lost = &records.prefix()[len..];
    if old.len() + records.count() * lost.len() > BYTES_MAX {
        *bytes = old;
        return false;
    }
    super::reserve(bytes, old.len() + records.count() * lost.len());
    bytes.extend_from_slice(&[old[0], old[1], len as u8]);
    bytes.extend_from_slice(&records.prefix()[..len]);
    bytes.extend_from_slice(&old[records.shape.index_at()..records.shape.body_at()]);
    let mut at = records.shape.body_at();
    for index in 0..records.count() {
        if groups(records.count()) > 0 && index.is_multiple_of(STEP) {
            let here = bytes.len();
            set_first(bytes, index / STEP, here);
        }
        let end = records.end(at);
        match item::raw_len(old[at]) {
            Some(len) => {
                bytes.push((len + lost.len()) as u8);
                bytes.extend_from_slice(lost);
                bytes.extend_from_slice(&old[at + 1..end]);
            }
            None => bytes.extend_from_slice(&old[at..end]),
        }
        at = end;
    }
    true
}

/// Replaces a range by one of another length, whose bytes are yet to be written.
fn splice(bytes: &mut Vec<u8>, range: Range<usize>, len: usize) {
    let (end, old_len) = (range.start + len, bytes.len());
    if end > range.end {
        bytes.resize(old_len + end - range.end, 0);
    }
    bytes.copy_within(range.end..old_len, end);
    bytes.truncate(old_len + end - range.end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // The quick way finds what the plain one does.
    fn fingerprints_are_found_at_once() {
        let mut prng = darter_base::Prng::from_seed(3);
        for _ in 0..200 {
            let fingerprints = std::array::from_fn(|_| prng.below(5) as u8);
            for wanted in 0..5 {
                let found = matches(&fingerprints, wanted);
                assert_eq!(found, matches_portable(&fingerprints, wanted));
            }
        }
    }
}
