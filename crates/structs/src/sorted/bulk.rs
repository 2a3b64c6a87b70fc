//! Builds a sorted set from very many entries in any order, in steps.
//!
//! Adding a single entry searches two trees, with cache misses that take ten times as long as the
//! work. Here entries are first collected, and distributed to buckets by their hashes. Then each
//! bucket is sorted: duplicate members become adjacent, and the index is written in order. Then the
//! entries are sorted by score, in runs that are merged, and are also written in order.
//!
//! ```text
//! push    texts: the members   gathered: score, where its text is     buckets: hash, score, number
//! step 1  buckets, one by one  -> index                               twice: the scores are merged
//! step 2  gathered             -> runs of 1 024, sorted, then merged two by two
//! step 3  the only run         -> entries
//! ```
//! Input in the order of scores, ascending as from a sorted set that is read or descending as in a
//! file, becomes runs that are simply concatenated. Distinct members, as in a file, are not even
//! collected while they arrive in order, but written directly (`straight`). Then only the index is
//! left, for which all members are in buckets.
//!
//! Everything is stored in blocks, so that nothing moves when it grows, and blocks are freed once
//! they have been used. A step is bounded by the number of entries and by their members' bytes. A
//! bucket that is too large for one step is split by further bits of the hashes.

use super::big::Big;
use super::bucket::{BUCKET, Blocks, Bucket, Hashed, Opened, Parting};
use super::index::{self, Hash, Items};
use super::item::{Entries, INLINE_MAX, New};
use super::scan::ordered;
use super::straight::Straight;
use super::{Root, Sorted};
use crate::lazyfree::{self, Dismantle};
use crate::owner::Owner;
use crate::table::{Scratch, Text};
use crate::tree::{Appender, defer, is_worth_deferring};
use darter_base::long::Long;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// The most buckets: this many write streams stay in the nearest caches.
const BUCKETS_MAX: usize = 1 << 8;
/// Entries in a block, and in an initial run, which is sorted in one step.
const BLOCK: usize = 1_024;
/// Bytes of a block of texts.
const TEXTS: usize = 64 * 1024;
/// Entries that are merged or written in one step.
const STEP: usize = 256;
/// The largest allowed bucket of distinct members, as a multiple of the average. The chance that
/// hashes exceed it is below 2^-1000.
const OVERFULL: usize = 8;
/// Bytes of members that are sorted, compared or written in one step.
const STEP_BYTES: usize = 64 * 1024;
/// Marks a text that is the number of a long member.
const LONG: u16 = u16::MAX;
/// Blocks freed in one step, and blocks of texts, which are larger.
const RELEASED: usize = 16;
const RELEASED_TEXTS: usize = 2;
/// The most blocks and runs for which places are reserved at once: enough for 64 M entries; unused
/// pages are not touched.
const PLACES_MAX: usize = 1 << 16;

const _: () = assert!(INLINE_MAX < LONG as usize);

/// An entry as it was added.
#[derive(Clone, Copy)]
struct Gathered {
    /// NaN if the entry was merged into another.
    score: f64,
    text: u64,
}

/// An entry for sorting by score.
#[derive(Clone, Copy)]
struct Scored {
    /// The score, mapped to an integer of the same order.
    order: i64,
    score: f64,
    text: u64,
}

/// The members' bytes.
#[derive(Default)]
struct Texts {
    blocks: Vec<Vec<u8>>,
    longs: Vec<Long>,
    long_bytes: usize,
}

impl Texts {
    fn push(&mut self, hash: u64, member: &[u8]) -> u64 {
        let number;
        let (len, bytes) = if member.len() <= INLINE_MAX {
            (member.len() as u16, member)
        } else {
            number = (self.longs.len() as u64).to_le_bytes();
            self.longs.push(Long::new(member, hash));
            self.long_bytes += Long::bytes_for(member.len());
            (LONG, &number[..])
        };
        let need = size_of::<u16>() + bytes.len();
        if self.blocks.last().is_none_or(|block| block.len() + need > TEXTS) {
            self.blocks.push(Vec::with_capacity(TEXTS));
        }
        let index = self.blocks.len() - 1;
        let block = &mut self.blocks[index];
        let text = (index << 32 | block.len()) as u64;
        block.extend_from_slice(&len.to_le_bytes());
        block.extend_from_slice(bytes);
        text
    }

    /// A member: its bytes, or a long name.
    #[inline]
    fn find(&self, text: u64) -> Result<&[u8], &Long> {
        let bytes = &self.blocks[(text >> 32) as usize][text as u32 as usize..];
        let (len, bytes) = bytes.split_first_chunk().expect("a length is complete");
        match u16::from_le_bytes(*len) {
            LONG => {
                let number = bytes.first_chunk().expect("a number is complete");
                Err(&self.longs[u64::from_le_bytes(*number) as usize])
            }
            len => Ok(&bytes[..usize::from(len)]),
        }
    }

    #[inline]
    fn get(&self, text: u64) -> &[u8] {
        self.find(text).unwrap_or_else(|long| long)
    }

    fn bytes(&self) -> usize {
        self.blocks.len() * TEXTS + self.long_bytes
    }

    fn compare(&self, one: &Scored, other: &Scored) -> Ordering {
        let scores = one.order.cmp(&other.order);
        scores.then_with(|| self.get(one.text).cmp(self.get(other.text)))
    }
}

/// Sorted entries, in blocks.
#[derive(Default)]
struct Run {
    blocks: VecDeque<Vec<Scored>>,
    /// The index of the next entry in the first block.
    at: usize,
}

impl Run {
    fn first(&self) -> Option<&Scored> {
        self.blocks.front().map(|block| &block[self.at])
    }

    fn last(&self) -> Option<&Scored> {
        self.blocks.back()?.last()
    }

    #[inline]
    fn advance(&mut self) {
        self.at += 1;
        if self.blocks.front().is_some_and(|block| block.len() == self.at) {
            self.blocks.pop_front();
            self.at = 0;
        }
    }

    #[inline]
    fn push(&mut self, entry: Scored) {
        match self.blocks.back_mut().filter(|block| block.len() < BLOCK) {
            Some(block) => block.push(entry),
            None => {
                let mut block = Vec::with_capacity(BLOCK);
                block.push(entry);
                self.blocks.push_back(block);
            }
        }
    }

    /// Appends the rest of another run.
    fn append(&mut self, mut other: Self) {
        if let Some(block) = other.blocks.front_mut() {
            block.drain(..other.at);
        }
        self.blocks.append(&mut other.blocks);
    }
}

/// Everything that is held until the set is built.
#[derive(Default)]
struct Stuff {
    texts: Texts,
    gathered: Vec<Vec<Gathered>>,
    buckets: Vec<Blocks>,
    /// The parts of a bucket that was too large, the last first, and a bucket being split.
    parts: Vec<Bucket>,
    parting: Option<Parting>,
    /// The current bucket, sorted, and the number of its processed entries.
    open: (Vec<Hashed>, usize),
    /// Sorted runs to be merged, in order; and merged ones, of twice the length.
    runs: VecDeque<Run>,
    merged: VecDeque<Run>,
    /// Two runs that are being merged, and the result so far.
    merging: Option<[Run; 3]>,
}

impl Stuff {
    /// A list with room for this many blocks of entries: moving the list itself for ten million
    /// entries would take too long.
    fn for_blocks(blocks: usize) -> Self {
        let mut stuff = Self::default();
        stuff.texts.blocks.reserve(blocks);
        stuff.gathered.reserve(blocks);
        stuff.runs.reserve(blocks);
        stuff.merged.reserve(blocks);
        stuff
    }

    #[inline]
    fn gather(&mut self, entry: Gathered) {
        if self.gathered.last().is_none_or(|block| block.len() == BLOCK) {
            self.gathered.push(Vec::with_capacity(BLOCK));
        }
        self.gathered.last_mut().expect("just made").push(entry);
    }
}

impl Dismantle for Stuff {
    fn dismantle(&mut self) -> bool {
        for _ in 0..RELEASED {
            let run = self.runs.pop_front().or_else(|| self.merged.pop_front());
            if let Some(mut run) = run {
                if run.blocks.pop_front().is_some() {
                    self.runs.push_front(run);
                }
                continue;
            }
            let bucket = self.parts.pop().map(Bucket::into_blocks);
            self.buckets.extend(bucket);
            if let Some(last) = self.buckets.last_mut() {
                if !last.free_one() {
                    self.buckets.pop();
                }
                continue;
            }
            if self.gathered.pop().is_none() && self.texts.longs.pop().is_none() {
                let left = self.texts.blocks.len().saturating_sub(RELEASED_TEXTS);
                self.texts.blocks.truncate(left);
                return left > 0;
            }
        }
        true
    }

    fn bytes(&self) -> usize {
        self.texts.bytes()
    }
}

/// Builds a sorted set; see the module's documentation.
pub struct SortedBuilder {
    stuff: Stuff,
    /// The number of hash bits below those that select the bucket.
    shift: u32,
    /// How many times a member must have been added to belong to the set.
    times: usize,
    /// The most entries of a bucket, if duplicate members are not allowed.
    bucket_max: Option<usize>,
    is_overfull: bool,
    /// The first members, if all arrived in order, and duplicates are not allowed.
    straight: Option<Straight>,
    /// The number of all entries, including those.
    len: u64,
    /// The number of opened buckets.
    indexed: usize,
    /// The number of sorted blocks, and of sorted entries in the next one.
    sorted: usize,
    sorted_of_next: usize,
    index: Appender<Items>,
    entries: Appender<Entries>,
}

impl SortedBuilder {
    /// A builder for about `len` entries.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self::of_common(len, 1)
    }

    /// A builder for members that should be distinct, but may repeat: see
    /// [`SortedBuilder::is_overfull`]. A duplicate merges two scores, and makes the result useless.
    #[must_use]
    pub fn of_different(len: usize) -> Self {
        let mut builder = Self::new(len);
        builder.bucket_max = Some(OVERFULL * BUCKET.max(len / builder.stuff.buckets.len()));
        builder.straight = Some(Straight::default());
        builder
    }

    /// A builder that keeps only members added `times` times: for an intersection of that many
    /// sets.
    #[must_use]
    pub fn of_common(len: usize, times: usize) -> Self {
        let buckets = (len / BUCKET).clamp(2, BUCKETS_MAX).next_power_of_two();
        let mut stuff = Stuff::for_blocks((len / BLOCK).min(PLACES_MAX));
        stuff.buckets.resize_with(buckets, Blocks::default);
        let (index, entries) = (Appender::default(), Appender::default());
        let shift = u64::BITS - buckets.trailing_zeros();
        let (len, indexed, sorted, sorted_of_next) = (0, 0, 0, 0);
        Self {
            stuff,
            shift,
            times,
            bucket_max: None,
            is_overfull: false,
            straight: None,
            len,
            indexed,
            sorted,
            sorted_of_next,
            index,
            entries,
        }
    }

    /// True if duplicate members have been detected; then nothing more should be added.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.is_overfull
    }

    /// Adds an entry; the score must not be NaN. Cost: O(1); a long member is copied, unless it is
    /// already in its own block.
    pub fn push(&mut self, hash: u64, member: &[u8], score: f64) {
        assert!(!score.is_nan(), "a score is a number");
        let bucket = (hash >> self.shift) as usize;
        if self.bucket_max.is_some_and(|max| self.stuff.buckets[bucket].len() >= max) {
            self.is_overfull = true;
            return;
        }
        self.stuff.buckets[bucket].push(Hashed { hash, score, number: self.len });
        self.len += 1;
        if !self.straight.as_mut().is_some_and(|straight| straight.push(hash, member, score)) {
            let text = self.stuff.texts.push(hash, member);
            self.stuff.gather(Gathered { score, text });
        }
    }

    /// True if memory was allocated only for the index.
    #[cfg(test)]
    pub(super) fn is_straight(&self) -> bool {
        self.stuff.gathered.is_empty()
    }

    /// Bytes of memory held, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let gathered = self.stuff.gathered.len() * BLOCK * size_of::<Gathered>();
        let straight = self.straight.as_ref().map_or(0, Straight::memory_bytes);
        let hashed = self.len as usize * size_of::<Hashed>();
        self.stuff.texts.bytes() + gathered + straight + hashed
    }

    /// Does a portion of the work, after all entries have been added. If a member was added several
    /// times, `merge` combines its earlier and its later score. Returns true while work is left.
    ///
    /// Cost: a portion.
    pub fn step(&mut self, merge: &dyn Fn(f64, f64) -> f64) -> bool {
        if self.gather_again() {
        } else if self.stuff.open.1 < self.stuff.open.0.len() {
            self.index_some(merge);
        } else if self.open_bucket() {
        } else if self.sorted < self.stuff.gathered.len() {
            self.sort_some();
        } else if self.stuff.runs.len() + self.stuff.merged.len() > 1
            || self.stuff.merging.is_some()
        {
            self.merge_some();
        } else {
            self.stuff.runs.append(&mut self.stuff.merged);
            return self.write_some();
        }
        true
    }

    /// Collects some of the entries that were written directly, because later ones were not in
    /// order. Returns false if there are none.
    fn gather_again(&mut self) -> bool {
        let Self { straight, stuff, .. } = self;
        let Some(straight) = straight else { return false };
        straight.close();
        let is_to_be_read = straight.is_to_be_read();
        if is_to_be_read {
            straight.read(|entry| {
                // None of them is long, so the hash is not used.
                let text = stuff.texts.push(0, entry.member.bytes(&mut Scratch::new()));
                stuff.gather(Gathered { score: entry.score, text });
            });
        }
        is_to_be_read
    }

    /// The set, once no work is left.
    #[must_use]
    pub fn finish(mut self) -> Sorted {
        let written = self.straight.as_mut().and_then(Straight::take);
        let entries = written.or_else(|| std::mem::take(&mut self.entries).finish());
        let index = std::mem::take(&mut self.index).finish();
        if entries.is_none() {
            return Sorted::new();
        }
        let mut set = Sorted(Root::Trees(Box::new(Big::of_trees(entries, index))));
        set.shrink();
        set
    }

    /// Sorts the next bucket, or splits it. Returns false if there is none.
    fn open_bucket(&mut self) -> bool {
        let stuff = &mut self.stuff;
        if let Some(mut parting) = stuff.parting.take() {
            if parting.step() {
                stuff.parting = Some(parting);
            } else {
                // Duplicates of one member cannot be split.
                let most = OVERFULL * BUCKET.max(parting.mean());
                let before = stuff.parts.len();
                stuff.parts.extend(parting.finish());
                let is_overfull = stuff.parts[before..].iter().any(|part| part.len() > most);
                self.is_overfull |= self.bucket_max.is_some() && is_overfull;
            }
            return true;
        }
        let next = stuff.parts.pop().or_else(|| {
            let entries = std::mem::take(stuff.buckets.get_mut(self.indexed)?);
            self.indexed += 1;
            Some(Bucket::new(entries, self.shift))
        });
        let Some(bucket) = next else { return false };
        assert!(stuff.open.1 == stuff.open.0.len(), "the bucket before is through");
        match bucket.open() {
            Opened::Sorted(entries) => stuff.open = (entries, 0),
            Opened::Parting(parting) => stuff.parting = Some(parting),
        }
        true
    }

    /// Writes some items of the current bucket to the index, and merges the scores of equal
    /// members.
    fn index_some(&mut self, merge: &dyn Fn(f64, f64) -> f64) {
        let (mut bucket, mut at) = std::mem::take(&mut self.stuff.open);
        let (end, mut compared) = (bucket.len().min(at + STEP), 0);
        while at < end && compared < STEP_BYTES {
            let alone = if self.times > 1 { 0 } else { alone(&bucket[at..], end - at) };
            if alone > 0 {
                let code = |one: Hashed| (index::code(Hash::of(one.hash), one.score), index::ITEM);
                self.index.push_words(&bucket[at..at + alone], code);
                at += alone;
                continue;
            }
            let (first, others) = bucket[at..].split_first_mut().expect("it is not through");
            if !first.score.is_nan() {
                let alike = others.iter().take_while(|other| other.hash == first.hash).count();
                compared += self.index_member(*first, &mut others[..alike], merge);
            }
            at += 1;
        }
        assert!(at <= bucket.len(), "at={at} len={}", bucket.len());
        self.stuff.open = (bucket, at);
    }

    /// Writes the item of a member to the index, which may be among others with its hash, too. Returns
    /// how many bytes were compared.
    fn index_member(
        &mut self,
        first: Hashed,
        others: &mut [Hashed],
        merge: &dyn Fn(f64, f64) -> f64,
    ) -> usize {
        let (mut score, mut times, mut compared) = (first.score, 1, 0);
        for other in others.iter_mut().filter(|other| !other.score.is_nan()) {
            if self.is_one_member(first.number, other.number, &mut compared) {
                score = merge(score, other.score);
                if self.bucket_max.is_some() {
                    // The result is useless, and the step is over.
                    return STEP_BYTES;
                }
                times += 1;
                other.score = f64::NAN;
                self.gathered(other.number).score = f64::NAN;
            }
        }
        assert!(!score.is_nan(), "a score is a number");
        if times < self.times {
            self.gathered(first.number).score = f64::NAN;
            return compared;
        }
        if times > 1 {
            self.gathered(first.number).score = score;
        }
        self.index.push(&index::code(Hash::of(first.hash), score));
        compared
    }

    /// The entry with this number; none may have been written directly.
    fn gathered(&mut self, number: u64) -> &mut Gathered {
        debug_assert!(self.straight.is_none(), "it would be elsewhere");
        let number = number as usize;
        &mut self.stuff.gathered[number / BLOCK][number % BLOCK]
    }

    /// The member of the entry with this number.
    fn member(&self, number: u64) -> Text<'_> {
        let mut place = number;
        if let Some(straight) = &self.straight {
            match number.checked_sub(straight.len()) {
                Some(past) => place = past,
                None if straight.is_read() => {
                    // The entries written directly were collected after the others.
                    place = self.len - straight.len() + straight.rank(number);
                }
                None => return straight.member(straight.rank(number)),
            }
        }
        let place = place as usize;
        Text::raw(self.stuff.texts.get(self.stuff.gathered[place / BLOCK][place % BLOCK].text))
    }

    fn is_one_member(&self, one: u64, other: u64, compared: &mut usize) -> bool {
        let (one, other) = (self.member(one), self.member(other));
        *compared += one.len();
        let (mut first, mut second) = (Scratch::new(), Scratch::new());
        one.bytes(&mut first) == other.bytes(&mut second)
    }

    /// Makes a run from the next block, or from a part of it if its members are long.
    fn sort_some(&mut self) {
        let texts = &self.stuff.texts;
        let block = &mut self.stuff.gathered[self.sorted];
        let (mut bytes, mut run) = (0, Vec::new());
        assert!(self.sorted_of_next < block.len(), "{} of a block are sorted", self.sorted_of_next);
        while let Some(Gathered { score, text }) = block.get(self.sorted_of_next).copied()
            && bytes < STEP_BYTES
        {
            self.sorted_of_next += 1;
            if !score.is_nan() {
                bytes += texts.get(text).len();
                run.push(Scored { order: ordered(score), score, text });
            }
        }
        if self.sorted_of_next == block.len() {
            *block = Vec::new();
            (self.sorted, self.sorted_of_next) = (self.sorted + 1, 0);
        }
        run.sort_unstable_by(|one, other| texts.compare(one, other));
        let run = Run { blocks: VecDeque::from_iter((!run.is_empty()).then_some(run)), at: 0 };
        self.stuff.runs.push_back(run);
    }

    /// Starts merging two adjacent runs; if one follows the other completely, they are just
    /// concatenated.
    fn merge_next(&mut self) {
        let Stuff { texts, runs, merged, merging, .. } = &mut self.stuff;
        let (Some(mut left), Some(mut right)) = (runs.pop_front(), runs.pop_front()) else {
            unreachable!("there are two")
        };
        let is_before = |one: &Run, other: &Run| {
            one.last()
                .zip(other.first())
                .is_none_or(|(last, first)| texts.compare(last, first).is_le())
        };
        if is_before(&left, &right) {
            left.append(right);
            merged.push_back(left);
        } else if is_before(&right, &left) {
            right.append(left);
            merged.push_back(right);
        } else {
            *merging = Some([left, right, Run::default()]);
        }
    }

    /// Merges some entries of two runs.
    fn merge_some(&mut self) {
        let Stuff { texts, runs, merged, merging, .. } = &mut self.stuff;
        let Some([left, right, both]) = merging else {
            if runs.len() < 2 {
                merged.append(runs);
                std::mem::swap(runs, merged);
            }
            return self.merge_next();
        };
        let mut compared = 0;
        for _ in 0..STEP {
            let (Some(one), Some(other)) = (left.first(), right.first()) else { break };
            let order = one.order.cmp(&other.order).then_with(|| {
                let (one, other) = (texts.get(one.text), texts.get(other.text));
                compared += one.len().min(other.len());
                one.cmp(other)
            });
            if order.is_le() {
                both.push(*one);
                left.advance();
            } else {
                both.push(*other);
                right.advance();
            }
            if compared >= STEP_BYTES {
                break;
            }
        }
        if (left.blocks.is_empty() || right.blocks.is_empty())
            && let Some([left, right, mut both]) = merging.take()
        {
            both.append(left);
            both.append(right);
            assert!(both.first().is_some(), "two runs make one");
            merged.push_back(both);
        }
    }

    /// Writes some entries. Returns false when all are written, and nothing is held any more.
    fn write_some(&mut self) -> bool {
        let Some(run) = self.stuff.runs.front_mut() else { return self.stuff.dismantle() };
        for _ in 0..STEP {
            let Some(Scored { score, text, .. }) = run.first() else {
                self.stuff.runs.clear();
                break;
            };
            self.entries.push(&match self.stuff.texts.find(*text) {
                Ok(member) => New::of(*score, 0, member), // The hash of a short one is not stored.
                Err(long) => New::of_long(*score, long),
            });
            run.advance();
        }
        true
    }
}

/// The number of leading items, at most `most`, whose hash is unique.
fn alone(bucket: &[Hashed], most: usize) -> usize {
    let is_alone = |pair: &&[Hashed]| pair[0].hash != pair[1].hash && !pair[0].score.is_nan();
    let alone = bucket.windows(2).take(most).take_while(is_alone).count();
    match &bucket[alone..] {
        [last] if alone < most && !last.score.is_nan() => alone + 1,
        _ => alone,
    }
}

impl Drop for SortedBuilder {
    fn drop(&mut self) {
        defer(std::mem::take(&mut self.entries).finish(), Owner::default());
        defer(std::mem::take(&mut self.index).finish(), Owner::default());
        if let Some([left, right, both]) = self.stuff.merging.take() {
            self.stuff.runs.extend([left, right, both]);
        }
        let parting = self.stuff.parting.take();
        self.stuff.buckets.extend(parting.into_iter().flat_map(Parting::into_blocks));
        if is_worth_deferring(self.memory_bytes()) {
            lazyfree::defer(Box::new(std::mem::take(&mut self.stuff)));
        }
    }
}
