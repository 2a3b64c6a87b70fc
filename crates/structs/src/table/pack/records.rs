//! Packs of names, or of names and values, one after another.
//!
//! ```text
//! | kind: 1 | count: 1 | prefix: length, bytes | fingerprints | places | tags | texts |
//! fingerprints, places   one for each record; two bytes for each eighth: beyond 16 records
//! tags, texts            | name | value | name | value | ...      the value in packs of pairs only
//! name                   its bytes after the prefix, or a whole integer or UUID
//! ```
//! Names in a collection often have a common prefix (`field:1`, `field:2`). The longest common
//! prefix of all names kept as text is stored once, in front. It never gets longer.
//!
//! The tags give the lengths of the texts (`item`). They are stored together, so that a record's
//! start is the sum of up to sixteen bytes, which are added at once: walking from text to text
//! would take two dependent reads a record. Up to [`UNINDEXED_MAX`] records are searched from front
//! to back. Beyond that there is a byte of hash for each, compared sixty-four at a time, and the
//! place of every [`STEP`]th record. Records are in the order of insertion.
//!
//! Invariants: fingerprints and places are those of the records, and no name occurs twice.

use super::super::entry::KEY_INLINE_MAX;
use super::super::group::fingerprint;
use super::super::text::{self, Packed};
use super::item::{self, Tagged};
use super::lanes::{self, LANES};
use super::{BYTES_MAX, Item};
use std::ops::Range;

/// Up to this many records there is no index.
const UNINDEXED_MAX: usize = 16;
/// The place of every record whose index is a multiple of this is stored, so that the tags in
/// between can be summed at once.
const STEP: usize = LANES / 2;
/// Bytes of a place.
const PLACE: usize = 2;
/// Offset of the prefix.
pub(super) const PREFIX: usize = 2;
/// The largest count that fits its byte.
pub(super) const COUNT_MAX: usize = 255;
/// Fingerprints that are compared together.
const WIDE: usize = 4 * LANES;

/// The contents of the head, and the offsets derived from them.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    count: usize,
    /// The number of tags of a record.
    width: usize,
    /// Offsets of the fingerprints, the places, the tags and the texts.
    index_at: usize,
    places_at: usize,
    tags_at: usize,
    pub(super) texts_at: usize,
}

impl Shape {
    #[inline(always)] // Computed once a lookup, and held in registers.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let width = 1 + usize::from(bytes[0] == super::PAIRS);
        let index_at = PREFIX + 1 + usize::from(bytes[PREFIX]);
        Self::new(usize::from(bytes[1]), width, index_at)
    }

    #[inline(always)]
    fn new(count: usize, width: usize, index_at: usize) -> Self {
        let indexed = if count > UNINDEXED_MAX { count } else { 0 };
        let places_at = index_at + indexed;
        let tags_at = places_at + indexed.div_ceil(STEP) * PLACE;
        Self { count, width, index_at, places_at, tags_at, texts_at: tags_at + count * width }
    }

    /// The shape of this pack with another number of records.
    fn with(self, count: usize) -> Self {
        Self::new(count, self.width, self.index_at)
    }

    #[inline]
    pub(super) fn has_index(self) -> bool {
        self.count > UNINDEXED_MAX
    }

    /// Offset of the tags of the record with this index.
    #[inline]
    pub(super) fn tags_of(self, index: usize) -> usize {
        self.tags_at + index * self.width
    }

    /// The number of steps, each with a stored place; 0 without an index.
    fn steps(self) -> usize {
        if self.has_index() { self.count.div_ceil(STEP) } else { 0 }
    }
}

/// The place of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The number of records before it.
    pub(super) index: usize,
    /// Offset of its texts in the pack.
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

    pub(super) fn count(&self) -> usize {
        self.shape.count
    }

    #[inline]
    fn prefix(&self) -> &'a [u8] {
        &self.bytes[PREFIX + 1..self.shape.index_at]
    }

    /// The record at `spot`.
    #[inline]
    pub(super) fn record(&self, spot: Spot) -> Item<'a> {
        Item::record(self.bytes, self.shape.tags_of(spot.index), spot.at)
    }

    /// The end of the name of the record at `spot`.
    #[inline]
    fn name_end(&self, spot: Spot) -> usize {
        let tag = self.bytes[self.shape.tags_of(spot.index)];
        spot.at + item::body_len(tag, &self.bytes[spot.at..])
    }

    /// The end of the record at `spot`.
    #[inline]
    fn end(&self, spot: Spot) -> usize {
        let at = self.name_end(spot);
        if self.shape.width == 1 {
            return at;
        }
        let tag = self.bytes[self.shape.tags_of(spot.index) + 1];
        at + item::body_len(tag, &self.bytes[at..])
    }

    /// The record after the one that returned `cursor`, which is then advanced; start with 0.
    pub(super) fn next(&self, cursor: &mut usize) -> Option<Item<'a>> {
        let (index, at) = (*cursor >> u16::BITS, *cursor & usize::from(u16::MAX));
        let spot = Spot { index, at: at.max(self.shape.texts_at) };
        (index < self.shape.count).then(|| {
            *cursor = (index + 1) << u16::BITS | self.end(spot);
            self.record(spot)
        })
    }

    /// The record with this index.
    pub(super) fn nth(&self, index: usize) -> Spot {
        let texts_at = self.shape.texts_at;
        if self.shape.has_index() {
            self.indexed(index)
        } else if index < STEP {
            Spot { index, at: self.skip(texts_at, 0, index) }
        } else {
            let second = self.skip(texts_at, 0, STEP);
            Spot { index, at: self.skip(second, STEP, index - STEP) }
        }
    }

    /// [`Records::nth`] if there is an index.
    #[inline(always)]
    fn indexed(&self, index: usize) -> Spot {
        let (step, nth) = (index / STEP, index % STEP);
        Spot { index, at: self.skip(self.first_of(step), index - nth, nth) }
    }

    /// Offset of the first record of a step.
    #[inline(always)]
    fn first_of(&self, step: usize) -> usize {
        let at = self.shape.places_at + step * PLACE;
        let place = [self.bytes[at], self.bytes[at + 1]];
        self.shape.texts_at + usize::from(u16::from_le_bytes(place))
    }

    /// The end of `count` records (at most a step's) whose first has this index and begins at `at`.
    #[inline(always)]
    fn skip(&self, at: usize, index: usize, count: usize) -> usize {
        let tags = &self.bytes[self.shape.tags_of(index)..];
        let count = count * self.shape.width;
        let sum = tags.first_chunk().and_then(|sixteen| lanes::sum(sixteen, count));
        sum.map_or_else(|| self.walk(at, &tags[..count]), |sum| at + sum)
    }

    /// The end of the texts with these tags, the first of which begins at `at`. Used when fewer
    /// than sixteen bytes are left to read, or when a text is long.
    #[cold]
    #[inline(never)]
    fn walk(&self, at: usize, tags: &[u8]) -> usize {
        tags.iter().fold(at, |at, tag| at + item::body_len(*tag, &self.bytes[at..]))
    }

    /// Looks a name up.
    #[inline]
    pub(super) fn find(&self, hash: u64, name: &[u8]) -> Option<Spot> {
        let Packed::Raw(name) = Packed::of(name) else { return self.find_coded(hash, name) };
        // A `Tagged` would go through memory, so it is not used.
        let rest = self.rest_of(name)?;
        let tag = u8::try_from(rest.len()).ok().filter(|tag| item::raw_len(*tag).is_some())?;
        self.seek(hash, |held, texts| held == tag && text::same(&texts[..rest.len()], rest))
    }

    /// [`Records::find`] for an integer or a UUID.
    fn find_coded(&self, hash: u64, name: &[u8]) -> Option<Spot> {
        let name = Tagged::of(Packed::of(name));
        self.seek(hash, |tag, texts| name.is(tag, texts))
    }

    /// The first record that matches, by the tag of its name and the start of its texts.
    #[inline(always)]
    fn seek(&self, hash: u64, is_wanted: impl Fn(u8, &[u8]) -> bool) -> Option<Spot> {
        let is_at = |spot: Spot| {
            is_wanted(self.bytes[self.shape.tags_of(spot.index)], &self.bytes[spot.at..])
        };
        if self.shape.has_index() {
            return self.search_index(hash, is_at);
        }
        let mut spot = Spot { index: 0, at: self.shape.texts_at };
        while spot.index < self.shape.count {
            if is_at(spot) {
                return Some(spot);
            }
            spot = Spot { index: spot.index + 1, at: self.end(spot) };
        }
        None
    }

    /// The part of a name after the prefix; `None` if the name does not begin with the prefix.
    #[inline]
    fn rest_of<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        let (front, rest) = name.split_at_checked(self.prefix().len())?;
        text::same(front, self.prefix()).then_some(rest)
    }

    /// The bytes from the texts of the record that probably has a name with this hash.
    #[inline]
    pub(super) fn likely(&self, hash: u64) -> Option<&'a [u8]> {
        let spot = self.shape.has_index().then(|| self.search_index(hash, |_| true)).flatten()?;
        Some(&self.bytes[spot.at..])
    }

    /// The first record with the fingerprint of this hash that matches; there must be an index.
    #[inline(always)] // Separate copies for its two callers.
    fn search_index(&self, hash: u64, is_wanted: impl Fn(Spot) -> bool) -> Option<Spot> {
        let fingerprint = fingerprint(hash);
        for from in (0..self.shape.count).step_by(WIDE) {
            let mut hits = self.hits(fingerprint, from);
            while hits != 0 {
                let spot = self.indexed(from + hits.trailing_zeros() as usize);
                if is_wanted(spot) {
                    return Some(spot);
                }
                hits &= hits - 1;
            }
        }
        None
    }

    /// A bit for each record from `from` on with this fingerprint, for as many records as are
    /// compared at once.
    #[inline(always)]
    fn hits(&self, fingerprint: u8, from: usize) -> u64 {
        let held = &self.bytes[self.shape.index_at + from..];
        let hits = match held.first_chunk() {
            Some(wide) => lanes::matches(wide, fingerprint),
            None => hits_at_end(held, fingerprint),
        };
        hits & (u64::MAX >> (WIDE - (self.shape.count - from).min(WIDE)))
    }

    /// `name` as a record would hold it; `None` if no record can.
    fn wanted<'n>(&self, name: &'n [u8]) -> Option<Tagged<'n>> {
        match Packed::of(name) {
            Packed::Raw(name) if name.len() > KEY_INLINE_MAX => None,
            Packed::Raw(name) => self.rest_of(name).map(Tagged::raw),
            packed => Some(Tagged::of(packed)),
        }
    }

    pub(super) fn check(&self) {
        let mut spot = Spot { index: 0, at: self.shape.texts_at };
        let mut names = std::collections::BTreeSet::new();
        while spot.index < self.shape.count {
            let name = self.record(spot).key().to_vec();
            let hash = darter_base::hash::of(&name);
            assert_eq!(self.nth(spot.index), spot, "a place");
            assert_eq!(self.find(hash, &name), Some(spot), "a fingerprint, or a name twice");
            assert!(names.insert(name), "a name twice");
            spot = Spot { index: spot.index + 1, at: self.end(spot) };
        }
        assert_eq!(spot.at, self.bytes.len(), "as many records as counted");
    }
}

/// [`Records::hits`] when fewer bytes are left than are compared at once.
#[cold]
fn hits_at_end(held: &[u8], fingerprint: u8) -> u64 {
    let mut wide = [0; WIDE];
    wide[..held.len()].copy_from_slice(held);
    lanes::matches(&wide, fingerprint)
}

/// Starts a pack without records, with `name` as its prefix if it is stored as text.
pub(super) fn begin(bytes: &mut Vec<u8>, kind: u8, name: &[u8]) {
    let prefix = match Packed::of(name) {
        Packed::Raw(name) => name,
        _ => &[],
    };
    begin_with(bytes, kind, 0, prefix);
}

/// Writes the head of a pack.
pub(super) fn begin_with(bytes: &mut Vec<u8>, kind: u8, count: usize, prefix: &[u8]) {
    assert!(prefix.len() <= KEY_INLINE_MAX, "a name that no pack can hold");
    bytes.clear();
    bytes.extend_from_slice(&[kind, count as u8, prefix.len() as u8]);
    bytes.extend_from_slice(prefix);
}

/// Appends a record with a new name. Returns false, without a change, if the pack would get too
/// large.
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
    let (before, index) = (records.shape, records.shape.count);
    let after = before.with(index + 1);
    let front = after.texts_at - before.texts_at;
    let more = front + name.body_len() + value.map_or(0, Tagged::body_len);
    if bytes.len() + more > BYTES_MAX {
        return false;
    }
    super::reserve(bytes, more);
    make_room(bytes, before, after);
    let (at, tags_at) = (bytes.len(), after.tags_of(index));
    bytes[tags_at] = name.tag();
    name.write_body(bytes);
    if let Some(value) = value {
        bytes[tags_at + 1] = value.tag();
        value.write_body(bytes);
    }
    if after.has_index() {
        if !before.has_index() {
            write_index(bytes, index);
        }
        note(bytes, Spot { index, at }, hash);
    }
    true
}

/// Makes room before the texts for the new record's tags and index.
fn make_room(bytes: &mut Vec<u8>, before: Shape, after: Shape) {
    let len = bytes.len();
    bytes.resize(len + after.texts_at - before.texts_at, 0);
    bytes.copy_within(before.texts_at..len, after.texts_at);
    bytes.copy_within(before.tags_at..before.texts_at, after.tags_at);
    bytes.copy_within(before.places_at..before.tags_at, after.places_at);
    bytes[1] = after.count as u8;
}

/// Writes fingerprints and places of the first records; the room must exist.
fn write_index(bytes: &mut [u8], records: usize) {
    let mut spot = Spot { index: 0, at: Shape::of(bytes).texts_at };
    while spot.index < records {
        let here = Records::of(bytes);
        let (hash, end) = (here.record(spot).key().hash(), here.end(spot));
        note(bytes, spot, hash);
        spot = Spot { index: spot.index + 1, at: end };
    }
}

/// Adds a record to the index.
pub(super) fn note(bytes: &mut [u8], spot: Spot, hash: u64) {
    bytes[Shape::of(bytes).index_at + spot.index] = fingerprint(hash);
    if spot.index.is_multiple_of(STEP) {
        set_first(bytes, spot.index / STEP, spot.at);
    }
}

/// Sets the place of the first record of a step.
fn set_first(bytes: &mut [u8], step: usize, at: usize) {
    let shape = Shape::of(bytes);
    let place = ((at - shape.texts_at) as u16).to_le_bytes();
    bytes[shape.places_at + step * PLACE..][..PLACE].copy_from_slice(&place);
}

/// Replaces the value of the record at `spot`. Returns false, without a change, if the pack would
/// get too large.
pub(super) fn set_value(bytes: &mut Vec<u8>, spot: Spot, value: &Tagged<'_>) -> bool {
    let records = Records::of(bytes);
    let (at, end) = (records.name_end(spot), records.end(spot));
    let (before, after) = (end - at, value.body_len());
    if bytes.len() + after > BYTES_MAX + before {
        return false;
    }
    if before != after {
        super::reserve(bytes, after.saturating_sub(before));
        splice(bytes, at..end, after);
        move_steps(bytes, spot.index, after as isize - before as isize);
    }
    let tags_at = Shape::of(bytes).tags_of(spot.index);
    bytes[tags_at + 1] = value.tag();
    value.write_body_to(&mut bytes[at..at + after]);
    true
}

/// Adds `by` to the places of all steps after that of the record at this index.
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
    let (before, end) = (records.shape, records.end(spot));
    let after = before.with(before.count - 1);
    // The first record of each later step becomes the last one of the step before.
    for step in spot.index / STEP + 1..before.steps() {
        let at = Records { shape: before, bytes }.first_of(step);
        let next = Records { shape: before, bytes }.end(Spot { index: step * STEP, at });
        set_first(bytes, step, next - (end - spot.at));
    }
    if after.has_index() {
        let fingerprints = &mut bytes[before.index_at..before.places_at];
        fingerprints.copy_within(spot.index + 1.., spot.index);
    }
    let places_at = before.places_at;
    bytes.copy_within(places_at..places_at + after.steps() * PLACE, after.places_at);
    bytes.copy_within(before.tags_at..before.tags_of(spot.index), after.tags_at);
    let tags = before.tags_of(spot.index + 1)..before.texts_at;
    bytes.copy_within(tags, after.tags_of(spot.index));
    let front = before.texts_at - after.texts_at;
    bytes.copy_within(before.texts_at..spot.at, after.texts_at);
    bytes.copy_within(end.., spot.at - front);
    bytes.truncate(bytes.len() - front - (end - spot.at));
    bytes[1] = after.count as u8;
}

/// Shortens the prefix so that `name` has it, too. Returns false, without a change, if that takes
/// too much room.
fn fit_prefix(bytes: &mut Vec<u8>, name: &[u8]) -> bool {
    let Packed::Raw(name) = Packed::of(name) else { return true };
    let prefix = Records::of(bytes).prefix();
    let common = prefix.iter().zip(name).take_while(|(one, other)| one == other).count();
    common == prefix.len() || cut_prefix(bytes, common)
}

/// Shortens the prefix to `len`: the rest of it moves into the names.
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
    bytes.extend_from_slice(&old[records.shape.index_at..records.shape.texts_at]);
    let shape = Shape::of(bytes);
    let mut spot = Spot { index: 0, at: records.shape.texts_at };
    while spot.index < records.count() {
        if shape.has_index() && spot.index.is_multiple_of(STEP) {
            let here = bytes.len();
            set_first(bytes, spot.index / STEP, here);
        }
        let (tag_at, end) = (shape.tags_of(spot.index), records.end(spot));
        if let Some(len) = item::raw_len(bytes[tag_at]) {
            bytes[tag_at] = (len + lost.len()) as u8;
            bytes.extend_from_slice(lost);
        }
        bytes.extend_from_slice(&old[spot.at..end]);
        spot = Spot { index: spot.index + 1, at: end };
    }
    true
}

/// Replaces a range by one of length `len`, whose bytes the caller writes.
fn splice(bytes: &mut Vec<u8>, range: Range<usize>, len: usize) {
    let (end, old_len) = (range.start + len, bytes.len());
    if end > range.end {
        bytes.resize(old_len + end - range.end, 0);
    }
    bytes.copy_within(range.end..old_len, end);
    bytes.truncate(old_len + end - range.end);
}
