//! Building a sorted set of very many entries that come in any order, in steps.
//!
//! Added one by one, each entry is searched for in two trees, at cache misses that cost ten times the
//! work. Here entries are gathered first, and by their hashes into buckets. Then each bucket is sorted:
//! members that came twice meet there, and the index is written from its beginning to its end. Then the
//! entries are sorted by score, in runs that are merged, and written likewise.
//!
//! ```text
//! push    texts: the members   gathered: score, where its text is     buckets: hash, score, number
//! step 1  buckets, one by one  -> index                               twice: the scores are merged
//! step 2  gathered             -> runs of 1 024, sorted, then merged two by two
//! step 3  the only run         -> entries
//! ```
//! What comes in the order of scores, as from a sorted set that is read, makes runs that need no
//! merging but one behind the other.
//!
//! Everything lies in blocks, so that nothing grows by being moved, and is released as it is used up.

use super::big::Big;
use super::index::{self, Hash, Items};
use super::item::{Entries, INLINE_MAX, New};
use super::scan::ordered;
use super::{Root, Sorted};
use crate::lazyfree::{self, Dismantle};
use crate::tree::Appender;
use darter_base::long::Long;
use std::cmp::Ordering;
use std::collections::VecDeque;

/// Entries that a bucket has, about.
const BUCKET: usize = 512;
/// The most buckets: more streams at once are no gain.
const BUCKETS_MAX: usize = 1 << 14;
/// Entries of a block, and of a run at first: sorting one takes some 30 us.
const BLOCK: usize = 1_024;
/// Bytes of a block of texts.
const TEXTS: usize = 64 * 1024;
/// Entries merged or written in one step: at most about 30 us.
const STEP: usize = 256;
/// The length of a text that stands for the number of a long member.
const LONG: u16 = u16::MAX;
/// Blocks released in one step.
const RELEASED: usize = 16;

const _: () = assert!(INLINE_MAX < LONG as usize);

/// An entry as it came.
#[derive(Clone, Copy)]
struct Gathered {
    /// NaN: it was merged into another.
    score: f64,
    text: u64,
}

/// An entry in its bucket.
#[derive(Clone, Copy)]
struct Hashed {
    hash: u64,
    score: f64,
    /// Which it was.
    number: u64,
}

/// An entry that is sorted by score.
#[derive(Clone, Copy)]
struct Scored {
    /// The score, in its order.
    order: i64,
    score: f64,
    text: u64,
}

/// The members' bytes.
#[derive(Default)]
struct Texts {
    blocks: Vec<Vec<u8>>,
    longs: Vec<Long>,
}

impl Texts {
    fn push(&mut self, hash: u64, member: &[u8]) -> u64 {
        let number;
        let (len, bytes) = if member.len() <= INLINE_MAX {
            (member.len() as u16, member)
        } else {
            number = (self.longs.len() as u64).to_le_bytes();
            self.longs.push(Long::new(member, hash));
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

    fn get(&self, text: u64) -> &[u8] {
        let bytes = &self.blocks[(text >> 32) as usize][text as u32 as usize..];
        let (len, bytes) = bytes.split_first_chunk().expect("a length is complete");
        match u16::from_le_bytes(*len) {
            LONG => {
                let number = bytes.first_chunk().expect("a number is complete");
                &self.longs[u64::from_le_bytes(*number) as usize]
            }
            len => &bytes[..usize::from(len)],
        }
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
    /// The next one of the first block.
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

    /// Puts what is left of another run behind this one.
    fn append(&mut self, mut other: Self) {
        if let Some(block) = other.blocks.front_mut() {
            block.drain(..other.at);
        }
        self.blocks.append(&mut other.blocks);
    }
}

/// All that is held until the set is built.
#[derive(Default)]
struct Stuff {
    texts: Texts,
    gathered: Vec<Vec<Gathered>>,
    buckets: Vec<Vec<Hashed>>,
    /// Sorted runs that are to be merged, in their order; those that were, of twice the length.
    runs: VecDeque<Run>,
    merged: VecDeque<Run>,
    /// Two that are being merged, and what they have become so far.
    merging: Option<[Run; 3]>,
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
            let is_done = self.buckets.pop().is_none()
                && self.gathered.pop().is_none()
                && self.texts.blocks.pop().is_none()
                && self.texts.longs.pop().is_none();
            if is_done {
                return false;
            }
        }
        true
    }

    fn bytes(&self) -> usize {
        self.texts.blocks.len() * TEXTS
    }
}

/// Builds a sorted set: see the module.
pub struct Builder {
    stuff: Stuff,
    /// The bits of a hash that are not those of its bucket.
    shift: u32,
    /// How often a member must have been added to be in the set.
    times: usize,
    len: u64,
    /// Buckets that are through, and blocks that are sorted.
    indexed: usize,
    sorted: usize,
    index: Appender<Items>,
    entries: Appender<Entries>,
}

impl Builder {
    /// For about `len` entries.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self::of_common(len, 1)
    }

    /// The same, of members that are added so often: for an intersection of so many sets.
    #[must_use]
    pub fn of_common(len: usize, times: usize) -> Self {
        let buckets = (len / BUCKET).clamp(2, BUCKETS_MAX).next_power_of_two();
        let mut stuff = Stuff::default();
        stuff.buckets.resize_with(buckets, Vec::new);
        let (index, entries) = (Appender::default(), Appender::default());
        let shift = u64::BITS - buckets.trailing_zeros();
        Self { stuff, shift, times, len: 0, indexed: 0, sorted: 0, index, entries }
    }

    /// Adds an entry, whose score is a number. Cost: some 50 ns.
    pub fn push(&mut self, hash: u64, member: &[u8], score: f64) {
        assert!(!score.is_nan(), "a score is a number");
        let text = self.stuff.texts.push(hash, member);
        let gathered = &mut self.stuff.gathered;
        if gathered.last().is_none_or(|block| block.len() == BLOCK) {
            gathered.push(Vec::with_capacity(BLOCK));
        }
        gathered.last_mut().expect("just made").push(Gathered { score, text });
        let bucket = (hash >> self.shift) as usize;
        self.stuff.buckets[bucket].push(Hashed { hash, score, number: self.len });
        self.len += 1;
    }

    /// Bytes of memory held, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let each = size_of::<Gathered>() + size_of::<Hashed>();
        self.stuff.bytes() + self.len as usize * each
    }

    /// Does a portion of the work, once all entries are added. A member that was added several times
    /// gets one score by `merge`, of what came before and of what came later. True while work is left.
    ///
    /// Cost: at most some 50 us.
    pub fn step(&mut self, merge: &dyn Fn(f64, f64) -> f64) -> bool {
        if self.indexed < self.stuff.buckets.len() {
            self.index_bucket(merge);
        } else if self.sorted < self.stuff.gathered.len() {
            self.sort_block();
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

    /// The set, once no work is left.
    #[must_use]
    pub fn finish(mut self) -> Sorted {
        let entries = std::mem::take(&mut self.entries).finish();
        let index = std::mem::take(&mut self.index).finish();
        if entries.is_none() {
            return Sorted::new();
        }
        let mut set = Sorted(Root::Trees(Box::new(Big::of_trees(entries, index))));
        set.shrink();
        set
    }

    /// Writes the items of a bucket to the index, and merges the scores of those that are of one member.
    fn index_bucket(&mut self, merge: &dyn Fn(f64, f64) -> f64) {
        let mut bucket = std::mem::take(&mut self.stuff.buckets[self.indexed]);
        self.indexed += 1;
        bucket.sort_unstable_by_key(|one| (one.hash, one.number));
        let mut rest = &mut bucket[..];
        while let Some((first, others)) = rest.split_first_mut() {
            if !first.score.is_nan() {
                let alike = others.iter().take_while(|other| other.hash == first.hash).count();
                self.index_member(*first, &mut others[..alike], merge);
            }
            rest = others;
        }
    }

    /// Writes the item of a member to the index, which may be among others with its hash, too.
    fn index_member(
        &mut self,
        first: Hashed,
        others: &mut [Hashed],
        merge: &dyn Fn(f64, f64) -> f64,
    ) {
        let (mut score, mut times) = (first.score, 1);
        for other in others.iter_mut().filter(|other| !other.score.is_nan()) {
            if self.is_one_member(first.number, other.number) {
                score = merge(score, other.score);
                times += 1;
                other.score = f64::NAN;
                self.gathered(other.number).score = f64::NAN;
            }
        }
        assert!(!score.is_nan(), "a score is a number");
        if times < self.times {
            self.gathered(first.number).score = f64::NAN;
            return;
        }
        if times > 1 {
            self.gathered(first.number).score = score;
        }
        self.index.push(&index::code(Hash::of(first.hash), score));
    }

    fn gathered(&mut self, number: u64) -> &mut Gathered {
        let number = number as usize;
        &mut self.stuff.gathered[number / BLOCK][number % BLOCK]
    }

    fn is_one_member(&mut self, one: u64, other: u64) -> bool {
        let (one, other) = (self.gathered(one).text, self.gathered(other).text);
        self.stuff.texts.get(one) == self.stuff.texts.get(other)
    }

    /// Makes a run of the next block.
    fn sort_block(&mut self) {
        let block = std::mem::take(&mut self.stuff.gathered[self.sorted]);
        self.sorted += 1;
        let left = block.iter().filter(|one| !one.score.is_nan());
        let entry =
            |one: &Gathered| Scored { order: ordered(one.score), score: one.score, text: one.text };
        let mut run: Vec<_> = left.map(entry).collect();
        run.sort_unstable_by(|one, other| self.stuff.texts.compare(one, other));
        let run = Run { blocks: VecDeque::from_iter((!run.is_empty()).then_some(run)), at: 0 };
        self.stuff.runs.push_back(run);
    }

    /// Merges some entries of two neighbouring runs.
    fn merge_some(&mut self) {
        let Stuff { texts, runs, merged, merging, .. } = &mut self.stuff;
        let Some([left, right, both]) = merging else {
            match (runs.pop_front(), runs.pop_front()) {
                (Some(mut left), Some(right)) => {
                    let in_order = left
                        .last()
                        .zip(right.first())
                        .is_none_or(|(last, first)| texts.compare(last, first).is_le());
                    if in_order {
                        left.append(right);
                        merged.push_back(left);
                    } else {
                        *merging = Some([left, right, Run::default()]);
                    }
                }
                (one, _) => {
                    merged.extend(one);
                    std::mem::swap(runs, merged);
                }
            }
            return;
        };
        for _ in 0..STEP {
            let (Some(one), Some(other)) = (left.first(), right.first()) else { break };
            if texts.compare(one, other).is_le() {
                both.push(*one);
                left.advance();
            } else {
                both.push(*other);
                right.advance();
            }
        }
        if (left.blocks.is_empty() || right.blocks.is_empty())
            && let Some([left, right, mut both]) = merging.take()
        {
            both.append(left);
            both.append(right);
            merged.push_back(both);
        }
    }

    /// Writes some entries. False once all are, and nothing is held any more.
    fn write_some(&mut self) -> bool {
        let Some(run) = self.stuff.runs.front_mut() else { return self.stuff.dismantle() };
        for _ in 0..STEP {
            let Some(Scored { score, text, .. }) = run.first() else {
                self.stuff.runs.clear();
                break;
            };
            let member = self.stuff.texts.get(*text);
            // Of a long one only: it is known by its address.
            let hash = if member.len() > INLINE_MAX { darter_base::hash::of(member) } else { 0 };
            self.entries.push(&New::of(*score, hash, member));
            run.advance();
        }
        true
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        if let Some([left, right, both]) = self.stuff.merging.take() {
            self.stuff.runs.extend([left, right, both]);
        }
        if self.len as usize > BLOCK {
            lazyfree::defer(Box::new(std::mem::take(&mut self.stuff)));
        }
    }
}
