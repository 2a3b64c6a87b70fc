//! A byte string too long to lie in a table's page: reference-counted, in chunks when it is long.
//!
//! One contiguous block would make APPEND to 400 MB a copy of 400 MB, and a reader of a cut would
//! force that copy again. So a long string is a list of chunks of [`CHUNK_BYTES`], each shared by
//! the value, its cuts, and the sockets that are sending it; a writer copies one chunk at most, and
//! only if it is shared. Chunks are grouped, so that a cut counts up 128 groups and not 8 192
//! chunks, whose counts are all cold.
//!
//! ```text
//! One:   |exact bytes|                                     up to a chunk
//! Many:  groups: * * *                                     `len` counts bytes
//!                | | +-> |chunk|chun....|                  the last chunk is padded with zeros
//!                | +---> |chunk|chunk|...|chunk|           64 chunks: 4 MiB
//!                +-----> |chunk|chunk|...|chunk|
//! ```
//! Invariants:
//! - I1: `One` holds at most [`CHUNK_BYTES`].
//! - I2: in `Many` every chunk is [`CHUNK_BYTES`] long, there are as many as `len` needs, and all
//!   groups but the last are full. Bytes beyond `len` are zeros.
//!
//! Cloning is a cut: O(groups), a few microseconds for 512 MiB. Dropping one above
//! [`DEFERRED_BYTES_MIN`] defers it.

use crate::kept;
use crate::lazyfree::{self, Dismantle};
use crate::owner::Owner;
use crate::table::Target;
use darter_base::limits::CHUNK_BYTES;
use std::ops::Range;
use std::sync::Arc;

/// Two reference counts precede every chunk, and a fat pointer leads to it.
const CHUNK_OVERHEAD_BYTES: usize = 32;
/// Chunks in a group.
const GROUP_CHUNKS: usize = 64;
/// Chunks freed at once. A free of 64 KiB may return the memory to the system, which takes longest.
const CHUNKS_FREED_AT_ONCE: usize = 4;
/// Shorter strings are freed where they are dropped.
const DEFERRED_BYTES_MIN: usize = 16 * 1024;

/// Up to [`GROUP_CHUNKS`] chunks.
type Group = Vec<Arc<[u8]>>;

/// See the module.
#[derive(Clone, Debug)]
pub struct Blob(Repr);

#[derive(Clone, Debug)]
enum Repr {
    One(Arc<[u8]>),
    Many(Box<Chunks>),
}

#[derive(Clone, Debug)]
struct Chunks {
    groups: Vec<Arc<Group>>,
    len: usize,
    owner: Owner,
}

impl Target for Blob {}

impl Default for Blob {
    fn default() -> Self {
        Self(Repr::One(Arc::from(&[][..])))
    }
}

impl Drop for Blob {
    fn drop(&mut self) {
        match &mut self.0 {
            Repr::One(bytes)
                if bytes.len() >= DEFERRED_BYTES_MIN && Arc::strong_count(bytes) == 1 =>
            {
                lazyfree::defer(Box::new(Chunk(Arc::clone(bytes))));
            }
            Repr::One(_) => {}
            Repr::Many(chunks) => {
                let groups = std::mem::take(&mut chunks.groups);
                lazyfree::defer(Box::new(Groups { groups, owner: chunks.owner.retire() }));
            }
        }
    }
}

/// The only chunk of a dropped blob.
struct Chunk(Arc<[u8]>);

impl Dismantle for Chunk {
    fn dismantle(&mut self) -> bool {
        false // The drop frees it.
    }

    fn bytes(&self) -> usize {
        self.0.len() + CHUNK_OVERHEAD_BYTES
    }
}

/// The chunks of a dropped blob.
struct Groups {
    groups: Vec<Arc<Group>>,
    owner: Owner,
}

impl Dismantle for Groups {
    fn dismantle(&mut self) -> bool {
        // A shared group is for its other owner to free.
        if let Some(chunks) = self.groups.last_mut().and_then(Arc::get_mut) {
            chunks.truncate(chunks.len().saturating_sub(CHUNKS_FREED_AT_ONCE));
            if !chunks.is_empty() {
                return true;
            }
        }
        self.groups.pop();
        !self.groups.is_empty()
    }

    fn bytes(&self) -> usize {
        if self.owner.is_shared() {
            return 0; // The shared part stays, which may be all.
        }
        let last = self.groups.last().map_or(0, |chunks| chunks.len());
        let full = self.groups.len().saturating_sub(1) * GROUP_CHUNKS;
        (full + last) * (CHUNK_BYTES + CHUNK_OVERHEAD_BYTES)
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        if bytes.len() <= CHUNK_BYTES {
            return Self(Repr::One(Arc::from(bytes)));
        }
        let mut blob = Self(Repr::Many(Box::new(Chunks::of(Vec::new(), 0))));
        blob.write_at(0, bytes);
        blob
    }
}

impl Blob {
    /// A blob of chunks as the protocol's parser gathers them: all but the last of [`CHUNK_BYTES`].
    /// They are shared; only the last is copied.
    #[must_use]
    pub fn from_chunks(chunks: &[Arc<[u8]>]) -> Self {
        if let [only] = chunks {
            assert!(only.len() <= CHUNK_BYTES, "I1: a chunk of {}", only.len());
            return Self(Repr::One(Arc::clone(only)));
        }
        let mut blob = Self::default();
        blob.push_chunks(chunks);
        blob
    }

    /// Appends chunks as for [`Blob::from_chunks`], to a blob that ends with a full chunk. Cost:
    /// O(chunks), and a copy of the last if it is short.
    pub fn push_chunks(&mut self, chunks: &[Arc<[u8]>]) {
        assert!(self.len().is_multiple_of(CHUNK_BYTES), "len={}", self.len());
        let (groups, len) = self.chunked();
        let short = chunks.last().filter(|last| last.len() < CHUNK_BYTES);
        let full = &chunks[..chunks.len() - usize::from(short.is_some())];
        for chunk in full {
            assert_eq!(chunk.len(), CHUNK_BYTES, "a short chunk amid the blob");
            push(groups, Arc::clone(chunk));
        }
        *len += full.len() * CHUNK_BYTES;
        check_groups(groups, *len);
        if let Some(short) = short {
            self.append(short);
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::One(bytes) => bytes.len(),
            Repr::Many(chunks) => chunks.len,
        }
    }

    /// A cut for a long-lived reader, which does not count as an owner of the value.
    #[must_use]
    pub fn reader(&self) -> Self {
        let mut cut = self.clone();
        if let Repr::Many(chunks) = &mut cut.0 {
            chunks.owner = chunks.owner.reader();
        }
        cut
    }

    /// Bytes that a [`Blob::reader`] keeps alive of a value that only readers still hold; 0 while
    /// the value exists, whatever has become of it since. A single chunk is held by its last reader
    /// only.
    #[must_use]
    pub fn pinned_bytes(&self) -> usize {
        let is_gone = match &self.0 {
            Repr::One(bytes) => Arc::strong_count(bytes) == 1,
            Repr::Many(chunks) => chunks.owner.is_gone(),
        };
        if is_gone { self.memory_bytes() } else { 0 }
    }

    /// True when there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held, shared or not. Depends on the length only.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Repr::One(bytes) => bytes.len() + CHUNK_OVERHEAD_BYTES,
            Repr::Many(chunks) => {
                chunks.len.div_ceil(CHUNK_BYTES) * (CHUNK_BYTES + CHUNK_OVERHEAD_BYTES)
            }
        }
    }

    /// Number of pieces of the blob.
    #[must_use]
    pub fn pieces(&self) -> usize {
        match &self.0 {
            Repr::One(_) => 1,
            Repr::Many(chunks) => chunks.len.div_ceil(CHUNK_BYTES),
        }
    }

    /// A piece and the range of it that belongs to the blob, to be shared with a socket.
    ///
    /// Panics unless `index` is below [`Blob::pieces`].
    #[must_use]
    pub fn piece(&self, index: usize) -> (&Arc<[u8]>, Range<usize>) {
        match &self.0 {
            Repr::One(bytes) => {
                assert_eq!(index, 0, "a blob of one piece");
                (bytes, 0..bytes.len())
            }
            Repr::Many(chunks) => {
                let Chunks { groups, len, .. } = &**chunks;
                assert!(index * CHUNK_BYTES < *len, "piece {index} of {len} bytes");
                let chunk = &groups[index / GROUP_CHUNKS][index % GROUP_CHUNKS];
                (chunk, 0..CHUNK_BYTES.min(len - index * CHUNK_BYTES))
            }
        }
    }

    /// True when others hold the piece, too: writing to it copies it.
    ///
    /// Panics unless `index` is below [`Blob::pieces`].
    #[must_use]
    pub fn is_shared(&self, index: usize) -> bool {
        let group = match &self.0 {
            Repr::One(_) => None,
            Repr::Many(chunks) => Some(&chunks.groups[index / GROUP_CHUNKS]),
        };
        let is_shared = group.is_some_and(|group| Arc::strong_count(group) > 1);
        is_shared || Arc::strong_count(self.piece(index).0) > 1
    }

    /// The pieces that hold `range`, in order, each with its part of the range.
    pub fn slices(&self, range: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let end = range.end.min(self.len());
        let first = range.start / CHUNK_BYTES;
        let last = if range.start < end { (end - 1) / CHUNK_BYTES + 1 } else { first };
        (first..last).map(move |index| {
            let (piece, _) = self.piece(index);
            let from = range.start.saturating_sub(index * CHUNK_BYTES);
            &piece[from..(end - index * CHUNK_BYTES).min(CHUNK_BYTES)]
        })
    }

    /// The byte at `index`, if there is one. Cost: O(1).
    #[inline]
    #[must_use]
    pub fn byte(&self, index: usize) -> Option<u8> {
        let is_there = index < self.len();
        is_there.then(|| self.piece(index / CHUNK_BYTES).0[index % CHUNK_BYTES])
    }

    /// All bytes, if they are one piece.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[u8]> {
        match &self.0 {
            Repr::One(bytes) => Some(bytes),
            Repr::Many(_) => None,
        }
    }

    /// All bytes as one piece. Cost: O(len): not for long blobs on a core.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        self.slices(0..self.len()).for_each(|piece| all.extend_from_slice(piece));
        all
    }

    /// Appends `bytes`. Cost: O(bytes), and a copy of the last chunk when that is shared.
    pub fn append(&mut self, bytes: &[u8]) {
        self.write_at(self.len(), bytes);
    }

    /// Overwrites from `offset` on; a gap before it is filled with zeros.
    ///
    /// Cost: O(bytes + groups of the gap), and a copy of each touched chunk that is shared.
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if let Repr::One(old) = &mut self.0
            && end.max(old.len()) <= CHUNK_BYTES
        {
            write_short(old, offset, bytes);
            return;
        }
        let (groups, len) = self.chunked();
        *len = end.max(*len);
        grow(groups, offset / CHUNK_BYTES, len.div_ceil(CHUNK_BYTES));
        check_groups(groups, *len);
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let (index, from) = (at / CHUNK_BYTES, at % CHUNK_BYTES);
            let (now, later) = rest.split_at(rest.len().min(CHUNK_BYTES - from));
            let group = Arc::make_mut(&mut groups[index / GROUP_CHUNKS]);
            let chunk = &mut group[index % GROUP_CHUNKS];
            if Arc::strong_count(chunk) > 1 {
                kept::note_part(CHUNK_BYTES);
            }
            let chunk = Arc::make_mut(chunk);
            chunk[from..from + now.len()].copy_from_slice(now);
            at += now.len();
            rest = later;
        }
    }

    fn chunked(&mut self) -> (&mut Vec<Arc<Group>>, &mut usize) {
        if let Repr::One(bytes) = &self.0 {
            let len = bytes.len();
            assert!(len <= CHUNK_BYTES, "I1: one piece of {len}");
            let mut first = vec![0; CHUNK_BYTES];
            first[..len].copy_from_slice(bytes);
            let groups = if len == 0 { Vec::new() } else { vec![Arc::new(vec![Arc::from(first)])] };
            self.0 = Repr::Many(Box::new(Chunks::of(groups, len)));
        }
        match &mut self.0 {
            Repr::Many(chunks) => (&mut chunks.groups, &mut chunks.len),
            Repr::One(_) => unreachable!("converted above"),
        }
    }
}

impl Chunks {
    /// The groups of a value.
    fn of(groups: Vec<Arc<Group>>, len: usize) -> Self {
        Self { groups, len, owner: Owner::new() }
    }
}

/// Writes into a string of one piece, which stays one.
fn write_short(old: &mut Arc<[u8]>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if end <= old.len() {
        Arc::make_mut(old)[offset..end].copy_from_slice(bytes);
        return;
    }
    debug_assert!(end <= CHUNK_BYTES, "I1: one piece of {end}");
    let mut new = Vec::with_capacity(end);
    new.extend_from_slice(&old[..offset.min(old.len())]);
    new.resize(offset, 0);
    new.extend_from_slice(bytes);
    *old = Arc::from(new);
}

/// I2, but for the lengths of chunks: as many as `len` needs, in groups that are full but for the last.
/// Cost: O(1).
fn check_groups(groups: &[Arc<Group>], len: usize) {
    let chunks = len.div_ceil(CHUNK_BYTES);
    assert_eq!(groups.len(), chunks.div_ceil(GROUP_CHUNKS), "I2: groups of {len} bytes");
    let last = groups.last().map_or(0, |last| last.len());
    let full = groups.len().saturating_sub(1) * GROUP_CHUNKS;
    assert_eq!(full + last, chunks, "I2: chunks of {len} bytes");
    debug_assert!(groups.iter().rev().skip(1).all(|group| group.len() == GROUP_CHUNKS), "I2");
}

/// Appends chunks of zeros until there are `count`. Those before `written` are a gap: they share
/// one chunk, and its whole groups share one group, so that a gap of 512 MiB costs 64 KiB until it
/// is written to.
fn grow(groups: &mut Vec<Arc<Group>>, written: usize, count: usize) {
    let mut have = groups.last().map_or(0, |last| (groups.len() - 1) * GROUP_CHUNKS + last.len());
    let mut zeros: Option<Arc<[u8]>> = None;
    let mut gap: Option<Arc<Group>> = None;
    while have < count {
        let zeros = zeros.get_or_insert_with(|| Arc::new([0; CHUNK_BYTES]));
        if have.is_multiple_of(GROUP_CHUNKS) && have + GROUP_CHUNKS <= written {
            let gap = gap.get_or_insert_with(|| Arc::new(vec![Arc::clone(zeros); GROUP_CHUNKS]));
            groups.push(Arc::clone(gap));
            have += GROUP_CHUNKS;
            continue;
        }
        push(groups, if have < written { Arc::clone(zeros) } else { Arc::new([0; CHUNK_BYTES]) });
        have += 1;
    }
}

/// Appends a chunk to the last group, or to a new one.
fn push(groups: &mut Vec<Arc<Group>>, chunk: Arc<[u8]>) {
    match groups.last_mut().filter(|last| last.len() < GROUP_CHUNKS) {
        Some(last) => Arc::make_mut(last).push(chunk),
        None => {
            let mut group = Vec::with_capacity(GROUP_CHUNKS);
            group.push(chunk);
            groups.push(Arc::new(group));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    #[test] // Cuts do not change.
    fn random_writes_to_a_blob_agree_with_a_vector() {
        for seed in 0..20 {
            let mut prng = Prng::from_seed(seed);
            let (mut blob, mut model) = (Blob::default(), Vec::new());
            let mut cuts = Vec::new();
            for step in 0..60 {
                let bytes = prng.bytes(0..=40_000);
                let offset = match prng.below(3) {
                    0 => model.len(),
                    _ => usize::try_from(prng.below(model.len() as u64 + 3_000)).unwrap(),
                };
                blob.write_at(offset, &bytes);
                if !bytes.is_empty() || offset > model.len() {
                    model.resize(model.len().max(offset + bytes.len()), 0);
                    model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
                assert_eq!(blob.len(), model.len(), "seed {seed} step {step}");
                let from = usize::try_from(prng.below(model.len() as u64 + 1)).unwrap();
                let part: Vec<u8> = blob.slices(from..from + 100_000).flatten().copied().collect();
                assert_eq!(part, model[from..model.len().min(from + 100_000)]);
                assert_eq!(blob.byte(from), model.get(from).copied());
                if prng.chance(20) {
                    cuts.push((blob.clone(), model.clone()));
                }
            }
            assert_eq!(blob.to_vec(), model);
            for (cut, expected) in cuts {
                assert_eq!(cut.to_vec(), expected, "a cut has changed");
            }
        }
    }

    #[test] // Creating a gap is cheap.
    fn gaps_read_as_zeros_and_are_written_independently() {
        let mut blob = Blob::from(&b"begin"[..]);
        let far = 5 * GROUP_CHUNKS * CHUNK_BYTES + 5 * CHUNK_BYTES + 77;
        blob.write_at(far, b"end");
        assert_eq!(blob.len(), far + 3);
        let cut = blob.clone();
        let places =
            [70 * CHUNK_BYTES - 3, 71 * CHUNK_BYTES + 9, 140 * CHUNK_BYTES, far - CHUNK_BYTES];
        for place in places {
            blob.write_at(place, b"middle");
        }
        let mut expected = vec![0; far + 3];
        expected[..5].copy_from_slice(b"begin");
        expected[far..].copy_from_slice(b"end");
        assert!(cut.to_vec() == expected, "the cut has changed");
        for place in places {
            expected[place..place + 6].copy_from_slice(b"middle");
        }
        assert!(blob.to_vec() == expected);
        assert_eq!(blob.pieces(), blob.len().div_ceil(CHUNK_BYTES));
        drop(blob);
        drop(cut);
        assert!(!lazyfree::is_empty(), "long blobs are freed in portions");
        while lazyfree::run(&darter_base::preempt::Never) {}
    }

    #[test]
    fn pieces_are_shared_until_a_holder_writes() {
        for len in [100, 200 * CHUNK_BYTES] {
            let mut blob = Blob::from(&vec![7; len][..]);
            let shared = |blob: &Blob| (0..blob.pieces()).filter(|at| blob.is_shared(*at)).count();
            assert_eq!(shared(&blob), 0);
            let cut = blob.clone();
            assert_eq!((shared(&blob), shared(&cut)), (blob.pieces(), blob.pieces()));
            blob.write_at(len / 2, &[1]);
            assert_eq!(shared(&blob), blob.pieces() - 1);
            drop(cut);
            while lazyfree::run(&darter_base::preempt::Never) {}
            assert_eq!(shared(&blob), 0);
        }
    }

    #[test]
    fn parser_chunks_become_a_blob_without_copying() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let chunks: Vec<Arc<[u8]>> = bytes.chunks(CHUNK_BYTES).map(Arc::from).collect();
        assert_eq!(Blob::from_chunks(&chunks).to_vec(), bytes);
        assert_eq!(Blob::from(&bytes[..]).to_vec(), bytes);
    }

    #[test] // And of all copies.
    fn a_reader_pins_a_blob_only_after_its_deletion() {
        for len in [1_000, 10 * CHUNK_BYTES] {
            let value = Blob::from(&vec![7; len][..]);
            let (reader, copy) = (value.reader(), value.clone());
            assert_eq!(reader.pinned_bytes(), 0, "{len}: it is there");
            drop(value);
            assert_eq!(reader.pinned_bytes(), 0, "{len}: its copy is there");
            drop(copy);
            assert_eq!(reader.pinned_bytes(), reader.memory_bytes(), "{len}: it is gone");
            let other = reader.reader();
            let each = if len > CHUNK_BYTES { reader.memory_bytes() } else { 0 };
            assert_eq!((reader.pinned_bytes(), other.pinned_bytes()), (each, each), "{len}");
        }
    }

    #[test]
    fn only_the_last_owner_reports_bytes_to_free() {
        let value = Blob::from(&vec![7; 10 * CHUNK_BYTES][..]);
        let (reader, bytes) = (value.reader(), value.memory_bytes());
        drop(value);
        assert_eq!(lazyfree::waiting(), (1, 0), "the reader has all of it");
        while lazyfree::run(&darter_base::preempt::Never) {}
        drop(reader);
        assert_eq!(lazyfree::waiting(), (1, bytes));
        while lazyfree::run(&darter_base::preempt::Never) {}
        assert_eq!(lazyfree::waiting(), (0, 0));
    }
}
